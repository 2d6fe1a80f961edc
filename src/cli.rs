//! The command line as clap types, from which parser, help, man pages and completions are all made.
//! Its tests keep `man/` and `completions/` fresh.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::LazyLock;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::duration::{self, Patience};
use crate::exit::Exit;
use crate::lock::{LockName, Mode, Token};
use crate::signals::Signal;
use crate::store::sqlite;

/// Hold named locks while a command runs
///
/// A lock is a name. `tenure run NAME -- CMD` holds it while CMD runs and gives it back however CMD ends;
/// `acquire`, `extend` and `release` hold it across several commands by a token.
/// When the lock is held by another, tenure says so at once; `--wait` waits.
///
/// The locks are kept as leases in a SQLite file that all of its users share. While `run` holds a lock the
/// kernel vouches for it, whatever any clock says; what `acquire` takes ends with its time to live.
#[derive(Parser, Debug)]
#[command(
    name = "tenure",
    version = version(),
    propagate_version = true,
    args_override_self = true,
    max_term_width = 100,
    after_long_help = "Exit status: 0 done, 64 usage error, 69 the database cannot be used, 75 busy (or what -E says), 76 not held, \
        124 --max-time ran out, 126 and 127 CMD cannot be executed or was not found; else it is CMD's own."
)]
pub struct Cli {
    #[command(subcommand)]
    pub verb: Verb,

    #[command(flatten)]
    pub common: Common,
}

/// What every verb takes.
#[derive(Args, Debug)]
pub struct Common {
    /// The database file that holds the locks, or the URL of a server; the file's directory must exist
    ///
    /// `acquire` and `run` make the file where there is none. `etcd://HOST:PORT/` is an etcd cluster, `postgres://HOST/DATABASE` a
    /// PostgreSQL database; see SERVERS in tenure(1).
    ///
    /// Without this option, `.local/state/tenure/tenure.db` under your home directory as the password database
    /// gives it, for root `/var/lib/tenure/tenure.db`: the same file from cron and at a terminal.
    #[arg(long, display_order = 900, value_name = "PATH", env = "TENURE_DB", hide_env_values = true, global = true, value_parser = OsStringValueParser::new().try_map(not_empty_path))]
    pub db: Option<PathBuf>,

    /// Say nothing of locks that are busy, waited for or not held; the exit status tells
    ///
    /// A database that cannot be used is still reported, and so is a lock that a lease around the command itself holds.
    #[arg(
        short,
        long,
        display_order = 901,
        global = true,
        conflicts_with = "verbose"
    )]
    pub quiet: bool,

    /// Say on stderr what is done
    #[arg(short, long, display_order = 902, global = true)]
    pub verbose: bool,
}

#[derive(Subcommand, Debug)]
pub enum Verb {
    /// Take locks and print the lease's token on stdout
    ///
    /// The lease ends at `tenure release`, or when its time to live has passed without `tenure extend`. Nothing
    /// tells whether whoever took it is still there: the time to live must be longer than the work between two
    /// calls of `extend`. Where one command does all the work, `tenure run` is the better choice.
    Acquire(Acquire),
    /// Give a lease's locks back
    ///
    /// Exits with 76 when the lease is over or another's. The locks of a `tenure run` cannot be
    /// released by their token: they are given back when its command ends, and `--force` stops that.
    #[command(
        override_usage = "tenure release [OPTIONS] [NAME]...\n       tenure release [OPTIONS] --force <NAME>..."
    )]
    Release(Release),
    /// Reset a lease's time to live
    ///
    /// The time to live is counted from now. Exits with 76 when the lease is over or another's, even if nobody
    /// has taken the locks since.
    Extend(Extend),
    /// Hold locks while a command runs
    ///
    /// The locks are taken, CMD is started and supervised, and the locks are given back when it ends,
    /// whatever ends it. tenure ends as CMD did: with its exit status, or by the same signal.
    /// CMD finds TENURE_DB, TENURE_LOCK (the names, one a line), TENURE_TOKEN, TENURE_TOKENS and TENURE_FENCE in its environment.
    #[command(override_usage = "tenure run [OPTIONS] <NAME>... -- <CMD> [ARG]...")]
    Run(Run),
    /// Show who holds what, and who waits
    ///
    /// Without names, a table of all locks that are held or waited for; with names, all that is known of those, held or free,
    /// and the line of those who wait for each.
    #[command(
        override_usage = "tenure status [OPTIONS] [NAME]...\n       tenure status [OPTIONS] --token <TOKEN> [NAME]..."
    )]
    Status(Status),
    /// Show what happened
    ///
    /// Without names, to all locks; with names, to those. The newest comes last. Entries are kept for 90 days,
    /// and 100,000 of them at most; in etcd the newest 1,000.
    Log(Log),
    /// Print the names of the locks in use, for the shells' completions
    #[command(name = "__names", hide = true)]
    Names(Names),
}

