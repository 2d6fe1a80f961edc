//! The only place where the main thread sleeps; a thread that tends a lease at a server waits for its own work there.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::chance;
use crate::guard;
use crate::signals::{self, Received, Signal, Signals, TERMINATION};

/// What a thread needs that does nothing but block in one system call.
const WATCHER_STACK: usize = 64 * 1024;

/// The pause between two looks at a byte that cannot be watched.
const UNWATCHED: Duration = Duration::from_millis(20);

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Signal(Received),
    /// A watched byte of the guard file is free, or the bell was rung.
    Byte,
    /// The moment has passed, or there is no cause: callers look at their clocks.
    Time,
}

/// Waits until a signal comes or the moment has passed, whichever is first. None is the moment, or a wake-up
/// without a cause: callers look at their clocks again either way.
///
/// # Errors
/// Those of poll(2).
pub fn for_signal(signals: &Signals, until: Instant) -> io::Result<Option<Received>> {
    if let Some(received) = signals.next() {
        return Ok(Some(received));
    }
    let is_readable = readable(&[signals.as_fd()], until)?;
    let received = signals.next();
    if is_readable && received.is_none() {
        // The read is refused, and would be at full speed.
        pause(UNWATCHED);
    }
    Ok(received)
}

/// Blocks until one of these can be read, or the moment has passed. Whether one can.
fn readable(fds: &[BorrowedFd<'_>], until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    let mut fds: Vec<PollFd<'_>> = fds
        .iter()
        .map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN))
        .collect();
    match poll(&mut fds, Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Bytes of the guard file that are waited for in the kernel, each by a thread of its own: these locks have no
/// time-out, and no way to wait for one of several.
pub struct Watches {
    shared: Arc<Shared>,
}

struct Shared {
    /// None where no bytes are watched.
    path: Option<PathBuf>,
    event: Arc<OwnedFd>,
    watched: Mutex<HashSet<Watched>>,
    /// The threads that have nothing to wait for.
    idle: Mutex<Vec<Sender<Watched>>>,
}

/// Wakes who waits with [`Watches`], from any thread.
#[derive(Clone)]
pub struct Bell(Arc<OwnedFd>);

impl Bell {
    pub fn ring(&self) {
        // It can only be full, and then it has been rung often enough.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// A guard file's inode, and a byte of it.
type Watched = (u64, i64);

impl Watches {
    /// For bytes of the guard file at `path`, and for whoever rings the [`Bell`].
    ///
    /// # Errors
    /// Those of eventfd(2).
    pub fn new(path: Option<PathBuf>) -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Shared {
            path,
            event: Arc::new(event),
            watched: Mutex::default(),
            idle: Mutex::default(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Ends the wait as a byte does that is free.
    pub fn bell(&self) -> Bell {
        Bell(Arc::clone(&self.shared.event))
    }

    /// Watches a byte of the file with this inode, unless that is done already.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(&self, inode: u64, byte: i64) -> io::Result<()> {
        let wanted = (inode, byte);
        if !lock(&self.shared.watched).insert(wanted) {
            return Ok(());
        }
        let idle = lock(&self.shared.idle).pop();
        if idle.is_some_and(|watcher| watcher.send(wanted).is_ok()) {
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        thread::Builder::new()
            .stack_size(WATCHER_STACK)
            .spawn(move || shared.watch(wanted))?;
        Ok(())
    }

    /// Waits for a signal, a byte or the moment, whichever is first.
    ///
    /// # Errors
    /// Those of poll(2).
    pub fn wait(&self, signals: &Signals, until: Instant) -> io::Result<Woken> {
        if let Some(received) = signals.next() {
            return Ok(Woken::Signal(received));
        }
        readable(&[signals.as_fd(), (*self.shared.event).as_fd()], until)?;
        if let Some(received) = signals.next() {
            return Ok(Woken::Signal(received));
        }
        let mut count = [0; 8];
        Ok(
            if rustix::io::read(&*self.shared.event, &mut count).is_ok() {
                Woken::Byte
            } else {
                Woken::Time
            },
        )
    }
}

impl Shared {
    /// What a thread does, for one byte after another. It stays when there is none: the end of a thread takes the
    /// process's memory for itself for a while, and comes just when the main thread has the lock and starts its command.
    fn watch(&self, first: Watched) {
        let (own, next) = channel();
        let mut watched = Ok(first);
        while let Ok((inode, byte)) = watched {
            let path = self.path.as_ref();
            if path.is_none_or(|path| guard::wait_for_byte(path, inode, byte).is_err()) {
                // What cannot be watched is looked at again and again, but not at full speed.
                pause(UNWATCHED);
            }
            lock(&self.watched).remove(&(inode, byte));
            lock(&self.idle).push(own.clone());
            Bell(Arc::clone(&self.event)).ring();
            watched = next.recv();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The set is whole after every statement, whatever panicked in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A short pause between two looks at something that another process will change: `about`, give or take half
/// of it, so that many who wait do not look in step.
pub fn pause(about: Duration) {
    thread::sleep(jittered(about));
}

/// A pause for who writes to a reader, of whom nothing else tells that he is gone. False when he is.
pub fn pause_for_reader(about: Duration) -> bool {
    let stdout = io::stdout();
    // No events are asked for: a broken pipe or a hang-up is told all the same.
    let mut fds = [PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty())];
    let timeout = Timespec {
        tv_sec: i64::try_from(about.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(about.subsec_nanos()),
    };
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(rustix::io::Errno::INTR) => true,
        Ok(_) | Err(_) => false,
    }
}

/// A signal that ends the program came while it waited for somebody else, and was kept for later.
#[derive(Debug)]
pub struct Interrupted(pub Signal);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("interrupted by a signal")
    }
}

impl std::error::Error for Interrupted {}

/// As [`pause`], where the pauses of a loop may add up to seconds: signals that are kept for later count now. It stops
/// when it is told to, so nothing must be held that others wait for.
///
/// # Errors
/// A signal has come that ends the program, and still is to be read.
pub fn pause_unless_interrupted(about: Duration) -> Result<(), Interrupted> {
    pause(about);
    if signals::pending([Signal::TSTP]).is_some() {
        signals::stop_by(Signal::TSTP);
    }
    interruption().map_or(Ok(()), Err)
}

/// Whether a signal has come that ends the program, and still is to be read.
pub fn interruption() -> Option<Interrupted> {
    signals::pending(TERMINATION).map(Interrupted)
}

/// How long after a renewal the next one comes: a third of the time to live at most, so that there is time for another where
/// that one fails, and jittered, so that many who began together do not renew in step.
pub fn until_renewal(ttl: Duration) -> Duration {
    jittered(ttl * 2 / 9)
}

/// A duration between half and one and a half times the given one; just that, where there is no chance to be had.
pub fn jittered(about: Duration) -> Duration {
    let share = chance::bytes().map_or(0.5, |bytes| {
        f64::from(u32::from_ne_bytes(bytes)) / f64::from(u32::MAX)
    });
    about.mul_f64(0.5 + share)
}
