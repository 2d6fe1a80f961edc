//! Where locks live: what every store can do, and opening the one that `--db` names.
//!
//! A store knows nothing of terminals and command lines. Its answers are values; an `Err` means that the store
//! cannot be used, and then nothing may be concluded about any lock.

mod address;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod keeper;
#[cfg(feature = "postgres")]
mod postgres;
mod record;
pub mod sqlite;
#[cfg(any(feature = "etcd", feature = "postgres"))]
mod tls;

use std::collections::HashMap;
use std::fs;
use std::os::fd::BorrowedFd;
use std::path::{self, Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Result;

use self::address::Address;
use crate::clock::{self, Moment};
use crate::exit::Usage;
use crate::lock::{Ahead, Ending, Entry, Event, Held, Lease, LockName, Request, Token};
pub use crate::rules::obstacle::Obstacle;
use crate::wait::Bell;

/// Opens the store that `--db` names, or the default one. None: there is none yet, where that is an answer and not a mistake,
/// which is when only the default was meant and only to look.
///
/// # Errors
/// It cannot be used; the message says which one and why.
pub fn open(named: Option<&Path>, purpose: Purpose) -> Result<Option<Box<dyn Store>>> {
    let address = named.map(|named| Address::of(named.as_os_str()));
    Ok(match address.transpose().map_err(Usage)? {
        #[cfg(feature = "etcd")]
        Some(Address::Etcd(url)) => Some(Box::new(etcd::open(url, purpose)?)),
        #[cfg(feature = "postgres")]
        Some(Address::Postgres(url)) => Some(Box::new(postgres::open(url, purpose)?)),
        #[cfg(not(feature = "etcd"))]
        Some(Address::Etcd(_)) => return Err(without("etcd")),
        #[cfg(not(feature = "postgres"))]
        Some(Address::Postgres(_)) => return Err(without("postgres")),
        Some(Address::File(path)) => {
            // For messages; where even that cannot be told, the store says what it finds.
            let whole = path::absolute(path);
            boxed(sqlite::open(
                Some(whole.as_deref().unwrap_or(path)),
                purpose,
            )?)
        }
        None => boxed(sqlite::open(None, purpose)?),
    })
}

#[cfg(not(all(feature = "etcd", feature = "postgres")))]
fn without(store: &str) -> anyhow::Error {
    Usage(format!(
        "this tenure was built without the feature {store}, which that store needs"
    ))
    .into()
}

fn boxed(store: Option<impl Store + 'static>) -> Option<Box<dyn Store>> {
    store.map(|store| Box::new(store) as Box<dyn Store>)
}

/// Where the store is that has nothing in it yet, for a message.
///
/// # Errors
/// The password database has no home for this user.
pub fn location_of(named: Option<&Path>) -> Result<String> {
    let Some(named) = named else {
        return sqlite::default_location();
    };
    let path = fs::canonicalize(named).or_else(|_| path::absolute(named));
    Ok(path.as_deref().unwrap_or(named).display().to_string())
}

/// By how much the local time at a moment is ahead of UTC; both in milliseconds. The time zone is that of the caller's
/// environment, or UTC where that cannot be read.
pub fn local_offset(at: i64) -> i64 {
    let zone = clock::zone_is_readable().then(|| sqlite::local_offset(at).ok());
    zone.flatten().unwrap_or(0)
}

/// Finds the processes that live on of those whose `run` was killed, for people to be told: as far as they can be seen from here,
/// which takes a look at all open files of the system.
pub fn find_orphans(held: &mut [Held]) {
    sqlite::find_orphans(held);
}

/// What came of a request for locks.
pub enum Answer {
    Granted(Lease),
    /// Held by others, none of whose leases is over, or others stand in line for it. Nothing was taken.
    Busy(Vec<Held>),
    /// The request stands in the line, behind these. Ask again when the obstacle has changed.
    Waiting(Obstacle, Vec<Held>),
    /// To wait would be for ever, because of this circle: the first is in the way, each waits for the next or has it
    /// inside of its lease, and the request is inside of the one in which none of the others is. It does not stand in
    /// the line.
    Deadlock(Vec<Held>),
    /// The lock is in use with this other number of slots. Nothing was taken.
    OtherSlots(u32),
    /// A request that stands in the line, or may, cannot be told how it stands there. Ask again.
    Unreachable(anyhow::Error),
}

/// What came of showing a token.
pub enum Shown {
    /// It was good, and what was asked for is done.
    Done(Held),
    /// Its lease is over, or another's, or never was.
    NotHeld,
    /// Its lease has more locks than were named: all of these. Nothing was done.
    OnlySome(Vec<LockName>),
    /// Its lease is a `run`'s, which alone may end it, and whose time to live does not become shorter. Nothing was done.
    OfRun(Held),
}

/// What the caller of [`open`] is going to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Take locks; the store is made where there is none.
    Take(Durability),
    /// Change what is there.
    Change,
    /// Only look.
    Look,
}

