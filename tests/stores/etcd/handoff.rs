//! The end of a lease grants the lock to the next in line, where it is known who that is; and where that has changed since, all goes
//! on as ever.

use std::time::Instant;

use super::server::Server;
use crate::proxy::Proxy;
use crate::support::{Running, SOON, Sandbox, Signal, state, until};

/// What a holder asks for to know who is next, and nobody else.
const LOOK: &str = "min_create_revision";

/// A server, and a way to it on which it is seen what a holder does.
fn watched() -> (Server, Proxy) {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    proxy.note(LOOK);
    (server, proxy)
}

fn behind(proxy: &Proxy) -> Sandbox {
    Sandbox::at(&format!("etcd://127.0.0.1:{}/", proxy.port))
}

fn until_next_is_known(proxy: &Proxy) {
    // A look that comes after another comes after its answer.
    for _ in 0..2 {
        let before = Instant::now();
        until(SOON, "the holder looks who is next", || {
            proxy.last(LOOK) > Some(before)
        });
    }
}

/// One that waits behind so many, and prints its fence.
fn waiter<'a>(server: &Server, sandbox: &'a Sandbox, before: usize) -> Running<'a> {
    let words = ["run", "-q", "-w", "80s", "--ttl", "6s", "A", "--"];
    let call = sandbox.tenure().args(words);
    let waiter = call.args(["printenv", "TENURE_FENCE"]).start();
    server.until_in_line("A", before + 1);
    waiter
}

#[track_caller]
fn fence(waiter: Running<'_>) -> i64 {
    let outcome = waiter.wait();
    outcome.exits(0);
    outcome.stdout.trim_end().parse().expect("a number")
}

/// How often the log has each of these.
fn counts<const N: usize>(sandbox: &Sandbox, words: [&str; N]) -> [usize; N] {
    let log = log(sandbox);
    words.map(|word| log.iter().filter(|other| *other == word).count())
}

/// The log's events, oldest first.
fn log(sandbox: &Sandbox) -> Vec<String> {
    let outcome = sandbox.tenure().args(["log", "--json"]).run();
    outcome.exits(0);
    let events = outcome.json().into_iter();
    let word = |event: serde_json::Value| event["event"].as_str().expect("a word").to_owned();
    events.map(word).collect()
}

fn stop(waiter: &Running<'_>) {
    waiter.signal(Signal::STOP);
    until(SOON, "it is stopped", || state(waiter.pid()) == Some('T'));
}

#[test]
fn one_change_ends_a_lease_and_grants_the_next() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "5m"]);
    let waiters: Vec<_> = (1..=4)
        .map(|before| waiter(&server, &sandbox, before))
        .collect();
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    let fences: Vec<i64> = waiters.into_iter().map(fence).collect();
    // Each change has a revision of its own, and to end a lease takes none besides. The first of them may end before it knows
    // who is next.
    let steps: Vec<i64> = fences.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(steps[1..].iter().all(|step| *step == 1), "{steps:?}");
}

#[test]
fn an_end_that_was_not_answered_has_handed_the_lock_on_once() {
    let (server, proxy) = watched();
    let (far, direct) = (behind(&proxy), server.sandbox());
    let holder = far.holder("A");
    let next = waiter(&server, &direct, 1);
    until_next_is_known(&proxy);
    proxy.swallow("request_delete_range", 1);
    holder.end().exits(0).says_nothing();
    fence(next);
    assert_eq!(proxy.sprung(), 1);
    assert_eq!(log(&direct), ["granted", "released", "granted", "released"]);
}

#[test]
fn who_has_left_the_line_is_passed_over() {
    let (server, proxy) = watched();
    let (far, direct) = (behind(&proxy), server.sandbox());
    let holder = far.holder("A");
    let leaver = waiter(&server, &direct, 1);
    let next = waiter(&server, &direct, 2);
    until_next_is_known(&proxy);
    leaver.signal(Signal::TERM);
    leaver.wait().dies_by(Signal::TERM);
    holder.end().exits(0).says_nothing();
    fence(next);
    server.until_in_line("A", 0);
    assert_eq!(log(&direct), ["granted", "released", "granted", "released"]);
}

#[test]
fn who_is_told_to_end_when_the_lock_is_handed_to_it_gives_it_on() {
    let (server, proxy) = watched();
    let (far, direct) = (behind(&proxy), server.sandbox());
    let holder = far.holder("A");
    let stopped = waiter(&server, &direct, 1);
    let next = waiter(&server, &direct, 2);
    until_next_is_known(&proxy);
    stop(&stopped);
    holder.end().exits(0);
    stopped.signal(Signal::TERM);
    stopped.signal(Signal::CONT);
    stopped.wait().dies_by(Signal::TERM).prints_nothing();
    fence(next);
    // What was granted to it is in the log, and has an end.
    assert_eq!(counts(&direct, ["granted", "released"]), [3, 3]);
}

#[test]
fn who_sleeps_through_the_lease_that_was_handed_to_it_does_not_enter_by_it() {
    let (server, proxy) = watched();
    let (far, direct) = (behind(&proxy), server.sandbox());
    let holder = far.holder("A");
    let sleeper = waiter(&server, &direct, 1);
    let next = waiter(&server, &direct, 2);
    until_next_is_known(&proxy);
    stop(&sleeper);
    holder.end().exits(0);
    let next = fence(next);
    sleeper.signal(Signal::CONT);
    // It stands in the line anew.
    assert!(fence(sleeper) > next);
    // The lease that it slept through ended by time, and not when it awoke.
    let told = counts(&direct, ["granted", "expired", "released"]);
    assert_eq!(told, [4, 1, 3]);
}

#[test]
fn who_sleeps_while_what_was_handed_to_it_is_taken_away_does_not_run() {
    let (server, proxy) = watched();
    let (far, direct) = (behind(&proxy), server.sandbox());
    let holder = far.holder("A");
    let proof = direct.path("ran");
    let words = ["run", "-q", "-w", "80s", "A", "--", "touch"];
    let sleeper = direct.tenure().args(words).arg(&proof).start();
    server.until_in_line("A", 2);
    until_next_is_known(&proxy);
    stop(&sleeper);
    holder.end().exits(0);
    let key = server.keys("A/").remove(0);
    let lease = key.trim_start_matches("A/");
    server.ask(&["lease", "revoke", lease]);
    let token = direct.acquire(["A"]);
    sleeper.signal(Signal::CONT);
    server.until_in_line("A", 2);
    assert!(!proof.exists(), "it ran beside another");
    let release = direct.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    sleeper.wait().exits(0);
    assert!(proof.exists());
}
