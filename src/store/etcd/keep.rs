//! What the keeper's thread does for the own lease: renews it, and looks whether its keys are still there and nobody has taken
//! them away.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::api;
use super::client::Client;
use super::log;
use super::ticket::{Ticket, key_of};
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
    /// Where the log has who ended it by force; none where this user may not look there.
    pub log_key: Option<Vec<u8>>,
}

/// What the thread has to look after besides the lease's time: nothing while it is that of a place in the line, which nobody
/// takes away, and to look each second would cost more than to wait.
#[derive(Clone, Default)]
pub struct Duty(Arc<Mutex<Option<i64>>>);

impl Duty {
    /// The lease was granted; its keys were created at this revision.
    pub fn begin(&self, place: i64) {
        *self.place() = Some(place);
    }

    fn place(&self) -> MutexGuard<'_, Option<i64>> {
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
}

impl Tend for Tended {
    fn renew(&mut self) -> Result<Option<Moment>> {
        let kept = self.client.keep_alive(self.id, self.bound())?;
        Ok(kept.map(|(sent, ttl)| sent + ttl))
    }

    fn look(&mut self) -> Result<Look> {
        let Some(place) = *self.duty.place() else {
            return Ok(Look::Held);
        };
        let same = self.keys().map(|key| api::is_created_at(&key, place));
        let same: Vec<_> = same.collect();
        let read: Vec<_> = self.keys().map(|key| api::one(&key)).collect();
        let told = self.log_key.iter().map(|key| api::one(key));
        let told: Vec<_> = told.collect();
        let outcome = match self.client.transact(&same, &read, &told, self.bound()) {
            Err(fault) if fault.is_denied() && self.log_key.take().is_some() => {
                self.client.transact(&same, &read, &[], self.bound())?
            }
            answered => answered?,
        };
        let mut found = outcome.ranges.into_iter().flatten();
        if !outcome.succeeded {
            let by = found.next().and_then(|kv| log::forced_by(&kv));
            return Ok(by.map_or(Look::Gone, Look::Revoked));
        }
        let mut found = found.zip(&self.names);
        let revoked_by = found.find_map(|(kv, name)| {
            let ticket = Ticket::in_line(&self.prefix, name, kv)?;
            ticket.record?.revoked_by
        });
        Ok(revoked_by.map_or(Look::Held, Look::Revoked))
    }
}
