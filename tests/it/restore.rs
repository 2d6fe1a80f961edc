//! Another database comes in the place of the one that holders have open, or an old copy of it: they are waited for, and
//! fences go on growing.

use std::collections::HashSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Running, SOON, Sandbox, for_each, ms, throughout, until};

/// How it comes there, as a shell script; `copy` is the database as it was before the holder came, and not in WAL mode.
const WAYS: [&str; 8] = [
    "rm l.db-wal l.db-shm; mv copy l.db",
    "rm l.db l.db-wal l.db-shm; cp copy l.db",
    "mv copy l.db",
    "rm l.db; cp copy l.db",
    "cat copy >l.db; rm l.db-wal l.db-shm",
    "python3 -c 'import sqlite3; sqlite3.connect(\"copy\").backup(sqlite3.connect(\"l.db\"))'",
    // Of another machine, and ahead of this one.
    "rm l.db-wal l.db-shm; mv ahead l.db",
    "python3 -c 'import sqlite3; sqlite3.connect(\"ahead\").backup(sqlite3.connect(\"l.db\"))'",
];

/// Has copies made of a database in which nothing is held, and then a holder in it.
fn holder_after_the_copy<'a>(sandbox: &'a Sandbox, script: &str) -> Running<'a> {
    sandbox.fence("A");
    let connection = sandbox.connect();
    for (name, change) in [
        ("copy", ""),
        ("ahead", "update store set serial = serial + (1 << 40)"),
    ] {
        let path = sandbox.path(name);
        let vacuum = "vacuum into ?1";
        connection
            .execute(vacuum, [path.to_str().expect("plain")])
            .expect("there is room");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("our own");
        let copy = rusqlite::Connection::open(path).expect("it was made");
        copy.execute_batch(change).expect("a database of ours");
    }
    drop(connection);
    let words = ["run", "--ttl", "1h", "--kill-after", "1h", "A", "--"];
    let call = sandbox.tenure().args(words);
    call.args(["sh", "-c", script]).start_ready()
}

#[test]
fn a_holder_of_whom_a_database_in_its_place_knows_nothing_is_waited_for() {
    for_each(WAYS, |way| {
        let sandbox = Sandbox::new();
        let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
        let _holder = holder_after_the_copy(&sandbox, script);
        sandbox.sh(way).run().exits(0);
        let newcomers = [
            &["run", "A", "--", "touch", "ran"][..],
            &["run", "--wait", "forever", "A", "--", "touch", "ran"],
            &["acquire", "B"],
        ]
        .map(|words| sandbox.tenure().args(words).start());
        for newcomer in newcomers {
            let outcome = newcomer.wait();
            outcome.exits(69).prints_nothing();
            outcome.says(if way.starts_with("cat") {
                // It is in no WAL mode, in which the holder's connection is not in the way of a writer.
                "cannot * locked*"
            } else {
                "cannot use * while processes hold locks of it, and they have not ended: pid *"
            });
        }
        assert!(!sandbox.path("ran").exists(), "{way}");
    });
}

#[test]
fn a_newcomer_enters_a_database_that_was_put_in_place_when_the_old_holders_are_gone() {
    // What is written over the same file is mixed with what the holder has still to write, and may be no database.
    let ways = WAYS.into_iter().filter(|way| !way.starts_with("cat"));
    for_each(ways, |way| {
        let sandbox = Sandbox::new();
        let script = "trap 'sleep 0.3; echo out $TENURE_FENCE >>log; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
        let holder = holder_after_the_copy(&sandbox, script);
        let waits = || sandbox.tenure().args(["run", "--wait", "60s", "A", "--"]);
        let waiter = waits().args(["sh", "-c", "echo waited $TENURE_FENCE >>log"]);
        let waiter = waiter.start();
        until(SOON, "it stands in the line", || {
            sandbox.status()[0]["waiting"] == 1
        });
        sandbox.sh(way).run().exits(0);
        let next = waits().args(["sh", "-c", "echo next $TENURE_FENCE >>log"]);
        next.run().exits(0);
        waiter.wait().exits(0);
        holder.wait();
        let log = fs::read_to_string(sandbox.path("log")).expect("they were in");
        let (first, others) = log.split_once('\n').expect("lines");
        let fence = |line: &str| -> i64 {
            let (_, number) = line.split_once(' ').expect("a word and a number");
            number.parse().expect("a number")
        };
        assert!(first.starts_with("out "), "{way}: {log}");
        let mut fences: Vec<i64> = others.lines().map(fence).collect();
        assert_eq!(fences.len(), 2, "{way}: {log}");
        fences.insert(0, fence(first));
        assert!(fences.is_sorted(), "{way}: {log}");
    });
}

