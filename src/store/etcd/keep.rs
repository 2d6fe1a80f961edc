//! What the keeper's thread does for the own lease: renews it, looks whether its keys are still there and nobody has taken
//! them away, and writes down what the grant left for later.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::api;
use super::client::Client;
use super::log;
use super::ticket::{Record, Ticket, key_of};
use crate::clock::Moment;
use crate::lock::LockName;
use crate::store::Look;
use crate::store::keeper::Tend;

/// The least time for a request, however short the time to live.
const LEAST: Duration = Duration::from_millis(500);

/// The most: what takes longer is better tried again.
const MOST: Duration = Duration::from_secs(5);

/// A lease of this process's own, in the eyes of the thread.
pub struct Tended {
    pub client: Client,
    pub prefix: String,
    pub names: Vec<LockName>,
    pub id: i64,
    pub ttl: Duration,
    pub duty: Duty,
}

/// What the thread has to look after besides the lease's time: nothing while it is that of a place in the line, which nobody
/// takes away, and to look each second would cost more than to wait.
#[derive(Clone, Default)]
pub struct Duty(Arc<Mutex<Option<Grant>>>);

/// What was granted.
pub struct Grant {
    /// The revision at which the keys were created.
    pub place: i64,
    /// What is to be written down of it, where it is not yet, and under which key of the log.
    pub note: Option<(Record, Vec<u8>)>,
}

impl Duty {
    pub fn begin(&self, grant: Grant) {
        *self.grant() = Some(grant);
    }

    fn grant(&self) -> std::sync::MutexGuard<'_, Option<Grant>> {
        // It is whole after every statement, whatever panicked in between.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tended {
    /// How long one request may take: there must be time for another.
    fn bound(&self) -> Duration {
        (self.ttl / 6).clamp(LEAST, MOST)
    }

    fn keys(&self) -> impl Iterator<Item = Vec<u8>> + '_ {
        let names = self.names.iter();
        names.map(|name| key_of(&self.prefix, name, self.id))
    }

    /// Writes the note into the values, unless somebody has changed one since they were seen: then the next look does.
    fn write_note(&mut self, tickets: &[Ticket]) -> Result<()> {
        let note = self
            .duty
            .grant()
            .as_ref()
            .and_then(|grant| grant.note.clone());
        let Some((mut record, log_key)) = note else {
            return Ok(());
        };
        let revoked_by = |ticket: &Ticket| ticket.record.as_ref()?.revoked_by.clone();
        record.revoked_by = tickets.iter().find_map(revoked_by);
        let value = record.as_bytes();
        let lease = |ticket: &Ticket| ticket.kv.lease;
        let puts = tickets
            .iter()
            .map(|ticket| api::put(&ticket.kv.key, &value, lease(ticket)));
        let mut puts: Vec<_> = puts.collect();
        puts.push(log::put(&log_key, &log::of_grant(&record), record.fence));
        let same = tickets.iter().map(|ticket| api::is_unchanged(&ticket.kv));
        let outcome = self
            .client
            .transact(&same.collect::<Vec<_>>(), &puts, &[], self.bound())?;
        if outcome.succeeded
            && let Some(grant) = &mut *self.duty.grant()
        {
            grant.note = None;
        }
        Ok(())
    }
}

impl Tend for Tended {
    fn renew(&mut self) -> Result<Option<Moment>> {
        let kept = self.client.keep_alive(self.id, self.bound())?;
        Ok(kept.map(|(sent, ttl)| sent + ttl))
    }

    fn look(&mut self) -> Result<Look> {
        let place = self.duty.grant().as_ref().map(|grant| grant.place);
        let Some(place) = place else {
            return Ok(Look::Held);
        };
        let same = self.keys().map(|key| api::is_created_at(&key, place));
        let same: Vec<_> = same.collect();
        let read: Vec<_> = self.keys().map(|key| api::one(&key)).collect();
        let outcome = self.client.transact(&same, &read, &[], self.bound())?;
        if !outcome.succeeded {
            return Ok(Look::Gone);
        }
        let found = outcome.ranges.into_iter().flatten().zip(&self.names);
        let found = found.filter_map(|(kv, name)| Ticket::in_line(&self.prefix, name, kv));
        let tickets: Vec<Ticket> = found.collect();
        let revoked_by = |ticket: &Ticket| ticket.record.as_ref()?.revoked_by.clone();
        let revoked_by = tickets.iter().find_map(revoked_by);
        // What it was asked for comes first; that this was written down is no part of the answer.
        let _ = self.write_note(&tickets);
        Ok(revoked_by.map_or(Look::Held, Look::Revoked))
    }
}
