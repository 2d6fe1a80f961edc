//! Proof of life: kernel locks on single bytes of the guard file.
//!
//! The locks are open-file-description locks. They belong to an open file, not to a process: a child inherits
//! them with the descriptor, closing some other descriptor of the file does not drop them, and they are gone
//! the instant that the last copy of their own descriptor is, whatever ended its owner.
//!
//! In the file stands the last number that was drawn in the database, and which files those were, for it outlives them:
//! from what is not so any more a newcomer knows that another database was put in its place, or an old copy of it. Other bytes are locked by
//! whoever makes the database, and by whoever gives out a number.

#![allow(unsafe_code)]

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use crate::chance;
use crate::lock::GuardMark;

/// The byte under which a database is made: one maker at a time.
const CREATION: i64 = 0;

/// The byte of whoever gives out numbers: one at a time, of all databases that stand at the path one after the other. Their write
/// locks are each database's own.
const TURN: i64 = 1;

/// Those two.
pub const RESERVED: RangeInclusive<u64> = 0..=1;

/// The first byte that a ticket may draw; those below are reserved.
const FIRST: i64 = 1024;

/// Tickets draw from 62 bits, so that two never meet and offset plus length stays far from overflow.
const LAST: i64 = (1 << 62) - 1;

/// What stands in the guard file: a line of numbers, for people to read, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// The last number that was drawn in the database.
    pub number: i64,
    /// The number that the database had before, until the commit that brings the last one is done; the last one from
    /// then on. See [`Note::is_of`].
    pub before: i64,
    /// The database: its inode, and the nanosecond of its making, where that can be told.
    pub database: (u64, u64),
    /// The same of its write-ahead log; zeros where it had none.
    pub log: (u64, u64),
}

/// Six numbers of at most this many digits, each with what parts it from the next: one write of always the same length.
const DIGITS: usize = 20;
const NOTE_BYTES: usize = 6 * (DIGITS + 1);

impl Note {
    /// Whether a database whose last number is `serial` is the one that this was written for, as it was left. Otherwise
    /// another was put in its place, or an old copy of it.
    ///
    /// A number is written down here before it is committed there, so whoever is killed in between, or finds the disk full,
    /// leaves a database that is behind its note: a commit that never came. That looks like an old copy, and is told from one
    /// by `before`, which is another number only until its writer has seen the commit done. He starts no command, prints no
    /// token and stands in no line sooner, and does not go on if he cannot write it down. So where a database has the number
    /// `before`, nobody lives who was granted anything since.
    pub fn is_of(&self, serial: i64) -> bool {
        [self.number, self.before].contains(&serial)
    }

    /// The same, when the commit is done.
    pub fn committed(self) -> Self {
        Self {
            before: self.number,
            ..self
        }
    }

    fn to_line(self) -> String {
        let Self {
            number,
            before,
            database,
            log,
        } = self;
        let files =
            [database.0, database.1, log.0, log.1].map(|number| format!(" {number:0DIGITS$}"));
        format!("{number:0DIGITS$}{} {before:0DIGITS$}\n", files.concat())
    }

    fn from_line(line: &str) -> Option<Self> {
        let mut fields = line.strip_suffix('\n')?.split(' ');
        let number = fields.next()?.parse().ok().filter(|number| *number >= 0)?;
        let mut next = || fields.next()?.parse().ok();
        let (database, log) = ((next()?, next()?), (next()?, next()?));
        // The first programs wrote no sixth number, and the database was as they left it by its last one alone.
        let before = fields
            .next()
            .map_or(Some(number), |text| text.parse().ok())?;
        let note = Self {
            number,
            before,
            database,
            log,
        };
        fields.next().is_none().then_some(note)
    }
}

/// The guard file, open to ask and, where permissions allow, to hold.
pub struct Guard {
    path: PathBuf,
    file: File,
    inode: u64,
}

impl Guard {
    /// The guard file of a database: beside it, under its name and `-guard`.
    pub fn path_for(database: &Path) -> PathBuf {
        let mut path = database.as_os_str().to_owned();
        path.push("-guard");
        path.into()
    }

