//! What every test stands on: a fresh directory each, the real binary, processes that are known by
//! pid and gone when the test is, and waiting for facts instead of sleeping.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::Read;
use std::ops::RangeBounds;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

use rusqlite::Connection;
pub use rustix::process::Signal;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde_json::Value;
use tempfile::TempDir;

/// The program under test.
pub const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// A deadline for what should happen at once: long, because machines that run tests are busy.
pub const SOON: Duration = Duration::from_secs(20);

/// Only processes of one sandbox have this variable with its path, and by it their orphans are found.
const MARK: &str = "SANDBOX";

/// `Duration::from_millis`, short enough to stand in an assertion.
pub const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits until `is_so`, looking every 5 ms.
///
/// # Panics
/// When `deadline` passes first, saying `what` did not happen.
#[track_caller]
pub fn until(deadline: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(
            start.elapsed() < deadline,
            "waited {deadline:?} in vain until {what}"
        );
        std::thread::sleep(ms(5));
    }
}

/// Watches for all of `duration` that `is_so` stays true.
#[track_caller]
pub fn throughout(duration: Duration, what: &str, is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    assert!(
        stays(duration, is_so),
        "after {:?} it was no longer so that {what}",
        start.elapsed()
    );
}

/// Whether `is_so` stays true for all of `duration`, looking every 20 ms.
pub fn stays(duration: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    while start.elapsed() < duration {
        if !is_so() {
            return false;
        }
        std::thread::sleep(ms(20));
    }
    true
}

/// Calls `body` with each item, in a few threads at once, for most of a process's time is waiting.
pub fn for_each<T: Send>(
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    body: impl Fn(T) + Sync,
) {
    let items = Mutex::new(items.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(item) = {
                    let mut items = items.lock().expect("no iterator panics");
                    items.next()
                } {
                    body(item);
                }
            });
        }
    });
}

/// A fresh directory, and the processes that were started for it. Both are gone when it is dropped.
pub struct Sandbox {
    root: TempDir,
    outputs: AtomicU32,
    address: Option<PathBuf>,
    mount: Option<Mount>,
}

