//! What is asked of a world: by the program, of the very functions that it asks; and by nobody, of what is so. And what
//! must be so in every world.

use std::io;

use super::world::{At, Byte, Job, Mark, NOBODYS, Process, Rest, Row, World, byte, number, owner};
use super::{Flaw, Script, Setting, Verb};
use tenure::clock::{Clock, Now};
use tenure::lock::{Expiry, GuardMark, Mode, Standing, Terms};
use tenure::rules::line::{self, Relation};
use tenure::rules::standing::{Vouch, standing, stands_in_line};

/// What is wrong, in a word and for people.
#[derive(Clone, Debug)]
pub struct Wrong {
    pub what: Broken,
    pub who: String,
}

/// Which promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Two that exclude each other are in their sections.
    Exclusion,
    /// One enters past another that lives, and holds what it wants or came before.
    Order,
    Fence,
    Slot,
    /// Two that are in one line say different numbers of slots.
    Slots,
    AtLeast,
    /// A living ticket was removed.
    Buried,
    /// Nobody moves, and one that waits may enter.
    LostWakeUp,
    /// One that waits may enter, and not even its slow tick will tell.
    NoTick,
    /// Nothing vouches for one that lives and has time left.
    Unproved,
    /// A waiter that nothing will wake.
    WatchesNothing,
    /// One looks again and again in vain.
    Spin,
    /// Everything has ended but this.
    LeftOver,
    /// A forced release said that a job had ended.
    ForceLied,
}

fn wrong<T>(what: Broken, who: impl Into<String>) -> Result<T, Wrong> {
    Err(Wrong {
        what,
        who: who.into(),
    })
}

/// Which bytes of which guard file are locked.
pub struct Kernel {
    pub inode: u64,
    pub locked: u64,
}

impl Kernel {
    pub fn new(guard: u8, locked: u64) -> Self {
        Self {
            inode: u64::from(guard),
            locked,
        }
    }
}

impl Vouch for Kernel {
    fn inode(&self) -> u64 {
        self.inode
    }

    fn is_locked(&self, byte: i64) -> io::Result<bool> {
        Ok(self.locked & (1 << byte) != 0)
    }
}

const NOW: Now = Now { boot: 0, wall: 0 };

/// A world in its setting: what can be asked, and done.
pub struct Scene<'a> {
    pub world: World,
    pub setting: &'a Setting,
    pub clock: Clock,
    /// What was found to be wrong while the world was made.
    pub wrong: Option<Wrong>,
}

impl<'a> Scene<'a> {
    pub fn new(world: World, setting: &'a Setting) -> Self {
        Self {
            world,
            setting,
            clock: Clock::wall_only(),
            wrong: None,
        }
    }

    pub fn fail(&mut self, what: Broken, who: impl Into<String>) {
        let who = who.into();
        self.wrong.get_or_insert(Wrong { what, who });
    }

    pub fn has(&self, flaw: Flaw) -> bool {
        self.setting.flaw == Some(flaw)
    }

    pub fn script(&self, process: usize) -> &Script {
        &self.setting.scripts[usize::from(self.world.processes[process].script)]
    }

    pub fn script_of(&self, row: &Row) -> &Script {
        self.script(owner(row))
    }

    pub fn ticket(&self, process: usize) -> usize {
        process * 2 + usize::from(self.world.processes[process].attempt)
    }

    pub fn row(&self, process: usize) -> Option<usize> {
        let ticket = self.ticket(process);
        self.world
            .rows
            .iter()
            .position(|row| usize::from(row.ticket) == ticket)
    }

    pub fn name(&self, process: usize) -> String {
        let Process { label, at, .. } = self.world.processes[process];
        format!("{label} ({:?}, {at:?})", self.script(process).verb)
    }

    // What the program asks.

