//! What the log and `status` tell of leases of which nobody has seen the end, and of what is in etcd besides.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use super::server::{SECRET, Server};
use crate::support::{Outcome, SOON, Sandbox, Signal, is_alive, ms, throughout, until};

static ROOT: LazyLock<String> = LazyLock::new(|| format!("root:{SECRET}"));
static ANN: LazyLock<String> = LazyLock::new(|| format!("ann:{SECRET}"));

/// All events, oldest first, each with its fence.
fn log(sandbox: &Sandbox) -> Vec<(String, Value)> {
    let events = events(sandbox);
    let event = |event: Value| {
        let word = event["event"].as_str().expect("a word");
        (word.to_owned(), event["fence"].clone())
    };
    events.into_iter().map(event).collect()
}

fn events(sandbox: &Sandbox) -> Vec<Value> {
    let outcome = sandbox.tenure().args(["log", "--json"]).run();
    outcome.exits(0);
    outcome.json()
}

fn words(sandbox: &Sandbox) -> Vec<String> {
    log(sandbox).into_iter().map(|(word, _)| word).collect()
}

fn timeline(sandbox: &Sandbox, more: &[&str]) -> String {
    let outcome = sandbox
        .tenure()
        .args(["log", "--timeline"])
        .args(more)
        .run();
    outcome.exits(0);
    outcome.stdout
}

#[test]
fn a_run_that_is_killed_at_its_first_word_is_in_the_log_until_its_end() {
    let server = Server::start();
    let sandbox = server.sandbox();
    for (name, waits) in [("A", false), ("B", true)] {
        let holder = waits.then(|| sandbox.holder(name));
        let call = sandbox
            .tenure()
            .args(["run", "-q", "-w", "60s", "--ttl", "5s", name]);
        // The job is told to die with it before anybody can look.
        let script = "echo $TENURE_FENCE > fence; kill -9 $PPID; sleep 600";
        let run = call
            .directory(sandbox.dir())
            .args(["--", "sh", "-c", script])
            .start();
        if let Some(holder) = holder {
            server.until_in_line(name, 2);
            holder.end().exits(0);
        }
        run.wait().dies_by(Signal::KILL);
        let fence = std::fs::read_to_string(sandbox.path("fence")).expect("it ran");
        let fence: i64 = fence.trim_end().parse().expect("a number");
        let of_it = || {
            let all = log(&sandbox).into_iter();
            let own = all.filter(|(_, other)| *other == fence);
            own.map(|(word, _)| word).collect::<Vec<_>>()
        };
        assert_eq!(of_it(), ["granted"]);
        assert!(sandbox.is_busy(name));
        server.until_in_line(name, 0);
        assert_eq!(of_it(), ["granted", "expired"]);
        let text = sandbox.tenure().args(["log", name]).run();
        text.prints_with(", found ");
        assert!(!timeline(&sandbox, &[name]).contains("goes on"));
    }
}

#[test]
fn what_nobody_saw_end_was_over_when_the_next_was_granted_at_the_latest() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let run = sandbox.tenure().args(["run", "--ttl", "5s", "A"]).hold();
    run.kill();
    let next = sandbox
        .tenure()
        .args(["run", "-q", "-w", "60s", "A", "--", "true"]);
    next.run().exits(0);
    let events = events(&sandbox);
    let of = |word: &str, at: usize| {
        let mut found = events.iter().filter(|event| event["event"] == word);
        found.nth(at).expect("it is told").clone()
    };
    let (killed, next, end) = (of("granted", 0), of("granted", 1), of("expired", 0));
    assert_eq!(end["fence"], killed["fence"]);
    assert_eq!(end["time"], next["time"]);
    assert_eq!(words(&sandbox).len(), 4, "{events:?}");
}

#[test]
fn an_acquire_whose_time_has_passed_has_expired_then_and_is_not_told_twice() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "2s"]);
    let extend = sandbox.tenure().args(["extend", "--token", &token]);
    extend.run().exits(0);
    server.until_in_line("A", 0);
    let told = events(&sandbox);
    assert_eq!(words(&sandbox), ["granted", "expired"]);
    let picture = timeline(&sandbox, &[]);
    assert!(
        picture.contains("e expired") && !picture.contains('>'),
        "{picture}"
    );
    // It stays when it was, whoever looks, and when it is written down.
    let is_written = || {
        sandbox
            .tenure()
            .args(["run", "B", "--", "true"])
            .run()
            .exits(0);
        server
            .ask(&["get", "--prefix", "\u{1}tenure/log/"])
            .contains("\"expired\"")
    };
    until(
        Duration::from_mins(1),
        "somebody writes it down",
        is_written,
    );
    assert_eq!(told, &events(&sandbox)[..2]);
    let expired = |word: &String| word == "expired";
    assert_eq!(words(&sandbox).into_iter().filter(expired).count(), 1);
}

