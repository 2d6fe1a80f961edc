//! Tickets as rows: reading them, and the statements that change them, inside a transaction that the caller began. The
//! rules of the line are those of `line`; here they are asked.

use std::time::Duration;

use anyhow::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::history;
use super::link::{Parameter, Tx};
use super::witness::{Life, Proof};
use crate::clock::{Clock, Now};
use crate::duration::{from_millis, millis};
use crate::guard::Guard;
use crate::lock::{
    Entry, Event, Expiry, Held, Holder, Lease, LockName, Mode, Orphan, Request, Standing, Terms,
    Token,
};
use crate::rules::standing::standing;
use crate::store::record::{self, ENDED};

/// How long a place in the line is kept for one who does not say that it still waits: a dead waiter blocks nobody for longer.
pub const WAITER_TTL: Duration = Duration::from_secs(12);

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
    pub requested_at: i64,
    /// When it was granted, or asked for while it waits.
    pub since: i64,
    pub terms: Terms,
    pub revoked_by: Option<String>,
    pub enclosing: Option<Token>,
    /// The fence of the lease inside of which it is.
    pub inside_of: Option<i64>,
    pub holder: Holder,
    pub proof: Option<Proof>,
}

/// One that lives, and how.
pub type Living = (Ticket, Standing);

/// The columns that [`Ticket::from_row`] reads, in its order.
const COLUMNS: &str =
    "id, token, names, state = 'held', of_run, mode, slots, slot, fence, ttl, requested_at,
    coalesce(granted_at, requested_at), expires_at, earliest_end, revoked_by, enclosing,
    (select around.fence from tenure.ticket as around where around.token = ticket.enclosing),
    uid, host, pid, command, directory, note, url, guard_file, supervisor_byte, tree_byte";

/// A number that is not negative, from one of the server's, which are signed.
pub fn unsigned(row: &Row, at: usize) -> Result<u32> {
    Ok(u32::try_from(row.try_get::<_, i64>(at)?).unwrap_or_default())
}

pub fn small(row: &Row, at: usize) -> Result<Option<u32>> {
    let number: Option<i32> = row.try_get(at)?;
    Ok(number.and_then(|number| u32::try_from(number).ok()))
}

fn token_from(bytes: &[u8]) -> Option<Token> {
    bytes.try_into().ok().map(Token::from_bytes)
}

/// What somebody wrote there by hand and is no name is left out.
pub fn names_from(row: &Row, at: usize) -> Result<Vec<LockName>> {
    let names: Vec<&str> = row.try_get(at)?;
    Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
}

pub fn names_to_sql(names: &[LockName]) -> Vec<&str> {
    names.iter().map(LockName::as_str).collect()
}

pub fn holder_from(row: &Row, first: usize) -> Result<Holder> {
    Ok(Holder {
        uid: unsigned(row, first)?,
        host: row.try_get(first + 1)?,
        pid: unsigned(row, first + 2)?,
        command: row.try_get(first + 3)?,
        directory: row.try_get(first + 4)?,
        note: row.try_get(first + 5)?,
        url: row.try_get(first + 6)?,
    })
}

fn proof_from(row: &Row, first: usize) -> Result<Option<Proof>> {
    let file: Option<String> = row.try_get(first)?;
    let bytes: [Option<i64>; 2] = [row.try_get(first + 1)?, row.try_get(first + 2)?];
    Ok(match (file, bytes) {
        (Some(file), [Some(supervisor), Some(tree)]) => Some(Proof {
            file,
            supervisor,
            tree,
        }),
        _ => None,
    })
}

/// A moment by the server's clock, the only one that counts.
fn moment(wall: i64) -> Expiry {
    Expiry {
        boot_id: None,
        boot: None,
        wall,
    }
}

