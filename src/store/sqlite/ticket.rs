//! Tickets as rows: reading them, and the statements that change them. All of it happens inside a transaction that
//! the caller began. The rules of the line are those of `line`; here it is walked.

use std::collections::HashMap;

use anyhow::{Context, Result};
use rusqlite::{OptionalExtension, Row, Transaction, named_params, params};

use crate::clock::{Clock, Now};
use crate::duration::{from_millis, millis};
use crate::guard::Guard;
use crate::line::{self, Way};
use crate::lock::{
    Expiry, GuardMark, Held, Holder, Lease, LockName, Mode, Request, Standing, Terms, Token,
};
use crate::standing::{standing, stands_in_line};
use crate::store::Obstacle;

/// By how much the counter jumps when a boot has ended, since a power failure may take the last commits with it.
/// No WAL of the size that is let grow holds as many grants.
const BOOT_JUMP: i64 = 1 << 20;

/// What the rule of `standing` needs besides the ticket, as it was inside one transaction.
pub struct Rules<'a> {
    pub clock: &'a Clock,
    pub now: Now,
    pub guard: Option<&'a Guard>,
}

impl Rules<'_> {
    pub fn standing(&self, ticket: &Ticket) -> Result<Standing> {
        let found = if ticket.is_held {
            standing(&ticket.terms, self.clock, self.now, self.guard)
        } else {
            stands_in_line(ticket.terms.mark.as_ref(), self.guard).map(|stands| {
                if stands {
                    Standing::Waiting
                } else {
                    Standing::Crashed
                }
            })
        };
        found.context("cannot ask the guard file")
    }

    /// How long until its time to live passes.
    fn remaining(&self, expiry: &Expiry) -> std::time::Duration {
        from_millis(self.clock.remaining(expiry, self.now))
    }
}

/// A ticket's row.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub id: i64,
    pub is_held: bool,
    pub mode: Mode,
    pub slot: Option<u32>,
    pub fence: Option<i64>,
    pub ttl: i64,
    pub since: i64,
    pub terms: Terms,
    pub revoked: bool,
    pub enclosing: Option<i64>,
    pub holder: Holder,
}

/// The columns that [`Ticket::from_row`] reads, in its order.
macro_rules! columns {
    () => {
        "ticket.id, state = 'held', mode, slots, slot, fence, ttl, coalesce(granted_at, requested_at),
         boot_id, expires_boot, coalesce(expires_wall, 0), earliest_end_boot, earliest_end_wall,
         guard_inode, waiting_byte, supervisor_byte, tree_byte, revoked_by is not null, enclosing,
         uid, host, pid, command, directory, note"
    };
}

impl Ticket {
    pub fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let mode: String = row.get(2)?;
        let slots: Option<u32> = row.get(3)?;
        let boot_id: Option<String> = row.get(8)?;
        let earliest_end: Option<i64> = row.get(12)?;
        let inode: Option<i64> = row.get(13)?;
        let bytes: (Option<i64>, Option<i64>) = (row.get(14)?, row.get(15)?);
        let tree = row.get(16)?;
        let mark = inode.zip(bytes.0.zip(bytes.1));
        Ok(Self {
            id: row.get(0)?,
            is_held: row.get(1)?,
            mode: match (mode.as_str(), slots) {
                ("shared", _) => Mode::Shared,
                ("slots", Some(slots)) => Mode::Slots(slots),
                _ => Mode::Exclusive,
            },
            slot: row.get(4)?,
            fence: row.get(5)?,
            ttl: row.get(6)?,
            since: row.get(7)?,
            terms: Terms {
                earliest_end: match earliest_end {
                    Some(wall) => Some(Expiry {
                        boot_id: boot_id.clone(),
                        boot: row.get(11)?,
                        wall,
                    }),
                    None => None,
                },
                expiry: Expiry {
                    boot_id,
                    boot: row.get(9)?,
                    wall: row.get(10)?,
                },
                mark: mark.map(|(inode, (waiting, supervisor))| GuardMark {
                    inode: inode.cast_unsigned(),
                    waiting,
                    supervisor,
                    tree,
                }),
            },
            revoked: row.get(17)?,
            enclosing: row.get(18)?,
            holder: Holder {
                uid: row.get(19)?,
                host: row.get(20)?,
                pid: row.get(21)?,
                command: row.get(22)?,
                directory: row.get(23)?,
                note: row.get(24)?,
            },
        })
    }

    pub fn into_held(
        self,
        transaction: &Transaction<'_>,
        rules: &Rules<'_>,
        standing: Standing,
    ) -> Result<Held> {
        let inside_of = match self.enclosing {
            Some(id) => by_id(transaction, id)?.and_then(|lease| lease.fence),
            None => None,
        };
        let until = match (standing, &self.terms.earliest_end) {
            (Standing::Resting, Some(end)) => end,
            _ => &self.terms.expiry,
        };
        Ok(Held {
            id: self.id,
            names: names(transaction, self.id)?,
            mode: self.mode,
            fence: self.fence,
            slot: self.slot,
            ttl: from_millis(self.ttl),
            since: self.since,
            remaining: rules.remaining(until),
            standing,
            revoked: self.revoked,
            guarded: self.terms.mark.is_some(),
            inside_of,
            holder: self.holder,
        })
    }
}

