//! Signals without a terminal, as in cron and CI: what CMD gets of them, how tenure ends by them, and what
//! the caller had ignored or blocked.

use std::fs;
use std::process::Stdio;

use rustix::process::{Pid, kill_process, kill_process_group};

use crate::jobs::{BOTH_NOTING, NOTING, child_of, count, run_a};
use crate::support::{SOON, Sandbox, Signal, for_each, is_alive, ms, state, throughout, until};

/// Those that tenure passes on and that end a process which does nothing about them.
const PASSED_ON: [(&str, Signal); 6] = [
    ("TERM", Signal::TERM),
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
];

// Sent to tenure alone.

#[test]
fn a_signal_to_tenure_reaches_the_command_once() {
    let sandbox = Sandbox::new();
    let names = ["TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "WINCH"];
    let signals = PASSED_ON
        .iter()
        .map(|(_, signal)| *signal)
        .chain([Signal::WINCH]);
    let mut jobs: Vec<_> = names
        .into_iter()
        .zip(signals)
        .map(|(name, signal)| {
            let job = sandbox.tenure().args(["run", name]).detached();
            (name, signal, job.perl(NOTING, names).start_ready())
        })
        .collect();
    for (name, signal, job) in &mut jobs {
        job.signal(*signal);
        job.await_line(name);
    }
    // One more that comes late would be a second one.
    throughout(ms(300), "each signal came once", || {
        jobs.iter()
            .all(|(name, _, job)| job.stdout() == format!("ready\n{name}\n"))
    });
    for (name, _, job) in jobs {
        assert!(
            sandbox.is_busy(name),
            "the lock is held until the command ends"
        );
        job.end()
            .exits(7)
            .prints(&format!("ready\n{name}\n"))
            .says_nothing();
        assert!(!sandbox.is_busy(name));
    }
}

#[test]
fn each_of_many_signals_reaches_the_command() {
    let sandbox = Sandbox::new();
    let job = run_a(&sandbox)
        .perl(NOTING, ["TERM", "HUP", "USR1"])
        .start_ready();
    let mut expected = String::from("ready\n");
    // Each is awaited, for the kernel itself keeps only one of each kind pending.
    for _ in 0..5 {
        for (name, signal) in [
            ("TERM", Signal::TERM),
            ("HUP", Signal::HUP),
            ("USR1", Signal::USR1),
        ] {
            job.signal(signal);
            expected.extend([name, "\n"]);
            until(SOON, "the command has the signal", || {
                job.stdout().len() >= expected.len()
            });
        }
    }
    job.end().exits(7).prints(&expected);
}

#[test]
fn a_signal_to_tenure_reaches_the_whole_group_of_the_command() {
    let sandbox = Sandbox::new();
    let jobs = PASSED_ON.map(|(name, signal)| {
        let job = sandbox
            .tenure()
            .args(["run", name])
            .detached()
            .perl(BOTH_NOTING, [name])
            .start_ready();
        (name, signal, job)
    });
    for (name, signal, mut job) in jobs {
        job.signal(signal);
        job.await_line(&format!("parent {name}"));
        job.await_line(&format!("child {name}"));
        let outcome = job.end();
        outcome.exits(7);
        assert_eq!(outcome.stdout.lines().count(), 3, "each once: {outcome:#?}");
    }
}

#[test]
fn the_exit_status_of_a_trap_comes_back() {
    let sandbox = Sandbox::new();
    let jobs = PASSED_ON.map(|(name, signal)| {
        let script = format!("trap 'echo cleaned; exit 9' {name}; echo ready; read x");
        let job = sandbox
            .tenure()
            .args(["run", name, "--", "sh", "-c", &script]);
        (name, signal, job.detached().start_ready())
    });
    for (name, signal, job) in jobs {
        job.signal(signal);
        job.wait()
            .exits(9)
            .prints("ready\ncleaned\n")
            .says_nothing();
        assert!(!sandbox.is_busy(name));
    }
}

#[test]
fn the_lock_is_held_while_the_command_cleans_up() {
    let sandbox = Sandbox::new();
    let script = "trap 'touch cleaning; read x; exit 0' TERM; echo ready; read x";
    let mut job = run_a(&sandbox)
        .args(["--", "sh", "-c", script])
        .start_ready();
    job.signal(Signal::TERM);
    until(SOON, "the clean-up has begun", || {
        sandbox.path("cleaning").exists()
    });
    throughout(ms(300), "the lock is held through the clean-up", || {
        !job.is_over() && sandbox.is_busy("A")
    });
    job.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn tenure_dies_by_the_signal_that_ended_the_command() {
    let sandbox = Sandbox::new();
    let jobs = PASSED_ON.map(|(name, signal)| {
        let job = sandbox
            .tenure()
            .args(["run", name, "--", "sh", "-c", "echo ready; read x"]);
        (name, signal, job.detached().start_ready())
    });
    for (name, signal, job) in jobs {
        job.signal(signal);
        job.wait().dies_by(signal).says_nothing();
        assert!(!sandbox.is_busy(name), "the lock was given back first");
    }
}

#[test]
fn a_command_that_ignores_a_signal_goes_on_and_so_does_tenure() {
    let sandbox = Sandbox::new();
    for (name, signal) in PASSED_ON {
        let program = format!("$SIG{{{name}}} = 'IGNORE'; {NOTING}");
        let mut job = run_a(&sandbox).perl(&program, ["WINCH"]).start_ready();
        job.signal(signal);
        // Passed on after it, and in order.
        job.signal(Signal::WINCH);
        job.await_line("WINCH");
        assert!(
            !job.is_over() && sandbox.is_busy("A"),
            "{name} ended tenure or gave the lock back"
        );
        job.end();
    }
}

#[test]
fn a_signal_to_the_group_of_tenure_reaches_the_command_once() {
    let sandbox = Sandbox::new();
    let mut job = run_a(&sandbox).perl(NOTING, ["TERM"]).start_ready();
    // `setsid` made tenure a group of its own; a service manager or `timeout` signals the group.
    let group = Pid::from_raw(job.pid()).unwrap();
    kill_process_group(group, Signal::TERM).unwrap();
    job.await_line("TERM");
    throughout(ms(200), "the signal came once", || {
        count(&job.stdout(), "TERM") == 1
    });
    job.end().exits(7);
}

// CMD killed by a signal.

#[test]
fn tenure_dies_by_whatever_signal_killed_the_command() {
    let sandbox = Sandbox::new();
    let signals = [
        Signal::KILL,
        Signal::SEGV,
        Signal::ABORT,
        Signal::PIPE,
        Signal::ALARM,
        Signal::BUS,
        Signal::FPE,
        Signal::ILL,
        Signal::TERM,
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::USR1,
        Signal::SYS,
        Signal::XCPU,
    ];
    for signal in signals {
        let script = format!("ulimit -c 0; kill -{} $$; sleep 60", signal.as_raw());
        let outcome = run_a(&sandbox).args(["--", "sh", "-c", &script]).run();
        outcome.dies_by(signal).prints_nothing().says_nothing();
    }
    // A real-time signal too.
    let outcome = run_a(&sandbox)
        .args(["--", "sh", "-c", "kill -40 $$; sleep 60"])
        .run();
    assert_eq!(outcome.signal, Some(40), "{outcome:#?}");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_shell_sees_128_and_the_signal() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .sh("tenure run A -- sh -c 'kill -TERM $$'; echo $?")
        .run();
    outcome.prints("143\n");
}

#[test]
fn tenure_leaves_no_core_of_its_own() {
    let sandbox = Sandbox::new();
    // perl shows the bit that tells of a core, which is set wherever the kernel puts it.
    let show = "system @ARGV; printf \"%d %d\\n\", $? & 127, $? & 128";
    for (name, signal) in [("QUIT", 3), ("SEGV", 11), ("ABRT", 6)] {
        let job = format!("ulimit -c 0; kill -{name} $$");
        let outcome = sandbox
            .program("sh")
            .args([
                "-c",
                r#"ulimit -c unlimited; exec perl -e "$@""#,
                "sh",
                show,
            ])
            .args(["tenure", "run", "A", "--", "sh", "-c", &job])
            .env("TENURE_DB", sandbox.db())
            .detached()
            .run();
        outcome.exits(0).prints(&format!("{signal} 0\n"));
    }
    let names = fs::read_dir(sandbox.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let cores: Vec<_> = names
        .filter(|name| name.to_string_lossy().starts_with("core"))
        .collect();
    assert!(cores.is_empty(), "{cores:?}");
}

// What the caller ignores or blocks.

#[test]
fn what_a_background_job_ignores_stays_ignored() {
    let sandbox = Sandbox::new();
    let script = |command: &str| {
        sandbox
            .sh(&format!(
                "{command} grep SigIgn /proc/self/status & wait $!"
            ))
            .detached()
            .run()
    };
    let plain = script("");
    plain.exits(0).prints_with("0006\n");
    script("tenure run A --")
        .exits(0)
        .prints(&plain.stdout)
        .says_nothing();
}

#[test]
fn an_ignored_interrupt_ends_neither_tenure_nor_the_command() {
    let sandbox = Sandbox::new();
    let mut job = sandbox
        .tenure()
        .args(["run", "A"])
        .via(["env", "--ignore-signal=INT,QUIT"])
        .detached()
        .perl(NOTING, ["INT", "QUIT", "USR1"])
        .start_ready();
    // The command has chosen to hear INT: it must not get one that was sent to a tenure which ignores it.
    job.signal(Signal::INT);
    job.signal(Signal::QUIT);
    job.signal(Signal::USR1);
    job.await_line("USR1");
    job.end().exits(7).prints("ready\nUSR1\n");
}

#[test]
fn nohup_makes_the_command_immune_as_it_does_without_tenure() {
    let sandbox = Sandbox::new();
    let show = ["grep", "SigIgn", "/proc/self/status"];
    let plain = sandbox.program("nohup").args(show).detached().run();
    plain.exits(0).prints_with("0001\n");
    let outcome = sandbox
        .program("nohup")
        .args(["tenure", "run", "A", "--"])
        .args(show);
    outcome
        .env("TENURE_DB", sandbox.db())
        .detached()
        .run()
        .exits(0)
        .prints(&plain.stdout);

    let job = sandbox
        .tenure()
        .args(["run", "A"])
        .via(["nohup"])
        .detached()
        .args(["--", "sh", "-c", "echo ready; read x"])
        .start_ready();
    job.signal(Signal::HUP);
    job.signal(Signal::HUP);
    assert!(sandbox.is_busy("A"));
    job.end().exits(1);
}

#[test]
fn the_command_has_the_signal_mask_and_dispositions_that_it_would_have_without_tenure() {
    let sandbox = Sandbox::new();
    let callers: [&[&str]; 11] = [
        &[],
        &["--ignore-signal=PIPE"],
        &["--ignore-signal=CHLD"],
        &["--ignore-signal=TERM,INT,HUP,QUIT"],
        &["--ignore-signal=USR1,USR2,WINCH,CONT,TSTP,TTIN,TTOU"],
        &["--ignore-signal"],
        &["--block-signal=TERM"],
        &["--block-signal=CHLD,PIPE,TSTP,TTOU"],
        &["--block-signal=RTMIN,34,64"],
        &["--block-signal"],
        &[
            "--ignore-signal=PIPE,CHLD,HUP",
            "--block-signal=USR1,INT,CHLD",
        ],
    ];
    let show = [
        "grep",
        "-E",
        "^(Sig|Shd)(Pnd|Blk|Ign|Cgt)",
        "/proc/self/status",
    ];
    for caller in callers {
        let via = || ["setsid", "env", "--default-signal"].iter().chain(caller);
        let plain = sandbox.program(show[0]).args(&show[1..]).via(via()).run();
        plain.exits(0);
        let outcome = sandbox
            .tenure()
            .args(["run", "A", "--"])
            .args(show)
            .via(via())
            .run();
        outcome.exits(0).prints(&plain.stdout).says_nothing();
    }
}

#[test]
fn the_status_comes_back_whatever_the_caller_ignores_or_blocks() {
    let sandbox = Sandbox::new();
    // A process that ignores CHLD has no children to wait for: flock's and many a wrapper's trap.
    for caller in [
        "--ignore-signal=CHLD",
        "--block-signal=CHLD",
        "--ignore-signal",
        "--block-signal",
    ] {
        let run = |script: &str| {
            let call = run_a(&sandbox).args(["--", "sh", "-c", script]);
            call.via(["env", caller]).run()
        };
        run("exit 3").exits(3).says_nothing();
        run("exit 0").exits(0).says_nothing();
        run("kill -KILL $$").dies_by(Signal::KILL).says_nothing();
    }
}

#[test]
fn tenure_dies_by_the_commands_signal_even_if_its_caller_ignores_or_blocks_it() {
    let sandbox = Sandbox::new();
    let unblock = "use POSIX; $SIG{TERM} = 'DEFAULT';
                   sigprocmask(SIG_UNBLOCK, POSIX::SigSet->new(SIGTERM)); kill TERM => $$; sleep 60";
    for caller in ["--ignore-signal=TERM", "--block-signal=TERM"] {
        let outcome = run_a(&sandbox).perl(unblock, []).via(["env", caller]).run();
        outcome.dies_by(Signal::TERM).says_nothing();
    }
}

// Killed from outside.

#[test]
fn timeout_leaves_nothing_of_a_job_that_ignores_term() {
    // Two shells, each with a child of its own, and without where it can.
    let jobs = ["sh", "bash"]
        .into_iter()
        .flat_map(|shell| [(shell, ""), (shell, "; :")]);
    for_each(jobs, |(shell, end)| {
        let sandbox = Sandbox::new();
        let script = format!("trap '' TERM; echo ready; sleep 300{end}");
        let call = sandbox
            .tenure()
            .args(["run", "A", "--", shell, "-c", &script]);
        let call = call.via(["timeout", "-k", ".7", "1.3"]).detached();
        call.start_ready()
            .wait()
            .prints("ready\n")
            .took(ms(2000)..ms(10_000));
        until(ms(3000), "nothing of the job is left", || {
            sandbox.processes().is_empty()
        });
        // A dying process loses its environment, by which it is found, a moment before its descriptors.
        until(ms(3000), "the lock is free", || !sandbox.is_busy("A"));
    });
}

#[test]
fn a_killed_tenure_takes_its_command_with_it() {
    let sandbox = Sandbox::new();
    let job = run_a(&sandbox).args(["--", "sleep", "300"]).start();
    until(SOON, "the command has started", || {
        sandbox.is_running(&["sleep", "300"])
    });
    job.kill().dies_by(Signal::KILL);
    until(ms(2000), "the command is dead", || {
        !sandbox.is_running(&["sleep", "300"])
    });
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn a_killed_tenure_takes_all_of_its_job_with_it() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM HUP INT; sh -c 'sleep 301 & sleep 302' & echo ready; sleep 303; :";
    let job = run_a(&sandbox)
        .args(["--", "sh", "-c", script])
        .start_ready();
    until(SOON, "the whole job has started", || {
        ["301", "302", "303"]
            .iter()
            .all(|seconds| sandbox.is_running(&["sleep", seconds]))
    });
    job.kill().dies_by(Signal::KILL);
    until(ms(2000), "nothing of the job is left", || {
        sandbox.processes().is_empty()
    });
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn a_daemon_of_an_earlier_job_outlives_a_later_tenure_that_is_killed() {
    let sandbox = Sandbox::new();
    let daemon = "sleep 301 >/dev/null 2>&1 & exit 0";
    run_a(&sandbox)
        .args(["--", "sh", "-c", daemon])
        .run()
        .exits(0);
    until(SOON, "the daemon is at work", || {
        sandbox.is_running(&["sleep", "301"])
    });
    let job = run_a(&sandbox)
        .args(["--", "sh", "-c", "echo ready; sleep 302; :"])
        .start_ready();
    job.kill().dies_by(Signal::KILL);
    until(ms(2000), "the job is dead", || {
        !sandbox.is_running(&["sleep", "302"])
    });
    assert!(sandbox.is_running(&["sleep", "301"]));
}

#[test]
fn a_killed_tenure_takes_a_command_with_it_that_ignores_what_it_can() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM HUP INT QUIT USR1 USR2; echo ready; while :; do sleep 300; done";
    let job = run_a(&sandbox)
        .args(["--", "sh", "-c", script])
        .start_ready();
    let shell = child_of(job.pid());
    job.kill().dies_by(Signal::KILL);
    until(ms(2000), "the command is dead", || !is_alive(shell));
}

// Before the command has started.

/// Waits until this tenure waits in the line: it is at the database, and sleeps.
fn until_it_waits(sandbox: &Sandbox, pid: i32) {
    let is_open =
        |entry: fs::DirEntry| fs::read_link(entry.path()).is_ok_and(|path| path == sandbox.guard());
    until(SOON, "tenure waits", || {
        let mut descriptors = fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .map_while(Result::ok);
        descriptors.any(is_open) && state(pid) == Some('S')
    });
}

#[test]
fn a_signal_while_tenure_waits_ends_it_and_the_command_never_runs() {
    for verb in [
        &["run", "A", "--wait", "60", "--", "touch", "ran"][..],
        &["acquire", "A", "--wait", "60"],
    ] {
        let sandbox = Sandbox::new();
        let holder = sandbox.holder("A");
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let waiter = sandbox.tenure().args(verb).detached().start();
            until_it_waits(&sandbox, waiter.pid());
            waiter.signal(signal);
            let outcome = waiter.wait();
            outcome
                .dies_by(signal)
                .prints_nothing()
                .says_nothing()
                .took(..ms(10_000));
        }
        holder.end();
        assert!(
            !sandbox.is_busy("A"),
            "a waiter that is gone is not in the line"
        );
        assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
        assert!(!sandbox.path("ran").exists());
    }
}

#[test]
fn a_killed_waiter_is_not_in_the_line() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let waiter = run_a(&sandbox)
        .args(["--wait", "60", "--", "touch", "ran"])
        .start();
    until_it_waits(&sandbox, waiter.pid());
    waiter.kill().dies_by(Signal::KILL);
    holder.end();
    assert!(!sandbox.is_busy("A"));
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_signal_at_any_moment_leaves_neither_a_lock_nor_a_job() {
    let sandbox = Sandbox::new();
    assert!(!sandbox.is_busy("A"), "the database is made");
    for delay in 0..40 {
        let job = run_a(&sandbox).args(["--", "sleep", "300"]).start();
        // A busy wait: from before exec to after the command's start, step by step.
        let start = std::time::Instant::now();
        while start.elapsed() < ms(delay) {
            std::hint::spin_loop();
        }
        job.signal(Signal::TERM);
        let outcome = job.wait();
        outcome
            .dies_by(Signal::TERM)
            .says_nothing()
            .took(..ms(10_000));
        assert!(!sandbox.is_running(&["sleep", "300"]), "after {delay} ms");
        assert!(!sandbox.is_busy("A"), "after {delay} ms");
    }
}

#[test]
fn a_kill_at_any_moment_leaves_neither_a_lock_nor_a_job() {
    let sandbox = Sandbox::new();
    assert!(!sandbox.is_busy("A"), "the database is made");
    for delay in 0..40 {
        let job = run_a(&sandbox)
            .args(["--", "sh", "-c", "sleep 300; :"])
            .start();
        let start = std::time::Instant::now();
        while start.elapsed() < ms(delay) {
            std::hint::spin_loop();
        }
        job.kill().dies_by(Signal::KILL);
        until(ms(5000), "nothing of the job is left", || {
            sandbox.processes().is_empty()
        });
        // The dead give up their descriptors a moment after all else.
        until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    }
}

// Stopped and continued.

#[test]
fn a_stopped_tenure_keeps_its_lock_and_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    let job = run_a(&sandbox)
        .args([
            "--ttl",
            ".3",
            "--",
            "sh",
            "-c",
            "echo ready; read x; exit 6",
        ])
        .start_ready();
    job.stop();
    throughout(
        ms(1000),
        "the lock is held, though its time to live has passed",
        || sandbox.is_busy("A"),
    );
    job.resume();
    job.end().exits(6).says_nothing();
}

#[test]
fn a_command_that_ends_while_tenure_is_stopped_has_its_status_told_later() {
    let sandbox = Sandbox::new();
    let mut job = run_a(&sandbox)
        .args(["--", "sh", "-c", "echo ready; read x; exit 6"])
        .start_ready();
    let shell = child_of(job.pid());
    job.stop();
    job.stdin = None;
    until(SOON, "the command has ended", || state(shell) == Some('Z'));
    assert!(sandbox.is_busy("A") && !job.is_over());
    job.resume();
    job.wait().exits(6).says_nothing();
}

#[test]
fn tstp_to_tenure_stops_the_command_and_cont_continues_both() {
    let sandbox = Sandbox::new();
    let script = "echo ready; read x; exit 6";
    let job = run_a(&sandbox)
        .args(["--", "sh", "-c", script])
        .start_ready();
    let shell = child_of(job.pid());
    for _ in 0..2 {
        job.signal(Signal::TSTP);
        until(SOON, "the command is stopped", || state(shell) == Some('T'));
        assert!(sandbox.is_busy("A"));
        job.resume();
        until(SOON, "both go on", || {
            state(shell) == Some('S') && state(job.pid()) == Some('S')
        });
    }
    job.end().exits(6).says_nothing();
}

#[test]
fn a_cont_that_comes_with_the_news_of_a_stop_is_not_lost() {
    let sandbox = Sandbox::new();
    let job = run_a(&sandbox)
        .args(["--", "sh", "-c", "echo ready; read x; exit 6"])
        .start_ready();
    let shell = child_of(job.pid());
    // A busy machine, played: tenure learns of the command's stop when it is told to continue it.
    job.stop();
    kill_process(Pid::from_raw(shell).unwrap(), Signal::TSTP).unwrap();
    until(SOON, "the command is stopped", || state(shell) == Some('T'));
    job.resume();
    until(SOON, "both go on", || {
        state(shell) == Some('S') && state(job.pid()) == Some('S')
    });
    job.end().exits(6).says_nothing();
}

#[test]
fn tstp_stops_tenure_too_where_a_shell_would_continue_it() {
    let sandbox = Sandbox::new();
    // As a shell with job control starts it, though without a terminal: tenure's group is not an orphaned one.
    let parent =
        "my $pid = fork // die; if (!$pid) { setpgrp; exec @ARGV } waitpid $pid, 0; exit $? >> 8";
    let mut job = sandbox
        .program("perl")
        .args(["-e", parent, "tenure", "run", "A", "--"])
        .args(["sh", "-c", "echo ready; read x; exit 6"])
        .env("TENURE_DB", sandbox.db())
        .detached()
        .stdin(Stdio::piped())
        .start();
    job.await_line("ready");
    let tenure = child_of(job.pid());
    let shell = child_of(tenure);
    let signal = |signal| {
        kill_process(Pid::from_raw(tenure).unwrap(), signal).unwrap();
    };
    signal(Signal::TSTP);
    until(SOON, "both are stopped", || {
        state(shell) == Some('T') && state(tenure) == Some('T')
    });
    assert!(sandbox.is_busy("A"));
    signal(Signal::CONT);
    until(SOON, "both go on", || {
        state(shell) == Some('S') && state(tenure) == Some('S')
    });
    job.end().exits(6);
}
