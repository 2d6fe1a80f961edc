//! Those who contend: each draws what it wants and how, does it, and compares how it ended with what happened to it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;

use crate::bench::{BARE, Bench, Fault, LOCKS, MEASURED, MEMBER, POOL, SLOTS, lock, now};
use crate::chance::Chance;
use crate::support::{Call, Outcome, ms, until};

/// Long enough for the line, in the longest of all runs; whoever waits longer was forgotten.
const PATIENT: &str = "90s";

/// For a lease that time alone keeps: many times what is done under it takes, and short enough to be waited for.
const BARE_TTL: Duration = Duration::from_secs(8);

/// What a section says whose time was over before it began, as in section.c.
const TOO_LATE: i32 = 99;

/// The exit status of a section is one of these, and of nothing else here.
const CODES: std::ops::Range<u64> = 10..60;

/// What one command asks for.
struct Wish {
    /// Options and names, a command for each that is inside of the one before.
    commands: Vec<Vec<String>>,
    /// What the section has to prove.
    specs: Vec<String>,
    /// It may be refused.
    gives_up: bool,
}

/// Contends until it is told to stop. Every one that did not end as it should is a complaint.
pub fn contend(bench: &Bench, chance: &mut Chance, stop: &AtomicBool) -> Vec<String> {
    let mut complaints = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let complaint = match chance.between(0..12) {
            0 => abandon(bench, chance),
            1 | 2 => step_by_step(bench, chance),
            _ => run(bench, chance),
        };
        complaints.extend(complaint.err());
    }
    complaints
}

fn wish(chance: &mut Chance) -> Wish {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let hasty = ["0", "0.03s", "0.3s"];
    let (patience, gives_up) = if chance.once_in(4) {
        (*chance.one_of(&hasty), true)
    } else {
        (PATIENT, false)
    };
    let name = *chance.one_of(&LOCKS);
    let other = LOCKS[usize::from(name == LOCKS[0])];
    let spec = |name: &str, how: &str| format!("{name}/{how}");
    let (commands, specs, gives_up) = match chance.between(0..12) {
        0..3 => (
            vec![words(&["-w", patience, MEASURED])],
            vec![spec(MEASURED, "x")],
            gives_up,
        ),
        3 | 4 => (
            vec![words(&["-w", patience, name])],
            vec![spec(name, "x")],
            gives_up,
        ),
        5 | 6 => (
            vec![words(&["-w", patience, "-s", name])],
            vec![spec(name, "s")],
            gives_up,
        ),
        7 => (
            vec![words(&["-w", patience, name, other])],
            vec![spec(name, "x"), spec(other, "x")],
            gives_up,
        ),
        // Both ways round, so that one of them is told of a deadlock now and then.
        8 => (
            vec![
                words(&["-w", PATIENT, name]),
                words(&["-w", PATIENT, other]),
            ],
            vec![spec(name, "X"), spec(other, "x")],
            true,
        ),
        9 => (
            vec![words(&["-w", patience, BARE, "--at-least", "0.1s"])],
            vec![spec(BARE, "x")],
            gives_up,
        ),
        _ => (
            vec![words(&[
                "-w",
                patience,
                "--slots",
                &SLOTS.to_string(),
                POOL,
            ])],
            vec![spec(POOL, "n")],
            gives_up,
        ),
    };
    Wish {
        commands,
        specs,
        gives_up,
    }
}

/// The section's command line: its own number, for how long, the status it will have, and what it proves.
fn section(
    bench: &Bench,
    chance: &mut Chance,
    id: u64,
    (code, forks): (u64, bool),
    specs: &[String],
) -> Vec<String> {
    let place = bench.place();
    let text = |path: &std::path::Path| path.to_str().expect("the path is text").to_owned();
    let mut words = vec![text(&place.join("section")), text(&place), id.to_string()];
    // What may outlive its supervisor is given the time for it.
    let millis = if forks { 20..150 } else { 0..40 };
    words.push(chance.between(millis).to_string());
    words.push(code.to_string());
    words.push(u64::from(forks).to_string());
    words.extend(specs.iter().cloned());
    words
}

