//! How often a `run` makes the disk write through, which can cost more than all the rest: counted by strace(1).

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::figures::{Amount, Figure, Row, Target};
use crate::locks::{Flock, Lock, NAME, Tenure};
use crate::processes::{output, time, version};

/// Enough for the log of the database to grow over what is let stand, more than once.
const RUNS: usize = 50;

/// Its full path, so that it is executed at the first try. It takes a moment: strace makes all else so slow that what is
/// done while CMD runs would end after a shorter one.
const COMMAND: &str = "/bin/sleep";
const MOMENT: &str = "0.1";

const SYNCS: [&str; 6] = [
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "msync",
];

/// When it was done: before, while or after CMD ran.
#[derive(Clone, Copy, Debug, Default)]
struct Syncs {
    before: usize,
    during: usize,
    after: usize,
}

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    if version("strace", "--version").is_none() {
        return Ok(vec![Row::not_measured(
            "fsyncs of an uncontended run",
            "strace is missing",
        )]);
    }
    let mut flock = Flock::new(directory.path()).command();
    flock.args([COMMAND, MOMENT]);
    let mut tenure = Tenure::new(directory.path()).tenure();
    tenure.args(["run", NAME, "--", COMMAND, MOMENT]);
    // The first run makes the database, with as many as that takes.
    time(&mut tenure)?;
    let trace = directory.path().join("trace");
    let mut sums = [Syncs::default(); 2];
    for _ in 0..RUNS {
        for (command, sum) in [&flock, &tenure].into_iter().zip(&mut sums) {
            let calls = format!("trace=execve,{}", SYNCS.join(","));
            let mut traced = Command::new("strace");
            traced
                .args(["-f", "-q", "-e", "signal=none", "-e", &calls, "-o"])
                .arg(&trace);
            traced
                .env_remove("TENURE_TOKEN")
                .arg("--")
                .arg(command.get_program())
                .args(command.get_args());
            output(&mut traced)?;
            let syncs = count(&fs::read_to_string(&trace)?)?;
            sum.before += syncs.before;
            sum.during += syncs.during;
            sum.after += syncs.after;
        }
    }
    let [flock, tenure] = sums;
    let row = |when: &str, flock, tenure, target| {
        Row::Figure(Figure {
            what: format!("fsyncs of uncontended runs, all together, {when}"),
            runs: RUNS,
            other: Some(("flock", Amount::Count(flock))),
            tenure: Amount::Count(tenure),
            target,
        })
    };
    let none = Target::AtMost(Amount::Count(0));
    Ok(vec![
        row("before CMD starts", flock.before, tenure.before, none),
        row("while CMD runs", flock.during, tenure.during, Target::None),
        row("after CMD ends", flock.after, tenure.after, none),
    ])
}

/// From lines such as `812  fsync(6) = 0` and `813  +++ exited with 0 +++`, the first word of which is a pid.
fn count(trace: &str) -> Result<Syncs> {
    let executes = format!("execve(\"{COMMAND}\"");
    let (mut syncs, mut command, mut has_ended) = (Syncs::default(), None, false);
    for line in trace.lines() {
        let (pid, event) = line.split_once(' ').context("a line without a pid")?;
        let event = event.trim_start();
        if event.starts_with(&executes) {
            command = Some(pid);
        }
        has_ended |= command == Some(pid) && event.starts_with("+++");
        // What was interrupted shows twice, the second time as `<... fsync resumed>`.
        if SYNCS
            .iter()
            .any(|call| event.split('(').next() == Some(call))
        {
            *match command {
                None => &mut syncs.before,
                Some(_) if has_ended => &mut syncs.after,
                Some(_) => &mut syncs.during,
            } += 1;
        }
    }
    ensure!(has_ended, "no end of {COMMAND} in {trace}");
    Ok(syncs)
}