impl Verb {
    /// Whether stdout is to get one JSON object, even of a failure.
    pub fn wants_json(&self) -> bool {
        match self {
            Verb::Acquire(args) => args.json,
            Verb::Release(args) => args.json,
            Verb::Extend(args) => args.json,
            Verb::Status(args) => args.json,
            Verb::Log(args) => args.json,
            Verb::Run(_) | Verb::Names(_) => false,
        }
    }
}

#[derive(Args, Debug)]
pub struct Acquire {
    /// The locks to take: all of them, or none
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<LockName>,

    #[command(flatten)]
    pub taking: Taking,

    /// Tie the lease to your descriptor N: it is held as long as that is open, in whatever process
    ///
    /// The descriptor must be open for writing on the guard file, which is the database's path and `-guard`.
    #[arg(long, value_name = "N", value_parser = number(0, i32::MAX), allow_negative_numbers = true)]
    pub fd: Option<i32>,

    /// Print a line for the shell's eval, that exports the token, the fence and with --slots the slot
    #[arg(long, conflicts_with = "json")]
    pub shell: bool,

    /// Print one JSON object instead of the token alone
    #[arg(long)]
    pub json: bool,

    /// Taken only to say that `acquire` runs no command
    #[arg(value_name = "CMD", last = true, hide = true)]
    pub command: Vec<OsString>,
}

/// How `acquire` and `run` take locks. The letters are those of flock(1).
#[derive(Args, Debug)]
pub struct Taking {
    /// How long the lease lives without being renewed
    ///
    /// A duration is a number of seconds (`30`, `.5`) or has units (`500ms`, `10m`, `1h30m`). `run` renews its lease
    /// by itself; what `acquire` takes lives this long, unless `extend` is called.
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration::parse_ttl, allow_negative_numbers = true)]
    pub ttl: Duration,

    /// Wait this long for the locks, or `forever`; without it, one try
    ///
    /// Waiters stand in a line: first in, first out. A wait of 0 is one try. Who waits is told of it: at a terminal by a
    /// line that is gone when the wait is over, elsewhere by one when it begins, one each minute and one when it ends.
    #[arg(short, long, visible_alias = "timeout", value_name = "DURATION", value_parser = duration::parse_patience, allow_negative_numbers = true, conflicts_with = "no_wait")]
    pub wait: Option<Patience>,

    /// Try once, and be done when a lock is held by another (the default)
    #[arg(short, long, visible_aliases = ["nonblock", "nb"])]
    pub no_wait: bool,

    /// Share the locks with others that say --shared too
    #[arg(short, long, conflicts_with_all = ["exclusive", "slots"])]
    pub shared: bool,

    /// Share the lock with others that say the same NUMBER, as many as that at once
    ///
    /// It goes with one NAME. While anybody holds the lock, or waits for it, with another number of slots, the request is refused
    /// with 64.
    #[arg(long, value_name = "NUMBER", value_parser = number(1, u32::MAX), allow_negative_numbers = true, conflicts_with = "exclusive")]
    pub slots: Option<u32>,

    /// Keep the locks taken for this long after the grant, even if they are given back before
    ///
    /// For a fast job that must not run twice on machines or at ticks whose clocks differ.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    pub at_least: Option<Duration>,

    /// Share the locks with nobody (the default)
    #[arg(short = 'x', long, visible_short_alias = 'e')]
    pub exclusive: bool,

    /// The exit status when a lock is held by another, or the wait ran out
    ///
    /// From 0 to 255. With 0 and `--quiet`, a job that finds its lock held is skipped in silence. A lock that a lease around the
    /// command itself holds is no such conflict, but a mistake: it is told, and the exit status is 75.
    #[arg(short = 'E', long, value_name = "NUMBER", default_value_t = Exit::BUSY, value_parser = number(0, u8::MAX), allow_negative_numbers = true)]
    pub conflict_exit_code: u8,

    /// A text for whoever looks at who holds the locks: `status` and the busy message show it
    #[arg(long, value_name = "TEXT")]
    pub note: Option<String>,
}

