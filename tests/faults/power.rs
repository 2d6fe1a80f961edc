//! The power fails at every write of real commands, and comes back under another boot.
//!
//! What synchronous NORMAL may lose, and why that does not matter: `run` commits without a sync, so a power failure takes
//! back the newest of its commits. Each of them is a grant, a place in the line, a renewal, an end or an entry of the log.
//! The leases and waiters died with the machine, so that a lost grant frees what is free anyway, and a lost end leaves a
//! row whose guard bytes nobody holds: it is over. A fence that was given out and forgotten must not be given out again;
//! that is why the first write of a new boot moves the counter by 2^20, and why a commit that takes the counter past a
//! multiple of 2^20 is synced: no number that was lost is beyond the jump from what was not. The log may end a few entries
//! early. What outlives the machine is what `acquire` took: `acquire`, `extend` and `release` commit with FULL.

use std::collections::{BTreeSet, HashSet};
use std::fs::{self, Permissions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use crate::disk::{CHANGING, Change, Disk, Image, Left};
use crate::strace::{SystemCall, calls_in, under};
use crate::support::{Call, Outcome, Sandbox, wall_clock_shim};
use crate::{Dice, tries_all};

/// What is known outside of the database from some moment on.
#[derive(Clone, Debug)]
enum Fact {
    /// Somebody has this fence.
    Fence(i64),
    /// Somebody has the token of a lease of this lock.
    Held(String),
    /// Somebody has begun to give it back.
    Letting(String),
    Free(String),
}

#[derive(Debug)]
enum Step {
    Change(Change),
    Fact(Fact),
}

/// Commands that run one after the other, and all that they write.
struct Recording<'a> {
    sandbox: &'a Sandbox,
    start: Disk,
    steps: Vec<Step>,
    /// By how many seconds the wall clock has gone on, compared with the one that the power's return finds.
    wall: i64,
    boot: Option<u64>,
}

/// `tenure` in a boot of its own.
fn in_boot<'a>(call: Call<'a>, sandbox: &Sandbox, boot: u64) -> Call<'a> {
    let file = sandbox.path("../boot_id");
    let id = format!("{:08x}-0000-4000-8000-{boot:012x}\n", 0xb007_0000_u32);
    fs::write(&file, id).expect("our own directory");
    let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
    let file = file.to_str().expect("our own paths are text");
    call.via(["unshare", "-m", "sh", "-c", script, file])
}

impl<'a> Recording<'a> {
    fn new(sandbox: &'a Sandbox) -> Self {
        Self {
            sandbox,
            start: Disk::of(&sandbox.dir()),
            steps: Vec::new(),
            wall: 0,
            boot: None,
        }
    }

    /// Runs a command; `outside` are the facts once its token is out or its command is started, and `over` when it has
    /// ended.
    fn record(
        &mut self,
        words: &[&str],
        outside: impl FnOnce(&Outcome) -> Vec<Fact>,
        over: Option<Fact>,
    ) {
        let mut call = self.sandbox.tenure().args(words);
        if self.wall != 0 {
            call = call
                .env("LD_PRELOAD", wall_clock_shim())
                .env("STEP", self.wall.to_string());
        }
        let file = self.sandbox.path("../trace");
        call = under(call, &file, &["-y", "-xx", "-s", "99999", "-e", CHANGING]);
        if let Some(boot) = self.boot {
            call = in_boot(call, self.sandbox, boot);
        }
        let outcome = call.run();
        outcome.exits(0).says_nothing();
        let calls = calls_in(&file);
        let is_out = |call: &SystemCall| match call.name.as_str() {
            "execve" => call.pid != calls[0].pid,
            "write" => call.argument(0).starts_with("1<"),
            _ => false,
        };
        let out = calls.iter().position(is_out).unwrap_or(calls.len());
        let mut facts = Some(outside(&outcome));
        for (at, call) in calls.iter().enumerate() {
            if at == out {
                self.steps
                    .extend(facts.take().into_iter().flatten().map(Step::Fact));
            }
            self.steps
                .extend(Change::of(call, &self.sandbox.dir()).map(Step::Change));
        }
        self.steps
            .extend(facts.into_iter().flatten().chain(over).map(Step::Fact));
    }

    fn run(&mut self) {
        let words = ["run", "A", "--", "printenv", "TENURE_FENCE"];
        self.record(
            &words,
            |outcome| vec![Fact::Fence(number(&outcome.stdout))],
            None,
        );
    }

