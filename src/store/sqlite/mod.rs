//! The store in a SQLite file: opening it, the one way to write, and the statements.
//!
//! `file` owns the database as a file, `trust` judges what lies beside it, `connection` opens it, `ticket` has the rows and their
//! statements, `line` has the lines as `rules::queue` asks for them, `history` has the log, `schema.sql` is the layout. For messages,
//! `blocker` says who keeps the database locked, `strangers` who has locks of which it knows nothing, `locks` reads the kernel's lists.

mod blocker;
mod connection;
mod file;
mod history;
mod line;
mod locks;
mod strangers;
mod ticket;
mod trust;

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use rusqlite::{
    Connection, ErrorCode, OptionalExtension, Transaction, TransactionBehavior, params,
};
use rustix::fs::Access as Permission;

use self::connection::{BUSY_PAUSE, Deadline, SETTLING, set_durability};
use self::file::{Content, Identity};
#[cfg(feature = "postgres")]
pub use self::file::{is_local, make_directories};
use self::line::{Found, Line, Seen};
pub use self::strangers::find_orphans;
use self::ticket::{Grant, Rules, Ticket};
use self::trust::Place;
use super::record;
use super::{
    Answer, Backlog, Durability, History, Keeping, Look, Obstacle, Purpose, Query, Shown, Store,
};
use crate::clock::{Clock, Moment};
use crate::duration::{from_millis, millis};
use crate::guard::{self, Guard, Hold, Note, Tie};
use crate::lock::{
    Ahead, Ending, Event, GuardMark, Held, Lease, LockName, Mode, Request, Standing, Token,
};
use crate::rules::queue::{self, END_OF_LINE};
use crate::rules::standing::may_live_for;
use crate::signals::NoStops;
use crate::wait::{self, Bell};

/// The first SQLite without the defect that can lose a WAL's frames at its reset.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How long a transaction waits for the write lock while nobody writes, whatever `--wait` says: nobody holds it for more
/// than milliseconds unless he is stopped. Behind a crowd it may take longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one does that has something else to watch meanwhile, and will try again.
const SHORT_PATIENCE: Duration = Duration::from_millis(20);

/// How long one does that only wants something written down: the answer was given, and is not to be late for it.
const NOTING: Duration = Duration::from_secs(1);

/// How large the WAL may be, in frames, before it is written back: it would never shrink by itself, and the first to
/// open the database reads all of it. To write it back takes milliseconds, which are too many between two jobs of a
/// moment that wait for each other; and while they do, nobody is the first. A `run` writes six frames or seven, so that
/// one of a dozen writes them back.
const fn wal_frames(backlog: Backlog) -> u64 {
    match backlog {
        Backlog::Some => 80,
        Backlog::Much => 768,
    }
}

/// A frame is a page and its header; the file has a header of its own.
const fn wal_bytes(frames: u64) -> u64 {
    32 + frames * (24 + file::PAGE_BYTES as u64)
}

/// Tickets looked at by one sweep.
const SWEEP: i64 = 64;

/// How long who has locked bytes may have no row yet, or no row any more.
const COMING: Duration = Duration::from_millis(50);

pub struct SqliteStore {
    path: PathBuf,
    /// How it was named, where links lead there.
    link: Option<PathBuf>,
    purpose: Purpose,
    connection: Connection,
    identity: Identity,
    guard: Option<Guard>,
    vouches: bool,
    clock: Clock,
    patience: Deadline,
    hold: Option<Hold>,
    /// Where the own request stands in the line, and the token of its ticket.
    place: Option<(i64, Token)>,
    /// Where nobody can stand in the line: the own request was found to be one that may wait.
    waits_outside: bool,
    /// The bytes of those who hold locks that this database knows nothing of, while one waits for them.
    lost: Option<Lost>,
    /// SQLite's `data_version` when the own lease's row was last read.
    seen_version: Option<i64>,
}

/// What came of looking along the line, as it was committed.
enum Entry {
    Granted(Lease),
    Busy(Vec<Held>),
    Waiting(i64, Obstacle, Vec<Held>),
    Deadlock(Vec<Held>),
    OtherSlots(u32),
    /// These bytes of the guard file are locked by holders of locks that are not in the database.
    Lost(Lost),
}

/// Bytes of the guard file that no row names.
#[derive(Clone)]
struct Lost {
    bytes: Vec<i64>,
    /// The number in the guard file when they were seen. While it is the same, nobody has entered another database at the path.
    noted: Option<i64>,
}

/// Opens the database at `named`, or the default one. None: there is none yet, where that is an answer and not a
/// mistake, which is when only the default was meant and only to look.
///
/// # Errors
/// It cannot be used; the message says which path and why.
pub fn open(named: Option<&Path>, purpose: Purpose) -> Result<Option<SqliteStore>> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        bail!(
            "cannot use SQLite {}: this program needs 3.51.3 or newer",
            rusqlite::version()
        );
    }
    let called = if let Some(path) = named {
        std::path::absolute(path).with_context(|| format!("cannot open {}", path.display()))?
    } else {
        let path = file::default_path()?;
        if matches!(purpose, Purpose::Take(_)) {
            file::make_directories(&path)?;
        } else if !path.parent().is_some_and(Path::exists) {
            return missing(&path, named, purpose);
        }
        path
    };
    let path = file::resolve(named.unwrap_or(&called))?;
    file::check_name(&path)?;
    let vouches = file::is_local(&path)?;
    let clock = if vouches {
        Clock::of_this_boot()
    } else {
        Clock::wall_only()
    };
    loop {
        let content = file::peek(&path)?;
        match (content, purpose) {
            (Content::Database | Content::Older, _) => {}
            (Content::Empty | Content::Unfinished, Purpose::Look) => {
                if let Some(who) = file::holders_of_emptied(&path) {
                    bail!(
                        "cannot read {}: it was emptied while processes hold locks of it{who}",
                        path.display()
                    );
                }
                return Ok(None);
            }
            (_, Purpose::Change | Purpose::Look) => return missing(&path, named, purpose),
            _ => {
                file::make(&path, &clock)?;
                continue;
            }
        }
        let Some(place) = Place::of(&path)? else {
            continue;
        };
        place.check_before()?;
        if purpose != Purpose::Look {
            let may_write = rustix::fs::access(&path, Permission::WRITE_OK);
            may_write
                .map_err(std::io::Error::from)
                .with_context(|| format!("cannot write {}", path.display()))?;
            file::wait_for_lost_holders(&path)?;
        }
        if matches!(purpose, Purpose::Take(_)) {
            place.check_database()?;
        }
        if purpose != Purpose::Look {
            place.claim(purpose)?;
        }
        if content == Content::Older {
            file::update(&path, vouches)?;
        }
        // Twice the same file around the open: then it is the one that SQLite has.
        let Some(identity) = file::identity(&path)? else {
            continue;
        };
        let opened = SqliteStore::open(&place, purpose, identity, vouches, clock.clone());
        let Some(mut store) = opened? else {
            continue;
        };
        store.link = (called != path).then_some(called);
        return Ok(Some(store));
    }
}