/// SQLite's integers are signed; an inode's bits are kept as they are.
pub fn inode_to_sql(inode: u64) -> i64 {
    inode.cast_signed()
}

/// The locks of a ticket, in order.
pub fn names(transaction: &Transaction<'_>, id: i64) -> Result<Vec<LockName>> {
    let mut statement =
        transaction.prepare_cached("select name from claim where ticket = ?1 order by name")?;
    let names = statement.query_map([id], |row| row.get::<_, String>(0))?;
    names
        .map(|name| name?.parse().map_err(anyhow::Error::msg))
        .collect()
}

/// Whether the store was last written to in this boot.
pub fn is_of_boot(transaction: &Transaction<'_>, rules: &Rules<'_>) -> Result<bool> {
    let mut statement = transaction.prepare_cached("select boot_id from store")?;
    let boot: Option<String> = statement.query_row([], |row| row.get(0))?;
    Ok(boot.as_deref() == rules.clock.boot_id())
}

/// The first write of a new boot: moves the counter past whatever a power failure may have taken back, and gives
/// leases what they have left on the new boot's clock, their time to live at most. What they have left by the wall
/// clock becomes the same, so that boots which take turns (containers with ids of their own) prolong nothing.
pub fn begin_boot(transaction: &Transaction<'_>, rules: &Rules<'_>) -> Result<()> {
    let boot = rules.clock.boot_id();
    transaction.execute(
        "update store set serial = serial + ?1, boot_id = ?2",
        params![BOOT_JUMP, boot],
    )?;
    let left = |until: &str, most: &str| format!("max(0, min({most}, {until} - :wall))");
    let (expires, earliest) = (
        left("expires_wall", "ttl"),
        left("earliest_end_wall", "at_least"),
    );
    transaction.execute(
        &format!(
            "update ticket set boot_id = :boot,
               expires_boot = :now + {expires}, expires_wall = :wall + {expires},
               earliest_end_boot = :now + {earliest}, earliest_end_wall = :wall + {earliest}
             where boot_id is not :boot and expires_boot is not null"
        ),
        named_params! { ":boot": boot, ":now": rules.now.boot, ":wall": rules.now.wall },
    )?;
    Ok(())
}

/// The tickets that hold any of these locks, each once, in the order of their grants.
pub fn holding(transaction: &Transaction<'_>, names: &[LockName]) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!("select ", columns!(), " from claim join ticket on ticket.id = claim.ticket where claim.name = ?1 and state = 'held'"))?;
    let mut tickets: Vec<Ticket> = Vec::new();
    for name in names {
        for ticket in statement.query_map([name.as_str()], Ticket::from_row)? {
            let ticket = ticket?;
            if tickets.iter().all(|known| known.id != ticket.id) {
                tickets.push(ticket);
            }
        }
    }
    tickets.sort_by_key(|ticket| ticket.fence);
    Ok(tickets)
}

