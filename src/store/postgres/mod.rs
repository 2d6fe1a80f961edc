//! The store in a PostgreSQL database: `target` reads where it is, `link` connects and makes transactions, `tls` encrypts,
//! `ticket` has the rows and their statements, `line` has the lines as `rules::queue` asks for them, `history` has the log, `fault` tells
//! what went wrong, `witness` sees who has died on this machine, `schema.sql` is the layout.
//!
//! Time alone keeps a lease here, by the server's clock, and nothing but the server is asked who holds what; but what the dead
//! had is over before its time where their death is seen. A notification only wakes: after it, and now and then without it,
//! the rows are read again.

mod fault;
mod history;
mod line;
mod link;
mod target;
mod ticket;
mod tls;
mod witness;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use self::fault::{Fault, Kind, kind_of};
use self::line::{Found, Line};
use self::link::{Bound, Link, Tx};
use self::target::Target;
use self::ticket::{Asker, Living, Ticket, WAITER_TTL};
use self::witness::{Own, Proof};
use super::keeper::{Keeper, Tend};
use super::{Answer, History, Keeping, Look, Obstacle, Purpose, Query, Shown, Store, record};
use crate::clock::Moment;
use crate::duration::{from_millis, millis};
use crate::exit::Usage;
use crate::lock::{Ahead, Ending, Event, Held, Lease, LockName, Request, Standing, Token};
use crate::rules::standing::may_live_for;
use crate::wait::{self, Bell};

/// How long a call is tried, whatever `--wait` says.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one is that only wants something written down: the answer was given, and is not to be late for it.
const NOTING: Duration = Duration::from_secs(1);

/// How long one is by whom people are shown how a wait goes on.
const GLANCE: Duration = Duration::from_secs(1);

/// How long the end of a lease is tried that was lost: time ends it too, or has.
const AFTER_LOSS: Duration = Duration::from_secs(3);

/// Behind every notification, which can be lost: by a pooler, for one.
const SLOW_TICK: Duration = Duration::from_secs(3);

/// What a call that keeps something alive may take of its time to live, and at the most: so that there is time for more.
const SHARE: u32 = 6;
const MOST_OF_RENEWAL: Duration = Duration::from_secs(5);
const LEAST_OF_RENEWAL: Duration = Duration::from_millis(500);

/// The part of its time to live by which a lease is no older when its job starts: as old as it is when a renewal comes late.
const AGE: u32 = 3;

pub struct PostgresStore {
    url: String,
    link: Arc<Link>,
    place: Option<Place>,
    /// Renews the own place in the line, or the own lease.
    keeper: Option<Keeper>,
    /// By which others on this machine see that this process lives, while it waits or holds.
    own: Option<Own>,
}

/// Where the own request stands.
struct Place {
    token: Token,
    /// Its ticket's number, once it is known to be in the line.
    id: Option<i64>,
    /// No later than the first try to enter of which it is not known what came.
    unsure_since: Option<Moment>,
    /// What it waits for, and whom people are told of.
    behind: Vec<(i64, Standing)>,
    others: Vec<Held>,
}

/// What came of looking along the line, as it was committed.
#[derive(Clone)]
enum Entry {
    Granted(Lease),
    Busy(Vec<Held>),
    Waiting(Waiting),
    Deadlock(Vec<Held>),
    OtherSlots(u32),
}

/// That the own request waits.
#[derive(Clone)]
struct Waiting {
    id: i64,
    behind: Vec<(i64, Standing)>,
    /// Of those it is behind, as far as this machine can tell of them.
    proofs: Vec<Proof>,
    again: Duration,
    others: Vec<Held>,
}

/// Opens the database at a URL.
///
/// # Errors
/// It cannot be used; the message says which one and why.
pub fn open(url: &str, purpose: Purpose) -> Result<PostgresStore> {
    let target = Target::of(url).map_err(Usage)?;
    let bound = Bound {
        heeds: matches!(purpose, Purpose::Take(_)),
        ..Bound::of(PATIENCE)
    };
    Ok(PostgresStore {
        url: url.to_owned(),
        link: Link::open(target, bound)?,
        place: None,
        keeper: None,
        own: None,
    })
}

/// Keeps a waiting ticket's place.
struct KeepsPlace {
    link: Arc<Link>,
    token: Token,
}

