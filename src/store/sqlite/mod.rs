//! The store in a SQLite file: opening it, the one way to write, and the statements.
//!
//! `file` owns the database as a file, `blocker` tells who keeps it locked, `schema.sql` is the layout.

mod blocker;
mod file;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rusqlite::config::DbConfig;
use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, TransactionBehavior,
    named_params, params,
};
use rustix::fs::Access as Permission;

use self::file::{Content, Identity};
use super::{Answer, Keeping, Look, Shown, Store};
use crate::clock::{Clock, Now};
use crate::duration::{from_millis, millis, show};
use crate::guard::{Guard, Hold};
use crate::lock::{Expiry, GuardMark, Held, Holder, Lease, LockName, Request, Standing, Token};
use crate::signals::NoStops;
use crate::standing::standing;
use crate::wait;

/// The first SQLite without the defect that can lose a WAL's frames at its reset.
const OLDEST_SQLITE: i32 = 3_051_003;

/// How long a transaction waits for the write lock, whatever `--wait` says: nobody holds it for more than
/// milliseconds unless he is stopped.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one does that has something else to watch meanwhile, and will try again.
const SHORT_PATIENCE: Duration = Duration::from_millis(20);

/// The pause between two tries at SQLite's locks. SQLite's own back-off reaches 100 ms and starves.
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Frames in the WAL above which it is written back: readers search it, and it would never shrink by itself.
const WAL_FRAMES: u64 = 64;

/// A frame is a page and its header; the file has a header of its own.
const WAL_BYTES: u64 = 32 + WAL_FRAMES * (24 + 4096);

/// By how much the counter jumps when a boot has ended, since a power failure may take the last commits with it.
/// No WAL of the size that is let grow holds as many grants.
const BOOT_JUMP: i64 = 1 << 20;

/// Tickets looked at by one sweep.
const SWEEP: i64 = 64;

/// What the caller is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Take locks; the database is made where there is none.
    Take(Durability),
    /// Change what is there.
    Change,
    /// Only look.
    Look,
}

/// What a commit survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Crashes of programs. For `run`, whose leases do not outlive the machine's power anyway.
    Process,
    /// Power failures, at the price of an fsync. For leases whose tokens somebody keeps.
    Power,
}

pub struct SqliteStore {
    path: PathBuf,
    purpose: Purpose,
    connection: Connection,
    identity: Identity,
    guard: Option<Guard>,
    vouches: bool,
    clock: Clock,
    patience: Deadline,
    hold: Option<Hold>,
    /// SQLite's `data_version` when the own lease's row was last read.
    seen_version: Option<i64>,
}

/// When the busy handler gives up, shared with the handler: milliseconds after `origin`.
#[derive(Clone)]
struct Deadline {
    origin: Instant,
    millis: Arc<AtomicI64>,
}

impl Deadline {
    fn new() -> Self {
        Self {
            origin: Instant::now(),
            millis: Arc::default(),
        }
    }

    fn set(&self, patience: Duration) {
        self.millis
            .store(millis(self.origin.elapsed() + patience), Ordering::Relaxed);
    }

