//! What README.md says is so: its examples run as they stand, and its table of exit statuses is the program's.
//! Its crontab is run in `cron`.

use std::fs;

use yaml_rust2::{Yaml, YamlLoader};

use crate::support::{Call, Running, SOON, Sandbox, Signal, TENURE, ms, throughout, until};

const README: &str = include_str!("../../README.md");

/// The blocks of code with these words after the fence, each with the text that comes after it.
pub fn blocks(kind: &str) -> Vec<(&'static str, &'static str)> {
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

/// The one block of its kind.
fn block(kind: &str) -> &'static str {
    let blocks = blocks(kind);
    assert_eq!(blocks.len(), 1, "{kind}");
    blocks[0].0
}

/// A deploy that writes down when it is not alone, and works until there is a file `go`.
const DEPLOY: &str = "#!/bin/sh
exec 8>own-lock
flock -n 8 || echo overlap >>log
echo \"deploy\" >>log
until [ -e go ]; do sleep .05; done
";

/// Both are started, the second when the first is at work, and told to go on when the second stands in line.
#[track_caller]
fn one_after_the_other<'a>(sandbox: &'a Sandbox, [first, second]: [Call<'a>; 2]) {
    sandbox.write_program("deploy", DEPLOY);
    let log = || fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    let ends = |running: Running<'_>| {
        running.wait().exits(0);
    };
    let first = first.start();
    until(SOON, "the first is at work", || log() == "deploy\n");
    let second = second.start();
    until(SOON, "the second waits", || {
        let status = sandbox.status();
        status
            .iter()
            .any(|row| row["name"] == "production" && row["waiting"] == 1)
    });
    fs::write(sandbox.path("go"), "").unwrap();
    ends(first);
    ends(second);
    assert_eq!(log(), "deploy\ndeploy\n");
}

/// A job of a CI service: its script in a file, as the service calls a shell for it, with its variables, of which the
/// database is the sandbox's.
fn ci_job<'a>(sandbox: &'a Sandbox, shell: &[&str], script: &str, variables: &Yaml) -> Call<'a> {
    let file = sandbox.path(format!("{}.sh", shell.join("")));
    fs::write(&file, script).unwrap();
    let call = sandbox.program(shell[0]).args(&shell[1..]).arg(file);
    let mut call = call.detached();
    for (name, value) in variables.as_hash().expect("variables") {
        call = call.env(name.as_str().unwrap(), value.as_str().unwrap());
    }
    assert_eq!(
        variables["TENURE_DB"].as_str(),
        Some("/var/lib/locks/locks.db")
    );
    call.db(sandbox.db())
}

/// The jobs of GitHub Actions and of GitLab CI.
fn ci_jobs(sandbox: &Sandbox) -> [Call<'_>; 2] {
    let github = &YamlLoader::load_from_str(block("yaml github")).unwrap()[0];
    assert!(github["name"].as_str().is_some() && !github["on"].is_badvalue());
    let job = &github["jobs"]["deploy"];
    assert!(
        job["runs-on"]
            .as_vec()
            .is_some_and(|labels| labels[0].as_str() == Some("self-hosted"))
    );
    let steps = job["steps"].as_vec().expect("steps");
    assert!(
        steps
            .iter()
            .all(|step| step["uses"].is_badvalue() != step["run"].is_badvalue())
    );
    let step = steps
        .iter()
        .find(|step| !step["run"].is_badvalue())
        .unwrap();
    let script = step["run"].as_str().unwrap();
    let first = ci_job(sandbox, &["bash", "-e"], script, &step["env"]);

    let gitlab = &YamlLoader::load_from_str(block("yaml gitlab")).unwrap()[0];
    let job = &gitlab["deploy"];
    assert!(job["stage"].as_str().is_some() && job["tags"].as_vec().is_some());
    let lines = job["script"].as_vec().expect("a script").iter();
    let lines: Vec<&str> = lines.map(|line| line.as_str().unwrap()).collect();
    let shell = ["bash", "-e", "-o", "pipefail"];
    let second = ci_job(sandbox, &shell, &lines.join("\n"), &job["variables"]);

    [
        first.env("GITHUB_REPOSITORY", "ann/shop"),
        second.env("CI_PROJECT_PATH", "bob/shop"),
    ]
}

