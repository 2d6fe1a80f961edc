//! `run` around its command: what CMD inherits, how long the lease is kept for it, and how it is stopped.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::jobs::{NOTING, count, run_a};
use crate::support::{Call, Outcome, SOON, Sandbox, Signal, ms, until};

/// A program with this text, which may be executed by all.
fn program(path: impl AsRef<Path>, text: &str) {
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
}

/// A job that says `ready` when its clean-up is armed, and on TERM cleans up for half a second.
const CLEANING: &str = "trap 'touch cleaning; sleep .5; echo cleaned; exit 3' TERM; \
                        echo ready; while :; do sleep 61; done";

// What CMD inherits.

#[test]
fn the_command_finds_its_lease_in_the_environment() {
    let sandbox = Sandbox::new();
    let script = r#"printf '%s\n' "$TENURE_DB" "$TENURE_FENCE" "$TENURE_TOKEN" "$TENURE_LOCK"
                    tenure status --token "$TENURE_TOKEN"; echo $?"#;
    let outcome = sandbox
        .tenure()
        .args(["run", "a lock", "b/lock", "--", "sh", "-c", script])
        .run();
    outcome.exits(0).says_nothing();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    assert_eq!(Path::new(lines[0]), sandbox.db());
    assert!(lines[1].parse::<i64>().unwrap() > 0, "{outcome:#?}");
    let is_digit = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    assert!(
        lines[2].len() == 32 && lines[2].chars().all(is_digit),
        "{outcome:#?}"
    );
    assert_eq!(lines[3..5], ["a lock", "b/lock"]);
    assert_eq!(
        lines.last(),
        Some(&"0"),
        "the token is the lease's: {outcome:#?}"
    );
}

#[test]
fn the_fence_in_the_environment_is_the_one_that_status_shows() {
    let sandbox = Sandbox::new();
    let script = "echo $TENURE_FENCE; tenure status --json A";
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .run();
    outcome.exits(0);
    let (fence, status) = outcome.stdout.split_once('\n').unwrap();
    let status: serde_json::Value = serde_json::from_str(status).unwrap();
    assert_eq!(status["fence"].to_string(), fence);
}

#[test]
fn a_relative_database_is_absolute_for_the_command() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("sub")).unwrap();
    let outcome = sandbox
        .program("tenure")
        .args(["run", "--db", "sub/x.db", "A", "--"])
        .args([
            "sh",
            "-c",
            "cd /; echo $TENURE_DB; tenure run A -- true; echo $?",
        ])
        .run();
    outcome.exits(0);
    let (path, inner) = outcome.stdout.split_once('\n').unwrap();
    assert!(Path::new(path).is_absolute(), "{outcome:#?}");
    assert_eq!(
        fs::canonicalize(path).unwrap(),
        fs::canonicalize(sandbox.path("sub/x.db")).unwrap()
    );
    assert_eq!(
        inner, "75\n",
        "the command's tenure finds the same database: {outcome:#?}"
    );
}

#[test]
fn what_the_caller_had_of_another_lease_is_replaced() {
    let sandbox = Sandbox::new();
    let script = r#"echo "$TENURE_LOCK" "$TENURE_FENCE" "$TENURE_TOKEN" "${TENURE_SLOT-no slot}""#;
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .env("TENURE_LOCK", "old lock")
        .env("TENURE_FENCE", "old fence")
        .env("TENURE_TOKEN", "0123456789abcdef0123456789abcdef")
        .env("TENURE_SLOT", "3")
        .run();
    outcome.exits(0).says_nothing();
    assert!(!outcome.stdout.contains("old"), "{outcome:#?}");
    assert!(!outcome.stdout.contains("0123456789abcdef"), "{outcome:#?}");
    assert!(
        outcome.stdout.starts_with("A ") && outcome.stdout.ends_with(" no slot\n"),
        "{outcome:#?}"
    );
}

