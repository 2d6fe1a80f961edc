//! One child process and everything that descends from it: spawning, telling what became of it, signalling the
//! whole tree, and making sure that it does not outlive its supervisor. Knows no locks.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::ffi::{CString, OsStr, OsString};
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use libc::{c_char, c_int, c_void, pid_t};

use crate::clock::Moment;
use crate::signals::{Inherited, Signal};
use crate::watchdog::Watchdog;

/// Where descriptors that a job inherits are put: above what scripts and shells use (bash keeps its own at 255),
/// and below the usual limit of 1024.
const HIGH_DESCRIPTOR: RawFd = 1000;

/// F_SETSIG of Linux's fcntl(2), which libc does not name for every target.
const F_SETSIG: c_int = 10;

/// What to start, and how.
pub struct Job<'a> {
    /// The program and its arguments, as they go to exec.
    pub command: &'a [OsString],
    /// Variables to set, and with None to unset, over the inherited ones.
    pub environment: Vec<(&'a str, Option<OsString>)>,
    /// A descriptor that the whole tree is to hold as long as it lives.
    pub inherit: Option<BorrowedFd<'a>>,
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
}

/// A change in the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Stopped(Signal),
    Ended(Status),
}

pub struct Child {
    pid: pid_t,
    own_group: bool,
    /// How it ended. Its zombie is kept until the end, so that its number, and that of its group, stay its own.
    status: Option<Status>,
    switch: Option<DeadMansSwitch>,
    watchdog: Option<Watchdog>,
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
pub fn adopt_orphans() {
    // SAFETY: plain integers; where the kernel cannot, orphans go to init and are not found.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

impl Child {
    /// Starts a job. Must be called by the main thread: the kernel sends the parent-death signal when the thread
    /// that forked ends.
    ///
    /// # Errors
    /// The program was not found, or cannot be executed or started.
    pub fn spawn(job: &Job<'_>) -> Result<Self, SpawnError> {
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
        // SAFETY: getpid cannot fail.
        let parent = unsafe { libc::getpid() };

        let birth = Birth {
            job,
            parent,
            switch: switch.as_ref(),
            argv: &argv_pointers,
            envp: &envp_pointers,
            error: AtomicI32::new(0),
        };
        let pid = birth.begin().map_err(SpawnError::CannotExecute)?;
        match birth.error.into_inner() {
            0 => Ok(Self {
                pid,
                own_group: job.own_group,
                status: None,
                switch,
                watchdog: None,
            }),
            error => {
                reap(pid);
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
        while let Some((_, Change::Stopped(signal))) = wait(libc::P_PID, self.pid, libc::WSTOPPED) {
            changes.push(Change::Stopped(signal));
        }
        while self.status.is_none() {
            match wait(libc::P_ALL, 0, libc::WEXITED | libc::WNOWAIT) {
                Some((pid, Change::Ended(status))) if pid == self.pid => {
                    self.status = Some(status);
                    changes.push(Change::Ended(status));
                }
                Some((pid, _)) => reap(pid),
                None => break,
            }
        }
        changes
    }

    pub fn has_own_group(&self) -> bool {
        self.own_group
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
        if let Some(watchdog) = &self.watchdog {
            watchdog.set(deadline);
        } else {
            let target = if self.own_group { -self.pid } else { self.pid };
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
        let target = if self.own_group { -self.pid } else { self.pid };
        // SAFETY: plain integers. The number is the child's, since its zombie is not reaped before the end.
        unsafe { libc::kill(target, signal.number()) };
    }

    /// Signals every process of the tree, and continues those that are stopped, which would not hear it.
    pub fn signal_tree(&self, signal: Signal) {
        if self.own_group {
            self.relay(signal);
            self.relay(Signal::CONT);
            return;
        }
        let mut told = HashSet::new();
        // One that is forked while we look is found by the next look.
        loop {
            let new: Vec<pid_t> = self
                .living()
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

    /// Whether no process of the tree lives any more; zombies do not.
    pub fn tree_is_gone(&self) -> bool {
        self.living().is_empty()
    }

    /// The living processes of the tree: the group where the job has its own, else every descendant.
    fn living(&self) -> Vec<pid_t> {
        let all = processes();
        if self.own_group {
            return all
                .iter()
                .filter(|process| process.group == self.pid && process.lives)
                .map(|process| process.pid)
                .collect();
        }
        let watchdog = self.watchdog.as_ref().map(Watchdog::pid);
        // SAFETY: getpid cannot fail.
        let mut family = HashSet::from([unsafe { libc::getpid() }]);
        let mut living = Vec::new();
        loop {
            let children: Vec<&Process> = all
                .iter()
                .filter(|process| {
                    family.contains(&process.parent) && !family.contains(&process.pid)
                })
                .collect();
            if children.is_empty() {
                return living;
            }
            for process in children {
                family.insert(process.pid);
                if process.lives && Some(process.pid) != watchdog {
                    living.push(process.pid);
                }
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.status.is_some() {
            reap(self.pid);
        } else if let Some(switch) = self.switch.take() {
            // Not a normal end: the switch stays armed, and goes off when this process does.
            std::mem::forget(switch);
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
                // The parent died before the line above could matter.
                libc::_exit(127);
            }
            if job.own_group {
                libc::setpgid(0, 0);
            }
            if let Some(switch) = self.switch
                && !switch.arm()
            {
                return errno();
            }
            if let Some(fd) = job.inherit
                && libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD, high_descriptor()) == -1
            {
                return errno();
            }
            job.inherited.restore();
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
fn wait(which: libc::idtype_t, id: pid_t, options: c_int) -> Option<(pid_t, Change)> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: the call fills in the structure; where nothing has changed it stays zero.
    let info = unsafe {
        if libc::waitid(
            which,
            id.cast_unsigned(),
            info.as_mut_ptr(),
            options | libc::WNOHANG,
        ) == -1
        {
            return None;
        }
        info.assume_init()
    };
    // SAFETY: waitid fills in these fields, or leaves them zero.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    let change = match info.si_code {
        _ if pid == 0 => return None,
        libc::CLD_EXITED => Change::Ended(Status::Exited(
            u8::try_from(status & 0xff).unwrap_or(u8::MAX),
        )),
        libc::CLD_STOPPED => Change::Stopped(Signal::from_number(status)),
        _ => Change::Ended(Status::Killed(Signal::from_number(status))),
    };
    Some((pid, change))
}

/// Takes a zombie's status away. Waits for the moment between a process's last words and its end.
fn reap(pid: pid_t) {
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
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

struct Process {
    pid: pid_t,
    parent: pid_t,
    group: pid_t,
    lives: bool,
}

/// Every process that can be seen. One walk serves groups and descendants alike, and needs no kernel option.
fn processes() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let pids = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<pid_t>().ok());
    pids.filter_map(|pid| parse_stat(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
        .collect()
}

/// From proc(5)'s `pid (name) state ppid pgrp …`; the name may hold anything, parentheses too.
fn parse_stat(pid: pid_t, stat: &str) -> Option<Process> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
    let lives = !matches!(fields.next()?, "Z" | "X");
    Some(Process {
        pid,
        parent: fields.next()?.parse().ok()?,
        group: fields.next()?.parse().ok()?,
        lives,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_its_name() {
        let process = parse_stat(7, "7 (a) Z 1 2 (x) S 42 41 40 0 -1").unwrap();
        assert_eq!(
            (process.parent, process.group, process.lives),
            (42, 41, true)
        );
        assert!(!parse_stat(7, "7 (sh) Z 42 41 40").unwrap().lives);
        assert!(parse_stat(7, "7").is_none());
    }

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