/// Keeps a file system mounted where nobody sees it who is not brought there.
struct Mount(Child);

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Sandbox {
    pub fn new() -> Self {
        let root = tempfile::Builder::new()
            .prefix("tenure-it-")
            .tempdir()
            .expect("a directory");
        for name in ["work", "output", "home"] {
            fs::create_dir(root.path().join(name)).expect("a fresh directory can be filled");
        }
        Self {
            root,
            outputs: AtomicU32::new(0),
            address: None,
            mount: None,
        }
    }

    /// With the locks at a server.
    #[allow(dead_code, reason = "some of the tests have files alone")]
    pub fn at(address: &str) -> Self {
        let mut sandbox = Self::new();
        sandbox.address = Some(address.into());
        sandbox
    }

    /// With the database on a file system that another kernel may share, as far as can be told, and a user who took that upon
    /// himself.
    #[allow(dead_code, reason = "some of the tests have other stores")]
    pub fn on_a_shared_file_system() -> Self {
        let mut sandbox = Self::new();
        for name in ["below", "fuse"] {
            fs::create_dir(sandbox.root.path().join(name)).expect("a fresh directory");
        }
        // In a namespace that is gone with its last process, and the mount with it.
        let script = "bindfs ../below ../fuse && echo ready && read x";
        let mut keeper = Command::new("unshare");
        keeper.args(["-m", "sh", "-c", script]);
        keeper
            .current_dir(sandbox.dir())
            .env(MARK, sandbox.root.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut mount = Mount(keeper.spawn().expect("unshare is installed"));
        let mut ready = [0; 6];
        let output = mount.0.stdout.as_mut().expect("a pipe");
        output.read_exact(&mut ready).expect("bindfs can mount");
        sandbox.address = Some(sandbox.root.path().join("fuse/l.db"));
        sandbox.mount = Some(mount);
        sandbox
    }

    /// The directory of the database; nothing else is in it unless the test puts it there.
    pub fn dir(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// A path in [`Self::dir`].
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir().join(name)
    }

    /// Leaves nothing in [`Self::dir`].
    #[allow(dead_code, reason = "some of the tests lay files themselves")]
    pub fn clear(&self) {
        for entry in fs::read_dir(self.dir()).expect("our own directory") {
            let path = entry.expect("our own directory").path();
            let removed = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
            removed.expect("our own");
        }
    }

    /// The database that [`Self::tenure`] passes in `TENURE_DB`.
    pub fn db(&self) -> PathBuf {
        let path = || self.path("l.db");
        self.address.clone().unwrap_or_else(path)
    }

    /// The guard file beside it.
    pub fn guard(&self) -> PathBuf {
        self.path("l.db-guard")
    }

    /// `tenure`, with this sandbox's database.
    pub fn tenure(&self) -> Call<'_> {
        self.with_database(self.program(TENURE))
    }

    /// Where the database is to be seen.
    fn with_database<'a>(&self, call: Call<'a>) -> Call<'a> {
        let call = call.env("TENURE_DB", self.db());
        let Some(mount) = &self.mount else {
            return call;
        };
        let pid = mount.0.id().to_string();
        call.via(["nsenter", "-t", &pid, "-m", "-w", "--"])
            .env("TENURE_ALLOW_NETWORK_FS", "1")
    }

    /// Any other program, with the environment that tests give (`tenure` is on its PATH), and no database.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Call<'_> {
        Call {
            sandbox: self,
            words: vec![program.as_ref().to_owned()],
            environment: vec![
                (MARK.into(), self.root.path().into()),
                ("PATH".into(), search_path()),
                ("HOME".into(), self.root.path().join("home").into()),
                ("LC_ALL".into(), "C.UTF-8".into()),
            ],
            directory: self.dir(),
            stdin: Stdio::null(),
            stdout: None,
            before: Box::new(|_| {}),
        }
    }

    /// `sh -c script`, with this sandbox's database.
    pub fn sh(&self, script: &str) -> Call<'_> {
        self.with_database(self.program("sh").args(["-c", script]))
    }

    /// A live `tenure run NAME` whose command has said `ready`, and waits for its stdin to end.
    #[track_caller]
    pub fn holder(&self, name: &str) -> Running<'_> {
        self.tenure().args(["run", name]).hold()
    }

    /// `tenure acquire WORDS...`; the token.
    #[track_caller]
    pub fn acquire<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> String {
        let outcome = self.tenure().arg("acquire").args(words).run();
        outcome.exits(0).says_nothing();
        outcome.stdout.trim_end().to_owned()
    }

    /// Whether `tenure acquire NAME` is told that the lock is held by another. When it is not, the
    /// lock is taken for a moment and given back.
    #[track_caller]
    pub fn is_busy(&self, name: &str) -> bool {
        let outcome = self.tenure().args(["run", name, "--", "true"]).run();
        match outcome.code {
            Some(0) => false,
            Some(75) => true,
            _ => panic!("neither held nor free: {outcome:?}"),
        }
    }

    /// What `tenure status --json` prints, one value a line.
    #[track_caller]
    pub fn status(&self) -> Vec<Value> {
        let outcome = self.tenure().args(["status", "--json"]).run();
        outcome.exits(0).says_nothing();
        outcome.json()
    }

    /// A connection of the test's own, as a backup or an administrator has one.
    pub fn connect(&self) -> Connection {
        let connection = Connection::open(self.db()).expect("a database");
        connection
            .busy_timeout(SOON)
            .expect("a time-out can be set");
        connection
    }

    /// A script in [`Self::dir`] that can be executed.
    #[track_caller]
    pub fn write_program(&self, name: impl AsRef<Path>, text: &str) {
        let path = self.path(name);
        let source = path.with_extension("text");
        fs::write(&source, text).expect("a fresh file");
        // By another process: a file that this one writes to is open in whatever its other
        // threads start meanwhile, and cannot be executed.
        let install = self.program("install").args(["-m", "755"]);
        install.args([&source, &path]).run().exits(0);
        fs::remove_file(source).expect("our own");
    }

    /// The user and group `id`, who may come into [`Self::dir`], as [`Self::tenure`]'s caller. They
    /// have the program as a copy that they can reach, wherever it was built.
    pub fn tenure_as(&self, id: u32, groups: &str) -> Call<'_> {
        let copy = self.root.path().join("tenure");
        if !copy.exists() {
            self.allow_entry();
            // By another process, as in `write_program`.
            self.program("cp")
                .args([Path::new(TENURE), &copy])
                .run()
                .exits(0);
        }
        let id_text = id.to_string();
        self.program(copy).env("TENURE_DB", self.db()).via([
            "setpriv",
            "--reuid",
            &id_text,
            "--regid",
            &id_text,
            if groups.is_empty() {
                "--clear-groups"
            } else {
                "--groups"
            },
            if groups.is_empty() { "--" } else { groups },
        ])
    }

    /// Lets other users come into [`Self::dir`], as far as its own mode allows.
    pub fn allow_entry(&self) {
        fs::set_permissions(self.root.path(), Permissions::from_mode(0o711)).expect("our own");
    }

    /// The fencing number that a `run` of this lock is given.
    #[track_caller]
    pub fn fence(&self, name: &str) -> i64 {
        self.tenure().fence(name)
    }

    /// Every live process of this sandbox: those whose environment has its mark.
    pub fn processes(&self) -> Vec<i32> {
        let mark = [
            MARK.as_bytes(),
            b"=",
            self.root.path().as_os_str().as_bytes(),
            b"\0",
        ]
        .concat();
        let is_ours = |pid: &i32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|text| text.windows(mark.len()).any(|part| part == mark))
        };
        fs::read_dir("/proc")
            .expect("/proc is there")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(is_ours)
            .collect()
    }

    /// Whether a live process of this sandbox has exactly this command line.
    pub fn is_running(&self, words: &[&str]) -> bool {
        self.pids_of(words).next().is_some()
    }

    /// The live processes of this sandbox with exactly this command line.
    pub fn pids_of(&self, words: &[&str]) -> impl Iterator<Item = i32> {
        let line: Vec<u8> = words
            .iter()
            .flat_map(|word| [word.as_bytes(), b"\0"].concat())
            .collect();
        self.processes().into_iter().filter(move |pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|text| text == line)
        })
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Again and again, for a process may be forking while it is killed.
        for _ in 0..200 {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for pid in left {
                let Some(pid) = Pid::from_raw(pid) else {
                    continue;
                };
                let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
                    continue;
                };
                // Looked at once more through the handle's eyes: the number cannot be reused by now.
                if self.processes().contains(&pid.as_raw_nonzero().get()) {
                    let _ = pidfd_send_signal(handle, Signal::KILL);
                }
            }
            std::thread::sleep(ms(5));
        }
    }
}

