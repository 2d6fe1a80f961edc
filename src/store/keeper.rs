//! Keeps a lease alive in a store that answers over a network: a thread of its own renews it and looks whether it is still
//! its holder's, so that who supervises a job never waits for an answer, and its deadline does not depend on one.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};

use super::Look;
use crate::clock::Moment;
use crate::wait;

/// How often it is looked whether somebody took the lease away.
const LOOK: Duration = Duration::from_secs(1);

/// How soon a renewal is that was asked for: not so soon that it takes the processor from a job that is just starting.
const SOON: Duration = Duration::from_millis(100);

/// The pause after a try that failed: a server that is being restarted is back in a moment.
const RETRY: Duration = Duration::from_millis(300);

/// What a store does for a lease of this process's own, by a connection that only the thread uses.
pub trait Tend: Send + 'static {
    /// Counts the time to live from now. Returns when it will pass, counted from before this was sent; none when the lease
    /// is gone.
    ///
    /// # Errors
    /// It is not known to be renewed. Must come within a fraction of the time to live.
    fn renew(&mut self) -> Result<Option<Moment>>;

    /// Whether it is still its holder's.
    ///
    /// # Errors
    /// It could not be told, within a fraction of the time to live.
    fn look(&mut self) -> Result<Look>;
}

/// A thread that tends a lease until this is dropped.
pub struct Keeper {
    known: Arc<Mutex<Known>>,
    /// That it is closed is the sign to end.
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
}

/// What is to be done before its time.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(feature = "etcd"),
    expect(dead_code, reason = "others renew as they grant")
)]
enum Order {
    /// Soon.
    Renew,
    /// Now.
    Look,
}

/// What the thread has found out.
struct Known {
    until: Moment,
    look: Look,
    /// Why the last try to renew it failed.
    fault: Option<String>,
    unseen: Option<Unseen>,
}

/// The last look failed.
struct Unseen {
    why: String,
    /// The lease was renewed since the first that failed.
    is_renewed: bool,
    /// And another failed after that: it is not the server that is away.
    is_alone: bool,
}

impl Keeper {
    /// Begins with a lease that is good until a moment.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(tend: impl Tend, until: Moment, ttl: Duration) -> Result<Self> {
        let known = Arc::new(Mutex::new(Known {
            until,
            look: Look::Held,
            fault: None,
            unseen: None,
        }));
        let (orders, ordered) = channel();
        let shared = Arc::clone(&known);
        let thread = thread::Builder::new()
            .name("keeper".into())
            .spawn(move || keep(tend, ttl, &shared, &ordered))
            .context("cannot start a thread that renews the lease")?;
        Ok(Self {
            known,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Until when the lease is kept by the last renewal that is known to have succeeded.
    pub fn kept_until(&self) -> Moment {
        lock(&self.known).until
    }

    /// How the lease was found last.
    ///
    /// # Errors
    /// The last look failed, and the server is not away: the lease was renewed.
    pub fn seen(&self) -> Result<Look> {
        let known = lock(&self.known);
        match (&known.look, &known.unseen) {
            (Look::Held, Some(unseen)) if unseen.is_alone => Err(anyhow!(unseen.why.clone())),
            (look, _) => Ok(look.clone()),
        }
    }

    /// [`Keeper::kept_until`], none when the lease is gone.
    ///
    /// # Errors
    /// The last try to renew it failed.
    pub fn renewed(&self) -> Result<Option<Moment>> {
        let known = lock(&self.known);
        match (&known.look, &known.fault) {
            (Look::Gone, _) => Ok(None),
            (_, Some(fault)) => Err(anyhow!(fault.clone())),
            _ => Ok(Some(known.until)),
        }
    }

    /// Has the lease renewed soon, by the thread.
    #[cfg(feature = "etcd")]
    pub fn renew(&self) {
        self.order(Order::Renew);
    }

    /// Has the thread look at once.
    #[cfg(feature = "etcd")]
    pub fn look(&self) {
        self.order(Order::Look);
    }

    #[cfg(feature = "etcd")]
    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            // A thread that has ended has found the lease gone, and said so.
            let _ = orders.send(order);
        }
    }