/// The bytes of those who hold locks that the database knows nothing of: it was put in the place of theirs, or is an old
/// copy of it. Not every byte is such a holder's that no row names: there are those who come and those who go. They are
/// gone in a moment, and who came later is not waited for, but looks for himself.
fn lost_holders(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    own: Option<GuardMark>,
    seen: Option<&Lost>,
) -> Result<Lost> {
    let noted = rules.noted.map(|note| note.number);
    let Some(guard) = rules.guard.filter(|_| !rules.is_as_left) else {
        let bytes = Vec::new();
        return Ok(Lost { bytes, noted });
    };
    let mut known = ticket::known_bytes(transaction, guard.inode())?;
    if let Some(mark) = own {
        known.extend([mark.waiting, mark.supervisor]);
    }
    let mut unknown = guard
        .unknown_bytes(&known)
        .context("cannot ask the guard file")?;
    if let Some(seen) = seen.filter(|seen| seen.noted == noted) {
        unknown.retain(|byte| seen.bytes.contains(byte));
    }
    Ok(Lost {
        bytes: unknown,
        noted,
    })
}

/// Tickets, as others are told of them.
fn shown(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    tickets: Vec<Seen>,
) -> Result<Vec<Held>> {
    let show = |(ticket, standing): Seen| ticket.into_held(transaction, rules, standing);
    tickets.into_iter().map(show).collect()
}

fn cannot_tie(number: i32) -> String {
    format!("cannot lock a byte by descriptor {number}")
}

/// The caller's descriptor of this number. It was open on the guard file when this began; but nobody could see a byte that is
/// locked in a file which was replaced since then.
fn descriptor(number: i32, guard: Option<&Guard>, database: &Path) -> Result<BorrowedFd<'static>> {
    let fd = guard::inherited(number).with_context(|| cannot_tie(number))?;
    if !guard.is_some_and(|guard| guard.is_open_as(fd)) {
        let path = Guard::path_for(database);
        bail!("descriptor {number} is not open on {}", path.display());
    }
    Ok(fd)
}

fn missing(path: &Path, named: Option<&Path>, purpose: Purpose) -> Result<Option<SqliteStore>> {
    if named.is_none() && purpose == Purpose::Look {
        return Ok(None);
    }
    bail!(
        "cannot open {}: there is no database yet (acquire and run make it)",
        path.display()
    )
}

/// The path of the default database, for a message that there is none.
///
/// # Errors
/// The password database has no home for this user.
pub fn default_location() -> Result<String> {
    Ok(file::default_path()?.display().to_string())
}

/// The directory of the default database, where other stores keep what this user has on this machine.
///
/// # Errors
/// The password database has no home for this user.
#[cfg(feature = "postgres")]
pub fn default_directory() -> Result<PathBuf> {
    let mut path = file::default_path()?;
    path.pop();
    Ok(path)
}

/// See [`super::local_offset`]. SQLite asks the C library.
///
/// # Errors
/// There is no local time for it.
pub fn local_offset(at: i64) -> Result<i64> {
    history::local_offset(&Connection::open_in_memory()?, at)
}

/// Of the SQLite that is in this program.
pub fn version() -> &'static str {
    rusqlite::version()
}

/// Opens the guard file again where another stands in its place: to ask, and for who changes something to write in it, for his
/// may be the first write of a boot. After rows were read, or may not be written any more by others: whose bytes are in the new
/// one, by their rows, is not to be judged by the old.
fn renew_guard(guard: &mut Option<Guard>, database: &Path, purpose: Purpose) -> Result<()> {
    if guard.as_ref().is_some_and(|guard| !guard.is_replaced()) {
        return Ok(());
    }
    let opened = match purpose {
        Purpose::Look => Guard::open_to_ask(database),
        Purpose::Change | Purpose::Take(_) => Guard::open_to_write(database),
    };
    *guard = match opened {
        Ok(guard) => Some(guard),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => {
            return Err(error)
                .with_context(|| format!("cannot open {}", Guard::path_for(database).display()));
        }
    };
    Ok(())
}

impl SqliteStore {
    /// None when the path leads to another file by now.
    fn open(
        place: &Place,
        purpose: Purpose,
        identity: Identity,
        vouches: bool,
        clock: Clock,
    ) -> Result<Option<Self>> {
        let path = place.path();
        let why = || format!("cannot open {}", path.display());
        let may_write = rustix::fs::access(path, Permission::WRITE_OK);
        let patience = Deadline::new();
        patience.set(PATIENCE);
        let connection = connection::open(path, may_write.is_ok(), &patience);
        let connection = connection
            .map_err(|error| {
                if blocker::is_locked(&error) {
                    anyhow!(blocker::about(path, PATIENCE))
                } else {
                    error
                }
            })
            .with_context(why)?;
        if !file::is_in_place(path, identity).with_context(why)? {
            return Ok(None);
        }
        // Those that SQLite has made or found by now, before a word is written into them.
        place.check_all(purpose)?;
        let identity = match identity.with_side_files(path) {
            Ok(identity) => identity,
            // Of a file that was opened to be read, or whose journal somebody changed: it is all there is.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => identity,
            Err(error) => return Err(error).with_context(why),
        };
        let guard = match purpose {
            Purpose::Take(_) => Some(file::open_guard(path)?),
            Purpose::Change | Purpose::Look => {
                let mut guard = None;
                renew_guard(&mut guard, path, purpose)?;
                guard
            }
        };
        let store = Self {
            path: path.to_owned(),
            link: None,
            purpose,
            connection,
            identity,
            guard,
            vouches,
            clock,
            patience,
            hold: None,
            place: None,
            waits_outside: false,
            lost: None,
            seen_version: None,
        };
        if purpose != Purpose::Look {
            set_durability(&store.connection, store.durability()).with_context(why)?;
        }
        Ok(Some(store))
    }

