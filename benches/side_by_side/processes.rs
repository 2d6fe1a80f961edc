//! Processes that are started here, none of which is left behind; and waiting for facts, with a deadline.

use std::fs;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// How long is waited for what should take seconds: for much longer, since the machine may be busy.
const PATIENCE: Duration = Duration::from_mins(2);

/// The pause between two looks: what is measured in the meantime loses next to nothing by them.
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `is_so`.
///
/// # Errors
/// Its own, or it took too long to become so.
pub fn until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so()? {
        ensure!(
            start.elapsed() < PATIENCE,
            "waited {PATIENCE:?} in vain until {what}"
        );
        thread::sleep(LOOK);
    }
    Ok(())
}

/// A process, which ends when this is dropped, if it has not by then.
pub struct Running(Child);

impl Running {
    /// # Errors
    /// The program cannot be started.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::null()).spawn();
        Ok(Self(child.with_context(|| {
            format!("cannot start {}", command.get_program().display())
        })?))
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// Those of waitpid(2).
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.0.try_wait()
    }

    /// `kill -9`, without waiting for what comes of it.
    ///
    /// # Errors
    /// Those of kill(2).
    pub fn kill(&mut self) -> io::Result<()> {
        self.0.kill()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It is our child and not waited for yet, so that the pid cannot be another's.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a command to its end; what it printed.
///
/// # Errors
/// It cannot be started, or fails.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("it does not print text")
}

/// Runs a command to its end, and takes the time of that.
///
/// # Errors
/// It cannot be started, or fails.
pub fn time(command: &mut Command) -> Result<Duration> {
    command.stdin(Stdio::null());
    let began = Instant::now();
    let status = command.status();
    let took = began.elapsed();
    let status =
        status.with_context(|| format!("cannot start {}", command.get_program().display()))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(took)
}

/// What a program says of its version; none where there is no such program.
pub fn version(program: &str, word: &str) -> Option<String> {
    let text = output(Command::new(program).arg(word)).ok()?;
    Some(text.lines().next()?.to_owned())
}

/// Processor time that the live threads of a process have had.
///
/// # Errors
/// It is gone, or the kernel does not keep this account.
pub fn processor_time(pid: u32) -> Result<Duration> {
    // In nanoseconds; the times in `stat` are whole hundredths of a second, more than a waiter needs in all.
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let account = fs::read_to_string(task?.path().join("schedstat"))
            .context("cannot read the processor time of a thread")?;
        let nanos = account.split(' ').next().unwrap_or_default();
        sum += nanos
            .parse::<u64>()
            .context("not a number of nanoseconds")?;
    }
    Ok(Duration::from_nanos(sum))
}

/// A line of `/proc/PID/status` such as `VmHWM:  3456 kB`, in KiB.
///
/// # Errors
/// The process is gone, or the kernel has no such line.
pub fn memory(pid: u32, what: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let number = number.with_context(|| format!("no {what} in the status of pid {pid}"))?;
    number.parse().context("not a number")
}
