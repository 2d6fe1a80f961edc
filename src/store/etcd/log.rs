//! The log as keys beside the locks, one an entry: their revisions are their numbers. Only the newest are kept.
//!
//! A lease has one, too, which no time takes away: its grant writes it, its end replaces it. Where nobody has, and the lease's
//! own keys are gone, it ended unseen.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api::{self, Kv};
use super::client::{Client, Fault};
use super::ticket::{
    Lines, Record, Ticket, holder_of, key_of as key_in_line, mode_of, names_of, own_key,
    put_holder, slot_of,
};
use crate::chance;
use crate::duration::millis;
use crate::lock::{Entry, Event, LockName, Standing};
use crate::rules::line::{self, Relation};
use crate::store::{History, Query, record};

/// How many entries are kept: they are in the memory and the snapshots of every member.
const MOST: i64 = 1000;

/// One of so many entries looks whether there are too many.
const PRUNING: u8 = 16;

/// How many are looked after then, more than are written meanwhile: as many keys as etcd takes in one transaction.
const AT_ONCE: i64 = 128;

/// Milliseconds of the wall clock since 1970.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    millis(since.unwrap_or_default())
}

fn beginning(prefix: &str) -> Vec<u8> {
    own_key(prefix, "log/")
}

/// The key for the entry of a request, whatever becomes of it; it sorts after those of earlier ones.
pub fn key_of(prefix: &str, requested_at: i64, id: i64) -> Vec<u8> {
    let requested_at = requested_at.max(0);
    own_key(prefix, &format!("log/{requested_at:015}-{id:016x}"))
}

/// A key for an entry besides that. Whoever puts it twice has written it once.
fn key(prefix: &str, at: i64) -> Result<Vec<u8>> {
    let chance: [u8; 8] = chance::bytes().context("cannot draw a number")?;
    Ok(key_of(prefix, at, i64::from_be_bytes(chance)))
}

/// The number of the request whose entry it may be.
fn id_of(key: &[u8]) -> Option<i64> {
    let digits = key.rsplit(|byte| *byte == b'-').next()?;
    let digits = std::str::from_utf8(digits).ok()?;
    i64::from_str_radix(digits, 16).ok()
}

/// Puts the entry of an end, or of what ends nothing.
pub fn put(key: &[u8], entry: &Entry) -> Value {
    api::put(key, &as_bytes(entry, entry.fence, None), 0)
}

/// Puts the entry of a lease that was granted, with the revision at which this is put as its fence, unless that is known.
/// `until` is when it ends at the latest, by the wall clock, where nobody renews it.
pub fn put_grant(key: &[u8], record: &Record, until: Option<i64>) -> Value {
    let entry = of_record(record, Event::Granted, now());
    api::put(key, &as_bytes(&entry, record.fence, until), 0)
}

/// When a lease ends that is counted from now; none of one that is renewed.
pub fn end_of(record: &Record, ttl: Duration) -> Option<i64> {
    (!record.is_run).then(|| now().saturating_add(millis(ttl)))
}

/// Writes an entry: under the key of its request, if nobody has written an end there, or else under one of its own.
pub fn write(
    client: &Client,
    prefix: &str,
    entry: &Entry,
    own: Option<&[u8]>,
    bound: Duration,
) -> Result<()> {
    if !own.is_some_and(|key| replace_grant(client, key, entry, bound)) {
        let put = put(&key(prefix, entry.at)?, entry);
        client.transact(&[], &[put], &[], bound)?;
    }
    prune_now_and_then(client, prefix, bound);
    Ok(())
}

/// Writes down the end of a lease that was granted and not wanted any more.
pub fn end_grant(client: &Client, key: &[u8], bound: Duration) {
    if let Some((kv, grant)) = grant_at(client, key, bound) {
        let now = now();
        let end = Entry {
            at: now,
            event: Event::Released,
            ended_at: Some(now),
            ..grant
        };
        let same = [api::is_unchanged(&kv)];
        let _ = client.transact(&same, &[put(key, &end)], &[], bound);
    }
}

fn replace_grant(client: &Client, key: &[u8], entry: &Entry, bound: Duration) -> bool {
    grant_at(client, key, bound).is_some_and(|(kv, _)| {
        let same = [api::is_unchanged(&kv)];
        let outcome = client.transact(&same, &[put(key, entry)], &[], bound);
        outcome.is_ok_and(|outcome| outcome.succeeded)
    })
}

