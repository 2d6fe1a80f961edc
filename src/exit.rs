//! How a command ends: every exit status `tenure` has, and the table that the README and the man page quote.

use std::fmt;
use std::process::ExitCode;

use crate::signals::Signal;
use crate::wait::Interrupted;

/// The outcome of a command, as a value: `main` alone turns it into a number.
///
/// The numbers 64, 69, 75 and 76 are those of BSD's `sysexits.h`; 124, 126 and 127 are those of
/// timeout(1), env(1) and the shells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done.
    Done,
    /// The status with which CMD ended by itself, 0 to 255.
    Command(u8),
    /// A signal ended CMD, or ended a wait: tenure ends itself by the same one.
    Signal(Signal),
    /// The command line made no sense; nothing was done.
    Usage,
    /// The store cannot be used; CMD was not started.
    Store,
    /// Held by another, or the wait ran out: 75, or what `-E` puts in its place.
    Busy(u8),
    /// To wait would be for ever, or a lease around the request itself holds the lock; neither `-E` nor `-q` covers this.
    Deadlock,
    /// The token's lease is over or another's, or nobody holds a lock that was to be taken away; under `run`, the lease was
    /// lost and CMD was stopped.
    NotHeld,
    /// `--max-time` ran out and CMD was stopped.
    TimedOut,
    /// CMD was found and cannot be executed.
    CannotExecute,
    /// CMD was not found.
    NotFound,
}

impl Exit {
    /// What `Busy` is without `-E`.
    pub const BUSY: u8 = 75;

    /// How a command ends that failed: what is not the caller's mistake, nor his wish to end it, means that the store
    /// cannot be used.
    pub fn of(error: &anyhow::Error) -> Self {
        if let Some(Interrupted(signal)) = error.downcast_ref() {
            Exit::Signal(*signal)
        } else if error.is::<Usage>() {
            Exit::Usage
        } else {
            Exit::Store
        }
    }

    /// The exit status. A signal's is the number that shells show, 128+n, for the one process
    /// that cannot die by a signal: PID 1.
    pub fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Command(code) | Exit::Busy(code) => code,
            Exit::Signal(signal) => {
                128u8.wrapping_add(u8::try_from(signal.number()).unwrap_or(127))
            }
            Exit::Usage => 64,
            Exit::Store => 69,
            Exit::Deadlock => Self::BUSY,
            Exit::NotHeld => 76,
            Exit::TimedOut => 124,
            Exit::CannotExecute => 126,
            Exit::NotFound => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}

/// A mistake of the caller's that the parser could not see; nothing was done.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}
