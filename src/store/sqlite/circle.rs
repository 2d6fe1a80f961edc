//! Which wait would be for ever: what `line::circle` decides is read from the rows here, inside the transaction that
//! acts on it.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;

use anyhow::Result;
use rusqlite::Transaction;

use super::ticket::{self, Rules, Ticket};
use crate::line::{self, Needs};
use crate::lock::{LockName, Mode, Request, Standing, Token};

/// The circle that would be closed if a request waited, in the order and the sense of [`line::circle`]. It is inside of
/// the leases that it says, and of those that live by the descriptors `own`, which this process keeps open. Of one that does
/// not wait only those leases count: all others may end while it goes on.
pub fn closed_by(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    own: &[BorrowedFd<'_>],
    waits: bool,
) -> Result<Option<Vec<Ticket>>> {
    let mut search = Search {
        transaction,
        rules,
        found: Vec::new(),
        numbers: HashMap::new(),
        lines: HashMap::new(),
    };
    let around = search.leases_around(&request.enclosing)?;
    let ahead = search.ahead(&request.names, ticket::END_OF_LINE)?;
    let mut needs = vec![Needs::of_waiter(request.mode, ahead)];
    // Grows while it is walked.
    let mut at = 0;
    while let Some((ticket, standing)) = search.found.get(at).cloned() {
        at += 1;
        needs.push(if !ticket.is_held && !waits {
            Needs::default()
        } else if !ticket.is_held {
            Needs::of_waiter(ticket.mode, search.ahead(&ticket.names, ticket.id)?)
        } else if standing == Standing::Resting {
            // Time alone ends it.
            Needs::default()
        } else {
            let mut inside = if waits {
                search.inside(&ticket.token)?
            } else {
                Vec::new()
            };
            // The request has no row yet, and those around it stay in its way, whatever became of the ones between.
            if let Some(place) = around.iter().position(|id| *id == ticket.id) {
                inside.push(match place.checked_sub(1) {
                    Some(inner) => search.numbers[&around[inner]],
                    None => REQUEST,
                });
            }
            if is_tied_to(&ticket, own, rules)? {
                inside.push(REQUEST);
            }
            Needs::of_holder(inside)
        });
    }
    let circle = line::circle(&needs);
    Ok(circle.map(|circle| {
        let tickets = circle.into_iter().map(|number| &search.found[number - 1]);
        tickets.map(|(ticket, _)| ticket.clone()).collect()
    }))
}

/// Whether a lease lives by one of these descriptors.
fn is_tied_to(ticket: &Ticket, own: &[BorrowedFd<'_>], rules: &Rules<'_>) -> Result<bool> {
    let (Some(mark), Some(guard)) = (ticket.terms.mark, rules.guard) else {
        return Ok(false);
    };
    if !mark.is_tied() || mark.inode != guard.inode() {
        return Ok(false);
    }
    for fd in own {
        if guard.is_tied(*fd, mark.supervisor)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of the request; a ticket's is its place in [`Search::found`] and one.
const REQUEST: usize = 0;

/// The tickets that have been met, each once.
struct Search<'a> {
    transaction: &'a Transaction<'a>,
    rules: &'a Rules<'a>,
    found: Vec<(Ticket, Standing)>,
    numbers: HashMap<i64, usize>,
    /// The living on each lock, in order.
    lines: HashMap<LockName, Vec<usize>>,
}

impl Search<'_> {
    fn number(&mut self, ticket: Ticket, standing: Standing) -> usize {
        let next = self.found.len() + 1;
        let number = *self.numbers.entry(ticket.id).or_insert(next);
        if number == next {
            self.found.push((ticket, standing));
        }
        number
    }

    fn number_the_living(&mut self, tickets: Vec<Ticket>) -> Result<Vec<usize>> {
        let mut numbers = Vec::new();
        for ticket in tickets {
            let standing = self.rules.standing(&ticket)?;
            if !standing.is_over() {
                numbers.push(self.number(ticket, standing));
            }
        }
        Ok(numbers)
    }

    /// The leases around a request that live, the innermost first: those it was told of, and those that are around them by
    /// their rows. One that is over is nobody's way, but leads on.
    fn leases_around(&mut self, told: &[Token]) -> Result<Vec<i64>> {
        let (mut met, mut around) = (Vec::new(), Vec::new());
        for token in told {
            let mut next = Some(*token);
            while let Some(token) = next {
                let found = ticket::by_token(self.transaction, &token)?;
                let Some(ticket) = found.filter(|ticket| !met.contains(&ticket.id)) else {
                    break;
                };
                met.push(ticket.id);
                next = ticket.enclosing;
                let standing = self.rules.standing(&ticket)?;
                if !standing.is_over() && standing != Standing::Resting {
                    around.push(ticket.id);
                    self.number(ticket, standing);
                }
            }
        }
        Ok(around)
    }

    fn inside(&mut self, lease: &Token) -> Result<Vec<usize>> {
        self.number_the_living(ticket::inside(self.transaction, lease)?)
    }

    /// The living ahead of a place, on each of the names.
    fn ahead(&mut self, names: &[LockName], place: i64) -> Result<Vec<(usize, Mode)>> {
        let mut ahead = Vec::new();
        for name in names {
            if !self.lines.contains_key(name) {
                let line = self.number_the_living(ticket::line_of(self.transaction, name)?)?;
                self.lines.insert(name.clone(), line);
            }
            let line = self.lines[name]
                .iter()
                .map(|number| (*number, &self.found[*number - 1].0));
            let before = line.take_while(|(_, ticket)| ticket.id < place);
            ahead.extend(before.map(|(number, ticket)| (number, ticket.mode)));
        }
        Ok(ahead)
    }
}
