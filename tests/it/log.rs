//! `tenure log`: what happened, each thing told apart, with times that add up; whatever the names and commands are.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use serde_json::Value;

use crate::pty::Terminal;
use crate::support::{SOON, Sandbox, Signal, ms, until};

/// What the log has, as `log --json` tells it.
#[track_caller]
fn log<W: AsRef<OsStr>>(sandbox: &Sandbox, words: impl IntoIterator<Item = W>) -> Vec<Value> {
    let call = sandbox.tenure().args(["log", "--json"]).args(words);
    let outcome = call.run();
    outcome.exits(0).says_nothing();
    outcome.json()
}

const ALL: [&str; 0] = [];

fn words(events: &[Value]) -> Vec<&str> {
    let word = |event: &Value| event["event"].as_str().expect("a word").len();
    assert!(events.iter().all(|event| word(event) > 0));
    events
        .iter()
        .map(|event| event["event"].as_str().expect("a word"))
        .collect()
}

/// The one event of this kind.
#[track_caller]
fn the<'a>(events: &'a [Value], word: &str) -> &'a Value {
    let mut found = events.iter().filter(|event| event["event"] == word);
    let first = found
        .next()
        .unwrap_or_else(|| panic!("no {word} in {events:#?}"));
    assert!(found.next().is_none(), "two of {word} in {events:#?}");
    first
}

#[track_caller]
fn time(event: &Value, key: &str) -> SystemTime {
    let text = event[key].as_str().unwrap_or_else(|| panic!("{event:#}"));
    humantime::parse_rfc3339(text).expect("RFC 3339")
}

#[track_caller]
fn millis(event: &Value, key: &str) -> Duration {
    ms(event[key].as_u64().unwrap_or_else(|| panic!("{event:#}")))
}

/// The event's times tell the same as its durations: it was held from its grant, for which it waited from its request.
#[track_caller]
fn adds_up(event: &Value) {
    let granted = time(event, "granted_at");
    assert_eq!(
        time(event, "requested_at") + millis(event, "waited_ms"),
        granted,
        "{event:#}"
    );
    if event["event"] == "granted" {
        assert_eq!(time(event, "time"), granted, "{event:#}");
        assert_eq!(event["held_ms"], Value::Null);
    } else {
        assert_eq!(
            granted + millis(event, "held_ms"),
            time(event, "time"),
            "{event:#}"
        );
    }
}

#[test]
fn a_run_is_told_from_its_grant_to_the_status_of_its_command() {
    let sandbox = Sandbox::new();
    let before = SystemTime::now() - ms(1);
    let call = sandbox
        .tenure()
        .args(["run", "--note", "nightly", "B", "A"]);
    let outcome = call.args(["--", "sh", "-c", "sleep 0.2; exit 3"]).run();
    outcome.exits(3);
    let events = log(&sandbox, ALL);
    assert_eq!(words(&events), ["granted", "released"]);
    for event in &events {
        adds_up(event);
        assert!(time(event, "time") >= before && time(event, "time") <= SystemTime::now());
        assert_eq!(event["names"], serde_json::json!(["A", "B"]));
        assert_eq!(event["mode"], "exclusive");
        assert_eq!(event["command"], "sh -c 'sleep 0.2; exit 3'");
        assert_eq!(event["note"], "nightly");
        assert_eq!(event["directory"].as_str(), sandbox.dir().to_str());
        assert_eq!(event["url"], Value::Null);
        assert_eq!(event["fence"], events[0]["fence"]);
    }
    let released = &events[1];
    assert_eq!(released["status"], 3);
    assert_eq!(released["signal"], Value::Null);
    assert_eq!(released["reason"], Value::Null);
    assert!(
        (ms(200)..outcome.took).contains(&millis(released, "held_ms")),
        "{released:#}"
    );
}

#[test]
fn a_line_tells_it_to_people_in_their_local_time() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "--note", "nightly", "A", "--", "true"])
        .run()
        .exits(0);
    let told = |zone: &str| {
        let outcome = sandbox.tenure().arg("log").env("TZ", zone).run();
        outcome.exits(0).says_nothing();
        outcome.stdout
    };
    let (utc, east) = (told("UTC"), told("EAST-03:00"));
    let lines: Vec<&str> = utc.lines().collect();
    assert_eq!(lines.len(), 2, "{utc}");
    assert!(lines[0].contains("  granted   A, fence "), "{utc}");
    assert!(lines[1].contains("  released  A after "), "{utc}");
    assert!(lines[1].contains(", exit 0: "), "{utc}");
    let directory = sandbox.dir().display().to_string();
    let end = format!(", true) in {directory}: nightly");
    assert!(lines[1].ends_with(&end), "{utc}");
    let moment = |text: &str| {
        let rfc = text[..19].replacen(' ', "T", 1) + "Z";
        humantime::parse_rfc3339(&rfc).expect("a moment")
    };
    assert_eq!(moment(&utc) + Duration::from_hours(3), moment(&east));
}