#[test]
fn the_rest_of_the_environment_passes_through_untouched() {
    let sandbox = Sandbox::new();
    let odd = OsStr::from_bytes(b"caf\xe9 \x01=\"' \n end");
    let environment = |call: Call<'_>| {
        let outcome = call
            .args(["env", "-0"])
            .env("ODD", odd)
            .env("EMPTY", "")
            .run();
        outcome.exits(0);
        let others = |entry: &&str| !entry.starts_with("TENURE_");
        outcome
            .stdout
            .split('\0')
            .filter(others)
            .map(str::to_owned)
            .collect::<BTreeSet<_>>()
    };
    let within = environment(sandbox.tenure().args(["run", "A", "--"]));
    let without = environment(sandbox.program("env"));
    assert_eq!(within, without);
}

#[test]
fn arguments_reach_the_command_as_they_are() {
    let sandbox = Sandbox::new();
    let words: [&[u8]; 15] = [
        b"two words",
        b"it's",
        b"\"double\"",
        b"",
        b"--",
        b"-n",
        b"--wait",
        b"$HOME",
        b"`id`",
        b"*",
        b"back\\slash",
        b"a\nline",
        b"\xff\xfe not UTF-8",
        b";",
        b"",
    ];
    sandbox
        .tenure()
        .args([
            "run",
            "A",
            "--",
            "sh",
            "-c",
            r#"printf '%s\0' "$@" >words"#,
            "sh",
        ])
        .args(words.map(OsStr::from_bytes))
        .run()
        .exits(0)
        .says_nothing();
    let expected: Vec<u8> = words
        .iter()
        .flat_map(|word| [word, &b"\0"[..]].concat())
        .collect();
    assert_eq!(fs::read(sandbox.path("words")).unwrap(), expected);
}

#[test]
fn the_command_has_the_name_by_which_it_was_called() {
    let sandbox = Sandbox::new();
    for name in ["cat", "/bin/cat"] {
        let outcome = sandbox
            .tenure()
            .args(["run", "A", "--", name, "/proc/self/cmdline"])
            .run();
        outcome
            .exits(0)
            .prints(&format!("{name}\0/proc/self/cmdline\0"));
    }
}

#[test]
fn standard_input_output_and_error_are_the_callers_own() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("input"), "firstsecond").unwrap();
    // The position in the file is shared: what the command has not read is left to the next.
    let script = "tenure run A -- sh -c 'dd bs=5 count=1 status=none; echo; echo err >&2'; cat";
    let input = File::open(sandbox.path("input")).unwrap();
    let outcome = sandbox.sh(script).stdin(input).run();
    outcome.exits(0).prints("first\nsecond");
    assert_eq!(outcome.stderr, "err\n");
}

#[test]
fn standard_output_belongs_to_the_command_even_when_tenure_is_verbose() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .tenure()
        .args(["run", "-v", "A", "--", "echo", "hi"])
        .run();
    outcome.exits(0).prints("hi\n");
    assert!(!outcome.stderr.is_empty(), "--verbose says something");
    assert!(
        outcome
            .stderr
            .lines()
            .all(|line| line.starts_with("tenure: ")),
        "{outcome:#?}"
    );
}

#[test]
fn a_run_in_which_all_is_well_says_nothing() {
    let sandbox = Sandbox::new();
    for _ in 0..2 {
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
}

#[test]
fn a_script_without_an_interpreter_line_is_run_by_the_shell() {
    let sandbox = Sandbox::new();
    program(sandbox.path("script"), "echo \"$0: $1, $2\"\nexit 7\n");
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "./script", "one", "two words"])
        .run();
    outcome
        .exits(7)
        .prints("./script: one, two words\n")
        .says_nothing();
    // The same by its name alone, which takes another way through exec.
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "script", "1", "2"])
        .env("PATH", sandbox.dir())
        .run();
    outcome.exits(7).says_nothing();
}

