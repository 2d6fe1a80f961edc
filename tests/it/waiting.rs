//! What somebody sees who waits: one line at a terminal, a line now and then elsewhere.

use std::time::Duration;

use crate::pty::{CTRL_C, CTRL_Z, PROMPT, Terminal};
use crate::support::{
    Call, Running, SOON, Sandbox, Signal, is_alive, ms, state, throughout, until,
};
use crate::waiters::{AT_ONCE, now, ticks};

/// Holds what a terminal shows, until Ctrl-Q.
const CTRL_S: &str = "\x13";

/// A terminal that can do more than print.
const TERM: &str = "xterm-256color";

impl Sandbox {
    /// A holder of `deploy` as any machine would show it: `987654@web1 (pid 812, COMMAND)`, two hours ago.
    #[track_caller]
    fn famous_holder(&self, command: &str, note: Option<&str>) -> Running<'_> {
        let holder = self.holder("deploy");
        let sql = "update ticket set uid = 987654, host = 'web1', pid = 812, command = ?1, note = ?2, granted_at = ?3 where state = 'held'";
        let before = now() - 2 * 60 * 60 * 1000 - 5000;
        let changed = self
            .connect()
            .execute(sql, (command, note, before))
            .expect("the database can be written");
        assert_eq!(changed, 1);
        holder
    }

    /// Waits until so many stand in the line.
    #[track_caller]
    fn has_waiters(&self, count: usize) {
        until(SOON, "they stand in the line", || {
            self.line().len() == count
        });
    }
}

/// Starts a command on the terminal, which can do more than print.
fn start<'a>(terminal: &Terminal, call: Call<'a>) -> Running<'a> {
    terminal.start(call.env("TERM", TERM))
}

/// What `form` makes of the seconds of a wait, in one of its first minutes.
fn at_any_second(form: impl Fn(u64, u64) -> String) -> impl Fn(&str) -> bool {
    move |seen| (0..60).any(|waited| form(waited, 60 - waited) == seen)
}

/// As much of a line as so many columns have room for.
fn cut(line: &str, columns: u16) -> String {
    let columns = usize::from(columns);
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    line.chars().take(columns - 1).chain(['…']).collect()
}

#[test]
fn a_wait_at_a_terminal_is_one_line_that_is_gone_when_the_lock_is_had() {
    for columns in [80, 200] {
        let sandbox = Sandbox::new();
        let holder = sandbox.famous_holder("./deploy.sh --all", Some("release 41"));
        let mut first = sandbox.waiter(&["deploy"]);
        let mut terminal = Terminal::new();
        terminal.resize(columns);
        let words = ["run", "--wait", "60", "deploy", "--", "echo", "entered"];
        let waiter = start(&terminal, sandbox.tenure().args(words));
        sandbox.has_waiters(2);
        let _last = sandbox.waiter(&["deploy"]);
        let line = |waited, left| {
            let line = format!(
                "tenure: waiting for deploy {waited}s, 2nd of 3, {left}s left; held 2h by 987654@web1 (pid 812, ./deploy.sh --all): release 41"
            );
            cut(&line, columns)
        };
        terminal.shows("the line", at_any_second(line));
        holder.end();
        first.enters();
        terminal.shows("the first", |seen| seen.contains("1st of 2"));
        first.end();
        waiter.wait().exits(0);
        assert_eq!(terminal.picture(), "entered");
    }
}

#[test]
fn the_line_of_a_wait_fits_a_terminal_that_becomes_narrower() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.famous_holder("make release", None);
    for verb in [
        &["acquire", "--wait", "60", "deploy"][..],
        &["run", "--wait", "60", "deploy", "--", "true"],
    ] {
        let mut terminal = Terminal::new();
        terminal.resize(120);
        let waiter = start(&terminal, sandbox.tenure().args(verb));
        let line = |waited, left| {
            format!(
                "tenure: waiting for deploy {waited}s, 1st of 1, {left}s left; held 2h by 987654@web1 (pid 812, make release)"
            )
        };
        terminal.shows("the line", at_any_second(line));
        terminal.resize(40);
        let line = |waited, left| cut(&line(waited, left), 40);
        terminal.shows("the narrow line", at_any_second(line));
        drop(waiter);
    }
}

#[test]
fn the_line_of_a_wait_is_gone_before_anything_else_is_said() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.famous_holder("make", Some("a note"));
    let mut terminal = Terminal::new();
    terminal.resize(200);
    let busy = "tenure: deploy is held by 987654@web1 (pid 812, make) for 2h: a note (in ";
    let call = sandbox
        .tenure()
        .args(["run", "--wait", "2s", "deploy", "--", "touch", "ran"]);
    let waiter = start(&terminal, call);
    terminal.shows("the line", |seen| {
        seen.starts_with("tenure: waiting for deploy")
    });
    waiter.wait().exits(75);
    let seen = terminal.picture();
    assert!(
        seen.starts_with(busy) && seen.ends_with("; gave up after 2s"),
        "{seen}"
    );
    assert_eq!(seen.lines().count(), 1, "{seen}");

    for signal in [Signal::TERM, Signal::HUP] {
        let mut terminal = Terminal::new();
        let call = sandbox.tenure().args(["acquire", "--wait", "60", "deploy"]);
        let waiter = start(&terminal, call);
        terminal.shows("the line", |seen| {
            seen.starts_with("tenure: waiting for deploy")
        });
        waiter.signal(signal);
        waiter.wait().dies_by(signal);
        assert_eq!(terminal.picture(), "");
    }
}

