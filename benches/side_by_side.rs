//! tenure and flock(1) side by side, in one run: `cargo bench`.
//!
//! Whole processes, alternating, so that whatever else the machine does strikes both alike. What counts is the
//! ratio of the medians; the times themselves are those of this machine and this moment.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Enough for medians that repeat to a few percent on a busy machine.
const RUNS: usize = 1000;

/// Before these, caches are cold and the database is being made.
const WARM_UP: usize = 50;

fn main() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = directory.path().join("f");
    let database = directory.path().join("l.db");
    let mut flock = Command::new("flock");
    flock.arg(&file).arg("true");
    let mut tenure = Command::new(env!("CARGO_BIN_EXE_tenure"));
    tenure
        .arg("--db")
        .arg(&database)
        .args(["run", "x", "--", "true"]);

    let mut times = [Vec::new(), Vec::new()];
    for run in 0..WARM_UP + RUNS {
        for (command, times) in [&mut flock, &mut tenure].into_iter().zip(&mut times) {
            let time = timed(command);
            if run >= WARM_UP {
                times.push(time);
            }
        }
    }
    let [flock, tenure] = times;
    println!(
        "uncontended, whole process, {RUNS} runs each, in {}",
        directory.path().display()
    );
    println!("                   median   90th percentile, in microseconds");
    for (name, times) in [("flock f true", &flock), ("run x -- true", &tenure)] {
        println!(
            "{name:16} {:>8} {:>8}",
            percentile(times, 50).as_micros(),
            percentile(times, 90).as_micros()
        );
    }
    let ratio = |p| percentile(&tenure, p).as_secs_f64() / percentile(&flock, p).as_secs_f64();
    println!("tenure / flock   {:>8.2} {:>8.2}", ratio(50), ratio(90));
}

fn timed(command: &mut Command) -> Duration {
    let began = Instant::now();
    let status = command
        .stdin(Stdio::null())
        .status()
        .expect("the command starts");
    assert!(status.success(), "{command:?}: {status}");
    began.elapsed()
}

/// Nearest rank.
fn percentile(times: &[Duration], percent: usize) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted[(sorted.len() * percent).div_ceil(100) - 1]
}
