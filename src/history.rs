//! The log as people and programs read it: which events an entry tells of, and each as a line or as JSON. No store, no
//! terminal.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::duration::{from_millis, show};
use crate::holder;
use crate::lock::{Entry, Event, LockName};
use crate::output::{self, printable};
use crate::signals::Signal;

/// Waits up to this are those of a request that nobody was in the way of, or that did not wait.
pub const NO_WAIT: Duration = Duration::from_millis(100);

/// The last second of the year 9999, in milliseconds: no calendar has more.
pub const LAST: i64 = 253_402_300_799_000;

/// One thing that happened, and the entry that tells of it.
#[derive(Clone, Copy, Debug)]
pub struct Happening<'a> {
    /// Milliseconds since 1970.
    pub at: i64,
    pub event: Event,
    pub entry: &'a Entry,
}

/// What was told already, so that nothing is told twice: a lease's grant stands in every entry about it.
#[derive(Debug, Default)]
pub struct Told {
    happened: HashSet<(i64, Event)>,
}

impl Told {
    /// What these entries tell that was not told before, in the order in which it happened. Those who wait are no
    /// event yet.
    pub fn news<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Vec<Happening<'a>> {
        let mut happenings = Vec::new();
        for entry in entries {
            let is_told_to_end = entry.event == Event::Forced && entry.ended_at.is_none();
            if let (Some(at), false) = (entry.granted_at, is_told_to_end)
                && self.is_new(entry, Event::Granted)
            {
                happenings.push(Happening {
                    at,
                    event: Event::Granted,
                    entry,
                });
            }
            let is_over = !matches!(entry.event, Event::Granted | Event::Waiting);
            // A lease may be forced more than once, and each time by another.
            if is_over && (entry.event == Event::Forced || self.is_new(entry, entry.event)) {
                happenings.push(Happening {
                    at: ended(entry),
                    event: entry.event,
                    entry,
                });
            }
        }
        // Stable: what happened within one millisecond stays in the order of the entries.
        happenings.sort_by_key(|happening| happening.at);
        happenings
    }

    fn is_new(&mut self, entry: &Entry, event: Event) -> bool {
        let Some(fence) = entry.fence else {
            return true;
        };
        self.happened.insert((fence, event))
    }
}

/// When it was over, as far as anybody knows.
pub fn ended(entry: &Entry) -> i64 {
    entry.ended_at.unwrap_or(entry.at)
}

/// How long it stood in line, by the wall clock.
fn waited(happening: &Happening<'_>) -> Duration {
    let entry = happening.entry;
    let until = entry.granted_at.unwrap_or(ended(entry));
    from_millis(until.saturating_sub(entry.requested_at))
}

/// How long it was held until then, by the wall clock; none of what was not held, and of a grant.
fn held(happening: &Happening<'_>) -> Option<Duration> {
    let granted = happening.entry.granted_at?;
    (happening.event != Event::Granted).then(|| from_millis(happening.at.saturating_sub(granted)))
}

/// Whether nobody saw the end: it was found later.
fn was_found(entry: &Entry) -> bool {
    let may_be = matches!(
        entry.event,
        Event::Crashed | Event::Released | Event::Expired
    );
    entry.ended_at.is_none() && may_be
}

/// A moment as people write it, with milliseconds, in local time, of which the caller knows how far it is ahead of UTC.
pub fn moment(at: i64, offset: i64) -> String {
    let local = rfc3339(at.saturating_add(offset));
    local.trim_end_matches('Z').replace('T', " ")
}

/// In UTC, with milliseconds. Before 1970 is 1970, and what no calendar has is its last second.
fn rfc3339(at: i64) -> String {
    let time: SystemTime = UNIX_EPOCH + from_millis(at.min(LAST));
    humantime::format_rfc3339_millis(time).to_string()
}

/// `2026-03-01 02:05:03  released  deploy after 5m, exit 0: ann@web1 (pid 812, ./deploy.sh) in /srv/site: nightly`, with
/// the line's end.
pub fn line(happening: &Happening<'_>, offset: i64) -> String {
    let entry = happening.entry;
    let mut text = format!(
        "{}  {:<8}  {}{}: {} in {}",
        &moment(happening.at, offset)[..19],
        happening.event.word(),
        output::list(&entry.names),
        details(happening),
        holder::show(&entry.holder),
        entry.holder.directory
    );
    if let Some(note) = &entry.holder.note {
        let _ = write!(text, ": {note}");
    }
    if let Some(url) = &entry.holder.url {
        let _ = write!(text, ", {url}");
    }
    printable(&text) + "\n"
}

