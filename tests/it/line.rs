//! The line: who enters after whom, what wakes a waiter and what does not, and that nothing is left of those who gave
//! up or died.

use std::fs;
use std::process::Stdio;
use std::time::Instant;

use crate::pty::{CTRL_C, Terminal};
use crate::support::{
    Call, Running, SOON, Sandbox, Signal, for_each, ms, stays, throughout, until,
};
use crate::waiters::{AT_ONCE, TELL_TIME, assert_prompt, now, switches, ticks};

/// Notes that it is in, and for how long: flock(1) watches that no two are at work.
const WATCHED: &str = "exec 8>own-lock; flock -n 8 || echo overlap >>history; echo in >>history; ";

/// What QUIT ends leaves no core file.
const WITHOUT_CORE: [&str; 4] = ["sh", "-c", "ulimit -c 0; exec \"$@\"", "sh"];

fn history(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("history")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

// Order.

#[test]
fn ten_waiters_enter_in_the_order_in_which_they_came() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut waiters: Vec<Running<'_>> = Vec::new();
    for number in 0..10 {
        let job = format!("echo {number} >>history");
        let words = ["run", "A", "--wait", "60s", "--", "sh", "-c", &job];
        waiters.push(sandbox.queue(sandbox.tenure().args(words)));
        assert_eq!(sandbox.waiting("A"), number + 1);
    }
    let pids: Vec<i32> = waiters.iter().map(Running::pid).collect();
    assert_eq!(sandbox.line(), pids);
    holder.end().exits(0);
    for waiter in waiters {
        waiter
            .wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    let order: Vec<String> = (0..10).map(|number| number.to_string()).collect();
    assert_eq!(history(&sandbox), order);
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}

#[test]
fn the_order_is_kept_through_shared_and_exclusive() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut waiters: Vec<_> = ["-s", "-s", "-x", "-s", "-x", "-x", "-s", "-s"]
        .iter()
        .map(|mode| sandbox.waiter(&[mode, "A"]))
        .collect();
    assert_eq!(sandbox.waiting("A"), 8);
    holder.end().exits(0);
    // Those who enter together, and then those who end together.
    for together in [2, 1, 1, 1, 1, 2] {
        for waiter in &mut waiters[..together] {
            waiter.enters_at_once();
        }
        let mut group: Vec<_> = waiters.drain(..together).collect();
        throughout(ms(60), "the others wait", || {
            waiters.iter().all(|waiter| !waiter.is_in())
        });
        while let Some(waiter) = group.pop() {
            assert!(
                waiters.iter().all(|waiter| !waiter.is_in()),
                "one entered before all of them had ended"
            );
            waiter.end().exits(0);
        }
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn readers_who_come_later_do_not_starve_a_waiting_writer() {
    let sandbox = Sandbox::new();
    let mut readers: Vec<_> = (0..3)
        .map(|_| sandbox.tenure().args(["run", "-s", "A"]).hold())
        .collect();
    let mut writer = sandbox.waiter(&["A"]);
    let mut fourth = sandbox.waiter(&["-s", "A"]);
    let last = readers.pop().expect("there are three");
    for reader in readers {
        reader.end().exits(0);
    }
    throughout(ms(200), "both wait", || !writer.is_in() && !fourth.is_in());
    last.end().exits(0);
    writer.enters_at_once();
    throughout(ms(200), "the reader waits", || !fourth.is_in());
    writer.end().exits(0);
    fourth.enters_at_once();
    fourth.end().exits(0);
}

#[test]
fn a_reader_enters_at_once_when_the_writer_before_it_gives_up() {
    let sandbox = Sandbox::new();
    let _reader = sandbox.tenure().args(["run", "-s", "A"]).hold();
    let writer = sandbox.waiter(&["A"]);
    let mut second = sandbox.waiter(&["-s", "A"]);
    let mut third = sandbox.waiter(&["-s", "A"]);
    throughout(ms(150), "both wait", || !second.is_in() && !third.is_in());
    writer.signal(Signal::TERM);
    writer.wait().dies_by(Signal::TERM);
    second.enters_at_once();
    third.enters_at_once();
}

#[test]
fn a_newcomer_without_wait_does_not_overtake_a_waiter() {
    let sandbox = Sandbox::new();
    let _reader = sandbox.tenure().args(["run", "-s", "A"]).hold();
    let writer = sandbox.waiter(&["A"]);
    for wait in [&["-n"][..], &["--wait", "0"], &[]] {
        let call = sandbox
            .tenure()
            .args(["run", "-s", "A"])
            .args(wait)
            .args(["--", "touch", "ran"]);
        call.run().exits(75).prints_nothing().says("A is *");
        let call = sandbox.tenure().args(["acquire", "-s", "A"]).args(wait);
        call.run().exits(75).prints_nothing().says("A is *");
    }
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    assert!(!writer.is_in());
    assert_eq!(sandbox.waiting("A"), 1);
}

#[test]
fn one_who_waits_for_several_locks_keeps_its_place_for_each_and_holds_none() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut both = sandbox.waiter(&["A", "B"]);
    // B is free, but somebody stands in the line for it.
    assert!(sandbox.is_busy("B"));
    let mut behind = sandbox.waiter(&["B"]);
    assert_eq!((sandbox.waiting("A"), sandbox.waiting("B")), (1, 2));
    throughout(ms(150), "both wait", || !both.is_in() && !behind.is_in());
    holder.end().exits(0);
    both.enters_at_once();
    throughout(ms(150), "the last waits", || !behind.is_in());
    both.end().exits(0);
    behind.enters_at_once();
}

#[test]
fn one_behind_a_waiter_for_several_locks_enters_at_once_when_that_dies() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let both = sandbox.waiter(&["A", "B"]);
    let mut behind = sandbox.waiter(&["B"]);
    both.kill();
    behind.enters_at_once();
}

