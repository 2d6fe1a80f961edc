//! One child process and everything that descends from it: spawning, telling what became of it, signalling the
//! whole tree, and making sure that it does not outlive its supervisor. Knows no locks.

#![allow(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Instant;

use libc::{c_char, c_int, c_uint, c_void, pid_t};

use crate::clock::Moment;
use crate::processes::{self, Process, Sight};
use crate::signals::{Inherited, Signal};
use crate::watchdog::Watchdog;

/// Where descriptors that a job inherits are put: above what scripts and shells use (bash keeps its own at 255),
/// and below the usual limit of 1024.
const HIGH_DESCRIPTOR: RawFd = 1000;

/// F_SETSIG of Linux's fcntl(2), which libc does not name for every target.
const F_SETSIG: c_int = 10;

/// `PIDFD_SIGNAL_PROCESS_GROUP` of `pidfd_send_signal(2)`, since Linux 6.9.
const TO_GROUP: c_uint = 4;

/// Linux's `PID_MAX_LIMIT`: no process has a number above it.
const LAST_PID: pid_t = 4 * 1024 * 1024;

/// A search through the numbers of processes takes a tenth of the time at most.
const SEARCH_SHARE: u32 = 10;

/// What to start, and how.
pub struct Job<'a> {
    /// The program and its arguments, as they go to exec.
    pub command: &'a [OsString],
    /// Variables to set, and with None to unset, over the inherited ones.
    pub environment: Vec<(&'a str, Option<OsString>)>,
    /// A descriptor that the whole tree is to hold as long as it lives.
    pub inherit: Option<BorrowedFd<'a>>,
    /// The variable in `environment` by which a process of the job is known from others, where that has to be found out.
    pub mark: &'static str,
    pub inherited: &'a Inherited,
    /// There is no terminal to share: the job gets a process group of its own.
    pub own_group: bool,
}

/// Why a job did not start.
#[derive(Debug)]
pub enum SpawnError {
    NotFound(io::Error),
    CannotExecute(io::Error),
}

/// How the child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Exited(u8),
    Killed(Signal),
    /// The kernel knows no child of that number, and has not said what became of it.
    Unknown,
}

/// A change in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Stopped(Signal),
    Ended(Status),
}

pub struct Child {
    pid: pid_t,
    tree: Tree,
    /// How it ended. Its zombie is kept, so that its number, and that of its group, stay its own, until there is no other way
    /// to learn whether its group is empty.
    status: Option<Status>,
    is_reaped: bool,
    /// Names it, and its group, whatever becomes of the number. Opened when it is needed.
    handle: Option<OwnedFd>,
    /// Whom this process had as descendants before the job, where there were any.
    strangers: Option<Strangers>,
    /// What the last search has found, and when there may be another.
    searched: Option<(Instant, Vec<pid_t>)>,
    switch: Option<DeadMansSwitch>,
    watchdog: Option<Watchdog>,
}

/// What is stopped and waited for beside the child itself.
enum Tree {
    /// Every descendant. Where they are not adopted, orphans among them go to init.
    Descendants {
        are_adopted: bool,
    },
    Group(Group),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Unharmed,
    /// Everybody who was in it had KILL.
    Killed,
    /// It was empty once, and so it is for ever: its number may be another's.
    Gone,
}

