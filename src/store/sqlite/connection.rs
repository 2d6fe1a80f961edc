//! One SQLite connection: opening it so that it harms nobody, how long it waits for locks, what its commits survive.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use rustix::fs::Mode;

use super::super::Durability;
use super::file::{self, OwnUmask};
use crate::duration::millis;
use crate::wait::{self, Interrupted};

/// The pause between two tries at SQLite's locks. SQLite's own back-off reaches 100 ms and starves.
pub const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause, where there is a crowd: a thousand processes that look every millisecond leave no processor time
/// to the one that has the lock, and get nowhere.
const CROWD_PAUSE: Duration = Duration::from_millis(200);

/// Of the time that was waited in vain, what the next pause may be: that much later at most comes who waits for one lock
/// alone.
const SHARE: u32 = 16;

/// As many as there are: what was prepared ahead must still be there when it is wanted.
const STATEMENTS: usize = 64;

/// How long side files may be unusable that another user is making: SQLite gives them their owner and mode only
/// after it has made them.
pub const SETTLING: Duration = Duration::from_secs(1);

/// When the busy handler gives up, shared with the handler: milliseconds after `origin`.
#[derive(Clone)]
pub struct Deadline {
    origin: Instant,
    millis: Arc<AtomicI64>,
    heeds_signals: Arc<AtomicBool>,
}

impl Deadline {
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            millis: Arc::default(),
            heeds_signals: Arc::default(),
        }
    }

    pub fn set(&self, patience: Duration) {
        self.prolong(patience);
        self.heeds_signals.store(false, Ordering::Relaxed);
    }

    /// Counts from now, with all else as it was.
    pub fn prolong(&self, patience: Duration) {
        self.millis
            .store(millis(self.origin.elapsed() + patience), Ordering::Relaxed);
    }

    /// From now on it has passed, too, when a signal has come that ends the program and is kept for later.
    pub fn heed_signals(&self) {
        self.heeds_signals.store(true, Ordering::Relaxed);
    }

    pub fn has_passed(&self) -> bool {
        millis(self.origin.elapsed()) >= self.millis.load(Ordering::Relaxed)
            || self.interruption().is_some()
    }

    pub fn interruption(&self) -> Option<Interrupted> {
        let heeds_signals = self.heeds_signals.load(Ordering::Relaxed);
        wait::interruption().filter(|_| heeds_signals)
    }
}

/// Opens a database that is there, and reads enough of it to know that it can be read.
///
/// # Errors
/// It cannot be opened or read, or is one of another layout.
pub fn open(path: &Path, may_write: bool, patience: &Deadline) -> Result<Connection> {
    settled(may_write, || open_once(path, may_write, patience))
}

/// Opens, and tries again while another user is just making the side files.
fn settled<T>(may_write: bool, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match open() {
            Err(error) if may_write && is_unsettled(&error) && began.elapsed() < SETTLING => {
                wait::pause(BUSY_PAUSE);
            }
            other => return other,
        }
    }
}

/// Opens a database of whatever layout, to change that; and says which it is.
///
/// # Errors
/// It cannot be opened or read.
pub fn open_to_update(path: &Path, patience: &Deadline) -> Result<(Connection, u32)> {
    let (connection, layout) = settled(true, || connect(path, true, patience))?;
    set_durability(&connection, Durability::Power)?;
    Ok((connection, layout))
}

/// As of a file that another has locked: it is worth to try again.
pub fn busy() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

/// Whether an error may come of side files that another user is just making.
pub fn is_unsettled(error: &anyhow::Error) -> bool {
    let code = error
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    matches!(
        code,
        Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly | ErrorCode::PermissionDenied)
    )
}

fn open_once(path: &Path, may_write: bool, patience: &Deadline) -> Result<Connection> {
    let (connection, layout) = connect(path, may_write, patience)?;
    file::check_layout(path, layout)?;
    Ok(connection)
}

/// # Errors
/// SQLite's.
pub fn layout_of(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("pragma user_version", [], |row| row.get(0))
}

/// With the layout that it has.
fn connect(path: &Path, may_write: bool, patience: &Deadline) -> Result<(Connection, u32)> {
    // SQLite makes its side files with the database's own mode; the umask would first make them too narrow for the
    // others who share it, who may come between that and SQLite's chmod.
    let _umask = OwnUmask::set(Mode::empty());
    let mut connection = if may_write {
        // No URI is ever made of the path: it is absolute, and SQLite takes it as it is.
        Connection::open_with_flags(path, FLAGS | OpenFlags::SQLITE_OPEN_READ_WRITE)?
    } else {
        open_to_read(path)?
    };
    let deadline = patience.clone();
    let mut began = Instant::now();
    connection.busy_handler(Some(move |tries| {
        if tries == 0 {
            began = Instant::now();
        }
        let goes_on = !deadline.has_passed();
        if goes_on {
            wait::pause((began.elapsed() / SHARE).clamp(BUSY_PAUSE, CROWD_PAUSE));
        }
        goes_on
    }))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // The last closer's checkpoint would cost four fsyncs; see `SqliteStore::tidy` for what is done instead.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // A database that others may write to: nothing in its schema runs with our rights.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    // Opens the side files, too. The header in the file may be older than what the WAL says.
    let layout = layout_of(&connection)?;
    Ok((connection, layout))
}

const FLAGS: OpenFlags = OpenFlags::SQLITE_OPEN_NO_MUTEX.union(OpenFlags::SQLITE_OPEN_NOFOLLOW);

/// Opens for somebody who may only read. SQLite would make the side files for him, and then they would be his, and
/// lock the owner out. Where there is no WAL, nobody is writing and the file alone is the whole database.
fn open_to_read(path: &Path) -> Result<Connection> {
    let flags = FLAGS | OpenFlags::SQLITE_OPEN_READ_ONLY;
    let has_log = std::fs::metadata(file::beside(path, "-wal")).is_ok_and(|wal| wal.len() > 0);
    if has_log {
        let index = file::beside(path, "-shm");
        // Without the index SQLite would make one, in this user's name.
        std::fs::metadata(&index).with_context(|| format!("cannot read {}", index.display()))?;
        return Ok(Connection::open_with_flags(path, flags)?);
    }
    open_alone(path)
}

/// Opens the file alone, without a log: it is read as it is, no side file is made, and nothing is locked.
///
/// # Errors
/// It cannot be opened.
pub fn open_alone(path: &Path) -> Result<Connection> {
    let flags = FLAGS | OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Ok(Connection::open_with_flags(immutable_uri(path)?, flags)?)
}

/// Everything but the plainest is written by its number: what the path means is not for the URI to say.
fn immutable_uri(path: &Path) -> Result<String> {
    if !path.is_absolute() {
        bail!("not an absolute path");
    }
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            write!(uri, "%{byte:02X}")?;
        }
    }
    Ok(uri + "?immutable=1")
}

/// Sets what the connection's commits survive from now on. Checkpoints are left to `SqliteStore::tidy`.
///
/// # Errors
/// SQLite's, of a pragma.
pub fn set_durability(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    let synchronous = match durability {
        Durability::Process => "normal",
        Durability::Power => "full",
    };
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.pragma_update(None, "synchronous", synchronous)
}
