//! A holder, and contenders who all stand in the line behind it before anything is measured.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context, Error, Result, anyhow, ensure};

use crate::locks::Lock;
use crate::processes::{Running, until};
use crate::section::{self, Section};

/// How many contenders start at a time, the next ones when these stand in the line: enough to have them there soon.
/// More get in each other's way on a machine with few processors, and how they arrive is not what is measured.
pub const CROWD: usize = 50;

/// So that their numbers are the order in which they came.
pub const ONE_BY_ONE: usize = 1;

/// The holder is number 0, the contenders are counted from 1.
pub struct Line {
    files: Files,
    pub holder: Running,
    pub waiters: Vec<Running>,
    /// On the other end of it the holder's section waits.
    gate: UnixStream,
}

impl Line {
    /// Returns when the holder is in and all contenders wait.
    ///
    /// # Errors
    /// One of them failed, or it took too long.
    pub fn form(
        directory: &Path,
        lock: &dyn Lock,
        contenders: usize,
        at_a_time: usize,
    ) -> Result<Self> {
        let files = Files::fresh(directory)?;
        let listener = UnixListener::bind(&files.gate).context("cannot listen for the holder")?;
        listener.set_nonblocking(true)?;
        let mut holder = files.start(lock, 0, Some(&files.gate))?;
        let mut gate = None;
        until("the holder is in", || {
            files.check(&mut holder)?;
            gate = match listener.accept() {
                Ok((connection, _)) => Some(connection),
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                Err(error) => return Err(error.into()),
            };
            Ok(gate.is_some())
        })?;
        let mut line = Self {
            files,
            holder,
            waiters: Vec::new(),
            gate: gate.context("nobody is at the gate")?,
        };
        for number in 1..=contenders {
            line.waiters.push(line.files.start(lock, number, None)?);
            if number % at_a_time == 0 || number == contenders {
                until("all contenders wait", || {
                    for waiter in &mut line.waiters {
                        line.files.check(waiter)?;
                    }
                    lock.is_awaited_by(number)
                })?;
            }
        }
        Ok(line)
    }

    /// Lets the holder go on, which lets one contender after another in.
    ///
    /// # Errors
    /// One of them failed, or it took too long.
    pub fn pass(mut self) -> Result<Vec<Section>> {
        let all = 1 + self.waiters.len();
        self.gate.shutdown(Shutdown::Both)?;
        self.drain(all)
    }

    /// Kills the holder, which lets the contenders in; when it was killed, and their sections.
    ///
    /// # Errors
    /// One of them failed, or it took too long.
    pub fn kill_holder(mut self) -> Result<(u64, Vec<Section>)> {
        let all = self.waiters.len();
        let killed = section::now();
        self.holder.kill()?;
        Ok((killed, self.drain(all)?))
    }

    fn drain(&mut self, all: usize) -> Result<Vec<Section>> {
        until("all have had the lock", || {
            Ok(section::count(&self.files.records) >= all)
        })?;
        for waiter in &mut self.waiters {
            until("a contender ends", || match waiter.ended()? {
                Some(status) if !status.success() => Err(self.files.failure(status)),
                ended => Ok(ended.is_some()),
            })?;
        }
        until("the holder ends", || Ok(self.holder.ended()?.is_some()))?;
        let sections = section::read(&self.files.records)?;
        let entered = sections.len();
        ensure!(entered == all, "{entered} of {all} had the lock");
        Ok(sections)
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        // From the end, so that nobody is woken by the end of the one before.
        while self.waiters.pop().is_some() {}
    }
}

struct Files {
    /// The critical section's program.
    section: PathBuf,
    /// Of all sections.
    records: PathBuf,
    /// What all commands say, which is something only when they fail.
    messages: PathBuf,
    gate: PathBuf,
}

impl Files {
    /// Those of the line before this one are removed.
    fn fresh(directory: &Path) -> Result<Self> {
        let fresh = |name| {
            let path = directory.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(path),
            }
        };
        Ok(Self {
            section: section::program(directory)?,
            records: fresh("records")?,
            messages: fresh("messages")?,
            gate: fresh("gate")?,
        })
    }

    /// Starts a critical section under the lock.
    fn start(&self, lock: &dyn Lock, number: usize, gate: Option<&Path>) -> Result<Running> {
        let messages = File::options()
            .append(true)
            .create(true)
            .open(&self.messages)?;
        let mut command = lock.command();
        command
            .arg(&self.section)
            .arg(&self.records)
            .arg(number.to_string())
            .args(gate)
            .stdout(messages.try_clone()?)
            .stderr(messages);
        Running::start(&mut command)
    }

    /// Fails if one of them has ended that should wait.
    fn check(&self, process: &mut Running) -> Result<()> {
        match process.ended()? {
            Some(status) => Err(self.failure(status).context("one did not wait")),
            None => Ok(()),
        }
    }

    fn failure(&self, status: ExitStatus) -> Error {
        let messages = fs::read_to_string(&self.messages).unwrap_or_default();
        anyhow!("{status}: {}", messages.trim())
    }
}
