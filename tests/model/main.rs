//! A model of the protocol, searched through: every order in which a few processes can take their steps, and every
//! place in which one of them can be killed, stopped or replaced under.
//!
//! `world` has the processes, the kernel and the database; `steps` and `acts` what can happen in it, `scene` what must be
//! so in each of its states; `search` goes to all of these. The rules of `queue`, `line`, `standing` and `obstacle` are the
//! program's own: `line` answers what they ask. With a [`Flaw`] the model does what the program must not do, to show that the search would find it.
//!
//! What is left out: waits inside of other leases, which `line` tests by itself; a reboot; a store whose guard proves
//! nothing; that SQLite's transactions are what they are said to be, and the kernel's locks; and how long anything takes.

mod acts;
mod line;
mod scene;
mod search;
mod steps;
mod world;

use std::num::NonZero;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

use self::scene::Broken;
use self::search::explore;
use tenure::lock::Mode;

/// What one process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script {
    pub verb: Verb,
    /// A bit for each lock.
    pub names: u8,
    pub mode: Mode,
    pub waits: bool,
    pub at_least: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Run,
    /// And whoever got the token, until he releases it, dies, or thinks that it has expired.
    Acquire,
    /// `acquire --fd`, and whoever has the descriptor open.
    Tie,
    Force {
        now: bool,
    },
}

/// Who takes part, and what may befall them.
#[derive(Clone, Debug, Default)]
pub struct Setting {
    pub scripts: Vec<Script>,
    /// How many of them are killed, at most.
    pub deaths: u8,
    /// How often the guard file is replaced.
    pub replacements: u8,
    /// Whether waiters may give up, housekeeping bury the dead, and the disk be full when a run ends.
    pub mishaps: bool,
    /// Whether bytes may change between the questions that a transaction asks and its commit.
    pub splits: bool,
    pub flaw: Option<Flaw>,
}

/// A mistake that somebody could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// The byte of a place in the line is unlocked before the grant is committed.
    WakesOthersFirst,
    /// A holder's waiting byte is watched, which nobody holds.
    WatchesTheWrongByte,
    /// Who is woken believes that it is its turn.
    DoesNotLookAgain,
    UnlocksBeforeDeleting,
    LeavesBeforeDeleting,
    /// A ticket in the line is taken for a living one without a question to the kernel.
    TrustsWaiters,
    /// Only the next ahead is looked at, and it may share the lock.
    LooksAtTheNearestOnly,
    /// The ticket is written first.
    LocksAfterCommit,
    /// The job's byte is locked when the job has been started without it.
    LocksTreeAfterStart,
    FenceIsThePlace,
    /// What was written between the look and the wait is taken for known.
    PollsFromItsWaitOn,
    /// The time to live ends a lease whose holder lives.
    ClockBeforeProof,
    /// A forced release deletes the row of a run that lives, and nobody has asked for that.
    ForcesTheLiving,
    /// A killed run's job is not respected.
    ForgetsTheJob,
    /// Of several slots only the nearest is watched.
    WatchesOneSlot,
    /// Who waits for a slot waits until the one before it has had its own.
    WaitsForTheNextToEnd,
    EndsBeforeAtLeast,
    /// A lease is tied to a descriptor of a guard file that was replaced.
    TiesToWhatIsLost,
    /// Somebody who has opened the guard file before it was replaced judges those who came after.
    AsksTheOldGuard,
    /// Behind a lock that rests, or that an orphan has, nobody looks whether it was forced away.
    PollsBehindBareLeasesAlone,
    /// The slow tick goes by whoever is next in line, and not by the lease that it waits for.
    ForgetsWhoseLeaseItIs,
    /// The slow tick finds nothing as long as the rows are there.
    TicksForTheRowAlone,
    /// Behind the first that is in its way nobody looks for another number of slots.
    CountsSlotsUpToTheFirst,
}

const BOTH: u8 = 3;

const fn script(verb: Verb, names: u8, mode: Mode) -> Script {
    Script {
        verb,
        names,
        mode,
        waits: true,
        at_least: false,
    }
}

const fn run(names: u8) -> Script {
    script(Verb::Run, names, Mode::Exclusive)
}

const fn shared(names: u8) -> Script {
    script(Verb::Run, names, Mode::Shared)
}

