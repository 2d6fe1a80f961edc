//! What somebody may lay in the way of others: a database into which he wrote by hand whatever its columns take, and
//! links in directories that are for all.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::{Connection, params};

use crate::support::{Outcome, Sandbox, for_each, ms};

/// What an integer may be.
const NUMBERS: [i64; 5] = [
    i64::MIN,
    0,
    1 << 32,
    // Beyond the year 9999, in milliseconds.
    300_000_000_000_000,
    i64::MAX,
];

/// What a text may be, as an expression of SQL.
const TEXTS: [&str; 6] = [
    "''",
    "char(27) || ']0;x' || char(7) || char(155) || '31m' || char(13, 10, 8, 0x202e)",
    "'a' || char(10) || 'b' || char(10) || 'A'",
    "'a' || char(0) || 'b'",
    "cast(x'ff80c0' as text)",
    "hex(zeroblob(500000))",
];

/// The columns of a table, with their types.
fn columns(connection: &Connection, table: &str) -> Vec<(String, String)> {
    let mut statement = connection
        .prepare("select name, type from pragma_table_info(?1)")
        .expect("our own statement");
    let columns = statement
        .query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("our own statement");
    columns.collect::<Result<_, _>>().expect("text")
}

fn assert_is_harmless(what: &str, outcome: &Outcome) {
    let code = outcome.code;
    assert!(
        matches!(code, Some(0 | 64 | 69 | 75 | 76)),
        "{what}: {outcome:#?}"
    );
    assert!(outcome.took < ms(15_000), "{what}: {outcome:#?}");
    for text in [&outcome.stdout, &outcome.stderr] {
        let is_harmful = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(is_harmful), "{what}: {outcome:#?}");
    }
    assert!(
        outcome
            .stderr
            .lines()
            .all(|line| line.starts_with("tenure: ")),
        "{what}: {outcome:#?}"
    );
}

#[test]
fn no_value_in_any_column_ends_a_command_by_a_panic_or_speaks_to_a_terminal() {
    let made = Sandbox::new();
    made.acquire(["--ttl", "1h", "--at-least", "1s", "--note", "n", "A"]);
    made.tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(75);
    made.tenure()
        .args(["run", "C", "--", "true"])
        .run()
        .exits(0);
    let connection = made.connect();
    connection
        .execute_batch("pragma wal_checkpoint(truncate)")
        .expect("nobody else has it open");
    let mut changes = Vec::new();
    for table in ["store", "ticket", "claim", "log"] {
        for (column, kind) in columns(&connection, table) {
            let values: Vec<String> = match kind.as_str() {
                "INTEGER" => NUMBERS.map(|number| number.to_string()).to_vec(),
                _ => TEXTS.map(String::from).to_vec(),
            };
            for value in values {
                changes.push(format!("update {table} set {column} = {value}"));
            }
        }
    }
    drop(connection);
    let tried = AtomicUsize::new(0);
    for_each(changes.chunks(16), |changes| {
        let sandbox = Sandbox::new();
        for change in changes {
            fs::copy(made.db(), sandbox.db()).expect("nobody has it open");
            let connection = sandbox.connect();
            connection
                .execute_batch("pragma ignore_check_constraints = on; pragma trusted_schema = off")
                .expect("our own statement");
            // What the schema's types refuse, nobody can write.
            if connection.execute(change, params![]).is_err() {
                continue;
            }
            drop(connection);
            for words in [
                &["status"][..],
                &["status", "--json"],
                &["log"],
                &["log", "--json"],
                &["log", "--timeline"],
                &["run", "A", "--", "true"],
                &["run", "--wait", "50ms", "A", "B", "--", "true"],
                &["acquire", "--slots", "2", "--wait", "50ms", "A"],
                &["release", "--force", "--now", "A"],
            ] {
                assert_is_harmless(change, &sandbox.tenure().args(words).run());
            }
            tried.fetch_add(1, Ordering::Relaxed);
            for ending in ["-wal", "-shm"] {
                let _ = fs::remove_file(sandbox.path(format!("l.db{ending}")));
            }
        }
    });
    println!(
        "hostile rows: {} of {} tried",
        tried.into_inner(),
        changes.len()
    );
}

