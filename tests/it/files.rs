//! The database as a file: how it is made, whose it is, what is refused and stays as it was, and what
//! happens when it is locked, deleted, full or shared.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::Instant;

use rusqlite::Connection;
use serde_json::Value;

use crate::support::{
    Outcome, Running, SOON, Sandbox, Signal, for_each, ms, stays, throughout, until,
};
use crate::waiters::AT_ONCE;

/// The database and all that belongs to it.
const FILES: [&str; 4] = ["l.db", "l.db-guard", "l.db-shm", "l.db-wal"];

/// Users and a group that no machine has.
const ANN: u32 = 42_421;
const BOB: u32 = 42_422;
const TEAM: u32 = 42_420;

/// Every file in the directory and what is in it.
fn contents(directory: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let name = entry.file_name().into_string().expect("plain names");
            (name, fs::read(entry.path()).expect("it can be read"))
        })
        .collect()
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name())
        .map(|name| name.into_string().expect("plain names"))
        .collect();
    names.sort();
    names
}

fn mode(path: impl AsRef<Path>) -> u32 {
    fs::metadata(path)
        .expect("it is there")
        .permissions()
        .mode()
        & 0o7777
}

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// `tenure run A -- touch ran`.
fn attempt(sandbox: &Sandbox) -> Outcome {
    sandbox
        .tenure()
        .args(["run", "A", "--", "touch", "ran"])
        .run()
}

#[track_caller]
fn assert_did_not_run(sandbox: &Sandbox) {
    assert!(!sandbox.path("ran").exists(), "CMD was run");
}

/// `acquire`, `run` and `status` refuse the database, and every file stays as it was.
#[track_caller]
fn assert_refused_and_untouched(sandbox: &Sandbox, why: &str) {
    let before = contents(&sandbox.dir());
    for words in [
        &["run", "A", "--", "touch", "ran"][..],
        &["acquire", "A"],
        &["status"],
    ] {
        let outcome = sandbox.tenure().args(words).run();
        outcome.is_store_error(&format!("cannot * {}*{why}*", sandbox.db().display()));
    }
    let after = contents(&sandbox.dir());
    assert!(
        before == after,
        "{:?} became {:?}",
        before.keys(),
        after.keys()
    );
}

/// A database of ours that is whole in its one file, and on which nobody works.
fn make_database(sandbox: &Sandbox) {
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let connection = sandbox.connect();
    let check = "pragma wal_checkpoint(truncate)";
    connection
        .query_row(check, [], |_| Ok(()))
        .expect("nobody else works on it");
    connection.close().expect("no statement is left");
    for name in &FILES[1..] {
        let _ = fs::remove_file(sandbox.path(name));
    }
}

#[test]
fn many_first_openers_at_once_all_succeed() {
    for round in 0..40 {
        let sandbox = Sandbox::new();
        let all_want_one = round % 2 == 0;
        let openers: Vec<Running<'_>> = (0..24)
            .map(|n| {
                if all_want_one {
                    "A".to_owned()
                } else {
                    format!("lock {n}")
                }
            })
            .map(|name| sandbox.tenure().args(["acquire", &name]).start())
            .collect();
        let outcomes: Vec<Outcome> = openers.into_iter().map(Running::wait).collect();
        let (granted, refused): (Vec<_>, Vec<_>) =
            outcomes.iter().partition(|outcome| outcome.code == Some(0));
        for outcome in refused {
            outcome.is_busy("A");
        }
        assert_eq!(
            granted.len(),
            if all_want_one { 1 } else { 24 },
            "in round {round}"
        );
        assert_eq!(sandbox.status().len(), granted.len());
        assert_eq!(names_in(&sandbox.dir()), FILES);
    }
}

#[test]
fn new_files_are_for_their_owner_alone_whatever_the_umask() {
    for umask in ["000", "022", "077", "777"] {
        let sandbox = Sandbox::new();
        sandbox
            .sh(&format!("umask {umask}; exec tenure acquire A"))
            .run()
            .exits(0);
        sandbox
            .sh(&format!("umask {umask}; exec tenure run B -- true"))
            .run()
            .exits(0);
        assert_eq!(names_in(&sandbox.dir()), FILES);
        for name in FILES {
            assert_eq!(
                mode(sandbox.path(name)),
                0o600,
                "{name} under umask {umask}"
            );
        }
    }
}

#[test]
fn an_empty_file_is_filled_in_place_and_its_side_files_are_like_it() {
    for umask in ["000", "077"] {
        let sandbox = Sandbox::new();
        File::create(sandbox.db()).expect("a fresh directory");
        set_mode(sandbox.db(), 0o660);
        chown(sandbox.db(), Some(ANN), Some(TEAM)).expect("tests run as root");
        let inode = fs::metadata(sandbox.db()).expect("it was made").ino();
        let script = format!("umask {umask}; tenure acquire A && tenure run B -- true");
        sandbox.sh(&script).run().exits(0);
        assert!(sandbox.is_busy("A"));
        assert_eq!(names_in(&sandbox.dir()), FILES);
        assert_eq!(
            fs::metadata(sandbox.db()).expect("it was made").ino(),
            inode,
            "it was replaced"
        );
        for name in FILES {
            let metadata = fs::metadata(sandbox.path(name)).expect("it is there");
            assert_eq!(mode(sandbox.path(name)), 0o660, "{name}");
            assert_eq!((metadata.uid(), metadata.gid()), (ANN, TEAM), "{name}");
        }
    }
}

#[test]
fn an_empty_file_is_filled_once_by_many_first_openers() {
    for _ in 0..10 {
        let sandbox = Sandbox::new();
        File::create(sandbox.db()).expect("a fresh directory");
        set_mode(sandbox.db(), 0o600);
        let openers: Vec<Running<'_>> = (0..24)
            .map(|n| {
                sandbox
                    .tenure()
                    .args(["acquire", &format!("lock {n}")])
                    .start()
            })
            .collect();
        for opener in openers {
            opener.wait().exits(0).says_nothing();
        }
        assert_eq!(sandbox.status().len(), 24);
    }
}

#[test]
fn the_side_files_of_a_database_have_its_mode_and_group_when_they_are_made_again() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    set_mode(sandbox.db(), 0o664);
    chown(sandbox.db(), Some(ANN), Some(TEAM)).expect("tests run as root");
    sandbox
        .sh("umask 077; exec tenure acquire A")
        .run()
        .exits(0);
    for name in FILES {
        let metadata = fs::metadata(sandbox.path(name)).expect("it is there");
        assert_eq!(mode(sandbox.path(name)), 0o664, "{name}");
        assert_eq!((metadata.uid(), metadata.gid()), (ANN, TEAM), "{name}");
    }
}