impl Ticket {
    fn from_row(row: &Row) -> Result<Self> {
        let enclosing: Option<&[u8]> = row.try_get(15)?;
        let earliest_end: Option<i64> = row.try_get(13)?;
        Ok(Self {
            id: row.try_get(0)?,
            token: token_from(row.try_get(1)?).unwrap_or(Token::from_bytes([0; 16])),
            names: names_from(row, 2)?,
            is_held: row.try_get(3)?,
            of_run: row.try_get(4)?,
            mode: record::mode_of(row.try_get(5)?, small(row, 6)?),
            slot: small(row, 7)?,
            fence: row.try_get(8)?,
            ttl: row.try_get(9)?,
            requested_at: row.try_get(10)?,
            since: row.try_get(11)?,
            terms: Terms {
                expiry: moment(row.try_get(12)?),
                earliest_end: earliest_end.map(moment),
                mark: None,
            },
            revoked_by: row.try_get(14)?,
            enclosing: enclosing.and_then(token_from),
            inside_of: row.try_get(16)?,
            holder: holder_from(row, 17)?,
            proof: proof_from(row, 24)?,
        })
    }

    /// How it stands at the moment of a transaction. By time, unless what is seen on this machine says that it is over before.
    pub fn standing(&self, tx: &Tx<'_>) -> Standing {
        let by_time = self.by_time(tx.now);
        let (Standing::Leased | Standing::Waiting, Some(proof)) = (by_time, &self.proof) else {
            return by_time;
        };
        let rest = self.rest();
        match tx.link.witness.life(proof) {
            Life::Lives | Life::Unknown => by_time,
            Life::Orphaned => Standing::Orphaned,
            Life::Dead if rest.is_some_and(|end| end.wall > tx.now) => Standing::Resting,
            Life::Dead => Standing::Crashed,
        }
    }

    /// Until when it is not over, whatever ends it. Forced, it does not rest.
    fn rest(&self) -> Option<&Expiry> {
        let end = self.terms.earliest_end.as_ref();
        end.filter(|_| self.revoked_by.is_none())
    }

    fn by_time(&self, now: i64) -> Standing {
        if !self.is_held {
            return if self.terms.expiry.wall > now {
                Standing::Waiting
            } else {
                Standing::Crashed
            };
        }
        let now = Now { boot: 0, wall: now };
        let terms = Terms {
            earliest_end: self.rest().cloned(),
            ..self.terms.clone()
        };
        standing(&terms, &Clock::wall_only(), now, None::<&Guard>)
            .expect("without a guard nobody is asked")
    }

    /// Whether it was given back, and only rests until its `--at-least` has passed.
    fn was_given_back(&self) -> bool {
        self.is_held && self.terms.expiry.wall == ENDED
    }

    /// How long until time ends it, if nothing is done.
    pub fn remaining(&self, now: i64) -> Duration {
        let rest = self.terms.earliest_end.as_ref().map_or(0, |end| end.wall);
        from_millis(rest.max(self.terms.expiry.wall).saturating_sub(now))
    }

    pub fn into_held(self, now: i64, standing: Standing) -> Held {
        let until = match (standing, &self.terms.earliest_end) {
            (Standing::Resting, Some(end)) => end.wall,
            _ => self.terms.expiry.wall,
        };
        let rest = self.rest().map_or(0, |end| end.wall.saturating_sub(now));
        let proof = self.proof.as_ref();
        let tree = proof.filter(|_| standing == Standing::Orphaned);
        let orphan = tree.and_then(Proof::tree_byte).map(|byte| Orphan {
            byte,
            rest: from_millis(rest),
            processes: Vec::new(),
            are_all: false,
        });
        Held {
            id: self.id,
            names: self.names,
            mode: self.mode,
            fence: self.fence,
            slot: self.slot,
            ttl: from_millis(self.ttl),
            since: self.since,
            remaining: from_millis(until.saturating_sub(now)),
            standing,
            orphan,
            revoked: self.revoked_by.is_some(),
            guarded: self.of_run,
            inside_of: self.inside_of,
            holder: self.holder,
        }
    }

    /// What the log has to tell of it, as it stands; none where it has been told.
    pub fn as_entry(&self, now: i64, standing: Standing) -> Option<Entry> {
        if self.was_given_back() {
            return None;
        }
        let rested = self.terms.earliest_end.as_ref().map(|end| end.wall);
        let time = rested.unwrap_or(0).max(self.terms.expiry.wall);
        let (event, ended_at) = match standing {
            Standing::Expired => (Event::Expired, Some(now.min(time))),
            Standing::Crashed => (Event::Crashed, None),
            Standing::Waiting => (Event::Waiting, None),
            _ => (Event::Granted, None),
        };
        Some(Entry {
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
            reason: None,
            by: None,
            holder: self.holder.clone(),
        })
    }
}