const IS_ANOTHERS: &str = "is another user's (*), in a directory that everybody may write to";

#[test]
fn a_strangers_link_in_a_directory_for_all_is_not_followed() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("for-all");
    fs::create_dir(&directory).expect("a fresh directory");
    let mode = |mode| fs::set_permissions(&directory, Permissions::from_mode(mode)).expect("ours");
    let (target, link) = (sandbox.path("target"), directory.join("l.db"));
    symlink(&target, &link).expect("a fresh directory");
    let run = |path: &Path| {
        sandbox
            .tenure()
            .db(path)
            .args(["run", "A", "--", "true"])
            .run()
    };
    let second = directory.join("second");
    symlink(&link, &second).expect("a fresh directory");
    lchown(&link, Some(1000), None).expect("we are root");
    for is_there in [false, true] {
        if is_there {
            // Somebody's, to be filled.
            fs::write(&target, "").expect("our own directory");
        }
        mode(0o1777);
        for path in [&link, &second] {
            let why = format!("{} {IS_ANOTHERS}", link.display());
            run(path).is_store_error(&format!("cannot open {}: {why}", path.display()));
            assert_eq!(fs::read(&target).unwrap_or_default(), b"");
            assert_eq!(target.exists(), is_there);
        }
    }
    // Where nobody else could have laid it, it is as good as any.
    mode(0o755);
    run(&link).exits(0);
    // And so are the caller's own, and those of the directory's owner.
    mode(0o1777);
    lchown(&link, Some(0), None).expect("we are root");
    run(&second).exits(0);
    lchown(&link, Some(1000), None).expect("we are root");
    chown(&directory, Some(1000), None).expect("we are root");
    run(&link).exits(0);
}

#[test]
fn a_strangers_link_to_a_directory_is_not_followed_either() {
    let sandbox = Sandbox::new();
    let (for_all, target) = (sandbox.path("for-all"), sandbox.path("target"));
    for directory in [&for_all, &target] {
        fs::create_dir(directory).expect("a fresh directory");
    }
    let link = for_all.join("link");
    symlink("../target", &link).expect("a fresh directory");
    lchown(&link, Some(1000), None).expect("we are root");
    let run = || {
        let call = sandbox.tenure().db(link.join("l.db"));
        call.args(["run", "A", "--", "true"]).run()
    };
    for mode in [0o1777, 0o777, 0o1773] {
        fs::set_permissions(&for_all, Permissions::from_mode(mode)).expect("ours");
        run().is_store_error(&format!("cannot open *: {} {IS_ANOTHERS}", link.display()));
        assert_eq!(fs::read_dir(&target).expect("ours").count(), 0);
    }
    fs::set_permissions(&for_all, Permissions::from_mode(0o775)).expect("ours");
    run().exits(0);
    assert!(target.join("l.db").exists());
}

#[test]
fn a_strangers_files_in_a_directory_for_all_are_not_filled_and_give_no_database_their_mode() {
    for (name, mode) in [
        ("l.db-guard", 0o666),
        ("l.db-guard", 0o644),
        ("l.db", 0o666),
    ] {
        for directory in [0o1777, 0o777] {
            let sandbox = Sandbox::new();
            fs::set_permissions(sandbox.dir(), Permissions::from_mode(directory)).expect("ours");
            let file = sandbox.path(name);
            fs::write(&file, "").expect("our own directory");
            fs::set_permissions(&file, Permissions::from_mode(mode)).expect("ours");
            chown(&file, Some(1000), Some(1000)).expect("we are root");
            let run = || sandbox.tenure().args(["run", "A", "--", "true"]).run();
            run().is_store_error(&format!("cannot *: {} {IS_ANOTHERS}", file.display()));
            assert_eq!(fs::read(&file).expect("it is there"), b"");
            assert!(name == "l.db" || !sandbox.db().exists());
            // Where strangers may not make files, it was put there on purpose.
            fs::set_permissions(sandbox.dir(), Permissions::from_mode(0o755)).expect("ours");
            run().exits(0);
            let made = fs::metadata(sandbox.db()).expect("it was made");
            assert_eq!(made.permissions().mode() & 0o777, mode & 0o666);
        }
    }
}