#[test]
fn a_database_of_another_program_is_refused_and_stays_as_it_was() {
    for journal in ["delete", "wal"] {
        let sandbox = Sandbox::new();
        let connection = sandbox.connect();
        let sql = "create table t (x); insert into t values (1), (2);";
        connection
            .execute_batch(&format!("pragma journal_mode = {journal}; {sql}"))
            .expect("fresh");
        connection.close().expect("no statement is left");
        assert_eq!(names_in(&sandbox.dir()), ["l.db"]);
        assert_refused_and_untouched(&sandbox, "not a tenure database");
    }
}

#[test]
fn a_database_that_another_program_has_open_is_refused_and_stays_as_it_was() {
    let sandbox = Sandbox::new();
    let connection = sandbox.connect();
    let sql = "pragma journal_mode = wal; create table t (x); insert into t values (1), (2);";
    connection.execute_batch(sql).expect("a fresh database");
    // All of it is in the write-ahead log still: the file's own header is that of an empty database.
    assert_eq!(names_in(&sandbox.dir()), ["l.db", "l.db-shm", "l.db-wal"]);
    assert_refused_and_untouched(&sandbox, "not a tenure database");
    let count: i64 = connection
        .query_row("select count(*) from t", [], |row| row.get(0))
        .expect("rows");
    assert_eq!(count, 2);
}

#[test]
fn a_database_that_carries_another_programs_number_is_refused() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    sandbox
        .connect()
        .execute_batch("pragma application_id = 252006674")
        .expect("it is a database");
    let _ = fs::remove_file(sandbox.guard());
    assert_refused_and_untouched(&sandbox, "not a tenure database");
}

#[test]
fn a_database_of_a_newer_tenure_is_refused_with_that_reason() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    let connection = sandbox.connect();
    let version: i64 = connection
        .query_row("pragma user_version", [], |row| row.get(0))
        .expect("it has one");
    connection
        .execute_batch(&format!("pragma user_version = {}", version + 1))
        .expect("it is ours");
    connection.close().expect("no statement is left");
    assert_refused_and_untouched(&sandbox, "newer");
}

#[test]
fn a_database_of_an_older_layout_is_refused_with_that_reason() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    let connection = sandbox.connect();
    connection
        .execute_batch("pragma user_version = 1")
        .expect("it is ours");
    connection.close().expect("no statement is left");
    assert_refused_and_untouched(&sandbox, "older tenure");
}

/// Takes from a database what the last layout had not.
fn make_older(sandbox: &Sandbox) {
    let sql =
        "begin immediate; alter table ticket drop column of_run; pragma user_version = 3; commit;
               pragma wal_checkpoint(truncate)";
    sandbox.connect().execute_batch(sql).expect("it is ours");
}

#[test]
fn a_database_of_the_last_layout_is_brought_up_to_date() {
    let sandbox = Sandbox::new();
    let columns = "select name from pragma_table_info('ticket')";
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let new = sandbox.rows::<String>(columns);
    let fence = sandbox.fence("B");
    sandbox.tenure().args(["run", "B"]).hold().kill();
    until(SOON, "its job is dead too", || sandbox.status().len() == 1);
    make_older(&sandbox);
    // Some see it in the file, and some in the log alone.
    for_each(0..20, |number| {
        let name = format!("C{number}");
        let words = ["run", &name, "--", "true"];
        sandbox.tenure().args(words).run().exits(0).says_nothing();
    });
    assert_eq!(sandbox.rows::<String>(columns), new);
    assert_eq!(sandbox.rows::<i64>("pragma user_version"), [4]);
    assert!(sandbox.is_busy("A"));
    let guarded = &sandbox.status()[0]["guarded"];
    assert_eq!(guarded, false);
    let call = sandbox.tenure().args(["release", "--token", &token]);
    call.run().exits(0);
    let log = sandbox.tenure().args(["log", "--json", "B"]).run();
    assert!(log.stdout.contains(&format!("{fence},")), "{log:#?}");
    assert!(sandbox.fence("B") > fence);
}

#[test]
fn whoever_looks_first_brings_it_up_to_date_too() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    make_older(&sandbox);
    assert_eq!(sandbox.status().len(), 1);
    // Who may not write to it does not change it either.
    make_older(&sandbox);
    set_mode(sandbox.db(), 0o644);
    let outcome = sandbox.tenure_as(BOB, "").arg("status").run();
    outcome.is_store_error("cannot use *: it was made by an older tenure *");
    set_mode(sandbox.db(), 0o600);
    assert_eq!(sandbox.status().len(), 1);
}

#[test]
fn a_database_of_the_last_layout_that_is_in_use_is_left_as_it_is() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    make_older(&sandbox);
    for verb in [&["run", "A", "--", "touch", "ran"][..], &["status"]] {
        let outcome = sandbox.tenure().args(verb).run();
        outcome.is_store_error("cannot use *: it was made by an older tenure *, and locks of it are held or waited for; *");
    }
    assert_eq!(sandbox.rows::<i64>("pragma user_version"), [3]);
    assert_did_not_run(&sandbox);
    holder.end().exits(0);
    attempt(&sandbox).exits(0);
}

#[test]
fn a_newer_version_that_is_in_the_log_still_is_seen() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    let connection = sandbox.connect();
    let version: i64 = connection
        .query_row("pragma user_version", [], |row| row.get(0))
        .expect("it has one");
    connection
        .execute_batch(&format!("pragma user_version = {}", version + 1))
        .expect("it is ours");
    let before = fs::read(sandbox.db()).expect("it is there");
    attempt(&sandbox).is_store_error("*newer*");
    assert_did_not_run(&sandbox);
    assert!(
        fs::read(sandbox.db()).expect("it is there") == before,
        "it was changed"
    );
}

#[test]
fn a_damaged_database_is_refused_and_stays_as_it_was() {
    type Harm = fn(&mut Vec<u8>);
    let damages: [(&str, Harm); 7] = [
        ("cut within its header", |bytes| bytes.truncate(50)),
        ("cut within its first page", |bytes| bytes.truncate(1000)),
        ("cut after its first page", |bytes| bytes.truncate(4096)),
        ("cut in the middle", |bytes| bytes.truncate(bytes.len() / 2)),
        ("all but the first page garbage", |bytes| {
            bytes[4096..].fill(0xaa);
        }),
        ("all but the header garbage", |bytes| {
            bytes[100..].fill(0x55);
        }),
        ("all but the magic words zero", |bytes| bytes[16..].fill(0)),
    ];
    for (damage, harm) in damages {
        let sandbox = Sandbox::new();
        make_database(&sandbox);
        let mut bytes = fs::read(sandbox.db()).expect("it was made");
        harm(&mut bytes);
        fs::write(sandbox.db(), &bytes).expect("it is ours");
        for words in [
            &["run", "A", "--", "touch", "ran"][..],
            &["acquire", "A"],
            &["status"],
        ] {
            let outcome = sandbox.tenure().args(words).run();
            assert_eq!(outcome.code, Some(69), "{damage}: {outcome:#?}");
            outcome.is_store_error(&format!("cannot * {}*", sandbox.db().display()));
        }
        assert_did_not_run(&sandbox);
        assert!(
            fs::read(sandbox.db()).expect("it is there") == bytes,
            "{damage}: it was changed"
        );
    }
}

