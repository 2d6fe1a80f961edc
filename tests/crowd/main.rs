//! Many waiters at once: no errors, the order of every line, and nothing left of them.
//!
//! A program of its own, so that it runs alone: the others measure how soon something happens, and look at
//! `/proc/locks`, which holds up whoever locks anything, the longer the more locks there are.

#[path = "../it/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use support::{Running, Sandbox, for_each, until};

/// One crowd at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// How long all of them together may take for a step, on a busy machine.
const IN_TIME: Duration = Duration::from_secs(90);

/// Starts this many waiters on each of these locks while they are held, lets them through, and compares the order in
/// which they entered with that of the line.
fn assert_all_get_through_in_order(names: &[&str], each: usize) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sandbox = Sandbox::new();
    let holders: Vec<Running<'_>> = names.iter().map(|name| sandbox.holder(name)).collect();
    let waiters = Mutex::new(Vec::new());
    let wanted = (0..each).flat_map(|_| names.iter());
    for_each(wanted, |name| {
        let words = [
            "run",
            "-q",
            name,
            "--wait",
            "120s",
            "--",
            "printenv",
            "TENURE_FENCE",
        ];
        let waiter = sandbox.tenure().args(words).start();
        waiters.lock().expect("no thread panics").push(waiter);
    });
    let mut waiters = waiters.into_inner().expect("no thread panics");

    let reader = sandbox.connect();
    let count = "select count(*) from ticket where state = 'waiting'";
    let mut before = -1;
    until(IN_TIME, "all of them stand in the line", || {
        let waiting: isize = reader
            .query_row(count, [], |row| row.get(0))
            .expect("the database can be read");
        if waiting == before
            && let Some(over) = waiters
                .iter_mut()
                .find_map(|waiter| waiter.is_over().then(|| waiter.stderr()))
        {
            panic!("one has ended: {over}");
        }
        before = waiting;
        waiting.unsigned_abs() == waiters.len()
    });
    let mut lines: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    let line = "select name, pid from claim join ticket on ticket.token = claim.token where state = 'waiting' order by ticket.id";
    let mut statement = reader.prepare(line).expect("our own statement");
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    for row in rows.expect("the database can be read") {
        let (name, pid): (String, i32) = row.expect("it is of the columns' types");
        lines.entry(name).or_default().push(pid);
    }

    for holder in holders {
        holder.end().exits(0).says_nothing();
    }
    let mut fences: HashMap<i32, i64> = HashMap::new();
    for waiter in waiters {
        let pid = waiter.pid();
        let outcome = waiter.wait();
        let fence = outcome.exits(0).says_nothing().stdout.trim();
        fences.insert(pid, fence.parse().expect("a number"));
    }
    for (name, line) in lines {
        assert_eq!(line.len(), each, "{name}");
        let fences: Vec<i64> = line.iter().map(|pid| fences[pid]).collect();
        assert!(
            fences.is_sorted_by(|one, next| one < next),
            "{name}: {fences:?}"
        );
    }
    for table in ["ticket", "claim"] {
        let count = format!("select count(*) from {table}");
        let left: isize = reader
            .query_row(&count, [], |row| row.get(0))
            .expect("the database can be read");
        assert_eq!(left, 0, "in {table}");
    }
}

#[test]
fn a_thousand_waiters_on_one_lock_enter_in_order_and_leave_nothing_behind() {
    assert_all_get_through_in_order(&["A"], 1000);
}

#[test]
fn a_hundred_waiters_on_each_of_ten_locks_enter_in_order_and_leave_nothing_behind() {
    let names = ["A", "B", "C", "D", "E", "F", "G", "H", "I", "J"];
    assert_all_get_through_in_order(&names, 100);
}
