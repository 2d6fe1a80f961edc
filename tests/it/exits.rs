//! How each command ends: the table of exit statuses row by row, and the one line that says why.

use std::fs::{self, OpenOptions};
use std::io;

use crate::support::{Outcome, SOON, Sandbox, Signal, for_each, ms, throughout, until};

/// A command that leaves a trace when it runs.
const TRACE: [&str; 3] = ["--", "touch", "ran"];

#[track_caller]
fn assert_did_not_run(sandbox: &Sandbox) {
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

/// The names of what is in the sandbox's directory.
fn listing(sandbox: &Sandbox) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(sandbox.dir())
        .expect("the directory is there")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("plain names")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn every_exit_status_of_cmd_comes_back() {
    let sandbox = Sandbox::new();
    for_each(0..=255, |code| {
        let name = format!("job {code}");
        let script = format!("exit {code}");
        let outcome = sandbox
            .tenure()
            .args(["run", &name, "--", "sh", "-c", &script])
            .run();
        outcome.exits(code).prints_nothing().says_nothing();
    });
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}

#[test]
fn a_signal_that_ends_cmd_ends_tenure() {
    let sandbox = Sandbox::new();
    let signals = [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::ABORT,
        Signal::KILL,
        Signal::SEGV,
        Signal::TERM,
    ];
    for_each(signals, |signal| {
        let name = format!("signal {}", signal.as_raw());
        let script = format!("ulimit -c 0; kill -{} $$", signal.as_raw());
        // Whoever started the tests may ignore some of them, as nohup does.
        let outcome = sandbox
            .tenure()
            .args(["run", &name, "--", "sh", "-c", &script])
            .via(["env", "--default-signal"])
            .run();
        outcome.dies_by(signal).prints_nothing();
        assert!(!sandbox.is_busy(&name), "{name} is still held");
    });
}

#[test]
fn a_shell_sees_128_and_the_signal() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .sh("tenure run A -- sh -c 'kill -TERM $$'; echo $?")
        .run();
    outcome.exits(0).prints("143\n");
}

#[test]
fn stdout_belongs_to_cmd_also_with_verbose() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .tenure()
        .args(["run", "-v", "A", "--", "echo", "hi"])
        .run();
    outcome.exits(0).prints("hi\n");
    assert!(
        outcome
            .stderr
            .lines()
            .all(|line| line.starts_with("tenure: ")),
        "{outcome:#?}"
    );
}

#[test]
fn the_arguments_of_cmd_are_not_read_by_a_shell() {
    let sandbox = Sandbox::new();
    let words = [
        "run", "A", "--", "printf", "<%s>", "$HOME", "a  b", "*", "--", "-q", "",
    ];
    sandbox
        .tenure()
        .args(words)
        .run()
        .exits(0)
        .prints("<$HOME><a  b><*><--><-q><>")
        .says_nothing();
}

#[test]
fn what_is_done_is_0_and_silent() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    let outcome = sandbox
        .tenure()
        .args(["extend", "A", "--token", &token])
        .run();
    outcome.exits(0).prints_nothing().says_nothing();
    let outcome = sandbox.tenure().args(["status", "--token", &token]).run();
    outcome.exits(0).says_nothing();
    let outcome = sandbox
        .tenure()
        .args(["release", "A", "--token", &token])
        .run();
    outcome.exits(0).prints_nothing().says_nothing();
}

#[test]
fn help_and_version_are_0_and_on_stdout() {
    let sandbox = Sandbox::new();
    let version = format!(
        "{} (SQLite {})",
        env!("CARGO_PKG_VERSION"),
        rusqlite::version()
    );
    for (words, name) in [
        (vec!["--version"], "tenure"),
        (vec!["run", "-V"], "tenure-run"),
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.exits(0).says_nothing();
        outcome.prints(&format!("{name} {version}\n"));
    }
    for words in [
        vec!["--help"],
        vec!["run", "--help"],
        vec!["help", "acquire"],
    ] {
        sandbox
            .tenure()
            .args(words)
            .run()
            .exits(0)
            .prints_with("Usage: tenure")
            .says_nothing();
    }
    assert_eq!(listing(&sandbox), Vec::<String>::new());
}