/// Whoever removes the side files of the old database has removed some of them, and not yet the others, which may be those of
/// the newcomer's own transaction.
#[test]
fn a_newcomer_waits_while_another_puts_a_database_in_its_place() {
    let sandbox = Sandbox::new();
    sandbox.fence("A");
    let script = "import fcntl, struct, sys; f = open('l.db-guard', 'r+'); fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 1, 0, 0, 1, 0)); print('ready', flush=True); sys.stdin.readline(); open('log', 'a').write('made\\n'); f.close()";
    let maker = sandbox.program("python3").args(["-c", script]);
    let maker = maker.start_ready();
    let newcomer = sandbox.tenure().args(["run", "A", "--", "sh", "-c"]);
    let newcomer = newcomer.arg("echo entered >>log").start();
    throughout(ms(300), "it waits", || !sandbox.path("log").exists());
    maker.end().exits(0);
    newcomer.wait().exits(0);
    let log = fs::read_to_string(sandbox.path("log")).expect("both wrote");
    assert_eq!(log, "made\nentered\n");
}

#[test]
fn a_holder_whom_the_copy_knows_keeps_the_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let copy = "import sqlite3; sqlite3.connect(\"l.db\").backup(sqlite3.connect(\"copy\"))";
    let back = "import sqlite3; sqlite3.connect(\"copy\").backup(sqlite3.connect(\"l.db\"))";
    let python = |script| sandbox.program("python3").args(["-c", script]).run();
    python(copy).exits(0);
    sandbox.fence("B");
    python(back).exits(0);
    assert!(sandbox.is_busy("A"));
    sandbox.fence("B");
    holder.end().exits(0);
    sandbox.fence("A");
}

/// Whoever was killed between writing the number down and the commit.
#[test]
fn a_number_that_was_written_down_and_not_given_out_is_in_nobodys_way() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let text = guard_text(&sandbox);
    let (noted, rest) = text.split_once(' ').expect("numbers");
    let note = |number: i64| {
        fs::write(sandbox.guard(), format!("{number:020} {rest}")).expect("it is there");
    };
    let number = noted.parse::<i64>().expect("a number") + 5;
    note(number);
    assert!(sandbox.is_busy("A"));
    assert!(sandbox.fence("B") > number);
    let crowd: Vec<_> = (0..20)
        .map(|_| {
            let call = sandbox.tenure().args(["run", "--wait", "60s", "A", "--"]);
            call.arg("true").start()
        })
        .collect();
    until(SOON, "they stand in the line", || {
        sandbox.status()[0]["waiting"] == crowd.len()
    });
    note(number * 2);
    holder.end().exits(0);
    for one in crowd {
        one.wait().exits(0);
    }
    assert!(sandbox.fence("A") > number * 2);
}

fn guard_text(sandbox: &Sandbox) -> String {
    fs::read_to_string(sandbox.guard()).expect("it is there")
}

#[test]
fn fences_grow_where_only_the_guard_file_is_left() {
    let sandbox = Sandbox::new();
    let remove = || {
        for name in ["l.db", "l.db-wal", "l.db-shm"] {
            fs::remove_file(sandbox.path(name)).expect("it was made");
        }
    };
    let mut last = sandbox.fence("A");
    // A restart moves the counter ahead of the clock.
    let restart = "update store set boot_id = 'another'";
    sandbox.connect().execute_batch(restart).expect("our own");
    for _ in 0..3 {
        let next = sandbox.fence("A");
        assert!(next > last, "{next} after {last}");
        last = next;
        remove();
    }
    for seconds in [3600, 86_400, 4_000_000_000] {
        let next = sandbox.tenure().with_wall_clock_off_by(-seconds).fence("A");
        assert!(next > last, "{next} after {last}, {seconds} s back");
        last = next;
        remove();
    }
}

#[test]
fn an_old_copy_brings_no_old_fence_whatever_the_clock_says() {
    let sandbox = Sandbox::new();
    let mut last = sandbox.fence("A");
    let copy = sandbox.path("copy");
    let path = copy.to_str().expect("plain");
    let made = sandbox.connect().execute("vacuum into ?1", [path]);
    made.expect("there is room");
    let restart = "update store set boot_id = 'another'";
    sandbox.connect().execute_batch(restart).expect("our own");
    for back in [0, 3600, 86_400] {
        for _ in 0..2 {
            let next = sandbox.tenure().with_wall_clock_off_by(-back).fence("A");
            assert!(next > last, "{next} after {last}, {back} s back");
            last = next;
        }
        sandbox
            .sh("rm l.db-wal l.db-shm; cp copy l.db")
            .run()
            .exits(0);
    }
}