#[test]
fn the_command_is_looked_for_on_the_path() {
    let sandbox = Sandbox::new();
    for directory in ["first", "second", "third"] {
        fs::create_dir(sandbox.path(directory)).unwrap();
    }
    // What cannot be executed does not hide what can, further on.
    fs::write(sandbox.path("first/job"), "#!/bin/sh\nexit 1\n").unwrap();
    program(sandbox.path("second/job"), "#!/bin/sh\nexit 5\n");
    program(sandbox.path("third/job"), "#!/bin/sh\nexit 6\n");
    program(sandbox.path("job"), "#!/bin/sh\nexit 2\n");
    let run = |path: &str| {
        sandbox
            .tenure()
            .args(["run", "A", "--", "job"])
            .env("PATH", path)
            .run()
    };
    let [first, second, third] =
        ["first", "second", "third"].map(|name| sandbox.path(name).display().to_string());
    run(&format!("{first}:{second}:{third}"))
        .exits(5)
        .says_nothing();
    run(&format!("{third}:{second}")).exits(6).says_nothing();
    // A program in the working directory is not found by its name alone.
    run(&first).exits(126).prints_nothing().says_a_line();
    run("/nonexistent")
        .exits(127)
        .prints_nothing()
        .says_a_line();
    assert!(!sandbox.is_busy("A"));
}

/// The descriptors that CMD has, and what they are.
fn descriptors(outcome: &Outcome) -> Vec<(u32, String)> {
    let entry = |line: &str| {
        let (number, target) = line.split_once(' ').expect("a number and a target");
        (number.parse().expect("a number"), target.to_owned())
    };
    outcome
        .exits(0)
        .says_nothing()
        .stdout
        .lines()
        .map(entry)
        .collect()
}

/// Notes the descriptors of the shell that runs it, by another one, which may open what it needs.
const LIST: &str = r#"sh -c "ls /proc/\$PPID/fd >>list; :"; :"#;

/// What [`LIST`] has written.
fn listed(sandbox: &Sandbox) -> BTreeSet<u32> {
    let list = fs::read_to_string(sandbox.path("list")).unwrap();
    list.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn the_command_inherits_no_descriptor_but_the_callers_and_the_guard() {
    let sandbox = Sandbox::new();
    // perl, for a shell has descriptors of its own.
    let list = r#"opendir my $fds, "/proc/self/fd"; my @fds = readdir $fds; closedir $fds;
                  for (sort { $a <=> $b } grep /\d/, @fds) { my $to = readlink "/proc/self/fd/$_"; print "$_ $to\n" if $to }"#;
    let without = descriptors(&sandbox.program("perl").args(["-e", list]).run());
    let outcome = sandbox.tenure().args(["run", "A"]).perl(list, []).run();
    let all = descriptors(&outcome);
    let caller = |number: &u32| without.iter().any(|(callers, _)| callers == number);
    let added: Vec<_> = all.iter().filter(|(number, _)| !caller(number)).collect();
    assert_eq!(all.len(), without.len() + added.len(), "{all:?}");
    // That of the guard, and the pipe by which the job dies with its supervisor; out of every shell's way.
    assert_eq!(added.len(), 2, "{added:?}");
    assert!(added.iter().all(|(number, _)| *number > 255), "{added:?}");
    let guard = fs::canonicalize(sandbox.guard())
        .unwrap()
        .display()
        .to_string();
    assert!(added.iter().any(|(_, target)| *target == guard), "{all:?}");
    assert!(
        added.iter().any(|(_, target)| target.starts_with("pipe:")),
        "{all:?}"
    );
    let database = fs::canonicalize(sandbox.db())
        .unwrap()
        .display()
        .to_string();
    let of_database = |target: &str| {
        target == database
            || target.starts_with(&format!("{database}-wal"))
            || target.starts_with(&format!("{database}-shm"))
    };
    assert!(
        !all.iter().any(|(_, target)| of_database(target)),
        "{all:?}"
    );
}

#[test]
fn the_callers_other_descriptors_pass_through() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("seven"), "of seven\n").unwrap();
    let outcome = sandbox
        .sh("tenure run A -- cat 7<seven <&7 3</dev/null")
        .run();
    outcome.exits(0).prints("of seven\n");
    let outcome = sandbox
        .sh("exec 7<seven; tenure run A -- sh -c 'cat <&7'")
        .run();
    outcome.exits(0).prints("of seven\n").says_nothing();
}

#[test]
fn a_closed_standard_descriptor_stays_closed_for_the_command() {
    for (closing, number) in [("<&-", 0), (">&-", 1), ("2>&-", 2)] {
        let sandbox = Sandbox::new();
        let script = format!("tenure run A -- sh -c '{LIST}' {closing}");
        sandbox.sh(&script).run().exits(0);
        let left: BTreeSet<u32> = listed(&sandbox).into_iter().filter(|fd| *fd < 10).collect();
        let expected: BTreeSet<u32> = (0..=2).filter(|fd| *fd != number).collect();
        assert_eq!(left, expected, "with {closing}");
    }
}

