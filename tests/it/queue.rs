//! The line: first in, first out, for all modes; what wakes a waiter, and what it costs; deadlocks; descriptors.

use std::fs;
use std::time::Instant;

use crate::support::{Call, Running, SOON, Sandbox, Signal, for_each, ms, throughout, until};

/// How many stand in line for a lock.
fn waiting(sandbox: &Sandbox, name: &str) -> u64 {
    let outcome = sandbox.tenure().args(["status", "--json", name]).run();
    let lines = outcome.json();
    lines[0]["waiting"].as_u64().expect("a number")
}

/// Starts a call and returns when it stands in the line for `name`.
fn in_line<'a>(sandbox: &'a Sandbox, name: &str, call: Call<'a>) -> Running<'a> {
    let before = waiting(sandbox, name);
    let running = call.start();
    until(SOON, "it stands in the line", || {
        waiting(sandbox, name) == before + 1
    });
    running
}

/// `run A --wait 60s OPTIONS` that notes when it is in, and when it ends.
fn noting<'a>(sandbox: &'a Sandbox, options: &[&str], word: &str) -> Call<'a> {
    let script = format!("echo {word} in >>log; sleep 0.05; echo {word} out >>log");
    let call = sandbox.tenure().args(["run", "--wait", "60s"]);
    call.args(options).args(["A", "--", "sh", "-c", &script])
}

fn log(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    text.lines().map(String::from).collect()
}

fn rows(sandbox: &Sandbox) -> i64 {
    let count = "select count(*) from ticket";
    sandbox
        .connect()
        .query_row(count, [], |row| row.get(0))
        .expect("a table of tickets")
}

#[test]
fn waiters_enter_in_the_order_in_which_they_came() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let waiters: Vec<Running<'_>> = (0..10)
        .map(|n| in_line(&sandbox, "A", noting(&sandbox, &[], &n.to_string())))
        .collect();
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0).says_nothing();
    }
    let expected: Vec<String> = (0..10)
        .flat_map(|n| [format!("{n} in"), format!("{n} out")])
        .collect();
    assert_eq!(log(&sandbox), expected);
    assert_eq!(rows(&sandbox), 0);
}

#[test]
fn readers_that_come_later_do_not_overtake_a_writer() {
    let sandbox = Sandbox::new();
    let readers: Vec<Running<'_>> = (0..3)
        .map(|_| sandbox.tenure().args(["run", "-s", "A"]).hold())
        .collect();
    let writer = in_line(&sandbox, "A", noting(&sandbox, &[], "writer"));
    let late = in_line(&sandbox, "A", noting(&sandbox, &["-s"], "late"));
    // Nor does a try: the writer stands before it.
    let call = sandbox.tenure().args(["run", "-s", "A", "--", "true"]);
    let outcome = call.run();
    outcome.exits(75).says("A is waited for by *");
    let mut left = readers.len();
    for reader in readers {
        assert!(log(&sandbox).is_empty(), "in with {left} readers left");
        reader.end().exits(0);
        left -= 1;
    }
    writer.wait().exits(0);
    late.wait().exits(0);
    let expected = ["writer in", "writer out", "late in", "late out"];
    assert_eq!(log(&sandbox), expected);
}

#[test]
fn readers_hold_a_lock_together_and_writers_do_not() {
    let sandbox = Sandbox::new();
    let reader = sandbox.tenure().args(["run", "--shared", "A"]).hold();
    let call = sandbox
        .tenure()
        .args(["run", "--shared", "A", "--", "echo", "in"]);
    call.run().exits(0).prints("in\n");
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .is_busy("A");
    reader.end().exits(0);
}

