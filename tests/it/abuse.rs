//! What people do to a database under living holders, and to the program's surroundings.

use std::fs;
use std::process::Stdio;

use crate::support::{SOON, Sandbox, Signal, ms, until};

#[test]
fn deleted_side_files_make_no_second_holder_and_end_the_first() {
    for files in [&["l.db-wal", "l.db-shm"][..], &["l.db-wal"], &["l.db-shm"]] {
        let sandbox = Sandbox::new();
        let first = sandbox.fence("A");
        let script = "trap 'echo out >>log; exit 0' TERM; echo in >>log; echo ready; while :; do sleep 0.02; done";
        let call = sandbox.tenure().args(["run", "--ttl", "1h", "A", "--"]);
        let holder = call.args(["sh", "-c", script]).start_ready();
        for file in files {
            fs::remove_file(sandbox.path(file)).expect("it is there");
        }
        let call = sandbox.tenure().args(["run", "--wait", "60s", "A", "--"]);
        let next = call
            .args(["sh", "-c", "echo next $TENURE_FENCE >>log"])
            .run();
        next.exits(0);
        holder.wait().exits(76);
        let log = fs::read_to_string(sandbox.path("log")).expect("they were in");
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[..2], ["in", "out"], "{files:?}");
        let last = lines[2].strip_prefix("next ").expect("it was next");
        assert!(last.parse::<i64>().expect("a number") > first, "{files:?}");
    }
}

#[test]
fn a_database_with_a_second_hard_link_is_refused_under_both_names() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    fs::hard_link(sandbox.db(), sandbox.path("other.db")).expect("one file system");
    for name in ["l.db", "other.db"] {
        let call = sandbox.tenure().db(sandbox.path(name));
        let outcome = call.args(["run", "A", "--", "touch", "ran"]).run();
        outcome.is_store_error("cannot use *hard link*");
    }
    assert!(!sandbox.path("ran").exists());
    fs::remove_file(sandbox.path("other.db")).expect("it was made");
    assert!(sandbox.is_busy("A"));
    holder.end().exits(0);
}

#[test]
fn fences_go_on_growing_when_a_backup_is_restored() {
    let sandbox = Sandbox::new();
    let first = sandbox.fence("A");
    let files = ["l.db", "l.db-wal"];
    for file in files {
        fs::copy(sandbox.path(file), sandbox.path(format!("{file}.bak"))).expect("it is there");
    }
    let second = sandbox.fence("A");
    fs::remove_file(sandbox.path("l.db-shm")).expect("it is there");
    for file in files {
        fs::copy(sandbox.path(format!("{file}.bak")), sandbox.path(file)).expect("it is there");
    }
    assert!(first < second);
    assert!(second < sandbox.fence("A"));
}

#[test]
fn waiters_go_on_when_the_database_was_deleted() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    let waits = || {
        sandbox
            .tenure()
            .args(["run", "--wait", "60s", "A", "--", "true"])
    };
    let waiters = [waits().start(), waits().start(), waits().start()];
    until(SOON, "they stand in the line", || {
        sandbox.status()[0]["waiting"] == waiters.len()
    });
    fs::remove_file(sandbox.db()).expect("it was made");
    holder.wait().exits(76);
    for waiter in waiters {
        waiter.wait().exits(0).took(..ms(9000));
    }
}

#[test]
fn a_limit_on_file_sizes_is_no_end_of_a_running_job() {
    let sandbox = Sandbox::new();
    let script = "ulimit -f 100; exec tenure run --ttl 300ms A -- sh -c 'ulimit -f; grep SigIgn /proc/self/status; echo ready; read x; exit 3'";
    let mut job = sandbox.sh(script).stdin(Stdio::piped()).start();
    job.await_line("ready");
    // Others let the log grow beyond what the job's tenure may write.
    let log = sandbox.path("l.db-wal");
    let reader = sandbox.connect();
    reader
        .execute_batch("begin; select * from store")
        .expect("it is there");
    for _ in 0..60 {
        sandbox.acquire(["B", "--ttl", "1ms"]);
    }
    assert!(fs::metadata(&log).expect("it is there").len() > 100 * 1024);
    let plain = sandbox.sh("grep SigIgn /proc/self/status").run();
    let outcome = job.end();
    outcome
        .exits(3)
        .prints(&format!("100\n{}ready\n", plain.stdout));
    let outcome = sandbox.sh("ulimit -f 10; tenure run C -- touch ran").run();
    outcome.exits(69).says_a_line();
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_token_that_goes_nowhere_is_given_back() {
    let sandbox = Sandbox::new();
    for closing in [">&-", ">/dev/full"] {
        let outcome = sandbox.sh(&format!("tenure acquire A {closing}")).run();
        outcome
            .exits(69)
            .says("cannot write the token *given back*");
        assert!(!sandbox.is_busy("A"), "{closing}");
    }
    sandbox
        .sh("tenure status >&-")
        .run()
        .exits(69)
        .says_a_line();
}

#[test]
fn a_database_that_cannot_be_made_leaves_nothing_of_it() {
    let sandbox = Sandbox::new();
    for size in ["8k", "16k", "32k", "48k"] {
        let script = format!(
            "mkdir -p disk; mount -t tmpfs -o size={size} none disk; tenure --db disk/l.db run A -- touch ran; ls disk"
        );
        let outcome = sandbox.sh(&script).via(["unshare", "-m"]).run();
        outcome.prints("l.db-guard\n");
    }
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn an_empty_file_that_is_yet_to_be_filled_holds_no_locks() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.db(), "").expect("a fresh directory");
    let outcome = sandbox.tenure().arg("status").run();
    outcome
        .exits(0)
        .prints_with("no locks are held in")
        .says_nothing();
}

#[test]
fn a_database_whose_journal_somebody_changed_still_excludes() {
    let sandbox = Sandbox::new();
    sandbox.holder("A").end().exits(0);
    let connection = sandbox.connect();
    let mode: String = connection
        .query_row("pragma journal_mode = delete", [], |row| row.get(0))
        .expect("nobody has it open");
    assert_eq!(mode, "delete");
    drop(connection);
    let holder = sandbox.holder("A");
    assert!(sandbox.is_busy("A") && !sandbox.is_busy("B"));
    holder.end().exits(0);
}

#[test]
fn a_forced_release_of_a_stopped_holder_says_what_it_waits_for() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    holder.stop();
    let forced = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it says what it waits for", || {
        forced.stderr().contains("waiting for ")
    });
    holder.resume();
    forced.wait().exits(0);
    holder.wait().exits(76);
}

#[test]
fn an_interrupted_forced_release_says_that_the_revocation_stands() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    holder.stop();
    let forced = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it waits", || {
        sandbox.status()[0]["state"] == "revoked"
    });
    until(SOON, "it has heard of Ctrl-C", || {
        forced.signal(Signal::CONT);
        forced.stderr().contains("waiting for ")
    });
    forced.signal(Signal::INT);
    let outcome = forced.wait();
    outcome.dies_by(Signal::INT);
    let told = "A was revoked, but its holder has not ended yet\n";
    assert!(outcome.stderr.ends_with(told), "{}", outcome.stderr);
    holder.resume();
    holder.wait().exits(76);
}