#[test]
fn a_clock_before_1970_gives_positive_numbers() {
    let sandbox = Sandbox::new();
    let fence = || {
        let call = sandbox.tenure().with_wall_clock_off_by(-4_000_000_000);
        call.fence("A")
    };
    let first = fence();
    assert!(first > 0, "{first}");
    assert!(fence() > first);
}

#[test]
fn a_guard_file_that_was_emptied_is_filled_again() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    // As by `exec 9>l.db-guard`.
    fs::write(sandbox.guard(), "").expect("it is there");
    assert!(sandbox.is_busy("A"));
    let fence = sandbox.fence("B");
    assert!(guard_text(&sandbox).starts_with(&format!("{fence:020} ")));
    holder.end().exits(0).took(..ms(20_000));
}

/// A new file gets the inode of one that was deleted, more often than not.
#[test]
fn a_backup_that_came_with_its_log_has_all_that_is_in_there() {
    let sandbox = Sandbox::new();
    sandbox.fence("A");
    for number in 0..5 {
        let token = sandbox.acquire([format!("B{number}")]);
        let script = "mkdir copy && cp l.db l.db-wal copy && rm l.db l.db-wal l.db-shm && cp copy/l.db-wal copy/l.db . && rm -r copy";
        sandbox.sh(script).run().exits(0);
        let call = sandbox.tenure().args(["status", "--token", &token]);
        call.run().exits(0);
        sandbox.fence("A");
        assert!(sandbox.is_busy(&format!("B{number}")));
    }
}

/// Sets it when it goes, be it by a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// As often as there is time, while others enter, wait and go.
#[test]
fn contenders_are_one_at_a_time_while_databases_come_and_go() {
    const MOVES: usize = 25;
    let script = "exec 8>>witness; flock -n 8 || echo overlap >>log; echo $TENURE_FENCE >>log; sleep 0.0$(($$ % 9))";
    for_each(
        [
            "rm -f l.db l.db-wal l.db-shm; sleep 0.1; cp copy new; mv new l.db",
            "mv l.db aside; sleep 0.1; mv aside l.db",
            "cp copy new; mv new l.db",
            "cp l.db new; mv new l.db",
        ],
        |way| {
            let sandbox = Sandbox::new();
            sandbox.fence("A");
            let copy = "vacuum into 'copy'; pragma journal_mode";
            let copy = format!(
                "import sqlite3; sqlite3.connect('l.db').executescript(\"{copy}\"); sqlite3.connect('copy').execute('pragma journal_mode=wal')"
            );
            sandbox
                .program("python3")
                .args(["-c", &copy])
                .run()
                .exits(0);
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            let words = ["run", "-q", "--wait", "5s", "A", "--", "bash", "-c"];
                            let outcome = sandbox.tenure().args(words).arg(script).run();
                            // A file that is gone the moment after it was found is told of.
                            assert!(matches!(outcome.code, Some(0 | 69)), "{way}: {outcome:?}");
                        }
                    });
                }
                let _ending = Ending(&is_over);
                for _ in 0..MOVES {
                    sandbox.sh(way).run();
                    // Some enter before the next.
                    let entered = || {
                        fs::read_to_string(sandbox.path("log")).map_or(0, |log| log.lines().count())
                    };
                    let before = entered();
                    until(ms(60_000), "some enter", || entered() > before + 3);
                }
            });
            let log = fs::read_to_string(sandbox.path("log")).expect("they were in");
            let fences: HashSet<&str> = log.lines().collect();
            assert!(!fences.contains("overlap"), "{way}: {log}");
            assert_eq!(fences.len(), log.lines().count(), "{way}: {log}");
        },
    );
}

/// What a job left running, of whose lease the copy knows nothing: nobody knows how long it may last.
#[test]
fn who_is_waited_for_without_a_row_is_named() {
    let sandbox = Sandbox::new();
    let _holder = holder_after_the_copy(&sandbox, "echo ready; trap '' TERM; exec sleep 613");
    sandbox
        .sh("rm l.db l.db-wal l.db-shm; cp copy l.db")
        .run()
        .exits(0);
    let status = |words: &[&str]| sandbox.tenure().arg("status").args(words).run();
    let told = "no lock can be taken in */l.db now: it was put in the place of another database, of which processes hold locks that are not in it: *pid * (sleep 613)*";
    for words in [&[][..], &["A"], &["--json"]] {
        status(words).exits(0).says(told);
    }
    status(&["-q"]).exits(0).says_nothing();
    let outcome = sandbox.tenure().args(["run", "B", "--", "true"]).run();
    outcome.is_store_error("cannot use *: another or an older database was put in its place while processes hold locks of it, and they have not ended: *pid * (sleep 613)*");
}

