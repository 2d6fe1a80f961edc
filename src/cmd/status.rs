//! `tenure status`: who holds what, or whether one's own lease still lives.

use anyhow::Result;

use super::{not_held, place, sorted};
use crate::cli::{Common, Status};
use crate::exit::Exit;
use crate::lock::{Held, LockName};
use crate::output;
use crate::store::Store;
use crate::store::sqlite::{self, Purpose};

/// # Errors
/// The store cannot be used, or the answer not be written.
pub fn run(args: &Status, common: &Common) -> Result<Exit> {
    let mut store = sqlite::open(common.db.as_deref(), Purpose::Look)?;
    let location = match &store {
        Some(store) => place(store),
        None => sqlite::default_location()?,
    };
    let asked = sorted(&args.names);
    if let Some(token) = args.token {
        let held = store
            .as_mut()
            .map_or(Ok(None), |store| store.held_by(&token))?;
        return own(held.as_ref(), &asked, args.json, common, &location);
    }
    let held = store
        .as_mut()
        .map_or(Ok(Vec::new()), |store| store.held(&asked))?;
    let rows = rows(&asked, &held);
    if args.json {
        for (name, held) in rows {
            output::print_json(&output::lock_json(name, held))?;
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

/// Whether the lease that a token shows lives, and holds what was asked about.
fn own(
    held: Option<&Held>,
    asked: &[LockName],
    json: bool,
    common: &Common,
    location: &str,
) -> Result<Exit> {
    let holds_all = |held: &&Held| asked.iter().all(|name| held.names.contains(name));
    let Some(held) = held.filter(holds_all) else {
        return Ok(not_held(common, json, asked, location));
    };
    if json {
        for name in &held.names {
            output::print_json(&output::lock_json(name, Some(held)))?;
        }
    }
    Ok(Exit::Done)
}

/// A row a lock, in the order of names: those that were asked for, held or not, or all that are held.
fn rows<'a>(asked: &'a [LockName], held: &'a [Held]) -> Vec<(&'a LockName, Option<&'a Held>)> {
    if !asked.is_empty() {
        return asked
            .iter()
            .map(|name| (name, held.iter().find(|held| held.names.contains(name))))
            .collect();
    }
    let mut rows: Vec<_> = held
        .iter()
        .flat_map(|held| held.names.iter().map(move |name| (name, Some(held))))
        .collect();
    rows.sort_by_key(|(name, _)| *name);
    rows
}
