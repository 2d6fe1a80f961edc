//! What the man pages say is so: their examples are the program's own language, and nothing of it is left out.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::support::Sandbox;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The texts of the pages, by the names of their verbs.
fn texts() -> Vec<(String, String)> {
    let folder = Path::new(ROOT).join("src/cli/pages");
    let texts = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    });
    texts.collect()
}

/// The indented blocks of a text's examples.
fn examples(text: &str) -> Vec<String> {
    let (_, text) = text.split_once("# EXAMPLES\n").expect("examples");
    let blocks = text.split("\n\n").filter(|block| block.starts_with("    "));
    let plain = |block: &str| {
        let lines = block.lines().map(|line| line.get(4..).unwrap_or_default());
        lines.collect::<Vec<_>>().join("\n")
    };
    blocks.map(plain).collect()
}

/// What the program is called with, and how it ended, is in the file `calls`.
const WATCHED: &str = r#"#!/bin/sh
"$PROGRAM" "$@"
code=$?
echo "$code: tenure $*" >>"$CALLS"
exit $code
"#;

#[test]
fn the_examples_of_the_man_pages_are_no_usage_errors() {
    let mut count = 0;
    for (name, text) in texts() {
        for example in examples(&text) {
            let sandbox = Sandbox::new();
            fs::create_dir(sandbox.path("bin")).unwrap();
            sandbox.write_program("bin/tenure", WATCHED);
            sandbox.write_program("bin/jq", "#!/bin/sh\nexec cat >/dev/null\n");
            for job in [
                "deploy",
                "dump",
                "upload",
                "build",
                "report",
                "close-month",
                "send-mail",
            ] {
                sandbox.write_program(job, "#!/bin/sh\nexit 0\n");
            }
            let lease = sandbox.acquire(["held"]);
            // A line of a crontab is its command.
            let script = match example.strip_prefix('*') {
                Some(line) => line
                    .split_once("  ")
                    .expect("a line of a crontab")
                    .1
                    .to_owned(),
                None => example,
            };
            let script = script
                .replace("/var/lib/locks", sandbox.dir().to_str().unwrap())
                .replace("locks.db", "l.db")
                .replace("-g locks", "-g daemon")
                .replace("/usr/local/bin/", "./");
            sandbox
                .sh(&script)
                .via(["sh", "-n", "-c", &script])
                .run()
                .exits(0)
                .says_nothing();
            sandbox.write_program("example", &script);
            let mut path = sandbox.path("bin").into_os_string();
            path.push(":/usr/bin:/bin");
            // What watches or follows does so for ever.
            let call = sandbox
                .program("timeout")
                .args(["5", "sh", "./example"])
                .env("PATH", path);
            let call = call
                .env("PROGRAM", crate::support::TENURE)
                .env("CALLS", sandbox.path("calls"));
            let call = call
                .db(sandbox.db())
                .env("TENURE_TOKEN", &lease)
                .env("token", &lease);
            let outcome = call.run();
            let calls = fs::read_to_string(sandbox.path("calls")).unwrap_or_default();
            let wrong = calls
                .lines()
                .any(|line| line.starts_with("64:") || line.starts_with("127:"));
            assert!(!wrong, "{name}: {script}\n{calls}{outcome:#?}");
            assert!(
                script.contains("tenure ") != calls.is_empty() || outcome.code == Some(124),
                "{name}: {script}\n{outcome:#?}"
            );
            assert!(
                !outcome.stderr.contains("not found"),
                "{name}: {script}\n{outcome:#?}"
            );
            count += 1;
        }
    }
    assert!(count > 15, "{count}");
}

#[test]
fn every_environment_variable_that_the_program_knows_is_in_the_manual() {
    let mut known = BTreeSet::new();
    let mut folders = vec![Path::new(ROOT).join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(path).unwrap();
                let names = text.split("\"TENURE_").skip(1);
                known.extend(
                    names.filter_map(|rest| Some(format!("TENURE_{}", rest.split_once('"')?.0))),
                );
            }
        }
    }
    // Those of the program's own tests, how the man pages are made, and how far the model is searched.
    let own = ["TENURE_BLESS", "TENURE_MODEL"];
    known.retain(|name| !name.starts_with("TENURE_TEST") && !own.contains(&name.as_str()));
    assert!(known.len() >= 6, "{known:?}");
    let page = fs::read_to_string(Path::new(ROOT).join("man/tenure.1")).unwrap();
    let readme = fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap();
    for name in known {
        assert!(page.contains(&name), "{name} is not in tenure(1)");
        assert!(
            readme.contains(&format!("| `{name}` |")),
            "{name} is not in the README"
        );
    }
}

#[test]
fn help_with_a_verb_is_the_verbs_help_and_its_options_are_those_of_the_man_page() {
    let sandbox = Sandbox::new();
    let verbs = texts()
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| name != "tenure");
    for verb in verbs {
        let help = sandbox.tenure().args(["help", &verb]).run();
        help.exits(0).says_nothing();
        sandbox
            .tenure()
            .args([&verb, "--help"])
            .run()
            .exits(0)
            .prints(&help.stdout);
        let page =
            fs::read_to_string(Path::new(ROOT).join(format!("man/tenure-{verb}.1"))).unwrap();
        let page = page.replace("\\-", "-");
        let words = help
            .stdout
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric() && c != '-'));
        let options: BTreeSet<&str> = words
            .filter(|word| word.starts_with("--") && word.len() > 2)
            .collect();
        assert!(options.len() > 5, "{options:?}");
        for option in options {
            assert!(page.contains(option), "{option} is not in tenure-{verb}(1)");
        }
    }
}
