//! `tenure __names`: the names of the locks that are held, waited for or were not long ago, one a line, for the completions of
//! shells.
//!
//! Somebody has pressed Tab: whatever is wrong with the store, nothing is said, and nobody waits for long.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::cli::{Common, Names};
use crate::exit::Exit;
use crate::lock::LockName;
use crate::output;
use crate::store::{self, Purpose, Query};

/// How long a shell can be kept from its user before it seems to hang.
const PATIENCE: Duration = Duration::from_secs(1);

/// How many entries of the log are looked at: those of some days, where a job runs every five minutes.
const RECENT: usize = 1000;

pub fn run(args: &Names, common: &Common) -> Exit {
    let (answer, answered) = mpsc::channel();
    let (db, past) = (common.db.clone(), args.past);
    // The store waits 10 s for whoever has locked its file. The thread that does ends with the process.
    thread::spawn(move || answer.send(in_use(db.as_deref(), past)));
    if let Ok(Ok(names)) = answered.recv_timeout(PATIENCE) {
        let lines = names.into_iter().map(|name| name.to_string() + "\n");
        // Whoever is not answered completes nothing, as where there is nothing.
        let _ = output::print(&lines.collect::<String>());
    }
    Exit::Done
}

/// Those that can be given on a command line: one that begins with `-` would be an option there.
fn in_use(db: Option<&Path>, past: bool) -> Result<BTreeSet<LockName>> {
    let Some(mut store) = store::open(db, Purpose::Look)? else {
        return Ok(BTreeSet::new());
    };
    let mut names: BTreeSet<LockName> = store.waiting()?.into_keys().collect();
    names.extend(store.held(&[])?.into_iter().flat_map(|held| held.names));
    if past {
        let recent = Query {
            most: Some(RECENT),
            ..Query::default()
        };
        let entries = store.history(&recent)?.written;
        names.extend(entries.into_iter().flat_map(|entry| entry.names));
    }
    names.retain(|name| !name.as_str().starts_with('-'));
    Ok(names)
}