    fn has_passed(&self) -> bool {
        millis(self.origin.elapsed()) >= self.millis.load(Ordering::Relaxed)
    }
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
    let path = if let Some(path) = named {
        file::resolve(path)?
    } else {
        let path = file::default_path()?;
        if matches!(purpose, Purpose::Take(_)) {
            file::make_directories(&path)?;
        } else if !path.parent().is_some_and(Path::exists) {
            return missing(&path, named, purpose);
        }
        file::resolve(&path)?
    };
    let vouches = file::is_local(&path)?;
    let clock = if vouches {
        Clock::of_this_boot()
    } else {
        Clock::wall_only()
    };
    loop {
        match (file::peek(&path)?, purpose) {
            (Content::Database, _) => {}
            (Content::Missing, Purpose::Change | Purpose::Look)
            | (Content::Empty, Purpose::Look) => return missing(&path, named, purpose),
            _ => {
                file::make(&path, &clock)?;
                continue;
            }
        }
        // Twice the same file around the open: then it is the one that SQLite has.
        let Some(identity) = file::identity(&path)? else {
            continue;
        };
        let Some(store) = SqliteStore::open(&path, purpose, identity, vouches, clock.clone())?
        else {
            continue;
        };
        return Ok(Some(store));
    }
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

impl SqliteStore {
    /// None when the path leads to another file by now.
    fn open(
        path: &Path,
        purpose: Purpose,
        identity: Identity,
        vouches: bool,
        clock: Clock,
    ) -> Result<Option<Self>> {
        let why = || format!("cannot open {}", path.display());
        let may_write = rustix::fs::access(path, Permission::WRITE_OK);
        if purpose != Purpose::Look {
            may_write
                .map_err(std::io::Error::from)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        let patience = Deadline::new();
        let mut connection = if may_write.is_ok() {
            connect(path)
        } else {
            connect_to_read(path)
        }
        .with_context(why)?;
        let deadline = patience.clone();
        connection
            .busy_handler(Some(move |_| {
                let goes_on = !deadline.has_passed();
                if goes_on {
                    wait::pause(BUSY_PAUSE);
                }
                goes_on
            }))
            .with_context(why)?;
        // The last closer's checkpoint would cost four fsyncs; see `tidy` for what is done instead.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
            .with_context(why)?;
        // A database that others may write to: nothing in its schema runs with our rights.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)
            .with_context(why)?;
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)
            .with_context(why)?;
        if !file::is_in_place(path, identity).with_context(why)? {
            return Ok(None);
        }
        // The header in the file may be older than what the WAL says.
        patience.set(PATIENCE);
        let layout = connection.query_row("pragma user_version", [], |row| row.get(0));
        file::check_layout(path, layout.with_context(why)?)?;
        let guard = match purpose {
            Purpose::Take(_) => {
                let guard = file::open_guard(path)?;
                if let Ok(metadata) = std::fs::metadata(path) {
                    use std::os::unix::fs::MetadataExt;
                    guard.match_access(metadata.mode(), metadata.uid(), metadata.gid());
                }
                Some(guard)
            }
            Purpose::Change | Purpose::Look => match Guard::open_to_ask(path) {
                Ok(guard) => Some(guard),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
                Err(error) => {
                    return Err(error).with_context(|| {
                        format!("cannot open {}", Guard::path_for(path).display())
                    });
                }
            },
        };
        let store = Self {
            path: path.to_owned(),
            purpose,
            connection,
            identity,
            guard,
            vouches,
            clock,
            patience,
            hold: None,
            seen_version: None,
        };
        if purpose != Purpose::Look {
            store.set_durability(store.durability()).with_context(why)?;
        }
        Ok(Some(store))
    }

    fn durability(&self) -> Durability {
        match self.purpose {
            Purpose::Take(durability) => durability,
            Purpose::Change | Purpose::Look => Durability::Power,
        }
    }

    fn set_durability(&self, durability: Durability) -> rusqlite::Result<()> {
        self.connection
            .pragma_update(None, "wal_autocheckpoint", 0)?;
        self.connection.pragma_update(
            None,
            "synchronous",
            if durability == Durability::Process {
                "normal"
            } else {
                "full"
            },
        )
    }

