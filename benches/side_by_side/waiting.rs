//! What it costs to wait: processor time and memory of many waiters.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::contenders::{CROWD, Line};
use crate::figures::{Amount, Figure, Row, Target, percentile};
use crate::locks::{Flock, Lock, Tenure};
use crate::processes::{memory, processor_time};

const WAITERS: usize = 1000;

/// How long they are watched. tenure's waiters look around every ten seconds, so each of them does so in this time.
const WATCHED: Duration = Duration::from_secs(10);

/// When each of them has told whom it waits for, as it does once at the beginning.
const SETTLING: Duration = Duration::from_secs(4);

/// What they may use in all meanwhile.
const ALLOWED: Duration = Duration::from_millis(200);

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let (flock, tenure) = (Flock::new(directory.path()), Tenure::new(directory.path()));
    let form = |lock: &dyn Lock, name| {
        // Both lines at once: a directory each, for what goes with a line.
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory)?;
        Line::form(&directory, lock, WAITERS, CROWD)
    };
    let lines = [form(&flock, "flock")?, form(&tenure, "tenure")?];

    thread::sleep(SETTLING);
    let mut before = Vec::new();
    for line in &lines {
        before.push(processor_times(line)?);
    }
    let began = Instant::now();
    // Nothing is waited for here: it is this time that counts.
    thread::sleep(WATCHED);
    let mut used = Vec::new();
    for (line, before) in lines.iter().zip(&before) {
        let after = processor_times(line)?;
        let of_each = before.iter().zip(&after);
        used.push(
            of_each
                .map(|(before, after)| after.saturating_sub(*before))
                .sum::<Duration>(),
        );
    }
    let watched = began.elapsed();

    let mut rows = vec![Row::Figure(Figure {
        what: format!(
            "processor time of {WAITERS} waiters in {:.1} s",
            watched.as_secs_f64()
        ),
        runs: 1,
        other: Some(("flock", Amount::Time(used[0]))),
        tenure: Amount::Time(used[1]),
        target: Target::AtMost(Amount::Time(ALLOWED)),
    })];
    for (what, key) in [
        (
            "peak memory of a waiter, shared libraries included (VmHWM), median",
            "VmHWM",
        ),
        (
            "memory of a waiter that it shares with nobody (RssAnon), median",
            "RssAnon",
        ),
    ] {
        let amount = |line: &Line| {
            let sizes = line.waiters.iter().map(|waiter| memory(waiter.pid(), key));
            let sizes = sizes
                .collect::<Result<Vec<_>>>()
                .context("cannot tell the memory of a waiter")?;
            anyhow::Ok(Amount::Kibibytes(percentile(&sizes, 50)))
        };
        rows.push(Row::Figure(Figure {
            what: what.to_owned(),
            runs: WAITERS,
            other: Some(("flock", amount(&lines[0])?)),
            tenure: amount(&lines[1])?,
            target: Target::None,
        }));
    }
    Ok(rows)
}

fn processor_times(line: &Line) -> Result<Vec<Duration>> {
    line.waiters
        .iter()
        .map(|waiter| processor_time(waiter.pid()))
        .collect()
}