#[test]
fn a_database_whose_first_page_is_lost_is_not_taken_for_one_that_is_being_made() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    let connection = sandbox.connect();
    let check = "pragma wal_checkpoint(truncate)";
    connection
        .query_row(check, [], |_| Ok(()))
        .expect("nobody else works on it");
    connection.close().expect("no statement is left");
    let mut bytes = fs::read(sandbox.db()).expect("it was made");
    bytes[..4096].fill(0);
    fs::write(sandbox.db(), &bytes).expect("it is ours");
    attempt(&sandbox).is_store_error("cannot *");
    assert_did_not_run(&sandbox);
    assert!(
        fs::read(sandbox.db()).expect("it is there") == bytes,
        "it was changed"
    );
}

#[test]
fn zeros_and_noise_are_no_database() {
    for bytes in [
        vec![0x5a; 8192],
        vec![0x5a; 10],
        vec![0; 1],
        vec![0; 100],
        vec![0; 8192],
        b"\n".to_vec(),
    ] {
        let sandbox = Sandbox::new();
        fs::write(sandbox.db(), &bytes).expect("a fresh directory");
        assert_refused_and_untouched(&sandbox, "not a tenure database");
    }
}

#[test]
fn names_that_sqlite_reads_as_more_than_a_path_are_plain_files() {
    let names = [
        ":memory:",
        "file:x?mode=memory",
        "file::memory:?cache=shared",
        "file:x",
        "a?b#c%20d",
        "-db",
        " ",
        "日本.db",
    ];
    for_each(names, |name| {
        let sandbox = Sandbox::new();
        let option = format!("--db={name}");
        let call = || sandbox.tenure().without_env("TENURE_DB").arg(&option);
        let holder = call().args(["run", "A"]).hold();
        let expected: Vec<String> = ["", "-guard", "-shm", "-wal"]
            .iter()
            .map(|end| format!("{name}{end}"))
            .collect();
        assert_eq!(names_in(&sandbox.dir()), expected);
        call().args(["acquire", "A"]).run().is_busy("A");
        sandbox
            .tenure()
            .db(name)
            .args(["acquire", "A"])
            .run()
            .is_busy("A");
        let path = sandbox.path(name);
        sandbox
            .tenure()
            .db(path)
            .directory("/")
            .args(["acquire", "A"])
            .run()
            .is_busy("A");
        holder.end().exits(0);
        call().args(["acquire", "A"]).run().exits(0);
    });
}

#[test]
fn cmd_finds_the_same_database_from_wherever_it_goes() {
    let sandbox = Sandbox::new();
    let script = "cd /; echo \"$TENURE_DB\"; tenure acquire A; echo $?";
    let call = sandbox
        .tenure()
        .db("l.db")
        .args(["run", "A", "--", "sh", "-c", script]);
    call.run()
        .exits(0)
        .prints(&format!("{}\n75\n", sandbox.db().display()));
    let call = sandbox
        .tenure()
        .db("/proc/nope/l.db")
        .args(["run", "--db", "./l.db", "A", "--"]);
    call.args(["sh", "-c", script])
        .run()
        .prints(&format!("{}\n75\n", sandbox.db().display()));
}

#[test]
fn when_the_database_is_deleted_the_job_is_stopped_and_only_then_a_newcomer_enters() {
    let sandbox = Sandbox::new();
    let script = "exec 2> /dev/null; trap 'sleep 0.7; echo clean >> log; exit 0' TERM; echo ready; \
                  while :; do sleep 0.02; done";
    let mut holder = sandbox
        .tenure()
        .args(["run", "--ttl", "1h", "A", "--", "sh", "-c", script])
        .start_ready();
    sandbox.acquire(["B", "--ttl", "1h"]);
    fs::remove_file(sandbox.db()).expect("it was made");
    let deleted = Instant::now();
    let newcomer = sandbox
        .tenure()
        .args(["run", "A", "--", "cat", "log"])
        .start();
    until(SOON, "the holder has ended", || holder.is_over());
    // Two seconds until it is told, and what its clean-up takes.
    assert!(
        deleted.elapsed() < ms(5000),
        "it took {:?}",
        deleted.elapsed()
    );
    holder.wait().exits(76).says_a_line();
    newcomer.wait().exits(0).prints("clean\n");
    assert_eq!(
        sandbox.status(),
        Vec::<Value>::new(),
        "nothing of the old rows is left"
    );
    assert!(!sandbox.is_busy("B"));
}

#[test]
fn a_newcomer_does_not_enter_while_the_job_of_a_deleted_database_lives() {
    let sandbox = Sandbox::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let call = sandbox
        .tenure()
        .args(["run", "--kill-after", "1h", "A", "--", "sh", "-c", script]);
    let mut holder = call.start_ready();
    fs::remove_file(sandbox.db()).expect("it was made");
    let outcome = attempt(&sandbox);
    outcome
        .is_store_error("cannot * deleted *")
        .took(ms(2000)..ms(30_000));
    assert_did_not_run(&sandbox);
    assert!(!holder.is_over(), "the job lives");
    holder.kill();
    until(SOON, "a newcomer can enter", || {
        attempt(&sandbox).code == Some(0)
    });
}

/// Whether a process keeps a signal for later.
pub fn blocks(pid: i32, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal.as_raw() - 1) & 1 == 1)
}

/// A holder whose job does not end when these files are deleted, so that a newcomer has to wait.
pub fn lose<'a>(sandbox: &'a Sandbox, files: &[&str]) -> Running<'a> {
    let script = "trap '' TERM; echo ready; while :; do sleep 0.05; done";
    let words = ["run", "--kill-after", "1h", "A", "--", "sh", "-c", script];
    let holder = sandbox.tenure().args(words).start_ready();
    for file in files {
        fs::remove_file(sandbox.path(file)).expect("it was made");
    }
    holder
}

#[test]
fn a_newcomer_that_waits_for_the_holders_of_lost_files_hears_signals() {
    for files in [&["l.db"][..], &["l.db-wal", "l.db-shm"]] {
        let sandbox = Sandbox::new();
        let _holder = lose(&sandbox, files);
        for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
            for words in [&["run", "A", "--", "touch", "ran"][..], &["acquire", "A"]] {
                let mut newcomer = sandbox.tenure().args(words).detached().start();
                let pid = newcomer.pid();
                until(SOON, "it has got there", || blocks(pid, signal));
                throughout(ms(100), "it waits", || !newcomer.is_over());
                newcomer.signal(signal);
                let sent = Instant::now();
                newcomer
                    .wait()
                    .dies_by(signal)
                    .prints_nothing()
                    .says_nothing();
                assert!(sent.elapsed() < AT_ONCE, "{files:?} {signal:?} {words:?}");
            }
        }
        assert_did_not_run(&sandbox);
    }
}

