//! Which processes are the job's when it is stopped: where /proc does not show them, and where the caller has others.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Stdio;

use crate::jobs::run_a;
use crate::pty::Terminal;
use crate::support::{Call, Running, SOON, Sandbox, for_each, ms, throughout, until};

/// A mount namespace whose /proc is as the shell commands make it.
fn mounted(how: &str) -> Vec<String> {
    let script = format!("mount --make-rprivate / && {how} && exec \"$@\"");
    let words = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    words.map(String::from).to_vec()
}

/// Every way to have a /proc that does not show the job, as words before a command.
fn without_proc() -> Vec<Vec<String>> {
    let pids = ["unshare", "--pid", "--fork", "--kill-child"];
    let first = pids.map(String::from).to_vec();
    let not_first = [&pids[..], &["sh", "-c", "\"$@\"; exit $?", "sh"]].concat();
    vec![
        mounted("mount -t tmpfs none /proc"),
        mounted("umount -l /proc"),
        // The processes of another namespace, whose numbers mean others.
        first,
        not_first.into_iter().map(String::from).collect(),
    ]
}

/// A job whose child has a kernel's lock on the file `work`, and does not heed TERM.
const DEEP: &str = r#"
    $| = 1;
    if (my $child = fork // die) { waitpid $child, 0; exit 9 }
    $SIG{TERM} = "IGNORE";
    open my $work, ">", "work" or die;
    flock $work, 2 or die;
    print "ready\n";
    select undef, undef, undef, 1 while 1;
"#;

/// CMD of a second holder, which fails where the first's job is still at work.
const ALONE: [&str; 6] = ["--", "flock", "-sn", "work", "touch", "entered"];

#[derive(Clone, Copy, Debug)]
enum Cause {
    MaxTime,
    Force,
}

/// Stops a job as [`DEEP`], and sees that nobody has the lock before all of it is dead.
#[track_caller]
fn assert_stopped(sandbox: &Sandbox, call: Call<'_>, at_terminal: bool, cause: Cause) {
    let call = call.args(["run", "A", "--kill-after", "1s"]);
    let call = match cause {
        Cause::MaxTime => call.args(["--max-time", "1s"]),
        Cause::Force => call,
    };
    let call = call.perl(DEEP, []);
    let mut terminal = at_terminal.then(Terminal::new);
    let running = match &mut terminal {
        Some(terminal) => {
            let running = terminal.start(call);
            terminal.sees("ready");
            running
        }
        None => call.detached().start_ready(),
    };
    let second = ["run", "--wait", "1m", "A"];
    let second = sandbox.tenure().args(second).args(ALONE).start();
    if let Cause::Force = cause {
        let released = sandbox.tenure().args(["release", "--force", "A"]).run();
        released.exits(0).took(ms(900)..);
    }
    let outcome = running.wait();
    let at_work = sandbox.program("flock").args(["-sn", "work", "true"]).run();
    outcome.exits(match cause {
        Cause::MaxTime => 124,
        Cause::Force => 76,
    });
    assert_eq!(at_work.code, Some(0), "the job works: {outcome:#?}");
    let second = second.wait();
    assert_eq!(second.code, Some(0), "two held it: {second:#?}");
    outcome.took(ms(1000)..ms(8000));
}

#[test]
fn a_job_that_proc_does_not_show_is_dead_before_another_has_the_lock() {
    let mut cases = Vec::new();
    for hidden in without_proc() {
        for at_terminal in [false, true] {
            for cause in [Cause::MaxTime, Cause::Force] {
                cases.push((hidden.clone(), at_terminal, cause));
            }
        }
    }
    for_each(cases, |(hidden, at_terminal, cause)| {
        println!("{hidden:?}, at a terminal: {at_terminal}, {cause:?}");
        let sandbox = Sandbox::new();
        assert!(!sandbox.is_busy("A"), "it is made where the boot is known");
        let call = sandbox.tenure().via(hidden);
        assert_stopped(&sandbox, call, at_terminal, cause);
    });
}

#[test]
fn a_job_of_another_user_whom_proc_hides_is_dead_before_another_has_the_lock() {
    for_each([false, true], |at_terminal| {
        let sandbox = Sandbox::new();
        chown(sandbox.dir(), Some(12345), None).unwrap();
        let other = ["setpriv", "--reuid", "12345", "--clear-groups"];
        // Who may trace any process is shown all of them.
        let veiled = "mount -t proc -o hidepid=2,gid=54321 proc /proc";
        let call = sandbox.sh(&format!(
            "exec setpriv --bounding-set -sys_ptrace tenure \"$@\" -- {} perl -e '{DEEP}'",
            other.join(" ")
        ));
        let call = call.arg("sh").via(mounted(veiled));
        let call = call.args(["run", "A", "--kill-after", "1s", "--max-time", "1s"]);
        let mut terminal = Terminal::new();
        let running = if at_terminal {
            let running = terminal.start(call);
            terminal.sees("ready");
            running
        } else {
            call.detached().start_ready()
        };
        let second = ["run", "--wait", "1m", "A"];
        let second = sandbox.tenure().args(second).args(ALONE).start();
        running.wait().exits(124).took(ms(1900)..ms(8000));
        second.wait().exits(0);
    });
}

#[test]
fn a_job_that_heeds_term_is_known_to_be_gone_without_proc() {
    for_each(without_proc(), |hidden| {
        let sandbox = Sandbox::new();
        let terminal = Terminal::new();
        let words = ["run", "A", "--max-time", "500ms", "--kill-after", "1m"];
        let call = sandbox.tenure().args(words).via(hidden);
        // Its child, which cannot be found while it is not this process's, ends by itself.
        let call = call.args(["--", "sh", "-c", "sleep 1 & wait"]);
        let outcome = terminal.start(call).wait();
        outcome.exits(124).took(..ms(8000));
    });
}

fn start<'a>(call: Call<'a>, terminal: Option<&Terminal>) -> Running<'a> {
    match terminal {
        Some(terminal) => terminal.start(call),
        None => call.detached().start(),
    }
}

