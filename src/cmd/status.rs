//! `tenure status`: who holds what, or whether one's own lease still lives.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::take::ends;
use super::{not_held, sorted, token_of};
use crate::cli::{Common, Status};
use crate::exit::Exit;
use crate::lock::{Held, LockName, Standing};
use crate::output;
use crate::output::Row;
use crate::output::screen::{self, Picture};
use crate::output::status::{details, overview};
use crate::signals::{self, Signal, Signals};
use crate::store::{self, Purpose};
use crate::wait;

/// How often `--watch` looks.
const LOOK: Duration = Duration::from_secs(1);

/// # Errors
/// The store cannot be used, or the answer not be written.
pub fn run(args: &Status, common: &Common) -> Result<Exit> {
    if args.watch {
        return watch(args, common);
    }
    let seen = look(args, common)?;
    if args.token.is_some() {
        let holds = |name| {
            let mut held = seen.held.iter();
            held.any(|held| held.names.contains(name))
        };
        if seen.held.is_empty() || !seen.asked.iter().all(holds) {
            return Ok(not_held(common, args.json, &seen.asked, &seen.location));
        }
        if !args.json {
            return Ok(Exit::Done);
        }
    }
    output::print(&seen.text(args.json, screen::room(&io::stdout())))?;
    for warning in seen.warnings.iter().filter(|_| !common.quiet) {
        output::say(warning);
    }
    Ok(Exit::Done)
}

/// Shows it again and again: on the whole screen of a terminal, elsewhere one after the other.
fn watch(args: &Status, common: &Common) -> Result<Exit> {
    if args.json || !Picture::has_place() {
        // Nothing is to be cleaned up, so signals do what they always do.
        loop {
            let mut text = look(args, common)?.text(args.json, screen::room(&io::stdout()));
            if !args.json {
                text.push('\n');
            }
            if !output::print_to_reader(&text)? || !wait::pause_for_reader(LOOK) {
                return Ok(Exit::Done);
            }
        }
    }
    let signals = Signals::for_waiter().context("cannot watch signals")?;
    let mut picture = Picture::default();
    loop {
        let seen = look(args, common)?;
        let again = Instant::now() + LOOK;
        loop {
            picture.draw(|columns| seen.text(false, Some(columns)))?;
            match wait::for_signal(&signals, again)? {
                Some(received) if received.signal == Signal::TSTP => {
                    picture.leave();
                    signals::stop_by(Signal::TSTP);
                }
                Some(received) if ends(received.signal) => {
                    return Ok(Exit::Signal(received.signal));
                }
                None if Instant::now() >= again => break,
                // The terminal may have another size now.
                Some(_) | None => {}
            }
        }
    }
}

/// What the store had at one moment.
struct Seen {
    location: String,
    /// These locks, or all.
    asked: Vec<LockName>,
    held: Vec<Held>,
    /// How many wait for each.
    waiting: HashMap<LockName, usize>,
    /// Who they are, in order, where locks were asked for by name.
    line: Option<Vec<Held>>,
    warnings: Vec<String>,
}

fn look(args: &Status, common: &Common) -> Result<Seen> {
    let token = args.token.map(|token| token_of(Some(token))).transpose()?;
    let asked = sorted(&args.names);
    let Some(mut store) = store::open(common.db.as_deref(), Purpose::Look)? else {
        return Ok(Seen {
            location: store::location_of(common.db.as_deref())?,
            line: (!asked.is_empty()).then(Vec::new),
            asked,
            held: Vec::new(),
            waiting: HashMap::new(),
            warnings: Vec::new(),
        });
    };
    let (mut held, mut waiting, mut line) = (Vec::new(), HashMap::new(), None);
    match token {
        Some(token) => {
            waiting = store.waiting()?;
            held.extend(store.held_by(&token)?);
        }
        None if asked.is_empty() => {
            waiting = store.waiting()?;
            held = store.held(&[])?;
        }
        None => {
            let all = store.line(&asked)?;
            let (behind, holders): (Vec<Held>, Vec<Held>) = all
                .into_iter()
                .partition(|held| held.standing == Standing::Waiting);
            held = holders;
            held.sort_by_key(|held| held.fence);
            for name in behind.iter().flat_map(|held| &held.names) {
                *waiting.entry(name.clone()).or_insert(0) += 1;
            }
            line = Some(behind);
        }
    }
    // The table of all has no place for them.
    if args.json || !asked.is_empty() {
        store::find_orphans(&mut held);
    }
    Ok(Seen {
        location: store.location(),
        asked,
        held,
        waiting,
        line,
        warnings: if args.watch {
            Vec::new()
        } else {
            store.warnings()?
        },
    })
}

impl Seen {
    fn text(&self, json: bool, room: Option<usize>) -> String {
        let locks = self.locks();
        let rows: Vec<Row<'_>> = locks.iter().flat_map(Lock::rows).collect();
        if json {
            let rows = rows.iter().map(output::lock_json);
            return rows.map(|row| output::json_line(&row)).collect();
        }
        if rows.is_empty() {
            let location = output::printable(&self.location);
            return format!("no locks are held in {location}\n");
        }
        if self.asked.is_empty() {
            overview(&self.location, &rows, room)
        } else {
            details(&self.location, &rows, room)
        }
    }

    /// In the order of names: those that were asked for, held or not, or all that are held or waited for.
    fn locks(&self) -> Vec<Lock<'_>> {
        let mut holders: BTreeMap<&LockName, Vec<&Held>> = BTreeMap::new();
        let known = if self.asked.is_empty() {
            self.waiting.keys().collect()
        } else {
            Vec::from_iter(&self.asked)
        };
        holders.extend(known.into_iter().map(|name| (name, Vec::new())));
        for lease in &self.held {
            for name in &lease.names {
                match holders.entry(name) {
                    Entry::Occupied(mut known) => known.get_mut().push(lease),
                    Entry::Vacant(new) if self.asked.is_empty() => {
                        new.insert(vec![lease]);
                    }
                    Entry::Vacant(_) => {}
                }
            }
        }
        let lock = |(name, holders)| Lock {
            name,
            holders,
            waiting: self.waiting.get(name).copied().unwrap_or(0),
            line: self.line.as_ref().map(|line| {
                let line = line.iter().filter(|held| held.names.contains(name));
                line.collect()
            }),
        };
        holders.into_iter().map(lock).collect()
    }
}

/// A lock with those who hold it and those who wait for it.
struct Lock<'a> {
    name: &'a LockName,
    holders: Vec<&'a Held>,
    waiting: usize,
    line: Option<Vec<&'a Held>>,
}

impl Lock<'_> {
    /// A row for each holder, or one of a free lock.
    fn rows(&self) -> Vec<Row<'_>> {
        let row = |held, is_last| Row {
            name: self.name,
            held,
            waiting: self.waiting,
            line: self.line.as_deref(),
            is_last,
        };
        let Some((last, others)) = self.holders.split_last() else {
            return vec![row(None, true)];
        };
        let others = others.iter().map(|held| row(Some(*held), false));
        others.chain([row(Some(*last), true)]).collect()
    }
}