    /// Runs `act` in one immediate transaction, which may be tried again from its start: when SQLite's locking
    /// protocol was disturbed, and once when the disk was full and the WAL could be written back.
    fn write<T>(
        &mut self,
        patience: Duration,
        mut act: impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        // A writer that is stopped in the middle stops everybody.
        let _no_stops = NoStops::begin();
        self.patience.set(patience);
        let mut made_room = false;
        loop {
            let error = match self.try_write(&mut act) {
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
                    return Err(self.is_locked(patience));
                }
                Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) if !made_room => {
                    made_room = true;
                    self.checkpoint();
                }
                _ => return Err(error.context(format!("cannot write {}", self.path.display()))),
            }
        }
    }

    /// The error that says who holds the file up.
    fn is_locked(&self, patience: Duration) -> anyhow::Error {
        let mut message = format!("cannot write {}: it is locked", self.path.display());
        if let Some(blocker) = blocker::of(&self.path) {
            let _ = write!(message, " by {blocker}");
        }
        if patience == PATIENCE {
            let _ = write!(message, ", and has been for {}", show(patience));
        }
        anyhow!(message)
    }

    fn try_write<T>(
        &mut self,
        act: &mut impl FnMut(&Transaction<'_>, &Rules<'_>) -> Result<T>,
    ) -> Result<T> {
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let boot: Option<String> = transaction
            .prepare_cached("select boot_id from store")?
            .query_row([], |row| row.get(0))?;
        if self
            .clock
            .boot_id()
            .is_some_and(|now| boot.as_deref() != Some(now))
        {
            drop(transaction);
            self.begin_boot()?;
            return self.try_write(act);
        }
        // The clocks are read now that the write lock is had: however long that took, it counts for nobody.
        let rules = Rules {
            clock: &self.clock,
            now: self.clock.now(),
            guard: self.guard.as_ref().filter(|_| self.vouches),
        };
        let done = act(&transaction, &rules)?;
        transaction.commit()?;
        Ok(done)
    }

    /// The first write of a new boot: moves the counter past whatever a power failure may have taken back, and
    /// gives bare leases what they have left on the new boot's clock, their time to live at most.
    fn begin_boot(&mut self) -> Result<()> {
        self.set_durability(Durability::Power)?;
        let transaction = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)?;
        let now = self.clock.now();
        let boot = self.clock.boot_id();
        let moved = transaction.execute(
            "update store set serial = serial + ?1, boot_id = ?2 where boot_id is not ?2",
            params![BOOT_JUMP, boot],
        )?;
        if moved > 0 {
            transaction.execute(
                "update ticket set boot_id = :boot,
                   expires_boot = :now_boot + max(0, min(ttl, expires_wall - :now_wall)),
                   earliest_end_boot = :now_boot + max(0, min(at_least, earliest_end_wall - :now_wall))
                 where boot_id is not :boot and expires_boot is not null",
                named_params! { ":boot": boot, ":now_boot": now.boot, ":now_wall": now.wall },
            )?;
        }
        transaction.commit()?;
        self.set_durability(self.durability())?;
        Ok(())
    }

    /// Writes the WAL back and cuts it to nothing, if nobody is in the way.
    fn checkpoint(&self) {
        self.patience.set(Duration::ZERO);
        let _ = self
            .connection
            .query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()));
    }

    fn checkpoint_if_large(&self) -> bool {
        let is_large = std::fs::metadata(file::beside(&self.path, "-wal"))
            .is_ok_and(|wal| wal.len() > WAL_BYTES);
        if is_large {
            self.checkpoint();
        }
        is_large
    }

    /// Removes leases that are over and that nobody asks for any more: a few at a time, from a random place on, so
    /// that none is left for ever and none costs a scan.
    fn sweep(&mut self) -> Result<()> {
        self.write(SHORT_PATIENCE, |transaction, rules| {
            let (first, last): (Option<i64>, Option<i64>) = transaction.query_row(
                "select (select min(id) from ticket), (select max(id) from ticket)",
                [],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            let (Some(first), Some(last)) = (first, last) else {
                return Ok(());
            };
            let from = rand::random_range(first..=last);
            let mut statement = transaction.prepare_cached(concat!(
                "select ",
                columns!(),
                " from ticket where id >= ?1 and state = 'held' order by id limit ?2"
            ))?;
            let tickets = statement
                .query_map(params![from, SWEEP], Ticket::from_row)?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            for ticket in tickets {
                if rules.standing(&ticket)?.is_over() {
                    delete(transaction, ticket.id)?;
                }
            }
            Ok(())
        })
    }

    /// Whether what was opened is what the paths lead to. Asked after a guard byte was locked: whoever makes a new
    /// database either sees that byte or had put its file in place before.
    fn is_in_place(&self) -> Result<bool> {
        let database = file::is_in_place(&self.path, self.identity)
            .with_context(|| format!("cannot open {}", self.path.display()))?;
        Ok(database && !self.guard.as_ref().is_some_and(Guard::is_replaced))
    }

    /// Opens what the path leads to now.
    fn reopen(&mut self) -> Result<()> {
        // The old connection goes first: if only the guard was replaced, the database is the same file, and looking
        // at its header would drop the locks that this process still has on it.
        self.connection = Connection::open_in_memory()?;
        let path = self.path.clone();
        *self = open(Some(&path), self.purpose)?
            .ok_or_else(|| anyhow!("cannot open {}", path.display()))?;
        Ok(())
    }

    /// Somebody replaced the guard file: takes bytes in the new one and says so in the row. The job keeps its byte
    /// in the old file, which nobody can ask any more.
    fn take_new_guard(&mut self, lease: &Lease) -> Result<()> {
        let guard = file::open_guard(&self.path)?;
        let hold = guard.hold()?.without_tree();
        let mark = hold.mark();
        self.write(SHORT_PATIENCE, |transaction, _| {
            let sql = "update ticket set guard_inode = ?1, supervisor_byte = ?2, tree_byte = null where id = ?3 and token = ?4";
            transaction.execute(sql, params![inode_to_sql(mark.inode), mark.supervisor, lease.id, lease.token.as_bytes()])?;
            Ok(())
        })?;
        self.guard = Some(guard);
        self.hold = Some(hold);
        Ok(())
    }

    /// Reads the leases of these locks, or of all, that live.
    fn read_held(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        self.patience.set(PATIENCE);
        let why = || format!("cannot read {}", self.path.display());
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let rules = Rules {
            clock: &self.clock,
            now: self.clock.now(),
            guard: self.guard.as_ref().filter(|_| self.vouches),
        };
        let tickets = if names.is_empty() {
            all_held(&transaction)
        } else {
            holding(&transaction, names)
        }
        .with_context(why)?;
        let mut held = Vec::new();
        for ticket in tickets {
            let standing = rules.standing(&ticket)?;
            if !standing.is_over() {
                held.push(
                    ticket
                        .into_held(&transaction, &rules, standing)
                        .with_context(why)?,
                );
            }
        }
        Ok(held)
    }

    /// What was asked for with a token, if the token is good: `act` gets the ticket, inside the transaction.
    fn with_token(
        &mut self,
        token: &Token,
        names: &[LockName],
        may_be_of_run: bool,
        mut act: impl FnMut(&Transaction<'_>, &Rules<'_>, &Ticket) -> Result<usize>,
    ) -> Result<Shown> {
        self.write(PATIENCE, |transaction, rules| {
            let Some(ticket) = by_token(transaction, token)? else {
                return Ok(Shown::NotHeld);
            };
            let standing = rules.standing(&ticket)?;
            if standing.is_over() {
                return Ok(Shown::NotHeld);
            }
            let guarded = ticket.mark.is_some();
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
            if guarded && !may_be_of_run {
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

    fn acquire(&mut self, request: &Request, keeping: Keeping) -> Result<Answer> {
        let token = Token::draw().context("cannot draw a token")?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let guard = self
                .guard
                .as_ref()
                .filter(|_| self.vouches && keeping == Keeping::Supervised);
            // From before the ticket is committed.
            let hold = match guard.map(Guard::hold).transpose() {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => None,
                other => other.with_context(|| {
                    format!("cannot lock {}", Guard::path_for(&self.path).display())
                })?,
            };
            if (hold.is_none() && guard.is_some()) || !self.is_in_place()? {
                if Instant::now() > deadline {
                    bail!(
                        "cannot open {}: it is being replaced again and again",
                        self.path.display()
                    );
                }
                wait::pause(BUSY_PAUSE);
                self.reopen()?;
                continue;
            }
            let mark = hold.as_ref().map(Hold::mark);
            let answer = self.write(PATIENCE, |transaction, rules| {
                grant(transaction, rules, request, &token, mark)
            })?;
            if matches!(answer, Answer::Granted(_)) {
                self.hold = hold;
            }
            if keeping == Keeping::Bare {
                self.checkpoint_if_large();
            }
            return Ok(answer);
        }
    }

    fn tree(&self) -> Option<BorrowedFd<'_>> {
        self.hold.as_ref().map(Hold::tree)
    }

    fn release(&mut self, token: &Token, names: &[LockName]) -> Result<Shown> {
        let shown = self.with_token(token, names, false, |transaction, _, ticket| {
            Ok(transaction.execute(
                "delete from ticket where id = ?1 and token = ?2 and state = 'held'",
                params![ticket.id, token.as_bytes()],
            )?)
        })?;
        self.checkpoint_if_large();
        Ok(shown)
    }

    fn extend(
        &mut self,
        token: &Token,
        names: &[LockName],
        ttl: Option<Duration>,
    ) -> Result<Shown> {
        let shown = self.with_token(token, names, true, |transaction, rules, ticket| {
            renew(
                transaction,
                rules,
                ticket.id,
                token,
                ttl.map_or(ticket.ttl, millis),
            )
        })?;
        self.checkpoint_if_large();
        Ok(shown)
    }

    fn is_held(&mut self, token: &Token) -> Result<bool> {
        self.patience.set(PATIENCE);
        let why = || format!("cannot read {}", self.path.display());
        let transaction = self.connection.unchecked_transaction().with_context(why)?;
        let rules = Rules {
            clock: &self.clock,
            now: self.clock.now(),
            guard: self.guard.as_ref().filter(|_| self.vouches),
        };
        let ticket = by_token(&transaction, token).with_context(why)?;
        ticket.map_or(Ok(false), |ticket| Ok(!rules.standing(&ticket)?.is_over()))
    }

    fn held(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        self.read_held(names)
    }

    fn revoke(
        &mut self,
        names: &[LockName],
        fence: Option<i64>,
        at_once: bool,
        by: &str,
    ) -> Result<Vec<Held>> {
        self.write(PATIENCE, |transaction, rules| {
            let mut taken = Vec::new();
            for ticket in holding(transaction, names)? {
                let standing = rules.standing(&ticket)?;
                if standing.is_over() {
                    delete(transaction, ticket.id)?;
                } else if fence.is_none_or(|fence| fence == ticket.fence) {
                    if at_once || standing == Standing::Leased && ticket.mark.is_none() {
                        delete_after(&mut taken, transaction, rules, ticket, standing)?;
                    } else {
                        transaction.execute(
                            "update ticket set revoked_by = ?1 where id = ?2",
                            params![by, ticket.id],
                        )?;
                        taken.push(ticket.into_held(transaction, rules, standing)?);
                    }
                }
            }
            Ok(taken)
        })
    }

    fn look(&mut self, lease: &Lease) -> Result<Look> {
        if !file::is_in_place(&self.path, self.identity)? {
            return Ok(Look::Moved);
        }
        if self.hold.is_some() && self.guard.as_ref().is_some_and(Guard::is_replaced) {
            self.take_new_guard(lease)?;
        }
        self.patience.set(SHORT_PATIENCE);
        let version: i64 = self
            .connection
            .prepare_cached("pragma data_version")?
            .query_row([], |row| row.get(0))?;
        if self.seen_version == Some(version) {
            return Ok(Look::Held);
        }
        let mut statement = self
            .connection
            .prepare_cached("select revoked_by from ticket where id = ?1 and token = ?2")?;
        let row = statement
            .query_row(params![lease.id, lease.token.as_bytes()], |row| {
                row.get::<_, Option<String>>(0)
            })
            .optional()?;
        drop(statement);
        Ok(match row {
            None => Look::Gone,
            Some(Some(by)) => Look::Revoked(by),
            Some(None) => {
                self.seen_version = Some(version);
                Look::Held
            }
        })
    }

    fn renew(&mut self, lease: &Lease) -> Result<Option<Instant>> {
        self.write(SHORT_PATIENCE, |transaction, rules| {
            let before = Instant::now();
            let ttl: Option<i64> = transaction
                .prepare_cached("select ttl from ticket where id = ?1 and token = ?2")?
                .query_row(params![lease.id, lease.token.as_bytes()], |row| row.get(0))
                .optional()?;
            let Some(ttl) = ttl else { return Ok(None) };
            renew(transaction, rules, lease.id, &lease.token, ttl)?;
            Ok(Some(before + from_millis(ttl)))
        })
    }

    fn give_back(&mut self, lease: &Lease) -> Result<bool> {
        let deleted = self.write(PATIENCE, |transaction, _| {
            let mut statement =
                transaction.prepare_cached("delete from ticket where id = ?1 and token = ?2")?;
            Ok(statement.execute(params![lease.id, lease.token.as_bytes()])?)
        });
        // After the row is gone; and if it could not be deleted, the lock is free by this all the same.
        self.hold = None;
        deleted.map(|rows| rows == 1)
    }

    fn tidy(&mut self) -> bool {
        let was_large = self.checkpoint_if_large();
        if was_large {
            let _ = self.sweep();
        }
        // The first frame of a WAL that was cut to nothing is synced, even where commits are not.
        was_large
    }
}

/// What the rule of `standing` needs besides the ticket, as it was inside one transaction.
struct Rules<'a> {
    clock: &'a Clock,
    now: Now,
    guard: Option<&'a Guard>,
}

impl Rules<'_> {
    fn standing(&self, ticket: &Ticket) -> Result<Standing> {
        standing(
            ticket.mark.as_ref(),
            &ticket.expiry,
            self.clock,
            self.now,
            self.guard,
        )
        .context("cannot ask the guard file")
    }
}

