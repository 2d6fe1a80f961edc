//! Who has locked a file, for a message: the kernel tells it of every process that this one may look at.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::ops::RangeInclusive;

use crate::holder;

/// How many processes are named.
const MOST: usize = 3;

/// How often the list of all locks is read before it is believed that one is not in it: the kernel gives it piecemeal, and
/// what changes meanwhile may hide an entry that does not.
const LOOKS: usize = 10;

/// Whose locks are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Of a process, as SQLite's are.
    Process,
    /// Of an open file, as those of the guard file are. The list of all locks does not say who has it open.
    OpenFile,
}

/// A lock on some bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lock {
    pub kind: Kind,
    pub is_exclusive: bool,
    /// Of the process that has it; none of an open file's, or out of sight in another pid namespace.
    pid: Option<i32>,
    pub inode: u64,
    pub bytes: RangeInclusive<u64>,
}

impl Lock {
    /// From a line of `/proc/locks`, or the same behind `lock:` in `/proc/PID/fdinfo`, such as
    /// `3: POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120`. None of one that only waits, and of other kinds.
    fn from_line(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, kind, _, access, pid, file, start, end] = fields[..] else {
            return None;
        };
        let end = if end == "EOF" {
            u64::MAX
        } else {
            end.parse().ok()?
        };
        Some(Self {
            kind: match kind {
                "POSIX" => Kind::Process,
                "OFDLCK" => Kind::OpenFile,
                _ => return None,
            },
            is_exclusive: access == "WRITE",
            pid: pid.parse().ok().filter(|pid| *pid > 0),
            inode: file.rsplit(':').next()?.parse().ok()?,
            bytes: start.parse().ok()?..=end,
        })
    }

    pub fn overlaps(&self, bytes: &RangeInclusive<u64>) -> bool {
        self.bytes.start() <= bytes.end() && self.bytes.end() >= bytes.start()
    }
}

/// The other processes that have such a lock on the file of this inode, as far as they can be seen from here.
pub fn owners(inode: u64, is_meant: impl Fn(&Lock) -> bool) -> BTreeSet<i32> {
    let is_meant = |lock: &Lock| lock.inode == inode && is_meant(lock);
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let mut pids = BTreeSet::new();
    for _ in 0..LOOKS {
        let list = fs::read_to_string("/proc/locks").unwrap_or_default();
        let locks = list.lines().filter_map(Lock::from_line);
        pids.extend(locks.filter(&is_meant).filter_map(|lock| lock.pid));
        if !pids.is_empty() {
            break;
        }
    }
    each_of_open_files(|pid, lock| {
        if is_meant(lock) {
            pids.insert(pid);
        }
    });
    pids.remove(&own);
    pids
}

/// Goes through the locks of all files that a process has open. False where it was not shown all of them: others' open files are for
/// root alone to see.
pub fn each_of_open_files(mut found: impl FnMut(i32, &Lock)) -> bool {
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
            let lines = text.lines().filter_map(|line| line.strip_prefix("lock:"));
            for lock in lines.filter_map(Lock::from_line) {
                found(pid, &lock);
            }
        }
    }
    are_all
}

/// `pid 812 (sleep 30)`, or several of these; none where there are none.
pub fn show(pids: &BTreeSet<i32>) -> Option<String> {
    let mut named: Vec<String> = pids
        .iter()
        .take(MOST)
        .copied()
        .map(|pid| holder::show_process(&holder::process(pid)))
        .collect();
    if pids.len() > MOST {
        named.push(format!("{} more", pids.len() - MOST));
    }
    (!named.is_empty()).then(|| named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_read_as_the_kernel_tells_it() {
        let lock = Lock::from_line("3: POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120").unwrap();
        assert_eq!(
            (lock.kind, lock.is_exclusive, lock.pid, lock.inode),
            (Kind::Process, true, Some(812), 1234)
        );
        assert!(lock.overlaps(&(120..=122)) && !lock.overlaps(&(121..=122)));
        let lock = Lock::from_line("\t1: OFDLCK ADVISORY  READ -1 fe:01:1234 0 EOF").unwrap();
        assert_eq!(
            (lock.kind, lock.is_exclusive, lock.pid),
            (Kind::OpenFile, false, None)
        );
        assert!(lock.overlaps(&(4711..=4711)));
        let out_of_sight = Lock::from_line("3: POSIX  ADVISORY  WRITE 0 fe:01:1234 120 120");
        assert_eq!(out_of_sight.unwrap().pid, None);
        for other in [
            "3: -> POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120",
            "3: FLOCK  ADVISORY  WRITE 812 fe:01:1234 0 EOF",
            "pos:\t0",
            "",
        ] {
            assert_eq!(Lock::from_line(other), None, "{other}");
        }
    }
}
