//! What `status` shows: tables that fit, locks in detail, what they are called, the same again and again, and JSON.

use std::io::Read as _;

use serde_json::Value;

use crate::pty::{CTRL_C, CTRL_Z, PROMPT, Terminal};
use crate::support::{Running, SOON, Sandbox, is_alive, ms, throughout, until};
use crate::waiters::now;

/// Two hours and some seconds, in milliseconds: shown as `2h` for most of a minute.
const TWO_HOURS: i64 = 2 * 60 * 60 * 1000 + 5000;

/// Locks of all kinds, as any machine would show them.
struct Scene<'a> {
    sandbox: &'a Sandbox,
    _holders: Vec<Running<'a>>,
}

fn scene(sandbox: &Sandbox) -> Scene<'_> {
    let words = [
        "run",
        "production",
        "staging",
        "--note",
        "release 41 of the shop",
    ];
    let deploy = sandbox.tenure().args(words).hold();
    let slot = || {
        sandbox
            .tenure()
            .args(["run", "build", "--slots", "3"])
            .hold()
    };
    let (one, two) = (slot(), slot());
    sandbox.acquire(["nightly-report-of-all-the-shops", "--ttl", "50h"]);
    let words = ["-s", "--note", "may I look", "production"];
    let (next, last) = (sandbox.waiter(&["production"]), sandbox.waiter(&words));
    let since = now() - TWO_HOURS;
    let sql = format!(
        "update ticket set uid = 987654, host = 'web1', directory = '/srv', granted_at = {since}, requested_at = {since};
         update ticket set pid = 812, fence = 1001, command = './deploy.sh --everything --now' where state = 'held' and names like 'production%';
         update ticket set pid = 813, fence = 1002, command = 'make' where slot = 0;
         update ticket set pid = 814, fence = 1003, command = 'make test' where slot = 1;
         update ticket set pid = 815, fence = 1004, command = 'sh report' where names like 'nightly%';
         update ticket set pid = 900, granted_at = null, command = './deploy.sh' where state = 'waiting';
         update ticket set pid = 901, host = 'a-machine-with-a-long-name' where mode = 'shared';"
    );
    sandbox.connect().execute_batch(&sql).unwrap();
    Scene {
        sandbox,
        _holders: vec![deploy, one, two, next, last],
    }
}

impl Scene<'_> {
    /// What `tenure status WORDS...` shows on a terminal of so many columns.
    #[track_caller]
    fn shown(&self, columns: u16, words: &[&str]) -> String {
        let mut terminal = Terminal::new();
        terminal.resize(columns);
        let call = self.sandbox.tenure().arg("status").args(words);
        terminal.start(call).wait().exits(0);
        self.anonymous(&terminal.picture())
    }

    /// Without what is another each time: the place, and the moment of the grant.
    fn anonymous(&self, text: &str) -> String {
        let db = self.sandbox.db();
        let text = text.replace(db.to_str().unwrap(), "/l.db");
        text.split_inclusive('\n')
            .map(|line| match line.split_once(", since ") {
                Some((head, _)) => format!("{head}, since …\n"),
                None => line.to_owned(),
            })
            .collect()
    }
}

#[test]
fn the_table_of_all_locks_fits_a_terminal_of_80_columns() {
    let sandbox = Sandbox::new();
    let text = "\
locks in /l.db:
NAME          STATE  HOLDER      HELD  EXPIRES   WAITING  COMMAND     NOTE
build         held   987654@we…  2h    -         0        make        -
build         held   987654@we…  2h    -         0        make test   -
nightly-rep…  held   987654@we…  2h    2days 2h  0        sh report   -
production    held   987654@we…  2h    -         2        ./deploy.…  release 4…
staging       held   987654@we…  2h    -         0        ./deploy.…  release 4…";
    assert_eq!(scene(&sandbox).shown(80, &[]), text);
}

