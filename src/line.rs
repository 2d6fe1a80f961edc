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
