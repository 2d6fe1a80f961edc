//! `tenure run`: acquire, spawn, supervise, release.

use std::ffi::OsString;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::take::{Taken, pending_end, take};
use super::{explain, nesting, open, request, tell_unlogged};
use crate::child::{self, Change, Child, Job, SpawnError, Status};
use crate::cli::{Common, Run};
use crate::clock::Moment;
use crate::duration::show;
use crate::exit::{Exit, Usage};
use crate::holder;
use crate::lock::{Ending, Event, Lease, LockName, Request};
use crate::output;
use crate::signals::{self, Inherited, Origin, Received, Signal, Signals};
use crate::store::{Backlog, Durability, Keeping, Look, Purpose, Store};
use crate::wait;
use crate::watchdog::Watchdog;

/// How often the lease is looked after: a loss is noticed within this and acted upon.
const LOOK: Duration = Duration::from_secs(1);

/// The same while the job is being stopped, and its last process may end at any moment.
const STOPPING_LOOK: Duration = Duration::from_millis(20);

/// The first pause after a renewal that failed; it doubles up to [`LOOK`].
const RETRY: Duration = Duration::from_millis(50);

/// The least pause between renewals, however short the time to live.
const LEAST_RENEWAL: Duration = Duration::from_millis(20);

/// How long killed processes are waited for. They die at once, unless the kernel cannot let them.
const DYING: Duration = Duration::from_secs(5);

/// `--kill-after` where it is not said; less where a short lease leaves no time for it.
const GRACE: Duration = Duration::from_secs(10);

/// What is kept free before a lease ends that time alone keeps: for a look that comes late, and two clocks' ticks.
const MARGIN: Duration = Duration::from_secs(1);

/// # Errors
/// A usage error, or the store cannot be used. CMD was not started.
pub fn run(args: &Run, common: &Common) -> Result<Exit> {
    let fault = match args.command.first() {
        None => Some("no command: it comes after --, as in tenure run NAME -- CMD"),
        Some(command) if command.is_empty() => Some("the command after -- cannot be empty"),
        Some(_) => None,
    };
    if let Some(fault) = fault {
        return Err(Usage(fault.into()).into());
    }
    let signals = Signals::for_supervisor().context("cannot watch signals")?;
    // Nothing of it is left to do at the end that the end of the process does not do sooner.
    let store = Box::leak(open(common, Purpose::Take(Durability::Process))?);
    let kill_after = time_to_stop(args, store)?;

    let note = args.taking.note.as_deref();
    let request = request(
        &args.names,
        &args.taking,
        holder::of_command(&args.command, note),
    )?;
    let lease = match take(
        store,
        &request,
        Keeping::Supervised,
        &args.taking,
        &signals,
        common,
    )? {
        Taken::Granted(lease) => lease,
        Taken::Not(exit, _) => return Ok(exit),
    };
    let mut why_not = None;
    // Its end is not what others wait for.
    let mut _watchdog = None;
    let (exit, ending) = match pending_end(&signals) {
        Some(signal) => (Exit::Signal(signal), Ending::not_started(None)),
        None => match spawn(args, store, &lease, signals.inherited()) {
            Ok(child) => {
                let (exit, ending, watchdog) =
                    Supervision::begin(args, common, kill_after, child, store, &lease, &signals)
                        .until_end();
                _watchdog = watchdog;
                (exit, ending)
            }
            Err(error) => {
                let (exit, why) = cannot_start(&args.command[0], error);
                why_not = Some(why);
                (exit, Ending::not_started(Some(exit.code())))
            }
        },
    };
    release(store, &request, &lease, &ending);
    if let Some(why_not) = why_not {
        output::say(&why_not);
    }
    Ok(exit)
}

