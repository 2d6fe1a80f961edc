//! The lines of the locks, as the rows have them inside of one transaction: what `rules::queue` asks is answered here.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use anyhow::{Error, Result};
use rusqlite::{Params, Transaction, params};

use super::ticket::{self, Rules, Ticket, bury, columns};
use crate::lock::{Expiry, LockName, Mode, Request, Standing, Token};
use crate::rules::obstacle::{InTheWay, Obstacle, obstacle};
use crate::rules::queue::{self, END_OF_LINE, Lines, Nesting, Order, Verdict, Wanted};

/// A line is counted by asking after each who stands in it, up to this many: a thousand waiters that each ask after a
/// thousand would be busy with nothing else.
const ASKED_AFTER: u32 = 64;

/// A ticket, and how it stood when it was read.
pub type Seen = (Ticket, Standing);

/// The lines, as of a transaction.
pub struct Line<'a> {
    pub transaction: &'a Transaction<'a>,
    pub rules: &'a Rules<'a>,
    /// The descriptors on the guard file that this process was started with.
    pub own: &'a [BorrowedFd<'a>],
}

/// What came of a look along the line.
pub enum Found {
    Free {
        slot: Option<u32>,
    },
    Blocked(Obstacle),
    /// The lock is in use with another number of slots.
    OtherSlots(u32),
}

/// What a request at a place asks for.
pub fn wanted(request: &Request, place: i64, is_new: bool) -> Wanted<'_, LockName> {
    Wanted {
        names: &request.names,
        mode: request.mode,
        place,
        is_new,
    }
}

impl<'a> Line<'a> {
    pub fn of(transaction: &'a Transaction<'a>, rules: &'a Rules<'a>) -> Self {
        Self {
            transaction,
            rules,
            own: &[],
        }
    }

    /// Looks along the line. The dead that are met are removed.
    pub fn look(&self, wanted: &Wanted<'_, LockName>) -> Result<Found> {
        let look = queue::look(self, wanted)?;
        for (ticket, standing) in look.over {
            bury(self.transaction, self.rules, &ticket, standing)?;
        }
        Ok(match look.verdict {
            Verdict::Free { slot } => Found::Free { slot },
            Verdict::OtherSlots(slots) => Found::OtherSlots(slots),
            Verdict::Behind(blocking) => Found::Blocked(self.obstacle(wanted, &blocking)?),
        })
    }

    /// How to wait for one of `blocking` to be gone.
    fn obstacle(&self, wanted: &Wanted<'_, LockName>, blocking: &[Seen]) -> Result<Obstacle> {
        let in_the_way: Vec<InTheWay<'_>> = blocking
            .iter()
            .map(|(ticket, standing)| InTheWay {
                id: ticket.id,
                mode: ticket.mode,
                standing: *standing,
                terms: &ticket.terms,
            })
            .collect();
        let waiter_ahead = |lease: usize| {
            let mut names = blocking[lease].0.names.clone();
            names.retain(|name| wanted.names.contains(name));
            let nearest = queue::nearest_waiter(self, &names, wanted.place)?;
            Ok(nearest.map(|(ticket, _)| (ticket.id, ticket.terms.mark)))
        };
        let remaining = |expiry: &Expiry| self.rules.remaining(expiry);
        obstacle(wanted.mode, &in_the_way, remaining, waiter_ahead)
    }

    fn seen(&self, row: rusqlite::Result<Ticket>) -> Result<Seen> {
        let ticket = row?;
        let standing = self.rules.standing(&ticket)?;
        Ok((ticket, standing))
    }