#[test]
fn a_command_line_without_sense_is_64_and_does_nothing() {
    let sandbox = Sandbox::new();
    let cases: &[&[&str]] = &[
        &[],
        &["frobnicate"],
        &["acquire"],
        &["acquire", "--frobnicate", "A"],
        &["acquire", "A", "--ttl"],
        &["acquire", "A", "--", "true"],
        &["run"],
        &["run", "A"],
        &["run", "A", "--"],
        &["run", "--", "touch", "ran"],
        &["release"],
        &["release", "A"],
        &["extend"],
        &["extend", "A"],
        &["release", "A", "--token", "abc"],
        &["release", "A", "--token", ""],
        &["extend", "A", "--token", ""],
        &["status", "--token", ""],
        &["run", "A", "--max-time", "0", "--", "touch", "ran"],
        &["run", "A", "--kill-after", "-1", "--", "touch", "ran"],
        &["run", "A", "--on-lost", "SIGNOSUCH", "--", "touch", "ran"],
        &["run", "A", "--wait", "-1", "--", "touch", "ran"],
        &["run", "A", "--wait", "soon", "--", "touch", "ran"],
        &["run", "A", "--wait", "", "--", "touch", "ran"],
    ];
    for_each(cases, |words| {
        sandbox.tenure().args(*words).run().is_usage_error("*");
    });
    assert_eq!(
        listing(&sandbox),
        Vec::<String>::new(),
        "a usage error leaves nothing behind"
    );
}

#[test]
fn a_command_without_the_two_dashes_is_told_about_them() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.tenure().args(["run", "A", "touch", "ran"]).run();
    outcome.is_usage_error("*--*");
    assert!(
        outcome.stderr.contains(" -- ") || outcome.stderr.contains("`--`"),
        "{outcome:#?}"
    );
    let outcome = sandbox.tenure().args(["run", "A", "sleep", "5"]).run();
    outcome.is_usage_error("*--*").took(..SOON);
    assert_did_not_run(&sandbox);
}

#[test]
fn options_of_flock_that_are_none_here_are_told_what_to_do_instead() {
    let sandbox = Sandbox::new();
    let cases = [
        (
            &["-c", "touch ran"][..],
            "there is no -c: *tenure run NAME -- sh -c *",
        ),
        (
            &["--command", "touch ran"],
            "there is no --command: *-- sh -c *",
        ),
        (
            &["--command=touch ran"],
            "there is no --command: *-- sh -c *",
        ),
        (&["-nc", "touch ran"], "there is no -c: *-- sh -c *"),
        (
            &["-o", "--", "touch", "ran"],
            "there is no -o, nor a need for it: *",
        ),
        (
            &["--close", "--", "touch", "ran"],
            "there is no --close, nor a need for it: *",
        ),
        (
            &["-u", "--", "touch", "ran"],
            "there is no -u: *tenure release *",
        ),
        (
            &["--unlock", "--", "touch", "ran"],
            "there is no --unlock: *tenure release *",
        ),
    ];
    for_each(cases, |(words, hint)| {
        for verb in ["run", "acquire"] {
            let call = sandbox.tenure().args([verb, "A"]).args(words);
            call.run().is_usage_error(hint);
        }
        let call = sandbox.tenure().args(["status", "A"]).args(words);
        call.run().is_usage_error("unexpected argument *");
    });
    assert_did_not_run(&sandbox);
    // What CMD is given is nobody's business.
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "echo", "-c", "-u"]);
    call.run().exits(0).prints("-c -u\n").says_nothing();
}

