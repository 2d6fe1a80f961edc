//! Tickets as rows: reading them, and the statements that change them. All of it happens inside a transaction that
//! the caller began. The rules of the line are those of `line`; here it is walked.

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use anyhow::{Context, Result};
use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params, params};

use super::history;
use crate::clock::{Clock, Moment, Now};
use crate::duration::{from_millis, millis};
use crate::guard::{Guard, Note};
use crate::lock::{
    Ending, Entry, Event, Expiry, GuardMark, Held, Holder, Lease, LockName, Mode, Orphan, Request,
    Standing, Terms, Token,
};
use crate::rules::standing::{standing, stands_in_line};
use crate::store::record::{self, ENDED};

/// By how much the counter jumps when a boot has ended, since a power failure may take the last commits with it: all of
/// those that were not synced. A commit that takes the counter past a multiple of this is, so that no number that was
/// lost is beyond the jump, although the counter keeps up with a clock that may come back late. In milliseconds it is 17
/// minutes: the longer it were, the longer after a restart a database that is made anew, by the clock, would begin with
/// numbers that the old one had.
pub const BOOT_JUMP: i64 = 1 << 20;

/// Why a number was not drawn: the transaction must be one whose commit is synced.
#[derive(Debug)]
pub struct Unsynced;

impl fmt::Display for Unsynced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the number must not be lost")
    }
}

impl std::error::Error for Unsynced {}

/// What the rule of `standing` needs besides the ticket, as it was inside one transaction.
pub struct Rules<'a> {
    pub clock: &'a Clock,
    pub now: Now,
    /// No later than `now`, for the deadlines of this process.
    pub began: Moment,
    pub guard: Option<&'a Guard>,
    /// What the guard file says of the last number.
    pub noted: Option<Note>,
    /// What it is to say of the next, but for the number.
    pub next_note: Note,
    /// What it says since this transaction has drawn one, which is not committed.
    pub drawn: Cell<Option<Note>>,
    /// Whether this is the database of which it says that. Otherwise another was put in its place, or an old copy of it.
    pub is_as_left: bool,
    /// Whether the commit will survive a power failure.
    pub is_synced: bool,
}

