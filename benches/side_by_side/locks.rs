//! The locks that are compared: how a command is run under each, and how many wait for it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::processes::output;

/// The program that is measured.
pub const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// What the lock is called where it has a name.
pub const NAME: &str = "x";

/// A lock of some tool.
pub trait Lock {
    /// The command that waits for the lock, up to where the words of the command to run under it follow.
    fn command(&self) -> Command;

    /// Whether this many wait for it: those who are on their way to that do not count.
    ///
    /// # Errors
    /// That cannot be told.
    fn is_awaited_by(&self, waiters: usize) -> Result<bool>;
}

pub struct Flock {
    pub file: PathBuf,
}

impl Flock {
    pub fn new(directory: &Path) -> Self {
        Self {
            file: directory.join("f"),
        }
    }
}

impl Lock for Flock {
    fn command(&self) -> Command {
        let mut command = Command::new("flock");
        command.arg(&self.file);
        command
    }

    fn is_awaited_by(&self, waiters: usize) -> Result<bool> {
        Ok(blocked_on(&self.file)? == waiters)
    }
}

pub struct Tenure {
    pub database: PathBuf,
}

impl Tenure {
    pub fn new(directory: &Path) -> Self {
        Self {
            database: directory.join("l.db"),
        }
    }

    /// `tenure` with this database, and without whatever lease the benchmark may be run under.
    pub fn tenure(&self) -> Command {
        let mut command = Command::new(TENURE);
        command
            .env_remove("TENURE_TOKEN")
            .arg("--db")
            .arg(&self.database);
        command
    }
}

impl Lock for Tenure {
    fn command(&self) -> Command {
        let mut command = self.tenure();
        command.args(["run", NAME, "--wait", "forever", "--"]);
        command
    }

    /// In the line as `status` has it, and blocked in the kernel as well. The latter is asked first: it disturbs nobody.
    fn is_awaited_by(&self, waiters: usize) -> Result<bool> {
        let mut guard = self.database.clone().into_os_string();
        guard.push("-guard");
        if blocked_on(Path::new(&guard))? != waiters {
            return Ok(false);
        }
        let status = output(self.tenure().args(["status", "--json", NAME]))?;
        let status: serde_json::Value =
            serde_json::from_str(&status).context("cannot read the status")?;
        Ok(usize::try_from(
            status["waiting"]
                .as_u64()
                .context("the status does not say")?,
        )? == waiters)
    }
}

/// How many requests for a lock on this file, or on a part of it, are blocked in the kernel.
fn blocked_on(file: &Path) -> Result<usize> {
    let inode = fs::metadata(file).map_or(0, |metadata| metadata.ino());
    let file = format!(":{inode} ");
    let locks = fs::read_to_string("/proc/locks").context("cannot read /proc/locks")?;
    let blocked = locks
        .lines()
        .filter(|line| line.contains("->") && line.contains(&file));
    Ok(blocked.count())
}