#[test]
fn a_waiter_that_is_gone_is_in_nobodys_way() {
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let sandbox = Sandbox::new();
        let holder = sandbox.holder("A");
        let first = in_line(&sandbox, "A", noting(&sandbox, &[], "first"));
        let second = in_line(&sandbox, "A", noting(&sandbox, &[], "second"));
        first.signal(signal);
        first.wait().dies_by(signal);
        if signal != Signal::KILL {
            assert_eq!(rows(&sandbox), 2, "it has left the line");
        }
        throughout(ms(200), "the lock is held", || log(&sandbox).is_empty());
        holder.end().exits(0);
        second.wait().exits(0).took(..ms(5000));
        assert_eq!(log(&sandbox), ["second in", "second out"]);
        assert_eq!(rows(&sandbox), 0);
    }
}

#[test]
fn a_killed_holder_lets_the_next_in_at_once() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    let next = in_line(&sandbox, "A", noting(&sandbox, &[], "next"));
    let killed = Instant::now();
    holder.kill();
    next.wait().exits(0);
    assert!(killed.elapsed() < ms(1500), "{:?}", killed.elapsed());
}

#[test]
fn a_wait_ends_in_time_however_often_it_is_woken() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    // Ahead of it one after the other gives up, and each of them wakes it.
    let ahead: Vec<Running<'_>> = (0..4)
        .map(|_| in_line(&sandbox, "A", noting(&sandbox, &[], "ahead")))
        .collect();
    let call = sandbox
        .tenure()
        .args(["run", "--wait", "2s", "A", "--", "true"]);
    let waiter = in_line(&sandbox, "A", call);
    for waiter in ahead.into_iter().rev() {
        throughout(ms(200), "it waits", || log(&sandbox).is_empty());
        waiter.signal(Signal::TERM);
        waiter.wait().dies_by(Signal::TERM);
    }
    waiter.wait().is_busy("A").took(ms(1900)..ms(3500));
    holder.end().exits(0);
    assert_eq!(rows(&sandbox), 0);
}

#[test]
fn the_end_of_a_bare_lease_is_seen_soon() {
    let sandbox = Sandbox::new();
    let stamp = |name: &str| {
        let script = format!("date +%s%3N >{name}");
        let call = sandbox.tenure().args(["run", "--wait", "60s", "A", "--"]);
        call.args(["sh", "-c", &script])
    };
    let read = |name: &str| -> i64 {
        let text = fs::read_to_string(sandbox.path(name)).expect("it was in");
        text.trim().parse().expect("a number")
    };
    let now = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        i64::try_from(since.expect("after 1970").as_millis()).expect("a small number")
    };
    // Released by its token.
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let waiter = in_line(&sandbox, "A", stamp("released"));
    let call = sandbox.tenure().args(["release", "--token", &token]);
    call.run().exits(0);
    let released = now();
    waiter.wait().exits(0);
    assert!(read("released") - released < 300);
    // Run out.
    sandbox.acquire(["A", "--ttl", "700ms"]);
    let granted = now();
    stamp("expired").run().exits(0);
    let lasted = read("expired") - granted;
    assert!((600..1200).contains(&lasted), "{lasted} ms");
}

#[test]
fn waiting_costs_no_processor_time() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let waiters: Vec<Running<'_>> = (0..12)
        .map(|n| in_line(&sandbox, "A", noting(&sandbox, &[], &n.to_string())))
        .collect();
    let ticks = || -> u64 {
        let of = |pid: i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
            let fields: Vec<u64> = stat
                .rsplit(") ")
                .next()
                .into_iter()
                .flat_map(|rest| rest.split(' ').skip(11).take(2))
                .map(|field| field.parse().expect("a number"))
                .collect();
            fields.iter().sum::<u64>()
        };
        waiters.iter().map(|waiter| of(waiter.pid())).sum()
    };
    let before = ticks();
    throughout(ms(1500), "they wait", || log(&sandbox).is_empty());
    // 10 ms each, and none is expected; a poll at 20 ms would cost far more.
    assert!(ticks() - before <= 2, "{} ticks", ticks() - before);
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
}