/// A held ticket's row.
#[derive(Clone)]
struct Ticket {
    id: i64,
    fence: i64,
    ttl: i64,
    granted_at: i64,
    expiry: Expiry,
    mark: Option<GuardMark>,
    revoked: bool,
    holder: Holder,
}

/// The columns that [`Ticket::from_row`] reads, in its order.
macro_rules! columns {
    () => {
        "ticket.id, fence, ttl, granted_at, boot_id, expires_boot, expires_wall, guard_inode, supervisor_byte, tree_byte, revoked_by is not null, uid, host, pid, command, directory, note"
    };
}
use columns;

impl Ticket {
    fn from_row(row: &Row<'_>) -> rusqlite::Result<Self> {
        let inode: Option<i64> = row.get(7)?;
        let supervisor: Option<i64> = row.get(8)?;
        let tree = row.get(9)?;
        Ok(Self {
            id: row.get(0)?,
            fence: row.get(1)?,
            ttl: row.get(2)?,
            granted_at: row.get(3)?,
            expiry: Expiry {
                boot_id: row.get(4)?,
                boot: row.get(5)?,
                wall: row.get(6)?,
            },
            mark: inode.zip(supervisor).map(|(inode, supervisor)| GuardMark {
                inode: inode.cast_unsigned(),
                supervisor,
                tree,
            }),
            revoked: row.get(10)?,
            holder: Holder {
                uid: row.get(11)?,
                host: row.get(12)?,
                pid: row.get(13)?,
                command: row.get(14)?,
                directory: row.get(15)?,
                note: row.get(16)?,
            },
        })
    }