/// The tickets of which `condition` is true, in the order of the line.
fn find(tx: &Tx<'_>, condition: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Ticket>> {
    let sql = format!("select {COLUMNS} from tenure.ticket where {condition} order by id");
    tx.rows(&sql, parameters)?
        .iter()
        .map(Ticket::from_row)
        .collect()
}

/// Everybody who holds one of these locks or stands in a line for one, and the ticket of a token, whatever it is.
pub fn line_and(tx: &Tx<'_>, names: &[LockName], token: &Token) -> Result<Vec<Ticket>> {
    let (names, token) = (names_to_sql(names), &token.as_bytes()[..]);
    let parameters: [Parameter<'_>; 2] = [(&names, Type::TEXT_ARRAY), (&token, Type::BYTEA)];
    find(tx, "names && $1 or token = $2", &parameters)
}

/// Everybody who holds one of these locks or stands in a line for one; with no names, of all locks.
pub fn line(tx: &Tx<'_>, names: &[LockName]) -> Result<Vec<Ticket>> {
    if names.is_empty() {
        return find(tx, "true", &[]);
    }
    let names = names_to_sql(names);
    find(tx, "names && $1", &[(&names, Type::TEXT_ARRAY)])
}

pub fn by_token(tx: &Tx<'_>, token: &Token) -> Result<Option<Ticket>> {
    let token = &token.as_bytes()[..];
    Ok(find(tx, "token = $1", &[(&token, Type::BYTEA)])?.pop())
}

/// The first of these tokens whose lease lives in this database.
fn innermost(tx: &Tx<'_>, told: &[Token]) -> Result<Option<Token>> {
    if told.is_empty() {
        return Ok(None);
    }
    let bytes: Vec<&[u8]> = told.iter().map(|token| &token.as_bytes()[..]).collect();
    let mut found = find(tx, "token = any($1)", &[(&bytes, Type::BYTEA_ARRAY)])?;
    found.retain(|ticket| ticket.is_held && !ticket.standing(tx).is_over());
    let mut told = told.iter();
    let innermost = told.find(|token| found.iter().any(|ticket| ticket.token == **token));
    Ok(innermost.copied())
}

pub fn of_ids(tx: &Tx<'_>, ids: &[i64]) -> Result<Vec<Ticket>> {
    find(tx, "id = any($1)", &[(&ids, Type::INT8_ARRAY)])
}

/// A few whose time has passed.
fn expired(tx: &Tx<'_>, most: i64) -> Result<Vec<Ticket>> {
    let over = "id in (select id from tenure.ticket
                where expires_at <= $1 and coalesce(earliest_end, 0) <= $1 limit $2)";
    find(tx, over, &[(&tx.now, Type::INT8), (&most, Type::INT8)])
}

/// Removes leases that are over and that nobody asks for any more.
pub fn sweep(tx: &Tx<'_>, most: i64) -> Result<()> {
    let over = expired(tx, most)?;
    bury(tx, over.iter().map(|ticket| (ticket, ticket.standing(tx))))
}

/// Removes tickets that are over, and writes down how they ended.
pub fn bury<'a>(tx: &Tx<'_>, over: impl IntoIterator<Item = (&'a Ticket, Standing)>) -> Result<()> {
    let mut dead = Vec::new();
    for (ticket, standing) in over {
        dead.push(ticket.id);
        tx.notify(ticket.id);
        if let Some(entry) = ticket.as_entry(tx.now, standing) {
            history::write(tx, &entry)?;
        }
    }
    if !dead.is_empty() {
        let sql = "delete from tenure.ticket where id = any($1)";
        tx.rows(sql, &[(&dead, Type::INT8_ARRAY)])?;
    }
    Ok(())
}

pub fn delete(tx: &Tx<'_>, ticket: &Ticket) -> Result<()> {
    tx.notify(ticket.id);
    let sql = "delete from tenure.ticket where id = $1";
    tx.rows(sql, &[(&ticket.id, Type::INT8)])?;
    Ok(())
}