/// The entry of a grant whose end is not written down.
fn grant_at(client: &Client, key: &[u8], bound: Duration) -> Option<(Kv, Entry)> {
    let read = client.transact(&[], &[api::one(key)], &[], bound);
    let kv = read.ok()?.ranges.into_iter().flatten().next()?;
    let entry = entry_of(&kv).filter(|entry| entry.event == Event::Granted)?;
    Some((kv, entry))
}

/// Who ended a lease by force, of which this is the entry.
pub fn forced_by(kv: &Kv) -> Option<String> {
    let entry = entry_of(kv)?;
    entry.by.filter(|_| entry.event == Event::Forced)
}

/// Whether this is the entry, as it was put.
pub fn is(kv: &Kv, entry: &Entry) -> bool {
    kv.value == as_bytes(entry, entry.fence, None)
}

/// To be called after an entry was written.
pub fn prune_now_and_then(client: &Client, prefix: &str, bound: Duration) {
    let is_to_prune = chance::bytes().is_ok_and(|[byte]: [u8; 1]| byte % PRUNING == 0);
    if is_to_prune {
        let _ = settle(client, prefix, bound);
        let _ = prune(client, prefix, bound);
    }
}

/// Forgets what is too much: what was written first, but not what has not ended yet.
fn prune(client: &Client, prefix: &str, bound: Duration) -> Result<(), Fault> {
    let beginning = beginning(prefix);
    let (_, count) = client.count(&beginning, bound)?;
    if count <= MOST {
        return Ok(());
    }
    let oldest = client.oldest(&beginning, (count - MOST).min(AT_ONCE), bound)?;
    let is_over = |kv: &&Kv| entry_of(kv).is_none_or(|entry| entry.event != Event::Granted);
    let old = oldest.iter().filter(is_over).map(|kv| api::delete(&kv.key));
    client.transact(&[], &old.collect::<Vec<_>>(), &[], bound)?;
    Ok(())
}

/// Writes down what ended and nobody has seen, so that it is told from then on as it was found.
fn settle(client: &Client, prefix: &str, bound: Duration) -> Result<(), Fault> {
    let (logged, _) = client.all(&beginning(prefix), bound)?;
    let entries = logged.iter().filter_map(read_value);
    let grants: Vec<Entry> = entries.map(|(entry, _)| entry).collect();
    let grants: Vec<&Entry> = grants.iter().collect();
    let open = logged.iter().filter_map(|kv| {
        let (entry, until) = read_value(kv).filter(|(entry, _)| entry.event == Event::Granted)?;
        let own = key_in_line(prefix, entry.names.first()?, id_of(&kv.key)?);
        Some((kv, entry, until, own))
    });
    let open: Vec<_> = open
        .take(usize::try_from(AT_ONCE).unwrap_or(usize::MAX))
        .collect();
    let own: Vec<_> = open.iter().map(|(.., own)| api::one(own)).collect();
    let living = client.transact(&[], &own, &[], bound)?.ranges;
    let now = now();
    for ((kv, entry, until, own), found) in open.into_iter().zip(living) {
        if found.is_empty() {
            let ended_at = end_of_unseen(&entry, until, &grants, now);
            let end = put(&kv.key, &expired(&entry, ended_at, now));
            // Or it came to life by an answer that was lost, and is tried again.
            let same = [api::is_unchanged(kv), api::is_created_at(&own, 0)];
            client.transact(&same, &[end], &[], bound)?;
        }
    }
    Ok(())
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

fn as_bytes(entry: &Entry, fence: Option<i64>, until: Option<i64>) -> Vec<u8> {
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
        "until": until,
    });
    put_holder(&mut value, &entry.holder);
    value.to_string().into_bytes()
}

/// None for what somebody wrote by hand and means nothing.
fn entry_of(kv: &Kv) -> Option<Entry> {
    Some(read_value(kv)?.0)
}

/// With when it ends at the latest, where that is known.
fn read_value(kv: &Kv) -> Option<(Entry, Option<i64>)> {
    let value: Value = serde_json::from_slice(&kv.value).ok()?;
    let number = |key: &str| value[key].as_i64();
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let granted_at = number("granted_at");
    let entry = Entry {
        at: number("at")?,
        event: Event::of_word(value["event"].as_str()?)?,
        names: names_of(&value)?,
        mode: mode_of(&value)?,
        slot: slot_of(&value),
        fence: number("fence").or(granted_at.map(|_| kv.modified)),
        requested_at: number("requested_at")?,
        granted_at,
        ended_at: number("ended_at"),
        status: number("status").and_then(|status| u8::try_from(status).ok()),
        signal: number("signal").and_then(|signal| i32::try_from(signal).ok()),
        reason: text("reason"),
        by: text("by"),
        holder: holder_of(&value)?,
    };
    Some((entry, number("until")))
}

