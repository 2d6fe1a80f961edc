//! Who may hold a lock together: `--shared`, `--slots`; and how long it rests: `--at-least`.

use std::collections::HashSet;
use std::fs;
use std::time::Instant;

use crate::support::{Running, SOON, Sandbox, for_each, ms, throughout, until};
use crate::waiters::{AT_ONCE, TELL_TIME, assert_prompt, ticks};

/// CMD that says which slot it has, then `ready`, and waits for its stdin to end.
const TELL_SLOT: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "echo slot $TENURE_SLOT; echo ready; read x; exit 0",
];

/// A `tenure run --slots N A` at work, and its slot.
#[track_caller]
fn slot_holder<'a>(sandbox: &'a Sandbox, slots: &str) -> (Running<'a>, String) {
    let call = sandbox.tenure().args(["run", "--slots", slots, "A"]);
    let running = call.args(TELL_SLOT).start_ready();
    let slot = slot_of(&running);
    (running, slot)
}

#[track_caller]
fn slot_of(running: &Running<'_>) -> String {
    let stdout = running.stdout();
    let slot = stdout.lines().find_map(|line| line.strip_prefix("slot "));
    slot.unwrap_or_else(|| panic!("no slot: {stdout:?}"))
        .to_owned()
}

/// Whether one try with these options is told that the lock is taken. When it is not, it is held for a moment.
#[track_caller]
fn is_refused(sandbox: &Sandbox, words: &[&str]) -> bool {
    let outcome = sandbox
        .tenure()
        .arg("run")
        .args(words)
        .args(["--", "true"])
        .run();
    match outcome.code {
        Some(0) => false,
        Some(75) => true,
        _ => panic!("neither held nor free: {outcome:#?}"),
    }
}

// Shared.

#[test]
fn those_who_share_hold_together_and_keep_others_out() {
    let sandbox = Sandbox::new();
    let run = sandbox.tenure().args(["run", "--shared", "A"]).hold();
    let token = sandbox.acquire(["-s", "A"]);
    assert!(!is_refused(&sandbox, &["-s", "A"]));
    assert!(is_refused(&sandbox, &["A"]));
    assert!(is_refused(&sandbox, &["-x", "A"]));
    assert!(is_refused(&sandbox, &["--slots", "2", "A"]));
    let rows = sandbox.status();
    assert_eq!(rows.len(), 2, "{rows:#?}");
    for row in rows {
        assert_eq!(row["name"], "A", "{row}");
        assert_eq!(row["mode"], "shared", "{row}");
    }
    run.end().exits(0);
    assert!(is_refused(&sandbox, &["A"]));
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    assert!(!is_refused(&sandbox, &["A"]));
}

#[test]
fn one_who_does_not_share_keeps_those_out_who_do() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    assert!(is_refused(&sandbox, &["-s", "A"]));
    assert!(is_refused(&sandbox, &["--slots", "2", "A"]));
    holder.end().exits(0);
    assert!(!is_refused(&sandbox, &["-s", "A"]));
}

#[test]
fn several_locks_are_shared_at_once() {
    let sandbox = Sandbox::new();
    let _one = sandbox.tenure().args(["run", "-s", "A", "B"]).hold();
    let _two = sandbox.tenure().args(["run", "-s", "B", "C"]).hold();
    assert!(!is_refused(&sandbox, &["-s", "A", "B", "C"]));
    for name in ["A", "B", "C"] {
        assert!(is_refused(&sandbox, &[name]), "{name}");
    }
}

