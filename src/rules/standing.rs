//! When is a lease over? One rule, in one function.
//!
//! Whoever acts on the answer asks inside the write transaction that does so.

use std::io;
use std::time::Duration;

use crate::clock::{Clock, Now};
use crate::guard::Guard;
use crate::lock::{GuardMark, Standing, Terms};

/// The kernel's word for a living process, which the rule asks for.
pub trait Vouch {
    /// Identifies the file in which the bytes are locked.
    fn inode(&self) -> u64;

    /// Whether anybody holds this byte.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn is_locked(&self, byte: i64) -> io::Result<bool>;
}

impl Vouch for Guard {
    fn inode(&self) -> u64 {
        Guard::inode(self)
    }

    fn is_locked(&self, byte: i64) -> io::Result<bool> {
        Guard::is_locked(self, byte)
    }
}

/// How a lease stands at `now`.
///
/// In this order: before its `--at-least` has passed, it lives, whatever else is true. While its `run` lives, it
/// lives, whatever any clock says. While processes of its job live, it lives until its time to live has passed. A
/// guarded lease of which nobody lives is over at once. Where nothing can be proved (no guard, or another guard file
/// than the one in the row), its time to live decides.
///
/// # Errors
/// When the kernel cannot be asked. Nothing may be concluded then.
pub fn standing(
    terms: &Terms,
    clock: &Clock,
    now: Now,
    guard: Option<&impl Vouch>,
) -> io::Result<Standing> {
    let found = by_proof(terms, clock, now, guard)?;
    let rests = terms
        .earliest_end
        .as_ref()
        .is_some_and(|end| clock.remaining(end, now) > 0);
    Ok(if found.is_over() && rests {
        Standing::Resting
    } else {
        found
    })
}

fn by_proof(
    terms: &Terms,
    clock: &Clock,
    now: Now,
    guard: Option<&impl Vouch>,
) -> io::Result<Standing> {
    let has_time = clock.remaining(&terms.expiry, now) > 0;
    let by_time = if has_time {
        Standing::Leased
    } else {
        Standing::Expired
    };
    let (Some(mark), Some(guard)) = (&terms.mark, guard) else {
        return Ok(by_time);
    };
    if guard.inode() != mark.inode {
        return Ok(by_time);
    }
    if guard.is_locked(mark.supervisor)? {
        return Ok(Standing::Supervised);
    }
    match mark.tree {
        None => Ok(by_time),
        Some(tree) if guard.is_locked(tree)? => Ok(if has_time {
            Standing::Orphaned
        } else {
            Standing::Expired
        }),
        Some(_) => Ok(Standing::Crashed),
    }
}

/// Whether whoever shows the token may give a lease another time to live than it has. A `run` has reckoned with that which it
/// asked for: with a shorter one, of which it hears at its next renewal, its lease could be over before it has stopped its job.
pub fn may_live_for(asked: Option<Duration>, ttl: Duration, of_run: bool) -> bool {
    !of_run || asked.is_none_or(|asked| asked >= ttl)
}