/// Descendants of this process that are not its job's: a script had started them before it became this program. When one
/// of them ends, its own children become children of this process, as orphans of the job do.
struct Strangers {
    /// What was found out, by number, and with the time of the start where it could be seen.
    known: HashMap<pid_t, (Option<u64>, Kin)>,
    /// The variable that has another value in the job, and its values here and among them.
    mark: (&'static str, HashSet<Option<Vec<u8>>>),
    /// What the job inherits and nobody else has: an end of a pipe, and what /proc calls it.
    badge: OwnedFd,
    badge_name: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kin {
    Supervisor,
    Job,
    Stranger,
}

impl Strangers {
    fn now(mark: &'static str) -> io::Result<Self> {
        let (badge, _) = pipe()?;
        let badge_name = fs::read_link(format!("/proc/self/fd/{}", badge.as_raw_fd()));
        let sight = processes::look();
        let found = sight.below(own_pid(), Kin::Stranger, |_, kin| Some(kin));
        let mut known: HashMap<_, _> = found
            .into_iter()
            .map(|(process, kin)| (process.pid, (Some(process.started), kin)))
            .collect();
        if !sight.is_whole {
            for pid in living_children(1..=LAST_PID) {
                known.entry(pid).or_insert((None, Kin::Stranger));
            }
        }
        let own = std::env::var_os(mark).map(|value| value.as_bytes().to_vec());
        let theirs = known
            .keys()
            .filter_map(|pid| processes::variable(*pid, mark).ok());
        let values = theirs.chain([own]).collect();
        Ok(Self {
            known,
            mark: (mark, values),
            badge,
            badge_name: badge_name.ok(),
        })
    }

    /// Whose a child of this process is. One that was adopted before its ancestors could be seen is the job's, unless it is
    /// seen to have nothing of what the job was given: two holders of a lock are worse than a stop that goes too far.
    fn kin_of(&self, pid: pid_t, started: Option<u64>) -> Kin {
        match self.known.get(&pid) {
            Some((known, kin)) if known.is_none() || started.is_none() || *known == started => {
                return *kin;
            }
            _ => {}
        }
        let (name, values) = &self.mark;
        let is_unmarked = processes::variable(pid, name).is_ok_and(|value| values.contains(&value))
            && self
                .badge_name
                .as_ref()
                .is_some_and(|name| processes::has_open(pid, name).is_ok_and(|is_open| !is_open));
        if is_unmarked { Kin::Stranger } else { Kin::Job }
    }
}

/// Kills the job's process group when this process dies, whatever kills it.
///
/// The kernel tells the readers of a pipe when its last writer is gone, by a signal of the reader's choice to a
/// process group of his choice. The only writer is this process. PR_SET_PDEATHSIG does the same for the child
/// alone; this reaches those that it started.
struct DeadMansSwitch {
    reader: OwnedFd,
    _writer: OwnedFd,
}

impl DeadMansSwitch {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe()?;
        Ok(Self {
            reader,
            _writer: writer,
        })
    }

    /// In the child, once it leads its group: only async-signal-safe calls.
    fn arm(&self) -> bool {
        let fd = self.reader.as_raw_fd();
        // SAFETY: fcntl with integers on an open descriptor. A negative owner is a process group.
        unsafe {
            libc::fcntl(fd, libc::F_SETOWN, -libc::getpid()) == 0
                && libc::fcntl(fd, F_SETSIG, libc::SIGKILL) == 0
                && libc::fcntl(fd, libc::F_SETFL, libc::O_ASYNC) == 0
                && libc::fcntl(fd, libc::F_DUPFD, high_descriptor()) != -1
        }
    }
}

impl Drop for DeadMansSwitch {
    /// A normal end: what the job left behind on purpose may live.
    fn drop(&mut self) {
        // SAFETY: as in `arm`. The flag belongs to the open file, and so is off for every copy of the descriptor.
        unsafe { libc::fcntl(self.reader.as_raw_fd(), libc::F_SETFL, 0) };
    }
}

/// Whether there is a terminal that this process and its child have to share.
pub fn has_controlling_terminal() -> bool {
    fs::File::open("/dev/tty").is_ok()
}

/// Whether this process leads its session, and so is the one that a terminal's hang-up is told to.
pub fn leads_session() -> bool {
    // SAFETY: plain calls that cannot fail for oneself. A session that another pid namespace leads is 0 here.
    unsafe { libc::getsid(0) == libc::getpid() }
}

/// Whether the parent is a shell that controls jobs, which would see this process stop and can continue it: of the same
/// session, and of another process group.
pub fn is_a_shells_job() -> bool {
    // SAFETY: plain calls; for a parent that is gone or out of sight they fail or tell of another session.
    unsafe {
        let parent = libc::getppid();
        parent > 0
            && libc::getsid(parent) == libc::getsid(0)
            && libc::getpgid(parent) != libc::getpgid(0)
    }
}

/// Makes this process the parent of every orphan below it, so that the whole tree can be found.
/// False where the kernel cannot: orphans go to init and are not found.
fn adopt_orphans() -> bool {
    // SAFETY: plain integers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 }
}

fn own_pid() -> pid_t {
    // SAFETY: getpid cannot fail.
    unsafe { libc::getpid() }
}

impl Child {
    /// Starts a job. Must be called by the main thread: the kernel sends the parent-death signal when the thread
    /// that forked ends.
    ///
    /// # Errors
    /// The program was not found, or cannot be executed or started.
    pub fn spawn(job: &Job<'_>) -> Result<Self, SpawnError> {
        // A command of which nobody can learn that it has ended would never give its lock back.
        let has_children = has_children().map_err(|error| {
            let why = format!("cannot wait for its end: {}", error.kind());
            SpawnError::CannotExecute(io::Error::new(error.kind(), why))
        })?;
        let tree = if job.own_group {
            Tree::Group(Group::Unharmed)
        } else {
            Tree::Descendants {
                are_adopted: adopt_orphans(),
            }
        };
        // With a group of its own, the job is known by that.
        let strangers = (has_children && !job.own_group)
            .then(|| Strangers::now(job.mark))
            .transpose()
            .map_err(SpawnError::CannotExecute)?;
        // Everything that allocates happens before the fork.
        let to_c = |word: &OsStr| {
            CString::new(word.as_bytes())
                .map_err(|_| SpawnError::CannotExecute(io::ErrorKind::InvalidInput.into()))
        };
        let argv: Vec<CString> = job
            .command
            .iter()
            .map(|word| to_c(word))
            .collect::<Result<_, _>>()?;
        let envp: Vec<CString> = environment(&job.environment)
            .iter()
            .map(|entry| to_c(entry))
            .collect::<Result<_, _>>()?;
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings
                .iter()
                .map(|s| s.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        let (argv_pointers, envp_pointers) = (pointers(&argv), pointers(&envp));
        let switch = job
            .own_group
            .then(DeadMansSwitch::new)
            .transpose()
            .map_err(SpawnError::CannotExecute)?;
        let birth = Birth {
            job,
            parent: own_pid(),
            switch: switch.as_ref(),
            badge: strangers.as_ref().map(|strangers| strangers.badge.as_fd()),
            argv: &argv_pointers,
            envp: &envp_pointers,
            error: AtomicI32::new(0),
        };
        let pid = birth.begin().map_err(SpawnError::CannotExecute)?;
        match birth.error.into_inner() {
            0 => Ok(Self {
                pid,
                tree,
                status: None,
                is_reaped: false,
                handle: None,
                strangers,
                searched: None,
                switch,
                watchdog: None,
            }),
            error => {
                let _ = reap(pid);
                let error = io::Error::from_raw_os_error(error);
                Err(if error.kind() == io::ErrorKind::NotFound {
                    SpawnError::NotFound(error)
                } else {
                    SpawnError::CannotExecute(error)
                })
            }
        }
    }

    /// What has happened to the child since the last call, and reaps orphans that this process inherited.
    pub fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.note_changes(&mut changes).is_err() {
            self.take_changes(&mut changes);
        }
        changes
    }

