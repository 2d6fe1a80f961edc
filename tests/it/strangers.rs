//! Other users: who can keep whom from a database, and what they may lay beside one that is not theirs.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;

use crate::support::{Outcome, Running, SOON, Sandbox, for_each, ms, until};

/// Users that no machine has.
const ANN: u32 = 42_421;
const BOB: u32 = 42_422;

fn set_mode(path: impl AsRef<Path>, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// What is in a file; none of what is no file, which might be a FIFO without an end.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let is_file = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
    is_file.then(|| fs::read(path).expect("we are root"))
}

/// A program of Bob's, in the sandbox's directory, that says `ready` and then waits.
fn bobs_program<'a>(sandbox: &'a Sandbox, script: &str) -> Running<'a> {
    let script = format!(
        "import os, fcntl, struct, sys\nos.setgroups([]); os.setgid({BOB}); os.setuid({BOB}); os.umask(0)\n{script}"
    );
    let call = sandbox.program("python3").args(["-c", &script]);
    call.start_ready()
}

/// The same, and its end is waited for.
fn bob_does(sandbox: &Sandbox, script: &str) {
    let script = format!("{script}\nprint('ready', flush=True)");
    bobs_program(sandbox, &script).wait().exits(0);
}

/// A read lock, which asks for no more than that the file may be read.
fn lock(file: &str, command: u32, start: u64, length: u64) -> String {
    format!(
        "f = open('{file}', 'rb'); fcntl.fcntl(f, {command}, struct.pack('hhqqi4x', 0, 0, {start}, {length}, 0)); print('ready', flush=True); sys.stdin.readline()"
    )
}

/// Of fcntl(2): a lock of the process, and one of the open file.
const SETLK: u32 = 6;
const OFD_SETLK: u32 = 37;

#[test]
fn who_may_only_read_and_locks_a_file_is_named_with_what_to_do() {
    for_each(
        [
            // SQLite's byte for writers, and the one for those who recover the index; the turn; and all.
            ("l.db-shm", SETLK, 120, 1, "cannot open *: it is locked by"),
            (
                "l.db-shm",
                OFD_SETLK,
                122,
                1,
                "cannot open *: it is locked by",
            ),
            (
                "l.db-guard",
                OFD_SETLK,
                1,
                1,
                "cannot write *: it is locked by",
            ),
            ("l.db-guard", SETLK, 0, 0, "cannot lock *-guard:"),
        ],
        |(file, command, start, length, what)| {
            let sandbox = Sandbox::new();
            set_mode(sandbox.dir(), 0o755);
            sandbox.allow_entry();
            sandbox
                .tenure()
                .args(["run", "A", "--", "true"])
                .run()
                .exits(0);
            for name in ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"] {
                set_mode(sandbox.path(name), 0o644);
            }
            let bob = bobs_program(&sandbox, &lock(file, command, start, length));
            let outcome = sandbox
                .tenure()
                .args(["run", "A", "--", "touch", "ran"])
                .run();
            outcome.is_store_error(&format!(
                "{what} pid {} of {BOB} (*python3 *; mode 644 lets every user keep others from it by locks on its files (chmod o= *l.db *l.db-*)",
                bob.pid()
            ));
            assert!(!sandbox.path("ran").exists());
            bob.end().exits(0);
            sandbox
                .tenure()
                .args(["run", "A", "--", "true"])
                .run()
                .exits(0);
        },
    );
}

#[test]
fn nobody_but_its_user_can_lock_a_database_that_tenure_has_made() {
    let sandbox = Sandbox::new();
    sandbox.allow_entry();
    set_mode(sandbox.dir(), 0o1777);
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    for name in ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"] {
        let script = format!(
            "try: open('{name}', 'rb'); sys.exit('it could be opened')\nexcept PermissionError: pass"
        );
        bob_does(&sandbox, &script);
    }
    sandbox.tenure().arg("status").run().exits(0).says_nothing();
}

#[test]
fn status_warns_of_a_mode_by_which_every_user_can_meddle() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["A"]);
    for (mode, can) in [
        (0o644, "keep others from it by locks on its files"),
        (0o666, "take and release every lock in it"),
    ] {
        set_mode(sandbox.db(), mode);
        let status = |words: &[&str]| sandbox.tenure().arg("status").args(words).run();
        let warning = format!("*l.db: mode {mode:o} lets every user {can} (chmod o= *)");
        status(&[]).exits(0).says(&warning);
        status(&["--json"]).exits(0).says(&warning);
        status(&["-q"]).exits(0).says_nothing();
    }
    set_mode(sandbox.db(), 0o660);
    sandbox.tenure().arg("status").run().exits(0).says_nothing();
}

