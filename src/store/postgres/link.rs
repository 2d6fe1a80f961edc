//! The connection to the server: one for the whole process, made anew when it breaks; every call of it has an end, whatever
//! becomes of the server.
//!
//! All changes are made one after the other, since each locks the one row of `tenure.state` first, and reads the clock after
//! that. Only unnamed statements are used, and no state of the session but LISTEN, so that it works through a pooler in
//! transaction mode. What such a pooler costs: it forgets who listens, and waiters find out by their slow tick instead.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::runtime::{Builder, Handle};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Config, Row, SimpleQueryMessage};

use super::fault::{Fault, Kind, kind_of};
use super::target::{Encryption, Host, Target};
use super::tls::Connector;
use super::witness::{Proof, Witness};
use crate::clock::Moment;
use crate::duration::millis;
use crate::signals::NoStops;
use crate::wait::{self, Bell};

/// The layout that this program knows.
const LAYOUT: i64 = 1;

const SCHEMA: &str = include_str!("schema.sql");

/// What those who make the schema at the same moment lock in turn: any number that nobody else has.
const CREATION: i64 = 0x7465_6e75_7265;

/// How long the server waits for the next statement of a transaction: whoever is stopped in the middle of one, or cut off,
/// keeps everybody else waiting.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// By how much sooner than here a call is given up by the server, at the most: it can tell why.
const WORD: Duration = Duration::from_millis(100);

/// The pause before a server is tried again that did not answer.
const RETRY: Duration = Duration::from_millis(200);

/// Where etcd listens, which waits for the end of a line that this protocol does not have.
const ETCD_PORT: u16 = 2379;

/// How soon a signal is seen that ends the program.
const HEED: Duration = Duration::from_millis(50);

/// How soon the kernel finds out that the other side is gone, where nothing else does: it probes after the first, as often
/// as fits.
const KEEPALIVE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_secs(5);
const UNACKNOWLEDGED: Duration = Duration::from_secs(20);

/// For how long, and how, a call is tried.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    pub limit: Duration,
    /// Tries again to reach a server that does not answer.
    pub persists: bool,
    /// A signal that ends the program ends it, before anything is changed.
    pub heeds: bool,
    /// Makes the tables where there are none.
    pub makes: bool,
}

impl Bound {
    pub fn of(limit: Duration) -> Self {
        Self {
            limit,
            persists: false,
            heeds: false,
            makes: false,
        }
    }
}

/// A call's end.
#[derive(Clone, Copy)]
struct Deadline {
    bound: Bound,
    at: Instant,
}

impl Deadline {
    fn of(bound: Bound) -> Self {
        Self {
            bound,
            at: Instant::now() + bound.limit,
        }
    }

    /// As this one, and no signal ends it: what is being done is not to be left in the dark.
    fn regardless(&self) -> Self {
        Self {
            bound: Bound {
                heeds: false,
                ..self.bound
            },
            at: self.at,
        }
    }

    fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

pub struct Link {
    target: Target,
    connector: Connector,
    handle: Handle,
    session: Mutex<Option<Session>>,
    ear: Arc<Ear>,
    pub witness: Witness,
}

struct Session {
    client: Client,
    task: AbortHandle,
    /// It was used before, and may have broken since.
    is_old: bool,
    listens: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        // At once: what is asked already is not waited for.
        self.task.abort();
    }
}

/// Rings when the server has something to tell, or is gone.
#[derive(Default)]
struct Ear(Mutex<Heard>);

#[derive(Default)]
struct Heard {
    bell: Option<Bell>,
    /// It has rung, or would have, and nobody has asked since.
    anything: bool,
}