    /// Leaves the child's zombie where it is.
    fn note_changes(&mut self, changes: &mut Vec<Change>) -> io::Result<()> {
        while self.status.is_none()
            && let Ok(Some((_, stopped))) = wait(libc::P_PID, self.pid, libc::WSTOPPED)
        {
            changes.push(stopped);
        }
        while self.status.is_none() || self.is_reaped {
            match wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT) {
                Ok(Some((pid, Change::Ended(status)))) if pid == self.pid && !self.is_reaped => {
                    self.status = Some(status);
                    changes.push(Change::Ended(status));
                }
                Ok(Some((pid, _))) => {
                    reap(pid)?;
                    self.forget(pid);
                }
                Ok(None) => break,
                Err(error) if self.is_reaped && error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// By the older call, where the kernel or a filter refuses waitid(2). It cannot look without taking.
    fn take_changes(&mut self, changes: &mut Vec<Change>) {
        self.open_handle();
        loop {
            let mut raw = 0;
            // SAFETY: room for a status.
            let pid = unsafe { libc::waitpid(-1, &raw mut raw, libc::WNOHANG | libc::WUNTRACED) };
            if pid == -1 {
                match io::Error::last_os_error().raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) if self.status.is_none() => {
                        self.status = Some(Status::Unknown);
                        self.is_reaped = true;
                        changes.push(Change::Ended(Status::Unknown));
                    }
                    // Whatever else it is, there will be another try.
                    _ => {}
                }
                return;
            }
            if pid == 0 {
                return;
            }
            if pid != self.pid || self.is_reaped {
                self.forget(pid);
            } else if libc::WIFSTOPPED(raw) {
                let signal = Signal::from_number(libc::WSTOPSIG(raw));
                changes.push(Change::Stopped(signal));
            } else {
                self.is_reaped = true;
                if !self.has_own_group() {
                    self.watchdog.iter().for_each(Watchdog::disarm);
                }
                if self.status.is_none() {
                    let status = if libc::WIFEXITED(raw) {
                        Status::Exited(u8::try_from(libc::WEXITSTATUS(raw)).unwrap_or(u8::MAX))
                    } else {
                        Status::Killed(Signal::from_number(libc::WTERMSIG(raw)))
                    };
                    self.status = Some(status);
                    changes.push(Change::Ended(status));
                }
            }
        }
    }

