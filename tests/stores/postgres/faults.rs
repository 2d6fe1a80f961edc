//! The server is stopped, killed or cut off: no two holders, no job that outlives its lease, and no word that helps nobody.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::process::Signal;

use super::server::{SECRET, Server};
use crate::conformance::fence;
use crate::proxy::Proxy;
use crate::support::{Call, Running, SOON, Sandbox, is_alive, ms, stays, throughout, until};

/// The end of a change, as it is sent.
const COMMIT: &str = "commit\0";

fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    i64::try_from(now.expect("after 1970").as_millis()).expect("it fits")
}

/// A `run` whose job prints its pid and then lasts.
fn job<'a>(sandbox: &'a Sandbox, ttl: &str) -> (Running<'a>, i32) {
    let words = [
        "run",
        "--ttl",
        ttl,
        "A",
        "--",
        "sh",
        "-c",
        "echo $$; echo ready; exec sleep 300",
    ];
    let mut run = sandbox.tenure().args(words).start();
    run.await_line("ready");
    let pid = run
        .stdout()
        .lines()
        .next()
        .and_then(|line| line.parse().ok());
    (run, pid.expect("a pid"))
}

fn sandbox_behind(proxy: &Proxy, server: &Server) -> Sandbox {
    let (near, far) = (format!(":{}/", proxy.port), format!(":{}/", server.port));
    Sandbox::at(&server.url().replace(&far, &near))
}

#[test]
fn a_job_is_dead_before_its_lease_ends_at_a_server_that_stands_still() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let (mut run, pid) = job(&sandbox, "10s");
    // A renewal later it is kept by that one alone.
    let first = server.expiry();
    until(SOON, "it is renewed", || server.expiry() > first);
    server.stop();
    let began = Instant::now();
    until(SOON, "the job is dead", || !is_alive(pid));
    let (died, took) = (now(), began.elapsed());
    server.resume();
    let expiry = server.expiry();
    assert!(died < expiry, "{} ms too late", died - expiry);
    assert!(took > ms(2000), "it was stopped after {took:?}");
    until(SOON, "tenure has ended", || run.is_over());
    let outcome = run.wait();
    outcome.exits(76);
    assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
    assert!(
        outcome.stderr.contains("no answer in")
            && outcome.stderr.contains("could not be renewed in time"),
        "{outcome:?}"
    );
    // Nobody is in the way of the next for longer than the lease said.
    assert!(fence(&sandbox, "A") > 0);
}

#[test]
fn a_job_that_ignores_the_signal_is_killed_before_its_lease_ends() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let script = "trap '' TERM; echo $$; echo ready; while :; do sleep 0.2; done";
    let words = ["run", "--ttl", "8s", "A", "--", "sh", "-c", script];
    let mut run = sandbox.tenure().args(words).start();
    run.await_line("ready");
    let pid: i32 = run
        .stdout()
        .lines()
        .next()
        .and_then(|line| line.parse().ok())
        .expect("a pid");
    let expiry = server.expiry();
    server.stop();
    until(SOON, "the job is dead", || !is_alive(pid));
    let died = now();
    server.resume();
    assert!(died < server.expiry().max(expiry));
    run.wait().exits(76);
}

#[test]
fn a_job_goes_on_when_the_server_is_killed_and_started_again_within_its_time_to_live() {
    let mut server = Server::start("");
    let sandbox = server.sandbox();
    let (mut run, pid) = job(&sandbox, "20s");
    let first = server.expiry();
    server.kill();
    server.start_again();
    until(SOON, "it is renewed", || server.expiry() > first);
    assert!(sandbox.is_busy("A"));
    assert!(is_alive(pid) && !run.is_over());
    run.signal(Signal::TERM);
    run.wait().dies_by(Signal::TERM);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn leases_and_fences_survive_a_kill_of_the_server() {
    let mut server = Server::start("");
    let sandbox = server.sandbox();
    let before = fence(&sandbox, "A");
    let token = sandbox.acquire(["A"]);
    let held = sandbox.status()[0]["fence"].as_i64().expect("a number");
    assert!(held > before);
    server.kill();
    let outcome = sandbox.tenure().arg("status").run();
    outcome.is_store_error("cannot reach postgres://127.0.0.1:*/postgres: connection refused");
    server.start_again();
    assert!(sandbox.is_busy("A"));
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    assert!(fence(&sandbox, "A") > held);
}

#[test]
fn waiters_live_through_a_restart_and_enter_in_order() {
    let mut server = Server::start("");
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "10m"]);
    let order = sandbox.path("order");
    let mut waiters = Vec::new();
    for number in 0..3 {
        let script = format!("echo {number} >> {}", order.display());
        let words = ["run", "-w", "80s", "A", "--", "sh", "-c", &script];
        waiters.push(sandbox.tenure().args(words).start());
        let count = (number + 1).to_string();
        until(SOON, "it stands in line", || {
            server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]) == count
        });
    }
    server.kill();
    until(SOON, "all are told", || {
        waiters
            .iter()
            .all(|waiter| waiter.stderr().contains("; trying again"))
    });
    server.start_again();
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    for waiter in waiters {
        let outcome = waiter.wait();
        outcome.exits(0);
        assert!(!outcome.stderr.contains(SECRET), "{outcome:?}");
    }
    assert_eq!(
        std::fs::read_to_string(order).expect("they ran"),
        "0\n1\n2\n"
    );
}