/// What fakes the wall clock: it is wrong by `STEP` seconds for a program that is started with this as `LD_PRELOAD`.
pub fn wall_clock_shim() -> &'static Path {
    static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
        let shim = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("clock.so");
        let new = shim.with_extension(std::process::id().to_string());
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock.c");
        let mut cc = Command::new("cc");
        let cc = cc.args(["-shared", "-fPIC", "-o"]).arg(&new).arg(source);
        let status = cc.status().expect("SQLite was built with a C compiler");
        assert!(status.success());
        fs::rename(new, &shim).expect("it was made");
        shim
    });
    &SHIM
}

fn search_path() -> OsString {
    let mut path = OsString::from(
        Path::new(TENURE)
            .parent()
            .expect("the binary is in a directory"),
    );
    path.push(":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    path
}

/// A command that is about to be started. Its stdin is empty unless the test says otherwise.
pub struct Call<'a> {
    sandbox: &'a Sandbox,
    words: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    directory: PathBuf,
    stdin: Stdio,
    stdout: Option<Stdio>,
    before: Box<dyn FnOnce(&mut Command) + 'a>,
}

impl<'a> Call<'a> {
    /// The fencing number that this program gives a `run` of a lock.
    #[track_caller]
    pub fn fence(self, name: &str) -> i64 {
        let words = [
            "run",
            "--wait",
            "30s",
            name,
            "--",
            "printenv",
            "TENURE_FENCE",
        ];
        let outcome = self.args(words).run();
        outcome.exits(0).says_nothing();
        outcome.stdout.trim_end().parse().expect("a number")
    }

