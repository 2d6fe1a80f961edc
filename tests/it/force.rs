//! `release --force`: a lock taken from whoever has it, without ever making two holders.

use std::time::Instant;

use serde_json::json;

use crate::support::{Running, SOON, Sandbox, ms, throughout, until};

/// CMD that needs half a second to clean up when it is told to end, and leaves word of each step.
const CLEANS_UP: &str = "exec 2> /dev/null; trap 'echo told; sleep 0.5; echo clean; exit 3' TERM; echo ready; \
     while :; do sleep 0.02; done";

fn holder_that_cleans_up(sandbox: &Sandbox) -> Running<'_> {
    sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", CLEANS_UP])
        .start_ready()
}

fn fence(sandbox: &Sandbox, name: &str) -> String {
    let outcome = sandbox.tenure().args(["acquire", "--json", name]).run();
    outcome.exits(0).json()[0]["fence"].to_string()
}

#[test]
fn a_bare_lease_is_freed_without_its_token() {
    let sandbox = Sandbox::new();
    for now in [&[][..], &["--now"]] {
        let token = sandbox.acquire(["A"]);
        let outcome = sandbox
            .tenure()
            .args(["release", "--force", "A"])
            .args(now)
            .run();
        outcome.exits(0).prints_nothing();
        assert!(!sandbox.is_busy("A"));
        sandbox
            .tenure()
            .args(["extend", "--token", &token])
            .run()
            .is_not_held("*");
        sandbox
            .tenure()
            .args(["release", "--token", &token])
            .run()
            .is_not_held("*");
    }
}

#[test]
fn a_run_is_told_to_stop_and_the_command_returns_when_its_job_is_gone() {
    let sandbox = Sandbox::new();
    let mut holder = holder_that_cleans_up(&sandbox);
    let release = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "CMD is told", || holder.stdout().contains("told"));
    assert!(sandbox.is_busy("A"), "the lock is held while CMD cleans up");
    let released = release.wait();
    assert_eq!(
        holder.stdout(),
        "ready\ntold\nclean\n",
        "it returned before CMD had ended"
    );
    assert!(!sandbox.is_running(&["sh", "-c", CLEANS_UP]));
    released.exits(0).prints_nothing().took(ms(500)..SOON);
    assert!(!sandbox.is_busy("A"));
    until(SOON, "tenure has ended", || holder.is_over());
    let outcome = holder.wait();
    outcome.exits(76).says_a_line();
}

#[test]
fn a_forced_release_stops_the_whole_tree() {
    let sandbox = Sandbox::new();
    let script = "sleep 61 & sh -c 'trap \"\" TERM; sleep 62 & wait' & echo ready; wait";
    let call = sandbox.tenure().args([
        "run",
        "--kill-after",
        "500ms",
        "A",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let holder = call.start_ready();
    until(SOON, "the tree is there", || {
        sandbox.is_running(&["sleep", "62"])
    });
    let released = sandbox.tenure().args(["release", "--force", "A"]).run();
    released.exits(0).took(ms(400)..SOON);
    assert!(!sandbox.is_running(&["sleep", "61"]) && !sandbox.is_running(&["sleep", "62"]));
    holder.wait().exits(76);
}

#[test]
fn a_forced_release_sends_the_signal_that_on_lost_names() {
    let sandbox = Sandbox::new();
    let script = "trap 'echo usr1; exit 0' USR1; echo ready; while :; do sleep 0.02; done";
    let call = sandbox
        .tenure()
        .args(["run", "--on-lost", "USR1", "A", "--", "sh", "-c", script]);
    let holder = call.start_ready();
    sandbox
        .tenure()
        .args(["release", "--force", "A"])
        .run()
        .exits(0);
    holder.wait().exits(76).prints("ready\nusr1\n");
}

#[test]
fn no_rival_enters_while_a_forced_release_is_under_way() {
    let sandbox = Sandbox::new();
    let holder = holder_that_cleans_up(&sandbox);
    let call = sandbox
        .tenure()
        .args(["run", "--wait", "60s", "A", "--", "echo", "in"]);
    let mut waiter = call.start();
    throughout(ms(200), "the waiter waits", || !waiter.is_over());
    let release = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "the waiter has entered", || waiter.stdout() == "in\n");
    assert_eq!(
        holder.stdout(),
        "ready\ntold\nclean\n",
        "two held it at once"
    );
    release.wait().exits(0);
    waiter.wait().exits(0);
    holder.wait().exits(76);
}

#[test]
fn who_forces_a_release_has_no_right_to_the_lock_and_a_place_in_the_line_does() {
    let sandbox = Sandbox::new();
    let force = || {
        let call = sandbox.tenure().args(["release", "--force", "A"]);
        call.run().exits(0);
    };
    let holder = sandbox.holder("A");
    let mut waiter = sandbox.waiter(&["A"]);
    force();
    let new = ["run", "A", "--", "touch", "ran"];
    let outcome = sandbox.tenure().args(new).run();
    // It may not have entered yet, and is before everybody all the same.
    let pid = waiter.pid();
    outcome
        .exits(75)
        .says(&format!("A is * by root@* (pid {pid}, *"));
    holder.wait().exits(76);
    waiter.enters();
    let mut replacement = sandbox.waiter(&["A"]);
    force();
    replacement.enters();
    waiter.wait().exits(76);
    replacement.end().exits(0);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn now_does_not_wait_for_the_job() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.02; done";
    let call = sandbox
        .tenure()
        .args(["run", "--kill-after", "2s", "A", "--", "sh", "-c", script]);
    let mut holder = call.start_ready();
    let start = Instant::now();
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0)
        .prints_nothing();
    assert!(!holder.is_over(), "it waited {:?}", start.elapsed());
    holder.wait().exits(76);
    assert!(start.elapsed() < ms(8000), "it took {:?}", start.elapsed());
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_run_notices_a_forced_release_within_two_seconds() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0);
    let start = Instant::now();
    until(SOON, "the holder has ended", || holder.is_over());
    assert!(start.elapsed() < ms(4000), "it took {:?}", start.elapsed());
    holder.wait().exits(76);
}