#[test]
fn a_time_to_live_that_is_none_is_64() {
    let sandbox = Sandbox::new();
    let bad = [
        "0",
        "0s",
        "0.0",
        "-1",
        "-1s",
        "abc",
        "1e999",
        "inf",
        "NaN",
        "",
        " ",
        "1000000y",
        "5 parsecs",
    ];
    for_each(bad, |ttl| {
        for option in [vec!["--ttl", ttl], vec![&*format!("--ttl={ttl}")]] {
            let acquire = sandbox.tenure().arg("acquire").args(&option).arg("A").run();
            acquire.is_usage_error("*");
            let run = sandbox
                .tenure()
                .arg("run")
                .args(&option)
                .arg("A")
                .args(TRACE)
                .run();
            run.is_usage_error("*");
        }
    });
    let token = sandbox.acquire(["A"]);
    for_each(bad, |ttl| {
        let outcome = sandbox
            .tenure()
            .args(["extend", "--token", &token, "--ttl", ttl])
            .run();
        outcome.is_usage_error("*");
    });
    assert_did_not_run(&sandbox);
}

#[test]
fn durations_are_read_in_seconds_or_in_units() {
    let sandbox = Sandbox::new();
    for_each(
        ["30", ".5", "1.5", "10m", "1h30m", "500ms", "2days"],
        |ttl| {
            let name = format!("lock {ttl}");
            sandbox
                .tenure()
                .args(["run", "--ttl", ttl, &name, "--", "true"])
                .run()
                .exits(0)
                .says_nothing();
            let outcome = sandbox
                .tenure()
                .args(["run", "--wait", ttl, &name, "--", "true"])
                .run();
            outcome.exits(0).says_nothing();
        },
    );
}

#[test]
fn an_empty_name_token_or_database_is_64() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    let run = || sandbox.tenure().args(["run", "B"]);
    run().arg("").args(TRACE).run().is_usage_error("*");
    run()
        .args(["--db", ""])
        .args(TRACE)
        .run()
        .is_usage_error("*");
    run().arg("--db=").args(TRACE).run().is_usage_error("*");
    run().db("").args(TRACE).run().is_usage_error("*");
    for verb in ["release", "extend", "status"] {
        let call = || sandbox.tenure().args([verb, "A"]);
        call().args(["--token", ""]).run().is_usage_error("*");
        call().arg("--token=").run().is_usage_error("*");
        call()
            .args(["--token", &token, "--db", ""])
            .run()
            .is_usage_error("*");
        sandbox
            .tenure()
            .args([verb, "", "--token", &token])
            .run()
            .is_usage_error("*");
    }
    for verb in ["release", "extend"] {
        let outcome = sandbox
            .tenure()
            .args([verb, "A"])
            .env("TENURE_TOKEN", "")
            .run();
        outcome.is_usage_error("*");
    }
    assert_did_not_run(&sandbox);
    assert!(sandbox.is_busy("A"), "the lease is as it was");
}

#[test]
fn what_only_log_has_is_64_with_status_and_not_ignored() {
    let sandbox = Sandbox::new();
    for option in ["--timeline", "--follow", "--since=1h"] {
        let call = sandbox.tenure().arg("status").arg(option);
        call.run().is_usage_error("*");
    }
}

#[test]
fn options_that_belong_to_another_verb_are_64() {
    let sandbox = Sandbox::new();
    let cases: &[&[&str]] = &[
        &["acquire", "--max-time", "1s", "A"],
        &["acquire", "--kill-after", "1s", "A"],
        &["acquire", "--on-lost", "TERM", "A"],
        &["run", "--force", "A", "--", "touch", "ran"],
        &[
            "run",
            "--token",
            "00000000000000000000000000000000",
            "A",
            "--",
            "touch",
            "ran",
        ],
        &["run", "--json", "A", "--", "touch", "ran"],
        &["extend", "--force", "A"],
        &["status", "--ttl", "1s"],
    ];
    for_each(cases, |words| {
        sandbox.tenure().args(*words).run().is_usage_error("*");
    });
    assert_did_not_run(&sandbox);
}

#[test]
fn a_busy_lock_is_75_and_the_holder_is_named() {
    let sandbox = Sandbox::new();
    let holder = sandbox
        .tenure()
        .args(["run", "A", "--note", "nightly"])
        .hold();
    let busy = [
        sandbox.tenure().args(["acquire", "A"]).run(),
        sandbox.tenure().args(["run", "A"]).args(TRACE).run(),
    ];
    for outcome in &busy {
        outcome.is_busy("A");
        let parts = [
            "root@",
            &format!("pid {}", holder.pid()),
            "nightly",
            "--wait",
        ];
        for part in parts {
            assert!(outcome.stderr.contains(part), "no {part:?}: {outcome:#?}");
        }
        assert!(
            outcome
                .stderr
                .contains(sandbox.db().to_str().expect("UTF-8")),
            "{outcome:#?}"
        );
    }
    assert_did_not_run(&sandbox);
}