    fn acquire(&mut self, name: &str) -> String {
        let mut token = String::new();
        let words = ["acquire", "--json", "--ttl", "1h", name];
        let outside = |outcome: &Outcome| {
            let lease = &outcome.json()[0];
            token.push_str(lease["token"].as_str().expect("a token"));
            let fence = lease["fence"].as_i64().expect("a fence");
            vec![Fact::Fence(fence), Fact::Held(name.to_owned())]
        };
        self.record(&words, outside, None);
        token
    }

    fn extend(&mut self, token: &str) {
        self.record(&["extend", "--token", token], |_| Vec::new(), None);
    }

    fn release(&mut self, name: &str, token: &str) {
        self.steps.push(Step::Fact(Fact::Letting(name.to_owned())));
        let words = ["release", "--token", token];
        self.record(&words, |_| Vec::new(), Some(Fact::Free(name.to_owned())));
    }
}

fn number(text: &str) -> i64 {
    let text = text.trim();
    text.parse()
        .unwrap_or_else(|_| panic!("not a number: {text:?}"))
}

/// What must be true after a power failure.
#[derive(Clone, Debug, Default, Hash)]
struct Expected {
    fence: i64,
    held: BTreeSet<String>,
    free: BTreeSet<String>,
}

impl Expected {
    fn learn(&mut self, fact: &Fact) {
        match fact {
            Fact::Fence(fence) => self.fence = self.fence.max(*fence),
            Fact::Held(name) => {
                self.free.remove(name);
                self.held.insert(name.clone());
            }
            Fact::Letting(name) => {
                self.held.remove(name);
            }
            Fact::Free(name) => {
                self.free.insert(name.clone());
            }
        }
    }
}

/// Makes a file with the mode that tenure gives to all of its own.
fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("our own directory");
    fs::set_permissions(path, Permissions::from_mode(0o600)).expect("our own file");
}

/// Lays the files as the disk has them. The guard file keeps its inode, by which the rows know it.
fn lay(sandbox: &Sandbox, image: &Image, dice: &mut Dice) {
    let kept = sandbox.path("../guard");
    if !kept.exists() && sandbox.guard().exists() {
        fs::rename(sandbox.guard(), &kept).expect("our own file");
    }
    sandbox.clear();
    let mut laid: Vec<(usize, &str)> = Vec::new();
    for (name, file) in &image.names {
        let path = sandbox.path(name);
        if path == sandbox.guard() {
            fs::write(&kept, &image.contents[file]).expect("our own file");
            fs::rename(&kept, path).expect("our own file");
            continue;
        }
        // Some stand in directories of their own.
        let directory = path.parent().expect("it is in the sandbox");
        fs::create_dir_all(directory).expect("our own directory");
        if let Some((_, other)) = laid.iter().find(|(laid, _)| laid == file) {
            fs::hard_link(sandbox.path(other), path).expect("our own file");
        } else {
            write(&path, &image.contents[file]);
            laid.push((*file, name));
        }
    }
    // The index of the WAL: gone, or whatever was in its blocks.
    if dice.below(2) == 0 && sandbox.db().exists() {
        let noise: Vec<u8> = (0..4096).flat_map(|_| dice.roll().to_ne_bytes()).collect();
        write(&sandbox.path("l.db-shm"), &noise);
    }
}

/// How many states were looked at.
static STATES: AtomicUsize = AtomicUsize::new(0);

/// Cuts the power at every write, and looks what the next boot makes of it.
fn survive(what: &str, recording: &Recording<'_>) {
    let sandbox = recording.sandbox;
    let mut disk = recording.start.clone();
    let mut expected = Expected::default();
    let mut dice = Dice::new(5);
    let mut seen = HashSet::new();
    let (mut cuts, mut changes) = (0, 0);
    for (at, step) in recording.steps.iter().enumerate() {
        match step {
            Step::Change(change) => disk.apply(change),
            Step::Fact(fact) => expected.learn(fact),
        }
        changes += usize::from(matches!(step, Step::Change(_)));
        let mut ways = vec![Left::Nothing, Left::Everything, Left::Torn];
        ways.resize(if tries_all() { 19 } else { 4 }, Left::Some);
        if !tries_all() {
            // One of the four at each write.
            ways = vec![ways[at % 4]];
        }
        for left in ways {
            let image = disk.after_cut(left, &mut dice);
            let mut hasher = DefaultHasher::new();
            (&image, &expected).hash(&mut hasher);
            cuts += 1;
            if seen.insert(hasher.finish()) {
                lay(sandbox, &image, &mut dice);
                look(
                    what,
                    recording,
                    at,
                    left,
                    &expected,
                    0xc000 + seen.len() as u64,
                );
            }
        }
    }
    let all = STATES.fetch_add(seen.len(), Ordering::Relaxed) + seen.len();
    println!(
        "power: {what}: {changes} changes of files, {cuts} cuts, {} different states; {all} in all so far",
        seen.len()
    );
}

