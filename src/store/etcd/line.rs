//! The lines of the locks, as the keys have them at one revision: what `rules::queue` asks is answered here.

use std::convert::Infallible;
use std::ops::ControlFlow;

use super::ticket::{Lines, Ticket};
use crate::lock::{Held, LockName, Mode, Request, Standing, Token};
use crate::rules::queue::{self, Nesting, Order, Verdict, Wanted};

/// The lines as they are for one request.
#[derive(Clone, Copy)]
pub struct View<'a> {
    lines: &'a Lines,
    /// The number of the request, which may have been given a slot by an answer that was lost.
    own: i64,
}

/// What a request asks for at a place.
pub fn wanted(request: &Request, place: i64, is_new: bool) -> Wanted<'_, LockName> {
    Wanted {
        names: &request.names,
        mode: request.mode,
        place,
        is_new,
    }
}

impl Lines {
    pub fn view(&self, own: i64) -> View<'_> {
        View { lines: self, own }
    }

    /// Whether nobody is in the way of a request.
    pub fn is_free_for(&self, names: &[LockName], mode: Mode, place: i64) -> bool {
        let wanted = Wanted {
            names,
            mode,
            place,
            is_new: false,
        };
        let Ok(is_free) = queue::may_enter(&self.view(0), &wanted);
        is_free
    }
}

impl<'a> View<'a> {
    pub fn look(&self, wanted: &Wanted<'_, LockName>) -> Verdict<&'a Ticket> {
        let Ok(look) = queue::look(self, wanted);
        look.verdict
    }

    /// On each of the names the first who is in a request's way, for people to be told.
    pub fn first_in_the_way(&self, wanted: &Wanted<'_, LockName>) -> Vec<&'a Ticket> {
        let Ok(first) = queue::first_in_the_way(self, wanted);
        first
    }

    /// The cycle that a request closes.
    pub fn cycle(
        &self,
        wanted: &Wanted<'_, LockName>,
        enclosing: &[Token],
        waits: bool,
    ) -> Option<Vec<Held>> {
        let Ok(cycle) = queue::cycle(self, wanted, enclosing, waits);
        let shown = |ticket| self.lines.shown(ticket, None);
        cycle.map(|cycle| cycle.into_iter().map(shown).collect())
    }

    fn find(&self, is_it: impl Fn(&Ticket) -> bool) -> Option<&'a Ticket> {
        let tickets = self.lines.tickets().into_iter();
        tickets.into_iter().find(|ticket| is_it(ticket))
    }
}

impl<'a> queue::Lines for View<'a> {
    type Name = LockName;
    type Ticket = &'a Ticket;
    type Error = Infallible;

    fn place(&self, ticket: &&'a Ticket) -> i64 {
        ticket.place()
    }

    fn mode(&self, ticket: &&'a Ticket) -> Mode {
        ticket.mode()
    }

    fn standing(&self, ticket: &&'a Ticket) -> Standing {
        self.lines.standing(ticket)
    }

    /// What is over has no key.
    fn is_over(&self, _: &&'a Ticket) -> bool {
        false
    }

    fn ahead(
        &self,
        name: &LockName,
        place: i64,
        order: Order,
        visit: &mut dyn FnMut(&'a Ticket) -> ControlFlow<()>,
    ) -> Result<(), Infallible> {
        let line = self.lines.line(name);
        let before = line.partition_point(|ticket| ticket.place() < place);
        let mut ahead = line[..before].iter();
        let _ = match order {
            Order::NearestFirst => ahead.rev().try_for_each(visit),
            Order::HeadFirst => ahead.try_for_each(visit),
            Order::SlotsHeadFirst => {
                let has_slots = |ticket: &&Ticket| matches!(ticket.mode(), Mode::Slots(_));
                ahead.filter(has_slots).try_for_each(visit)
            }
        };
        Ok(())
    }

    fn slots(&self, names: &[LockName]) -> Result<Vec<u32>, Infallible> {
        let tickets = names.iter().flat_map(|name| self.lines.line(name));
        let others = tickets.filter(|ticket| ticket.id != self.own);
        let slots = others.filter_map(|ticket| ticket.record.as_ref()?.slot);
        Ok(slots.collect())
    }
}

impl<'a> Nesting for View<'a> {
    fn names(&self, ticket: &&'a Ticket) -> Vec<LockName> {
        ticket.names()
    }

    fn lease(&self, token: &Token) -> Result<Option<&'a Ticket>, Infallible> {
        let is_it = |ticket: &Ticket| {
            let record = ticket.record.as_ref();
            record.is_some_and(|record| record.token == *token)
        };
        Ok(self.find(is_it))
    }

    fn around(&self, ticket: &&'a Ticket) -> Result<Option<&'a Ticket>, Infallible> {
        let record = ticket.record.as_ref();
        let id = record.and_then(|record| record.inside_of);
        Ok(id.and_then(|id| self.lines.by_id(id)))
    }

    fn inside(&self, lease: &&'a Ticket) -> Result<Vec<&'a Ticket>, Infallible> {
        let is_inside = |ticket: &&Ticket| {
            let record = ticket.record.as_ref();
            record.is_some_and(|record| record.inside_of == Some(lease.id))
        };
        Ok(self.lines.tickets().into_iter().filter(is_inside).collect())
    }
}
