//! From one holder to the next: how long it takes, in which order they enter, and what a killed holder costs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::contenders::{CROWD, Line, ONE_BY_ONE};
use crate::figures::{Amount, Figure, Row, Target, Times};
use crate::locks::{Flock, Lock, Tenure};
use crate::section::Section;

/// How many contend, in how many rounds: a hand-off to each of them, and enough of these for a 99th percentile.
const LINES: [(usize, usize); 3] = [(20, 40), (100, 10), (1000, 2)];

/// Contenders whose order of arrival is known, and rounds.
const ORDERED: (usize, usize) = (100, 3);

/// Holders that are killed, and as many that end by themselves.
const KILLED: usize = 100;

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let directory = directory.path();
    let (flock, tenure) = (Flock::new(directory), Tenure::new(directory));
    let mut rows = Vec::new();
    for (contenders, rounds) in LINES {
        let times = compare(directory, [&flock, &tenure], contenders, rounds)?;
        let what = format!("hand-off, {contenders} contenders");
        // The targets are for many.
        let targets = if contenders < 100 {
            [Target::None, Target::None]
        } else {
            [Target::Ratio(1.0), Target::Ratio(2.0)]
        };
        rows.push(times.row(&what, "flock", 50, targets[0]));
        rows.push(times.row(&what, "flock", 99, targets[1]));
    }
    Ok(rows)
}

/// Hand-offs of the other's lock and of tenure's, in turn.
///
/// # Errors
/// A command failed.
pub fn compare(
    directory: &Path,
    [other, tenure]: [&dyn Lock; 2],
    contenders: usize,
    rounds: usize,
) -> Result<Times> {
    let mut times = Times::default();
    for _ in 0..rounds {
        for (lock, times) in [(other, &mut times.other), (tenure, &mut times.tenure)] {
            let sections = Line::form(directory, lock, contenders, CROWD)?.pass()?;
            times.extend(hand_offs(&sections));
        }
    }
    Ok(times)
}

/// From the end of each section to the start of the next.
fn hand_offs(sections: &[Section]) -> impl Iterator<Item = Duration> {
    let pairs = sections.windows(2);
    pairs.map(|pair| Duration::from_nanos(pair[1].began.saturating_sub(pair[0].ended)))
}

/// # Errors
/// A command failed.
pub fn measure_order(directory: &TempDir) -> Result<Vec<Row>> {
    let directory = directory.path();
    let (contenders, rounds) = ORDERED;
    let inversions = |lock: &dyn Lock| {
        let mut sum = 0;
        for _ in 0..rounds {
            let sections = Line::form(directory, lock, contenders, ONE_BY_ONE)?.pass()?;
            sum += inversions(&sections);
        }
        anyhow::Ok(sum)
    };
    let (of_flock, of_tenure) = (
        inversions(&Flock::new(directory))?,
        inversions(&Tenure::new(directory))?,
    );
    Ok(vec![Row::Figure(Figure {
        what: format!(
            "order of entry, {contenders} contenders: pairs that entered the wrong way round"
        ),
        runs: rounds,
        other: Some(("flock", Amount::Count(of_flock))),
        tenure: Amount::Count(of_tenure),
        target: Target::AtMost(Amount::Count(0)),
    })])
}

/// Pairs of which the one that came later entered first.
fn inversions(sections: &[Section]) -> usize {
    let later = |(at, section): (usize, &Section)| {
        let after = sections[at + 1..].iter();
        after.filter(|other| other.number < section.number).count()
    };
    sections.iter().enumerate().map(later).sum()
}

/// # Errors
/// A command failed.
pub fn measure_killed(directory: &TempDir) -> Result<Vec<Row>> {
    let directory = directory.path();
    let tenure = Tenure::new(directory);
    let form = || Line::form(directory, &tenure, 1, CROWD);
    let mut times = Times::default();
    for _ in 0..KILLED {
        times.other.extend(hand_offs(&form()?.pass()?));
        let (killed, sections) = form()?.kill_holder()?;
        let next = sections.first().context("nobody came next")?;
        times
            .tenure
            .push(Duration::from_nanos(next.began.saturating_sub(killed)));
    }
    let row = |percent, target| {
        times.row(
            "`kill -9` of the holder to the next one's start",
            "normal hand-off",
            percent,
            target,
        )
    };
    Ok(vec![row(50, Target::Ratio(2.0)), row(99, Target::None)])
}