/// Reads what is asked for.
pub fn read(
    client: &Client,
    prefix: &str,
    query: &Query,
    bound: Duration,
) -> Result<History, Fault> {
    let (all, revision) = client.all(prefix.as_bytes(), bound)?;
    let beginning = beginning(prefix);
    let (mut logged, others): (Vec<Kv>, Vec<Kv>) = all
        .into_iter()
        .partition(|kv| kv.key.starts_with(&beginning));
    logged.sort_by_key(|kv| kv.modified);
    let lines = Lines::of_all(prefix, others);
    let now = now();
    let mut present: Vec<Entry> = lines
        .tickets()
        .into_iter()
        .filter_map(|ticket| match lines.standing(ticket) {
            Standing::Waiting => of_ticket(ticket, Event::Waiting, now),
            // Its end is in the log.
            Standing::Resting => None,
            _ => of_ticket(ticket, Event::Granted, now),
        })
        .collect();
    let mut told: Vec<(i64, Entry)> = Vec::new();
    let mut unseen: Vec<(i64, Entry, Option<i64>)> = Vec::new();
    for kv in &logged {
        match read_value(kv) {
            Some((entry, until)) if entry.event == Event::Granted => {
                let own = id_of(&kv.key).and_then(|id| lines.by_id(id));
                if own.is_none() {
                    unseen.push((kv.modified, entry, until));
                }
            }
            Some((entry, _)) => told.push((kv.modified, entry)),
            None => {}
        }
    }
    let others = told.iter().map(|(_, entry)| entry).chain(&present);
    let others = others.chain(unseen.iter().map(|(_, entry, _)| entry));
    let grants: Vec<&Entry> = others.filter(|entry| entry.granted_at.is_some()).collect();
    let over = unseen.iter().map(|(revision, entry, until)| {
        let ended_at = end_of_unseen(entry, *until, &grants, now);
        (*revision, expired(entry, ended_at, now))
    });
    let over: Vec<(i64, Entry)> = over.collect();
    let is_named = |entry: &Entry| {
        let mut names = entry.names.iter();
        query.names.is_empty() || names.any(|name| query.names.contains(name))
    };
    let is_asked =
        |entry: &Entry| is_named(entry) && query.since.is_none_or(|since| entry.at >= since);
    // What is over may have been told before; who follows the log knows what he was told.
    told.retain(|(revision, entry)| {
        is_asked(entry) && query.after.is_none_or(|after| *revision > after)
    });
    let over = over.into_iter().filter(|(_, entry)| is_asked(entry));
    let mut ends: Vec<(bool, i64, Entry)> = told
        .into_iter()
        .map(|(at, entry)| (true, at, entry))
        .collect();
    ends.extend(over.map(|(at, entry)| (false, at, entry)));
    ends.sort_by_key(|(_, revision, _)| *revision);
    if let Some(most) = query.most {
        ends.drain(..ends.len().saturating_sub(most));
    }
    let (written, over): (Vec<_>, Vec<_>) =
        ends.into_iter().partition(|(is_written, ..)| *is_written);
    present.retain(is_named);
    let over = over.into_iter().map(|(.., entry)| entry);
    Ok(History {
        written: written.into_iter().map(|(.., entry)| entry).collect(),
        present: over.chain(present).collect(),
        last: revision.max(query.after.unwrap_or(0)),
    })
}

/// When a lease was over at the latest whose end nobody saw: when its time had passed, or another was granted that it excludes.
fn end_of_unseen(entry: &Entry, until: Option<i64>, grants: &[&Entry], now: i64) -> Option<i64> {
    let needs_its_end = |other: &Entry| match line::relation(other.mode, entry.mode) {
        Relation::Compatible => false,
        Relation::Blocks => true,
        Relation::TakesSlot => other.slot == entry.slot,
    };
    let later = grants.iter().filter(|other| {
        let mut names = other.names.iter();
        other.fence > entry.fence
            && names.any(|name| entry.names.contains(name))
            && needs_its_end(other)
    });
    let next = later.filter_map(|other| other.granted_at).min();
    let earliest = entry.granted_at.unwrap_or(entry.at);
    let ended = until.into_iter().chain(next).min()?;
    Some(ended.min(now).max(earliest))
}

fn expired(entry: &Entry, ended_at: Option<i64>, now: i64) -> Entry {
    Entry {
        at: ended_at.unwrap_or(now),
        event: Event::Expired,
        ended_at,
        ..entry.clone()
    }
}
