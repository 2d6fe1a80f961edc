//! What /proc shows of the processes, and whether that is all of them.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

use libc::pid_t;

pub struct Process {
    pub pid: pid_t,
    pub parent: pid_t,
    pub group: pid_t,
    /// Some thread of it can still work.
    pub lives: bool,
    /// Clock ticks between the boot and its start: with the number it names a process for ever, since numbers are reused.
    pub started: u64,
}

/// What /proc showed at one look.
#[derive(Default)]
pub struct Sight {
    pub processes: Vec<Process>,
    /// Nothing was hidden and nothing could not be read: whoever is not here was not there.
    pub is_whole: bool,
}

impl Sight {
    /// The descendants of a process, each before its own. `class` says what a process is, knowing what its parent is; those of
    /// which it says nothing are left out, with all that is below them.
    pub fn below<'a, C: Copy>(
        &'a self,
        root: pid_t,
        root_class: C,
        mut class: impl FnMut(&'a Process, C) -> Option<C>,
    ) -> Vec<(&'a Process, C)> {
        let mut children: HashMap<pid_t, Vec<&Process>> = HashMap::new();
        for process in &self.processes {
            children.entry(process.parent).or_default().push(process);
        }
        let mut found = Vec::new();
        let mut parents = vec![(root, root_class)];
        while let Some((parent, class_of_parent)) = parents.pop() {
            // Taken out: the numbers may have been reused between two files, and then even a circle can be seen.
            for process in children.remove(&parent).unwrap_or_default() {
                if let Some(class) = class(process, class_of_parent) {
                    found.push((process, class));
                    parents.push((process.pid, class));
                }
            }
        }
        found
    }
}

/// Every process that can be seen. One walk serves groups and descendants alike, and needs no kernel option.
pub fn look() -> Sight {
    // Of another pid namespace the numbers mean other processes here.
    let is_ours = fs::read_link("/proc/self")
        .is_ok_and(|own| own.as_os_str() == OsStr::new(&std::process::id().to_string()));
    let Some(entries) = is_ours.then(|| fs::read_dir("/proc").ok()).flatten() else {
        return Sight::default();
    };
    let mut sight = Sight {
        processes: Vec::new(),
        is_whole: !is_veiled(),
    };
    for entry in entries {
        let Ok(entry) = entry else {
            sight.is_whole = false;
            continue;
        };
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<pid_t>().ok()) else {
            continue;
        };
        match fs::read(format!("/proc/{pid}/stat")) {
            // The name in it need not be text.
            Ok(stat) => match parse_stat(pid, &String::from_utf8_lossy(&stat)) {
                Some(process) => sight.processes.push(process),
                None => sight.is_whole = false,
            },
            Err(error) if has_ended(&error) => {}
            Err(_) => sight.is_whole = false,
        }
    }
    sight
}