    /// Opens the guard file to hold bytes of it, and makes it where there is none, with these permission bits less
    /// the umask's.
    ///
    /// # Errors
    /// Those of open(2); also when what stands there is not a regular file.
    pub fn open(database: &Path, mode: u32) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).mode(mode);
        Self::open_with(database, &mut options)
    }

    /// Opens the guard file only to ask who holds bytes of it.
    ///
    /// # Errors
    /// Those of open(2), "not found" among them.
    pub fn open_to_ask(database: &Path) -> io::Result<Self> {
        Self::open_with(database, OpenOptions::new().read(true))
    }

    /// Opens the guard file to ask, and to write down numbers in it.
    ///
    /// # Errors
    /// Those of open(2), "not found" among them.
    pub fn open_to_write(database: &Path) -> io::Result<Self> {
        Self::open_with(database, OpenOptions::new().read(true).write(true))
    }

    fn open_with(database: &Path, options: &mut OpenOptions) -> io::Result<Self> {
        let path = Self::path_for(database);
        // NONBLOCK: if a FIFO stands there, the open must not wait for its other end.
        let file = options
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "not a regular file",
            ));
        }
        // What is written here would stand in the other file, too.
        if metadata.nlink() > 1 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it has another name (a hard link)",
            ));
        }
        Ok(Self {
            path,
            inode: metadata.ino(),
            file,
        })
    }

    #[cfg(feature = "postgres")]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Identifies this guard file in the rows of those who hold bytes of it.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Which file this is, as no other on this machine has been or will be: its device, its inode and the nanosecond of its
    /// making, since 1970.
    ///
    /// # Errors
    /// Those of fstat(2), and that the file system does not know when its files were made.
    #[cfg(feature = "postgres")]
    pub fn identity(&self) -> io::Result<(u64, u64, u128)> {
        let metadata = self.file.metadata()?;
        let made = metadata.created()?.duration_since(std::time::UNIX_EPOCH);
        let made = made.map_err(io::Error::other)?;
        Ok((metadata.dev(), metadata.ino(), made.as_nanos()))
    }

    /// The user to whom the guard file belongs.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn owner(&self) -> io::Result<u32> {
        self.file.metadata().map(|metadata| metadata.uid())
    }

    /// The permission bits and group of the guard file.
    ///
    /// # Errors
    /// Those of fstat(2).
    pub fn mode_and_group(&self) -> io::Result<(u32, u32)> {
        self.file
            .metadata()
            .map(|metadata| (metadata.mode() & 0o777, metadata.gid()))
    }

    /// What was written down last; none in a new file, and where somebody wrote something else, as a shell does that opens
    /// it with `9>`.
    ///
    /// # Errors
    /// Those of pread(2).
    pub fn note(&self) -> io::Result<Option<Note>> {
        let mut line = [0; NOTE_BYTES];
        let length = self.file.read_at(&mut line, 0)?;
        let text = std::str::from_utf8(&line[..length]).ok();
        Ok(text.and_then(Note::from_line))
    }

    /// Writes this down, and waits for the disk if a power failure must not take it back. Under the database's write lock.
    ///
    /// # Errors
    /// Those of pwrite(2) and fdatasync(2).
    pub fn write_note(&self, note: Note, is_synced: bool) -> io::Result<()> {
        self.file.write_all_at(note.to_line().as_bytes(), 0)?;
        if is_synced {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// The bytes that tickets have locked, without those that are `known`.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn unknown_bytes(&self, known: &HashSet<i64>) -> io::Result<Vec<i64>> {
        let mut unknown = Vec::new();
        // The kernel names any lock in a range, not the first: what is before and behind it is asked for in turn.
        let mut ranges = vec![(FIRST, i64::MAX)];
        while let Some((from, to)) = ranges.pop() {
            let Some((start, end)) = some_lock(self.file.as_fd(), from, to)? else {
                continue;
            };
            if !known.contains(&start) {
                unknown.push(start);
            }
            if start > from {
                ranges.push((from, start - 1));
            }
            if end < to {
                ranges.push((end + 1, to));
            }
        }
        Ok(unknown)
    }

    /// Whether the path no longer leads to this file: somebody deleted or replaced it.
    pub fn is_replaced(&self) -> bool {
        std::fs::symlink_metadata(&self.path).map_or(true, |metadata| metadata.ino() != self.inode)
    }

    /// Gives the guard file the database's mode, owner and group, where this process may: whoever may use the one
    /// must be able to use the other.
    pub fn match_access(&self, mode: u32, uid: u32, gid: u32) {
        let Ok(own) = self.file.metadata() else {
            return;
        };
        // What is refused here is found by whoever cannot open the guard, with its path in the message.
        if own.uid() != uid || own.gid() != gid {
            let _ = fchown(&self.file, Some(uid), Some(gid));
        }
        if own.mode() & 0o777 != mode & 0o777 {
            let _ = rustix::fs::fchmod(&self.file, Mode::from_bits_truncate(mode & 0o777));
        }
    }

    /// Tries to become the one maker of the database, until this is dropped; false when there is another.
    ///
    /// # Errors
    /// Those of fcntl(2) other than the byte being taken.
    pub fn lock_creation(&self) -> io::Result<bool> {
        set_lock(self.file.as_fd(), libc::F_WRLCK, CREATION)
    }

    /// Tries to become the one who gives out numbers, until what is returned is dropped; none when there is another.
    ///
    /// # Errors
    /// Those of fcntl(2) other than the byte being taken.
    pub fn take_turn(&self) -> io::Result<Option<Turn<'_>>> {
        let is_had = set_lock(self.file.as_fd(), libc::F_WRLCK, TURN)?;
        Ok(is_had.then_some(Turn(self.file.as_fd())))
    }

    /// Whether somebody is the one maker.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn is_creation_locked(&self) -> io::Result<bool> {
        self.is_locked(CREATION)
    }

    /// Whether anybody holds this byte.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn is_locked(&self, byte: i64) -> io::Result<bool> {
        is_range_locked(self.file.as_fd(), byte, 1)
    }

    /// Whether any ticket at all has a living process.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn has_living_tickets(&self) -> io::Result<bool> {
        is_range_locked(self.file.as_fd(), FIRST, 0)
    }

    /// Draws bytes for a ticket and locks those for this process. The one for its job is locked when there is going to be
    /// one: the kernel goes through all locks of the file at each step, and a thousand waiters need not have two each.
    ///
    /// A ticket that shares has a byte of its own for standing in the line, since others can go on when it enters. Nobody
    /// can when one enters that excludes them.
    ///
    /// # Errors
    /// Those of open(2), fcntl(2) and the system's random numbers. "Address in use" is a lock on the whole file, by whatever program.
    pub fn hold(&self, shares: bool) -> io::Result<Hold> {
        let open = || {
            OpenOptions::new()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
                .open(&self.path)
        };
        // Two open files: the one lock must end with this process, the other with its job's last process.
        let (supervisor, tree) = (open()?, open()?);
        let inode = supervisor.metadata()?.ino();
        if inode != self.inode || tree.metadata()?.ino() != inode {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the guard file was replaced meanwhile",
            ));
        }
        let own = draw()?;
        let mark = GuardMark {
            inode,
            waiting: if shares { draw()? } else { own },
            supervisor: own,
            tree: Some(draw()?),
        };
        let hold = Hold {
            mark,
            supervisor,
            tree,
        };
        if hold.lock_own()? {
            return Ok(hold);
        }
        // Nobody draws a byte that another has.
        Err(io::ErrorKind::AddrInUse.into())
    }
}