#[test]
fn every_number_given_with_e_takes_the_place_of_75() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for_each(0..=255, |code| {
        let code_text = code.to_string();
        let run = if code % 2 == 0 {
            sandbox
                .tenure()
                .args(["run", "-E", &code_text, "A"])
                .args(TRACE)
                .run()
        } else {
            sandbox
                .tenure()
                .args(["acquire", "--conflict-exit-code", &code_text, "A"])
                .run()
        };
        run.exits(code).prints_nothing().says("A is held by *");
    });
    assert_did_not_run(&sandbox);
}

#[test]
fn a_conflict_exit_code_that_is_none_is_64() {
    let sandbox = Sandbox::new();
    for_each(["256", "-1", "1000000000000", "", "x", "7.5"], |code| {
        let run = sandbox
            .tenure()
            .args(["run", "-E", code, "A"])
            .args(TRACE)
            .run();
        run.is_usage_error("*");
        let option = format!("--conflict-exit-code={code}");
        sandbox
            .tenure()
            .args(["acquire", &option, "A"])
            .run()
            .is_usage_error("*");
    });
    assert_did_not_run(&sandbox);
    assert!(!sandbox.is_busy("A"), "nothing took it");
}

#[test]
fn e_0_and_quiet_skip_in_silence() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let outcome = sandbox
        .tenure()
        .args(["run", "-E", "0", "-q", "A"])
        .args(TRACE)
        .run();
    outcome.exits(0).prints_nothing().says_nothing();
    assert_did_not_run(&sandbox);
    let outcome = sandbox.tenure().args(["run", "-q", "A"]).args(TRACE).run();
    outcome.exits(75).prints_nothing().says_nothing();
    let outcome = sandbox.tenure().args(["acquire", "--quiet", "A"]).run();
    outcome.exits(75).prints_nothing().says_nothing();
    assert_did_not_run(&sandbox);
}

#[test]
fn e_0_and_quiet_do_not_silence_a_store_that_cannot_be_used() {
    let sandbox = Sandbox::new();
    let call = sandbox
        .tenure()
        .args(["run", "-E", "0", "-q", "A"])
        .args(TRACE);
    call.db("/proc/nope/l.db")
        .run()
        .is_store_error("*/proc/nope*");
    assert_did_not_run(&sandbox);
}

#[test]
fn quiet_leaves_what_cmd_says() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .sh("tenure run -q A -- sh -c 'echo out; echo err >&2'")
        .run();
    outcome.exits(0).prints("out\n");
    assert_eq!(outcome.stderr, "err\n");
}

#[test]
fn the_option_names_of_flock_mean_what_they_mean_there() {
    let sandbox = Sandbox::new();
    let options: &[&[&str]] = &[
        &["-n"],
        &["--no-wait"],
        &["--nonblock"],
        &["--nb"],
        &["-e"],
        &["-x"],
        &["--exclusive"],
        &["-w", "0"],
        &["--wait", "0"],
        &["--timeout", "0"],
        &["--timeout=0s"],
    ];
    for_each(options, |option| {
        let name = format!("lock {}", option.join(" "));
        let run = |words: &[&str]| {
            sandbox
                .tenure()
                .arg("run")
                .args(*option)
                .arg(&name)
                .arg("--")
                .args(words)
                .run()
        };
        run(&["echo", "in"]).exits(0).prints("in\n").says_nothing();
        let _holder = sandbox.holder(&name);
        run(&["touch", "ran"])
            .exits(75)
            .prints_nothing()
            .says(&format!("{name} is held by *"));
    });
    assert_did_not_run(&sandbox);
}

#[test]
fn a_wait_of_zero_is_one_try() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for zero in ["0", "0s", "0.0", "0ms"] {
        let outcome = sandbox
            .tenure()
            .args(["run", "--wait", zero, "A"])
            .args(TRACE)
            .run();
        outcome.is_busy("A").took(..ms(5000));
    }
    assert_did_not_run(&sandbox);
}

