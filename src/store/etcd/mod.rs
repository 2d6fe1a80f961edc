//! The store in an etcd cluster, in the layout of etcd's own locks: whoever uses `etcdctl lock` stands in the same line.
//!
//! `target` reads the URL, `client` speaks HTTP over `wire`, `api` has etcd's words, `ticket` has keys and values, `watch` wakes a waiter,
//! `keep` is what the keeper's thread does, `handoff` gives a lock from one to the next, `line` has the lines as `rules::queue` asks for them, `log` has
//! the history.

mod api;
mod client;
mod handoff;
mod keep;
mod line;
mod log;
mod target;
mod ticket;
mod watch;
mod wire;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};

use self::api::{Kv, Living, Pick};
use self::client::{Client, Fault};
use self::handoff::{Heir, Next};
use self::keep::{Duty, Tended};
use self::target::Target;
use self::ticket::{Lines, Record, Ticket, id_of, key_of, line_of, own_key};
use self::watch::{Wanted, Watch};
use super::keeper::Keeper;
use super::{Answer, History, Keeping, Look, Obstacle, Purpose, Query, Shown, Store, record};
use crate::clock::Moment;
use crate::duration::{from_millis, millis, show};
use crate::exit::Usage;
use crate::lock::{
    Ahead, Ending, Entry, Event, Held, Lease, LockName, Mode, Request, Standing, Token,
};
use crate::rules::queue::{END_OF_LINE, Verdict};
use crate::rules::standing::may_live_for;
use crate::wait::{self, Bell};

/// How long the cluster is given for an answer: longer than it takes to elect a leader.
const PATIENCE: Duration = Duration::from_secs(5);

/// The same for what somebody who waits would rather do without.
const SHORT_PATIENCE: Duration = Duration::from_secs(1);

/// How long the end of a lease is tried that was lost: time ends it too, or has.
const AFTER_LOSS: Duration = Duration::from_secs(3);

/// When a waiter looks whose watch has told nothing: it may be with a member that is cut off from the others.
const SLOW_TICK: Duration = Duration::from_secs(10);

/// Looked at, and changed before it could be taken, so often: others have come in between each time, and so the line moves.
const TRIES: u32 = 100;

/// Of how many leases it is asked how long they have to go, one by one, when many are shown; the others have it in their records.
const ASKED_AFTER: usize = 64;

pub struct EtcdStore {
    target: Arc<Target>,
    client: Client,
    own: Option<Own>,
    watch: Watch,
    /// The revision when it was last asked.
    seen: Option<i64>,
    /// This user may not write the log, and so does not try.
    is_mute: bool,
    /// Why something is missing there.
    unlogged: Option<String>,
}

/// The own request, and then the lease that it became.
struct Own {
    id: i64,
    token: Token,
    /// The number of the innermost lease around it.
    inside_of: Option<i64>,
    ttl: Duration,
    /// When the lease was asked for.
    begun: Moment,
    requested_at: i64,
    /// The revision at which its keys were created.
    place: Option<i64>,
    /// That at which the first of them was written last, as far as is known.
    written: i64,
    /// Who forced its release before it knew that it was granted.
    revoked_by: Option<String>,
    /// The keys may be there.
    is_sent: bool,
    keeper: Option<Keeper>,
    /// What the keeper has to do.
    duty: Duty,
    /// When an early end may be at last.
    at_least_until: Option<Moment>,
    slot: Option<u32>,
    granted_at: Option<i64>,
    fence: Option<i64>,
}

/// The keys of a token's lease.
struct Found {
    tickets: Vec<Ticket>,
    record: Record,
    /// The lease that keeps them now, what it was granted and what it has to go.
    lease: i64,
    granted: Duration,
    remaining: Duration,
    /// Who comes next, where the lock can be handed on.
    next: Option<Next>,
}

/// The cluster that a URL names.
///
/// # Errors
/// A usage error, a file that cannot be read, or nobody answers as etcd does.
pub fn open(url: &str, _: Purpose) -> Result<EtcdStore> {
    let target = Arc::new(Target::of(url, |name| std::env::var_os(name))?);
    Ok(EtcdStore {
        client: Client::new(Arc::clone(&target))?,
        target,
        own: None,
        watch: Watch::default(),
        seen: None,
        is_mute: false,
        unlogged: None,
    })
}

impl EtcdStore {
    fn prefix(&self) -> &str {
        &self.target.prefix
    }

    fn line_key(&self, name: &LockName) -> Vec<u8> {
        line_of(self.prefix(), name)
    }

    fn keys(&self, names: &[LockName], id: i64) -> Vec<Vec<u8>> {
        let names = names.iter();
        names.map(|name| key_of(self.prefix(), name, id)).collect()
    }

    /// A lease of our own, which nothing hangs on yet.
    fn begin(&mut self, request: &Request) -> Result<()> {
        if self.own.is_some() {
            return Ok(());
        }
        let inside_of = self.innermost(&request.enclosing)?;
        let (id, token) = ticket::draw().context("cannot draw a token")?;
        let (begun, requested_at) = (Moment::now(), log::now());
        // A crash must not free it before its time.
        let ttl = self
            .client
            .grant(id, request.ttl.max(request.at_least), PATIENCE)?;
        self.own = Some(Own {
            id,
            token,
            inside_of,
            ttl,
            begun,
            requested_at,
            place: None,
            written: 0,
            revoked_by: None,
            is_sent: false,
            keeper: None,
            duty: Duty::default(),
            at_least_until: None,
            slot: None,
            granted_at: None,
            fence: None,
        });
        Ok(())
    }

    /// The number of the first of these tokens whose lease lives here. A single one is not asked after: another store's number
    /// is nobody's here.
    fn innermost(&self, told: &[Token]) -> Result<Option<i64>> {
        if let [token] = told {
            return Ok(Some(id_of(token)));
        }
        for token in told {
            match self.find(token, PATIENCE) {
                Ok(Some(_)) => return Ok(Some(id_of(token))),
                Ok(None) => {}
                Err(error) => match error.downcast_ref::<Fault>() {
                    // What this user may not read is not of its jobs.
                    Some(fault) if fault.is_denied() => {}
                    _ => return Err(error),
                },
            }
        }
        Ok(None)
    }

