//! What a waiter watches: so that it is woken when it can go on, and nobody is woken who cannot. Pure, as `line` is.

use std::time::Duration;

use crate::lock::{Expiry, GuardMark, Mode, Standing, Terms};

/// What a request in the line has to wait for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Obstacle {
    /// Bytes of the guard file with this inode: when one of them is free it is time to look again.
    pub bytes: Vec<(u64, i64)>,
    /// It may be gone by a change in the store of which no byte tells.
    pub is_unguarded: bool,
    /// When to look again in any case, such as at the end of a time to live.
    pub again: Option<Duration>,
    /// The tickets that this is about, by their numbers, and how they stood.
    pub behind: Vec<(i64, Standing)>,
}

/// One that lives and is in a request's way.
#[derive(Clone, Copy, Debug)]
pub struct InTheWay<'a> {
    pub id: i64,
    pub mode: Mode,
    pub standing: Standing,
    pub terms: &'a Terms,
}

/// How to wait for one of `blocking` to be gone. `remaining` says how long until a moment, and `waiter_ahead` who
/// stands in line next ahead of the request for what it wants of the lease in that place of `blocking`.
///
/// # Errors
/// Those of `waiter_ahead`.
pub fn obstacle<E>(
    mode: Mode,
    blocking: &[InTheWay<'_>],
    remaining: impl Fn(&Expiry) -> Duration,
    waiter_ahead: impl FnOnce(usize) -> Result<Option<(i64, Option<GuardMark>)>, E>,
) -> Result<Obstacle, E> {
    let mut obstacle = Obstacle::default();
    let is_slots = matches!(mode, Mode::Slots(_));
    let alike = |other: &InTheWay<'_>| is_slots && other.mode == mode;
    // The nearest of them. Where it is not alone in the way, the others are looked at when it is gone.
    let nearest = blocking
        .iter()
        .enumerate()
        .max_by_key(|(_, other)| other.id);
    let Some((place, nearest)) = nearest else {
        return Ok(obstacle);
    };
    let byte = |mark: Option<GuardMark>, which: fn(&GuardMark) -> Option<i64>| {
        let mark = mark?;
        Some((mark.inode, which(&mark)?))
    };
    if nearest.standing == Standing::Waiting {
        // Behind a slots waiter of the same kind: whether it enters or gives up, it is our turn to look. Behind any
        // other: until it is gone, granted or not.
        let which: fn(&GuardMark) -> Option<i64> = if alike(nearest) {
            |mark| Some(mark.waiting)
        } else {
            |mark| Some(mark.supervisor)
        };
        obstacle.bytes.extend(byte(nearest.terms.mark, which));
        obstacle.behind.push((nearest.id, nearest.standing));
        return Ok(obstacle);
    }
    for other in blocking {
        if other.id != nearest.id && !alike(other) {
            continue;
        }
        obstacle.behind.push((other.id, other.standing));
        let mut until = |expiry: &Expiry| {
            let left = remaining(expiry);
            obstacle.again = Some(obstacle.again.map_or(left, |again| again.min(left)));
        };
        let mark = other.terms.mark;
        match other.standing {
            Standing::Supervised if mark.is_some_and(|mark| mark.is_tied()) => {
                // Its row may be released by the token while the descriptor is still open.
                obstacle.is_unguarded = true;
                obstacle
                    .bytes
                    .extend(byte(mark, |mark| Some(mark.supervisor)));
            }
            Standing::Supervised => obstacle
                .bytes
                .extend(byte(mark, |mark| Some(mark.supervisor))),
            // Ahead of one that has entered: it was stopped when it could have. Whether it enters or gives up, a slot is free or
            // is not.
            Standing::Waiting => obstacle.bytes.extend(byte(mark, |mark| Some(mark.waiting))),
            Standing::Orphaned => {
                // Nobody is left who would give the byte back when the lease is forced away.
                obstacle.is_unguarded = true;
                until(&other.terms.expiry);
                obstacle.bytes.extend(byte(mark, |mark| mark.tree));
            }
            Standing::Resting => {
                obstacle.is_unguarded = true;
                other.terms.earliest_end.iter().for_each(until);
            }
            _ => {
                until(&other.terms.expiry);
                obstacle.is_unguarded = true;
            }
        }
    }
    // Only the first in line looks again and again at what no byte tells of; the next looks when that one has moved. It
    // may be stopped: the slow tick goes by the lease all the same.
    if obstacle.is_unguarded
        && let Some((id, mark)) = waiter_ahead(place)?
    {
        obstacle.is_unguarded = false;
        obstacle.bytes = byte(mark, |mark| Some(mark.waiting)).into_iter().collect();
        obstacle.behind.push((id, Standing::Waiting));
    }
    Ok(obstacle)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    const MARK: GuardMark = GuardMark {
        inode: 7,
        waiting: 1,
        supervisor: 2,
        tree: Some(3),
    };

    /// What one who shares waits for, behind one of this standing; and who else waits ahead of it.
    fn found(standing: Standing, ahead: Option<i64>) -> Obstacle {
        let moment = Expiry {
            boot_id: None,
            boot: None,
            wall: 0,
        };
        let bare = matches!(standing, Standing::Leased | Standing::Resting);
        let terms = Terms {
            expiry: moment.clone(),
            earliest_end: Some(moment),
            mark: (!bare).then_some(MARK),
        };
        let other = InTheWay {
            id: 10,
            mode: Mode::Exclusive,
            standing,
            terms: &terms,
        };
        let remaining = |_: &Expiry| Duration::from_secs(1);
        let ahead = |_| Ok::<_, Infallible>(ahead.map(|id| (id, Some(MARK))));
        let Ok(found) = obstacle(Mode::Shared, &[other], remaining, ahead);
        found
    }

    #[test]
    fn a_living_holder_is_watched_and_nothing_else() {
        let found = found(Standing::Supervised, Some(11));
        assert_eq!(found.bytes, [(7, 2)]);
        assert!(!found.is_unguarded && found.again.is_none());
    }

    #[test]
    fn a_waiter_that_could_have_entered_is_watched_as_the_holders_are() {
        let moment = Expiry {
            boot_id: None,
            boot: None,
            wall: 0,
        };
        let terms = Terms {
            expiry: moment,
            earliest_end: None,
            mark: Some(MARK),
        };
        let slots = Mode::Slots(2);
        let other = |id, standing| InTheWay {
            id,
            mode: slots,
            standing,
            terms: &terms,
        };
        let ahead = [
            other(10, Standing::Waiting),
            other(11, Standing::Supervised),
        ];
        let remaining = |_: &Expiry| Duration::ZERO;
        let Ok(found) = obstacle(slots, &ahead, remaining, |_| Ok::<_, Infallible>(None));
        assert_eq!(found.bytes, [(7, 1), (7, 2)]);
        assert!(!found.is_unguarded && found.again.is_none());
    }

    #[test]
    fn where_nobody_is_left_to_give_the_lease_back_it_is_looked_for() {
        for standing in [Standing::Leased, Standing::Resting, Standing::Orphaned] {
            let found = found(standing, None);
            assert!(found.is_unguarded && found.again.is_some(), "{standing:?}");
        }
        assert_eq!(found(Standing::Orphaned, None).bytes, [(7, 3)]);
    }

    #[test]
    fn only_the_first_in_line_looks_and_the_next_knows_whose_lease_it_is_about() {
        let found = found(Standing::Leased, Some(11));
        assert!(!found.is_unguarded);
        assert_eq!(found.bytes, [(7, 1)]);
        let behind = [(10, Standing::Leased), (11, Standing::Waiting)];
        assert_eq!(found.behind, behind);
    }
}