#[test]
fn a_wait_that_runs_out_is_75() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for_each(["--wait", "-w", "--timeout"], |option| {
        let outcome = sandbox
            .tenure()
            .args(["run", option, "700ms", "A"])
            .args(TRACE)
            .run();
        outcome
            .exits(75)
            .prints_nothing()
            .says_a_line()
            .took(ms(700)..ms(5000));
        let outcome = sandbox
            .tenure()
            .args(["acquire", option, ".7", "-E", "9", "A"])
            .run();
        outcome
            .exits(9)
            .prints_nothing()
            .says_a_line()
            .took(ms(700)..ms(5000));
    });
    assert_did_not_run(&sandbox);
}

#[test]
fn a_waiter_enters_when_the_holder_ends() {
    let sandbox = Sandbox::new();
    for wait in ["30s", "forever"] {
        let holder = sandbox.holder("A");
        let mut waiter = sandbox
            .tenure()
            .args(["run", "--wait", wait, "A"])
            .args(TRACE)
            .start();
        throughout(ms(400), "the waiter waits", || !waiter.is_over());
        assert_did_not_run(&sandbox);
        holder.end().exits(0);
        waiter
            .wait()
            .exits(0)
            .prints_nothing()
            .says_nothing()
            .took(ms(400)..SOON);
        assert!(sandbox.path("ran").exists());
        fs::remove_file(sandbox.path("ran")).expect("it was made");
    }
}

#[test]
fn an_acquire_that_waits_gets_the_lock_of_a_lease_that_runs_out() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "600ms"]);
    let outcome = sandbox
        .tenure()
        .args(["acquire", "--wait", "30s", "A"])
        .run();
    outcome.exits(0).says_nothing().took(..SOON);
    assert_eq!(
        outcome.stdout.len(),
        33,
        "a token and a line end: {outcome:#?}"
    );
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_token_that_holds_nothing_is_76() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let token = "0123456789abcdef0123456789abcdef";
    let outcome = sandbox.tenure().args(["status", "--token", token]).run();
    outcome.exits(76).prints_nothing();
    for verb in ["release", "extend"] {
        let outcome = sandbox.tenure().args([verb, "A", "--token", token]).run();
        outcome.is_not_held("*");
    }
    for verb in ["release", "extend"] {
        let outcome = sandbox
            .tenure()
            .args([verb, "-q", "A", "--token", token])
            .run();
        outcome.exits(76).prints_nothing().says_nothing();
    }
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_command_that_runs_longer_than_it_may_is_124() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .tenure()
        .args(["run", "--max-time", "300ms", "A", "--", "sleep", "60"])
        .run();
    outcome
        .exits(124)
        .prints_nothing()
        .says_a_line()
        .took(ms(300)..ms(8000));
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_is_not_there_is_127_and_leaves_the_lock_free() {
    let sandbox = Sandbox::new();
    for command in [
        "/nonexistent",
        "no-such-command",
        "./no-such-file",
        "/etc/passwd/x",
    ] {
        let outcome = sandbox.tenure().args(["run", "A", "--", command]).run();
        if command == "/etc/passwd/x" {
            // env(1) and the shells take ENOTDIR for "cannot be executed".
            assert!(
                [Some(126), Some(127)].contains(&outcome.code),
                "{outcome:#?}"
            );
        } else {
            outcome.exits(127);
        }
        outcome.prints_nothing().says(&format!("*{command}*"));
        assert!(!sandbox.is_busy("A"), "after {command}");
    }
}

#[test]
fn a_command_that_cannot_be_executed_is_126_and_leaves_the_lock_free() {
    let sandbox = Sandbox::new();
    for command in ["/etc/passwd", "/tmp"] {
        let outcome = sandbox.tenure().args(["run", "A", "--", command]).run();
        outcome
            .exits(126)
            .prints_nothing()
            .says(&format!("*{command}*permission denied"));
        assert!(!sandbox.is_busy("A"), "after {command}");
    }
}