impl Taking {
    /// The mode that the options say.
    pub fn mode(&self) -> Mode {
        match self.slots {
            Some(slots) => Mode::Slots(slots),
            None if self.shared => Mode::Shared,
            None => Mode::Exclusive,
        }
    }

    /// How long to wait, with no `--wait` meaning one try.
    pub fn patience(&self) -> Patience {
        self.wait.unwrap_or(Patience::None)
    }
}

#[derive(Args, Debug)]
pub struct Release {
    /// The lease's locks: all of them; with the token alone they need not be named
    #[arg(value_name = "NAME", required_if_eq("force", "true"))]
    pub names: Vec<LockName>,

    #[command(flatten)]
    pub proof: Proof,

    /// Take the locks from whoever holds them; no token is needed
    ///
    /// A `tenure run` is told to stop its command, and this command returns when the locks are free: even a
    /// forced release makes no two holders on one machine. What `acquire` took is free at once. The other locks
    /// of the same lease go with those that are named.
    ///
    /// It reserves nothing for you: a waiter that stands in the line enters first. To put another command in the holder's place, have that
    /// one wait in the line before you force the release.
    ///
    /// Exits with 76 when nobody holds one of them; the others are taken all the same.
    #[arg(long)]
    pub force: bool,

    /// Give back what is tied to your descriptor N; no token is needed
    #[arg(long, value_name = "N", value_parser = number(0, i32::MAX), allow_negative_numbers = true, conflicts_with = "force")]
    pub fd: Option<i32>,

    /// With --force: do not wait until the holder is gone
    ///
    /// The locks are free at once, and the old holder's command may still be running for a while beside the next.
    #[arg(long, requires = "force")]
    pub now: bool,

    /// With --force: only if the lease still has this fencing number
    ///
    /// For a decision that was made on what `tenure status` showed: whoever holds the locks by now, if another, keeps them.
    #[arg(long, value_name = "FENCE", requires = "force", allow_negative_numbers = true, value_parser = number(1, i64::MAX))]
    pub if_fence: Option<i64>,

    /// Print one JSON object a lease, each on a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Extend {
    /// The lease's locks: all of them; with the token alone they need not be named
    #[arg(value_name = "NAME")]
    pub names: Vec<LockName>,

    #[command(flatten)]
    pub proof: Proof,

    /// The new time to live, counted from now; without it, the one that the lease has
    ///
    /// A number of seconds (`30`, `.5`) or with units (`500ms`, `10m`, `1h30m`).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_ttl, allow_negative_numbers = true)]
    pub ttl: Option<Duration>,

    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What shows that a lease is one's own.
#[derive(Args, Debug)]
pub struct Proof {
    /// The token that `acquire` printed; `-` reads it from standard input
    ///
    /// On a command line others can read it in the list of processes; in TENURE_TOKEN and on standard input they cannot.
    #[arg(
        long,
        value_name = "TOKEN",
        env = "TENURE_TOKEN",
        hide_env_values = true,
        value_parser = token()
    )]
    pub token: Option<TokenFrom>,
}

/// Where a token is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenFrom {
    Argument(Token),
    Stdin,
}

impl FromStr for TokenFrom {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "-" {
            return Ok(Self::Stdin);
        }
        text.parse().map(Self::Argument)
    }
}

#[derive(Args, Debug)]
pub struct Run {
    /// The locks to hold: all of them, or none
    #[arg(value_name = "NAME", required = true)]
    pub names: Vec<LockName>,

    #[command(flatten)]
    pub taking: Taking,