    pub fn mark(&self, row: &Row) -> Option<GuardMark> {
        match row.mark {
            Mark::None => None,
            Mark::Own { bytes, has_tree } => {
                let bytes = usize::from(bytes);
                let which = match self.script_of(row).mode {
                    Mode::Exclusive => Byte::Supervisor,
                    Mode::Shared | Mode::Slots(_) => Byte::Waiting,
                };
                Some(GuardMark {
                    inode: self.file(bytes),
                    waiting: number(byte(bytes, which)),
                    supervisor: number(byte(bytes, Byte::Supervisor)),
                    tree: has_tree.then(|| number(byte(bytes, Byte::Tree))),
                })
            }
            Mark::Tied { bytes } => {
                let bytes = usize::from(bytes);
                let tied = number(byte(bytes, Byte::Descriptor));
                Some(GuardMark {
                    inode: self.file(bytes),
                    waiting: NOBODYS,
                    supervisor: tied,
                    tree: Some(tied),
                })
            }
        }
    }

    fn file(&self, bytes: usize) -> u64 {
        u64::from(self.world.files >> bytes & 1)
    }

    /// The moments have numbers: of the ticket, and which of its two.
    pub fn terms(&self, row: &Row) -> Terms {
        let moment = |left, which| Expiry {
            boot_id: None,
            boot: None,
            wall: if left {
                1 + i64::from(row.ticket) * 2 + which
            } else {
                0
            },
        };
        Terms {
            expiry: moment(row.has_time, 0),
            earliest_end: (row.rest != Rest::None).then(|| moment(row.rest == Rest::Left, 1)),
            mark: self.mark(row),
        }
    }

    pub fn standing(&self, row: &Row, terms: &Terms, kernel: &Kernel) -> Standing {
        if row.is_held {
            if self.has(Flaw::ClockBeforeProof) && !row.has_time && row.rest != Rest::Left {
                return Standing::Expired;
            }
            let mut terms = terms.clone();
            if self.has(Flaw::ForgetsTheJob)
                && let Some(mark) = &mut terms.mark
                && !mark.is_tied()
            {
                mark.tree = Some(NOBODYS);
            }
            return standing(&terms, &self.clock, NOW, Some(kernel)).expect("this kernel answers");
        }
        let stands =
            stands_in_line(terms.mark.as_ref(), Some(kernel)).expect("this kernel answers");
        if stands || self.has(Flaw::TrustsWaiters) {
            Standing::Waiting
        } else {
            Standing::Crashed
        }
    }

    /// What is so, with no question to the program: whether a ticket is to be respected.
    pub fn lives(&self, row: &Row) -> bool {
        let process = &self.world.processes[owner(row)];
        let is_proved = |bytes: u8| self.file(usize::from(bytes)) == u64::from(self.world.guard);
        if !row.is_held {
            let is_current = row.ticket % 2 == process.attempt;
            return is_current && process.at.is_in_line() && is_proved(row.ticket);
        }
        if row.rest == Rest::Left {
            return true;
        }
        match row.mark {
            Mark::Own { bytes, has_tree } if is_proved(bytes) => {
                let run_lives = !process.at.is_over() || process.job == Job::Forked;
                // To the kernel there is no difference between the job and who has not closed its descriptor yet.
                let is_ending = matches!(process.at, At::EndedHalf | At::Dying);
                let job_lives = process.job == Job::Running || is_ending;
                run_lives || row.has_time && (job_lives || !has_tree)
            }
            Mark::Tied { bytes } if is_proved(bytes) => {
                self.world.locked & byte(usize::from(bytes), Byte::Descriptor) != 0
            }
            _ => row.has_time,
        }
    }

    /// By the rule alone, over all that live: who keeps a request from entering at a place in the line.
    pub fn keeps_out(&self, process: usize, place: u8) -> Option<usize> {
        let script = self.script(process);
        let own = self.ticket(process);
        let mut alike = 0;
        for row in &self.world.rows {
            let other = self.script_of(row);
            let counts = usize::from(row.ticket) != own
                && other.names & script.names != 0
                && (row.is_held || row.id < place)
                && self.lives(row);
            if counts {
                match line::relation(script.mode, other.mode) {
                    Relation::Compatible => {}
                    Relation::Blocks => return Some(owner(row)),
                    Relation::TakesSlot => {
                        alike += 1;
                        if Mode::Slots(alike) == script.mode {
                            return Some(owner(row));
                        }
                    }
                }
            }
        }
        None
    }

    pub fn is_in_section(&self, process: usize) -> bool {
        let Process { at, job, .. } = self.world.processes[process];
        match self.script(process).verb {
            Verb::Run => job == Job::Running,
            Verb::Acquire | Verb::Tie => matches!(at, At::Granted | At::Holding),
            Verb::Force { .. } => false,
        }
    }