const SLOT: Script = script(Verb::Run, 1, Mode::Slots(2));
/// With another number.
const OTHER_SLOT: Script = script(Verb::Run, 1, Mode::Slots(3));
const TRY: Script = Script {
    waits: false,
    ..run(1)
};
const RESTING: Script = Script {
    at_least: true,
    ..run(1)
};
const BARE: Script = script(Verb::Acquire, 1, Mode::Exclusive);
const BARE_RESTING: Script = Script {
    at_least: true,
    ..BARE
};
const BARE_SHARED: Script = script(Verb::Acquire, 1, Mode::Shared);
const BARE_SLOT: Script = script(Verb::Acquire, 1, Mode::Slots(2));
const TIED: Script = script(Verb::Tie, 1, Mode::Exclusive);
const FORCE: Script = script(Verb::Force { now: false }, 1, Mode::Exclusive);
const FORCE_NOW: Script = script(Verb::Force { now: true }, 1, Mode::Exclusive);

/// One of each kind.
const ALL: [Script; 17] = [
    run(1),
    run(2),
    run(BOTH),
    shared(1),
    shared(BOTH),
    SLOT,
    OTHER_SLOT,
    TRY,
    RESTING,
    BARE,
    BARE_RESTING,
    BARE_SHARED,
    BARE_SLOT,
    TIED,
    script(Verb::Tie, 1, Mode::Shared),
    FORCE,
    FORCE_NOW,
];

/// Of each way to hold a lock, and to lose it.
const WHERE_IT_IS_REPLACED: [Script; 5] = [run(1), RESTING, BARE_SHARED, TIED, FORCE];

/// Of each way to share a lock, or not.
const SAME: [Script; 4] = [run(1), shared(1), SLOT, BARE];

/// Every choice of so many of these, each as often as one likes.
fn choices(scripts: &[Script], many: usize) -> Vec<Vec<Script>> {
    if many == 0 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (at, first) in scripts.iter().enumerate() {
        for mut rest in choices(&scripts[at..], many - 1) {
            rest.insert(0, *first);
            all.push(rest);
        }
    }
    all
}