    /// A child was reaped: its number may be another's.
    fn forget(&mut self, pid: pid_t) {
        if let Some((_, found)) = &mut self.searched {
            found.retain(|known| *known != pid);
        }
        if let Some(strangers) = &mut self.strangers {
            strangers.known.remove(&pid);
        }
    }

    pub fn has_own_group(&self) -> bool {
        matches!(self.tree, Tree::Group(_))
    }

    fn adopts_orphans(&self) -> bool {
        matches!(self.tree, Tree::Descendants { are_adopted: true })
    }

    pub fn has_ended(&self) -> bool {
        self.status.is_some()
    }

    /// How it ended, if it has.
    pub fn status(&self) -> Option<Status> {
        self.status
    }

    /// From now on the job is killed at this moment, whatever has become of this process by then. Must be called by the main
    /// thread, as [`Child::spawn`].
    ///
    /// # Errors
    /// It is not, since no process can be started that would do it.
    pub fn set_deadline(&mut self, deadline: Moment) -> io::Result<()> {
        if self.is_reaped && !self.has_own_group() {
            // There is nobody of that number, or somebody else.
            return Ok(());
        }
        if let Some(watchdog) = &self.watchdog {
            watchdog.set(deadline);
        } else {
            let target = if self.has_own_group() {
                -self.pid
            } else {
                self.pid
            };
            self.watchdog = Some(Watchdog::start(target, deadline)?);
        }
        Ok(())
    }

    /// From now on nothing is killed, and whoever drops what is returned waits for the end of who would have done it.
    pub fn unwatched(&mut self) -> Option<Watchdog> {
        self.watchdog.take().inspect(Watchdog::disarm)
    }

    /// Whether it was killed at its deadline.
    pub fn has_overrun(&self) -> bool {
        self.watchdog.as_ref().is_some_and(Watchdog::has_fired)
    }

    /// Hands a signal on: to the group where the job has its own, else to the child alone, which is the one that
    /// whoever signalled this process meant.
    pub fn relay(&self, signal: Signal) {
        if self.has_own_group() {
            let _ = self.signal_group(signal.number());
        } else if !self.is_reaped {
            // SAFETY: plain integers. The number is the child's, since its zombie is not reaped.
            unsafe { libc::kill(self.pid, signal.number()) };
        }
    }

    /// With 0 it only asks whether the group has anybody, zombies included.
    fn signal_group(&self, signal: c_int) -> io::Result<()> {
        if matches!(self.tree, Tree::Group(Group::Gone)) {
            return Err(io::Error::from_raw_os_error(libc::ESRCH));
        }
        if !self.is_reaped || self.handle.is_none() {
            // SAFETY: plain integers. While the zombie or anybody of the group is there, the number is the group's.
            if unsafe { libc::kill(-self.pid, signal) } == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::ESRCH) || self.handle.is_none() {
                return Err(error);
            }
            // A filter may refuse the one call and know nothing of the other.
        }
        self.handle
            .as_ref()
            .map_or(Ok(()), |handle| signal_group_of(handle, signal))
    }

