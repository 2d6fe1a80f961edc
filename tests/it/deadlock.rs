//! Waits that would never end: they are told at once, and nothing else is taken for one.

use std::process::Stdio;
use std::time::Instant;

use crate::support::{Call, Outcome, Running, SOON, Sandbox, ms, throughout, until};
use crate::waiters::AT_ONCE;

/// `sh -c script` inside of `tenure run NAME`, the whole within the time that tells a deadlock from a wait.
#[track_caller]
fn inside_of(sandbox: &Sandbox, name: &str, script: &str) -> Outcome {
    let call = sandbox
        .tenure()
        .args(["run", name, "--", "sh", "-c", script]);
    let outcome = call.run();
    outcome.took(..AT_ONCE);
    outcome
}

/// 75, and a message that is about a deadlock and names all of these.
#[track_caller]
fn assert_told(outcome: &Outcome, parts: &[&str]) {
    outcome.exits(75).prints_nothing().says("*for ever*");
    for part in parts {
        assert!(
            outcome.stderr.contains(part),
            "no {part:?} in the message: {outcome:#?}"
        );
    }
}

#[test]
fn waiting_for_ones_own_lock_is_told_at_once() {
    let sandbox = Sandbox::new();
    let script = "tenure run A --wait 60s -- touch ran";
    assert_told(
        &inside_of(&sandbox, "A", script),
        &["A is held by root@", "pid "],
    );
    let script = "tenure run A --wait forever -- touch ran";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    let script = "tenure acquire A --wait 60s";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_deadlock_has_a_word_of_its_own_in_json() {
    let sandbox = Sandbox::new();
    let outcome = inside_of(&sandbox, "A", "tenure acquire A --wait 60s --json");
    outcome.exits(75).says("*for ever*");
    let answer = &outcome.json()[0];
    assert_eq!(answer["reason"], "deadlock", "{answer}");
}

#[test]
fn a_number_for_conflicts_does_not_touch_a_deadlock() {
    let sandbox = Sandbox::new();
    for code in ["0", "9"] {
        let script = format!("tenure run A -E {code} --wait 60s -- touch ran");
        assert_told(&inside_of(&sandbox, "A", &script), &["A"]);
        let script = format!("tenure acquire A -E {code} --wait 60s");
        assert_told(&inside_of(&sandbox, "A", &script), &["A"]);
    }
    // Not even in silence.
    let script = "tenure run A -q -E 0 --wait 60s -- touch ran";
    inside_of(&sandbox, "A", script).exits(75).prints_nothing();
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_try_at_the_lock_of_an_ancestor_is_told_and_never_skipped_in_silence() {
    let sandbox = Sandbox::new();
    let told = "waiting for A would be for ever; A is held by root@* (pid *, sh -c *), inside of which this command runs";
    for script in [
        "tenure run A -- touch ran",
        "tenure run -E 9 A -- touch ran",
        "tenure run -q -E 0 A -- touch ran",
        "tenure run -n -q -E 0 A -- touch ran",
        "tenure run --wait 0 -q -E 0 A -- touch ran",
        "tenure run -s -q -E 0 A -- touch ran",
        "tenure run --slots 2 -q -E 0 A -- touch ran",
        "tenure acquire -q -E 0 A",
    ] {
        inside_of(&sandbox, "A", script)
            .exits(75)
            .prints_nothing()
            .says(told);
    }
    let script = "tenure acquire -q -E 0 --shell A";
    let outcome = inside_of(&sandbox, "A", script);
    outcome.exits(75).prints("(exit 75)\n").says(told);
    let outcome = inside_of(&sandbox, "A", "tenure acquire -q -E 0 --json A");
    let answer = &outcome.exits(75).says(told).json()[0];
    assert_eq!(answer["reason"], "deadlock", "{answer}");
    assert_eq!(answer["held"][0]["name"], "A", "{answer}");
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_try_at_several_locks_of_which_an_ancestor_has_one_is_told() {
    let sandbox = Sandbox::new();
    let _stranger = sandbox.holder("B");
    let script = "tenure run C -- tenure run -q -E 0 A B -- touch ran";
    inside_of(&sandbox, "A", script).exits(75).says(
        "waiting for A and B would be for ever; A is held by *, inside of which C is held by *, \
         inside of which this command runs",
    );
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_try_that_an_ancestor_does_not_block_is_as_any_other() {
    let sandbox = Sandbox::new();
    for mode in ["-s", "--slots 2"] {
        let script = format!("tenure run {mode} A -- tenure run -q -E 9 {mode} A -- echo in");
        sandbox
            .sh(&script)
            .run()
            .exits(0)
            .prints("in\n")
            .says_nothing();
    }
    // A slot that a stranger has may come free, whatever the ancestor does.
    let stranger = slot_holder(&sandbox);
    let run = "tenure run --slots 2 A --";
    let skipped = format!("{run} tenure run -q -E 9 --slots 2 A -- touch ran");
    sandbox.sh(&skipped).run().exits(9).says_nothing();
    stranger.end().exits(0);
    let full = format!("{run} {run} tenure run -q -E 9 --slots 2 A -- touch ran");
    sandbox.sh(&full).run().exits(75).says(
        "waiting for A would be for ever; a slot of A is held by *, inside of which a slot of A is held by *, \
         inside of which this command runs",
    );
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_try_that_a_stranger_blocks_is_busy_whoever_waits_for_whom() {
    let sandbox = Sandbox::new();
    // The writer waits for the reader inside of which the try is made, and would go on when that has ended.
    let script = "echo ready; read x; tenure run -q -E 9 -s A -- touch ran";
    let outer = sandbox.tenure().args(["run", "-s", "A", "--"]);
    let outer = outer.args(["sh", "-c", script]).start_ready();
    let mut writer = sandbox.waiter(&["A"]);
    outer.end().exits(9).says_nothing();
    writer.enters_at_once();
    writer.end().exits(0);
    // And so would the holder of X that waits for Y.
    let mut other = crossing(&sandbox, "X", "Y").start_ready();
    let script = "echo ready; read x; tenure run -q -E 9 X -- touch ran";
    let outer = sandbox.tenure().args(["run", "Y", "--"]);
    let outer = outer.args(["sh", "-c", script]).start_ready();
    other.stdin = None;
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    outer.end().exits(9).says_nothing();
    other.wait().without_wait().exits(0);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_try_at_the_lock_of_ones_own_descriptor_is_told() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["other"]);
    // No token tells of it.
    let script = "exec 9<>l.db-guard; tenure acquire -q --fd 9 A >token
        tenure run -q -E 0 A -- touch ran; echo $?
        tenure acquire -q -E 0 --fd 9 A; echo $?
        tenure run B -- tenure run -q -E 0 A -- touch ran; echo $?
        tenure run -q -E 9 A -- touch ran 9>&-; echo $?";
    let outcome = sandbox.sh(script).run();
    outcome.exits(0).prints("75\n75\n75\n9\n");
    assert_eq!(
        outcome.stderr.matches("for ever").count(),
        3,
        "{outcome:#?}"
    );
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

/// Two databases, `a.db` and `b.db`, in the names by which scripts know them.
fn two_databases(sandbox: &Sandbox, script: &str) -> Outcome {
    let call = sandbox.sh(script).without_env("TENURE_DB");
    let outcome = call.env("a", "a.db").env("b", "b.db").run();
    outcome.took(..AT_ONCE);
    outcome
}

#[test]
fn an_ancestor_is_known_through_leases_of_another_database() {
    let sandbox = Sandbox::new();
    let told = "waiting for N would be for ever; N is held by root@* (pid *), inside of which this command runs";
    for inner in [
        "tenure run -q -E 0 --db $a N -- touch ran",
        "tenure run -q -E 0 --wait 60s --db $a N -- touch ran",
        "tenure acquire -q -E 0 --db $a N",
        "tenure acquire -q -E 0 --wait 60s --db $a N",
        "tenure run --db $b O -- tenure run -q -E 0 --db $a N -- touch ran",
        "sh -c 'eval \"$(tenure acquire --shell --db $b O)\"; tenure run -q -E 0 --db $a N -- touch ran'",
        "sh -c 'TENURE_TOKEN=$(tenure acquire --db $b O); tenure run -q -E 0 --db $a N -- touch ran'",
    ] {
        let script = format!("tenure run --db $a N -- tenure run --db $b M -- {inner}");
        let outcome = two_databases(&sandbox, &script);
        outcome.exits(75).prints_nothing().says(told);
        // What a shell took ends with no run.
        let _ = std::fs::remove_file(sandbox.path("b.db"));
    }
    let script =
        "eval \"$(tenure acquire --shell --db $a N)\"; eval \"$(tenure acquire --shell --db $b M)\"
        tenure run -q -E 0 --db $a N -- touch ran";
    two_databases(&sandbox, script).exits(75).says(told);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn the_circle_is_spelled_out_where_a_lease_between_is_in_another_database() {
    let sandbox = Sandbox::new();
    let script = "tenure run --db $a N -- tenure run --db $b M -- tenure run --db $a O -- \
        tenure acquire -q -E 0 --json --db $a N";
    let outcome = two_databases(&sandbox, script);
    outcome.exits(75).says(
        "waiting for N would be for ever; N is held by *, inside of which O is held by *, inside of which this command runs",
    );
    let held = &outcome.json()[0]["held"];
    assert_eq!(held[1]["inside_of"], held[0]["fence"], "{held}");
}

#[test]
fn an_ancestor_is_known_when_the_lease_between_is_over() {
    let sandbox = Sandbox::new();
    let script = "TENURE_TOKEN=$(tenure acquire B); export TENURE_TOKEN; tenure release
        tenure run -q -E 0 A -- touch ran";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn leases_that_are_over_or_unknown_refuse_nothing() {
    let sandbox = Sandbox::new();
    let over = |name| {
        let token = sandbox.acquire([name]);
        let call = sandbox.tenure().args(["release", "--token", &token]);
        call.run().exits(0);
        token
    };
    let stale = format!(
        "{}:{}:0123456789abcdef0123456789abcdef:nonsense:::{}",
        over("A"),
        over("B"),
        "f".repeat(100_000)
    );
    let token = over("A");
    let run = || {
        let call = sandbox.tenure().env("TENURE_TOKENS", &stale);
        call.env("TENURE_TOKEN", &token)
            .args(["run", "-q", "-E", "9", "A", "--", "echo", "in"])
    };
    run().run().exits(0).prints("in\n").says_nothing();
    let holder = sandbox.holder("A");
    run().run().exits(9).prints_nothing().says_nothing();
    let call = run().without_env("TENURE_TOKEN");
    call.run().exits(9).prints_nothing().says_nothing();
    holder.end().exits(0);
}

#[test]
fn what_a_job_left_behind_takes_its_lock_when_the_lease_is_over() {
    let sandbox = Sandbox::new();
    let left = "read x <fifo; tenure run -q -E 9 A -- echo in >left; echo $? >code";
    let script = format!("mkfifo fifo; sh -c '{left}' & exit 0");
    inside_of(&sandbox, "A", &script).exits(0);
    let holder = sandbox.holder("A");
    let code = || std::fs::read_to_string(sandbox.path("code")).unwrap_or_default();
    std::fs::write(sandbox.path("fifo"), "\n").expect("somebody reads it");
    until(SOON, "it is refused because of a stranger", || {
        code() == "9\n"
    });
    holder.end().exits(0);
}

#[test]
fn who_is_started_without_the_token_is_inside_of_nothing() {
    let sandbox = Sandbox::new();
    for script in [
        "env -u TENURE_TOKEN tenure run -q -E 9 A -- touch ran",
        "TENURE_TOKEN= tenure run -q -E 9 A -- touch ran",
        "env -u TENURE_TOKEN tenure run B -- tenure run -q -E 9 A -- touch ran",
    ] {
        inside_of(&sandbox, "A", script).exits(9).says_nothing();
    }
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn where_no_kernel_vouches_ones_own_lock_is_not_waited_for_either() {
    let sandbox = Sandbox::new();
    let script = "mkdir below fuse && bindfs below fuse || exit 99
        tenure run A -- tenure run --wait 60s -q -E 0 A -- touch ran; echo $?
        tenure run A -- tenure run -q -E 0 A -- touch ran; echo $?";
    let call = sandbox.sh(script).via(["unshare", "-m"]);
    let call = call.env("TENURE_ALLOW_NETWORK_FS", "1");
    let outcome = call.env("TENURE_DB", sandbox.path("fuse/l.db")).run();
    outcome.exits(0).prints("75\n75\n").took(..SOON);
    assert_eq!(
        outcome.stderr.matches("for ever").count(),
        2,
        "{outcome:#?}"
    );
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn another_lock_inside_is_fine() {
    let sandbox = Sandbox::new();
    let script = "tenure run B --wait 60s -- tenure run C --wait 60s -- echo in";
    inside_of(&sandbox, "A", script)
        .exits(0)
        .prints("in\n")
        .says_nothing();
}

#[test]
fn another_lock_inside_is_waited_for() {
    let sandbox = Sandbox::new();
    let other = sandbox.holder("B");
    let script = "tenure run B --wait 60s -- echo in";
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script]);
    let mut outer = call.start();
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    throughout(ms(200), "it waits", || !outer.is_over());
    other.end().exits(0);
    outer
        .wait()
        .without_wait()
        .exits(0)
        .prints("in\n")
        .says_nothing();
}

#[test]
fn the_lock_of_an_ancestor_further_up_is_told_like_ones_own() {
    let sandbox = Sandbox::new();
    let script = "tenure run B -- tenure run A --wait 60s -- touch ran";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    let script = "tenure run B -- tenure run C -- tenure run A --wait 60s -- touch ran";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    // The commands between may have waited themselves, and the last one may want more than that lock.
    let script = "tenure run B --wait 9s -- tenure run C A --wait 60s -- touch ran";
    assert_told(&inside_of(&sandbox, "A", script), &["A is held by root@"]);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn the_whole_circle_is_spelled_out_through_every_lease_between() {
    let sandbox = Sandbox::new();
    let script = "tenure run B -- tenure run A --wait 60s -- touch ran";
    inside_of(&sandbox, "A", script).exits(75).says(
        "waiting for A would be for ever; A is held by root@* (pid *, sh -c *), inside of which \
         B is held by root@* (pid *, tenure run A *), inside of which this command runs",
    );
    let script = "tenure run B C -- tenure acquire D A --wait 60s --json";
    let outcome = inside_of(&sandbox, "A", script);
    outcome.exits(75).says(
        "waiting for A and D would be for ever; A is held by *, inside of which B and C are held by *, \
         inside of which this command runs",
    );
    let answer = &outcome.json()[0];
    assert_eq!(answer["reason"], "deadlock", "{answer}");
    let message = answer["message"].as_str().expect("a message");
    assert_eq!(outcome.stderr, format!("tenure: {message}\n"));
    let held = answer["held"].as_array().expect("an array");
    assert_eq!(held.len(), 2, "{answer}");
    assert_eq!(
        (&held[0]["name"], &held[1]["name"]),
        (&"A".into(), &"B".into())
    );
    assert!(held[0]["inside_of"].is_null(), "{answer}");
    assert_eq!(held[1]["inside_of"], held[0]["fence"], "{answer}");
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn one_of_several_locks_is_enough() {
    let sandbox = Sandbox::new();
    let outer = sandbox.tenure().args(["run", "A", "B", "--"]);
    let outcome = outer
        .args(["tenure", "run", "B", "C", "--wait", "60s", "--", "true"])
        .run();
    assert_told(&outcome, &["B"]);
    outcome.took(..AT_ONCE);
}

/// Holds `mine`, and when its stdin says so waits for `other`.
fn crossing<'a>(sandbox: &'a Sandbox, mine: &str, other: &str) -> Call<'a> {
    let script = format!("echo ready; read x; tenure run {other} --wait 60s -- true");
    sandbox
        .tenure()
        .args(["run", mine, "--", "sh", "-c", &script])
}

#[track_caller]
fn assert_one_is_told(mut all: Vec<Running<'_>>) -> Outcome {
    let began = Instant::now();
    until(SOON, "one is told", || all.iter_mut().any(Running::is_over));
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    let outcomes: Vec<Outcome> = all
        .into_iter()
        .map(|one| one.wait().without_wait())
        .collect();
    let (told, done): (Vec<_>, Vec<_>) = outcomes
        .into_iter()
        .partition(|outcome| outcome.code == Some(75));
    assert_eq!(told.len(), 1, "{told:#?} {done:#?}");
    for outcome in done {
        outcome.exits(0).says_nothing();
    }
    told.into_iter().next().expect("there is one")
}

#[test]
fn of_two_who_hold_what_the_other_wants_exactly_one_is_told() {
    let sandbox = Sandbox::new();
    for _ in 0..3 {
        let mut one = crossing(&sandbox, "X", "Y").start_ready();
        let mut two = crossing(&sandbox, "Y", "X").start_ready();
        (one.stdin, two.stdin) = (None, None);
        let told = assert_one_is_told(vec![one, two]);
        assert!(told.stderr.contains("for ever"), "{told:#?}");
        assert!(
            told.stderr.contains('X') && told.stderr.contains('Y'),
            "{told:#?}"
        );
    }
}

#[test]
fn a_circle_of_several_says_who_waits_for_what_and_who_is_inside_of_what() {
    let sandbox = Sandbox::new();
    let mut one = crossing(&sandbox, "X", "Y").start_ready();
    let mut two = crossing(&sandbox, "Y", "X").start_ready();
    one.stdin = None;
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    two.stdin = None;
    let (first, second) = (one.pid(), two.pid());
    let waiter = sandbox.line()[0];
    let told = assert_one_is_told(vec![one, two]);
    told.says(&format!(
        "waiting for X would be for ever; X is held by root@* (pid {first}, sh -c *), inside of which Y is waited \
         for by root@* (pid {waiter}, true); Y is held by root@* (pid {second}, sh -c *), inside of which this command runs",
    ));
}

#[test]
fn who_closes_the_circle_is_told() {
    let sandbox = Sandbox::new();
    let mut chain = vec![
        crossing(&sandbox, "X", "Y").start_ready(),
        crossing(&sandbox, "Y", "Z").start_ready(),
        crossing(&sandbox, "Z", "X").start_ready(),
    ];
    for (number, one) in chain.iter_mut().take(2).enumerate() {
        one.stdin = None;
        until(SOON, "it stands in the line", || {
            sandbox.line().len() == number + 1
        });
    }
    throughout(ms(200), "nobody is told", || {
        !chain.iter_mut().any(Running::is_over)
    });
    chain[2].stdin = None;
    until(SOON, "the last is told", || chain[2].is_over());
    let told = assert_one_is_told(chain);
    for name in ["X", "Y", "Z"] {
        assert!(told.stderr.contains(name), "no {name}: {told:#?}");
    }
}

#[test]
fn a_circle_through_somebody_in_the_line_is_told() {
    let sandbox = Sandbox::new();
    // Inside of a reader, a second reader would stand behind a writer that waits for the first.
    let script = "echo ready; read x; tenure run -s A --wait 60s -- true";
    let outer = sandbox.tenure().args(["run", "-s", "A", "--"]);
    let mut outer = outer.args(["sh", "-c", script]).start_ready();
    let mut writer = sandbox.waiter(&["A"]);
    outer.stdin = None;
    let began = Instant::now();
    let mut outcome = outer.wait();
    outcome.stdout.clear();
    outcome.exits(75).prints_nothing().says(
        "waiting for A would be for ever; A is waited for by root@*, ahead in the line; \
         A is held by root@*, inside of which this command runs",
    );
    assert!(began.elapsed() < AT_ONCE, "it took {:?}", began.elapsed());
    writer.enters_at_once();
}

#[test]
fn sharing_with_an_ancestor_is_no_deadlock() {
    let sandbox = Sandbox::new();
    let outer = sandbox.tenure().args(["run", "-s", "A", "--"]);
    let words = ["tenure", "run", "-s", "A", "--wait", "60s", "--", "true"];
    outer.args(words).run().exits(0).says_nothing();
    let outer = sandbox.tenure().args(["run", "--slots", "2", "A", "--"]);
    let words = ["tenure", "run", "--slots", "2", "A", "--wait", "60s"];
    outer
        .args(words)
        .args(["--", "printenv", "TENURE_SLOT"])
        .run()
        .exits(0)
        .prints("1\n")
        .says_nothing();
}

#[test]
fn ones_own_share_is_in_the_way_whoever_shares_after_it() {
    let sandbox = Sandbox::new();
    let own = sandbox.acquire(["-s", "A"]);
    let other = sandbox.acquire(["-s", "A"]);
    for token in [own, other] {
        let call = sandbox.tenure().env("TENURE_TOKEN", token);
        let outcome = call.args(["run", "A", "--wait", "60s", "--", "true"]).run();
        outcome.took(..AT_ONCE);
        assert_told(&outcome, &["A is held by"]);
    }
}

#[test]
fn more_slots_than_there_are_is_a_deadlock_among_ones_own() {
    let sandbox = Sandbox::new();
    let run = "tenure run --slots 2 A --wait 60s --";
    let outcome = sandbox.sh(&format!("{run} {run} {run} touch ran")).run();
    outcome.exits(75).prints_nothing().says(
        "waiting for A would be for ever; a slot of A is held by *, inside of which a slot of A is held by *, \
         inside of which this command runs",
    );
    outcome.took(..AT_ONCE);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

/// A `tenure run --slots 2 A` at work.
fn slot_holder(sandbox: &Sandbox) -> Running<'_> {
    sandbox.tenure().args(["run", "--slots", "2", "A"]).hold()
}

/// A slot of A, inside of which another is waited for when its stdin says so.
fn nested_slots(sandbox: &Sandbox) -> Running<'_> {
    let run = "tenure run --slots 2 A --wait 60s -- echo in";
    let script = format!("echo ready; read x; {run}");
    let outer = sandbox.tenure().args(["run", "--slots", "2", "A", "--"]);
    outer.args(["sh", "-c", &script]).start_ready()
}

#[test]
fn a_slot_that_a_stranger_holds_is_waited_for() {
    let sandbox = Sandbox::new();
    let stranger = slot_holder(&sandbox);
    let mut outer = nested_slots(&sandbox);
    outer.stdin = None;
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    throughout(ms(200), "it waits", || !outer.is_over());
    stranger.end().exits(0);
    outer
        .wait()
        .without_wait()
        .exits(0)
        .prints("ready\nin\n")
        .says_nothing();
}

#[test]
fn a_slot_for_which_a_stranger_stands_in_line_before_is_waited_for() {
    let sandbox = Sandbox::new();
    let stranger = slot_holder(&sandbox);
    let mut outer = nested_slots(&sandbox);
    let mut before = sandbox.waiter(&["--slots", "2", "A"]);
    outer.stdin = None;
    until(SOON, "it stands in the line", || sandbox.line().len() == 2);
    stranger.end().exits(0);
    before.enters_at_once();
    throughout(ms(200), "it waits", || !outer.is_over());
    before.end().exits(0);
    outer
        .wait()
        .without_wait()
        .exits(0)
        .prints("ready\nin\n")
        .says_nothing();
}

#[test]
fn one_who_blocks_all_slots_and_waits_for_ours_is_a_deadlock() {
    let sandbox = Sandbox::new();
    let mut outer = nested_slots(&sandbox);
    // Two slots are there, but nobody overtakes the one who wants the lock for himself.
    let mut alone = sandbox.waiter(&["A"]);
    outer.stdin = None;
    outer.wait().exits(75).says(
        "waiting for A would be for ever; A is waited for by *, ahead in the line; \
         a slot of A is held by *, inside of which this command runs",
    );
    alone.enters_at_once();
}

#[test]
fn slots_whose_holders_wait_for_each_other_are_a_deadlock_told_with_all_of_them() {
    let sandbox = Sandbox::new();
    let holder_that_waits = || {
        let script = "echo ready; read x; tenure run X --wait 60s -- true";
        let call = sandbox.tenure().args(["run", "--slots", "2", "A", "--"]);
        call.args(["sh", "-c", script]).start_ready()
    };
    let mut all = [holder_that_waits(), holder_that_waits()];
    let script = "echo ready; read x; tenure run --slots 2 A --wait 60s -- true";
    let call = sandbox
        .tenure()
        .args(["run", "X", "--", "sh", "-c", script]);
    let mut last = call.start_ready();
    for (number, one) in all.iter_mut().enumerate() {
        one.stdin = None;
        until(SOON, "it stands in the line", || {
            sandbox.line().len() == number + 1
        });
    }
    last.stdin = None;
    last.wait().exits(75).says(
        "waiting for A would be for ever; \
         a slot of A is held by *, inside of which X is waited for by *; X is held by *, inside of which this command runs; \
         a slot of A is held by *, inside of which X is waited for by *",
    );
    for one in all {
        one.wait().without_wait().exits(0).says_nothing();
    }
}

#[test]
fn who_takes_the_last_way_out_of_a_wait_for_slots_is_told() {
    let sandbox = Sandbox::new();
    let crossing = |mine: &[&str], other: &str| {
        let script = format!("echo ready; read x; tenure run {other} --wait 60s -- true");
        let call = sandbox.tenure().arg("run").args(mine).arg("--");
        call.args(["sh", "-c", &script]).start_ready()
    };
    // This one waits for a slot: its own cannot come free, but the other's can.
    let mut one = crossing(&["--slots", "2", "A"], "--slots 2 A");
    let mut other = crossing(&["--slots", "2", "A"], "B");
    let mut third = crossing(&["B"], "C");
    let mut fourth = crossing(&["C"], "--slots 2 A");
    for (number, running) in [&mut one, &mut other, &mut third].into_iter().enumerate() {
        running.stdin = None;
        until(SOON, "it stands in the line", || {
            sandbox.line().len() == number + 1
        });
    }
    throughout(ms(200), "nobody is told", || {
        ![&mut one, &mut other, &mut third]
            .into_iter()
            .any(Running::is_over)
    });
    fourth.stdin = None;
    fourth.wait().exits(75).says("*for ever*");
    for running in [one, other, third] {
        running.wait().without_wait().exits(0).says_nothing();
    }
}

#[test]
fn a_bare_lease_encloses_what_has_its_token() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let call = sandbox.tenure().args(["run", "A", "--wait", "60s"]);
    let call = call.args(["--", "touch", "ran"]).env("TENURE_TOKEN", token);
    let outcome = call.run();
    assert_told(&outcome, &["A is held by root@"]);
    outcome.took(..AT_ONCE);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_token_of_nothing_encloses_nothing() {
    let sandbox = Sandbox::new();
    for token in ["0123456789abcdef0123456789abcdef", "nonsense", ""] {
        let holder = sandbox.holder("A");
        let call = sandbox.tenure().args(["run", "A", "--wait", "60s"]);
        let call = call.args(["--", "sh", "-c", "echo ready; read x; exit 0"]);
        let call = call.stdin(Stdio::piped()).env("TENURE_TOKEN", token);
        let mut waiter = sandbox.queue(call);
        holder.end().exits(0);
        waiter.enters_at_once();
        waiter.end().exits(0);
    }
}

#[test]
fn one_who_waits_behind_a_family_is_not_told() {
    let sandbox = Sandbox::new();
    let inner = "tenure run B -- sh -c 'echo ready; read x; exit 0'";
    let outer = sandbox.tenure().args(["run", "A", "--", "sh", "-c", inner]);
    let outer = outer.start_ready();
    let mut first = sandbox.waiter(&["B"]);
    let mut second = sandbox.waiter(&["A", "B"]);
    throughout(ms(200), "both wait", || {
        !first.is_over() && !second.is_over()
    });
    outer.end().exits(0);
    first.enters_at_once();
    first.end().exits(0);
    second.enters_at_once();
}

#[test]
fn a_told_deadlock_leaves_no_row_behind() {
    let sandbox = Sandbox::new();
    let script = "tenure run A --wait 60s -- true; echo ready; read x; exit 0";
    let outer = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script]);
    let outer = outer.start_ready();
    assert_eq!(sandbox.line(), [0; 0]);
    assert_eq!(sandbox.waiting("A"), 0);
    drop(outer);
}