    /// With a wall clock that is wrong by so many seconds.
    pub fn with_wall_clock_off_by(self, seconds: i64) -> Self {
        self.env("LD_PRELOAD", wall_clock_shim())
            .env("STEP", seconds.to_string())
    }

    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Self {
        self.words.push(word.as_ref().to_owned());
        self
    }

    pub fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words
            .extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Puts words before the command: `via(["setpriv", "--reuid=nobody"])`.
    pub fn via<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.words
            .splice(0..0, words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    pub fn env(mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self = self.without_env(&key);
        self.environment
            .push((key.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    pub fn without_env(mut self, key: impl AsRef<OsStr>) -> Self {
        self.environment.retain(|(known, _)| known != key.as_ref());
        self
    }

    /// Another database than the sandbox's.
    pub fn db(self, path: impl AsRef<OsStr>) -> Self {
        self.env("TENURE_DB", path)
    }

    /// The working directory, which is [`Sandbox::dir`] otherwise.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = path.into();
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.stdin = stdin.into();
        self
    }

    /// Somewhere else than into the [`Outcome`].
    pub fn stdout(mut self, stdout: impl Into<Stdio>) -> Self {
        self.stdout = Some(stdout.into());
        self
    }

    /// What the builder has no word for, done to the command before it is started.
    pub fn with(mut self, change: impl FnOnce(&mut Command) + 'a) -> Self {
        self.before = Box::new(change);
        self
    }

    /// Starts it and waits for its end, not for the end of what it leaves behind.
    #[track_caller]
    pub fn run(self) -> Outcome {
        self.start().wait()
    }

    /// Starts it and goes on.
    #[track_caller]
    pub fn start(self) -> Running<'a> {
        // Files, not pipes: a daemon that keeps a pipe open must not keep the test waiting.
        let number = self.sandbox.outputs.fetch_add(1, Ordering::Relaxed);
        let output = |name| {
            self.sandbox
                .root
                .path()
                .join(format!("output/{number}.{name}"))
        };
        let (stdout, stderr) = (output("stdout"), output("stderr"));
        let stdout_file = File::create(&stdout).expect("a file for stdout");
        let stderr_file = File::create(&stderr).expect("a file for stderr");
        let mut command = Command::new(&self.words[0]);
        command
            .args(&self.words[1..])
            .env_clear()
            .envs(self.environment)
            .current_dir(self.directory)
            .stdin(self.stdin)
            .stdout(self.stdout.unwrap_or_else(|| stdout_file.into()))
            .stderr(stderr_file);
        (self.before)(&mut command);
        let started = Instant::now();
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{:?}: {error}", self.words));
        Running {
            stdin: child.stdin.take(),
            child,
            started,
            words: self.words,
            stdout,
            stderr,
            ended: Cell::new(None),
            sandbox: self.sandbox,
        }
    }

    /// Adds a command that says `ready` and then waits for its stdin to end, and waits for `ready`.
    #[track_caller]
    pub fn hold(self) -> Running<'a> {
        self.args(["--", "sh", "-c", "echo ready; read x; exit 0"])
            .start_ready()
    }

    /// Starts it with a pipe for stdout, of which the test has the other end.
    #[track_caller]
    pub fn start_piped(self) -> (Running<'a>, ChildStdout) {
        let mut running = self.stdout(Stdio::piped()).start();
        let output = running.child.stdout.take().expect("a pipe");
        (running, output)
    }

    /// Starts it with a pipe for stdin, and waits until it has printed `ready`.
    #[track_caller]
    pub fn start_ready(self) -> Running<'a> {
        let mut running = self.stdin(Stdio::piped()).start();
        running.await_line("ready");
        running
    }
}

