//! The log as keys beside the locks, one an entry: their revisions are their numbers. Only the newest are kept.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api;
use super::client::{Client, Fault};
use super::ticket::{
    Lines, Record, Ticket, holder_of, mode_of, names_of, own_key, put_holder, slot_of,
};
use crate::chance;
use crate::duration::millis;
use crate::lock::{Entry, Event, LockName, Standing};
use crate::store::{History, Query, record};

/// How many entries are kept: they are in the memory and the snapshots of every member.
const MOST: i64 = 1000;

/// One of so many entries looks whether there are too many.
const PRUNING: u8 = 16;

/// Milliseconds of the wall clock since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    millis(since.unwrap_or_default())
}

fn beginning(prefix: &str) -> Vec<u8> {
    own_key(prefix, "log/")
}

/// A key for one entry, which sorts after those of earlier ones. Whoever puts it twice has written it once.
pub fn key(prefix: &str, at: i64) -> Result<Vec<u8>> {
    let chance: [u8; 8] = chance::bytes().context("cannot draw a number")?;
    let number = u64::from_be_bytes(chance);
    Ok(own_key(
        prefix,
        &format!("log/{:015}-{number:016x}", at.max(0)),
    ))
}

/// Puts an entry. `fence` is that of the lease, if it is known; otherwise, of a lease, it is the revision at which this is put.
pub fn put(key: &[u8], entry: &Entry, fence: Option<i64>) -> Value {
    api::put(key, &as_bytes(entry, fence), 0)
}

/// Writes an entry. Whether it was, is of no weight to whoever asks.
pub fn write(client: &Client, prefix: &str, entry: &Entry, bound: Duration) {
    let Ok(key) = key(prefix, entry.at) else {
        return;
    };
    let put = put(&key, entry, entry.fence);
    if client.transact(&[], &[put], &[], bound).is_ok() {
        prune_now_and_then(client, prefix, bound);
    }
}

/// To be called after an entry was written.
pub fn prune_now_and_then(client: &Client, prefix: &str, bound: Duration) {
    let is_to_prune = chance::bytes().is_ok_and(|[byte]: [u8; 1]| byte % PRUNING == 0);
    if is_to_prune {
        let _ = prune(client, prefix, bound);
    }
}

/// Forgets what is too much.
pub fn prune(client: &Client, prefix: &str, bound: Duration) -> Result<(), Fault> {
    let beginning = beginning(prefix);
    let (_, count) = client.count(&beginning, bound)?;
    if count <= MOST {
        return Ok(());
    }
    if let Some(first_kept) = client.key_after(&beginning, count - MOST, bound)? {
        let old = api::delete_until(&beginning, &first_kept);
        client.transact(&[], &[old], &[], bound)?;
    }
    Ok(())
}

/// Of a lease that was just granted.
pub fn of_grant(record: &Record) -> Entry {
    Entry {
        fence: record.fence,
        ..of_record(record, Event::Granted, now())
    }
}

/// Of a lease that is as its record says.
pub fn of_record(record: &Record, event: Event, now: i64) -> Entry {
    Entry {
        at: now,
        event,
        names: record.names.clone(),
        mode: record.mode,
        slot: record.slot,
        fence: record.fence,
        requested_at: record.requested_at,
        granted_at: record.granted_at,
        ended_at: None,
        status: None,
        signal: None,
        reason: None,
        by: None,
        holder: record.holder.clone(),
    }
}

/// Of a request, held or not, as it was found.
pub fn of_ticket(ticket: &Ticket, event: Event, now: i64) -> Option<Entry> {
    let record = ticket.record.as_ref()?;
    Some(Entry {
        fence: ticket.fence(),
        ..of_record(record, event, now)
    })
}

fn as_bytes(entry: &Entry, fence: Option<i64>) -> Vec<u8> {
    let (mode, slots) = record::words_of(entry.mode);
    let mut value = json!({
        "at": entry.at,
        "event": entry.event.word(),
        "names": entry.names.iter().map(LockName::as_str).collect::<Vec<_>>(),
        "mode": mode,
        "slots": slots,
        "slot": entry.slot,
        "fence": fence,
        "requested_at": entry.requested_at,
        "granted_at": entry.granted_at,
        "ended_at": entry.ended_at,
        "status": entry.status,
        "signal": entry.signal,
        "reason": entry.reason,
        "by": entry.by,
    });
    put_holder(&mut value, &entry.holder);
    value.to_string().into_bytes()
}

/// None for what somebody wrote by hand and means nothing.
fn from_bytes(bytes: &[u8], revision: i64) -> Option<Entry> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let number = |key: &str| value[key].as_i64();
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let granted_at = number("granted_at");
    Some(Entry {
        at: number("at")?,
        event: Event::of_word(value["event"].as_str()?)?,
        names: names_of(&value)?,
        mode: mode_of(&value)?,
        slot: slot_of(&value),
        fence: number("fence").or(granted_at.map(|_| revision)),
        requested_at: number("requested_at")?,
        granted_at,
        ended_at: number("ended_at"),
        status: number("status").and_then(|status| u8::try_from(status).ok()),
        signal: number("signal").and_then(|signal| i32::try_from(signal).ok()),
        reason: text("reason"),
        by: text("by"),
        holder: holder_of(&value)?,
    })
}

/// Reads what is asked for; `lines` are all that there are now.
pub fn read(
    client: &Client,
    prefix: &str,
    query: &Query,
    lines: &Lines,
    bound: Duration,
) -> Result<History, Fault> {
    let after = query.after.unwrap_or(0);
    let (mut found, revision) = client.all_after(&beginning(prefix), after, bound)?;
    found.sort_by_key(|kv| kv.created);
    let is_asked = |entry: &Entry| {
        let mut names = entry.names.iter();
        let is_named = query.names.is_empty() || names.any(|name| query.names.contains(name));
        is_named && query.since.is_none_or(|since| entry.at >= since)
    };
    let entries = found
        .iter()
        .filter_map(|kv| from_bytes(&kv.value, kv.modified));
    let mut written: Vec<Entry> = entries.filter(is_asked).collect();
    if let Some(most) = query.most {
        written.drain(..written.len().saturating_sub(most));
    }
    let now = now();
    let present = lines.tickets().into_iter().filter_map(|ticket| {
        let event = match lines.standing(ticket) {
            Standing::Waiting => Event::Waiting,
            // Its end is in the log.
            Standing::Resting => return None,
            _ => Event::Granted,
        };
        of_ticket(ticket, event, now)
    });
    let is_named = |entry: &Entry| {
        let mut names = entry.names.iter();
        query.names.is_empty() || names.any(|name| query.names.contains(name))
    };
    Ok(History {
        written,
        present: present.filter(is_named).collect(),
        last: revision.max(after),
    })
}