#[test]
fn the_jobs_of_two_ci_services_go_one_at_a_time() {
    let sandbox = Sandbox::new();
    one_after_the_other(&sandbox, ci_jobs(&sandbox));
}

#[test]
fn what_a_runner_signals_to_the_shell_alone_reaches_the_deploy_which_cleans_up_under_its_lock() {
    let sandbox = Sandbox::new();
    sandbox.write_program(
        "deploy",
        "#!/bin/sh
        trap 'echo told >>log' INT
        trap 'echo told again >>log' TERM
        echo deploy >>log
        until [ -e go ]; do sleep .05; done
        echo cleaned >>log
        exit 3",
    );
    let log = || fs::read_to_string(sandbox.path("log")).unwrap_or_default();
    for job in ci_jobs(&sandbox) {
        let mut job = job.start();
        until(SOON, "it is at work", || log() == "deploy\n");
        job.signal(Signal::INT);
        until(SOON, "it is told", || log() == "deploy\ntold\n");
        job.signal(Signal::TERM);
        until(SOON, "and again", || log().ends_with("told again\n"));
        let is_held = || !job.is_over() && sandbox.is_busy("production");
        throughout(ms(300), "it has the lock while it cleans up", is_held);
        fs::write(sandbox.path("go"), "").unwrap();
        job.wait().exits(3);
        assert_eq!(log(), "deploy\ntold\ntold again\ncleaned\n");
        assert!(!sandbox.is_busy("production"));
        for file in ["log", "go"] {
            fs::remove_file(sandbox.path(file)).unwrap();
        }
    }
}

#[test]
fn the_makefile_deploys_one_at_a_time() {
    let sandbox = Sandbox::new();
    let makefile = block("make").to_owned() + "all:\n\techo built >>built\n";
    fs::write(sandbox.path("Makefile"), makefile).unwrap();
    let deploy = || {
        sandbox
            .program("make")
            .args(["-j2", "deploy"])
            .db(sandbox.db())
    };
    one_after_the_other(&sandbox, [deploy(), deploy()]);
    assert_eq!(
        fs::read_to_string(sandbox.path("built")).unwrap(),
        "built\nbuilt\n"
    );
}

#[test]
fn the_units_for_systemd_are_right_and_the_service_does_the_job() {
    let sandbox = Sandbox::new();
    let service = block("ini report.service");
    fs::write(sandbox.path("report.service"), service).unwrap();
    fs::write(sandbox.path("report.timer"), block("ini report.timer")).unwrap();
    fs::copy(TENURE, sandbox.path("tenure")).unwrap();
    sandbox.write_program("report", "#!/bin/sh\necho \"$TENURE_LOCK in $TENURE_DB\"\n");
    let starts = service
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart="));
    let script = format!(
        "{INSTALLED} systemd-analyze verify ./report.service ./report.timer && {}",
        starts.expect("what the service starts")
    );
    let outcome = sandbox
        .program("sh")
        .args(["-euc", &script])
        .via(["unshare", "--mount"])
        .run();
    // What is not right the verifier says, and goes on.
    outcome
        .exits(0)
        .says_nothing()
        .prints("report in /var/lib/tenure/tenure.db\n");
}

/// Puts the directory's `tenure` and `report` where a newcomer would have them, with no database yet, for this command and
/// what it starts.
pub const INSTALLED: &str =
    "mount -t tmpfs tmpfs /var/lib && mount -t tmpfs tmpfs /usr/local/bin &&
    cp tenure report /usr/local/bin &&";