#[test]
fn who_is_cut_off_has_stopped_his_job_before_another_enters() {
    let server = Server::start("");
    let direct = server.sandbox();
    let proxy = Proxy::to(server.port);
    let url = server
        .url()
        .replace(&format!(":{}/", server.port), &format!(":{}/", proxy.port));
    let far = Sandbox::at(&url);
    let (run, pid) = job(&far, "6s");
    let held = direct.status()[0]["fence"].as_i64().expect("a number");
    proxy.cut();
    let script = format!("kill -0 {pid} && echo overlap; echo $TENURE_FENCE");
    let words = ["run", "-q", "-w", "60s", "A", "--", "sh", "-c", &script];
    let outcome = direct.tenure().args(words).run();
    outcome.exits(0).took(ms(1500)..ms(9000));
    let fence: i64 = outcome.stdout.trim_end().parse().expect("no overlap");
    assert!(fence > held);
    let lost = run.wait();
    lost.exits(76);
    proxy.mend();
    // What it could not say then, and now may, takes nothing from anybody.
    assert!(!direct.is_busy("A"));
}

#[test]
fn what_was_done_without_an_answer_is_found_and_not_done_again() {
    let server = Server::start("");
    let proxy = Proxy::to(server.port);
    let (direct, far) = (server.sandbox(), sandbox_behind(&proxy, &server));
    fence(&direct, "A");
    let rows = || server.sql(&["select count(*) from tenure.ticket"]);
    let told = |event: &str| {
        let count =
            format!("select count(*) from tenure.log where event = '{event}' and names = '{{A}}'");
        server.sql(&[&count])
    };
    let before: i64 = told("released").parse().expect("a number");

    proxy.swallow(COMMIT, 1);
    let token = far.acquire(["A"]);
    assert_eq!((proxy.sprung(), &*rows()), (1, "1"));
    let status = direct.tenure().args(["status", "--token", &token]).run();
    status.exits(0);
    proxy.swallow(COMMIT, 1);
    far.tenure()
        .args(["extend", "--token", &token])
        .run()
        .exits(0);
    proxy.swallow(COMMIT, 1);
    far.tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    assert_eq!((proxy.sprung(), &*rows()), (3, "0"));
    assert_eq!(told("released"), (before + 1).to_string());

    // The grant and the end of a run's lease.
    proxy.swallow(COMMIT, 1);
    let holder = far.tenure().args(["run", "A"]).hold();
    proxy.swallow(COMMIT, 1);
    holder.end().exits(0).says_nothing();
    assert_eq!((proxy.sprung(), &*rows()), (5, "0"));
    assert_eq!(
        (told("released"), told("lost")),
        ((before + 2).to_string(), "0".to_owned())
    );

    // A place in the line, and the grant from it.
    let token = direct.acquire(["A"]);
    proxy.swallow(COMMIT, 1);
    let waiter = far
        .tenure()
        .args(["run", "-q", "-w", "60s", "A", "--", "true"])
        .start();
    until(SOON, "it stands in line", || rows() == "2");
    proxy.swallow(COMMIT, 1);
    direct
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    waiter.wait().exits(0);
    assert_eq!((proxy.sprung(), &*rows()), (7, "0"));

    direct.acquire(["A"]);
    proxy.swallow(COMMIT, 1);
    far.tenure()
        .args(["release", "--force", "A"])
        .run()
        .exits(0);
    assert_eq!((proxy.sprung(), &*rows(), &*told("forced")), (8, "0", "1"));
}

#[test]
fn a_waiter_who_was_cut_off_for_long_stands_in_line_anew() {
    let server = Server::start("");
    let direct = server.sandbox();
    let proxy = Proxy::to(server.port);
    let url = server
        .url()
        .replace(&format!(":{}/", server.port), &format!(":{}/", proxy.port));
    let far = Sandbox::at(&url);
    let token = direct.acquire(["A", "--ttl", "10m"]);
    let waiter = far
        .tenure()
        .args(["run", "-w", "80s", "A", "--", "true"])
        .start();
    let waiting = || server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]);
    until(SOON, "it stands in line", || waiting() == "1");
    proxy.cut();
    // Somebody who comes later finds the place empty, and removes it.
    until(SOON, "its place is gone", || {
        direct
            .tenure()
            .args(["run", "-q", "-w", "100ms", "A", "--", "true"])
            .run()
            .exits(75);
        waiting() == "0"
    });
    proxy.mend();
    until(SOON, "it stands in line anew", || waiting() == "1");
    direct
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    waiter.wait().exits(0);
}

