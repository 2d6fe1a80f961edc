//! Taking locks, for `acquire` and `run`: one try, or with `--wait` a stay in the line.

use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use super::explain;
use crate::cli::{Common, Taking};
use crate::duration::{Patience, show};
use crate::exit::{Exit, Usage};
use crate::holder;
use crate::lock::{Event, Held, Lease, Request};
use crate::output;
use crate::output::waiting::Waiting;
use crate::signals::{self, Signal, Signals};
use crate::store::{self, Answer, Keeping, Obstacle, Store};
use crate::wait::{self, Watches, Woken};

/// How soon a change is seen that no byte of the guard file tells: of a lease without a guard.
const POLL: Duration = Duration::from_millis(20);

/// How soon a store that did not answer is asked again.
const RETRY: Duration = Duration::from_millis(500);

/// Behind every wait, for what nobody foresaw: whether the database is still the one that was opened, at least.
const SLOW_TICK: Duration = Duration::from_secs(30);

/// What came of it.
pub enum Taken {
    Granted(Lease),
    /// Not granted, and said so: the command ends like this.
    Not(Exit, Vec<Held>),
}

/// Takes all of the request's locks.
///
/// # Errors
/// A usage error, or the store cannot be used; nothing was taken.
pub fn take(
    store: &mut dyn Store,
    request: &Request,
    keeping: Keeping,
    how: &Taking,
    signals: &Signals,
    common: &Common,
) -> Result<Taken> {
    let asked_at = SystemTime::now();
    let patience = how.patience();
    let mut wait = Wait::new(request, patience, signals, common);
    loop {
        let next = match store.acquire(request, keeping, patience != Patience::None)? {
            Answer::Granted(lease) => {
                wait.view.into_iter().for_each(Waiting::had);
                explain(common, || {
                    format!(
                        "holding {} with fence {} (in {})",
                        output::list(&lease.names),
                        lease.fence,
                        store.location()
                    )
                });
                return Ok(Taken::Granted(lease));
            }
            Answer::OtherSlots(slots) => return Err(other_slots(request, slots)),
            Answer::Deadlock(circle) => {
                drop(wait);
                output::say(&output::deadlock(&request.names, &circle));
                store.refused(request, asked_at, Event::Deadlock, &circle);
                return Ok(Taken::Not(Exit::Deadlock, circle));
            }
            Answer::Waiting(obstacle, others) => wait.in_line(store, &obstacle, others)?,
            Answer::Busy(others) => wait.in_turn(others)?,
            Answer::Unreachable(error) => wait.for_store(error)?,
        };
        let mut others = match next {
            Next::Ask => continue,
            Next::Ended(signal, others) => {
                wait.view.into_iter().for_each(Waiting::interrupted);
                return Ok(Taken::Not(Exit::Signal(signal), others));
            }
            Next::Refused(others) => others,
        };
        drop(wait);
        store::find_orphans(&mut others);
        if !common.quiet {
            say_busy(store, request, &others, patience);
        }
        if let Some(held) = others.first() {
            let holder = &held.holder;
            let runs = held.orphan.as_ref().map_or("runs", |_| "ran");
            explain(common, || {
                format!("{} {runs} in {}", holder::show(holder), holder.directory)
            });
        }
        store.refused(request, asked_at, Event::Busy, &others);
        return Ok(Taken::Not(Exit::Busy(how.conflict_exit_code), others));
    }
}

/// What comes after an answer that is not the last.
enum Next {
    Ask,
    Ended(Signal, Vec<Held>),
    Refused(Vec<Held>),
}

/// A wait, from the first try on. Nothing of it is made before it is needed.
struct Wait<'a> {
    request: &'a Request,
    signals: &'a Signals,
    quiet: bool,
    began: Instant,
    /// None: as long as it takes.
    deadline: Option<Instant>,
    watches: Option<Watches>,
    view: Option<Waiting<'a>>,
    /// The store has not answered since, which is told once each time.
    is_cut_off: bool,
}

impl<'a> Wait<'a> {
    fn new(
        request: &'a Request,
        patience: Patience,
        signals: &'a Signals,
        common: &'a Common,
    ) -> Self {
        let began = Instant::now();
        Self {
            request,
            signals,
            quiet: common.quiet,
            began,
            deadline: match patience {
                Patience::None => Some(began),
                Patience::AtMost(limit) => Some(began + limit),
                Patience::Forever => None,
            },
            watches: None,
            view: None,
            is_cut_off: false,
        }
    }

