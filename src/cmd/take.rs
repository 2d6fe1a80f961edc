//! Taking locks, for `acquire` and `run`: one try, or as many as `--wait` allows.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{explain, place};
use crate::cli::{Common, Taking};
use crate::duration::{Patience, show};
use crate::exit::Exit;
use crate::lock::{Held, Lease, Request};
use crate::output;
use crate::signals::{self, Signal, Signals};
use crate::store::{Answer, Keeping, Store};
use crate::wait;

/// The pause between two looks at a lock that others hold.
const LOOK: Duration = Duration::from_millis(25);

/// What came of it.
pub enum Taken {
    Granted(Lease),
    /// Not granted, and said so: the command ends like this.
    Not(Exit, Vec<Held>),
}

/// Takes all of the request's locks.
///
/// # Errors
/// The store cannot be used; nothing was taken.
pub fn take(
    store: &mut dyn Store,
    request: &Request,
    keeping: Keeping,
    how: &Taking,
    signals: &Signals,
    common: &Common,
) -> Result<Taken> {
    let began = Instant::now();
    let patience = how.patience();
    loop {
        let others = match store.acquire(request, keeping)? {
            Answer::Granted(lease) => {
                explain(common, || {
                    format!(
                        "holding {} with fence {} (in {})",
                        output::list(&lease.names),
                        lease.fence,
                        place(store)
                    )
                });
                return Ok(Taken::Granted(lease));
            }
            Answer::Busy(others) => others,
        };
        let left = match patience {
            Patience::None => Duration::ZERO,
            Patience::AtMost(limit) => limit.saturating_sub(began.elapsed()),
            Patience::Forever => Duration::MAX,
        };
        if left.is_zero() {
            if let Some(signal) = pending_end(signals) {
                return Ok(Taken::Not(Exit::Signal(signal), others));
            }
            if !common.quiet {
                say_busy(store, request, &others, patience);
            }
            return Ok(Taken::Not(Exit::Busy(how.conflict_exit_code), others));
        }
        if let Some(signal) =
            interruption(signals, Instant::now() + left.min(wait::jittered(LOOK)))?
        {
            return Ok(Taken::Not(Exit::Signal(signal), others));
        }
    }
}

fn say_busy(store: &dyn Store, request: &Request, others: &[Held], patience: Patience) {
    let what = others.first().map_or_else(
        || "a lock is held".to_owned(),
        |held| output::busy(&request.names, held),
    );
    let hint = match patience {
        Patience::None => "--wait waits for it".to_owned(),
        Patience::AtMost(limit) => format!("gave up after {}", show(limit)),
        Patience::Forever => String::new(),
    };
    output::say(&format!("{what} (in {}); {hint}", place(store)));
}

/// Waits until the moment has passed, or a signal comes that ends the program. Stops when the terminal says so.
fn interruption(signals: &Signals, until: Instant) -> Result<Option<Signal>> {
    loop {
        match wait::for_signal(signals, until)? {
            Some(received) if received.signal == Signal::TSTP => signals::stop_by(Signal::TSTP),
            Some(received) if ends(received.signal) => return Ok(Some(received.signal)),
            None if Instant::now() >= until => return Ok(None),
            Some(_) | None => {}
        }
    }
}

/// A signal that ends the program and has come already. A stop that has come is obeyed on the way.
pub fn pending_end(signals: &Signals) -> Option<Signal> {
    std::iter::from_fn(|| signals.next())
        .map(|received| received.signal)
        .inspect(|signal| {
            if *signal == Signal::TSTP {
                signals::stop_by(Signal::TSTP);
            }
        })
        .find(|signal| ends(*signal))
}

/// Whether a signal ends a program that does nothing about it: of those that are read here, all but these.
fn ends(signal: Signal) -> bool {
    ![Signal::CHLD, Signal::CONT, Signal::WINCH, Signal::TSTP].contains(&signal)
}