#[test]
fn limits_directory_and_all_else_that_a_process_inherits_are_untouched() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("sub dir")).unwrap();
    let show = "umask; pwd; pwd -P; ulimit -a; ulimit -Ha; nice; cat /proc/self/oom_score_adj /proc/self/timerslack_ns; \
                grep -E 'NoNewPrivs|Seccomp:|Cap|Groups|Uid|Gid|Cpus_allowed_list|SigPnd|ShdPnd' /proc/self/status";
    let outcome = |before: &str| {
        let script = format!(
            "umask 027; ulimit -n 200; ulimit -S -c 0; ulimit -f 100000; cd 'sub dir'; nice -n 3 {before} sh -c \"{show}\""
        );
        sandbox.sh(&script).run()
    };
    let plain = outcome("");
    plain
        .exits(0)
        .says_nothing()
        .prints_with("0027")
        .prints_with("sub dir")
        .prints_with("200");
    outcome("tenure run A --")
        .exits(0)
        .says_nothing()
        .prints(&plain.stdout);
    // A limit on core files that is not zero is CMD's to use, whatever tenure does with its own.
    let unlimited = "ulimit -S -c unlimited; tenure run A -- sh -c 'ulimit -c'";
    sandbox.sh(unlimited).run().exits(0).prints("unlimited\n");
}

#[test]
fn a_run_of_another_lock_may_stand_in_a_run() {
    let sandbox = Sandbox::new();
    let inner =
        "echo $TENURE_LOCK $TENURE_TOKEN $TENURE_FENCE; tenure run A -- true; echo $?; exit 4";
    let outer =
        format!("echo $TENURE_LOCK $TENURE_TOKEN $TENURE_FENCE; tenure run B -- sh -c '{inner}'");
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", &outer])
        .run();
    outcome.exits(4);
    let words: Vec<Vec<&str>> = outcome
        .stdout
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let [outer, inner, rival] = &words[..] else {
        panic!("{outcome:#?}")
    };
    assert_eq!((outer[0], inner[0]), ("A", "B"));
    assert_ne!(outer[1], inner[1], "each lease has its own token");
    assert!(
        outer[2].parse::<i64>().unwrap() < inner[2].parse::<i64>().unwrap(),
        "{outcome:#?}"
    );
    assert_eq!(rival[0], "75", "the outer lock is held inside");
    assert!(!sandbox.is_busy("A") && !sandbox.is_busy("B"));
}

// How long the lease is kept.

#[test]
fn a_lease_is_renewed_while_the_command_runs() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "--ttl", "1", "A"]).hold();
    let mut renewals = 0;
    let mut last = None;
    let start = std::time::Instant::now();
    // Three times its time to live; and each renewal moves the end of the lease on.
    until(SOON, "the lease is renewed, and renewed again", || {
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .is_busy("A");
        let expiry = expiry(&sandbox, "A");
        if last.is_some_and(|last| expiry > last + 0.1) {
            renewals += 1;
        }
        last = Some(expiry);
        renewals >= 4 && start.elapsed() > Duration::from_secs(3)
    });
    holder.end().says_nothing();
    assert!(!sandbox.is_busy("A"));
}

/// When the lease ends, in seconds of the test's own clock.
fn expiry(sandbox: &Sandbox, name: &str) -> f64 {
    let status = sandbox.status();
    let line = status
        .iter()
        .find(|line| line["name"] == name)
        .expect("the lock is held");
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    now.as_secs_f64() + line["expires_in_ms"].as_f64().expect("a number") / 1000.0
}

#[test]
fn what_a_job_leaves_behind_neither_holds_the_lock_nor_delays_the_end() {
    let sandbox = Sandbox::new();
    let outcome = run_a(&sandbox)
        .args(["--", "sh", "-c", "sleep 60 & exit 0"])
        .run();
    assert!(!sandbox.is_busy("A"));
    outcome.exits(0).says_nothing().took(..ms(5000));
    // It may not have come to its exec yet. A daemon is left alone, as flock leaves it.
    until(SOON, "the daemon is at work", || {
        sandbox.is_running(&["sleep", "60"])
    });
}