/// Where it runs: as root, as another user, with another pid for itself, since another boot time, by a wrong wall clock.
/// The last is whether what is started is but the parent of it.
fn somewhere<'a>(bench: &'a Bench, chance: &mut Chance) -> (Call<'a>, bool) {
    let sandbox = &bench.sandbox;
    let apart = |words: &[&str]| {
        let unshare = ["unshare", "--fork", "--kill-child"];
        (sandbox.tenure().via([&unshare[..], words].concat()), true)
    };
    match chance.between(0..12) {
        0 => apart(&["--pid", "--mount-proc"]),
        1 => apart(&["--time", "--boottime", "86400"]),
        2 => apart(&["--mount"]),
        3..5 => (sandbox.tenure_as(MEMBER, ""), false),
        5 => (crate::clock::off_by(sandbox, 86_400), false),
        6 => (crate::clock::off_by(sandbox, -86_400), false),
        _ => (sandbox.tenure(), false),
    }
}

fn run(bench: &Bench, chance: &mut Chance) -> Result<(), String> {
    let wish = wish(chance);
    let (id, code) = (bench.new_id(), chance.between(CODES));
    let (mut call, is_parent) = somewhere(bench, chance);
    for (depth, words) in wish.commands.iter().enumerate() {
        if depth > 0 {
            call = call.arg("--").arg(bench.program());
        }
        let common = ["run", "-q", "-k", "1s", "--ttl", "1h"];
        call = call.args(common).args(words);
    }
    // The section's fence is that of the innermost, and so must be the place in the line.
    call = call.args(["--note", &id.to_string()]);
    let forks = chance.once_in(3);
    let words = section(bench, chance, id, (code, forks), &wish.specs);
    let mut bears = vec![Fault::KillSupervisor, Fault::Stop];
    // What CMD leaves behind when it ends by itself goes on without a lock, and is no defect.
    // And unshare cannot die of its child's signal.
    if !forks && !is_parent {
        bears.extend([Fault::Terminate, Fault::StopCommand]);
        if wish.commands.len() == 1 {
            bears.push(Fault::KillCommand);
        }
    }
    bench.note(id, &format!("{:?}", wish.commands));
    let from = now();
    let mut running = call.arg("--").args(&words).start();
    let suffered = bench.until_over(id, &mut running, bears);
    let outcome = running.wait();
    let (status, signal) = (outcome.code, outcome.signal);
    bench.note(id, &format!("{status:?} {signal:?} {suffered:?}"));
    judge(bench, id, code, &wish, &suffered, (from, now()), &outcome)
}

/// Every exit status tells the truth.
fn judge(
    bench: &Bench,
    id: u64,
    code: u64,
    wish: &Wish,
    suffered: &[Fault],
    (from, to): (i64, i64),
    outcome: &Outcome,
) -> Result<(), String> {
    let (entered, left) = bench.history().has(id);
    let complain = |why: &str| Err(format!("{why}: {suffered:?}, {outcome:?}"));
    let was_forced = bench.has_seen(&[Fault::Force], from, to);
    let was_full = bench.has_seen(&[Fault::FillDisk], from, to);
    let deadly = [Fault::KillSupervisor, Fault::KillCommand, Fault::Terminate];
    let was_harmed = suffered.iter().any(|fault| deadly.contains(fault));
    match (outcome.code, outcome.signal) {
        (Some(75), _) if entered => complain("busy, and yet it ran"),
        (Some(75), _) if wish.gives_up => Ok(()),
        (Some(75), _) => complain("it gave up before its time"),
        (Some(69), _) if entered => complain("the store cannot be used, and yet it ran"),
        (Some(69), _) if was_full => Ok(()),
        (Some(76), _) if was_forced => Ok(()),
        (Some(status), _) if u64::try_from(status) == Ok(code) => match (entered, left) {
            (true, true) => Ok(()),
            _ => complain("CMD's status without CMD"),
        },
        // unshare tells the signal that ended its child as a shell does, and a nested tenure may have been ended by it.
        (Some(128..), _) | (_, Some(_)) if was_harmed || was_forced => Ok(()),
        _ => complain("it ended in no way that was to be expected"),
    }
}

