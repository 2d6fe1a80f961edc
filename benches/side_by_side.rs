//! tenure and flock(1) side by side, in one run: `cargo bench`.
//!
//! Whole processes, alternating, so that whatever else the machine does strikes both alike. What counts is the
//! ratio of the medians; the times themselves are those of this machine and this moment.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Enough for medians that repeat to a few percent on a busy machine.
const RUNS: usize = 1000;

/// Of all contenders: the first ones of a round find the others still starting.
const HAND_OFF_ROUNDS: usize = 5;

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
    println!(
        "in {}, medians and 90th percentiles in microseconds",
        directory.path().display()
    );
    report("uncontended, whole process, 1000 runs", &times);

    for contenders in [20, 100] {
        let of_flock = || {
            let mut command = Command::new("flock");
            command.arg(&file);
            command
        };
        let of_tenure = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
            command
                .arg("--db")
                .arg(&database)
                .args(["run", "x", "--wait", "forever", "--"]);
            command
        };
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..HAND_OFF_ROUNDS {
            times[0].append(&mut hand_offs(of_flock, contenders));
            times[1].append(&mut hand_offs(of_tenure, contenders));
        }
        report(
            &format!("hand-off, {contenders} contenders, {HAND_OFF_ROUNDS} rounds"),
            &times,
        );
    }
}

fn report(what: &str, [flock, tenure]: &[Vec<Duration>; 2]) {
    let micros = |times: &[Duration], percent| percentile(times, percent).as_micros();
    let ratio = |percent| {
        percentile(tenure, percent).as_secs_f64() / percentile(flock, percent).as_secs_f64()
    };
    println!("{what}");
    println!(
        "  flock   {:>8} {:>8}",
        micros(flock, 50),
        micros(flock, 90)
    );
    println!(
        "  tenure  {:>8} {:>8}",
        micros(tenure, 50),
        micros(tenure, 90)
    );
    println!("  ratio   {:>8.2} {:>8.2}", ratio(50), ratio(90));
}

/// The time from the end of one critical section to the start of the next, among contenders that all wait for the
/// same lock. Each notes the nanoseconds at which it was in and out.
fn hand_offs(command: impl Fn() -> Command, contenders: usize) -> Vec<Duration> {
    let section = "a=$(date +%s%N); b=$(date +%s%N); echo $a $b";
    let started: Vec<Child> = (0..contenders)
        .map(|_| {
            let mut command = command();
            command.args(["sh", "-c", section]).stdin(Stdio::null());
            command.stdout(Stdio::piped()).spawn().expect("it starts")
        })
        .collect();
    let mut sections: Vec<(u64, u64)> = started
        .into_iter()
        .map(|child| {
            let output = child.wait_with_output().expect("it ends");
            assert!(output.status.success(), "{output:?}");
            let text = String::from_utf8(output.stdout).expect("it is text");
            let (begin, end) = text.trim().split_once(' ').expect("two numbers");
            (
                begin.parse().expect("a number"),
                end.parse().expect("a number"),
            )
        })
        .collect();
    sections.sort_unstable();
    let gaps = sections
        .windows(2)
        .map(|pair| pair[1].0.checked_sub(pair[0].1));
    gaps.map(|gap| Duration::from_nanos(gap.expect("one at a time")))
        .collect()
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