impl Rules<'_> {
    pub fn standing(&self, ticket: &Ticket) -> Result<Standing> {
        let found = if ticket.is_held {
            standing(&ticket.effective_terms(), self.clock, self.now, self.guard)
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

    /// The last number that was ever given out: by this database, or by one that its place was before.
    fn last_number(&self, transaction: &Transaction<'_>) -> Result<i64> {
        let (serial, _) = serial_and_boot(transaction)?;
        Ok(serial.max(self.noted.map_or(0, |note| note.number)))
    }

    fn note_number(&self, number: i64, is_synced: bool) -> Result<()> {
        let note = Note {
            number,
            ..self.next_note
        };
        self.drawn.set(Some(note));
        let written = self.guard.map(|guard| guard.write_note(note, is_synced));
        written
            .unwrap_or(Ok(()))
            .context("cannot write the guard file")
    }

    /// How long until its time to live passes.
    pub fn remaining(&self, expiry: &Expiry) -> Duration {
        from_millis(self.clock.remaining(expiry, self.now))
    }
}

/// A ticket's row.
#[derive(Clone, Debug)]
pub struct Ticket {
    pub id: i64,
    pub token: Token,
    pub names: Vec<LockName>,
    pub is_held: bool,
    pub of_run: bool,
    pub mode: Mode,
    pub slot: Option<u32>,
    pub fence: Option<i64>,
    pub ttl: i64,
    pub since: i64,
    pub requested_at: i64,
    pub terms: Terms,
    pub revoked: bool,
    pub enclosing: Option<Token>,
    pub holder: Holder,
}

/// The columns that [`Ticket::from_row`] reads, in its order.
macro_rules! columns {
    () => {
        "ticket.id, state = 'held', mode, slots, slot, fence, ttl, coalesce(granted_at, requested_at),
         boot_id, expires_boot, coalesce(expires_wall, 0), earliest_end_boot, earliest_end_wall,
         guard_inode, waiting_byte, supervisor_byte, tree_byte, revoked_by is not null, enclosing,
         uid, host, pid, command, directory, note, ticket.token, names, url, requested_at, of_run"
    };
}
pub(super) use columns;

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
            token: Token::from_bytes(row.get(25)?),
            names: names_from_sql(&row.get::<_, String>(26)?),
            is_held: row.get(1)?,
            of_run: row.get(29)?,
            mode: record::mode_of(&mode, slots),
            slot: row.get(4)?,
            fence: row.get(5)?,
            ttl: row.get(6)?,
            since: row.get(7)?,
            requested_at: row.get(28)?,
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
            enclosing: row.get::<_, Option<[u8; 16]>>(18)?.map(Token::from_bytes),
            holder: Holder {
                uid: row.get(19)?,
                host: row.get(20)?,
                pid: row.get(21)?,
                command: row.get(22)?,
                directory: row.get(23)?,
                note: row.get(24)?,
                url: row.get(27)?,
            },
        })
    }

    pub fn into_held(
        self,
        transaction: &Transaction<'_>,
        rules: &Rules<'_>,
        standing: Standing,
    ) -> Result<Held> {
        let inside_of = match &self.enclosing {
            Some(token) => by_token(transaction, token)?.and_then(|lease| lease.fence),
            None => None,
        };
        let until = match (standing, &self.terms.earliest_end) {
            (Standing::Resting, Some(end)) => end,
            _ => &self.terms.expiry,
        };
        let rest = self.terms.earliest_end.as_ref();
        // Forced, it does not rest.
        let rest = rest.filter(|_| !self.revoked);
        let tree = self
            .terms
            .mark
            .and_then(|mark| Some((mark.inode, mark.tree?)));
        let orphan = tree.filter(|_| standing == Standing::Orphaned);
        let orphan = orphan.map(|byte| Orphan {
            byte,
            rest: rest.map_or(Duration::ZERO, |end| rules.remaining(end)),
            processes: Vec::new(),
            are_all: false,
        });
        Ok(Held {
            id: self.id,
            names: self.names,
            mode: self.mode,
            fence: self.fence,
            slot: self.slot,
            ttl: from_millis(self.ttl),
            since: self.since,
            remaining: rules.remaining(until),
            standing,
            orphan,
            revoked: self.revoked,
            guarded: self.of_run,
            inside_of,
            holder: self.holder,
        })
    }
}

/// SQLite's integers are signed; an inode's bits are kept as they are.
pub fn inode_to_sql(inode: u64) -> i64 {
    inode.cast_signed()
}

/// One a line, since no name has a control character.
pub fn names_to_sql(names: &[LockName]) -> String {
    let names: Vec<&str> = names.iter().map(LockName::as_str).collect();
    names.join("\n")
}

/// What somebody wrote there by hand and is no name is left out.
pub fn names_from_sql(text: &str) -> Vec<LockName> {
    text.lines().filter_map(|name| name.parse().ok()).collect()
}

/// The last number that was given out, and the boot under which the store was last written to.
pub fn serial_and_boot(transaction: &Transaction<'_>) -> Result<(i64, Option<String>)> {
    let mut statement = transaction.prepare_cached("select serial, boot_id from store")?;
    Ok(statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))?)
}

/// The bytes that tickets have in a guard file, whatever has become of them.
pub fn known_bytes(transaction: &Transaction<'_>, inode: u64) -> Result<HashSet<i64>> {
    let mut statement = transaction.prepare_cached(
        "select waiting_byte, supervisor_byte, tree_byte from ticket where guard_inode = ?1",
    )?;
    let mut rows = statement.query([inode_to_sql(inode)])?;
    let mut known = HashSet::new();
    while let Some(row) = rows.next()? {
        for column in 0..3 {
            known.extend(row.get::<_, Option<i64>>(column)?);
        }
    }
    Ok(known)
}