#[test]
fn several_names_in_any_order_all_get_through() {
    let sandbox = Sandbox::new();
    for_each(0..20, |n| {
        let names = if n % 2 == 0 { ["X", "Y"] } else { ["Y", "X"] };
        let call = sandbox.tenure().args(["run", "--wait", "60s"]).args(names);
        let script = "mkdir one || echo two >>log; sleep 0.01; rmdir one";
        call.args(["--", "sh", "-c", script]).run().exits(0);
    });
    assert!(log(&sandbox).is_empty());
}

#[test]
fn slots_are_shared_out_and_never_to_two() {
    let sandbox = Sandbox::new();
    let script = "mkdir slot$TENURE_SLOT || echo two >>log; ls -d slot* | wc -l >>count; sleep 0.1; rmdir slot$TENURE_SLOT";
    for_each(0..9, |_| {
        let call = sandbox
            .tenure()
            .args(["run", "--slots", "3", "--wait", "60s", "A", "--"]);
        call.args(["sh", "-c", script])
            .run()
            .exits(0)
            .says_nothing();
    });
    assert!(log(&sandbox).is_empty());
    let counts = fs::read_to_string(sandbox.path("count")).expect("they were in");
    assert!(
        counts.lines().all(|count| ["1", "2", "3"].contains(&count)),
        "{counts}"
    );
}

#[test]
fn a_free_slot_is_taken_by_the_next_in_line_and_so_is_another() {
    let sandbox = Sandbox::new();
    let slots = ["run", "--slots", "2", "A"];
    let first = sandbox.tenure().args(slots).hold();
    let second = sandbox.tenure().args(slots).hold();
    let waits = || {
        let call = sandbox
            .tenure()
            .args(["run", "--slots", "2", "--wait", "60s", "A"]);
        call.args(["--", "sh", "-c", "echo slot $TENURE_SLOT; read x; exit 0"])
            .stdin(std::process::Stdio::piped())
    };
    let mut third = in_line(&sandbox, "A", waits());
    let mut fourth = in_line(&sandbox, "A", waits());
    second.end().exits(0);
    third.await_line("slot 1");
    assert_eq!(fourth.stdout(), "");
    first.end().exits(0);
    fourth.await_line("slot 0");
    third.end().exits(0);
    fourth.end().exits(0);
}

#[test]
fn slots_are_one_number_on_one_name() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--slots", "2", "A"]).hold();
    for words in [
        &["--slots", "3", "A"][..],
        &["--slots", "0", "B"],
        &["--slots", "-1", "B"],
        &["--slots", "2", "B", "C"],
        &["--slots", "2", "-s", "B"],
        &["-x", "-s", "B"],
    ] {
        let call = sandbox.tenure().arg("run").args(words);
        call.args(["--", "touch", "ran"]).run().is_usage_error("*");
    }
    assert!(!sandbox.path("ran").exists());
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .is_busy("A");
    holder.end().exits(0);
}

#[test]
fn a_lock_stays_taken_for_at_least_what_was_asked() {
    for end in ["exit 0", "kill -9 $PPID"] {
        let sandbox = Sandbox::new();
        let call = sandbox.tenure().args(["run", "--at-least", "1200ms", "A"]);
        call.args(["--", "sh", "-c", end]).run();
        let ended = Instant::now();
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .is_busy("A");
        let next = noting(&sandbox, &[], "next").run();
        next.exits(0);
        let waited = ended.elapsed();
        assert!(
            waited > ms(700) && waited < ms(3000),
            "{waited:?} after {end}"
        );
    }
}

#[test]
fn who_waits_for_himself_is_told_at_once() {
    let sandbox = Sandbox::new();
    let nested = ["run", "A", "--", "tenure", "run", "A", "--wait", "60s"];
    let outcome = sandbox
        .tenure()
        .args(nested)
        .args(["-E", "0", "--", "true"])
        .run();
    outcome.exits(75).took(..ms(3000)).says("waiting for A *");
    // Through another lock, as well.
    let chain = [
        "run", "A", "--", "tenure", "run", "B", "--wait", "60s", "--",
    ];
    let call = sandbox.tenure().args(chain);
    let call = call.args(["tenure", "run", "A", "--wait", "60s", "--", "true"]);
    call.run().exits(75).took(..ms(3000));
    // Another lock inside is nothing of the kind.
    let call = sandbox.tenure().args(["run", "A", "--", "tenure"]);
    call.args(["run", "B", "--wait", "60s", "--", "true"])
        .run()
        .exits(0);
    let call = sandbox.tenure().args(["run", "A", "--", "tenure"]);
    let outcome = call.args(["acquire", "A", "--wait", "60s", "--json"]).run();
    assert_eq!(outcome.json()[0]["reason"], "deadlock");
}