#[test]
fn an_orphan_of_a_deleted_database_is_waited_for() {
    let sandbox = Sandbox::new();
    let script = "setsid sh -c 'sleep 1; echo clean > log' & echo ready; read x; exit 0";
    let holder = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .start_ready();
    until(SOON, "the orphan is there", || {
        sandbox.is_running(&["sleep", "1"])
    });
    holder.kill();
    fs::remove_file(sandbox.db()).expect("it was made");
    sandbox
        .tenure()
        .args(["run", "A", "--", "cat", "log"])
        .run()
        .exits(0)
        .prints("clean\n");
}

#[test]
fn a_database_that_was_replaced_is_noticed() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    fs::rename(sandbox.db(), sandbox.path("other.db")).expect("it was made");
    let mut holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    fs::rename(sandbox.path("other.db"), sandbox.db()).expect("it was made");
    let replaced = Instant::now();
    until(SOON, "the holder has ended", || holder.is_over());
    assert!(
        replaced.elapsed() < ms(4000),
        "it took {:?}",
        replaced.elapsed()
    );
    holder.wait().exits(76).says_a_line();
}

#[test]
fn a_deleted_directory_is_noticed() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("d")).expect("a fresh directory");
    let call = sandbox
        .tenure()
        .db(sandbox.path("d/l.db"))
        .args(["run", "--ttl", "1h", "A"]);
    let mut holder = call.hold();
    fs::remove_dir_all(sandbox.path("d")).expect("it was made");
    let deleted = Instant::now();
    until(SOON, "the holder has ended", || holder.is_over());
    assert!(
        deleted.elapsed() < ms(4000),
        "it took {:?}",
        deleted.elapsed()
    );
    holder.wait().exits(76).says_a_line();
}

#[test]
fn a_bare_lease_is_not_granted_in_a_database_that_was_deleted_meanwhile() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody else writes");
    let mut late = sandbox.tenure().args(["acquire", "A"]).start();
    // Long enough that it has opened the database and waits for the write lock.
    throughout(ms(500), "it waits", || !late.is_over());
    fs::remove_file(sandbox.db()).expect("it was made");
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    backup.execute_batch("rollback").expect("it was begun");
    late.wait().is_busy("A");
    let status = sandbox.tenure().args(["status", "--token", &token]).run();
    status.exits(0);
}

#[test]
fn side_files_of_a_deleted_database_do_not_come_into_the_new_one() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    sandbox
        .tenure()
        .args(["run", "B", "--", "true"])
        .run()
        .exits(0);
    assert_eq!(names_in(&sandbox.dir()), FILES);
    fs::remove_file(sandbox.db()).expect("it was made");
    assert!(
        !sandbox.is_busy("A"),
        "a row of the old database is in the new one"
    );

    fs::remove_file(sandbox.db()).expect("it was made");
    fs::write(sandbox.path("l.db-wal"), [0x37; 10_000]).expect("our directory");
    fs::write(sandbox.path("l.db-shm"), vec![0x37; 32_768]).expect("our directory");
    fs::write(sandbox.path("l.db-journal"), [0x37; 10_000]).expect("our directory");
    sandbox.acquire(["A", "--ttl", "1h"]);
    let check = "pragma integrity_check";
    let verdict: String = sandbox
        .connect()
        .query_row(check, [], |row| row.get(0))
        .expect("a verdict");
    assert_eq!(verdict, "ok");
    assert!(!sandbox.path("l.db-journal").exists());
}

#[test]
fn whoever_locks_the_database_for_too_long_is_named() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody else writes");
    let calls = [
        sandbox.tenure().args(["acquire", "A"]).start(),
        sandbox
            .tenure()
            .args(["run", "A", "--", "touch", "ran"])
            .start(),
        sandbox
            .tenure()
            .args(["run", "--wait", "1s", "B", "--", "touch", "ran"])
            .start(),
    ];
    for call in calls {
        let pattern = format!(
            "cannot *{}*locked by pid {}*",
            sandbox.db().display(),
            std::process::id()
        );
        call.wait()
            .is_store_error(&pattern)
            .took(ms(9000)..ms(30_000));
    }
    assert_did_not_run(&sandbox);
    backup.execute_batch("commit").expect("it was begun");
    attempt(&sandbox).exits(0);
}

#[test]
fn a_database_to_which_others_keep_writing_is_no_error_however_long_it_takes() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    let others = sandbox.connect();
    let one_after_the_other = "begin immediate; update store set serial = serial + 1";
    others
        .execute_batch(one_after_the_other)
        .expect("nobody else writes");
    let mut call = sandbox.tenure().args(["acquire", "A"]).start();
    // It may slip in between.
    stays(ms(12_000), || {
        let written = others.execute_batch(&format!("commit; {one_after_the_other}"));
        written.expect("it is never for long");
        !call.is_over()
    });
    others.execute_batch("commit").expect("it was begun");
    call.wait().exits(0).says_nothing();
}

