//! Each system call of each command fails, or is where a signal comes: whatever is then, CMD never runs without the lock,
//! no lock is left behind, the exit status is one that is documented, and a message says what was wrong with what.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::strace::{SystemCall, calls_in, under};
use crate::support::{Call, Outcome, Running, SOON, Sandbox, Signal, until};
use crate::{Dice, tries_all};

/// How a call fails, or what comes at its beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Error(&'static str),
    /// And so do all of the same kind that follow.
    ErrorFromThenOn(&'static str),
    Signal(Signal),
    /// It is done, but takes so many milliseconds.
    Delay(u64),
}

/// Which call, by its name and its number among those of that name.
#[derive(Clone, Debug)]
struct Place {
    call: String,
    number: usize,
    fault: Fault,
}

impl Place {
    fn options(&self) -> [String; 4] {
        let Self { call, number, .. } = self;
        let what = match self.fault {
            Fault::Error(error) | Fault::ErrorFromThenOn(error) => format!("error={error}"),
            Fault::Signal(signal) => format!("signal={}", signal.as_raw()),
            Fault::Delay(delay) => format!("delay_enter={}", delay * 1000),
        };
        let on = if matches!(self.fault, Fault::ErrorFromThenOn(_)) {
            "+"
        } else {
            ""
        };
        [
            "-e".into(),
            format!("trace={call}"),
            "-e".into(),
            format!("inject={call}:{what}:when={number}{on}"),
        ]
    }
}

/// The errors of a call that are worth a try; none of one that cannot fail, or whose failure nobody looks at.
fn errors(call: &SystemCall) -> &'static [Fault] {
    use Fault::{Delay, Error, ErrorFromThenOn};
    let command = call.argument(1);
    match call.name.as_str() {
        "fcntl" if command.contains("DUPFD") => &[Error("EMFILE")],
        // To give a byte back, and to ask about a descriptor, cannot fail.
        "fcntl" if command.contains("GETFD") || call.arguments.contains("F_UNLCK") => &[],
        "openat" => &[
            Error("EMFILE"),
            Error("EIO"),
            Error("EINTR"),
            ErrorFromThenOn("ENFILE"),
        ],
        "read" | "getdents64" => &[Error("EIO"), Error("EINTR")],
        "pread64" => &[Error("EIO"), Error("EINTR"), ErrorFromThenOn("EIO")],
        "pwrite64" => &[
            Error("ENOSPC"),
            Error("EIO"),
            ErrorFromThenOn("ENOSPC"),
            ErrorFromThenOn("EIO"),
        ],
        "fsync" => &[Error("EIO"), ErrorFromThenOn("EIO"), Delay(1000)],
        "write" | "ftruncate" | "fallocate" => &[Error("ENOSPC"), Error("EIO")],
        "fcntl" => &[
            Error("ENOLCK"),
            Error("EINTR"),
            Error("EAGAIN"),
            Error("EINVAL"),
        ],
        "statx" | "newfstatat" | "statfs" => {
            &[Error("EIO"), Error("ENOMEM"), ErrorFromThenOn("EACCES")]
        }
        "readlink" | "access" | "getcwd" => &[Error("EIO"), Error("EACCES")],
        "link" | "linkat" | "unlink" => &[Error("EIO"), Error("ENOSPC"), Error("EPERM")],
        "clone" | "clone3" | "vfork" => &[Error("EAGAIN"), Error("ENOMEM")],
        "pipe2" | "eventfd2" | "signalfd4" => &[Error("EMFILE"), Error("ENFILE")],
        "getrandom" => &[Error("ENOSYS"), Error("EINTR")],
        "ppoll" | "poll" => &[Error("EINTR"), Error("ENOMEM")],
        "waitid" | "wait4" => &[Error("EINTR"), Error("ECHILD")],
        "fchown" | "fchmod" | "setpgid" | "prctl" => &[Error("EPERM")],
        "clock_nanosleep" => &[Error("EINTR")],
        _ => &[],
    }
}