pub fn all_held(transaction: &Transaction<'_>) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where state = 'held' order by id"
    ))?;
    Ok(statement
        .query_map([], Ticket::from_row)?
        .collect::<rusqlite::Result<_>>()?)
}

/// How many tickets stand in the line for each lock.
pub fn waiting(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
) -> Result<HashMap<LockName, usize>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where state = 'waiting'"
    ))?;
    let mut counts = HashMap::new();
    for ticket in statement.query_map([], Ticket::from_row)? {
        let ticket = ticket?;
        if !rules.standing(&ticket)?.is_over() {
            for name in names(transaction, ticket.id)? {
                *counts.entry(name).or_insert(0) += 1;
            }
        }
    }
    Ok(counts)
}

/// At most `most` tickets, from a number on and then around from the first.
pub fn some(transaction: &Transaction<'_>, from: i64, most: i64) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where id >= ?1 and id < ?2 order by id limit ?3"
    ))?;
    let mut tickets: Vec<Ticket> = Vec::new();
    for (first, end) in [(from, i64::MAX), (0, from)] {
        let left = most - i64::try_from(tickets.len())?;
        for ticket in statement.query_map(params![first, end, left], Ticket::from_row)? {
            tickets.push(ticket?);
        }
    }
    Ok(tickets)
}

pub fn by_token(transaction: &Transaction<'_>, token: &Token) -> Result<Option<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where token = ?1 and state = 'held'"
    ))?;
    Ok(statement
        .query_row([token.as_bytes()], Ticket::from_row)
        .optional()?)
}

pub fn delete(transaction: &Transaction<'_>, id: i64) -> Result<()> {
    transaction
        .prepare_cached("delete from ticket where id = ?1")?
        .execute([id])?;
    Ok(())
}

/// Ends a held ticket, whoever's it is: deletes it, or leaves it to rest until its `--at-least` has passed.
pub fn end(transaction: &Transaction<'_>, rules: &Rules<'_>, ticket: &Ticket) -> Result<()> {
    let rests = ticket
        .terms
        .earliest_end
        .as_ref()
        .is_some_and(|end| rules.clock.remaining(end, rules.now) > 0);
    if !rests {
        return delete(transaction, ticket.id);
    }
    // Nobody's any more: no token shows it, no process vouches for it.
    transaction
        .prepare_cached(
            "update ticket set token = randomblob(16), expires_boot = 0, expires_wall = 0,
               guard_inode = null, waiting_byte = null, supervisor_byte = null, tree_byte = null
             where id = ?1",
        )?
        .execute([ticket.id])?;
    Ok(())
}

/// Deletes a ticket and remembers what it was.
pub fn delete_after(
    taken: &mut Vec<Held>,
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    ticket: Ticket,
    standing: Standing,
) -> Result<()> {
    let id = ticket.id;
    taken.push(ticket.into_held(transaction, rules, standing)?);
    delete(transaction, id)
}

/// Counts a time to live from now. The token is compared by the statement that changes the row.
pub fn renew(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    id: i64,
    token: &Token,
    ttl: i64,
) -> Result<usize> {
    let expiry = rules.clock.after(rules.now, ttl);
    let sql = "update ticket set ttl = ?1, boot_id = ?2, expires_boot = ?3, expires_wall = ?4 where id = ?5 and token = ?6 and state = 'held'";
    Ok(transaction.prepare_cached(sql)?.execute(params![
        ttl,
        expiry.boot_id,
        expiry.boot,
        expiry.wall,
        id,
        token.as_bytes()
    ])?)
}

/// What stands in a request's way.
pub enum Found {
    Free {
        slot: Option<u32>,
    },
    Blocked {
        by: Vec<Ticket>,
        obstacle: Obstacle,
    },
    /// The lock is in use with another number of slots.
    OtherSlots(u32),
}

