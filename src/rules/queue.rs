//! The walk along a line, once for all stores: who may enter, behind whom one waits, who is over, what is refused, and which wait
//! would never end.
//!
//! A store answers questions of fact, as of one moment: which tickets are in a line, and how they stand. It writes down what is
//! decided here.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::ops::ControlFlow;

use super::line::{self, Needs, Relation, Way};
use crate::lock::{Mode, Standing, Token};

/// Behind everybody who has a place.
pub const END_OF_LINE: i64 = i64::MAX;

/// Which tickets of a line are wanted, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From the place on which one stands to the head.
    NearestFirst,
    HeadFirst,
    /// Of those with slots alone.
    SlotsHeadFirst,
}

/// The lines of a store's locks, as they are at one moment.
pub trait Lines {
    type Name: Clone + Eq + Hash;
    type Ticket: Clone;
    type Error;

    /// A number that no other ticket has: who came earlier has a smaller one.
    fn place(&self, ticket: &Self::Ticket) -> i64;

    fn mode(&self, ticket: &Self::Ticket) -> Mode;

    fn standing(&self, ticket: &Self::Ticket) -> Standing;

    /// Whether it is in nobody's way any more, and only has not been removed yet.
    fn is_over(&self, ticket: &Self::Ticket) -> bool {
        self.standing(ticket).is_over()
    }

    /// Calls `visit` with the tickets in the line for a lock that stand ahead of a place, until it breaks.
    ///
    /// # Errors
    /// The store cannot be read.
    fn ahead(
        &self,
        name: &Self::Name,
        place: i64,
        order: Order,
        visit: &mut dyn FnMut(Self::Ticket) -> ControlFlow<()>,
    ) -> Result<(), Self::Error>;

    /// The slots of those that hold one of these locks and are not over: of those behind in the line, too. Where several can
    /// enter, who wakes first does.
    ///
    /// # Errors
    /// The store cannot be read.
    fn slots(&self, names: &[Self::Name]) -> Result<Vec<u32>, Self::Error>;
}

/// A request that wants to know how it stands.
pub struct Wanted<'a, N> {
    pub names: &'a [N],
    pub mode: Mode,
    /// Where it stands in the line; behind everybody if it does not.
    pub place: i64,
    /// It comes just now, and may be refused for its number of slots. Asked again it is not: who stands in the line was let in
    /// by those ahead.
    pub is_new: bool,
}

/// What came of a look along the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It may enter, with this slot if it is for one.
    Free { slot: Option<u32> },
    /// These are in its way: on each name one that must be gone, or those who have all of the slots.
    Behind(Vec<T>),
    /// The lock is in use with this other number of slots.
    OtherSlots(u32),
}

/// A verdict, and the tickets that were met and are over: whoever decides removes them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look<T> {
    pub verdict: Verdict<T>,
    pub over: Vec<T>,
}

/// Looks along the line, from a place in it to its head, on each of the names.
///
/// # Errors
/// Those of `lines`.
pub fn look<L: Lines>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
) -> Result<Look<L::Ticket>, L::Error> {
    let mut over = Vec::new();
    let verdict = judge(lines, wanted, &mut over)?;
    let mut met = HashSet::new();
    over.retain(|ticket| met.insert(lines.place(ticket)));
    Ok(Look { verdict, over })
}

fn judge<L: Lines>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
    over: &mut Vec<L::Ticket>,
) -> Result<Verdict<L::Ticket>, L::Error> {
    let is_for_slots = matches!(wanted.mode, Mode::Slots(_));
    if wanted.is_new && is_for_slots {
        for name in wanted.names {
            if let Some(used) = other_slots(lines, wanted, name, over)? {
                return Ok(Verdict::OtherSlots(used));
            }
        }
    }
    let blocking = blocking(lines, wanted, over)?;
    if !blocking.is_empty() {
        return Ok(Verdict::Behind(blocking));
    }
    let slot = if is_for_slots {
        Some(line::smallest_free(&lines.slots(wanted.names)?))
    } else {
        None
    };
    Ok(Verdict::Free { slot })
}

fn other_slots<L: Lines>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
    name: &L::Name,
    over: &mut Vec<L::Ticket>,
) -> Result<Option<u32>, L::Error> {
    let mut used = None;
    lines.ahead(name, wanted.place, Order::SlotsHeadFirst, &mut |ticket| {
        if lines.is_over(&ticket) {
            over.push(ticket);
            return ControlFlow::Continue(());
        }
        // All the others say what this one says.
        used = Some(lines.mode(&ticket));
        ControlFlow::Break(())
    })?;
    Ok(line::other_slots(wanted.mode, used))
}

