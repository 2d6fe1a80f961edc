//! Which processes have locked bytes of a guard file, for a message: the kernel tells, with each process's open files.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::locks::{self, Kind};
use crate::holder;
use crate::lock::{Held, Process};

/// How many processes of one orphan are told of at all.
const MOST_OF_ORPHAN: usize = 100;

/// How long it is known who they are: to look through all open files of the system takes a while, and the line of a wait is drawn
/// each second.
const KNOWN_FOR: Duration = Duration::from_secs(5);

/// A byte of a guard file, with the file's inode.
type Byte = (u64, i64);

/// What was seen of orphans.
struct Known {
    at: Instant,
    processes: BTreeMap<Byte, Vec<Process>>,
    are_all: bool,
}

/// `pid 812 (sleep 30)`, or several of these, of those who have locked one of these bytes, as far as it can be told from here.
pub fn of(inode: u64, bytes: &[i64]) -> Option<String> {
    let wanted = bytes.iter().map(|byte| (inode, *byte)).collect();
    let (pids, _) = lockers(&wanted);
    let mut pids: BTreeSet<i32> = pids.into_values().flatten().collect();
    // Who asks may have inherited the descriptor of one.
    pids.remove(&own());
    locks::show(&pids)
}

/// Finds the processes of orphans, as far as they can be seen from here.
pub fn find_orphans(held: &mut [Held]) {
    static KNOWN: Mutex<Option<Known>> = Mutex::new(None);
    let orphans = || held.iter().filter_map(|held| held.orphan.as_ref());
    let wanted: BTreeSet<Byte> = orphans().map(|orphan| orphan.byte).collect();
    if wanted.is_empty() {
        return;
    }
    // It is whole after every statement, whatever panicked in between.
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let is_fresh = known.as_ref().is_some_and(|known| {
        let mut wanted = wanted.iter();
        known.at.elapsed() < KNOWN_FOR && wanted.all(|byte| known.processes.contains_key(byte))
    });
    if !is_fresh {
        let (mut pids, are_all) = lockers(&wanted);
        // Who asks may be one of them, and is about to end.
        let named = wanted.iter().map(|byte| {
            let pids = pids.remove(byte).unwrap_or_default().into_iter();
            let pids = pids.filter(|pid| *pid != own()).take(MOST_OF_ORPHAN);
            (*byte, pids.map(holder::process).collect())
        });
        *known = Some(Known {
            at: Instant::now(),
            processes: named.collect(),
            are_all,
        });
    }
    let Some(known) = &*known else {
        return;
    };
    for orphan in held.iter_mut().filter_map(|held| held.orphan.as_mut()) {
        let processes = known.processes.get(&orphan.byte);
        orphan.processes = processes.cloned().unwrap_or_default();
        orphan.are_all = known.are_all;
    }
}

fn own() -> i32 {
    i32::try_from(std::process::id()).unwrap_or_default()
}

/// Who has locked which of these bytes, and whether nobody else can have.
fn lockers(wanted: &BTreeSet<Byte>) -> (BTreeMap<Byte, BTreeSet<i32>>, bool) {
    let mut found: BTreeMap<Byte, BTreeSet<i32>> = BTreeMap::new();
    let are_all = locks::each_of_open_files(|pid, lock| {
        let first = i64::try_from(*lock.bytes.start()).unwrap_or(i64::MAX);
        let byte = (lock.inode, first);
        if lock.kind == Kind::OpenFile && lock.is_exclusive && wanted.contains(&byte) {
            found.entry(byte).or_default().insert(pid);
        }
    });
    (found, are_all)
}