    /// The cycle that a request closes which stands at a place, or, where it does not wait, the leases around it that are in
    /// its way.
    fn cycle(&self, request: &Request, place: i64, waits: bool) -> Result<Option<Vec<Held>>> {
        if request.enclosing.is_empty() {
            return Ok(None);
        }
        let mut lines = self.all_lines()?;
        // Those that came later look for themselves.
        lines.cut(place);
        let wanted = line::wanted(request, place, true);
        Ok(lines.view(0).cycle(&wanted, &request.enclosing, waits))
    }

    fn own(&mut self) -> &mut Own {
        self.own.as_mut().expect("it was begun")
    }

    fn record(&mut self, request: &Request, keeping: Keeping) -> Record {
        let own = self.own();
        let is_run = keeping == Keeping::Supervised;
        let mut record = Record::of(
            request,
            own.token,
            own.inside_of,
            is_run,
            own.ttl,
            own.requested_at,
        );
        record.granted_at = own.granted_at;
        record.slot = own.slot;
        record.fence = own.fence;
        record.revoked_by.clone_from(&own.revoked_by);
        record
    }

    /// Where the log has what became of a request.
    fn log_key(&self, record: &Record) -> Vec<u8> {
        log::key_of(self.prefix(), record.requested_at, id_of(&record.token))
    }

    fn puts(&self, names: &[LockName], id: i64, record: &Record) -> Vec<serde_json::Value> {
        let value = record.as_bytes();
        let keys = self.keys(names, id);
        keys.iter().map(|key| api::put(key, &value, id)).collect()
    }

    /// Gives up what was begun. What cannot be told ends by time.
    fn abandon(&mut self) -> Result<(), Fault> {
        self.watch.forget();
        let Some(mut own) = self.own.take() else {
            return Ok(());
        };
        own.keeper = None;
        let has_lived = self.client.revoke(own.id, SHORT_PATIENCE)?;
        // It may have been granted meanwhile, by others or without an answer.
        if has_lived && own.place.is_some() && !self.is_mute {
            let log_key = log::key_of(self.prefix(), own.requested_at, own.id);
            log::end_grant(&self.client, &log_key, SHORT_PATIENCE);
        }
        Ok(())
    }

    /// One look, or as many as it takes until nobody has come in between.
    fn take(&mut self, request: &Request, keeping: Keeping, waits: bool) -> Result<Answer> {
        for _ in 0..TRIES {
            let keeper = self.own.as_ref().and_then(|own| own.keeper.as_ref());
            if keeper.is_some_and(|keeper| matches!(keeper.seen(), Ok(Look::Gone))) {
                return Ok(self.lost_place(request));
            }
            self.begin(request)?;
            let taken = match self.own().place {
                None => self.enter(request, keeping, waits),
                Some(place) => self.look_along(request, keeping, place),
            };
            match taken {
                Ok(Some(answer)) => return Ok(answer),
                Ok(None) => {}
                Err(error) => match error.downcast_ref::<Fault>() {
                    // It was over while nobody answered; the next one is new.
                    Some(fault) if fault.is_no_lease() => {
                        if self.own().place.is_some() {
                            return Ok(self.lost_place(request));
                        }
                        self.own = None;
                    }
                    // Who may not write the log may have locks all the same.
                    Some(fault) if fault.is_denied() && !self.is_mute => self.is_mute = true,
                    _ => return Err(error),
                },
            }
        }
        bail!(
            "cannot take a lock in {}: others come in between again and again",
            self.location()
        )
    }

    fn lost_place(&mut self, request: &Request) -> Answer {
        let _ = self.abandon();
        Answer::Unreachable(anyhow!(
            "lost the place in the line for {}: its lease was over (in {})",
            crate::output::list(&request.names),
            self.location()
        ))
    }

    /// Takes what is free, or puts the request into the line: in one transaction. None: look again.
    fn enter(
        &mut self,
        request: &Request,
        keeping: Keeping,
        waits: bool,
    ) -> Result<Option<Answer>> {
        let lines: Vec<_> = request
            .names
            .iter()
            .map(|name| self.line_key(name))
            .collect();
        let empty: Vec<_> = lines
            .iter()
            .map(|line| api::is_unchanged_since(line, 0))
            .collect();
        let id = self.own().id;
        let waiting = self.record(request, keeping);
        let granted = self.granted_record(request, keeping, first_slot(request.mode));
        let success = self.granting(request, &granted);
        let first_key = key_of(self.prefix(), &request.names[0], id);
        let mut into_line = self.puts(&request.names, id, &waiting);
        into_line.push(api::one(&first_key));
        // Who may be refused for its number of slots does not stand in the line before that is known: others would see it there.
        let waits_at_once = waits && !matches!(request.mode, Mode::Slots(_));
        let failure = if waits_at_once {
            into_line.clone()
        } else {
            let all = lines.iter().map(|line| api::range(line, Pick::All, None));
            all.collect()
        };
        self.own().is_sent = true;
        let outcome = self.client.transact(&empty, &success, &failure, PATIENCE)?;
        if outcome.succeeded {
            return self
                .granted(request, keeping, &granted, outcome.revision)
                .map(Some);
        }
        if waits_at_once {
            self.stand_as_told(&outcome);
            return Ok(None);
        }
        let mut ranges = outcome.ranges;
        let mut revision = outcome.revision;
        for _ in 0..TRIES {
            let seen = self.lines_of(&request.names, ranges);
            if let Some(own) = seen.by_id(id) {
                // The answer to what was sent before was lost.
                self.own().stands_as(&own.kv);
                return Ok(None);
            }
            let wanted = line::wanted(request, END_OF_LINE, true);
            let slot = match seen.view(id).look(&wanted) {
                Verdict::Free { slot } => slot,
                Verdict::OtherSlots(slots) => {
                    let _ = self.abandon();
                    return Ok(Some(Answer::OtherSlots(slots)));
                }
                Verdict::Behind(_) if waits => {
                    let outcome = self.client.transact(&[], &into_line, &[], PATIENCE)?;
                    self.stand_as_told(&outcome);
                    return Ok(None);
                }
                Verdict::Behind(_) => {
                    let first = seen.view(id).first_in_the_way(&wanted);
                    let first = first.into_iter().map(|ticket| seen.shown(ticket, None));
                    let first = first.collect();
                    let cycle = self.cycle(request, END_OF_LINE, false)?;
                    let _ = self.abandon();
                    return Ok(Some(cycle.map_or(Answer::Busy(first), Answer::Deadlock)));
                }
            };
            let granted = self.granted_record(request, keeping, slot);
            let success = self.granting(request, &granted);
            let same = lines
                .iter()
                .map(|line| api::is_unchanged_since(line, revision));
            let all = lines.iter().map(|line| api::range(line, Pick::All, None));
            let (same, all): (Vec<_>, Vec<_>) = (same.collect(), all.collect());
            let outcome = self.client.transact(&same, &success, &all, PATIENCE)?;
            if outcome.succeeded {
                return self
                    .granted(request, keeping, &granted, outcome.revision)
                    .map(Some);
            }
            (ranges, revision) = (outcome.ranges, outcome.revision);
        }
        Ok(None)
    }