#[test]
fn two_modes_at_once_are_64() {
    let sandbox = Sandbox::new();
    for modes in [
        &["-s", "-x"][..],
        &["-s", "--slots", "2"],
        &["-x", "--slots", "2"],
    ] {
        let run = sandbox.tenure().arg("run").args(modes);
        run.args(["A", "--", "touch", "ran"])
            .run()
            .is_usage_error("*");
        let acquire = sandbox.tenure().arg("acquire").args(modes);
        acquire.arg("A").run().is_usage_error("*");
    }
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

// Slots.

#[test]
fn nine_jobs_with_three_slots_are_never_more_than_three() {
    let sandbox = Sandbox::new();
    let job = "echo in $TENURE_SLOT >>history; sleep .1; echo out $TENURE_SLOT >>history";
    let start = |_| {
        let words = ["run", "A", "--slots", "3", "--wait", "60s"];
        sandbox
            .tenure()
            .args(words)
            .args(["--", "sh", "-c", job])
            .start()
    };
    let jobs: Vec<_> = (0..9).map(start).collect();
    for job in jobs {
        job.wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    let history = fs::read_to_string(sandbox.path("history")).expect("they ran");
    let mut at_work = HashSet::new();
    let mut seen = HashSet::new();
    for line in history.lines() {
        if let Some(slot) = line.strip_prefix("in ") {
            assert!(["0", "1", "2"].contains(&slot), "{history}");
            assert!(at_work.insert(slot), "a slot was shared: {history}");
            seen.insert(slot);
        } else {
            let slot = line.strip_prefix("out ").expect("a line is in or out");
            assert!(at_work.remove(slot), "{history}");
        }
    }
    assert_eq!(history.lines().count(), 18, "{history}");
    assert_eq!(seen.len(), 3, "all of the slots were used: {history}");
}

#[test]
fn a_slot_is_the_smallest_that_is_free() {
    let sandbox = Sandbox::new();
    let (first, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "0");
    let (second, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "1");
    let (third, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "2");
    assert!(is_refused(&sandbox, &["--slots", "3", "A"]));
    second.end().exits(0);
    let (second, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "1");
    first.kill();
    third.kill();
    until(SOON, "two slots are free", || {
        !is_refused(&sandbox, &["--slots", "3", "A"])
    });
    let (_first, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "0");
    let (_third, slot) = slot_holder(&sandbox, "3");
    assert_eq!(slot, "2");
    drop(second);
}

#[test]
fn a_slot_is_told_by_acquire_and_status_too() {
    let sandbox = Sandbox::new();
    let (_holder, _) = slot_holder(&sandbox, "2");
    let words = ["acquire", "--slots", "2", "A", "--json"];
    let outcome = sandbox.tenure().args(words).run();
    assert_eq!(outcome.exits(0).json()[0]["slot"], 1);
    let mut slots: Vec<_> = sandbox
        .status()
        .iter()
        .map(|row| (row["slot"].as_u64(), row["slots"].as_u64()))
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, [(Some(0), Some(2)), (Some(1), Some(2))]);
}

#[test]
fn slots_that_come_free_together_go_to_different_holders() {
    for mode in [&["A"][..], &["-s", "A"]] {
        let sandbox = Sandbox::new();
        for _ in 0..5 {
            let holder = sandbox.tenure().arg("run").args(mode).hold();
            let waiters: Vec<_> = (0..3)
                .map(|_| sandbox.waiter(&["--slots", "3", "A"]))
                .collect();
            holder.end().exits(0);
            let slots = "select slot from ticket where state = 'held' order by slot";
            until(SOON, "all are in, each with a slot of its own", || {
                sandbox.rows::<Option<i64>>(slots) == [Some(0), Some(1), Some(2)]
            });
            for waiter in waiters {
                waiter.end().exits(0);
            }
        }
    }
}

#[test]
fn without_slots_there_is_no_slot() {
    let sandbox = Sandbox::new();
    for mode in ["-x", "-s"] {
        let call = sandbox.tenure().args(["run", mode, "A", "--"]);
        let call = call.args(["sh", "-c", "echo ${TENURE_SLOT-none}"]);
        call.env("TENURE_SLOT", "7").run().exits(0).prints("none\n");
    }
}

#[test]
fn another_number_of_slots_is_64_while_the_lock_is_in_use() {
    let sandbox = Sandbox::new();
    let (holder, _) = slot_holder(&sandbox, "2");
    for other in ["1", "3", "4000000000"] {
        for wait in [&[][..], &["--wait", "60s"]] {
            let run = sandbox.tenure().args(["run", "--slots", other, "A"]);
            let run = run.args(wait).args(["--", "touch", "ran"]);
            run.run().is_usage_error("*A*--slots 2*");
            let acquire = sandbox.tenure().args(["acquire", "--slots", other, "A"]);
            acquire.args(wait).run().is_usage_error("*A*--slots 2*");
        }
    }
    assert_eq!(sandbox.waiting("A"), 0);
    holder.end().exits(0);
    assert!(!is_refused(&sandbox, &["--slots", "3", "A"]));
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn another_number_of_slots_than_a_waiters_is_64_too() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let _waiter = sandbox.waiter(&["--slots", "2", "A"]);
    let call = sandbox
        .tenure()
        .args(["run", "--slots", "3", "--wait", "60s", "A", "--", "true"]);
    call.run().is_usage_error("*A*--slots 2*");
}

#[test]
fn slots_that_have_no_sense_are_64() {
    let sandbox = Sandbox::new();
    for slots in ["0", "-1", "x", "", "1.5", "99999999999999999999"] {
        let run = sandbox.tenure().args(["run", "--slots", slots, "A"]);
        run.args(["--", "touch", "ran"]).run().is_usage_error("*");
        let acquire = sandbox.tenure().args(["acquire", "--slots", slots, "A"]);
        acquire.run().is_usage_error("*");
    }
    let run = sandbox.tenure().args(["run", "--slots", "2", "A", "B"]);
    run.args(["--", "touch", "ran"])
        .run()
        .is_usage_error("*--slots*");
    let acquire = sandbox.tenure().args(["acquire", "--slots", "2", "A", "B"]);
    acquire.run().is_usage_error("*--slots*");
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn waiters_for_slots_enter_one_for_each_that_is_freed() {
    let sandbox = Sandbox::new();
    let (first, _) = slot_holder(&sandbox, "2");
    let (second, _) = slot_holder(&sandbox, "2");
    let mut waiters: Vec<_> = (0..4)
        .map(|_| sandbox.waiter(&["--slots", "2", "A"]))
        .collect();
    let mut at_work = vec![second, first];
    while !waiters.is_empty() {
        at_work.pop().expect("there are two").end().exits(0);
        // The first of the line, although the one who entered before it has not ended.
        let mut next = waiters.remove(0);
        next.enters_at_once();
        at_work.push(next);
        throughout(ms(60), "the others wait", || {
            waiters.iter().all(|waiter| !waiter.is_in())
        });
        at_work.swap(0, 1);
    }
}

#[test]
fn both_who_wait_enter_when_both_slots_come_free() {
    for_each([false, true], |killed| {
        let sandbox = Sandbox::new();
        let both = [slot_holder(&sandbox, "2").0, slot_holder(&sandbox, "2").0];
        let mut waiters = [
            sandbox.waiter(&["--slots", "2", "A"]),
            sandbox.waiter(&["--slots", "2", "A"]),
        ];
        for holder in both {
            if killed {
                holder.kill();
            } else {
                holder.end().exits(0);
            }
        }
        for waiter in &mut waiters {
            waiter.enters_at_once();
        }
    });
}

#[test]
fn a_waiter_for_a_slot_enters_when_the_one_before_it_dies() {
    let sandbox = Sandbox::new();
    let both = [slot_holder(&sandbox, "2").0, slot_holder(&sandbox, "2").0];
    let dead = sandbox.waiter(&["--slots", "2", "A"]);
    let mut next = sandbox.waiter(&["--slots", "2", "A"]);
    dead.kill();
    throughout(ms(150), "it waits", || !next.is_in());
    let [one, other] = both;
    one.end().exits(0);
    next.enters_at_once();
    drop(other);
}

#[test]
fn an_exclusive_waiter_among_slots_waits_for_all_and_keeps_later_ones_out() {
    let sandbox = Sandbox::new();
    let (first, _) = slot_holder(&sandbox, "3");
    let (second, _) = slot_holder(&sandbox, "3");
    let mut exclusive = sandbox.waiter(&["A"]);
    // One slot is free, but not for those who come later.
    let mut later = sandbox.waiter(&["--slots", "3", "A"]);
    assert!(is_refused(&sandbox, &["--slots", "3", "A"]));
    first.end().exits(0);
    throughout(ms(150), "both wait", || {
        !exclusive.is_in() && !later.is_in()
    });
    second.end().exits(0);
    exclusive.enters_at_once();
    throughout(ms(100), "the later one waits", || !later.is_in());
    exclusive.end().exits(0);
    later.enters_at_once();
}

#[test]
fn bare_slots_are_freed_by_their_tokens_and_by_time() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["--slots", "2", "A", "--ttl", "1h"]);
    sandbox.acquire(["--slots", "2", "A", "--ttl", "1500ms"]);
    let mut first = sandbox.waiter(&["--slots", "2", "A"]);
    let mut second = sandbox.waiter(&["--slots", "2", "A"]);
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    first.enters_at_once();
    second.enters();
}