impl Tend for KeepsPlace {
    fn renew(&mut self) -> Result<Option<Moment>> {
        let bound = Bound::of(of_renewal(WAITER_TTL));
        self.link.write(bound, |tx, _| {
            let is_there = ticket::keep_place(tx, &self.token)?;
            Ok(is_there.then(|| tx.began + WAITER_TTL))
        })
    }

    fn look(&mut self) -> Result<Look> {
        // Who waits looks himself.
        Ok(Look::Held)
    }
}

/// Keeps a `run`'s lease.
struct KeepsLease {
    link: Arc<Link>,
    token: Token,
    fence: i64,
    ttl: Duration,
}

impl Tend for KeepsLease {
    fn renew(&mut self) -> Result<Option<Moment>> {
        let bound = Bound::of(of_renewal(self.ttl));
        self.link.write(bound, |tx, _| {
            let ttl = ticket::renew(tx, &self.token, None)?;
            Ok(ttl.map(|ttl| tx.began + from_millis(ttl)))
        })
    }

    fn look(&mut self) -> Result<Look> {
        let bound = Bound::of(of_renewal(self.ttl));
        self.link.read(bound, |tx| {
            let found = ticket::by_token(tx, &self.token)?;
            Ok(match found {
                Some(Ticket {
                    revoked_by: Some(by),
                    ..
                }) => Look::Revoked(by),
                Some(ticket) if !ticket.standing(tx).is_over() => Look::Held,
                // By `release --force --now`, most likely.
                _ => match history::taken(tx, self.fence)? {
                    Some((_, by)) => Look::Revoked(by),
                    None => Look::Gone,
                },
            })
        })
    }
}

/// Whether the same may be done in a moment.
fn may_pass(error: &anyhow::Error) -> bool {
    [Kind::Cut, Kind::Locked].contains(&kind_of(error))
}

fn of_renewal(ttl: Duration) -> Duration {
    (ttl / SHARE).clamp(LEAST_OF_RENEWAL, MOST_OF_RENEWAL)
}

/// Tickets with how they stand.
fn standing(tickets: Vec<Ticket>, tx: &Tx<'_>) -> impl Iterator<Item = Living> {
    tickets.into_iter().map(|ticket| {
        let standing = ticket.standing(tx);
        (ticket, standing)
    })
}

/// Those that live.
fn living(tickets: Vec<Ticket>, tx: &Tx<'_>) -> Vec<Living> {
    let living = standing(tickets, tx).filter(|(_, standing)| !standing.is_over());
    living.collect()
}

/// Grants a request, or puts it into the line, where it may stand already by its token.
fn enter(
    tx: &Tx<'_>,
    request: &Request,
    asker: Asker<'_>,
    waits: bool,
    unsure_since: Option<Moment>,
) -> Result<Entry> {
    let token = asker.token;
    let (own, others): (Vec<Ticket>, Vec<Ticket>) = ticket::line_and(tx, &request.names, token)?
        .into_iter()
        .partition(|ticket| ticket.token == *token);
    let mut own = own.into_iter().next();
    if let Some(granted) = own.take_if(|ticket| ticket.is_held) {
        // By a commit that was not answered.
        let lives = !granted.standing(tx).is_over();
        if let Some(fence) = granted.fence.filter(|_| lives) {
            return Ok(Entry::Granted(Lease {
                id: granted.id,
                names: granted.names,
                token: *token,
                fence,
                ttl: request.ttl,
                slot: granted.slot,
                requested_at: granted.requested_at,
                granted_at: granted.since,
                counted_from: unsure_since.unwrap_or(tx.began),
            }));
        }
        ticket::bury(tx, [(&granted, granted.standing(tx))])?;
    }
    let (dead, line): (Vec<Living>, Vec<Living>) =
        standing(others, tx).partition(|(_, standing)| standing.is_over());
    ticket::bury(
        tx,
        dead.iter().map(|(ticket, standing)| (ticket, *standing)),
    )?;
    let place = own.as_ref().map(|own| own.id);
    let now = tx.now;
    let seen = Line {
        tickets: &line,
        now,
    };
    let (behind, again) = match seen.look(request, place) {
        Found::OtherSlots(slots) => return Ok(Entry::OtherSlots(slots)),
        Found::Free { slot } => {
            tx.listen([]);
            let lease = ticket::grant(tx, request, asker, own.as_ref(), slot)?;
            return Ok(Entry::Granted(lease));
        }
        Found::Blocked { behind, again } => (behind, again),
    };
    let first = seen.first_in_the_way(request, place);
    if own.is_none() && !request.enclosing.is_empty() {
        let all: Vec<Living> = standing(ticket::line(tx, &[])?, tx).collect();
        let all = Line { tickets: &all, now };
        if let Some(cycle) = all.cycle(request, waits) {
            return Ok(Entry::Deadlock(cycle));
        }
    }
    if !waits {
        return Ok(Entry::Busy(first));
    }
    let id = if let Some(own) = &own {
        // It says so by this, too.
        ticket::keep_place(tx, token)?;
        own.id
    } else {
        ticket::enqueue(tx, request, asker)?
    };
    tx.listen(behind.iter().map(|(id, _)| *id));
    let line = line.into_iter().map(|(ticket, _)| ticket);
    Ok(Entry::Waiting(Waiting {
        id,
        proofs: proofs_of(line, &behind),
        behind,
        again,
        others: first,
    }))
}

