//! What is stored: whatever bytes a database file has, it is looked at, refused or changed without a panic, and what is not tenure's is
//! left as it was.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;

use tenure::lock::{Mode, Request, Token};
use tenure::store::{Durability, Keeping, Purpose, Query, Store, sqlite};
use tenure::{holder, output};

/// In memory, where there is such a file system: a disk would be all that is measured.
static PLACE: LazyLock<PathBuf> = LazyLock::new(|| {
    let place = PathBuf::from(format!("/dev/shm/tenure-fuzz-{}", std::process::id()));
    fs::create_dir_all(&place).expect("a directory");
    place
});

fn look(store: &mut dyn Store) -> anyhow::Result<()> {
    let name = || vec!["A".parse().expect("a name")];
    store.waiting()?;
    for held in store.held(&[])? {
        output::busy(&held.names, &held);
    }
    store.line(&name())?;
    store.held_by(&Token::from_bytes([7; 16]))?;
    store.history(&Query::default())?;
    store.history(&Query {
        names: name(),
        most: Some(3),
        ..Query::default()
    })?;
    Ok(())
}

fn change(store: &mut dyn Store, mode: Mode) -> anyhow::Result<()> {
    let request = Request {
        names: vec!["A".parse().expect("a name"), "B".parse().expect("a name")],
        mode,
        ttl: Duration::from_secs(1),
        at_least: Duration::ZERO,
        enclosing: Vec::new(),
        holder: holder::of_caller(None),
    };
    store.acquire(&request, Keeping::Bare, true)?;
    store.leave()?;
    store.extend(&Token::from_bytes([7; 16]), &[], None)?;
    store.revoke(&request.names, None, true, "a test")?;
    look(store)
}

fuzz_target!(|data: &[u8]| {
    let path = PLACE.join("l.db");
    for entry in fs::read_dir(&*PLACE).expect("it was made").flatten() {
        fs::remove_file(entry.path()).expect("our own");
    }
    fs::write(&path, data).expect("there is room");
    let is_ours = match sqlite::open(Some(&path), Purpose::Look) {
        Ok(Some(mut store)) => {
            let _ = look(&mut store);
            true
        }
        Ok(None) => data.is_empty(),
        Err(_) => false,
    };
    assert_eq!(fs::read(&path).expect("it is there"), data, "it was only looked at");
    for mode in [Mode::Exclusive, Mode::Shared, Mode::Slots(2)] {
        match sqlite::open(Some(&path), Purpose::Take(Durability::Process)) {
            Ok(Some(mut store)) => {
                let _ = change(&mut store, mode);
            }
            Ok(None) => unreachable!("it is made where there is none"),
            // What cannot be looked at is not changed.
            Err(_) if is_ours => {}
            Err(_) => assert_eq!(fs::read(&path).expect("it is there"), data),
        }
    }
});