#[test]
fn a_fence_that_is_not_the_leases_changes_nothing() {
    let sandbox = Sandbox::new();
    let fence = fence(&sandbox, "A");
    let older = (fence.parse::<i64>().expect("a number") - 1).to_string();
    let newer = (fence.parse::<i64>().expect("a number") + 1).to_string();
    for wrong in [&older, &newer, "1"] {
        for now in [&[][..], &["--now"]] {
            let call = sandbox
                .tenure()
                .args(["release", "--force", "--if-fence", wrong, "A"]);
            call.args(now).run().is_not_held("*");
            assert!(sandbox.is_busy("A"));
        }
    }
    let call = sandbox
        .tenure()
        .args(["release", "--force", "--if-fence", &fence, "A"]);
    call.run().exits(0).prints_nothing();
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_fence_protects_a_run_too() {
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().args(["run", "A", "--", "sh", "-c"]);
    let holder = call
        .arg("echo $TENURE_FENCE; echo ready; read x; exit 0")
        .start_ready();
    let fence = holder.stdout().lines().next().expect("a line").to_owned();
    let call = sandbox
        .tenure()
        .args(["release", "--force", "A", "--if-fence"]);
    call.arg("7").run().is_not_held("*");
    throughout(ms(1500), "the lock is held", || sandbox.is_busy("A"));
    let call = sandbox
        .tenure()
        .args(["release", "--force", "A", "--if-fence"]);
    call.arg(fence).run().exits(0);
    holder.wait().exits(76);
}

#[test]
fn a_fence_that_is_no_number_is_64() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A"]);
    for fence in ["0", "-1", "", "x", "1.5", "99999999999999999999"] {
        let call = sandbox
            .tenure()
            .args(["release", "--force", "A", "--if-fence", fence]);
        call.run().is_usage_error("*");
    }
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_waiter_enters_at_once_when_a_lock_that_rests_is_freed_by_force() {
    let sandbox = Sandbox::new();
    let rests = ["run", "A", "--at-least", "1h", "--", "true"];
    sandbox.tenure().args(rests).run().exits(0);
    let mut waiter = sandbox.waiter(&["A"]);
    throughout(ms(150), "the lock rests", || !waiter.is_in());
    let force = ["release", "--force", "A"];
    sandbox.tenure().args(force).run().exits(0);
    waiter.enters_at_once();
    waiter.end().exits(0);
}

#[test]
fn the_second_forced_release_finds_nothing() {
    let sandbox = Sandbox::new();
    let release = || sandbox.tenure().args(["release", "--force", "A"]).run();
    release().is_store_error("*no database yet*");
    sandbox.acquire(["B"]);
    release().is_not_held("*");
    sandbox.acquire(["A"]);
    release().exits(0);
    release().is_not_held("*");
    let holder = sandbox.holder("A");
    release().exits(0);
    release().is_not_held("*");
    holder.wait().exits(76);
    sandbox.acquire(["A", "--ttl", "100ms"]);
    until(SOON, "the lease is over", || sandbox.status().len() == 1);
    release().is_not_held("*");
    sandbox
        .tenure()
        .args(["run", "--ttl", "1h", "A"])
        .hold()
        .kill();
    release().is_not_held("*");
}

#[test]
fn the_other_locks_of_a_lease_go_with_the_one_that_was_named() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["left", "middle", "right"]);
    let outcome = sandbox
        .tenure()
        .args(["release", "--force", "middle"])
        .run();
    outcome.exits(0).prints_nothing();
    assert!(
        outcome.stderr.contains("left") && outcome.stderr.contains("right"),
        "{outcome:#?}"
    );
    for name in ["left", "middle", "right"] {
        assert!(!sandbox.is_busy(name), "{name}");
    }
    let holder = sandbox.tenure().args(["run", "left", "right"]).hold();
    let outcome = sandbox.tenure().args(["release", "--force", "right"]).run();
    assert!(outcome.exits(0).stderr.contains("left"), "{outcome:#?}");
    holder.wait().exits(76);
    assert!(!sandbox.is_busy("left") && !sandbox.is_busy("right"));
}

