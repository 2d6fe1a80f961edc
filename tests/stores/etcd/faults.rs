//! The server is stopped, killed or cut off: no two holders, no job that outlives its lease, and no word that helps nobody.

use std::time::{Duration, Instant};

use super::server::Server;
use crate::conformance::fence;
use crate::proxy::Proxy;
use crate::support::{Running, SOON, Sandbox, Signal, is_alive, ms, stays, throughout, until};

const RENEWAL: &str = "POST /v3/lease/keepalive";
const CHANGE: &str = "POST /v3/kv/txn";
const END: &str = "POST /v3/lease/revoke";
const BEGINNING: &str = "POST /v3/lease/grant";

fn behind(proxy: &Proxy) -> Sandbox {
    Sandbox::at(&format!("etcd://127.0.0.1:{}/", proxy.port))
}

/// A `run` whose job prints its pid and then does this.
fn job<'a>(sandbox: &'a Sandbox, ttl: &str, rest: &str) -> (Running<'a>, i32) {
    let script = format!("{rest} echo $$; echo ready; while :; do sleep 0.2; done");
    let words = ["run", "--ttl", ttl, "A", "--", "sh", "-c", &script];
    let mut run = sandbox.tenure().args(words).start();
    run.await_line("ready");
    let stdout = run.stdout();
    let pid = stdout.lines().next().and_then(|line| line.parse().ok());
    (run, pid.expect("a pid"))
}

#[test]
fn a_job_is_dead_before_its_lease_ends_at_a_server_that_stands_still() {
    let server = Server::start();
    for rest in ["", "trap '' TERM;"] {
        let proxy = Proxy::to(server.port);
        proxy.note(RENEWAL);
        let sandbox = behind(&proxy);
        let (run, pid) = job(&sandbox, "10s", rest);
        until(SOON, "it is renewed", || proxy.last(RENEWAL).is_some());
        let last = proxy.last(RENEWAL).expect("it was waited for");
        server.stop();
        let stopped = Instant::now();
        until(SOON, "the job is dead", || !is_alive(pid));
        let (after, took) = (last.elapsed(), stopped.elapsed());
        assert!(
            after < Duration::from_secs(10),
            "{after:?} after the last renewal"
        );
        assert!(took > ms(2000), "it was stopped after {took:?}");
        let outcome = run.wait();
        // It does not try for long to give back what time ends.
        let all = stopped.elapsed();
        assert!(
            all < took + ms(3900),
            "{all:?}, with a job that was dead after {took:?}"
        );
        outcome.exits(76);
        assert!(
            outcome.stderr.contains("could not be renewed in time"),
            "{outcome:?}"
        );
        server.resume();
        // Nobody is in the way of the next for longer than the lease says.
        assert!(fence(&server.sandbox(), "A") > 0);
    }
}

#[test]
fn a_job_goes_on_when_the_server_stands_still_for_less_than_its_time_to_live() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    proxy.note(RENEWAL);
    let sandbox = behind(&proxy);
    let (mut run, pid) = job(&sandbox, "12s", "");
    until(SOON, "it is renewed", || proxy.last(RENEWAL).is_some());
    server.stop();
    throughout(ms(3500), "it runs", || is_alive(pid) && !run.is_over());
    server.resume();
    let resumed = Instant::now();
    until(SOON, "it is renewed again", || {
        proxy.last(RENEWAL) > Some(resumed)
    });
    throughout(ms(9000), "it runs", || is_alive(pid) && !run.is_over());
    assert!(sandbox.is_busy("A"));
    run.signal(Signal::TERM);
    run.wait().dies_by(Signal::TERM);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_job_goes_on_when_the_server_is_killed_and_started_again_within_its_time_to_live() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    let (mut run, pid) = job(&sandbox, "9s", "");
    server.kill();
    server.start_again();
    throughout(ms(10_000), "it runs", || is_alive(pid) && !run.is_over());
    assert!(sandbox.is_busy("A"));
    run.signal(Signal::TERM);
    run.wait().dies_by(Signal::TERM);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn leases_and_fences_survive_a_kill_of_the_server() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    let before = fence(&sandbox, "A");
    let token = sandbox.acquire(["A"]);
    let held = sandbox.status()[0]["fence"].as_i64().expect("a number");
    assert!(held > before);
    server.kill();
    let outcome = sandbox.tenure().arg("status").run();
    outcome.is_store_error("cannot reach etcd at 127.0.0.1:*: connection refused");
    server.start_again();
    assert!(sandbox.is_busy("A"));
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    assert!(fence(&sandbox, "A") > held);
}

