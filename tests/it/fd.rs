//! `acquire --fd`: a lease that is tied to a descriptor of the caller's; and `acquire --shell`, for eval.

use crate::support::{Call, Running, SOON, Sandbox, Signal, is_alive, ms, throughout, until};
use crate::waiters::AT_ONCE;
use crate::waiters::{TELL_TIME, assert_prompt, now};

/// `bash -c script` with this sandbox's database, whose guard file is descriptor 9.
fn bash<'a>(sandbox: &'a Sandbox, script: &str) -> Call<'a> {
    plain_bash(sandbox, &format!("exec 9<>l.db-guard; {script}"))
}

fn plain_bash<'a>(sandbox: &'a Sandbox, script: &str) -> Call<'a> {
    sandbox
        .program("bash")
        .args(["-c", script])
        .env("TENURE_DB", sandbox.db())
}

/// A shell that has `deploy` on its descriptor 9, has written the token to a file, and waits for its stdin to end.
#[track_caller]
fn shell_with_lock<'a>(sandbox: &'a Sandbox, options: &str) -> Running<'a> {
    let script =
        format!("tenure acquire deploy --fd 9 {options} >token && echo ready; read x; exit 0");
    bash(sandbox, &script).start_ready()
}

fn token(sandbox: &Sandbox) -> String {
    let text = std::fs::read_to_string(sandbox.path("token")).expect("it was written");
    text.trim_end().to_owned()
}

#[test]
fn a_lock_on_a_descriptor_is_held_as_long_as_the_shell_lives() {
    let sandbox = Sandbox::new();
    let shell = shell_with_lock(&sandbox, "--ttl 300ms");
    throughout(ms(1000), "it is held, whatever its time to live", || {
        sandbox.is_busy("deploy")
    });
    shell.end().exits(0).says_nothing();
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn a_lock_on_a_descriptor_is_freed_however_the_shell_ends() {
    let sandbox = Sandbox::new();
    for signal in [Signal::KILL, Signal::TERM, Signal::SEGV] {
        let shell = shell_with_lock(&sandbox, "--ttl 1h");
        assert!(sandbox.is_busy("deploy"));
        let mut next = sandbox.waiter(&["deploy"]);
        shell.signal(signal);
        shell.wait().dies_by(signal);
        next.enters_at_once();
        next.end().exits(0);
    }
    let script = "tenure acquire deploy --fd 9 >token; exec true";
    bash(&sandbox, script).run().exits(0);
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn a_lock_on_a_descriptor_is_freed_when_that_is_closed() {
    let sandbox = Sandbox::new();
    let script = "tenure acquire deploy --fd 9 >token; exec 9>&-; echo ready; read x; exit 0";
    let shell = bash(&sandbox, script).start_ready();
    assert!(!sandbox.is_busy("deploy"));
    drop(shell);
    let script = "(tenure acquire deploy --fd 8; tenure run deploy -- true) 8>>l.db-guard \
                  >token; tenure run deploy -- echo free";
    let outcome = plain_bash(&sandbox, script).run();
    outcome
        .exits(0)
        .prints("free\n")
        .says("*; deploy is held by *, inside of which this command runs");
}

#[test]
fn release_with_the_descriptor_gives_the_lock_back() {
    let sandbox = Sandbox::new();
    let script =
        "tenure acquire deploy --fd 9 >token && tenure release --fd 9 && echo ready; read x
                  tenure acquire deploy --fd 9 >token && echo again; read x; exit 0";
    let mut shell = bash(&sandbox, script).start_ready();
    assert!(!sandbox.is_busy("deploy"));
    assert_eq!(sandbox.rows::<i64>("select id from ticket"), [0; 0]);
    // And the same descriptor can have the lock again.
    let stdin = shell.stdin.as_mut().expect("a pipe");
    std::io::Write::write_all(stdin, b"\n").expect("it reads");
    shell.await_line("again");
    assert!(sandbox.is_busy("deploy"));
    shell.end().says_nothing();
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn release_with_the_descriptor_lets_the_next_in_at_once() {
    let sandbox = Sandbox::new();
    let script =
        "tenure acquire deploy --fd 9 >token && echo ready; read x; tenure release --fd 9 deploy
                  echo done; sleep 60";
    let mut shell = bash(&sandbox, script).start_ready();
    let mut next = sandbox.waiter(&["deploy"]);
    shell.stdin = None;
    shell.await_line("done");
    next.enters_at_once();
}

#[test]
fn release_with_a_descriptor_that_has_no_lock_is_76() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["other"]);
    bash(&sandbox, "tenure release --fd 9")
        .run()
        .is_not_held("*");
    let script =
        "tenure acquire deploy --fd 9 >token; tenure release --fd 9; tenure release --fd 9";
    bash(&sandbox, script).run().is_not_held("*");
    // Another open file of the same path is not the one that has it.
    let script = "exec 8<>l.db-guard; tenure acquire deploy --fd 9 >token; tenure release --fd 8";
    bash(&sandbox, script).run().is_not_held("*");
    assert!(sandbox.is_busy("other"));
}

#[test]
fn a_release_by_token_from_elsewhere_frees_the_lock_though_the_descriptor_is_open() {
    let sandbox = Sandbox::new();
    let shell = shell_with_lock(&sandbox, "");
    let token = token(&sandbox);
    let own = || sandbox.tenure().args(["status", "--token", &token]).run();
    own().exits(0);
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0).says_nothing();
    own().exits(76);
    assert!(!sandbox.is_busy("deploy"));
    let _next = sandbox.holder("deploy");
    assert!(sandbox.is_busy("deploy"));
    drop(shell);
    assert!(sandbox.is_busy("deploy"));
}

