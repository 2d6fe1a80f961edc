//! Which processes have locked bytes of a guard file, for a message: the kernel tells, with each process's open files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::holder;
use crate::lock::{Held, Process};

/// How many are named of those that no row names.
const MOST: usize = 3;

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
    let pids: BTreeSet<i32> = pids.into_values().flatten().collect();
    let first = pids.iter().take(MOST).copied().map(holder::process);
    let mut named: Vec<String> = first
        .map(|process| holder::show_process(&process))
        .collect();
    if pids.len() > MOST {
        named.push(format!("{} more", pids.len() - MOST));
    }
    (!named.is_empty()).then(|| named.join(", "))
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
        let own = i32::try_from(std::process::id()).unwrap_or_default();
        let named = wanted.iter().map(|byte| {
            let pids = pids.remove(byte).unwrap_or_default().into_iter();
            let pids = pids.filter(|pid| *pid != own).take(MOST_OF_ORPHAN);
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

/// Who has locked which of these bytes, and whether nobody else can have: others' open files are for root alone to see.
fn lockers(wanted: &BTreeSet<Byte>) -> (BTreeMap<Byte, BTreeSet<i32>>, bool) {
    let mut found: BTreeMap<Byte, BTreeSet<i32>> = BTreeMap::new();
    let mut are_all = rustix::process::geteuid().is_root();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    for pid in processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()) {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        // The first process of all, which not even root may look at everywhere, is of no job.
        are_all &= pid == 1
            || !files
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::PermissionDenied);
        for file in files.into_iter().flatten().flatten() {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            let locked = text.lines().filter_map(locked_byte);
            for byte in locked.filter(|byte| wanted.contains(byte)) {
                found.entry(byte).or_default().insert(pid);
            }
        }
    }
    (found, are_all)
}

/// The first byte from a line such as `lock: 1: OFDLCK ADVISORY  WRITE -1 fe:01:1234 4711 4711`, and the inode.
fn locked_byte(line: &str) -> Option<Byte> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let ["lock:", _, "OFDLCK", _, "WRITE", _, file, start, _] = fields[..] else {
        return None;
    };
    Some((file.rsplit(':').next()?.parse().ok()?, start.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_in_what_the_kernel_tells_of_a_file() {
        assert_eq!(
            locked_byte("lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:01:1234 4711 4711"),
            Some((1234, 4711))
        );
        for other in [
            "lock:\t1: OFDLCK ADVISORY  READ -1 fe:01:1234 4711 4711",
            "lock:\t1: POSIX  ADVISORY  WRITE 812 fe:01:1234 4711 4711",
            "pos:\t0",
            "",
        ] {
            assert_eq!(locked_byte(other), None, "{other}");
        }
    }
}
