//! `tenure log --timeline`: a picture of who held and who waited when, as wide as the terminal.

use std::time::SystemTime;

use crate::pty::Terminal;
use crate::support::{SOON, Sandbox, until};

/// One entry of the log: what came of it, of which locks and with which fence, its minutes since 14:00 on 2026-03-01 (asked
/// for, granted, over), its command's status, and the command.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    [&'static str; 3],
    &'static str,
    &'static str,
);

/// An afternoon as people would tell of it.
const AFTERNOON: [Row; 9] = [
    (
        "released",
        "deploy",
        "1",
        ["0", "0", "20"],
        "0",
        "./deploy 41",
    ),
    (
        "busy",
        "deploy",
        "null",
        ["5", "null", "15"],
        "null",
        "./deploy 42",
    ),
    (
        "busy",
        "deploy",
        "null",
        ["18", "null", "18"],
        "null",
        "./deploy 43",
    ),
    (
        "released",
        "deploy\nnächtlich 夜",
        "2",
        ["10", "20", "50"],
        "1",
        "./nightly --all --of --it --and --then --some --more",
    ),
    (
        "expired",
        "nächtlich 夜",
        "3",
        ["50", "50", "50.001"],
        "null",
        "bash",
    ),
    (
        "forced",
        "nächtlich 夜",
        "4",
        ["52", "52", "null"],
        "null",
        "./deploy 44",
    ),
    (
        "lost",
        "nächtlich 夜",
        "4",
        ["52", "52", "60"],
        "null",
        "./deploy 44",
    ),
    (
        "released",
        "nächtlich 夜",
        "5",
        ["51", "51", "51.5"],
        "0",
        "./夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜",
    ),
    (
        "released",
        "nächtlich 夜",
        "6",
        ["56", "56", "57"],
        "0",
        "./夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜",
    ),
];

/// A database with these in its log, all of them by a user without a name.
fn with_rows(rows: &[Row]) -> Sandbox {
    let sandbox = Sandbox::new();
    run_true(&sandbox);
    let at = |minutes: &str| format!("1772373600000 + cast({minutes} * 60000 as integer)");
    let insert = |(event, names, fence, [asked, granted, over], status, command): &Row| {
        format!(
            "insert into log (at, event, names, mode, fence, requested_at, granted_at, ended_at, status, uid, host, pid,
               command, directory)
             values (coalesce({over}, {asked}), '{event}', '{names}', 'exclusive', {fence}, {asked}, {granted}, {over},
               {status}, 4000001, 'web1', 7, '{command}', '/');",
            asked = at(asked),
            granted = at(granted),
            over = at(over),
        )
    };
    let rows: String = rows.iter().map(insert).collect();
    let sql =
        format!("delete from log; {rows} update log set reason = 'forced' where event = 'lost'");
    sandbox.connect().execute_batch(&sql).unwrap();
    sandbox
}

fn run_true(sandbox: &Sandbox) {
    let call = sandbox.tenure().args(["run", "A", "--", "true"]);
    call.run().exits(0);
}

/// The picture as a terminal of so many columns shows it, behind an empty line.
#[track_caller]
fn on_terminal(sandbox: &Sandbox, columns: u16) -> String {
    let mut terminal = Terminal::new();
    terminal.resize(columns);
    let call = sandbox.tenure().args(["log", "--timeline"]);
    // What somebody exported long ago, before the terminal had this width.
    let call = call.env("TZ", "UTC").env("COLUMNS", "60");
    terminal.start(call).wait().exits(0);
    format!("\n{}", terminal.screen())
}

/// What is printed into a file, behind an empty line.
#[track_caller]
fn printed(sandbox: &Sandbox, environment: &[(&str, &str)], words: &[&str]) -> String {
    let mut call = sandbox.tenure().args(["log", "--timeline"]).args(words);
    for (key, value) in environment {
        call = call.env(key, value);
    }
    let outcome = call.run();
    outcome.exits(0).says_nothing();
    format!("\n{}", outcome.stdout)
}

const AT_80: &str = "
                                   |14:00     |14:15     |14:30     |14:45