/// Looks along the line, from a place in it to its head, on each of the names. The dead that are met are removed.
pub fn look_ahead(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    place: i64,
) -> Result<Found> {
    let mut blocking: Vec<(Ticket, Standing)> = Vec::new();
    let mut slot = None;
    for name in &request.names {
        let mut dead = Vec::new();
        let mut slots_taken = Vec::new();
        let way = {
            let mut statement = transaction.prepare_cached(concat!(
                "select ",
                columns!(),
                " from claim join ticket on ticket.id = claim.ticket
                 where claim.name = ?1 and claim.ticket < ?2 order by claim.ticket desc"
            ))?;
            let rows = statement.query_map(params![name.as_str(), place], Ticket::from_row)?;
            let mut other_slots = None;
            let ahead = rows.filter_map(|row| {
                let found = row.map_err(anyhow::Error::from).and_then(|ticket| {
                    let standing = rules.standing(&ticket)?;
                    Ok((ticket, standing))
                });
                match found {
                    Ok((ticket, standing)) if standing.is_over() => {
                        dead.push(ticket.id);
                        None
                    }
                    Ok((ticket, standing)) => {
                        match (request.mode, ticket.mode) {
                            (Mode::Slots(mine), Mode::Slots(other)) if mine != other => {
                                other_slots = Some(other);
                            }
                            _ => slots_taken.extend(ticket.slot),
                        }
                        Some(Ok((ticket.mode, (ticket, standing))))
                    }
                    Err(error) => Some(Err(error)),
                }
            });
            let way = line::way(request.mode, ahead)?;
            if let Some(other) = other_slots {
                return Ok(Found::OtherSlots(other));
            }
            way
        };
        for id in dead {
            delete(transaction, id)?;
        }
        match way {
            Way::Free => {
                if matches!(request.mode, Mode::Slots(_)) {
                    slot = Some(line::smallest_free(&slots_taken));
                }
            }
            Way::Behind(found) => blocking.push(found),
            Way::Full(found) => blocking.extend(found),
        }
    }
    if blocking.is_empty() {
        return Ok(Found::Free { slot });
    }
    let obstacle = obstacle(transaction, rules, request, place, &blocking)?;
    let by = blocking.into_iter().map(|(ticket, _)| ticket).collect();
    Ok(Found::Blocked { by, obstacle })
}

/// How to wait for one of `blocking` to be gone, so that nobody is woken who cannot go on.
fn obstacle(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    place: i64,
    blocking: &[(Ticket, Standing)],
) -> Result<Obstacle> {
    let mut obstacle = Obstacle::default();
    let is_slots = matches!(request.mode, Mode::Slots(_));
    let alike = |ticket: &Ticket| is_slots && ticket.mode == request.mode;
    // The nearest of them. Where it is not alone in the way, the others are looked at when it is gone.
    let Some((nearest, standing)) = blocking.iter().max_by_key(|(ticket, _)| ticket.id) else {
        return Ok(obstacle);
    };
    let byte = |ticket: &Ticket, which: fn(&GuardMark) -> Option<i64>| {
        let mark = ticket.terms.mark.as_ref()?;
        Some((mark.inode, which(mark)?))
    };
    if *standing == Standing::Waiting {
        // Behind a slots waiter of the same kind: whether it enters or gives up, it is our turn to look. Behind any
        // other: until it is gone, granted or not.
        let which: fn(&GuardMark) -> Option<i64> = if alike(nearest) {
            |mark| Some(mark.waiting)
        } else {
            |mark| Some(mark.supervisor)
        };
        obstacle.bytes.extend(byte(nearest, which));
        return Ok(obstacle);
    }
    for (ticket, standing) in blocking {
        if ticket.id != nearest.id && !alike(ticket) {
            continue;
        }
        let mut until = |expiry: &Expiry| {
            let left = rules.remaining(expiry);
            obstacle.again = Some(obstacle.again.map_or(left, |again| again.min(left)));
        };
        match standing {
            Standing::Supervised if ticket.terms.mark.is_some_and(|mark| mark.is_tied()) => {
                // Its row may be released by the token while the descriptor is still open.
                obstacle.is_unguarded = true;
                obstacle
                    .bytes
                    .extend(byte(ticket, |mark| Some(mark.supervisor)));
            }
            Standing::Supervised => obstacle
                .bytes
                .extend(byte(ticket, |mark| Some(mark.supervisor))),
            Standing::Orphaned => {
                until(&ticket.terms.expiry);
                obstacle.bytes.extend(byte(ticket, |mark| mark.tree));
            }
            Standing::Resting => ticket.terms.earliest_end.iter().for_each(until),
            _ => {
                until(&ticket.terms.expiry);
                obstacle.is_unguarded = true;
            }
        }
    }
    // Only the first in line looks again and again at what no byte tells of; the next looks when that one has moved.
    if obstacle.is_unguarded {
        let mut names = names(transaction, nearest.id)?;
        names.retain(|name| request.names.contains(name));
        if let Some(ahead) = nearest_waiting(transaction, rules, &names, place)? {
            obstacle.is_unguarded = false;
            obstacle.bytes = byte(&ahead, |mark| Some(mark.waiting))
                .into_iter()
                .collect();
        }
    }
    Ok(obstacle)
}