#[test]
fn no_line_is_drawn_where_none_can_be_or_none_is_wanted() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let words = ["acquire", "--wait", "60", "A"];
    let mut quiet = Terminal::new();
    let first = start(&quiet, sandbox.tenure().args(words).arg("-q"));
    let mut dumb = Terminal::new();
    let second = dumb.start(sandbox.tenure().args(words).env("TERM", "dumb"));
    let lines = dumb.shows("a line that stays", |seen| !seen.is_empty());
    assert!(lines.starts_with("tenure: waiting, "), "{lines}");
    throughout(ms(1200), "there is no more", || {
        dumb.screen().lines().count() <= 2
    });
    assert!(!dumb.screen().contains('\x1b'));
    assert_eq!(quiet.screen(), "");
    drop((first, second, holder));
}

#[test]
fn a_wait_in_the_background_draws_nothing_over_what_is_typed() {
    let sandbox = Sandbox::new();
    let holder = sandbox.famous_holder("make", None);
    let mut terminal = Terminal::new();
    let _shell = terminal.shell(sandbox.program("bash").env("TENURE_DB", sandbox.db()));
    // With tostop, whoever writes in the background is stopped.
    terminal.types("stty tostop\n");
    terminal.sees(PROMPT);
    terminal.types(&format!(
        "TERM={TERM} tenure run --wait 60 deploy -- true &\n"
    ));
    terminal.sees(PROMPT);
    sandbox.has_waiters(1);
    let waiter = sandbox.line()[0];
    let before = terminal.screen();
    throughout(ms(2500), "it waits in silence", || {
        terminal.screen() == before && state(waiter) != Some('T')
    });
    terminal.types("fg\n");
    terminal.shows("the line", |seen| {
        seen.contains("tenure: waiting for deploy")
    });
    terminal.types(CTRL_Z);
    terminal.sees("Stopped");
    terminal.sees(PROMPT);
    let seen = terminal.picture();
    assert!(!seen.contains("tenure: waiting"), "{seen}");
    terminal.types("bg\n");
    terminal.sees(PROMPT);
    sandbox.has_waiters(1);
    let before = terminal.screen();
    throughout(ms(1500), "it waits in silence", || {
        terminal.screen() == before && state(waiter) != Some('T')
    });
    terminal.types("fg\n");
    terminal.shows("the line", |seen| {
        seen.contains("tenure: waiting for deploy")
    });
    terminal.types(CTRL_C);
    until(SOON, "it has ended", || !is_alive(waiter));
    terminal.sees(PROMPT);
    let seen = terminal.picture();
    assert!(!seen.contains("tenure: waiting"), "{seen}");
    drop(holder);
}

#[test]
fn a_terminal_that_is_held_keeps_no_waiter_from_the_lock() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let mut terminal = Terminal::new();
    let words = ["run", "--wait", "60", "A", "--", "touch", "ran"];
    let waiter = start(&terminal, sandbox.tenure().args(words));
    terminal.shows("the line", |seen| seen.starts_with("tenure: waiting for A"));
    terminal.types(CTRL_S);
    // Nothing comes any more, though it would draw each second.
    let before = terminal.screen();
    throughout(ms(1500), "the terminal is held", || {
        terminal.screen() == before
    });
    holder.end();
    until(AT_ONCE, "the command has run", || {
        sandbox.path("ran").exists()
    });
    waiter.wait().exits(0);
}

#[test]
fn a_wait_elsewhere_is_told_when_it_begins_and_when_it_ends() {
    let sandbox = Sandbox::new();
    let holder = sandbox.famous_holder("./deploy.sh", Some("release 41"));
    let words = ["run", "--wait", "1m", "deploy", "--", "echo", "entered"];
    let waiter = sandbox.queue(sandbox.tenure().args(words));
    let _last = sandbox.waiter(&["deploy"]);
    until(SOON, "it says that it waits", || {
        !waiter.stderr().is_empty()
    });
    let begins = waiter.stderr();
    // The first lasted one to two seconds.
    let told = ["58s", "59s"].map(|left| {
        format!("tenure: waiting, 1st of 2, {left} left: deploy is held by 987654@web1 (pid 812, ./deploy.sh) for 2h: release 41\n")
    });
    assert!(told.contains(&begins), "{begins}");
    holder.end();
    let outcome = waiter.wait();
    outcome.exits(0).prints("entered\n");
    let ends = outcome
        .stderr
        .strip_prefix(&begins)
        .expect("the same before");
    let seconds = ends.strip_prefix("tenure: holding deploy after a wait of ");
    let seconds = seconds.and_then(|ends| ends.strip_suffix("s\n"));
    assert!(
        seconds.is_some_and(|seconds| seconds.parse::<u64>().is_ok()),
        "{ends}"
    );
}

