//! The log as rows: writing an entry, reading them from the newest backwards, and forgetting the old ones.

use anyhow::{Context, Result};
use rusqlite::{
    Connection, OptionalExtension, Row, Transaction, named_params, params, params_from_iter,
};

use super::ticket::{self, Rules};
use crate::lock::{Entry, Event, Holder};
use crate::store::record::{self, MOST, OLDEST, PRUNED, RECENT};
use crate::store::{History, Query};

/// Of all columns in the order of the table: to look up their names would be a third of the cost of an entry.
pub const INSERT: &str = "insert into log values (null,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";

/// Writes an entry at the end of the log.
pub fn write(transaction: &Transaction<'_>, entry: &Entry) -> Result<()> {
    let (mode, slots) = record::words_of(entry.mode);
    let holder = &entry.holder;
    transaction.prepare_cached(INSERT)?.execute(params![
        entry.at,
        entry.event.word(),
        ticket::names_to_sql(&entry.names),
        mode,
        slots,
        entry.slot,
        entry.fence,
        entry.requested_at,
        entry.granted_at,
        entry.ended_at,
        entry.status,
        entry.signal,
        entry.reason,
        entry.by,
        holder.uid,
        holder.host,
        holder.pid,
        holder.command,
        holder.directory,
        holder.note,
        holder.url,
    ])?;
    Ok(())
}

/// When a lease was taken away from its holder at once, and by whom: it was not long ago.
pub fn taken(connection: &Connection, fence: i64) -> rusqlite::Result<Option<(i64, String)>> {
    connection
        .prepare_cached(
            "select ended_at, by from log where id > (select max(id) from log) - ?1
               and fence = ?2 and event = 'forced' and ended_at is not null and by is not null
             order by id desc limit 1",
        )?
        .query_row(params![RECENT, fence], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()
}

/// Forgets what is too old, or too much: a few of the oldest at a time. The last one stays, so that no number is
/// given out twice.
pub fn prune(transaction: &Transaction<'_>, now: i64) -> Result<()> {
    transaction.execute(
        "delete from log where id in (
           select id from (select id, at from log order by id limit :pruned)
           where id <= (select max(id) from log) - :most
              or (at < :oldest and id < (select max(id) from log)))",
        named_params! { ":pruned": PRUNED, ":most": MOST, ":oldest": now - OLDEST },
    )?;
    Ok(())
}

/// Reads what is asked for in one snapshot. Without an index a search by name or by time reads the whole log, which
/// takes some tens of milliseconds; the newest few are had at once.
pub fn read(transaction: &Transaction<'_>, rules: &Rules<'_>, query: &Query) -> Result<History> {
    let mut sql = String::from(
        "select id, at, event, names, mode, slots, slot, fence, requested_at, granted_at, ended_at,
           status, signal, reason, by, uid, host, pid, command, directory, note, url
         from log where id > ?1 and at >= ?2",
    );
    if !query.names.is_empty() {
        let has_one = "instr(char(10) || names || char(10), char(10) || ? || char(10))";
        let each = vec![has_one; query.names.len()];
        sql = format!("{sql} and ({})", each.join(" or "));
    }
    sql += " order by id desc";
    let bounds = [query.after.unwrap_or(0), query.since.unwrap_or(i64::MIN)];
    let bounds = bounds.map(rusqlite::types::Value::from);
    let names = query.names.iter();
    let names = names.map(|name| rusqlite::types::Value::from(name.as_str().to_owned()));
    let last =
        transaction.query_row("select coalesce(max(id), 0) from log", [], |row| row.get(0))?;

    let mut statement = transaction.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(bounds.into_iter().chain(names)), from_row)?;
    let mut written = Vec::new();
    for entry in rows.take(query.most.unwrap_or(usize::MAX)) {
        // What somebody wrote by hand and means nothing is left out.
        written.extend(entry?);
    }
    written.reverse();

    let tickets = if query.names.is_empty() {
        ticket::all(transaction)?
    } else {
        ticket::claiming(transaction, &query.names)?
    };
    let mut present = Vec::new();
    for ticket in tickets {
        let standing = rules.standing(&ticket)?;
        // A waiter that is found dead is told of when it is out of the line.
        if !ticket.was_given_back() && (ticket.is_held || !standing.is_over()) {
            present.push(ticket.as_entry(rules.now.wall, standing));
        }
    }
    Ok(History {
        written,
        present,
        last,
    })
}

fn from_row(row: &Row<'_>) -> rusqlite::Result<Option<Entry>> {
    let word: String = row.get(2)?;
    let Some(event) = Event::of_word(&word) else {
        return Ok(None);
    };
    let mode: String = row.get(4)?;
    Ok(Some(Entry {
        at: row.get(1)?,
        event,
        names: ticket::names_from_sql(&row.get::<_, String>(3)?),
        mode: record::mode_of(&mode, row.get(5)?),
        slot: row.get(6)?,
        fence: row.get(7)?,
        requested_at: row.get(8)?,
        granted_at: row.get(9)?,
        ended_at: row.get(10)?,
        status: row.get(11)?,
        signal: row.get(12)?,
        reason: row.get(13)?,
        by: row.get(14)?,
        holder: Holder {
            uid: row.get(15)?,
            host: row.get(16)?,
            pid: row.get(17)?,
            command: row.get(18)?,
            directory: row.get(19)?,
            note: row.get(20)?,
            url: row.get(21)?,
        },
    }))
}

/// By how much local time is ahead of UTC at a moment, both in milliseconds. SQLite asks the C library.
pub fn local_offset(connection: &Connection, at: i64) -> Result<i64> {
    let seconds = at.div_euclid(1000);
    let local: i64 = connection
        .prepare_cached("select cast(strftime('%s', ?1, 'unixepoch', 'localtime') as integer)")?
        .query_row([seconds], |row| row.get(0))
        .context("no local time")?;
    Ok((local - seconds) * 1000)
}
