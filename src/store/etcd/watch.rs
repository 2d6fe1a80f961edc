//! Wakes a waiter: a thread that watches the key of its predecessor, which will be gone, and its own, by which it is told that
//! the lock was handed to it; and nobody else's. When its predecessor has the lock it looks who will be next.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::api::{self, Change, Kv};
use super::client::Client;
use super::handoff::{Heir, Next};
use crate::wait::{self, Bell};

/// The pause before a waiter looks whose watch has broken: the server may be on its way down, or up.
const BROKEN: Duration = Duration::from_millis(300);

/// How long after the end of its predecessor a waiter may still be told that the lock was handed to it: both are one change, of
/// which it is told at once, but in no order. Longer than that takes, and shorter than to ask.
const AT_ONCE: Duration = Duration::from_micros(250);

/// How long the thread listens for it, which is no matter.
const AFTER_END: Duration = Duration::from_millis(20);

/// How long the answer may take that tells who is next.
const LOOK: Duration = Duration::from_millis(100);

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// One of these keys is to be deleted.
    pub keys: Vec<Vec<u8>>,
    /// What all keys of their line begin with.
    pub line: Vec<u8>,
    /// The own request, where who is before it may hand it the lock.
    pub own: Option<Heir>,
    /// After this revision.
    pub after: i64,
}

/// The keys that are watched, and by which member.
type About = (Vec<Vec<u8>>, usize);

/// The watches of one waiter, of which the last counts.
#[derive(Clone, Default)]
pub struct Watch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    is_told: Condvar,
}

#[derive(Default)]
struct State {
    bell: Option<Bell>,
    /// It was to be rung before there was one.
    was_rung: bool,
    watched: Option<About>,
    told: Told,
}

#[derive(Default)]
struct Told {
    /// The own key as another has put it.
    own: Option<Kv>,
    /// It is about to be told, if it was.
    is_own_due: bool,
    /// Who is next after this one.
    next: Option<Next>,
}

impl Watch {
    pub fn ring_by(&self, bell: Bell) {
        let mut state = self.state();
        if state.was_rung {
            bell.ring();
        }
        state.bell = Some(bell);
    }

    /// Begins to watch, unless the same keys are watched already. That no thread can be started is no failure: the waiter looks
    /// now and then.
    pub fn begin(&self, client: &Client, wanted: Wanted) {
        let about = (wanted.keys.clone(), client.current());
        {
            let mut state = self.state();
            if state.watched.as_ref() == Some(&about) {
                return;
            }
            state.watched = Some(about.clone());
            (state.was_rung, state.told) = (false, Told::default());
        }
        let (watch, client) = (self.clone(), client.clone());
        let started = thread::Builder::new().name("watch".into()).spawn(move || {
            if watch.follow(&client, &wanted, &about).is_none() {
                wait::pause(BROKEN);
                watch.ring(&about, |_| {});
            }
            let mut state = watch.state();
            state.watched.take_if(|watched| *watched == about);
        });
        if started.is_err() {
            self.state().watched = None;
        }
    }

    /// The waiter has left the line: what is watched for it does not count.
    pub fn forget(&self) {
        let mut state = self.state();
        (state.watched, state.told) = (None, Told::default());
    }

    /// The own key, where another has put it, which is told once; and who is next then, as far as is known.
    pub fn told(&self) -> (Option<Kv>, Option<Next>) {
        let is_due = |state: &mut State| state.told.is_own_due && state.told.own.is_none();
        let waited = self
            .0
            .is_told
            .wait_timeout_while(self.state(), AT_ONCE, is_due);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.told.is_own_due = false;
        (state.told.own.take(), state.told.next.clone())
    }

    /// Notes what is told, if it still counts.
    fn note(&self, about: &About, note: impl FnOnce(&mut Told)) -> Option<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.watched.as_ref() != Some(about) {
            return None;
        }
        note(&mut state.told);
        Some(state)
    }

    /// The same, and rings.
    fn ring(&self, about: &About, note: impl FnOnce(&mut Told)) {
        let Some(mut state) = self.note(about, note) else {
            return;
        };
        self.0.is_told.notify_all();
        match &state.bell {
            Some(bell) => bell.ring(),
            None => state.was_rung = true,
        }
    }

    /// Blocks until all is told that can be of use. None: the watch has broken.
    fn follow(&self, client: &Client, wanted: &Wanted, about: &About) -> Option<()> {
        let own = wanted.own.as_ref().map(Heir::key);
        let mut requests = match &wanted.keys[..] {
            [one] => vec![api::watch(one, wanted.after)],
            _ => vec![api::watch_for_ends(&wanted.line, wanted.after)],
        };
        requests.extend(own.iter().map(|own| api::watch(own, wanted.after)));
        let (stream, limit) = client.stream("watch", &requests).ok()?;
        let mut has_ended = None;
        for line in BufReader::new(stream).lines() {
            let answer = line
                .ok()
                .and_then(|line| serde_json::from_str::<Value>(&line).ok());
            let Some(changes) = answer.as_ref().and_then(api::changes) else {
                break;
            };
            for change in changes {
                let is_own = |key| own.as_ref() == Some(key);
                match change {
                    Change::Put(kv) if is_own(&kv.key) => {
                        self.ring(about, |told| told.own = Some(kv));
                        return Some(());
                    }
                    // It has the lock now, most likely.
                    Change::Put(_) => {
                        let next = wanted.own.as_ref().and_then(|own| own.next(client, LOOK));
                        self.note(about, |told| told.next = next);
                    }
                    Change::Deleted(key) if is_own(&key) => {
                        self.ring(about, |_| {});
                        return Some(());
                    }
                    Change::Deleted(key) if wanted.keys.contains(&key) => {
                        self.ring(about, |told| told.is_own_due = own.is_some());
                        has_ended = Some(());
                    }
                    Change::Deleted(_) => {}
                }
            }
            if has_ended.is_some() {
                if own.is_none() {
                    break;
                }
                limit.set(AFTER_END);
            }
        }
        has_ended
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement, whatever panicked in between.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
