//! Chaos, and a checker: contenders of all kinds on a few locks, while faults are thrown at them. Each critical section proves
//! itself by kernel locks of its own; afterwards its history and every exit status are checked.
//!
//! `TENURE_LAB_SECONDS` makes it longer, and `TENURE_LAB_SEED` another; the same seed draws the same wishes and faults
//! again, though the system schedules them anew.

mod bench;
mod chance;
mod clock;
mod contenders;
mod damage;
mod faults;
mod history;
#[path = "../it/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;

use bench::{BARE, Bench, LOCKS, MEASURED, POOL, lock, now};
use chance::Chance;
use history::Seen;
use support::ms;

/// Enough for a line of a few at each lock, on two cores.
const CONTENDERS: u64 = 16;

/// Who do harm at the same time, so that one fault meets another.
const HARMERS: u64 = 2;

/// No measured hand-off takes longer, where nobody is stopped: far more than it takes on a busy machine, and far less than until
/// the slow tick that stands behind a lost wake-up.
const BOUND: Duration = Duration::from_secs(8);

/// So many of a kind of mistakes are shown.
const FEW: usize = 20;

fn setting(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().expect("a whole number"))
}

/// Notes who is seen in the line, and where. By the note, for a pid may be another's, and is in another namespace.
fn watch(bench: &Bench, stop: &AtomicBool) -> HashMap<u64, Seen> {
    let mut in_line = HashMap::new();
    let connection = bench.sandbox.connect();
    while !stop.load(Ordering::Relaxed) {
        let at = now();
        for (ticket, id) in waiting(&connection).unwrap_or_default() {
            in_line.entry(id).or_insert(Seen { ticket, at });
        }
        std::thread::sleep(ms(8));
    }
    in_line
}

fn waiting(connection: &Connection) -> rusqlite::Result<Vec<(i64, u64)>> {
    let sql =
        "select id, cast(note as integer) from ticket where state = 'waiting' and note is not null";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, u32>(1)?.into())))?;
    rows.collect()
}

#[test]
fn nothing_breaks_whatever_is_done_to_those_who_contend() {
    let seed = setting("TENURE_LAB_SEED", 1);
    let duration = Duration::from_secs(setting("TENURE_LAB_SECONDS", 15));
    let bench = Bench::new();
    let (calm, stop, unseen) = (
        AtomicBool::new(false),
        AtomicBool::new(false),
        AtomicBool::new(false),
    );
    bench
        .sandbox
        .tenure()
        .args(["run", "first", "--", "true"])
        .run()
        .exits(0);
    let (mut complaints, in_line) = std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch(&bench, &unseen));
        let harmers: Vec<_> = (0..HARMERS)
            .map(|which| {
                let (bench, calm) = (&bench, &calm);
                scope.spawn(move || faults::harm(bench, &mut Chance::new(seed, 1000 + which), calm))
            })
            .collect();
        let contenders: Vec<_> = (0..CONTENDERS)
            .map(|which| {
                let (bench, stop) = (&bench, &stop);
                scope.spawn(move || contenders::contend(bench, &mut Chance::new(seed, which), stop))
            })
            .collect();
        std::thread::sleep(duration);
        calm.store(true, Ordering::Relaxed);
        let mut complaints = Vec::new();
        for harmer in harmers {
            complaints.extend(harmer.join().expect("it does not panic"));
        }
        // All who still wait get their turn without any more harm.
        stop.store(true, Ordering::Relaxed);
        for contender in contenders {
            complaints.extend(contender.join().expect("it does not panic"));
        }
        unseen.store(true, Ordering::Relaxed);
        (complaints, watcher.join().expect("it does not panic"))
    });
    let names = LOCKS.into_iter().chain([MEASURED, POOL, BARE]);
    let all = ["run", "-w", "30s"].into_iter().chain(names);
    let words: Vec<&str> = all.chain(["--", "true"]).collect();
    let last = bench.sandbox.tenure().args(words).run();
    if last.code != Some(0) {
        complaints.push(format!("not all locks are free in the end: {last:?}"));
    }
    report(&bench, seed, &complaints, &in_line);
}

fn report(bench: &Bench, seed: u64, complaints: &[String], in_line: &HashMap<u64, Seen>) {
    let history = bench.history();
    let windows = lock(&bench.windows).clone();
    let (placed, overtaken) = history.overtaken(in_line);
    let fences = history.wrong_fences();
    let mut gaps = history.gaps(in_line, &windows);
    gaps.sort_unstable();
    let milliseconds = |at: usize| gaps.get(at).map_or(0, |gap| gap / 1_000_000);
    let connection = bench.sandbox.connect();
    let ask = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    let rows = ask("select (select count(*) from ticket) + (select count(*) from claim)");
    let check: rusqlite::Result<String> =
        connection.query_row("pragma integrity_check", [], |row| row.get(0));
    let left = bench.sandbox.processes();

    let mut summary = format!("seed {seed}: {} sections", history.sections.len());
    let killed = history
        .sections
        .iter()
        .filter(|section| section.ended.is_none());
    let _ = writeln!(summary, ", {} of them killed", killed.count());
    for (fault, count) in lock(&bench.done).iter() {
        let _ = writeln!(summary, "  {fault:?}: {count}");
    }
    let _ = writeln!(
        summary,
        "overlaps {}, wrong fences {}, overtaken {} of {placed} seen in line, wrong exits {}; bare leases that ran out unused {}\n\
         hand-offs measured {}, median {} ms, longest {} ms; rows left {rows:?}, processes left {}, integrity {check:?}",
        history.overlaps.len(),
        fences.len(),
        overtaken.len(),
        complaints.len(),
        bench.late.load(Ordering::Relaxed),
        gaps.len(),
        milliseconds(gaps.len() / 2),
        milliseconds(gaps.len().saturating_sub(1)),
        left.len(),
    );
    let deeds = lock(&bench.deeds);
    for overlap in history.overlaps.iter().step_by(3).take(FEW) {
        summary += &history.around(overlap, &deeds);
    }
    for wrong in [&fences, &overtaken, complaints] {
        for one in wrong.iter().take(FEW) {
            let _ = writeln!(summary, "{one}");
        }
    }
    println!("{summary}");
    let mistakes = [&history.overlaps, &fences, &overtaken, complaints];
    assert!(mistakes.iter().all(|list| list.is_empty()), "see above");
    assert!(
        history.sections.len() > 100,
        "too little happened: {summary}"
    );
    let bound = i64::try_from(BOUND.as_nanos()).expect("seconds");
    assert!(gaps.last().is_none_or(|gap| *gap < bound), "{summary}");
    assert_eq!(check.as_deref(), Ok("ok"), "{summary}");
    assert_eq!(rows, Ok(0), "{summary}");
    assert!(left.is_empty(), "{summary}\n{left:?}");
}
