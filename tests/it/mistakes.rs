//! What is said of a command line that makes no sense: all of what was wrong with it, where it came from, and what would be right.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;

use crate::support::{Sandbox, for_each};

/// What every such message ends with.
const MORE: &str = " (tenure --help tells more)";

#[test]
fn what_commands_a_terminal_is_shown_and_not_left_out() {
    let sandbox = Sandbox::new();
    let cases: &[(&[&str], &str)] = &[
        (
            &["acquire", "a\x1bb"],
            r"invalid value 'a\u{1b}b' for '<NAME>...': *",
        ),
        (
            &["run", "A", "--ttl", "1\x1b[31m\n\ns", "--", "touch", "ran"],
            r"invalid value '1\u{1b}[31m\n\ns' for '--ttl <DURATION>': *",
        ),
        (
            &["run", "A", "-E", "\u{202e}1", "--", "touch", "ran"],
            r"invalid value '\u{202e}1' for '--conflict-exit-code <NUMBER>': *",
        ),
        (
            &["run", "A", "--\x1b[31mforever"],
            r"unexpected argument '--\u{1b}[31mforever' found",
        ),
        (&["status\x07"], r"unrecognized subcommand 'status\u{7}'"),
    ];
    for_each(cases, |(words, what)| {
        let outcome = sandbox.tenure().args(*words).run();
        outcome.is_usage_error(&format!("{what}{MORE}"));
    });
}

#[test]
fn a_bad_value_is_said_to_be_the_variables_that_it_came_from() {
    let sandbox = Sandbox::new();
    let empty = "the path cannot be empty";
    let no_token = "a token has 32 hexadecimal digits";
    let run = || sandbox.tenure().args(["run", "A"]);
    let no_text = OsStr::from_bytes(b"\xff");
    let cases = [
        (
            run().db("").args(["--", "touch", "--db=ran"]),
            format!("invalid value '' for 'TENURE_DB': {empty}"),
        ),
        (
            run().db("").args(["--db", "", "--", "true"]),
            format!("invalid value '' for '--db <PATH>': {empty}"),
        ),
        (
            run().args(["--db=", "--", "true"]),
            format!("invalid value '' for '--db <PATH>': {empty}"),
        ),
        (
            sandbox.tenure().arg("extend").env("TENURE_TOKEN", "bad"),
            format!("invalid value for 'TENURE_TOKEN': {no_token}"),
        ),
        (
            sandbox.tenure().arg("release").env("TENURE_TOKEN", no_text),
            format!("invalid value for 'TENURE_TOKEN': {no_token}"),
        ),
        (
            sandbox
                .tenure()
                .args(["extend", "--token", "worse"])
                .env("TENURE_TOKEN", "bad"),
            format!("invalid value for '--token <TOKEN>': {no_token}"),
        ),
    ];
    for (call, what) in cases {
        call.run().is_usage_error(&format!("{what}{MORE}"));
    }
}

#[test]
fn numbers_and_durations_that_are_none_are_told_what_is_one() {
    let sandbox = Sandbox::new();
    let longest = "a duration is at most 1000y, which is 31557600000 seconds";
    let cases: &[(&[&str], &str)] = &[
        (&["run", "-E", "x"], "not a whole number from 0 to 255"),
        (&["run", "-E", "256"], "not a whole number from 0 to 255"),
        (&["run", "-E", "-1"], "not a whole number from 0 to 255"),
        (&["run", "-E", ""], "not a whole number from 0 to 255"),
        (
            &["acquire", "--slots", "x"],
            "not a whole number from 1 to *",
        ),
        (
            &["acquire", "--slots", "0"],
            "not a whole number from 1 to *",
        ),
        (&["acquire", "--fd", "x"], "not a whole number from 0 to *"),
        (&["release", "--fd", "-1"], "not a whole number from 0 to *"),
        (
            &["release", "--force", "--if-fence", "0"],
            "not a whole number from 1 to *",
        ),
        (&["log", "-n", "x"], "not a whole number, such as 20"),
        (&["run", "--ttl", "1001y"], longest),
        (&["run", "--wait", "31557600001"], longest),
        (&["acquire", "--at-least", "365251d"], longest),
    ];
    for_each(cases, |(words, what)| {
        let outcome = sandbox.tenure().args(*words).arg("A").run();
        outcome.is_usage_error(&format!("invalid value '*' for '*': {what}{MORE}"));
    });
    for longest in ["1000y", "365250d", "31557600000"] {
        let call = sandbox.tenure().args(["run", "A", "--wait", longest]);
        let call = call.args(["--ttl", longest, "--at-least", "0"]);
        call.args(["--", "true"]).run().exits(0).says_nothing();
    }
}

#[test]
fn an_empty_command_is_64() {
    let sandbox = Sandbox::new();
    for words in [&[""][..], &["", "touch", "ran"]] {
        let call = sandbox.tenure().args(["run", "A", "--"]).args(words);
        call.run()
            .is_usage_error("the command after -- cannot be empty");
    }
    assert!(!sandbox.db().exists(), "nothing was done");
}

#[test]
fn what_is_for_programs_is_in_no_list_for_people() {
    let sandbox = Sandbox::new();
    let bare = sandbox.tenure().run();
    bare.is_usage_error("*[subcommands: acquire, release, extend, run, status, log, help]*");
    let without_database = sandbox.tenure().without_env("TENURE_DB").run();
    without_database.exits(64).prints_nothing();
    assert!(without_database.stderr.contains("  acquire  "));
    for outcome in [bare, without_database, sandbox.tenure().arg("help").run()] {
        assert!(!outcome.stderr.contains("__"), "{outcome:#?}");
        assert!(!outcome.stdout.contains("__"), "{outcome:#?}");
    }
}

#[test]
fn the_paths_in_messages_are_absolute() {
    let sandbox = Sandbox::new();
    let dir = sandbox.dir().canonicalize().unwrap();
    fs::write(sandbox.path("empty.db"), "").unwrap();
    symlink("empty.db", sandbox.path("link.db")).unwrap();
    let call = |db: &str, words: &[&str]| sandbox.tenure().db(db).args(words).run();
    for db in ["empty.db", "./empty.db", "link.db", "../work/empty.db"] {
        let path = dir.join("empty.db");
        let path = path.display();
        call(db, &["status"])
            .exits(0)
            .prints(&format!("no locks are held in {path}\n"));
        call(db, &["status", "A"])
            .exits(0)
            .prints_with(&format!("locks in {path}:\n"));
        for log in [&["log"][..], &["log", "--timeline"]] {
            call(db, log).says(&format!("there is nothing to show in the log of {path}"));
        }
    }
    for words in [
        &["status"][..],
        &["log"],
        &["release", "--force", "A"],
        &["acquire", "A"],
    ] {
        let path = dir.join("no/l.db");
        call("no/l.db", words).is_store_error(&format!("cannot open {}: *", path.display()));
    }
}