    fn is_over(&self) -> bool {
        self.deadline
            .is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// The request stands in the line.
    fn in_line(
        &mut self,
        store: &mut dyn Store,
        obstacle: &Obstacle,
        others: Vec<Held>,
    ) -> Result<Next> {
        self.is_cut_off = false;
        let watches = match &mut self.watches {
            Some(watches) => watches,
            none => {
                let new = Watches::new(store.guard_path()).context("cannot wait")?;
                store.ring(new.bell());
                none.insert(new)
            }
        };
        let new_view = || Waiting::new(&self.request.names, self.quiet, self.began, self.deadline);
        let view = self.view.get_or_insert_with(new_view);
        view.is_behind(&others);
        let waited = Stay {
            request: self.request,
            obstacle,
            watches,
            signals: self.signals,
            deadline: self.deadline,
        }
        .last(store, view);
        if let Ok(Waited::LookAgain) = waited {
            return Ok(Next::Ask);
        }
        store.leave()?;
        Ok(match waited? {
            Waited::Ended(signal) => Next::Ended(signal, Vec::new()),
            Waited::Stopped => {
                view.pause();
                signals::stop_by(Signal::TSTP);
                Next::Ask
            }
            Waited::LookAgain | Waited::RanOut => Next::Refused(others),
        })
    }

    /// A store that cannot vouch for waiters has no line; they look in turn.
    fn in_turn(&mut self, others: Vec<Held>) -> Result<Next> {
        if let Some(signal) = pending_end(self.signals) {
            return Ok(Next::Ended(signal, others));
        }
        if self.is_over() {
            return Ok(Next::Refused(others));
        }
        let view = self.view();
        view.is_behind(&others);
        if view.is_due() {
            view.show(None);
        }
        let ended = self.pause(POLL)?;
        Ok(ended.map_or(Next::Ask, |signal| Next::Ended(signal, others)))
    }

    /// The store does not answer.
    fn for_store(&mut self, error: anyhow::Error) -> Result<Next> {
        if let Some(signal) = pending_end(self.signals) {
            return Ok(Next::Ended(signal, Vec::new()));
        }
        if self.is_over() {
            return Err(error);
        }
        self.view();
        if !self.is_cut_off && !self.quiet {
            output::tell(&format!("{}; trying again", output::chain(&error)));
        }
        self.is_cut_off = true;
        let ended = self.pause(RETRY)?;
        Ok(ended.map_or(Next::Ask, |signal| Next::Ended(signal, Vec::new())))
    }

    fn view(&mut self) -> &mut Waiting<'a> {
        let new = || Waiting::new(&self.request.names, self.quiet, self.began, self.deadline);
        self.view.get_or_insert_with(new)
    }

    fn pause(&mut self, about: Duration) -> Result<Option<Signal>> {
        let again = Instant::now() + wait::jittered(about);
        let until = self.deadline.map_or(again, |deadline| deadline.min(again));
        let signals = self.signals;
        interruption(signals, until, self.view())
    }
}

fn other_slots(request: &Request, slots: u32) -> anyhow::Error {
    let names = output::list(&request.names);
    Usage(format!(
        "{names} is in use with --slots {slots}: all who use it must say the same number"
    ))
    .into()
}

/// What ended a stay in the line.
enum Waited {
    LookAgain,
    Ended(Signal),
    /// The terminal says so. Who stands still would keep all those behind it from the lock; when it goes on it enters
    /// the line at its end.
    Stopped,
    RanOut,
}

/// A stay in the line behind an obstacle.
struct Stay<'a> {
    request: &'a Request,
    obstacle: &'a Obstacle,
    watches: &'a Watches,
    signals: &'a Signals,
    deadline: Option<Instant>,
}

impl Stay<'_> {
    /// Blocks until it is time to look along the line again, or to leave it.
    fn last(&self, store: &mut dyn Store, shown: &mut Waiting<'_>) -> Result<Waited> {
        let obstacle = self.obstacle;
        for (inode, byte) in &obstacle.bytes {
            self.watches.watch(*inode, *byte).context("cannot wait")?;
        }
        let began = Instant::now();
        let again = obstacle.again.map(|again| began + again);
        let mut tick = began + wait::jittered(SLOW_TICK);
        loop {
            let moments = [Some(tick), again, self.deadline, shown.next()];
            let mut until = moments.into_iter().flatten().min().unwrap_or(tick);
            if obstacle.is_unguarded {
                until = until.min(Instant::now() + POLL);
            }
            let woken = self.watches.wait(self.signals, until);
            match woken.context("cannot wait")? {
                Woken::Byte => return Ok(Waited::LookAgain),
                Woken::Signal(received) if received.signal == Signal::TSTP => {
                    return Ok(Waited::Stopped);
                }
                Woken::Signal(received) if ends(received.signal) => {
                    return Ok(Waited::Ended(received.signal));
                }
                // It goes on after a stop that nobody could see coming, or the terminal is wider or narrower.
                Woken::Signal(_) => shown.redraw(),
                Woken::Time => {
                    let now = Instant::now();
                    if self.deadline.is_some_and(|deadline| now >= deadline) {
                        return Ok(Waited::RanOut);
                    }
                    if again.is_some_and(|again| now >= again)
                        || (obstacle.is_unguarded && store.has_changed()?)
                    {
                        return Ok(Waited::LookAgain);
                    }
                    // Awake anyhow: to wake is most of what either costs.
                    let is_due = shown.is_due();
                    let mut has_missed = false;
                    if now >= tick || is_due {
                        tick = now + wait::jittered(SLOW_TICK);
                        // What cannot be told now can the next time.
                        has_missed = store.has_missed(self.request, obstacle).unwrap_or(false);
                    }
                    // First what is due: a look that has found nothing comes back here, and would again, and never wait.
                    if is_due {
                        let mut ahead = store.ahead(self.request).ok().flatten();
                        if let Some(ahead) = &mut ahead {
                            store::find_orphans(&mut ahead.first);
                        }
                        shown.show(ahead);
                    }
                    if has_missed {
                        return Ok(Waited::LookAgain);
                    }
                }
            }
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
    output::say(&format!("{what} (in {}); {hint}", store.location()));
}

/// Waits until the moment has passed, or a signal comes that ends the program. Stops when the terminal says so.
fn interruption(
    signals: &Signals,
    until: Instant,
    shown: &mut Waiting<'_>,
) -> Result<Option<Signal>> {
    loop {
        match wait::for_signal(signals, until)? {
            Some(received) if received.signal == Signal::TSTP => {
                shown.pause();
                signals::stop_by(Signal::TSTP);
            }
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
pub fn ends(signal: Signal) -> bool {
    ![Signal::CHLD, Signal::CONT, Signal::WINCH, Signal::TSTP].contains(&signal)
}
