//! What README.md says is so: its examples run as they stand, and its table of exit statuses is the program's.

use crate::support::{Call, Sandbox};

const README: &str = include_str!("../../README.md");

/// The blocks of code with these words after the fence, each with the text that comes after it.
fn blocks(kind: &str) -> Vec<(&'static str, &'static str)> {
    let fence = format!("\n```{kind}\n");
    README
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split_once("```\n").expect("the block has an end"))
        .collect()
}

/// What the block that comes next says is printed.
fn printed(rest: &'static str) -> &'static str {
    let text = rest.strip_prefix("\n```text\n");
    let text = text.and_then(|text| text.split_once("```\n"));
    text.expect("an example is followed by what it prints").0
}

/// Whether `text` is what `pattern` says, in which `…` is any text.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('…');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn bash<'a>(sandbox: &'a Sandbox, script: &str) -> Call<'a> {
    let bash = sandbox.program("bash").args(["-eu", "-c", script]);
    bash.db(sandbox.path("locks.db"))
}

#[test]
fn the_examples_run_as_they_stand_and_print_what_is_said() {
    let mut count = 0;
    for (script, rest) in blocks("sh example") {
        count += 1;
        let sandbox = Sandbox::new();
        let outcome = bash(&sandbox, script).run();
        outcome.exits(0);
        let expected = printed(rest);
        assert!(
            fits(expected, &outcome.stdout),
            "{script}\nprints\n{}and not\n{expected}\n{outcome:#?}",
            outcome.stdout
        );
        let status = sandbox.tenure().db(sandbox.path("locks.db")).arg("status");
        status
            .run()
            .exits(0)
            .prints_with("no locks are held in ")
            .says_nothing();
    }
    assert_eq!(count, 6);
}

#[test]
fn the_command_that_runs_the_main_job_does_that() {
    let commands = || blocks("sh").into_iter().map(|(code, _)| code);
    let build = "cargo run --release --quiet --locked -- ";
    let mut jobs = commands().filter_map(|code| code.strip_prefix(build));
    let job = jobs.next().expect("a command that runs the main job");
    let sandbox = Sandbox::new();
    let outcome = bash(&sandbox, &format!("tenure {job}")).run();
    outcome.exits(0).says_nothing();
    let fence = outcome.stdout.strip_prefix("holding demo, fence ");
    let fence = fence.and_then(|fence| fence.trim_end().parse::<i64>().ok());
    assert!(fence.is_some_and(|fence| fence > 0), "{outcome:#?}");
    let tests = commands().filter(|code| code.ends_with(" && cargo test --locked\n"));
    assert_eq!(tests.count(), 1, "one command passes the tests");
}

#[test]
fn the_commands_that_set_up_a_shared_database_do_that() {
    let mut commands = blocks("sh").into_iter().map(|(code, _)| code);
    let setup = commands.find(|code| code.starts_with("install -d -m 2770 "));
    let sandbox = Sandbox::new();
    let (place, group) = (sandbox.path("shared"), "daemon");
    let setup = setup
        .expect("commands that set up a shared database")
        .replace("/var/lib/locks", place.to_str().expect("the path is text"))
        .replace("-g locks", &format!("-g {group}"));
    bash(&sandbox, &setup).run().exits(0).says_nothing();
    let member = |user| {
        sandbox
            .tenure_as(user, group)
            .db(place.join("locks.db"))
            .arg("run")
    };
    let ann = member(4001).args(["deploy"]).hold();
    member(4002)
        .args(["deploy", "--", "true"])
        .run()
        .is_busy("deploy");
    ann.end().exits(0);
    member(4002).args(["deploy", "--", "true"]).run().exits(0);
    let stranger = sandbox.tenure_as(4001, "").db(place.join("locks.db"));
    stranger
        .arg("status")
        .run()
        .is_store_error("cannot open *: permission denied");
}

#[test]
fn the_table_of_exit_statuses_is_what_the_program_does() {
    let (_, table) = README
        .split_once("\n## Exit status\n\n| status | when |\n| --- | --- |\n")
        .expect("the table");
    let rows = table.lines().map_while(|line| line.strip_prefix("| "));
    let statuses: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
    let all = [
        "0",
        "CMD's own",
        "128+n",
        "64",
        "69",
        "75",
        "76",
        "124",
        "126",
        "127",
    ];
    assert_eq!(statuses, all);

    let sandbox = Sandbox::new();
    let run = || sandbox.tenure().args(["run", "A"]);
    run().args(["--", "true"]).run().exits(0);
    run().args(["--", "sh", "-c", "exit 3"]).run().exits(3);
    let killed = "tenure run A -- sh -c 'kill -TERM $$'; echo $?";
    sandbox.sh(killed).run().prints("143\n");
    run().run().exits(64);
    run()
        .db("/proc/nope/l.db")
        .args(["--", "true"])
        .run()
        .exits(69);
    let token = sandbox.acquire(["A"]);
    run().args(["--", "true"]).run().exits(75);
    run().args(["-E", "9", "--", "true"]).run().exits(9);
    let release = || sandbox.tenure().args(["release", "--token", &token]);
    release().run().exits(0);
    release().run().exits(76);
    run()
        .args(["--max-time", ".1", "--", "sleep", "60"])
        .run()
        .exits(124);
    run().args(["--", "/etc/passwd"]).run().exits(126);
    run().args(["--", "/nonexistent"]).run().exits(127);
}