#[test]
fn waiters_live_through_a_restart_and_enter_in_order() {
    let mut server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "10m"]);
    let order = sandbox.path("order");
    let mut waiters = Vec::new();
    for number in 0..3 {
        let script = format!("echo {number} >> {}", order.display());
        let words = ["run", "-w", "80s", "A", "--", "sh", "-c", &script];
        waiters.push(sandbox.tenure().args(words).start());
        server.until_in_line("A", number + 2);
    }
    server.kill();
    until(SOON, "all are told", || {
        let mut waiters = waiters.iter();
        waiters.all(|waiter| waiter.stderr().contains("; trying again"))
    });
    server.start_again();
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    let order = std::fs::read_to_string(order).expect("they ran");
    assert_eq!(order, "0\n1\n2\n");
}

#[test]
fn a_waiter_at_a_server_that_stood_still_goes_on_and_is_woken() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "10m"]);
    let words = ["run", "-w", "80s", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).start();
    server.until_in_line("A", 2);
    server.stop();
    until(Duration::from_secs(40), "it is told", || {
        waiter.stderr().contains("; trying again")
    });
    throughout(ms(2000), "it is told once", || {
        waiter.stderr().matches("; trying again").count() == 1
    });
    server.resume();
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    waiter.wait().exits(0);
}

#[test]
fn who_is_cut_off_has_stopped_his_job_before_another_enters() {
    let server = Server::start();
    let direct = server.sandbox();
    let proxy = Proxy::to(server.port);
    let far = behind(&proxy);
    let (run, pid) = job(&far, "6s", "");
    let held = direct.status()[0]["fence"].as_i64().expect("a number");
    proxy.cut();
    let script = format!("kill -0 {pid} && echo overlap; echo $TENURE_FENCE");
    let words = ["run", "-q", "-w", "60s", "A", "--", "sh", "-c", &script];
    let outcome = direct.tenure().args(words).run();
    outcome.exits(0).took(ms(1500)..ms(12_000));
    let fence: i64 = outcome.stdout.trim_end().parse().expect("no overlap");
    assert!(fence > held);
    run.wait().exits(76);
    proxy.mend();
    // What it could not say then, and now may, takes nothing from anybody.
    assert!(!direct.is_busy("A"));
}

/// The events of the log, oldest first.
fn log(sandbox: &Sandbox) -> Vec<String> {
    let outcome = sandbox.tenure().args(["log", "--json", "A"]).run();
    outcome.exits(0);
    let event = |event: serde_json::Value| event["event"].as_str().expect("a word").to_owned();
    outcome.json().into_iter().map(event).collect()
}