/// The first write of a new boot: moves the counter past whatever a power failure may have taken back, and gives
/// leases what they have left on the new boot's clock, their time to live at most. What they have left by the wall
/// clock becomes the same, so that boots which take turns (containers with ids of their own) prolong nothing.
pub fn begin_boot(transaction: &Transaction<'_>, rules: &Rules<'_>) -> Result<()> {
    let boot = rules.clock.boot_id();
    let last = rules.last_number(transaction)?;
    let next = last
        .checked_add(BOOT_JUMP)
        .context("there is no number left")?;
    transaction.execute(
        "update store set serial = ?1, boot_id = ?2",
        params![next, boot],
    )?;
    if rules.is_as_left {
        rules.note_number(next, true)?;
    }
    let left = |until: &str, most: &str| format!("max(0, min({most}, {until} - :wall))");
    let (expires, earliest) = (
        left("expires_wall", "ttl"),
        left("earliest_end_wall", "at_least"),
    );
    transaction.execute(
        &format!(
            "update ticket set boot_id = :boot,
               expires_boot = :now + {expires},
               expires_wall = iif(expires_wall = {ENDED}, {ENDED}, :wall + {expires}),
               earliest_end_boot = :now + {earliest}, earliest_end_wall = :wall + {earliest}
             where boot_id is not :boot and expires_boot is not null"
        ),
        named_params! { ":boot": boot, ":now": rules.now.boot, ":wall": rules.now.wall },
    )?;
    Ok(())
}

/// The tickets that hold any of these locks, each once, in the order of their grants.
pub fn holding(transaction: &Transaction<'_>, names: &[LockName]) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!("select ", columns!(), " from claim join ticket on ticket.token = claim.token where claim.name = ?1 and state = 'held'"))?;
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

/// Every ticket, held or waiting, in the order of the line.
pub fn all(transaction: &Transaction<'_>) -> Result<Vec<Ticket>> {
    let mut statement =
        transaction.prepare(concat!("select ", columns!(), " from ticket order by id"))?;
    let tickets = statement.query_map([], Ticket::from_row)?;
    Ok(tickets.collect::<rusqlite::Result<_>>()?)
}

/// The tickets that hold or ask for any of these locks, each once, in the order of the line.
pub fn claiming(transaction: &Transaction<'_>, names: &[LockName]) -> Result<Vec<Ticket>> {
    let mut tickets: Vec<Ticket> = Vec::new();
    for name in names {
        tickets.extend(line_of(transaction, name)?);
    }
    tickets.sort_by_key(|ticket| ticket.id);
    tickets.dedup_by_key(|ticket| ticket.id);
    Ok(tickets)
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
            for name in ticket.names {
                *counts.entry(name).or_insert(0) += 1;
            }
        }
    }
    Ok(counts)
}

impl Ticket {
    /// Forced, it does not rest when it ends: whoever ends it, and though nobody is left who would end it in so many words.
    fn effective_terms(&self) -> Cow<'_, Terms> {
        if !self.revoked || self.terms.earliest_end.is_none() {
            return Cow::Borrowed(&self.terms);
        }
        Cow::Owned(Terms {
            earliest_end: None,
            ..self.terms.clone()
        })
    }

    /// Whether it was given back, and only rests until its `--at-least` has passed.
    pub fn was_given_back(&self) -> bool {
        self.is_held && self.terms.mark.is_none() && self.terms.expiry.wall == ENDED
    }

    /// What the log has to tell of it, as it stands.
    pub fn as_entry(&self, now: i64, standing: Standing) -> Entry {
        let is_tied = self.terms.mark.is_some_and(|mark| mark.is_tied());
        let rested = self.terms.earliest_end.as_ref().map(|end| end.wall);
        let time = rested.unwrap_or(0).max(self.terms.expiry.wall);
        let (event, ended_at, reason) = match standing {
            Standing::Expired => (Event::Expired, Some(now.min(time)), None),
            // Whoever closes the descriptor gives it back; nobody saw when.
            Standing::Crashed if is_tied => (Event::Released, None, Some("closed")),
            Standing::Crashed => (Event::Crashed, None, None),
            Standing::Waiting => (Event::Waiting, None, None),
            _ => (Event::Granted, None, None),
        };
        Entry {
            at: now,
            event,
            names: self.names.clone(),
            mode: self.mode,
            slot: self.slot,
            fence: self.fence,
            requested_at: self.requested_at,
            granted_at: self.is_held.then_some(self.since),
            ended_at,
            status: None,
            signal: None,
            reason: reason.map(str::to_owned),
            by: None,
            holder: self.holder.clone(),
        }
    }
}