impl Guard {
    /// Locks a new byte by a descriptor that somebody else keeps open: it is held as long as that is, by whatever
    /// process.
    ///
    /// # Errors
    /// Those of fcntl(2), as when the descriptor is not open for writing, and of the system's random numbers.
    pub fn tie(&self, fd: BorrowedFd<'static>) -> io::Result<Tie> {
        let byte = draw()?;
        if !set_lock(fd, libc::F_WRLCK, byte)? {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let mark = GuardMark {
            inode: self.inode,
            waiting: draw()?,
            supervisor: byte,
            // Whoever has the descriptor is supervisor and job in one.
            tree: Some(byte),
        };
        Ok(Tie { fd, mark })
    }

    /// Whether a byte is locked by this very descriptor.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn is_tied(&self, fd: BorrowedFd<'_>, byte: i64) -> io::Result<bool> {
        // To its owner a lock is no obstacle; to everybody else it is.
        Ok(self.is_locked(byte)? && !is_range_locked(fd, byte, 1)?)
    }

    /// The descriptors that the caller left open on this file: by one of them he may hold a lease.
    ///
    /// # Errors
    /// Those of reading `/proc/self/fd`.
    pub fn inherited_copies(&self) -> io::Result<Vec<BorrowedFd<'static>>> {
        let numbers = std::fs::read_dir("/proc/self/fd")?
            .flatten()
            .filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        Ok(numbers
            .filter_map(inherited)
            .filter(|fd| self.is_open_as(*fd))
            .collect())
    }

    /// Whether a descriptor is open on this file.
    pub fn is_open_as(&self, fd: BorrowedFd<'_>) -> bool {
        let (Ok(own), Ok(other)) = (rustix::fs::fstat(&self.file), rustix::fs::fstat(fd)) else {
            return false;
        };
        (own.st_dev, own.st_ino) == (other.st_dev, other.st_ino)
    }
}