    /// It stands in the line by what was put there and read along.
    fn stand_as_told(&mut self, outcome: &api::Outcome) {
        if let Some(kv) = outcome.ranges.iter().flatten().next() {
            self.own().stands_as(kv);
        }
    }

    /// The record of one who enters now, with the revision of its own writing as its fence.
    fn granted_record(&mut self, request: &Request, keeping: Keeping, slot: Option<u32>) -> Record {
        let mut record = self.record(request, keeping);
        record.granted_at = Some(log::now());
        record.slot = slot;
        record
    }

    /// What is put for one who enters now, with the entry of the log: whatever becomes of it, it is known.
    fn granting(&mut self, request: &Request, record: &Record) -> Vec<serde_json::Value> {
        let (id, ttl) = (self.own().id, self.own().ttl);
        let mut puts = self.puts(&request.names, id, record);
        if !self.is_mute {
            let until = log::end_of(record, ttl);
            puts.push(log::put_grant(&self.log_key(record), record, until));
        }
        puts
    }

    /// It entered at once.
    fn granted(
        &mut self,
        request: &Request,
        keeping: Keeping,
        record: &Record,
        revision: i64,
    ) -> Result<Answer> {
        let begun = self.own().begun;
        self.own().place = Some(revision);
        let lease = self.lease(request, keeping, record, revision, begun)?;
        Ok(Answer::Granted(lease))
    }

    /// Notes a grant, and has the lease of a `run` kept.
    fn lease(
        &mut self,
        request: &Request,
        keeping: Keeping,
        record: &Record,
        fence: i64,
        counted_from: Moment,
    ) -> Result<Lease> {
        let now = Moment::now();
        let own = self.own();
        own.slot = record.slot;
        own.granted_at = record.granted_at;
        own.fence = Some(fence);
        own.at_least_until = (!request.at_least.is_zero()).then(|| now + request.at_least);
        let lease = Lease {
            id: own.id,
            names: request.names.clone(),
            token: own.token,
            fence,
            ttl: own.ttl,
            slot: record.slot,
            requested_at: own.requested_at,
            granted_at: record.granted_at.unwrap_or(own.requested_at),
            counted_from,
        };
        if keeping != Keeping::Supervised {
            own.keeper = None;
            return Ok(lease);
        }
        own.duty.begin(own.place.unwrap_or(fence));
        if let Some(keeper) = &own.keeper {
            keeper.renew();
            if !own.duty.has_next() && handoff::is_for(&request.names, request.mode) {
                keeper.look();
            }
        } else if let Err(error) = self.keep(request, counted_from) {
            let _ = self.abandon();
            return Err(error);
        }
        Ok(lease)
    }

    /// Has the own lease renewed from now on. What has kept the place in the line goes on with that: to start a thread and to
    /// end another would keep the job waiting.
    fn keep(&mut self, request: &Request, counted_from: Moment) -> Result<()> {
        let (client, prefix) = (self.client.clone(), self.prefix().to_owned());
        let is_mute = self.is_mute;
        let own = self.own();
        let log_key = log::key_of(&prefix, own.requested_at, own.id);
        if own.keeper.is_none() {
            let tended = Tended {
                client,
                prefix,
                names: request.names.clone(),
                id: own.id,
                ttl: own.ttl,
                duty: own.duty.clone(),
                hands_on: !is_mute && handoff::is_for(&request.names, request.mode),
                log_key: (!is_mute).then_some(log_key),
            };
            own.keeper = Some(Keeper::start(tended, counted_from + own.ttl, own.ttl)?);
        }
        Ok(())
    }

    fn lines_of(&self, names: &[LockName], ranges: Vec<Vec<Kv>>) -> Lines {
        let mut lines = Lines::default();
        for (name, kvs) in names.iter().zip(ranges) {
            let tickets = kvs.into_iter();
            let tickets = tickets.filter_map(|kv| Ticket::in_line(self.prefix(), name, kv));
            lines.add(name.clone(), tickets);
        }
        lines
    }

    /// That the own keys are what they were when they were seen last.
    fn is_own(&mut self, names: &[LockName], place: i64) -> Vec<serde_json::Value> {
        let (id, written) = (self.own().id, self.own().written);
        let keys = self.keys(names, id);
        let same = keys
            .iter()
            .skip(1)
            .map(|key| api::is_created_at(key, place));
        let first = api::is_written_at(&keys[0], written);
        [first].into_iter().chain(same).collect()
    }