// At least.

#[test]
fn a_fast_job_keeps_the_lock_for_its_least_time() {
    let sandbox = Sandbox::new();
    let call = sandbox
        .tenure()
        .args(["run", "A", "--at-least", "2s", "--", "true"]);
    call.run().exits(0).says_nothing().took(..AT_ONCE);
    let granted = sandbox.rows::<i64>("select granted_at from ticket")[0];
    let refused = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    refused.exits(75);
    // Nobody holds it any more: the process that is named is gone.
    assert!(
        refused.stderr.contains("A is kept by --at-least after "),
        "{refused:?}"
    );
    throughout(ms(1000), "it rests", || sandbox.is_busy("A"));
    let mut entered = 0;
    until(SOON, "it is free", || {
        let outcome = sandbox.tenure().args(["run", "A"]).args(TELL_TIME).run();
        if outcome.code == Some(0) {
            entered = outcome.told_time();
        }
        entered > 0
    });
    let took = entered - granted;
    assert!((2000..3000).contains(&took), "{took} ms");
}

#[test]
fn the_least_time_outlives_a_crash() {
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().args(["run", "A", "--at-least", "1500ms"]);
    let holder = call.hold();
    let held = Instant::now();
    holder.kill();
    throughout(ms(900), "it rests", || sandbox.is_busy("A"));
    until(SOON, "it is free", || !sandbox.is_busy("A"));
    assert!(held.elapsed() < ms(1500) + AT_ONCE);
}

