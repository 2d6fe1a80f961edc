//! What the kernel knows of those who hold or wait, run on this machine and are the same user: each has a guard file of its
//! own (see `guard`), so that what the dead had is over before its time.
//!
//! This only ever shortens a lease, and only where death is seen: the very file that a row names is here, and nobody has it
//! locked. Where it is not, as on another machine, for another user, or on a copy of a virtual machine that was made before it,
//! time decides, as it does for whoever has no such file.

use std::collections::HashSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::chance;
use crate::clock::Clock;
use crate::guard::{self, Guard, Hold};
use crate::store::sqlite;
use crate::wait;

/// What a thread needs that does nothing but block in one system call.
const WATCHER_STACK: usize = 64 * 1024;

/// The pause before a file is watched again that cannot be.
const UNWATCHED: Duration = Duration::from_millis(200);

/// How old a file is that a dead process left, before it is removed: until then it tells of that death.
const LEFT: Duration = Duration::from_hours(1);

/// What a row says of its ticket's guard file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Which file it is: the boot, its name, and its [`Guard::identity`].
    pub file: String,
    /// The byte that the process locks, as long as it lives.
    pub supervisor: i64,
    /// The byte that its job locks too, all of it.
    pub tree: i64,
}

impl Proof {
    /// The inode of the file, and the byte of it that the job has locked.
    pub fn tree_byte(&self) -> Option<(u64, i64)> {
        let inode = self.file.split(' ').nth(3)?.parse().ok()?;
        Some((inode, self.tree))
    }
}

/// What is known of a ticket's processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// Its own process lives.
    Lives,
    /// Only processes of its job do.
    Orphaned,
    Dead,
    Unknown,
}

pub struct Witness {
    /// Where this user's guard files are; none where there can be none, as for a user without a home.
    place: Option<Place>,
    /// The files and bytes that threads wait for.
    watched: Arc<Mutex<HashSet<(String, i64)>>>,
}

struct Place {
    directory: PathBuf,
    boot_id: String,
}

impl Witness {
    pub fn new() -> Self {
        let clock = Clock::of_this_boot();
        let place = clock.boot_id().map(str::to_owned).and_then(|boot_id| {
            let beside = sqlite::default_directory().ok()?;
            let directory = beside.join("postgres");
            Some(Place { directory, boot_id })
        });
        Self {
            place,
            watched: Arc::default(),
        }
    }

    /// Makes a guard file for this process and the job that it is going to start. None where that cannot be done, and then time
    /// alone decides.
    pub fn hold(&self) -> Option<Own> {
        let place = self.place.as_ref()?;
        place.sweep();
        let name = u128::from_ne_bytes(chance::bytes().ok()?);
        let name = format!("{name:032x}");
        let stem = place.directory.join(&name);
        let path = Guard::path_for(&stem);
        let made = make(&stem).and_then(|guard| {
            let file = place.describe(&name, &guard)?;
            Ok((guard.hold(false)?, file))
        });
        let Ok((hold, file)) = made else {
            let _ = fs::remove_file(path);
            return None;
        };
        let mark = hold.mark();
        let proof = Proof {
            file,
            supervisor: mark.supervisor,
            tree: mark.tree?,
        };
        Some(Own { hold, proof, path })
    }

    pub fn life(&self, proof: &Proof) -> Life {
        let asked = self.guard(proof).and_then(|guard| life_by(&guard, proof));
        asked.unwrap_or(Life::Unknown)
    }

    /// The guard file that a row names.
    fn guard(&self, proof: &Proof) -> io::Result<Guard> {
        let not_here = || io::Error::from(ErrorKind::NotFound);
        let place = self.place.as_ref().ok_or_else(not_here)?;
        let name = place.name_in(proof).ok_or_else(not_here)?;
        let guard = Guard::open_to_ask(&place.directory.join(name))?;
        if place.describe(name, &guard)? != proof.file {
            return Err(not_here());
        }
        Ok(guard)
    }

    /// Calls `ring`, once, when the kernel says that a ticket's process is dead, or the last of its job if that is all that
    /// lives. What is watched already is not watched twice; of what is unknown nothing is heard.
    pub fn watch(&self, proof: &Proof, ring: impl FnOnce() + Send + 'static) {
        let Ok(guard) = self.guard(proof) else {
            return;
        };
        let byte = match life_by(&guard, proof) {
            Ok(Life::Lives) => proof.supervisor,
            Ok(Life::Orphaned) => proof.tree,
            Ok(Life::Dead) => return ring(),
            Ok(Life::Unknown) | Err(_) => return,
        };
        let (path, inode) = (guard.path().to_owned(), guard.inode());
        let wanted = (proof.file.clone(), byte);
        if !lock(&self.watched).insert(wanted.clone()) {
            return;
        }
        let watched = Arc::clone(&self.watched);
        let watch = move || {
            if guard::wait_for_byte(&path, inode, byte).is_err() {
                wait::pause(UNWATCHED);
            }
            lock(&watched).remove(&wanted);
            ring();
        };
        // Without a thread it is found out by the slow tick.
        let _ = thread::Builder::new()
            .stack_size(WATCHER_STACK)
            .spawn(watch);
    }
}

impl Place {
    fn describe(&self, name: &str, guard: &Guard) -> io::Result<String> {
        let (device, inode, made) = guard.identity()?;
        Ok(format!("{} {name} {device} {inode} {made}", self.boot_id))
    }

