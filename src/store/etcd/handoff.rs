//! The direct hand-off: where the holder knows who stands behind it, the transaction that ends its lease grants the lock to that
//! one, who is told of it by its own key. All that it does before it enters is to read that again.
//!
//! It is a short cut and no more: where anything has changed since, the lease is ended as ever, and who is next finds out itself.
//! Who will be next is looked for while there is time: when the lock is handed to one's predecessor, and each second of one's own
//! lease.

use std::time::Duration;

use serde_json::Value;

use super::api::{self, Kv, Pick};
use super::client::Client;
use super::log;
use super::ticket::{Record, Ticket, id_of, key_of, line_of};
use crate::lock::{LockName, Mode};
use crate::wait;

/// How many are read of those who came later: one may belong to another lock, with a longer name.
const READ: u32 = 2;

/// How long one to whom the lock was handed is left alone by the others, while its job is just starting.
pub const SETTLING: Duration = Duration::from_millis(2);

/// Whether who holds or wants these locks has one line in which everybody is in everybody's way: then who is next is whoever
/// came next.
pub fn is_for(names: &[LockName], mode: Mode) -> bool {
    names.len() == 1 && mode == Mode::Exclusive
}

/// What is read to know who is next after a place in a line; after the holder, where its place is not known.
pub fn read(line: &[u8], place: Option<i64>) -> Value {
    match place {
        Some(place) => api::range_after(line, READ, place),
        None => api::range(line, Pick::First(1 + READ), None),
    }
}

/// A request to which its predecessor may hand the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heir {
    pub prefix: String,
    pub name: LockName,
    pub id: i64,
    pub place: i64,
}

impl Heir {
    pub fn key(&self) -> Vec<u8> {
        key_of(&self.prefix, &self.name, self.id)
    }

    /// Who is next after this one. None where that could not be told.
    pub fn next(&self, client: &Client, bound: Duration) -> Option<Next> {
        wait::pause(SETTLING);
        let read = read(&line_of(&self.prefix, &self.name), Some(self.place));
        let line = client.transact(&[], &[read], &[], bound);
        let line = line.ok()?.ranges.into_iter().next()?;
        Next::behind(self.place, &self.prefix, &self.name, line)
    }
}

/// Who stands right behind the holder, as it was seen.
#[derive(Clone, Debug)]
pub struct Next {
    kv: Kv,
    record: Record,
}

impl Next {
    /// Of what was read of a line, for a holder at a place in it. None: nobody is there, or nobody whom this can be done for.
    pub fn behind(place: i64, prefix: &str, name: &LockName, line: Vec<Kv>) -> Option<Self> {
        let tickets = line.into_iter();
        let tickets = tickets.filter_map(|kv| Ticket::in_line(prefix, name, kv));
        let behind = tickets.filter(|ticket| ticket.place() > place);
        let next = behind.min_by_key(Ticket::place)?;
        let record = next.record.filter(|record| {
            let waits = record.granted_at.is_none() && record.revoked_by.is_none();
            // Its log entry, and what it looks at, are found by its number.
            let has_own_key = id_of(&record.token) == next.id && next.id == next.kv.lease;
            is_for(&record.names, record.mode) && waits && has_own_key
        })?;
        Some(Self {
            kv: next.kv,
            record,
        })
    }

    /// That it is still what was seen. Nobody can have come between since: places are given out in order.
    pub fn is_unchanged(&self) -> Value {
        api::is_unchanged(&self.kv)
    }

    /// Puts what it would put itself to enter.
    pub fn grant(&self, prefix: &str) -> [Value; 2] {
        let mut record = self.record.clone();
        record.granted_at = Some(log::now());
        let until = log::end_of(&record, record.ttl);
        let log_key = log::key_of(prefix, record.requested_at, id_of(&record.token));
        let key = key_of(prefix, &record.names[0], self.kv.lease);
        [
            api::put(&key, &record.as_bytes(), self.kv.lease),
            log::put_grant(&log_key, &record, until),
        ]
    }
}