/// Those in the way, on each of the names.
fn blocking<L: Lines>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
    over: &mut Vec<L::Ticket>,
) -> Result<Vec<L::Ticket>, L::Error> {
    let mut blocking = Vec::new();
    for name in wanted.names {
        let mut way = Way::new(wanted.mode);
        lines.ahead(name, wanted.place, Order::NearestFirst, &mut |ticket| {
            if lines.is_over(&ticket) {
                over.push(ticket);
                return ControlFlow::Continue(());
            }
            way.meet(lines.mode(&ticket), ticket)
        })?;
        blocking.extend(way.blocking());
    }
    Ok(blocking)
}

/// Whether nobody is in the way of a request.
///
/// # Errors
/// Those of `lines`.
pub fn may_enter<L: Lines>(lines: &L, wanted: &Wanted<'_, L::Name>) -> Result<bool, L::Error> {
    Ok(blocking(lines, wanted, &mut Vec::new())?.is_empty())
}

/// On each of the names the first that is in a request's way, for people to be told: its holder, or who is next.
///
/// # Errors
/// Those of `lines`.
pub fn first_in_the_way<L: Lines>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
) -> Result<Vec<L::Ticket>, L::Error> {
    let mut first: Vec<L::Ticket> = Vec::new();
    for name in wanted.names {
        lines.ahead(name, wanted.place, Order::HeadFirst, &mut |ticket| {
            let is_compatible =
                line::relation(wanted.mode, lines.mode(&ticket)) == Relation::Compatible;
            if is_compatible || lines.is_over(&ticket) {
                return ControlFlow::Continue(());
            }
            let place = lines.place(&ticket);
            if first.iter().all(|known| lines.place(known) != place) {
                first.push(ticket);
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(first)
}

/// The nearest living waiter ahead of a place, on any of the names.
///
/// # Errors
/// Those of `lines`.
pub fn nearest_waiter<L: Lines>(
    lines: &L,
    names: &[L::Name],
    place: i64,
) -> Result<Option<L::Ticket>, L::Error> {
    let mut nearest: Option<L::Ticket> = None;
    for name in names {
        lines.ahead(name, place, Order::NearestFirst, &mut |ticket| {
            if lines.standing(&ticket) != Standing::Waiting {
                return ControlFlow::Continue(());
            }
            let known = nearest.as_ref().map(|known| lines.place(known));
            if known.is_none_or(|known| known < lines.place(&ticket)) {
                nearest = Some(ticket);
            }
            ControlFlow::Break(())
        })?;
    }
    Ok(nearest)
}

/// What a store knows of leases inside of which others are made.
pub trait Nesting: Lines {
    fn names(&self, ticket: &Self::Ticket) -> Vec<Self::Name>;

    /// The lease of a token, be it over or not.
    ///
    /// # Errors
    /// The store cannot be read.
    fn lease(&self, token: &Token) -> Result<Option<Self::Ticket>, Self::Error>;

    /// The lease inside of which a ticket was made, be it over or not.
    ///
    /// # Errors
    /// The store cannot be read.
    fn around(&self, ticket: &Self::Ticket) -> Result<Option<Self::Ticket>, Self::Error>;

    /// The tickets that were made inside of a lease.
    ///
    /// # Errors
    /// The store cannot be read.
    fn inside(&self, lease: &Self::Ticket) -> Result<Vec<Self::Ticket>, Self::Error>;

    /// Whether a lease lives by a descriptor that this process keeps open, and so cannot end before it.
    ///
    /// # Errors
    /// The kernel cannot be asked.
    fn is_kept_here(&self, _lease: &Self::Ticket) -> Result<bool, Self::Error> {
        Ok(false)
    }
}

/// The cycle that would be closed if a request waited, in the order and the sense of [`line::cycle`]. It is inside of the leases whose
/// tokens it says, the innermost first, and of those that are kept here. Of one that does not wait only those leases count: all
/// others may end while it goes on.
///
/// # Errors
/// Those of `lines`.
pub fn cycle<L: Nesting>(
    lines: &L,
    wanted: &Wanted<'_, L::Name>,
    enclosing: &[Token],
    waits: bool,
) -> Result<Option<Vec<L::Ticket>>, L::Error> {
    let mut search = Search {
        lines,
        found: Vec::new(),
        numbers: HashMap::new(),
        ahead: HashMap::new(),
    };
    let around = search.leases_around(enclosing)?;
    let ahead = search.ahead(wanted.names, wanted.place)?;
    let mut needs = vec![Needs::of_waiter(wanted.mode, ahead)];
    // Grows while it is walked.
    let mut at = 0;
    while let Some(ticket) = search.found.get(at).cloned() {
        at += 1;
        needs.push(match lines.standing(&ticket) {
            Standing::Waiting if !waits => Needs::default(),
            Standing::Waiting => {
                let ahead = search.ahead(&lines.names(&ticket), lines.place(&ticket))?;
                Needs::of_waiter(lines.mode(&ticket), ahead)
            }
            // Time alone ends it.
            Standing::Resting => Needs::default(),
            _ => {
                let mut inside = Vec::new();
                if waits {
                    inside = search.number_the_living(lines.inside(&ticket)?);
                }
                // The request is in no line yet, and those around it stay in its way, whatever became of the ones between.
                if let Some(place) = around.iter().position(|number| *number == at) {
                    inside.push(match place.checked_sub(1) {
                        Some(inner) => around[inner],
                        None => REQUEST,
                    });
                }
                if lines.is_kept_here(&ticket)? {
                    inside.push(REQUEST);
                }
                Needs::of_holder(inside)
            }
        });
    }
    Ok(line::cycle(&needs).map(|cycle| {
        let tickets = cycle.into_iter().map(|number| &search.found[number - 1]);
        tickets.cloned().collect()
    }))
}

/// The number of the request; a ticket's is its place in [`Search::found`] and one.
const REQUEST: usize = 0;

/// The tickets that have been met, each once.
struct Search<'a, L: Nesting> {
    lines: &'a L,
    found: Vec<L::Ticket>,
    /// By their places.
    numbers: HashMap<i64, usize>,
    /// The living in the line for each lock, in order.
    ahead: HashMap<L::Name, Vec<usize>>,
}

impl<L: Nesting> Search<'_, L> {
    fn number(&mut self, ticket: L::Ticket) -> usize {
        let next = self.found.len() + 1;
        let number = *self
            .numbers
            .entry(self.lines.place(&ticket))
            .or_insert(next);
        if number == next {
            self.found.push(ticket);
        }
        number
    }

    fn number_the_living(&mut self, tickets: Vec<L::Ticket>) -> Vec<usize> {
        let living = tickets
            .into_iter()
            .filter(|ticket| !self.lines.is_over(ticket));
        let living: Vec<L::Ticket> = living.collect();
        living
            .into_iter()
            .map(|ticket| self.number(ticket))
            .collect()
    }

    /// The leases around a request that live, the innermost first: those it was told of, and those that are around them by
    /// what the store knows. One that is over is in nobody's way, but leads on.
    fn leases_around(&mut self, enclosing: &[Token]) -> Result<Vec<usize>, L::Error> {
        let (mut met, mut around) = (Vec::new(), Vec::new());
        for token in enclosing {
            let mut next = self.lines.lease(token)?;
            while let Some(lease) = next.filter(|lease| !met.contains(&self.lines.place(lease))) {
                met.push(self.lines.place(&lease));
                next = self.lines.around(&lease)?;
                let standing = self.lines.standing(&lease);
                if !standing.is_over() && standing != Standing::Resting {
                    around.push(self.number(lease));
                }
            }
        }
        Ok(around)
    }

    /// The living ahead of a place, on each of the names.
    fn ahead(&mut self, names: &[L::Name], place: i64) -> Result<Vec<(usize, Mode)>, L::Error> {
        let mut ahead = Vec::new();
        for name in names {
            if !self.ahead.contains_key(name) {
                let mut line = Vec::new();
                let (lines, all) = (self.lines, END_OF_LINE);
                lines.ahead(name, all, Order::HeadFirst, &mut |ticket| {
                    line.push(ticket);
                    ControlFlow::Continue(())
                })?;
                let line = self.number_the_living(line);
                self.ahead.insert(name.clone(), line);
            }
            let line = self.ahead[name]
                .iter()
                .map(|number| (*number, &self.found[*number - 1]));
            let before = line.take_while(|(_, ticket)| self.lines.place(ticket) < place);
            ahead.extend(before.map(|(number, ticket)| (number, self.lines.mode(ticket))));
        }
        Ok(ahead)
    }
}