/// What Bob can lay there under a name, and what is said of it.
const LAID: [(&str, &str); 6] = [
    (
        "open(NAME, 'w').write('x' * 4096)",
        "is another user's (42422)",
    ),
    (
        "open(NAME, 'w').close(); os.chmod(NAME, 0o600)",
        "is another user's (42422)",
    ),
    ("os.symlink('target', NAME)", "is a symbolic link"),
    ("os.mkfifo(NAME)", "is not a regular file"),
    ("os.mkdir(NAME)", "is not a regular file"),
    (
        "open('other', 'w').close(); os.link('other', NAME)",
        "has another name (a hard link)",
    ),
];

#[test]
fn what_another_user_laid_beside_a_database_is_named_and_not_touched() {
    let cases = ["l.db-wal", "l.db-shm", "l.db-journal", "l.db-guard"];
    let cases = cases
        .into_iter()
        .flat_map(|name| LAID.map(|laid| (name, laid)));
    let cases: Vec<_> = cases.collect();
    for_each(cases, |(name, (script, why))| {
        let sandbox = Sandbox::new();
        sandbox.allow_entry();
        let ann = |words: &[&str]| sandbox.tenure_as(ANN, "").args(words).run();
        set_mode(sandbox.dir(), 0o1777);
        ann(&["run", "A", "--", "true"]).exits(0);
        let file = sandbox.path(name);
        fs::remove_file(&file).expect("it was made, or claimed");
        bob_does(&sandbox, &script.replace("NAME", &format!("'{name}'")));
        let database = fs::read(sandbox.db()).expect("it is there");
        let was = contents(&file);
        for words in [
            &["run", "A", "--", "touch", "ran"][..],
            &["acquire", "A"],
            &["release", "--force", "A"],
            &["status"],
        ] {
            let outcome = ann(words);
            outcome
                .is_store_error(&format!("cannot use *l.db: *{name} {why}*"))
                .took(..ms(15_000));
        }
        assert!(!sandbox.path("ran").exists() && !sandbox.path("target").exists());
        assert!(fs::read(sandbox.db()).expect("it is there") == database);
        assert_eq!(contents(&file), was);
        if file.is_dir() {
            fs::remove_dir(&file).expect("we are root");
        } else {
            fs::remove_file(&file).expect("we are root");
        }
        ann(&["run", "A", "--", "true"]).exits(0);
    });
}

#[test]
fn who_keeps_open_what_was_laid_before_the_database_reads_no_token() {
    for user in [0, ANN] {
        let sandbox = Sandbox::new();
        sandbox.allow_entry();
        set_mode(sandbox.dir(), 0o1777);
        let bob = bobs_program(
            &sandbox,
            "files = [open('l.db' + name, 'w+b') for name in ['-wal', '-shm', '-journal', '-guard']]
print('ready', flush=True)
sys.stdin.readline()
open('loot', 'wb').write(b''.join(os.pread(f.fileno(), 1 << 20, 0) for f in files))",
        );
        let acquire = || {
            let call = match user {
                0 => sandbox.tenure(),
                user => sandbox.tenure_as(user, ""),
            };
            call.args(["acquire", "A"]).run()
        };
        let outcome = acquire();
        // Another's guard is refused; where that is out of the way, root may remove what is left.
        outcome.is_store_error("cannot *l.db-guard is another user's *");
        fs::remove_file(sandbox.guard()).expect("we are root");
        let outcome = acquire();
        if user == 0 {
            assert_eq!(outcome.exits(0).stdout.trim().len(), 32);
        } else {
            outcome.is_store_error(
                "cannot make *l.db: cannot remove *l.db-journal: operation not permitted",
            );
        }
        bob.end().exits(0);
        let loot = fs::read(sandbox.path("loot")).expect("Bob has read");
        assert!(
            !loot.windows(6).any(|part| part == b"ticket"),
            "SQLite has used one"
        );
    }
}

