//! The critical section, a small program that runs under a lock; and the records that it leaves.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::processes::output;

/// Bytes of a record: three numbers of up to 20 digits, as many as 64 bits take, each with the space or line end
/// after it. As all are of one length, the size of the file tells how many there are.
const RECORD: usize = 3 * 21;

/// One critical section that is over. Moments in nanoseconds on the monotonic clock, which all processes share.
#[derive(Clone, Copy, Debug)]
pub struct Section {
    /// Which of the contenders it was.
    pub number: u64,
    pub began: u64,
    pub ended: u64,
}

/// Nanoseconds on the monotonic clock.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let nanos = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    nanos.try_into().expect("this clock starts at 0")
}

/// The program, which is compiled into this directory unless it is there already.
///
/// # Errors
/// There is no C compiler, or no C library to link statically.
pub fn program(directory: &Path) -> Result<PathBuf> {
    let program = directory.join("section");
    if !program.exists() {
        let source = directory.join("section.c");
        fs::write(&source, include_str!("section.c"))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-static", "-o"]);
        output(compiler.args([&program, &source]))
            .context("cannot compile the critical section")?;
    }
    Ok(program)
}

/// How many records are in the file.
pub fn count(file: &Path) -> usize {
    let bytes = fs::metadata(file).map_or(0, |metadata| metadata.len());
    usize::try_from(bytes).unwrap_or(usize::MAX) / RECORD
}

/// The records of the file, in the order of time.
///
/// # Errors
/// They are none, or two sections overlap.
pub fn read(file: &Path) -> Result<Vec<Section>> {
    let text = fs::read_to_string(file).context("cannot read the sections' records")?;
    let section = |line: &str| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let mut number = || {
            numbers
                .next()
                .context("a number is missing")?
                .context(line.to_owned())
        };
        Ok(Section {
            number: number()?,
            began: number()?,
            ended: number()?,
        })
    };
    let mut sections = text.lines().map(section).collect::<Result<Vec<_>>>()?;
    sections.sort_unstable_by_key(|section| section.began);
    for pair in sections.windows(2) {
        ensure!(
            pair[0].ended <= pair[1].began,
            "two had the lock at once: {pair:?}"
        );
    }
    Ok(sections)
}