#[test]
fn leases_that_have_ended_are_drawn_as_ended_however_many_are_asked_for() {
    let server = Server::start();
    let sandbox = server.sandbox();
    for number in ["1", "2"] {
        let token = sandbox.acquire(["--note", number, "A"]);
        let release = sandbox.tenure().args(["release", "--token", &token]);
        release.run().exits(0);
    }
    for more in [&[][..], &["-n", "2"], &["-n", "3"], &["-n", "8"]] {
        let picture = timeline(&sandbox, more);
        assert!(
            picture.contains("held") && !picture.contains('>'),
            "{picture}"
        );
    }
    assert_eq!(
        words(&sandbox),
        ["granted", "released", "granted", "released"]
    );
}

#[test]
fn who_is_taken_away_at_once_knows_by_whom() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let run = sandbox.holder("A");
    let release = ["release", "--force", "--now", "A"];
    sandbox.tenure().args(release).run().exits(0);
    let outcome = run.wait();
    outcome.exits(76);
    assert!(outcome.stderr.contains("taken away by "), "{outcome:?}");
    let events = events(&sandbox);
    let lost = events.last().expect("its end");
    assert_eq!(
        (&lost["event"], &lost["reason"]),
        (&"lost".into(), &"forced".into())
    );
    assert_eq!(words(&sandbox), ["granted", "forced", "lost"]);
}

#[test]
fn a_bare_lease_that_is_taken_away_ends_so_in_the_log() {
    let server = Server::start();
    let sandbox = server.sandbox();
    sandbox.acquire(["A"]);
    sandbox
        .tenure()
        .args(["release", "--force", "A"])
        .run()
        .exits(0);
    assert_eq!(words(&sandbox), ["granted", "forced"]);
    assert!(server.keys("A/").is_empty());
}

#[test]
fn two_that_one_end_lets_in_have_fences_of_their_own() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "B"]);
    let waiters = ["A", "B"].map(|name| {
        let waiter = sandbox
            .tenure()
            .args(["run", "-q", "-w", "60s", name, "--", "true"])
            .start();
        server.until_in_line(name, 2);
        waiter
    });
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    let granted = log(&sandbox)
        .into_iter()
        .filter(|(word, _)| word == "granted");
    let mut fences: Vec<i64> = granted.filter_map(|(_, fence)| fence.as_i64()).collect();
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 3);
}

#[test]
fn what_is_forgotten_is_what_ended_first_not_what_was_asked_for_first() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let lives = sandbox.acquire(["A", "--ttl", "5m"]);
    let long = sandbox.acquire(["B", "--ttl", "5m"]);
    let count = || server.keys("\u{1}tenure/log/").len();
    // As many as it takes, of no meaning, with keys that sort behind.
    let puts =
        "echo; for n in $(seq 100); do printf '%s9-%s-%s x\n' \"put $1\" $2 $n; done; echo; echo";
    for part in 0..12 {
        let script = format!(
            "({puts}) | etcdctl --endpoints=127.0.0.1:{} txn",
            server.port
        );
        let words = ["-c", &script, "sh", "\u{1}tenure/log/", &part.to_string()];
        let call = sandbox.program("sh").args(words).env("ETCDCTL_API", "3");
        call.run().exits(0);
    }
    assert!(count() > 1200);
    let release = sandbox.tenure().args(["release", "--token", &long]);
    release.run().exits(0);
    until(Duration::from_mins(1), "the log is short again", || {
        let run = sandbox.tenure().args(["run", "C", "--", "true"]);
        run.run().exits(0);
        count() < 1020
    });
    let told = |name: &str| {
        let outcome = sandbox.tenure().args(["log", "--json", name]).run();
        let words = outcome
            .json()
            .into_iter()
            .map(|event| event["event"].clone());
        words.collect::<Vec<_>>()
    };
    assert_eq!(told("B"), ["granted", "released"]);
    assert_eq!(told("A"), ["granted"]);
    let logged = server.ask(&["get", "--prefix", "\u{1}tenure/log/"]);
    assert!(logged.contains(&format!("-{}", &lives[..16])), "it lives");
}

#[test]
fn what_a_full_server_does_not_write_down_is_told_and_ends_all_the_same() {
    let server = Server::start_with(&["--quota-backend-bytes", "1000000"]);
    let sandbox = server.sandbox();
    let run = sandbox.holder("A");
    let token = sandbox.acquire(["B"]);
    let script = format!(
        "head -c 1200000 /dev/zero | tr '\\0' x | etcdctl --endpoints=127.0.0.1:{} put much",
        server.port
    );
    let put = sandbox.sh(&script).env("ETCDCTL_API", "3").run();
    assert!(put.stderr.contains("database space exceeded"), "{put:?}");
    let told = |outcome: &Outcome| {
        outcome.exits(0);
        let lines = outcome.stderr.lines().count();
        let is_told = outcome.stderr.contains("cannot write the log: ");
        assert!(is_told && lines == 1, "{outcome:?}");
    };
    told(&run.end());
    let release = sandbox.tenure().args(["release", "--token", &token]);
    told(&release.run());
    assert!(server.keys("A/").is_empty() && server.keys("B/").is_empty());
}

