//! What the steps do: the transactions, the locks and unlocks, a death. In the order of `store::sqlite` and `guard`.

use std::cell::Cell;
use std::time::Duration;

use super::line::Line;
use super::scene::{Broken, Kernel, Scene};
use super::world::{At, Byte, Job, Mark, Process, Rest, Row, Watch, byte, owner};
use super::{Flaw, Script, Verb};
use tenure::lock::{Expiry, Mode, Standing, Terms};
use tenure::rules::line::{self, Relation};
use tenure::rules::obstacle::{InTheWay, obstacle};
use tenure::rules::queue::{self, Verdict, Wanted};

impl Scene<'_> {
    pub fn lock(&mut self, process: usize, which: Byte) {
        self.world.locked |= byte(self.ticket(process), which);
    }

    pub fn say_file(&mut self, bytes: usize) {
        self.world.files &= !(1 << bytes);
        self.world.files |= u16::from(self.world.guard) << bytes;
    }

    /// The bytes that a process takes before its ticket is written. They stand in no row yet: nobody can tell in which
    /// order.
    pub fn lock_own(&mut self, process: usize) {
        let Script {
            verb, mode, waits, ..
        } = *self.script(process);
        if verb == Verb::Run || waits {
            self.lock(process, Byte::Supervisor);
            if mode != Mode::Exclusive {
                self.lock(process, Byte::Waiting);
            }
        }
        let ticket = self.ticket(process);
        self.say_file(ticket);
    }

    pub fn unlock(&mut self, process: usize, which: &[Byte]) {
        for bytes in [process * 2, process * 2 + 1] {
            for which in which {
                self.world.locked &= !byte(bytes, *which);
            }
        }
    }

    pub fn unlock_all(&mut self, process: usize) {
        let all = [
            Byte::Waiting,
            Byte::Supervisor,
            Byte::Tree,
            Byte::Descriptor,
        ];
        self.unlock(process, &all);
    }

    pub fn start(&mut self, process: usize) {
        let guard = self.world.guard;
        let own = &mut self.world.processes[process];
        own.at = At::Ready;
        own.guard = guard;
        own.descriptor = guard;
        let is_force = matches!(self.script(process).verb, Verb::Force { .. });
        if !is_force && !self.has(Flaw::LocksAfterCommit) {
            self.lock_own(process);
        }
    }

    /// Somebody committed a change: those who look for any see it.
    pub fn wrote(&mut self, by: usize) {
        for (at, process) in self.world.processes.iter_mut().enumerate() {
            let looks = process.at == At::Waiting && process.watch.is_unguarded;
            if at != by && (looks || process.at == At::Lagging) {
                process.is_called = true;
            }
        }
    }

    pub fn is_woken(&self, process: usize) -> bool {
        let own = &self.world.processes[process];
        own.is_called || own.watch.bytes & !self.world.locked != 0
    }

    /// One of a ticket's two moments has come: whoever waits for it is woken, whatever becomes of the ticket.
    pub fn ring(&mut self, ticket: u8, which: u8) {
        for process in &mut self.world.processes {
            process.is_called |= process.watch.clocks >> (ticket * 2 + which) & 1 != 0;
        }
    }

    /// What the slow tick asks.
    pub fn has_missed(&self, process: usize) -> bool {
        let Process { watch, guard, .. } = self.world.processes[process];
        let script = self.script(process);
        let kernel = Kernel::new(guard, self.world.locked);
        let stands = |ticket: u8| {
            let mut rows = self.world.rows.iter();
            let row = rows
                .find(|row| row.ticket == ticket && self.script_of(row).names & script.names != 0);
            row.map_or(0, |row| {
                1 + self.standing(row, &self.terms(row), &kernel) as u64
            })
        };
        guard != self.world.guard
            || matches!(script.mode, Mode::Slots(_))
            || watch.behind == 0
            || (0..16).any(|ticket| {
                let stood = watch.behind >> (ticket * 4) & 15;
                let stands = stands(ticket);
                if self.has(Flaw::TicksForTheRowAlone) {
                    return stood != 0 && stands == 0;
                }
                stood != 0 && stood != stands
            })
    }

    /// The transaction by which a request is granted, or stands in the line.
    pub fn look(&mut self, process: usize, seen: u64) {
        let is_new = matches!(self.world.processes[process].at, At::Ready | At::Asking);
        let is_lost = !is_new && self.row(process).is_none();
        self.world.processes[process].watch = Watch::default();
        self.world.processes[process].is_called = false;
        if is_lost || self.world.processes[process].guard != self.world.guard {
            return self.reopen(process);
        }
        let place = match self.row(process) {
            Some(row) => self.world.rows[row].id,
            None => u8::MAX,
        };
        let watch = match self.look_ahead(process, place, is_new, seen) {
            Verdict::Free { slot } => return self.grant(process, slot),
            Verdict::OtherSlots(_) => None,
            Verdict::Behind(blocking) => Some(self.watch(process, place, seen, &blocking)),
        };
        let own = &mut self.world.processes[process];
        let waits = self.setting.scripts[usize::from(own.script)].waits;
        let Some(watch) = watch.filter(|_| waits) else {
            // Its bytes stand in no row.
            own.at = At::Done;
            self.unlock_all(process);
            return;
        };
        own.watch = watch;
        own.at = if self.setting.flaw == Some(Flaw::PollsFromItsWaitOn) {
            At::Lagging
        } else {
            At::Waiting
        };
        if is_new {
            let id = self.draw();
            let ticket = self.ticket(process);
            let bytes = u8::try_from(ticket).expect("they are few");
            self.world.rows.push(Row {
                ticket: bytes,
                id,
                is_held: false,
                mark: Mark::Own {
                    bytes,
                    has_tree: true,
                },
                has_time: false,
                rest: Rest::None,
                is_revoked: false,
                slot: 0,
            });
            self.wrote(process);
        }
    }

    /// What the paths lead to is not what was opened: from the start, with new bytes, at the end of the line.
    fn reopen(&mut self, process: usize) {
        self.unlock_all(process);
        let guard = self.world.guard;
        let ties_lost = self.has(Flaw::TiesToWhatIsLost);
        let is_tie = self.script(process).verb == Verb::Tie;
        if self.world.processes[process].attempt == 1 {
            self.fail(Broken::Buried, self.name(process));
        }
        let own = &mut self.world.processes[process];
        own.attempt = 1;
        own.guard = guard;
        own.at = At::Ready;
        let is_lost = is_tie && own.descriptor != guard;
        if is_lost && !ties_lost {
            // Its descriptor is of the file that is gone: no byte of it can be seen by others.
            own.at = At::Done;
            return;
        }
        self.lock_own(process);
    }

    /// Looks along the line, as whoever sees these bytes locked. The dead that are met are removed.
    fn look_ahead(
        &mut self,
        process: usize,
        place: u8,
        is_new: bool,
        seen: u64,
    ) -> Verdict<(Row, Standing)> {
        let Script { mode, names, .. } = *self.script(process);
        let names: Vec<u8> = [1, 2]
            .into_iter()
            .filter(|name| names & name != 0)
            .collect();
        let kernel = Kernel::new(self.world.processes[process].guard, seen);
        let wanted = Wanted {
            names: &names,
            mode,
            place: i64::from(place),
            is_new,
        };
        let Ok(look) = queue::look(
            &Line {
                scene: self,
                kernel: &kernel,
            },
            &wanted,
        );
        for (dead, _) in look.over {
            let mut rows = self.world.rows.iter();
            let at = rows.position(|row| row.ticket == dead.ticket);
            self.bury(at.expect("it was met"));
            self.wrote(process);
        }
        look.verdict
    }

    fn watch(&self, process: usize, place: u8, seen: u64, blocking: &[(Row, Standing)]) -> Watch {
        let Script { mode, names, .. } = *self.script(process);
        let kernel = Kernel::new(self.world.processes[process].guard, seen);
        let line = Line {
            scene: self,
            kernel: &kernel,
        };
        let terms: Vec<Terms> = blocking.iter().map(|(row, _)| self.terms(row)).collect();
        let in_the_way: Vec<InTheWay<'_>> = blocking
            .iter()
            .zip(&terms)
            .map(|((row, standing), terms)| InTheWay {
                id: i64::from(row.id),
                mode: self.script_of(row).mode,
                standing: *standing,
                terms,
            })
            .collect();
        let clocks = Cell::new(0u32);
        let remaining = |moment: &Expiry| {
            if moment.wall > 0 {
                clocks.set(clocks.get() | 1 << (moment.wall - 1));
            }
            Duration::from_secs(u64::from(moment.wall > 0))
        };
        let waiter_ahead = |lease: usize| {
            let wanted = names & self.script_of(&blocking[lease].0).names;
            let wanted: Vec<u8> = [1, 2]
                .into_iter()
                .filter(|name| wanted & name != 0)
                .collect();
            let nearest = queue::nearest_waiter(&line, &wanted, i64::from(place));
            nearest.map(|nearest| nearest.map(|(row, _)| (i64::from(row.id), self.mark(&row))))
        };
        let Ok(found) = obstacle(mode, &in_the_way, remaining, waiter_ahead);
        let stood = |(id, standing): &(i64, Standing)| {
            let mut rows = self.world.rows.iter();
            let row = rows.find(|row| i64::from(row.id) == *id);
            (1 + *standing as u64) << (row.expect("it is in the way").ticket * 4)
        };
        let mut watch = Watch {
            bytes: found
                .bytes
                .iter()
                .fold(0, |bytes, (_, byte)| bytes | 1 << byte),
            is_unguarded: found.is_unguarded,
            clocks: clocks.get(),
            behind: found.behind.iter().fold(0, |all, one| all | stood(one)),
        };
        if self.has(Flaw::ForgetsWhoseLeaseItIs) && found.behind.len() > 1 {
            watch.behind = found.behind.last().map_or(0, stood);
        }
        self.spoil(&mut watch, mode, blocking);
        watch
    }

    /// What a flaw makes of it.
    fn spoil(&self, watch: &mut Watch, mode: Mode, blocking: &[(Row, Standing)]) {
        let Some((nearest, standing)) = blocking.iter().max_by_key(|(row, _)| row.id) else {
            return;
        };
        if self.has(Flaw::PollsBehindBareLeasesAlone)
            && matches!(standing, Standing::Resting | Standing::Orphaned)
        {
            watch.is_unguarded = false;
        }
        let Mark::Own { bytes, .. } = nearest.mark else {
            return;
        };
        let bytes = usize::from(bytes);
        let is_slots = matches!(mode, Mode::Slots(_));
        if self.has(Flaw::WatchesTheWrongByte) && *standing == Standing::Supervised {
            watch.bytes = byte(bytes, Byte::Waiting);
        }
        if self.has(Flaw::WatchesOneSlot) && *standing == Standing::Supervised && is_slots {
            watch.bytes = byte(bytes, Byte::Supervisor);
        }
        if self.has(Flaw::WaitsForTheNextToEnd) && *standing == Standing::Waiting && is_slots {
            watch.bytes = byte(bytes, Byte::Supervisor);
        }
    }

    fn draw(&mut self) -> u8 {
        self.world.serial += 1;
        self.world.serial
    }

    /// Without a look.
    pub fn enter(&mut self, process: usize) {
        self.grant(process, None);
    }

    fn grant(&mut self, process: usize, slot: Option<u32>) {
        let script = *self.script(process);
        let found = self.row(process);
        let place = found.map_or(u8::MAX, |row| self.world.rows[row].id);
        if let Some(other) = self.keeps_out(process, place) {
            let both = format!("{} past {}", self.name(process), self.name(other));
            self.fail(Broken::Order, both);
        }
        for other in 0..self.world.processes.len() {
            let theirs = self.script(other);
            if self.world.processes[other].is_due
                && theirs.names & script.names != 0
                && line::relation(script.mode, theirs.mode) == Relation::Blocks
            {
                self.fail(Broken::AtLeast, self.name(other));
            }
        }
        let drawn = self.draw();
        let fence = match found {
            Some(_) if self.has(Flaw::FenceIsThePlace) => place,
            _ => drawn,
        };
        if fence <= self.world.last_fence {
            self.fail(Broken::Fence, self.name(process));
        }
        self.world.last_fence = fence;
        let slot = self.check_slot(process, slot);
        let own = &self.world.processes[process];
        // A byte of a file that is gone can be seen by nobody.
        if script.verb == Verb::Tie && own.descriptor == own.guard {
            self.lock(process, Byte::Descriptor);
        }
        let ticket = u8::try_from(self.ticket(process)).expect("they are few");
        let row = Row {
            ticket,
            id: if found.is_some() { place } else { drawn },
            is_held: true,
            mark: match script.verb {
                Verb::Run => Mark::Own {
                    bytes: ticket,
                    has_tree: true,
                },
                Verb::Tie => Mark::Tied { bytes: ticket },
                Verb::Acquire | Verb::Force { .. } => Mark::None,
            },
            has_time: true,
            rest: if script.at_least {
                Rest::Left
            } else {
                Rest::None
            },
            is_revoked: false,
            slot,
        };
        match found {
            Some(at) => self.world.rows[at] = row,
            None => self.world.rows.push(row),
        }
        self.wrote(process);
        let locks_late = self.has(Flaw::LocksAfterCommit);
        let own = &mut self.world.processes[process];
        own.is_due = script.at_least;
        own.watch = Watch::default();
        own.at = if locks_late {
            At::GrantedUnlocked
        } else if script.verb == Verb::Run && script.mode == Mode::Exclusive {
            // There is no byte that would be only for its place.
            At::Entered
        } else if script.verb != Verb::Run && !script.waits {
            At::Holding
        } else {
            At::Granted
        };
    }

    /// The slot that a process was given, which nobody who lives has.
    fn check_slot(&mut self, process: usize, slot: Option<u32>) -> u8 {
        let Script { mode, names, .. } = *self.script(process);
        let (Mode::Slots(slots), Some(slot)) = (mode, slot) else {
            return 0;
        };
        let mut holders = self.world.rows.iter().filter(|row| row.is_held);
        let is_taken = holders.any(|row| {
            self.script_of(row).names & names != 0 && u32::from(row.slot) == slot && self.lives(row)
        });
        if slot >= slots || is_taken {
            self.fail(Broken::Slot, self.name(process));
        }
        u8::try_from(slot).expect("they are few")
    }

    /// Removes a row of which somebody has found that it is over.
    pub fn bury(&mut self, at: usize) {
        let row = self.world.rows[at];
        if self.lives(&row) {
            self.fail(Broken::Buried, self.name(owner(&row)));
        }
        self.world.rows.remove(at);
    }

    pub fn delete_own(&mut self, process: usize) {
        if let Some(at) = self.row(process) {
            self.world.rows.remove(at);
            self.wrote(process);
        }
    }

    /// Ends a lease, or leaves it to rest.
    pub fn give_back(&mut self, process: usize) {
        let Some(at) = self.row(process) else {
            return;
        };
        let row = &mut self.world.rows[at];
        let ignores = self.setting.flaw == Some(Flaw::EndsBeforeAtLeast);
        if row.rest == Rest::Left && !row.is_revoked && !ignores {
            row.mark = Mark::None;
            row.has_time = false;
        } else {
            self.world.rows.remove(at);
        }
        self.wrote(process);
    }

    pub fn force(&mut self, process: usize) {
        let Script { verb, names, .. } = *self.script(process);
        let at_once = verb == Verb::Force { now: true };
        let kernel = Kernel::new(self.guard_of_who_asks(process), self.world.locked);
        let mut told = 0;
        for ticket in 0..16 {
            let at = self.world.rows.iter().position(|row| row.ticket == ticket);
            let Some(at) = at else { continue };
            let row = self.world.rows[at];
            if !row.is_held || self.script_of(&row).names & names == 0 {
                continue;
            }
            let standing = self.standing(&row, &self.terms(&row), &kernel);
            if standing.is_over() {
                self.bury(at);
                self.wrote(process);
                continue;
            }
            let has_run = matches!(row.mark, Mark::Own { .. });
            let ends = at_once
                || !has_run
                || standing == Standing::Resting
                || self.has(Flaw::ForcesTheLiving);
            let is_asked_for = at_once && !self.has(Flaw::ForcesTheLiving);
            let holder = &mut self.world.processes[owner(&row)];
            holder.is_due = false;
            if ends {
                // By exceptions: it was asked for, there is nobody to be told, or what runs has outlived its time.
                holder.excused |= is_asked_for || !has_run || standing == Standing::Resting;
                self.world.rows.remove(at);
            } else {
                self.world.rows[at].is_revoked = true;
            }
            told |= 1 << ticket;
            self.wrote(process);
        }
        let own = &mut self.world.processes[process];
        let waits = told != 0 && !at_once;
        own.told = if waits { told } else { 0 };
        own.at = if waits { At::Expecting } else { At::Done };
    }

    /// Who holds nothing himself opens the guard file again where it was replaced.
    fn guard_of_who_asks(&self, process: usize) -> u8 {
        if self.has(Flaw::AsksTheOldGuard) {
            self.world.processes[process].guard
        } else {
            self.world.guard
        }
    }

    /// Whether none of those lives whom a forced release told, as far as it can see.
    pub fn is_gone(&self, process: usize) -> bool {
        let told = self.world.processes[process].told;
        let kernel = Kernel::new(self.guard_of_who_asks(process), self.world.locked);
        !self.world.rows.iter().any(|row| {
            told >> row.ticket & 1 != 0 && !self.standing(row, &self.terms(row), &kernel).is_over()
        })
    }

    pub fn kill(&mut self, process: usize) {
        self.world.deaths -= 1;
        if self.world.writer == u8::try_from(process).ok() {
            self.world.writer = None;
        }
        let verb = self.script(process).verb;
        let job = self.world.processes[process].job;
        if job != Job::Forked {
            self.unlock(process, &[Byte::Waiting, Byte::Supervisor]);
        }
        let held = [Byte::Tree, Byte::Descriptor].map(|which| {
            let bytes = byte(process * 2, which) | byte(process * 2 + 1, which);
            self.world.locked & bytes != 0
        });
        let own = &mut self.world.processes[process];
        own.watch = Watch::default();
        own.seen = 0;
        own.told = 0;
        own.is_called = false;
        own.at = match (verb, held) {
            (Verb::Tie, [_, true]) => At::Open,
            (Verb::Run, [true, _]) if job == Job::None => At::Dying,
            _ => At::Dead,
        };
    }
}