/// A file of a time zone that is so many seconds ahead of UTC: no moments of change, one kind of time, a name of it.
fn zone(ahead: i32) -> Vec<u8> {
    let counts = [0u32, 0, 0, 0, 1, 4].map(u32::to_be_bytes).concat();
    let kind = [&ahead.to_be_bytes()[..], &[0, 0]].concat();
    [b"TZif", &[0; 16][..], &counts, &kind, b"ZON\0"].concat()
}

#[test]
fn a_time_zone_that_would_be_waited_for_is_utc() {
    let sandbox = Sandbox::new();
    let run = ["run", "A", "--", "true"];
    sandbox.tenure().args(run).run().exits(0);
    let told = |zone: &OsStr, directory: &Path| {
        let call = sandbox.tenure().arg("log").env("TZ", zone);
        let outcome = call.env("TZDIR", directory).run();
        outcome.exits(0).says_nothing().took(..SOON);
        outcome.stdout
    };
    let dir = sandbox.dir();
    fs::write(dir.join("zone"), zone(3 * 3600)).unwrap();
    let utc = told("UTC".as_ref(), &dir);
    let zones = |name: &str| {
        let path = dir.join(name);
        let with_colon = format!(":{}", path.display());
        [
            (path.into_os_string(), Path::new("/nope")),
            (with_colon.into(), Path::new("/nope")),
            (name.into(), &*dir),
        ]
    };
    for (zone, directory) in zones("zone") {
        assert_ne!(told(&zone, directory), utc, "{zone:?} is read");
    }
    let mkfifo = sandbox.program("mkfifo").arg("fifo");
    mkfifo.run().exits(0);
    fs::create_dir(dir.join("directory")).unwrap();
    fs::copy(dir.join("zone"), dir.join("huge")).unwrap();
    let huge = File::options().write(true).open(dir.join("huge"));
    huge.unwrap().set_len(2 << 20).unwrap();
    // A terminal to which nobody types.
    let terminal = Terminal::new();
    symlink(terminal.path(), dir.join("terminal")).unwrap();
    for name in ["fifo", "directory", "huge", "terminal", "/dev/zero"] {
        for (zone, directory) in zones(name) {
            assert_eq!(told(&zone, directory), utc, "{zone:?}");
        }
    }
}

#[test]
fn a_wait_is_told_with_its_length_whether_it_was_granted_or_not() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    sandbox
        .tenure()
        .args(["run", "A", "-w", ".2", "--", "true"])
        .run()
        .exits(75);
    sandbox
        .tenure()
        .args(["run", "A", "-qE0", "--", "true"])
        .run()
        .exits(0);
    let waiter = sandbox
        .tenure()
        .args(["run", "A", "-w", "60", "--", "true"])
        .start();
    until(SOON, "it waits", || sandbox.status()[0]["waiting"] == 1);
    let waits_since = Instant::now();
    sandbox.tenure().args(["log", "-q"]).run().exits(0);
    let least = waits_since.elapsed().saturating_sub(ms(1));
    holder.end().exits(0);
    waiter.wait().exits(0);

    let events = log(&sandbox, ALL);
    assert_eq!(
        words(&events),
        ["granted", "busy", "busy", "released", "granted", "released"]
    );
    let (ran_out, skipped, granted) = (&events[1], &events[2], &events[4]);
    assert!(
        (ms(200)..SOON).contains(&millis(ran_out, "waited_ms")),
        "{ran_out:#}"
    );
    assert_eq!(ran_out["granted_at"], Value::Null);
    assert_eq!(ran_out["fence"], Value::Null);
    let by = ran_out["by"].as_str().unwrap();
    assert!(by.contains(", sh -c 'echo ready; read x; exit 0')"), "{by}");
    assert!(
        millis(skipped, "waited_ms") < millis(ran_out, "waited_ms"),
        "{skipped:#}"
    );
    assert!(
        (least..SOON).contains(&millis(granted, "waited_ms")),
        "{granted:#}"
    );
    for event in events.iter().filter(|event| event["event"] != "busy") {
        adds_up(event);
    }
}

