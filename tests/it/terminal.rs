//! `run` at a terminal: the keyboard's signals, job control in an interactive shell, hang-ups.

use std::fs;
use std::time::Instant;

use rustix::process::{Pid, kill_process};

use crate::files::{blocks, lose};
use crate::jobs::{NOTING, child_of, count};
use crate::pty::{CTRL_BACKSLASH, CTRL_C, CTRL_Z, PROMPT, Terminal};
use crate::support::{
    Call, Running, SOON, Sandbox, Signal, is_alive, ms, state, throughout, until,
};
use crate::waiters::AT_ONCE;

/// `tenure run A`, to be started on a terminal.
fn run_a(sandbox: &Sandbox) -> Call<'_> {
    sandbox.tenure().args(["run", "A"])
}

/// An interactive bash, from which `tenure` finds the sandbox's database.
fn shell<'a>(sandbox: &'a Sandbox, terminal: &mut Terminal) -> Running<'a> {
    terminal.shell(sandbox.program("bash").env("TENURE_DB", sandbox.db()))
}

/// A script in the sandbox, to be run as `sh NAME`.
fn script(sandbox: &Sandbox, name: &str, text: &str) {
    fs::write(sandbox.path(name), text).unwrap();
}

/// The process of the sandbox with this command line.
#[track_caller]
fn pid_of(sandbox: &Sandbox, words: &[&str]) -> i32 {
    let mut pid = None;
    until(SOON, "the process is there", || {
        pid = sandbox.pids_of(words).next();
        pid.is_some()
    });
    pid.unwrap()
}

fn is_stopped(pid: i32) -> bool {
    state(pid) == Some('T')
}

fn goes_on(pid: i32) -> bool {
    state(pid).is_some_and(|state| matches!(state, 'R' | 'S' | 'D'))
}

/// Says `started`, waits for the file `finish`, says `finished` and ends with 4. In perl, for it forks nothing: a
/// shell that Ctrl-Z meets between vfork and its child's exec cannot stop, with tenure or without.
const JOB: &str = r#"$| = 1; print "started\n"; select undef, undef, undef, .05 until -e "finish"; print "finished\n"; exit 4"#;

// The keyboard's signals.

#[test]
fn ctrl_c_interrupts_the_command_once_and_its_clean_up_is_waited_for() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let job = r#"
        my $interrupts = 0;
        $SIG{INT} = sub { $interrupts++; syswrite STDOUT, "INT\n" };
        syswrite STDOUT, "ready\n";
        select undef, undef, undef, 60 until $interrupts;
        for (1..20) { select undef, undef, undef, .05 }
        syswrite STDOUT, "cleaned\n";
        exit($interrupts == 1 ? 3 : 4);
    "#;
    let mut running = terminal.start(run_a(&sandbox).perl(job, []));
    terminal.sees("ready");
    terminal.types(CTRL_C);
    terminal.sees("INT");
    throughout(ms(700), "the lock is held through the clean-up", || {
        sandbox.is_busy("A") && !running.is_over()
    });
    let outcome = running.wait();
    outcome.exits(3).took(ms(1000)..);
    assert_eq!(terminal.screen(), "ready\nINT\ncleaned\n");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn ctrl_c_interrupts_all_of_a_job_each_process_once() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let running = terminal.start(run_a(&sandbox).perl(crate::jobs::BOTH_NOTING, ["INT", "USR1"]));
    terminal.sees("ready");
    terminal.types(CTRL_C);
    until(SOON, "both are interrupted", || {
        let screen = terminal.screen();
        count(&screen, "parent INT") > 0 && count(&screen, "child INT") > 0
    });
    throughout(ms(300), "each is interrupted once", || {
        count(&terminal.screen(), "parent INT") == 1
    });
    terminal.types("\n\n");
    running.wait().exits(7);
    assert_eq!(
        terminal.screen().lines().count(),
        3,
        "{:?}",
        terminal.screen()
    );
}