#[test]
fn a_waiter_sees_a_release_by_token_promptly_though_the_descriptor_is_open() {
    let sandbox = Sandbox::new();
    let measure = || {
        let shell = shell_with_lock(&sandbox, "");
        let call = sandbox.tenure().args(["run", "deploy", "--wait", "60s"]);
        let waiter = sandbox.queue(call.args(TELL_TIME));
        let token = token(&sandbox);
        let release = sandbox.tenure().args(["release", "--token", &token]);
        release.run().exits(0);
        let released = now();
        let entered = waiter.wait().told_time();
        drop(shell);
        entered - released
    };
    assert_prompt((0..3).map(|_| measure()).collect());
}

#[test]
fn a_forced_release_frees_a_lock_on_a_descriptor() {
    let sandbox = Sandbox::new();
    let shell = shell_with_lock(&sandbox, "");
    let mut next = sandbox.waiter(&["deploy"]);
    let release = sandbox.tenure().args(["release", "--force", "deploy"]);
    release.run().exits(0);
    next.enters_at_once();
    drop(shell);
}

#[test]
fn a_descriptor_that_cannot_keep_a_lock_is_64() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["other"]);
    std::fs::write(sandbox.path("file"), "").expect("a fresh directory");
    let cases = [
        ("exec 9<>file", "9"),
        ("exec 9<>l.db", "9"),
        ("exec 9<>/dev/null", "9"),
        ("exec 9< <(sleep 1)", "9"),
        ("exec 9<l.db-guard", "9"),
        ("exec 9<.", "9"),
        ("exec 9>&-", "9"),
        ("", "200"),
        ("", "1"),
        ("", "-1"),
        ("", "1000000"),
        ("", "99999999999"),
        ("", "x"),
        ("", "''"),
        ("exec 9<>l.db-guard", "0x9"),
        ("exec 9<>l.db-guard", "9.0"),
    ];
    for (open, number) in cases {
        for verb in ["acquire deploy", "acquire deploy --wait 60s", "release"] {
            let script = format!("{open}\ntenure {verb} --fd {number}");
            let outcome = plain_bash(&sandbox, &script).run();
            outcome.is_usage_error("*").took(..SOON);
        }
    }
    assert!(!sandbox.is_busy("deploy"), "something took it");
    assert!(sandbox.is_busy("other"));
}

