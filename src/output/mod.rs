//! The only printing outside `main`: messages, tables, JSON. Nothing that comes from elsewhere reaches a terminal
//! with its control characters.
//!
//! `screen` knows what a terminal is, `waiting` tells of a wait, `table` makes columns fit, `status` has its views, `mistake` says
//! what is wrong with a command line.

pub mod mistake;
pub mod screen;
pub mod status;
mod table;
pub mod waiting;

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use serde_json::{Value, json};

use crate::duration::{from_millis, millis, show};
use crate::history;
use crate::holder;
use crate::lock::{Held, LockName, Mode, Orphan, Standing};
use crate::signals;

/// One line on stderr: `tenure: …`. Where it cannot be written there is nobody to tell. A reader that takes its time is waited
/// for, unless a signal comes that is to end the program: for whoever holds no lock.
pub fn say(message: &str) {
    screen::write_unless_ended(&line(message));
}

/// As [`say`], for whoever holds a lock, or a place in the line: only what can be written at once, for a reader that has fallen
/// asleep must not keep a job from being stopped.
pub fn tell(message: &str) {
    screen::write_if_possible(&line(message));
}

fn line(message: &str) -> String {
    format!("tenure: {}\n", printable(message))
}

/// One piece of data on stdout. Whoever reads it may stop reading: that is no failure.
///
/// # Errors
/// It could not be written for another reason, such as a full disk.
pub fn print(text: &str) -> anyhow::Result<()> {
    match print_all(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// As [`print()`], for what must not be lost: a reader that is gone is a failure too.
///
/// # Errors
/// It could not be written.
pub fn print_all(text: &str) -> io::Result<()> {
    if signals::was_closed(1) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// As [`print()`], one JSON object on a line.
///
/// # Errors
/// As [`print()`].
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&json_line(value))
}

/// A JSON object on a line of its own. What JSON lets stand and a terminal may obey is written as an escape.
pub fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        // Only strings have any such character, and none of them needs more than four digits.
        if is_harmful(c) {
            let _ = write!(line, "\\u{:04x}", u32::from(c));
        } else {
            line.push(c);
        }
    }
    line.push('\n');
    line
}

/// As [`print()`], which tells whether anybody still reads.
///
/// # Errors
/// As [`print()`].
pub fn print_to_reader(text: &str) -> anyhow::Result<bool> {
    match print_all(text) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        other => other
            .map(|()| true)
            .context("cannot write to standard output"),
    }
}

/// An error's chain of causes in one line, in the words of the system without its numbers.
pub fn chain(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        let text = text.split(" (os error ").next().unwrap_or(&text);
        // SQLite's number for what the text before it says.
        if text.starts_with("Error code ") {
            continue;
        }
        // A wrapper may show its cause itself; once is enough.
        if line.ends_with(text) {
            continue;
        }
        if !line.is_empty() {
            line.push_str(": ");
        }
        line.push_str(&lower_first(text));
    }
    line
}

/// `Permission denied` as `permission denied`; `SQLite` and `I/O` stay.
pub fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    match (chars.next(), chars.next()) {
        (Some(first), Some(second))
            if first.is_ascii_uppercase() && second.is_ascii_lowercase() =>
        {
            first.to_ascii_lowercase().to_string() + &text[1..]
        }
        _ => text.to_owned(),
    }
}

/// Whether a character could command a terminal, or turn its line around.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// The text with whatever could command a terminal, or turn its line around, written as an escape.
pub fn printable(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut out, c| {
            if is_harmful(c) {
                out.extend(c.escape_default());
            } else {
                out.push(c);
            }
            out
        })
}

/// Names for a sentence: `a`, `a and b`, `a, b and c`.
pub fn list(names: &[LockName]) -> String {
    match names {
        [] => String::new(),
        [one] => one.to_string(),
        [most @ .., last] => format!(
            "{} and {last}",
            most.iter()
                .map(LockName::as_str)
                .collect::<Vec<_>>()
                .join(", ")
        ),
    }
}

/// The verb that goes with a list of names.
pub fn is_or_are(names: &[LockName]) -> &'static str {
    if names.len() > 1 { "are" } else { "is" }
}