/// Whether an error is that of reading about a process that is there no more.
fn has_ended(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Whether /proc is mounted so that it hides the processes of others, or that cannot be known. Asked once: it is about how the
/// machine or the container was set up.
fn is_veiled() -> bool {
    static VEILED: OnceLock<bool> = OnceLock::new();
    *VEILED.get_or_init(|| {
        let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
        !shows_all(&String::from_utf8_lossy(&mounts))
    })
}

/// From proc(5)'s `36 35 98:0 / /proc rw - proc proc rw,hidepid=invisible`: of several mounts at a place the last is on top.
fn shows_all(mounts: &str) -> bool {
    let on_top = mounts
        .lines()
        .rfind(|line| line.split(' ').nth(4) == Some("/proc"));
    let Some((_, source)) = on_top.and_then(|line| line.split_once(" - ")) else {
        return false;
    };
    let mut fields = source.split(' ');
    let kind = fields.next();
    let options = fields.nth(1).unwrap_or_default();
    kind == Some("proc")
        && options
            .split(',')
            .filter_map(|option| option.strip_prefix("hidepid="))
            .all(|value| matches!(value, "0" | "off"))
}

/// From proc(5)'s `pid (name) state ppid pgrp …`; the name may hold anything, parentheses too.
fn parse_stat(pid: pid_t, stat: &str) -> Option<Process> {
    let fields: Vec<&str> = stat
        .get(stat.rfind(')')? + 1..)?
        .split_whitespace()
        .collect();
    // A process whose first thread has ended looks like a zombie, and its other threads go on: the field counts the first too.
    let has_threads = fields.get(17)?.parse::<u64>().ok()? > 1;
    Some(Process {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        lives: has_threads || !matches!(fields[0], "Z" | "X"),
        started: fields.get(19)?.parse().ok()?,
    })
}

/// The value that a variable had when a process became its program; none where it had none.
///
/// # Errors
/// Its environment cannot be read.
pub fn variable(pid: pid_t, name: &str) -> io::Result<Option<Vec<u8>>> {
    let environment = fs::read(format!("/proc/{pid}/environ"))?;
    let value = environment.split(|byte| *byte == 0).find_map(|entry| {
        let value = entry.strip_prefix(name.as_bytes())?;
        value.strip_prefix(b"=")
    });
    Ok(value.map(<[u8]>::to_vec))
}

/// Whether a process has a descriptor of this file, which is known by what /proc calls it.
///
/// # Errors
/// Its descriptors cannot be read.
pub fn has_open(pid: pid_t, file: &Path) -> io::Result<bool> {
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        match fs::read_link(entry?.path()) {
            Ok(open) if open.as_os_str().as_bytes() == file.as_os_str().as_bytes() => {
                return Ok(true);
            }
            Ok(_) => {}
            Err(error) if has_ended(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel writes it: state, parent and group, and then numbers up to the start.
    fn stat(name: &str, state: &str, threads: u32) -> String {
        format!("7 ({name}) {state} 42 41 40 0 -1 0 0 0 0 0 0 0 0 0 20 0 {threads} 0 99 1 2")
    }

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let process = parse_stat(7, &stat("a) Z 1 2 (x", "S", 1)).unwrap();
        assert_eq!(
            (
                process.parent,
                process.group,
                process.lives,
                process.started
            ),
            (42, 41, true, 99)
        );
        assert!(!parse_stat(7, &stat("sh", "Z", 1)).unwrap().lives);
        assert!(parse_stat(7, "7").is_none());
        assert!(parse_stat(7, "7 (sh) S 42 41").is_none());
    }

    #[test]
    fn a_process_lives_while_any_of_its_threads_does() {
        assert!(parse_stat(7, &stat("sh", "Z", 2)).unwrap().lives);
    }

    #[test]
    fn it_is_known_whether_proc_hides_processes() {
        let mount = |point: &str, options: &str| {
            format!("36 35 0:5 / {point} rw,nosuid shared:1 - proc proc {options}\n")
        };
        assert!(shows_all(&mount("/proc", "rw")));
        assert!(shows_all(&mount("/proc", "rw,hidepid=0,gid=4")));
        for option in [
            "hidepid=2",
            "hidepid=1",
            "hidepid=invisible",
            "hidepid=ptraceable",
        ] {
            assert!(!shows_all(&mount("/proc", &format!("rw,gid=4,{option}"))));
        }
        let (open, veiled) = (mount("/proc", "rw"), mount("/proc", "rw,hidepid=2"));
        assert!(!shows_all(&format!("{open}{veiled}")), "the last is on top");
        assert!(!shows_all(&mount("/mnt/proc", "rw")));
        assert!(!shows_all("36 35 0:5 / /proc rw - tmpfs tmpfs rw\n"));
        assert!(!shows_all(""));
    }

    #[test]
    fn descendants_are_found_through_numbers_in_a_circle() {
        let process = |pid, parent| Process {
            pid,
            parent,
            group: 1,
            lives: true,
            started: 1,
        };
        let sight = Sight {
            processes: vec![process(2, 1), process(3, 2), process(4, 9), process(1, 3)],
            is_whole: true,
        };
        let found = sight.below(1, (), |_, ()| Some(()));
        let pids: Vec<pid_t> = found.iter().map(|(process, ())| process.pid).collect();
        assert_eq!(pids, [2, 3, 1]);
    }
}