    /// The name of a file of this boot's, as [`Place::describe`] has it.
    fn name_in<'a>(&self, proof: &'a Proof) -> Option<&'a str> {
        let rest = proof.file.strip_prefix(&self.boot_id)?.strip_prefix(' ')?;
        let name = rest.split(' ').next()?;
        is_name(name).then_some(name)
    }

    /// Removes what dead processes left.
    fn sweep(&self) {
        let Ok(files) = fs::read_dir(&self.directory) else {
            return;
        };
        for file in files.flatten() {
            let name = file.file_name();
            let name = name.to_str().and_then(|name| name.strip_suffix("-guard"));
            let Some(name) = name.filter(|name| is_name(name)) else {
                continue;
            };
            let is_old = file.metadata().and_then(|metadata| metadata.modified());
            let is_old = is_old.is_ok_and(|at| {
                SystemTime::now()
                    .duration_since(at)
                    .is_ok_and(|age| age > LEFT)
            });
            let is_dead = is_old
                && Guard::open_to_ask(&self.directory.join(name))
                    .and_then(|guard| guard.has_living_tickets())
                    .is_ok_and(|has| !has);
            if is_dead {
                let _ = fs::remove_file(file.path());
            }
        }
    }
}

fn life_by(guard: &Guard, proof: &Proof) -> io::Result<Life> {
    Ok(if guard.is_locked(proof.supervisor)? {
        Life::Lives
    } else if guard.is_locked(proof.tree)? {
        Life::Orphaned
    } else {
        Life::Dead
    })
}

fn make(stem: &Path) -> io::Result<Guard> {
    let made = match Guard::open(stem, 0o600) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            sqlite::make_directories(stem).map_err(io::Error::other)?;
            Guard::open(stem, 0o600)
        }
        made => made,
    }?;
    // The locks of a network's file system say nothing of this machine.
    if !sqlite::is_local(stem).is_ok_and(|is_local| is_local) {
        return Err(ErrorKind::Unsupported.into());
    }
    Ok(made)
}

fn is_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // The set is whole after every statement, whatever panicked in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This process's own guard file. Dropped, it tells of a death; what ended well has [`Own::finish`].
pub struct Own {
    hold: Hold,
    proof: Proof,
    path: PathBuf,
}

impl Own {
    pub fn proof(&self) -> &Proof {
        &self.proof
    }

    /// Locks the byte that the job will inherit, before it is started.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn lock_tree(&self) -> io::Result<()> {
        self.hold.lock_tree()
    }

    /// The descriptor that the job inherits.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.hold.tree()
    }

    /// No row names it any more.
    pub fn finish(self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn witness(directory: &Path, boot_id: &str) -> Witness {
        Witness {
            place: Some(Place {
                directory: directory.join("new"),
                boot_id: boot_id.to_owned(),
            }),
            watched: Arc::default(),
        }
    }

    #[test]
    fn who_lives_is_seen_and_who_is_dead() {
        let directory = tempfile::tempdir().expect("a directory");
        let (own, other) = (
            witness(directory.path(), "boot"),
            witness(directory.path(), "boot"),
        );
        let held = own.hold().expect("a file");
        let proof = held.proof().clone();
        assert_eq!(other.life(&proof), Life::Lives);
        held.lock_tree().expect("a byte");
        let job = held.tree().try_clone_to_owned().expect("a copy");
        let elsewhere = witness(directory.path(), "another boot");
        assert_eq!(elsewhere.life(&proof), Life::Unknown);
        drop(held);
        drop(job);
        assert_eq!(other.life(&proof), Life::Dead);
    }

    #[test]
    fn a_file_that_is_missing_or_a_copy_tells_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let witness = witness(directory.path(), "boot");
        let held = witness.hold().expect("a file");
        let (proof, path) = (held.proof().clone(), held.path.clone());
        let copy = directory.path().join("copy");
        fs::copy(&path, &copy).expect("a copy");
        fs::rename(&copy, &path).expect("in its place");
        assert_eq!(witness.life(&proof), Life::Unknown);
        held.finish();
        assert!(!path.exists());
        assert_eq!(witness.life(&proof), Life::Unknown);
        for file in ["", "boot", "boot ../../x 1 2 3", "boot  "] {
            let file = file.to_owned();
            let proof = Proof {
                file,
                ..proof.clone()
            };
            assert_eq!(witness.life(&proof), Life::Unknown);
        }
    }

    #[test]
    fn a_death_is_told_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let witness = witness(directory.path(), "boot");
        let held = witness.hold().expect("a file");
        let (sender, told) = std::sync::mpsc::channel();
        for _ in 0..2 {
            let sender = sender.clone();
            witness.watch(held.proof(), move || sender.send(()).expect("a receiver"));
        }
        drop(sender);
        assert!(told.try_recv().is_err());
        drop(held);
        assert_eq!(told.iter().count(), 1);
    }

    #[test]
    fn only_what_is_old_and_dead_is_swept_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let witness = witness(directory.path(), "boot");
        let (living, dead, new) = (witness.hold(), witness.hold(), witness.hold());
        let (living, dead, new) = (
            living.expect("a file"),
            dead.expect("a file"),
            new.expect("a file"),
        );
        let old = SystemTime::now() - 2 * LEFT;
        for own in [&living, &dead] {
            let file = fs::File::options().write(true).open(&own.path);
            file.and_then(|file| file.set_modified(old))
                .expect("our own");
        }
        let (dead_path, new_path) = (dead.path.clone(), new.path.clone());
        drop((dead, new));
        witness.hold().expect("a file").finish();
        assert!(living.path.exists() && new_path.exists() && !dead_path.exists());
    }
}