#[test]
fn one_who_waits_for_a_locked_database_before_it_has_anything_hears_signals() {
    let sandbox = Sandbox::new();
    make_database(&sandbox);
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody else writes");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        for words in [
            &["run", "A", "--", "touch", "ran"][..],
            &["run", "--wait", "60s", "A", "--", "touch", "ran"],
            &["acquire", "A"],
        ] {
            let mut call = sandbox.tenure().args(words).detached().start();
            let pid = call.pid();
            until(SOON, "it has got there", || blocks(pid, signal));
            throughout(ms(100), "it waits", || !call.is_over());
            call.signal(signal);
            let sent = Instant::now();
            call.wait().dies_by(signal).prints_nothing().says_nothing();
            assert!(sent.elapsed() < AT_ONCE, "{signal:?} {words:?}");
        }
    }
    backup.execute_batch("commit").expect("it was begun");
    assert_did_not_run(&sandbox);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_database_that_is_locked_for_twice_the_time_to_live_does_not_end_the_job() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.tenure().args(["run", "--ttl", "1s", "A"]).hold();
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody writes for long");
    let mut rival = sandbox
        .tenure()
        .args(["run", "A", "--", "touch", "ran"])
        .start();
    throughout(ms(2500), "the job goes on and no rival enters", || {
        !holder.is_over() && !rival.is_over() && !sandbox.path("ran").exists()
    });
    backup.execute_batch("commit").expect("it was begun");
    rival.wait().is_busy("A");
    assert_did_not_run(&sandbox);
    assert!(sandbox.is_busy("A"));
    let outcome = holder.end();
    outcome.exits(0).prints("ready\n");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_job_that_ends_while_the_database_is_locked_frees_its_lock() {
    let sandbox = Sandbox::new();
    let mut holder = sandbox.tenure().args(["run", "--ttl", "1h", "A"]).hold();
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody writes for long");
    holder.stdin = None;
    throughout(ms(500), "the release waits", || !holder.is_over());
    backup.execute_batch("commit").expect("it was begun");
    holder.wait().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_release_that_cannot_be_written_frees_the_lock_all_the_same() {
    let sandbox = Sandbox::new();
    // The daemon has inherited what proves that the job is alive.
    let script = "echo ready; read x; sleep 61 & exit 3";
    let mut holder = sandbox
        .tenure()
        .args(["run", "--ttl", "1h", "A", "--", "sh", "-c", script])
        .start_ready();
    let backup = sandbox.connect();
    backup
        .execute_batch("begin immediate")
        .expect("nobody writes for long");
    holder.stdin = None;
    holder
        .wait()
        .exits(3)
        .says_a_line()
        .took(ms(9000)..ms(30_000));
    assert!(sandbox.is_running(&["sleep", "61"]));
    backup.execute_batch("commit").expect("it was begun");
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_daemon_that_a_job_left_behind_does_not_keep_a_new_database_from_being_made() {
    let sandbox = Sandbox::new();
    let script = "sleep 61 & exit 0";
    let outcome = sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .run();
    outcome.exits(0);
    fs::remove_file(sandbox.db()).expect("it was made");
    attempt(&sandbox).exits(0).says_nothing().took(..ms(5000));
    assert!(sandbox.is_running(&["sleep", "61"]));
}

#[test]
fn a_reader_does_not_hold_up_anybody() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["B", "--ttl", "1h"]);
    let report = sandbox.connect();
    report.execute_batch("begin").expect("a transaction");
    let count = |connection: &Connection| {
        let sql = "select count(*) from sqlite_schema";
        connection
            .query_row(sql, [], |row| row.get::<_, i64>(0))
            .expect("a number")
    };
    count(&report);
    for_each(0..100, |n| {
        let call = sandbox
            .tenure()
            .args(["run", &format!("lock {n}"), "--", "true"]);
        call.run().exits(0).says_nothing();
    });
    report.execute_batch("commit").expect("it was begun");
}

#[test]
fn the_default_database_of_root_is_in_var_lib_whatever_the_environment_says() {
    let sandbox = Sandbox::new();
    let script = "mount -t tmpfs none /var/lib && umask 022 && tenure run A -- printenv TENURE_DB \
                  && stat -c '%a %n' /var/lib/tenure /var/lib/tenure/* && tenure status";
    let call = sandbox
        .sh(script)
        .without_env("TENURE_DB")
        .via(["unshare", "-m"]);
    let call = call
        .env("HOME", sandbox.dir())
        .env("XDG_STATE_HOME", sandbox.dir());
    let outcome = call.env("USER", "nobody").env("LOGNAME", "nobody").run();
    outcome
        .exits(0)
        .says_nothing()
        .prints_with("\n700 /var/lib/tenure\n");
    assert!(
        outcome.stdout.starts_with("/var/lib/tenure/tenure.db\n"),
        "{outcome:#?}"
    );
    for end in ["", "-guard", "-wal", "-shm"] {
        outcome.prints_with(&format!("\n600 /var/lib/tenure/tenure.db{end}\n"));
    }
    assert_eq!(
        outcome.stdout.matches("/var/lib/tenure/tenure.db").count(),
        6,
        "{outcome:#?}"
    );
    assert_eq!(names_in(&sandbox.dir()), Vec::<String>::new());
}

#[test]
fn the_default_database_of_a_user_is_in_the_home_of_the_password_database() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("ann")).expect("a fresh directory");
    chown(sandbox.path("ann"), Some(ANN), Some(ANN)).expect("tests run as root");
    let line = format!(
        "ann:x:{ANN}:{ANN}::{}:/bin/sh\n",
        sandbox.path("ann").display()
    );
    fs::write(
        sandbox.path("passwd"),
        format!("root:x:0:0::/root:/bin/sh\n{line}"),
    )
    .expect("ours");
    fs::create_dir(sandbox.path("elsewhere")).expect("a fresh directory");
    set_mode(sandbox.path("elsewhere"), 0o777);

    let script = "mount --bind passwd /etc/passwd && exec \"$@\"";
    let call = sandbox
        .tenure_as(ANN, "")
        .args(["run", "A", "--", "printenv", "TENURE_DB"]);
    let call = call
        .without_env("TENURE_DB")
        .via(["unshare", "-m", "sh", "-c", script, "sh"]);
    let elsewhere = sandbox.path("elsewhere");
    let outcome = call
        .env("HOME", &elsewhere)
        .env("XDG_STATE_HOME", &elsewhere)
        .run();
    let directory = sandbox.path("ann/.local/state/tenure");
    let database = directory.join("tenure.db");
    outcome
        .exits(0)
        .says_nothing()
        .prints(&format!("{}\n", database.display()));
    assert_eq!((mode(&directory), mode(&database)), (0o700, 0o600));
    assert_eq!(names_in(&elsewhere), Vec::<String>::new());
}

#[test]
fn a_user_without_a_home_is_told_to_name_a_database() {
    let sandbox = Sandbox::new();
    let call = sandbox
        .tenure_as(ANN, "")
        .args(["run", "A", "--", "touch", "ran"]);
    let outcome = call.without_env("TENURE_DB").run();
    outcome.is_store_error("*--db*");
    assert_did_not_run(&sandbox);
    // Debian's nobody has a home that is not there.
    let call = sandbox
        .tenure_as(65_534, "")
        .args(["run", "A", "--", "touch", "ran"]);
    call.without_env("TENURE_DB")
        .run()
        .is_store_error("cannot */nonexistent*");
}

#[test]
fn status_and_the_busy_message_name_the_file() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A"]);
    let name = sandbox.db().display().to_string();
    let call = |words: &[&str]| sandbox.tenure().db("./l.db").args(words).run();
    call(&["status"]).exits(0).prints_with(&name);
    let busy = call(&["acquire", "A"]);
    assert!(busy.is_busy("A").stderr.contains(&name), "{busy:#?}");
}

#[test]
fn status_of_a_database_that_is_not_there_makes_none() {
    let sandbox = Sandbox::new();
    let outcome = sandbox.tenure().arg("status").run();
    assert!([Some(0), Some(69)].contains(&outcome.code), "{outcome:#?}");
    assert_eq!(names_in(&sandbox.dir()), Vec::<String>::new());
}

