//! A commit that never came costs nobody anything, whoever else is alive: a writer is killed, or finds the disk full, at each
//! of its writes, while a process has bytes of the guard file locked whose row is gone.

use std::fs;
use std::time::Duration;

use crate::strace::under;
use crate::support::{Running, SOON, Sandbox, Signal, for_each, until};

/// Starts a process whose bytes no row names any more.
type Stranger = fn(&Sandbox) -> Running<'_>;

const STRANGERS: [(&str, Stranger); 3] = [
    (
        "a job past its time to live, whose supervisor was killed",
        orphan,
    ),
    (
        "a shell with the descriptor of a lease that was released by its token",
        shell,
    ),
    ("a job in its grace, whose row is gone", lost_job),
];

fn orphan(sandbox: &Sandbox) -> Running<'_> {
    let script = "setsid sh -c 'echo ready; exec sleep 600' & wait";
    let words = ["run", "--ttl", "1s", "A", "--", "sh", "-c", script];
    let run = sandbox.tenure().args(words).start_ready();
    run.signal(Signal::KILL);
    until(SOON, "its lease has expired and is another's", || {
        !sandbox.is_busy("A")
    });
    run
}

fn shell(sandbox: &Sandbox) -> Running<'_> {
    let script =
        "exec 9<>l.db-guard; tenure release --token $(tenure acquire --fd 9 A); echo ready; read x";
    sandbox.sh(script).start_ready()
}

fn lost_job(sandbox: &Sandbox) -> Running<'_> {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let words = ["run", "--kill-after", "1h", "A", "--", "sh", "-c", script];
    let run = sandbox.tenure().args(words).start_ready();
    let delete = "delete from claim; delete from ticket";
    sandbox.connect().execute_batch(delete).expect("our own");
    until(SOON, "it finds that", || run.stderr().contains("lost A"));
    run
}

#[test]
fn a_commit_that_never_came_costs_nobody_anything() {
    for_each(STRANGERS, |(name, stranger)| {
        let sandbox = Sandbox::new();
        // The database is there, with nothing in it.
        sandbox.fence("A");
        let stranger = stranger(&sandbox);
        for fault in ["signal=KILL", "error=ENOSPC"] {
            for words in [
                &["run", "B", "--", "true"][..],
                &["acquire", "--ttl", "1ms", "B"],
            ] {
                // Each of its writes, and one that it does not come to.
                let mut number = 1;
                loop {
                    let inject = format!("inject=pwrite64:{fault}:when={number}");
                    let options = ["-e", "trace=pwrite64", "-e", &inject];
                    let call = sandbox.tenure().args(words);
                    let trace = sandbox.path("trace");
                    let outcome = under(call, &trace, &options).run();
                    let text = fs::read_to_string(&trace).expect("strace is installed");
                    let about = format!("{name}: {words:?}, {fault} at write {number}");
                    for verb in [&["run", "C", "--", "true"][..], &["run", "B", "--", "true"]] {
                        let next = sandbox.tenure().args(verb).run();
                        assert_eq!(next.code, Some(0), "{about}: {next:?} after {outcome:?}");
                        next.took(..Duration::from_secs(9));
                    }
                    let status = sandbox.tenure().arg("status").run();
                    assert_eq!(status.stderr, "", "{about}");
                    if text.matches("pwrite64").count() < number {
                        break;
                    }
                    number += 1;
                }
                assert!(number > 8, "{words:?} made {number} writes at the most");
            }
        }
        drop(stranger);
    });
}
