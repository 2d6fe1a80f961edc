//! `run` as the first process of a container: a pid namespace has it as PID 1.

use rustix::process::{Pid, kill_process};

use crate::jobs::{NOTING, child_of};
use crate::support::{Call, SOON, Sandbox, Signal, until};

/// `tenure run A` as PID 1 of a namespace that ends with it.
fn contained(sandbox: &Sandbox) -> Call<'_> {
    let namespace = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    sandbox
        .tenure()
        .args(["run", "A"])
        .via(namespace)
        .detached()
}

/// Signals PID 1 of the namespace that this `unshare` has made, from outside.
#[track_caller]
fn signal_first(unshare: i32, signal: Signal) {
    let first = Pid::from_raw(child_of(unshare)).expect("a pid is more than zero");
    kill_process(first, signal).expect("it is there");
}

#[test]
fn the_commands_exit_status_passes() {
    let sandbox = Sandbox::new();
    for code in [0, 1, 7, 75, 255] {
        let script = format!("test $PPID = 1 && exit {code}; exit 99");
        let outcome = contained(&sandbox).args(["--", "sh", "-c", &script]).run();
        outcome.exits(code).prints_nothing().says_nothing();
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_signal_that_ended_the_command_is_told_as_128_and_its_number() {
    let sandbox = Sandbox::new();
    for signal in [
        Signal::TERM,
        Signal::KILL,
        Signal::INT,
        Signal::HUP,
        Signal::SEGV,
        Signal::PIPE,
    ] {
        let script = format!("ulimit -c 0; kill -{} $$; sleep 60", signal.as_raw());
        let outcome = contained(&sandbox).args(["--", "sh", "-c", &script]).run();
        outcome.exits(128 + signal.as_raw()).says_nothing();
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn orphans_are_reaped_and_their_status_is_not_taken_for_the_commands() {
    let sandbox = Sandbox::new();
    // Every orphan ends with 99; then no zombie may be left, soon.
    let script = r#"
        for (1..30) {
            my $child = fork // die;
            if (!$child) { exit 98 if fork; select undef, undef, undef, .01; exit 99 }
            waitpid $child, 0;
        }
        for (1..500) {
            my @zombies = grep { open my $stat, "<", "$_/stat" and <$stat> =~ /\) Z / } glob "/proc/[0-9]*";
            my @others = grep { !m{/(1|$$)$} } glob "/proc/[0-9]*";
            exit 7 if !@zombies && !@others;
            select undef, undef, undef, .01;
        }
        exit 8;
    "#;
    let outcome = contained(&sandbox).perl(script, []).run();
    outcome.exits(7).says_nothing();
}

#[test]
fn an_orphan_that_ends_first_does_not_end_the_run() {
    let sandbox = Sandbox::new();
    let script = "sh -c 'sh -c \"sleep .1; touch ended; exit 99\" &'; echo ready; read x; exit 7";
    let mut running = contained(&sandbox)
        .args(["--", "sh", "-c", script])
        .start_ready();
    until(SOON, "the orphan has ended", || {
        sandbox.path("ended").exists()
    });
    assert!(sandbox.is_busy("A") && !running.is_over());
    running.end().exits(7);
}

#[test]
fn what_is_left_behind_does_not_delay_the_end() {
    let sandbox = Sandbox::new();
    let outcome = contained(&sandbox)
        .args(["--", "sh", "-c", "sleep 60 & exit 3"])
        .run();
    outcome.exits(3);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_signal_from_outside_reaches_the_command() {
    let sandbox = Sandbox::new();
    let names = ["TERM", "HUP", "INT", "USR1"];
    let signals = [Signal::TERM, Signal::HUP, Signal::INT, Signal::USR1];
    let mut running = contained(&sandbox).perl(NOTING, names).start_ready();
    for (name, signal) in names.into_iter().zip(signals) {
        signal_first(running.pid(), signal);
        running.await_line(name);
    }
    running
        .end()
        .exits(7)
        .prints("ready\nTERM\nHUP\nINT\nUSR1\n");
}

#[test]
fn a_command_that_ends_by_a_signal_from_outside_ends_the_container() {
    let sandbox = Sandbox::new();
    let running = contained(&sandbox)
        .args(["--", "sh", "-c", "echo ready; read x"])
        .start_ready();
    signal_first(running.pid(), Signal::TERM);
    running.wait().exits(143);
    assert!(!sandbox.is_busy("A"));
}
