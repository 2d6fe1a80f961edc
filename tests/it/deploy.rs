//! A CI service: several deploy scripts at once on one lock, one of them cancelled as GitHub's runner does it,
//! by INT, then TERM, then KILL. And the scripts of the README and the manual that take their own lock.

use std::fs;

use crate::jobs::child_of;
use crate::readme::blocks;
use crate::support::{Call, Running, SOON, Sandbox, Signal, is_alive, ms, throughout, until};

/// A deploy: notes when it enters and leaves, and flock(1) watches that no two are at work. With `stubborn`
/// it heeds no signal and never ends.
const DEPLOY: &str = r#"
    if [ "$1" = stubborn ]; then trap '' INT TERM; fi
    exec 8>own-lock
    flock -n 8 || echo "overlap $TENURE_FENCE" >>history
    echo "enter $TENURE_FENCE" >>history
    if [ "$1" = stubborn ]; then sh -c 'sleep 301; sleep 302' & sleep 303; sleep 304; fi
    sleep .05
    echo "leave $TENURE_FENCE" >>history
"#;

/// How many deploys are not cancelled.
const OTHERS: usize = 6;

/// Between the runner's signals: 7.5 s and 2.5 s there.
const PAUSE: u64 = 300;

/// One deploy in its turn, as a step of a workflow: no terminal, a session of its own.
fn deploy<'a>(sandbox: &'a Sandbox, kind: &str) -> Call<'a> {
    let words = [
        "run",
        "production",
        "--wait",
        "60",
        "--",
        "sh",
        "deploy",
        kind,
    ];
    sandbox.tenure().args(words).detached()
}

fn history(sandbox: &Sandbox) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path("history")).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// As the runner does when somebody presses Cancel; waits for the process that it started.
fn cancel(running: Running<'_>) {
    let mut running = running;
    for signal in [Signal::INT, Signal::TERM] {
        running.signal(signal);
        throughout(ms(PAUSE), "the deploy heeds no signal", || {
            !running.is_over()
        });
    }
    running.kill().dies_by(Signal::KILL);
}

/// The first entered and never left; then all others, one at a time, each with a larger fence.
#[track_caller]
fn assert_one_at_a_time(history: &[String]) {
    assert_eq!(history.len(), 1 + 2 * OTHERS, "{history:#?}");
    let fence = |line: &str, verb: &str| -> i64 {
        let fence = line
            .strip_prefix(verb)
            .unwrap_or_else(|| panic!("no {verb}: {history:#?}"));
        fence.trim().parse().unwrap()
    };
    let mut last = fence(&history[0], "enter");
    for run in history[1..].chunks(2) {
        let entered = fence(&run[0], "enter");
        assert_eq!(fence(&run[1], "leave"), entered, "{history:#?}");
        assert!(entered > last, "the fences grow: {history:#?}");
        last = entered;
    }
}

#[test]
fn a_cancelled_deploy_leaves_nothing_behind_and_the_others_go_through_one_at_a_time() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("deploy"), DEPLOY).unwrap();
    let stubborn = deploy(&sandbox, "stubborn").start();
    until(SOON, "the first deploy is at work", || {
        ["301", "303"]
            .iter()
            .all(|seconds| sandbox.is_running(&["sleep", seconds]))
    });
    let others: Vec<_> = (0..OTHERS)
        .map(|_| deploy(&sandbox, "quick").start())
        .collect();
    let script = child_of(stubborn.pid());
    cancel(stubborn);
    until(SOON, "the script is dead", || !is_alive(script));
    for other in others {
        other
            .wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    for seconds in ["301", "302", "303", "304"] {
        assert!(
            !sandbox.is_running(&["sleep", seconds]),
            "sleep {seconds} is still there"
        );
    }
    assert_one_at_a_time(&history(&sandbox));
    assert!(!sandbox.is_busy("production"));
}

#[test]
fn a_deploy_that_is_cancelled_in_the_line_never_runs() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("deploy"), DEPLOY).unwrap();
    let mut holder = sandbox.holder("production");
    let cancelled = deploy(&sandbox, "stubborn").start();
    let others: Vec<_> = (0..OTHERS)
        .map(|_| deploy(&sandbox, "quick").start())
        .collect();
    throughout(ms(PAUSE), "the lock is held", || !holder.is_over());
    cancelled.signal(Signal::INT);
    cancelled.wait().dies_by(Signal::INT).prints_nothing();
    holder.end();
    for other in others {
        other
            .wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    let history = history(&sandbox);
    assert_eq!(history.len(), 2 * OTHERS, "{history:#?}");
    assert!(
        !history.iter().any(|line| line.starts_with("overlap")),
        "{history:#?}"
    );
}