#[test]
fn a_job_that_is_longer_than_the_least_time_frees_the_lock_at_its_end() {
    let sandbox = Sandbox::new();
    let holder = sandbox
        .tenure()
        .args(["run", "A", "--at-least", "300ms"])
        .hold();
    throughout(ms(500), "it is held", || sandbox.is_busy("A"));
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_waiter_sleeps_until_the_least_time_has_passed_and_enters_then() {
    let sandbox = Sandbox::new();
    let measure = |crash: bool| {
        let call = sandbox.tenure().args(["run", "A", "--at-least", "1200ms"]);
        let holder = call.hold();
        let end = sandbox.rows::<i64>("select earliest_end_wall from ticket")[0];
        let call = sandbox.tenure().args(["run", "A", "--wait", "60s"]);
        let waiter = sandbox.queue(call.args(TELL_TIME));
        if crash {
            holder.kill();
        } else {
            holder.end().exits(0);
        }
        let before = ticks(waiter.pid());
        throughout(ms(300), "it sleeps", || ticks(waiter.pid()) - before <= 2);
        let entered = waiter.wait().told_time();
        assert!(entered >= end, "{entered} is before {end}");
        entered - end
    };
    assert_prompt([true, false, false].map(measure).to_vec());
}

#[test]
fn the_least_time_may_be_longer_than_the_time_to_live() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "300ms", "--at-least", "1500ms"]);
    let granted = Instant::now();
    throughout(ms(1000), "it rests", || sandbox.is_busy("A"));
    until(SOON, "it is free", || !sandbox.is_busy("A"));
    assert!(granted.elapsed() < ms(1500) + AT_ONCE);
}

#[test]
fn a_released_lease_rests_and_is_not_held() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--at-least", "1200ms"]);
    let show = |verb: &str| sandbox.tenure().args([verb, "--token", &token]).run();
    show("status").exits(0);
    show("release").exits(0).says_nothing();
    for verb in ["release", "extend", "status"] {
        assert_eq!(show(verb).code, Some(76), "{verb}");
    }
    assert!(sandbox.is_busy("A"));
    until(SOON, "it is free", || !sandbox.is_busy("A"));
}

#[test]
fn slots_and_readers_rest_as_well() {
    let sandbox = Sandbox::new();
    let fast = |words: &[&str]| {
        let call = sandbox.tenure().args(["run", "--at-least", "60s"]);
        call.args(words).args(["--", "true"]).run().exits(0);
    };
    fast(&["--slots", "2", "A"]);
    let (_holder, slot) = slot_holder(&sandbox, "2");
    assert_eq!(slot, "1", "the other one rests");
    assert!(is_refused(&sandbox, &["--slots", "2", "A"]));
    fast(&["-s", "B"]);
    assert!(!is_refused(&sandbox, &["-s", "B"]));
    assert!(is_refused(&sandbox, &["B"]));
}

#[test]
fn a_least_time_that_is_none_is_64() {
    let sandbox = Sandbox::new();
    for time in ["-1", "-1s", "x", "", "inf", "1e999"] {
        let run = sandbox.tenure().args(["run", "--at-least", time, "A"]);
        run.args(["--", "touch", "ran"]).run().is_usage_error("*");
    }
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}