    /// Looks along the line from the own place in it. Who wants a lock for himself and has nobody before him enters by that
    /// look; for others it has to be seen first who is there. None: look again.
    fn look_along(
        &mut self,
        request: &Request,
        keeping: Keeping,
        place: i64,
    ) -> Result<Option<Answer>> {
        if let Some(entered) = self.enter_as_told(request, keeping, place)? {
            return Ok(Some(entered));
        }
        let id = self.own().id;
        let is_exclusive = request.mode == Mode::Exclusive;
        let lines: Vec<_> = request
            .names
            .iter()
            .map(|name| self.line_key(name))
            .collect();
        // Of a line in which everybody is in the way of this one only the first, the nearest and the own are read.
        let picks: &[Pick] = if is_exclusive {
            &[Pick::First(1), Pick::LastTwo]
        } else {
            &[Pick::All]
        };
        // Somebody who came later may have got his slot before us.
        let before = (!matches!(request.mode, Mode::Slots(_))).then_some(place + 1);
        for picks in [picks, &[Pick::All]] {
            let read = lines.iter().flat_map(|line| {
                let picks = picks.iter();
                picks.map(move |pick| api::range(line, *pick, before))
            });
            let read: Vec<_> = read.collect();
            let granted = self.granted_record(request, keeping, None);
            let outcome = if is_exclusive {
                let mut free = self.is_own(&request.names, place);
                free.extend(lines.iter().map(|line| api::is_none_before(line, place)));
                let puts = self.granting(request, &granted);
                self.client.transact(&free, &puts, &read, PATIENCE)?
            } else {
                self.client.transact(&[], &read, &[], PATIENCE)?
            };
            if is_exclusive && outcome.succeeded {
                return self.enter_from_line(request, keeping, &granted, outcome.revision);
            }
            let count: usize = outcome.ranges.iter().map(Vec::len).sum();
            let mut seen = Lines::default();
            let mut known = 0;
            for (name, ranges) in request.names.iter().zip(outcome.ranges.chunks(picks.len())) {
                let kvs = ranges.iter().flatten().cloned();
                let tickets = kvs.filter_map(|kv| Ticket::in_line(self.prefix(), name, kv));
                let tickets: Vec<_> = tickets.collect();
                known += tickets.len();
                seen.add(name.clone(), tickets);
            }
            // Behind what belongs to another lock, with a longer name, there may be more.
            if known < count && !matches!(picks, [Pick::All]) {
                continue;
            }
            let in_line = |name| {
                let mut line = seen.line(name).iter();
                line.find(|ticket| ticket.id == id && ticket.place() == place)
            };
            let own: Option<Vec<&Ticket>> = request.names.iter().map(in_line).collect();
            let Some(ticket) = own.and_then(|own| own.first().copied()) else {
                return Ok(Some(self.lost_place(request)));
            };
            if let (Some(fence), Some(record)) = (ticket.fence(), &ticket.record) {
                // It was done, without an answer.
                return self.enter_from_line(request, keeping, record, fence);
            }
            let record = ticket.record.as_ref();
            self.own().revoked_by = record.and_then(|record| record.revoked_by.clone());
            self.own().written = ticket.kv.modified;
            // Judged only the first time: who was let into the line stays there.
            let is_new = self.own().keeper.is_none();
            let wanted = line::wanted(request, place, is_new);
            return match seen.view(id).look(&wanted) {
                Verdict::Free { slot } => {
                    self.enter_after_look(request, keeping, place, slot, outcome.revision)
                }
                Verdict::OtherSlots(slots) => {
                    let _ = self.abandon();
                    Ok(Some(Answer::OtherSlots(slots)))
                }
                Verdict::Behind(in_the_way) => self
                    .stand(request, place, &seen, &in_the_way, outcome.revision)
                    .map(Some),
            };
        }
        Ok(None)
    }

    /// The lock was handed to it, as it was told; it may have slept since, and somebody have taken it away: its key is read again.
    /// None: it is not so, or not any more.
    fn enter_as_told(
        &mut self,
        request: &Request,
        keeping: Keeping,
        place: i64,
    ) -> Result<Option<Answer>> {
        let (own, next) = self.watch.told();
        if let Some(next) = next {
            self.own().duty.expect(next);
        }
        let Some(told) = own.filter(|kv| kv.created == place) else {
            return Ok(None);
        };
        let read = [api::one(&told.key)];
        let outcome = self.client.transact(&[], &read, &[], PATIENCE)?;
        let found = outcome.ranges.into_iter().flatten().next();
        let Some(kv) = found.filter(|kv| kv.modified == told.modified) else {
            return Ok(None);
        };
        let ticket = Ticket::in_line(self.prefix(), &request.names[0], kv);
        let granted = ticket.and_then(|ticket| Some((ticket.fence()?, ticket.record?)));
        match granted {
            Some((fence, record)) => self.enter_from_line(request, keeping, &record, fence),
            None => Ok(None),
        }
    }

    /// The way was free: it stays so, for nobody gets in before a place. None: look again.
    fn enter_after_look(
        &mut self,
        request: &Request,
        keeping: Keeping,
        place: i64,
        slot: Option<u32>,
        revision: i64,
    ) -> Result<Option<Answer>> {
        let record = self.granted_record(request, keeping, slot);
        let mut same = self.is_own(&request.names, place);
        if slot.is_some() {
            let unchanged = |name| api::is_unchanged_since(&self.line_key(name), revision);
            same.extend(request.names.iter().map(unchanged));
        }
        let puts = self.granting(request, &record);
        let outcome = self.client.transact(&same, &puts, &[], PATIENCE)?;
        if !outcome.succeeded {
            return Ok(None);
        }
        self.enter_from_line(request, keeping, &record, outcome.revision)
    }

    /// It has entered, by what was written at the revision that is its fence. None: its lease is over.
    fn enter_from_line(
        &mut self,
        request: &Request,
        keeping: Keeping,
        record: &Record,
        fence: i64,
    ) -> Result<Option<Answer>> {
        let Some(counted_from) = self.time_of_entry(keeping)? else {
            return Ok(Some(self.lost_place(request)));
        };
        self.watch.forget();
        let lease = self.lease(request, keeping, record, fence, counted_from)?;
        Ok(Some(Answer::Granted(lease)))
    }

    /// From when on the lease of one who enters from the line has its time; none when it is over. It may have stood there for
    /// long, and is to have all of it: a `run`'s is renewed while its job starts, if there is time enough for that.
    fn time_of_entry(&mut self, keeping: Keeping) -> Result<Option<Moment>> {
        let (id, ttl) = (self.own().id, self.own().ttl);
        let kept_until = self.own().keeper.as_ref().map(Keeper::kept_until);
        if let Some(until) = kept_until.filter(|_| keeping == Keeping::Supervised)
            && until.remaining() > ttl * 2 / 3
        {
            return Ok(Some(until - ttl));
        }
        // What it has found out would count on.
        self.own().keeper = None;
        let kept = self.client.keep_alive(id, PATIENCE)?;
        Ok(kept.map(|(sent, ttl)| {
            self.own().ttl = ttl;
            sent
        }))
    }

