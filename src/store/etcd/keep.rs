//! What the keeper's thread does for the own lease: renews it, and looks whether its keys are still there, nobody has taken them
//! away, and who comes next.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;

use super::api;
use super::client::Client;
use super::handoff::{self, Next};
use super::log;
use super::ticket::{Ticket, key_of, line_of};
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
    /// The lock can be handed to whoever comes next.
    pub hands_on: bool,
    /// Where the log has who ended it by force; none where this user may not look there.
    pub log_key: Option<Vec<u8>>,
}

/// What the thread has to look after besides the lease's time: nothing while it is that of a place in the line, which nobody
/// takes away, and to look each second would cost more than to wait.
#[derive(Clone, Default)]
pub struct Duty(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// Where the keys of a lease were created that was granted.
    place: Option<i64>,
    next: Option<Next>,
}

impl Duty {
    /// The lease was granted; its keys were created at this revision.
    pub fn begin(&self, place: i64) {
        self.state().place = Some(place);
    }

    /// Somebody has looked already who comes next.
    pub fn expect(&self, next: Next) {
        self.state().next = Some(next);
    }

    pub fn has_next(&self) -> bool {
        self.state().next.is_some()
    }

    /// Who came next, when it was last looked.
    pub fn next(&self) -> Option<Next> {
        self.state().next.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
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
        let Some(place) = self.duty.state().place else {
            return Ok(Look::Held);
        };
        let same = self.keys().map(|key| api::is_created_at(&key, place));
        let same: Vec<_> = same.collect();
        let mut read: Vec<_> = self.keys().map(|key| api::one(&key)).collect();
        if self.hands_on {
            let line = line_of(&self.prefix, &self.names[0]);
            read.push(handoff::read(&line, Some(place)));
        }
        let told = self.log_key.iter().map(|key| api::one(key));
        let told: Vec<_> = told.collect();
        let outcome = match self.client.transact(&same, &read, &told, self.bound()) {
            Err(fault) if fault.is_denied() && self.log_key.take().is_some() => {
                self.client.transact(&same, &read, &[], self.bound())?
            }
            answered => answered?,
        };
        let mut ranges = outcome.ranges.into_iter();
        if !outcome.succeeded {
            let mut told = ranges.flatten();
            let by = told.next().and_then(|kv| log::forced_by(&kv));
            return Ok(by.map_or(Look::Gone, Look::Revoked));
        }
        let own = ranges.by_ref().take(self.names.len()).flatten();
        let own: Vec<_> = own.collect();
        if let Some(line) = ranges.next() {
            let next = Next::behind(place, &self.prefix, &self.names[0], line);
            self.duty.state().next = next;
        }
        let mut found = own.into_iter().zip(&self.names);
        let revoked_by = found.find_map(|(kv, name)| {
            let ticket = Ticket::in_line(&self.prefix, name, kv)?;
            ticket.record?.revoked_by
        });
        Ok(revoked_by.map_or(Look::Held, Look::Revoked))
    }
}