#[test]
fn a_refusal_is_the_same_where_it_cannot_be_written_down() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    sandbox
        .connect()
        .execute_batch(
            "create trigger no_more before insert on log begin select raise(abort, 'no'); end",
        )
        .unwrap();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .is_busy("A");
    sandbox.tenure().args(["acquire", "A"]).run().is_busy("A");
    assert_eq!(words(&log(&sandbox, ALL)), ["granted"]);
}

#[test]
fn a_crash_is_told_by_whoever_comes_first() {
    let sandbox = Sandbox::new();
    for newcomer in [false, true] {
        let name = if newcomer { "A" } else { "B" };
        let call = sandbox.tenure().args(["run", name, "--"]);
        let holder = call
            .args(["sh", "-c", "echo ready; exec sleep 60"])
            .start_ready();
        holder.kill();
        until(SOON, "the lease is over", || {
            let held = sandbox.status();
            held.iter().all(|held| held["name"] != name)
        });
        if newcomer {
            assert!(!sandbox.is_busy(name));
        }
        let events = log(&sandbox, [name]);
        let crashed = the(&events, "crashed");
        adds_up(crashed);
        assert_eq!(crashed["command"], "sh -c 'echo ready; exec sleep 60'");
        assert_eq!(crashed["status"], Value::Null);
        assert_eq!(crashed["fence"], the(&events[..1], "granted")["fence"]);
    }
}

#[test]
fn a_job_that_is_stopped_by_its_time_limit_is_told_from_one_that_a_signal_ended() {
    let sandbox = Sandbox::new();
    let call = sandbox
        .tenure()
        .args(["run", "A", "--max-time", ".3", "--"]);
    call.args(["sleep", "60"]).run().exits(124);
    let call = sandbox.tenure().args(["run", "B", "--", "sh", "-c"]);
    call.arg("kill -TERM $$").run().dies_by(Signal::TERM);
    sandbox
        .tenure()
        .args(["run", "C", "--", "/nowhere"])
        .run()
        .exits(127);
    let released = |name| the(&log(&sandbox, [name]), "released").clone();
    let (limited, killed, missing) = (released("A"), released("B"), released("C"));
    assert_eq!(limited["reason"], "max-time");
    assert_eq!(limited["signal"], "TERM");
    assert!((ms(300)..SOON).contains(&millis(&limited, "held_ms")));
    assert_eq!(killed["reason"], Value::Null);
    assert_eq!(killed["signal"], "TERM");
    assert_eq!(missing["reason"], "not-started");
    assert_eq!(missing["status"], 127);
    for event in [limited, killed, missing] {
        adds_up(&event);
    }
    let outcome = sandbox.tenure().args(["log", "A"]).run();
    outcome.prints_with(", stopped by --max-time, killed by TERM: ");
}

#[test]
fn a_forced_release_is_told_with_who_did_it_and_what_came_of_it() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let fence = sandbox.status()[0]["fence"].clone();
    sandbox
        .tenure()
        .args(["release", "--force", "A"])
        .run()
        .exits(0);
    holder.wait().exits(76);
    let events = log(&sandbox, ["A"]);
    assert_eq!(words(&events), ["granted", "forced", "lost"]);
    for event in &events {
        adds_up(event);
        assert_eq!(event["fence"], fence);
    }
    let (forced, lost) = (the(&events, "forced"), the(&events, "lost"));
    assert!(
        forced["by"].as_str().unwrap().contains("(pid "),
        "{forced:#}"
    );
    assert_eq!(lost["by"], forced["by"]);
    assert_eq!(lost["reason"], "forced");
    assert_eq!(lost["signal"], "TERM");

    let holder = sandbox.holder("B");
    sandbox
        .tenure()
        .args(["release", "--force", "--now", "B"])
        .run()
        .exits(0);
    holder.wait().exits(76);
    let events = log(&sandbox, ["B"]);
    assert_eq!(words(&events), ["granted", "forced", "lost"]);
    let (forced, lost) = (the(&events, "forced"), the(&events, "lost"));
    assert_eq!(lost["reason"], "forced");
    assert_eq!(lost["by"], forced["by"]);
    // That is when its lease was over, however long its command took to end.
    assert_eq!(lost["held_ms"], forced["held_ms"]);

    sandbox.acquire(["C"]);
    sandbox
        .tenure()
        .args(["release", "--force", "C"])
        .run()
        .exits(0);
    assert_eq!(words(&log(&sandbox, ["C"])), ["granted", "forced"]);
}

