//! Which wait would be for ever: what `line::circle` decides is read from the lines of all locks as they were at one
//! revision.

use std::collections::HashMap;

use super::ticket::{Lines, Ticket};
use crate::line::{self, Needs};
use crate::lock::{Held, LockName, Mode, Request, Standing, Token};

/// The number of the request; a ticket's is its place among all, and one.
const REQUEST: usize = 0;

/// The circle that a request has closed which has just come into the line at a place, in the order and the sense of
/// [`line::circle`]. Those that came later look for themselves. Of one that does not wait only the leases around it count: all
/// others may end while it goes on.
pub fn closed_by(
    lines: &mut Lines,
    request: &Request,
    place: i64,
    waits: bool,
) -> Option<Vec<Held>> {
    lines.cut(place);
    let lines = &*lines;
    let tickets = lines.tickets();
    let numbers: HashMap<i64, usize> = tickets
        .iter()
        .enumerate()
        .map(|(at, ticket)| (ticket.place(), at + 1))
        .collect();
    let number = |ticket: &Ticket| numbers[&ticket.place()];
    let ahead = |names: &[LockName], mode: Mode, place: i64| {
        let ahead = names.iter().flat_map(|name| lines.ahead(name, place));
        Needs::of_waiter(mode, ahead.map(|ticket| (number(ticket), ticket.mode())))
    };
    let around = leases_around(&request.enclosing, lines, &tickets);
    let mut needs = vec![ahead(&request.names, request.mode, place)];
    for ticket in &tickets {
        needs.push(match lines.standing(ticket) {
            Standing::Waiting if !waits => Needs::default(),
            Standing::Waiting => ahead(&ticket.names(), ticket.mode(), ticket.place()),
            // Time alone ends it.
            Standing::Resting => Needs::default(),
            _ => {
                let is_inside = |other: &&&Ticket| {
                    let record = other.record.as_ref();
                    waits && record.is_some_and(|record| record.inside_of == Some(ticket.id))
                };
                let inside = tickets.iter().filter(is_inside);
                let mut inside: Vec<usize> = inside.map(|other| number(other)).collect();
                // Those around the request stay in its way, whatever became of the ones between.
                if let Some(place) = around.iter().position(|one| *one == number(ticket)) {
                    inside.push(match place.checked_sub(1) {
                        Some(inner) => around[inner],
                        None => REQUEST,
                    });
                }
                Needs::of_holder(inside)
            }
        });
    }
    let circle = line::circle(&needs)?;
    let told = circle
        .into_iter()
        .map(|number| lines.shown(tickets[number - 1], None));
    Some(told.collect())
}

/// The numbers of the leases around a request, the innermost first: those it was told of, and those that are around them by
/// their records.
fn leases_around(told: &[Token], lines: &Lines, tickets: &[&Ticket]) -> Vec<usize> {
    let (mut met, mut around) = (Vec::new(), Vec::new());
    let find = |is_it: &dyn Fn(&Ticket) -> bool| tickets.iter().position(|ticket| is_it(ticket));
    for token in told {
        let is_it = |ticket: &Ticket| {
            let record = ticket.record.as_ref();
            record.is_some_and(|record| record.token == *token)
        };
        let mut next = find(&is_it);
        while let Some(at) = next.filter(|at| !met.contains(at)) {
            met.push(at);
            if lines.standing(tickets[at]) == Standing::Leased {
                around.push(at + 1);
            }
            let record = tickets[at].record.as_ref();
            let inside_of = record.and_then(|record| record.inside_of);
            next = inside_of.and_then(|id| find(&|ticket| ticket.id == id));
        }
    }
    around
}