/// How long CMD has between the signal that stops it and KILL. Where time alone keeps the lease, CMD must be dead before that
/// is over, and as much time again must be left for renewals that fail.
fn time_to_stop(args: &Run, store: &dyn Store) -> Result<Duration> {
    if store.vouches() {
        return Ok(args.kill_after.unwrap_or(GRACE));
    }
    let ttl = args.taking.ttl;
    let grace = args.kill_after.unwrap_or(GRACE.min(ttl / 4));
    let least = match args.kill_after {
        Some(grace) => (grace + MARGIN) * 2,
        None => MARGIN * 4,
    };
    if ttl < least {
        let grace = args
            .kill_after
            .map(|grace| format!(" and --kill-after {}", show(grace)));
        return Err(Usage(format!(
            "--ttl must be at least {} here, for a lease that time alone keeps{}",
            show(least),
            grace.unwrap_or_default()
        ))
        .into());
    }
    Ok(grace)
}

fn spawn(
    args: &Run,
    store: &dyn Store,
    lease: &Lease,
    inherited: &Inherited,
) -> Result<Child, SpawnError> {
    let own_group = !child::has_controlling_terminal();
    let names: Vec<&str> = lease.names.iter().map(LockName::as_str).collect();
    let job = Job {
        command: &args.command,
        environment: vec![
            ("TENURE_DB", Some(store.address())),
            ("TENURE_LOCK", Some(names.join("\n").into())),
            (nesting::INNERMOST, Some(lease.token.to_string().into())),
            (nesting::ALL, Some(nesting::with(&lease.token).into())),
            ("TENURE_FENCE", Some(lease.fence.to_string().into())),
            (
                "TENURE_SLOT",
                lease.slot.map(|slot| slot.to_string().into()),
            ),
        ],
        inherit: store.tree(),
        mark: "TENURE_TOKEN",
        inherited,
        own_group,
    };
    Child::spawn(&job)
}

fn cannot_start(command: &OsString, error: SpawnError) -> (Exit, String) {
    let (exit, error) = match error {
        SpawnError::NotFound(error) => (Exit::NotFound, error),
        SpawnError::CannotExecute(error) => (Exit::CannotExecute, error),
    };
    let why = anyhow::Error::from(error).context(format!("cannot run {}", command.display()));
    (exit, output::chain(&why))
}

fn release(store: &mut dyn Store, request: &Request, lease: &Lease, ending: &Ending) {
    if let Err(error) = store.give_back(request, lease, ending) {
        let names = output::list(&lease.names);
        let are = output::is_or_are(&lease.names);
        let when = if store.vouches() {
            "all the same"
        } else {
            "when its time to live has passed"
        };
        output::say(&format!(
            "{}; {names} {are} free {when}",
            output::chain(&error)
        ));
    }
    tell_unlogged(store);
}

/// Why CMD is being stopped.
#[derive(Clone)]
enum Reason {
    TimedOut,
    /// The word for it in the log, and who did it.
    Lost(&'static str, Option<String>),
}

struct Stop {
    reason: Reason,
    /// When the patience with the tree ends: KILL.
    kill_at: Instant,
    /// When KILL was first sent, which may be later: this process can be stopped, or wait for the store.
    killed_at: Option<Instant>,
    /// It was said that processes do not die of that.
    is_told: bool,
}

struct Supervision<'a> {
    args: &'a Run,
    common: &'a Common,
    kill_after: Duration,
    child: Child,
    store: &'a mut dyn Store,
    lease: &'a Lease,
    signals: &'a Signals,
    leads_session: bool,
    shares_terminal: bool,
    time_limit: Option<Instant>,
    next_look: Instant,
    next_renewal: Instant,
    retry: Duration,
    /// Until when the last good renewal keeps the lease, by time.
    good_until: Moment,
    warned: bool,
    /// Since when nobody can see whether the lease is still this process's.
    blind_since: Option<Instant>,
    stop: Option<Stop>,
}