#[test]
fn a_pipe_ends_when_the_command_and_its_reader_have_ended() {
    let sandbox = Sandbox::new();
    let quickest = |script: &str| {
        let once = || {
            let outcome = sandbox.sh(script).run();
            outcome.exits(0).prints("hi\n").says_nothing();
            outcome.took
        };
        // The best of three: a busy machine is late now and then, a delay by design is late always.
        (0..3).map(|_| once()).min().unwrap()
    };
    let head = quickest("tenure run A -- sh -c 'echo hi; sleep 30 &' | head -1");
    assert!(head < ms(500), "{head:?}");
    // Here the reader waits until nobody has the pipe open: tenure has left nobody behind.
    let cat = quickest("tenure run A -- sh -c 'echo hi; sleep 31 >/dev/null 2>&1 &' | cat");
    assert!(cat < ms(500), "{cat:?}");
}

// How the command is stopped.

#[test]
fn a_command_that_takes_too_long_is_stopped_and_the_status_is_124() {
    let sandbox = Sandbox::new();
    let outcome = run_a(&sandbox)
        .args(["--max-time", ".3", "--", "sleep", "60"])
        .run();
    outcome.exits(124).prints_nothing().took(ms(300)..ms(5000));
    assert!(!sandbox.is_running(&["sleep", "60"]));
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_is_quick_enough_ends_as_it_ends() {
    let sandbox = Sandbox::new();
    run_a(&sandbox)
        .args(["--max-time", "30", "--", "sh", "-c", "exit 5"])
        .run()
        .exits(5)
        .says_nothing();
}

#[test]
fn the_clean_up_of_a_command_that_is_stopped_is_waited_for() {
    let sandbox = Sandbox::new();
    let mut running = run_a(&sandbox)
        .args(["--max-time", ".3", "--", "sh", "-c", CLEANING])
        .start();
    until(SOON, "the clean-up has begun", || {
        sandbox.path("cleaning").exists()
    });
    assert!(
        sandbox.is_busy("A"),
        "the lock is held through the clean-up"
    );
    assert!(!running.is_over());
    let outcome = running.wait();
    // As with timeout(1), it is 124 and not what the command made of TERM.
    outcome
        .exits(124)
        .prints("ready\ncleaned\n")
        .took(ms(800)..ms(8000));
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_ignores_term_is_killed_after_the_grace() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; echo ready; sleep 60; echo went on; sleep 61";
    let outcome = run_a(&sandbox)
        .args(["--max-time", ".3", "-k", ".4", "--", "sh", "-c", script])
        .run();
    outcome.exits(124).prints("ready\n").took(ms(700)..ms(6000));
    assert!(
        !sandbox.is_running(&["sleep", "60"]),
        "the shell's child ignored TERM too"
    );
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn the_whole_tree_is_stopped_not_only_the_command() {
    let sandbox = Sandbox::new();
    // The command ends at TERM; a child of its child ignores it.
    let script = "sh -c 'sleep 62 & (trap \"\" TERM; exec sleep 63)' & sleep 61";
    let outcome = run_a(&sandbox)
        .args(["--max-time", ".5", "-k", ".5", "--", "sh", "-c", script])
        .run();
    outcome.exits(124).took(ms(1000)..ms(8000));
    for seconds in ["61", "62", "63"] {
        assert!(
            !sandbox.is_running(&["sleep", seconds]),
            "sleep {seconds} is still there"
        );
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_grace_is_not_waited_for_when_all_have_ended() {
    let sandbox = Sandbox::new();
    let script = "sh -c 'sleep 62 & sleep 63' & sleep 61";
    let outcome = run_a(&sandbox)
        .args(["--max-time", ".3", "-k", "30", "--", "sh", "-c", script])
        .run();
    outcome.exits(124).took(..ms(8000));
}

#[test]
fn a_lost_lease_stops_the_whole_tree_and_the_status_is_76() {
    let sandbox = Sandbox::new();
    let script = "sh -c 'sleep 61 & sleep 62' & echo ready; sleep 63";
    let running = run_a(&sandbox)
        .args(["-k", "30", "--", "sh", "-c", script])
        .start_ready();
    until(SOON, "the whole tree has started", || {
        ["61", "62", "63"]
            .iter()
            .all(|seconds| sandbox.is_running(&["sleep", seconds]))
    });
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0);
    running.wait().exits(76).says_a_line();
    for seconds in ["61", "62", "63"] {
        assert!(
            !sandbox.is_running(&["sleep", seconds]),
            "sleep {seconds} is still there"
        );
    }
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_tree_that_ignores_the_loss_is_killed_after_the_grace() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; sh -c 'sleep 61; sleep 62' & echo ready; sleep 63; sleep 64";
    let running = run_a(&sandbox)
        .args(["-k", ".3", "--", "sh", "-c", script])
        .start_ready();
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0);
    running.wait().exits(76).says_a_line();
    for seconds in ["61", "62", "63", "64"] {
        assert!(
            !sandbox.is_running(&["sleep", seconds]),
            "sleep {seconds} is still there"
        );
    }
}

#[test]
fn the_signal_of_a_loss_is_the_one_that_was_asked_for() {
    let sandbox = Sandbox::new();
    let asked = [
        ("USR1", "USR1"),
        ("SIGHUP", "HUP"),
        ("12", "USR2"),
        ("INT", "INT"),
    ];
    let jobs = asked.map(|(option, name)| {
        let call = sandbox
            .tenure()
            .args(["run", "--on-lost", option, name])
            .detached();
        (
            name,
            call.perl(NOTING, ["HUP", "INT", "TERM", "USR1", "USR2"])
                .start_ready(),
        )
    });
    for (name, mut job) in jobs {
        sandbox
            .tenure()
            .args(["release", "--force", "--now", name])
            .run()
            .exits(0);
        job.await_line(name);
        let outcome = job.end();
        outcome.exits(76).prints(&format!("ready\n{name}\n"));
    }
}

#[test]
fn a_loss_may_kill_at_once() {
    let sandbox = Sandbox::new();
    let job = run_a(&sandbox)
        .args(["--on-lost", "KILL", "-k", "30"])
        .perl(NOTING, ["TERM"])
        .start_ready();
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0);
    job.wait().exits(76).prints("ready\n").took(..ms(8000));
}

#[test]
fn what_is_no_signal_is_refused_before_anything_is_done() {
    let sandbox = Sandbox::new();
    for signal in [
        "FOO",
        "SIG",
        "",
        "0",
        "-1",
        "65",
        "999",
        "9x",
        "TERM ",
        "SIGSIGTERM",
    ] {
        let outcome = sandbox
            .tenure()
            .args(["run", "--on-lost", signal, "A", "--", "touch", "started"])
            .run();
        outcome.exits(64).prints_nothing();
        assert!(
            !outcome.stderr.is_empty(),
            "{signal:?} is refused with a word"
        );
    }
    assert!(!sandbox.path("started").exists());
}

#[test]
fn a_lost_lease_and_its_successor_do_not_mix() {
    let sandbox = Sandbox::new();
    let mut old = run_a(&sandbox)
        .args(["--on-lost", "USR1", "-k", "20"])
        .perl(NOTING, ["USR1"])
        .start_ready();
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "A"])
        .run()
        .exits(0);
    old.await_line("USR1");
    // The old job takes its time; the end of its run must not give back what is another's by then.
    let mut new = run_a(&sandbox)
        .args(["--wait", "30", "--", "sh", "-c", "echo ready; read x"])
        .stdin(Stdio::piped())
        .start();
    let outcome = old.end();
    outcome.exits(76);
    assert_eq!(count(&outcome.stdout, "USR1"), 1, "told once: {outcome:#?}");
    new.await_line("ready");
    assert!(sandbox.is_busy("A"));
    new.end().says_nothing();
}

#[test]
fn a_killed_command_counts_as_killed_not_as_lost() {
    let sandbox = Sandbox::new();
    let script = "kill -KILL $$";
    let outcome = run_a(&sandbox)
        .args(["--max-time", "30", "--", "sh", "-c", script])
        .run();
    outcome.dies_by(Signal::KILL).says_nothing();
    assert!(!sandbox.is_busy("A"));
}