    /// It stands in the line, behind others.
    fn stand(
        &mut self,
        request: &Request,
        place: i64,
        lines: &Lines,
        in_the_way: &[&Ticket],
        revision: i64,
    ) -> Result<Answer> {
        let is_new = self.own().keeper.is_none();
        let id = self.own().id;
        let wanted = line::wanted(request, place, is_new);
        let first = lines.view(id).first_in_the_way(&wanted);
        let first = first
            .into_iter()
            .map(|ticket| lines.shown(ticket, None))
            .collect();
        if is_new {
            if let Some(cycle) = self.cycle(request, place, true)? {
                let _ = self.abandon();
                return Ok(Answer::Deadlock(cycle));
            }
            let begun = self.own().begun;
            self.keep(request, begun)?;
        }
        let nearest = in_the_way.iter().max_by_key(|ticket| ticket.place());
        let nearest = nearest.expect("somebody is in the way");
        // One of those who have all of the slots, or the nearest: when it is gone the others are looked at.
        let is_slots =
            |ticket: &&&Ticket| ticket.name == nearest.name && ticket.mode() == request.mode;
        let awaited: Vec<&&Ticket> = if is_slots(&nearest) {
            in_the_way.iter().filter(is_slots).collect()
        } else {
            vec![nearest]
        };
        let may_be_told = handoff::is_for(&request.names, request.mode)
            && nearest.record.is_some()
            && handoff::is_for(&nearest.names(), nearest.mode());
        let id = self.own().id;
        let own = may_be_told.then(|| Heir {
            prefix: self.prefix().to_owned(),
            name: request.names[0].clone(),
            id,
            place,
        });
        let wanted = Wanted {
            keys: awaited.iter().map(|ticket| ticket.kv.key.clone()).collect(),
            line: self.line_key(&nearest.name),
            own,
            after: revision,
        };
        let behind = awaited
            .iter()
            .map(|ticket| (ticket.id, lines.standing(ticket)));
        let obstacle = Obstacle {
            behind: behind.collect(),
            again: Some(wait::jittered(SLOW_TICK)),
            ..Obstacle::default()
        };
        self.watch.begin(&self.client, wanted);
        Ok(Answer::Waiting(obstacle, first))
    }

    /// The lines for these locks, and for others on which it depends who of them holds these.
    fn read_lines(&self, names: &[LockName], bound: Duration) -> Result<Lines, Fault> {
        let read = |names: &[LockName]| -> Result<Lines, Fault> {
            let all = names
                .iter()
                .map(|name| api::range(&self.line_key(name), Pick::All, None));
            let outcome = self
                .client
                .transact(&[], &all.collect::<Vec<_>>(), &[], bound)?;
            Ok(self.lines_of(names, outcome.ranges))
        };
        let lines = read(names)?;
        let undecided = lines
            .tickets()
            .into_iter()
            .filter_map(|ticket| ticket.record.as_ref());
        let undecided = undecided.filter(|record| record.granted_at.is_none());
        let others: BTreeSet<LockName> =
            undecided.flat_map(|record| record.names.clone()).collect();
        let mut all: BTreeSet<LockName> = names.iter().cloned().collect();
        if others.is_subset(&all) {
            return Ok(lines);
        }
        all.extend(others);
        // Once more as of one revision.
        read(&all.into_iter().collect::<Vec<_>>())
    }

    fn all_lines(&self) -> Result<Lines, Fault> {
        let (all, _) = self.client.all(self.prefix().as_bytes(), PATIENCE)?;
        Ok(Lines::of_all(self.prefix(), all))
    }

    /// As others are told, with what their leases have to go. One whose lease is over meanwhile is left out.
    fn shown(&self, lines: &Lines, tickets: &[&Ticket]) -> Result<Vec<Held>, Fault> {
        let mut held = Vec::new();
        for (at, ticket) in tickets.iter().enumerate() {
            let is_asked = at < ASKED_AFTER || ticket.record.is_none();
            let remaining = if is_asked && ticket.kv.lease != 0 {
                match self.client.lease(ticket.kv.lease, PATIENCE)? {
                    Some(lease) => Some(lease.remaining),
                    None => continue,
                }
            } else {
                None
            };
            held.push(lines.shown(ticket, remaining));
        }
        Ok(held)
    }

    /// The keys of a token's lease, if it lives.
    fn find(&self, token: &Token, bound: Duration) -> Result<Option<Found>> {
        let id = id_of(token);
        if id <= 0 {
            return Ok(None);
        }
        let mut lease = id;
        let mut known = self.client.lease(id, bound)?;
        if known.as_ref().is_none_or(|lease| lease.keys.is_empty()) {
            // Another lease may keep its keys by now.
            let moved = vec![api::one(&moved_key(self.prefix(), id))];
            let outcome = self.client.transact(&[], &moved, &[], bound)?;
            let Some(kv) = outcome.ranges.into_iter().flatten().next() else {
                return Ok(None);
            };
            lease = kv.lease;
            known = self.client.lease(lease, bound)?;
        }
        let Some(Living {
            remaining,
            granted,
            keys,
        }) = known
        else {
            return Ok(None);
        };
        let mut read: Vec<_> = keys.iter().map(|key| api::one(key)).collect();
        if let [key] = &keys[..]
            && let Some(slash) = key.iter().rposition(|byte| *byte == b'/')
        {
            read.push(handoff::read(&key[..=slash], None));
        }
        let outcome = self.client.transact(&[], &read, &[], bound)?;
        let mut ranges = outcome.ranges.into_iter();
        let kvs: Vec<Kv> = ranges.by_ref().take(keys.len()).flatten().collect();
        let line = ranges.next().unwrap_or_default();
        let kvs = kvs.into_iter();
        let tickets = kvs.filter_map(|kv| Ticket::anywhere(self.prefix(), kv).ok());
        let mut tickets: Vec<Ticket> = tickets.filter(|ticket| ticket.id == id).collect();
        tickets.sort_by(|one, other| one.name.cmp(&other.name));
        let record = tickets.first().and_then(|ticket| ticket.record.clone());
        let record = record.filter(|record| record.token == *token && !record.is_released);
        Ok(record.map(|record| {
            let one = &tickets[0];
            let hands_on = handoff::is_for(&record.names, record.mode);
            let next = hands_on
                .then(|| Next::behind(one.place(), self.prefix(), &one.name, line))
                .flatten();
            Found {
                tickets,
                record,
                lease,
                granted,
                remaining,
                next,
            }
        }))
    }

    /// What was asked for with a token, if that is good, where whoever has it `may` do that, and is not told that it is for the
    /// `run` to do.
    fn with_token(
        &mut self,
        token: &Token,
        names: &[LockName],
        may: impl FnOnce(&Found) -> bool,
        act: impl FnOnce(&mut Self, &Found, &Held) -> Result<bool>,
    ) -> Result<Shown> {
        let Some(found) = self.find(token, PATIENCE)? else {
            return Ok(Shown::NotHeld);
        };
        let held = found.shown();
        if !names.is_empty() && names != held.names {
            // Nobody's lease on what was named, or one's own but not the whole of it.
            let part = names.iter().all(|name| held.names.contains(name));
            return Ok(if part {
                Shown::OnlySome(held.names)
            } else {
                Shown::NotHeld
            });
        }
        if !may(&found) {
            return Ok(Shown::OfRun(held));
        }
        Ok(if act(self, &found, &held)? {
            Shown::Done(held)
        } else {
            Shown::NotHeld
        })
    }

