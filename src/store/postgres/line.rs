//! The lines of the locks, as the rows have them in one transaction: what `rules::queue` asks is answered here.

use std::convert::Infallible;
use std::ops::ControlFlow;
use std::time::Duration;

use super::ticket::Living;
use crate::duration::from_millis;
use crate::lock::{Expiry, Held, LockName, Mode, Request, Standing, Token};
use crate::rules::obstacle::{InTheWay, obstacle};
use crate::rules::queue::{self, END_OF_LINE, Lines, Nesting, Order, Verdict, Wanted};

/// Tickets in the order of the line, as they stood at a moment of the server's clock.
#[derive(Clone, Copy)]
pub struct Line<'a> {
    pub tickets: &'a [Living],
    pub now: i64,
}

/// What came of a look along the line.
pub enum Found {
    Free {
        slot: Option<u32>,
    },
    /// To be looked at again when one of these tickets has changed, or by then.
    Blocked {
        behind: Vec<(i64, Standing)>,
        again: Duration,
    },
    /// The lock is in use with another number of slots.
    OtherSlots(u32),
}

/// What a request asks for; one without a place is new, and stands at the end.
fn wanted(request: &Request, place: Option<i64>) -> Wanted<'_, LockName> {
    Wanted {
        names: &request.names,
        mode: request.mode,
        place: place.unwrap_or(END_OF_LINE),
        is_new: place.is_none(),
    }
}

impl<'a> Line<'a> {
    pub fn look(self, request: &Request, place: Option<i64>) -> Found {
        let Ok(look) = queue::look(&self, &wanted(request, place));
        let blocking = match look.verdict {
            Verdict::Free { slot } => return Found::Free { slot },
            Verdict::OtherSlots(slots) => return Found::OtherSlots(slots),
            Verdict::Behind(blocking) => blocking,
        };
        let in_the_way: Vec<InTheWay<'_>> = blocking
            .iter()
            .map(|(ticket, standing)| InTheWay {
                id: ticket.id,
                mode: ticket.mode,
                standing: *standing,
                terms: &ticket.terms,
            })
            .collect();
        let remaining = |expiry: &Expiry| from_millis(expiry.wall.saturating_sub(self.now));
        // Whoever waits ahead need not be watched besides: each is told of what he waits for himself.
        let nobody = |_| Ok::<_, Infallible>(None);
        let Ok(found) = obstacle(request.mode, &in_the_way, remaining, nobody);
        // Time ends any of them, whether it holds or waits.
        let ends = blocking.iter().filter(|(ticket, _)| {
            let mut behind = found.behind.iter();
            behind.any(|(id, _)| *id == ticket.id)
        });
        let ends = ends.map(|(ticket, _)| ticket.remaining(self.now));
        Found::Blocked {
            again: ends.min().unwrap_or_default(),
            behind: found.behind,
        }
    }

    /// On each of the names the first who is in a request's way, for people to be told.
    pub fn first_in_the_way(self, request: &Request, place: Option<i64>) -> Vec<Held> {
        let Ok(first) = queue::first_in_the_way(&self, &wanted(request, place));
        self.shown(first)
    }

    /// The cycle that would be closed if a request waited that is not in the line. Only one that is made inside of another lease
    /// can close one.
    pub fn cycle(self, request: &Request, waits: bool) -> Option<Vec<Held>> {
        let wanted = wanted(request, None);
        let Ok(cycle) = queue::cycle(&self, &wanted, &request.enclosing, waits);
        cycle.map(|cycle| self.shown(cycle))
    }

    fn shown(self, tickets: Vec<&'a Living>) -> Vec<Held> {
        let show = |(ticket, standing): &Living| ticket.clone().into_held(self.now, *standing);
        tickets.into_iter().map(show).collect()
    }

    /// Where a ticket stands in the line for a lock, counted from 1, and how many stand there.
    pub fn place_of(self, name: &LockName, id: i64) -> (u32, u32) {
        let waits = |(ticket, standing): &&Living| {
            *standing == Standing::Waiting && ticket.names.contains(name)
        };
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let waiting = || self.tickets.iter().filter(waits);
        let before = count(waiting().filter(|(ticket, _)| ticket.id < id).count());
        (before + 1, count(waiting().count()).max(before + 1))
    }

    fn find(self, is_it: impl Fn(&Living) -> bool) -> Option<&'a Living> {
        self.tickets.iter().find(|living| is_it(living))
    }
}

impl<'a> Lines for Line<'a> {
    type Name = LockName;
    type Ticket = &'a Living;
    type Error = Infallible;

    fn place(&self, (ticket, _): &&'a Living) -> i64 {
        ticket.id
    }

    fn mode(&self, (ticket, _): &&'a Living) -> Mode {
        ticket.mode
    }

    fn standing(&self, (_, standing): &&'a Living) -> Standing {
        *standing
    }

    fn ahead(
        &self,
        name: &LockName,
        place: i64,
        order: Order,
        visit: &mut dyn FnMut(&'a Living) -> ControlFlow<()>,
    ) -> Result<(), Infallible> {
        let has_slots = |ticket: &Living| matches!(ticket.0.mode, Mode::Slots(_));
        let ahead = self.tickets.iter().filter(|living| {
            living.0.id < place
                && living.0.names.contains(name)
                && (order != Order::SlotsHeadFirst || has_slots(living))
        });
        let _ = match order {
            Order::NearestFirst => ahead.rev().try_for_each(visit),
            Order::HeadFirst | Order::SlotsHeadFirst => {
                let mut ahead = ahead;
                ahead.try_for_each(visit)
            }
        };
        Ok(())
    }

    fn slots(&self, names: &[LockName]) -> Result<Vec<u32>, Infallible> {
        let holders = self.tickets.iter().filter(|(ticket, standing)| {
            ticket.is_held
                && !standing.is_over()
                && ticket.names.iter().any(|name| names.contains(name))
        });
        Ok(holders.filter_map(|(ticket, _)| ticket.slot).collect())
    }
}

impl<'a> Nesting for Line<'a> {
    fn names(&self, (ticket, _): &&'a Living) -> Vec<LockName> {
        ticket.names.clone()
    }

    fn lease(&self, token: &Token) -> Result<Option<&'a Living>, Infallible> {
        Ok(self.find(|(ticket, _)| ticket.is_held && ticket.token == *token))
    }

    fn around(&self, (ticket, _): &&'a Living) -> Result<Option<&'a Living>, Infallible> {
        let token = ticket.enclosing.as_ref();
        token.map_or(Ok(None), |token| self.lease(token))
    }

    fn inside(&self, (lease, _): &&'a Living) -> Result<Vec<&'a Living>, Infallible> {
        let is_inside = |(ticket, _): &&Living| ticket.enclosing == Some(lease.token);
        Ok(self.tickets.iter().filter(is_inside).collect())
    }
}