#[test]
fn a_symbolic_link_leads_to_the_same_locks() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("real")).expect("a fresh directory");
    fs::create_dir(sandbox.path("links")).expect("a fresh directory");
    symlink("../real/l.db", sandbox.path("links/file.db")).expect("a fresh directory");
    symlink("../real", sandbox.path("links/dir")).expect("a fresh directory");
    let paths = [
        "links/file.db",
        "links/dir/l.db",
        "real/l.db",
        "real/../links/dir/../real/./l.db",
    ];
    for path in paths {
        let holder = sandbox.tenure().db(path).args(["run", "A"]).hold();
        for path in paths {
            sandbox
                .tenure()
                .db(path)
                .args(["acquire", "A"])
                .run()
                .is_busy("A");
        }
        holder.end().exits(0);
    }
    assert_eq!(names_in(&sandbox.path("real")), FILES);
    let links = fs::read_dir(sandbox.path("links"))
        .expect("it is there")
        .count();
    assert_eq!(
        links, 2,
        "side files are beside the file, not beside its link"
    );
}

#[test]
fn a_file_that_is_mounted_without_its_directory_is_refused() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("host")).expect("a fresh directory");
    fs::create_dir(sandbox.path("container")).expect("a fresh directory");
    let host = sandbox.path("host/l.db");
    sandbox
        .tenure()
        .db(&host)
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    File::create(sandbox.path("container/l.db")).expect("a place to mount on");
    let mount = "mount --bind host/l.db container/l.db && exec \"$@\"";
    let outside = contents(&sandbox.path("host"));
    for words in [
        &["run", "A", "--", "touch", "ran"][..],
        &["acquire", "A"],
        &["status"],
    ] {
        let call = sandbox.tenure().db("container/l.db").args(words);
        let outcome = call.via(["unshare", "-m", "sh", "-c", mount, "sh"]).run();
        outcome.is_store_error("cannot *container/l.db*mounted*directory*");
    }
    assert_did_not_run(&sandbox);
    assert_eq!(names_in(&sandbox.path("container")), ["l.db"]);
    assert!(
        outside == contents(&sandbox.path("host")),
        "the file was changed"
    );
}

#[test]
fn a_user_who_may_only_read_sees_who_holds_what_and_changes_nothing() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    for name in FILES {
        set_mode(sandbox.path(name), 0o644);
    }
    let before = contents(&sandbox.dir());
    let outcome = sandbox.tenure_as(BOB, "").args(["status", "--json"]).run();
    assert_eq!(outcome.exits(0).says_nothing().json().len(), 1);
    for words in [
        &["run", "B", "--", "touch", "ran"][..],
        &["acquire", "B"],
        &["release", "--force", "A"],
    ] {
        sandbox
            .tenure_as(BOB, "")
            .args(words)
            .run()
            .is_store_error("cannot *");
    }
    assert_did_not_run(&sandbox);
    assert_eq!(
        before.keys().collect::<Vec<_>>(),
        contents(&sandbox.dir()).keys().collect::<Vec<_>>()
    );
    assert!(
        before["l.db"] == contents(&sandbox.dir())["l.db"],
        "it was changed"
    );
    sandbox
        .tenure()
        .args(["run", "B", "--", "true"])
        .run()
        .exits(0);
    assert!(sandbox.is_busy("A"));
}

#[test]
fn a_reader_leaves_no_side_files_that_lock_the_owner_out() {
    // A directory in which everybody may make files, as /tmp is one.
    let sandbox = Sandbox::new();
    let owner = |words: &[&str]| sandbox.tenure_as(ANN, "").args(words).run();
    let reader = |words: &[&str]| sandbox.tenure_as(BOB, "").args(words).run();
    set_mode(sandbox.dir(), 0o1777);
    owner(&["run", "A", "--", "true"]).exits(0);
    for name in FILES {
        set_mode(sandbox.path(name), 0o644);
    }
    for missing in [
        &["l.db-shm"][..],
        &["l.db-wal", "l.db-shm"],
        &["l.db-guard"],
        &FILES[1..],
    ] {
        // As the last one to close it leaves it, or somebody who tidied up.
        let connection = sandbox.connect();
        let sql = "pragma wal_checkpoint(truncate)";
        connection
            .query_row(sql, [], |_| Ok(()))
            .expect("nobody else works on it");
        connection.close().expect("no statement is left");
        for name in missing {
            let _ = fs::remove_file(sandbox.path(name));
        }
        let outcome = reader(&["status"]);
        assert!([Some(0), Some(69)].contains(&outcome.code), "{outcome:#?}");
        reader(&["run", "A", "--", "true"]).is_store_error("cannot *");
        for name in names_in(&sandbox.dir()) {
            let uid = fs::metadata(sandbox.path(&name))
                .expect("it is there")
                .uid();
            assert_ne!(uid, BOB, "the reader has left {name}");
        }
        owner(&["run", "A", "--", "true"]).exits(0).says_nothing();
        owner(&["acquire", "--ttl", "1ms", "A"])
            .exits(0)
            .says_nothing();
    }
}

#[test]
fn a_user_who_may_not_read_is_told_so() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    for words in [
        &["run", "B", "--", "touch", "ran"][..],
        &["acquire", "B"],
        &["status"],
    ] {
        let outcome = sandbox.tenure_as(BOB, "").args(words).run();
        outcome.is_store_error(&format!(
            "cannot *{}*permission denied*",
            sandbox.db().display()
        ));
    }
    let call = sandbox
        .tenure_as(BOB, "")
        .args(["run", "B", "--", "touch", "ran"]);
    call.db(sandbox.path("new.db"))
        .run()
        .is_store_error("cannot *new.db*permission denied*");
    assert_did_not_run(&sandbox);
    assert_eq!(names_in(&sandbox.dir()), FILES);
}

#[test]
fn two_users_share_a_database_in_a_setgid_directory() {
    let sandbox = Sandbox::new();
    let setup = format!(
        "install -d -m 2770 -g {TEAM} shared && install -m 660 -g {TEAM} /dev/null shared/l.db"
    );
    sandbox.sh(&setup).run().exits(0);
    let team = TEAM.to_string();
    let user = |id| sandbox.tenure_as(id, &team).db(sandbox.path("shared/l.db"));
    for (first, second) in [(ANN, BOB), (BOB, ANN)] {
        let holder = user(first).args(["run", "--ttl", "1h", "A"]).hold();
        user(second)
            .args(["run", "A", "--", "touch", "ran"])
            .run()
            .is_busy("A");
        let outcome = user(second).args(["status", "--json"]).run();
        assert_eq!(outcome.exits(0).json().len(), 1);
        holder.end().exits(0).says_nothing();
        user(second)
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0)
            .says_nothing();
        // The guard made again by either is one for both.
        fs::remove_file(sandbox.path("shared/l.db-guard")).expect("it was made");
        user(second)
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0)
            .says_nothing();
        user(first)
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0)
            .says_nothing();
        let holder = user(second).args(["run", "--ttl", "1h", "A"]).hold();
        holder.kill();
        until(SOON, "the lock is free", || {
            user(first).args(["run", "A", "--", "true"]).run().code == Some(0)
        });
    }
    for name in FILES {
        let path = sandbox.path("shared").join(name);
        assert_eq!(mode(&path), 0o660, "{name}");
        assert_eq!(
            fs::metadata(&path).expect("it is there").gid(),
            TEAM,
            "{name}"
        );
    }
    let outsider = sandbox.tenure_as(ANN, "").db(sandbox.path("shared/l.db"));
    outsider
        .args(["run", "A", "--", "true"])
        .run()
        .is_store_error("cannot *permission denied*");
}

