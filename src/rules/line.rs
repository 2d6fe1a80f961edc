//! The line: who stands in whose way. Pure rules over plain values; no clock, no kernel, no database.
//!
//! First in, first out, for every lock: a ticket may enter when no ticket that lives and is held, or stands before it
//! in the line, conflicts with it on any of its names. A ticket's number is its place in the line, and whoever holds
//! a lock that it conflicts with has a smaller one. Who lives is for `standing` to say.

use std::collections::VecDeque;
use std::ops::ControlFlow;

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

/// What stands in a ticket's way on one name, as it is met: those that live and are ahead of it there, nearest first.
#[derive(Debug, PartialEq, Eq)]
pub struct Way<T> {
    mode: Mode,
    /// Must be gone first.
    blocking: Option<T>,
    /// One of these must be gone first, if they have all of the slots.
    taken: Vec<T>,
}

impl<T> Way<T> {
    /// That of a ticket of this mode.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            blocking: None,
            taken: Vec::new(),
        }
    }

    /// Breaks when it need not meet any more: at the first that blocks.
    pub fn meet(&mut self, mode: Mode, ticket: T) -> ControlFlow<()> {
        match relation(self.mode, mode) {
            Relation::Compatible => {}
            Relation::TakesSlot => self.taken.push(ticket),
            Relation::Blocks => {
                self.blocking = Some(ticket);
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    /// Those of whom one must be gone first; none if the way is free.
    pub fn blocking(self) -> Vec<T> {
        let slots = match self.mode {
            Mode::Slots(slots) => usize::try_from(slots).unwrap_or(usize::MAX),
            Mode::Exclusive | Mode::Shared => usize::MAX,
        };
        match self.blocking {
            Some(blocking) => vec![blocking],
            None if self.taken.len() < slots => Vec::new(),
            None => self.taken,
        }
    }
}

/// Refuses a new request for slots on a name that is in use with another number of them, and says which: by the modes of those
/// that live and are ahead of it there, from the head of the line. Reads no further than to the first with slots: all the others
/// say what that one says, or are about to be refused too, as in a store where a request stands in the line before it is judged.
///
/// Asked when a request comes, and never again: who stands in the line was let in by those ahead, and those who come later have
/// to say its number.
pub fn other_slots(mode: Mode, from_the_head: impl IntoIterator<Item = Mode>) -> Option<u32> {
    let Mode::Slots(mine) = mode else {
        return None;
    };
    let mut slots = from_the_head.into_iter().filter_map(|ahead| match ahead {
        Mode::Slots(used) => Some(used),
        Mode::Exclusive | Mode::Shared => None,
    });
    slots.next().filter(|used| *used != mine)
}

/// What must happen before a ticket is gone, told by the numbers of other tickets. A holder is gone when whatever is
/// held or asked for inside of its lease is: none ends before what it waits for itself. A waiter is gone when it has
/// entered and ended; it can enter when all that block it are gone, and as many of those who take a slot as leave one
/// for it. It makes no difference which: that they all have to wait for us is what makes a wait for slots endless,
/// where for any other lock it is enough that one of those ahead has to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Each of these must be gone.
    all: Vec<usize>,
    /// Of these, so many.
    some: Vec<usize>,
    enough: usize,
}

impl Needs {
    /// A holder's, by what is inside of its lease.
    pub fn of_holder(inside: Vec<usize>) -> Self {
        Self {
            all: inside,
            ..Self::default()
        }
    }

    /// A waiter's, by those that live and are ahead of it on one of its names. Slots are of one name only.
    pub fn of_waiter(mode: Mode, ahead: impl IntoIterator<Item = (usize, Mode)>) -> Self {
        let mut needs = Self::default();
        for (other, other_mode) in ahead {
            match relation(mode, other_mode) {
                Relation::Compatible => {}
                Relation::Blocks => needs.all.push(other),
                Relation::TakesSlot => needs.some.push(other),
            }
        }
        if let Mode::Slots(slots) = mode {
            let slots = usize::try_from(slots).unwrap_or(usize::MAX);
            needs.enough = (needs.some.len() + 1).saturating_sub(slots);
        }
        needs
    }

    fn are_met(&self, gone: &[bool]) -> bool {
        let of_some = self.some.iter().filter(|other| gone[**other]);
        self.all.iter().all(|other| gone[*other]) && of_some.count() >= self.enough
    }

    fn others(&self) -> impl Iterator<Item = usize> {
        let some = if self.enough > 0 { &self.some[..] } else { &[] };
        self.all.iter().chain(some).copied()
    }
}

/// The cycle that makes the wait of ticket 0, a request, endless: if everybody ends and enters who can, it still
/// cannot enter, and that is because of itself. None if it can, or if others wait for each other with no regard to it.
///
/// The first of the cycle is in the way of the request, each other in the way of one before it or inside of it, and
/// the request is inside of the one that has nobody inside of it. Where all who take a slot are in the way for ever,
/// all of them are told.
pub fn cycle(needs: &[Needs]) -> Option<Vec<usize>> {
    let mut gone = vec![false; needs.len()];
    loop {
        let mut moved = false;
        for at in 0..needs.len() {
            if !gone[at] && needs[at].are_met(&gone) {
                gone[at] = true;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    if gone[0] {
        return None;
    }
    // How far each is from the request, along those that cannot go.
    let mut needed_by = vec![Vec::new(); needs.len()];
    for at in (0..needs.len()).filter(|at| !gone[*at]) {
        for other in needs[at].others().filter(|other| !gone[*other]) {
            needed_by[other].push(at);
        }
    }
    let mut distances = vec![None; needs.len()];
    let mut next = VecDeque::from([(0, 0usize)]);
    while let Some((at, distance)) = next.pop_front() {
        for &other in &needed_by[at] {
            if distances[other].is_none() {
                distances[other] = Some(distance + 1);
                next.push_back((other, distance + 1));
            }
        }
    }
    distances[0]?;
    let leads_back = |other: &usize| !gone[*other] && distances[*other].is_some();
    let mut told = vec![false; needs.len()];
    let mut cycle = Vec::new();
    let mut untold = vec![0];
    while let Some(at) = untold.pop() {
        if told[at] {
            continue;
        }
        told[at] = true;
        cycle.push(at);
        let all = needs[at].all.iter().copied().filter(leads_back);
        // One that blocks is cause enough: the one from which it is not far to the request.
        let nearest = all.min_by_key(|other| {
            if *other == 0 {
                Some(0)
            } else {
                distances[*other]
            }
        });
        let some = needs[at].some.iter().copied().filter(leads_back);
        match nearest {
            Some(nearest) => untold.push(nearest),
            None => untold.extend(some.rev()),
        }
    }
    cycle.remove(0);
    Some(cycle)
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

    /// Few locks, each mostly with the same slots: many who are in each other's way.
    fn crowd() -> impl Strategy<Value = Vec<Ticket>> {
        let modes = prop_oneof![1 => Just(Mode::Exclusive), 1 => Just(Mode::Shared), 6 => Just(Mode::Slots(2))];
        let ticket = (modes, 0..3u8).prop_map(|(mode, name)| {
            // The last of the locks is for one at a time.
            let mode = if name == 2 { Mode::Exclusive } else { mode };
            Ticket {
                names: vec![name],
                mode,
                held: false,
            }
        });
        proptest::collection::vec(ticket, 4..20)
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
            let mut way = Way::new(line[at].mode);
            for (place, other) in ahead {
                if way.meet(other.mode, place).is_break() {
                    break;
                }
            }
            way.blocking().is_empty()
        })
    }

    fn conflict(one: &Ticket, other: &Ticket) -> bool {
        one.names.iter().any(|name| other.names.contains(name))
            && relation(one.mode, other.mode) == Relation::Blocks
    }

    /// Tickets in the order of their places, and inside of whose lease each was asked for.
    #[derive(Clone, Debug, Default)]
    struct World {
        line: Vec<Ticket>,
        inside_of: Vec<Option<usize>>,
    }

    impl World {
        fn remove(&mut self, gone: usize) {
            self.line.remove(gone);
            self.inside_of.remove(gone);
            for other in self.inside_of.iter_mut().flatten() {
                *other -= usize::from(*other > gone);
            }
        }

        fn let_in(&mut self) -> bool {
            let mut moved = false;
            for at in 0..self.line.len() {
                if !self.line[at].held && may_enter(&self.line, at) {
                    self.line[at].held = true;
                    moved = true;
                }
            }
            moved
        }

        /// Slow and obvious: plays on until nothing moves. Whether a ticket has got through.
        fn drains(&self, which: usize) -> bool {
            let (mut world, mut which) = (self.clone(), which);
            loop {
                let moved = world.let_in();
                if world.line[which].held {
                    return true;
                }
                let free =
                    |at: &usize| world.line[*at].held && !world.inside_of.contains(&Some(*at));
                let Some(gone) = (0..world.line.len()).find(free) else {
                    if moved {
                        continue;
                    }
                    return false;
                };
                world.remove(gone);
                which -= usize::from(which > gone);
            }
        }

        /// As the store has it: the newest is ticket 0, the others follow in their order.
        fn needs(&self) -> Vec<Needs> {
            let newest = self.line.len() - 1;
            let number = |at: usize| if at == newest { 0 } else { at + 1 };
            let of = |at: usize| {
                let ticket = &self.line[at];
                if ticket.held {
                    let inside = (0..=newest).filter(|other| self.inside_of[*other] == Some(at));
                    return Needs::of_holder(inside.map(number).collect());
                }
                let ahead = self.line[..at].iter().enumerate();
                let ahead = ahead.filter(|(_, other)| {
                    other.names.iter().any(|name| ticket.names.contains(name))
                });
                Needs::of_waiter(
                    ticket.mode,
                    ahead.map(|(other, of)| (number(other), of.mode)),
                )
            };
            [newest].into_iter().chain(0..newest).map(of).collect()
        }

        /// Each of the cycle waits for the next or has it inside, and the request is inside of the last; unless some
        /// of it is about slots, of which there may be several.
        fn check_cycle(&self, newest: usize, cycle: &[usize]) -> Result<(), TestCaseError> {
            let at: Vec<usize> = cycle.iter().map(|number| number - 1).collect();
            prop_assert!(!at.contains(&newest));
            let around = self.inside_of[newest];
            let ends: Vec<_> = at
                .iter()
                .filter(|one| {
                    self.line[**one].held
                        && !at.iter().any(|other| self.inside_of[*other] == Some(**one))
                })
                .collect();
            prop_assert_eq!(ends, [&around.expect("it is inside of one")]);
            if [newest]
                .iter()
                .chain(&at)
                .any(|one| matches!(self.line[*one].mode, Mode::Slots(_)))
            {
                return Ok(());
            }
            prop_assert_eq!(at.last().copied(), around);
            for (one, next) in [newest].iter().chain(&at).zip(&at) {
                let (ticket, other) = (&self.line[*one], &self.line[*next]);
                let follows = if ticket.held {
                    self.inside_of[*next] == Some(*one)
                } else {
                    conflict(ticket, other)
                };
                prop_assert!(follows);
            }
            Ok(())
        }
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

        /// Requests come to one lock, are refused or stand in the line, enter, and go in any order: all that are there say one
        /// number of slots, so that a refusal is the same in whatever order the line is read; and nobody is refused once he
        /// stands there.
        #[test]
        fn all_in_a_line_say_one_number_of_slots(modes in proptest::collection::vec(mode(), 1..20), leaves in proptest::collection::vec(any::<prop::sample::Index>(), 20)) {
            let refusal = |mode, line: &mut dyn Iterator<Item = &Mode>| other_slots(mode, line.copied());
            let mut line: Vec<Mode> = Vec::new();
            for (new, leave) in modes.into_iter().zip(leaves) {
                let refused = refusal(new, &mut line.iter());
                prop_assert_eq!(refused, refusal(new, &mut line.iter().rev()));
                let used = line.iter().find(|mode| matches!(mode, Mode::Slots(_)));
                let differs = used.is_some_and(|used| matches!(new, Mode::Slots(_)) && *used != new);
                prop_assert_eq!(refused.is_some(), differs);
                if refused.is_none() {
                    line.push(new);
                }
                if leave.index(3) == 0 && !line.is_empty() {
                    line.remove(leave.index(line.len()));
                }
                for (at, mode) in line.iter().enumerate() {
                    prop_assert_eq!(refusal(*mode, &mut line[..at].iter()), None);
                }
            }
        }

        /// Requests come, most of them inside of a lease that is held, stand in the line unless they are told that it
        /// would be for ever, and go in any order: who is told would have brought all to a stop, himself included, and
        /// without those all get through.
        #[test]
        fn who_closes_a_cycle_is_told_and_nobody_else(arrivals in prop_oneof![arrivals(), crowd()], choices in proptest::collection::vec(any::<prop::sample::Index>(), 40)) {
            let mut world = World::default();
            let mut choices = choices.into_iter();
            for ticket in arrivals {
                let holders: Vec<usize> = (0..world.line.len()).filter(|at| world.line[*at].held).collect();
                let inside_of = choices.next().filter(|_| !holders.is_empty()).map(|choice| holders[choice.index(holders.len())]);
                world.line.push(ticket);
                world.inside_of.push(inside_of);
                let newest = world.line.len() - 1;
                if may_enter(&world.line, newest) {
                    world.line[newest].held = true;
                    continue;
                }
                let cycle = cycle(&world.needs());
                prop_assert_eq!(cycle.is_some(), !world.drains(newest), "{:?}", world);
                if let Some(cycle) = cycle {
                    world.check_cycle(newest, &cycle)?;
                    world.line.pop();
                    world.inside_of.pop();
                }
                // Now and then one who can go does, and others enter.
                if let Some(choice) = choices.next().filter(|choice| choice.index(3) == 0) {
                    let at = choice.index(world.line.len());
                    if world.line[at].held && !world.inside_of.contains(&Some(at)) {
                        world.remove(at);
                        world.let_in();
                    }
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
