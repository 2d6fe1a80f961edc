//! The line: who stands in whose way. Pure rules over plain values; no clock, no kernel, no database.
//!
//! First in, first out, for every lock: a ticket may enter when no ticket that lives and is held, or stands before it
//! in the line, conflicts with it on any of its names. A ticket's number is its place in the line, and whoever holds
//! a lock that it conflicts with has a smaller one. Who lives is for `standing` to say.

use crate::lock::Mode;

/// What a ticket further ahead, on one of the same names, means to one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// They may hold the lock together.
    Compatible,
    /// The one behind waits until the one ahead is gone.
    Blocks,
    /// It takes one of the slots that both of them count.
    TakesSlot,
}

/// The relation of a ticket to one ahead of it, by their modes.
pub fn relation(behind: Mode, ahead: Mode) -> Relation {
    match (behind, ahead) {
        (Mode::Shared, Mode::Shared) => Relation::Compatible,
        (Mode::Slots(mine), Mode::Slots(other)) if mine == other => Relation::TakesSlot,
        _ => Relation::Blocks,
    }
}

/// What stands in a ticket's way, as far as it has been found.
#[derive(Debug, PartialEq, Eq)]
pub enum Way<T> {
    Free,
    /// This one must be gone first.
    Behind(T),
    /// One of these must be gone first; they have all of the slots.
    Full(Vec<T>),
}

/// The way of a ticket on one name, past those that live and are ahead of it there, nearest first. Looks no further
/// than to the first that blocks.
///
/// # Errors
/// Those of the iterator.
pub fn way<T, E>(
    mode: Mode,
    ahead: impl IntoIterator<Item = Result<(Mode, T), E>>,
) -> Result<Way<T>, E> {
    let mut taken = Vec::new();
    for other in ahead {
        let (other_mode, other) = other?;
        match relation(mode, other_mode) {
            Relation::Compatible => {}
            Relation::Blocks => return Ok(Way::Behind(other)),
            Relation::TakesSlot => taken.push(other),
        }
    }
    let slots = match mode {
        Mode::Slots(slots) => usize::try_from(slots).unwrap_or(usize::MAX),
        Mode::Exclusive | Mode::Shared => usize::MAX,
    };
    Ok(if taken.len() < slots {
        Way::Free
    } else {
        Way::Full(taken)
    })
}

/// The smallest slot that none of the holders has.
pub fn smallest_free(taken: &[u32]) -> u32 {
    // Of one more number than there are holders, one is free.
    (0..=u32::MAX)
        .take(taken.len() + 1)
        .find(|slot| !taken.contains(slot))
        .unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::prelude::*;

    use super::*;

    /// A ticket of the model: everything in the open.
    #[derive(Clone, Debug)]
    struct Ticket {
        names: Vec<u8>,
        mode: Mode,
        held: bool,
    }

    fn mode() -> impl Strategy<Value = Mode> {
        prop_oneof![
            Just(Mode::Exclusive),
            Just(Mode::Shared),
            (1..4u32).prop_map(Mode::Slots),
        ]
    }

    /// Tickets in the order of their places; slots go with one name, as on the command line.
    fn arrivals() -> impl Strategy<Value = Vec<Ticket>> {
        let ticket =
            (mode(), proptest::collection::btree_set(0..3u8, 1..=3)).prop_map(|(mode, names)| {
                let most = if matches!(mode, Mode::Slots(_)) { 1 } else { 3 };
                Ticket {
                    names: names.into_iter().take(most).collect(),
                    mode,
                    held: false,
                }
            });
        proptest::collection::vec(ticket, 1..12)
    }

    /// Slow and obvious: straight from the rule, over every pair.
    fn may_enter(line: &[Ticket], at: usize) -> bool {
        let ticket = &line[at];
        let ahead: Vec<&Ticket> = line
            .iter()
            .enumerate()
            .filter(|(place, other)| *place != at && (other.held || *place < at))
            .map(|(_, other)| other)
            .filter(|other| other.names.iter().any(|name| ticket.names.contains(name)))
            .collect();
        match ticket.mode {
            Mode::Exclusive => ahead.is_empty(),
            Mode::Shared => ahead.iter().all(|other| other.mode == Mode::Shared),
            Mode::Slots(slots) => {
                ahead.iter().all(|other| other.mode == ticket.mode) && ahead.len() < slots as usize
            }
        }
    }

    /// By the walk that the store does: each name, nearest first.
    fn is_free(line: &[Ticket], at: usize) -> bool {
        line[at].names.iter().all(|name| {
            let ahead = line[..at].iter().enumerate().rev();
            let ahead = ahead.filter(|(_, other)| other.names.contains(name));
            let ahead = ahead.map(|(place, other)| Ok::<_, Infallible>((other.mode, place)));
            let Ok(way) = way(line[at].mode, ahead);
            way == Way::Free
        })
    }

    fn conflict(one: &Ticket, other: &Ticket) -> bool {
        one.names.iter().any(|name| other.names.contains(name))
            && relation(one.mode, other.mode) == Relation::Blocks
    }

    proptest! {
        /// Tickets arrive, enter when they may, and go in any order: the walk agrees with the rule at every step,
        /// holders never conflict, nobody is overtaken by one that conflicts with him, and all get through.
        #[test]
        fn the_line_is_fair_and_safe_and_moves(arrivals in arrivals(), leaves in proptest::collection::vec(any::<prop::sample::Index>(), 200)) {
            let mut line = arrivals;
            let mut leaves = leaves.into_iter();
            while !line.is_empty() {
                let mut moved = false;
                for at in 0..line.len() {
                    if !line[at].held {
                        prop_assert_eq!(is_free(&line, at), may_enter(&line, at));
                        if is_free(&line, at) {
                            let overtaken = line[..at].iter().any(|other| !other.held && conflict(other, &line[at]));
                            prop_assert!(!overtaken);
                            line[at].held = true;
                            moved = true;
                        }
                    }
                }
                for (at, one) in line.iter().enumerate().filter(|(_, ticket)| ticket.held) {
                    for other in line[at + 1..].iter().filter(|ticket| ticket.held) {
                        prop_assert!(!conflict(one, other));
                    }
                    if let Mode::Slots(slots) = one.mode {
                        let alike = line.iter().filter(|other| other.held && other.names == one.names);
                        prop_assert!(alike.count() <= slots as usize);
                    }
                }
                let held: Vec<usize> = (0..line.len()).filter(|at| line[*at].held).collect();
                prop_assert!(moved || !held.is_empty(), "nobody holds, and nobody may enter");
                if let Some(leave) = leaves.next() {
                    // Mostly holders end; now and then a waiter gives up.
                    let gone = if held.is_empty() || leave.index(8) == 0 { leave.index(line.len()) } else { held[leave.index(held.len())] };
                    line.remove(gone);
                }
            }
        }

        #[test]
        fn the_smallest_free_slot_is_free_and_smallest(taken in proptest::collection::vec(0..6u32, 0..6)) {
            let slot = smallest_free(&taken);
            prop_assert!(!taken.contains(&slot));
            prop_assert!((0..slot).all(|smaller| taken.contains(&smaller)));
        }
    }
}
