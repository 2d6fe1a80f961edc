//! What every store promises. Each test is run against all of them.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{SOON, Sandbox, for_each, ms, state, throughout, until};

/// A test for each store, named after it. Where nothing vouches for a waiter, as on a file system that another kernel may
/// share, there is no line, and what is said of one is not asked.
macro_rules! every_store {
    (everywhere { $($name:ident)* } where_there_is_a_line { $($line:ident)* }) => {
        mod sqlite {
            $(#[test] fn $name() { super::$name(&crate::support::Sandbox::new()); })*
            $(#[test] fn $line() { super::$line(&crate::support::Sandbox::new()); })*
        }
        mod sqlite_without_a_guard {
            use crate::support::Sandbox;

            $(#[test] fn $name() { super::$name(&Sandbox::on_a_shared_file_system()); })*
        }
        #[cfg(feature = "etcd")]
        mod etcd {
            use crate::servers::{Kind, sandbox};

            $(#[test] fn $name() { super::$name(&sandbox(Kind::Etcd)); })*
            $(#[test] fn $line() { super::$line(&sandbox(Kind::Etcd)); })*
        }
        #[cfg(feature = "postgres")]
        mod postgres {
            use crate::servers::{Kind, sandbox};

            $(#[test] fn $name() { super::$name(&sandbox(Kind::Postgres)); })*
            $(#[test] fn $line() { super::$line(&sandbox(Kind::Postgres)); })*
        }
    };
}

every_store! {
    everywhere {
        a_held_lock_is_busy_and_a_free_one_is_not
        a_lease_is_released_by_its_token_and_by_no_other
        a_lease_is_extended_while_it_lives
        a_lease_ends_when_its_time_has_passed
        what_a_run_holds_is_not_released_by_its_token
        cmd_gets_the_lease_in_its_environment_and_its_status_is_the_exit
        a_signal_that_ends_cmd_ends_tenure
        fences_only_grow
        the_lock_of_a_killed_run_is_free_when_its_time_has_passed
        slots_are_taken_up_to_their_number_and_numbered
        another_number_of_slots_is_refused
        slots_of_the_dead_do_not_count
        several_names_are_taken_together_or_not_at_all
        a_lock_stays_taken_for_its_least_time
        a_forced_release_stops_a_run
        a_forced_release_returns_when_the_job_has_cleaned_up
        a_forced_release_of_a_killed_run_waits_for_its_time
        a_jobs_own_token_does_not_shorten_its_time
        a_forced_release_ends_a_bare_lease
        a_forced_release_of_another_fence_does_nothing
        a_nested_wait_for_ones_own_lock_is_told
        a_nested_try_for_ones_own_lock_is_told_and_not_skipped
        ones_own_lock_is_known_through_a_lease_of_another_store
        a_nested_try_that_is_not_in_its_own_way_is_as_any_other
        the_log_tells_what_happened
        a_command_that_cannot_be_started_gives_the_lock_back
        a_job_runs_longer_than_its_time_to_live
        a_stopped_tenures_job_and_the_next_are_not_at_work_at_once
        many_contenders_are_one_at_a_time
        names_of_all_kinds_are_kept_apart
    }
    where_there_is_a_line {
        waiters_enter_in_order
        a_wait_ends_in_time_and_leaves_the_line
        an_interrupted_waiter_leaves_the_line
        a_killed_waiter_is_passed_over
        a_token_that_was_waited_for_is_nobodys_but_the_callers
        readers_share_and_a_waiting_writer_is_not_starved
        another_number_of_slots_is_refused_whoever_stands_between
        the_number_of_slots_that_is_waited_for_counts_too
        who_waits_for_slots_is_not_refused_because_of_who_came_later
        status_tells_who_holds_and_who_waits
    }
}

fn a_held_lock_is_busy_and_a_free_one_is_not(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    assert!(sandbox.is_busy("A"));
    assert!(!sandbox.is_busy("B"));
    let call = sandbox.tenure().args(["acquire", "-E", "9", "-q", "A"]);
    call.run().exits(9).prints_nothing().says_nothing();
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

const WRONG: &str = "0123456789abcdef0123456789abcdef";

fn a_lease_is_released_by_its_token_and_by_no_other(sandbox: &Sandbox) {
    let token = sandbox.acquire(["A"]);
    let release = |token: &str| sandbox.tenure().args(["release", "--token", token]).run();
    release(WRONG).is_not_held("*");
    // The same lease, another secret.
    let last = if token.ends_with('0') { '1' } else { '0' };
    release(&format!("{}{last}", &token[..31])).is_not_held("*");
    assert!(sandbox.is_busy("A"));
    release(&token).exits(0).prints_nothing().says_nothing();
    release(&token).is_not_held("*");
    assert!(!sandbox.is_busy("A"));
}

fn a_lease_is_extended_while_it_lives(sandbox: &Sandbox) {
    let token = sandbox.acquire(["A", "--ttl", "5s"]);
    let extend = |words: &[&str]| {
        let call = sandbox.tenure().args(["extend", "--token", &token]);
        call.args(words).run()
    };
    extend(&[]).exits(0).prints_nothing();
    extend(&["A"]).exits(0);
    let held = &sandbox.status()[0];
    assert!(
        held["expires_in_ms"].as_i64().expect("a number") > 3000,
        "{held}"
    );
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    extend(&[]).is_not_held("*");
}

fn a_lease_ends_when_its_time_has_passed(sandbox: &Sandbox) {
    let token = sandbox.acquire(["A", "--ttl", "3s"]);
    assert!(sandbox.is_busy("A"));
    let call = sandbox
        .tenure()
        .args(["run", "-q", "-w", "20s", "A", "--", "true"]);
    call.run().exits(0).took(ms(1000)..ms(9000));
    for verb in ["extend", "release"] {
        let call = sandbox.tenure().args([verb, "--token", &token]);
        call.run().is_not_held("*");
    }
}

fn what_a_run_holds_is_not_released_by_its_token(sandbox: &Sandbox) {
    let script = "tenure release; echo $?";
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script]);
    let outcome = call.run();
    outcome.exits(0).prints("64\n");
}

fn cmd_gets_the_lease_in_its_environment_and_its_status_is_the_exit(sandbox: &Sandbox) {
    let script = "test -n \"$TENURE_FENCE\" && echo \"$TENURE_LOCK\" && tenure status --token $TENURE_TOKEN && exit 42";
    let call = sandbox
        .tenure()
        .args(["run", "B", "A", "--", "sh", "-c", script]);
    call.run().exits(42).prints("A\nB\n").says_nothing();
    assert!(!sandbox.is_busy("A"));
}

fn a_signal_that_ends_cmd_ends_tenure(sandbox: &Sandbox) {
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", "kill -USR1 $$"]);
    call.run().dies_by(Signal::USR1);
    assert!(!sandbox.is_busy("A"));
}

/// The fence of one that waits for the lock, if need be.
#[track_caller]
pub fn fence(sandbox: &Sandbox, name: &str) -> i64 {
    let words = [
        "run",
        "-q",
        "-w",
        "60s",
        name,
        "--",
        "printenv",
        "TENURE_FENCE",
    ];
    let outcome = sandbox.tenure().args(words).run();
    outcome.exits(0);
    outcome.stdout.trim_end().parse().expect("a number")
}

fn fences_only_grow(sandbox: &Sandbox) {
    let mut last = 0;
    for name in ["A", "B", "A", "A", "B"] {
        let fence = fence(sandbox, name);
        assert!(fence > last, "{fence} after {last}");
        last = fence;
    }
    let outcome = sandbox.tenure().args(["acquire", "--json", "A"]).run();
    let held = &outcome.json()[0];
    assert!(held["fence"].as_i64().expect("a number") > last, "{held}");
    assert_eq!(sandbox.status()[0]["fence"], held["fence"]);
}

/// How many stand in line for the lock.
#[track_caller]
fn waiting_for(sandbox: &Sandbox, name: &str) -> usize {
    let words = ["status", "--json", name];
    let status = sandbox.tenure().args(words).run().json();
    let count = status[0]["waiting"].as_u64().expect("a number");
    usize::try_from(count).expect("a few")
}

/// Waits until so many stand in line for the lock.
#[track_caller]
fn until_waiting(sandbox: &Sandbox, name: &str, count: usize) {
    until(SOON, &format!("{count} wait for {name}"), || {
        waiting_for(sandbox, name) == count
    });
}

fn waiters_enter_in_order(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let order = sandbox.path("order");
    let mut waiters = Vec::new();
    for number in 0..5 {
        let script = format!("echo {number} >> {}", order.display());
        let words = ["run", "-q", "-w", "60s", "A", "--", "sh", "-c", &script];
        waiters.push(sandbox.tenure().args(words).start());
        until_waiting(sandbox, "A", number + 1);
    }
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    let order = std::fs::read_to_string(order).expect("they ran");
    assert_eq!(order, "0\n1\n2\n3\n4\n");
}

fn a_wait_ends_in_time_and_leaves_the_line(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let call = sandbox
        .tenure()
        .args(["run", "-q", "-w", "1s", "A", "--", "true"]);
    call.run().exits(75).took(ms(900)..ms(6000));
    until_waiting(sandbox, "A", 0);
    holder.end().exits(0);
}

fn an_interrupted_waiter_leaves_the_line(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    for signal in [Signal::INT, Signal::TERM] {
        let words = ["acquire", "-q", "-w", "60s", "A"];
        let waiter = sandbox.tenure().args(words).start();
        until_waiting(sandbox, "A", 1);
        waiter.signal(signal);
        waiter.wait().dies_by(signal);
        until_waiting(sandbox, "A", 0);
    }
    holder.end().exits(0);
}

fn a_killed_waiter_is_passed_over(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let waiter = |ttl: &str| {
        let words = ["run", "-q", "-w", "90s", "--ttl", ttl, "A", "--", "true"];
        sandbox.tenure().args(words).start()
    };
    let killed = waiter("5s");
    until_waiting(sandbox, "A", 1);
    let next = waiter("5s");
    until_waiting(sandbox, "A", 2);
    killed.kill();
    holder.end().exits(0);
    next.wait().exits(0).took(ms(0)..ms(40_000));
}

fn the_lock_of_a_killed_run_is_free_when_its_time_has_passed(sandbox: &Sandbox) {
    let words = ["run", "--ttl", "5s", "A"];
    let holder = sandbox.tenure().args(words).hold();
    holder.kill();
    let call = sandbox
        .tenure()
        .args(["run", "-q", "-w", "30s", "A", "--", "true"]);
    call.run().exits(0).took(ms(0)..ms(15_000));
}

fn a_stopped_tenures_job_and_the_next_are_not_at_work_at_once(sandbox: &Sandbox) {
    // With one more process in its group, which is killed along.
    let script = "trap '' TERM; sleep 300 & echo $! $$; echo ready; while :; do sleep 0.2; done";
    let words = ["run", "--ttl", "6s", "A", "--", "sh", "-c", script];
    let mut run = sandbox.tenure().args(words).start();
    run.await_line("ready");
    let stdout = run.stdout();
    let pids = stdout.lines().next().expect("a line");
    run.signal(Signal::STOP);
    // Whom nobody has reaped is dead all the same.
    let script =
        format!("for pid in {pids}; do grep -s '^State:.*[^Z] (' /proc/$pid/status; done; true");
    let words = ["run", "-q", "-w", "15s", "A", "--", "sh", "-c", &script];
    let outcome = sandbox.tenure().args(words).run();
    outcome.prints_nothing();
    run.signal(Signal::CONT);
    if outcome.code == Some(0) {
        run.wait()
            .exits(76)
            .says("lost A: its lease was over while tenure was stopped; the command was killed");
        return;
    }
    // The kernel vouches for it.
    outcome.exits(75);
    run.signal(Signal::KILL);
    run.wait().dies_by(Signal::KILL);
}

fn a_token_that_was_waited_for_is_nobodys_but_the_callers(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let words = ["acquire", "-q", "-w", "60s", "--ttl", "1h", "A"];
    let waiter = sandbox.tenure().args(words).start();
    until_waiting(sandbox, "A", 1);
    holder.end().exits(0);
    let outcome = waiter.wait();
    let token = outcome.exits(0).stdout.trim_end();
    assert_eq!(sandbox.status()[0]["guarded"], false);
    let words = ["extend", "--ttl", "1m", "--token", token];
    sandbox.tenure().args(words).run().exits(0);
    let words = ["release", "--token", token];
    sandbox.tenure().args(words).run().exits(0);
    assert!(!sandbox.is_busy("A"));
}

fn readers_share_and_a_waiting_writer_is_not_starved(sandbox: &Sandbox) {
    let reader = sandbox.tenure().args(["run", "-s", "A"]).hold();
    let other = sandbox.tenure().args(["run", "-s", "A"]).hold();
    assert!(sandbox.is_busy("A"));
    let words = ["run", "-q", "-w", "60s", "A"];
    let writer = sandbox.tenure().args(words).args(["--", "true"]).start();
    until_waiting(sandbox, "A", 1);
    let late = sandbox.tenure().args(["run", "-s", "A", "--", "true"]);
    late.run().exits(75);
    reader.end().exits(0);
    other.end().exits(0);
    writer.wait().exits(0);
    let call = sandbox.tenure().args(["run", "-s", "A", "--", "true"]);
    call.run().exits(0);
}

fn slots_are_taken_up_to_their_number_and_numbered(sandbox: &Sandbox) {
    let taken = |call: crate::support::Call<'_>| {
        let outcome = call.args(["--", "printenv", "TENURE_SLOT"]).run();
        outcome.exits(0);
        outcome.stdout.trim_end().to_owned()
    };
    let run = || sandbox.tenure().args(["run", "--slots", "2", "A"]);
    let first = run().hold();
    assert_eq!(taken(run()), "1");
    let second = run().hold();
    run().args(["--", "true"]).run().exits(75);
    first.end().exits(0);
    assert_eq!(taken(run()), "0");
    second.end().exits(0);
}

/// A request for slots is refused, because another number of them is in use, and does not stand in the line after that.
#[track_caller]
fn slots_are_refused(sandbox: &Sandbox, asked: &str, used: &str) {
    let waits: [&[&str]; 3] = [&[], &["--wait", "0"], &["--wait", "60s"]];
    for wait in waits {
        let in_the_line = waiting_for(sandbox, "A");
        for (verb, command) in [("acquire", &[][..]), ("run", &["--", "true"])] {
            let call = sandbox.tenure().args([verb, "--slots", asked]).args(wait);
            let outcome = call.arg("A").args(command).run();
            outcome.is_usage_error(&format!("A is in use with --slots {used}: *"));
            assert!(outcome.took < SOON, "it waited: {outcome:#?}");
        }
        assert_eq!(waiting_for(sandbox, "A"), in_the_line);
    }
}

fn another_number_of_slots_is_refused(sandbox: &Sandbox) {
    let holder = sandbox.tenure().args(["run", "--slots", "2", "A"]).hold();
    slots_are_refused(sandbox, "3", "2");
    slots_are_refused(sandbox, "1", "2");
    let token = sandbox.acquire(["--slots", "2", "A"]);
    holder.end().exits(0);
    slots_are_refused(sandbox, "3", "2");
    let call = sandbox.tenure().args(["release", "--token", &token]);
    call.run().exits(0);
    let call = sandbox.tenure().args(["run", "--slots", "3", "A"]);
    call.args(["--", "true"]).run().exits(0);
}

fn another_number_of_slots_is_refused_whoever_stands_between(sandbox: &Sandbox) {
    for mode in ["--exclusive", "--shared"] {
        let holder = sandbox.tenure().args(["run", "--slots", "3", "A"]).hold();
        let waiter = || {
            let words = ["run", "-q", "-w", "60s", mode, "A", "--", "true"];
            sandbox.tenure().args(words).start()
        };
        let first = waiter();
        until_waiting(sandbox, "A", 1);
        slots_are_refused(sandbox, "2", "3");
        let second = waiter();
        until_waiting(sandbox, "A", 2);
        slots_are_refused(sandbox, "2", "3");
        let words = ["run", "--slots", "3", "A", "--", "true"];
        sandbox.tenure().args(words).run().exits(75);
        holder.end().exits(0);
        first.wait().exits(0);
        second.wait().exits(0);
    }
}

fn the_number_of_slots_that_is_waited_for_counts_too(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let waiter = |mode: &[&str], count: usize| {
        let call = sandbox.tenure().args(["run", "-q", "-w", "60s"]).args(mode);
        let waiter = call.args(["A", "--", "true"]).start();
        until_waiting(sandbox, "A", count);
        waiter
    };
    let mut waiters = vec![waiter(&["--slots", "2"], 1)];
    slots_are_refused(sandbox, "3", "2");
    waiters.push(waiter(&["--exclusive"], 2));
    slots_are_refused(sandbox, "3", "2");
    waiters.push(waiter(&["--shared"], 3));
    waiters.push(waiter(&["--slots", "2"], 4));
    slots_are_refused(sandbox, "1", "2");
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
}

fn who_waits_for_slots_is_not_refused_because_of_who_came_later(sandbox: &Sandbox) {
    let holder = sandbox.holder("A");
    let words = ["run", "-q", "-w", "60s", "--slots", "2", "A"];
    let waiter = sandbox.tenure().args(words).args(["--", "true"]).start();
    until_waiting(sandbox, "A", 1);
    let words = ["run", "-q", "-w", "60s", "--slots", "3", "A"];
    for_each(0..8, |_| {
        let call = sandbox.tenure().args(words).args(["--", "true"]);
        call.run().exits(64);
    });
    holder.end().exits(0);
    waiter.wait().exits(0).says_nothing();
}

fn slots_of_the_dead_do_not_count(sandbox: &Sandbox) {
    let words = ["run", "--ttl", "5s", "--slots", "3", "A"];
    sandbox.tenure().args(words).hold().kill();
    let outcome = || {
        let words = ["run", "-q", "-w", "30s", "--slots", "2", "A"];
        sandbox.tenure().args(words).args(["--", "true"]).run()
    };
    // Until its time has passed, where nobody sees that it is dead.
    until(SOON, "the dead are over", || outcome().code == Some(0));
    // And one that has died in the line.
    let holder = sandbox.holder("A");
    let words = ["run", "-w", "60s", "--ttl", "5s", "--slots", "3", "A"];
    let mut waiter = sandbox.tenure().args(words).args(["--", "true"]).start();
    until(SOON, "it waits", || {
        assert!(!waiter.is_over());
        waiter.stderr().contains("waiting, ")
    });
    waiter.kill();
    let words = ["run", "-q", "--slots", "2", "A", "--", "true"];
    until(SOON, "the dead one is out of the line", || {
        sandbox.tenure().args(words).run().code == Some(75)
    });
    holder.end().exits(0);
    outcome().exits(0);
}

/// Where there is no line, whoever is first has the lock: it is not the fault of who has waited.
#[test]
fn who_waits_without_a_line_is_not_refused_because_of_who_was_first() {
    let sandbox = Sandbox::on_a_shared_file_system();
    let holder = sandbox.holder("A");
    let words = ["run", "-w", "60s", "--slots", "2", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).start();
    until(SOON, "it waits", || waiter.stderr().contains("waiting, "));
    until(SOON, "it is stopped between two transactions", || {
        waiter.signal(Signal::STOP);
        until(SOON, "it stands still", || state(waiter.pid()) == Some('T'));
        let is_between = sandbox.tenure().args(["run", "B", "--", "true"]).run().code == Some(0);
        if !is_between {
            waiter.signal(Signal::CONT);
        }
        is_between
    });
    holder.end().exits(0);
    let other = sandbox.tenure().args(["run", "--slots", "3", "A"]).hold();
    waiter.signal(Signal::CONT);
    let mut waiter = waiter;
    throughout(ms(500), "it waits on", || !waiter.is_over());
    other.end().exits(0);
    waiter.wait().exits(0);
}

fn several_names_are_taken_together_or_not_at_all(sandbox: &Sandbox) {
    let token = sandbox.acquire(["B", "A", "A"]);
    assert!(sandbox.is_busy("A") && sandbox.is_busy("B"));
    let release = |words: &[&str]| {
        let call = sandbox.tenure().args(["release", "--token", &token]);
        call.args(words).run()
    };
    release(&["A"]).exits(64);
    assert!(sandbox.is_busy("A") && sandbox.is_busy("B"));
    release(&["A", "B"]).exits(0);
    let holder = sandbox.holder("B");
    let call = sandbox.tenure().args(["run", "-q", "A", "B", "--", "true"]);
    call.run().exits(75);
    assert!(!sandbox.is_busy("A"));
    holder.end().exits(0);
}

fn a_lock_stays_taken_for_its_least_time(sandbox: &Sandbox) {
    let words = ["run", "--at-least", "3s", "A", "--", "true"];
    sandbox
        .tenure()
        .args(words)
        .run()
        .exits(0)
        .took(ms(0)..ms(2500));
    assert!(sandbox.is_busy("A"));
    let held = &sandbox.status()[0];
    assert_eq!(
        (&held["state"], &held["guarded"]),
        (&"resting".into(), &false.into())
    );
    let call = sandbox
        .tenure()
        .args(["run", "-q", "-w", "30s", "A", "--", "true"]);
    call.run().exits(0).took(ms(300)..ms(9000));
}

fn a_forced_release_stops_a_run(sandbox: &Sandbox) {
    let words = ["run", "A", "--", "sh", "-c", "echo ready; exec sleep 300"];
    let mut holder = sandbox.tenure().args(words).start();
    holder.await_line("ready");
    let call = sandbox.tenure().args(["release", "--force", "A"]);
    call.run().exits(0).took(ms(0)..ms(9000));
    holder.wait().exits(76);
    assert!(!sandbox.is_busy("A"));
    let call = sandbox.tenure().args(["release", "--force", "A"]);
    call.run().exits(76);
}

fn a_forced_release_returns_when_the_job_has_cleaned_up(sandbox: &Sandbox) {
    let log = sandbox.path("cleaning");
    let script = format!(
        "trap 'echo begins >> {0}; sleep 1; echo ends >> {0}; exit 0' TERM; echo ready; while :; do sleep 0.05; done",
        log.display()
    );
    let words = ["run", "A", "--", "sh", "-c", &script];
    let mut holder = sandbox.tenure().args(words).start();
    holder.await_line("ready");
    let next = format!("echo next >> {}", log.display());
    let force = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it cleans up", || log.exists());
    assert!(sandbox.is_busy("A"));
    assert_eq!(sandbox.status()[0]["state"], "revoked");
    assert_eq!(sandbox.status()[0]["guarded"], true);
    let words = ["run", "-q", "-w", "30s", "A", "--", "sh", "-c", &next];
    let waiter = sandbox.tenure().args(words).start();
    force.wait().exits(0).took(ms(1000)..SOON);
    holder.wait().exits(76);
    waiter.wait().exits(0);
    let log = std::fs::read_to_string(log).expect("they ran");
    assert_eq!(log, "begins\nends\nnext\n");
    assert!(!sandbox.is_busy("A"));
}

/// Where it is seen that it is dead there is nothing to force.
fn a_forced_release_of_a_killed_run_waits_for_its_time(sandbox: &Sandbox) {
    let words = ["run", "--ttl", "5s", "A"];
    sandbox.tenure().args(words).hold().kill();
    let outcome = sandbox.tenure().args(["release", "--force", "A"]).run();
    match outcome.code {
        // Its command may live on, for all that is known.
        Some(0) => outcome.took(ms(2000)..ms(15_000)),
        _ => outcome.exits(76),
    };
    assert!(!sandbox.is_busy("A"));
    sandbox.tenure().args(words).hold().kill();
    let call = sandbox.tenure().args(["release", "--force", "--now", "A"]);
    assert!([Some(0), Some(76)].contains(&call.run().code));
    assert!(!sandbox.is_busy("A"));
}

fn a_jobs_own_token_does_not_shorten_its_time(sandbox: &Sandbox) {
    let script = "tenure extend --ttl 1s; echo $?; tenure extend --ttl 5s; echo $?; tenure extend; echo $?; \
                  tenure status --token $TENURE_TOKEN; echo $?; echo ready; read x; exit 3";
    let call = sandbox.tenure().args(["run", "--ttl", "6s", "A", "--"]);
    let mut run = call.args(["sh", "-c", script]).start_ready();
    let held = &sandbox.status()[0];
    assert_eq!(
        (&held["ttl_ms"], &held["guarded"]),
        (&6000.into(), &true.into())
    );
    let words = ["run", "-q", "-w", "8s", "A", "--", "true"];
    sandbox.tenure().args(words).run().exits(75);
    run.await_line("ready");
    let outcome = run.end();
    outcome.exits(3).prints("64\n64\n0\n0\nready\n");
    let refused = "tenure: A is held by a run (pid ";
    let said = outcome
        .stderr
        .lines()
        .filter(|line| line.starts_with(refused));
    assert_eq!(said.count(), 2, "{outcome:#?}");
    assert!(!sandbox.is_busy("A"));
    // What `acquire` took may get whatever its owner likes.
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let words = ["extend", "--ttl", "3s", "--token", &token];
    sandbox.tenure().args(words).run().exits(0);
    assert_eq!(sandbox.status()[0]["guarded"], false);
    let words = ["run", "-q", "-w", "20s", "A", "--", "true"];
    sandbox.tenure().args(words).run().exits(0);
}

fn a_forced_release_ends_a_bare_lease(sandbox: &Sandbox) {
    let token = sandbox.acquire(["A"]);
    let call = sandbox.tenure().args(["release", "--force", "A"]);
    call.run().exits(0);
    assert!(!sandbox.is_busy("A"));
    let call = sandbox.tenure().args(["extend", "--token", &token]);
    call.run().is_not_held("*");
}

fn a_forced_release_of_another_fence_does_nothing(sandbox: &Sandbox) {
    sandbox.acquire(["A"]);
    let fence = sandbox.status()[0]["fence"].as_i64().expect("a number");
    let force = |fence: i64| {
        let fence = fence.to_string();
        let words = ["release", "--force", "--if-fence", &fence, "A"];
        sandbox.tenure().args(words).run()
    };
    force(fence + 1).exits(76);
    assert!(sandbox.is_busy("A"));
    force(fence).exits(0);
    assert!(!sandbox.is_busy("A"));
}

fn a_nested_wait_for_ones_own_lock_is_told(sandbox: &Sandbox) {
    let words = [
        "run", "A", "--", "tenure", "run", "-w", "60s", "A", "--", "true",
    ];
    let outcome = sandbox.tenure().args(words).run();
    outcome.exits(75).took(ms(0)..ms(20_000));
    assert!(
        outcome.stderr.contains("deadlock") || outcome.stderr.contains("for ever"),
        "{outcome:#?}"
    );
}

/// Of a lock around a command, held by a process in words.
const TOLD: &str = "*for ever; A is held by *, inside of which this command runs";

fn a_nested_try_for_ones_own_lock_is_told_and_not_skipped(sandbox: &Sandbox) {
    for inner in [
        "tenure run -q -E 0 A -- touch ran",
        "tenure run -q -E 0 B A -- touch ran",
        "tenure run -s -q -E 0 A -- touch ran",
        "tenure acquire -q -E 0 A",
    ] {
        let call = sandbox.tenure().args(["run", "A", "--", "sh", "-c", inner]);
        let outcome = call.run();
        outcome.exits(75).prints_nothing().says(TOLD);
    }
    let inner = "tenure run B -- tenure acquire -q -E 0 --json A";
    let call = sandbox.tenure().args(["run", "A", "--", "sh", "-c", inner]);
    let outcome = call.run();
    let answer = &outcome.exits(75).json()[0];
    assert_eq!(answer["reason"], "deadlock", "{answer}");
    let held = &answer["held"];
    assert_eq!(
        (&held[0]["name"], &held[1]["name"]),
        (&"A".into(), &"B".into())
    );
    assert_eq!(held[1]["inside_of"], held[0]["fence"], "{answer}");
    let token = sandbox.acquire(["A"]);
    let inside = || sandbox.tenure().env("TENURE_TOKEN", &token);
    let words = ["run", "-q", "-E", "0", "A", "--", "touch", "ran"];
    inside().args(words).run().exits(75).says(TOLD);
    inside().arg("release").run().exits(0);
    // A token of a lease that is over is in nobody's way.
    let holder = sandbox.holder("A");
    inside().args(words).run().exits(0).says_nothing();
    holder.end().exits(0);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

fn ones_own_lock_is_known_through_a_lease_of_another_store(sandbox: &Sandbox) {
    let own = sandbox.db();
    let script = |inner: &str| {
        let own = own.display();
        format!("tenure run --db other.db M -- {inner} --db '{own}' A -- touch ran")
    };
    for inner in [
        "tenure run -q -E 0",
        "tenure run -q -E 0 -w 60s",
        "tenure run --db other.db O -- tenure run -q -E 0",
    ] {
        let script = script(inner);
        let call = sandbox
            .tenure()
            .args(["run", "A", "--", "sh", "-c", &script]);
        call.run().exits(75).says(TOLD).took(..ms(20_000));
    }
    // And its own row tells of the innermost lease that is in its store.
    let script = format!(
        "tenure run --db other.db M -- tenure run --db '{}' B -- sh -c 'echo ready; read x; exit 0'",
        own.display()
    );
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", &script]);
    let holder = call.start_ready();
    let status = sandbox.status();
    assert_eq!(status[1]["name"], "B");
    assert_eq!(status[1]["inside_of"], status[0]["fence"], "{status:?}");
    holder.end().exits(0);
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

fn a_nested_try_that_is_not_in_its_own_way_is_as_any_other(sandbox: &Sandbox) {
    for mode in ["-s", "--slots 2"] {
        let run = format!("tenure run {mode} -q -E 9 A --");
        let outcome = sandbox.sh(&format!("{run} {run} echo in")).run();
        outcome.exits(0).prints("in\n").says_nothing();
    }
    let run = "tenure run --slots 2 -q -E 9 A --";
    let stranger = sandbox.tenure().args(["run", "--slots", "2", "A"]).hold();
    let outcome = sandbox.sh(&format!("{run} {run} touch ran")).run();
    outcome.exits(9).says_nothing();
    stranger.end().exits(0);
    let outcome = sandbox.sh(&format!("{run} {run} {run} touch ran")).run();
    outcome.exits(75);
    assert!(outcome.stderr.contains("for ever"), "{outcome:#?}");
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

fn status_tells_who_holds_and_who_waits(sandbox: &Sandbox) {
    let words = ["run", "--note", "a note", "A"];
    let holder = sandbox.tenure().args(words).hold();
    let words = ["acquire", "-q", "-w", "60s", "A"];
    let waiter = sandbox.tenure().args(words).start();
    until_waiting(sandbox, "A", 1);
    let held = &sandbox.status()[0];
    assert_eq!(held["name"], "A");
    assert_eq!(held["note"], "a note");
    assert_eq!(held["pid"], holder.pid());
    let outcome = sandbox.tenure().arg("status").run();
    outcome.exits(0).prints_with("a note");
    waiter.signal(Signal::TERM);
    waiter.wait();
    holder.end().exits(0);
}

fn the_log_tells_what_happened(sandbox: &Sandbox) {
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", "exit 3"]);
    call.run().exits(3);
    let events = || {
        let outcome = sandbox.tenure().args(["log", "--json", "A"]).run();
        outcome.exits(0);
        let events = outcome.json();
        let told = |event: &serde_json::Value| (event["event"].clone(), event["status"].clone());
        events.iter().map(told).collect::<Vec<_>>()
    };
    until(SOON, "the log has the lease", || {
        events()
            == [
                ("granted".into(), serde_json::Value::Null),
                ("released".into(), 3.into()),
            ]
    });
}

fn a_command_that_cannot_be_started_gives_the_lock_back(sandbox: &Sandbox) {
    let call = sandbox.tenure().args(["run", "A", "--", "./none"]);
    call.run().exits(127);
    assert!(!sandbox.is_busy("A"));
}

fn a_job_runs_longer_than_its_time_to_live(sandbox: &Sandbox) {
    let words = ["run", "--ttl", "6s", "A"];
    let holder = sandbox.tenure().args(words).hold();
    let words = ["run", "-q", "-w", "9s", "A", "--", "true"];
    sandbox.tenure().args(words).run().exits(75);
    holder
        .end()
        .exits(0)
        .took(Duration::from_secs(9)..ms(30_000));
}

fn many_contenders_are_one_at_a_time(sandbox: &Sandbox) {
    let log = sandbox.path("sections");
    // Who finds another inside says so; a kernel lock of its own proves it.
    let script = format!(
        "exec 9>>{0}.proof; flock -n 9 || echo overlap >> {0}; echo $TENURE_FENCE >> {0}; sleep 0.01",
        log.display()
    );
    for_each(0..20, |_| {
        let words = ["run", "-q", "-w", "120s", "A", "--", "sh", "-c", &script];
        sandbox.tenure().args(words).run().exits(0);
    });
    let text = std::fs::read_to_string(log).expect("they ran");
    let fences: Vec<i64> = text
        .lines()
        .map(|line| line.parse().expect("no overlap"))
        .collect();
    assert_eq!(fences.len(), 20);
    assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
}

fn names_of_all_kinds_are_kept_apart(sandbox: &Sandbox) {
    let long = "n".repeat(255);
    let names = [
        "a",
        "a/b",
        "a/",
        "/a",
        "ä b",
        "a%2Fb",
        "'",
        "\"",
        "\\",
        "*",
        "a\u{2028}",
        &long,
    ];
    let tokens: Vec<String> = names.iter().map(|name| sandbox.acquire([*name])).collect();
    for (name, token) in names.iter().zip(&tokens) {
        let call = sandbox.tenure().args(["status", "--token", token, name]);
        call.run().exits(0);
        assert!(sandbox.is_busy(name), "{name}");
    }
    for token in &tokens {
        let call = sandbox.tenure().args(["release", "--token", token]);
        call.run().exits(0);
    }
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}
