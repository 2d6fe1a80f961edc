//! What `status` shows people: all locks in a table, or some with all that is known of them and the line behind each.

use std::fmt::Write as _;

use super::table::{Column, render};
use super::waiting::{ordinal, seconds, seconds_left};
use super::{
    Row, expires_in, granted_at, held_for, is_expiring, mode, printable, processes, state,
    what_ends,
};
use crate::duration::show;
use crate::holder;
use crate::lock::{Held, Holder, Mode, Standing};

/// What stands for nothing.
const NOTHING: &str = "-";

/// How far what is told of a lock stands to the right of its name.
const INDENT: &str = "  ";

/// The word for how a lease stands, for people.
fn word(held: &Held) -> &'static str {
    match state(held) {
        "held" if is_stopped(held) == Some(true) => "stopped",
        "held" if is_expiring(held) => "expiring",
        state => state,
    }
}

/// Whether its `run` is stopped; none where there is no such process, or it is of no account.
pub fn is_stopped(held: &Held) -> Option<bool> {
    (held.standing == Standing::Supervised).then(|| holder::is_stopped(&held.holder))
}

/// What is wrong or unusual about a lease, in words.
fn explanation(held: &Held) -> Option<&'static str> {
    Some(match word(held) {
        "revoked" if held.orphan.is_some() => {
            "release --force took it away, but its run was killed, and processes of its command live on"
        }
        "revoked" => "its holder was told by release --force to give it up",
        "orphaned" => "its run was killed, and processes of its command live on",
        "stopped" => "its run is stopped, and keeps it until it goes on or is killed",
        "expiring" => "most of its time to live has passed without extend",
        "resting" => "it has ended before its --at-least",
        _ => return None,
    })
}

fn mode_text(held: &Held) -> String {
    match (held.mode, held.slot) {
        (Mode::Slots(slots), Some(slot)) => format!("slot {slot} of {slots}"),
        (Mode::Slots(slots), None) => format!("one of {slots} slots"),
        (other, _) => mode(other).0.to_owned(),
    }
}

fn who(held: &Held) -> String {
    printable(&holder::user_at_host(&held.holder))
}

/// The holder, where more is known of him than what he is called.
fn known(held: &Held) -> Option<&Holder> {
    Some(&held.holder).filter(|holder| !holder.is_unknown())
}