/// The words in a picture, without its numbers and times, which are others in each.
fn words(svg: &str) -> Vec<String> {
    let texts = svg
        .split("</text>")
        .filter_map(|text| Some(text.rsplit_once('>')?.1));
    let plain = |text: &str| {
        let words = text.split_whitespace();
        let words = words.filter(|word| !word.starts_with(|letter: char| letter.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    };
    texts.map(plain).filter(|text| !text.is_empty()).collect()
}

#[test]
fn the_picture_is_what_its_script_makes_of_a_real_run() {
    let sandbox = Sandbox::new();
    let root = env!("CARGO_MANIFEST_DIR");
    let script = sandbox
        .program("/usr/bin/python3")
        .arg(format!("{root}/docs/picture.py"));
    let outcome = script.args([TENURE, "made.svg"]).run();
    outcome.exits(0).prints_nothing().says_nothing();
    let made = fs::read_to_string(sandbox.path("made.svg")).unwrap();
    let committed = fs::read_to_string(format!("{root}/docs/terminal.svg")).unwrap();
    assert!(README.contains("](docs/terminal.svg)"));
    assert!(
        made.starts_with("<svg ") && made.ends_with("</svg>\n"),
        "{made}"
    );
    assert_eq!(
        words(&made),
        words(&committed),
        "docs/terminal.svg is stale: docs/picture.py PROGRAM docs/terminal.svg"
    );
}

/// The commands in the rows of the table with this head.
fn pairs(head: &str) -> Vec<[String; 2]> {
    let (_, table) = README
        .split_once(&format!("\n| {head} | tenure |\n| --- | --- |\n"))
        .expect("the table");
    let rows = table
        .lines()
        .map_while(|line| line.strip_prefix("| `")?.strip_suffix("` |"));
    let pair = |row: &str| {
        let (from, to) = row.split_once("` | `").expect("two commands");
        [from.to_owned(), to.to_owned()]
    };
    rows.map(pair).collect()
}

#[test]
fn what_stands_beside_another_tools_command_does_the_job() {
    for (tool, count) in [("flock", 7), ("lockrun", 4), ("consul", 7)] {
        let pairs = pairs(tool);
        assert_eq!(pairs.len(), count, "{tool}");
        for [from, to] in pairs {
            assert!(from.starts_with(tool), "{from}");
            let jobs = |command: &str| {
                let sandbox = Sandbox::new();
                sandbox.write_program("job", "#!/bin/sh\necho done\n");
                let command = command.replace("/tmp/", "./");
                let outcome = bash(&sandbox, &command).run();
                outcome.exits(0).says_nothing();
                outcome.stdout
            };
            let runs = to.matches("./job").count();
            assert_eq!(jobs(&to), "done\n".repeat(runs), "{to}");
            if tool == "flock" {
                assert_eq!(jobs(&from), jobs(&to), "{from}");
            }
        }
    }
}

#[test]
fn a_busy_lock_is_treated_as_flock_would_treat_it() {
    let sandbox = Sandbox::new();
    sandbox.write_program("job", "#!/bin/sh\necho done\n");
    let held = "tenure run job -- sh -c 'touch held; exec sleep 600' & flock job.lock sh -c 'touch flocked; exec sleep 600' &";
    bash(&sandbox, held).run().exits(0);
    until(SOON, "both are held", || {
        sandbox.path("held").exists() && sandbox.path("flocked").exists()
    });
    let status = |command: &str| {
        bash(&sandbox, &command.replace("/tmp/", "./"))
            .run()
            .code
            .unwrap()
    };
    for [from, to] in pairs("flock") {
        if from.contains("-n") || from.contains("-w") {
            // Only the number for a busy lock is another, where none is given.
            let (of_flock, of_tenure) = if from.contains("-E") { (0, 0) } else { (1, 75) };
            let [from, to] = [from, to].map(|command| command.replace("-w 10", "-w .1"));
            assert_eq!(status(&from), of_flock, "{from}");
            assert_eq!(status(&to), of_tenure, "{to}");
        }
    }
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
    assert_eq!(count, 8);
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