#[test]
fn a_name_that_nobody_holds_is_told_and_the_others_are_released() {
    let sandbox = Sandbox::new();
    let release = |words: &[&str]| {
        let call = sandbox.tenure().args(["release", "--force"]);
        call.args(words).run()
    };
    sandbox.acquire(["A"]);
    release(&["A", "typo"]).is_not_held("typo is not held (in /*/l.db)");
    assert!(!sandbox.is_busy("A"));
    release(&["A", "typo"]).is_not_held("A and typo are not held (in /*/l.db)");

    let holder = holder_that_cleans_up(&sandbox);
    release(&["A", "typo", "one"]).is_not_held("one and typo are not held (in *)");
    assert_eq!(holder.stdout(), "ready\ntold\nclean\n");
    holder.wait().exits(76);

    sandbox.acquire(["A"]);
    let outcome = release(&["A", "typo", "-q", "--json"]);
    outcome.exits(76).says_nothing();
    let [released, failure] = &outcome.json()[..] else {
        panic!("{outcome:#?}");
    };
    assert_eq!(released["names"], json!(["A"]));
    let not_held = json!({ "reason": "not-held", "names": ["typo"] });
    assert_eq!(*failure, not_held);
    assert_eq!(release(&["typo", "-q", "--json"]).json(), [not_held]);

    // One that is held by others than was thought.
    let fence_of_a = fence(&sandbox, "A");
    sandbox.acquire(["B"]);
    release(&["A", "B", "--if-fence", &fence_of_a])
        .is_not_held(&format!("B is not held with fence {fence_of_a} (in *)"));
    assert!(!sandbox.is_busy("A") && sandbox.is_busy("B"));
}

#[test]
fn the_locks_of_others_stay_held() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    sandbox.acquire(["B"]);
    sandbox.acquire(["C"]);
    sandbox
        .tenure()
        .args(["release", "--force", "B"])
        .run()
        .exits(0);
    assert!(sandbox.is_busy("A") && sandbox.is_busy("C"));
    holder.end().exits(0);
}

#[test]
fn a_stopped_holder_is_waited_for() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1s", "A"]).hold();
    holder.stop();
    let mut release = sandbox.tenure().args(["release", "--force", "A"]).start();
    throughout(ms(2500), "the command waits", || !release.is_over());
    assert!(sandbox.is_busy("A"), "its job may go on at any time");
    holder.resume();
    holder.wait().exits(76);
    release.wait().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_stopped_holder_is_not_waited_for_with_now() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1s", "A"]).hold();
    holder.stop();
    let outcome = sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run();
    outcome.exits(0).took(..ms(5000));
    holder.resume();
    holder.wait().exits(76);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn options_of_force_without_force_are_64() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    let cases: &[&[&str]] = &[
        &["--now", "A"],
        &["--if-fence", "1", "A"],
        &["--now", "A", "--token", &token],
        &["--force"],
    ];
    for words in cases {
        sandbox
            .tenure()
            .arg("release")
            .args(*words)
            .run()
            .is_usage_error("*");
    }
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_token_in_the_environment_means_nothing_to_force() {
    let sandbox = Sandbox::new();
    let other = sandbox.acquire(["B"]);
    for token in [&other, "0123456789abcdef0123456789abcdef"] {
        sandbox.acquire(["A"]);
        let call = sandbox
            .tenure()
            .args(["release", "--force", "A"])
            .env("TENURE_TOKEN", token);
        call.run().exits(0).prints_nothing();
        assert!(!sandbox.is_busy("A"));
        assert!(sandbox.is_busy("B"));
    }
}

#[test]
fn a_job_cannot_open_its_own_lock() {
    let sandbox = Sandbox::new();
    let script = "tenure release A; echo $?; tenure release; echo $?; echo ready; read x; exit 0";
    let holder = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .start_ready();
    assert_eq!(holder.stdout(), "64\n64\nready\n");
    assert_eq!(holder.stderr().lines().count(), 2, "{}", holder.stderr());
    throughout(ms(300), "A stays held", || sandbox.is_busy("A"));
    holder.end().exits(0);
}
