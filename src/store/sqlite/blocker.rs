//! Who keeps the database locked, for a message: the kernel's list of file locks names the process.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::file;
use crate::holder;

/// The bytes of the `-shm` file by which SQLite's writers, checkpointers and recoverers exclude each other
/// (<https://sqlite.org/walformat.html>, "WAL Locks").
const WRITERS: std::ops::RangeInclusive<u64> = 120..=122;

/// How often the list is read before it is believed that no writer is in it.
const LOOKS: usize = 10;

/// `pid 812 (sqlite3 l.db)`, as far as it can be told from here.
pub fn of(database: &Path) -> Option<String> {
    let inode = fs::metadata(file::beside(database, "-shm")).ok()?.ino();
    // The kernel gives the list piecemeal, and what changes meanwhile may hide an entry that does not.
    let pid = (0..LOOKS).find_map(|_| {
        let locks = fs::read_to_string("/proc/locks").ok()?;
        locks.lines().find_map(|line| writer(line, inode))
    })?;
    Some(holder::show_process(&holder::process(pid)))
}

/// The pid from a line such as `3: POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120`, if it is a writer's lock on
/// that inode. Locks of processes in other pid namespaces show as pid 0.
fn writer(line: &str, inode: u64) -> Option<i32> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, "POSIX", _, "WRITE", pid, file, start, end] = fields[..] else {
        return None;
    };
    let on_file = file.rsplit(':').next()?.parse() == Ok(inode);
    let start: u64 = start.parse().ok()?;
    let end: u64 = if end == "EOF" {
        u64::MAX
    } else {
        end.parse().ok()?
    };
    let overlaps = start <= *WRITERS.end() && end >= *WRITERS.start();
    pid.parse()
        .ok()
        .filter(|pid| on_file && overlaps && *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_is_found_in_the_kernels_list() {
        assert_eq!(
            writer("3: POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120", 1234),
            Some(812)
        );
        for other in [
            "3: POSIX  ADVISORY  WRITE 812 fe:01:1235 120 120",
            "3: POSIX  ADVISORY  READ 812 fe:01:1234 120 120",
            "3: POSIX  ADVISORY  WRITE 812 fe:01:1234 123 127",
            "3: OFDLCK ADVISORY  WRITE -1 fe:01:1234 0 EOF",
            "3: -> POSIX  ADVISORY  WRITE 812 fe:01:1234 120 120",
            "3: POSIX  ADVISORY  WRITE 0 fe:01:1234 120 120",
            "",
        ] {
            assert_eq!(writer(other, 1234), None, "{other}");
        }
    }
}