/// Starts a command under strace, and waits for its end.
type Trace<'a> = &'a (dyn Fn(Call<'_>) -> Outcome + Sync);

/// What a command is tried in.
trait Scenario: Sync {
    fn name(&self) -> &'static str;

    /// Once for each directory. A live `run` holds the lock `B` in all of them but those that begin with nothing.
    fn begins_with_nothing(&self) -> bool {
        false
    }

    /// What the command line says.
    fn words(&self) -> Vec<String>;

    /// Before and after the command, whose lock is `A`; `trace` puts strace before it. Returns how it ended.
    fn play(&self, sandbox: &Sandbox, trace: Trace<'_>) -> Outcome {
        trace(sandbox.tenure().args(self.words()))
    }

    /// What has to be true of this command beyond what has to be of all.
    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome);
}

/// CMD that proves to have the lock: another `run` does not get it meanwhile.
const PROVING: &str =
    "echo ran >>ran; env -u TENURE_TOKEN tenure run -q A -- touch overlap; exit 7";

/// Its status.
const PROVED: i32 = 7;

fn take(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    let _ = fs::remove_file(path);
    text
}

/// Whether CMD ran, at most once and never beside another.
#[track_caller]
fn has_run(sandbox: &Sandbox, outcome: &Outcome) -> bool {
    let ran = take(&sandbox.path("ran"));
    assert!(
        ran.is_empty() || ran == "ran\n",
        "CMD ran again: {outcome:#?}"
    );
    let overlap = fs::remove_file(sandbox.path("overlap")).is_ok();
    assert!(!overlap, "CMD ran without the lock: {outcome:#?}");
    !ran.is_empty()
}

/// A `run` that finds its lock free.
struct RunFree {
    is_first: bool,
}

impl Scenario for RunFree {
    fn name(&self) -> &'static str {
        if self.is_first {
            "run, the first of all"
        } else {
            "run"
        }
    }

    fn begins_with_nothing(&self) -> bool {
        self.is_first
    }

    fn words(&self) -> Vec<String> {
        ["run", "A", "--", "sh", "-c", PROVING]
            .map(String::from)
            .to_vec()
    }

    fn play(&self, sandbox: &Sandbox, trace: Trace<'_>) -> Outcome {
        if self.is_first {
            sandbox.clear();
        }
        trace(sandbox.tenure().args(self.words()))
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        let has_run = has_run(sandbox, outcome);
        assert_eq!(
            has_run && outcome.signal.is_none(),
            outcome.code == Some(PROVED),
            "{outcome:#?}"
        );
        assert_free(sandbox, outcome, Duration::ZERO);
    }
}

/// The lock is free, at once or after some time at most. Where a signal has ended a command, the kernel may be about to
/// end what it had started.
#[track_caller]
fn assert_free(sandbox: &Sandbox, outcome: &Outcome, after: Duration) {
    let most = if outcome.signal.is_some() {
        after + Duration::from_secs(10)
    } else {
        after
    };
    let wait = format!("{}ms", most.as_millis());
    let next = sandbox
        .tenure()
        .args(["run", "--wait", &wait, "A", "--", "true"])
        .run();
    assert!(
        next.code == Some(0),
        "the lock was left behind: {next:#?} after {outcome:#?}"
    );
}

/// A `run` whose lock another holds.
struct RunBusy;

impl Scenario for RunBusy {
    fn name(&self) -> &'static str {
        "run, of a lock that is held"
    }

    fn words(&self) -> Vec<String> {
        ["run", "B", "--", "sh", "-c", "echo ran >>ran; exit 7"]
            .map(String::from)
            .to_vec()
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        assert!(!has_run(sandbox, outcome), "{outcome:#?}");
        assert!(
            ![Some(0), Some(PROVED)].contains(&outcome.code),
            "{outcome:#?}"
        );
    }
}

/// A `run` that waits for another's end, and then runs.
struct RunWaiting;

/// CMD that is alone, or says that it was not.
const ALONE: &str = "mkdir in || touch overlap; echo ran >>ran; rmdir in; exit 7";

impl Scenario for RunWaiting {
    fn name(&self) -> &'static str {
        "run --wait, behind a holder"
    }

    fn words(&self) -> Vec<String> {
        ["run", "--wait", "30s", "A", "--", "sh", "-c", ALONE]
            .map(String::from)
            .to_vec()
    }

    fn play(&self, sandbox: &Sandbox, trace: Trace<'_>) -> Outcome {
        let alone = "mkdir in || touch overlap; echo ready; read x; rmdir in";
        let holder: Running<'_> = sandbox
            .tenure()
            .args(["run", "A", "--", "sh", "-c", alone])
            .start_ready();
        let connection = sandbox.connect();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| trace(sandbox.tenure().args(self.words())));
            until(SOON, "it stands in the line, or has failed", || {
                let count = "select count(*) from ticket where state = 'waiting'";
                let waiting: i64 = connection
                    .query_row(count, [], |row| row.get(0))
                    .expect("our own statement");
                waiting > 0 || waiter.is_finished()
            });
            holder.end().exits(0);
            waiter
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        let has_run = has_run(sandbox, outcome);
        let _ = fs::remove_dir(sandbox.path("in"));
        assert_eq!(
            has_run && outcome.signal.is_none(),
            outcome.code == Some(PROVED),
            "{outcome:#?}"
        );
        assert_free(sandbox, outcome, Duration::ZERO);
    }
}