    fn into_held(
        self,
        transaction: &Transaction<'_>,
        rules: &Rules<'_>,
        standing: Standing,
    ) -> Result<Held> {
        let mut statement =
            transaction.prepare_cached("select name from claim where ticket = ?1 order by name")?;
        let names = statement.query_map([self.id], |row| row.get::<_, String>(0))?;
        let names = names
            .map(|name| name?.parse().map_err(anyhow::Error::msg))
            .collect::<Result<_>>()?;
        Ok(Held {
            id: self.id,
            names,
            fence: self.fence,
            holder: self.holder,
            ttl: from_millis(self.ttl),
            granted_at: self.granted_at,
            remaining: from_millis(rules.clock.remaining(&self.expiry, rules.now)),
            standing,
            revoked: self.revoked,
            guarded: self.mark.is_some(),
        })
    }
}

/// SQLite's integers are signed; an inode's bits are kept as they are.
fn inode_to_sql(inode: u64) -> i64 {
    inode.cast_signed()
}

/// Opens for reading and writing. No URI is ever made of the path: it is absolute, and SQLite takes it as it is.
fn connect(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW,
    )
}

/// Opens for somebody who may only read. SQLite would make the side files for him, and then they would be his, and
/// lock the owner out. Where they are missing, nobody is writing and the file alone is the whole database.
fn connect_to_read(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    if ["-wal", "-shm"]
        .iter()
        .all(|ending| file::beside(path, ending).exists())
    {
        return Connection::open_with_flags(path, flags);
    }
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        // Everything but the plainest is written by its number: what the path means is not for the URI to say.
        if byte.is_ascii_alphanumeric() || b"/-_.".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    Connection::open_with_flags(uri + "?immutable=1", flags | OpenFlags::SQLITE_OPEN_URI)
}