#[test]
fn an_expiry_is_told_with_the_time_at_which_it_was() {
    let sandbox = Sandbox::new();
    for newcomer in [false, true] {
        let name = if newcomer { "A" } else { "B" };
        sandbox.acquire(["--ttl", ".2", name]);
        until(SOON, "it has expired", || {
            sandbox.status().iter().all(|held| held["name"] != name)
        });
        if newcomer {
            assert!(!sandbox.is_busy(name));
        }
        let events = log(&sandbox, [name]);
        let expired = the(&events, "expired");
        adds_up(expired);
        assert_eq!(expired["held_ms"], 200);
    }
}

#[test]
fn what_acquire_took_is_told_by_how_it_was_given_back() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    let script = r#"exec 9<>"$TENURE_DB-guard"; tenure acquire --fd 9 B >/dev/null; exec 9>&-; tenure run B -- true"#;
    sandbox.sh(script).run().exits(0);
    sandbox.acquire(["--at-least", ".2", "--ttl", ".1", "C"]);
    let token = sandbox.acquire(["--at-least", ".2", "D"]);
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    for name in ["C", "D"] {
        until(SOON, "it has had its rest", || !sandbox.is_busy(name));
    }
    let told = |name: &str| {
        let mut events = log(&sandbox, [name]);
        events.retain(|event| event["command"] != "true");
        events
    };
    assert_eq!(words(&told("A")), ["granted", "released"]);
    assert_eq!(words(&told("B")), ["granted", "released"]);
    assert_eq!(told("B")[1]["reason"], "closed");
    assert_eq!(words(&told("C")), ["granted", "expired"]);
    assert_eq!(told("C")[1]["held_ms"], 200, "and not for less than that");
    assert_eq!(
        words(&told("D")),
        ["granted", "released"],
        "and not its rest's end"
    );
}

#[test]
fn a_deadlock_is_told() {
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().args(["run", "A", "--", "tenure"]);
    call.args(["run", "-w", "60", "A", "--", "true"])
        .run()
        .exits(75);
    let events = log(&sandbox, ALL);
    assert_eq!(words(&events), ["granted", "deadlock", "released"]);
    assert_eq!(events[1]["command"], "true");
}

#[test]
fn the_address_of_a_ci_run_is_shown_wherever_its_lock_is() {
    let sandbox = Sandbox::new();
    let call = sandbox.tenure().args(["run", "A"]);
    let holder = call
        .env("GITHUB_ACTIONS", "true")
        .env("GITHUB_SERVER_URL", "https://github.com")
        .env("GITHUB_REPOSITORY", "ann/site")
        .env("GITHUB_RUN_ID", "42")
        .hold();
    let url = "https://github.com/ann/site/actions/runs/42";
    let busy = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    busy.says(&format!("A is held by *, {url} (in *"));
    let call = sandbox.tenure().args(["run", "-v", "A", "--", "true"]);
    let explained = call.directory("/").run();
    let directory = format!(") runs in {}\n", sandbox.dir().display());
    assert!(explained.stderr.ends_with(&directory), "{explained:?}");
    assert_eq!(sandbox.status()[0]["url"], url);
    holder.end().exits(0);
    assert_eq!(the(&log(&sandbox, ALL), "released")["url"], url);
    let outcome = sandbox.tenure().args(["log", "-n1"]).run();
    assert!(
        outcome.stdout.ends_with(&format!(", {url}\n")),
        "{outcome:?}"
    );
}

#[test]
fn what_is_asked_for_is_what_is_shown() {
    let sandbox = Sandbox::new();
    for name in ["A", "B", "A B", "B"] {
        let names = name.split(' ');
        sandbox
            .tenure()
            .arg("run")
            .args(names)
            .args(["--", "true"])
            .run()
            .exits(0);
    }
    let _holder = sandbox.holder("A");
    assert_eq!(log(&sandbox, ALL).len(), 9);
    assert_eq!(log(&sandbox, ["A"]).len(), 5);
    assert_eq!(log(&sandbox, ["B"]).len(), 6);
    assert_eq!(log(&sandbox, ["A", "B"]).len(), 9);
    assert_eq!(log(&sandbox, ["-n", "0"]).len(), 0);
    let newest = log(&sandbox, ["-n", "2"]);
    assert_eq!(words(&newest), ["released", "granted"]);
    assert_eq!(newest, log(&sandbox, ALL)[7..]);
    assert_eq!(log(&sandbox, ["-n", "3", "A"]), log(&sandbox, ["A"])[2..]);
    assert_eq!(log(&sandbox, ["--since", "1h"]).len(), 9);
    assert_eq!(log(&sandbox, ["--since", "0"]).len(), 0);
    sandbox
        .tenure()
        .args(["log", "-n", "-1"])
        .run()
        .is_usage_error("*");
    sandbox
        .tenure()
        .args(["log", "--since", "yesterday"])
        .run()
        .is_usage_error("*");
    sandbox.tenure().args(["log", ""]).run().is_usage_error("*");
}

