//! Whose files these are: which of them were laid by somebody who may not write to the database, and so are not to be
//! believed. SQLite would write tokens into a log of his, take rows from it, and play a journal of his back.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::Mode;

use super::file::{OwnUmask, beside};
use crate::holder;
use crate::store::Purpose;

/// What SQLite opens beside the database, by its name alone. It makes a journal only where somebody takes the database out
/// of its WAL mode; but it plays one back wherever it finds one.
const OF_SQLITE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// What may stand beside a database, the guard file last.
pub const BESIDE: [&str; 4] = ["-wal", "-shm", "-journal", GUARD];

const GUARD: &str = "-guard";

/// To read and to write, for each of owner, group and others.
const ACCESS: u32 = 0o666;

const FOR_ALL: u32 = 0o002;
const FOR_GROUP: u32 = 0o020;

fn directory_of(path: &Path) -> io::Result<Metadata> {
    fs::metadata(path.parent().unwrap_or(Path::new("/")))
}

fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses what lies in a directory such as `/tmp`, to which everybody may write, and is neither the caller's nor root's, nor
/// the directory's owner's, nor that of whoever else is trusted with it. A link may have been laid there for the caller to
/// make a file of his where it points, a file to give its mode to the one that he makes, and a database to read his token. Kernels
/// have the same rule for links, which not all of them are told to keep, and nobody who reads links himself.
///
/// # Errors
/// It is another's, or that cannot be told.
pub fn check_owner(path: &Path, owner: u32, also: Option<u32>) -> Result<()> {
    let around = directory_of(path)?;
    let is_for_all = around.mode() & FOR_ALL != 0;
    if is_for_all && ![own(), 0, around.uid()].contains(&owner) && also != Some(owner) {
        bail!(
            "{} is another user's ({}), in a directory that everybody may write to",
            path.display(),
            holder::user_name(owner)
        );
    }
    Ok(())
}

/// How often a file may be gone that was there when it was to be made.
const TRIES: usize = 100;

/// A database and the directory in which it is.
pub struct Place {
    path: PathBuf,
    database: Metadata,
    around: Metadata,
}

impl Place {
    /// None where there is no database.
    ///
    /// # Errors
    /// It cannot be looked at.
    pub fn of(path: &Path) -> Result<Option<Self>> {
        let why = || format!("cannot use {}", path.display());
        let database = match fs::symlink_metadata(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.with_context(why)?,
        };
        let around = directory_of(path).with_context(why)?;
        Ok(Some(Self {
            path: path.to_owned(),
            database,
            around,
        }))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Nobody makes files here but the caller and root.
    fn is_private(&self) -> bool {
        self.around.mode() & (FOR_ALL | FOR_GROUP) == 0 && [own(), 0].contains(&self.around.uid())
    }

    /// As [`check_owner`], of the database itself.
    ///
    /// # Errors
    /// As [`check_owner`].
    pub fn check_database(&self) -> Result<()> {
        if self.around.mode() & FOR_ALL == 0 {
            return Ok(());
        }
        check_owner(&self.path, self.database.uid(), None)
            .with_context(|| format!("cannot use {}", self.path.display()))
    }

    /// Refuses side files of which the database's owner could know nothing, before SQLite comes near them: links, what is no
    /// file, another user's where others may make files than those who may write to the database.
    ///
    /// # Errors
    /// There is one; the message says which, and why. Or that cannot be told.
    pub fn check_before(&self) -> Result<()> {
        // There is nobody who would lay any.
        if self.is_private() {
            return Ok(());
        }
        self.check_all(Purpose::Look)
    }

    /// The same of those that SQLite has opened or made, and for whoever is going to write, what more users may read or write
    /// than the database.
    ///
    /// # Errors
    /// As [`Self::check_before`].
    pub fn check_all(&self, purpose: Purpose) -> Result<()> {
        for ending in BESIDE {
            self.check(ending, purpose)?;
        }
        Ok(())
    }

    /// Where everybody may make files: makes those that SQLite would, which nobody else can make then, and nobody else
    /// remove where the directory is sticky; or finds that they are there and are to be trusted. Otherwise somebody could lay
    /// his own there for the moment at which SQLite opens them, and take it away before the next look. The journal stays empty,
    /// and is none.
    ///
    /// # Errors
    /// They cannot be made, or as [`Self::check_before`].
    pub fn claim(&self, purpose: Purpose) -> Result<()> {
        if self.around.mode() & FOR_ALL == 0 {
            return Ok(());
        }
        for ending in OF_SQLITE {
            let mut tries = 0..TRIES;
            while !self.make(ending)? && !self.check(ending, purpose)? {
                if tries.next().is_none() {
                    bail!(
                        "cannot use {}: another user makes {} again and again",
                        self.path.display(),
                        beside(&self.path, ending).display()
                    );
                }
            }
        }
        Ok(())
    }

    /// Whether there is a side file of this ending, which then is to be trusted.
    fn check(&self, ending: &str, purpose: Purpose) -> Result<bool> {
        let path = &self.path;
        let side = beside(path, ending);
        let found = match fs::symlink_metadata(&side) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            other => other.with_context(|| format!("cannot use {}", path.display()))?,
        };
        // The guard file gets the database's mode when it is opened, and has no secret in it.
        let is_for_secrets = purpose != Purpose::Look && ending != GUARD;
        let fault = fault(&found, &self.database, &self.around)
            .or_else(|| wider_mode(&found, &self.database).filter(|_| is_for_secrets));
        match fault {
            Some(fault) => bail!("cannot use {}: {} {fault}", path.display(), side.display()),
            None => Ok(true),
        }
    }

