//! Jobs that must be alone, and say so when they are not; and which number one is given.

use std::fs;
use std::path::PathBuf;

use crate::support::{Running, Sandbox};

/// Runs a program as on another host: with a name, a boot and pids of its own.
const ON_ANOTHER_HOST: [&str; 8] = [
    "unshare",
    "-mupf",
    "--mount-proc",
    "--kill-child",
    "sh",
    "-c",
    "echo other >/proc/sys/kernel/hostname && mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"",
    "sh",
];

/// What all of them have written.
pub struct Sections(PathBuf);

impl Sections {
    pub fn of(sandbox: &Sandbox) -> Self {
        fs::write(sandbox.path("boot_id"), "another\n").expect("our own");
        Self(sandbox.path("sections"))
    }

    /// One that waits for the lock A, runs under it, and writes its number and its fence. Every other is on another host.
    pub fn contender<'a>(&self, sandbox: &'a Sandbox, number: usize, pause: &str) -> Running<'a> {
        // Who finds another inside says so; a kernel lock of its own proves it.
        let script = format!(
            "exec 9>>{0}.proof; flock -n 9 || echo overlap >> {0}; echo {number} $TENURE_FENCE >> {0}; sleep {pause}",
            self.0.display()
        );
        let words = ["run", "-q", "-w", "80s", "--ttl", "20s", "A"];
        let call = sandbox.tenure().args(words);
        let call = call.args(["--", "sh", "-c", &script]);
        if number.is_multiple_of(2) {
            call.start()
        } else {
            call.via(ON_ANOTHER_HOST).start()
        }
    }

    pub fn count(&self) -> usize {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        text.lines().count()
    }

    /// All have entered, in the order of their numbers, one at a time, and each with a larger fence than the one before.
    #[track_caller]
    pub fn are_in_order(&self, count: usize) {
        let text = fs::read_to_string(&self.0).expect("they ran");
        let section = |line: &str| -> (usize, i64) {
            let (number, fence) = line.split_once(' ').expect("no overlap");
            let fence = fence.parse().expect("a number");
            (number.parse().expect("a number"), fence)
        };
        let sections: Vec<_> = text.lines().map(section).collect();
        let order = sections.iter().map(|(number, _)| *number);
        assert!(order.eq(0..count), "{sections:?}");
        let is_sorted = sections.is_sorted_by(|(_, one), (_, next)| one < next);
        assert!(is_sorted, "{sections:?}");
    }
}