deploy
  ./deploy 41                      ███████████████
  ./deploy 42                         ░░░░░░░b
  ./nightly --all --of --it --and…        ░░░░░░░░█████████████████████!
  ./deploy 43                                   b
nächtlich 夜
  ./nightly --all --of --it --and…        ░░░░░░░░█████████████████████!
  bash                                                                  e
  ./夜夜夜夜夜夜夜夜夜夜夜夜夜夜…                                        █   █
  ./deploy 44                                                             █████f
from 2026-03-01 14:00:00 to 15:00:00, all by 4000001@web1, a column is 1m 20s
█ held  ░ waiting  ! failed  b busy  e expired  f forced
";

const AT_200: &str = "
                                                       |14:00      |14:05      |14:10      |14:15      |14:20      |14:25      |14:30      |14:35      |14:40      |14:45      |14:50      |14:55
deploy
  ./deploy 41                                          ████████████████████████████████████████████████
  ./deploy 42                                                      ░░░░░░░░░░░░░░░░░░░░░░░b
  ./nightly --all --of --it --and --then --some --more                         ░░░░░░░░░░░░░░░░░░░░░░░░███████████████████████████████████████████████████████████████████████!
  ./deploy 43                                                                                     b
nächtlich 夜
  ./nightly --all --of --it --and --then --some --more                         ░░░░░░░░░░░░░░░░░░░░░░░░███████████████████████████████████████████████████████████████████████!
  bash                                                                                                                                                                         e
  ./夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜夜                                                                                                                                              █           ██
  ./deploy 44                                                                                                                                                                       ███████████████████f
from 2026-03-01 14:00:00 to 15:00:00, all by 4000001@web1, a column is 24s
█ held  ░ waiting  ! failed  b busy  e expired  f forced
";

#[test]
fn a_timeline_is_a_picture_as_wide_as_the_terminal() {
    let sandbox = with_rows(&AFTERNOON);
    let (narrow, wide) = (on_terminal(&sandbox, 80), on_terminal(&sandbox, 200));
    assert_eq!(narrow, AT_80, "{narrow}");
    assert_eq!(wide, AT_200, "{wide}");
}

#[test]
fn a_timeline_for_a_file_has_80_columns_or_what_columns_says() {
    let sandbox = with_rows(&AFTERNOON);
    for said in ["200", "80", "", "-1", "0", "80.5", "100000000000"] {
        let text = printed(&sandbox, &[("TZ", "UTC"), ("COLUMNS", said)], &[]);
        let expected = if said == "200" { AT_200 } else { AT_80 };
        assert_eq!(text, expected, "{said:?}{text}");
    }
}

#[test]
fn a_timeline_on_a_narrow_terminal_is_a_picture_all_the_same() {
    let sandbox = with_rows(&AFTERNOON);
    for columns in ["1", "40"] {
        let text = printed(&sandbox, &[("TZ", "UTC"), ("COLUMNS", columns)], &[]);
        assert!(text.contains("  ./deploy 41      █████"), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= 40, "{line:?} of{text}");
        }
    }
}

#[test]
fn a_timeline_is_ascii_where_the_terminal_knows_no_more() {
    let sandbox = with_rows(&AFTERNOON);
    for (key, value) in [
        ("TERM", "dumb"),
        ("LC_ALL", "C"),
        ("LC_ALL", "de_DE.ISO-8859-1"),
        ("LC_ALL", ""),
    ] {
        let text = printed(&sandbox, &[("TZ", "UTC"), (key, value)], &[]);
        assert!(text.is_ascii(), "{key}={value}{text}");
        let drawn = |line: &str| -> String {
            let ascii = line.replace('█', "#").replace('░', ".");
            ascii.chars().skip(35).collect()
        };
        // The bars are the same. That line alone has ASCII in its label.
        let bar = |text: &str| {
            text.lines()
                .find(|line| line.contains("/deploy 42"))
                .map(drawn)
        };
        assert_eq!(bar(&text), bar(AT_80), "{text}");
        assert!(text.contains("\nn?chtlich ?\n"), "{text}");
    }
    let utf8 = [("LC_ALL", ""), ("LANG", "de_DE.utf8")];
    assert!(printed(&sandbox, &utf8, &[]).contains('█'));
}