struct Acquire;

/// Long enough for the verbs that follow, short enough to be waited for.
const TTL: Duration = Duration::from_secs(4);

impl Scenario for Acquire {
    fn name(&self) -> &'static str {
        "acquire"
    }

    fn words(&self) -> Vec<String> {
        ["acquire", "--ttl", "4s", "A"].map(String::from).to_vec()
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        let token = outcome.stdout.trim();
        let is_out = token.len() == 32;
        assert!(
            is_out == (outcome.code == Some(0)) || outcome.signal.is_some(),
            "{outcome:#?}"
        );
        if outcome.code == Some(0) {
            sandbox
                .tenure()
                .args(["release", "--token", token])
                .run()
                .exits(0);
        }
        // A commit of which nobody can say whether it was one may leave the lease to its time to live.
        assert_free(sandbox, outcome, TTL * 2);
    }
}

/// `release` and `extend` of a lease, by its token.
struct WithToken {
    verb: &'static str,
}

impl Scenario for WithToken {
    fn name(&self) -> &'static str {
        self.verb
    }

    fn words(&self) -> Vec<String> {
        vec![self.verb.into()]
    }

    fn play(&self, sandbox: &Sandbox, trace: Trace<'_>) -> Outcome {
        let token = sandbox.acquire(["--ttl", "1h", "A"]);
        fs::write(sandbox.path("token"), &token).expect("our own directory");
        trace(
            sandbox
                .tenure()
                .args(self.words())
                .env("TENURE_TOKEN", token),
        )
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        let token = take(&sandbox.path("token"));
        let still = sandbox.tenure().args(["release", "--token", &token]).run();
        match (self.verb, outcome.code) {
            ("release", Some(0)) => assert_eq!(still.code, Some(76), "{outcome:#?}"),
            // Done or not: it could not tell.
            ("release", _) => assert!([Some(0), Some(76)].contains(&still.code), "{still:#?}"),
            _ => assert_eq!(still.code, Some(0), "{outcome:#?}"),
        }
        assert_free(sandbox, outcome, Duration::ZERO);
    }
}

/// `status` and `log`, while a `run` holds `B`.
struct Looking {
    verb: &'static str,
}

impl Scenario for Looking {
    fn name(&self) -> &'static str {
        self.verb
    }

    fn words(&self) -> Vec<String> {
        vec![self.verb.into(), "B".into(), "--json".into()]
    }

    fn judge(&self, _: &Sandbox, outcome: &Outcome) {
        let shows = ["\"state\":\"held\"", "\"event\":\"granted\""]
            .map(|part| outcome.stdout.contains(part));
        let is_shown = shows.contains(&true);
        assert!(
            is_shown == (outcome.code == Some(0)) || outcome.signal.is_some(),
            "{outcome:#?}"
        );
    }
}

/// What must be true of every command, whatever it was about to do.
#[track_caller]
fn judge_all(
    place: &Place,
    outcome: &Outcome,
    said: &Mutex<BTreeMap<String, Place>>,
    sandbox: &Sandbox,
) {
    // Of the 10 s that a transaction has for itself there may be some one after the other.
    assert!(
        outcome.took < Duration::from_mins(1),
        "it hung: {place:?}: {outcome:#?}"
    );
    if let Some(signal) = outcome.signal {
        if may_end_it(place) {
            return;
        }
        assert!(
            matches!(place.fault, Fault::Signal(sent) if sent.as_raw() == signal),
            "no such signal was sent: {place:?}: {outcome:#?}"
        );
        return;
    }
    let code = outcome.code.expect("it has ended");
    assert!(
        [0, PROVED, 69, 75, 76, 124, 126, 127].contains(&code),
        "{place:?}: {outcome:#?}"
    );
    assert!(
        outcome
            .stderr
            .lines()
            .all(|line| line.starts_with("tenure: ")),
        "{place:?}: {outcome:#?}"
    );
    if ![0, PROVED].contains(&code) {
        // Except where it is the message that cannot be written, or nobody knows whether it can be without waiting.
        assert!(
            !outcome.stderr.is_empty() || ["write", "ppoll"].contains(&place.call.as_str()),
            "it was silent: {place:?}: {outcome:#?}"
        );
    }
    let root = sandbox.dir();
    let root = root.to_str().expect("our own paths are text");
    for line in outcome.stderr.lines() {
        let mut said = said.lock().expect("no thread panics");
        said.entry(without_figures(&line.replace(root, "…")))
            .or_insert_with(|| place.clone());
    }
}