/// Every verb, told to use this database, says so with 69; CMD does not run.
#[track_caller]
fn assert_refused(sandbox: &Sandbox, db: &str, why: &str) {
    let calls: &[&[&str]] = &[
        &["run", "A", "--", "touch", "ran"],
        &["acquire", "A"],
        &[
            "release",
            "A",
            "--token",
            "0123456789abcdef0123456789abcdef",
        ],
        &["extend", "A", "--token", "0123456789abcdef0123456789abcdef"],
        &["release", "--force", "A"],
        &["status"],
    ];
    for words in calls {
        let outcome = sandbox.tenure().args(*words).db(db).run();
        outcome
            .is_store_error(&format!("*{db}*{why}*"))
            .took(..SOON);
    }
    assert_did_not_run(sandbox);
}

#[test]
fn a_database_whose_directory_is_missing_is_69() {
    let sandbox = Sandbox::new();
    assert_refused(&sandbox, "/proc/nope/l.db", "no such file or directory");
    let missing = sandbox.path("missing/l.db");
    assert_refused(
        &sandbox,
        missing.to_str().expect("UTF-8"),
        "no such file or directory",
    );
    assert_eq!(
        listing(&sandbox),
        Vec::<String>::new(),
        "the directory is not made"
    );
}

#[test]
fn a_directory_as_database_is_69() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("d")).expect("a fresh directory");
    assert_refused(&sandbox, sandbox.path("d").to_str().expect("UTF-8"), "");
    assert_eq!(listing(&sandbox), ["d"]);
    assert_eq!(
        fs::read_dir(sandbox.path("d"))
            .expect("still a directory")
            .count(),
        0
    );
}

#[test]
fn a_text_file_as_database_is_69_and_stays_as_it_was() {
    let sandbox = Sandbox::new();
    let text = "do not touch\n".repeat(1000);
    fs::write(sandbox.path("notes.txt"), &text).expect("a fresh directory");
    assert_refused(
        &sandbox,
        sandbox.path("notes.txt").to_str().expect("UTF-8"),
        "",
    );
    assert_eq!(
        fs::read_to_string(sandbox.path("notes.txt")).expect("still there"),
        text
    );
    assert_eq!(listing(&sandbox), ["notes.txt"]);
}

#[test]
fn a_fifo_as_database_is_69_and_is_not_waited_for() {
    let sandbox = Sandbox::new();
    sandbox.sh("mkfifo pipe").run().exits(0);
    assert_refused(&sandbox, sandbox.path("pipe").to_str().expect("UTF-8"), "");
    assert_eq!(listing(&sandbox), ["pipe"]);
}

#[test]
fn a_device_as_database_is_69() {
    let sandbox = Sandbox::new();
    assert_refused(&sandbox, "/dev/null", "");
    for side in ["-guard", "-wal", "-shm", "-journal"] {
        assert!(
            !fs::exists(format!("/dev/null{side}")).expect("/dev can be read"),
            "/dev/null{side}"
        );
    }
}

#[test]
fn failures_in_json_have_their_reason_on_stdout() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let token = "0123456789abcdef0123456789abcdef";
    let reason = |outcome: &Outcome| {
        let objects = outcome.json();
        assert_eq!(objects.len(), 1, "one object: {outcome:#?}");
        objects[0]["reason"].as_str().expect("a reason").to_owned()
    };
    let busy = sandbox.tenure().args(["acquire", "--json", "A"]).run();
    assert_eq!(reason(busy.exits(75)), "busy");
    let other = sandbox
        .tenure()
        .args(["acquire", "--json", "-E", "7", "A"])
        .run();
    assert_eq!(reason(other.exits(7)), "busy");
    for verb in ["release", "extend"] {
        let not_held = sandbox
            .tenure()
            .args([verb, "--json", "A", "--token", token])
            .run();
        assert_eq!(reason(not_held.exits(76)), "not-held");
    }
    holder.end();
    let not_held = sandbox
        .tenure()
        .args(["release", "--json", "--force", "A"])
        .run();
    assert_eq!(reason(not_held.exits(76)), "not-held");
    for words in [
        vec!["acquire", "A"],
        vec!["release", "A", "--token", token],
        vec!["status"],
    ] {
        let store = sandbox
            .tenure()
            .args(&words)
            .arg("--json")
            .db("/proc/nope/l.db")
            .run();
        assert_eq!(reason(store.exits(69)), "store");
    }
}