#[test]
fn a_guard_file_that_a_stranger_made_anew_is_not_used() {
    let sandbox = Sandbox::new();
    let run = || sandbox.tenure().args(["run", "A", "--", "true"]).run();
    run().exits(0);
    fs::remove_file(sandbox.guard()).expect("it was made");
    fs::write(sandbox.guard(), "").expect("our own directory");
    chown(sandbox.guard(), Some(1000), Some(1000)).expect("we are root");
    fs::set_permissions(sandbox.dir(), Permissions::from_mode(0o1777)).expect("ours");
    run().is_store_error(&format!("cannot use *: *-guard {IS_ANOTHERS}"));
}

#[test]
fn a_program_that_locks_all_of_the_guard_file_is_told_of() {
    let sandbox = Sandbox::new();
    sandbox.tenure().args(["run", "A", "--", "true"]).run();
    // F_OFD_SETLK of a read lock on the whole file, as anybody can who may read it.
    let script = "import fcntl, struct; f = open('l.db-guard'); fcntl.fcntl(f, 37, struct.pack('hhqqi4x', 0, 0, 0, 0, 0)); print('ready', flush=True); input()";
    let call = sandbox.program("python3").args(["-c", script]);
    let reader = call.start_ready();
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    let why = &format!(
        "cannot lock *-guard: pid {} (*) has locked all of it",
        reader.pid()
    );
    outcome.is_store_error(why);
    reader.kill();
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    outcome.exits(0);
}

#[test]
fn a_side_file_is_no_database() {
    let sandbox = Sandbox::new();
    sandbox.tenure().args(["run", "A", "--", "true"]).run();
    for name in ["l.db-guard", "l.db-wal", "l.db-shm", "l.db-journal"] {
        for is_empty in [false, true] {
            let file = sandbox.path(name);
            if is_empty {
                fs::write(&file, "").expect("our own directory");
            }
            let before = fs::read(&file).ok();
            for words in [
                &["run", "A", "--", "touch", "ran"][..],
                &["acquire", "A"],
                &["extend", "--token", "00000000000000000000000000000000"],
                &["status"],
            ] {
                let outcome = sandbox.tenure().db(&file).args(words).run();
                outcome.is_store_error("cannot use *: it is a side file of *l.db");
                assert_eq!(fs::read(&file).ok(), before);
            }
        }
    }
    assert!(!sandbox.path("ran").exists());
    // By its name alone none is.
    let other = sandbox.path("night-guard");
    let call = sandbox.tenure().db(&other).args(["run", "A", "--", "true"]);
    call.run().exits(0);
}

#[test]
fn an_empty_file_is_filled_by_those_alone_who_take_a_lock() {
    let sandbox = Sandbox::new();
    let token = "00000000000000000000000000000000";
    for content in [&b""[..], b"tenure: unfinished"] {
        fs::write(sandbox.db(), content).expect("our own directory");
        for words in [
            &["extend", "--token", token][..],
            &["release", "--token", token],
            &["release", "--force", "A"],
        ] {
            let outcome = sandbox.tenure().args(words).run();
            outcome.is_store_error("cannot open *: there is no database yet *");
        }
        sandbox.tenure().arg("status").run().exits(0);
        assert_eq!(fs::read(sandbox.db()).expect("it is there"), content);
    }
    let run = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    run.exits(0);
}
