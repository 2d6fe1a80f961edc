//! tenure and flock(1) side by side, in one run: `cargo bench`, or `cargo bench -- PART...` for some of it.
//!
//! Whatever else the machine does strikes both alike, for they take turns; so what counts is the ratios. The times
//! themselves are those of this machine and this moment. At the end comes a table of all figures, in Markdown.

mod contenders;
mod etcd;
mod figures;
mod hand_off;
mod history;
mod leases;
mod locks;
mod machine;
mod processes;
mod section;
mod syncs;
mod uncontended;
mod waiting;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};
use tempfile::TempDir;

use figures::Row;

/// A part of the benchmark, which can be asked for by its name.
struct Part {
    name: &'static str,
    /// Measures in an empty directory of its own.
    measure: fn(&TempDir) -> Result<Vec<Row>>,
}

const PARTS: [Part; 9] = [
    Part {
        name: "uncontended",
        measure: uncontended::measure,
    },
    Part {
        name: "hand-off",
        measure: hand_off::measure,
    },
    Part {
        name: "order",
        measure: hand_off::measure_order,
    },
    Part {
        name: "waiting",
        measure: waiting::measure,
    },
    Part {
        name: "killed",
        measure: hand_off::measure_killed,
    },
    Part {
        name: "fsyncs",
        measure: syncs::measure,
    },
    Part {
        name: "leases",
        measure: leases::measure,
    },
    Part {
        name: "log",
        measure: history::measure,
    },
    Part {
        name: "etcd",
        measure: etcd::measure,
    },
];

/// As tenure itself has it.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let words = std::env::args_os().skip(1);
    let asked: Vec<OsString> = words.filter(|word| word != "--bench").collect();
    let is_known = |word: &OsString| PARTS.iter().any(|part| word == part.name);
    if !asked.iter().all(is_known) {
        let names = PARTS.map(|part| part.name).join(" | ");
        eprintln!("usage: cargo bench [-- PART...], where PART is {names}");
        return ExitCode::from(USAGE);
    }
    let is_asked = |part: &&Part| asked.is_empty() || asked.iter().any(|word| word == part.name);

    let load = machine::load();
    let (mut rows, mut all_done) = (Vec::new(), true);
    for part in PARTS.iter().filter(is_asked) {
        let started = Instant::now();
        eprint!("{} ...", part.name);
        let measured = tempfile::tempdir()
            .context("cannot make a directory")
            .and_then(|directory| (part.measure)(&directory));
        eprintln!(" {:.1} s", started.elapsed().as_secs_f64());
        rows.extend(measured.unwrap_or_else(|error| {
            all_done = false;
            vec![Row::not_measured(part.name, &format!("{error:#}"))]
        }));
    }
    println!("{}\n\n{}", machine::describe(&load), figures::table(&rows));
    if all_done {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