/// Ends a held ticket, whoever's it is: deletes it, or leaves it to rest until its `--at-least` has passed.
pub fn end(tx: &Tx<'_>, ticket: &Ticket) -> Result<()> {
    // Who forces a release means to have the lock.
    let end = ticket.terms.earliest_end.as_ref();
    let rests = ticket.revoked_by.is_none() && end.is_some_and(|end| end.wall > tx.now);
    if !rests {
        return delete(tx, ticket);
    }
    tx.notify(ticket.id);
    // Nobody's any more: no token that anybody knows shows it.
    let token = Token::draw()?;
    let token = &token.as_bytes()[..];
    let sql = "update tenure.ticket set token = $2, expires_at = $3, of_run = false where id = $1";
    let parameters: [Parameter<'_>; 3] = [
        (&ticket.id, Type::INT8),
        (&token, Type::BYTEA),
        (&ENDED, Type::INT8),
    ];
    tx.rows(sql, &parameters)?;
    Ok(())
}

/// Counts a lease's time to live from now, and says how long it is; none when it is over, even if nobody has removed it. A
/// `run` is never to find less left than it knows of: its time only grows longer.
pub fn renew(tx: &Tx<'_>, token: &Token, ttl: Option<i64>) -> Result<Option<i64>> {
    let token = &token.as_bytes()[..];
    let sql = "update tenure.ticket set ttl = coalesce($2, ttl),
                 expires_at = greatest($3 + coalesce($2, ttl), case when of_run then expires_at end)
               where token = $1 and state = 'held' and greatest(expires_at, earliest_end) > $3
               returning ttl";
    let parameters: [Parameter<'_>; 3] = [
        (&token, Type::BYTEA),
        (&ttl, Type::INT8),
        (&tx.now, Type::INT8),
    ];
    Ok(match tx.rows(sql, &parameters)?.first() {
        Some(row) => Some(row.try_get(0)?),
        None => None,
    })
}

/// Keeps a place in the line. False when it is gone.
pub fn keep_place(tx: &Tx<'_>, token: &Token) -> Result<bool> {
    let token = &token.as_bytes()[..];
    let until = tx.now + millis(WAITER_TTL);
    let sql = "update tenure.ticket set expires_at = $2
               where token = $1 and state = 'waiting' returning id";
    let found = tx.rows(sql, &[(&token, Type::BYTEA), (&until, Type::INT8)])?;
    Ok(!found.is_empty())
}

/// Whose a request is.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub token: &'a Token,
    pub of_run: bool,
    /// Of this process.
    pub proof: Option<&'a Proof>,
}

/// Puts a request into the line, at its end.
pub fn enqueue(tx: &Tx<'_>, request: &Request, asker: Asker<'_>) -> Result<i64> {
    let id = tx.draw_number()?;
    insert(tx, request, asker, id, None)?;
    Ok(id)
}

/// Grants a request that found its way free: the ticket that waits at a place, or a new one.
pub fn grant(
    tx: &Tx<'_>,
    request: &Request,
    asker: Asker<'_>,
    waiting: Option<&Ticket>,
    slot: Option<u32>,
) -> Result<Lease> {
    // What is taken with a token outlives whoever took it.
    let asker = Asker {
        proof: asker.proof.filter(|_| asker.of_run),
        ..asker
    };
    let fence = tx.draw_number()?;
    let lease = Lease {
        id: waiting.map_or(fence, |ticket| ticket.id),
        names: request.names.clone(),
        token: *asker.token,
        fence,
        ttl: request.ttl,
        slot,
        requested_at: waiting.map_or(tx.now, |ticket| ticket.requested_at),
        granted_at: tx.now,
        counted_from: tx.began,
    };
    let Some(waiting) = waiting else {
        insert(tx, request, asker, lease.id, Some((fence, slot)))?;
        return Ok(lease);
    };
    // Who waits behind it may have waited for that.
    tx.notify(waiting.id);
    let sql = "update tenure.ticket set state = 'held', fence = $2, slot = $3, granted_at = $4,
                 expires_at = $5, earliest_end = $6, guard_file = $7, supervisor_byte = $8, tree_byte = $9
               where id = $1";
    let slot = slot.map(u32::cast_signed);
    let (file, supervisor, tree) = columns_of(asker.proof);
    let parameters: [Parameter<'_>; 9] = [
        (&waiting.id, Type::INT8),
        (&fence, Type::INT8),
        (&slot, Type::INT4),
        (&tx.now, Type::INT8),
        (&(tx.now + millis(request.ttl)), Type::INT8),
        (&earliest_end(tx, request), Type::INT8),
        (&file, Type::TEXT),
        (&supervisor, Type::INT8),
        (&tree, Type::INT8),
    ];
    tx.rows(sql, &parameters)?;
    Ok(lease)
}

