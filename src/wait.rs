//! The only place that sleeps.

use std::io;
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::signals::{Received, Signals};

/// Waits until a signal comes or the moment has passed, whichever is first. None is the moment, or a wake-up
/// without a cause: callers look at their clocks again either way.
///
/// # Errors
/// Those of poll(2).
pub fn for_signal(signals: &Signals, until: Instant) -> io::Result<Option<Received>> {
    if let Some(received) = signals.next() {
        return Ok(Some(received));
    }
    let left = until.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    };
    match poll(
        &mut [PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)],
        Some(&timeout),
    ) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(signals.next()),
        Err(error) => Err(error.into()),
    }
}

/// A short pause between two looks at something that another process will change: `about`, give or take half
/// of it, so that many who wait do not look in step.
pub fn pause(about: Duration) {
    thread::sleep(jittered(about));
}

/// A duration between half and one and a half times the given one.
pub fn jittered(about: Duration) -> Duration {
    about.mul_f64(rand::random_range(0.5..1.5))
}
