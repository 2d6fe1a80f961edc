//! Signals: which are taken, from whom they came, what the caller had set, and how to die or stop by one.
//!
//! Nothing here installs a handler. Signals are blocked and read from a signalfd, so that there is no code
//! that runs at any moment, nothing that exec would have to reset, and `si_code` comes with each.

#![allow(unsafe_code)]

use std::fmt;
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

use libc::c_int;

/// A signal by its number; `TERM`, `SIGTERM` and `15` are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(c_int);

impl Signal {
    pub const HUP: Signal = Signal(libc::SIGHUP);
    pub const INT: Signal = Signal(libc::SIGINT);
    pub const QUIT: Signal = Signal(libc::SIGQUIT);
    pub const KILL: Signal = Signal(libc::SIGKILL);
    pub const TERM: Signal = Signal(libc::SIGTERM);
    pub const CONT: Signal = Signal(libc::SIGCONT);
    pub const TSTP: Signal = Signal(libc::SIGTSTP);
    pub const STOP: Signal = Signal(libc::SIGSTOP);
    pub const WINCH: Signal = Signal(libc::SIGWINCH);
    pub const CHLD: Signal = Signal(libc::SIGCHLD);

    pub fn from_number(number: c_int) -> Self {
        Self(number)
    }

    pub fn number(self) -> c_int {
        self.0
    }
}

/// The names that `kill -l` prints on Linux.
const NAMES: [(&str, c_int); 31] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("ILL", libc::SIGILL),
    ("TRAP", libc::SIGTRAP),
    ("ABRT", libc::SIGABRT),
    ("BUS", libc::SIGBUS),
    ("FPE", libc::SIGFPE),
    ("KILL", libc::SIGKILL),
    ("USR1", libc::SIGUSR1),
    ("SEGV", libc::SIGSEGV),
    ("USR2", libc::SIGUSR2),
    ("PIPE", libc::SIGPIPE),
    ("ALRM", libc::SIGALRM),
    ("TERM", libc::SIGTERM),
    ("STKFLT", libc::SIGSTKFLT),
    ("CHLD", libc::SIGCHLD),
    ("CONT", libc::SIGCONT),
    ("STOP", libc::SIGSTOP),
    ("TSTP", libc::SIGTSTP),
    ("TTIN", libc::SIGTTIN),
    ("TTOU", libc::SIGTTOU),
    ("URG", libc::SIGURG),
    ("XCPU", libc::SIGXCPU),
    ("XFSZ", libc::SIGXFSZ),
    ("VTALRM", libc::SIGVTALRM),
    ("PROF", libc::SIGPROF),
    ("WINCH", libc::SIGWINCH),
    ("IO", libc::SIGIO),
    ("PWR", libc::SIGPWR),
    ("SYS", libc::SIGSYS),
];

/// Its name without `SIG`, or the number of one that has none.
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl FromStr for Signal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let known = NAMES
            .iter()
            .find(|(known, number)| *known == name || number.to_string() == text);
        known.map(|&(_, number)| Self(number)).ok_or_else(|| {
            format!("{text:?} is not a signal: write a name (TERM) or a number (15)")
        })
    }
}

/// Those that a supervisor hands on to the command it supervises.
pub const RELAYED: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal(libc::SIGUSR1),
    Signal(libc::SIGUSR2),
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

/// Those that end a wait: whoever sends one wants the program to end.
pub const TERMINATION: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// The stops of job control. A process that is stopped inside a write transaction stops every other one.
const STOPS: [c_int; 3] = [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU];

/// What Rust's runtime changes before `main`, as it was before: bit 0, SIGPIPE was ignored; bits 1 to 3,
/// descriptors 0 to 2 were closed.
static AT_START: AtomicU8 = AtomicU8::new(0);

/// In `AT_START`: SIGXFSZ was ignored.
const XFSZ_IGNORED: u8 = 1 << 4;

extern "C" fn record() {
    let mut seen = u8::from(is_ignored(Signal(libc::SIGPIPE)));
    if is_ignored(Signal(libc::SIGXFSZ)) {
        seen |= XFSZ_IGNORED;
    }
    // Others may have grown the database beyond a limit on this process's files: that is to be an error, like a full
    // disk, and not the end of it.
    set_disposition(libc::SIGXFSZ, libc::SIG_IGN);
    for fd in 0..3 {
        // SAFETY: F_GETFD only asks; a closed descriptor is the answer looked for.
        if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
            seen |= 2 << fd;
        }
    }
    AT_START.store(seen, Ordering::Relaxed);
}