#[test]
fn the_guard_of_another_database_is_64() {
    let sandbox = Sandbox::new();
    let script =
        "tenure acquire deploy --db m.db >token; exec 9<>m.db-guard; tenure acquire deploy --fd 9";
    plain_bash(&sandbox, script).run().is_usage_error("*");
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn a_child_that_has_the_descriptor_keeps_the_lock() {
    let sandbox = Sandbox::new();
    let script =
        "tenure acquire deploy --fd 9 --ttl 300ms >token; sleep 77 & sleep 78 9>&- & exit 0";
    bash(&sandbox, script).run().exits(0);
    throughout(ms(700), "it is held", || sandbox.is_busy("deploy"));
    let kept = sandbox
        .pids_of(&["sleep", "77"])
        .next()
        .expect("it is running");
    let pid = rustix::process::Pid::from_raw(kept).expect("a pid");
    rustix::process::kill_process(pid, Signal::KILL).expect("it is ours");
    until(SOON, "it is dead", || !is_alive(kept));
    until(SOON, "the lock is free", || !sandbox.is_busy("deploy"));
    assert!(sandbox.is_running(&["sleep", "78"]));
}

#[test]
fn a_lock_on_a_descriptor_is_waited_for() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("deploy");
    let script = "tenure acquire deploy --wait 60s --fd 9 >token && echo ready; read x; exit 0";
    let mut shell = bash(&sandbox, script)
        .stdin(std::process::Stdio::piped())
        .start();
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    throughout(ms(150), "it waits", || !shell.is_in());
    holder.end().exits(0);
    shell.enters_at_once();
    assert!(sandbox.is_busy("deploy"));
    shell.end();
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn an_acquire_on_a_descriptor_that_gives_up_or_is_killed_leaves_nothing_on_it() {
    let sandbox = Sandbox::new();
    for end in [
        "--wait 300ms",
        "--wait 60s & wait_for_line; kill -KILL $!; wait $!",
    ] {
        let holder = sandbox.holder("deploy");
        let script = format!(
            "wait_for_line() {{ until [ -e waiting ]; do sleep .02; done; }}
             tenure acquire deploy --fd 9 {end}; echo ready; read x; exit 0"
        );
        let shell = bash(&sandbox, &script)
            .stdin(std::process::Stdio::piped())
            .start();
        if end.contains("60s") {
            until(SOON, "it stands in the line", || sandbox.line().len() == 1);
            std::fs::write(sandbox.path("waiting"), "").expect("a fresh directory");
        }
        let mut shell = shell;
        shell.await_line("ready");
        let mut next = sandbox.waiter(&["deploy"]);
        holder.end().exits(0);
        next.enters_at_once();
        next.end().exits(0);
        assert!(!sandbox.is_busy("deploy"));
        // No byte either, which would be taken for a holder's when the database is another.
        for ending in ["", "-wal", "-shm"] {
            std::fs::remove_file(sandbox.path(format!("l.db{ending}"))).expect("it was made");
        }
        assert!(!sandbox.is_busy("deploy"));
        assert!(!shell.is_over());
        let _ = std::fs::remove_file(sandbox.path("waiting"));
    }
}

#[test]
fn a_descriptor_of_a_guard_file_that_was_replaced_keeps_nothing_and_that_is_told() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("deploy");
    let script = "tenure acquire deploy --wait 60s --fd 9; echo $?";
    let shell = bash(&sandbox, script).start();
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    std::fs::remove_file(sandbox.guard()).expect("it was made");
    holder.end().exits(0);
    let outcome = shell.wait();
    outcome.exits(0).prints("69\n");
    outcome.says("descriptor 9 is not open on */l.db-guard");
    assert!(!sandbox.is_busy("deploy"));
}

#[test]
fn one_descriptor_keeps_several_locks() {
    let sandbox = Sandbox::new();
    let script = "tenure acquire A B --fd 9 >token && tenure acquire -s C --fd 9 >token && echo ready; read x; exit 0";
    let shell = bash(&sandbox, script).start_ready();
    for name in ["A", "B", "C"] {
        assert!(sandbox.is_busy(name), "{name}");
    }
    shell.kill();
    for name in ["A", "B", "C"] {
        assert!(!sandbox.is_busy(name), "{name}");
    }
}

#[test]
fn slots_can_be_kept_on_descriptors() {
    let sandbox = Sandbox::new();
    let script = "tenure acquire A --slots 2 --fd 9 >token && echo ready; read x; exit 0";
    let one = bash(&sandbox, script).start_ready();
    let two = bash(&sandbox, script).start_ready();
    let mut next = sandbox.waiter(&["--slots", "2", "A"]);
    throughout(ms(150), "both slots are taken", || !next.is_in());
    two.kill();
    next.enters_at_once();
    drop(one);
}

#[test]
fn waiting_for_what_ones_own_descriptor_holds_is_told_at_once() {
    let sandbox = Sandbox::new();
    for wait in [
        "tenure acquire A --fd 9 --wait forever",
        "tenure run A --wait forever -- touch ran",
        "tenure run B A --wait forever -- touch ran",
        "tenure run B -- tenure run A --wait forever -- touch ran",
    ] {
        let script =
            format!("tenure acquire A --fd 9 >token && {wait}; echo $?; tenure release --fd 9");
        let outcome = bash(&sandbox, &script).run();
        outcome
            .took(..AT_ONCE)
            .exits(0)
            .prints("75\n")
            .says("*for ever*");
    }
    // Without the descriptor it is somebody else's.
    let script = "tenure acquire A --fd 9 >token; tenure run A --wait 60s -- touch ran 9>&- & echo ready; read x; exec 9>&-; wait";
    let shell = bash(&sandbox, script).start_ready();
    until(SOON, "it stands in the line", || sandbox.line().len() == 1);
    shell.end().exits(0).says_nothing();
    assert!(sandbox.path("ran").exists());
}

// For eval.