impl Ear {
    fn hear(&self) {
        let mut heard = lock(&self.0);
        heard.anything = true;
        heard.bell.iter().for_each(Bell::ring);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // It is whole after every statement, whatever panicked in between.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Connects.
    ///
    /// # Errors
    /// It cannot; the message says why.
    pub fn open(target: Target, bound: Bound) -> Result<Arc<Self>> {
        let connector = Connector::new(&target.tls)?;
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot make connections")?;
        let handle = runtime.handle().clone();
        {
            // Job control is to stop the caller's thread, and not this one while that one cannot be.
            let _no_stops = NoStops::begin();
            thread::Builder::new()
                .name("link".into())
                .spawn(move || runtime.block_on(std::future::pending::<()>()))
                .context("cannot start a thread for connections")?;
        }
        let link = Arc::new(Self {
            target,
            connector,
            handle,
            session: Mutex::new(None),
            ear: Arc::default(),
            witness: Witness::new(),
        });
        let deadline = Deadline::of(bound);
        link.connected(&mut lock(&link.session), &deadline)?;
        Ok(link)
    }

    pub fn location(&self) -> String {
        self.target.location()
    }

    /// Rings from now on when something is heard, or has been since the last answer.
    pub fn ring(&self, bell: Bell) {
        let mut heard = lock(&self.ear.0);
        if heard.anything {
            bell.ring();
        }
        heard.bell = Some(bell);
    }

    /// Hears of it when one of these, on this machine, dies.
    pub fn hear_of(&self, proofs: &[Proof]) {
        for proof in proofs {
            let ear = Arc::clone(&self.ear);
            self.witness.watch(proof, move || ear.hear());
        }
    }

    /// Whether anything was heard since this was last asked.
    pub fn has_heard(&self) -> bool {
        std::mem::take(&mut lock(&self.ear.0).anything)
    }

    /// Ends a connection that is of no use any more. Who listened by it has to do so anew.
    fn give_up(&self, session: &mut Option<Session>) {
        if session.take().is_some_and(|session| session.listens) {
            self.ear.hear();
        }
    }

    /// Makes a change in one transaction. `act` may be called again: with what it answered the last time, if nobody knows
    /// whether that was committed. If it was, the rows say so.
    ///
    /// # Errors
    /// It could not be done. After [`Kind::Cut`] it may have been all the same.
    pub fn write<T>(
        &self,
        bound: Bound,
        mut act: impl FnMut(&Tx<'_>, Option<&T>) -> Result<T>,
    ) -> Result<T> {
        let deadline = Deadline::of(bound);
        let mut unsure = None;
        let mut session = lock(&self.session);
        loop {
            // A writer that is stopped in the middle stops everybody, for a while.
            let no_stops = NoStops::begin();
            let was_old = session.as_ref().is_some_and(|session| session.is_old);
            let attempt = self.attempt(&mut session, &deadline, unsure.as_ref(), &mut act);
            drop(no_stops);
            let error = match attempt {
                Ok(Attempt::Done(done)) => return Ok(done),
                Ok(Attempt::Unsure(done, error)) => {
                    unsure = Some(done);
                    error
                }
                Err(error) => error,
            };
            self.give_up(&mut session);
            match kind_of(&error) {
                Kind::NoTables if bound.makes => self.make_tables(&mut session, &deadline)?,
                Kind::Cut if was_old && !deadline.left().is_zero() => {}
                Kind::Cut
                    if (bound.persists || unsure.is_some()) && deadline.left() > RETRY * 2 =>
                {
                    // Others may use the connection meanwhile.
                    drop(session);
                    wait::pause(RETRY);
                    if bound.heeds
                        && let Some(interrupted) = wait::interruption()
                    {
                        return Err(interrupted.into());
                    }
                    session = lock(&self.session);
                }
                _ => return Err(error),
            }
        }
    }

    fn attempt<T>(
        &self,
        session: &mut Option<Session>,
        deadline: &Deadline,
        unsure: Option<&T>,
        act: &mut impl FnMut(&Tx<'_>, Option<&T>) -> Result<T>,
    ) -> Result<Attempt<T>> {
        let session = self.connected(session, deadline)?;
        let tx = Tx::begin(self, session, deadline, "read committed read write", true)?;
        let done = act(&tx, unsure)?;
        let listens = tx.listens.get();
        let committed = tx.commit();
        session.listens = listens;
        match committed {
            Ok(()) => Ok(Attempt::Done(done)),
            Err(error) if kind_of(&error) == Kind::Cut => Ok(Attempt::Unsure(done, error)),
            Err(error) => Err(error),
        }
    }

    /// Looks, at one moment.
    ///
    /// # Errors
    /// It could not be done.
    pub fn read<T>(&self, bound: Bound, act: impl Fn(&Tx<'_>) -> Result<T>) -> Result<T> {
        let deadline = Deadline::of(bound);
        let mut session = lock(&self.session);
        loop {
            let was_old = session.as_ref().is_some_and(|session| session.is_old);
            let looked = self.connected(&mut session, &deadline).and_then(|session| {
                let tx = Tx::begin(self, session, &deadline, "repeatable read read only", false)?;
                let found = act(&tx)?;
                tx.commit()?;
                Ok(found)
            });
            match looked {
                Ok(found) => return Ok(found),
                Err(error) => {
                    self.give_up(&mut session);
                    let may_be_of_old = was_old && kind_of(&error) == Kind::Cut;
                    if !may_be_of_old || deadline.left().is_zero() {
                        return Err(error);
                    }
                }
            }
        }
    }

    fn connected<'a>(
        &self,
        session: &'a mut Option<Session>,
        deadline: &Deadline,
    ) -> Result<&'a mut Session> {
        if session
            .as_ref()
            .is_some_and(|session| session.client.is_closed())
        {
            self.give_up(session);
        }
        Ok(match session {
            Some(session) => session,
            none => none.insert(self.connect(deadline)?),
        })
    }

    /// One server after the other, each with a share of the time: one that is stopped takes connections and does not answer.
    fn connect(&self, deadline: &Deadline) -> Result<Session> {
        let hosts = &self.target.hosts;
        let mut faults = Vec::new();
        for (at, host) in hosts.iter().enumerate() {
            let others = u32::try_from(hosts.len() - at).unwrap_or(u32::MAX);
            let limit = (deadline.left() / others).min(self.target.connect_timeout);
            match self.connect_to(host, limit, deadline.bound) {
                Ok(session) => return Ok(session),
                Err(error) => faults.push((host, error)),
            }
        }
        if let [(_, _)] | [] = &faults[..] {
            let fault = faults.pop().map(|(_, error)| error);
            return Err(fault.unwrap_or_else(|| anyhow!("there is no server to reach")));
        }
        let is_cut = faults.iter().any(|(_, error)| kind_of(error) == Kind::Cut);
        let location = self.location();
        let prefixes =
            ["cannot reach ", "cannot use "].map(|cannot| format!("{cannot}{location}: "));
        let each = faults.iter().map(|(host, error)| {
            let text = error.to_string();
            let why = prefixes
                .iter()
                .find_map(|prefix| text.strip_prefix(prefix.as_str()));
            format!("{}: {}", host.name, why.unwrap_or(&text))
        });
        let kind = if is_cut { Kind::Cut } else { Kind::Other };
        let each: Vec<String> = each.collect();
        Err(Fault::new(
            kind,
            format!("cannot reach {location}: {}", each.join("; ")),
        )
        .into())
    }

    fn connect_to(&self, host: &Host, limit: Duration, bound: Bound) -> Result<Session> {
        let config = self.config(host);
        let deadline = Deadline::of(Bound { limit, ..bound });
        let connecting = config.connect(self.connector.clone());
        let connected = self.wait(&deadline, connecting);
        let (client, mut connection) = connected.map_err(|error| {
            if host.port == ETCD_PORT && kind_of(&error) == Kind::Cut {
                let hint = "this is etcd's port, whose URL begins with etcd://";
                return Fault::new(Kind::Cut, format!("{error}; {hint}")).into();
            }
            error
        })?;
        let ear = Arc::clone(&self.ear);
        let task = self.handle.spawn(async move {
            loop {
                match poll_fn(|task| connection.poll_message(task)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => ear.hear(),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
            ear.hear();
        });
        Ok(Session {
            client,
            task: task.abort_handle(),
            is_old: false,
            listens: false,
        })
    }

    fn config(&self, host: &Host) -> Config {
        let target = &self.target;
        let probes = &target.probes;
        let mut config = Config::new();
        config
            .host(&host.name)
            .port(host.port)
            .user(&target.user)
            .dbname(&target.database)
            .application_name(&target.application)
            .ssl_mode(match target.tls.encryption {
                _ if host.is_socket() => SslMode::Disable,
                Encryption::None => SslMode::Disable,
                Encryption::Preferred => SslMode::Prefer,
                _ => SslMode::Require,
            })
            .keepalives(!probes.are_off)
            .keepalives_idle(probes.idle.unwrap_or(KEEPALIVE))
            .keepalives_interval(probes.interval.unwrap_or(PROBE))
            .tcp_user_timeout(probes.unacknowledged.unwrap_or(UNACKNOWLEDGED));
        if let Some(count) = probes.count {
            config.keepalives_retries(count);
        }
        if let Some(address) = host.address {
            config.hostaddr(address);
        }
        if let Some(password) = &host.password {
            config.password(password);
        }
        if let Some(options) = &target.options {
            config.options(options);
        }
        if target.hosts.len() > 1 || target.wants_primary {
            // The one that can be written to.
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        config
    }

    /// Waits for an answer, but not for ever.
    fn wait<T>(
        &self,
        deadline: &Deadline,
        answer: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let answered = self.handle.block_on(async {
            let mut answer = pin!(answer);
            loop {
                let left = deadline.left();
                let slice = if deadline.bound.heeds {
                    left.min(HEED)
                } else {
                    left
                };
                match timeout(slice, &mut answer).await {
                    Ok(answered) => return Ok(answered),
                    Err(_) if deadline.left().is_zero() => {
                        let location = self.location();
                        return Err(Fault::no_answer(&location, deadline.bound.limit).into());
                    }
                    Err(_) if !deadline.bound.heeds => {}
                    Err(_) => {
                        if let Some(interrupted) = wait::interruption() {
                            return Err(anyhow::Error::from(interrupted));
                        }
                    }
                }
            }
        })?;
        answered.map_err(|error| Fault::of(&self.target, &error).into())
    }

    /// Those who find no tables at the same moment make them in turn, and all but one find them made.
    fn make_tables(&self, session: &mut Option<Session>, deadline: &Deadline) -> Result<()> {
        let session = self.connected(session, deadline)?;
        let left = millis(deadline.left()).max(1);
        let begin = format!(
            "begin isolation level read committed read write; set local lock_timeout = {left};
             set local statement_timeout = {left}; select pg_advisory_xact_lock({CREATION})"
        );
        self.wait(deadline, session.client.batch_execute(&begin))?;
        let there = "select (to_regclass('tenure.state') is null)::text,
                       (to_regnamespace('tenure') is null)::text";
        let there = self.wait(deadline, session.client.simple_query(there))?;
        let is_missing = |column| {
            let row = there.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(column),
                _ => None,
            });
            row == Some("true")
        };
        if is_missing(0) {
            let all = if is_missing(1) {
                SCHEMA
            } else {
                // Who may not make a schema may not say so either, even if it is there.
                let first = SCHEMA.split_once("create schema if not exists tenure;");
                first.map_or(SCHEMA, |(_, rest)| rest)
            };
            let made = self.wait(deadline, session.client.batch_execute(all));
            if let Err(error) = made {
                if kind_of(&error) == Kind::Cut {
                    return Err(error);
                }
                let text = error.to_string();
                let prefix = format!("cannot use {}: ", self.location());
                let why = text.strip_prefix(&prefix).unwrap_or(&text);
                let why = why.split(" (").next().unwrap_or(why);
                bail!(
                    "cannot make the schema tenure in {}: {why} (whoever has the right can make it with schema.sql: see PostgreSQL in the README)",
                    self.location()
                );
            }
        }
        self.wait(deadline, session.client.batch_execute("commit"))
    }
}

enum Attempt<T> {
    Done(T),
    /// Its commit was not answered.
    Unsure(T, anyhow::Error),
}

/// A parameter and its type.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// A transaction.
pub struct Tx<'a> {
    pub link: &'a Link,
    client: &'a Client,
    deadline: &'a Deadline,
    /// The server's clock, read when all others had to wait: milliseconds since 1970.
    pub now: i64,
    /// No later than `now`, for the deadlines of this process.
    pub began: Moment,
    serial: Cell<i64>,
    listens: Cell<bool>,
    /// Statements without parameters, which go with the commit.
    last: RefCell<String>,
}

impl<'a> Tx<'a> {
    fn begin(
        link: &'a Link,
        session: &'a mut Session,
        deadline: &'a Deadline,
        how: &str,
        is_write: bool,
    ) -> Result<Self> {
        session.is_old = true;
        let session = &*session;
        let left = deadline.left();
        let left = millis(left.saturating_sub((left / 10).min(WORD))).max(1);
        let mut sql = format!(
            "begin isolation level {how}; set local statement_timeout = {left}; set local lock_timeout = {left};
             set local idle_in_transaction_session_timeout = {}; ",
            millis(LEFT_ALONE)
        );
        if is_write {
            sql += "select set_config('synchronous_commit', 'on', true)
                      where current_setting('synchronous_commit') in ('off', 'local', 'remote_write'); ";
        }
        let lock = if is_write { "for update" } else { "" };
        let _ = write!(
            sql,
            "select layout, serial from tenure.state {lock};
             select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as now"
        );
        let began = Moment::now();
        let told = link.wait(deadline, session.client.simple_query(&sql))?;
        let number = |name: &str| {
            let mut rows = told.iter().filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.try_get(name).ok().flatten(),
                _ => None,
            });
            rows.next().and_then(|text: &str| text.parse::<i64>().ok())
        };
        let location = || link.location();
        match number("layout") {
            Some(LAYOUT) => {}
            Some(layout) if layout > LAYOUT => bail!(
                "cannot use {}: its layout is {layout}, of a newer tenure than this one, which knows {LAYOUT}",
                location()
            ),
            _ => bail!(
                "cannot use {}: the schema tenure in it is not one of this program",
                location()
            ),
        }
        let (Some(serial), Some(now)) = (number("serial"), number("now")) else {
            bail!("cannot use {}: it does not tell the time", location());
        };
        Ok(Self {
            link,
            client: &session.client,
            deadline,
            now,
            began,
            serial: Cell::new(serial),
            listens: Cell::new(session.listens),
            last: RefCell::default(),
        })
    }

