//! Wakes a waiter when what is before it in the line is gone: a thread that watches the key of its predecessor, and nobody
//! else's.

use std::io::{BufRead, BufReader};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::api;
use super::client::Client;
use crate::wait::{self, Bell};

/// The pause before a waiter looks whose watch has broken: the server may be on its way down, or up.
const BROKEN: Duration = Duration::from_millis(300);

/// What a watch is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// One of these keys is to be deleted.
    pub keys: Vec<Vec<u8>>,
    /// What all keys of their line begin with.
    pub line: Vec<u8>,
    /// After this revision.
    pub after: i64,
}

/// The watches of one waiter, of which the last counts.
#[derive(Clone, Default)]
pub struct Watch(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    bell: Option<Bell>,
    /// It was to be rung before there was one.
    was_rung: bool,
    /// The keys that are watched, and by which member.
    watched: Option<(Vec<Vec<u8>>, usize)>,
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
            state.was_rung = false;
        }
        let (watch, client) = (self.clone(), client.clone());
        let started = thread::Builder::new().name("watch".into()).spawn(move || {
            if !is_gone(&client, &wanted) {
                wait::pause(BROKEN);
            }
            watch.end(&about);
        });
        if started.is_err() {
            self.state().watched = None;
        }
    }

    /// The waiter has left the line: what is watched for it does not count.
    pub fn forget(&self) {
        self.state().watched = None;
    }

    fn end(&self, about: &(Vec<Vec<u8>>, usize)) {
        let mut state = self.state();
        if state.watched.as_ref() != Some(about) {
            return;
        }
        state.watched = None;
        match &state.bell {
            Some(bell) => bell.ring(),
            None => state.was_rung = true,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is whole after every statement, whatever panicked in between.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Blocks until one of the keys is deleted. False when that cannot be told.
fn is_gone(client: &Client, wanted: &Wanted) -> bool {
    let request = match &wanted.keys[..] {
        [one] => api::watch(one, false, wanted.after),
        _ => api::watch(&wanted.line, true, wanted.after),
    };
    let Ok(stream) = client.stream("watch", &request) else {
        return false;
    };
    for line in BufReader::new(stream).lines() {
        let answer = line
            .ok()
            .and_then(|line| serde_json::from_str::<Value>(&line).ok());
        let Some(deleted) = answer.as_ref().and_then(api::deleted) else {
            return false;
        };
        if deleted.iter().any(|key| wanted.keys.contains(key)) {
            return true;
        }
    }
    false
}