/// At most `most` tickets, from a token on and then around from the first.
pub fn some(transaction: &Transaction<'_>, from: &Token, most: i64) -> Result<Vec<Ticket>> {
    let sql = |side| {
        format!(
            concat!(
                "select ",
                columns!(),
                " from ticket where token {} ?1 order by token limit ?2"
            ),
            side
        )
    };
    let mut tickets: Vec<Ticket> = Vec::new();
    for side in [">=", "<"] {
        let left = most - i64::try_from(tickets.len())?;
        let mut statement = transaction.prepare(&sql(side))?;
        for ticket in statement.query_map(params![from.as_bytes(), left], Ticket::from_row)? {
            tickets.push(ticket?);
        }
    }
    Ok(tickets)
}

/// The held ticket of a token.
pub fn by_token(transaction: &Transaction<'_>, token: &Token) -> Result<Option<Ticket>> {
    Ok(find(transaction, token)?.filter(|ticket| ticket.is_held))
}

/// The first of these tokens whose lease lives in this database.
fn innermost(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    told: &[Token],
) -> Result<Option<Token>> {
    for token in told {
        if let Some(ticket) = by_token(transaction, token)?
            && !rules.standing(&ticket)?.is_over()
        {
            return Ok(Some(*token));
        }
    }
    Ok(None)
}

/// The ticket of a token, held or waiting.
fn find(transaction: &Transaction<'_>, token: &Token) -> Result<Option<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where token = ?1"
    ))?;
    Ok(statement
        .query_row([token.as_bytes()], Ticket::from_row)
        .optional()?)
}

/// Takes the ticket of a token out of the line.
pub fn leave(transaction: &Transaction<'_>, token: &Token) -> Result<()> {
    match find(transaction, token)? {
        Some(ticket) if !ticket.is_held => delete(transaction, &ticket),
        _ => Ok(()),
    }
}

pub fn delete(transaction: &Transaction<'_>, ticket: &Ticket) -> Result<()> {
    transaction
        .prepare_cached("delete from ticket where token = ?1")?
        .execute([ticket.token.as_bytes()])?;
    delete_claims(transaction, &ticket.names, ticket.id)
}

fn delete_claims(transaction: &Transaction<'_>, names: &[LockName], id: i64) -> Result<()> {
    let mut statement = transaction.prepare_cached(DELETE_CLAIM)?;
    for name in names {
        statement.execute(params![name.as_str(), id])?;
    }
    Ok(())
}

/// Removes a ticket that is over, and writes down how it ended.
pub fn bury(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    ticket: &Ticket,
    standing: Standing,
) -> Result<()> {
    delete(transaction, ticket)?;
    if ticket.was_given_back() {
        return Ok(());
    }
    history::write(transaction, &ticket.as_entry(rules.now.wall, standing))
}

/// Ends a held ticket that its holder gives back, and writes it down.
pub fn end(transaction: &Transaction<'_>, rules: &Rules<'_>, ticket: &Ticket) -> Result<()> {
    end_or_rest(transaction, rules, ticket)?;
    let mut entry = ticket.as_entry(rules.now.wall, Standing::Leased);
    entry.event = Event::Released;
    entry.ended_at = Some(rules.now.wall);
    history::write(transaction, &entry)
}

