//! Tickets as rows: reading them, and the statements that change them. All of it happens inside a transaction that
//! the caller began.

use anyhow::{Context, Result};
use rusqlite::{OptionalExtension, Row, Transaction, named_params, params};

use crate::clock::{Clock, Now};
use crate::duration::{from_millis, millis};
use crate::guard::Guard;
use crate::lock::{Expiry, GuardMark, Held, Holder, Lease, LockName, Request, Standing, Token};
use crate::standing::standing;
use crate::store::Answer;

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
        standing(
            ticket.mark.as_ref(),
            &ticket.expiry,
            self.clock,
            self.now,
            self.guard,
        )
        .context("cannot ask the guard file")
    }
}

/// A held ticket's row.
#[derive(Clone)]
pub struct Ticket {
    pub id: i64,
    pub fence: i64,
    pub ttl: i64,
    pub granted_at: i64,
    pub expiry: Expiry,
    pub mark: Option<GuardMark>,
    pub revoked: bool,
    pub holder: Holder,
}

/// The columns that [`Ticket::from_row`] reads, in its order.
macro_rules! columns {
    () => {
        "ticket.id, fence, ttl, granted_at, boot_id, expires_boot, expires_wall, guard_inode, supervisor_byte, tree_byte, revoked_by is not null, uid, host, pid, command, directory, note"
    };
}

impl Ticket {
    pub fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let inode: Option<i64> = row.get(7)?;
        let supervisor: Option<i64> = row.get(8)?;
        let tree = row.get(9)?;
        Ok(Self {
            id: row.get(0)?,
            fence: row.get(1)?,
            ttl: row.get(2)?,
            granted_at: row.get(3)?,
            expiry: Expiry {
                boot_id: row.get(4)?,
                boot: row.get(5)?,
                wall: row.get(6)?,
            },
            mark: inode.zip(supervisor).map(|(inode, supervisor)| GuardMark {
                inode: inode.cast_unsigned(),
                supervisor,
                tree,
            }),
            revoked: row.get(10)?,
            holder: Holder {
                uid: row.get(11)?,
                host: row.get(12)?,
                pid: row.get(13)?,
                command: row.get(14)?,
                directory: row.get(15)?,
                note: row.get(16)?,
            },
        })
    }

    pub fn into_held(
        self,
        transaction: &Transaction<'_>,
        rules: &Rules<'_>,
        standing: Standing,
    ) -> Result<Held> {
        let mut statement =
            transaction.prepare_cached("select name from claim where ticket = ?1 order by name")?;
        let names = statement.query_map([self.id], |row| row.get::<_, String>(0))?;
        let names = names
            .map(|name| name?.parse().map_err(anyhow::Error::msg))
            .collect::<Result<_>>()?;
        Ok(Held {
            id: self.id,
            names,
            fence: self.fence,
            holder: self.holder,
            ttl: from_millis(self.ttl),
            granted_at: self.granted_at,
            remaining: from_millis(rules.clock.remaining(&self.expiry, rules.now)),
            standing,
            revoked: self.revoked,
            guarded: self.mark.is_some(),
        })
    }
}

/// SQLite's integers are signed; an inode's bits are kept as they are.
pub fn inode_to_sql(inode: u64) -> i64 {
    inode.cast_signed()
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

/// The tickets that hold any of these locks, each once.
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

/// At most `most` held tickets, from a number on and then around from the first.
pub fn some_held(transaction: &Transaction<'_>, from: i64, most: i64) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where id >= ?1 and id < ?2 and state = 'held' order by id limit ?3"
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

/// Grants all of the names, or says who holds them. Leases that are over make way.
pub fn grant(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    mark: Option<GuardMark>,
) -> Result<Answer> {
    let mut others = Vec::new();
    for ticket in holding(transaction, &request.names)? {
        let standing = rules.standing(&ticket)?;
        if standing.is_over() {
            delete(transaction, ticket.id)?;
        } else {
            others.push(ticket.into_held(transaction, rules, standing)?);
        }
    }
    if !others.is_empty() {
        return Ok(Answer::Busy(others));
    }
    let fence: i64 = transaction
        .prepare_cached("update store set serial = serial + 1 returning serial")?
        .query_row([], |row| row.get(0))?;
    let ttl = millis(request.ttl);
    let expiry = rules.clock.after(rules.now, ttl);
    let holder = &request.holder;
    transaction
        .prepare_cached(
            "insert into ticket (id, token, state, mode, fence, ttl, requested_at, granted_at, boot_id, expires_boot, expires_wall,
               guard_inode, supervisor_byte, tree_byte, uid, host, pid, command, directory, note)
             values (:id, :token, 'held', 'exclusive', :id, :ttl, :now, :now, :boot_id, :boot, :wall,
               :inode, :supervisor, :tree, :uid, :host, :pid, :command, :directory, :note)",
        )?
        .execute(named_params! {
            ":id": fence,
            ":token": token.as_bytes(),
            ":ttl": ttl,
            ":now": rules.now.wall,
            ":boot_id": expiry.boot_id,
            ":boot": expiry.boot,
            ":wall": expiry.wall,
            ":inode": mark.map(|mark| inode_to_sql(mark.inode)),
            ":supervisor": mark.map(|mark| mark.supervisor),
            ":tree": mark.and_then(|mark| mark.tree),
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
        claim.execute(params![name.as_str(), fence])?;
    }
    Ok(Answer::Granted(Lease {
        id: fence,
        names: request.names.clone(),
        token: *token,
        fence,
        ttl: request.ttl,
    }))
}
