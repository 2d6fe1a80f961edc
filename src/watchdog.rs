//! Kills a job before its lease can be another's where the supervisor itself does not: it was stopped, or gets no processor time.
//! For leases that time alone keeps.
//!
//! A process of its own, for whatever stops or starves the supervisor would stop its threads too, and in a session of its own,
//! so that Ctrl-Z does not reach it. It shares one page with the supervisor, asks nobody, and ends with it.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use libc::{c_int, c_uint, pid_t};

use crate::clock::Moment;

/// What supervisor and watchdog both see.
struct Shared {
    /// When it is over with the job, by the boot clock, in milliseconds.
    deadline: AtomicI64,
    has_fired: AtomicBool,
}

pub struct Watchdog {
    pid: pid_t,
    shared: *const Shared,
}

impl Watchdog {
    /// Begins to watch: a process, or a group by its negative number, is killed at the deadline. Must be called by the main thread:
    /// the watchdog ends with the thread that started it.
    ///
    /// # Errors
    /// Those of mmap(2) and fork(2).
    pub fn start(target: pid_t, deadline: Moment) -> io::Result<Self> {
        // SAFETY: new memory, as much as is needed, which both processes have until the one has ended and the other is done.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                size_of::<Shared>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let shared: *mut Shared = page.cast();
        // SAFETY: it is ours, and pages begin as aligned as anything must be. The child does nothing but system calls.
        let pid = unsafe {
            shared.write(Shared {
                deadline: AtomicI64::new(deadline.as_millis()),
                has_fired: AtomicBool::new(false),
            });
            let parent = libc::getpid();
            // As fork(2), with no signal at the end: whoever waits for the job's processes does not meet this one among them.
            match libc::syscall(libc::SYS_clone, 0, 0, 0, 0, 0) {
                0 => watch(&*shared, parent, target),
                pid => pid_t::try_from(pid).unwrap_or(-1),
            }
        };
        if pid == -1 {
            let error = io::Error::last_os_error();
            // SAFETY: nobody else has it.
            unsafe { libc::munmap(page, size_of::<Shared>()) };
            return Err(error);
        }
        Ok(Self { pid, shared })
    }

    pub fn pid(&self) -> pid_t {
        self.pid
    }

    /// Moves the deadline.
    pub fn set(&self, deadline: Moment) {
        let deadline = deadline.as_millis();
        self.shared().deadline.store(deadline, Ordering::SeqCst);
    }

    /// Nobody is to be killed any more.
    pub fn disarm(&self) {
        self.shared().deadline.store(i64::MAX, Ordering::SeqCst);
    }

    /// Whether the deadline has passed and the job was killed.
    pub fn has_fired(&self) -> bool {
        self.shared().has_fired.load(Ordering::SeqCst)
    }

    fn shared(&self) -> &Shared {
        // SAFETY: it is there until this is dropped, and has nothing in it but atomics.
        unsafe { &*self.shared }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: plain integers; the number is the child's, which nobody else waits for. The page is not used after this.
        unsafe {
            if !self.has_fired() {
                libc::kill(self.pid, libc::SIGKILL);
            }
            libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL);
            libc::munmap(self.shared.cast_mut().cast(), size_of::<Shared>());
        }
    }
}

/// The watchdog's whole life.
fn watch(shared: &Shared, parent: pid_t, target: pid_t) -> ! {
    // SAFETY: plain integers and structures of its own. This process has one thread, and its own table of descriptors, of which it
    // needs none and must keep none open.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent {
            libc::_exit(0);
        }
        libc::prctl(libc::PR_SET_NAME, c"watchdog".as_ptr());
        libc::setsid();
        if libc::syscall(libc::SYS_close_range, 0, c_uint::MAX, 0) == -1 {
            for descriptor in 0..descriptors() {
                libc::close(descriptor);
            }
        }
        loop {
            let deadline = shared.deadline.load(Ordering::SeqCst);
            let mut now = MaybeUninit::<libc::timespec>::zeroed();
            libc::clock_gettime(libc::CLOCK_BOOTTIME, now.as_mut_ptr());
            let now = now.assume_init();
            if now.tv_sec * 1000 + now.tv_nsec / 1_000_000 < deadline {
                let until = libc::timespec {
                    tv_sec: deadline / 1000,
                    tv_nsec: deadline % 1000 * 1_000_000,
                };
                let clock = libc::CLOCK_BOOTTIME;
                libc::clock_nanosleep(
                    clock,
                    libc::TIMER_ABSTIME,
                    &raw const until,
                    ptr::null_mut(),
                );
                continue;
            }
            shared.has_fired.store(true, Ordering::SeqCst);
            libc::kill(target, libc::SIGKILL);
            libc::_exit(0);
        }
    }
}

/// How many there can be, where they cannot be closed all at once.
fn descriptors() -> c_int {
    // SAFETY: it only asks.
    let most = unsafe { libc::sysconf(libc::_SC_OPEN_MAX) };
    c_int::try_from(most).unwrap_or(1024).clamp(0, 65_536)
}