    /// While the number is the child's. Kept only where the kernel can signal the group by it.
    fn open_handle(&mut self) {
        if !self.has_own_group() || self.is_reaped || self.handle.is_some() {
            return;
        }
        // SAFETY: plain integers; what is returned is a new descriptor, and nobody else's.
        self.handle = unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, self.pid, 0);
            RawFd::try_from(fd)
                .ok()
                .filter(|fd| *fd >= 0)
                .map(|fd| OwnedFd::from_raw_fd(fd))
        }
        .filter(|handle| signal_group_of(handle, 0).is_ok());
    }

    /// Signals every process of the tree that can be found, and continues those that are stopped, which would not hear it.
    pub fn signal_tree(&mut self, signal: Signal) {
        if self.has_own_group() {
            // From here on they are reaped here: a zombie that init leaves for a while would keep the group.
            adopt_orphans();
            if self.signal_group(0).is_err() {
                self.open_handle();
            }
            self.relay(signal);
            self.relay(Signal::CONT);
            if signal == Signal::KILL && matches!(self.tree, Tree::Group(Group::Unharmed)) {
                self.tree = Tree::Group(Group::Killed);
            }
            return;
        }
        let mut told = HashSet::new();
        // One that is forked while we look is found by the next look.
        loop {
            let new: Vec<pid_t> = self
                .living()
                .pids
                .into_iter()
                .filter(|pid| told.insert(*pid))
                .collect();
            if new.is_empty() {
                return;
            }
            for pid in new {
                // SAFETY: plain integers; the process was a descendant a moment ago.
                unsafe {
                    libc::kill(pid, signal.number());
                    libc::kill(pid, libc::SIGCONT);
                }
            }
        }
    }

    /// Whether no process of the tree lives any more; zombies do not. None where that is unknown. To be asked when the child has
    /// ended.
    pub fn tree_is_gone(&mut self) -> Option<bool> {
        // Without a group, every process of the tree descends from this one, and is below a child of it that lives.
        if self.adopts_orphans() {
            match self.has_living_children() {
                Some(false) => return Some(true),
                Some(true) if self.strangers.is_none() => return Some(false),
                _ => {}
            }
        }
        let living = self.living();
        if !living.pids.is_empty() {
            return Some(false);
        }
        if living.are_all {
            return Some(true);
        }
        if self.has_own_group() {
            self.group_is_empty()
        } else {
            None
        }
    }

    /// What the kernel knows of the group. It counts zombies, the child's own among them, so that one has to go first: and with
    /// it goes what keeps the number from being reused, unless there is a descriptor. Without, nobody must have to be
    /// signalled any more, which one KILL sees to, for nobody of a group can fork away from it.
    fn group_is_empty(&mut self) -> Option<bool> {
        self.open_handle();
        if !self.is_reaped {
            if self.handle.is_none() && !matches!(self.tree, Tree::Group(Group::Killed)) {
                return None;
            }
            reap(self.pid).ok()?;
            self.is_reaped = true;
        }
        let is_gone = self
            .signal_group(0)
            .is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH));
        if is_gone {
            self.tree = Tree::Group(Group::Gone);
        }
        Some(is_gone)
    }

    /// Whether this process has a child that is no zombie.
    fn has_living_children(&self) -> Option<bool> {
        match wait(libc::P_ALL, 0, libc::WSTOPPED | libc::WNOWAIT) {
            Ok(_) => Some(true),
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => Some(false),
            Err(_) if !self.is_reaped => None,
            // All zombies were taken: the older call finds no others.
            // SAFETY: no status is asked for.
            Err(_) => match unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) } {
                -1 => (io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD))
                    .then_some(false),
                _ => Some(true),
            },
        }
    }

    /// Sees who belongs to the job while it can be seen by who descends from whom.
    pub fn observe(&mut self) {
        if self.strangers.is_some() {
            self.living();
        }
    }

    /// The living processes of the tree: the group where the job has its own, else every descendant.
    fn living(&mut self) -> Living {
        let sight = processes::look();
        if self.has_own_group() {
            let of_group = |process: &&Process| process.group == self.pid && process.lives;
            return Living {
                pids: sight
                    .processes
                    .iter()
                    .filter(of_group)
                    .map(|process| process.pid)
                    .collect(),
                are_all: sight.is_whole,
            };
        }
        let found = self.family(&sight);
        let of_job = |(process, kin): &&(&Process, Kin)| *kin == Kin::Job && process.lives;
        let mut living = Living {
            pids: found
                .iter()
                .filter(of_job)
                .map(|(process, _)| process.pid)
                .collect(),
            are_all: sight.is_whole && self.adopts_orphans(),
        };
        self.remember(&found, sight.is_whole);
        if !sight.is_whole {
            let unseen = self.unseen_children();
            living.are_all = unseen.is_some() && self.adopts_orphans();
            let own = (self.status.is_none()).then_some(self.pid);
            for pid in unseen.into_iter().flatten().chain(own) {
                if !living.pids.contains(&pid) {
                    living.pids.push(pid);
                }
            }
        }
        living
    }

    /// Every descendant of this process, and whose it is.
    fn family<'s>(&self, sight: &'s Sight) -> Vec<(&'s Process, Kin)> {
        let watchdog = self.watchdog.as_ref().map(Watchdog::pid);
        sight.below(own_pid(), Kin::Supervisor, |process, parent| {
            if parent != Kin::Supervisor {
                Some(parent)
            } else if Some(process.pid) == watchdog {
                None
            } else {
                Some(self.kin_of(process.pid, Some(process.started)))
            }
        })
    }

    /// Whose a child of this process is.
    fn kin_of(&self, pid: pid_t, started: Option<u64>) -> Kin {
        match &self.strangers {
            Some(strangers) if pid != self.pid || self.is_reaped => strangers.kin_of(pid, started),
            _ => Kin::Job,
        }
    }

    /// What they are now they stay, whoever becomes their parent.
    fn remember(&mut self, found: &[(&Process, Kin)], is_whole: bool) {
        let Some(strangers) = &mut self.strangers else {
            return;
        };
        if is_whole {
            strangers.known.clear();
        }
        strangers.known.extend(
            found
                .iter()
                .map(|(process, kin)| (process.pid, (Some(process.started), *kin))),
        );
        if is_whole && found.iter().all(|(_, kin)| *kin == Kin::Job) {
            self.strangers = None;
        }
    }

    /// The job's processes among the living children of this one, where /proc does not show them: the kernel says of any number
    /// whether it is a child's. None where that cannot be known, or only by another search so soon.
    fn unseen_children(&mut self) -> Option<Vec<pid_t>> {
        let start = Instant::now();
        if let Some((next, found)) = &self.searched
            && start < *next
        {
            let living: Vec<pid_t> = living_children(found.iter().copied()).collect();
            return (!living.is_empty()).then_some(living);
        }
        if self.has_living_children()? {
            // Numbers are given out in turn: most searches end where the job's have got to.
            let newest = newest_number();
            let mut found = if newest > self.pid {
                self.of_job(living_children(self.pid..=newest))
            } else {
                let from_first = living_children(1..=newest);
                self.of_job(living_children(self.pid..=LAST_PID).chain(from_first))
            };
            if found.is_empty() {
                found = self.of_job(living_children(1..=LAST_PID));
            }
            let next = Instant::now() + start.elapsed() * SEARCH_SHARE;
            self.searched = Some((next, found.clone()));
            return Some(found);
        }
        Some(Vec::new())
    }

    fn of_job(&self, children: impl Iterator<Item = pid_t>) -> Vec<pid_t> {
        children
            .filter(|pid| self.kin_of(*pid, None) == Kin::Job)
            .collect()
    }
}