#[test]
fn the_table_of_all_locks_has_all_columns_where_there_is_room() {
    let sandbox = Sandbox::new();
    let scene = scene(&sandbox);
    let text = "\
locks in /l.db:
NAME                             STATE  MODE         HOLDER       PID  FENCE  HELD  EXPIRES   WAITING  COMMAND                         NOTE
build                            held   slot 0 of 3  987654@web1  813  1002   2h    -         0        make                            -
build                            held   slot 1 of 3  987654@web1  814  1003   2h    -         0        make test                       -
nightly-report-of-all-the-shops  held   exclusive    987654@web1  815  1004   2h    2days 2h  0        sh report                       -
production                       held   exclusive    987654@web1  812  1001   2h    -         2        ./deploy.sh --everything --now  release 41 of the shop
staging                          held   exclusive    987654@web1  812  1001   2h    -         0        ./deploy.sh --everything --now  release 41 of the shop
";
    assert_eq!(scene.shown(200, &[]), text.trim_end());
    // Nor is anything cut that is not shown on a terminal, unless what shows it says how wide that is.
    let status = || sandbox.tenure().arg("status");
    let outcome = status().run();
    outcome.exits(0).says_nothing();
    assert_eq!(scene.anonymous(&outcome.stdout), text);
    let outcome = status().env("COLUMNS", "60").run();
    assert_eq!(
        scene.anonymous(&outcome.exits(0).stdout),
        "\
locks in /l.db:
NAME             STATE  HOLDER       HELD  EXPIRES   WAITING
build            held   987654@web1  2h    -         0
build            held   987654@web1  2h    -         0
nightly-report…  held   987654@web1  2h    2days 2h  0
production       held   987654@web1  2h    -         2
staging          held   987654@web1  2h    -         0
"
    );
}

#[test]
fn a_lock_that_is_asked_for_is_told_whole_with_the_line_behind_it() {
    let sandbox = Sandbox::new();
    let scene = scene(&sandbox);
    let facts = "\
locks in /l.db:

free
  state       free
  waiting     0

production
  state       held
  mode        exclusive
  holder      987654@web1, pid 812
  command     ./deploy.sh --everything --now
  directory   /srv
  note        release 41 of the shop
  held for    2h, since …
  expires in  not while its holder lives, then 1m at most
  fence       1001
  with        staging
  waiting     2
";
    let words = ["production", "free"];
    let narrow = "    PLACE  WAITER           PID  MODE       WAITING FOR  COMMAND      NOTE
    1st    987654@web1      900  exclusive  2h           ./deploy.sh  -
    2nd    987654@a-machi…  901  shared     2h           ./deploy.sh  may I look";
    let wide = "    PLACE  WAITER                             PID  MODE       WAITING FOR  COMMAND      NOTE
    1st    987654@web1                        900  exclusive  2h           ./deploy.sh  -
    2nd    987654@a-machine-with-a-long-name  901  shared     2h           ./deploy.sh  may I look";
    assert_eq!(scene.shown(80, &words), format!("{facts}{narrow}"));
    assert_eq!(scene.shown(200, &words), format!("{facts}{wide}"));
    assert_eq!(
        scene.shown(80, &["build", "nightly-report-of-all-the-shops"]),
        "\
locks in /l.db:

build
  state       held
  mode        slot 0 of 3
  holder      987654@web1, pid 813
  command     make
  directory   /srv
  held for    2h, since …
  expires in  not while its holder lives, then 1m at most
  fence       1002

  state       held
  mode        slot 1 of 3
  holder      987654@web1, pid 814
  command     make test
  directory   /srv
  held for    2h, since …
  expires in  not while its holder lives, then 1m at most
  fence       1003
  waiting     0

nightly-report-of-all-the-shops
  state       held
  mode        exclusive
  holder      987654@web1, pid 815
  command     sh report
  directory   /srv
  held for    2h, since …
  expires in  2days 2h of 2days 2h
  fence       1004
  waiting     0"
    );
}

#[test]
fn a_store_without_locks_says_so() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let nothing = format!("no locks are held in {}\n", sandbox.db().display());
    let outcome = sandbox.tenure().arg("status").run();
    outcome.exits(0).prints(&nothing).says_nothing();
    let outcome = sandbox.tenure().args(["status", "--json"]).run();
    outcome.exits(0).prints_nothing().says_nothing();
}

// What a lease is called.

/// What `status` calls the lock `A`, in the table and in JSON.
#[track_caller]
fn state_of_a(sandbox: &Sandbox) -> (String, Value) {
    let outcome = sandbox.tenure().arg("status").run();
    let mut lines = outcome.exits(0).stdout.lines();
    let row = lines.find(|line| line.starts_with("A "));
    let word = row.and_then(|row| row.split_whitespace().nth(1));
    let word = word.expect("a state").to_owned();
    let detail = sandbox.tenure().args(["status", "A"]).run();
    detail
        .exits(0)
        .prints_with(&format!("  state       {word}"));
    let json = sandbox.status();
    (word, json[0].clone())
}

