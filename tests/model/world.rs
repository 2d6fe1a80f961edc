//! The model's world: what the database, the kernel and each process know at one moment; and which worlds are the same.
//!
//! Time is only what has passed and what has not: any time to live may pass at any moment, in any order. A stopped
//! process is one that takes no step, as any may do for ever.

use super::{Script, Setting};

/// How far a process is. What it does next is told in `steps`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// Not started yet.
    Absent,
    /// Its bytes are locked, its ticket is not written.
    Ready,
    /// In its transaction, with the kernel's answers; its ticket is not written.
    Asking,
    /// The same, with a place in the line.
    AskingAgain,
    /// In the line, and blocked unless what it watches has come.
    Waiting,
    /// With a flaw: in the line and not watching yet, or not standing there any more as far as others can tell.
    Lagging,
    Hasty,
    /// Its place in the line is given up; its bytes are locked.
    Leaving,
    /// With a flaw: its bytes are unlocked and its place is not given up.
    LeavingLast,
    /// The grant is committed; its waiting byte is locked.
    Granted,
    /// With a flaw: the grant is committed, and none of its bytes is locked.
    GrantedUnlocked,
    /// Of a run: the job's byte is not locked.
    Entered,
    /// The job's byte is locked, the job not started.
    Armed,
    /// Of a run that has started its job.
    Supervising,
    /// A byte of the new guard file is locked, and the row does not say so.
    Moving,
    /// The row says so, and the old bytes are locked.
    Moved,
    /// The lease is gone and its bytes are given back, but the job may run on for a while.
    Lost,
    /// The row is gone; the bytes are locked.
    Ended,
    /// The job's byte alone is locked.
    EndedHalf,
    /// With a flaw: the bytes are unlocked, the row is there.
    EndedFirst,
    /// A client that has the lease.
    Holding,
    /// A client's descriptor is open, which holds nothing for anybody that knows of it.
    Open,
    /// A forced release that waits until those are gone whom it told.
    Expecting,
    Done,
    /// Killed, but the descriptor of the job's byte is not closed yet.
    Dying,
    Dead,
}

impl At {
    pub fn is_in_line(self) -> bool {
        matches!(
            self,
            At::Waiting | At::AskingAgain | At::Lagging | At::Hasty | At::LeavingLast
        )
    }

    /// Whether it vouches for nothing any more, though there may be a row that says so.
    pub fn is_over(self) -> bool {
        matches!(self, At::EndedHalf | At::Done | At::Dying | At::Dead)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Job {
    None,
    /// Between fork and exec: with a copy of every descriptor.
    Forked,
    Running,
}

#[derive(Clone, Copy, Debug)]
pub struct Process {
    /// For people: the process's number before any were exchanged for each other.
    pub label: u8,
    pub script: u8,
    pub at: At,
    /// Of its tickets this one is current; the next is drawn where the guard file was replaced.
    pub attempt: u8,
    /// Which guard file it has open.
    pub guard: u8,
    /// Which guard file the descriptor that it was given is open on.
    pub descriptor: u8,
    pub job: Job,
    /// Others may enter, by an exception that the contract states.
    pub excused: bool,
    /// Its `--at-least` has not passed, whatever any row says.
    pub is_due: bool,
    /// While it waits: somebody has written, if that may be news to it, or one of its moments has come.
    pub is_called: bool,
    pub watch: Watch,
    /// Which bytes the kernel said were locked, when it was asked.
    pub seen: u64,
    /// Whom a forced release told to end.
    pub told: u16,
}

/// What a waiter has to wait for; see [`tenure::rules::obstacle::Obstacle`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    pub bytes: u64,
    pub is_unguarded: bool,
    pub clocks: u32,
    /// Four bits for each ticket: how it stood, from 1 on.
    pub behind: u64,
}

/// A ticket's row. Tickets are numbered by their processes, two for each.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    pub ticket: u8,
    pub id: u8,
    pub is_held: bool,
    pub mark: Mark,
    pub has_time: bool,
    pub rest: Rest,
    pub is_revoked: bool,
    pub slot: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    None,
    /// Bytes drawn with the ticket of this number.
    Own {
        bytes: u8,
        has_tree: bool,
    },
    Tied {
        bytes: u8,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    None,
    Left,
    Passed,
}

#[derive(Clone, Copy)]
pub enum Byte {
    Waiting,
    Supervisor,
    Tree,
    Descriptor,
}

/// A byte that nobody locks.
pub const NOBODYS: i64 = 63;

pub fn byte(ticket: usize, which: Byte) -> u64 {
    1 << (ticket * 4 + which as usize)
}

pub fn number(byte: u64) -> i64 {
    i64::from(byte.trailing_zeros())
}

#[derive(Clone, Debug)]
pub struct World {
    pub processes: Vec<Process>,
    /// In the order of the line.
    pub rows: Vec<Row>,
    pub locked: u64,
    /// Which guard file each ticket's bytes are in.
    pub files: u16,
    pub guard: u8,
    pub serial: u8,
    pub last_fence: u8,
    /// Who has the write lock, where a transaction is more than one step.
    pub writer: Option<u8>,
    pub deaths: u8,
    pub replacements: u8,
}

impl World {
    pub fn new(setting: &Setting) -> Self {
        let process = |(label, script): (usize, &Script)| Process {
            label: u8::try_from(label).expect("they are few"),
            script: u8::try_from(
                setting
                    .scripts
                    .iter()
                    .position(|other| other == script)
                    .expect("it is one of them"),
            )
            .expect("they are few"),
            at: At::Absent,
            attempt: 0,
            guard: 0,
            descriptor: 0,
            job: Job::None,
            excused: false,
            is_due: false,
            is_called: false,
            watch: Watch::default(),
            seen: 0,
            told: 0,
        };
        Self {
            processes: setting.scripts.iter().enumerate().map(process).collect(),
            rows: Vec::new(),
            locked: 0,
            files: 0,
            guard: 0,
            serial: 0,
            last_fence: 0,
            writer: None,
            deaths: setting.deaths,
            replacements: setting.replacements,
        }
    }
}

// Worlds that differ only in names are one.
impl World {
    /// The world as it is remembered, with processes of one script in an order of their own, and a key that is the same
    /// for equal worlds.
    pub fn normalized(mut self) -> (Self, Vec<u8>) {
        self.renumber();
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.sort_by_key(|process| self.likeness(*process));
        if !order.is_sorted() {
            self.rearrange(&order);
        }
        let key = self.key();
        (self, key)
    }