    pub fn rows(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        let deadline = self.deadline.regardless();
        let asked = self.client.query_typed(sql, parameters);
        self.link.wait(&deadline, asked)
    }

    /// The next number of the one counter. It keeps up with the clock, so that it goes on growing even in a database that was
    /// restored from a backup.
    ///
    /// # Errors
    /// There is none left.
    pub fn draw_number(&self) -> Result<i64> {
        let last = self.serial.get();
        let next = last.checked_add(1).context("there is no number left")?;
        let next = next.max(self.now);
        self.serial.set(next);
        self.finally(&format!("update tenure.state set serial = {next}"));
        Ok(next)
    }

    /// Wakes those who wait for this ticket to change, when this is committed.
    pub fn notify(&self, ticket: i64) {
        self.finally(&format!("notify tenure_{ticket}"));
    }

    /// From the commit on this process wakes when one of these tickets changes, and no other.
    pub fn listen(&self, tickets: impl IntoIterator<Item = i64>) {
        if self.listens.replace(false) {
            self.finally("unlisten *");
        }
        for ticket in tickets {
            self.listens.set(true);
            self.finally(&format!("listen tenure_{ticket}"));
        }
    }

    fn finally(&self, statement: &str) {
        let mut last = self.last.borrow_mut();
        last.push_str(statement);
        last.push_str("; ");
    }

    fn commit(self) -> Result<()> {
        let deadline = self.deadline.regardless();
        let sql = self.last.into_inner() + "commit";
        self.link.wait(&deadline, self.client.batch_execute(&sql))
    }
}