#[test]
fn tenure_dies_by_the_ctrl_c_or_ctrl_backslash_that_ended_the_command() {
    for (key, signal) in [(CTRL_C, Signal::INT), (CTRL_BACKSLASH, Signal::QUIT)] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::new();
        let running = terminal.start(run_a(&sandbox).args([
            "--",
            "sh",
            "-c",
            "ulimit -c 0; echo ready; read x",
        ]));
        terminal.sees("ready");
        terminal.types(key);
        running.wait().dies_by(signal);
        assert!(!sandbox.is_busy("A"));
        assert_eq!(terminal.screen(), "ready\n", "tenure has nothing to add");
    }
}

#[test]
fn ctrl_backslash_reaches_the_command_once_and_its_trap_is_heard() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let running = terminal.start(run_a(&sandbox).perl(NOTING, ["QUIT"]));
    terminal.sees("ready");
    terminal.types(CTRL_BACKSLASH);
    terminal.sees("QUIT");
    throughout(ms(300), "it came once", || {
        count(&terminal.screen(), "QUIT") == 1
    });
    terminal.types("\n");
    running.wait().exits(7);
}

#[test]
fn a_command_that_ignores_ctrl_c_goes_on_and_so_does_tenure() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let script = "trap '' INT; trap 'echo told' QUIT; echo ready; read x; read x; exit 5";
    let mut running = terminal.start(run_a(&sandbox).args(["--", "sh", "-c", script]));
    terminal.sees("ready");
    terminal.types(CTRL_C);
    terminal.types(CTRL_BACKSLASH);
    terminal.sees("told");
    assert!(!running.is_over() && sandbox.is_busy("A"));
    terminal.types("\n\n");
    running.wait().exits(5);
}

#[test]
fn one_ctrl_c_ends_a_loop_in_an_interactive_shell() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("for i in 1 2 3; do echo round $i; tenure run A -- sleep 50; done\n");
    until(SOON, "the first round has begun", || {
        sandbox.is_running(&["sleep", "50"])
    });
    terminal.types(CTRL_C);
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 130");
    assert!(
        !terminal.screen().contains("round 2"),
        "{}",
        terminal.screen()
    );
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn one_ctrl_c_ends_a_loop_in_a_script() {
    for interpreter in ["sh", "bash"] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::new();
        script(
            &sandbox,
            "loop",
            "for i in 1 2 3; do echo round $i; tenure run A -- sleep 50; done\necho end\n",
        );
        let call = sandbox
            .program(interpreter)
            .arg("loop")
            .env("TENURE_DB", sandbox.db());
        let running = terminal.start(call);
        until(SOON, "the first round has begun", || {
            sandbox.is_running(&["sleep", "50"])
        });
        terminal.types(CTRL_C);
        running.wait().dies_by(Signal::INT);
        assert_eq!(count(&terminal.screen(), "round 1"), 1);
        assert_eq!(
            terminal
                .screen()
                .lines()
                .filter(|line| !line.is_empty())
                .count(),
            1
        );
    }
}

#[test]
fn ctrl_c_ends_a_wait() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A --wait 60 -- touch ran\n");
    let tenure = pid_of(
        &sandbox,
        &["tenure", "run", "A", "--wait", "60", "--", "touch", "ran"],
    );
    until(SOON, "tenure waits", || state(tenure) == Some('S'));
    terminal.types(CTRL_C);
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 130");
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn a_pipeline_ends_at_ctrl_c_as_a_whole() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A -- sh -c 'echo out; sleep 50; :' | sed s/out/through/\n");
    until(SOON, "the job has begun", || {
        sandbox.is_running(&["sleep", "50"])
    });
    terminal.types(CTRL_C);
    terminal.sees(PROMPT);
    until(SOON, "nothing is left", || {
        !sandbox.is_running(&["sleep", "50"])
    });
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn a_new_size_of_the_terminal_is_told_to_the_command_once() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let running = terminal.start(run_a(&sandbox).perl(NOTING, ["WINCH"]));
    terminal.sees("ready");
    for columns in [100, 120] {
        terminal.resize(columns);
        terminal.sees("WINCH");
    }
    throughout(ms(300), "each came once", || {
        count(&terminal.screen(), "WINCH") == 2
    });
    terminal.types("\n");
    running.wait().exits(7);
}