// The C library calls what stands in this section before `main`, and so before Rust's runtime ignores
// SIGPIPE and opens /dev/null in place of closed standard descriptors. CMD must get both as they were.
#[used]
// SAFETY: the section holds pointers to functions; `record` needs nothing that is set up later.
#[unsafe(link_section = ".init_array")]
static RECORD: extern "C" fn() = record;

/// Whether the caller had this standard descriptor closed. What is open there now is the runtime's /dev/null.
pub fn was_closed(fd: c_int) -> bool {
    AT_START.load(Ordering::Relaxed) & (2 << fd) != 0
}

/// Whether the caller had this signal ignored when the program was started.
pub fn is_ignored(signal: Signal) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: with no new action the call only fills in `action`, which is zeroed and so valid either way.
    let action = unsafe {
        libc::sigaction(signal.0, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// One of these that has come and is still to be read: this thread has it blocked.
pub fn pending(among: impl IntoIterator<Item = Signal>) -> Option<Signal> {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: the call only fills in the set, which is zeroed and so valid even if it failed.
    let set: libc::sigset_t = unsafe {
        libc::sigpending(set.as_mut_ptr());
        set.assume_init()
    };
    // SAFETY: a valid set; a number that is no signal is not in it.
    let is_in = |signal: &Signal| unsafe { libc::sigismember(&raw const set, signal.0) == 1 };
    among.into_iter().find(is_in)
}

fn set_of(signals: impl IntoIterator<Item = c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set; sigaddset refuses what is no signal.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in signals {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Changes this thread's mask and returns what it was.
fn change_mask(how: c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut old = MaybeUninit::zeroed();
    // SAFETY: both sets are valid; the call can only fail for a `how` that does not exist.
    unsafe {
        libc::pthread_sigmask(how, set, old.as_mut_ptr());
        old.assume_init()
    }
}

fn set_disposition(signal: c_int, disposition: libc::sighandler_t) -> bool {
    // SAFETY: only SIG_DFL and SIG_IGN are passed; no handler runs.
    unsafe { libc::signal(signal, disposition) != libc::SIG_ERR }
}

/// Where a signal came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The terminal, by way of the kernel: the whole foreground group got it.
    Kernel,
    /// Some process.
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub signal: Signal,
    pub origin: Origin,
}

/// The signals that this program reads instead of being interrupted by them. They stay blocked; whatever the
/// caller ignored is left alone, so that `nohup` and a script's `cmd &` keep their meaning.
pub struct Signals {
    fd: OwnedFd,
    inherited: Inherited,
}

impl Signals {
    /// For a supervisor: what it relays, its children's changes, and no stop but by its own decision.
    ///
    /// # Errors
    /// Those of signalfd(2): no descriptor left.
    pub fn for_supervisor() -> io::Result<Self> {
        let chld_ignored = is_ignored(Signal::CHLD);
        if chld_ignored {
            // With SIGCHLD ignored the kernel reaps children unseen, and CMD's status is lost.
            if !set_disposition(libc::SIGCHLD, libc::SIG_DFL) {
                return Err(io::Error::last_os_error());
            }
        }
        let mut read: Vec<c_int> = RELAYED
            .iter()
            .filter(|&&signal| !is_ignored(signal))
            .map(|signal| signal.0)
            .collect();
        read.push(libc::SIGCHLD);
        Self::capture(&read, &STOPS, chld_ignored)
    }

    /// For a command that may wait: what ends it, the stop that makes it leave the line, and what makes it draw anew
    /// what it shows.
    ///
    /// # Errors
    /// Those of signalfd(2): no descriptor left.
    pub fn for_waiter() -> io::Result<Self> {
        let read: Vec<c_int> = TERMINATION
            .into_iter()
            .chain([Signal::TSTP, Signal::CONT, Signal::WINCH])
            .filter(|&signal| !is_ignored(signal))
            .map(|signal| signal.0)
            .collect();
        Self::capture(&read, &[], false)
    }

    fn capture(read: &[c_int], blocked: &[c_int], chld_ignored: bool) -> io::Result<Self> {
        let mask = change_mask(
            libc::SIG_BLOCK,
            &set_of(read.iter().chain(blocked).copied()),
        );
        let read = set_of(read.iter().copied());
        // SAFETY: a valid set; -1 asks for a new descriptor.
        let fd =
            unsafe { libc::signalfd(-1, &raw const read, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd == -1 {
            let error = io::Error::last_os_error();
            change_mask(libc::SIG_SETMASK, &mask);
            return Err(error);
        }
        // SAFETY: the descriptor is new and nobody else's.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self {
            fd,
            inherited: Inherited { mask, chld_ignored },
        })
    }

    /// The next signal that has come, if any. Never blocks.
    pub fn next(&self) -> Option<Received> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = mem::size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size that is passed; a signalfd gives whole structures or nothing.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if usize::try_from(got) != Ok(size) {
            return None;
        }
        // SAFETY: the read filled all of it.
        let info = unsafe { info.assume_init() };
        let origin = if info.ssi_code == libc::SI_KERNEL {
            Origin::Kernel
        } else {
            Origin::Process
        };
        let signal = Signal(info.ssi_signo.cast_signed());
        Some(Received { signal, origin })
    }

    pub fn inherited(&self) -> &Inherited {
        &self.inherited
    }
}

impl AsFd for Signals {
    /// Readable when a signal has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The caller's arrangements, to be put back for CMD.
pub struct Inherited {
    mask: libc::sigset_t,
    chld_ignored: bool,
}

impl Inherited {
    /// Puts everything back as the program found it. For a child between fork and exec: only
    /// async-signal-safe calls.
    ///
    /// False when something could not be put back: the last error says why.
    pub fn restore(&self) -> bool {
        let seen = AT_START.load(Ordering::Relaxed);
        let is_restored = set_disposition(
            libc::SIGPIPE,
            if seen & 1 == 0 {
                libc::SIG_DFL
            } else {
                libc::SIG_IGN
            },
        ) && (seen & XFSZ_IGNORED != 0
            || set_disposition(libc::SIGXFSZ, libc::SIG_DFL))
            && (!self.chld_ignored || set_disposition(libc::SIGCHLD, libc::SIG_IGN));
        if !is_restored {
            return false;
        }
        for fd in 0..3 {
            if seen & (2 << fd) != 0 {
                // SAFETY: it is the runtime's /dev/null; nothing in this child uses it.
                unsafe { libc::close(fd) };
            }
        }
        // SAFETY: a valid set. The call as the kernel has it: this one says by errno what went wrong.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const self.mask, ptr::null_mut()) == 0 }
    }
}

/// Holds off the stops of job control until it is dropped.
pub struct NoStops(libc::sigset_t);

impl NoStops {
    pub fn begin() -> Self {
        Self(change_mask(libc::SIG_BLOCK, &set_of(STOPS)))
    }
}

impl Drop for NoStops {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, &self.0);
    }
}

/// Stops this process as the terminal would have, and returns when it is continued.
pub fn stop_by(signal: Signal) {
    // SAFETY: plain calls. The signal is raised while it is blocked, and stops the process as it is let in.
    unsafe { libc::raise(signal.0) };
    let old = change_mask(libc::SIG_UNBLOCK, &set_of([signal.0]));
    change_mask(libc::SIG_SETMASK, &old);
}

/// Ends this process by a signal, so that whoever waits for it sees that one. Returns where the signal has
/// no effect: to PID 1, which the kernel protects from its own signals.
pub fn die_by(signal: Signal) {
    // SAFETY: plain calls with valid arguments. Not dumpable: the core, if any, is CMD's, never ours.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    set_disposition(signal.0, libc::SIG_DFL);
    // SAFETY: as above.
    unsafe { libc::raise(signal.0) };
    change_mask(libc::SIG_UNBLOCK, &set_of([signal.0]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_known_by_name_and_by_number() {
        for text in ["TERM", "SIGTERM", "term", "sigterm", "15"] {
            assert_eq!(text.parse(), Ok(Signal::TERM), "{text}");
        }
        for text in ["", "SIG", "0", "-15", "015", "64", "TERMINATE", "15 "] {
            assert!(text.parse::<Signal>().is_err(), "{text:?}");
        }
    }
}
