//! The end of a lease grants the lock to the next in line, where it is known who that is; and where that has changed since, all goes
//! on as ever.

use super::server::Server;
use crate::proxy::Proxy;
use crate::support::{Running, SOON, Sandbox, Signal, state, until};

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
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let far = Sandbox::at(&format!("etcd://127.0.0.1:{}/", proxy.port));
    let direct = server.sandbox();
    proxy.note("min_create_revision");
    let holder = far.holder("A");
    let next = waiter(&server, &direct, 1);
    let stands = std::time::Instant::now();
    until(SOON, "the holder has seen who is next", || {
        proxy.last("min_create_revision") > Some(stands)
    });
    proxy.swallow("request_delete_range", 1);
    holder.end().exits(0).says_nothing();
    assert!(fence(next) > 0);
    assert_eq!(proxy.sprung(), 1);
    let log = direct.tenure().args(["log", "--json"]).run().json();
    let events: Vec<_> = log.iter().map(|event| &event["event"]).collect();
    assert_eq!(events, ["granted", "released", "granted", "released"]);
}

#[test]
fn who_has_left_the_line_is_passed_over() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let holder = sandbox.holder("A");
    let leaver = waiter(&server, &sandbox, 1);
    let next = waiter(&server, &sandbox, 2);
    leaver.signal(Signal::TERM);
    leaver.wait().dies_by(Signal::TERM);
    holder.end().exits(0);
    assert!(fence(next) > 0);
    server.until_in_line("A", 0);
}

#[test]
fn who_is_told_to_end_when_the_lock_is_handed_to_it_gives_it_on() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let holder = sandbox.holder("A");
    let stopped = waiter(&server, &sandbox, 1);
    let next = waiter(&server, &sandbox, 2);
    stopped.signal(Signal::STOP);
    until(SOON, "it is stopped", || state(stopped.pid()) == Some('T'));
    holder.end().exits(0);
    stopped.signal(Signal::TERM);
    stopped.signal(Signal::CONT);
    stopped.wait().dies_by(Signal::TERM).prints_nothing();
    assert!(fence(next) > 0);
    let log = sandbox.tenure().args(["log"]).run();
    assert!(!log.stdout.contains("expired"), "{log:?}");
}
