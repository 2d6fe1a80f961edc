//! A command under a lock that nobody else wants: the whole process, from its start to its end.

use anyhow::Result;
use tempfile::TempDir;

use crate::figures::{Row, Target, Times};
use crate::locks::{Flock, Lock, NAME, Tenure};
use crate::processes::time;

/// Enough for medians that repeat to a few percent on a busy machine, and a 99th percentile that is no single run.
const RUNS: usize = 1000;

/// Before these, caches are cold and the database is being made.
const WARM_UP: usize = 50;

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let mut flock = Flock::new(directory.path()).command();
    flock.arg("true");
    let mut tenure = Tenure::new(directory.path()).tenure();
    tenure.args(["run", NAME, "--", "true"]);

    let mut times = Times::default();
    for run in 0..WARM_UP + RUNS {
        let (of_flock, of_tenure) = (time(&mut flock)?, time(&mut tenure)?);
        if run >= WARM_UP {
            times.other.push(of_flock);
            times.tenure.push(of_tenure);
        }
    }
    let row = |percent, target| {
        times.row(
            "`run x -- true`, uncontended, whole process",
            "flock",
            percent,
            target,
        )
    };
    Ok(vec![
        row(50, Target::Ratio(1.3)),
        row(90, Target::None),
        row(99, Target::None),
    ])
}