/// A process that was started and, once waited for, has ended. Killed and reaped when dropped.
pub struct Running<'a> {
    child: Child,
    /// The end that the test writes to, when it asked for one.
    pub stdin: Option<ChildStdin>,
    started: Instant,
    words: Vec<OsString>,
    stdout: PathBuf,
    stderr: PathBuf,
    ended: Cell<Option<(ExitStatus, Duration)>>,
    sandbox: &'a Sandbox,
}

impl Running<'_> {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are small")
    }

    /// What it has printed so far.
    pub fn stdout(&self) -> String {
        text_of(&self.stdout)
    }

    /// What it has said on stderr so far.
    pub fn stderr(&self) -> String {
        text_of(&self.stderr)
    }

    /// Waits until it has printed this line.
    #[track_caller]
    pub fn await_line(&mut self, line: &str) {
        until(SOON, &format!("{:?} prints {line:?}", self.words), || {
            let is_there = self.stdout().lines().any(|printed| printed == line);
            assert!(
                is_there || !self.is_over(),
                "it ended before it printed {line:?}: {:?}",
                self.outcome()
            );
            is_there
        });
    }

    /// Whether it has ended.
    pub fn is_over(&mut self) -> bool {
        if self.ended.get().is_none()
            && let Some(status) = self
                .child
                .try_wait()
                .expect("our own child can be waited for")
        {
            self.ended.set(Some((status, self.started.elapsed())));
        }
        self.ended.get().is_some()
    }

    /// Sends a signal to this process alone.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        assert!(
            self.ended.get().is_none(),
            "{:?} is over and cannot be signalled",
            self.words
        );
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("our own child can be signalled");
    }

    /// `kill -9`, and waits for its end.
    pub fn kill(mut self) -> Outcome {
        self.signal(Signal::KILL);
        self.wait_here()
    }

    /// `kill -STOP`, and waits until it stands still; not in the middle of a transaction, where it
    /// would stop everybody.
    #[track_caller]
    pub fn stop(&self) {
        until(SOON, "it is stopped between two transactions", || {
            self.signal(Signal::STOP);
            until(SOON, "the process is stopped", || {
                state(self.pid()) == Some('T')
            });
            let connection = self.sandbox.connect();
            connection
                .busy_timeout(ms(200))
                .expect("a time-out can be set");
            let is_between = connection
                .execute_batch("begin immediate; rollback")
                .is_ok();
            if !is_between {
                self.resume();
            }
            is_between
        });
    }

    /// `kill -CONT`.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends its stdin, upon which a holder's command ends, and waits for its end.
    #[track_caller]
    pub fn end(mut self) -> Outcome {
        self.stdin = None;
        self.wait_here()
    }

    /// Waits for its end.
    #[track_caller]
    pub fn wait(mut self) -> Outcome {
        self.wait_here()
    }

    #[track_caller]
    fn wait_here(&mut self) -> Outcome {
        let deadline = Duration::from_secs(90);
        while !self.is_over() {
            assert!(
                self.started.elapsed() < deadline,
                "still running: {:?}",
                self.outcome()
            );
            std::thread::sleep(ms(1));
        }
        self.outcome()
    }

    fn outcome(&self) -> Outcome {
        let (status, took) = self.ended.get().unzip();
        Outcome {
            words: self.words.clone(),
            code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout: self.stdout(),
            stderr: self.stderr(),
            took: took.unwrap_or_else(|| self.started.elapsed()),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The state letter of a process, as in `ps`; `None` when there is none of this pid.
pub fn state(pid: i32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// Whether this process is there and is not a zombie.
pub fn is_alive(pid: i32) -> bool {
    state(pid).is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// How a command ended, and what it said.
#[derive(Clone, Debug)]
pub struct Outcome {
    #[expect(dead_code, reason = "a failed assertion shows it")]
    words: Vec<OsString>,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Outcome {
    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    #[track_caller]
    pub fn dies_by(&self, signal: Signal) -> &Self {
        assert_eq!(self.signal, Some(signal.as_raw()), "{self:#?}");
        self
    }

    /// stdout is exactly this.
    #[track_caller]
    pub fn prints(&self, text: &str) -> &Self {
        assert_eq!(self.stdout, text, "{self:#?}");
        self
    }

    /// stdout has this somewhere.
    #[track_caller]
    pub fn prints_with(&self, part: &str) -> &Self {
        assert!(
            self.stdout.contains(part),
            "no {part:?} on stdout: {self:#?}"
        );
        self
    }

    #[track_caller]
    pub fn prints_nothing(&self) -> &Self {
        self.prints("")
    }

    /// stderr is one line, `tenure: ` and then what the pattern says, in which `*` is any text.
    #[track_caller]
    pub fn says(&self, pattern: &str) -> &Self {
        self.says_a_line();
        let said = self.stderr.trim_end_matches('\n');
        let pattern = format!("tenure: {pattern}");
        assert!(
            matches(&pattern, said),
            "not {pattern:?} on stderr: {self:#?}"
        );
        self
    }

    /// stderr is one message as messages are: one line, `tenure: `, lower case, no full stop.
    #[track_caller]
    pub fn says_a_line(&self) -> &Self {
        let said = &self.stderr;
        assert!(
            said.ends_with('\n') && said.lines().count() == 1,
            "not one line on stderr: {self:#?}"
        );
        let rest = said
            .strip_prefix("tenure: ")
            .unwrap_or_else(|| panic!("no `tenure: `: {self:#?}"));
        let first = rest.chars().next().expect("a line end at least");
        assert!(!first.is_whitespace(), "an empty message: {self:#?}");
        // Unless it is the name of a lock, which tests like to call by one capital letter.
        let is_name = rest.chars().nth(1) == Some(' ');
        assert!(
            is_name || !first.is_uppercase(),
            "not in lower case: {self:#?}"
        );
        assert!(!said.trim_end().ends_with('.'), "a full stop: {self:#?}");
        assert!(
            !said.trim_end().contains(char::is_control),
            "a control character: {self:#?}"
        );
        self
    }

    /// Without the lines by which a wait that is not at a terminal is told.
    pub fn without_wait(mut self) -> Self {
        let is_of_wait = |line: &str| {
            line.starts_with("tenure: waiting, ")
                || (line.starts_with("tenure: holding ") && line.contains(" after a wait of "))
        };
        self.stderr = self
            .stderr
            .split_inclusive('\n')
            .filter(|line| !is_of_wait(line))
            .collect();
        self
    }

    #[track_caller]
    pub fn says_nothing(&self) -> &Self {
        assert_eq!(self.stderr, "", "{self:#?}");
        self
    }

    /// 64, with a line that fits the pattern and nothing on stdout.
    #[track_caller]
    pub fn is_usage_error(&self, pattern: &str) -> &Self {
        self.exits(64).prints_nothing().says(pattern)
    }

    /// 69, with a line that fits the pattern and nothing on stdout.
    #[track_caller]
    pub fn is_store_error(&self, pattern: &str) -> &Self {
        self.exits(69).prints_nothing().says(pattern)
    }

    /// 75, with a line that names the lock and nothing on stdout.
    #[track_caller]
    pub fn is_busy(&self, name: &str) -> &Self {
        self.exits(75)
            .prints_nothing()
            .says(&format!("{name} is held by *"))
    }

    /// 76, with a line that fits the pattern and nothing on stdout.
    #[track_caller]
    pub fn is_not_held(&self, pattern: &str) -> &Self {
        self.exits(76).prints_nothing().says(pattern)
    }

    /// From start to end it took a time within this range.
    #[track_caller]
    pub fn took(&self, range: impl RangeBounds<Duration> + std::fmt::Debug) -> &Self {
        assert!(
            range.contains(&self.took),
            "not within {range:?}: {self:#?}"
        );
        self
    }

    /// stdout as JSON, one value a line.
    #[track_caller]
    pub fn json(&self) -> Vec<Value> {
        let parse =
            |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"));
        self.stdout.lines().map(parse).collect()
    }
}

/// Whether `text` is what `pattern` says, in which `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text.strip_prefix(head).is_some_and(|tail| {
            tail.char_indices()
                .map(|(at, _)| at)
                .chain([tail.len()])
                .any(|at| matches(rest, &tail[at..]))
        }),
    }
}