#[test]
fn acquire_stands_in_the_line_like_run() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let acquire = sandbox
        .tenure()
        .args(["acquire", "A", "--wait", "60s", "--ttl", "1h"]);
    let acquire = sandbox.queue(acquire);
    let mut behind = sandbox.waiter(&["A"]);
    holder.end().exits(0);
    let outcome = acquire.wait();
    outcome.exits(0).says_nothing();
    throughout(ms(200), "the lease is bare and holds", || {
        !behind.is_in() && sandbox.is_busy("A")
    });
    let token = outcome.stdout.trim_end();
    let release = sandbox.tenure().args(["release", "--token", token]);
    release.run().exits(0).says_nothing();
    behind.enters_at_once();
}

#[test]
fn names_in_opposite_order_twenty_at_once_all_get_through() {
    let sandbox = Sandbox::new();
    let job = format!("{WATCHED} sleep .01");
    let start = |number: usize| {
        let names = if number.is_multiple_of(2) {
            ["X", "Y"]
        } else {
            ["Y", "X"]
        };
        let call = sandbox.tenure().args(["run", "--wait", "60s"]).args(names);
        call.args(["--", "sh", "-c", &job]).start()
    };
    let all: Vec<_> = (0..20).map(start).collect();
    for one in all {
        one.wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    assert_eq!(history(&sandbox), ["in"; 20]);
}

// Those who do not get their turn.

/// W1 and W2 wait, W1 goes as `leave` says: at the release W2 is in at once.
#[track_caller]
fn assert_the_next_is_in_at_once(leave: impl FnOnce(&Sandbox, Running<'_>), wait: &str) {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let first = sandbox.tenure().args(["run", "A", "--wait", wait]);
    let first = sandbox.queue(first.args(["--", "touch", "ran"]));
    let mut second = sandbox.waiter(&["A"]);
    leave(&sandbox, first);
    throughout(ms(100), "the holder holds", || !second.is_in());
    assert_eq!(sandbox.waiting("A"), 1);
    holder.end().exits(0);
    second.enters_at_once();
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_waiter_that_is_killed_harms_nobody() {
    assert_the_next_is_in_at_once(
        |_, first| {
            first.kill().dies_by(Signal::KILL);
        },
        "60s",
    );
}

#[test]
fn a_waiter_that_is_interrupted_harms_nobody() {
    assert_the_next_is_in_at_once(
        |_, first| {
            first.signal(Signal::INT);
            first.wait().dies_by(Signal::INT);
        },
        "60s",
    );
}

#[test]
fn a_waiter_whose_time_is_up_harms_nobody() {
    assert_the_next_is_in_at_once(
        |sandbox, first| {
            first.wait().is_busy("A").took(ms(1000)..ms(2500));
            assert_eq!(sandbox.line().len(), 1, "its row is gone");
        },
        "1s",
    );
}

#[test]
fn a_waiter_that_is_ended_by_a_signal_leaves_no_row_and_dies_by_it() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let run = ["run", "A", "--wait", "60s", "--", "touch", "ran"];
        for words in [&run[..], &["acquire", "A", "--wait", "forever"]] {
            let call = sandbox.tenure().args(words).detached();
            let waiter = sandbox.queue(call.via(WITHOUT_CORE));
            waiter.signal(signal);
            let sent = Instant::now();
            waiter.wait().dies_by(signal).prints_nothing();
            assert!(sent.elapsed() < AT_ONCE, "{signal:?} {words:?}");
            assert_eq!(sandbox.line(), [0; 0], "{signal:?} {words:?}");
        }
    }
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn ctrl_c_at_a_terminal_takes_a_waiter_out_of_the_line_and_ends_the_loop() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let script = "while :; do tenure run A --wait 60s -- touch ran; echo again; done";
    let call = sandbox
        .program("bash")
        .args(["-c", script])
        .env("TENURE_DB", sandbox.db());
    let mut shell = terminal.start(call);
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    terminal.types(CTRL_C);
    until(SOON, "the loop has ended", || shell.is_over());
    assert_eq!(sandbox.line(), [0; 0]);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_dead_waiter_leaves_no_row_behind() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let dead: Vec<_> = (0..3).map(|_| sandbox.waiter(&["A"])).collect();
    for waiter in dead {
        waiter.kill();
    }
    // Whoever looks along the line next, without standing in it.
    assert!(sandbox.is_busy("A"));
    assert_eq!(sandbox.line(), [0; 0]);
    assert_eq!(sandbox.waiting("A"), 0);
}

#[test]
fn a_dead_waiter_between_two_leaves_no_row_behind() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut first = sandbox.waiter(&["A"]);
    let dead = sandbox.waiter(&["A"]);
    let mut last = sandbox.waiter(&["A"]);
    dead.kill();
    until(SOON, "its row is gone", || {
        sandbox.line() == [first.pid(), last.pid()]
    });
    holder.end().exits(0);
    first.enters_at_once();
    throughout(ms(100), "the last waits", || !last.is_in());
    first.end().exits(0);
    last.enters_at_once();
}