/// Signals the group that a process leads or led, whatever has become of its number.
fn signal_group_of(handle: &OwnedFd, signal: c_int) -> io::Result<()> {
    // SAFETY: plain integers, and a descriptor that is open.
    let result = unsafe {
        libc::syscall(
            libc::SYS_pidfd_send_signal,
            handle.as_raw_fd(),
            signal,
            ptr::null::<libc::siginfo_t>(),
            TO_GROUP,
        )
    };
    if result == -1 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// See [`Child::living`].
struct Living {
    pids: Vec<pid_t>,
    /// Where none was found there is none.
    are_all: bool,
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_none() || thread::panicking() {
            // Not a normal end: the switch stays armed, and goes off when this process does.
            std::mem::forget(self.switch.take());
        } else if !self.is_reaped {
            let _ = reap(self.pid);
        }
    }
}

/// A child between its first moment and its exec. It runs in its parent's memory, on a stack of its own, while the
/// parent's thread is held up (as `posix_spawn(3)` does it): to copy the page tables and then the pages would cost more
/// than all the rest.
struct Birth<'a> {
    job: &'a Job<'a>,
    parent: pid_t,
    switch: Option<&'a DeadMansSwitch>,
    badge: Option<BorrowedFd<'a>>,
    /// Ends with a null pointer, as does the next.
    argv: &'a [*const c_char],
    envp: &'a [*const c_char],
    /// Why there was no exec; 0 when there was one.
    error: AtomicI32,
}