/// The message without pids, times and random names, which make one of two that are the same.
fn without_figures(line: &str) -> String {
    let is_figure = |word: &str| word.contains(|c: char| c.is_ascii_digit());
    let words = line
        .split_inclusive(' ')
        .map(|word| if is_figure(word) { "# " } else { word });
    words.collect()
}

/// The errors with which a kernel, or a filter before it, refuses a call for good: not known, not allowed, no memory and no
/// descriptor left.
const FOR_GOOD: [&str; 4] = ["ENOSYS", "EPERM", "ENOMEM", "EMFILE"];

/// And once.
const ONCE: [&str; 4] = ["EINTR", "EAGAIN", "EPERM", "ENOMEM"];

/// By which CMD's process begins.
const SPAWNS: [&str; 3] = ["clone", "clone3", "vfork"];

/// Calls that no program survives without, whoever has written it.
const VITAL: [(&str, &str); 15] = [
    (
        "execve",
        "of CMD: it is told as for any program that cannot be started",
    ),
    ("exit_group", "nothing is left to be done"),
    ("exit", "the same of a thread"),
    ("rt_sigreturn", "the kernel's own"),
    ("futex", "the C library ends the program"),
    (
        "close",
        "the language's library ends the program when a directory cannot be closed",
    ),
    ("getpid", "it has no error, and nobody looks for one"),
    (
        "getppid",
        "the same, but in CMD's process, where it is the proof that the supervisor lives",
    ),
    ("gettid", "the same"),
    ("getuid", "the same"),
    ("geteuid", "the same"),
    ("getgid", "the same"),
    ("getegid", "the same"),
    ("umask", "the same"),
    ("uname", "the same"),
];

/// Whether a process may end by a signal of its own: where there is no memory, the language's runtime aborts it.
fn may_end_it(place: &Place) -> bool {
    ["mmap", "mprotect", "munmap", "brk", "mremap", "madvise"].contains(&place.call.as_str())
}

/// What a call does, for one whose name does not say it.
fn kind(call: &SystemCall) -> String {
    let lock = ["F_RDLCK", "F_WRLCK", "F_UNLCK"];
    let lock = lock.into_iter().find(|lock| call.arguments.contains(lock));
    match call.name.as_str() {
        "fcntl" => format!("fcntl {} {}", call.argument(1), lock.unwrap_or_default()),
        "prctl" => format!("prctl {}", call.argument(0)),
        name => name.to_owned(),
    }
}

/// Each kind of call that a command makes in its own code, as one that is refused from then on, and once: the first since the
/// start, the first since CMD was started, and each that CMD's process makes before it is CMD. A call of which nobody has thought
/// here is in the trace all the same.
fn refusals(calls: &[SystemCall]) -> Vec<Place> {
    let first = calls.first().expect("it was traced").pid;
    let start = own_code(calls);
    let mut numbers: BTreeMap<(u32, &str), usize> = BTreeMap::new();
    let mut before: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let (mut since_start, mut since_spawn) = (BTreeSet::new(), BTreeSet::new());
    let mut has_spawned = false;
    for (at, call) in calls.iter().enumerate() {
        let name = call.name.as_str();
        let number = numbers.entry((call.pid, name)).or_default();
        *number += 1;
        let is_new = if at <= start {
            before.insert(name, *number);
            false
        } else if call.pid != first {
            // A number that is the loader's in the process before this one would hit that.
            *number > before.get(name).copied().unwrap_or(0)
        } else {
            since_start.insert(kind(call)) | (has_spawned && since_spawn.insert(kind(call)))
        };
        has_spawned |= call.pid == first && SPAWNS.contains(&name);
        if is_new && VITAL.iter().all(|(vital, _)| *vital != name) {
            found.insert((name, *number));
        }
    }
    let mut places = Vec::new();
    for (name, number) in found {
        let is_first = number == before.get(name).copied().unwrap_or(0) + 1;
        // A byte that cannot be given back is held by SQLite against itself, 10 s a transaction; no kernel begins to refuse
        // that of locks that it gave. What else may fail of it is tried above, call by call.
        let is_lock = name == "fcntl";
        let for_good = FOR_GOOD.map(Fault::ErrorFromThenOn).into_iter();
        let once = ONCE.map(Fault::Error).into_iter();
        let faults = for_good
            .filter(|_| !is_lock || is_first)
            .chain(once.filter(|_| !is_lock));
        places.extend(faults.map(|fault| Place {
            call: name.to_owned(),
            number,
            fault,
        }));
    }
    places
}