fn columns_of(proof: Option<&Proof>) -> (Option<&str>, Option<i64>, Option<i64>) {
    (
        proof.map(|proof| proof.file.as_str()),
        proof.map(|proof| proof.supervisor),
        proof.map(|proof| proof.tree),
    )
}

fn earliest_end(tx: &Tx<'_>, request: &Request) -> Option<i64> {
    let at_least = millis(request.at_least);
    (at_least > 0).then(|| tx.now.saturating_add(at_least))
}

fn insert(
    tx: &Tx<'_>,
    request: &Request,
    asker: Asker<'_>,
    id: i64,
    granted: Option<(i64, Option<u32>)>,
) -> Result<()> {
    let (mode, slots) = record::words_of(request.mode);
    let slots = slots.map(u32::cast_signed);
    let holder = &request.holder;
    let (fence, slot) = granted.unzip();
    let slot = slot.flatten().map(u32::cast_signed);
    let state = if granted.is_some() { "held" } else { "waiting" };
    let lives = if granted.is_some() {
        request.ttl
    } else {
        WAITER_TTL
    };
    let names = names_to_sql(&request.names);
    let token = &asker.token.as_bytes()[..];
    let (file, supervisor_byte, tree_byte) = columns_of(asker.proof);
    let enclosing = innermost(tx, &request.enclosing)?;
    let enclosing = enclosing.as_ref().map(|token| &token.as_bytes()[..]);
    let earliest_end = granted.and_then(|_| earliest_end(tx, request));
    let granted_at = granted.map(|_| tx.now);
    let sql = "insert into tenure.ticket (id, token, names, state, of_run, mode, slots, slot, fence, ttl, at_least,
                 requested_at, granted_at, expires_at, earliest_end, enclosing, uid, host, pid, command, directory,
                 note, url, guard_file, supervisor_byte, tree_byte)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21,
                 $22, $23, $24, $25, $26)";
    let parameters: [Parameter<'_>; 26] = [
        (&id, Type::INT8),
        (&token, Type::BYTEA),
        (&names, Type::TEXT_ARRAY),
        (&state, Type::TEXT),
        (&asker.of_run, Type::BOOL),
        (&mode, Type::TEXT),
        (&slots, Type::INT4),
        (&slot, Type::INT4),
        (&fence, Type::INT8),
        (&millis(request.ttl), Type::INT8),
        (&millis(request.at_least), Type::INT8),
        (&tx.now, Type::INT8),
        (&granted_at, Type::INT8),
        (&tx.now.saturating_add(millis(lives)), Type::INT8),
        (&earliest_end, Type::INT8),
        (&enclosing, Type::BYTEA),
        (&i64::from(holder.uid), Type::INT8),
        (&holder.host, Type::TEXT),
        (&i64::from(holder.pid), Type::INT8),
        (&holder.command, Type::TEXT),
        (&holder.directory, Type::TEXT),
        (&holder.note, Type::TEXT),
        (&holder.url, Type::TEXT),
        (&file, Type::TEXT),
        (&supervisor_byte, Type::INT8),
        (&tree_byte, Type::INT8),
    ];
    tx.rows(sql, &parameters)?;
    Ok(())
}

/// Takes a lease from its holder, and writes down by whom: ends it, or leaves it to its `run` to end.
pub fn force(tx: &Tx<'_>, ticket: &Ticket, standing: Standing, ends: bool, by: &str) -> Result<()> {
    if let Some(mut entry) = ticket.as_entry(tx.now, standing) {
        entry.event = Event::Forced;
        entry.ended_at = ends.then_some(tx.now);
        entry.by = Some(by.to_owned());
        history::write(tx, &entry)?;
    }
    if ends {
        // Forced, it does not rest either.
        return delete(tx, ticket);
    }
    let sql = "update tenure.ticket set revoked_by = $2 where id = $1";
    tx.rows(sql, &[(&ticket.id, Type::INT8), (&by, Type::TEXT)])?;
    Ok(())
}