#[test]
fn what_is_sent_to_tenure_alone_reaches_the_command_once_at_a_terminal_too() {
    let sandbox = Sandbox::new();
    let signals = [
        ("TERM", Signal::TERM),
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ];
    let mut terminal = Terminal::new();
    let running = terminal.start(run_a(&sandbox).perl(NOTING, signals.map(|(name, _)| name)));
    terminal.sees("ready");
    for (name, signal) in signals {
        running.signal(signal);
        terminal.sees(name);
    }
    let all = signals.map(|(name, _)| format!("{name}\n")).concat();
    throughout(ms(300), "each came once", || {
        terminal.screen() == format!("ready\n{all}")
    });
    terminal.types("\n");
    running.wait().exits(7);
}

// Job control.

#[test]
fn ctrl_z_stops_the_job_and_fg_continues_it() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    script(&sandbox, "job", JOB);
    terminal.types("tenure run --ttl .3 A -- perl job\n");
    terminal.sees("started");
    let tenure = pid_of(
        &sandbox,
        &["tenure", "run", "--ttl", ".3", "A", "--", "perl", "job"],
    );
    let job = child_of(tenure);
    for _ in 0..2 {
        terminal.types(CTRL_Z);
        terminal.sees("Stopped");
        terminal.sees(PROMPT);
        until(SOON, "the command is stopped", || is_stopped(job));
        assert!(is_stopped(tenure));
        throughout(
            ms(500),
            "the lock is held, though its time to live has passed",
            || sandbox.is_busy("A"),
        );
        terminal.types("fg\n");
        until(SOON, "both go on", || goes_on(job) && goes_on(tenure));
    }
    fs::write(sandbox.path("finish"), "").unwrap();
    terminal.sees("finished");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 4");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn ctrl_z_and_bg_let_the_job_go_on_in_the_background() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    script(&sandbox, "job", JOB);
    terminal.types("tenure run A -- perl job\n");
    terminal.sees("started");
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    let tenure = pid_of(&sandbox, &["tenure", "run", "A", "--", "perl", "job"]);
    let job = child_of(tenure);
    terminal.types("bg\n");
    terminal.sees(PROMPT);
    until(SOON, "both go on", || goes_on(job) && goes_on(tenure));
    assert!(sandbox.is_busy("A"));
    fs::write(sandbox.path("finish"), "").unwrap();
    terminal.sees("finished");
    terminal.types("wait %1; echo status $?\n");
    terminal.sees("status 4");
}

#[test]
fn a_job_that_was_stopped_may_be_interrupted_after_fg() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A -- sleep 50\n");
    until(SOON, "the job has begun", || {
        sandbox.is_running(&["sleep", "50"])
    });
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    let job = pid_of(&sandbox, &["sleep", "50"]);
    terminal.types("fg\n");
    until(SOON, "it goes on", || goes_on(job));
    terminal.types(CTRL_C);
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 130");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_suspends_its_group_as_editors_do_is_continued_by_one_fg() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    // As vi: the terminal sends no TSTP, the editor puts it in order and stops its whole group.
    script(
        &sandbox,
        "edit",
        "echo started; kill -TSTP 0; echo back; exit 4\n",
    );
    terminal.types("tenure run A -- sh edit\n");
    terminal.sees("started");
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    assert!(sandbox.is_busy("A"));
    terminal.types("fg\n");
    terminal.sees("back");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 4");
}

#[test]
fn a_command_that_stops_only_itself_stops_tenure_too() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    script(
        &sandbox,
        "suspend",
        "echo started; kill -STOP $$; echo back; exit 4\n",
    );
    terminal.types("tenure run A -- sh suspend\n");
    terminal.sees("started");
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    assert!(sandbox.is_busy("A"));
    terminal.types("fg\n");
    terminal.sees("back");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 4");
}