/// Where a command comes to its own code. What is before is the loader's and the runtime's; the last thing that those do is
/// to make a stack for signals.
fn own_code<'a>(calls: impl IntoIterator<Item = &'a SystemCall>) -> usize {
    calls
        .into_iter()
        .position(|call| call.name == "sigaltstack" && call.arguments.contains("ss_sp=0x"))
        .expect("the runtime makes one")
}

/// Each place at which a command can be hit once it is in its own code, and how.
fn places(calls: &[SystemCall]) -> Vec<Place> {
    let first = calls.first().expect("it was traced").pid;
    let own: Vec<&SystemCall> = calls.iter().filter(|call| call.pid == first).collect();
    let start = own_code(own.iter().copied());
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut places = Vec::new();
    for (at, call) in own.iter().enumerate() {
        let number = numbers.entry(&call.name).or_default();
        *number += 1;
        if at <= start {
            continue;
        }
        let signals = [Fault::Signal(Signal::KILL), Fault::Signal(Signal::TERM)];
        let is_last = call.name == "exit_group";
        let faults = errors(call)
            .iter()
            .chain(signals.iter().filter(|_| !is_last));
        places.extend(faults.map(|fault| Place {
            call: call.name.clone(),
            number: *number,
            fault: *fault,
        }));
    }
    places
}

fn try_all(scenario: &dyn Scenario) {
    let mut dice = Dice::new(7);
    try_places(scenario, places, &mut |_| dice.below(12) == 0);
}

/// Tries the places that `find` finds in a trace of the command, or a sample of them.
fn try_places(
    scenario: &dyn Scenario,
    find: fn(&[SystemCall]) -> Vec<Place>,
    is_in_sample: &mut dyn FnMut(&Place) -> bool,
) {
    let lane = || {
        let sandbox = Sandbox::new();
        if !scenario.begins_with_nothing() {
            sandbox
                .tenure()
                .args(["run", "A", "--", "true"])
                .run()
                .exits(0);
        }
        sandbox
    };
    let sandbox = lane();
    let holder = (!scenario.begins_with_nothing()).then(|| sandbox.holder("B"));
    let trace = sandbox.path("../trace");
    let whole = scenario.play(&sandbox, &|call| under(call, &trace, &[]).run());
    scenario.judge(&sandbox, &whole);
    drop(holder);
    let all = find(&calls_in(&trace));
    let count = all.len();
    let tried: Vec<Place> = all
        .into_iter()
        .filter(|place| tries_all() || is_in_sample(place))
        .collect();
    let said = Mutex::new(BTreeMap::new());
    let counts = Mutex::new(BTreeMap::<String, usize>::new());
    let failed = AtomicUsize::new(0);
    let left = Mutex::new(tried.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let nowhere = Path::new("/dev/null");
                // What a fault has left behind must not be in the way of the next.
                let mut has_failed = true;
                while has_failed {
                    has_failed = false;
                    let sandbox = lane();
                    let _holder = (!scenario.begins_with_nothing()).then(|| sandbox.holder("B"));
                    while !has_failed
                        && let Some(place) = {
                            let mut left = left.lock().expect("no iterator panics");
                            left.next()
                        }
                    {
                        let options = place.options();
                        let options: Vec<&str> = options.iter().map(String::as_str).collect();
                        let judge = std::panic::AssertUnwindSafe(|| {
                            let outcome = scenario
                                .play(&sandbox, &|call| under(call, nowhere, &options).run());
                            judge_all(place, &outcome, &said, &sandbox);
                            scenario.judge(&sandbox, &outcome);
                            match (outcome.code, outcome.signal) {
                                (Some(code), _) => code.to_string(),
                                (None, signal) => format!("signal {}", signal.unwrap_or(0)),
                            }
                        });
                        let end = std::panic::catch_unwind(judge).unwrap_or_else(|_| {
                            // All of them are told, each after what its assertion says.
                            eprintln!("that was {}: {place:?}", scenario.name());
                            failed.fetch_add(1, Ordering::Relaxed);
                            has_failed = true;
                            "a failure".to_owned()
                        });
                        *counts
                            .lock()
                            .expect("no thread panics")
                            .entry(end)
                            .or_default() += 1;
                    }
                }
            });
        }
    });
    let (counts, said) = (
        counts.into_inner().expect("none panicked"),
        said.into_inner().expect("none panicked"),
    );
    println!(
        "calls: {}: {count} faults known, {} tried, which ended with {counts:?}",
        scenario.name(),
        tried.len()
    );
    for (line, place) in said {
        println!(
            "    {line}  <- {} {}: {:?}",
            place.call, place.number, place.fault
        );
    }
    assert_eq!(failed.into_inner(), 0, "{}", scenario.name());
}

