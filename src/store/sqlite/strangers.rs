//! Who has locked bytes of the guard file that no row of the database names, for a message.

use super::locks::{self, Kind};

/// `pid 812 (sleep 30)`, or several of these, of those who have locked one of these bytes, as far as it can be told from here.
pub fn of(inode: u64, bytes: &[i64]) -> Option<String> {
    let is_one = |start: u64| bytes.iter().any(|byte| u64::try_from(*byte) == Ok(start));
    let pids = locks::owners(inode, |lock| {
        lock.kind == Kind::OpenFile && lock.is_exclusive && is_one(*lock.bytes.start())
    });
    locks::show(&pids)
}