    /// Has another lease keep the keys, where nobody has changed them meanwhile. False: they are gone or changed.
    fn move_keys(
        &self,
        found: &Found,
        record: &Record,
        ttl: Duration,
        ended: Option<&Entry>,
    ) -> Result<Option<Duration>> {
        let (id, _) = ticket::draw().context("cannot draw a number")?;
        let ttl = self.client.grant(id, ttl, PATIENCE)?;
        let mut record = record.clone();
        record.fence = found.fence();
        if !record.is_released {
            record.ttl = ttl;
        }
        let value = record.as_bytes();
        let same = found
            .tickets
            .iter()
            .map(|ticket| api::is_unchanged(&ticket.kv));
        let puts = found
            .tickets
            .iter()
            .map(|ticket| api::put(&ticket.kv.key, &value, id));
        let mut puts: Vec<_> = puts.collect();
        let first = found.tickets.first().map_or(0, |ticket| ticket.id);
        puts.push(api::put(&moved_key(self.prefix(), first), b"", id));
        let log_key = self.log_key(&record);
        puts.push(match ended {
            Some(entry) => log::put(&log_key, entry),
            None => log::put_grant(&log_key, &record, log::end_of(&record, ttl)),
        });
        // Of one that was done, without an answer, and then tried again.
        let done = found.tickets.iter().map(|ticket| api::one(&ticket.kv.key));
        let outcome = self.client.transact(
            &same.collect::<Vec<_>>(),
            &puts,
            &done.collect::<Vec<_>>(),
            PATIENCE,
        )?;
        let mut left = outcome.ranges.iter().flatten();
        let is_done = outcome.succeeded || left.any(|kv| kv.lease == id);
        let other = if is_done { found.lease } else { id };
        let _ = self.client.revoke(other, PATIENCE);
        Ok(is_done.then_some(ttl))
    }

    /// Ends a lease with the keys that were created at a place, and writes that down, in one: those who wait need not wait for
    /// more. Who is next is granted the lock by the same, if that can be. False when the keys were gone.
    fn end(
        &mut self,
        keys: &[Vec<u8>],
        place: i64,
        lease: i64,
        (log_key, entry): (&[u8], &Entry),
        next: Option<&Next>,
        bound: Duration,
    ) -> Result<bool, Fault> {
        let same = keys.iter().map(|key| api::is_created_at(key, place));
        let same: Vec<_> = same.collect();
        let mut done: Vec<_> = keys.iter().map(|key| api::delete(key)).collect();
        done.push(log::put(log_key, entry));
        let told = [api::one(log_key)];
        // What was done without an answer, and tried again, is found by what was written.
        let is_done = |outcome: &api::Outcome| {
            let mut told = outcome.ranges.iter().flatten();
            outcome.succeeded || told.any(|kv| log::is(kv, entry))
        };
        let handed = next.map(|next| {
            let same = same.iter().cloned().chain([next.is_unchanged()]);
            let done = done.iter().cloned().chain(next.grant(self.prefix()));
            let (same, done): (Vec<_>, Vec<_>) = (same.collect(), done.collect());
            self.client.transact(&same, &done, &told, bound)
        });
        let ended = match handed {
            Some(Ok(outcome)) if is_done(&outcome) => {
                // What is left to do here is nobody's concern, and that one's start is.
                wait::pause(handoff::SETTLING);
                Ok(outcome)
            }
            Some(Err(fault)) if fault.is_away() => Err(fault),
            // It has left, or may not be written by this user: it is told by the end.
            Some(_) | None => self.client.transact(&same, &done, &told, bound),
        };
        match ended {
            Ok(outcome) => {
                // Nothing hangs on it any more.
                let _ = self.client.revoke(lease, SHORT_PATIENCE);
                log::prune_now_and_then(&self.client, self.prefix(), SHORT_PATIENCE);
                Ok(is_done(&outcome))
            }
            // Who may not write the log may have locks all the same.
            Err(fault) if !fault.is_away() => {
                let ended = self.client.revoke(lease, bound);
                self.miss(&fault);
                ended
            }
            Err(fault) => Err(fault),
        }
    }

    /// Has a lease rest that was given back, for what is left of its least time. False when it was gone.
    fn rest(&self, found: &Found, rest: Duration, entry: &Entry) -> Result<bool> {
        let mut record = found.record.clone();
        record.is_released = true;
        Ok(self.move_keys(found, &record, rest, Some(entry))?.is_some())
    }

    fn write_log(&mut self, entry: &Entry, own: Option<&[u8]>) {
        let written = log::write(&self.client, self.prefix(), entry, own, SHORT_PATIENCE);
        if let Err(Ok(fault)) = written.map_err(anyhow::Error::downcast::<Fault>) {
            self.miss(&fault);
        }
    }

    /// An entry could not be written. Who may not write the log is not told so each time; that a server is away is told of by
    /// what it was wanted for.
    fn miss(&mut self, fault: &Fault) {
        if !fault.is_denied() && !fault.is_away() {
            self.unlogged = Some(fault.to_string());
        }
    }
}

impl Own {
    fn stands_as(&mut self, kv: &Kv) {
        self.place = Some(kv.created);
        self.written = kv.modified;
    }
}

impl Found {
    fn fence(&self) -> Option<i64> {
        self.tickets.first().and_then(Ticket::fence)
    }

    fn shown(&self) -> Held {
        let lines = Lines::default();
        let mut held = lines.shown(&self.tickets[0], Some(self.remaining));
        held.names.sort();
        held
    }
}

/// The key that says, by the lease that keeps it, where the keys of a lease are by now.
fn moved_key(prefix: &str, id: i64) -> Vec<u8> {
    own_key(prefix, &format!("moved/{id:x}"))
}

/// Where nobody else has one.
fn first_slot(mode: Mode) -> Option<u32> {
    matches!(mode, Mode::Slots(_)).then_some(0)
}

impl Store for EtcdStore {
    fn location(&self) -> String {
        self.target.location().to_owned()
    }

    fn address(&self) -> OsString {
        self.target.url.clone().into()
    }