#[test]
fn a_holder_that_is_stopped_is_called_so_until_it_goes_on() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let (word, json) = state_of_a(&sandbox);
    assert_eq!(
        (word.as_str(), &json["stopped"]),
        ("held", &Value::Bool(false))
    );
    holder.stop();
    let (word, json) = state_of_a(&sandbox);
    assert_eq!(
        (word.as_str(), &json["stopped"]),
        ("stopped", &Value::Bool(true))
    );
    assert_eq!(json["state"], "held");
    holder.resume();
    until(SOON, "it goes on", || {
        sandbox.status()[0]["stopped"] == false
    });
    assert_eq!(state_of_a(&sandbox).0, "held");
}

#[test]
fn a_process_of_another_machine_is_not_looked_for_on_this_one() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    holder.stop();
    let connection = sandbox.connect();
    connection
        .execute("update ticket set host = 'elsewhere'", ())
        .unwrap();
    assert_eq!(state_of_a(&sandbox).0, "held");
}

#[test]
fn a_lease_whose_time_is_all_but_over_is_called_expiring() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "400s"]);
    let (word, json) = state_of_a(&sandbox);
    assert_eq!(
        (word.as_str(), &json["expiring"]),
        ("held", &Value::Bool(false))
    );
    assert_eq!(json["stopped"], Value::Null);
    // As if it had been taken five minutes ago.
    let sql = "update ticket set expires_boot = expires_boot - 310000, expires_wall = expires_wall - 310000";
    sandbox.connect().execute(sql, ()).unwrap();
    let (word, json) = state_of_a(&sandbox);
    assert_eq!(
        (word.as_str(), &json["state"]),
        ("expiring", &"held".into())
    );
    assert_eq!(json["expiring"], true);
    let left = json["expires_in_ms"].as_i64().expect("milliseconds");
    assert!((60_000..90_000).contains(&left), "{left}");
}

#[test]
fn a_revoked_lease_is_called_so_even_if_it_is_stopped() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    holder.stop();
    let _force = sandbox.tenure().args(["release", "--force", "A"]).start();
    until(SOON, "it is revoked", || {
        sandbox.status()[0]["state"] == "revoked"
    });
    assert_eq!(state_of_a(&sandbox).0, "revoked");
}

// Again and again.

#[test]
fn a_watch_at_a_terminal_shows_what_changes_and_gives_the_screen_back() {
    let sandbox = Sandbox::new();
    let mut terminal = Terminal::new();
    let _shell = terminal.shell(sandbox.program("bash").env("TENURE_DB", sandbox.db()));
    let holder = sandbox.holder("first");
    terminal.types("TERM=xterm tenure status --watch\n");
    let has = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        move |seen: &str| {
            let lines = seen.lines().skip(2);
            let shown: Vec<_> = lines
                .filter_map(|line| line.split_whitespace().next())
                .collect();
            seen.starts_with("locks in ") && shown == names
        }
    };
    terminal.shows("the first lock", has(&["first"]));
    let other = sandbox.holder("second");
    terminal.shows("both", has(&["first", "second"]));
    holder.end();
    let seen = terminal.shows("the second", has(&["second"]));
    assert!(seen.contains(" HELD "), "{seen}");
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    assert!(
        !terminal.picture().contains("locks in "),
        "{}",
        terminal.picture()
    );
    terminal.types("fg\n");
    terminal.shows("the second", has(&["second"]));
    other.end();
    terminal.shows("nothing", |seen| seen.starts_with("no locks are held in "));
    terminal.types(CTRL_C);
    terminal.sees(PROMPT);
    terminal.types("echo status $?\n");
    terminal.sees("status 130");
    assert!(
        !terminal.picture().contains("locks "),
        "{}",
        terminal.picture()
    );
}

#[test]
fn a_watch_shows_as_much_as_fits_on_the_screen() {
    let sandbox = Sandbox::new();
    for number in 0..40 {
        sandbox.acquire([&format!("lock-{number:02}"), "--ttl", "50h"]);
    }
    let mut terminal = Terminal::new();
    terminal.resize(40);
    let watch = terminal.start(
        sandbox
            .tenure()
            .env("TERM", "xterm")
            .args(["status", "--watch"]),
    );
    let seen = terminal.shows("the end of the screen", |seen| seen.ends_with('…'));
    assert_eq!(seen.lines().count(), 23, "{seen}");
    assert!(
        seen.lines().all(|line| line.chars().count() <= 40),
        "{seen}"
    );
    assert!(
        seen.contains("lock-19") && !seen.contains("lock-20"),
        "{seen}"
    );
    terminal.resize(30);
    terminal.shows("a narrower picture", |seen| {
        seen.lines().all(|line| line.chars().count() <= 30)
    });
    terminal.types(CTRL_C);
    watch.wait().dies_by(rustix::process::Signal::INT);
}