fn proofs_of(tickets: impl IntoIterator<Item = Ticket>, behind: &[(i64, Standing)]) -> Vec<Proof> {
    let is_behind = |ticket: &Ticket| behind.iter().any(|(id, _)| *id == ticket.id);
    let tickets = tickets.into_iter().filter(is_behind);
    tickets.filter_map(|ticket| ticket.proof).collect()
}

/// To wait for one of these tickets to change, for as long at the most.
fn obstacle(behind: Vec<(i64, Standing)>, again: Duration) -> Obstacle {
    Obstacle {
        // A little later than it is over there, that it is.
        again: Some(wait::jittered(SLOW_TICK).min(again + Duration::from_millis(5))),
        behind,
        ..Obstacle::default()
    }
}

impl PostgresStore {
    /// The last answer, if what the own request waits for is as it was: nobody else waits for this look, as all do for one
    /// along the line. None also where it cannot be told.
    fn glance(&self) -> Option<Answer> {
        let place = self.place.as_ref()?;
        let own = place.id.filter(|_| place.unsure_since.is_none())?;
        let again = self.link.read(Bound::of(GLANCE), |tx| {
            let ids = place.behind.iter().map(|(id, _)| *id).chain([own]);
            let found = ticket::of_ids(tx, &ids.collect::<Vec<_>>())?;
            let as_it_was = |(id, stood): &(i64, Standing)| {
                let ticket = found.iter().find(|ticket| ticket.id == *id)?;
                (ticket.standing(tx) == *stood).then(|| ticket.remaining(tx.now))
            };
            if !found.iter().any(|ticket| ticket.id == own) {
                return Ok(None);
            }
            let left: Option<Vec<Duration>> = place.behind.iter().map(as_it_was).collect();
            let again = left.and_then(|left| left.into_iter().min());
            Ok(again.map(|again| (again, proofs_of(found, &place.behind))))
        });
        let (again, proofs) = again.ok().flatten()?;
        self.link.hear_of(&proofs);
        let obstacle = obstacle(place.behind.clone(), again);
        Some(Answer::Waiting(obstacle, place.others.clone()))
    }