    /// Stop CMD after this long, and exit with 124
    ///
    /// By SIGTERM, and SIGKILL where that does not help within `--kill-after`.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse_positive, allow_negative_numbers = true)]
    pub max_time: Option<Duration>,

    /// How long after the signal that stops CMD it is killed
    ///
    /// For `--max-time` and for the loss of the lease. A signal that somebody sends is passed on, and no more. Without this
    /// option 10 seconds; where time alone keeps the lease, a quarter of `--ttl` if that is less.
    #[arg(short, long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    pub kill_after: Option<Duration>,

    /// The signal that stops CMD when the lease is lost
    ///
    /// By name or number: `TERM`, `SIGTERM` and `15` are the same. A lease is lost when somebody forces its release,
    /// or when the database is deleted or replaced.
    #[arg(
        long,
        value_name = "SIGNAL",
        default_value = "TERM",
        allow_negative_numbers = true
    )]
    pub on_lost: Signal,

    /// The command and its arguments, after `--`; they go to exec as they are, no shell reads them
    #[arg(value_name = "CMD", last = true)]
    pub command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub struct Status {
    /// Only these locks
    #[arg(value_name = "NAME")]
    pub names: Vec<LockName>,

    /// Say whether this lease is still held: exit status 0, or 76
    ///
    /// With names: and whether it holds all of these. Nothing is printed when it does, but with --json its locks
    /// are. `-` reads the token from standard input. TENURE_TOKEN is not looked at.
    #[arg(long, value_name = "TOKEN", value_parser = token())]
    pub token: Option<TokenFrom>,

    /// Show it anew each second, until Ctrl-C
    ///
    /// At a terminal on the whole screen; elsewhere, and with --json, one after the other.
    #[arg(long, conflicts_with = "token")]
    pub watch: bool,

    /// Print one JSON object a lock, each on a line
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Debug)]
pub struct Log {
    /// Only these locks
    #[arg(value_name = "NAME")]
    pub names: Vec<LockName>,

    /// Only the newest NUMBER events
    #[arg(
        short = 'n',
        long,
        value_name = "NUMBER",
        value_parser = whole_number,
        allow_negative_numbers = true
    )]
    pub lines: Option<usize>,

    /// Only what happened within this time until now
    ///
    /// A number of seconds (`30`, `.5`) or with units (`10m`, `12h`, `7days`).
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_negative_numbers = true)]
    pub since: Option<Duration>,

    /// Go on showing what happens, until Ctrl-C
    #[arg(short, long)]
    pub follow: bool,

    /// Draw a picture of who held and who waited when
    ///
    /// Of the last 20 leases and refused requests, or as many as `--lines` says, or those of `--since`; and of what
    /// is held or waited for now.
    #[arg(long, conflicts_with_all = ["follow", "json"])]
    pub timeline: bool,

    /// Print one JSON object an event, each on a line
    #[arg(long)]
    pub json: bool,
}

/// What `--version` says: of SQLite too, for it decides what becomes of the file.
fn version() -> &'static str {
    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let own = env!("CARGO_PKG_VERSION");
        format!("{own} (SQLite {})", sqlite::version())
    });
    &TEXT
}

#[derive(Args, Debug)]
pub struct Names {
    /// And of those that were in use not long ago
    #[arg(long)]
    pub past: bool,
}

/// Of bytes that are no text too it is said that they are no token, and where they came from.
fn token() -> impl TypedValueParser<Value = TokenFrom> {
    OsStringValueParser::new().try_map(|text| text.to_string_lossy().parse::<TokenFrom>())
}

fn number<T>(least: T, most: T) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + fmt::Display + Copy + Send + Sync + 'static,
{
    move |text: &str| {
        let number = text.parse::<T>().ok();
        let fits = |number: &T| (least..=most).contains(number);
        number
            .filter(fits)
            .ok_or_else(|| format!("not a whole number from {least} to {most}"))
    }
}

fn whole_number(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "not a whole number, such as 20")
}

fn not_empty_path(text: OsString) -> Result<PathBuf, &'static str> {
    if text.is_empty() {
        Err("the path cannot be empty")
    } else {
        Ok(text.into())
    }
}

#[cfg(test)]
mod completions;
#[cfg(test)]
mod pages;
