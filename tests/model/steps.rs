//! The steps that can be taken in a world, and by whom.
//!
//! A step is what nobody can see a part of: a committed transaction, one call of fcntl(2), a fork, a death. Their order
//! is that of `store::sqlite`, `cmd::take`, `cmd::run` and `cmd::release`, told again.

use super::scene::{Broken, Kernel, Scene, Wrong};
use super::world::{At, Byte, Job, Mark, Process, Rest, Row, Watch, World, byte, owner, ticket};
use super::{Flaw, Verb};

/// One step, to another world or to what is wrong.
pub struct Step {
    pub text: &'static str,
    /// Whose.
    pub label: u8,
    /// The program takes it by itself, and sooner than any tick: it waits for no person, no death, no time.
    pub is_own: bool,
    pub to: Result<World, Wrong>,
}

/// The label of what is nobody's step.
pub const NOBODY: u8 = u8::MAX;

/// What a step does to the world, and to this process in it.
type Act<'a> = fn(&mut Scene<'a>, usize);

impl<'a> Scene<'a> {
    /// All steps that can be taken.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for process in 0..self.world.processes.len() {
            let mut add = |is_own, (text, act): (&'static str, Act<'a>)| {
                steps.push(Step {
                    text,
                    label: self.world.processes[process].label,
                    is_own,
                    to: self.after(|next| act(next, process)),
                });
            };
            if let Some(step) = self.own_step(process) {
                add(true, step);
            }
            if self.world.processes[process].job == Job::Forked {
                add(true, ("its job is executed", Self::execute));
            }
            for step in self.fates(process) {
                add(false, step);
            }
        }
        for at in 0..self.world.rows.len() {
            for (text, act) in self.fates_of_row(at) {
                steps.push(Step {
                    text,
                    label: self.world.processes[owner(&self.world.rows[at])].label,
                    is_own: false,
                    to: self.after(|next| act(next, at)),
                });
            }
        }
        if self.world.replacements > 0 {
            let to = self.after(|next| {
                next.world.replacements -= 1;
                next.world.guard ^= 1;
            });
            steps.push(Step {
                text: "the guard file is replaced",
                label: NOBODY,
                is_own: false,
                to,
            });
        }
        steps
    }

    fn after(&self, act: impl FnOnce(&mut Self)) -> Result<World, Wrong> {
        let mut next = Self {
            world: self.world.clone(),
            setting: self.setting,
            clock: self.clock.clone(),
            wrong: None,
        };
        act(&mut next);
        next.settled()
    }

    /// A process has come to here.
    fn come(&mut self, process: usize, at: At) {
        self.world.processes[process].at = at;
    }

    /// What a process does by itself.
    #[expect(
        clippy::too_many_lines,
        reason = "an arm for each place where it can be"
    )]
    fn own_step(&self, process: usize) -> Option<(&'static str, Act<'a>)> {
        let Process { at, job, guard, .. } = self.world.processes[process];
        let verb = self.script(process).verb;
        let may_write = self.world.writer.is_none();
        match at {
            At::Ready if matches!(verb, Verb::Force { .. }) => {
                may_write.then_some(("forces a release", Self::force))
            }
            At::Waiting if !self.is_woken(process) => None,
            At::Waiting if self.has(Flaw::DoesNotLookAgain) => {
                Some(("is woken and enters", Self::enter))
            }
            At::Waiting if self.has(Flaw::WakesOthersFirst) => {
                Some(("is woken, and leaves its place", |next, own| {
                    next.unlock(own, &[Byte::Waiting]);
                    next.come(own, At::Hasty);
                }))
            }
            At::Ready | At::Hasty | At::Waiting => self.looking(),
            At::Asking | At::AskingAgain => Some(("commits what it has found", |next, own| {
                next.world.writer = None;
                let seen = std::mem::take(&mut next.world.processes[own].seen);
                next.look(own, seen);
            })),
            At::Lagging => Some(("begins to watch", |next, own| {
                next.world.processes[own].is_called = false;
                next.come(own, At::Waiting);
            })),
            At::Leaving => Some(("unlocks its bytes", |next, own| {
                next.unlock_all(own);
                next.come(own, At::Done);
            })),
            At::LeavingLast => may_write.then_some(("deletes its place", |next, own| {
                next.delete_own(own);
                next.come(own, At::Done);
            })),
            At::GrantedUnlocked => Some(("locks its bytes", |next, own| {
                next.lock_own(own);
                next.come(own, At::Granted);
            })),
            At::Granted if verb == Verb::Run => {
                Some(("unlocks the byte of its place", |next, own| {
                    next.unlock(own, &[Byte::Waiting]);
                    next.come(own, At::Entered);
                }))
            }
            At::Granted => Some(("unlocks the bytes of its place", |next, own| {
                next.unlock(own, &[Byte::Waiting, Byte::Supervisor]);
                next.come(own, At::Holding);
            })),
            At::Entered => Some(("locks the job's byte", |next, own| {
                if !next.has(Flaw::LocksTreeAfterStart) {
                    next.lock(own, Byte::Tree);
                }
                next.come(own, At::Armed);
            })),
            At::Armed => Some(("forks", |next, own| {
                next.world.processes[own].job = Job::Forked;
                next.come(own, At::Supervising);
            })),
            At::Supervising if job == Job::None && self.has(Flaw::UnlocksBeforeDeleting) => {
                Some(("unlocks its bytes", |next, own| {
                    next.unlock_all(own);
                    next.come(own, At::EndedFirst);
                }))
            }
            At::Supervising if job == Job::None => {
                may_write.then_some(("deletes its row", |next, own| {
                    next.give_back(own);
                    next.come(own, At::Ended);
                }))
            }
            At::Supervising if self.row(process).is_none() => {
                Some(("finds its row gone, and unlocks its bytes", |next, own| {
                    next.unlock_all(own);
                    next.come(own, At::Lost);
                }))
            }
            At::Supervising if guard != self.world.guard => Some((
                "locks a byte of the new guard file",
                Self::move_to_new_guard,
            )),
            At::Moving => may_write.then_some(("writes down its new byte", |next, own| {
                if let Some(row) = next.row(own) {
                    next.world.rows[row].mark = Mark::Own {
                        bytes: ticket(own, 1),
                        has_tree: false,
                    };
                    next.wrote(own);
                }
                next.come(own, At::Moved);
            })),
            At::Moved => Some(("unlocks the old bytes", |next, own| {
                let old = usize::from(ticket(own, 0));
                next.world.locked &= !(byte(old, Byte::Supervisor) | byte(old, Byte::Tree));
                next.come(own, At::Supervising);
            })),
            At::Lost if job == Job::None => Some(("ends", |next, own| next.come(own, At::Done))),
            At::EndedFirst => may_write.then_some(("deletes its row", |next, own| {
                next.give_back(own);
                next.come(own, At::Done);
            })),
            At::Ended if verb == Verb::Run => Some(("unlocks its own byte", |next, own| {
                next.unlock(own, &[Byte::Waiting, Byte::Supervisor]);
                next.come(own, At::EndedHalf);
            })),
            At::EndedHalf => Some(("unlocks the job's byte", |next, own| {
                next.unlock_all(own);
                next.come(own, At::Done);
            })),
            At::Ended => Some(("unlocks its descriptor's byte", |next, own| {
                next.unlock_all(own);
                next.come(own, At::Open);
            })),
            At::Expecting if self.is_gone(process) => {
                Some(("says that it is free", Self::say_that_it_is_free))
            }
            At::Dying => Some((
                "is dead at last: its other descriptor is closed",
                |next, own| {
                    next.unlock_all(own);
                    next.come(own, At::Dead);
                },
            )),
            _ => None,
        }
    }

    /// The transaction that looks along the line, or its beginning.
    fn looking(&self) -> Option<(&'static str, Act<'a>)> {
        if self.world.writer.is_some() {
            return None;
        }
        if !self.setting.splits {
            return Some(("looks along the line", Self::look_now));
        }
        Some(("has the write lock and asks the kernel", |next, own| {
            next.world.writer = u8::try_from(own).ok();
            let seen = next.world.locked;
            let own = &mut next.world.processes[own];
            own.seen = seen;
            own.watch = Watch::default();
            own.is_called = false;
            own.at = match own.at {
                At::Ready => At::Asking,
                _ => At::AskingAgain,
            };
        }))
    }

    fn look_now(&mut self, process: usize) {
        self.look(process, self.world.locked);
    }

    fn execute(&mut self, process: usize) {
        let own = &mut self.world.processes[process];
        own.job = Job::Running;
        if own.at == At::Dead {
            // The copy of what was not meant for it was the last.
            self.unlock(process, &[Byte::Waiting, Byte::Supervisor]);
        }
    }

    fn move_to_new_guard(&mut self, process: usize) {
        let new = usize::from(ticket(process, 1));
        self.world.locked |= byte(new, Byte::Supervisor);
        self.say_file(new);
        self.world.processes[process].guard = self.world.guard;
        self.come(process, At::Moving);
    }

    fn say_that_it_is_free(&mut self, process: usize) {
        let told = std::mem::take(&mut self.world.processes[process].told);
        for other in 0..self.world.processes.len() {
            let was_told = told >> ticket(other, 0) & 1 != 0 || told >> ticket(other, 1) & 1 != 0;
            if was_told && self.is_in_section(other) && !self.world.processes[other].excused {
                self.fail(Broken::ForceLied, self.name(other));
            }
        }
        self.come(process, At::Done);
    }

    /// What happens to a process, by people, its job, time or death.
    fn fates(&self, process: usize) -> Vec<(&'static str, Act<'a>)> {
        let Process {
            at, job, is_due, ..
        } = self.world.processes[process];
        let script = self.script(process);
        let may_write = self.world.writer.is_none();
        let mut fates: Vec<(&'static str, Act<'a>)> = Vec::new();
        if at == At::Absent {
            fates.push(("starts", Self::start));
            return fates;
        }
        if at == At::Waiting {
            if may_write && self.may_tick(process) {
                fates.push(("looks along the line at its slow tick", Self::look_now));
            }
            if self.setting.mishaps && self.has(Flaw::LeavesBeforeDeleting) {
                fates.push(("gives up and unlocks its bytes", |next, own| {
                    next.unlock_all(own);
                    next.world.processes[own].watch = Watch::default();
                    next.come(own, At::LeavingLast);
                }));
            } else if self.setting.mishaps && may_write {
                fates.push(("gives up and deletes its place", |next, own| {
                    next.delete_own(own);
                    next.world.processes[own].watch = Watch::default();
                    next.come(own, At::Leaving);
                }));
            }
        }
        if at == At::Supervising && job == Job::None && self.setting.mishaps && may_write {
            fates.push(("cannot delete its row", |next, own| {
                next.come(own, At::Ended);
            }));
        }
        if job != Job::None {
            fates.push(("its job ends", |next, own| {
                next.world.processes[own].job = Job::None;
                if next.world.processes[own].at == At::Dead {
                    next.unlock_all(own);
                }
            }));
        }
        if at == At::Holding && may_write {
            self.what_a_client_does(process, &mut fates);
        }
        if script.verb == Verb::Tie && matches!(at, At::Holding | At::Open) {
            fates.push(("its descriptor is closed", |next, own| {
                next.unlock(own, &[Byte::Descriptor]);
                next.come(own, At::Done);
            }));
        }
        if matches!(at, At::Supervising | At::Moved) && may_write && self.is_out_of_time(process) {
            // Late, but it may, while it lives.
            fates.push(("renews its lease", Self::extend));
        }
        let rests = |row: &Row| owner(row) == process && row.rest == Rest::Left;
        if is_due || self.world.rows.iter().any(rests) {
            fates.push(("its --at-least passes", Self::pass_at_least));
        }
        let has_nothing_to_kill = matches!(at, At::Done | At::Dead | At::Dying | At::Open)
            || script.verb == Verb::Tie && at == At::Holding;
        if self.world.deaths > 0 && !has_nothing_to_kill {
            fates.push(("is killed", Self::kill));
        }
        fates
    }

    /// Whether time alone makes a waiter look that nothing has called.
    fn may_tick(&self, process: usize) -> bool {
        let clocks = self.world.processes[process].watch.clocks;
        let is_of = |row: &Row| {
            clocks >> (row.ticket * 2) & 1 != 0 || clocks >> (row.ticket * 2 + 1) & 1 != 0
        };
        // The moments of a ticket whose row is gone come too.
        let rings = clocks != 0 && !self.world.rows.iter().any(is_of);
        !self.is_woken(process) && (rings || self.has_missed(process))
    }

    fn is_out_of_time(&self, process: usize) -> bool {
        self.row(process)
            .is_some_and(|row| !self.world.rows[row].has_time)
    }

    /// What whoever has a token does with it, or the descriptor.
    fn what_a_client_does(&self, process: usize, fates: &mut Vec<(&'static str, Act<'a>)>) {
        let is_tied = self.script(process).verb == Verb::Tie;
        let kernel = Kernel::new(self.world.guard, self.world.locked);
        let row = self.row(process).map(|row| &self.world.rows[row]);
        let is_over = |row: &Row| self.standing(row, &self.terms(row), &kernel).is_over();
        if row.is_none_or(is_over) {
            fates.push(("is told that its lease is over", Self::part));
            return;
        }
        fates.push(("is released by its token", |next, own| {
            next.give_back(own);
            next.part(own);
        }));
        if is_tied {
            fates.push(("is released by its descriptor", |next, own| {
                next.give_back(own);
                next.come(own, At::Ended);
            }));
        }
        if self.is_out_of_time(process) {
            fates.push(("is extended", Self::extend));
        }
    }

    /// Has no lease any more; its descriptor stays open for a while.
    fn part(&mut self, process: usize) {
        match self.script(process).verb {
            Verb::Tie => self.come(process, At::Open),
            _ => self.come(process, At::Done),
        }
    }

    fn extend(&mut self, process: usize) {
        if let Some(row) = self.row(process) {
            self.world.rows[row].has_time = true;
            self.wrote(process);
        }
    }

    fn pass_at_least(&mut self, process: usize) {
        self.world.processes[process].is_due = false;
        for row in &mut self.world.rows {
            if owner(row) == process && row.rest == Rest::Left {
                row.rest = Rest::Passed;
            }
        }
        for attempt in [0, 1] {
            self.ring(ticket(process, attempt), 1);
        }
    }

    /// What happens to a row.
    fn fates_of_row(&self, at: usize) -> Vec<(&'static str, Act<'a>)> {
        let row = &self.world.rows[at];
        let mut fates: Vec<(&'static str, Act<'a>)> = Vec::new();
        if row.is_held && row.has_time {
            fates.push(("its time to live passes", |next, at| {
                next.world.rows[at].has_time = false;
                next.ring(next.world.rows[at].ticket, 0);
            }));
        }
        if self.setting.mishaps && self.world.writer.is_none() {
            let kernel = Kernel::new(self.world.guard, self.world.locked);
            if self.standing(row, &self.terms(row), &kernel).is_over() {
                fates.push(("its row is swept away", |next, at| {
                    next.bury(at);
                    next.wrote(usize::MAX);
                }));
            }
        }
        fates
    }
}