#[test]
fn of_two_who_wait_for_each_other_one_is_told() {
    let sandbox = Sandbox::new();
    let script = |own: &str, other: &str| {
        format!(
            "touch has{own}; until [ -e has{other} ]; do sleep 0.01; done; tenure run {other} --wait 60s -- true"
        )
    };
    let start = |own: &str, other: &str| {
        let call = sandbox.tenure().args(["run", own, "--", "sh", "-c"]);
        call.arg(script(own, other)).start()
    };
    let (one, two) = (start("X", "Y"), start("Y", "X"));
    let codes = [one.wait().code, two.wait().code];
    assert!(
        codes == [Some(0), Some(75)] || codes == [Some(75), Some(0)],
        "{codes:?}"
    );
}

#[test]
fn a_lease_that_is_tied_to_a_descriptor_lives_as_long_as_that_is_open() {
    let sandbox = Sandbox::new();
    sandbox.holder("A").end().exits(0);
    let script = "exec 9<>l.db-guard; tenure acquire A --fd 9 --ttl 1ms >/dev/null || exit; echo ready; read x";
    let shell = || {
        sandbox
            .program("bash")
            .args(["-c", script])
            .env("TENURE_DB", sandbox.db())
            .start_ready()
    };
    let first = shell();
    let waiter = in_line(&sandbox, "A", noting(&sandbox, &[], "waiter"));
    throughout(ms(200), "it is held", || log(&sandbox).is_empty());
    first.kill();
    waiter.wait().exits(0);
    // Released from elsewhere by its token, while the descriptor stays open.
    let script = "exec 9<>l.db-guard; tenure acquire A --fd 9 >token || exit; echo ready; read x";
    let call = sandbox
        .program("bash")
        .args(["-c", script])
        .env("TENURE_DB", sandbox.db());
    let second = call.start_ready();
    let waiter = in_line(&sandbox, "A", noting(&sandbox, &[], "waiter"));
    let token = fs::read_to_string(sandbox.path("token")).expect("it was printed");
    let call = sandbox.tenure().args(["release", "--token", token.trim()]);
    call.run().exits(0);
    waiter.wait().exits(0);
    second.end();
}

#[test]
fn a_descriptor_gives_back_what_is_tied_to_it() {
    let sandbox = Sandbox::new();
    sandbox.holder("A").end().exits(0);
    let script = "exec 9<>l.db-guard; tenure acquire A B --fd 9 >/dev/null; tenure release A --fd 9; echo $?
                  tenure release --fd 9; echo $?; tenure run A -- echo in; tenure release --fd 9; echo $?
                  tenure acquire A --fd 8; echo $?; tenure acquire A --fd 8 8<l.db-guard; echo $?
                  tenure acquire A --fd 8 8<>other; echo $?";
    let call = sandbox
        .program("bash")
        .args(["-c", script])
        .env("TENURE_DB", sandbox.db());
    call.run().prints("64\n0\nin\n76\n64\n64\n64\n");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_shell_can_evaluate_what_acquire_prints() {
    let sandbox = Sandbox::new();
    let script =
        "eval \"$(tenure acquire A --shell)\"; tenure status --token $TENURE_TOKEN; echo $?
                  test $TENURE_FENCE -gt 0 && tenure release; echo $?";
    let call = sandbox
        .program("bash")
        .args(["-c", script])
        .env("TENURE_DB", sandbox.db());
    call.run().prints("0\n0\n").says_nothing();
}