/// Locks as a table, one row each, under the place they are kept in.
pub fn overview(location: &str, rows: &[Row<'_>], room: Option<usize>) -> String {
    let cells = |text: &dyn Fn(&Held) -> Option<String>| -> Vec<String> {
        let cell = |row: &Row<'_>| row.held.and_then(text).unwrap_or_else(|| NOTHING.into());
        rows.iter().map(cell).collect()
    };
    let names = rows.iter().map(|row| printable(row.name.as_str()));
    let states = rows.iter().map(|row| row.held.map_or("free", word).into());
    let waiting = rows.iter().map(|row| row.waiting.to_string());
    let columns = vec![
        Column::new("NAME", 0, names.collect()).cut_to(12),
        Column::new("STATE", 0, states.collect()),
        Column::new("MODE", 6, cells(&|held| Some(mode_text(held)))).unless_all("exclusive"),
        Column::new("HOLDER", 0, cells(&|held| Some(who(held))))
            .cut_to(10)
            .unless_all(NOTHING),
        Column::new(
            "PID",
            7,
            cells(&|held| known(held).map(|holder| holder.pid.to_string())),
        ),
        Column::new("FENCE", 8, cells(&|held| Some(held.fence?.to_string()))),
        Column::new(
            "HELD",
            1,
            cells(&|held| known(held).map(|_| seconds(held_for(held)))),
        )
        .unless_all(NOTHING),
        Column::new(
            "EXPIRES",
            3,
            cells(&|held| expires_in(held).map(seconds_left)),
        )
        .unless_all(NOTHING),
        Column::new("WAITING", 2, waiting.collect()),
        Column::new(
            "COMMAND",
            4,
            cells(&|held| Some(printable(&held.holder.command))),
        )
        .cut_to(10)
        .unless_all(NOTHING),
        Column::new(
            "NOTE",
            5,
            cells(&|held| held.holder.note.as_deref().map(printable)),
        )
        .cut_to(8)
        .unless_all(NOTHING),
    ];
    format!(
        "locks in {}:\n{}",
        printable(location),
        render(columns, room)
    )
}

/// All that is known of some locks, and of those who wait for them. `rows` has all holders of a lock one after the other.
pub fn details(location: &str, rows: &[Row<'_>], room: Option<usize>) -> String {
    let mut text = format!("locks in {}:\n", printable(location));
    for holders in rows.chunk_by(|one, other| one.name == other.name) {
        let _ = write!(text, "\n{}\n", printable(holders[0].name.as_str()));
        for (number, row) in holders.iter().enumerate() {
            if number > 0 {
                text.push('\n');
            }
            text += &facts(row);
        }
        if let Some(line) = holders[0].line.filter(|line| !line.is_empty()) {
            let room = room.map(|room| room.saturating_sub(2 * INDENT.len()));
            for line in waiters(line, room).lines() {
                let _ = writeln!(text, "{INDENT}{INDENT}{line}");
            }
        }
    }
    text
}

/// What is known of one holder, or that there is none.
fn facts(row: &Row<'_>) -> String {
    let mut facts: Vec<(&str, String)> = Vec::new();
    let state = row.held.map_or("free", word);
    let why = row.held.and_then(explanation);
    facts.push((
        "state",
        why.map_or_else(|| state.to_owned(), |why| format!("{state}: {why}")),
    ));
    if let Some(held) = row.held {
        let holder = &held.holder;
        facts.push(("mode", mode_text(held)));
        if holder.is_unknown() {
            facts.push(("holder", printable(&holder.command)));
        } else {
            let killed = held.orphan.as_ref().map_or("", |_| " (killed)");
            let pid = holder.pid;
            facts.push(("holder", format!("{}, pid {pid}{killed}", who(held))));
            facts.push(("command", printable(&holder.command)));
            facts.push(("directory", printable(&holder.directory)));
        }
        if let Some(url) = &holder.url {
            facts.push(("run", printable(url)));
        }
        facts.extend(holder.note.iter().map(|note| ("note", printable(note))));
        facts.extend(known(held).map(|_| {
            let since = humantime::format_rfc3339_seconds(granted_at(held));
            let held_for = seconds(held_for(held));
            ("held for", format!("{held_for}, since {since}"))
        }));
        if let Some(orphan) = &held.orphan {
            facts.extend(processes(orphan).map(|all| ("processes", printable(&all))));
            let (command, caveat) = what_ends(row.name, orphan);
            facts.push(("to end it", printable(&format!("{command}{caveat}"))));
        }
        let head = if held.ttl.is_zero() {
            "expires"
        } else {
            "expires in"
        };
        facts.push((head, expiry(held)));
        facts.extend(held.fence.map(|fence| ("fence", fence.to_string())));
        let others = held.names.iter().filter(|name| *name != row.name);
        let others: Vec<String> = others.map(|name| printable(name.as_str())).collect();
        if !others.is_empty() {
            facts.push(("with", others.join(", ")));
        }
        facts.extend(
            held.inside_of
                .map(|fence| ("inside of", format!("the lease with fence {fence}"))),
        );
    }
    if row.is_last {
        facts.push(("waiting", row.waiting.to_string()));
    }
    let mut text = String::new();
    for (head, fact) in facts {
        let _ = writeln!(text, "{INDENT}{head:10}  {fact}");
    }
    text
}

/// When time ends a lease.
fn expiry(held: &Held) -> String {
    if held.ttl.is_zero() {
        return "never".into();
    }
    let ttl = show(held.ttl);
    match (held.standing, expires_in(held)) {
        (Standing::Resting, Some(left)) => seconds_left(left),
        (_, Some(left)) => format!("{} of {ttl}", seconds_left(left)),
        (_, None) => format!("not while its holder lives, then {ttl} at most"),
    }
}

/// Those who wait for a lock, in the order of their line.
fn waiters(line: &[&Held], room: Option<usize>) -> String {
    let cells = |text: &dyn Fn(&Held) -> String| -> Vec<String> {
        line.iter().map(|held| text(held)).collect()
    };
    let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.into());
    let places = (1..).take(line.len()).map(ordinal).collect();
    let columns = vec![
        Column::new("PLACE", 0, places),
        Column::new("WAITER", 0, cells(&who)).cut_to(10),
        Column::new(
            "PID",
            4,
            cells(&|held| or_nothing(known(held).map(|holder| holder.pid.to_string()))),
        ),
        Column::new("MODE", 3, cells(&mode_text)).unless_all("exclusive"),
        Column::new(
            "WAITING FOR",
            1,
            cells(&|held| or_nothing(known(held).map(|_| seconds(held_for(held))))),
        ),
        Column::new("COMMAND", 1, cells(&|held| printable(&held.holder.command))).cut_to(10),
        Column::new(
            "NOTE",
            2,
            cells(&|held| {
                let note = held.holder.note.as_deref();
                note.map_or_else(|| NOTHING.into(), printable)
            }),
        )
        .cut_to(8)
        .unless_all(NOTHING),
    ];
    render(columns, room)
}
