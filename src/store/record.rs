//! What stores that keep a log write into it, in the same words, and how long they keep it.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::duration::millis;
use crate::holder;
use crate::lock::{Ending, Entry, Event, Held, Lease, Mode, Request};

/// How many entries are kept: two months of a job that runs each minute, about 25 MB.
pub const MOST: i64 = 100_000;

/// How long one is kept, in milliseconds: 90 days, so that a monthly job can be compared with the one before.
pub const OLDEST: i64 = 90 * 24 * 60 * 60 * 1000;

/// How many are forgotten at once, while somebody may wait for the write lock. Many more than are written between two
/// sweeps, so that the log is never longer for long.
pub const PRUNED: i64 = 64;

/// How many entries may have been written since a lease was lost and its holder has noticed.
pub const RECENT: i64 = 1000;

/// In the place of the moment at which a lease expires that was given back, and rests.
pub const ENDED: i64 = 0;

/// A mode's word, and its number of slots.
pub fn words_of(mode: Mode) -> (&'static str, Option<u32>) {
    match mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Slots(slots) => ("slots", Some(slots)),
    }
}

pub fn mode_of(word: &str, slots: Option<u32>) -> Mode {
    match (word, slots) {
        ("shared", _) => Mode::Shared,
        ("slots", Some(slots)) => Mode::Slots(slots),
        _ => Mode::Exclusive,
    }
}

/// The entry of a lease of this process's own. Where it was `taken` away at once, by somebody at some moment, it ended then.
pub fn of_own(
    request: &Request,
    lease: &Lease,
    ending: &Ending,
    now: i64,
    was_held: bool,
    taken: Option<(i64, String)>,
) -> Entry {
    // It may end by itself in the second between a forced release and the look that would have noticed it.
    let (event, reason) = if taken.is_some() {
        (Event::Lost, Some("forced"))
    } else if was_held || ending.event == Event::Lost {
        (ending.event, ending.reason)
    } else {
        (Event::Lost, Some("gone"))
    };
    let (ended_at, by) = match taken {
        Some((at, by)) => (at, Some(by)),
        None => (now, ending.by.clone()),
    };
    Entry {
        at: now,
        event,
        names: lease.names.clone(),
        mode: request.mode,
        slot: lease.slot,
        fence: Some(lease.fence),
        requested_at: lease.requested_at,
        granted_at: Some(lease.granted_at),
        ended_at: Some(ended_at),
        status: ending.status,
        signal: ending.signal,
        reason: reason.map(str::to_owned),
        by,
        holder: request.holder.clone(),
    }
}

/// The entry of a request that was refused because of others, of whom one is named.
pub fn of_refusal(
    request: &Request,
    asked_at: SystemTime,
    event: Event,
    by: &[Held],
    now: i64,
) -> Entry {
    let asked_at = asked_at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Entry {
        at: now,
        event,
        names: request.names.clone(),
        mode: request.mode,
        slot: None,
        fence: None,
        requested_at: millis(asked_at),
        granted_at: None,
        ended_at: Some(now),
        status: None,
        signal: None,
        reason: None,
        by: by.first().map(|held| holder::show(&held.holder)),
        holder: request.holder.clone(),
    }
}