/// The tickets that hold any of these locks, each once.
fn holding(transaction: &Transaction<'_>, names: &[LockName]) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!("select ", columns!(), " from claim join ticket on ticket.id = claim.ticket where claim.name = ?1 and state = 'held'"))?;
    let mut tickets: Vec<Ticket> = Vec::new();
    for name in names {
        for ticket in statement.query_map([name.as_str()], Ticket::from_row)? {
            let ticket = ticket?;
            if tickets.iter().all(|known| known.id != ticket.id) {
                tickets.push(ticket);
            }
        }
    }
    Ok(tickets)
}

fn all_held(transaction: &Transaction<'_>) -> Result<Vec<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where state = 'held' order by id"
    ))?;
    Ok(statement
        .query_map([], Ticket::from_row)?
        .collect::<rusqlite::Result<_>>()?)
}

fn by_token(transaction: &Transaction<'_>, token: &Token) -> Result<Option<Ticket>> {
    let mut statement = transaction.prepare_cached(concat!(
        "select ",
        columns!(),
        " from ticket where token = ?1 and state = 'held'"
    ))?;
    Ok(statement
        .query_row([token.as_bytes()], Ticket::from_row)
        .optional()?)
}

fn delete(transaction: &Transaction<'_>, id: i64) -> Result<()> {
    transaction
        .prepare_cached("delete from ticket where id = ?1")?
        .execute([id])?;
    Ok(())
}