#[test]
fn a_link_that_is_laid_anew_takes_the_lock_away() {
    // The directory's, and the database's own.
    for_each(
        [
            ("d1", "d2", "cur", "cur/l.db"),
            ("1.db", "2.db", "l.db", "l.db"),
        ],
        |(old, new, link, db)| {
            let sandbox = Sandbox::new();
            let tenure = || sandbox.tenure().db(sandbox.path(db));
            let lay = |to: &str| {
                let script = format!("ln -sfn {to} {link}");
                sandbox.sh(&script).run().exits(0);
            };
            if link == "cur" {
                sandbox.sh("mkdir d1 d2").run().exits(0);
            }
            lay(old);
            let mut holder = tenure().args(["run", "A"]).hold();
            let waiter = tenure().args(["run", "-w", "60s", "A", "--", "sh", "-c"]);
            let waiter = waiter.arg("echo $TENURE_DB >entered").start();
            until(SOON, "it stands in the line", || {
                tenure().args(["status", "--json", "A"]).run().json()[0]["waiting"] == 1
            });
            lay(new);
            until(SOON, "the holder is stopped", || holder.is_over());
            holder.wait().exits(76);
            waiter.wait().exits(0);
            let entered = fs::read_to_string(sandbox.path("entered")).expect("it ran");
            assert!(entered.contains(new), "{entered}");
        },
    );
}

/// SQLite's last connection removes the side files when it closes, having written all into the file. Who holds a lock without a
/// connection, by a descriptor or as an orphan, is no reason to doubt that.
#[test]
fn a_backup_while_nothing_but_descriptors_and_orphans_hold_locks_is_in_nobodys_way() {
    let backup =
        "import sqlite3; c = sqlite3.connect('l.db'); c.backup(sqlite3.connect('copy')); c.close()";
    let by_descriptor = "exec 9<>l.db-guard; tenure acquire --fd 9 A >token; echo ready; read x; tenure release --fd 9; exit 0";
    let orphan = "tenure run --ttl 1h A -- sh -c 'setsid sh -c \"echo ready; exec sleep 600\" & wait' & read x; exit 0";
    for_each([by_descriptor, orphan], |script| {
        let sandbox = Sandbox::new();
        sandbox.fence("A");
        let holder = sandbox.sh(script).start_ready();
        if script == orphan {
            let run = sandbox.status()[0]["pid"].to_string();
            sandbox.program("kill").args(["-9", &run]).run().exits(0);
            until(SOON, "it is an orphan", || {
                sandbox.status()[0]["state"] == "orphaned"
            });
        }
        sandbox
            .program("python3")
            .args(["-c", backup])
            .run()
            .exits(0);
        assert!(
            !sandbox.path("l.db-wal").exists(),
            "it was the last connection"
        );
        let next = sandbox.tenure().args(["run", "B", "--", "true"]).run();
        next.exits(0).says_nothing().took(..ms(5_000));
        assert!(sandbox.is_busy("A"));
        holder.end().exits(0);
        assert!(script == orphan || !sandbox.is_busy("A"));
    });
}

/// The other half: what was in them is lost.
#[test]
fn a_log_that_somebody_removed_is_missed_though_nobody_has_the_database_open() {
    let sandbox = Sandbox::new();
    sandbox.fence("A");
    let script = "exec 9<>l.db-guard; tenure acquire --fd 9 A >token; rm l.db-wal l.db-shm; echo ready; read x; exit 0";
    let holder = sandbox.sh(script).start_ready();
    let next = sandbox
        .tenure()
        .args(["run", "A", "--", "touch", "ran"])
        .run();
    next.is_store_error("cannot use *: its side files were deleted while processes hold locks of it, and they have not ended: pid *");
    assert!(!sandbox.path("ran").exists());
    holder.end().exits(0);
    sandbox.fence("A");
}

#[test]
fn a_database_that_is_emptied_under_a_holder_stops_it_and_status_says_so() {
    let sandbox = Sandbox::new();
    let script = "trap 'sleep 1; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let words = ["run", "A", "--", "sh", "-c", script];
    let holder = sandbox.tenure().args(words).start_ready();
    fs::write(sandbox.db(), "").expect("it is there");
    let status = sandbox.tenure().arg("status").run();
    status.is_store_error("cannot read *: it was emptied while processes hold locks of it: pid *");
    let next = sandbox.tenure().args(["run", "A", "--", "true"]).start();
    holder.wait().exits(76);
    next.wait().exits(0);
}