#[test]
fn processes_that_cannot_be_killed_keep_the_lock_for_its_time_to_live() {
    for_each([false, true], |at_terminal| {
        let sandbox = Sandbox::new();
        let user = sandbox.tenure_as(12345, "");
        chown(sandbox.dir(), Some(12345), None).unwrap();
        let become_root = ["install", "-m", "4755", "/usr/bin/setpriv", "raise"];
        sandbox.program("env").args(become_root).run().exits(0);
        let words = [
            "run",
            "A",
            "--ttl",
            "8s",
            "--max-time",
            "500ms",
            "-k",
            "1ms",
        ];
        let raised = ["--", "./raise", "--reuid", "0", "sleep", "61"];
        let call = user.args(words).args(raised);
        let mut terminal = Terminal::new();
        let mut running = start(call, at_terminal.then_some(&terminal));
        let mut said = || {
            if at_terminal {
                terminal.screen()
            } else {
                running.stderr()
            }
        };
        until(SOON, "it is said", || {
            said().contains(
                "the kernel has not ended all of its processes; waiting for them, for 3s at most",
            )
        });
        assert!(!running.is_over());
        throughout(ms(1500), "the lock is held", || sandbox.is_busy("A"));
        assert!(sandbox.is_running(&["sleep", "61"]));
        let outcome = running.wait();
        outcome.exits(124).took(ms(8400)..);
        if !at_terminal {
            let last =
                "tenure: A can be another's now, though processes of the command may still work";
            assert_eq!(outcome.stderr.lines().last(), Some(last));
        }
    });
}

/// `bash SCRIPT`, with this sandbox's database, which says how it ended. Its parent leads the session, whose end would be
/// everybody's, and waits for a line of input.
fn bash<'a>(sandbox: &'a Sandbox, hidden: &[String], script: &str) -> Call<'a> {
    let leader = "\"$@\"; echo \"status $?\" >&2; read x";
    let call = sandbox.program("bash").args(["-c", script]);
    let call = call.via(hidden).via(["sh", "-c", leader, "sh"]);
    call.env("TENURE_DB", sandbox.db())
}

#[test]
fn what_a_script_had_started_before_is_not_stopped_with_the_job() {
    let cases = [
        (vec![], false),
        (vec![], true),
        (mounted("mount -t tmpfs none /proc"), true),
        (mounted("umount -l /proc"), true),
    ];
    for_each(cases, |(hidden, at_terminal)| {
        let sandbox = Sandbox::new();
        let job = "trap \"echo last; exit\" TERM; sleep 62 & wait";
        let read = "while read -r line; do sleep .2; echo \"$line\"; done > log";
        // The shell needs /proc for its own way to write to a command.
        let log = if hidden.is_empty() {
            format!("exec > >({read})")
        } else {
            format!("mkfifo pipe; {{ {read}; }} < pipe & exec > pipe")
        };
        let script = format!(
            "sleep 61 & {log}
             exec tenure run A --max-time 1 --kill-after 1s -- sh -c '{job}'"
        );
        let call = bash(&sandbox, &hidden, &script);
        let mut terminal = at_terminal.then(Terminal::new);
        let running = if let Some(terminal) = &mut terminal {
            let running = terminal.start(call);
            terminal.sees("status 124");
            running
        } else {
            let running = call.detached().stdin(Stdio::piped()).start();
            until(SOON, "it has ended", || {
                running.stderr().contains("status 124")
            });
            running
        };
        until(SOON, "the log has its last line", || {
            fs::read_to_string(sandbox.path("log")).is_ok_and(|log| log == "last\n")
        });
        assert!(sandbox.is_running(&["sleep", "61"]));
        assert!(!sandbox.is_running(&["sleep", "62"]));
        drop(running);
    });
}