#[test]
fn shell_prints_a_line_for_eval() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.tenure().args(["acquire", "--shell", "A"]).run();
    outcome.exits(0).says_nothing();
    let words: Vec<&str> = outcome.stdout.split_whitespace().collect();
    let [export, token, fence, all] = words[..] else {
        panic!("{outcome:#?}");
    };
    assert_eq!(outcome.stdout, format!("{}\n", words.join(" ")));
    assert_eq!(export, "export");
    let token = token.strip_prefix("TENURE_TOKEN=").expect("the token");
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let fence = fence.strip_prefix("TENURE_FENCE=").expect("the fence");
    assert!(fence.parse::<u64>().is_ok_and(|fence| fence > 0), "{fence}");
    assert_eq!(all, format!("TENURE_TOKENS={token}"));
}

#[test]
fn what_shell_prints_is_understood_by_every_shell() {
    let sandbox = Sandbox::new();
    let script = "eval \"$(tenure acquire --shell A)\" || exit 9
        tenure run A -- true; echo $?
        printenv TENURE_TOKEN | wc -c; printenv TENURE_FENCE >fence
        tenure release A && tenure run A -- echo free";
    for shell in ["bash", "sh"] {
        let call = sandbox.program(shell).args(["-c", script]);
        let outcome = call.env("TENURE_DB", sandbox.db()).run();
        outcome.exits(0).prints("75\n33\nfree\n");
        outcome.says("*; A is held by *, inside of which this command runs");
    }
}

#[test]
fn shell_prints_what_fails_in_eval_when_there_is_no_lock() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for (arguments, code) in [
        ("A", 75),
        ("-E 9 A", 9),
        ("-E 0 A", 0),
        ("--db /dev/null A", 69),
        ("--slots 2 A B", 64),
        // What the parser does not understand, too.
        ("", 64),
        ("''", 64),
        ("--tll 10m A", 64),
        ("--ttl 10x A", 64),
        ("--fd nine A", 64),
        ("--slots 0 A", 64),
        ("--json A", 64),
    ] {
        let acquire = format!("tenure acquire -q --shell {arguments}");
        let prints = format!("(exit {code})\n");
        sandbox.sh(&acquire).run().exits(code).prints(&prints);
        let script = format!("eval \"$({acquire})\"; echo $? ${{TENURE_TOKEN-none}}");
        let outcome = sandbox.sh(&script).run();
        outcome.exits(0).prints(&format!("{code} none\n"));
    }
    let misspelt = "eval \"$(tenure acqire --shell A 2>&-)\"; echo $?";
    sandbox.sh(misspelt).run().exits(0).prints("64\n");
    // Where nothing can be printed by tenure the recipe itself has to end the script.
    for (script, code) in [
        (
            "eval \"$(/nowhere/tenure acquire --shell A 2>&- || echo exit $?)\"; touch ran",
            127,
        ),
        (
            "eval \"$(sh -c 'kill -9 $$' || echo exit $?)\"; touch ran",
            137,
        ),
        (
            "eval \"$(tenure acquire -q --shell A || echo exit $?)\"; touch ran",
            75,
        ),
    ] {
        for shell in ["bash", "sh"] {
            let call = sandbox.program(shell).args(["-c", script]);
            call.env("TENURE_DB", sandbox.db()).run().exits(code);
        }
    }
    let script = "set -e; eval \"$(tenure acquire -q --shell A)\"; touch ran";
    for shell in ["bash", "sh"] {
        let call = sandbox.program(shell).args(["-c", script]);
        call.env("TENURE_DB", sandbox.db()).run().exits(75);
    }
    assert!(!sandbox.path("ran").exists());
}

#[test]
fn shell_tells_the_slot() {
    let sandbox = Sandbox::new();
    let script = "eval \"$(tenure acquire --shell --slots 3 A)\"; printenv TENURE_SLOT";
    sandbox.sh(script).run().exits(0).prints("0\n");
    sandbox.sh(script).run().exits(0).prints("1\n");
}

#[test]
fn shell_and_descriptor_go_together() {
    let sandbox = Sandbox::new();
    let script = "eval \"$(tenure acquire --shell --fd 9 A)\"; tenure status --token $TENURE_TOKEN && echo held
        tenure release && tenure run A -- echo free";
    bash(&sandbox, script)
        .run()
        .exits(0)
        .prints("held\nfree\n")
        .says_nothing();
}

#[test]
fn shell_and_json_at_once_are_64() {
    let sandbox = Sandbox::new();
    let acquire = sandbox.tenure().args(["acquire", "--shell", "--json", "A"]);
    acquire.run().exits(64).prints("(exit 64)\n").says("*");
}

#[test]
fn run_and_extend_have_neither() {
    let sandbox = Sandbox::new();
    for option in [&["--fd", "9"][..], &["--shell"]] {
        let run = sandbox.tenure().arg("run").args(option).arg("A");
        run.args(["--", "true"]).run().is_usage_error("*");
        let extend = sandbox.tenure().arg("extend").args(option);
        extend.arg("A").run().is_usage_error("*");
    }
}