#[test]
fn a_stopped_waiter_has_its_turn_until_it_is_killed() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut first = sandbox.waiter(&["A"]);
    let stopped = sandbox.waiter(&["A"]);
    let mut last = sandbox.waiter(&["A"]);
    stopped.stop();
    holder.end().exits(0);
    first.enters_at_once();
    first.end().exits(0);
    throughout(ms(400), "it is the turn of the stopped one", || {
        !last.is_in() && sandbox.is_busy("A")
    });
    stopped.kill();
    last.enters_at_once();
}

#[test]
fn a_stopped_waiter_enters_when_it_goes_on() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut stopped = sandbox.waiter(&["A"]);
    stopped.stop();
    holder.end().exits(0);
    throughout(ms(200), "it does not enter while it is stopped", || {
        !stopped.is_in() && sandbox.is_busy("A")
    });
    stopped.resume();
    stopped.enters_at_once();
    stopped.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_stopped_waiter_does_not_hold_up_those_that_may_enter_beside_it() {
    for mode in [&["-s"][..], &["--slots", "2"]] {
        let sandbox = Sandbox::new();
        let holder = sandbox.holder("A");
        let words = [mode, &["A"]].concat();
        let stopped = sandbox.waiter(&words);
        let mut beside = sandbox.waiter(&words);
        stopped.stop();
        holder.end().exits(0);
        beside.enters_at_once();
        stopped.resume();
    }
}

