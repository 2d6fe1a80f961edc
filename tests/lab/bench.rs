//! The place where all of it happens: a file system of its own for the database, so that it can be full; the sections'
//! proofs and their history beside it; who is running, and what was done to whom when.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};

use crate::history::History;
use crate::support::{Running, Sandbox, TENURE};

/// Those that are held alone or shared, by one command or several.
pub const LOCKS: [&str; 2] = ["alpha", "beta"];

/// Only for one at a time and without others, so that it can be told whose turn it is: the time between two of its sections is measured.
pub const MEASURED: &str = "gamma";

/// With slots.
pub const POOL: &str = "pool";

/// For leases that nobody vouches for.
pub const BARE: &str = "delta";

pub const SLOTS: u64 = 3;

/// A group and a user, neither of them root.
pub const MEMBER: u32 = 54_321;

/// Room for as many entries of the log as there are ever kept, and soon filled.
const SIZE: &str = "size=96m";

/// What is done to those who contend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    KillSupervisor,
    KillCommand,
    Terminate,
    Stop,
    StopCommand,
    Force,
    HoldDatabase,
    HoldSnapshot,
    FillDisk,
}

/// From when to when something was done to all, or to one on whom others may depend. Nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    pub fault: Fault,
    pub from: i64,
    pub to: i64,
}

/// One who contends, while he can be harmed.
pub struct Contender {
    pub pid: i32,
    /// What may be done to it.
    pub bears: Vec<Fault>,
    pub suffered: Vec<Fault>,
}

pub struct Bench {
    pub sandbox: Sandbox,
    mount: PathBuf,
    pub contenders: Mutex<HashMap<u64, Contender>>,
    pub windows: Mutex<Vec<Window>>,
    pub done: Mutex<BTreeMap<Fault, u64>>,
    /// What each contender did, and when.
    pub deeds: Mutex<HashMap<u64, String>>,
    /// Leases that had run out, or all but, before they were used: nothing but time keeps them.
    pub late: AtomicU64,
    history: Mutex<History>,
    ids: AtomicU64,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Nanoseconds of the clock that the sections read too.
pub fn now() -> i64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn must(program: &str, words: &[&OsStr]) {
    let status = Command::new(program).args(words).status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "{program} {words:?} failed"
    );
}

impl Bench {
    /// With a database that the group's members share, as the README has it.
    pub fn new() -> Self {
        let sandbox = Sandbox::new();
        let mount = sandbox.dir();
        let words = ["-t", "tmpfs", "-o", SIZE, "lab"].map(OsStr::new);
        must("mount", &[&words[..], &[mount.as_os_str()]].concat());
        chown(&mount, None, Some(MEMBER)).expect("tests run as root");
        fs::set_permissions(&mount, Permissions::from_mode(0o2770)).expect("our own");
        File::create(sandbox.db()).expect("an empty file");
        fs::set_permissions(sandbox.db(), Permissions::from_mode(0o660)).expect("our own");
        let bench = Self {
            sandbox,
            mount,
            contenders: Mutex::default(),
            windows: Mutex::default(),
            done: Mutex::default(),
            deeds: Mutex::default(),
            late: AtomicU64::new(0),
            history: Mutex::default(),
            ids: AtomicU64::new(1),
        };
        let place = bench.place();
        fs::create_dir(&place).expect("a fresh directory");
        let root = place.parent().expect("it is in the sandbox");
        fs::set_permissions(root, Permissions::from_mode(0o711)).expect("our own");
        let open_to_all = |path: PathBuf| {
            File::create(&path).expect("a fresh directory");
            fs::set_permissions(&path, Permissions::from_mode(0o666)).expect("our own");
        };
        open_to_all(place.join("history"));
        for name in LOCKS.into_iter().chain([MEASURED, POOL, BARE]) {
            (0..SLOTS).for_each(|proof| open_to_all(place.join(format!("{name}.{proof}"))));
        }
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lab/section.c");
        let words = ["-O2", "-static", "-o"].map(OsStr::new);
        let section = place.join("section");
        must(
            "cc",
            &[&words[..], &[section.as_os_str(), source.as_os_str()]].concat(),
        );
        let own = bench.program();
        must("cp", &[OsStr::new(TENURE), own.as_os_str()]);
        // Its copy is made before several ask for it.
        bench
            .sandbox
            .tenure_as(MEMBER, "")
            .arg("--help")
            .run()
            .exits(0);
        bench
    }

    /// The program where every user can reach it.
    pub fn program(&self) -> PathBuf {
        self.place().join("tenure")
    }

    /// Where the sections prove themselves; not on the file system of the database.
    pub fn place(&self) -> PathBuf {
        self.mount.with_file_name("place")
    }

    /// What the sections have written by now.
    pub fn history(&self) -> MutexGuard<'_, History> {
        let mut history = lock(&self.history);
        history.read_on(&self.place().join("history"));
        history
    }

    pub fn new_id(&self) -> u64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets a process be harmed until it has ended, and tells what it suffered. It is not reaped before nobody can take its
    /// pid for its own any more.
    pub fn until_over(&self, id: u64, running: &mut Running<'_>, bears: Vec<Fault>) -> Vec<Fault> {
        let contender = Contender {
            pid: running.pid(),
            bears,
            suffered: Vec::new(),
        };
        lock(&self.contenders).insert(id, contender);
        loop {
            {
                let mut contenders = lock(&self.contenders);
                if running.is_over() {
                    let contender = contenders.remove(&id);
                    return contender.map(|it| it.suffered).unwrap_or_default();
                }
            }
            std::thread::sleep(crate::support::ms(4));
        }
    }

    /// Notes a step of a contender, for whoever asks how something came about.
    pub fn note(&self, id: u64, deed: &str) {
        let mut deeds = lock(&self.deeds);
        let text = deeds.entry(id).or_default();
        let _ = write!(text, "{} {deed}; ", now() / 1_000_000);
    }

    /// How long ago a lease was granted that has ended, in milliseconds, by the log.
    pub fn age_of(&self, fence: i64) -> i64 {
        let sql = "select cast(1000 * unixepoch('subsec') as integer) - granted_at from log where fence = ?1";
        let connection = self.sandbox.connect();
        connection
            .query_row(sql, [fence], |row| row.get(0))
            .unwrap_or(-1)
    }

    pub fn count(&self, fault: Fault) {
        *lock(&self.done).entry(fault).or_default() += 1;
    }

    /// Does something, and notes when it was done.
    pub fn during<T>(&self, fault: Fault, body: impl FnOnce() -> T) -> T {
        let begun = Window {
            fault,
            from: now(),
            to: i64::MAX,
        };
        let index = {
            let mut windows = lock(&self.windows);
            windows.push(begun);
            windows.len() - 1
        };
        let value = body();
        lock(&self.windows)[index].to = now();
        self.count(fault);
        value
    }

    /// Whether any of these was done meanwhile.
    pub fn has_seen(&self, faults: &[Fault], from: i64, to: i64) -> bool {
        let overlaps = |window: &Window| {
            faults.contains(&window.fault) && window.from <= to && window.to >= from
        };
        lock(&self.windows).iter().any(overlaps)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        // Lazily, for what still runs in it goes with the sandbox.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}