    /// Of the numbers only their order counts.
    fn renumber(&mut self) {
        let mut used: Vec<u8> = self.rows.iter().map(|row| row.id).collect();
        used.push(self.last_fence);
        used.push(0);
        used.sort_unstable();
        used.dedup();
        let rank = |number: u8| {
            let place = used.iter().position(|other| *other == number);
            u8::try_from(place.expect("it is used")).expect("they are few")
        };
        for row in &mut self.rows {
            row.id = rank(row.id);
        }
        self.last_fence = rank(self.last_fence);
        self.serial = u8::try_from(used.len() - 1).expect("they are few");
    }

    /// What tells processes of one script from each other.
    fn likeness(&self, process: usize) -> (u8, [u8; 10], [u8; 2], u8) {
        let own = &self.processes[process];
        let place = |ticket: usize| {
            let mut rows = self.rows.iter();
            let at = rows.position(|row| usize::from(row.ticket) == ticket);
            at.map_or(u8::MAX, |at| u8::try_from(at).unwrap_or(u8::MAX))
        };
        let bytes = u8::try_from(self.locked >> (process * 8) & 0xff).unwrap_or(0);
        (
            own.script,
            own.plain(),
            [place(process * 2), place(process * 2 + 1)],
            bytes,
        )
    }

    fn rearrange(&mut self, order: &[usize]) {
        let mut new_of = vec![0; order.len()];
        for (new, old) in order.iter().enumerate() {
            new_of[*old] = new;
        }
        let spread = |bits: u64, width: usize| {
            let mask = (1 << width) - 1;
            new_of.iter().enumerate().fold(0, |all, (old, new)| {
                all | (bits >> (old * width) & mask) << (new * width)
            })
        };
        let tickets =
            |bits: u16| u16::try_from(spread(u64::from(bits), 2)).expect("as wide as before");
        let ticket = |ticket: u8| {
            u8::try_from(new_of[usize::from(ticket / 2)] * 2).expect("they are few") + ticket % 2
        };
        self.locked = spread(self.locked, 8);
        self.files = tickets(self.files);
        self.writer = self
            .writer
            .map(|writer| u8::try_from(new_of[usize::from(writer)]).expect("they are few"));
        self.processes = order.iter().map(|old| self.processes[*old]).collect();
        for own in &mut self.processes {
            own.seen = spread(own.seen, 8);
            own.told = tickets(own.told);
            own.watch.bytes = spread(own.watch.bytes, 8);
            own.watch.behind = spread(own.watch.behind, 8);
            own.watch.clocks =
                u32::try_from(spread(u64::from(own.watch.clocks), 4)).expect("as wide as before");
        }
        for row in &mut self.rows {
            row.ticket = ticket(row.ticket);
            row.mark = match row.mark {
                Mark::None => Mark::None,
                Mark::Own { bytes, has_tree } => Mark::Own {
                    bytes: ticket(bytes),
                    has_tree,
                },
                Mark::Tied { bytes } => Mark::Tied {
                    bytes: ticket(bytes),
                },
            };
        }
    }

    fn key(&self) -> Vec<u8> {
        let mut key = Vec::with_capacity(96);
        for own in &self.processes {
            key.extend(own.plain());
            key.extend(own.watch.bytes.to_le_bytes());
            key.extend(own.watch.clocks.to_le_bytes());
            key.extend(own.watch.behind.to_le_bytes());
            key.extend(own.seen.to_le_bytes());
            key.extend(own.told.to_le_bytes());
        }
        for row in &self.rows {
            let (mark, bytes) = match row.mark {
                Mark::None => (0, 0),
                Mark::Own { bytes, has_tree } => (1 + u8::from(has_tree), bytes),
                Mark::Tied { bytes } => (3, bytes),
            };
            let flags = u8::from(row.is_held)
                | u8::from(row.has_time) << 1
                | u8::from(row.is_revoked) << 2
                | (row.rest as u8) << 3;
            key.extend([row.ticket, row.id, flags, mark, bytes, row.slot]);
        }
        key.extend(self.locked.to_le_bytes());
        key.extend(self.files.to_le_bytes());
        key.extend([
            self.guard,
            self.last_fence,
            self.writer.map_or(u8::MAX, |writer| writer),
            self.deaths,
            self.replacements,
        ]);
        key
    }
}

impl Process {
    /// All of it but what names others.
    fn plain(&self) -> [u8; 10] {
        [
            self.script,
            self.at as u8,
            self.attempt,
            self.guard,
            self.descriptor,
            self.job as u8,
            u8::from(self.excused),
            u8::from(self.is_due),
            u8::from(self.is_called),
            u8::from(self.watch.is_unguarded),
        ]
    }
}

pub fn ticket(process: usize, attempt: u8) -> u8 {
    u8::try_from(process * 2).expect("they are few") + attempt
}

pub fn owner(row: &Row) -> usize {
    usize::from(row.ticket / 2)
}