    fn durability(&self) -> Durability {
        match self.purpose {
            // Where no boot can be told from another, nobody would know that the newest commits may be lost.
            Purpose::Take(durability) if self.clock.boot_id().is_some() => durability,
            _ => Durability::Power,
        }
    }

    /// Runs `act` in one immediate transaction, which may be tried again from its start: when SQLite's locking
    /// protocol was disturbed, and once when the disk was full and the WAL could be written back.
    fn write<T>(
        &mut self,
        patience: Duration,
        act: impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        self.patience.set(patience);
        self.write_in_time(patience, false, act)
    }

    /// As [`Self::write`] for who gives out numbers: in turn with those who have another database open that stands, or stood, at
    /// the path. A signal that ends the program ends it before it has begun.
    fn write_in_turn<T>(
        &mut self,
        act: impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        self.patience.set(PATIENCE);
        self.patience.heed_signals();
        self.write_in_time(PATIENCE, true, act)
    }

    fn write_in_time<T>(
        &mut self,
        patience: Duration,
        in_turn: bool,
        mut act: impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        // A writer that is stopped in the middle stops everybody.
        let _no_stops = NoStops::begin();
        let began = Instant::now();
        let mut made_room = false;
        let mut last_write = None;
        loop {
            let error = match self.try_write(in_turn, &mut act) {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            match error
                .downcast_ref::<rusqlite::Error>()
                .and_then(rusqlite::Error::sqlite_error_code)
            {
                Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed)
                    if !self.patience.has_passed() =>
                {
                    wait::pause(BUSY_PAUSE);
                }
                Some(ErrorCode::DatabaseBusy | ErrorCode::FileLockingProtocolFailed) => {
                    if let Some(interrupted) = self.patience.interruption() {
                        return Err(interrupted.into());
                    }
                    let written = self.last_write().filter(|_| patience == PATIENCE);
                    let age = written.map(|written| written.elapsed().unwrap_or_default());
                    match age.and_then(|age| PATIENCE.checked_sub(age)) {
                        // Whatever the clocks say: it is another write than the last time.
                        Some(left) if written != last_write => self.patience.prolong(left),
                        _ => return Err(self.is_locked(patience)),
                    }
                    last_write = written;
                }
                Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) if !made_room => {
                    made_room = true;
                    self.checkpoint();
                }
                _ if connection::is_unsettled(&error) && began.elapsed() < SETTLING => {
                    wait::pause(BUSY_PAUSE);
                    if let Some(place) = Place::of(&self.path)? {
                        place.claim(self.purpose)?;
                    }
                    self.connection = connection::open(&self.path, true, &self.patience)
                        .with_context(|| format!("cannot open {}", self.path.display()))?;
                    set_durability(&self.connection, self.durability())?;
                }
                _ => return Err(error.context(format!("cannot write {}", self.path.display()))),
            }
        }
    }

    /// When anybody last wrote to the database.
    fn last_write(&self) -> Option<SystemTime> {
        let log = std::fs::metadata(file::beside(&self.path, "-wal"));
        log.and_then(|log| log.modified()).ok()
    }

    /// The error that says who holds the file up. After a short time nobody does, and to look at all locks of the system
    /// would hold up everybody who locks anything.
    fn is_locked(&self, patience: Duration) -> anyhow::Error {
        let what = if patience == PATIENCE {
            blocker::about(&self.path, patience)
        } else {
            "it is locked".into()
        };
        anyhow!("cannot write {}: {what}", self.path.display())
    }

    fn try_write<T>(
        &mut self,
        in_turn: bool,
        act: &mut impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        if let Some(done) = self.attempt(in_turn, act, self.durability() == Durability::Power)? {
            return Ok(done);
        }
        set_durability(&self.connection, Durability::Power)?;
        let done = self.attempt(in_turn, act, true);
        // What is committed is not to be tried again because of this, as when the file is locked just now or was replaced:
        // the next commits are then synced too, which only takes longer.
        let _ = set_durability(&self.connection, self.durability());
        Ok(done?.expect("what is synced is not refused"))
    }

    /// One transaction; none when its commit has to survive a power failure and would not: it is the first of a new
    /// boot, or takes the counter too far.
    fn attempt<T>(
        &mut self,
        in_turn: bool,
        act: &mut impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
        is_synced: bool,
    ) -> Result<Option<T>> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        if !matches!(self.purpose, Purpose::Take(_)) {
            renew_guard(&mut self.guard, &self.path, self.purpose)?;
        }
        let (serial, boot) = ticket::serial_and_boot(&transaction)?;
        let is_new_boot = self.clock.boot_id().is_some() && boot.as_deref() != self.clock.boot_id();
        if is_new_boot && !is_synced {
            return Ok(None);
        }
        let guard = self.guard.as_ref().filter(|_| self.vouches);
        let path = &self.path;
        let cannot = |what: &str| format!("cannot {what} {}", Guard::path_for(path).display());
        // Had until this is committed. Without it, whoever is about to enter a database that was replaced a moment ago would draw
        // the number that somebody draws in the new one, and neither would know of the other.
        let turn = guard
            .filter(|_| in_turn || is_new_boot)
            .map(Guard::take_turn)
            .transpose()
            .with_context(|| cannot("lock"))?;
        if matches!(turn, Some(None)) {
            return Err(connection::busy().into());
        }
        let noted = guard.map(Guard::note).transpose();
        let noted = noted.with_context(|| cannot("read"))?.flatten();
        // The clocks are read now that the write lock is had: however long that took, it counts for nobody.
        let rules = Rules {
            clock: &self.clock,
            began: Moment::now(),
            now: self.clock.now(),
            guard,
            noted,
            next_note: Note {
                before: serial,
                ..self.identity.note()
            },
            drawn: Cell::new(None),
            is_as_left: noted.is_some_and(|note| note.is_of(serial)),
            is_synced,
        };
        if is_new_boot {
            ticket::begin_boot(&transaction, &rules)?;
        }
        let done = match act(&transaction, &rules) {
            Err(error) if error.is::<ticket::Unsynced>() => return Ok(None),
            other => other?,
        };
        transaction.commit()?;
        if let (Some(guard), Some(drawn)) = (guard, rules.drawn.get()) {
            // Before anybody acts on what was committed, and with the turn still had: see `Note::is_of`. A power failure may
            // take it back, for it ends all whom it is about.
            guard
                .write_note(drawn.committed(), false)
                .with_context(|| cannot("write"))?;
        }
        Ok(Some(done))
    }

    /// Writes the WAL back and cuts it to nothing, if nobody is in the way.
    fn checkpoint(&self) {
        self.patience.set(Duration::ZERO);
        let _ = self
            .connection
            .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()));
    }

    fn checkpoint_if_large(&self, backlog: Backlog) -> bool {
        let is_large = std::fs::metadata(file::beside(&self.path, "-wal"))
            .is_ok_and(|wal| wal.len() > wal_bytes(wal_frames(backlog)));
        if is_large {
            self.checkpoint();
        }
        is_large
    }

    /// Removes leases that are over and that nobody asks for any more: a few at a time, from a random place on, so
    /// that none is left for ever and none costs a scan.
    fn sweep(&mut self) -> Result<()> {
        let from = Token::draw()?;
        self.write(SHORT_PATIENCE, |transaction, rules| {
            if rules.guard.is_some_and(Guard::is_replaced) {
                // The own guard file tells nothing of those who came after.
                return Ok(());
            }
            for ticket in ticket::some(transaction, &from, SWEEP)? {
                let standing = rules.standing(&ticket)?;
                if standing.is_over() {
                    ticket::bury(transaction, rules, &ticket, standing)?;
                }
            }
            history::prune(transaction, rules.now.wall)
        })
    }

    /// Grants a request, or puts it into the line, unless what was opened is not what the paths lead to any more. That
    /// is asked with the write lock and the turn had, and after the guard's bytes were locked: whoever enters a new database has
    /// either seen those bytes, and waits, or had it in place before.
    fn enter(
        &mut self,
        request: &Request,
        token: &Token,
        mark: Option<GuardMark>,
        keeping: Keeping,
        waits: bool,
    ) -> Result<Option<Entry>> {
        let (path, identity, link) = (self.path.clone(), self.identity, self.link.clone());
        let place = self.place.map(|(id, _)| id);
        let is_new = place.is_none() && !self.waits_outside;
        let of_run = keeping == Keeping::Supervised;
        // Unlocked again unless the grant is committed.
        let mut tie: Option<Tie> = None;
        let lost = self.lost.take();
        let entry = self.write_in_turn(|transaction, rules| {
            let is_in_place = || -> Result<bool> {
                Ok(file::is_in_place(&path, identity)?
                    && !link
                        .as_ref()
                        .is_some_and(|link| file::leads_elsewhere(link, &path))
                    && !rules.guard.is_some_and(Guard::is_replaced))
            };
            if !is_in_place()? {
                return Ok(None);
            }
            if place.is_some() && !ticket::is_waiting(transaction, token)? {
                // Whoever took it for dead, as when the guard file was replaced: there is no place to go on from.
                return Ok(None);
            }
            let lost = lost_holders(transaction, rules, mark, lost.as_ref())?;
            if !lost.bytes.is_empty() {
                return Ok(Some(Entry::Lost(lost)));
            }
            let at = place.unwrap_or(END_OF_LINE);
            let wanted = line::wanted(request, at, is_new);
            let lines = Line::of(transaction, rules);
            let obstacle = match lines.look(&wanted)? {
                Found::OtherSlots(slots) => return Ok(Some(Entry::OtherSlots(slots))),
                Found::Free { slot } => {
                    let mark = match keeping {
                        Keeping::Bare => None,
                        // Not sooner: the descriptor outlives a waiter that is killed, and its byte would be nobody's.
                        Keeping::Tied(number) => {
                            let fd = descriptor(number, rules.guard, &path)?;
                            let guard = rules.guard.context("no guard file")?;
                            let new = guard.tie(fd).with_context(|| cannot_tie(number))?;
                            let mark = tie.insert(new).mark();
                            if !is_in_place()? {
                                return Ok(None);
                            }
                            Some(mark)
                        }
                        Keeping::Supervised => mark,
                    };
                    let how = Grant {
                        place,
                        slot,
                        mark,
                        of_run,
                    };
                    let lease = ticket::grant(transaction, rules, request, token, &how)?;
                    return Ok(lease.map(Entry::Granted));
                }
                Found::Blocked(obstacle) => obstacle,
            };
            let shown = |tickets| shown(transaction, rules, tickets);
            let first = shown(queue::first_in_the_way(&lines, &wanted)?)?;
            if let Some(id) = place {
                return Ok(Some(Entry::Waiting(id, obstacle, first)));
            }
            if !is_new {
                // It waits without a line, and was judged when it came.
                return Ok(Some(Entry::Busy(first)));
            }
            let own = match rules.guard {
                Some(guard) => guard.inherited_copies()?,
                None => Vec::new(),
            };
            let lines = Line { own: &own, ..lines };
            if (!request.enclosing.is_empty() || !own.is_empty())
                && let Some(cycle) = queue::cycle(&lines, &wanted, &request.enclosing, waits)?
            {
                return Ok(Some(Entry::Deadlock(shown(cycle)?)));
            }
            if !waits || mark.is_none() {
                // Without a mark nobody would know whether it still stands in the line.
                return Ok(Some(Entry::Busy(first)));
            }
            let how = Grant {
                place,
                slot: None,
                mark,
                of_run,
            };
            let id = ticket::enqueue(transaction, rules, request, token, &how)?;
            Ok(Some(Entry::Waiting(id, obstacle, first)))
        })?;
        if matches!(entry, Some(Entry::Granted(_))) {
            tie.into_iter().for_each(Tie::keep);
        }
        Ok(entry)
    }

    /// What follows from an entry that is committed.
    fn settle(
        &mut self,
        entry: Entry,
        request: &Request,
        token: Token,
        keeping: Keeping,
    ) -> Result<Answer> {
        if !matches!(entry, Entry::Waiting(..)) {
            self.place = None;
        }
        Ok(match entry {
            Entry::Granted(lease) => {
                // Only now may whoever waits for this place wake, and find the grant.
                match keeping {
                    Keeping::Supervised => {
                        self.hold.iter().for_each(Hold::enter);
                        if let Err(error) = self.hold.iter().try_for_each(Hold::lock_tree) {
                            let ending = Ending::not_started(None);
                            let _ = self.give_back(request, &lease, &ending);
                            return Err(error).context(self.cannot_lock_guard());
                        }
                    }
                    Keeping::Bare | Keeping::Tied(_) => {
                        self.hold = None;
                        self.tidy(Backlog::Some);
                    }
                }
                Answer::Granted(lease)
            }
            Entry::Waiting(id, obstacle, others) => {
                self.place = Some((id, token));
                let _ = ticket::prepare_grant(&self.connection);
                Answer::Waiting(obstacle, others)
            }
            Entry::Busy(others) => {
                self.hold = None;
                self.waits_outside = true;
                Answer::Busy(others)
            }
            Entry::Deadlock(circle) => {
                self.hold = None;
                Answer::Deadlock(circle)
            }
            Entry::OtherSlots(slots) => {
                self.hold = None;
                Answer::OtherSlots(slots)
            }
            Entry::Lost(_) => unreachable!("they are waited for"),
        })
    }

    /// Lets some time pass for holders of whom the database knows nothing to end.
    fn await_lost(&mut self, lost: Lost, since: &mut Option<Instant>) -> Result<()> {
        if since.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
            let inode = self.guard.as_ref().map_or(0, Guard::inode);
            let who = strangers::of(inode, &lost.bytes);
            bail!(
                "cannot use {}: another or an older database was put in its place while processes hold locks of it, and they have not ended{}",
                self.path.display(),
                who.map_or_else(String::new, |who| format!(": {who}"))
            );
        }
        self.lost = Some(lost);
        if self.place.is_none() {
            // No row names these either, and others would wait for them.
            self.hold = None;
        }
        Ok(wait::pause_unless_interrupted(file::LOOK)?)
    }

    fn about_lock_on_all(&self) -> String {
        let who = blocker::of_all(self.guard.as_ref().map_or(0, Guard::inode));
        let who = who.unwrap_or_else(|| "another program".into());
        let hint = trust::exposure(&self.path).map(|hint| format!("; {hint}"));
        format!("{who} has locked all of it{}", hint.unwrap_or_default())
    }

    fn cannot_lock_guard(&self) -> String {
        format!("cannot lock {}", Guard::path_for(&self.path).display())
    }

    /// Bytes of the guard file that no row names, if it is another database than the guard file knows of.
    fn unknown_bytes(&mut self) -> Result<Vec<i64>> {
        let why = || format!("cannot read {}", self.path.display());
        self.patience.set(PATIENCE);
        let Some(guard) = self.guard.as_ref().filter(|_| self.vouches) else {
            return Ok(Vec::new());
        };
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let (serial, _) = ticket::serial_and_boot(&transaction).with_context(why)?;
        let noted = guard.note().with_context(why)?;
        if noted.is_none_or(|note| note.is_of(serial)) {
            return Ok(Vec::new());
        }
        let known = ticket::known_bytes(&transaction, guard.inode()).with_context(why)?;
        guard.unknown_bytes(&known).with_context(why)
    }

    /// What is to be said of holders about whom the database knows nothing.
    fn warning_of_strangers(&mut self) -> Result<Option<String>> {
        let unknown = self.unknown_bytes()?;
        if unknown.is_empty() {
            return Ok(None);
        }
        // Who has come in between and has no row yet, or none any more, is in none or both.
        wait::pause(COMING);
        let again = self.unknown_bytes()?;
        let left: Vec<i64> = unknown
            .into_iter()
            .filter(|byte| again.contains(byte))
            .collect();
        if left.is_empty() {
            return Ok(None);
        }
        let inode = self.guard.as_ref().map_or(0, Guard::inode);
        let who = strangers::of(inode, &left);
        Ok(Some(format!(
            "no lock can be taken in {} now: it was put in the place of another database, of which processes hold locks that are not in it{}",
            self.path.display(),
            who.map_or_else(String::new, |who| format!(": {who}"))
        )))
    }

    /// Whether the path that was named leads to another database by now, or to none.
    fn is_moved(&self) -> std::io::Result<bool> {
        let link = self.link.as_ref();
        Ok(!file::is_in_place(&self.path, self.identity)?
            || link.is_some_and(|link| file::leads_elsewhere(link, &self.path)))
    }

    fn data_version(&self) -> rusqlite::Result<i64> {
        self.connection
            .prepare_cached("pragma data_version")?
            .query_row([], |row| row.get(0))
    }

    /// Opens what the path leads to now. The place in the line is lost: it was in a file that is gone, or was vouched
    /// for by one.
    fn reopen(&mut self) -> Result<()> {
        // The old connection goes first: if only the guard was replaced, the database is the same file, and looking
        // at its header would drop the locks that this process still has on it.
        self.connection = Connection::open_in_memory()?;
        // This process's bytes may not process's bytes keep whoever makes a new database waiting, this one included.
        self.hold = None;
        let path = self.link.clone().unwrap_or_else(|| self.path.clone());
        *self = open(Some(&path), self.purpose)?
            .ok_or_else(|| anyhow!("cannot open {}", path.display()))?;
        Ok(())
    }

    /// Somebody replaced the guard file: takes bytes in the new one and says so in the row. The job keeps its byte
    /// in the old file, which nobody can ask any more.
    fn take_new_guard(&mut self, lease: &Lease) -> Result<()> {
        let guard = file::open_guard(&self.path)?;
        // It is granted: nobody asks any more whether it stands in the line.
        let hold = guard.hold(false)?.without_tree();
        let mark = hold.mark();
        self.write(SHORT_PATIENCE, |transaction, _| {
            let sql = "update ticket set guard_inode = ?1, supervisor_byte = ?2, waiting_byte = ?4, tree_byte = null where token = ?3";
            transaction.execute(sql, params![ticket::inode_to_sql(mark.inode), mark.supervisor, lease.token.as_bytes(), mark.waiting])?;
            Ok(())
        })?;
        self.guard = Some(guard);
        self.hold = Some(hold);
        Ok(())
    }

    /// Reads tickets in one snapshot, and keeps those whose leases live.
    fn read_held(
        &mut self,
        find: impl FnOnce(&Transaction<'_>) -> Result<Vec<Ticket>>,
    ) -> Result<Vec<Held>> {
        self.patience.set(PATIENCE);
        let why = || format!("cannot read {}", self.path.display());
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let tickets = find(&transaction).with_context(why)?;
        renew_guard(&mut self.guard, &self.path, self.purpose)?;
        let rules = self.rules();
        let mut held = Vec::new();
        for ticket in tickets {
            let standing = rules.standing(&ticket)?;
            if !standing.is_over() {
                let lease = ticket.into_held(&transaction, &rules, standing);
                held.push(lease.with_context(why)?);
            }
        }
        Ok(held)
    }

    fn rules(&self) -> Rules<'_> {
        Rules {
            clock: &self.clock,
            began: Moment::now(),
            now: self.clock.now(),
            guard: self.guard.as_ref().filter(|_| self.vouches),
            // Whoever only reads draws no number.
            noted: None,
            next_note: self.identity.note(),
            drawn: Cell::new(None),
            is_as_left: true,
            is_synced: false,
        }
    }

    /// What was asked for with a token, if the token is good: `act` gets the ticket, inside the transaction, where whoever has
    /// the token `may` do that, and is not told that it is for the `run` to do.
    fn with_token(
        &mut self,
        token: &Token,
        names: &[LockName],
        may: impl Fn(&Ticket) -> bool,
        mut act: impl FnMut(&Transaction<'_>, &Rules<'_>, &Ticket) -> Result<usize>,
    ) -> Result<Shown> {
        let (path, identity) = (self.path.clone(), self.identity);
        self.write(PATIENCE, |transaction, rules| {
            file::check_in_place(&path, identity)?;
            let Some(ticket) = ticket::by_token(transaction, token)? else {
                return Ok(Shown::NotHeld);
            };
            let standing = rules.standing(&ticket)?;
            if standing.is_over() {
                return Ok(Shown::NotHeld);
            }
            let held = ticket.clone().into_held(transaction, rules, standing)?;
            if !names.is_empty() && names != held.names {
                // Nobody's lease on what was named, or one's own but not the whole of it.
                let part = names.iter().all(|name| held.names.contains(name));
                return Ok(if part {
                    Shown::OnlySome(held.names)
                } else {
                    Shown::NotHeld
                });
            }
            if !may(&ticket) {
                return Ok(Shown::OfRun(held));
            }
            Ok(if act(transaction, rules, &ticket)? == 1 {
                Shown::Done(held)
            } else {
                Shown::NotHeld
            })
        })
    }
}

