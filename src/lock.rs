//! The words of locking as types: names, tokens, leases and who holds them. No database, no clock.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::time::Duration;

use crate::chance;
use crate::clock::Moment;

/// A lock's name: 1 to 255 bytes of UTF-8, no control characters, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

impl LockName {
    /// The longest name, in bytes: that of a file name on most file systems.
    pub const MAX_BYTES: usize = 255;

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for LockName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("a lock's name cannot be empty".into());
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "a lock's name has at most {} bytes, this one has {}",
                Self::MAX_BYTES,
                text.len()
            ));
        }
        if text.chars().any(char::is_control) {
            return Err("a lock's name cannot have control characters".into());
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease's secret: 128 random bits, written as 32 hexadecimal digits. Whoever shows it may release or extend.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token([u8; 16]);

impl Token {
    /// A new token.
    ///
    /// # Errors
    /// When the operating system has no random numbers to give.
    pub fn draw() -> io::Result<Self> {
        chance::bytes().map(Self)
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for Token {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // The token's own text is left out of the message: it may be all but right, and is a secret.
        let wrong = || String::from("a token has 32 hexadecimal digits");
        let digits = text.as_bytes();
        if digits.len() != 32 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(wrong());
        }
        u128::from_str_radix(text, 16)
            .map(|bits| Self(bits.to_be_bytes()))
            .map_err(|_| wrong())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// A token never reaches a log or a panic message by way of `{:?}`.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Who asked, for people to read. Nothing is ever decided by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The numeric user; its name is looked up when it is shown, not on every grant.
    pub uid: u32,
    pub host: String,
    pub pid: u32,
    /// The command line, bounded and quoted as a shell would need it.
    pub command: String,
    pub directory: String,
    pub note: Option<String>,
    /// Where the CI service that it runs under shows it.
    pub url: Option<String>,
}

impl Holder {
    /// Of which nothing is known but what `command` says: another program has the lock, in a store that has others. It is no
    /// process with a number.
    pub fn is_unknown(&self) -> bool {
        self.pid == 0
    }
}

/// With whom a lock can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// With nobody.
    Exclusive,
    /// With others that share it.
    Shared,
    /// With others of the same number, as many in all as that says; at least one.
    Slots(u32),
}

/// One request for locks: all of the names, or none.
#[derive(Clone, Debug)]
pub struct Request {
    /// At least one, sorted, each once.
    pub names: Vec<LockName>,
    pub mode: Mode,
    pub ttl: Duration,
    /// The locks stay taken this long after the grant, even if they are given back before.
    pub at_least: Duration,
    /// The leases inside of which this is asked for, the innermost first: none of them can end before this request does. They
    /// are what the caller was told, and may be other stores', or over.
    pub enclosing: Vec<Token>,
    pub holder: Holder,
}

/// A granted request, as its holder knows it.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The ticket's number in the store; never reused.
    pub id: i64,
    pub names: Vec<LockName>,
    pub token: Token,
    /// Larger than that of any earlier grant of this store.
    pub fence: i64,
    pub ttl: Duration,
    /// With [`Mode::Slots`]: the smallest number from 0 on that no other holder has.
    pub slot: Option<u32>,
    /// Milliseconds of the wall clock since 1970, for people to read.
    pub requested_at: i64,
    pub granted_at: i64,
    /// Its time to live has not passed before it has by this clock since then: no later than the grant.
    pub counted_from: Moment,
}

/// What is known of somebody's lease, without its secret.
#[derive(Clone, Debug)]
pub struct Held {
    pub id: i64,
    /// All names of the lease, in order.
    pub names: Vec<LockName>,
    pub mode: Mode,
    /// None while it waits.
    pub fence: Option<i64>,
    pub slot: Option<u32>,
    pub holder: Holder,
    /// Zero where no time ends it.
    pub ttl: Duration,
    /// When it was granted, or asked for while it waits: milliseconds of the wall clock since 1970, for people to
    /// read. Zero of a holder who is unknown.
    pub since: i64,
    /// How long until the TTL passes; zero when it has.
    pub remaining: Duration,
    pub standing: Standing,
    /// Of one whose `run` was killed, and whose job lives on.
    pub orphan: Option<Orphan>,
    /// Somebody asked with `release --force` that it be given up.
    pub revoked: bool,
    /// A `run` holds it, or held it until it was killed.
    pub guarded: bool,
    /// The fence of the lease inside of which it was taken or asked for, if that is still there.
    pub inside_of: Option<i64>,
}

/// A job whose supervisor is dead.
#[derive(Clone, Debug)]
pub struct Orphan {
    /// The inode of the guard file, and the byte of it that the job's processes have locked.
    pub byte: (u64, i64),
    /// How long `--at-least` keeps the lease, whether or not they end.
    pub rest: Duration,
    /// Those that are seen from here; none where nobody has looked.
    pub processes: Vec<Process>,
    /// There are no others.
    pub are_all: bool,
}

