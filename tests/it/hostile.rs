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
            let why =
                "it is another user's symbolic link in a directory that everybody may write to";
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