#[test]
fn nothing_is_nothing_on_stdout() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .arg("log")
        .run()
        .is_store_error("cannot open *: there is no database yet *");
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let none = sandbox.tenure().args(["log", "B"]).run();
    none.exits(0)
        .prints_nothing()
        .says("there is nothing to show in the log of *");
    sandbox
        .tenure()
        .args(["log", "-q", "B"])
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    sandbox
        .tenure()
        .args(["log", "--json", "B"])
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
}

#[test]
fn hostile_text_is_harmless_in_lines_and_in_json() {
    let sandbox = Sandbox::new();
    // Bytes that are no UTF-8, and of such as are: the eight-bit form of ESC [, and what turns a line around.
    let evil =
        OsStr::from_bytes(b"\"q' \x1b[31m\n\r\t\x9b \xff\xfe \xc2\x9b31m \x7f \xe2\x80\xae\\");
    let call = sandbox
        .tenure()
        .args(["run", "--note"])
        .arg(OsStr::from_bytes(b"\x1b]0;x\x07\"\n"));
    let call = call
        .env("GITLAB_CI", "1")
        .env("CI_JOB_URL", OsStr::from_bytes(b"https://x/\xff\n\x1b[0m"));
    call.args(["\"'\u{202e}\\", "--", "sh", "-c", "exit 1"])
        .arg(evil)
        .run()
        .exits(1);
    let outcome = sandbox.tenure().arg("log").run();
    outcome.exits(0).says_nothing();
    assert_eq!(outcome.stdout.lines().count(), 2, "{outcome:?}");
    let is_harmful = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
    assert!(!outcome.stdout.contains(is_harmful), "{outcome:?}");
    let events = log(&sandbox, ALL);
    assert_eq!(events.len(), 2);
    assert_eq!(events[1]["names"][0], "\"'\u{202e}\\");
    assert_eq!(events[1]["note"], "\u{1b}]0;x\u{7}\"\n");
    let raw = sandbox.tenure().args(["log", "--json"]).run().stdout;
    assert!(!raw.contains(is_harmful), "{raw:?}");
    let command = events[0]["command"].as_str().unwrap();
    assert!(
        command.contains("\u{9b}31m \u{7f} \u{202e}\\"),
        "{command:?}"
    );
    let picture = sandbox.tenure().args(["log", "--timeline"]).run();
    picture.exits(0).says_nothing();
    assert!(!picture.stdout.contains(is_harmful), "{picture:?}");
}

#[test]
fn whoever_stops_reading_is_not_told_off() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 5_000);
    let outcome = sandbox
        .sh("{ tenure log; echo \"$?\" >&2; } | head -n1")
        .run();
    outcome.exits(0);
    assert_eq!(outcome.stdout.lines().count(), 1);
    assert_eq!(outcome.stderr, "0\n");
}

#[test]
fn who_may_only_read_can_read_it() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    sandbox.sh("chmod 644 l.db* && chmod 755 .").run().exits(0);
    for emptied in [false, true] {
        if emptied {
            sandbox
                .connect()
                .execute_batch("pragma wal_checkpoint(truncate)")
                .unwrap();
        }
        let outcome = sandbox.tenure_as(65_534, "").args(["log", "--json"]).run();
        outcome.exits(0).says_nothing();
        assert_eq!(words(&outcome.json()), ["granted", "released"]);
    }
}

/// As many entries as that, a minute between two, as of a job that ran until a moment ago.
fn fill(sandbox: &Sandbox, entries: i64) {
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let sql = format!(
        "with recursive n(i) as (select 1 union all select i + 1 from n where i < {entries})
         insert into log (at, event, names, mode, fence, requested_at, granted_at, ended_at, status,
           uid, host, pid, command, directory)
         select {now} - ({entries} - i) * 60000, 'released', 'job' || (i % 7), 'exclusive', i,
           {now} - ({entries} - i) * 60000 - 5000, {now} - ({entries} - i) * 60000 - 5000, {now} - ({entries} - i) * 60000,
           0, 0, 'web1', i, '/usr/local/bin/report --with some arguments', '/home/ann/reports'
         from n"
    );
    sandbox.connect().execute_batch(&sql).unwrap();
}