/// Which of the asked-for locks is held by whom: `deploy is held by ann@web1 (pid 812, ./deploy.sh) for 3m`.
pub fn busy(asked: &[LockName], held: &Held) -> String {
    let name = asked_of(asked, held);
    if let Some(orphan) = &held.orphan {
        return orphaned(name, held, orphan);
    }
    let who = holder::show(&held.holder);
    let since = if held.holder.is_unknown() {
        String::new()
    } else {
        format!(" for {}", show(held_for(held)))
    };
    let mut line = match held.standing {
        Standing::Waiting => format!("{name} is waited for by {who}{since}"),
        // Nobody is at work, and whoever looks for that process does not find it.
        Standing::Resting => {
            format!(
                "{name} is kept by --at-least after {who}, who got it {} ago",
                show(held_for(held))
            )
        }
        _ => format!("{name} is held by {who}{since}"),
    };
    if let Some(note) = &held.holder.note {
        let _ = write!(line, ": {note}");
    }
    if let Some(url) = &held.holder.url {
        let _ = write!(line, ", {url}");
    }
    line
}

/// Nobody finds the process of the `run`: who is at work, for how long that keeps the lock, and what ends it.
fn orphaned(name: &LockName, held: &Held, orphan: &Orphan) -> String {
    let mut line = format!("{name} is held by {}", orphan_of(held));
    if let Some(processes) = processes(orphan) {
        let _ = write!(line, ": {processes}");
    }
    let _ = write!(line, "; {}", orphans_end(name, held, orphan));
    if let Some(note) = &held.holder.note {
        let _ = write!(line, "; note: {note}");
    }
    if let Some(url) = &held.holder.url {
        let _ = write!(line, ", {url}");
    }
    line
}

/// `processes of ann@web1's run (pid 812, killed)`. The command of the run only where that says more than its processes do.
pub fn orphan_of(held: &Held) -> String {
    let holder = &held.holder;
    let is_seen = held
        .orphan
        .as_ref()
        .is_some_and(|orphan| !orphan.processes.is_empty());
    let command = if is_seen {
        String::new()
    } else {
        format!("{}, ", holder.command)
    };
    format!(
        "processes of {}'s run (pid {}, {command}killed)",
        holder::user_at_host(holder),
        holder.pid
    )
}

/// How many processes of an orphan are named in a line.
const MOST_NAMED: usize = 3;

/// How many numbers of processes one would type or copy.
const MOST_ENDED: usize = 16;

/// `pid 815 (sleep 600), pid 816 (sleep 600), pid 817 (sleep 600), 2 more`; none where none is seen.
pub fn processes(orphan: &Orphan) -> Option<String> {
    let all = &orphan.processes;
    let mut named: Vec<String> = all
        .iter()
        .take(MOST_NAMED)
        .map(holder::show_process)
        .collect();
    if all.len() > MOST_NAMED {
        named.push(format!("{} more", all.len() - MOST_NAMED));
    }
    (!named.is_empty()).then(|| named.join(", "))
}

/// For how long an orphan keeps a lock at the most, and what ends that.
pub fn orphans_end(name: &LockName, held: &Held, orphan: &Orphan) -> String {
    let most = held.remaining.max(orphan.rest);
    let (command, caveat) = what_ends(name, orphan);
    format!(
        "for {} at the most; {command} ends it{caveat}",
        waiting::seconds_left(most)
    )
}

/// What to type, and what is to be said of that: it ends all of the processes, where these are seen and few. `release --force` alone
/// has nobody to tell, and waits for them.
pub fn what_ends(name: &LockName, orphan: &Orphan) -> (String, &'static str) {
    let all = &orphan.processes;
    if orphan.rest.is_zero() && (1..=MOST_ENDED).contains(&all.len()) {
        let pids: Vec<String> = all.iter().map(|one| one.pid.to_string()).collect();
        // TERM can be ignored.
        let caveat = if orphan.are_all {
            ", if need be with -9"
        } else {
            ", if need be with -9, if there are no others"
        };
        return (format!("kill {}", pids.join(" ")), caveat);
    }
    let name = holder::as_word(name.as_str());
    (
        format!("tenure release --force --now {name}"),
        ", though they may work on",
    )
}

/// The first of the asked-for locks that this lease has, or of its own where it has none of them.
pub fn asked_of<'a>(asked: &'a [LockName], held: &'a Held) -> &'a LockName {
    let mut both = asked.iter().filter(|name| held.names.contains(name));
    both.next().or(held.names.first()).unwrap_or(&asked[0])
}