/// The nearest living waiter ahead of a place, on any of the names.
fn nearest_waiting(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    names: &[LockName],
    place: i64,
) -> Result<Option<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from claim join ticket on ticket.id = claim.ticket
         where claim.name = ?1 and claim.ticket < ?2 and state = 'waiting' order by claim.ticket desc"
    ))?;
    let mut nearest: Option<Ticket> = None;
    for name in names {
        for ticket in statement.query_map(params![name.as_str(), place], Ticket::from_row)? {
            let ticket = ticket?;
            if rules.standing(&ticket)? == Standing::Waiting {
                if nearest.as_ref().is_none_or(|known| known.id < ticket.id) {
                    nearest = Some(ticket);
                }
                break;
            }
        }
    }
    Ok(nearest)
}

pub fn by_id(transaction: &Transaction<'_>, id: i64) -> Result<Option<Ticket>> {
    let mut statement =
        transaction.prepare_cached(concat!("select ", columns!(), " from ticket where id = ?1"))?;
    Ok(statement.query_row([id], Ticket::from_row).optional()?)
}

/// What is held or asked for inside of a lease, the living and the dead.
pub fn inside(transaction: &Transaction<'_>, id: i64) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where enclosing = ?1"
    ))?;
    let tickets = statement.query_map([id], Ticket::from_row)?;
    Ok(tickets.collect::<rusqlite::Result<_>>()?)
}

/// Everybody who holds a lock or stands in the line for it, in that order, the living and the dead.
pub fn line_of(transaction: &Transaction<'_>, name: &LockName) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from claim join ticket on ticket.id = claim.ticket where claim.name = ?1 order by claim.ticket"
    ))?;
    let tickets = statement.query_map([name.as_str()], Ticket::from_row)?;
    Ok(tickets.collect::<rusqlite::Result<_>>()?)
}

/// The next number of the one counter. It keeps up with the wall clock, so that it goes on growing even in a store
/// that was restored from a backup.
pub fn draw_number(transaction: &Transaction<'_>, rules: &Rules<'_>) -> Result<i64> {
    let mut statement = transaction
        .prepare_cached("update store set serial = max(serial + 1, ?1) returning serial")?;
    Ok(statement.query_row([rules.now.wall], |row| row.get(0))?)
}

/// A place behind everybody who has one.
pub const END_OF_LINE: i64 = i64::MAX;

/// Whether a ticket still has its place in the line.
pub fn is_waiting(transaction: &Transaction<'_>, id: i64, token: &Token) -> Result<bool> {
    let mut statement = transaction.prepare_cached(
        "select 1 from ticket where id = ?1 and token = ?2 and state = 'waiting'",
    )?;
    Ok(statement.exists(params![id, token.as_bytes()])?)
}

/// Puts a request into the line, at its end.
pub fn enqueue(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    mark: GuardMark,
    enclosing: Option<i64>,
) -> Result<i64> {
    let id = draw_number(transaction, rules)?;
    insert(
        transaction,
        rules,
        request,
        token,
        id,
        Some(mark),
        enclosing,
    )?;
    Ok(id)
}

