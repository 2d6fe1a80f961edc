//! What may be a lock's name, that each is a lock of its own, and several taken at once.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::support::{SOON, Sandbox, for_each};

/// Names that a careless program confuses with each other, or with something else than a name.
fn good_names() -> Vec<String> {
    let names = [
        "a",
        "a/b",
        "a/",
        "/a",
        "../x",
        "x",
        ".",
        "..",
        "~",
        "'; drop table x",
        "\"",
        "`id`",
        "$(id)",
        "Prod",
        "prod",
        "PROD",
        "prod ",
        " prod",
        " ",
        "  ",
        "%",
        "_",
        "*",
        "?",
        "[a-z]",
        "pro%",
        "\\",
        "null",
        "NULL",
        "0",
        "00",
        "1",
        "1.0",
        "1e0",
        "true",
        "a,b",
        "a;b",
        "a=b",
        "a:b",
        "#",
        "e\u{301}",
        "\u{e9}",
        "stra\u{df}e",
        "strasse",
        "\u{130}",
        "i",
        "I",
        "\u{1f512}",
        "\u{202e}x",
        "\u{feff}",
        "日本",
    ];
    let mut names: Vec<String> = names.map(String::from).into();
    names.extend([
        "x".repeat(254),
        "x".repeat(255),
        "é".repeat(127),
        format!("{}y", "é".repeat(127)),
    ]);
    names
}

#[test]
fn every_good_name_is_a_lock_of_its_own() {
    let sandbox = Sandbox::new();
    let names = good_names();
    let tokens: Vec<String> = names.iter().map(|name| sandbox.acquire([name])).collect();
    for_each(&names, |name| {
        assert!(sandbox.is_busy(name), "{name:?} is not held");
    });

    let listed = sandbox.status();
    assert_eq!(listed.len(), names.len());
    for_each(&names, |name| {
        let outcome = sandbox.tenure().args(["status", "--json", name]).run();
        let objects = outcome.exits(0).json();
        assert_eq!(objects.len(), 1, "{name:?}: {outcome:#?}");
        assert!(listed.contains(&objects[0]) || objects[0].to_string().contains(&quoted(name)));
    });

    for_each(names.iter().zip(&tokens), |(name, token)| {
        let outcome = sandbox
            .tenure()
            .args(["release", name, "--token", token])
            .run();
        outcome.exits(0).prints_nothing().says_nothing();
    });
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}

fn quoted(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

#[test]
fn no_name_touches_the_file_system() {
    let sandbox = Sandbox::new();
    for name in ["../x", "a/b", "/tmp/tenure-name", "l.db", "x"] {
        sandbox.acquire([name]);
    }
    let mut found: Vec<_> = std::fs::read_dir(sandbox.dir())
        .expect("the directory is there")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    found.sort();
    assert_eq!(found, ["l.db", "l.db-guard", "l.db-shm", "l.db-wal"]);
    assert!(!sandbox.dir().join("../x").exists());
    assert!(!std::path::Path::new("/tmp/tenure-name").exists());
}

#[test]
fn a_bad_name_is_64_wherever_it_stands() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["good"]);
    let long = "x".repeat(256);
    let long_in_bytes = "é".repeat(128);
    let bad: [&[u8]; 13] = [
        b"",
        long.as_bytes(),
        long_in_bytes.as_bytes(),
        b"a\nb",
        b"\n",
        b"a\tb",
        b"a\rb",
        b"\x1b[31mred",
        b"\x7f",
        b"\x01",
        "a\u{85}b".as_bytes(),
        b"\xff\xfe",
        b"caf\xe9",
    ];
    for_each(bad, |name| {
        let name = OsStr::from_bytes(name);
        for verb in ["acquire", "release", "extend", "status"] {
            for words in [[OsStr::new("good"), name], [name, OsStr::new("good")]] {
                let call = sandbox.tenure().arg(verb).args(words);
                let proof = if verb == "acquire" {
                    &[][..]
                } else {
                    &["--token", &token]
                };
                call.args(proof).run().is_usage_error("*");
            }
        }
        sandbox
            .tenure()
            .args(["release", "--force"])
            .arg(name)
            .run()
            .is_usage_error("*");
        let call = sandbox.tenure().arg("run").args([OsStr::new("free"), name]);
        call.args(["--", "touch", "ran"]).run().is_usage_error("*");
    });
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    assert!(
        !sandbox.is_busy("free"),
        "a lock beside a bad name was taken"
    );
    assert!(sandbox.is_busy("good"), "the lease is not as it was");
}