/// Searches all of these, on all processors; tells how far that was.
fn search(settings: &[Setting]) {
    let began = Instant::now();
    let next = AtomicUsize::new(0);
    let (worlds, steps) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some(setting) = settings.get(next.fetch_add(1, Relaxed)) {
            let outcome = explore(setting);
            if let Some(mistake) = outcome.mistake {
                panic!("{mistake}");
            }
            worlds.fetch_add(outcome.worlds, Relaxed);
            steps.fetch_add(outcome.steps, Relaxed);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    println!(
        "{} settings, {} states, {} steps, {:?}",
        settings.len(),
        worlds.into_inner(),
        steps.into_inner(),
        began.elapsed()
    );
}

/// Whatever can happen in each of these but that the guard file is replaced.
fn with_all_faults(choices: Vec<Vec<Script>>, deaths: u8) -> Vec<Setting> {
    let setting = |scripts| Setting {
        scripts,
        deaths,
        replacements: 0,
        mishaps: true,
        splits: true,
        flaw: None,
    };
    choices.into_iter().map(setting).collect()
}

/// The guard file is replaced once, and one is killed.
fn with_replacement(choices: Vec<Vec<Script>>) -> Vec<Setting> {
    let setting = |scripts| Setting {
        scripts,
        deaths: 1,
        replacements: 1,
        ..Setting::default()
    };
    choices.into_iter().map(setting).collect()
}

fn with_a_death(choices: Vec<Vec<Script>>) -> Vec<Setting> {
    let setting = |scripts| Setting {
        scripts,
        deaths: 1,
        ..Setting::default()
    };
    choices.into_iter().map(setting).collect()
}

#[test]
fn any_two_get_on_whatever_befalls_them() {
    search(&with_all_faults(choices(&ALL, 2), 2));
}

#[test]
fn any_two_get_on_when_the_guard_file_is_replaced() {
    search(&with_replacement(choices(&WHERE_IT_IS_REPLACED, 2)));
}

#[test]
fn three_who_want_the_same_get_on_though_one_is_killed() {
    search(&with_a_death(choices(&SAME, 3)));
}

#[test]
fn one_of_three_says_another_number_of_slots() {
    let between = [run(1), shared(1), SLOT, BARE];
    let choices = between.map(|between| vec![OTHER_SLOT, between, SLOT]);
    search(&with_a_death(choices.to_vec()));
}

/// How many processes `TENURE_MODEL` wants to see together: in a release build, three of all kinds take some minutes.
#[test]
fn more_get_on_where_that_is_asked_for() {
    let Some(many) = std::env::var_os("TENURE_MODEL") else {
        return;
    };
    let many = many.to_str().and_then(|many| many.parse().ok());
    let many = many.expect("it is a number of processes");
    search(&with_all_faults(choices(&ALL, many), 2));
    search(&with_replacement(choices(&WHERE_IT_IS_REPLACED, many)));
    search(&with_a_death(choices(&SAME, many + 1)));
}

/// What the search says of a program that makes this mistake.
fn of_flaw(flaw: Flaw, scripts: &[Script]) -> Option<Broken> {
    let setting = Setting {
        scripts: scripts.to_vec(),
        deaths: u8::from(flaw != Flaw::AsksTheOldGuard),
        replacements: u8::from(matches!(
            flaw,
            Flaw::TiesToWhatIsLost | Flaw::AsksTheOldGuard
        )),
        mishaps: flaw == Flaw::LeavesBeforeDeleting,
        flaw: Some(flaw),
        ..Setting::default()
    };
    let outcome = explore(&setting);
    if let Some(mistake) = &outcome.mistake {
        println!("{flaw:?}, after {} states: {mistake}", outcome.worlds);
    }
    outcome.mistake.map(|mistake| mistake.wrong.what)
}

#[test]
fn every_flaw_is_found() {
    use Broken as B;
    use Flaw as F;
    let two: &[Script] = &[run(1), run(1)];
    let flaws: &[(Flaw, &[Script], Broken)] = &[
        (F::WakesOthersFirst, &[SLOT, SLOT, SLOT, SLOT], B::Buried),
        (F::WatchesTheWrongByte, &[shared(1), run(1)], B::Spin),
        (
            F::DoesNotLookAgain,
            &[shared(1), shared(1), run(1)],
            B::Order,
        ),
        (F::UnlocksBeforeDeleting, two, B::Buried),
        (
            F::LeavesBeforeDeleting,
            &[run(1), run(1), run(1)],
            B::Buried,
        ),
        (F::TrustsWaiters, &[run(1), run(1), run(1)], B::Spin),
        (
            F::LooksAtTheNearestOnly,
            &[run(1), shared(1), shared(1)],
            B::Order,
        ),
        (F::LocksAfterCommit, two, B::Buried),
        (F::LocksTreeAfterStart, two, B::Buried),
        (F::FenceIsThePlace, &[run(1), run(1), run(2)], B::Fence),
        (F::PollsFromItsWaitOn, &[BARE, run(1)], B::LostWakeUp),
        (F::ClockBeforeProof, two, B::Buried),
        (F::ForcesTheLiving, &[run(1), FORCE], B::ForceLied),
        (
            F::ForcesTheLiving,
            &[run(1), run(1), FORCE_NOW],
            B::Exclusion,
        ),
        (F::ForgetsTheJob, two, B::Buried),
        (F::WatchesOneSlot, &[SLOT, SLOT, SLOT], B::LostWakeUp),
        (
            F::WaitsForTheNextToEnd,
            &[SLOT, SLOT, SLOT, SLOT],
            B::LostWakeUp,
        ),
        (F::EndsBeforeAtLeast, &[RESTING, run(1)], B::AtLeast),
        (F::TiesToWhatIsLost, &[run(1), TIED], B::Unproved),
        (F::AsksTheOldGuard, &[run(1), FORCE], B::Buried),
        (
            F::PollsBehindBareLeasesAlone,
            &[RESTING, run(1), FORCE],
            B::LostWakeUp,
        ),
        (
            F::PollsBehindBareLeasesAlone,
            &[run(1), run(1), FORCE_NOW],
            B::LostWakeUp,
        ),
        (
            F::ForgetsWhoseLeaseItIs,
            &[BARE, shared(1), shared(1)],
            B::NoTick,
        ),
        (F::TicksForTheRowAlone, &[RESTING, run(1)], B::NoTick),
        (
            F::CountsSlotsUpToTheFirst,
            &[OTHER_SLOT, run(1), SLOT],
            B::Slots,
        ),
    ];
    let mut missed = Vec::new();
    for (flaw, scripts, broken) in flaws {
        let found = of_flaw(*flaw, scripts);
        if found != Some(*broken) {
            missed.push((flaw, broken, found));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
