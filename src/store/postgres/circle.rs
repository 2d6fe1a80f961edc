//! Which wait would be for ever: what `line::circle` decides, from all tickets that there are.

use std::collections::HashMap;

use anyhow::Result;

use super::link::Tx;
use super::ticket::{self, Living};
use crate::line::{self, Needs};
use crate::lock::{Held, LockName, Request, Standing, Token};

/// The number of the request; a ticket's is its place among all, and one.
const REQUEST: usize = 0;

/// The circle that would be closed if a request waited, in the order and the sense of [`line::circle`]. Only one that is made
/// inside of another lease can close one. Of one that does not wait only the leases around it count: all others may end while
/// it goes on.
pub fn closed_by(tx: &Tx<'_>, request: &Request, waits: bool) -> Result<Option<Vec<Held>>> {
    if request.enclosing.is_empty() {
        return Ok(None);
    }
    let all: Vec<Living> = ticket::line(tx, &[])?
        .into_iter()
        .map(|ticket| {
            let standing = ticket.standing(tx);
            (ticket, standing)
        })
        .collect();
    let numbers: HashMap<Token, usize> = all
        .iter()
        .enumerate()
        .map(|(at, (ticket, _))| (ticket.token, at + 1))
        .collect();
    let around = leases_around(&request.enclosing, &all, &numbers);
    let ahead = |names: &[LockName], place: i64| {
        let names = names.to_vec();
        let living = all.iter().enumerate();
        let living = living.filter(move |(_, (ticket, standing))| {
            !standing.is_over()
                && ticket.id < place
                && ticket.names.iter().any(|name| names.contains(name))
        });
        living.map(|(at, (ticket, _))| (at + 1, ticket.mode))
    };
    let of_request = Needs::of_waiter(request.mode, ahead(&request.names, ticket::END_OF_LINE));
    let of = |(ticket, standing): &Living| {
        if !ticket.is_held && !waits {
            return Needs::default();
        }
        if !ticket.is_held {
            return Needs::of_waiter(ticket.mode, ahead(&ticket.names, ticket.id));
        }
        if *standing == Standing::Resting {
            // Time alone ends it.
            return Needs::default();
        }
        let inside = all.iter().enumerate().filter(|(_, (other, standing))| {
            waits && !standing.is_over() && other.enclosing == Some(ticket.token)
        });
        let mut inside: Vec<usize> = inside.map(|(at, _)| at + 1).collect();
        // The request has no row yet, and those around it stay in its way, whatever became of the ones between.
        if let Some(place) = around
            .iter()
            .position(|number| all[number - 1].0.id == ticket.id)
        {
            inside.push(match place.checked_sub(1) {
                Some(inner) => around[inner],
                None => REQUEST,
            });
        }
        Needs::of_holder(inside)
    };
    let needs: Vec<Needs> = std::iter::once(of_request)
        .chain(all.iter().map(of))
        .collect();
    Ok(line::circle(&needs).map(|circle| {
        let found = circle.into_iter().map(|number| &all[number - 1]);
        let held = found.map(|(ticket, standing)| ticket.clone().into_held(tx.now, *standing));
        held.collect()
    }))
}

/// The numbers of the leases around a request that live, the innermost first: those it was told of, and those that are around
/// them by their rows. One that is over is nobody's way, but leads on.
fn leases_around(told: &[Token], all: &[Living], numbers: &HashMap<Token, usize>) -> Vec<usize> {
    let (mut met, mut around) = (Vec::new(), Vec::new());
    for token in told {
        let mut next = Some(*token);
        while let Some(number) = next.and_then(|token| numbers.get(&token)).copied() {
            let (ticket, standing) = &all[number - 1];
            if met.contains(&number) || !ticket.is_held {
                break;
            }
            met.push(number);
            next = ticket.enclosing;
            if !standing.is_over() && *standing != Standing::Resting {
                around.push(number);
            }
        }
    }
    around
}