fn details(happening: &Happening<'_>) -> String {
    let entry = happening.entry;
    let mut text = String::new();
    let waited = Some(waited(happening)).filter(|waited| *waited >= NO_WAIT);
    let held = held(happening).map(show);
    let by = entry.by.as_deref().unwrap_or("somebody");
    let _ = match (happening.event, &held) {
        (Event::Granted, _) => {
            let mode = match output::mode(entry.mode) {
                ("exclusive", _) => String::new(),
                (word, _) => format!(" {word}"),
            };
            text += &mode;
            if let Some(fence) = entry.fence {
                let _ = write!(text, ", fence {fence}");
            }
            if let Some(slot) = entry.slot {
                let _ = write!(text, ", slot {slot}");
            }
            waited.map_or(Ok(()), |waited| {
                write!(text, ", after a wait of {}", show(waited))
            })
        }
        (Event::Busy | Event::Deadlock, _) => {
            if let Some(waited) = waited {
                let _ = write!(text, " for all of {}", show(waited));
            }
            let why = match happening.event {
                Event::Busy => "behind",
                _ => "because of",
            };
            write!(text, ", {why} {by}")
        }
        (Event::Crashed, None) => write!(text, ", while it waited"),
        (_, Some(held)) if was_found(entry) => write!(text, ", found {held} after the grant"),
        (Event::Forced, Some(held)) => write!(text, " after {held} by {by}"),
        (_, Some(held)) => write!(text, " after {held}"),
        (_, None) => Ok(()),
    };
    if happening.event == Event::Granted {
        return text;
    }
    let why = match entry.reason.as_deref() {
        None => None,
        Some("max-time") => Some("stopped by --max-time".to_owned()),
        Some("not-started") => Some("the command was not started".to_owned()),
        Some("closed") => Some("its descriptor was closed".to_owned()),
        Some("forced") => Some(format!("taken away by {by}")),
        Some("gone") => Some("its lease was gone".to_owned()),
        Some("moved") => Some("the database was deleted or replaced".to_owned()),
        Some("not-renewed") => Some("not renewed in time".to_owned()),
        Some(other) => Some(other.to_owned()),
    };
    if let Some(why) = why {
        let _ = write!(text, ", {why}");
    }
    if let Some(status) = entry.status {
        let _ = write!(text, ", exit {status}");
    }
    if let Some(signal) = entry.signal {
        let _ = write!(text, ", killed by {}", Signal::from_number(signal));
    }
    text
}

/// One event as the man page describes it. Every key is there, null where there is nothing to say.
pub fn as_json(happening: &Happening<'_>) -> Value {
    let entry = happening.entry;
    let (mode, slots) = output::mode(entry.mode);
    let is_end = happening.event != Event::Granted;
    let millis = |duration: Duration| crate::duration::millis(duration);
    let holder = &entry.holder;
    json!({
        "time": rfc3339(happening.at),
        "event": happening.event.word(),
        "names": entry.names.iter().map(LockName::as_str).collect::<Vec<_>>(),
        "mode": mode,
        "slots": slots,
        "slot": entry.slot,
        "fence": entry.fence,
        "requested_at": rfc3339(entry.requested_at),
        "granted_at": entry.granted_at.map(rfc3339),
        "waited_ms": millis(waited(happening)),
        "held_ms": held(happening).map(millis),
        "status": entry.status.filter(|_| is_end),
        "signal": entry.signal.filter(|_| is_end).map(|signal| Signal::from_number(signal).to_string()),
        "reason": entry.reason.as_ref().filter(|_| is_end),
        "by": entry.by.as_ref().filter(|_| is_end),
        "user": holder::user_name(holder.uid),
        "uid": holder.uid,
        "host": holder.host,
        "pid": holder.pid,
        "command": holder.command,
        "directory": holder.directory,
        "note": holder.note,
        "url": holder.url,
    })
}