#[test]
fn one_who_shares_does_not_wait_for_what_another_who_shares_waits_for() {
    let sandbox = Sandbox::new();
    let (b, _c) = (sandbox.holder("B"), sandbox.holder("C"));
    let other = sandbox.waiter(&["-s", "A", "C"]);
    let mut one = sandbox.waiter(&["-s", "A", "B"]);
    throughout(ms(100), "both wait", || !one.is_in() && !other.is_in());
    b.end().exits(0);
    one.enters_at_once();
    assert!(!other.is_in());
}

#[test]
fn one_who_gives_up_behind_a_waiter_is_told_of_it() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let both = sandbox.waiter(&["A", "B"]);
    let run = sandbox.tenure().args(["run", "B", "--wait", "300ms"]);
    let outcome = run.args(["--", "touch", "ran"]).run();
    outcome
        .exits(75)
        .prints_nothing()
        .says("B is waited for by *");
    let pid = format!("pid {}", both.pid());
    assert!(outcome.stderr.contains(&pid), "no {pid}: {outcome:#?}");
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_forced_release_that_does_not_wait_lets_the_next_in() {
    let sandbox = Sandbox::new();
    let job = "trap '' TERM; echo ready; while :; do sleep .1; done";
    let words = ["run", "A", "-k", "60s", "--", "sh", "-c", job];
    let holder = sandbox.tenure().args(words).start_ready();
    let mut next = sandbox.waiter(&["A"]);
    let release = sandbox.tenure().args(["release", "--force", "--now", "A"]);
    release.run().exits(0);
    let released = Instant::now();
    next.enters();
    let took = released.elapsed();
    // The old holder looks once a second.
    assert!(took < ms(1000) + AT_ONCE, "it took {took:?}");
    holder.kill();
}

#[test]
fn what_a_killed_run_left_behind_is_waited_for_until_it_ends_or_its_time_does() {
    let orphan = "setsid sh -c 'echo $$ >orphan.new; mv orphan.new orphan; exec sleep 61' & \
                  until [ -e orphan ]; do sleep .01; done; echo ready; read x";
    for_each([Some("1h"), None], |ttl| {
        let sandbox = Sandbox::new();
        let words = ["run", "A", "--ttl", ttl.unwrap_or("2s"), "--"];
        let call = sandbox.tenure().args(words).args(["sh", "-c", orphan]);
        let holder = call.start_ready();
        let mut next = sandbox.waiter(&["A"]);
        let began = Instant::now();
        holder.kill();
        throughout(ms(400), "it is waited for", || !next.is_in());
        if ttl.is_some() {
            let pid = fs::read_to_string(sandbox.path("orphan")).expect("it was written");
            let kill = sandbox.program("kill").args(["-KILL", pid.trim()]);
            kill.run().exits(0);
            next.enters_at_once();
        } else {
            next.enters();
            assert!(began.elapsed() < ms(2000) + AT_ONCE);
        }
    });
}

// How long.

#[test]
fn a_wait_ends_in_time_however_often_it_is_woken() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.holder("A");
    // Before it, nine who give up one after the other, the last first.
    let _before: Vec<_> = (1..10)
        .map(|number| {
            let wait = format!("{}ms", 300 * (10 - number));
            let call = sandbox.tenure().args(["run", "A", "--wait", &wait]);
            sandbox.queue(call.args(["--", "touch", "ran"]))
        })
        .collect();
    let call = sandbox.tenure().args(["run", "A", "--wait", "3s"]);
    let mut waiter = sandbox.queue(call.args(["--", "touch", "ran"]));
    until(SOON, "its wait has ended", || {
        let is_over = waiter.is_over();
        if !is_over {
            waiter.signal(Signal::CONT);
        }
        is_over
    });
    let outcome = waiter.wait().without_wait();
    outcome.is_busy("A").took(ms(3000)..ms(3500));
    assert!(!holder.is_over());
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