/// What a change must survive at the least; a server's survive what the server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Crashes of programs. For `run`, whose leases do not outlive the machine's power anyway.
    Process,
    /// Power failures, at the price of an fsync. For leases whose tokens somebody keeps.
    Power,
}

/// How a `run` finds its own lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    Held,
    /// Its row is gone, or was given to another.
    Gone,
    /// Somebody asked with `release --force` that it be given up.
    Revoked(String),
    /// The path no longer leads to the store that was opened.
    Moved,
}

/// How a lease is to be kept alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// By its time to live alone.
    Bare,
    /// By the caller's descriptor of this number, as long as anybody has it open.
    Tied(i32),
    /// By this process and the job that it starts, as far as the store can prove their lives.
    Supervised,
}

/// How much housekeeping is worth a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// Enough to slow down whoever opens the store next.
    Some,
    /// So much that somebody has to do it, even if others wait for his lock.
    Much,
}

/// What is asked of the log.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Of these locks, or of all.
    pub names: Vec<LockName>,
    /// Not older than this: milliseconds since 1970.
    pub since: Option<i64>,
    /// Only the newest, as many as that.
    pub most: Option<usize>,
    /// Only those that were written after this one.
    pub after: Option<i64>,
}

/// What the log has, as of one moment.
#[derive(Debug, Default)]
pub struct History {
    /// In the order in which they were written.
    pub written: Vec<Entry>,
    /// What will be written, had anybody come by, of the leases that are over; and those that live, and those who wait.
    pub present: Vec<Entry>,
    /// The last entry that was written, of whatever lock.
    pub last: i64,
}

/// What is written out here is so for a store at a server: no descriptor and no file is at hand to prove anything by, the slow tick of
/// an [`Obstacle`] is its own, and there is nothing to tidy.
pub trait Store {
    /// For messages: where the locks are kept, with no secret in it.
    fn location(&self) -> String;

    /// What child processes are to pass as `--db`.
    fn address(&self) -> std::ffi::OsString;

    /// Whether the kernel vouches for leases held by [`Keeping::Supervised`], whatever any clock says; if not, they end by
    /// time, wherever their holder is by then.
    fn vouches(&self) -> bool {
        false
    }

    /// Takes all of the names; or, if the request `waits`, puts it into the line. Called again, it looks along the
    /// line from the place that the request has there.
    ///
    /// # Errors
    /// The store cannot be used; nothing was taken.
    fn acquire(&mut self, request: &Request, keeping: Keeping, waits: bool) -> Result<Answer>;

    /// What is wrong with a descriptor of the caller's by which a lease is to be tied; none if nothing is.
    fn fault_of(&self, _number: i32) -> Option<String> {
        let location = self.location();
        Some(format!(
            "no descriptor can hold a lock here, where time alone does: {location}"
        ))
    }

    /// Ends the leases that are tied to a descriptor: all of them, or those of these names.
    ///
    /// # Errors
    /// The store cannot be used.
    fn release_tied(&mut self, _number: i32, _names: &[LockName]) -> Result<Shown> {
        Ok(Shown::NotHeld)
    }

    /// Leaves the line.
    ///
    /// # Errors
    /// The store could not be told. Whoever looks along the line finds the place empty all the same.
    fn leave(&mut self) -> Result<()>;

    /// What the own request has before it in the line, at the time of asking; none when it does not stand there. Never
    /// waits long.
    ///
    /// # Errors
    /// It could not be told.
    fn ahead(&mut self, request: &Request) -> Result<Option<Ahead>>;

    /// Whether anybody has written since this was last asked.
    ///
    /// # Errors
    /// It could not be told.
    fn has_changed(&mut self) -> Result<bool>;

    /// Whether the wait goes on without cause: the store was moved away, or the obstacle is gone and no byte told. Cheap
    /// enough for a thousand who ask it now and then.
    ///
    /// # Errors
    /// It could not be told.
    fn has_missed(&mut self, _request: &Request, _obstacle: &Obstacle) -> Result<bool> {
        Ok(false)
    }

    /// The file of whose bytes an [`Obstacle`] speaks; none where it speaks of no bytes.
    fn guard_path(&self) -> Option<PathBuf> {
        None
    }

