//! `tenure status`: who holds what, or whether one's own lease still lives.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use anyhow::Result;

use super::{not_held, sorted};
use crate::cli::{Common, Status};
use crate::exit::Exit;
use crate::lock::{Held, LockName};
use crate::output;
use crate::output::Row;
use crate::store::Store;
use crate::store::sqlite::{self, Purpose};

/// # Errors
/// The store cannot be used, or the answer not be written.
pub fn run(args: &Status, common: &Common) -> Result<Exit> {
    let mut store = sqlite::open(common.db.as_deref(), Purpose::Look)?;
    let location = match &store {
        Some(store) => store.location(),
        None => match &common.db {
            Some(named) => named.display().to_string(),
            None => sqlite::default_location()?,
        },
    };
    let asked = sorted(&args.names);
    let (mut held, mut waiting) = (Vec::new(), HashMap::new());
    if let Some(store) = &mut store {
        waiting = store.waiting()?;
        held = match &args.token {
            Some(token) => store.held_by(token)?.into_iter().collect(),
            None => store.held(&asked)?,
        };
    }
    if args.token.is_some() {
        let holds = |name| held.first().is_some_and(|held| held.names.contains(name));
        if held.is_empty() || !asked.iter().all(holds) {
            return Ok(not_held(common, args.json, &asked, &location));
        }
        if !args.json {
            return Ok(Exit::Done);
        }
    }
    let rows = rows(&asked, &held, &waiting);
    if args.json {
        for row in &rows {
            output::print_json(&output::lock_json(row))?;
        }
    } else if rows.is_empty() {
        output::print(&format!(
            "no locks are held in {}\n",
            output::printable(&location)
        ))?;
    } else {
        output::print(&output::table(&location, &rows))?;
    }
    Ok(Exit::Done)
}

/// A row for each holder of a lock, in the order of names: of those that were asked for, held or not, or of all that
/// are held or waited for.
fn rows<'a>(
    asked: &'a [LockName],
    held: &'a [Held],
    waiting: &'a HashMap<LockName, usize>,
) -> Vec<Row<'a>> {
    let mut holders: BTreeMap<&LockName, Vec<&Held>> = BTreeMap::new();
    if asked.is_empty() {
        holders.extend(waiting.keys().map(|name| (name, Vec::new())));
    } else {
        holders.extend(asked.iter().map(|name| (name, Vec::new())));
    }
    for lease in held {
        for name in &lease.names {
            match holders.entry(name) {
                Entry::Occupied(mut known) => known.get_mut().push(lease),
                Entry::Vacant(new) if asked.is_empty() => {
                    new.insert(vec![lease]);
                }
                Entry::Vacant(_) => {}
            }
        }
    }
    let mut rows = Vec::new();
    for (name, holders) in holders {
        let row = |held| Row {
            name,
            held,
            waiting: waiting.get(name).copied().unwrap_or(0),
        };
        if holders.is_empty() {
            rows.push(row(None));
        }
        rows.extend(holders.into_iter().map(|held| row(Some(held))));
    }
    rows
}