#[test]
fn a_deploy_whose_step_shell_is_cancelled_ends_with_the_runners_sweep() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.path("deploy"), DEPLOY).unwrap();
    // The runner signals the step's shell alone, and in the end kills whatever has the job's mark.
    fs::write(
        sandbox.path("step"),
        "set -e\ntenure run production -- sh deploy stubborn\necho deployed >>history\n",
    )
    .unwrap();
    let step = sandbox
        .program("bash")
        .args(["--noprofile", "--norc", "-eo", "pipefail", "step"])
        .env("TENURE_DB", sandbox.db())
        .env("RUNNER_TRACKING_ID", "github_1")
        .detached()
        .start();
    until(SOON, "the first deploy is at work", || {
        sandbox.is_running(&["sleep", "303"])
    });
    let others: Vec<_> = (0..OTHERS)
        .map(|_| deploy(&sandbox, "quick").start())
        .collect();
    let mut step = step;
    step.signal(Signal::INT);
    throughout(ms(PAUSE), "the shell waits for its command", || {
        !step.is_over()
    });
    step.signal(Signal::TERM);
    step.wait();
    assert!(
        !history(&sandbox)
            .iter()
            .any(|line| line.starts_with("leave")),
        "the deploy is still at work"
    );
    sweep(&sandbox);
    for other in others {
        other
            .wait()
            .without_wait()
            .exits(0)
            .prints_nothing()
            .says_nothing();
    }
    assert_one_at_a_time(&history(&sandbox));
}

/// Kills each process that has the job's mark, as the runner's "Terminate orphan process" does.
fn sweep(sandbox: &Sandbox) {
    let mark = b"RUNNER_TRACKING_ID=github_1\0";
    let has_mark = |pid: &i32| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark))
    };
    until(SOON, "all that has the mark is gone", || {
        let left: Vec<i32> = sandbox.processes().into_iter().filter(has_mark).collect();
        for pid in &left {
            let pid = rustix::process::Pid::from_raw(*pid).expect("a pid is more than zero");
            // It may have ended by itself since.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        left.is_empty()
    });
}

const RUN_PAGE: &str = include_str!("../../src/cli/pages/run.txt");

/// The scripts that take their own lock, each up to where its work begins.
fn own_lock_scripts() -> [String; 2] {
    let example = |(script, _): (&'static str, _)| {
        let (_, text) = script.split_once("cat >deploy <<'END'\n")?;
        Some(text.to_owned())
    };
    let of_readme = blocks("sh example").into_iter().find_map(example);
    let (_, of_page) = RUN_PAGE
        .split_once("    #!/bin/sh\n")
        .expect("a script in the page");
    let of_page = of_page.replace("\n    ", "\n");
    let of_page = format!("#!/bin/sh\n{}", of_page.trim_start());
    [of_readme.expect("a script in the README"), of_page].map(|text| {
        let start = r#" production -- "$0" "$@""#;
        let (head, _) = text.split_once(start).expect("it starts itself again");
        format!("{head}{start}\n")
    })
}

/// A deploy that calls itself again, and notes with which fence each is at work.
const NESTED_WORK: &str = r#"
    echo "$1 with $TENURE_FENCE" >>history
    [ "$1" = inner ] || "$0" inner
"#;

#[test]
fn a_script_that_takes_its_own_lock_believes_no_environment_but_a_lease_that_holds_it() {
    for script in own_lock_scripts() {
        let sandbox = Sandbox::new();
        sandbox.write_program("deploy", &format!("{script}{NESTED_WORK}"));
        let over = sandbox.acquire(["production"]);
        let release = ["release", "--token", &over];
        sandbox.tenure().args(release).run().exits(0);
        let other = sandbox.acquire(["another"]);
        let plain = || sandbox.program("./deploy").arg("outer").db(sandbox.db());
        let inherits = || plain().env("TENURE_LOCK", "production");
        let callers = [
            plain(),
            inherits(),
            inherits().env("TENURE_TOKEN", ""),
            inherits().env("TENURE_TOKEN", &over),
            inherits().env("TENURE_TOKEN", &other),
        ];
        for caller in callers {
            let _ = fs::remove_file(sandbox.path("history"));
            let holder = sandbox.holder("production");
            let mut deploy = caller.start();
            until(SOON, "it stands in the line", || {
                assert!(!deploy.is_over(), "{}", deploy.stderr());
                let status = sandbox.status();
                let mut rows = status.iter();
                rows.any(|row| row["name"] == "production" && row["waiting"] == 1)
            });
            assert_eq!(history(&sandbox), [""; 0], "beside the holder");
            holder.end();
            let outcome = deploy.wait().without_wait();
            outcome.exits(0).prints_nothing().says_nothing();
            let history = history(&sandbox);
            let [outer, inner] = &history[..] else {
                panic!("{history:?}");
            };
            let fence = outer.strip_prefix("outer with ").expect("its fence");
            assert_eq!(inner.strip_prefix("inner with "), Some(fence));
        }
        // In whatever lease has the lock, it is at work at once.
        let token = sandbox.acquire(["production"]);
        let _ = fs::remove_file(sandbox.path("history"));
        let caller = plain().env("TENURE_TOKEN", &token);
        let caller = caller.env("TENURE_FENCE", "its own");
        caller.run().exits(0).prints_nothing().says_nothing();
        assert_eq!(
            history(&sandbox),
            ["outer with its own", "inner with its own"]
        );
    }
}
