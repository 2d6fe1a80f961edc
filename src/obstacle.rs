//! What a waiter watches: so that it is woken when it can go on, and nobody is woken who cannot. Pure, as `line` is.

use std::time::Duration;

use crate::lock::{Expiry, GuardMark, Mode, Standing, Terms};

/// What a request in the line has to wait for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Obstacle {
    /// Bytes of the guard file with this inode: when one of them is free it is time to look again.
    pub bytes: Vec<(u64, i64)>,
    /// Nothing but a change in the store will tell, for the one ahead has no guard.
    pub is_unguarded: bool,
    /// When to look again in any case, such as at the end of a time to live.
    pub again: Option<Duration>,
    /// The tickets that this is about, by their numbers.
    pub behind: Vec<i64>,
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
        obstacle.behind.push(nearest.id);
        return Ok(obstacle);
    }
    for other in blocking {
        if other.id != nearest.id && !alike(other) {
            continue;
        }
        obstacle.behind.push(other.id);
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
            Standing::Orphaned => {
                until(&other.terms.expiry);
                obstacle.bytes.extend(byte(mark, |mark| mark.tree));
            }
            Standing::Resting => other.terms.earliest_end.iter().for_each(until),
            _ => {
                until(&other.terms.expiry);
                obstacle.is_unguarded = true;
            }
        }
    }
    // Only the first in line looks again and again at what no byte tells of; the next looks when that one has moved.
    if obstacle.is_unguarded
        && let Some((id, mark)) = waiter_ahead(place)?
    {
        obstacle.is_unguarded = false;
        obstacle.bytes = byte(mark, |mark| Some(mark.waiting)).into_iter().collect();
        obstacle.behind = vec![id];
    }
    Ok(obstacle)
}
