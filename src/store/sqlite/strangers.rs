//! Who has locked bytes of the guard file that no row of the database names, for a message: the kernel tells, with each
//! process's open files.

use std::collections::BTreeSet;
use std::fs;

use crate::holder;

/// How many are named.
const MOST: usize = 3;

/// `pid 812 (sleep 30)`, or several of these, of those who have locked one of these bytes, as far as it can be told from here.
pub fn of(inode: u64, bytes: &[i64]) -> Option<String> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let pids: BTreeSet<i32> = pids.filter(|pid| has_locked(*pid, inode, bytes)).collect();
    let mut named: Vec<String> = pids
        .iter()
        .take(MOST)
        .copied()
        .map(holder::show_process)
        .collect();
    if pids.len() > MOST {
        named.push(format!("{} more", pids.len() - MOST));
    }
    (!named.is_empty()).then(|| named.join(", "))
}

fn has_locked(pid: i32, inode: u64, bytes: &[i64]) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return false;
    };
    files.flatten().any(|file| {
        let text = fs::read_to_string(file.path()).unwrap_or_default();
        text.lines()
            .any(|line| locked_byte(line, inode).is_some_and(|locked| bytes.contains(&locked)))
    })
}

/// The first byte from a line such as `lock: 1: OFDLCK ADVISORY  WRITE -1 fe:01:1234 4711 4711`, if it is of that inode.
fn locked_byte(line: &str, inode: u64) -> Option<i64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let ["lock:", _, "OFDLCK", _, "WRITE", _, file, start, _] = fields[..] else {
        return None;
    };
    let on_file = file.rsplit(':').next()?.parse() == Ok(inode);
    start.parse().ok().filter(|_| on_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_found_in_what_the_kernel_tells_of_a_file() {
        assert_eq!(
            locked_byte(
                "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:01:1234 4711 4711",
                1234
            ),
            Some(4711)
        );
        for other in [
            "lock:\t1: OFDLCK ADVISORY  WRITE -1 fe:01:1235 4711 4711",
            "lock:\t1: OFDLCK ADVISORY  READ -1 fe:01:1234 4711 4711",
            "lock:\t1: POSIX  ADVISORY  WRITE 812 fe:01:1234 4711 4711",
            "pos:\t0",
            "",
        ] {
            assert_eq!(locked_byte(other, 1234), None, "{other}");
        }
    }
}
