//! Databases that were damaged at random: whatever is in the file, there is an answer soon, with a status that the table of them
//! has, and no panic.

use std::fs;
use std::path::Path;

use crate::chance::Chance;
use crate::setting;
use crate::support::{Outcome, Sandbox, for_each, ms};

/// The pages of the databases that tenure makes, in bytes.
const PAGE: usize = 2048;

/// One that has all there can be in it: leases, one who waits, and a log.
fn whole(sandbox: &Sandbox) -> Vec<u8> {
    for name in ["A", "B", "C"] {
        sandbox.acquire([name, "--ttl", "1h", "--note", "of some use"]);
        sandbox
            .tenure()
            .args(["run", "-q", name, "--", "true"])
            .run()
            .exits(75);
    }
    for _ in 0..20 {
        let words = ["run", "-s", "D", "E", "--", "false"];
        sandbox.tenure().args(words).run().exits(1);
    }
    let connection = sandbox.connect();
    let write_back = "pragma wal_checkpoint(truncate)";
    connection
        .query_row(write_back, [], |_| Ok(()))
        .expect("nobody else is there");
    drop(connection);
    fs::read(sandbox.db()).expect("it was made")
}

fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let at = |chance: &mut Chance, below: usize| {
        usize::try_from(chance.between(0..below as u64)).expect("an index")
    };
    match chance.between(0..8) {
        0..3 => {
            for _ in 0..=chance.between(0..8) {
                let index = at(chance, bytes.len());
                bytes[index] ^= 1 << chance.between(0..8);
            }
        }
        // SQLite's own header, the one of the first page's tree, and the schema.
        3 => {
            let index = at(chance, 120);
            bytes[index] ^= 1 << chance.between(0..8);
        }
        4 => {
            let page = at(chance, bytes.len() / PAGE);
            let byte = u8::try_from(chance.between(0..256)).expect("a byte");
            bytes[page * PAGE..(page + 1) * PAGE].fill(byte);
        }
        5 => {
            let (one, other) = (
                at(chance, bytes.len() / PAGE),
                at(chance, bytes.len() / PAGE),
            );
            for index in 0..PAGE {
                bytes.swap(one * PAGE + index, other * PAGE + index);
            }
        }
        6 => {
            let length = at(chance, bytes.len());
            bytes.truncate(length);
        }
        _ => {
            let from = at(chance, bytes.len());
            let length = at(chance, (bytes.len() - from).min(300));
            for byte in &mut bytes[from..from + length] {
                *byte = u8::try_from(chance.between(0..256)).expect("a byte");
            }
        }
    }
}

fn assert_is_an_answer(sandbox: &Sandbox, what: u64, outcome: &Outcome) {
    let is_known = matches!(outcome.code, Some(0 | 64 | 69 | 75 | 76));
    let panicked = outcome.stderr.contains("panicked");
    let said_why = outcome.code == Some(0) || !outcome.stderr.is_empty();
    // A transaction waits for ten seconds at most.
    let is_soon = outcome.took < ms(30_000);
    if !is_known || panicked || !said_why || !is_soon {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("damaged-{what}.db"));
        let _ = fs::copy(sandbox.path("damaged.db"), &kept);
        panic!("file {what}, now {}: {outcome:?}", kept.display());
    }
}

#[test]
fn a_damaged_database_is_answered_for_and_never_a_panic() {
    let seed = setting("TENURE_LAB_SEED", 1);
    let files = setting("TENURE_LAB_FILES", 60);
    let original = whole(&Sandbox::new());
    for_each(0..files, |which| {
        let mut chance = Chance::new(seed, 1_000_000 + which);
        let mut bytes = original.clone();
        damage(&mut bytes, &mut chance);
        let sandbox = Sandbox::new();
        let db = sandbox.path("l.db");
        fs::write(sandbox.path("damaged.db"), &bytes).expect("a fresh directory");
        let calls: [&[&str]; 9] = [
            &["status"],
            &["status", "--json", "A"],
            &["log"],
            &["log", "--timeline"],
            &["run", "A", "--", "true"],
            &["run", "-w", "0.2s", "-s", "D", "E", "--", "true"],
            &["acquire", "--slots", "2", "F"],
            &["extend", "--token", "00112233445566778899aabbccddeeff"],
            &["release", "--force", "A"],
        ];
        fs::write(&db, &bytes).expect("a fresh directory");
        for words in calls {
            let outcome = sandbox.tenure().args(words).run();
            assert_is_an_answer(&sandbox, which, &outcome);
        }
    });
}