#[test]
fn a_watch_that_nobody_reads_ends() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    for words in [&["status", "--watch"][..], &["status", "--watch", "--json"]] {
        let call = sandbox.tenure().args(words);
        let (mut watch, mut output) = call.start_piped();
        let mut text = String::new();
        let mut bytes = [0; 4096];
        while text.matches("sh -c").count() < 2 {
            let count = output.read(&mut bytes).expect("a pipe can be read");
            assert!(count > 0, "it ended: {text}");
            text += std::str::from_utf8(&bytes[..count]).expect("text");
        }
        assert!(!text.contains('\x1b'), "{text}");
        drop(output);
        until(SOON, "it has ended", || watch.is_over());
        watch.wait().exits(0).says_nothing();
    }
}

#[test]
fn who_reads_one_line_of_it_is_not_told_of_a_broken_pipe() {
    let sandbox = Sandbox::new();
    // More than a pipe holds.
    for number in 0..100 {
        let note = "x".repeat(900);
        sandbox.acquire([&format!("lock-{number:03}"), "--note", &note, "--ttl", "1h"]);
    }
    for options in ["", "--json"] {
        let script = format!("{{ tenure status {options}; echo $? >&3; }} 3>status | head -n 1");
        let outcome = sandbox.sh(&script).run();
        outcome.exits(0).says_nothing();
        assert_eq!(outcome.stdout.lines().count(), 1);
        let status = std::fs::read_to_string(sandbox.path("status")).unwrap();
        assert_eq!(status, "0\n", "{options}");
    }
}

// For programs.

#[test]
fn every_row_of_json_has_every_key_of_the_man_page() {
    let sandbox = Sandbox::new();
    let _scene = scene(&sandbox);
    let page = include_str!("../../src/cli/pages/status.txt");
    let page = page
        .split_once("With `--json`, an object")
        .expect("the keys")
        .1;
    let mut keys: Vec<&str> = page
        .lines()
        .zip(page.lines().skip(1))
        .filter(|(_, text)| text.starts_with(": "))
        .flat_map(|(head, _)| head.split(", "))
        .collect();
    keys.sort_unstable();
    let outcome = sandbox.tenure().args(["status", "--json"]).run();
    let all = outcome.exits(0).json();
    let words = ["status", "--json", "free", "production", "build"];
    let asked = sandbox.tenure().args(words).run();
    let asked = asked.exits(0).json();
    assert_eq!((all.len(), asked.len()), (5, 4));
    for row in all.iter().chain(&asked) {
        let known: Vec<&String> = row.as_object().expect("an object").keys().collect();
        assert_eq!(known, keys, "{row}");
    }
    assert!(all.iter().all(|row| row["line"].is_null()));
    let of = |name: &str| asked.iter().find(|row| row["name"] == name).expect(name);
    assert_eq!(of("free")["line"], Value::Array(Vec::new()));
    let line = of("production")["line"].as_array().expect("a line");
    let modes: Vec<&Value> = line.iter().map(|waiter| &waiter["mode"]).collect();
    assert_eq!(modes, ["exclusive", "shared"]);
    for waiter in line {
        assert!(waiter["waited_ms"].as_i64() >= Some(TWO_HOURS), "{waiter}");
        let asked_at = waiter["asked_at"].as_str().expect("a moment");
        assert!(
            asked_at.ends_with('Z') && asked_at.len() == 24,
            "{asked_at}"
        );
        assert_eq!(waiter["names"], Value::from(vec!["production"]));
        for key in [
            "inside_of",
            "user",
            "uid",
            "host",
            "pid",
            "command",
            "directory",
            "note",
            "slots",
        ] {
            assert!(waiter.get(key).is_some(), "{key}: {waiter}");
        }
    }
}