/// What execvpe(3) needs for its buffers; for a script without an interpreter's line it also copies the arguments.
const BIRTH_STACK: usize = 64 * 1024;

impl Birth<'_> {
    /// Returns when the child has become its program, or has failed to.
    fn begin(&self) -> io::Result<pid_t> {
        let mut stack: Vec<MaybeUninit<u128>> = Vec::new();
        stack.reserve_exact(BIRTH_STACK.div_ceil(size_of::<u128>()) + self.argv.len());
        // SAFETY: the end of the reserved memory, aligned as stacks are. Until the child has left this memory, which
        // the call waits for, both it and `self` stay where they are. All signals for which this process has
        // handlers, those of faults, would be the child's own.
        let pid = unsafe {
            libc::clone(
                become_job,
                stack.spare_capacity_mut().as_mut_ptr_range().end.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
                ptr::from_ref(self).cast_mut().cast(),
            )
        };
        if pid == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok(pid)
    }
}

/// The child's half of the spawn. Returns only when exec failed, and then the child ends.
extern "C" fn become_job(birth: *mut c_void) -> c_int {
    // SAFETY: it is what `Birth::begin` gave.
    let birth = unsafe { &*birth.cast::<Birth<'_>>() };
    birth.error.store(birth.become_job(), Ordering::Relaxed);
    127
}

impl Birth<'_> {
    /// The reason why exec failed. Nothing here allocates, or changes what the parent has in memory.
    fn become_job(&self) -> c_int {
        let job = self.job;
        // SAFETY: only async-signal-safe calls; all pointers are to null-terminated arrays that the parent keeps.
        unsafe {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            if libc::getppid() != self.parent {
                // The parent died before the line above could matter. Should it live, it has to hear of this.
                return libc::ESRCH;
            }
            // Who signals the group must not miss it.
            if job.own_group && libc::setpgid(0, 0) == -1 {
                return errno();
            }
            if let Some(switch) = self.switch
                && !switch.arm()
            {
                return errno();
            }
            for fd in [job.inherit, self.badge].into_iter().flatten() {
                if libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, high_descriptor()) == -1 {
                    return errno();
                }
            }
            if !job.inherited.restore() {
                return errno();
            }
            libc::execvpe(self.argv[0], self.argv.as_ptr(), self.envp.as_ptr());
            errno()
        }
    }
}

fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Where an inherited descriptor goes: high, and within this process's limit.
fn high_descriptor() -> RawFd {
    let mut limit = MaybeUninit::<libc::rlimit>::zeroed();
    // SAFETY: the call fills in the structure; zeroed it is valid too.
    let soft = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, limit.as_mut_ptr());
        limit.assume_init().rlim_cur
    };
    let soft = RawFd::try_from(soft).unwrap_or(RawFd::MAX);
    if soft > HIGH_DESCRIPTOR + 16 {
        HIGH_DESCRIPTOR
    } else {
        soft / 2
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: room for two descriptors, which are nobody else's when the call succeeds.
    unsafe {
        if libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) == -1 {
            return Err(io::Error::last_os_error());
        }
        Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])))
    }
}