#[test]
fn a_token_that_could_not_be_printed_leaves_the_lock_free() {
    let sandbox = Sandbox::new();
    for option in [&[][..], &["--json"]] {
        let full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full is there");
        let call = sandbox.tenure().args(["acquire", "A"]).args(option);
        let outcome = call.stdout(full).run();
        assert_ne!(outcome.code, Some(0), "{outcome:#?}");
        outcome.says("*no space left on device*");
        assert!(!sandbox.is_busy("A"), "nobody has the token");

        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let outcome = sandbox
            .tenure()
            .args(["acquire", "A"])
            .args(option)
            .stdout(writer)
            .run();
        assert_ne!(outcome.code, Some(0), "{outcome:#?}");
        assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
        assert!(!sandbox.is_busy("A"), "nobody has the token");
    }
}

#[test]
fn a_reader_that_went_away_is_no_panic() {
    let sandbox = Sandbox::new();
    let tokens: Vec<String> = (0..3)
        .map(|n| sandbox.acquire([format!("lock {n}")]))
        .collect();
    let calls = [
        vec!["status"],
        vec!["status", "--json"],
        vec!["--help"],
        vec!["--version"],
        vec!["extend", "--json", "--token", &tokens[1]],
        vec!["release", "--json", "--token", &tokens[0]],
        vec!["release", "--json", "--force", "lock 1"],
    ];
    for words in calls {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let outcome = sandbox.tenure().args(&words).stdout(writer).run();
        assert!(!outcome.stderr.contains("panicked"), "{outcome:#?}");
        assert!(
            outcome.code != Some(101) && outcome.signal != Some(6),
            "{outcome:#?}"
        );
    }
    assert!(!sandbox.is_busy("lock 0"), "it was released all the same");
    assert!(!sandbox.is_busy("lock 1"), "it was released all the same");
    assert!(sandbox.is_busy("lock 2"));
}

#[test]
fn help_that_is_read_only_in_part_is_silent() {
    let sandbox = Sandbox::new();
    for words in ["--help", "--version", "run --help"] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let call = sandbox.tenure().args(words.split(' ')).stdout(writer);
        call.run().exits(0).says_nothing();
        let script = format!("set -o pipefail; tenure {words} | head -c 1");
        let bash = sandbox.program("bash").args(["-c", &script]);
        bash.run().exits(0).says_nothing();
    }
}

#[test]
fn a_full_disk_behind_stdout_is_not_success() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A"]);
    for words in [
        vec!["status"],
        vec!["status", "--json"],
        vec!["--help"],
        vec!["--version"],
        vec!["run", "--help"],
        vec!["help", "acquire"],
    ] {
        let full = OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .expect("/dev/full is there");
        let outcome = sandbox.tenure().args(&words).stdout(full).run();
        outcome
            .exits(69)
            .says("cannot write to standard output: no space left on device");
    }
}

#[test]
fn closed_standard_streams_harm_nothing() {
    // What is opened next would be given the number of a closed stream: the database must not be
    // where stderr writes to.
    let sandbox = Sandbox::new();
    for closed in ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"] {
        let script = format!("tenure run A -- sh -c 'echo out; echo err >&2; touch ran' {closed}");
        sandbox.sh(&script).run();
        until(SOON, "CMD ran", || sandbox.path("ran").exists());
        fs::remove_file(sandbox.path("ran")).expect("it was made");
        assert!(!sandbox.is_busy("A"), "with {closed}");
        sandbox
            .sh(&format!("tenure acquire A --ttl 1ms {closed}; true"))
            .run()
            .exits(0);
        sandbox
            .sh(&format!("tenure run -E 256 A -- true {closed}; true"))
            .run()
            .exits(0);
        until(SOON, "the lease has run out", || !sandbox.is_busy("A"));
        sandbox.status();
    }
}