/// A process, for people to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// Whose it is, where that is not the caller.
    pub other_user: Option<u32>,
    /// Empty where it cannot be seen.
    pub command: String,
}

/// What a request in the line has before it, for people to be told.
#[derive(Clone, Debug, Default)]
pub struct Ahead {
    /// On each of its locks the first in its way: its holder, or who is next.
    pub first: Vec<Held>,
    /// Its place in the line for the lock that the first of these is about, counted from 1, and how many stand there.
    pub place: Option<(u32, u32)>,
}

/// When a time to live passes, on both clocks, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expiry {
    /// The boot under which `boot` counts.
    pub boot_id: Option<String>,
    /// On the boot clock; none where only the wall clock can be believed.
    pub boot: Option<i64>,
    pub wall: i64,
}

/// By what a held ticket lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    pub expiry: Expiry,
    /// With `--at-least`: until when it lives whatever else is true.
    pub earliest_end: Option<Expiry>,
    /// None for a bare lease.
    pub mark: Option<GuardMark>,
}

/// A ticket's bytes in the guard file, as its row has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardMark {
    /// Of the guard file in which the bytes are locked.
    pub inode: u64,
    /// Locked while the ticket stands in the line.
    pub waiting: i64,
    /// Locked while the `run` lives.
    pub supervisor: i64,
    /// Locked while the `run` or any process of its job lives. None where the job could not be given it: the
    /// guard file was replaced after the job had started.
    pub tree: Option<i64>,
}

impl GuardMark {
    /// Whether it is held by a descriptor that a caller keeps open, and not by a `run`.
    pub fn is_tied(&self) -> bool {
        self.tree == Some(self.supervisor)
    }
}

/// Why a lease lives, or why it is over. See `guard` for the proof and `store` for the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The kernel says that its `run` is alive.
    Supervised,
    /// Its `run` was killed; processes of its job live on, and the TTL has not passed.
    Orphaned,
    /// Nothing but its time to live speaks for it, and that has not passed.
    Leased,
    /// It stands in the line.
    Waiting,
    /// It was given back, or its holder is dead, before its `--at-least` had passed.
    Resting,
    /// Its time to live has passed.
    Expired,
    /// Its `run` and all of its job are dead.
    Crashed,
}

impl Standing {
    pub fn is_over(self) -> bool {
        matches!(self, Standing::Expired | Standing::Crashed)
    }
}

/// What can be told of a request for locks, or of the lease that it became.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Granted,
    /// Given back.
    Released,
    /// Its time to live passed.
    Expired,
    /// Its holder was found dead.
    Crashed,
    /// Its `run` noticed that it was lost, and has stopped CMD.
    Lost,
    /// Somebody forced its release. It ended by that, or its holder was told to end.
    Forced,
    /// Refused, at once or after a wait.
    Busy,
    /// Refused, because to wait would be for ever.
    Deadlock,
    /// It stands in the line.
    Waiting,
}

impl Event {
    /// The word for it, in the database and in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Event::Granted => "granted",
            Event::Released => "released",
            Event::Expired => "expired",
            Event::Crashed => "crashed",
            Event::Lost => "lost",
            Event::Forced => "forced",
            Event::Busy => "busy",
            Event::Deadlock => "deadlock",
            Event::Waiting => "waiting",
        }
    }

    pub fn of_word(word: &str) -> Option<Self> {
        let all = [
            Event::Granted,
            Event::Released,
            Event::Expired,
            Event::Crashed,
            Event::Lost,
            Event::Forced,
            Event::Busy,
            Event::Deadlock,
            Event::Waiting,
        ];
        all.into_iter().find(|event| event.word() == word)
    }
}

/// How a `run` ended its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    pub event: Event,
    /// CMD's exit status, or the signal that ended it; neither where it was not started.
    pub status: Option<u8>,
    pub signal: Option<i32>,
    /// A word for why it was not CMD that ended by itself.
    pub reason: Option<&'static str>,
    /// Who took the lease away.
    pub by: Option<String>,
}

impl Ending {
    /// That of a CMD that never ran.
    pub fn not_started(status: Option<u8>) -> Self {
        Self {
            event: Event::Released,
            status,
            signal: None,
            reason: Some("not-started"),
            by: None,
        }
    }
}

/// What the log tells of one request: it has what went before, too, so that a lease costs one entry, at its end.
/// Moments are milliseconds of the wall clock since 1970.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When this came to be known.
    pub at: i64,
    pub event: Event,
    pub names: Vec<LockName>,
    pub mode: Mode,
    pub slot: Option<u32>,
    pub fence: Option<i64>,
    pub requested_at: i64,
    pub granted_at: Option<i64>,
    /// When the lease or the wait was over; none while it lasts, or when nobody saw its end.
    pub ended_at: Option<i64>,
    pub status: Option<u8>,
    pub signal: Option<i32>,
    pub reason: Option<String>,
    /// Who took it away, or was in the way.
    pub by: Option<String>,
    pub holder: Holder,
}