#[test]
fn a_command_that_cleans_up_before_it_stops_is_given_the_time() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    // As less and many others: the signal is caught, the screen put in order, then it stops for good.
    let job = r#"
        $| = 1;
        $SIG{TSTP} = sub { print "tidy\n"; kill STOP => $$; print "back\n"; exit 4 };
        print "started\n";
        select undef, undef, undef, .05 while 1;
    "#;
    script(&sandbox, "job", job);
    terminal.types("tenure run A -- perl job\n");
    terminal.sees("started");
    terminal.types(CTRL_Z);
    terminal.sees("tidy");
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    assert!(sandbox.is_busy("A"));
    terminal.types("fg\n");
    terminal.sees("back");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 4");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_ignores_ctrl_z_goes_on_and_so_does_tenure() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    script(&sandbox, "job", &format!("$SIG{{TSTP}} = 'IGNORE'; {JOB}"));
    terminal.types("tenure run A -- perl job\n");
    terminal.sees("started");
    let tenure = pid_of(&sandbox, &["tenure", "run", "A", "--", "perl", "job"]);
    terminal.types(CTRL_Z);
    throughout(ms(300), "nothing stops", || {
        goes_on(tenure) && goes_on(child_of(tenure))
    });
    fs::write(sandbox.path("finish"), "").unwrap();
    terminal.sees("finished");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 4");
}

#[test]
fn a_wait_is_stopped_by_ctrl_z_and_goes_on_after_fg() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A --wait 60 -- echo entered\n");
    let tenure = pid_of(
        &sandbox,
        &[
            "tenure", "run", "A", "--wait", "60", "--", "echo", "entered",
        ],
    );
    until(SOON, "tenure waits", || {
        fs::read_dir(format!("/proc/{tenure}/fd"))
            .unwrap()
            .map_while(Result::ok)
            .any(|entry| fs::read_link(entry.path()).is_ok_and(|path| path == sandbox.guard()))
    });
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    until(SOON, "it is stopped", || is_stopped(tenure));
    holder.end();
    // One that stands still does not take the lock, nor keep others from it.
    assert!(!sandbox.is_busy("A"));
    terminal.types("fg\n");
    terminal.sees("entered");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 0");
}

#[test]
fn a_wait_of_acquire_is_stopped_by_ctrl_z_too_and_leaves_the_line() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure acquire A --wait 60 --json\n");
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    assert_eq!(sandbox.line(), [0; 0]);
    holder.end();
    assert!(!sandbox.is_busy("A"));
    terminal.types("fg\n");
    terminal.sees("\"token\"");
    terminal.sees(PROMPT);
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_newcomer_that_waits_for_the_holders_of_lost_files_is_stopped_by_ctrl_z_and_holds_up_nobody() {
    for files in [&["l.db"][..], &["l.db-wal", "l.db-shm"]] {
        let sandbox = Sandbox::new();
        let holder = lose(&sandbox, files);
        let mut terminal = Terminal::new();
        let _shell = shell(&sandbox, &mut terminal);
        terminal.types("tenure run A -- echo entered\n");
        let tenure = pid_of(&sandbox, &["tenure", "run", "A", "--", "echo", "entered"]);
        until(SOON, "it has got there", || blocks(tenure, Signal::TSTP));
        throughout(ms(100), "it waits", || !is_stopped(tenure));
        terminal.types(CTRL_Z);
        let typed = Instant::now();
        until(SOON, "it is stopped", || is_stopped(tenure));
        assert!(typed.elapsed() < AT_ONCE, "{files:?}");
        terminal.sees(PROMPT);
        holder.kill();
        let next = sandbox.tenure().args(["run", "A", "--", "true"]).run();
        next.exits(0).took(..AT_ONCE);
        terminal.types("fg\n");
        terminal.sees("entered");
        terminal.sees(PROMPT);
        terminal.types("echo status $?\n");
        terminal.sees("status 0");
    }
}