impl<'a> Supervision<'a> {
    fn begin(
        args: &'a Run,
        common: &'a Common,
        kill_after: Duration,
        child: Child,
        store: &'a mut dyn Store,
        lease: &'a Lease,
        signals: &'a Signals,
    ) -> Self {
        let now = Instant::now();
        let shares_terminal = !child.has_own_group();
        let mut supervision = Self {
            args,
            common,
            kill_after,
            child,
            store,
            lease,
            signals,
            leads_session: child::leads_session(),
            shares_terminal,
            time_limit: args.max_time.map(|limit| now + limit),
            next_look: now + LOOK,
            next_renewal: now,
            retry: RETRY,
            good_until: lease.counted_from + lease.ttl,
            warned: false,
            blind_since: None,
            stop: None,
        };
        supervision.plan_renewal();
        supervision.set_last_moment();
        supervision
    }

    /// Returns when CMD has ended, and where it had to be stopped, when its whole tree has.
    fn until_end(mut self) -> (Exit, Ending, Option<Watchdog>) {
        let exit = self.exit();
        (exit, self.ending(), self.child.unwatched())
    }

    /// What the log is to tell.
    fn ending(&self) -> Ending {
        let (event, reason, by) = match self.stop.as_ref().map(|stop| stop.reason.clone()) {
            None => (Event::Released, None, None),
            Some(Reason::TimedOut) => (Event::Released, Some("max-time"), None),
            Some(Reason::Lost(why, by)) => (Event::Lost, Some(why), by),
        };
        let (status, signal) = match self.child.status() {
            None | Some(Status::Unknown) => (None, None),
            Some(Status::Exited(code)) => (Some(code), None),
            Some(Status::Killed(signal)) => (None, Some(signal.number())),
        };
        Ending {
            event,
            status,
            signal,
            reason,
            by,
        }
    }

    fn exit(&mut self) -> Exit {
        let mut backlog = if self.store.foresee_end(self.lease) {
            Backlog::Much
        } else {
            Backlog::Some
        };
        self.tidy(backlog);
        loop {
            match wait::for_signal(self.signals, self.next_moment()) {
                Ok(Some(received)) => self.pass_on(received),
                Ok(None) => {}
                Err(error) => {
                    self.warn(&format!("cannot wait for signals: {error}"));
                    // Looking again and again does as well, but not at full speed.
                    wait::pause(STOPPING_LOOK);
                }
            }
            // All that has come, before anything is done about CMD: a stop of our own would discard a CONT.
            while let Some(received) = self.signals.next() {
                self.pass_on(received);
            }
            for change in self.child.changes() {
                match change {
                    Change::Stopped(signal) => self.stop_along(signal),
                    Change::Ended(_) if self.stop.is_none() && self.child.has_overrun() => self
                        .lose(
                            "its lease was over while tenure was stopped",
                            Reason::Lost("not-renewed", None),
                        ),
                    Change::Ended(status) if self.stop.is_none() => return ended(status),
                    Change::Ended(_) => {}
                }
            }
            if let Some(exit) = self.go_on_stopping() {
                return exit;
            }
            self.keep_time();
            if backlog == Backlog::Much && Instant::now() >= self.next_look {
                // CMD takes its time, then: those who wait for the lock lose none by this.
                backlog = Backlog::Some;
                self.tidy(backlog);
            }
            self.look_after_lease();
        }
    }

    fn tidy(&mut self, backlog: Backlog) {
        if self.store.tidy(backlog) {
            self.next_renewal = Instant::now();
        }
    }

    fn next_moment(&self) -> Instant {
        let now = Instant::now();
        if self.stop.is_some() {
            return now + STOPPING_LOOK;
        }
        let moments = [
            Some(self.next_look),
            Some(self.next_renewal),
            self.time_limit,
            self.must_end_in().map(|left| now + left),
        ];
        moments.into_iter().flatten().min().unwrap_or(now + LOOK)
    }

    /// What the terminal sends goes to its whole foreground group, and so to CMD, without our doing; anything else
    /// was sent to this process alone.
    fn pass_on(&mut self, received: Received) {
        let from_terminal = received.origin == Origin::Kernel && self.shares_terminal;
        // A hang-up, and the CONT that goes with it, the kernel tells to nobody but the session's leader.
        let hang_up = self.leads_session && [Signal::HUP, Signal::CONT].contains(&received.signal);
        if received.signal != Signal::CHLD && (!from_terminal || hang_up) {
            self.child.relay(received.signal);
        }
    }