    fn settle(
        &mut self,
        entry: Entry,
        request: &Request,
        token: Token,
        keeping: Keeping,
        waits: bool,
    ) -> Result<Answer> {
        if let Entry::Waiting(waiting) = entry {
            let Waiting {
                id,
                behind,
                proofs,
                again,
                others,
            } = waiting;
            self.link.hear_of(&proofs);
            let had = self.place.as_ref().and_then(|place| place.id);
            if had != Some(id) {
                // That of a place which was lost has nothing to keep any more.
                self.keeper = None;
            }
            self.place = Some(Place {
                token,
                id: Some(id),
                unsure_since: None,
                behind: behind.clone(),
                others: others.clone(),
            });
            if self.keeper.is_none() {
                let tend = KeepsPlace {
                    link: Arc::clone(&self.link),
                    token,
                };
                let until = Moment::now() + WAITER_TTL;
                self.keeper = Some(Keeper::start(tend, until, WAITER_TTL)?);
            }
            return Ok(Answer::Waiting(obstacle(behind, again), others));
        }
        self.place = None;
        self.keeper = None;
        if keeping == Keeping::Bare || !matches!(entry, Entry::Granted(_)) {
            // No row names it, or never will.
            self.own.take().into_iter().for_each(Own::finish);
        }
        Ok(match entry {
            Entry::Granted(lease) if keeping == Keeping::Supervised => {
                let fresh = self.fresh(lease.clone()).map_err(|error| (error, waits));
                match fresh.and_then(|lease| self.kept(lease).map_err(|error| (error, false))) {
                    Ok(lease) => Answer::Granted(lease),
                    Err((error, tries_again)) => {
                        let ending = Ending::not_started(None);
                        let _ = self.give_back(request, &lease, &ending);
                        if !tries_again {
                            return Err(error);
                        }
                        Answer::Unreachable(error)
                    }
                }
            }
            Entry::Granted(lease) => Answer::Granted(lease),
            Entry::Waiting(_) => unreachable!("it was seen to above"),
            Entry::Busy(others) => Answer::Busy(others),
            Entry::Deadlock(circle) => Answer::Deadlock(circle),
            Entry::OtherSlots(slots) => Answer::OtherSlots(slots),
        })
    }

    /// A lease of which a job gets the better part, by this machine's clock. That counts from before the grant was asked for, which
    /// may have stood in line for the row that all who change something lock: then the lease is renewed before the job starts.
    fn fresh(&self, mut lease: Lease) -> Result<Lease> {
        let enough = lease.ttl.saturating_sub(lease.ttl / AGE);
        let is_fresh = |lease: &Lease| (lease.counted_from + lease.ttl).remaining() >= enough;
        if is_fresh(&lease) {
            return Ok(lease);
        }
        let until = self.keeps(&lease).renew()?;
        let Some(until) = until else {
            bail!(
                "cannot use {}: the lease that it gave was over when that was heard",
                self.location()
            );
        };
        lease.counted_from = until - lease.ttl;
        if !is_fresh(&lease) {
            return Err(Fault::no_answer(&self.location(), of_renewal(lease.ttl)).into());
        }
        Ok(lease)
    }

    /// A lease that is kept from now on.
    fn kept(&mut self, lease: Lease) -> Result<Lease> {
        let locked = self.own.iter().try_for_each(Own::lock_tree);
        locked.context("cannot lock a guard file for the command")?;
        let until = lease.counted_from + lease.ttl;
        self.keeper = Some(Keeper::start(self.keeps(&lease), until, lease.ttl)?);
        Ok(lease)
    }

    fn keeps(&self, lease: &Lease) -> KeepsLease {
        KeepsLease {
            link: Arc::clone(&self.link),
            token: lease.token,
            fence: lease.fence,
            ttl: lease.ttl,
        }
    }