#[test]
fn a_job_that_the_shell_kills_ends_and_gives_the_lock_back() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A -- sh -c 'echo started; sleep 50; :' &\n");
    terminal.sees("started");
    // The whole group gets it, tenure and its command.
    terminal.types("kill %1; wait %1; echo status $?\n");
    terminal.sees("status 143");
    until(SOON, "nothing is left", || {
        !sandbox.is_running(&["sleep", "50"])
    });
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn a_command_that_somebody_stops_and_continues_leaves_no_tenure_that_stands_still() {
    // No shell with job control is there to continue tenure: `ssh -t host tenure run …`, and in a script.
    for caller in [&[][..], &["sh", "-c", "\"$@\"; exit $?", "sh"]] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::new();
        let job = run_a(&sandbox).args(["--", "sh", "-c", "echo ready; read x; exit 6"]);
        let running = terminal.start(job.via(caller));
        terminal.sees("ready");
        let command = pid_of(&sandbox, &["sh", "-c", "echo ready; read x; exit 6"]);
        let signal = |signal| kill_process(Pid::from_raw(command).unwrap(), signal).unwrap();
        signal(Signal::STOP);
        until(SOON, "the command is stopped", || is_stopped(command));
        signal(Signal::CONT);
        until(SOON, "the command goes on", || goes_on(command));
        terminal.types("\n");
        until(SOON, "tenure sees that the command has ended", || {
            !sandbox.is_busy("A")
        });
        running.wait().exits(6);
    }
}

#[test]
fn a_background_job_that_reads_the_terminal_stops_until_fg() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    script(
        &sandbox,
        "ask",
        "echo started; read x; echo \"got $x\"; exit 5\n",
    );
    terminal.types("tenure run A -- sh ask &\n");
    terminal.sees("started");
    let tenure = pid_of(&sandbox, &["tenure", "run", "A", "--", "sh", "ask"]);
    let ask = child_of(tenure);
    until(SOON, "both are stopped", || {
        is_stopped(ask) && is_stopped(tenure)
    });
    assert!(sandbox.is_busy("A"));
    terminal.types("fg\n");
    until(SOON, "both go on", || goes_on(ask) && goes_on(tenure));
    terminal.types("hello\n");
    terminal.sees("got hello");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 5");
}

#[test]
fn a_command_in_a_script_reads_the_terminal() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    script(
        &sandbox,
        "asking",
        "tenure run A -- sh -c 'echo ready; read x; echo \"got $x\"'\n",
    );
    let call = sandbox
        .program("sh")
        .arg("asking")
        .env("TENURE_DB", sandbox.db());
    let running = terminal.start(call);
    terminal.sees("ready");
    terminal.types("hello\n");
    terminal.sees("got hello");
    running.wait().exits(0);
}

#[test]
fn a_command_asks_for_a_password() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let ask = "exec </dev/tty >/dev/tty; stty -echo -icanon min 1; echo password:; x=$(dd bs=1 count=3 status=none); \
               stty echo icanon; echo \"got $x\"";
    let call = run_a(&sandbox)
        .args(["--", "sh", "-c", ask])
        .stdin(std::process::Stdio::null());
    let running = terminal.start(call);
    terminal.sees("password:");
    terminal.types("abc");
    terminal.sees("got abc");
    running.wait().exits(0);
}

#[test]
fn an_interactive_shell_as_the_command_has_job_control_of_its_own() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("PS1='inner> ' tenure run A -- bash --norc --noprofile --noediting -i\n");
    terminal.sees("inner> ");
    // Ctrl-C is for the inner shell's job, and ends neither that shell nor tenure.
    terminal.types("sleep 50\n");
    until(SOON, "the job has begun", || {
        sandbox.is_running(&["sleep", "50"])
    });
    terminal.types(CTRL_C);
    terminal.sees("inner> ");
    terminal.types("sleep 51\n");
    until(SOON, "the job has begun", || {
        sandbox.is_running(&["sleep", "51"])
    });
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees("inner> ");
    assert!(sandbox.is_busy("A"));
    terminal.types("kill -9 %1; disown -a; exit 5\n");
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 5");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn what_a_job_leaves_behind_at_a_terminal_neither_holds_the_lock_nor_delays_the_end() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = shell(&sandbox, &mut terminal);
    terminal.types("tenure run A -- sh -c 'sleep 60 & exit 3'\n");
    terminal.sees(PROMPT);
    assert!(!sandbox.is_busy("A"));
    until(SOON, "it is at work", || {
        sandbox.is_running(&["sleep", "60"])
    });
    terminal.types("echo status $?\n");
    terminal.sees("status 3");
}