/// Ends a held ticket, whoever's it is: deletes it, or leaves it to rest until its `--at-least` has passed.
fn end_or_rest(transaction: &Transaction<'_>, rules: &Rules<'_>, ticket: &Ticket) -> Result<()> {
    let is_early = |end: &Expiry| rules.clock.remaining(end, rules.now) > 0;
    // Who forces a release means to have the lock.
    let rests = !ticket.revoked && ticket.terms.earliest_end.as_ref().is_some_and(is_early);
    if !rests {
        return delete(transaction, ticket);
    }
    // Nobody's any more: no token that anybody knows shows it, no process vouches for it.
    let token = Token::draw()?;
    transaction
        .prepare_cached(
            "update ticket set token = ?2, expires_boot = 0, expires_wall = ?3,
               guard_inode = null, waiting_byte = null, supervisor_byte = null, tree_byte = null, of_run = 0
             where token = ?1",
        )?
        .execute(params![ticket.token.as_bytes(), token.as_bytes(), ENDED])?;
    let mut claim = transaction
        .prepare_cached("update claim set token = ?3 where name = ?1 and ticket = ?2")?;
    for name in &ticket.names {
        claim.execute(params![name.as_str(), ticket.id, token.as_bytes()])?;
    }
    Ok(())
}

/// Ends a lease of this process's own; false when it was gone already. What a `run` does at its end, and so without a
/// question before the answer: nearly every lease may end whenever it likes.
pub fn end_own(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    lease: &Lease,
    ending: &Ending,
) -> Result<bool> {
    let was_held = delete_own(transaction, rules, lease)?;
    let taken = if was_held {
        None
    } else {
        history::taken(transaction, lease.fence)?
    };
    let now = rules.now.wall;
    history::write(
        transaction,
        &record::of_own(request, lease, ending, now, was_held, taken),
    )?;
    Ok(was_held)
}

fn delete_own(transaction: &Transaction<'_>, rules: &Rules<'_>, lease: &Lease) -> Result<bool> {
    let ended = transaction
        .prepare_cached(END_OWN)?
        .execute([lease.token.as_bytes()])?;
    if ended == 1 {
        delete_claims(transaction, &lease.names, lease.id)?;
        return Ok(true);
    }
    let Some(ticket) = by_token(transaction, &lease.token)? else {
        return Ok(false);
    };
    end_or_rest(transaction, rules, &ticket)?;
    Ok(true)
}

const END_OWN: &str = "delete from ticket where token = ?1 and earliest_end_wall is null";

const DELETE_CLAIM: &str = "delete from claim where name = ?1 and ticket = ?2";

/// Parses the statements of [`end_own`] ahead of the moment at which somebody waits for them.
pub fn prepare_end(connection: &Connection) -> rusqlite::Result<()> {
    for sql in [END_OWN, DELETE_CLAIM, history::INSERT] {
        connection.prepare_cached(sql)?;
    }
    Ok(())
}

/// Counts a time to live from now. The token is compared by the statement that changes the row.
pub fn renew(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    token: &Token,
    ttl: i64,
) -> Result<usize> {
    let expiry = rules.clock.after(rules.now, ttl);
    let sql = "update ticket set ttl = ?1, boot_id = ?2, expires_boot = ?3, expires_wall = ?4 where token = ?5 and state = 'held'";
    Ok(transaction.prepare_cached(sql)?.execute(params![
        ttl,
        expiry.boot_id,
        expiry.boot,
        expiry.wall,
        token.as_bytes()
    ])?)
}

/// How a ticket stands that has a claim to one of these locks; none if it has not.
pub fn standing_of(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    names: &[LockName],
    id: i64,
) -> Result<Option<Standing>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from claim join ticket on ticket.token = claim.token where claim.name = ?1 and claim.ticket = ?2"
    ))?;
    for name in names {
        let ticket = statement
            .query_row(params![name.as_str(), id], Ticket::from_row)
            .optional()?;
        if let Some(ticket) = ticket {
            return rules.standing(&ticket).map(Some);
        }
    }
    Ok(None)
}