#[test]
fn no_secret_of_a_command_line_or_an_address_is_kept_but_a_note_is_the_users_own() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["other"]);
    let url = "postgres://ann:pass-1@db/app?password=pass-2";
    let script = format!("echo ready; read x; : --token {token} {url}");
    let call = sandbox.tenure().args(["run", "A", "--note", url]);
    let call = call
        .env("GITLAB_CI", "true")
        .env("CI_JOB_URL", "https://ci:pass-3@gitlab/job/7");
    let holder = call.args(["--", "sh", "-c", &script]).start_ready();
    // Whose command line is the caller's, of one that acquires and of one that releases.
    let script = format!(
        "tenure acquire B; : {token}; tenure release --force B; tenure run A -- {url} {token}"
    );
    let refused = sandbox.sh(&script).run();
    refused.exits(75);

    let tenure = |words: &[&str]| sandbox.tenure().args(words).run();
    let said = [
        tenure(&["status", "--json"]).stdout,
        tenure(&["status"]).stdout,
        tenure(&["status", "A"]).stdout,
        tenure(&["log"]).stdout,
        tenure(&["log", "--json"]).stdout,
        refused.stderr,
    ];
    let rows = sandbox.connect();
    let rows = rows.prepare("select command || coalesce(url, '') from ticket union all select command || coalesce(by, '') || coalesce(url, '') from log");
    let mut rows = rows.unwrap();
    let kept = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let kept: Vec<String> = kept.map(Result::unwrap).collect();
    assert!(kept.len() > 3, "{kept:?}");
    let said = said.map(|text| text.replace(url, "its note"));
    for text in said.iter().chain(&kept) {
        assert!(!text.contains(&token) && !text.contains("pass-"), "{text}");
    }
    let a = &sandbox.status()[0];
    assert_eq!(a["name"], "A");
    assert_eq!(
        a["command"],
        "sh -c 'echo ready; read x; : --token *** postgres://***@db/app?password=***'"
    );
    assert_eq!(a["url"], "https://***@gitlab/job/7");
    assert_eq!(a["note"], url);
    holder.end().exits(0);
}

#[test]
fn neither_tables_nor_json_have_anything_that_commands_a_terminal() {
    let sandbox = Sandbox::new();
    let harmful =
        "\x1b]0;title\x07 \x1b[2J\r\n\t\x7f\u{9b}31m\u{9d}\u{202e}\u{2066}\u{2028}\u{61c} '\"\\ �";
    let _holder = sandbox.holder("A");
    let _waiter = sandbox.waiter(&["A"]);
    let sql = "update ticket set host = ?1, command = ?1, directory = ?1, note = ?1";
    assert_eq!(sandbox.connect().execute(sql, [harmful]).unwrap(), 2);
    for words in [
        &["status"][..],
        &["status", "A"],
        &["status", "--json"],
        &["status", "--json", "A"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.exits(0).says_nothing();
        let is_harmless = |c: char| {
            c == '\n' || !(c.is_control() || "\u{202e}\u{2066}\u{2028}\u{61c}".contains(c))
        };
        assert!(outcome.stdout.chars().all(is_harmless), "{outcome:#?}");
        if words.contains(&"--json") {
            let rows = outcome.json();
            assert_eq!(rows.len(), 1);
            for key in ["host", "command", "directory", "note"] {
                assert_eq!(rows[0][key], harmful, "{key}");
            }
        }
    }
    let mut terminal = Terminal::new();
    terminal.resize(200);
    terminal
        .start(sandbox.tenure().args(["status", "A"]))
        .wait()
        .exits(0);
    assert!(terminal.picture().contains(r"\u{1b}]0;title\u{7}"));
}

#[test]
fn a_watch_in_the_background_draws_nothing() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let _shell = terminal.shell(sandbox.program("bash").env("TENURE_DB", sandbox.db()));
    terminal.types("stty tostop\n");
    terminal.sees(PROMPT);
    terminal.types("TERM=xterm tenure status --watch &\n");
    terminal.sees(PROMPT);
    let mut watch = None;
    until(SOON, "it runs", || {
        watch = sandbox.pids_of(&["tenure", "status", "--watch"]).next();
        watch.is_some()
    });
    let watch = watch.expect("it runs");
    let before = terminal.screen();
    throughout(ms(1500), "nothing is drawn", || {
        terminal.screen() == before && crate::support::state(watch) != Some('T')
    });
    terminal.types("fg\n");
    terminal.shows("the lock", |seen| seen.starts_with("locks in "));
    terminal.types(CTRL_C);
    until(SOON, "it has ended", || !is_alive(watch));
}
