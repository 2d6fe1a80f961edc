//! Waiters: starting them so that their order is known, and what the database, the kernel and the clock say of them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::{Connection, OpenFlags};

use crate::support::{Call, Outcome, Running, SOON, Sandbox, ms, until};

/// How soon what wakes a waiter has let it in: far less than any tick that would find it in the end, and enough for a
/// machine that runs many tests.
pub const AT_ONCE: Duration = ms(1500);

/// How soon the head of the line sees what no kernel tells it; 50 ms where the machine is idle.
pub const PROMPTLY: i64 = 150;

/// CMD that prints when it started, in milliseconds since 1970.
pub const TELL_TIME: [&str; 3] = ["--", "date", "+%s%3N"];

impl Sandbox {
    /// Starts a command that has to wait, and waits until it stands in the line.
    #[track_caller]
    pub fn queue<'a>(&self, call: Call<'a>) -> Running<'a> {
        let last = self.rows::<i64>("select max(id) from ticket");
        let mut running = call.start();
        // Of an acquire, whose process is soon gone, the row has the caller's pid.
        let sql = format!(
            "select id from ticket where state = 'waiting' and id > {} and pid in ({}, {})",
            last.first().unwrap_or(&0),
            running.pid(),
            std::process::id()
        );
        until(SOON, "it stands in the line", || {
            let is_there = !self.rows::<i64>(&sql).is_empty();
            assert!(
                is_there || !running.is_over(),
                "it ended before it stood in the line: {:?} {:?}",
                running.stdout(),
                running.stderr()
            );
            is_there
        });
        running
    }

    /// A `tenure run` that stands in the line, and whose command says `ready` and waits for its stdin to end.
    #[track_caller]
    pub fn waiter(&self, words: &[&str]) -> Running<'_> {
        let call = self
            .tenure()
            .args(["run", "--wait", "60s"])
            .args(words)
            .args(["--", "sh", "-c", "echo ready; read x; exit 0"]);
        self.queue(call.stdin(Stdio::piped()))
    }

    /// The pids of all waiting tickets, in the order of the line, as the database has them: of the dead too.
    pub fn line(&self) -> Vec<i32> {
        self.rows("select pid from ticket where state = 'waiting' order by id")
    }

    /// A column of numbers; none when the database cannot be read.
    pub fn rows<T: rusqlite::types::FromSql>(&self, sql: &str) -> Vec<T> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let read = || {
            let connection = Connection::open_with_flags(self.db(), flags)?;
            connection.busy_timeout(SOON)?;
            let mut statement = connection.prepare(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            rows.collect::<rusqlite::Result<Vec<T>>>()
        };
        read().unwrap_or_default()
    }

    /// How many wait for this lock, as `status` has it.
    #[track_caller]
    pub fn waiting(&self, name: &str) -> u64 {
        let outcome = self.tenure().args(["status", "--json", name]).run();
        let rows = outcome.exits(0).json();
        rows[0]["waiting"].as_u64().expect("a number")
    }

    /// The bytes of the guard file on which somebody is blocked in the kernel.
    pub fn awaited_bytes(&self) -> Vec<String> {
        let inode = fs::metadata(self.guard()).map_or(0, |metadata| metadata.ino());
        let locks = fs::read_to_string("/proc/locks").expect("/proc/locks can be read");
        let file = format!(":{inode} ");
        locks
            .lines()
            .filter(|line| line.contains("->") && line.contains(&file))
            .filter_map(|line| line.split_whitespace().rev().nth(1).map(str::to_owned))
            .collect()
    }
}

impl Running<'_> {
    /// Whether the command of [`Sandbox::waiter`] has started.
    pub fn is_in(&self) -> bool {
        self.stdout().contains("ready")
    }

    /// Waits until it has started.
    #[track_caller]
    pub fn enters(&mut self) {
        self.await_line("ready");
    }

    /// Waits until it has started, which must be at once.
    #[track_caller]
    pub fn enters_at_once(&mut self) {
        let began = std::time::Instant::now();
        self.await_line("ready");
        let took = began.elapsed();
        assert!(took < AT_ONCE, "it took {took:?}");
    }
}

impl Outcome {
    /// What [`TELL_TIME`] printed.
    #[track_caller]
    pub fn told_time(&self) -> i64 {
        let text = self.exits(0).stdout.trim();
        text.parse().expect("milliseconds")
    }
}

/// Milliseconds since 1970.
pub fn now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is past 1970");
    i64::try_from(now.as_millis()).expect("it is not so long ago")
}

/// One delay of many is late because the machine was busy; the middle one is late because the program is.
#[track_caller]
pub fn assert_prompt(mut delays: Vec<i64>) {
    delays.sort_unstable();
    assert!(
        delays[delays.len() / 2] <= PROMPTLY,
        "milliseconds: {delays:?}"
    );
}

/// Processor time of a process so far, in ticks of 10 ms.
pub fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is alive");
    let fields = stat.rsplit(") ").next().expect("a name in parentheses");
    // utime and stime are the 14th and 15th field; the state, the third, comes first here.
    let numbers = fields.split(' ').skip(11).take(2);
    numbers
        .map(|number| number.parse::<u64>().expect("a number"))
        .sum()
}

/// How often the threads of a process have been run so far.
pub fn switches(pid: i32) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it is alive");
    tasks
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok())
        .flat_map(|status| {
            let counts = status
                .lines()
                .filter(|line| line.contains("ctxt_switches"))
                .filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok());
            counts.collect::<Vec<_>>()
        })
        .sum()
}
