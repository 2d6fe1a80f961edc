//! The log as rows: writing an entry, reading them from the newest backwards, and forgetting the old ones.

use anyhow::Result;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::link::{Parameter, Tx};
use super::ticket::{self, holder_from, names_from, names_to_sql, small};
use crate::lock::{Entry, Event};
use crate::store::record::{self, MOST, OLDEST, PRUNED, RECENT};
use crate::store::{History, Query};

/// After how many entries the old ones are looked for: fewer than are forgotten at once.
const SWEEP: i64 = 32;

/// Writes an entry at the end of the log; and now and then forgets the oldest, and removes what is over.
pub fn write(tx: &Tx<'_>, entry: &Entry) -> Result<()> {
    let (mode, slots) = record::words_of(entry.mode);
    let (slots, slot) = (
        slots.map(u32::cast_signed),
        entry.slot.map(u32::cast_signed),
    );
    let names = names_to_sql(&entry.names);
    let holder = &entry.holder;
    let sql = "insert into tenure.log (at, event, names, mode, slots, slot, fence, requested_at, granted_at, ended_at,
                 status, signal, reason, by, uid, host, pid, command, directory, note, url)
               values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21)
               returning id";
    let parameters: [Parameter<'_>; 21] = [
        (&entry.at, Type::INT8),
        (&entry.event.word(), Type::TEXT),
        (&names, Type::TEXT_ARRAY),
        (&mode, Type::TEXT),
        (&slots, Type::INT4),
        (&slot, Type::INT4),
        (&entry.fence, Type::INT8),
        (&entry.requested_at, Type::INT8),
        (&entry.granted_at, Type::INT8),
        (&entry.ended_at, Type::INT8),
        (&entry.status.map(i32::from), Type::INT4),
        (&entry.signal, Type::INT4),
        (&entry.reason, Type::TEXT),
        (&entry.by, Type::TEXT),
        (&i64::from(holder.uid), Type::INT8),
        (&holder.host, Type::TEXT),
        (&i64::from(holder.pid), Type::INT8),
        (&holder.command, Type::TEXT),
        (&holder.directory, Type::TEXT),
        (&holder.note, Type::TEXT),
        (&holder.url, Type::TEXT),
    ];
    let written = tx.rows(sql, &parameters)?;
    let id: i64 = match written.first() {
        Some(row) => row.try_get(0)?,
        None => return Ok(()),
    };
    if id % SWEEP == 0 {
        prune(tx, id)?;
        ticket::sweep(tx, PRUNED)?;
    }
    Ok(())
}

/// Forgets what is too old, or too much: a few of the oldest at a time. The last one stays, by which it is told what is new.
fn prune(tx: &Tx<'_>, last: i64) -> Result<()> {
    let sql = "delete from tenure.log where id in (
                 select id from (select id, at from tenure.log order by id limit $1) as oldest
                 where id <= $2 or (at < $3 and id < $4))";
    let parameters: [Parameter<'_>; 4] = [
        (&PRUNED, Type::INT8),
        (&(last - MOST), Type::INT8),
        (&(tx.now - OLDEST), Type::INT8),
        (&last, Type::INT8),
    ];
    tx.rows(sql, &parameters)?;
    Ok(())
}

/// When a lease was taken away from its holder at once, and by whom: it was not long ago.
pub fn taken(tx: &Tx<'_>, fence: i64) -> Result<Option<(i64, String)>> {
    let sql = "select ended_at, by from tenure.log
               where id > (select max(id) from tenure.log) - $1
                 and fence = $2 and event = 'forced' and ended_at is not null and by is not null
               order by id desc limit 1";
    let found = tx.rows(sql, &[(&RECENT, Type::INT8), (&fence, Type::INT8)])?;
    Ok(match found.first() {
        Some(row) => Some((row.try_get(0)?, row.try_get(1)?)),
        None => None,
    })
}

/// Reads what is asked for in one snapshot.
pub fn read(tx: &Tx<'_>, query: &Query) -> Result<History> {
    let last = tx.rows("select coalesce(max(id), 0) from tenure.log", &[])?;
    let last = match last.first() {
        Some(row) => row.try_get(0)?,
        None => 0,
    };
    let names = names_to_sql(&query.names);
    let most = query.most.and_then(|most| i64::try_from(most).ok());
    let sql =
        "select at, event, names, mode, slots, slot, fence, requested_at, granted_at, ended_at,
                 status, signal, reason, by, uid, host, pid, command, directory, note, url
               from tenure.log
               where id > $1 and at >= $2 and (cardinality($3::text[]) = 0 or names && $3)
               order by id desc limit $4";
    let parameters: [Parameter<'_>; 4] = [
        (&query.after.unwrap_or(0), Type::INT8),
        (&query.since.unwrap_or(i64::MIN), Type::INT8),
        (&names, Type::TEXT_ARRAY),
        (&most, Type::INT8),
    ];
    let mut written = Vec::new();
    for row in tx.rows(sql, &parameters)? {
        // What somebody wrote by hand and means nothing is left out.
        written.extend(from_row(&row)?);
    }
    written.reverse();
    let mut present = Vec::new();
    for ticket in ticket::line(tx, &query.names)? {
        let standing = ticket.standing(tx);
        // A waiter that is found dead is told of when it is out of the line.
        if ticket.is_held || !standing.is_over() {
            present.extend(ticket.as_entry(tx.now, standing));
        }
    }
    Ok(History {
        written,
        present,
        last,
    })
}

fn from_row(row: &Row) -> Result<Option<Entry>> {
    let Some(event) = Event::of_word(row.try_get(1)?) else {
        return Ok(None);
    };
    let status: Option<i32> = row.try_get(10)?;
    Ok(Some(Entry {
        at: row.try_get(0)?,
        event,
        names: names_from(row, 2)?,
        mode: record::mode_of(row.try_get(3)?, small(row, 4)?),
        slot: small(row, 5)?,
        fence: row.try_get(6)?,
        requested_at: row.try_get(7)?,
        granted_at: row.try_get(8)?,
        ended_at: row.try_get(9)?,
        status: status.and_then(|status| u8::try_from(status).ok()),
        signal: row.try_get(11)?,
        reason: row.try_get(12)?,
        by: row.try_get(13)?,
        holder: holder_from(row, 14)?,
    }))
}