#[test]
fn a_key_without_a_lease_is_called_that_and_can_be_deleted() {
    let server = Server::start();
    let sandbox = server.sandbox();
    server.ask(&["put", "zz/abc", "hi"]);
    let outcome = sandbox.tenure().args(["run", "zz", "--", "true"]).run();
    outcome.is_busy("zz");
    let what = "a key without a lease, zz/abc, which `release --force zz` deletes";
    assert!(outcome.stderr.contains(what), "{outcome:?}");
    let status = sandbox.tenure().args(["status", "zz"]).run();
    status.exits(0).prints_with("never");
    assert!(
        status.stdout.contains(what) && !status.stdout.contains("0s"),
        "{status:?}"
    );
    // In the line of a lock that somebody uses, it is known for what it is.
    let waiter = sandbox
        .tenure()
        .args(["run", "-q", "-w", "60s", "zz", "--", "true"])
        .start();
    server.until_in_line("zz", 2);
    let all = sandbox.status();
    assert_eq!(
        (&all[0]["state"], &all[0]["waiting"]),
        (&"held".into(), &1.into())
    );
    assert_eq!(all[0]["expires_in_ms"], Value::Null);
    let release = ["release", "--force", "zz"];
    sandbox.tenure().args(release).run().exits(0);
    waiter.wait().exits(0);
}

/// A server that ann may use for keys with a prefix, and root for all.
fn guarded(prefix: &str) -> Server {
    let server = Server::start();
    let commands: [&[&str]; 6] = [
        &["user", "add", &ROOT],
        &["role", "add", "app"],
        &[
            "role",
            "grant-permission",
            "app",
            "--prefix=true",
            "readwrite",
            prefix,
        ],
        &["user", "add", &ANN],
        &["user", "grant-role", "ann", "app"],
        &["auth", "enable"],
    ];
    for words in commands {
        server.ask(words);
    }
    server
}

#[test]
fn who_may_not_write_the_log_has_locks_all_the_same() {
    let server = guarded("A/");
    let sandbox = server.sandbox();
    let tenure = |user: &str| sandbox.tenure().env("ETCDCTL_USER", user);
    let run = || tenure(&ANN).args(["run", "A", "--", "true"]).run();
    run().exits(0).says_nothing();
    let acquire = tenure(&ANN).args(["acquire", "A"]).run();
    acquire.exits(0).says_nothing();
    let waiter = tenure(&ANN)
        .args(["run", "-q", "-w", "60s", "A", "--", "true"])
        .start();
    until(SOON, "it waits", || {
        let status = tenure(&ANN).args(["status", "--json", "A"]).run();
        status.json()[0]["waiting"] == 1
    });
    let token = acquire.stdout.trim_end();
    let release = tenure(&ANN).args(["release", "--token", token]);
    release.run().exits(0).says_nothing();
    waiter.wait().exits(0).says_nothing();
    let holder = tenure(&ANN).args(["run", "--ttl", "6s", "A"]).hold();
    throughout(ms(3000), "it holds on in silence", || {
        holder.stderr().is_empty()
    });
    let release = tenure(&ROOT).args(["release", "--force", "--now", "A"]);
    release.run().exits(0);
    holder.wait().exits(76);
    run().exits(0).says_nothing();
}

#[test]
fn a_job_goes_on_where_nobody_can_see_whether_its_lock_is_taken_away_and_that_is_told_once() {
    let server = guarded("");
    let sandbox = server.sandbox();
    let tenure = || sandbox.tenure().env("ETCDCTL_USER", &*ANN);
    let mut run = tenure().args(["run", "--ttl", "6s", "A"]).hold();
    let revoke = ["role", "revoke-permission", "app", "", "--prefix=true"];
    server.ask(&[&["--user", &ROOT][..], &revoke].concat());
    until(SOON, "it is told", || !run.stderr().is_empty());
    // Through a whole time to live and more.
    throughout(ms(9000), "it goes on", || {
        !run.is_over() && is_alive(run.pid())
    });
    let told = run.stderr();
    assert_eq!(told.lines().count(), 1, "{told}");
    let what = "permission denied; it cannot be seen whether somebody takes A away";
    assert!(told.contains(what), "{told}");
    run.end();
}