/// `acquire`, a section of its own, `extend`, `release`.
fn step_by_step(bench: &Bench, chance: &mut Chance) -> Result<(), String> {
    let sandbox = &bench.sandbox;
    let id = bench.new_id();
    let from = now();
    let note = id.to_string();
    let ttl = format!("{}s", BARE_TTL.as_secs());
    let words = [
        "acquire", "--note", &note, "--json", "-q", "-w", PATIENT, "--ttl", &ttl, BARE,
    ];
    let mut running = sandbox.tenure().args(words).start();
    bench.note(id, "asks for a bare lease");
    let bears = vec![Fault::KillSupervisor, Fault::Terminate];
    let suffered = bench.until_over(id, &mut running, bears);
    let outcome = running.wait();
    bench.note(id, &format!("{:?}, {suffered:?}", outcome.code));
    let was_full = bench.has_seen(&[Fault::FillDisk], from, now());
    if outcome.code != Some(0) {
        let is_expected = !suffered.is_empty() || (outcome.code == Some(69) && was_full);
        // Who was killed may have been granted the lock before: then its time to live frees it.
        return if is_expected {
            Ok(())
        } else {
            Err(format!("acquire failed: {outcome:?}"))
        };
    }
    let answer = outcome.json().remove(0);
    let (token, fence) = (&answer["token"], &answer["fence"]);
    let token = token.as_str().expect("a token").to_owned();
    // Where the machine is so busy that the lease has run out when its token is at hand, that is found here.
    let Some(good_until) = extend(bench, id, &token, from)? else {
        return Ok(());
    };
    let specs = [format!("{BARE}/x")];
    let words = section(bench, chance, id, (0, false), &specs);
    let begin_until = good_until - half_of_it();
    let program = sandbox.program(&words[0]).args(&words[1..]);
    let worked = program
        .env("TENURE_FENCE", fence.to_string())
        .env("LAB_UNTIL", begin_until.to_string())
        .run();
    if worked.code == Some(TOO_LATE) && now() > begin_until {
        bench.late.fetch_add(1, Ordering::Relaxed);
    } else {
        worked.exits(0);
    }
    bench.note(id, "has done its work");
    let good_until = if chance.once_in(2) {
        match extend(bench, id, &token, good_until - 2 * half_of_it())? {
            Some(good_until) => good_until,
            None => return Ok(()),
        }
    } else {
        good_until
    };
    let outcome = with_token(bench, id, "release", &token);
    match outcome.code {
        Some(0) => Ok(()),
        Some(76) if now() > good_until => Ok(()),
        _ => Err(unexpected(bench, id, fence, &outcome)),
    }
}

/// Half the time that a bare lease lives, in nanoseconds.
fn half_of_it() -> i64 {
    i64::try_from(BARE_TTL.as_nanos() / 2).expect("seconds")
}

/// Extends a bare lease that was good for its time to live from `since` on at the least. Until when it is good now; none
/// when it has run out.
fn extend(bench: &Bench, id: u64, token: &str, since: i64) -> Result<Option<i64>, String> {
    let from = now();
    let outcome = with_token(bench, id, "extend", token);
    match outcome.code {
        Some(0) => Ok(Some(from + 2 * half_of_it())),
        Some(76) if now() > since + 2 * half_of_it() => {
            bench.late.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }
        _ => Err(unexpected(bench, id, &Value::Null, &outcome)),
    }
}

/// Extends or releases. A full disk is no reason to keep a lock for ever: it is tried again until there is room, as a person would.
fn with_token(bench: &Bench, id: u64, verb: &str, token: &str) -> Outcome {
    let mut last = None;
    until(ms(90_000), "there is room to extend or release", || {
        let from = now();
        let call = bench.sandbox.tenure().args([verb, "-q", "--token", token]);
        let outcome = call.run();
        let was_full = bench.has_seen(&[Fault::FillDisk], from, now() + 1_000_000_000);
        bench.note(id, &format!("{verb} {:?}", outcome.code));
        let is_answered = outcome.code != Some(69) || !was_full;
        last = Some(outcome);
        is_answered
    });
    last.expect("it was tried")
}

fn unexpected(bench: &Bench, id: u64, fence: &Value, outcome: &Outcome) -> String {
    let deeds = lock(&bench.deeds)[&id].clone();
    let age = bench.age_of(fence.as_i64().unwrap_or_default());
    format!("a lease that nobody took (granted {age} ms ago): {deeds}, {outcome:?}")
}

/// A lease that is forgotten, and ends by its time alone.
fn abandon(bench: &Bench, chance: &mut Chance) -> Result<(), String> {
    let millis = chance.between(50..400);
    let ttl = format!("{millis}ms");
    let from = now();
    let words = ["acquire", "-q", "-w", "1s", "--ttl", &ttl, BARE];
    let outcome = bench.sandbox.tenure().args(words).run();
    match outcome.code {
        Some(0 | 75) => Ok(()),
        Some(69) if bench.has_seen(&[Fault::FillDisk], from, now()) => Ok(()),
        _ => Err(format!("acquire failed: {outcome:?}")),
    }
}