/// How long it has been held, or waited for, by the wall clock, which is good enough to read.
fn held_for(held: &Held) -> Duration {
    granted_at(held).elapsed().unwrap_or_default()
}

/// What no calendar has is its last second.
fn granted_at(held: &Held) -> SystemTime {
    UNIX_EPOCH + from_millis(held.since.min(history::LAST))
}

/// One word for how a lease stands.
pub fn state(held: &Held) -> &'static str {
    match held.standing {
        _ if held.revoked => "revoked",
        Standing::Orphaned => "orphaned",
        Standing::Expired | Standing::Crashed => "over",
        Standing::Supervised | Standing::Leased => "held",
        Standing::Waiting => "waiting",
        Standing::Resting => "resting",
    }
}

/// One holder of a lock, or the lock alone where it has none.
#[derive(Clone, Copy)]
pub struct Row<'a> {
    pub name: &'a LockName,
    pub held: Option<&'a Held>,
    /// How many stand in the line for the lock.
    pub waiting: usize,
    /// Who they are, in order, where that was asked for.
    pub line: Option<&'a [&'a Held]>,
    /// No other row of the same lock comes after this one.
    pub is_last: bool,
}

/// One lock as the man page describes it, held or free. No token. Every key is there, null where there is nothing
/// to say.
pub fn lock_json(row: &Row<'_>) -> Value {
    let held = row.held;
    let known = held.filter(|held| !held.holder.is_unknown());
    let holder = known.map(|held| &held.holder);
    let timed = held.filter(|held| !held.ttl.is_zero());
    json!({
        "name": row.name.as_str(),
        "state": held.map_or("free", state),
        "mode": held.map(|held| mode(held.mode).0),
        "slots": held.and_then(|held| mode(held.mode).1),
        "slot": held.and_then(|held| held.slot),
        "stopped": held.and_then(status::is_stopped),
        "expiring": held.map(is_expiring),
        "waiting": row.waiting,
        "line": row.line.map(|line| line.iter().map(|held| waiter_json(held)).collect::<Vec<_>>()),
        "names": held.map(|held| held.names.iter().map(LockName::as_str).collect::<Vec<_>>()),
        "fence": held.map(|held| held.fence),
        "guarded": held.map(|held| held.guarded),
        "inside_of": held.and_then(|held| held.inside_of),
        "ttl_ms": timed.map(|held| millis(held.ttl)),
        "expires_in_ms": timed.map(|held| millis(held.remaining)),
        "granted_at": known.map(|held| humantime::format_rfc3339_millis(granted_at(held)).to_string()),
        "held_ms": known.map(|held| millis(held_for(held))),
        "user": holder.map(|holder| holder::user_name(holder.uid)),
        "uid": holder.map(|holder| holder.uid),
        "host": holder.map(|holder| &holder.host),
        "pid": holder.map(|holder| holder.pid),
        "processes": held.and_then(processes_json),
        "command": held.map(|held| &held.holder.command),
        "directory": holder.map(|holder| &holder.directory),
        "note": holder.and_then(|holder| holder.note.as_ref()),
        "url": holder.and_then(|holder| holder.url.as_ref()),
    })
}

/// The processes of an orphan; none where none is seen.
fn processes_json(held: &Held) -> Option<Value> {
    let all = &held.orphan.as_ref()?.processes;
    let shown = all
        .iter()
        .map(|process| json!({ "pid": process.pid, "command": process.command }));
    (!all.is_empty()).then(|| shown.collect())
}

/// One who waits, as the man page describes it.
fn waiter_json(held: &Held) -> Value {
    let known = (!held.holder.is_unknown()).then_some(held);
    let holder = known.map(|held| &held.holder);
    json!({
        "mode": mode(held.mode).0,
        "slots": mode(held.mode).1,
        "names": held.names.iter().map(LockName::as_str).collect::<Vec<_>>(),
        "inside_of": held.inside_of,
        "asked_at": known.map(|held| humantime::format_rfc3339_millis(granted_at(held)).to_string()),
        "waited_ms": known.map(|held| millis(held_for(held))),
        "user": holder.map(|holder| holder::user_name(holder.uid)),
        "uid": holder.map(|holder| holder.uid),
        "host": holder.map(|holder| &holder.host),
        "pid": holder.map(|holder| holder.pid),
        "command": held.holder.command,
        "directory": holder.map(|holder| &holder.directory),
        "note": holder.and_then(|holder| holder.note.as_ref()),
        "url": holder.and_then(|holder| holder.url.as_ref()),
    })
}