/// See [`Guard::take_turn`].
pub struct Turn<'a>(BorrowedFd<'a>);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = set_lock(self.0, libc::F_UNLCK, TURN);
    }
}

/// A byte that was locked by [`Guard::tie`], and is unlocked when this is dropped.
pub struct Tie {
    fd: BorrowedFd<'static>,
    mark: GuardMark,
}

impl Tie {
    pub fn mark(&self) -> GuardMark {
        self.mark
    }

    /// From now on it is locked until the descriptor is closed, or [`untie`].
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        untie(self.fd, self.mark.supervisor);
    }
}

/// Unlocks a byte that was locked by [`Guard::tie`].
pub fn untie(fd: BorrowedFd<'_>, byte: i64) {
    let _ = set_lock(fd, libc::F_UNLCK, byte);
}

/// The caller's descriptor of this number, if there is one.
pub fn inherited(number: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: F_GETFD only asks. What is open was inherited, or is one of our own, which are close-on-exec; neither
    // is closed while this program runs, and nothing but locks is done by it.
    unsafe {
        let flags = libc::fcntl(number, libc::F_GETFD);
        let is_inherited = flags != -1 && flags & libc::FD_CLOEXEC == 0;
        is_inherited.then(|| BorrowedFd::borrow_raw(number))
    }
}

/// A ticket's locked bytes: for standing in the line, for this process, for its job. Dropping it gives them back, inherited copies included.
pub struct Hold {
    mark: GuardMark,
    supervisor: File,
    tree: File,
}

impl Hold {
    /// What the ticket's row says of these bytes.
    pub fn mark(&self) -> GuardMark {
        self.mark
    }

    fn lock_own(&self) -> io::Result<bool> {
        let lock = |byte| set_lock(self.supervisor.as_fd(), libc::F_WRLCK, byte);
        Ok(lock(self.mark.supervisor)?
            && (self.mark.waiting == self.mark.supervisor || lock(self.mark.waiting)?))
    }

    /// The ticket stands in the line no longer: it was granted, and that is committed.
    pub fn enter(&self) {
        if self.mark.waiting != self.mark.supervisor {
            let _ = set_lock(self.supervisor.as_fd(), libc::F_UNLCK, self.mark.waiting);
        }
    }

    /// Locks the byte that the job will inherit, before it is started.
    ///
    /// # Errors
    /// Those of fcntl(2).
    pub fn lock_tree(&self) -> io::Result<()> {
        match self.mark.tree {
            Some(tree) if !set_lock(self.tree.as_fd(), libc::F_WRLCK, tree)? => {
                Err(io::ErrorKind::AddrInUse.into())
            }
            _ => Ok(()),
        }
    }

    /// For a job that has started already and cannot be given its byte.
    pub fn without_tree(mut self) -> Self {
        self.mark.tree = None;
        self
    }