    /// CMD was stopped: where a shell waits for tenure to stop, it must, or the terminal hangs. Where no shell controls
    /// the job, whoever stops CMD by STOP means to continue CMD and not tenure, which therefore goes on.
    fn stop_along(&self, signal: Signal) {
        if self.stop.is_none() && (signal != Signal::STOP || child::is_a_shells_job()) {
            signals::stop_by(signal);
        }
    }

    fn keep_time(&mut self) {
        if self.stop.is_none() && self.time_limit.is_some_and(|limit| Instant::now() >= limit) {
            let limit = show(self.args.max_time.unwrap_or_default());
            self.begin_stop(Signal::TERM, Reason::TimedOut);
            if !self.common.quiet {
                output::tell(&format!(
                    "stopping the command: it has run for {limit}, which is --max-time"
                ));
            }
        }
    }

    fn look_after_lease(&mut self) {
        if matches!(
            self.stop,
            Some(Stop {
                reason: Reason::Lost(..),
                ..
            })
        ) {
            return;
        }
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.child.observe();
            match self.store.look(self.lease) {
                Ok(Look::Held) => self.blind_since = None,
                Ok(Look::Gone) => return self.lose_what_is_gone(),
                Ok(Look::Revoked(by)) => {
                    let why = format!("taken away by {by}");
                    return self.lose(&why, Reason::Lost("forced", Some(by)));
                }
                Ok(Look::Moved) => {
                    let why = format!(
                        "{} or a side file of it was deleted or replaced",
                        self.store.location()
                    );
                    return self.lose(&why, Reason::Lost("moved", None));
                }
                // Often nothing but somebody who has the file for himself; what lasts is told by the renewal.
                Err(error) if self.store.vouches() => {
                    explain(self.common, || output::chain(&error));
                }
                Err(error) => self.tell_blind(&error),
            }
        }
        if now >= self.next_renewal {
            match self.store.renew(self.lease) {
                Ok(Some(until)) => {
                    self.good_until = until;
                    self.warned = false;
                    self.retry = RETRY;
                    self.plan_renewal();
                }
                Ok(None) => return self.lose_what_is_gone(),
                Err(error) => self.renewal_failed(&error),
            }
        }
        if let Some(until) = self.store.kept_until() {
            self.good_until = until;
        }
        self.set_last_moment();
        if self.must_end_in().is_some_and(|left| left.is_zero()) {
            let why = "its lease could not be renewed in time";
            // It may be that nobody has been told of that yet.
            let why = match self.store.renew(self.lease) {
                Err(error) if !self.warned => format!("{why} ({})", output::chain(&error)),
                _ => why.to_owned(),
            };
            self.lose(&why, Reason::Lost("not-renewed", None));
        }
    }

    /// How long until CMD must be told to end, unless a renewal succeeds; none while the kernel vouches for this process.
    fn must_end_in(&self) -> Option<Duration> {
        let left = self.good_until.remaining();
        (!self.store.vouches()).then(|| left.saturating_sub(self.kill_after + MARGIN))
    }

    /// When CMD is killed though this process should be stopped: a little before the lease is over.
    fn set_last_moment(&mut self) {
        if self.store.vouches() {
            return;
        }
        if let Err(error) = self.child.set_deadline(self.good_until - MARGIN / 2) {
            self.lose(
                &format!("nobody can be started to watch over it ({error})"),
                Reason::Lost("not-renewed", None),
            );
        }
    }

    fn plan_renewal(&mut self) {
        self.next_renewal = Instant::now() + wait::until_renewal(self.lease.ttl).max(LEAST_RENEWAL);
    }

    /// While the kernel vouches for this process the lease lives on, so this is worth a word and no more, and
    /// only when time would have ended it.
    fn renewal_failed(&mut self, error: &anyhow::Error) {
        let now = Instant::now();
        self.next_renewal = now + wait::jittered(self.retry);
        self.retry = (self.retry * 2).min(LOOK);
        let names = output::list(&self.lease.names);
        if let Some(left) = self.must_end_in() {
            self.warn(&format!(
                "{}; unless that changes the command is stopped in {}, before {names} can be another's",
                output::chain(error),
                show(Duration::from_secs(left.as_secs()))
            ));
        } else if self.good_until.remaining().is_zero() {
            self.warn(&format!(
                "{}; {names} is held all the same while this process lives",
                output::chain(error),
            ));
        }
    }

    /// The lease is renewed, and so its job goes on.
    fn tell_blind(&mut self, error: &anyhow::Error) {
        if self.blind_since.is_none() {
            self.blind_since = Some(Instant::now());
            output::say(&format!(
                "{}; it cannot be seen whether somebody takes {} away",
                output::chain(error),
                output::list(&self.lease.names)
            ));
        }
    }

    /// Once for each time that things go wrong, not each second.
    fn warn(&mut self, message: &str) {
        if !self.warned {
            self.warned = true;
            output::tell(message);
        }
    }

    fn lose_what_is_gone(&mut self) {
        self.lose(
            "its lease is gone from the database",
            Reason::Lost("gone", None),
        );
    }

    fn lose(&mut self, why: &str, reason: Reason) {
        self.begin_stop(self.args.on_lost, reason);
        let what = if self.child.has_overrun() {
            "the command was killed"
        } else {
            "stopping the command"
        };
        output::tell(&format!(
            "lost {}: {why}; {what}",
            output::list(&self.lease.names)
        ));
    }

    fn begin_stop(&mut self, signal: Signal, reason: Reason) {
        // A stop for time may become one for loss: then the first KILL stands.
        let kill_at = self
            .stop
            .as_ref()
            .map_or_else(|| Instant::now() + self.kill_after, |stop| stop.kill_at);
        self.stop = Some(Stop {
            reason,
            kill_at,
            killed_at: self.stop.as_ref().and_then(|stop| stop.killed_at),
            is_told: false,
        });
        self.child.signal_tree(signal);
    }

    /// The exit, when the stopped tree is gone.
    fn go_on_stopping(&mut self) -> Option<Exit> {
        let stop = self.stop.as_ref()?;
        let exit = match stop.reason {
            Reason::TimedOut => Exit::TimedOut,
            Reason::Lost(..) => Exit::NotHeld,
        };
        let is_gone = if self.child.has_ended() {
            self.child.tree_is_gone()
        } else {
            Some(false)
        };
        if is_gone == Some(true) {
            return Some(exit);
        }
        let now = Instant::now();
        let is_told = stop.is_told;
        if now < stop.kill_at {
            return None;
        }
        let killed_at = stop.killed_at.unwrap_or(now);
        if let Some(stop) = &mut self.stop {
            stop.killed_at = Some(killed_at);
        }
        self.child.signal_tree(Signal::KILL);
        // As long as it would be for the job of a supervisor that was killed.
        let patience = DYING.max(self.lease.ttl);
        if now >= killed_at + patience {
            let names = output::list(&self.lease.names);
            output::tell(&format!(
                "{names} can be another's now, though processes of the command may still work"
            ));
            return Some(exit);
        }
        if now >= killed_at + DYING && !is_told {
            let what = if is_gone.is_none() {
                "it is unknown whether all of its processes have ended"
            } else {
                "the kernel has not ended all of its processes"
            };
            let most = show(Duration::from_secs(
                patience.saturating_sub(DYING).as_secs(),
            ));
            output::tell(&format!(
                "the command was killed, and {what}; waiting for them, for {most} at most"
            ));
            if let Some(stop) = &mut self.stop {
                stop.is_told = true;
            }
        }
        None
    }
}

fn ended(status: Status) -> Exit {
    match status {
        Status::Exited(code) => Exit::Command(code),
        Status::Killed(signal) => Exit::Signal(signal),
        Status::Unknown => {
            output::tell("the command has ended, and its exit status is unknown");
            Exit::Command(u8::MAX)
        }
    }
}