    fn acquire(&mut self, request: &Request, keeping: Keeping, waits: bool) -> Result<Answer> {
        self.client.heed.set(true);
        let taken = self.take(request, keeping, waits);
        self.client.heed.set(false);
        let error = match taken {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if matches!(error.downcast_ref(), Some(Fault::Interrupted))
            && let Some(interrupted) = wait::interruption()
        {
            let _ = self.abandon();
            return Err(interrupted.into());
        }
        let may_be_sent = self.own.as_ref().is_some_and(|own| own.is_sent);
        if waits && may_be_sent && error.downcast_ref().is_some_and(Fault::is_away) {
            // It may go on in silence after the others are back.
            self.watch.forget();
            return Ok(Answer::Unreachable(error));
        }
        let ttl = self.own.as_ref().map(|own| own.ttl);
        match (self.abandon(), ttl) {
            // Nobody has the token.
            (Err(Fault::Away(_)), Some(ttl)) if may_be_sent => Err(error.context(format!(
                "cannot tell whether {} was taken, and is so for {} at the most",
                crate::output::list(&request.names),
                show(ttl)
            ))),
            _ => Err(error),
        }
    }

    fn leave(&mut self) -> Result<()> {
        Ok(self.abandon()?)
    }

    fn ahead(&mut self, request: &Request) -> Result<Option<Ahead>> {
        let Some(place) = self.own.as_ref().and_then(|own| own.place) else {
            return Ok(None);
        };
        let lines = self.read_lines(&request.names, SHORT_PATIENCE)?;
        let wanted = line::wanted(request, place, false);
        let first = lines.view(0).first_in_the_way(&wanted);
        let about = first.first().and_then(|ticket| {
            let names = ticket.names();
            request.names.iter().find(|name| names.contains(name))
        });
        let place = about.map(|name| {
            let line = lines.line(name).iter();
            let waiting = line.filter(|ticket| lines.standing(ticket) == Standing::Waiting);
            let places: Vec<i64> = waiting.map(Ticket::place).collect();
            let before = places.iter().filter(|other| **other < place).count();
            let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
            (count(before + 1), count(places.len().max(before + 1)))
        });
        Ok(Some(Ahead {
            first: first
                .into_iter()
                .map(|ticket| lines.shown(ticket, None))
                .collect(),
            place,
        }))
    }

    fn has_changed(&mut self) -> Result<bool> {
        let nothing = own_key(self.prefix(), "nothing");
        let (revision, _) = self.client.count(&nothing, SHORT_PATIENCE)?;
        Ok(self.seen.replace(revision) != Some(revision))
    }

    fn ring(&mut self, bell: Bell) {
        self.watch.ring_by(bell);
    }

    fn release(&mut self, token: &Token, names: &[LockName]) -> Result<Shown> {
        let may = |found: &Found| !found.record.is_run;
        self.with_token(token, names, may, |store, found, _| {
            let record = &found.record;
            let until = record
                .granted_at
                .map(|at| at.saturating_add(millis(record.at_least)));
            let now = log::now();
            let rest = until.map_or(Duration::ZERO, |until| from_millis(until - now));
            let rest = rest.min(record.at_least);
            let ticket = &found.tickets[0];
            let mut entry = log::of_record(record, Event::Released, now);
            entry.fence = found.fence();
            entry.ended_at = Some(now);
            if rest.is_zero() {
                let keys = found.tickets.iter().map(|ticket| ticket.kv.key.clone());
                let keys: Vec<_> = keys.collect();
                let log_key = store.log_key(record);
                let told = (&log_key[..], &entry);
                let next = found.next.as_ref();
                Ok(store.end(&keys, ticket.place(), found.lease, told, next, PATIENCE)?)
            } else {
                store.rest(found, rest, &entry)
            }
        })
    }

    fn extend(
        &mut self,
        token: &Token,
        names: &[LockName],
        ttl: Option<Duration>,
    ) -> Result<Shown> {
        let seconds = |ttl: Duration| ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let may = |found: &Found| {
            let asked = ttl.map(|ttl| Duration::from_secs(seconds(ttl)));
            may_live_for(asked, found.granted, found.record.is_run)
        };
        self.with_token(token, names, may, |store, found, held| {
            let other = ttl.filter(|ttl| seconds(*ttl) != found.granted.as_secs());
            let Some(ttl) = other else {
                let kept = store.client.keep_alive(found.lease, PATIENCE)?;
                if kept.is_some() {
                    store.write_extension(found);
                }
                return Ok(kept.is_some());
            };
            if found.record.is_run {
                return Err(Usage(format!(
                    "a run renews its lease itself, and {} keeps its time to live in etcd",
                    crate::output::list(&held.names)
                ))
                .into());
            }
            let ttl = ttl.max(found.record.at_least);
            Ok(store.move_keys(found, &found.record, ttl, None)?.is_some())
        })
    }

    fn held_by(&mut self, token: &Token) -> Result<Option<Held>> {
        Ok(self.find(token, PATIENCE)?.map(|found| found.shown()))
    }

    fn waiting(&mut self) -> Result<HashMap<LockName, usize>> {
        let lines = self.all_lines()?;
        let mut waiting = HashMap::new();
        for ticket in lines.tickets() {
            if lines.standing(ticket) == Standing::Waiting {
                for name in ticket.names() {
                    *waiting.entry(name).or_insert(0) += 1;
                }
            }
        }
        Ok(waiting)
    }

    fn held(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        let lines = match names {
            [] => self.all_lines()?,
            names => self.read_lines(names, PATIENCE)?,
        };
        let mut tickets = lines.tickets();
        tickets
            .retain(|ticket| lines.standing(ticket) != Standing::Waiting && has_one(ticket, names));
        Ok(self.shown(&lines, &tickets)?)
    }

    fn line(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        let lines = self.read_lines(names, PATIENCE)?;
        let mut tickets = lines.tickets();
        tickets.retain(|ticket| has_one(ticket, names));
        Ok(self.shown(&lines, &tickets)?)
    }

    fn revoke(
        &mut self,
        names: &[LockName],
        fence: Option<i64>,
        at_once: bool,
        by: &str,
    ) -> Result<Vec<Held>> {
        let mut taken: Vec<Held> = Vec::new();
        // Whoever changes a value meanwhile makes it look once more.
        for _ in 0..TRIES {
            let lines = self.read_lines(names, PATIENCE)?;
            let mut has_changed = false;
            for ticket in lines.tickets() {
                let standing = lines.standing(ticket);
                let is_asked = fence.is_none_or(|fence| ticket.fence() == Some(fence));
                let is_taken = taken.iter().any(|held| held.id == ticket.id);
                if standing == Standing::Waiting || !has_one(ticket, names) || !is_asked || is_taken
                {
                    continue;
                }
                let has_run = ticket.is_run() && standing != Standing::Resting;
                let ends = at_once || !has_run;
                let now = log::now();
                let mut entry = log::of_ticket(ticket, Event::Forced, now);
                if let Some(entry) = &mut entry {
                    entry.ended_at = ends.then_some(now);
                    entry.by = Some(by.to_owned());
                }
                let is_done = if ends {
                    self.take_away(ticket, standing, entry.as_ref())?
                } else {
                    self.tell_to_end(ticket, by)?
                };
                if !is_done {
                    has_changed = true;
                    continue;
                }
                taken.push(lines.shown(ticket, None));
                if let Some(entry) = entry.filter(|_| !ends) {
                    self.write_log(&entry, None);
                }
            }
            if !has_changed {
                break;
            }
        }
        Ok(taken)
    }

    fn look(&mut self, _: &Lease) -> Result<Look> {
        let keeper = self.own.as_ref().and_then(|own| own.keeper.as_ref());
        keeper.map_or(Ok(Look::Gone), Keeper::seen)
    }

    fn renew(&mut self, _: &Lease) -> Result<Option<Moment>> {
        let keeper = self.own.as_ref().and_then(|own| own.keeper.as_ref());
        keeper.map_or(Ok(None), Keeper::renewed)
    }

    fn kept_until(&self) -> Option<Moment> {
        let keeper = self.own.as_ref().and_then(|own| own.keeper.as_ref());
        keeper.map(Keeper::kept_until)
    }

    fn give_back(&mut self, request: &Request, lease: &Lease, ending: &Ending) -> Result<bool> {
        // With its keeper, which is not worth a pause before the end: what that has sent does no harm when it comes after it.
        let Some(own) = self.own.take() else {
            return Ok(false);
        };
        let bound = match ending.event {
            Event::Lost => AFTER_LOSS,
            _ => PATIENCE,
        };
        let now = log::now();
        let entry = |was_held| record::of_own(request, lease, ending, now, was_held, None);
        let log_key = log::key_of(self.prefix(), own.requested_at, own.id);
        let rest = own.at_least_until.map(Moment::remaining);
        let was_held = match rest.filter(|rest| !rest.is_zero()) {
            None => {
                let keys = self.keys(&request.names, own.id);
                let place = own.place.unwrap_or(lease.fence);
                let entry = entry(true);
                let next = own.duty.next();
                let told = (&log_key[..], &entry);
                self.end(&keys, place, own.id, told, next.as_ref(), bound)?
            }
            Some(rest) => match self.find(&own.token, bound)? {
                Some(mut found) => {
                    found.record.fence = Some(lease.fence);
                    found.record.granted_at = Some(lease.granted_at);
                    for ticket in &mut found.tickets {
                        ticket.record = Some(found.record.clone());
                    }
                    self.rest(&found, rest, &entry(true))?
                }
                None => false,
            },
        };
        if !was_held {
            self.write_log(&entry(false), Some(&log_key));
        }
        Ok(was_held)
    }

    fn refused(&mut self, request: &Request, asked_at: SystemTime, event: Event, by: &[Held]) {
        let entry = record::of_refusal(request, asked_at, event, by, log::now());
        self.write_log(&entry, None);
    }

    fn unlogged(&mut self) -> Option<String> {
        self.unlogged.take()
    }

    fn history(&self, query: &Query) -> Result<History> {
        Ok(log::read(&self.client, self.prefix(), query, PATIENCE)?)
    }
}

impl EtcdStore {
    /// Ends a lease that is somebody else's, whatever program's. Whoever renews it notices.
    fn take_away(
        &mut self,
        ticket: &Ticket,
        standing: Standing,
        entry: Option<&Entry>,
    ) -> Result<bool, Fault> {
        if let (Some(record), Some(entry)) = (&ticket.record, entry) {
            let keys = self.keys(&record.names, ticket.id);
            let log_key = self.log_key(record);
            if standing == Standing::Resting {
                // Its own end is in the log already.
                let was_held = self.client.revoke(ticket.kv.lease, PATIENCE)?;
                if was_held {
                    self.write_log(entry, None);
                }
                return Ok(was_held);
            }
            let told = (&log_key[..], entry);
            return self.end(&keys, ticket.place(), ticket.kv.lease, told, None, PATIENCE);
        }
        if ticket.kv.lease != 0 {
            self.client.revoke(ticket.kv.lease, PATIENCE)?;
            return Ok(true);
        }
        let same = vec![api::is_unchanged(&ticket.kv)];
        let gone = vec![api::delete(&ticket.kv.key)];
        let outcome = self.client.transact(&same, &gone, &[], PATIENCE)?;
        Ok(outcome.succeeded)
    }

