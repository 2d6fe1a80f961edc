//! When is a lease over? One rule, in one function.
//!
//! Whoever acts on the answer asks inside the write transaction that does so.

use std::io;

use crate::clock::{Clock, Now};
use crate::guard::Guard;
use crate::lock::{Expiry, GuardMark, Standing};

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
/// In this order: while its `run` lives, it lives, whatever any clock says. While processes of its job live, it
/// lives until its time to live has passed. A guarded lease of which nobody lives is over at once. Where nothing
/// can be proved (no guard, or another guard file than the one in the row), its time to live decides.
///
/// # Errors
/// When the kernel cannot be asked. Nothing may be concluded then.
pub fn standing(
    mark: Option<&GuardMark>,
    expiry: &Expiry,
    clock: &Clock,
    now: Now,
    guard: Option<&impl Vouch>,
) -> io::Result<Standing> {
    let has_time = clock.remaining(expiry, now) > 0;
    let by_time = if has_time {
        Standing::Leased
    } else {
        Standing::Expired
    };
    let (Some(mark), Some(guard)) = (mark, guard) else {
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

    const SUPERVISOR: i64 = 2000;
    const TREE: i64 = 3000;

    fn ask(mark: Option<GuardMark>, locked: &[i64], left: i64) -> Standing {
        let clock = Clock::wall_only();
        let now = Now {
            boot: 0,
            wall: 1_000_000,
        };
        let kernel = Kernel {
            inode: 7,
            locked: locked.to_vec(),
        };
        standing(
            mark.as_ref(),
            &clock.after(now, left),
            &clock,
            now,
            Some(&kernel),
        )
        .unwrap()
    }

    fn mark(inode: u64, tree: Option<i64>) -> GuardMark {
        GuardMark {
            inode,
            supervisor: SUPERVISOR,
            tree,
        }
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
            (Standing::Expired, true),
            (Standing::Crashed, true),
        ] {
            assert_eq!(standing.is_over(), over, "{standing:?}");
        }
    }
}