/// Whether a ticket still stands in the line: the dead do not block it, and neither does one whose guard file is
/// gone, until it has taken bytes in the new one.
///
/// # Errors
/// When the kernel cannot be asked.
pub fn stands_in_line(mark: Option<&GuardMark>, guard: Option<&impl Vouch>) -> io::Result<bool> {
    match (mark, guard) {
        (Some(mark), Some(guard)) if guard.inode() == mark.inode => guard.is_locked(mark.waiting),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Kernel {
        inode: u64,
        locked: Vec<i64>,
    }

    impl Vouch for Kernel {
        fn inode(&self) -> u64 {
            self.inode
        }

        fn is_locked(&self, byte: i64) -> io::Result<bool> {
            Ok(self.locked.contains(&byte))
        }
    }

    const WAITING: i64 = 1000;
    const SUPERVISOR: i64 = 2000;
    const TREE: i64 = 3000;

    fn ask(mark: Option<GuardMark>, locked: &[i64], left: i64) -> Standing {
        ask_before(mark, locked, left, None)
    }

    fn ask_before(
        mark: Option<GuardMark>,
        locked: &[i64],
        left: i64,
        rest: Option<i64>,
    ) -> Standing {
        let clock = Clock::wall_only();
        let now = Now {
            boot: 0,
            wall: 1_000_000,
        };
        let kernel = Kernel {
            inode: 7,
            locked: locked.to_vec(),
        };
        let terms = Terms {
            expiry: clock.after(now, left),
            earliest_end: rest.map(|rest| clock.after(now, rest)),
            mark,
        };
        standing(&terms, &clock, now, Some(&kernel)).unwrap()
    }

    fn mark(inode: u64, tree: Option<i64>) -> GuardMark {
        GuardMark {
            inode,
            waiting: WAITING,
            supervisor: SUPERVISOR,
            tree,
        }
    }

    #[test]
    fn before_its_at_least_has_passed_nothing_ends_a_lease() {
        let dead = || Some(mark(7, Some(TREE)));
        assert_eq!(ask_before(dead(), &[], 5, Some(1)), Standing::Resting);
        assert_eq!(ask_before(None, &[], -5, Some(1)), Standing::Resting);
        assert_eq!(ask_before(dead(), &[], 5, Some(0)), Standing::Crashed);
        assert_eq!(
            ask_before(dead(), &[SUPERVISOR], 5, Some(1)),
            Standing::Supervised
        );
    }

    #[test]
    fn a_waiter_stands_in_the_line_while_it_lives() {
        let ask = |mark: GuardMark, locked: &[i64]| {
            let kernel = Kernel {
                inode: 7,
                locked: locked.to_vec(),
            };
            stands_in_line(Some(&mark), Some(&kernel)).unwrap()
        };
        assert!(ask(mark(7, None), &[WAITING]));
        assert!(!ask(mark(7, None), &[SUPERVISOR]));
        assert!(!ask(mark(8, None), &[WAITING]));
    }

    #[test]
    fn while_its_run_lives_no_clock_ends_a_lease() {
        assert_eq!(
            ask(Some(mark(7, Some(TREE))), &[SUPERVISOR, TREE], -999_999),
            Standing::Supervised
        );
        assert_eq!(
            ask(Some(mark(7, None)), &[SUPERVISOR], -1),
            Standing::Supervised
        );
    }

    #[test]
    fn an_orphaned_job_keeps_a_lease_to_its_time_to_live_at_most() {
        assert_eq!(
            ask(Some(mark(7, Some(TREE))), &[TREE], 1),
            Standing::Orphaned
        );
        assert_eq!(
            ask(Some(mark(7, Some(TREE))), &[TREE], 0),
            Standing::Expired
        );
    }

    #[test]
    fn a_guarded_lease_of_the_dead_is_over_at_once() {
        assert_eq!(
            ask(Some(mark(7, Some(TREE))), &[], 999_999),
            Standing::Crashed
        );
    }

    #[test]
    fn where_nothing_is_proved_the_time_to_live_decides() {
        for unproved in [None, Some(mark(8, Some(TREE))), Some(mark(7, None))] {
            assert_eq!(ask(unproved, &[], 1), Standing::Leased, "{unproved:?}");
            assert_eq!(ask(unproved, &[], 0), Standing::Expired, "{unproved:?}");
        }
    }

    #[test]
    fn what_is_over_is_only_the_expired_and_the_crashed() {
        for (standing, over) in [
            (Standing::Supervised, false),
            (Standing::Orphaned, false),
            (Standing::Leased, false),
            (Standing::Waiting, false),
            (Standing::Resting, false),
            (Standing::Expired, true),
            (Standing::Crashed, true),
        ] {
            assert_eq!(standing.is_over(), over, "{standing:?}");
        }
    }
}