/// Deletes a ticket and remembers what it was.
fn delete_after(
    taken: &mut Vec<Held>,
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    ticket: Ticket,
    standing: Standing,
) -> Result<()> {
    let id = ticket.id;
    taken.push(ticket.into_held(transaction, rules, standing)?);
    delete(transaction, id)
}

/// Counts a time to live from now. The token is compared by the statement that changes the row.
fn renew(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    id: i64,
    token: &Token,
    ttl: i64,
) -> Result<usize> {
    let expiry = rules.clock.after(rules.now, ttl);
    let sql = "update ticket set ttl = ?1, boot_id = ?2, expires_boot = ?3, expires_wall = ?4 where id = ?5 and token = ?6 and state = 'held'";
    Ok(transaction.prepare_cached(sql)?.execute(params![
        ttl,
        expiry.boot_id,
        expiry.boot,
        expiry.wall,
        id,
        token.as_bytes()
    ])?)
}

/// Grants all of the names, or says who holds them. Leases that are over make way.
fn grant(
    transaction: &Transaction<'_>,
    rules: &Rules<'_>,
    request: &Request,
    token: &Token,
    mark: Option<GuardMark>,
) -> Result<Answer> {
    let mut others = Vec::new();
    for ticket in holding(transaction, &request.names)? {
        let standing = rules.standing(&ticket)?;
        if standing.is_over() {
            delete(transaction, ticket.id)?;
        } else {
            others.push(ticket.into_held(transaction, rules, standing)?);
        }
    }
    if !others.is_empty() {
        return Ok(Answer::Busy(others));
    }
    let fence: i64 = transaction
        .prepare_cached("update store set serial = serial + 1 returning serial")?
        .query_row([], |row| row.get(0))?;
    let ttl = millis(request.ttl);
    let expiry = rules.clock.after(rules.now, ttl);
    let holder = &request.holder;
    transaction
        .prepare_cached(
            "insert into ticket (id, token, state, mode, fence, ttl, requested_at, granted_at, boot_id, expires_boot, expires_wall,
               guard_inode, supervisor_byte, tree_byte, uid, host, pid, command, directory, note)
             values (:id, :token, 'held', 'exclusive', :id, :ttl, :now, :now, :boot_id, :boot, :wall,
               :inode, :supervisor, :tree, :uid, :host, :pid, :command, :directory, :note)",
        )?
        .execute(named_params! {
            ":id": fence,
            ":token": token.as_bytes(),
            ":ttl": ttl,
            ":now": rules.now.wall,
            ":boot_id": expiry.boot_id,
            ":boot": expiry.boot,
            ":wall": expiry.wall,
            ":inode": mark.map(|mark| inode_to_sql(mark.inode)),
            ":supervisor": mark.map(|mark| mark.supervisor),
            ":tree": mark.and_then(|mark| mark.tree),
            ":uid": holder.uid,
            ":host": holder.host,
            ":pid": holder.pid,
            ":command": holder.command,
            ":directory": holder.directory,
            ":note": holder.note,
        })?;
    let mut claim =
        transaction.prepare_cached("insert into claim (name, ticket) values (?1, ?2)")?;
    for name in &request.names {
        claim.execute(params![name.as_str(), fence])?;
    }
    Ok(Answer::Granted(Lease {
        id: fence,
        names: request.names.clone(),
        token: *token,
        fence,
        ttl: request.ttl,
    }))
}