    /// Makes a side file; false where there is one.
    fn make(&self, ending: &str) -> Result<bool> {
        let side = beside(&self.path, ending);
        let made = {
            let _umask = OwnUmask::set(Mode::empty());
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(self.database.mode() & ACCESS)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&side)
        };
        let why = || format!("cannot make {}", side.display());
        let file = match made {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            other => other.with_context(why)?,
        };
        if own() == 0 {
            // As SQLite does it: so that the owner of the database can open it, too.
            let (uid, gid) = (self.database.uid(), self.database.gid());
            fchown(&file, Some(uid), Some(gid)).with_context(why)?;
        }
        Ok(true)
    }
}

/// What is wrong with a side file; none if nothing is.
fn fault(side: &Metadata, database: &Metadata, around: &Metadata) -> Option<String> {
    Some(if side.is_symlink() {
        "is a symbolic link".into()
    } else if !side.is_file() {
        "is not a regular file".into()
    } else if side.nlink() > 1 {
        "has another name (a hard link)".into()
    } else if !is_trusted(side.uid(), database, around) {
        let owner = holder::user_name(side.uid());
        if around.mode() & FOR_ALL == 0 {
            format!(
                "is another user's ({owner}), who may write to the directory and not to the database"
            )
        } else {
            format!("is another user's ({owner}), in a directory that everybody may write to")
        }
    } else {
        return None;
    })
}

/// In words, that more users may read or write a side file than the database; none if that is not so.
fn wider_mode(side: &Metadata, database: &Metadata) -> Option<String> {
    let is_wider = side.mode() & ACCESS & !database.mode() != 0;
    is_wider.then(|| {
        format!(
            "has a wider mode ({:o}) than the database ({:o})",
            side.mode() & 0o777,
            database.mode() & 0o777
        )
    })
}

/// Whether a side file of this user's can be one that SQLite or tenure has made for somebody who may write to the database.
fn is_trusted(owner: u32, database: &Metadata, around: &Metadata) -> bool {
    if [own(), 0, database.uid(), around.uid()].contains(&owner) {
        return true;
    }
    if around.mode() & FOR_ALL != 0 {
        return false;
    }
    // Where no group makes files, somebody gave it to him on purpose. A group that may write to both shares the database.
    let is_groups = around.mode() & FOR_GROUP != 0;
    let shares = database.mode() & FOR_GROUP != 0 && database.gid() == around.gid();
    !is_groups || shares
}

/// How every user can meddle with a database by its mode, and what to do about it: `mode 644 lets every user keep others from it by
/// locks on its files (chmod o= l.db*)`. None where only its owner and its group can.
pub fn exposure(path: &Path) -> Option<String> {
    let mode = fs::metadata(path).ok()?.mode() & 0o777;
    let can = match mode & 0o006 {
        0 => return None,
        others if others & FOR_ALL == 0 => "keep others from it by locks on its files",
        _ => "take and release every lock in it",
    };
    let path = path.display();
    Some(format!(
        "mode {mode:o} lets every user {can} (chmod o= {path} {path}-*)"
    ))
}

/// The same, for those who can change that.
pub fn warning(path: &Path) -> Option<String> {
    let owner = fs::metadata(path).ok()?.uid();
    let exposure = exposure(path).filter(|_| [0, owner].contains(&own()))?;
    Some(format!("{}: {exposure}", path.display()))
}