#[test]
fn two_users_may_come_first_at_once() {
    for _ in 0..8 {
        let sandbox = Sandbox::new();
        let setup = format!(
            "install -d -m 2770 -g {TEAM} shared && install -m 660 -g {TEAM} /dev/null shared/l.db"
        );
        sandbox.sh(&setup).run().exits(0);
        let team = TEAM.to_string();
        let openers: Vec<Running<'_>> = (0..24)
            .map(|n| {
                let call = sandbox.tenure_as(if n % 2 == 0 { ANN } else { BOB }, &team);
                call.db(sandbox.path("shared/l.db"))
                    .args(["acquire", &format!("lock {n}")])
                    .start()
            })
            .collect();
        for opener in openers {
            opener.wait().exits(0).says_nothing();
        }
    }
}

#[test]
fn a_guard_file_that_a_holder_makes_again_is_for_all_who_share_the_database() {
    let sandbox = Sandbox::new();
    let setup = format!(
        "install -d -m 2770 -g {TEAM} shared && install -m 660 -g {TEAM} /dev/null shared/l.db"
    );
    sandbox.sh(&setup).run().exits(0);
    let team = TEAM.to_string();
    let user = |id| {
        let call = sandbox.tenure_as(id, &team);
        call.db(sandbox.path("shared/l.db"))
    };
    let holder = user(ANN).args(["run", "A"]).hold();
    let guard = sandbox.path("shared/l.db-guard");
    fs::remove_file(&guard).expect("it was made");
    until(SOON, "the holder makes it again", || guard.exists());
    let rival = user(BOB).args(["run", "A", "--", "true"]).run();
    rival.is_busy("A");
    assert_eq!(mode(&guard), 0o660);
    holder.end().exits(0);
}

#[test]
fn a_reader_is_not_shown_what_was_long_ago() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    for name in FILES {
        set_mode(sandbox.path(name), 0o644);
    }
    // The log has the lease; without its index a reader cannot look there.
    fs::remove_file(sandbox.path("l.db-shm")).expect("it was made");
    let outcome = sandbox.tenure_as(BOB, "").args(["status", "--json"]).run();
    match outcome.code {
        Some(0) => assert_eq!(outcome.json().len(), 1, "{outcome:#?}"),
        _ => drop(outcome.exits(69).says_a_line()),
    }
}

#[test]
fn a_fuse_file_system_is_refused_unless_the_user_takes_it_upon_himself() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("below")).expect("a fresh directory");
    fs::create_dir(sandbox.path("fuse")).expect("a fresh directory");
    let script = "bindfs below fuse || exit 99; tenure run A -- touch ran; echo $?; ls below; \
                  export TENURE_ALLOW_NETWORK_FS=1; tenure run A -- tenure acquire A; echo $?; \
                  tenure acquire A --ttl 1h > token; tenure acquire A; echo $?; \
                  tenure run --ttl 7s --kill-after 500ms B -- sh -c 'kill -9 $PPID'; \
                  tenure acquire B; echo $?; \
                  tenure run --wait 20s --ttl 7s B -- sh -c 'sleep 2; echo in'; echo $?; \
                  tenure run --ttl 3s B -- touch ran; echo $?";
    let call = sandbox
        .sh(script)
        .env("TENURE_DB", sandbox.path("fuse/l.db"));
    let outcome = call.via(["unshare", "-m"]).run();
    // Killed, it is not proved dead: its lease runs out by time.
    // The time of one that waited is counted from its grant.
    outcome.exits(0).prints("69\n75\n75\n75\nin\n0\n64\n");
    let refusal = outcome.stderr.lines().next().expect("a message");
    assert!(
        refusal.starts_with("tenure: cannot ") && refusal.contains("FUSE"),
        "{outcome:#?}"
    );
    assert!(
        refusal.contains("TENURE_ALLOW_NETWORK_FS=1"),
        "{outcome:#?}"
    );
    assert_did_not_run(&sandbox);
}

#[test]
fn the_log_stays_small_over_many_runs() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["other", "--ttl", "1h"]);
    for_each(0..300, |n| {
        let call = sandbox
            .tenure()
            .args(["run", &format!("lock {n}"), "--", "true"]);
        call.run().exits(0).says_nothing();
    });
    let wal = fs::metadata(sandbox.path("l.db-wal")).map_or(0, |metadata| metadata.len());
    assert!(wal < 1_000_000, "the log has {wal} bytes");
    let database = fs::metadata(sandbox.db()).expect("it is there").len();
    assert!(database < 1_000_000, "the database has {database} bytes");
}

#[test]
fn the_log_stays_small_over_many_acquires() {
    let sandbox = Sandbox::new();
    for_each(0..100, |n| {
        let name = format!("lock {n}");
        let token = sandbox.acquire([&name]);
        sandbox
            .tenure()
            .args(["release", &name, "--token", &token])
            .run()
            .exits(0)
            .says_nothing();
    });
    let wal = fs::metadata(sandbox.path("l.db-wal")).map_or(0, |metadata| metadata.len());
    assert!(wal < 1_000_000, "the log has {wal} bytes");
}

#[test]
fn leases_that_ran_out_do_not_fill_the_database() {
    let sandbox = Sandbox::new();
    for_each(0..150, |n| {
        sandbox.acquire([&format!("lock {n}"), "--ttl", "1ms"]);
    });
    for _ in 0..20 {
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0);
    }
    let connection = sandbox.connect();
    let sql = "select count(*) from ticket";
    let tickets: i64 = connection
        .query_row(sql, [], |row| row.get(0))
        .expect("a table of tickets");
    assert!(
        tickets < 100,
        "{tickets} tickets are kept of 150 that are over"
    );
}