#[test]
fn a_child_of_what_was_started_before_is_not_the_jobs_though_it_is_adopted() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    // One is adopted soon after its birth, the other later.
    let script = "sh -c 'sleep .3; sleep 61 & exit' & sh -c 'sleep 62 & sleep 1.5; exit' &
        exec tenure run A --max-time 3 --kill-after 1s -- sleep 63";
    let _running = terminal.start(bash(&sandbox, &[], script));
    terminal.sees("status 124");
    assert!(sandbox.is_running(&["sleep", "61"]));
    assert!(sandbox.is_running(&["sleep", "62"]));
    assert!(!sandbox.is_running(&["sleep", "63"]));
}

#[test]
fn an_orphan_of_the_job_is_stopped_whatever_else_the_caller_has_started() {
    // Some have no environment by which the sandbox knows them: by this they are known.
    let mark = std::process::id();
    let orphans = [
        // Soon after its birth, with all that it has inherited; with its descriptors alone; with its environment alone.
        "sh -c 'setsid sleep 71.MARK & exit'",
        "env -i sh -c 'setsid sleep 72.MARK & exit'",
        "perl -MPOSIX -e 'exit if fork; POSIX::close($_) for 3..2000; exec qw(setsid sleep 73.MARK)'",
        // With nothing, after it was seen below CMD.
        "env -i perl -MPOSIX -e 'POSIX::close($_) for 3..2000; if (fork) { sleep 2; exit } exec qw(setsid sleep 74.MARK)' &",
        "sleep 75.MARK",
    ];
    let is_there = |time: i32| {
        let line = format!("sleep\0{time}.{mark}\0");
        fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            fs::read(entry.path().join("cmdline")).is_ok_and(|text| text == line.as_bytes())
        })
    };
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let job = orphans.join("\n").replace("MARK", &mark.to_string());
    fs::write(sandbox.path("job"), job).unwrap();
    let script = "sleep 61 & exec tenure run A --max-time 4 --kill-after 1s -- sh job";
    let _running = terminal.start(bash(&sandbox, &[], script));
    until(SOON, "all of the job is there", || (71..=75).all(is_there));
    terminal.sees("status 124");
    for time in 71..=75 {
        assert!(!is_there(time), "{time}");
    }
    assert!(sandbox.is_running(&["sleep", "61"]));
}

#[test]
fn a_forced_release_stops_the_job_and_not_what_was_started_before() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let script = "sleep 61 & exec tenure run A -- sh -c 'sleep 62 & touch begun; wait'";
    let _running = terminal.start(bash(&sandbox, &[], script));
    until(SOON, "the job has begun", || sandbox.path("begun").exists());
    let released = sandbox.tenure().args(["release", "--force", "A"]).run();
    released.exits(0);
    terminal.sees("status 76");
    assert!(!sandbox.is_running(&["sleep", "62"]));
    assert!(sandbox.is_running(&["sleep", "61"]));
}

#[test]
fn a_job_lives_while_any_thread_of_it_does() {
    let sandbox = Sandbox::new();
    let source = sandbox.path("threads.c");
    fs::write(
        &source,
        "#include <pthread.h>\n#include <signal.h>\n#include <unistd.h>\n\
         static void *work(void *x) { for (;;) pause(); }\n\
         int main(void) { pthread_t t; signal(SIGTERM, SIG_IGN); \
         pthread_create(&t, 0, work, 0); write(1, \"ready\\n\", 6); pthread_exit(0); }\n",
    )
    .unwrap();
    let cc = ["-pthread", "-o", "threads", "threads.c"];
    sandbox.program("cc").args(cc).run().exits(0);
    let job = "exec 9> work; flock 9; ./threads & wait";
    let words = [
        "--max-time",
        "1s",
        "--kill-after",
        "1s",
        "--",
        "sh",
        "-c",
        job,
    ];
    let running = run_a(&sandbox).args(words).start_ready();
    let second = ["run", "--wait", "1m", "A"];
    let second = sandbox.tenure().args(second).args(ALONE).start();
    running.wait().exits(124).took(ms(1900)..ms(8000));
    second.wait().exits(0);
}