/// Whether others stand in line behind a lease.
pub fn is_wanted(connection: &Connection, lease: &Lease) -> rusqlite::Result<bool> {
    let mut statement =
        connection.prepare_cached("select 1 from claim where name = ?1 and ticket > ?2")?;
    for name in &lease.names {
        if statement.exists(params![name.as_str(), lease.id])? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What is held or asked for inside of a lease, the living and the dead.
pub fn inside(transaction: &Transaction<'_>, token: &Token) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where enclosing = ?1"
    ))?;
    let tickets = statement.query_map([token.as_bytes()], Ticket::from_row)?;
    Ok(tickets.collect::<rusqlite::Result<_>>()?)
}

/// Everybody who holds a lock or stands in the line for it, in that order, the living and the dead.
pub fn line_of(transaction: &Transaction<'_>, name: &LockName) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from claim join ticket on ticket.token = claim.token where claim.name = ?1 order by claim.ticket"
    ))?;
    let tickets = statement.query_map([name.as_str()], Ticket::from_row)?;
    Ok(tickets.collect::<rusqlite::Result<_>>()?)
}

/// The next number of the one counter. It keeps up with the wall clock, so that it goes on growing even in a store that
/// was restored from a backup and lost its guard file.
///
/// # Errors
/// [`Unsynced`], or that of a statement or of the guard file.
pub fn draw_number(transaction: &Transaction<'_>, rules: &Rules<'_>) -> Result<i64> {
    let last = rules.last_number(transaction)?;
    let next = last.checked_add(1).context("there is no number left")?;
    let next = next.max(rules.now.wall);
    let is_far = next / BOOT_JUMP != last / BOOT_JUMP;
    if is_far && !rules.is_synced {
        return Err(Unsynced.into());
    }
    transaction
        .prepare_cached("update store set serial = ?1")?
        .execute([next])?;
    // Before the commit: a number that was written down and is not given out is lost, and no harm is done.
    rules.note_number(next, is_far)?;
    Ok(next)
}

/// Whether a ticket still has its place in the line.
pub fn is_waiting(transaction: &Transaction<'_>, token: &Token) -> Result<bool> {
    let mut statement = transaction.prepare_cached(IS_WAITING)?;
    Ok(statement.exists([token.as_bytes()])?)
}

const IS_WAITING: &str = "select 1 from ticket where token = ?1 and state = 'waiting'";

/// Parses the statements by which a ticket in the line is granted, while there is time.
pub fn prepare_grant(connection: &Connection) -> rusqlite::Result<()> {
    for sql in [IS_WAITING, GRANT] {
        connection.prepare_cached(sql)?;
    }
    Ok(())
}

/// Puts a request into the line, at its end, with what vouches for it there.
pub fn enqueue(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    grant: &Grant,
) -> Result<i64> {
    let id = draw_number(transaction, rules)?;
    insert(transaction, rules, request, token, id, grant, None)?;
    Ok(id)
}

/// Of all columns in the order of the table, and nobody has revoked it: to look up their names would take longer than all
/// else that is done for the row.
const INSERT: &str =
    "insert into ticket values (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,null,?,?,?,?,?,?,?,?,?)";

/// What a grant adds to a ticket.
struct Granted {
    fence: i64,
    slot: Option<u32>,
    expiry: Expiry,
    earliest_end: Option<Expiry>,
}

