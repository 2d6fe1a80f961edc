//! Which wait would be for ever: what `line::circle` decides is read from the lines of all locks as they were at one
//! revision.

use std::collections::HashMap;

use super::ticket::{Lines, Ticket, id_of};
use crate::line::{self, Needs};
use crate::lock::{Held, LockName, Mode, Request, Standing};

/// The number of the request; a ticket's is its place among all, and one.
const REQUEST: usize = 0;

/// The circle that a request has closed which has just come into the line at a place, in the order and the sense of
/// [`line::circle`]. Those that came later look for themselves.
pub fn closed_by(lines: &mut Lines, request: &Request, place: i64) -> Option<Vec<Held>> {
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
    let around = request.enclosing.as_ref().map(id_of);
    let mut needs = vec![ahead(&request.names, request.mode, place)];
    for ticket in &tickets {
        needs.push(match lines.standing(ticket) {
            Standing::Waiting => ahead(&ticket.names(), ticket.mode(), ticket.place()),
            // Time alone ends it.
            Standing::Resting => Needs::default(),
            _ => {
                let is_inside = |other: &&&Ticket| {
                    let record = other.record.as_ref();
                    record.is_some_and(|record| record.inside_of == Some(ticket.id))
                };
                let inside = tickets.iter().filter(is_inside);
                let mut inside: Vec<usize> = inside.map(|other| number(other)).collect();
                if around == Some(ticket.id) {
                    inside.push(REQUEST);
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