/// All verbs, while of some requests the fault comes about.
fn nothing_is_doubled_or_lost(fault: impl Fn(&Proxy, &'static str)) {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (direct, far) = (server.sandbox(), behind(&proxy));
    let mut told = Vec::new();
    let mut sprung = 0;
    let mut strikes = |mark| {
        sprung += 1;
        fault(&proxy, mark);
        sprung
    };
    let run = |words: &[&str]| far.tenure().args(words).run();
    let in_line = |count| server.until_in_line("A", count);
    let is = |expected: &[&'static str], told: &mut Vec<&'static str>| {
        told.extend(expected);
        assert_eq!(log(&direct), *told);
    };

    // A bare lease: its beginning, the grant, a renewal, another time to live, its end.
    strikes(BEGINNING);
    run(&["run", "A", "--", "true"]).exits(0).says_nothing();
    told.extend(["granted", "released"]);
    strikes(CHANGE);
    let token = far.acquire(["A"]);
    in_line(1);
    is(&["granted"], &mut told);
    direct
        .tenure()
        .args(["status", "--token", &token])
        .run()
        .exits(0);
    strikes(RENEWAL);
    run(&["extend", "--token", &token]).exits(0);
    let last = strikes(END);
    run(&["extend", "--token", &token, "--ttl", "90s"])
        .exits(0)
        .says_nothing();
    direct
        .tenure()
        .args(["status", "--token", &token])
        .run()
        .exits(0);
    assert_eq!(proxy.sprung(), last);
    run(&["release", "--token", &token]).exits(0);
    in_line(0);
    is(&["released"], &mut told);
    let token = far.acquire(["A"]);
    told.push("granted");
    // After the two by which it is found: the one that ends it.
    let ends = || far.tenure().args(["release", "--token", &token]).run();
    let last = strikes(CHANGE);
    ends().exits(0);
    in_line(0);
    is(&["released"], &mut told);
    assert_eq!(proxy.sprung(), last);

    // The grant and the end of a run's.
    strikes(CHANGE);
    let holder = far.tenure().args(["run", "A"]).hold();
    // Later than any look of it.
    until(SOON, "the grant is written down", || {
        log(&direct).len() > told.len()
    });
    in_line(1);
    let last = strikes(CHANGE);
    holder.end().exits(0).says_nothing();
    in_line(0);
    is(&["granted", "released"], &mut told);
    assert_eq!(proxy.sprung(), last);

    // A place in the line, and the grant from it.
    let token = direct.acquire(["A"]);
    strikes(CHANGE);
    let words = ["run", "-q", "-w", "60s", "A", "--", "true"];
    let waiter = far.tenure().args(words).start();
    in_line(2);
    let last = strikes(CHANGE);
    let release = direct.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    waiter.wait().exits(0).says_nothing();
    in_line(0);
    assert_eq!(proxy.sprung(), last);

    // By force.
    direct.acquire(["A"]);
    let last = strikes(END);
    run(&["release", "--force", "A"]).exits(0);
    in_line(0);
    assert_eq!(proxy.sprung(), last);
    assert_eq!(log(&direct).last().map(String::as_str), Some("forced"));
}

#[test]
fn what_was_done_without_an_answer_is_found_and_not_done_again() {
    nothing_is_doubled_or_lost(|proxy, mark| proxy.swallow(mark, 1));
}

#[test]
fn what_did_not_get_to_the_server_is_sent_again() {
    nothing_is_doubled_or_lost(|proxy, mark| proxy.lose(mark, 1));
}

#[test]
fn slots_and_shared_locks_are_not_doubled_by_an_answer_that_was_lost() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let (direct, far) = (server.sandbox(), behind(&proxy));
    let slots = ["run", "--slots", "2", "A"];
    let first = direct.tenure().args(slots).hold();
    let words = ["-q", "-w", "60s", "--", "printenv", "TENURE_SLOT"];
    // The request has a place in the line, and then its slot.
    for count in 1..=3 {
        proxy.swallow(CHANGE, count);
        let outcome = far.tenure().args(slots).args(words).run();
        outcome.exits(0).prints("1\n");
        server.until_in_line("A", 1);
    }
    assert_eq!(proxy.sprung(), 6);
    first.end().exits(0);
    let reader = direct.tenure().args(["run", "-s", "A"]).hold();
    proxy.swallow(CHANGE, 2);
    let words = ["run", "-s", "-w", "60s", "A", "--", "true"];
    far.tenure().args(words).run().exits(0);
    server.until_in_line("A", 1);
    reader.end().exits(0);
}

#[test]
fn a_grant_of_which_nobody_hears_is_not_left_behind() {
    let server = Server::start();
    let proxy = Proxy::to(server.port);
    let far = behind(&proxy);
    let proof = far.path("ran");
    let run = || {
        let call = far
            .tenure()
            .args(["run", "--ttl", "8s", "A", "--", "touch"]);
        call.arg(&proof).run()
    };
    // However often it is tried, no answer comes; but that it is given up gets through.
    proxy.swallow(CHANGE, 2);
    run().is_store_error("cannot reach etcd at 127.0.0.1:*: peer disconnected");
    assert_eq!(proxy.sprung(), 2);
    server.until_in_line("A", 0);
    // Not that either. The keys are in what follows the head of the request.
    proxy.cut_after("request_put");
    run().is_store_error(
        "cannot tell whether A was taken, and is so for 8s at the most: cannot reach etcd at 127.0.0.1:*: no answer within *",
    );
    server.until_in_line("A", 0);
    assert!(!proof.exists());
}

#[test]
fn a_waiter_who_was_cut_off_for_long_stands_in_line_anew() {
    let server = Server::start();
    let direct = server.sandbox();
    let proxy = Proxy::to(server.port);
    let far = behind(&proxy);
    let token = direct.acquire(["A", "--ttl", "10m"]);
    let words = ["run", "-w", "85s", "--ttl", "5s", "A", "--", "true"];
    let waiter = far.tenure().args(words).start();
    server.until_in_line("A", 2);
    proxy.cut();
    server.until_in_line("A", 1);
    proxy.mend();
    until(Duration::from_secs(30), "it stands in line anew", || {
        server.keys("A/").len() == 2
    });
    let release = direct.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    waiter.wait().exits(0);
}

#[test]
fn a_job_whose_lease_is_taken_away_by_hand_is_stopped() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let (run, pid) = job(&sandbox, "60s", "");
    let key = server.keys("A/").remove(0);
    let lease = key.trim_start_matches("A/");
    server.ask(&["lease", "revoke", lease]);
    until(ms(4000), "the job is dead", || !is_alive(pid));
    let outcome = run.wait();
    outcome.exits(76);
    assert!(outcome.stderr.contains("lost A: "), "{outcome:?}");
    assert_eq!(log(&sandbox).last().map(String::as_str), Some("lost"));

    let (run, pid) = job(&sandbox, "60s", "");
    let key = server.keys("A/").remove(0);
    server.ask(&["del", &key]);
    until(ms(4000), "the job is dead", || !is_alive(pid));
    run.wait().exits(76);
    let token = sandbox.acquire(["A"]);
    let key = server.keys("A/").remove(0);
    server.ask(&["del", &key]);
    for verb in ["extend", "release"] {
        let call = sandbox.tenure().args([verb, "--token", &token]);
        call.run().is_not_held("*");
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_waiter_whose_key_is_deleted_by_hand_stands_in_line_anew() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A"]);
    let words = ["run", "-w", "80s", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).start();
    server.until_in_line("A", 2);
    let own = |key: &String| !token.contains(key.trim_start_matches("A/"));
    let key = server
        .keys("A/")
        .into_iter()
        .find(own)
        .expect("the waiter's");
    server.ask(&["del", &key]);
    until(SOON, "it stands in line anew", || {
        server.keys("A/").len() == 2
    });
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    waiter.wait().exits(0);
}

#[test]
fn what_lasts_too_long_is_given_up_with_a_word() {
    let server = Server::start();
    let sandbox = server.sandbox();
    server.stop();
    for words in [
        &["run", "A", "--", "true"][..],
        &["status"],
        &["acquire", "A"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome
            .is_store_error("cannot reach etcd at 127.0.0.1:*: no answer within *")
            .took(ms(1000)..Duration::from_secs(12));
    }
    server.resume();
    assert!(fence(&sandbox, "A") > 0);
}

#[test]
fn an_interrupt_is_heard_while_the_server_says_nothing() {
    let server = Server::start();
    let sandbox = server.sandbox();
    server.stop();
    let words = ["run", "-w", "60s", "A", "--", "true"];
    let run = sandbox.tenure().args(words).start();
    assert!(stays(ms(300), || is_alive(run.pid())));
    run.signal(Signal::INT);
    run.wait().dies_by(Signal::INT).took(ms(300)..ms(8000));
    server.resume();
}
