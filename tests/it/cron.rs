//! Debian's cron with a real crontab: jobs that start at the same tick run one at a time.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use crate::readme::{INSTALLED, blocks};
use crate::support::{Running, SOON, Sandbox, TENURE, ms, until};

/// Runs cron with the crontab of this directory's `crontab`, where neither the machine's own crontabs are
/// seen nor its running cron is met.
const CRON: &str = "
    mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs /etc/cron.d && mount -t tmpfs tmpfs /var/spool/cron &&
    mount --bind system-crontab /etc/crontab && mkdir -m 1730 /var/spool/cron/crontabs &&
    install -m 600 crontab /var/spool/cron/crontabs/root && exec cron -f";

/// How many lines of the table are the same job.
const COPIES: usize = 5;

/// The job: what it says is told apart from tenure's words, and flock(1) watches over it.
const JOB: &str = r#"
    echo "enter $TENURE_FENCE" >>"$1.history"
    flock -n "$1.own-lock" sh -c "until [ -e $1.go ]; do sleep .05; done" || echo overlap >>"$1.history"
    echo "leave $TENURE_FENCE" >>"$1.history"
"#;

fn lines(sandbox: &Sandbox, name: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path(name)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// Every entry is followed by its own leaving.
#[track_caller]
fn assert_one_at_a_time(history: &[String], runs: usize) {
    assert_eq!(history.len(), 2 * runs, "{history:#?}");
    for run in history.chunks(2) {
        let fence = run[0]
            .strip_prefix("enter ")
            .unwrap_or_else(|| panic!("{history:#?}"));
        assert_eq!(run[1], format!("leave {fence}"), "{history:#?}");
    }
}

/// What the crontabs have in common. Nobody gets mail, and what the jobs leave running is found.
fn head(sandbox: &Sandbox) -> String {
    let directory = sandbox.dir();
    let root = directory.parent().expect("it is in the sandbox").display();
    format!("SHELL=/bin/sh\nMAILTO=\"\"\nSANDBOX={root}\n")
}

/// cron, at work with this crontab. What is to be done before goes first.
fn cron<'a>(sandbox: &'a Sandbox, crontab: &str, before: &str) -> Running<'a> {
    fs::write(sandbox.path("system-crontab"), "").unwrap();
    fs::write(sandbox.path("crontab"), crontab).unwrap();
    fs::set_permissions(sandbox.path("crontab"), Permissions::from_mode(0o600)).unwrap();
    let script = format!("{before} {CRON}");
    let apart = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--kill-child",
    ];
    sandbox
        .program("sh")
        .args(["-c", &script])
        .via(apart)
        .start()
}

#[test]
fn the_readmes_crontab_guards_a_job_on_a_machine_that_never_had_tenure() {
    let sandbox = Sandbox::new();
    let directory = sandbox.dir();
    let directory = directory.display();
    let [(line, _)] = blocks("crontab")[..] else {
        panic!("one crontab");
    };
    let command = line
        .trim_end()
        .strip_prefix("*/5 * * * *  ")
        .expect("a line of a crontab");
    fs::copy(TENURE, sandbox.path("tenure")).unwrap();
    let report = format!("#!/bin/sh\ncd {directory} && exec sh job report\n");
    sandbox.write_program("report", &report);
    fs::write(sandbox.path("job"), JOB).unwrap();
    let line = format!(
        "* * * * * {{ {command}; echo $? >>{directory}/codes; }} >>{directory}/said 2>&1\n"
    );
    let _cron = cron(
        &sandbox,
        &(head(&sandbox) + &line.repeat(COPIES)),
        INSTALLED,
    );

    until(
        ms(75_000),
        "all but one of the jobs of a tick are skipped",
        || lines(&sandbox, "codes").len() == COPIES - 1,
    );
    fs::write(sandbox.path("report.go"), "").unwrap();
    until(SOON, "the one has ended", || {
        lines(&sandbox, "codes").len() == COPIES
    });
    assert_one_at_a_time(&lines(&sandbox, "report.history"), 1);
    assert_eq!(lines(&sandbox, "codes"), ["0"; COPIES]);
    assert_eq!(lines(&sandbox, "said"), [""; 0]);
}

#[test]
fn a_cron_job_that_overlaps_itself_runs_once_at_a_time_and_the_rest_are_skipped_or_wait() {
    let sandbox = Sandbox::new();
    let directory = sandbox.dir();
    let directory = directory.to_str().expect("the path is text");
    fs::write(sandbox.path("job"), JOB).unwrap();
    let head = head(&sandbox) + &format!("TENURE_DB={directory}/l.db\n");
    let skipping = format!(
        "* * * * * cd {directory} && {{ {TENURE} run -q -E 0 skipping -- sh job skipping; echo $? >>skipping.codes; }} >>skipping.said 2>&1\n"
    );
    let waiting = format!(
        "* * * * * cd {directory} && {{ {TENURE} run -q -w 50 waiting -- sh job waiting; echo $? >>waiting.codes; }} >>waiting.said 2>&1\n"
    );
    fs::write(sandbox.path("waiting.go"), "").unwrap();
    let _cron = cron(
        &sandbox,
        &(head + &skipping.repeat(COPIES) + &waiting.repeat(COPIES)),
        "",
    );

    // cron looks at the clock, so the next minute is waited for. All but one find the lock held.
    until(
        ms(75_000),
        "all but one of the jobs of a tick are skipped",
        || lines(&sandbox, "skipping.codes").len() == COPIES - 1,
    );
    until(SOON, "one is at work", || {
        lines(&sandbox, "skipping.history").len() == 1
    });
    assert!(sandbox.is_busy("skipping"));
    fs::write(sandbox.path("skipping.go"), "").unwrap();
    until(ms(20_000), "all have ended", || {
        ["skipping.codes", "waiting.codes"]
            .iter()
            .all(|codes| lines(&sandbox, codes).len() == COPIES)
    });

    assert_one_at_a_time(&lines(&sandbox, "skipping.history"), 1);
    assert_one_at_a_time(&lines(&sandbox, "waiting.history"), COPIES);
    for name in ["skipping", "waiting"] {
        assert_eq!(
            lines(&sandbox, &format!("{name}.codes")),
            ["0"; COPIES],
            "{name}"
        );
        assert_eq!(lines(&sandbox, &format!("{name}.said")), [""; 0], "{name}");
        assert!(!sandbox.is_busy(name));
    }
}