/// One change of a child, without waiting.
fn wait(which: libc::idtype_t, id: pid_t, options: c_int) -> io::Result<Option<(pid_t, Change)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the call fills in the structure; where nothing has changed it stays zero.
    let info = unsafe {
        while libc::waitid(
            which,
            id.cast_unsigned(),
            info.as_mut_ptr(),
            options | libc::WNOHANG,
        ) == -1
        {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        info.assume_init()
    };
    // SAFETY: waitid fills in these fields, or leaves them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let change = match info.si_code {
        _ if pid == 0 => return Ok(None),
        libc::CLD_EXITED => Change::Ended(Status::Exited(
            u8::try_from(status & 0xff).unwrap_or(u8::MAX),
        )),
        libc::CLD_STOPPED => Change::Stopped(Signal::from_number(status)),
        _ => Change::Ended(Status::Killed(Signal::from_number(status))),
    };
    Ok(Some((pid, change)))
}

/// Whether this process has any children now, zombies included.
///
/// # Errors
/// It cannot wait for children, by no call.
fn has_children() -> io::Result<bool> {
    let is_none = |error: &io::Error| error.raw_os_error() == Some(libc::ECHILD);
    match wait(
        libc::P_ALL,
        0,
        libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT,
    ) {
        Ok(_) => return Ok(true),
        Err(error) if is_none(&error) => return Ok(false),
        Err(_) => {}
    }
    // SAFETY: no status is asked for. The status that it may take is nobody's whom this process knows.
    if unsafe { libc::waitpid(-1, ptr::null_mut(), libc::WNOHANG) } != -1 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if is_none(&error) => Ok(false),
        error => Err(error),
    }
}

/// Those of these numbers that are children of this process and no zombies.
fn living_children(numbers: impl Iterator<Item = pid_t>) -> impl Iterator<Item = pid_t> {
    // A child that has neither stopped nor been waited for is one of which there is nothing to say; of others that is an error.
    numbers.filter(|pid| wait(libc::P_PID, *pid, libc::WSTOPPED | libc::WNOWAIT).is_ok())
}

/// The last number that was given out, or that can be. Threads have numbers of the same kind.
fn newest_number() -> pid_t {
    // SAFETY: gettid cannot fail.
    let number = || unsafe { libc::gettid() };
    let thread = thread::Builder::new().spawn(number);
    thread.map_or(LAST_PID, |thread| thread.join().unwrap_or(LAST_PID))
}

/// Takes a zombie's status away. Waits for the moment between a process's last words and its end.
fn reap(pid: pid_t) -> io::Result<()> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the calls fill in what they are given, or need nothing.
    unsafe {
        let taken = || {
            libc::waitid(
                libc::P_PID,
                pid.cast_unsigned(),
                info.as_mut_ptr(),
                libc::WEXITED,
            ) == 0
                || libc::waitpid(pid, ptr::null_mut(), 0) == pid
        };
        until_uninterrupted(taken)
    }
}

fn until_uninterrupted(mut is_done: impl FnMut() -> bool) -> io::Result<()> {
    while !is_done() {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    Ok(())
}

/// The inherited environment with changes, as `NAME=value`.
fn environment(changes: &[(&str, Option<OsString>)]) -> Vec<OsString> {
    let kept =
        std::env::vars_os().filter(|(name, _)| changes.iter().all(|(changed, _)| name != changed));
    let set = changes
        .iter()
        .filter_map(|(name, value)| value.clone().map(|value| (OsString::from(name), value)));
    kept.chain(set)
        .map(|(mut entry, value)| {
            entry.push("=");
            entry.push(value);
            entry
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_set_and_unset_over_the_inherited_ones() {
        let entries = environment(&[("PATH", None), ("TENURE_TEST", Some("a=b".into()))]);
        assert!(entries.contains(&"TENURE_TEST=a=b".into()));
        assert!(
            !entries
                .iter()
                .any(|entry| entry.as_bytes().starts_with(b"PATH="))
        );
    }
}