impl Store for SqliteStore {
    fn location(&self) -> String {
        self.path.display().to_string()
    }

    fn address(&self) -> OsString {
        self.path.clone().into()
    }

    fn vouches(&self) -> bool {
        self.vouches
    }

    fn acquire(&mut self, request: &Request, keeping: Keeping, waits: bool) -> Result<Answer> {
        let deadline = Instant::now() + PATIENCE;
        let mut lost_since = None;
        loop {
            let token = match self.place {
                Some((_, token)) => token,
                None => Token::draw().context("cannot draw a token")?,
            };
            let needs_hold = self.vouches && (waits || keeping == Keeping::Supervised);
            let mut is_stale = false;
            if needs_hold && self.hold.is_none() {
                // From before the ticket is committed.
                let shares = request.mode != Mode::Exclusive;
                let hold = self.guard.as_ref().map(|guard| guard.hold(shares));
                self.hold = match hold.transpose() {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => None,
                    // Nobody draws a byte that another has: a lock on many of them is no ticket's.
                    Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                        bail!("{}: {}", self.cannot_lock_guard(), self.about_lock_on_all())
                    }
                    other => other.with_context(|| self.cannot_lock_guard())?,
                };
                is_stale = self.hold.is_none();
            }
            if let Keeping::Tied(number) = keeping {
                descriptor(number, self.guard.as_ref(), &self.path)?;
            }
            let mark = self.hold.as_ref().map(Hold::mark);
            let entry = if is_stale {
                None
            } else {
                self.enter(request, &token, mark, keeping, waits)?
            };
            match entry {
                Some(Entry::Lost(lost)) => {
                    self.await_lost(lost, &mut lost_since)?;
                    continue;
                }
                Some(entry) => return self.settle(entry, request, token, keeping),
                None => {}
            }
            if Instant::now() > deadline {
                let path = self.path.display();
                bail!("cannot open {path}: it is being replaced again and again");
            }
            wait::pause(BUSY_PAUSE);
            self.reopen()?;
        }
    }

    fn leave(&mut self) -> Result<()> {
        let Some((_, token)) = self.place.take() else {
            return Ok(());
        };
        let left = self.write(PATIENCE, |transaction, _| {
            ticket::leave(transaction, &token)
        });
        self.hold = None;
        left
    }

    fn fault_of(&self, number: i32) -> Option<String> {
        let path = Guard::path_for(&self.path);
        let path = path.display();
        let Some(guard) = self.guard.as_ref().filter(|_| self.vouches) else {
            return Some(format!(
                "no descriptor can hold a lock here, where time alone does: {path}"
            ));
        };
        let Some(fd) = guard::inherited(number) else {
            return Some(format!("descriptor {number} is not open"));
        };
        if !guard.is_open_as(fd) {
            return Some(format!("descriptor {number} is not open on {path}"));
        }
        let can_write = rustix::fs::fcntl_getfl(fd).is_ok_and(|flags| {
            let access = flags & rustix::fs::OFlags::RWMODE;
            [rustix::fs::OFlags::RDWR, rustix::fs::OFlags::WRONLY].contains(&access)
        });
        (!can_write).then(|| format!("descriptor {number} is not open for writing"))
    }

    fn release_tied(&mut self, number: i32, names: &[LockName]) -> Result<Shown> {
        let Some(fd) = guard::inherited(number) else {
            return Ok(Shown::NotHeld);
        };
        let mut bytes = Vec::new();
        let (path, identity) = (self.path.clone(), self.identity);
        let shown = self.write(PATIENCE, |transaction, rules| {
            file::check_in_place(&path, identity)?;
            bytes.clear();
            let Some(guard) = rules.guard else {
                return Ok(Shown::NotHeld);
            };
            let mut released: Option<Held> = None;
            let tickets = match names {
                [] => ticket::all_held(transaction)?,
                names => ticket::holding(transaction, names)?,
            };
            for ticket in tickets {
                let Some(mark) = ticket
                    .terms
                    .mark
                    .filter(|mark| mark.is_tied() && mark.inode == guard.inode())
                else {
                    continue;
                };
                if !guard.is_tied(fd, mark.supervisor)? {
                    continue;
                }
                let held = ticket
                    .clone()
                    .into_held(transaction, rules, Standing::Supervised)?;
                if !names.is_empty() && !held.names.iter().all(|name| names.contains(name)) {
                    return Ok(Shown::OnlySome(held.names));
                }
                ticket::end(transaction, rules, &ticket)?;
                bytes.push(mark.supervisor);
                match &mut released {
                    Some(all) => all.names.extend(held.names),
                    None => released = Some(held),
                }
            }
            Ok(released.map_or(Shown::NotHeld, Shown::Done))
        })?;
        if let Shown::Done(_) = shown {
            for byte in bytes {
                guard::untie(fd, byte);
            }
        }
        self.tidy(Backlog::Some);
        Ok(shown)
    }

    fn ahead(&mut self, request: &Request) -> Result<Option<Ahead>> {
        let Some((place, _)) = self.place else {
            return Ok(None);
        };
        self.patience.set(SHORT_PATIENCE);
        let transaction = self.connection.unchecked_transaction()?;
        let rules = self.rules();
        let line = Line::of(&transaction, &rules);
        let first = queue::first_in_the_way(&line, &line::wanted(request, place, false))?;
        let about = first.first().and_then(|(ticket, _)| {
            let mut names = request.names.iter();
            names.find(|name| ticket.names.contains(name))
        });
        let place = match about {
            Some(name) => Some(line.place_of(name, place)?),
            None => None,
        };
        let first = shown(&transaction, &rules, first)?;
        Ok(Some(Ahead { first, place }))
    }

    fn has_changed(&mut self) -> Result<bool> {
        self.patience.set(SHORT_PATIENCE);
        let version = self.data_version()?;
        Ok(self.seen_version.replace(version) != Some(version))
    }

    fn has_missed(&mut self, request: &Request, obstacle: &Obstacle) -> Result<bool> {
        let is_moved = self.is_moved()? || self.guard.as_ref().is_some_and(Guard::is_replaced);
        // A slot may have come free further ahead, while the one who is before us is stopped and does not take it.
        if is_moved || matches!(request.mode, Mode::Slots(_)) {
            return Ok(true);
        }
        self.patience.set(SHORT_PATIENCE);
        let transaction = self.connection.unchecked_transaction()?;
        let rules = self.rules();
        if let Some((_, token)) = &self.place
            && !ticket::is_waiting(&transaction, token)?
        {
            return Ok(true);
        }
        for (id, stood) in &obstacle.behind {
            let standing = ticket::standing_of(&transaction, &rules, &request.names, *id)?;
            if standing != Some(*stood) {
                return Ok(true);
            }
        }
        Ok(obstacle.behind.is_empty())
    }

    fn guard_path(&self) -> Option<PathBuf> {
        Some(Guard::path_for(&self.path))
    }

    /// A byte tells whatever a waiter waits for, or it has to look in turn: other processes' writes ring nothing.
    fn ring(&mut self, _: Bell) {}

    fn tree(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(Hold::tree)
    }

    fn release(&mut self, token: &Token, names: &[LockName]) -> Result<Shown> {
        let may = |ticket: &Ticket| !ticket.of_run;
        let shown = self.with_token(token, names, may, |transaction, rules, ticket| {
            ticket::end(transaction, rules, ticket)?;
            Ok(1)
        })?;
        self.tidy(Backlog::Some);
        Ok(shown)
    }

    fn extend(
        &mut self,
        token: &Token,
        names: &[LockName],
        ttl: Option<Duration>,
    ) -> Result<Shown> {
        let may = |ticket: &Ticket| may_live_for(ttl, from_millis(ticket.ttl), ticket.of_run);
        let shown = self.with_token(token, names, may, |transaction, rules, ticket| {
            ticket::renew(transaction, rules, token, ttl.map_or(ticket.ttl, millis))
        })?;
        self.tidy(Backlog::Some);
        Ok(shown)
    }

    fn held_by(&mut self, token: &Token) -> Result<Option<Held>> {
        let held = self.read_held(|transaction| {
            let ticket = ticket::by_token(transaction, token)?;
            Ok(ticket.into_iter().collect())
        })?;
        Ok(held.into_iter().next())
    }

    fn waiting(&mut self) -> Result<HashMap<LockName, usize>> {
        self.patience.set(PATIENCE);
        let why = || format!("cannot read {}", self.path.display());
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let rules = self.rules();
        ticket::waiting(&transaction, &rules).with_context(why)
    }

    fn held(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        self.read_held(|transaction| match names {
            [] => ticket::all_held(transaction),
            names => ticket::holding(transaction, names),
        })
    }

    fn line(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        self.read_held(|transaction| {
            let mut tickets = Vec::new();
            for name in names {
                tickets.extend(ticket::line_of(transaction, name)?);
            }
            tickets.sort_by_key(|ticket| ticket.id);
            tickets.dedup_by_key(|ticket| ticket.id);
            Ok(tickets)
        })
    }

    fn revoke(
        &mut self,
        names: &[LockName],
        fence: Option<i64>,
        at_once: bool,
        by: &str,
    ) -> Result<Vec<Held>> {
        let (path, identity) = (self.path.clone(), self.identity);
        self.write(PATIENCE, |transaction, rules| {
            file::check_in_place(&path, identity)?;
            let mut taken = Vec::new();
            for ticket in ticket::holding(transaction, names)? {
                let standing = rules.standing(&ticket)?;
                if standing.is_over() {
                    ticket::bury(transaction, rules, &ticket, standing)?;
                } else if fence.is_none_or(|fence| Some(fence) == ticket.fence) {
                    // There is nobody to tell but a `run`.
                    let ends = at_once || !ticket.of_run || standing == Standing::Resting;
                    let mut entry = ticket.as_entry(rules.now.wall, standing);
                    entry.event = Event::Forced;
                    entry.ended_at = ends.then_some(rules.now.wall);
                    entry.by = Some(by.to_owned());
                    history::write(transaction, &entry)?;
                    if ends {
                        // Forced, it does not rest either.
                        ticket::delete(transaction, &ticket)?;
                    } else {
                        transaction.execute(
                            "update ticket set revoked_by = ?1 where token = ?2",
                            params![by, ticket.token.as_bytes()],
                        )?;
                    }
                    taken.push(ticket.into_held(transaction, rules, standing)?);
                }
            }
            Ok(taken)
        })
    }

    fn look(&mut self, lease: &Lease) -> Result<Look> {
        if self.is_moved()? {
            return Ok(Look::Moved);
        }
        if self.hold.is_some() && self.guard.as_ref().is_some_and(Guard::is_replaced) {
            self.take_new_guard(lease)?;
        }
        self.patience.set(SHORT_PATIENCE);
        let version = self.data_version()?;
        if self.seen_version == Some(version) {
            return Ok(Look::Held);
        }
        let mut statement = self
            .connection
            .prepare_cached("select revoked_by from ticket where token = ?1")?;
        let row = statement
            .query_row([lease.token.as_bytes()], |row| {
                row.get::<_, Option<String>>(0)
            })
            .optional()?;
        drop(statement);
        Ok(match row {
            None => {
                match history::taken(&self.connection, lease.fence)? {
                    Some((_, by)) => {
                        // With `--now`: the locks are not ours, and whoever waits for us need not.
                        self.hold = None;
                        Look::Revoked(by)
                    }
                    // Most likely in a copy from before it was granted: whoever finds our byte waits.
                    None => Look::Gone,
                }
            }
            Some(Some(by)) => Look::Revoked(by),
            Some(None) => {
                self.seen_version = Some(version);
                Look::Held
            }
        })
    }

    fn renew(&mut self, lease: &Lease) -> Result<Option<Moment>> {
        self.write(SHORT_PATIENCE, |transaction, rules| {
            let ttl: Option<i64> = transaction
                .prepare_cached("select ttl from ticket where token = ?1")?
                .query_row([lease.token.as_bytes()], |row| row.get(0))
                .optional()?;
            let Some(ttl) = ttl else { return Ok(None) };
            ticket::renew(transaction, rules, &lease.token, ttl)?;
            Ok(Some(rules.began + from_millis(ttl)))
        })
    }

    fn give_back(&mut self, request: &Request, lease: &Lease, ending: &Ending) -> Result<bool> {
        let ended = self.write(PATIENCE, |transaction, rules| {
            ticket::end_own(transaction, rules, request, lease, ending)
        });
        if !file::is_in_place(&self.path, self.identity).is_ok_and(|is| is) {
            // Whoever waits for the bytes makes the lost files anew, and must not find the old index still in use.
            self.connection = Connection::open_in_memory()?;
        }
        // After the row is gone; and if it could not be deleted, the lock is free by this all the same.
        self.hold = None;
        ended
    }

    fn refused(&mut self, request: &Request, asked_at: SystemTime, event: Event, by: &[Held]) {
        // No power failure is worth a wait for the disk here: nothing was changed.
        let _ = set_durability(&self.connection, Durability::Process);
        let _ = self.write(NOTING, |transaction, rules| {
            let entry = record::of_refusal(request, asked_at, event, by, rules.now.wall);
            history::write(transaction, &entry)
        });
        let _ = set_durability(&self.connection, self.durability());
        self.tidy(Backlog::Some);
    }

    fn history(&self, query: &Query) -> Result<History> {
        self.patience.set(PATIENCE);
        let why = || format!("cannot read {}", self.path.display());
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let rules = self.rules();
        history::read(&transaction, &rules, query).with_context(why)
    }

    fn refresh(&mut self) -> Result<()> {
        file::check_in_place(&self.path, self.identity)
            .with_context(|| format!("cannot read {}", self.path.display()))?;
        if self.connection.is_readonly("main")? {
            // Where there was no WAL it took the file for one that nobody writes to.
            self.connection = Connection::open_in_memory()?;
            self.connection = connection::open(&self.path, false, &self.patience)
                .with_context(|| format!("cannot open {}", self.path.display()))?;
        }
        Ok(())
    }

    fn warnings(&mut self) -> Result<Vec<String>> {
        let of_strangers = self.warning_of_strangers()?;
        let all = [of_strangers, trust::warning(&self.path)];
        Ok(all.into_iter().flatten().collect())
    }

    fn foresee_end(&mut self, lease: &Lease) -> bool {
        let _ = ticket::prepare_end(&self.connection);
        self.patience.set(SHORT_PATIENCE);
        ticket::is_wanted(&self.connection, lease).unwrap_or(false)
    }

    fn tidy(&mut self, backlog: Backlog) -> bool {
        let was_large = self.checkpoint_if_large(backlog);
        if was_large {
            let _ = self.sweep();
        }
        // The first frame of a WAL that was cut to nothing is synced, even where commits are not.
        was_large
    }
}