// Stopped and killed.

#[test]
fn at_a_terminal_every_descendant_is_stopped_whatever_its_group() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::new();
    // A session of its own, a daemon's double fork, and one that ignores TERM.
    let tree = "setsid sleep 61 & sh -c 'setsid sleep 62 &' ; (trap '' TERM; sleep 63; sleep 64) & sleep 65";
    let call = run_a(&sandbox).args(["--max-time", ".7", "-k", ".5", "--", "sh", "-c", tree]);
    terminal
        .start(call)
        .wait()
        .exits(124)
        .took(ms(1200)..ms(8000));
    for seconds in ["61", "62", "63", "64", "65"] {
        assert!(
            !sandbox.is_running(&["sleep", seconds]),
            "sleep {seconds} is still there"
        );
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn timeout_at_a_terminal_leaves_nothing_of_a_job_that_ignores_term() {
    let sandbox = Sandbox::new();
    let terminal = Terminal::new();
    script(
        &sandbox,
        "job",
        "timeout -k .7 1 tenure run A -- sh -c 'trap \"\" TERM; sleep 300; :'\n",
    );
    let call = sandbox
        .program("sh")
        .arg("job")
        .env("TENURE_DB", sandbox.db());
    terminal.start(call).wait().exits(137);
    until(ms(3000), "nothing of the job is left", || {
        sandbox.processes().is_empty()
    });
    // A dying process loses its environment, by which it is found, a moment before its descriptors.
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn a_killed_tenure_at_a_terminal_takes_its_command_with_it() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    // HUP, which the kernel sends to the foreground when a session's leader dies, is not what ends it.
    let job = "trap '' HUP TERM; echo ready; read x; read x";
    let running = terminal.start(run_a(&sandbox).args(["--", "sh", "-c", job]));
    terminal.sees("ready");
    let command = child_of(running.pid());
    running.kill().dies_by(Signal::KILL);
    until(ms(2000), "the command is dead", || !is_alive(command));
    assert!(!sandbox.is_busy("A"));
}

// Hang-ups.

#[test]
fn a_hang_up_of_tenures_own_session_reaches_the_command_once() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    // In a file, for the screen is gone by then.
    let job =
        "trap 'echo HUP >>notes' HUP; echo ready; until [ -e finish ]; do sleep .05; done; exit 6";
    let mut running = terminal.start(run_a(&sandbox).args(["--", "sh", "-c", job]));
    terminal.sees("ready");
    drop(terminal);
    let notes = || fs::read_to_string(sandbox.path("notes")).unwrap_or_default();
    until(SOON, "the command has HUP", || !notes().is_empty());
    throughout(
        ms(300),
        "it came once, and the lock is held through the clean-up",
        || notes() == "HUP\n" && sandbox.is_busy("A") && !running.is_over(),
    );
    fs::write(sandbox.path("finish"), "").unwrap();
    running.wait().exits(6);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_hang_up_ends_a_command_that_does_nothing_about_it_and_all_of_its_job() {
    for job in ["echo ready; exec sleep 300", "echo ready; sleep 300; :"] {
        let sandbox = Sandbox::new();
        let mut terminal = Terminal::new();
        let running = terminal.start(run_a(&sandbox).args(["--", "sh", "-c", job]));
        terminal.sees("ready");
        until(SOON, "the job has begun", || {
            sandbox.is_running(&["sleep", "300"])
        });
        drop(terminal);
        running.wait().dies_by(Signal::HUP);
        until(SOON, "nothing is left", || sandbox.processes().is_empty());
        // A dying process loses its environment, by which it is found, a moment before its descriptors.
        until(SOON, "the lock is free", || !sandbox.is_busy("A"));
    }
}

#[test]
fn a_command_that_ignores_a_hang_up_keeps_the_lock_until_it_ends() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let job = "trap '' HUP; echo ready; until [ -e finish ]; do sleep .05; done; exit 6";
    let mut running = terminal.start(run_a(&sandbox).args(["--", "sh", "-c", job]));
    terminal.sees("ready");
    drop(terminal);
    throughout(ms(700), "the command and its lock live on", || {
        !running.is_over() && sandbox.is_busy("A")
    });
    fs::write(sandbox.path("finish"), "").unwrap();
    running.wait().exits(6);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_hang_up_of_the_shells_session_ends_the_job_too() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let shell = shell(&sandbox, &mut terminal);
    let job = "trap 'echo HUP >>notes; exit' HUP; echo ready; while :; do sleep .05; done";
    script(&sandbox, "job", job);
    terminal.types("tenure run A -- sh job\n");
    terminal.sees("ready");
    drop(terminal);
    until(SOON, "the command has HUP", || {
        sandbox.path("notes").exists()
    });
    shell.wait();
    until(SOON, "nothing is left", || sandbox.processes().is_empty());
    // A dying process loses its environment, by which it is found, a moment before its descriptors.
    until(SOON, "the lock is free", || !sandbox.is_busy("A"));
}