    /// Calls `visit` with the tickets that a query finds, until it breaks.
    fn visit(
        &self,
        sql: &str,
        parameters: impl Params,
        visit: &mut dyn FnMut(Seen) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut statement = self.transaction.prepare_cached(sql)?;
        for row in statement.query_map(parameters, Ticket::from_row)? {
            if visit(self.seen(row)?).is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Where a ticket stands in the line for a lock, counted from 1, and how many stand there. In a long line the dead are
    /// counted too until somebody removes them, and those who entered past others that still wait for another lock.
    pub fn place_of(&self, name: &LockName, id: i64) -> Result<(u32, u32)> {
        let (mut before, mut all): (u32, u32) = self
            .transaction
            .prepare_cached(
                "select count(*) filter (where ticket < ?2), count(*) from claim where name = ?1",
            )?
            .query_row(params![name.as_str(), id], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
        if all <= ASKED_AFTER {
            (before, all) = (0, 0);
            self.ahead(name, END_OF_LINE, Order::HeadFirst, &mut |(
                ticket,
                standing,
            )| {
                if standing == Standing::Waiting {
                    before += u32::from(ticket.id < id);
                    all += 1;
                }
                ControlFlow::Continue(())
            })?;
        } else {
            let mut statement = self.transaction.prepare_cached(
                "select state = 'held' from claim join ticket on ticket.token = claim.token
             where claim.name = ?1 order by claim.ticket",
            )?;
            let mut rows = statement.query([name.as_str()])?;
            while let Some(row) = rows.next()?
                && row.get(0)?
            {
                before = before.saturating_sub(1);
                all = all.saturating_sub(1);
            }
        }
        Ok((before + 1, all.max(before + 1)))
    }
}

impl Lines for Line<'_> {
    type Name = LockName;
    type Ticket = Seen;
    type Error = Error;

    fn place(&self, (ticket, _): &Seen) -> i64 {
        ticket.id
    }

    fn mode(&self, (ticket, _): &Seen) -> Mode {
        ticket.mode
    }

    fn standing(&self, (_, standing): &Seen) -> Standing {
        *standing
    }

    fn ahead(
        &self,
        name: &LockName,
        place: i64,
        order: Order,
        visit: &mut dyn FnMut(Seen) -> ControlFlow<()>,
    ) -> Result<()> {
        let mut is_claimed = self
            .transaction
            .prepare_cached("select 1 from claim where name = ?1 and ticket < ?2")?;
        let (name, place) = (name.as_str(), place);
        // Most locks are free, and to know that is cheaper than to have the question ready that tells who has them.
        if !is_claimed.exists(params![name, place])? {
            return Ok(());
        }
        let sql = match order {
            Order::NearestFirst => concat!(
                "select ",
                columns!(),
                " from claim join ticket on ticket.token = claim.token
                 where claim.name = ?1 and claim.ticket < ?2 order by claim.ticket desc"
            ),
            Order::HeadFirst => concat!(
                "select ",
                columns!(),
                " from claim join ticket on ticket.token = claim.token
                 where claim.name = ?1 and claim.ticket < ?2 order by claim.ticket"
            ),
            // Those in the line for something else are passed over by SQLite.
            Order::SlotsHeadFirst => concat!(
                "select ",
                columns!(),
                " from claim join ticket on ticket.token = claim.token
                 where claim.name = ?1 and claim.ticket < ?2 and mode = 'slots' order by claim.ticket"
            ),
        };
        self.visit(sql, params![name, place], visit)
    }

    fn slots(&self, names: &[LockName]) -> Result<Vec<u32>> {
        let mut taken = Vec::new();
        for ticket in ticket::holding(self.transaction, names)? {
            if !self.rules.standing(&ticket)?.is_over() {
                taken.extend(ticket.slot);
            }
        }
        Ok(taken)
    }
}

impl Nesting for Line<'_> {
    fn names(&self, (ticket, _): &Seen) -> Vec<LockName> {
        ticket.names.clone()
    }

    fn lease(&self, token: &Token) -> Result<Option<Seen>> {
        let found = ticket::by_token(self.transaction, token)?;
        found.map(|ticket| self.seen(Ok(ticket))).transpose()
    }

    fn around(&self, (ticket, _): &Seen) -> Result<Option<Seen>> {
        let token = ticket.enclosing.as_ref();
        token.map_or(Ok(None), |token| self.lease(token))
    }

    fn inside(&self, (lease, _): &Seen) -> Result<Vec<Seen>> {
        let found = ticket::inside(self.transaction, &lease.token)?;
        let seen = found.into_iter().map(|ticket| self.seen(Ok(ticket)));
        seen.collect()
    }

    fn is_kept_here(&self, (lease, _): &Seen) -> Result<bool> {
        let (Some(mark), Some(guard)) = (lease.terms.mark, self.rules.guard) else {
            return Ok(false);
        };
        if !mark.is_tied() || mark.inode != guard.inode() {
            return Ok(false);
        }
        for fd in self.own {
            if guard.is_tied(*fd, mark.supervisor)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