#[test]
fn who_is_cut_off_in_the_middle_of_a_change_keeps_nobody_waiting_for_long() {
    let server = Server::start("");
    let proxy = Proxy::to(server.port);
    let (direct, far) = (server.sandbox(), sandbox_behind(&proxy, &server));
    fence(&direct, "A");
    proxy.cut_after("for update");
    let stuck = far.tenure().args(["run", "A", "--", "true"]).start();
    until(SOON, "it has the row", || {
        let sql = "select count(*) from pg_stat_activity where state = 'idle in transaction'";
        server.sql(&[sql]) == "1"
    });
    let outcome = direct.tenure().args(["run", "A", "--", "true"]).run();
    // Sooner than anybody gives up.
    outcome.exits(0).took(ms(1000)..ms(8000));
    stuck
        .wait()
        .is_store_error("cannot reach *: no answer in 10s");
    proxy.mend();
}

#[test]
fn what_lasts_too_long_is_given_up_with_a_word() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    fence(&sandbox, "A");
    server.stop();
    for words in [
        &["run", "A", "--", "true"][..],
        &["status"],
        &["acquire", "A"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome
            .is_store_error("cannot reach postgres://127.0.0.1:*/postgres: no answer in *")
            .took(ms(1000)..Duration::from_secs(14));
    }
    server.resume();
    assert!(fence(&sandbox, "A") > 0);
}

#[test]
fn an_interrupt_is_heard_while_the_server_says_nothing() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    fence(&sandbox, "A");
    server.stop();
    let run = sandbox
        .tenure()
        .args(["run", "-w", "60s", "A", "--", "true"])
        .start();
    assert!(stays(ms(300), || is_alive(run.pid())));
    run.signal(Signal::INT);
    run.wait().dies_by(Signal::INT).took(ms(300)..ms(2500));
    server.resume();
}

#[test]
fn a_waiter_that_is_cut_off_from_a_stopped_server_keeps_waiting_and_says_so_once() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "10m"]);
    let waiter = sandbox
        .tenure()
        .args(["run", "-w", "80s", "A", "--", "true"])
        .start();
    until(SOON, "it stands in line", || {
        server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]) == "1"
    });
    server.stop();
    until(Duration::from_secs(30), "it is told", || {
        waiter.stderr().contains("; trying again")
    });
    throughout(ms(3000), "it is told once", || {
        waiter.stderr().matches("; trying again").count() == 1
    });
    server.resume();
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    waiter.wait().exits(0);
}

#[test]
fn a_job_has_the_better_part_of_its_time_however_long_the_grant_took() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    fence(&sandbox, "A");
    let mut other = server.keep_row(8);
    let start = |name: &str, patience: &[&str]| {
        // Longer than what a late grant leaves.
        let job = ["--", "sh", "-c", "sleep 2; echo done"];
        let run = sandbox.tenure().args(["run", "-q", "--ttl", "6s", name]);
        run.args(patience).args(job).start()
    };
    for run in [start("A", &[]), start("B", &["-w", "forever"])] {
        let outcome = run.wait();
        outcome.exits(0).prints("done\n").took(ms(7000)..ms(20_000));
    }
    other.wait().expect("our own child");
}

#[test]
fn a_job_whose_late_lease_cannot_be_renewed_does_not_start() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    fence(&sandbox, "A");
    // Two grants take longer than a third of the time to live, and the two renewals after them longer than they may.
    server.sql(&[
        "create sequence grants",
        "create sequence renewals",
        "create function slow() returns trigger language plpgsql as $$ begin
           if nextval(tg_argv[0]) <= 2 then perform pg_sleep(3); end if; return new;
         end $$",
        "create trigger slow_grant before insert on tenure.ticket
           for each row execute function slow('grants')",
        "create trigger slow_renewal before update on tenure.ticket
           for each row execute function slow('renewals')",
    ]);
    let proof = sandbox.path("ran");
    let touch = |run: Call<'_>| run.args(["A", "--", "touch"]).arg(&proof).run();
    let outcome = touch(sandbox.tenure().args(["run", "--ttl", "6s"]));
    outcome.is_store_error("cannot use postgres://*: somebody else keeps it locked *");
    assert!(!proof.exists());
    assert_eq!(server.sql(&["select count(*) from tenure.ticket"]), "0");
    assert_eq!(server.sql(&["select last_value from renewals"]), "1");
    // Who waits goes on.
    let outcome = touch(
        sandbox
            .tenure()
            .args(["run", "--ttl", "6s", "-w", "forever"]),
    );
    outcome.exits(0);
    assert!(outcome.stderr.contains("; trying again"), "{outcome:?}");
    assert!(proof.exists());
}

#[test]
fn who_waits_outlasts_whoever_keeps_the_row() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    fence(&sandbox, "A");
    let mut other = server.keep_row(12);
    let start = |patience: &[&str]| {
        let run = sandbox.tenure().args(["run", "A"]).args(patience);
        run.args(["--", "true"]).start()
    };
    let (once, waiter) = (start(&[]), start(&["-w", "forever"]));
    once.wait()
        .is_store_error("cannot use *: somebody else keeps it locked *");
    let outcome = waiter.wait();
    outcome.exits(0);
    let said = "somebody else keeps it locked";
    assert!(outcome.stderr.contains(said), "{outcome:?}");
    assert!(outcome.stderr.contains("; trying again"), "{outcome:?}");
    other.wait().expect("our own child");
}