fn insert(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    id: i64,
    grant: &Grant,
    granted: Option<&Granted>,
) -> Result<()> {
    let mark = grant.mark;
    let (mode, slots) = record::words_of(request.mode);
    let holder = &request.holder;
    let earliest_end = granted.and_then(|granted| granted.earliest_end.as_ref());
    let enclosing = innermost(transaction, rules, &request.enclosing)?;
    transaction.prepare_cached(INSERT)?.execute(params![
        token.as_bytes(),
        id,
        names_to_sql(&request.names),
        if granted.is_some() { "held" } else { "waiting" },
        mode,
        slots,
        granted.and_then(|granted| granted.slot),
        granted.map(|granted| granted.fence),
        millis(request.ttl),
        millis(request.at_least),
        granted.and_then(|granted| granted.expiry.boot_id.as_ref()),
        rules.now.wall,
        granted.map(|_| rules.now.wall),
        granted.and_then(|granted| granted.expiry.boot),
        granted.map(|granted| granted.expiry.wall),
        earliest_end.and_then(|end| end.boot),
        earliest_end.map(|end| end.wall),
        mark.map(|mark| inode_to_sql(mark.inode)),
        mark.map(|mark| mark.waiting),
        mark.map(|mark| mark.supervisor),
        mark.and_then(|mark| mark.tree),
        enclosing.as_ref().map(Token::as_bytes),
        holder.uid,
        holder.host,
        holder.pid,
        holder.command,
        holder.directory,
        holder.note,
        holder.url,
        grant.of_run,
    ])?;
    let mut claim = transaction
        .prepare_cached("insert into claim (name, ticket, token) values (?1, ?2, ?3)")?;
    for name in &request.names {
        claim.execute(params![name.as_str(), id, token.as_bytes()])?;
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
    let granted = Granted {
        fence,
        slot: grant.slot,
        expiry: rules.clock.after(rules.now, millis(request.ttl)),
        earliest_end: (!request.at_least.is_zero())
            .then(|| rules.clock.after(rules.now, millis(request.at_least))),
    };
    let lease = Lease {
        id: grant.place.unwrap_or(fence),
        names: request.names.clone(),
        token: *token,
        fence,
        ttl: request.ttl,
        slot: grant.slot,
        requested_at: rules.now.wall,
        granted_at: rules.now.wall,
        counted_from: rules.began,
    };
    if grant.place.is_none() {
        insert(
            transaction,
            rules,
            request,
            token,
            lease.id,
            grant,
            Some(&granted),
        )?;
        return Ok(Some(lease));
    }
    let requested_at = transaction
        .prepare_cached(GRANT)?
        .query_row(
            named_params! {
                ":token": token.as_bytes(),
                ":fence": fence,
                ":slot": grant.slot,
                ":now": rules.now.wall,
                ":boot_id": granted.expiry.boot_id,
                ":boot": granted.expiry.boot,
                ":wall": granted.expiry.wall,
                ":end_boot": granted.earliest_end.as_ref().and_then(|end| end.boot),
                ":end_wall": granted.earliest_end.as_ref().map(|end| end.wall),
                ":inode": grant.mark.map(|mark| inode_to_sql(mark.inode)),
                ":waiting": grant.mark.map(|mark| mark.waiting),
                ":supervisor": grant.mark.map(|mark| mark.supervisor),
                ":tree": grant.mark.and_then(|mark| mark.tree),
            },
            |row| row.get(0),
        )
        .optional()?;
    Ok(requested_at.map(|requested_at| Lease {
        requested_at,
        ..lease
    }))
}

const GRANT: &str =
    "update ticket set state = 'held', fence = :fence, slot = :slot, granted_at = :now, boot_id = :boot_id,
       expires_boot = :boot, expires_wall = :wall, earliest_end_boot = :end_boot, earliest_end_wall = :end_wall,
       guard_inode = :inode, waiting_byte = :waiting, supervisor_byte = :supervisor, tree_byte = :tree
     where token = :token and state = 'waiting'
     returning requested_at";

/// How a request is granted.
pub struct Grant {
    /// The waiting ticket's number, for one that stood in the line.
    pub place: Option<i64>,
    pub slot: Option<u32>,
    /// What vouches for it from now on; none for a bare lease.
    pub mark: Option<GuardMark>,
    pub of_run: bool,
}