    /// Ends the thread, and waits for it: what it has sent cannot come after what is sent next.
    #[cfg_attr(
        not(feature = "postgres"),
        allow(dead_code, reason = "others do not mind")
    )]
    pub fn stop(mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn keep(mut tend: impl Tend, ttl: Duration, known: &Mutex<Known>, ordered: &Receiver<Order>) {
    let first = Instant::now();
    let (mut next_renewal, mut next_look) = (first + wait::until_renewal(ttl), first + LOOK);
    loop {
        let pause = next_renewal
            .min(next_look)
            .saturating_duration_since(Instant::now());
        let order = ordered.recv_timeout(pause);
        let now = Instant::now();
        match order {
            Ok(Order::Renew) => {
                next_renewal = next_renewal.min(now + SOON);
                next_look = next_look.max(now + SOON);
                continue;
            }
            Ok(Order::Look) => {
                next_look = now;
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // First what keeps the lease.
        if now >= next_renewal {
            let renewed = tend.renew();
            next_renewal = Instant::now() + wait::until_renewal(ttl);
            match renewed {
                Ok(Some(until)) => {
                    let mut known = lock(known);
                    (known.until, known.fault) = (until, None);
                    if let Some(unseen) = &mut known.unseen {
                        unseen.is_renewed = true;
                    }
                    continue;
                }
                // It may be known who took it away.
                Ok(None) => {
                    let seen = tend.look().ok();
                    let seen = seen.filter(|look| matches!(look, Look::Revoked(_)));
                    lock(known).look = seen.unwrap_or(Look::Gone);
                    return;
                }
                Err(error) => {
                    let again = Instant::now() + wait::jittered(RETRY);
                    next_renewal = again;
                    next_look = next_look.max(again);
                    lock(known).fault = Some(format!("{error:#}"));
                    continue;
                }
            }
        }
        next_look = now + LOOK;
        let looked = tend.look();
        let mut known = lock(known);
        match looked {
            Ok(look) => {
                known.look = look;
                known.unseen = None;
            }
            Err(error) => {
                let again = Instant::now() + wait::jittered(RETRY);
                next_look = next_look.max(again);
                // A renewal may fail, too: that is to be known soon.
                if known.unseen.is_none() {
                    next_renewal = next_renewal.min(again);
                }
                let before = known.unseen.as_ref();
                let is_renewed = before.is_some_and(|unseen| unseen.is_renewed);
                known.unseen = Some(Unseen {
                    why: format!("{error:#}"),
                    is_renewed,
                    is_alone: is_renewed,
                });
            }
        }
        if matches!(known.look, Look::Gone) {
            return;
        }
    }
}

fn lock(mutex: &Mutex<Known>) -> MutexGuard<'_, Known> {
    // It is whole after every statement, whatever panicked in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Renews, and never sees anything.
    struct Blind;

    impl Tend for Blind {
        fn renew(&mut self) -> Result<Option<Moment>> {
            Ok(Some(Moment::now() + Duration::from_hours(1)))
        }

        fn look(&mut self) -> Result<Look> {
            Err(anyhow!("permission denied"))
        }
    }

    #[test]
    fn a_look_that_failed_is_told_as_such_and_not_as_a_renewal() {
        let ttl = Duration::from_mins(1);
        let keeper = Keeper::start(Blind, Moment::now() + ttl, ttl).expect("a thread");
        assert_eq!(keeper.seen().expect("nothing has failed yet"), Look::Held);
        let deadline = Instant::now() + Duration::from_secs(20);
        let why = loop {
            assert!(Instant::now() < deadline, "it is not told");
            assert!(keeper.renewed().expect("no renewal fails").is_some());
            if let Err(why) = keeper.seen() {
                break why;
            }
            thread::sleep(Duration::from_millis(5));
        };
        assert_eq!(why.to_string(), "permission denied");
        keeper.stop();
    }

    /// Fails once, then renews, and is taken away.
    struct Scripted {
        renewals: u32,
        sent: Sender<u32>,
    }

    impl Tend for Scripted {
        fn renew(&mut self) -> Result<Option<Moment>> {
            self.renewals += 1;
            let _ = self.sent.send(self.renewals);
            match self.renewals {
                1 => Err(anyhow!("no answer")),
                2 => Ok(Some(Moment::now() + Duration::from_hours(1))),
                _ => Ok(None),
            }
        }

        fn look(&mut self) -> Result<Look> {
            Ok(Look::Held)
        }
    }

    #[test]
    fn a_failed_renewal_is_tried_again_and_a_lease_that_is_gone_is_told() {
        let (sent, renewals) = channel();
        let ttl = Duration::from_millis(60);
        let tend = Scripted { renewals: 0, sent };
        let keeper = Keeper::start(tend, Moment::now() + ttl, ttl).expect("a thread");
        assert_eq!(renewals.iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(keeper.seen().expect("it is known"), Look::Gone);
        assert_eq!(keeper.renewed().expect("it is known"), None);
        assert!(keeper.kept_until().remaining() > Duration::from_mins(50));
        keeper.stop();
    }
}