    // Every world must be right.

    pub fn settled(mut self) -> Result<World, Wrong> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        for process in 0..self.world.processes.len() {
            if self.world.processes[process].excused {
                continue;
            }
            match self.row(process).map(|at| self.world.rows[at]) {
                // The exception: time has ended it.
                Some(row) if row.is_held && !self.lives(&row) && !row.has_time => {
                    self.world.processes[process].excused = true;
                }
                Some(row) if self.is_in_section(process) && !self.lives(&row) => {
                    return wrong(Broken::Unproved, self.name(process));
                }
                _ => {}
            }
        }
        for lock in [1, 2] {
            let inside: Vec<usize> = (0..self.world.processes.len())
                .filter(|process| self.script(*process).names & lock != 0)
                .filter(|process| self.is_in_section(*process))
                .filter(|process| !self.world.processes[*process].excused)
                .collect();
            for (at, one) in inside.iter().enumerate() {
                let mode = self.script(*one).mode;
                let mut alike = 1;
                for other in &inside[at + 1..] {
                    match line::relation(mode, self.script(*other).mode) {
                        Relation::Compatible => {}
                        Relation::TakesSlot => alike += 1,
                        Relation::Blocks => {
                            let both = format!("{} and {}", self.name(*one), self.name(*other));
                            return wrong(Broken::Exclusion, both);
                        }
                    }
                }
                if matches!(mode, Mode::Slots(slots) if alike > slots) {
                    return wrong(Broken::Exclusion, format!("{alike} in slots"));
                }
            }
        }
        if let Some((one, other)) = self.says_other_slots() {
            let both = format!("{} and {}", self.name(one), self.name(other));
            return wrong(Broken::Slots, both);
        }
        for process in 0..self.world.processes.len() {
            let Process { at, watch, .. } = self.world.processes[process];
            if at != At::Waiting {
                continue;
            }
            if watch.bytes == 0 && watch.clocks == 0 && !watch.is_unguarded {
                return wrong(Broken::WatchesNothing, self.name(process));
            }
            // Whoever else is stopped: the slow tick must find what no byte told.
            if !self.is_woken(process) && self.may_enter(process) && !self.has_missed(process) {
                return wrong(Broken::NoTick, self.name(process));
            }
        }
        Ok(self.world)
    }

    /// Two who live, hold a lock or wait for it, and do not say the same number of slots.
    fn says_other_slots(&self) -> Option<(usize, usize)> {
        let slots = |row: &Row| match self.script_of(row).mode {
            Mode::Slots(slots) => Some((self.script_of(row).names, slots)),
            Mode::Exclusive | Mode::Shared => None,
        };
        let living = self.world.rows.iter().filter(|row| self.lives(row));
        let living: Vec<_> = living
            .filter(|row| !self.world.processes[owner(row)].excused)
            .filter_map(|row| Some((owner(row), slots(row)?)))
            .collect();
        living.iter().find_map(|(one, (name, slots))| {
            let other = living
                .iter()
                .find(|(_, (other_name, other))| other_name == name && other != slots);
            other.map(|(other, _)| (*one, *other))
        })
    }

    pub fn may_enter(&self, process: usize) -> bool {
        self.row(process)
            .is_some_and(|row| self.keeps_out(process, self.world.rows[row].id).is_none())
    }

    /// What must be so when nobody moves who is not moved by people, time or death.
    pub fn check_rest(&self, is_the_end: bool) -> Result<(), Wrong> {
        for process in 0..self.world.processes.len() {
            let Process { at, guard, .. } = self.world.processes[process];
            // That the guard file was replaced is found by the slow tick alone.
            if at == At::Waiting && guard == self.world.guard && self.may_enter(process) {
                return wrong(Broken::LostWakeUp, self.name(process));
            }
            if is_the_end && !matches!(at, At::Done | At::Dead) {
                return wrong(Broken::LeftOver, self.name(process));
            }
        }
        let row = self.world.rows.iter().find(|row| self.lives(row));
        match row.filter(|_| is_the_end) {
            Some(row) => wrong(Broken::LeftOver, self.name(owner(row))),
            None => Ok(()),
        }
    }
}