#[test]
fn a_wait_behind_a_bare_lease_ends_in_time_however_often_the_store_changes() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    let call = sandbox.tenure().args(["run", "A", "--wait", "3s"]);
    let mut waiter = sandbox.queue(call.args(["--", "touch", "ran"]));
    while !waiter.is_over() {
        sandbox
            .tenure()
            .args(["run", "B", "--", "true"])
            .run()
            .exits(0);
    }
    let outcome = waiter.wait().without_wait();
    outcome.is_busy("A").took(ms(3000)..ms(3500));
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

// What waiting costs, and what wakes.

#[test]
fn waiters_are_blocked_in_the_kernel_each_on_another_and_use_no_processor_time() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let waiters: Vec<_> = (0..20).map(|_| sandbox.waiter(&["A"])).collect();
    until(SOON, "all of them are blocked, each on another", || {
        let mut awaited = sandbox.awaited_bytes();
        awaited.sort_unstable();
        awaited.dedup();
        awaited.len() == 20
    });

    let used = || {
        waiters
            .iter()
            .map(|waiter| ticks(waiter.pid()))
            .sum::<u64>()
    };
    let before = used();
    throughout(ms(2000), "they use at most 5 ticks of 10 ms", || {
        used() - before <= 5
    });
    drop(holder);
}

#[test]
fn a_release_wakes_the_next_and_nobody_else() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut waiters: Vec<_> = (0..8).map(|_| sandbox.waiter(&["A"])).collect();
    until(SOON, "all of them are blocked", || {
        sandbox.awaited_bytes().len() == 8
    });
    let mut next = waiters.remove(0);
    let run = || {
        waiters
            .iter()
            .map(|waiter| switches(waiter.pid()))
            .sum::<u64>()
    };
    let mut before = run();
    // Blocked threads are not yet all that there are: the busy machine may still have some to run.
    until(SOON, "they stand still", || {
        before = run();
        stays(ms(150), || run() == before)
    });
    holder.end().exits(0);
    next.enters();
    throughout(ms(100), "nobody else is woken", || run() == before);
}

#[test]
fn a_killed_holder_lets_the_next_in_at_once() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.tenure().args(["run", "A", "--ttl", "1h"]).hold();
    for _ in 0..5 {
        let mut next = sandbox.waiter(&["A", "--ttl", "1h"]);
        holder.kill();
        next.enters_at_once();
        holder = next;
    }
}

#[test]
fn the_release_of_a_bare_lease_is_seen_promptly() {
    let sandbox = Sandbox::new();
    let measure = || {
        let token = sandbox.acquire(["A", "--ttl", "1h"]);
        let call = sandbox.tenure().args(["run", "A", "--wait", "60s"]);
        let waiter = sandbox.queue(call.args(TELL_TIME));
        let release = sandbox.tenure().args(["release", "--token", &token]);
        release.run().exits(0);
        let released = now();
        waiter.wait().told_time() - released
    };
    assert_prompt((0..5).map(|_| measure()).collect());
}

#[test]
fn the_end_of_a_bare_lease_by_time_is_seen_promptly() {
    let sandbox = Sandbox::new();
    let measure = || {
        sandbox.acquire(["A", "--ttl", "500ms"]);
        let expires = sandbox.rows::<i64>("select expires_wall from ticket where state = 'held'");
        let call = sandbox.tenure().args(["run", "A", "--wait", "60s"]);
        let entered = call.args(TELL_TIME).run().told_time();
        assert!(entered >= expires[0], "{entered} is before {expires:?}");
        entered - expires[0]
    };
    assert_prompt((0..5).map(|_| measure()).collect());
}

#[test]
fn a_bare_lease_that_is_extended_keeps_the_waiter_waiting() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "400ms"]);
    let mut waiter = sandbox.waiter(&["A"]);
    let extend = sandbox.tenure().args(["extend", "--token", &token]);
    let outcome = extend.args(["--ttl", "1500ms"]).run();
    outcome.exits(0);
    let extended = Instant::now();
    throughout(ms(1000), "the lease is extended", || !waiter.is_in());
    waiter.enters();
    assert!(extended.elapsed() < ms(1500) + AT_ONCE);
}

// When the files are deleted.

