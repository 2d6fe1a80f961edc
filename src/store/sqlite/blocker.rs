//! Who keeps the database locked, for a message: a process that is stopped in the middle of a write, or one that has no
//! business there. Whoever may read a file may lock it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::ops::RangeInclusive;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::ErrorCode;

use super::{file, locks, trust};
use crate::duration::show;
use crate::guard;

/// The bytes of the `-shm` file by which SQLite's writers, checkpointers and recoverers exclude each other
/// (<https://sqlite.org/walformat.html>, "WAL Locks").
const WRITERS: RangeInclusive<u64> = 120..=122;

/// Those who hold up a writer, as far as they can be seen.
fn of(database: &Path) -> BTreeSet<i32> {
    let inode = |ending| fs::metadata(file::beside(database, ending)).map(|found| found.ino());
    let mut pids = BTreeSet::new();
    if let Ok(inode) = inode("-shm") {
        pids.extend(locks::owners(inode, |lock| lock.overlaps(&WRITERS)));
    }
    if let Ok(inode) = inode("-guard") {
        pids.extend(locks::owners(inode, |lock| lock.overlaps(&guard::RESERVED)));
    }
    pids
}

/// What is known of a lock that has kept this process out for so long: `it is locked by pid 812 (sqlite3 l.db), and has been for 10s`.
pub fn about(database: &Path, waited: Duration) -> String {
    let pids = of(database);
    let mut message = String::from("it is locked");
    if let Some(who) = locks::show(&pids) {
        let _ = write!(message, " by {who}");
    }
    let _ = write!(message, ", and has been for {}", show(waited));
    if pids.is_empty() {
        message += ", by a process that cannot be seen from here (root may see it)";
    }
    if let Some(hint) = trust::exposure(database) {
        let _ = write!(message, "; {hint}");
    }
    message
}

/// Who has locked all of the guard file.
pub fn of_all(inode: u64) -> Option<String> {
    let pids = locks::owners(inode, |lock| {
        lock.bytes.end() - lock.bytes.start() > *guard::RESERVED.end()
    });
    locks::show(&pids)
}

/// Whether an error says that others have the database locked.
pub fn is_locked(error: &anyhow::Error) -> bool {
    let code = error
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    matches!(
        code,
        Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
    )
}