/// A mode's word, and its number of slots.
pub fn mode(mode: Mode) -> (&'static str, Option<u32>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Slots(slots) => ("slots", Some(slots)),
    }
}

/// Why waiting would be for ever: who of the circle waits for what, and who is inside of what.
pub fn deadlock(asked: &[LockName], circle: &[Held]) -> String {
    let mut line = format!("waiting for {} would be for ever", list(asked));
    for (at, held) in circle.iter().enumerate() {
        let is_waiting = held.standing == Standing::Waiting;
        let before = at.checked_sub(1).map(|before| &circle[before]);
        let inside = before.is_some_and(|before| is_inside(held, before));
        let names = if inside {
            line += ", inside of which ";
            held.names.clone()
        } else {
            line += "; ";
            in_the_way(asked, &circle[..at], held)
        };
        let what = match held.mode {
            Mode::Slots(_) => format!("a slot of {} is", list(&names)),
            _ => format!("{} {}", list(&names), is_or_are(&names)),
        };
        let does = if is_waiting { "waited for" } else { "held" };
        let _ = write!(line, "{what} {does} by {}", holder::show(&held.holder));
        if is_waiting && !inside {
            line += ", ahead in the line";
        }
        if !is_waiting && !circle.iter().any(|other| is_inside(other, held)) {
            line += ", inside of which this command runs";
        }
    }
    line
}

/// The locks of one of a circle that are waited for: by the nearest of those before it, or by whoever asked.
fn in_the_way(asked: &[LockName], before: &[Held], held: &Held) -> Vec<LockName> {
    let waiting = before.iter().rev();
    let waiting = waiting.filter(|held| held.standing == Standing::Waiting);
    let mut wanted = waiting.map(|held| &held.names[..]).chain([asked]);
    let shared = |wanted: &[LockName]| -> Vec<LockName> {
        let names = held.names.iter().filter(|name| wanted.contains(name));
        names.cloned().collect()
    };
    wanted
        .find_map(|wanted| Some(shared(wanted)).filter(|names| !names.is_empty()))
        .unwrap_or_else(|| held.names.clone())
}

/// Whether one was taken or asked for inside of the lease of another.
fn is_inside(held: &Held, other: &Held) -> bool {
    held.inside_of.is_some() && held.inside_of == other.fence
}

/// When the lease can end by time: not while its `run` lives.
fn expires_in(held: &Held) -> Option<Duration> {
    let by_time = held.standing != Standing::Supervised && !held.ttl.is_zero();
    by_time.then_some(held.remaining)
}

/// Whether time will end it soon, unless somebody extends it: most of its time to live has passed.
fn is_expiring(held: &Held) -> bool {
    let by_time = matches!(held.standing, Standing::Leased | Standing::Orphaned);
    by_time && held.remaining < held.ttl / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_commands_a_terminal_is_printed() {
        assert_eq!(
            printable("a\x1b[31mb\nc\u{9b}d\u{202e}é 漢"),
            "a\\u{1b}[31mb\\nc\\u{9b}d\\u{202e}é 漢"
        );
    }

    #[test]
    fn nor_does_json_have_it_which_says_the_same_all_the_same() {
        let text = "a\x1b[31mb\n\u{7f}c\u{9b}d\u{202e}é 漢\"\\";
        let line = json_line(&json!({ "note": text }));
        assert_eq!(
            line,
            "{\"note\":\"a\\u001b[31mb\\n\\u007fc\\u009bd\\u202eé 漢\\\"\\\\\"}\n"
        );
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(read["note"], text);
    }

    #[test]
    fn an_error_is_one_line_of_causes() {
        let denied = io::Error::from_raw_os_error(libc::EACCES);
        let error = Err::<(), _>(denied)
            .context("cannot open /x/y.db")
            .unwrap_err();
        assert_eq!(chain(&error), "cannot open /x/y.db: permission denied");
    }

    #[test]
    fn names_are_listed_as_in_a_sentence() {
        let names: Vec<LockName> = ["a", "b", "c"].map(|name| name.parse().unwrap()).to_vec();
        assert_eq!(list(&names), "a, b and c");
        assert_eq!(list(&names[..2]), "a and b");
        assert_eq!(list(&names[..1]), "a");
    }
}