#[test]
fn nohup_outlives_a_hang_up() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let shell = shell(&sandbox, &mut terminal);
    script(&sandbox, "job", JOB);
    terminal.types("nohup tenure run A -- perl job >said 2>&1 &\n");
    until(SOON, "the job has begun", || {
        fs::read_to_string(sandbox.path("said")).is_ok_and(|said| said.contains("started"))
    });
    drop(terminal);
    shell.wait();
    throughout(ms(300), "the job lives on", || sandbox.is_busy("A"));
    fs::write(sandbox.path("finish"), "").unwrap();
    until(SOON, "it ends", || !sandbox.is_busy("A"));
    assert!(
        fs::read_to_string(sandbox.path("said"))
            .unwrap()
            .ends_with("finished\n")
    );
}

// A terminal made by another program.

#[test]
fn under_script_the_command_has_the_terminal() {
    let sandbox = Sandbox::new();
    script(
        &sandbox,
        "ask",
        "echo ready; read x; echo \"got $x\"; test -t 0 && exit 6\n",
    );
    let call = sandbox
        .program("script")
        .args(["-qec", "tenure run A -- sh ask", "/dev/null"]);
    let mut running = call
        .env("TENURE_DB", sandbox.db())
        .detached()
        .stdin(std::process::Stdio::piped())
        .start();
    running.await_line("ready");
    std::io::Write::write_all(running.stdin.as_mut().unwrap(), b"hello\n").unwrap();
    running.await_line("got hello");
    running.wait().exits(6);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn under_script_ctrl_c_interrupts_the_command_once() {
    let sandbox = Sandbox::new();
    let job = "trap 'echo interrupted; exit 3' INT; echo ready; while :; do sleep .05; done";
    script(&sandbox, "job", job);
    let call = sandbox
        .program("script")
        .args(["-qec", "tenure run A -- sh job", "/dev/null"]);
    let mut running = call
        .env("TENURE_DB", sandbox.db())
        // dash, which is interrupted too, would die of that whatever its command did.
        .env("SHELL", "/bin/bash")
        .detached()
        .stdin(std::process::Stdio::piped())
        .start();
    running.await_line("ready");
    std::io::Write::write_all(running.stdin.as_mut().unwrap(), CTRL_C.as_bytes()).unwrap();
    let outcome = running.wait();
    outcome.exits(3);
    assert_eq!(
        outcome.stdout.matches("interrupted").count(),
        1,
        "{outcome:#?}"
    );
}