    /// The descriptor that the job inherits. It says close-on-exec; the child makes its own copy.
    pub fn tree(&self) -> BorrowedFd<'_> {
        self.tree.as_fd()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Explicitly: a daemon that the job left behind has a copy of the tree's descriptor, and closing ours
        // would leave its lock (flock's best-known trap).
        self.enter();
        let _ = set_lock(self.supervisor.as_fd(), libc::F_UNLCK, self.mark.supervisor);
        if let Some(tree) = self.mark.tree {
            let _ = set_lock(self.tree.as_fd(), libc::F_UNLCK, tree);
        }
    }
}

/// Blocks in the kernel until nobody holds this byte of the guard file any more, or that file was replaced.
///
/// # Errors
/// Those of open(2) and fcntl(2).
pub fn wait_for_byte(path: &Path, inode: u64, byte: i64) -> io::Result<()> {
    // An open file of its own, for reading: a waiter needs no more permission than to look.
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY)
        .open(path)?;
    if file.metadata()?.ino() != inode {
        return Ok(());
    }
    let lock = flock(libc::F_RDLCK, byte, 1);
    loop {
        // SAFETY: an open descriptor and a valid structure. The lock ends with the descriptor, on return.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLKW, &lock) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn draw() -> io::Result<i64> {
    let bits = i64::from_ne_bytes(chance::bytes()?);
    Ok(FIRST + (bits & LAST) % (LAST - FIRST))
}

fn flock(kind: i32, start: i64, len: i64) -> libc::flock {
    // SAFETY: a structure of integers, for which zero is valid; l_pid must be zero for these locks.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).expect("lock kinds are 0, 1 and 2");
    lock.l_whence = i16::try_from(libc::SEEK_SET).expect("SEEK_SET is 0");
    lock.l_start = start;
    lock.l_len = len;
    lock
}

/// Locks or unlocks one byte without waiting; false when another has it.
fn set_lock(file: BorrowedFd<'_>, kind: i32, byte: i64) -> io::Result<bool> {
    // SAFETY: an open descriptor and a valid structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &flock(kind, byte, 1)) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        error if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        error => Err(error),
    }
}

/// Asks without taking. As a reader would ask: a waiter's read lock is not a holder.
fn is_range_locked(file: BorrowedFd<'_>, start: i64, len: i64) -> io::Result<bool> {
    Ok(ask(file, start, len)?.is_some())
}

/// The first and the last byte of some lock in a range, as far as it is in there.
fn some_lock(file: BorrowedFd<'_>, from: i64, to: i64) -> io::Result<Option<(i64, i64)>> {
    // To the end of the file is a length of none.
    let len = if to == i64::MAX { 0 } else { to - from + 1 };
    let found = ask(file, from, len)?;
    Ok(found.map(|(start, len)| {
        let end = if len == 0 { i64::MAX } else { start + len - 1 };
        (start.max(from), end.min(to))
    }))
}