#[test]
fn a_timeline_shows_what_is_asked_for() {
    let sandbox = with_rows(&AFTERNOON);
    let one = printed(&sandbox, &[], &["deploy"]);
    assert!(
        !one.contains("nächtlich") && one.contains("\ndeploy\n"),
        "{one}"
    );
    let newest = printed(&sandbox, &[], &["-n", "1"]);
    let labels = newest.lines().filter(|line| line.starts_with("  "));
    let labels = labels.filter(|line| line.contains("./"));
    assert_eq!(labels.count(), 1, "{newest}");
    let age = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        - 1_772_373_600;
    // From the minute 25 on: what was over by then is not in it, and what was not is cut off.
    let since = printed(
        &sandbox,
        &[("TZ", "UTC")],
        &["--since", &format!("{}s", age - 25 * 60)],
    );
    assert!(!since.contains("./deploy 42"), "{since}");
    assert!(since.contains("\nfrom 2026-03-01 14:2"), "{since}");
    for words in [
        &["log", "--timeline", "B"] as &[&str],
        &["log", "--timeline", "--since", "1ms"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.exits(0).prints_nothing();
        outcome.says("there is nothing to show in the log of *");
    }
    for option in ["--json", "--follow"] {
        let call = sandbox.tenure().args(["log", "--timeline", option]);
        call.run().is_usage_error("*");
    }
}

#[test]
fn a_timeline_shows_who_holds_and_who_waits_now() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let call = sandbox
        .tenure()
        .args(["run", "-w", "60", "A", "--", "true"]);
    let waiter = call.start();
    until(SOON, "the waiter is seen", || {
        let text = printed(&sandbox, &[], &[]);
        let has = |part: &str, end: &str| {
            let mut lines = text.lines();
            lines.any(|line| line.starts_with(part) && line.ends_with(end))
        };
        has("  true ", "░>") && has("  sh -c ", "█>") && text.contains("  > goes on")
    });
    holder.end().exits(0);
    waiter.wait().exits(0);
    let over = printed(&sandbox, &[], &[]);
    assert!(over.contains("░█") && !over.contains('>'), "{over}");
}

#[test]
fn a_timeline_names_users_where_there_are_several() {
    let sandbox = with_rows(&AFTERNOON[..2]);
    let alone = printed(&sandbox, &[], &[]);
    assert!(
        alone.contains("\n  ./deploy 41 ") && alone.contains(", all by 4000001@web1,"),
        "{alone}"
    );
    let other = "update log set host = 'web2' where fence is null";
    sandbox.connect().execute_batch(other).unwrap();
    let both = printed(&sandbox, &[], &[]);
    assert!(both.contains("\n  4000001@web1 ./deploy 41 "), "{both}");
    assert!(both.contains("\n  4000001@web2 ./deploy 42 "), "{both}");
}

#[test]
fn a_timeline_has_room_for_one_moment_and_for_all_years() {
    let sandbox = Sandbox::new();
    run_true(&sandbox);
    for (begin, end) in [
        ("0", "0"),
        ("1772373600000", "1772373600001"),
        ("0", "31556952000000"),
        ("-9223372036854775808", "9223372036854775807"),
        ("9223372036854775807", "-9223372036854775808"),
    ] {
        let sql = format!(
            "update log set at = {end}, requested_at = {begin}, granted_at = {begin}, ended_at = {end}"
        );
        sandbox.connect().execute_batch(&sql).unwrap();
        for columns in ["1", "80", "81", "97", "140", "200", "65535"] {
            let text = printed(&sandbox, &[("COLUMNS", columns)], &[]);
            assert!(text.contains("\n  true ") && text.contains('█'), "{text}");
        }
        sandbox.tenure().arg("log").run().exits(0).says_nothing();
        sandbox
            .tenure()
            .args(["log", "--json"])
            .run()
            .exits(0)
            .says_nothing();
    }
}