#[test]
fn a_wait_elsewhere_that_a_signal_ends_says_so() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let words = ["run", "--wait", "forever", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).detached().start();
    until(SOON, "it says that it waits", || {
        !waiter.stderr().is_empty()
    });
    assert!(
        waiter
            .stderr()
            .starts_with("tenure: waiting, 1st of 1: A is held by ")
    );
    waiter.signal(Signal::TERM);
    let outcome = waiter.wait();
    outcome.dies_by(Signal::TERM).prints_nothing();
    let last = outcome.stderr.lines().last();
    assert!(
        last.is_some_and(|last| last.starts_with("tenure: a signal ended the wait for A after ")),
        "{outcome:#?}"
    );
}

#[test]
fn a_wait_for_a_slot_says_so_too_and_costs_nothing() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let words = ["run", "--wait", "60", "--slots", "2", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).detached().start();
    until(SOON, "it says that it waits", || {
        waiter.stderr().starts_with("tenure: waiting, 1st of 1, ")
    });
    throughout(ms(1000), "it only waits", || ticks(waiter.pid()) < 30);
}

#[test]
fn a_wait_behind_one_that_is_stopped_and_could_enter_costs_nothing() {
    let sandbox = Sandbox::new();
    let slots = || {
        sandbox
            .tenure()
            .args(["run", "--slots", "2", "-w", "60s", "A"])
    };
    let holders = [slots().hold(), slots().hold()];
    let wait = || slots().args(["--", "sh", "-c", "echo ready; read x; exit 0"]);
    let stopped = sandbox.queue(wait());
    stopped.stop();
    let next = sandbox.queue(wait().stdin(std::process::Stdio::piped()));
    for holder in holders {
        holder.end().exits(0);
    }
    let mut next = next;
    next.await_line("ready");
    let waiter = sandbox.queue(wait().stdin(std::process::Stdio::piped()));
    let before = ticks(waiter.pid());
    throughout(ms(1000), "it only waits", || {
        ticks(waiter.pid()) < before + 20
    });
    // And it is woken when there is a slot.
    let mut waiter = waiter;
    next.end().exits(0);
    waiter.await_line("ready");
    waiter.end().exits(0);
    stopped.resume();
    stopped.wait().exits(0);
}

#[test]
fn a_short_wait_and_a_quiet_one_say_nothing_elsewhere() {
    let sandbox = Sandbox::new();
    let holder = sandbox.holder("A");
    let words = ["run", "--wait", "60", "A", "--", "true"];
    let quiet = sandbox.queue(sandbox.tenure().arg("-q").args(words));
    throughout(ms(2000), "it is quiet", || quiet.stderr().is_empty());
    holder.end();
    quiet.wait().exits(0).says_nothing();
    let holder = sandbox.holder("A");
    let short = sandbox.queue(sandbox.tenure().args(words));
    holder.end();
    let short = short.wait();
    // Unless the machine is so busy that it was none.
    if short.took < ms(1000) {
        short.exits(0).says_nothing();
    }
}

#[test]
fn a_long_wait_elsewhere_is_told_each_minute() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let words = ["acquire", "--wait", "10m", "A"];
    let waiter = sandbox.queue(sandbox.tenure().args(words));
    until(Duration::from_secs(75), "a minute has passed", || {
        waiter.stderr().lines().count() == 2
    });
    let said = waiter.stderr();
    let last = said.lines().last().expect("two lines");
    let time = last
        .strip_prefix("tenure: waiting for ")
        .and_then(|last| last.split_once(", 1st of 1, "));
    // 59 seconds or a few more.
    let is_told = time.is_some_and(|(time, _)| time == "59s" || time.starts_with("1m"));
    assert!(is_told, "{said}");
}

#[test]
fn the_line_of_a_wait_has_nothing_in_it_that_commands_the_terminal() {
    let sandbox = Sandbox::new();
    let command = "sh -c '\u{1b}[2J\n\u{9b}5m\u{202e}\u{fffd}'";
    let _holder = sandbox.famous_holder(command, Some("\u{7f}\u{7}\r\nnote"));
    let mut terminal = Terminal::new();
    terminal.resize(200);
    let waiter = start(
        &terminal,
        sandbox.tenure().args(["acquire", "--wait", "60", "deploy"]),
    );
    let seen = terminal.shows("the line", |seen| seen.contains("note"));
    assert!(
        seen.ends_with(r"(pid 812, sh -c '\u{1b}[2J\n\u{9b}5m\u{202e}�'): \u{7f}\u{7}\r\nnote"),
        "{seen}"
    );
    drop(waiter);
}