    /// Writes down until when a lease lives that was renewed. That it was not does no more than to have the log tell its end too
    /// early.
    fn write_extension(&self, found: &Found) {
        let mut record = found.record.clone();
        record.fence = found.fence();
        if let (Some(until), Some(ticket)) =
            (log::end_of(&record, found.granted), found.tickets.first())
        {
            let same = [api::is_unchanged(&ticket.kv)];
            let put = [log::put_grant(&self.log_key(&record), &record, Some(until))];
            let _ = self.client.transact(&same, &put, &[], SHORT_PATIENCE);
        }
    }

    /// Writes into the values of a `run` that it is to end. False when somebody has changed them meanwhile.
    fn tell_to_end(&self, ticket: &Ticket, by: &str) -> Result<bool, Fault> {
        let Some(mut record) = ticket.record.clone() else {
            return Ok(true);
        };
        record.fence = ticket.fence();
        record.revoked_by = Some(by.to_owned());
        let value = record.as_bytes();
        let keys = self.keys(&record.names, ticket.id);
        let mut same = vec![api::is_unchanged(&ticket.kv)];
        same.extend(
            keys.iter()
                .map(|key| api::is_created_at(key, ticket.place())),
        );
        let puts: Vec<_> = keys
            .iter()
            .map(|key| api::put(key, &value, ticket.kv.lease))
            .collect();
        let outcome = self.client.transact(&same, &puts, &[], PATIENCE)?;
        Ok(outcome.succeeded)
    }
}

fn has_one(ticket: &Ticket, names: &[LockName]) -> bool {
    names.is_empty() || ticket.names().iter().any(|name| names.contains(name))
}