/// All that Bob can make under the names of side files, again and again, while the database is made anew.
#[test]
fn no_moment_is_left_in_which_a_side_file_could_be_laid() {
    let sandbox = Sandbox::new();
    sandbox.allow_entry();
    set_mode(sandbox.dir(), 0o1777);
    let bob = bobs_program(
        &sandbox,
        "print('ready', flush=True)
import select, glob
kept = []
def look(files):
    for name, f in files:
        what = os.pread(f, 1 << 16, 0)
        assert not what, (name, len(what), what[:64])
while not select.select([sys.stdin], [], [], 0)[0]:
    for name in ['l.db-wal', 'l.db-shm', 'l.db-journal'] + [made + ending for made in glob.glob('l.db.making-*') for ending in ['', '/new.db-wal', '/new.db-journal', '-wal']]:
        try: kept.append((name, os.open(name, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666)))
        except OSError: continue
        try: os.unlink(name)
        except OSError: pass
        if len(kept) > 500:
            look(kept[:-100])
            for _, f in kept[:-100]: os.close(f)
            kept = kept[-100:]
look(kept)
open('tried', 'w').close()",
    );
    let mut codes: BTreeMap<Option<i32>, usize> = BTreeMap::new();
    for _ in 0..60 {
        let outcome = sandbox
            .tenure_as(ANN, "")
            .args(["acquire", "--ttl", "1h", "A"])
            .run();
        // What he laid at the wrong moment is named.
        assert!(matches!(outcome.code, Some(0 | 69)), "{outcome:#?}");
        *codes.entry(outcome.code).or_default() += 1;
        for ending in ["", "-wal", "-shm", "-journal", "-guard"] {
            let _ = fs::remove_file(sandbox.path(format!("l.db{ending}")));
        }
    }
    println!("outcomes beside a stranger who lays files: {codes:?}");
    let outcome = bob.end();
    outcome.exits(0).says_nothing();
    assert!(sandbox.path("tried").exists());
}

#[test]
fn a_database_that_another_user_laid_in_a_directory_for_all_is_given_no_token() {
    let sandbox = Sandbox::new();
    sandbox.allow_entry();
    set_mode(sandbox.dir(), 0o1777);
    sandbox
        .tenure_as(BOB, "")
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    for name in ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"] {
        set_mode(sandbox.path(name), 0o666);
    }
    let try_it = |call: crate::support::Call<'_>| -> Outcome {
        call.args(["run", "A", "--", "touch", "ran"]).run()
    };
    for outcome in [try_it(sandbox.tenure_as(ANN, "")), try_it(sandbox.tenure())] {
        outcome.is_store_error(
            "cannot use *l.db is another user's (42422), in a directory that everybody may write to",
        );
    }
    assert!(!sandbox.path("ran").exists());
    // To look at it gives nothing away.
    sandbox.tenure().arg("status").run().exits(0);
    try_it(sandbox.tenure_as(BOB, "")).exits(0);
}

#[test]
fn a_side_file_that_more_users_may_read_than_the_database_is_refused() {
    for name in ["l.db-wal", "l.db-shm", "l.db-journal"] {
        let sandbox = Sandbox::new();
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0);
        if name.ends_with("journal") {
            fs::write(sandbox.path(name), "").expect("our own directory");
        }
        for mode in [0o640, 0o604, 0o622, 0o666] {
            set_mode(sandbox.path(name), mode);
            for words in [&["run", "A", "--", "touch", "ran"][..], &["acquire", "A"]] {
                let outcome = sandbox.tenure().args(words).run();
                outcome.is_store_error(&format!(
                    "cannot use *l.db: *{name} has a wider mode ({mode:o}) than the database (600)"
                ));
            }
        }
        assert!(!sandbox.path("ran").exists());
        set_mode(sandbox.path(name), 0o600);
        sandbox
            .tenure()
            .args(["run", "A", "--", "true"])
            .run()
            .exits(0);
    }
}

#[test]
fn a_group_that_may_write_to_the_directory_alone_is_not_trusted_with_side_files() {
    let sandbox = Sandbox::new();
    sandbox.allow_entry();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    chown(sandbox.dir(), Some(0), Some(BOB)).expect("we are root");
    set_mode(sandbox.dir(), 0o770);
    let wal = sandbox.path("l.db-wal");
    fs::remove_file(&wal).expect("it was made");
    bob_does(&sandbox, "open('l.db-wal', 'w').close()");
    let run = || sandbox.tenure().args(["run", "A", "--", "true"]).run();
    run().is_store_error("cannot use *l.db: *l.db-wal is another user's (42422), who may write to the directory and not to the database");
    // Where the database is the group's as well, he may write to both.
    for name in ["l.db", "l.db-guard", "l.db-shm"] {
        chown(sandbox.path(name), Some(0), Some(BOB)).expect("we are root");
        set_mode(sandbox.path(name), 0o660);
    }
    set_mode(&wal, 0o660);
    run().exits(0);
    until(SOON, "it is free", || !sandbox.is_busy("A"));
}