#[test]
fn a_run_takes_no_harm_from_calls_that_fail() {
    try_all(&RunFree { is_first: false });
}

#[test]
fn the_first_run_of_all_takes_no_harm_from_calls_that_fail() {
    try_all(&RunFree { is_first: true });
}

#[test]
fn a_run_does_not_enter_a_lock_that_is_held_because_calls_fail() {
    try_all(&RunBusy);
}

#[test]
fn a_waiter_takes_no_harm_from_calls_that_fail() {
    try_all(&RunWaiting);
}

#[test]
fn acquire_takes_no_harm_from_calls_that_fail() {
    try_all(&Acquire);
}

#[test]
fn release_takes_no_harm_from_calls_that_fail() {
    try_all(&WithToken { verb: "release" });
}

#[test]
fn extend_takes_no_harm_from_calls_that_fail() {
    try_all(&WithToken { verb: "extend" });
}

#[test]
fn status_says_the_truth_or_fails() {
    try_all(&Looking { verb: "status" });
}

#[test]
fn the_log_says_the_truth_or_fails() {
    try_all(&Looking { verb: "log" });
}

/// A `run` that stops its job at its time limit, when KILL alone can.
struct RunStopped;

/// A job whose child has a kernel's lock on the file `work`, and does not heed TERM.
const STUBBORN: &str =
    "echo ran >>ran; exec 9>work; flock 9; (trap '' TERM; sleep 30; sleep 30) & wait";

impl Scenario for RunStopped {
    fn name(&self) -> &'static str {
        "run --max-time, of a job that ignores TERM"
    }

    fn words(&self) -> Vec<String> {
        let words = ["run", "--max-time", "150ms", "-k", "150ms", "A", "--"];
        let job = ["sh", "-c", STUBBORN];
        words.iter().chain(&job).map(ToString::to_string).collect()
    }

    fn judge(&self, sandbox: &Sandbox, outcome: &Outcome) {
        let work = sandbox.program("flock").args(["-n", "work", "true"]).run();
        assert_eq!(work.code, Some(0), "the job works: {outcome:#?}");
        let has_run = has_run(sandbox, outcome);
        assert!(
            [Some(124), Some(76)].contains(&outcome.code) == has_run || outcome.signal.is_some(),
            "{outcome:#?}"
        );
        assert_free(sandbox, outcome, Duration::ZERO);
    }
}

/// What is a little slower is tried less often.
fn sample(one_in: u64) -> impl FnMut(&Place) -> bool {
    let mut dice = Dice::new(11);
    move |_| dice.below(one_in) == 0
}

#[test]
fn a_run_ends_and_gives_its_lock_back_whatever_call_the_kernel_refuses() {
    try_places(&RunFree { is_first: false }, refusals, &mut |_| true);
}

#[test]
fn a_run_whose_lock_is_held_says_so_and_ends_whatever_call_the_kernel_refuses() {
    try_places(&RunBusy, refusals, &mut sample(4));
}

#[test]
fn a_job_is_stopped_and_dead_whatever_call_the_kernel_refuses() {
    try_places(&RunStopped, refusals, &mut sample(3));
}