#[test]
fn a_full_disk_is_69_and_nothing_is_run() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("disk")).expect("a fresh directory");
    let script = "mount -t tmpfs -o size=256k none disk && cat /dev/zero > disk/fill 2> /dev/null; \
                  tenure run A -- touch ran; echo $?; ls disk; \
                  rm disk/fill; tenure run A -- echo in; echo $?";
    let call = sandbox
        .sh(script)
        .env("TENURE_DB", sandbox.path("disk/l.db"));
    let outcome = call.via(["unshare", "-m"]).run();
    outcome.says("cannot *disk/l.db*").exits(0);
    assert!(outcome.stdout.starts_with("69\n"), "{outcome:#?}");
    assert!(outcome.stdout.ends_with("in\n0\n"), "{outcome:#?}");
    assert!(
        !outcome.stdout.contains("l.db\n"),
        "a half-made database is left: {outcome:#?}"
    );
    assert_did_not_run(&sandbox);
}

#[test]
fn a_disk_that_fills_up_while_cmd_runs_keeps_and_then_frees_the_lock() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("disk")).expect("a fresh directory");
    // CMD outlives several renewals that cannot be written.
    let job = "cat /dev/zero > disk/fill 2> /dev/null; sleep 1.5; tenure acquire A; echo $?";
    let script = format!(
        "mount -t tmpfs -o size=512k none disk && tenure run --ttl 600ms A -- sh -c '{job}'; \
         echo $?; tenure acquire A --ttl 1h > /dev/null; echo $?; \
         rm disk/fill; tenure run --wait 5s A -- echo in"
    );
    let call = sandbox
        .sh(&script)
        .env("TENURE_DB", sandbox.path("disk/l.db"));
    let outcome = call.via(["unshare", "-m"]).run();
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    // A full store may refuse to answer; it never says yes.
    assert!(["75", "69"].contains(&lines[0]), "{outcome:#?}");
    assert_eq!(lines[1], "0", "the job ended by itself: {outcome:#?}");
    match lines[2] {
        // There was a page left to write the grant to.
        "0" => assert_eq!(lines.len(), 3, "{outcome:#?}"),
        _ => assert_eq!(lines[2..], ["69", "in"], "{outcome:#?}"),
    }
}

#[test]
fn a_read_only_file_system_is_69() {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("disk")).expect("a fresh directory");
    let script = "mount -t tmpfs none disk && tenure acquire B > token && mount -o remount,ro disk; \
                  tenure run A -- touch ran; echo $?; tenure status --json > status; echo $?";
    let call = sandbox
        .sh(script)
        .env("TENURE_DB", sandbox.path("disk/l.db"));
    let outcome = call.via(["unshare", "-m"]).run();
    assert!(outcome.stdout.starts_with("69\n"), "{outcome:#?}");
    outcome.prints("69\n0\n");
    assert_did_not_run(&sandbox);
}

#[test]
fn a_maker_that_was_killed_leaves_nothing_in_the_way() {
    let sandbox = Sandbox::new();
    for _ in 0..30 {
        let maker = sandbox
            .tenure()
            .args(["acquire", "A", "--ttl", "1ms"])
            .start();
        until(SOON, "it has begun", || sandbox.guard().exists());
        drop(maker);
        let outcome = sandbox
            .tenure()
            .args(["run", "--wait", "5s", "A", "--", "true"])
            .run();
        outcome.exits(0).says_nothing();
        assert_eq!(names_in(&sandbox.dir()), FILES);
        for name in FILES {
            fs::remove_file(sandbox.path(name)).expect("it was made");
        }
    }
}

#[test]
fn an_empty_file_whose_filler_was_killed_is_filled_by_the_next() {
    let sandbox = Sandbox::new();
    for round in 0..24 {
        File::create(sandbox.db()).expect("a fresh directory");
        let filler = sandbox.tenure().args(["acquire", "A"]).start();
        until(SOON, "it has begun", || {
            // In the middle of the work, and in the middle of the file.
            let is_filling = fs::metadata(sandbox.db()).is_ok_and(|metadata| metadata.len() > 0);
            is_filling || (round % 4 == 0 && names_in(&sandbox.dir()).len() > 2)
        });
        drop(filler);
        let outcome = sandbox.tenure().args(["run", "B", "--", "true"]).run();
        outcome.exits(0).says_nothing();
        for name in names_in(&sandbox.dir()) {
            fs::remove_file(sandbox.path(name)).expect("it was made");
        }
    }
}

#[test]
fn a_hole_in_the_file_is_not_taken_for_a_lock_that_is_free() {
    // One page of the tickets lost: what it said is not known, so nothing may be granted.
    let sandbox = Sandbox::new();
    sandbox.acquire(["A", "--ttl", "1h"]);
    let connection = sandbox.connect();
    let check = "pragma wal_checkpoint(truncate)";
    connection
        .query_row(check, [], |_| Ok(()))
        .expect("nobody else works on it");
    let sql = "select rootpage from sqlite_schema where name = 'ticket'";
    let page: u32 = connection
        .query_row(sql, [], |row| row.get(0))
        .expect("a table of tickets");
    connection.close().expect("no statement is left");
    let file = OpenOptions::new()
        .write(true)
        .open(sandbox.db())
        .expect("it is ours");
    file.write_all_at(&[0; 4096], u64::from(page - 1) * 4096)
        .expect("it is ours");
    attempt(&sandbox).is_store_error("cannot *");
    assert_did_not_run(&sandbox);
}

#[test]
fn a_url_names_a_server_and_a_store_that_there_is_not_is_64() {
    let sandbox = Sandbox::new();
    for (db, why) in [
        ("mysql://ann:secret@h/d", "mysql:// is no store*"),
        ("https://h/d", "https:// is no store*"),
        (
            "etcd:127.0.0.1:2379",
            "etcd: *slashes*etcd://HOST:PORT/*./etcd:NAME *",
        ),
        (
            "Postgres:ann:secret@h",
            "postgres: *slashes*postgres://HOST/*./postgres:NAME *",
        ),
        #[cfg(not(feature = "etcd"))]
        ("etcd://h/p", "*built without the feature etcd*"),
        #[cfg(not(feature = "postgres"))]
        (
            "postgres://ann:secret@h/d",
            "*built without the feature postgres*",
        ),
    ] {
        let call = sandbox.tenure().db(db);
        let outcome = call.args(["run", "A", "--", "touch", "ran"]).run();
        outcome.is_usage_error(why);
        assert!(!outcome.stderr.contains("secret"), "{outcome:#?}");
    }
    let call = sandbox.tenure().args(["status", "--db", "postgresql:ops"]);
    call.run().is_usage_error("postgresql: *slashes*");
    assert_did_not_run(&sandbox);
    // A file may have such a name.
    fs::create_dir_all(sandbox.path("etcd:/h")).expect("a fresh directory");
    let call = sandbox.tenure().db("./etcd://h/l.db");
    call.args(["run", "A", "--", "true"]).run().exits(0);
}