    /// Tickets that live, of one moment.
    fn read(&self, find: impl Fn(&Tx<'_>) -> Result<Vec<Ticket>>) -> Result<Vec<Held>> {
        self.link.read(Bound::of(PATIENCE), |tx| {
            let living = living(find(tx)?, tx).into_iter();
            let held = living.map(|(ticket, standing)| ticket.into_held(tx.now, standing));
            Ok(held.collect())
        })
    }

    /// What was asked for with a token, if the token is good: `act` gets the ticket, inside the transaction, where whoever has
    /// the token `may` do that, and is not told that it is for the `run` to do.
    fn with_token(
        &self,
        token: &Token,
        names: &[LockName],
        may: impl Fn(&Ticket) -> bool,
        act: impl Fn(&Tx<'_>, &Ticket) -> Result<bool>,
    ) -> Result<Shown> {
        self.link.write(Bound::of(PATIENCE), |tx, before| {
            let found = ticket::by_token(tx, token)?;
            let living = found.filter(|ticket| ticket.is_held && !ticket.standing(tx).is_over());
            let Some(ticket) = living else {
                return Ok(match before {
                    // It was done, and the answer was lost.
                    Some(Shown::Done(held)) => Shown::Done(held.clone()),
                    _ => Shown::NotHeld,
                });
            };
            let held = ticket.clone().into_held(tx.now, ticket.standing(tx));
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
            Ok(if act(tx, &ticket)? {
                Shown::Done(held)
            } else {
                Shown::NotHeld
            })
        })
    }
}

impl Store for PostgresStore {
    fn location(&self) -> String {
        self.link.location()
    }

    fn address(&self) -> OsString {
        self.url.clone().into()
    }

    fn acquire(&mut self, request: &Request, keeping: Keeping, waits: bool) -> Result<Answer> {
        if !self.link.has_heard()
            && let Some(answer) = self.glance()
        {
            return Ok(answer);
        }
        let (token, earlier) = match &self.place {
            Some(place) => (place.token, place.unsure_since),
            None => (Token::draw().context("cannot draw a token")?, None),
        };
        let bound = Bound {
            heeds: true,
            makes: true,
            persists: !waits,
            ..Bound::of(PATIENCE)
        };
        if self.own.is_none() && (waits || keeping == Keeping::Supervised) {
            self.own = self.link.witness.hold();
        }
        let asker = Asker {
            token: &token,
            of_run: keeping == Keeping::Supervised,
            proof: self.own.as_ref().map(Own::proof),
        };
        let began = earlier.unwrap_or_else(Moment::now);
        let entered = self.link.write(bound, |tx, before| {
            let is_unsure = earlier.is_some() || before.is_some();
            let unsure_since = is_unsure.then_some(began);
            enter(tx, request, asker, waits, unsure_since)
        });
        match entered {
            Ok(entry) => self.settle(entry, request, token, keeping, waits),
            Err(error) if waits && may_pass(&error) => {
                let id = self.place.take().and_then(|place| place.id);
                self.place = Some(Place {
                    token,
                    id,
                    unsure_since: Some(began),
                    behind: Vec::new(),
                    others: Vec::new(),
                });
                Ok(Answer::Unreachable(error))
            }
            Err(error) => Err(error),
        }
    }

    fn leave(&mut self) -> Result<()> {
        self.keeper = None;
        let own = self.own.take();
        let Some(place) = self.place.take() else {
            own.into_iter().for_each(Own::finish);
            return Ok(());
        };
        let left = self.link.write(Bound::of(AFTER_LOSS), |tx, _| {
            tx.listen([]);
            match ticket::by_token(tx, &place.token)? {
                // Or it was granted, by a commit that was not answered.
                Some(ticket) => ticket::delete(tx, &ticket),
                None => Ok(()),
            }
        });
        if left.is_ok() {
            own.into_iter().for_each(Own::finish);
        }
        match left {
            // It has no token that anybody knows, and is over when its time has passed.
            Err(error) if may_pass(&error) && place.unsure_since.is_none() => Ok(()),
            left => left,
        }
    }

    fn ahead(&mut self, request: &Request) -> Result<Option<Ahead>> {
        let Some(place) = self.place.as_ref().and_then(|place| place.id) else {
            return Ok(None);
        };
        self.link.read(Bound::of(GLANCE), |tx| {
            let line = living(ticket::line(tx, &request.names)?, tx);
            let line = Line {
                tickets: &line,
                now: tx.now,
            };
            let first = line.first_in_the_way(request, Some(place));
            let about = first.first().and_then(|held| {
                let mut names = request.names.iter();
                names.find(|name| held.names.contains(name))
            });
            let place = about.map(|name| line.place_of(name, place));
            Ok(Some(Ahead { first, place }))
        })
    }

    fn has_changed(&mut self) -> Result<bool> {
        Ok(true)
    }

    fn tree(&self) -> Option<BorrowedFd<'_>> {
        self.own.as_ref().map(Own::tree)
    }

    fn ring(&mut self, bell: Bell) {
        self.link.ring(bell);
    }

    fn release(&mut self, token: &Token, names: &[LockName]) -> Result<Shown> {
        let may = |ticket: &Ticket| !ticket.of_run;
        self.with_token(token, names, may, |tx, ticket| {
            ticket::end(tx, ticket)?;
            if let Some(mut entry) = ticket.as_entry(tx.now, Standing::Leased) {
                entry.event = Event::Released;
                entry.ended_at = Some(tx.now);
                history::write(tx, &entry)?;
            }
            Ok(true)
        })
    }

    fn extend(
        &mut self,
        token: &Token,
        names: &[LockName],
        ttl: Option<Duration>,
    ) -> Result<Shown> {
        let may = |ticket: &Ticket| may_live_for(ttl, from_millis(ticket.ttl), ticket.of_run);
        self.with_token(token, names, may, |tx, _| {
            Ok(ticket::renew(tx, token, ttl.map(millis))?.is_some())
        })
    }

    fn held_by(&mut self, token: &Token) -> Result<Option<Held>> {
        let held = self.read(|tx| {
            let ticket = ticket::by_token(tx, token)?;
            Ok(ticket.filter(|ticket| ticket.is_held).into_iter().collect())
        })?;
        Ok(held.into_iter().next())
    }

    fn waiting(&mut self) -> Result<HashMap<LockName, usize>> {
        let mut counts = HashMap::new();
        for held in self.line(&[])? {
            if held.standing == Standing::Waiting {
                for name in held.names {
                    *counts.entry(name).or_insert(0) += 1;
                }
            }
        }
        Ok(counts)
    }

    fn held(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        let mut held = self.line(names)?;
        held.retain(|held| held.standing != Standing::Waiting);
        held.sort_by_key(|held| held.fence);
        Ok(held)
    }

    fn line(&mut self, names: &[LockName]) -> Result<Vec<Held>> {
        self.read(|tx| ticket::line(tx, names))
    }

    fn revoke(
        &mut self,
        names: &[LockName],
        fence: Option<i64>,
        at_once: bool,
        by: &str,
    ) -> Result<Vec<Held>> {
        self.link
            .write(Bound::of(PATIENCE), |tx, before: Option<&Vec<Held>>| {
                let mut taken = Vec::new();
                for (ticket, standing) in standing(ticket::line(tx, names)?, tx) {
                    if standing.is_over() {
                        ticket::bury(tx, [(&ticket, standing)])?;
                    } else if ticket.is_held
                        && fence.is_none_or(|fence| Some(fence) == ticket.fence)
                    {
                        // There is nobody to tell but a `run`.
                        let ends = at_once || !ticket.of_run || standing == Standing::Resting;
                        ticket::force(tx, &ticket, standing, ends, by)?;
                        taken.push(ticket.into_held(tx.now, standing));
                    }
                }
                Ok(match before {
                    // It was done, and the answer was lost.
                    Some(before) if taken.is_empty() => before.clone(),
                    _ => taken,
                })
            })
    }

    fn look(&mut self, _: &Lease) -> Result<Look> {
        self.keeper.as_ref().map_or(Ok(Look::Gone), Keeper::seen)
    }

    fn renew(&mut self, _: &Lease) -> Result<Option<Moment>> {
        self.keeper.as_ref().map_or(Ok(None), Keeper::renewed)
    }

    fn kept_until(&self) -> Option<Moment> {
        self.keeper.as_ref().map(Keeper::kept_until)
    }

    fn give_back(&mut self, request: &Request, lease: &Lease, ending: &Ending) -> Result<bool> {
        if let Some(keeper) = self.keeper.take() {
            keeper.stop();
        }
        let limit = match ending.event {
            Event::Lost => AFTER_LOSS,
            _ => PATIENCE,
        };
        let bound = Bound {
            persists: true,
            ..Bound::of(limit)
        };
        let given_back = self.link.write(bound, |tx, before| {
            let found = ticket::by_token(tx, &lease.token)?;
            if let (None, Some(done)) = (&found, before) {
                // It was done, and the answer was lost.
                return Ok(*done);
            }
            let taken = match &found {
                Some(ticket) => {
                    ticket::end(tx, ticket)?;
                    None
                }
                None => history::taken(tx, lease.fence)?,
            };
            let was_held = found.is_some();
            let entry = record::of_own(request, lease, ending, tx.now, was_held, taken);
            history::write(tx, &entry)?;
            Ok(was_held)
        });
        // Where the server was not told, those on this machine see that it is over.
        if let Some(own) = self.own.take()
            && given_back.is_ok()
        {
            own.finish();
        }
        given_back
    }

    fn refused(&mut self, request: &Request, asked_at: SystemTime, event: Event, by: &[Held]) {
        let _ = self.link.write(Bound::of(NOTING), |tx, _| {
            let entry = record::of_refusal(request, asked_at, event, by, tx.now);
            history::write(tx, &entry)
        });
    }

    fn history(&self, query: &Query) -> Result<History> {
        self.link
            .read(Bound::of(PATIENCE), |tx| history::read(tx, query))
    }
}