/// Where a lock is that is in a reader's way, and how long it is; 0 is to the end of the file.
fn ask(file: BorrowedFd<'_>, start: i64, len: i64) -> io::Result<Option<(i64, i64)>> {
    let mut lock = flock(libc::F_RDLCK, start, len);
    // SAFETY: an open descriptor and a valid structure, which the kernel fills in.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let is_locked = i32::from(lock.l_type) != libc::F_UNLCK;
    Ok(is_locked.then_some((lock.l_start, lock.l_len)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_byte_is_seen_by_others_and_gone_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let (own, other) = (
            Guard::open(&database, 0o600).unwrap(),
            Guard::open_to_ask(&database).unwrap(),
        );
        let hold = own.hold(false).unwrap();
        assert!(!other.is_locked(hold.mark().tree.unwrap()).unwrap());
        hold.lock_tree().unwrap();
        let inherited = hold.tree().try_clone_to_owned().unwrap();
        let mark = hold.mark();
        assert!(
            other.is_locked(mark.supervisor).unwrap()
                && other.is_locked(mark.tree.unwrap()).unwrap()
        );
        assert!(other.has_living_tickets().unwrap());
        drop(hold);
        assert!(
            !other.is_locked(mark.supervisor).unwrap()
                && !other.is_locked(mark.tree.unwrap()).unwrap()
        );
        assert!(!other.has_living_tickets().unwrap());
        drop(inherited);
    }

    #[test]
    fn the_creation_byte_is_no_living_ticket() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let (own, other) = (
            Guard::open(&database, 0o600).unwrap(),
            Guard::open(&database, 0o600).unwrap(),
        );
        assert!(own.lock_creation().unwrap());
        assert!(!other.lock_creation().unwrap());
        assert!(!other.has_living_tickets().unwrap());
        drop(own);
        assert!(other.lock_creation().unwrap());
    }

    #[test]
    fn bytes_that_nobody_knows_are_found_whatever_their_order() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let guard = Guard::open(&database, 0o600).unwrap();
        let holds: Vec<Hold> = (0..20).map(|_| guard.hold(false).unwrap()).collect();
        let bytes: Vec<i64> = holds.iter().map(|hold| hold.mark().supervisor).collect();
        let known: HashSet<i64> = bytes[5..].iter().copied().collect();
        let mut found = guard.unknown_bytes(&known).unwrap();
        found.sort_unstable();
        let mut expected = bytes[..5].to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
        drop(holds);
        assert!(guard.unknown_bytes(&HashSet::new()).unwrap().is_empty());
    }

    #[test]
    fn a_lock_on_all_of_the_file_is_one_that_nobody_knows() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let (own, other) = (
            Guard::open(&database, 0o600).unwrap(),
            Guard::open(&database, 0o600).unwrap(),
        );
        let all = flock(libc::F_WRLCK, 0, 0);
        // SAFETY: an open descriptor and a valid structure.
        assert_eq!(
            unsafe { libc::fcntl(other.file.as_raw_fd(), libc::F_OFD_SETLK, &all) },
            0
        );
        assert_eq!(own.unknown_bytes(&HashSet::new()).unwrap(), [FIRST]);
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_nothing_else_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let guard = Guard::open(&database, 0o600).unwrap();
        assert_eq!(guard.note().unwrap(), None);
        for number in [0, 1_790_000_000_000, i64::MAX] {
            let note = Note {
                number,
                before: number / 2,
                database: (u64::MAX, 17),
                log: (0, 1),
            };
            guard.write_note(note, false).unwrap();
            assert_eq!(guard.note().unwrap(), Some(note));
            guard.write_note(note.committed(), false).unwrap();
            assert_eq!(guard.note().unwrap(), Some(note.committed()));
        }
        let line = std::fs::read_to_string(Guard::path_for(&database)).unwrap();
        assert_eq!(line.len(), NOTE_BYTES);
        for other in [
            String::new(),
            line[..NOTE_BYTES - 1].to_owned(),
            format!("-{}", &line[1..]),
            "12\n".to_owned(),
            line.replace(' ', "."),
            line.replace('0', "x"),
        ] {
            std::fs::write(Guard::path_for(&database), &other).unwrap();
            assert_eq!(guard.note().unwrap(), None, "{other:?}");
        }
    }

    #[test]
    fn a_note_of_the_first_programs_is_read() {
        let line = "00000000000000000012 00000000000000000007 00000000000000000008 00000000000000000009 00000000000000000010\n";
        let note = Note::from_line(line).unwrap();
        assert_eq!((note.number, note.log), (12, (9, 10)));
        assert!(note.is_of(12) && !note.is_of(11));
    }

    #[test]
    fn a_commit_that_never_came_is_told_from_an_old_copy() {
        let drawn = Note {
            number: 12,
            before: 9,
            database: (1, 2),
            log: (3, 4),
        };
        assert!(drawn.is_of(12) && drawn.is_of(9));
        assert!(!drawn.is_of(8) && !drawn.is_of(10) && !drawn.is_of(13));
        let done = drawn.committed();
        assert!(done.is_of(12) && !done.is_of(9));
    }

    #[test]
    fn a_replaced_guard_file_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let database = directory.path().join("l.db");
        let guard = Guard::open(&database, 0o600).unwrap();
        assert!(!guard.is_replaced());
        std::fs::remove_file(Guard::path_for(&database)).unwrap();
        assert!(guard.is_replaced());
        let _new = Guard::open(&database, 0o600).unwrap();
        assert!(guard.is_replaced());
    }
}