/// Holds, deletes these files under three waiters, and lets two more come.
fn delete_under_waiters(files: &[&str]) -> Vec<String> {
    let sandbox = Sandbox::new();
    let sandbox = &sandbox;
    // Without its guard nobody can know of the old holder, who learns it within a second; of the others they do.
    let watched = if files.contains(&"l.db-guard") {
        ""
    } else {
        WATCHED
    };
    let job = format!(
        "{watched} trap 'sleep .5; echo out >>history; exit 0' TERM; echo ready; while :; do sleep .02; done"
    );
    let holder = ["run", "A", "-k", "5s", "--", "sh", "-c", &job];
    let holder = sandbox.tenure().args(holder).start_ready();
    let job = format!("{WATCHED} sleep .1; echo out >>history");
    let waiter = || -> Call<'_> {
        let words = ["run", "A", "--wait", "15s", "--", "sh", "-c", &job];
        sandbox.tenure().args(words)
    };
    let mut waiters: Vec<_> = (0..3).map(|_| sandbox.queue(waiter())).collect();
    for file in files {
        // There may be no WAL at this moment.
        let _ = fs::remove_file(sandbox.path(file));
    }
    waiters.extend((0..2).map(|_| waiter().start()));
    holder.wait().exits(76);
    for waiter in waiters {
        let outcome = waiter.wait().without_wait();
        outcome.took(..ms(30_000));
        match outcome.code {
            Some(0) => outcome.says_nothing(),
            Some(69 | 75) => outcome.says_a_line(),
            _ => panic!("{files:?}: {outcome:#?}"),
        };
    }
    until(SOON, "whoever comes now gets in", || !sandbox.is_busy("A"));
    history(sandbox)
}

#[test]
fn a_deleted_database_neither_hangs_the_waiters_nor_makes_two_holders() {
    for_each(
        [&["l.db"][..], &["l.db", "l.db-wal", "l.db-shm"]],
        |files| {
            let history = delete_under_waiters(files);
            for run in history.chunks(2) {
                assert_eq!(run, ["in", "out"], "{files:?}: {history:?}");
            }
        },
    );
}

#[test]
fn a_database_deleted_with_its_guard_does_not_hang_the_waiters() {
    let files = ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"];
    let history = delete_under_waiters(&files);
    assert!(!history.iter().any(|line| line == "overlap"), "{history:?}");
}

#[test]
fn a_deleted_guard_file_neither_hangs_the_waiters_nor_makes_two_holders() {
    let sandbox = Sandbox::new();
    let job = format!("{WATCHED} echo ready; read x; echo out >>history");
    let run = || {
        let words = ["run", "A", "--wait", "60s", "--", "sh", "-c", &job];
        sandbox.tenure().args(words).stdin(Stdio::piped())
    };
    let holder = run().start_ready();
    let first = sandbox.queue(run());
    let second = sandbox.queue(run());
    fs::remove_file(sandbox.guard()).expect("it was made");
    throughout(ms(1500), "the lock is held", || {
        sandbox.is_busy("A") && !first.is_in() && !second.is_in()
    });
    holder.end().exits(0);
    // They may find it out with the slow tick only, and then one may come before the other.
    until(SOON, "one is in", || first.is_in() || second.is_in());
    throughout(ms(300), "the other waits", || {
        first.is_in() != second.is_in()
    });
    let (inside, mut other) = if first.is_in() {
        (first, second)
    } else {
        (second, first)
    };
    inside.end().exits(0);
    other.enters();
    other.end().exits(0);
    assert_eq!(history(&sandbox), ["in", "out"].repeat(3));
}

#[test]
fn many_who_share_are_let_in_together() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut waiters: Vec<_> = (0..12).map(|_| sandbox.waiter(&["-s", "A"])).collect();
    let mut last = sandbox.waiter(&["A"]);
    holder.end().exits(0);
    for waiter in &mut waiters {
        waiter.enters();
    }
    throughout(ms(100), "who shares with nobody waits", || !last.is_in());
    for waiter in waiters {
        waiter.end().exits(0);
    }
    last.enters_at_once();
}