    /// From now on rings the bell when what the own request in the line waits for may have changed in a way that no byte
    /// tells: since the last answer, which may have been before this call.
    fn ring(&mut self, bell: Bell);

    /// The descriptor that a supervised lease's job must inherit.
    fn tree(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Ends the lease of a token. With no names, whatever its locks are.
    ///
    /// # Errors
    /// The store cannot be used.
    fn release(&mut self, token: &Token, names: &[LockName]) -> Result<Shown>;

    /// Counts the lease's time to live from now; `ttl` replaces it for good.
    ///
    /// # Errors
    /// The store cannot be used.
    fn extend(&mut self, token: &Token, names: &[LockName], ttl: Option<Duration>)
    -> Result<Shown>;

    /// The lease of a token, if it still lives.
    ///
    /// # Errors
    /// The store cannot be used.
    fn held_by(&mut self, token: &Token) -> Result<Option<Held>>;

    /// How many stand in line for each lock.
    ///
    /// # Errors
    /// The store cannot be used.
    fn waiting(&mut self) -> Result<HashMap<LockName, usize>>;

    /// The leases that live, of these locks or of all.
    ///
    /// # Errors
    /// The store cannot be used.
    fn held(&mut self, names: &[LockName]) -> Result<Vec<Held>>;

    /// Everybody who holds one of these locks or stands in a line for one, in the order of the line, if alive.
    ///
    /// # Errors
    /// The store cannot be used.
    fn line(&mut self, names: &[LockName]) -> Result<Vec<Held>>;

    /// Takes leases from their holders: those of these locks, if `fence` is none or theirs. Bare leases end here;
    /// supervised ones are told to end, unless `at_once`, which ends those here too.
    ///
    /// # Errors
    /// The store cannot be used.
    fn revoke(
        &mut self,
        names: &[LockName],
        fence: Option<i64>,
        at_once: bool,
        by: &str,
    ) -> Result<Vec<Held>>;

    /// Looks whether a supervised lease is still what it was. Never waits long.
    ///
    /// # Errors
    /// It could not be told.
    fn look(&mut self, lease: &Lease) -> Result<Look>;

    /// Counts a supervised lease's time to live from now, and says when it will pass at the earliest, counted from before
    /// the store was asked; none when the lease is gone. Never waits long: a store that has to wait for an answer renews by
    /// itself, and says here what came of it.
    ///
    /// # Errors
    /// It was not renewed; trying again may help.
    fn renew(&mut self, lease: &Lease) -> Result<Option<Moment>>;

    /// Until when a supervised lease of the own is kept at the least, by a store that renews it by itself; none where
    /// [`Store::renew`] does. Never waits.
    fn kept_until(&self) -> Option<Moment> {
        None
    }

    /// Ends a supervised lease, both in the store and with the kernel, and writes down how. False when it was gone
    /// already.
    ///
    /// # Errors
    /// The store could not be told. Where the kernel vouches, its word has ended all the same: the locks are free where it
    /// counts.
    fn give_back(&mut self, request: &Request, lease: &Lease, ending: &Ending) -> Result<bool>;

    /// Writes down that a request was refused, since when it was asked and because of whom. Its failure changes
    /// nothing and is not told.
    fn refused(&mut self, request: &Request, asked_at: SystemTime, event: Event, by: &[Held]);

    /// Why the log has not all of what was done here and should be in it; told once.
    fn unlogged(&mut self) -> Option<String> {
        None
    }

    /// What happened.
    ///
    /// # Errors
    /// The store cannot be used.
    fn history(&self, query: &Query) -> Result<History>;

    /// What people who look should know besides: of holders about whom the store knows nothing, and who can block it.
    ///
    /// # Errors
    /// The store cannot be used.
    fn warnings(&mut self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Looks whether the store is still the one that was opened, and sees from now on what others have written since:
    /// for who looks on for a long time.
    ///
    /// # Errors
    /// It is not, or cannot be used any more.
    fn refresh(&mut self) -> Result<()> {
        Ok(())
    }

    /// Gets ready for [`Store::give_back`], ahead of the moment at which others wait for it. True when somebody does
    /// already.
    fn foresee_end(&mut self, _lease: &Lease) -> bool {
        false
    }

    /// Housekeeping, for a moment at which nobody waits. Its failure does no harm and is not told. True when the
    /// next write will be slower for it, which had better come now too.
    fn tidy(&mut self, _backlog: Backlog) -> bool {
        false
    }
}