fn insert(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    id: i64,
    mark: Option<GuardMark>,
    enclosing: Option<i64>,
) -> Result<()> {
    let (mode, slots) = match request.mode {
        Mode::Exclusive => ("exclusive", None),
        Mode::Shared => ("shared", None),
        Mode::Slots(slots) => ("slots", Some(slots)),
    };
    let holder = &request.holder;
    transaction
        .prepare_cached(
            "insert into ticket (id, token, state, mode, slots, ttl, at_least, requested_at,
               guard_inode, waiting_byte, supervisor_byte, tree_byte, enclosing, uid, host, pid, command, directory, note)
             values (:id, :token, 'waiting', :mode, :slots, :ttl, :at_least, :now,
               :inode, :waiting, :supervisor, :tree, :enclosing, :uid, :host, :pid, :command, :directory, :note)",
        )?
        .execute(named_params! {
            ":id": id,
            ":token": token.as_bytes(),
            ":mode": mode,
            ":slots": slots,
            ":ttl": millis(request.ttl),
            ":at_least": millis(request.at_least),
            ":now": rules.now.wall,
            ":inode": mark.map(|mark| inode_to_sql(mark.inode)),
            ":waiting": mark.map(|mark| mark.waiting),
            ":supervisor": mark.map(|mark| mark.supervisor),
            ":tree": mark.and_then(|mark| mark.tree),
            ":enclosing": enclosing,
            ":uid": holder.uid,
            ":host": holder.host,
            ":pid": holder.pid,
            ":command": holder.command,
            ":directory": holder.directory,
            ":note": holder.note,
        })?;
    let mut claim =
        transaction.prepare_cached("insert into claim (name, ticket) values (?1, ?2)")?;
    for name in &request.names {
        claim.execute(params![name.as_str(), id])?;
    }
    Ok(())
}

/// Grants a request that found its way free: the ticket that waits at `place`, or a new one. A bare lease keeps no
/// mark: its holder's process is not this one.
pub fn grant(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    grant: &Grant,
) -> Result<Option<Lease>> {
    let fence = draw_number(transaction, rules)?;
    let id = grant.place.unwrap_or(fence);
    if grant.place.is_none() {
        insert(
            transaction,
            rules,
            request,
            token,
            id,
            grant.mark,
            grant.enclosing,
        )?;
    }
    let ttl = millis(request.ttl);
    let expiry = rules.clock.after(rules.now, ttl);
    let at_least = (!request.at_least.is_zero())
        .then(|| rules.clock.after(rules.now, millis(request.at_least)));
    let granted = transaction
        .prepare_cached(
            "update ticket set state = 'held', fence = :fence, slot = :slot, granted_at = :now, boot_id = :boot_id,
               expires_boot = :boot, expires_wall = :wall, earliest_end_boot = :end_boot, earliest_end_wall = :end_wall,
               guard_inode = :inode, waiting_byte = :waiting, supervisor_byte = :supervisor, tree_byte = :tree
             where id = :id and token = :token and state = 'waiting'",
        )?
        .execute(named_params! {
            ":id": id,
            ":token": token.as_bytes(),
            ":fence": fence,
            ":slot": grant.slot,
            ":now": rules.now.wall,
            ":boot_id": expiry.boot_id,
            ":boot": expiry.boot,
            ":wall": expiry.wall,
            ":end_boot": at_least.as_ref().and_then(|end| end.boot),
            ":end_wall": at_least.as_ref().map(|end| end.wall),
            ":inode": grant.mark.map(|mark| inode_to_sql(mark.inode)),
            ":waiting": grant.mark.map(|mark| mark.waiting),
            ":supervisor": grant.mark.map(|mark| mark.supervisor),
            ":tree": grant.mark.and_then(|mark| mark.tree),
        })?;
    Ok((granted == 1).then(|| Lease {
        id,
        names: request.names.clone(),
        token: *token,
        fence,
        ttl: request.ttl,
        slot: grant.slot,
    }))
}

/// How a request is granted.
pub struct Grant {
    /// The waiting ticket's number, for one that stood in the line.
    pub place: Option<i64>,
    pub slot: Option<u32>,
    /// What vouches for the lease from now on; none for a bare one.
    pub mark: Option<GuardMark>,
    pub enclosing: Option<i64>,
}