#[test]
fn the_log_is_bounded_by_number_and_by_age() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 100_300);
    // One that stays: the last to be closed would write back what makes tenure tidy up.
    let connection = sandbox.connect();
    let count = || -> i64 {
        let sql = "select count(*) from log";
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    let oldest = |key: &str| -> i64 {
        let sql = format!("select min({key}) from log");
        connection.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let work = || {
        for _ in 0..8 {
            sandbox
                .tenure()
                .args(["run", "A", "--", "true"])
                .run()
                .exits(0);
        }
    };
    // What a sweep does is done while a command runs, now and then.
    until(SOON, "the oldest are gone", || {
        work();
        count() <= 100_010
    });
    assert!(count() >= 100_000);
    connection
        .execute(
            "update log set at = at - 95 * 86400000 where id < (select min(id) + 200 from log)",
            [],
        )
        .unwrap();
    let bound = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let bound = i64::try_from(bound).unwrap() - 90 * 86_400_000;
    assert!(oldest("at") < bound);
    until(SOON, "the aged are gone", || {
        work();
        oldest("at") >= bound
    });
}

#[test]
fn of_a_full_log_the_newest_are_shown() {
    let sandbox = Sandbox::new();
    fill(&sandbox, 100_000);
    let newest = log(&sandbox, ["-n", "20"]);
    assert_eq!(newest.len(), 20);
    assert_eq!(newest[19]["fence"], 100_000);
    assert_eq!(log(&sandbox, ["-n", "3", "job3"]).len(), 3);
}

#[test]
fn follow_shows_what_happens_and_ends_at_ctrl_c() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let follower = sandbox
        .tenure()
        .args(["log", "-f", "-n1", "--json"])
        .start();
    let seen = || {
        let text = follower.stdout();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines = whole
            .lines()
            .map(|line| serde_json::from_str(line).unwrap());
        lines.collect::<Vec<Value>>()
    };
    until(SOON, "it shows the last", || words(&seen()) == ["released"]);
    let call = sandbox.tenure().args(["run", "B", "--"]);
    let holder = call
        .args(["sh", "-c", "echo ready; exec sleep 60"])
        .start_ready();
    until(SOON, "it shows the grant", || {
        words(&seen()) == ["released", "granted"]
    });
    sandbox
        .tenure()
        .args(["run", "B", "--", "true"])
        .run()
        .exits(75);
    until(SOON, "it shows the refusal", || seen().len() == 3);
    holder.kill();
    let so_far = ["released", "granted", "busy", "crashed"];
    until(
        SOON,
        "it shows the death, which nobody else has noticed",
        || words(&seen()) == so_far,
    );
    assert!(!sandbox.is_busy("B"));
    until(SOON, "it goes on, and says nothing twice", || {
        words(&seen()) == [&so_far[..], &["granted", "released"]].concat()
    });
    follower.signal(Signal::INT);
    follower.wait().dies_by(Signal::INT).says_nothing();
}

#[test]
fn follow_ends_with_its_reader() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let outcome = sandbox
        .sh("{ tenure log -f; echo \"$?\" >&2; } | head -n1")
        .run();
    outcome.exits(0);
    assert_eq!(outcome.stderr, "0\n");
}

#[test]
fn follow_works_for_who_may_only_read() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    sandbox
        .connect()
        .execute_batch("pragma wal_checkpoint(truncate)")
        .unwrap();
    sandbox.sh("chmod 644 l.db* && chmod 755 .").run().exits(0);
    let follower = sandbox.tenure_as(65_534, "").args(["log", "-f"]).start();
    until(SOON, "it shows what is there", || {
        follower.stdout().lines().count() == 2
    });
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    until(SOON, "it shows what came", || {
        follower.stdout().lines().count() == 4
    });
}

#[test]
fn follow_says_when_the_database_is_gone() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let follower = sandbox.tenure().args(["log", "-f"]).start();
    until(SOON, "it shows what is there", || {
        !follower.stdout().is_empty()
    });
    sandbox.sh("rm l.db*").run().exits(0);
    let outcome = follower.wait();
    outcome
        .exits(69)
        .says("cannot read *: it was deleted or replaced meanwhile");
}