fn look(
    what: &str,
    recording: &Recording<'_>,
    at: usize,
    left: Left,
    expected: &Expected,
    boot: u64,
) {
    let sandbox = recording.sandbox;
    let files = fs::read_dir(sandbox.dir()).expect("our own directory");
    let files: Vec<_> = files
        .map(|entry| {
            let entry = entry.expect("our own directory");
            (
                entry.file_name(),
                entry.metadata().map_or(0, |about| about.len()),
            )
        })
        .collect();
    let script = "tenure run A -- printenv TENURE_FENCE && tenure status --json";
    let outcome = in_boot(sandbox.sh(script), sandbox, boot).run();
    let context = || {
        format!(
            "{what}, power cut after step {at} ({:?}), {left:?} left: {files:?}: {outcome:#?}",
            recording.steps[at]
        )
    };
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (Some(0), ""),
        "{}",
        context()
    );
    let (fence, rest) = outcome.stdout.split_once('\n').expect("a line");
    assert!(
        number(fence) > expected.fence,
        "not more than {}: {}",
        expected.fence,
        context()
    );
    let held: BTreeSet<String> = rest
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"))
        .filter(|lock| lock["state"] != "free")
        .map(|lock| lock["name"].as_str().expect("a name").to_owned())
        .collect();
    assert!(
        held.is_superset(&expected.held),
        "not all of {expected:?}: {}",
        context()
    );
    assert!(
        held.is_disjoint(&expected.free),
        "not all of {expected:?}: {}",
        context()
    );
    let connection = Connection::open(sandbox.db()).expect("a database");
    let verdict: String = connection
        .query_row("pragma integrity_check", [], |row| row.get(0))
        .expect("the database can be read");
    assert_eq!(verdict, "ok", "{}", context());
}

#[test]
fn a_power_failure_while_the_database_is_made() {
    let sandbox = Sandbox::new();
    let mut recording = Recording::new(&sandbox);
    recording.run();
    recording.acquire("B");
    recording.run();
    survive("a new database", &recording);
}

#[test]
fn a_power_failure_while_an_empty_file_is_filled() {
    let sandbox = Sandbox::new();
    fs::write(sandbox.db(), "").expect("a fresh directory");
    let mut recording = Recording::new(&sandbox);
    recording.acquire("B");
    recording.run();
    survive("an empty file", &recording);
}

#[test]
fn a_power_failure_while_a_deleted_database_is_made_anew() {
    let sandbox = Sandbox::new();
    // More than the new one has, and a log that was not written back.
    for number in 0..24 {
        sandbox.acquire([format!("C{number}")]);
    }
    fs::remove_file(sandbox.db()).expect("it is there");
    let mut recording = Recording::new(&sandbox);
    recording.run();
    recording.acquire("B");
    survive("a deleted database", &recording);
}

#[test]
fn a_power_failure_in_commits_and_checkpoints() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let mut recording = Recording::new(&sandbox);
    for round in 0..4 {
        recording.run();
        let name = format!("B{round}");
        let token = recording.acquire(&name);
        recording.run();
        recording.extend(&token);
        if round % 2 == 0 {
            recording.release(&name, &token);
        }
        recording.run();
        recording.run();
    }
    let cuts_the_log =
        |step: &Step| matches!(step, Step::Change(Change::Truncate(name, 0)) if name == "l.db-wal");
    assert!(
        recording.steps.iter().any(cuts_the_log),
        "there was no checkpoint"
    );
    survive("commits and checkpoints", &recording);
}

#[test]
fn a_power_failure_after_which_the_wall_clock_is_hours_late() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let mut recording = Recording::new(&sandbox);
    // As on a machine without a clock of its own, which comes back with the time of its last orderly shutdown.
    for _ in 0..6 {
        recording.wall += 3600;
        recording.run();
    }
    survive("a late wall clock", &recording);
}

#[test]
fn a_power_failure_in_the_first_write_of_a_boot_and_in_the_next() {
    let sandbox = Sandbox::new();
    sandbox
        .tenure()
        .args(["run", "A", "--", "true"])
        .run()
        .exits(0);
    let mut recording = Recording::new(&sandbox);
    recording.acquire("B");
    for boot in 1..4 {
        recording.boot = Some(boot);
        recording.run();
        recording.run();
    }
    survive("new boots", &recording);
}