#[test]
fn a_note_and_a_command_line_cannot_speak_to_the_terminal() {
    let sandbox = Sandbox::new();
    let note = "first\nsecond \u{1b}[31mred\u{9b}5m\u{7f}";
    let call = sandbox.tenure().args(["run", "A", "--note", note, "--"]);
    let odd = OsString::from_vec(b"echo ready; read x; exit 0 # \x1b[2J\n\xff".to_vec());
    let _holder = call.args(["sh", "-c"]).arg(odd).start_ready();
    sandbox.tenure().args(["acquire", "A"]).run().is_busy("A");
    let status = sandbox.tenure().arg("status").run();
    status.exits(0).says_nothing().prints_with("first");
    let is_harmless = |c: char| c == '\n' || !c.is_control();
    assert!(status.stdout.chars().all(is_harmless), "{status:#?}");
    let lines = status
        .stdout
        .lines()
        .filter(|line| line.contains("first"))
        .count();
    assert_eq!(lines, 1, "{status:#?}");
    assert!(
        !status.stdout.lines().any(|line| line.starts_with("second")),
        "{status:#?}"
    );
    assert_eq!(sandbox.status().len(), 1, "and one line of JSON");
}

#[test]
fn several_names_are_taken_all_or_none() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("B");
    for order in [["A", "B", "C"], ["C", "B", "A"], ["B", "A", "C"]] {
        sandbox
            .tenure()
            .arg("acquire")
            .args(order)
            .run()
            .is_busy("B");
        let call = sandbox
            .tenure()
            .arg("run")
            .args(order)
            .args(["--", "touch", "ran"]);
        call.run().is_busy("B");
    }
    assert!(
        !sandbox.is_busy("A") && !sandbox.is_busy("C"),
        "a part was taken"
    );
    assert!(!sandbox.path("ran").exists(), "CMD was run");
    holder.end().exits(0);

    let token = sandbox.acquire(["A", "B", "C"]);
    for name in ["A", "B", "C"] {
        assert!(sandbox.is_busy(name), "{name}");
    }
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    for name in ["A", "B", "C"] {
        assert!(!sandbox.is_busy(name), "{name}");
    }
}

#[test]
fn a_run_with_several_names_holds_them_all_and_gives_them_all_back() {
    let sandbox = Sandbox::new();
    let holder = sandbox.tenure().args(["run", "A", "B", "C"]).hold();
    for name in ["A", "B", "C"] {
        assert!(sandbox.is_busy(name), "{name}");
    }
    holder.end().exits(0);
    for name in ["A", "B", "C"] {
        assert!(!sandbox.is_busy(name), "{name}");
    }
    let outcome = sandbox
        .tenure()
        .args(["run", "b", "a", "a b", "--", "printenv", "TENURE_LOCK"])
        .run();
    let mut names: Vec<&str> = outcome.exits(0).stdout.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "a b", "b"], "one a line");
}

#[test]
fn a_name_given_twice_is_one() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "A"]);
    assert_eq!(sandbox.status().len(), 1);
    sandbox
        .tenure()
        .args(["extend", "A", "A", "--token", &token])
        .run()
        .exits(0)
        .says_nothing();
    sandbox
        .tenure()
        .args(["extend", "A", "--token", &token])
        .run()
        .exits(0)
        .says_nothing();
    sandbox
        .tenure()
        .args(["release", "A", "--token", &token])
        .run()
        .exits(0)
        .says_nothing();
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "A", "--", "printenv", "TENURE_LOCK"])
        .run();
    outcome.exits(0).prints("A\n").says_nothing();
}

#[test]
fn names_in_opposite_order_do_not_deadlock() {
    let sandbox = Sandbox::new();
    let script = "echo in >> log; test ! -e busy || echo two >> log; touch busy; rm busy";
    for_each(0..24, |n| {
        let mut names = ["A", "B", "C"];
        names.rotate_left(n % 3);
        if n % 2 == 0 {
            names.reverse();
        }
        let call = sandbox
            .tenure()
            .args(["run", "--wait", "60s"])
            .args(&names[..2])
            .arg("C");
        call.args(["--", "sh", "-c", script])
            .run()
            .exits(0)
            .says_nothing()
            .took(..SOON);
    });
    let log = std::fs::read_to_string(sandbox.path("log")).expect("they ran");
    assert_eq!(log, "in\n".repeat(24), "24 runs, one at a time");
}
