//! The completions in their own shells, each on a pseudo-terminal: what is typed, with Tab, is what the program is given.

use std::fs;
use std::path::Path;

use rusqlite::Connection;

use crate::pty::{PROMPT, Terminal};
use crate::support::{Call, Running, SOON, Sandbox, TENURE, ms, until};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/completions");

/// Of what every shell has its own way to write.
const AWKWARD: &str = r#"night's "import" of $HOME; é\n & *"#;

/// Of what bash takes for several words.
const BROKEN: &str = "team:a=b@c";

/// What is typed, and the arguments that come of it, an option and its value as two. Whatever is completed to its end is followed by a blank.
const TYPED: &[(&str, &[&str])] = &[
    ("tenure sta\t", &["status"]),
    ("tenure help rel\t", &["help", "release"]),
    (
        "tenure release --force dep\t",
        &["release", "--force", "deploy"],
    ),
    ("tenure status nig\t", &["status", AWKWARD]),
    ("tenure status tea\t", &["status", BROKEN]),
    ("tenure status team:\t", &["status", BROKEN]),
    ("tenure status team:a=\t", &["status", BROKEN]),
    ("tenure run que\tdep\t", &["run", "queued", "deploy"]),
    (
        "tenure acquire --at-l\t5m\tdep\t",
        &["acquire", "--at-least", "5m", "deploy"],
    ),
    (
        "tenure run --wait=for\tdep\t",
        &["run", "--wait", "forever", "deploy"],
    ),
    (
        "tenure run -w fo\tdep\t",
        &["run", "-w", "forever", "deploy"],
    ),
    (
        "tenure run --on-l\tHU\tdep\t",
        &["run", "--on-lost", "HUP", "deploy"],
    ),
    (
        "tenure --db else\tlocks.db release onl\t",
        &["--db", "elsewhere/locks.db", "release", "only-there"],
    ),
    (
        "tenure release --db=elsewhere/locks.db onl\t",
        &["release", "--db", "elsewhere/locks.db", "only-there"],
    ),
    (
        "tenure run deploy -- doz\t",
        &["run", "deploy", "--", "dozens-of-steps"],
    ),
    (
        "tenure run deploy -- dozens-of-steps elsew\tlocks.db",
        &[
            "run",
            "deploy",
            "--",
            "dozens-of-steps",
            "elsewhere/locks.db",
        ],
    ),
];

/// A shell with its completions loaded.
struct Shell<'a> {
    terminal: Terminal,
    _running: Running<'a>,
}

impl<'a> Shell<'a> {
    /// `setup` makes [`PROMPT`] the prompt, and loads the completions.
    fn start(sandbox: &'a Sandbox, call: Call<'a>, setup: &str) -> Self {
        let mut path = sandbox.path("bin").into_os_string();
        path.push(":/usr/bin:/bin");
        let call = call.env("PATH", path).env("TERM", "xterm").db(sandbox.db());
        let mut terminal = Terminal::new();
        // Wide enough that no shell breaks a line.
        terminal.resize(200);
        let running = terminal.start(call);
        terminal.types(&format!("{setup}\n"));
        terminal.sees("all is set");
        terminal.sees(PROMPT);
        Self {
            terminal,
            _running: running,
        }
    }

    fn bash(sandbox: &'a Sandbox, setup: &str) -> Self {
        let call = sandbox
            .program("bash")
            .args(["--norc", "--noprofile", "-i"]);
        // The two halves are not next to each other in what is typed.
        let setup = format!(
            "{setup}; bind 'set show-all-if-ambiguous on'; PS1='{PROMPT}'; echo all is' 'set"
        );
        Self::start(sandbox, call, &setup)
    }

    fn zsh(sandbox: &'a Sandbox) -> Self {
        let call = sandbox.program("zsh").args(["-f", "-i"]);
        let setup = format!(
            "fpath=({SCRIPTS} $fpath); autoload -U compinit; compinit -u -D; PS1='{PROMPT}'; echo all is' 'set"
        );
        Self::start(sandbox, call, &setup)
    }

    fn fish(sandbox: &'a Sandbox) -> Self {
        let call = sandbox.program("fish").args(["--private", "--no-config"]);
        let setup = format!(
            "set fish_greeting; source {SCRIPTS}/tenure.fish; function fish_prompt; echo -n '{PROMPT}'; end; echo all is' 'set"
        );
        Self::start(sandbox, call, &setup)
    }

    /// The program is given these arguments.
    #[track_caller]
    fn gives(&mut self, typed: &str, arguments: &[&str]) {
        self.terminal.types(&format!("{typed}\r"));
        let shown = arguments.join("><");
        self.terminal.sees(&format!("given <{shown}>\r\n"));
        self.terminal.sees(PROMPT);
    }

    /// Tab shows all of these, and the line is given up.
    #[track_caller]
    fn shows(&mut self, typed: &str, offers: &[&str]) {
        let before = self.terminal.screen().len();
        self.terminal.types(&format!("{typed}\t"));
        until(SOON, &format!("{offers:?} are shown"), || {
            let shown = &self.terminal.screen()[before..];
            offers.iter().all(|offer| shown.contains(offer))
        });
        // Ctrl-U, also for the lists that fish puts its cursor into.
        self.terminal.types("\x15");
        self.gives("tenure x", &["x"]);
    }
}

/// With locks held and waited for in two databases, and a `tenure` that shows what it is given.
fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    fs::create_dir(sandbox.path("bin")).unwrap();
    fs::create_dir(sandbox.path("elsewhere")).unwrap();
    let show = format!(
        "#!/bin/sh\ncase \" $* \" in *' __names '*) exec {TENURE} \"$@\" ;; esac\nprintf given' '\nfor word; do case $word in --*=*) printf '<%s>' \"${{word%%=*}}\" \"${{word#*=}}\" ;; *) printf '<%s>' \"$word\" ;; esac; done; echo\n"
    );
    sandbox.write_program("bin/tenure", &show);
    sandbox.write_program("bin/dozens-of-steps", &show);
    sandbox
}

fn with_locks(sandbox: &Sandbox) -> Running<'_> {
    // Nobody has it any more, but it is in the log.
    let run = sandbox.tenure().args(["run", "denied", "--", "true"]);
    run.run().exits(0);
    for name in ["deploy", "dump", AWKWARD, BROKEN] {
        sandbox.acquire([name]);
    }
    let elsewhere = sandbox.tenure().db(sandbox.path("elsewhere/locks.db"));
    elsewhere.args(["acquire", "only-there"]).run().exits(0);
    let waiter = sandbox
        .tenure()
        .args(["acquire", "-w", "forever", "queued", "dump"]);
    let waiter = waiter.start();
    until(SOON, "it waits", || {
        names(sandbox).run().stdout.contains("queued\n")
    });
    waiter
}

fn names(sandbox: &Sandbox) -> Call<'_> {
    sandbox.tenure().arg("__names")
}

#[track_caller]
fn all_is_completed(shell: &mut Shell<'_>) {
    for (typed, arguments) in TYPED.iter().copied() {
        shell.gives(typed, arguments);
    }
    shell.shows("tenure status d", &["denied", "deploy", "dump"]);
    shell.gives("tenure release du\tden\t", &["release", "dump", "den"]);
    shell.shows("tenure extend --ttl 4", &["4s", "4m", "4h"]);
    shell.shows("tenure run --on-lost ", &["TERM", "HUP", "USR1"]);
    shell.shows("tenure run --no", &["--note", "--no-wait"]);
    assert!(!shell.terminal.screen().contains("tenure: "));
}

#[test]
fn bash_completes_names_and_values() {
    let sandbox = sandbox();
    let _waiter = with_locks(&sandbox);
    let mut shell = Shell::bash(&sandbox, &format!("source {SCRIPTS}/tenure.bash"));
    all_is_completed(&mut shell);
    // Within quotes, too.
    shell.gives("tenure status \"tea\t", &["status", BROKEN]);
    shell.gives("tenure status 'dep\t", &["status", "deploy"]);
}

#[test]
fn bash_with_its_completion_package_completes_names_and_values_and_the_command() {
    let sandbox = sandbox();
    let _waiter = with_locks(&sandbox);
    let place = sandbox.path("../home/.local/share/bash-completion/completions");
    fs::create_dir_all(&place).unwrap();
    fs::copy(Path::new(SCRIPTS).join("tenure.bash"), place.join("tenure")).unwrap();
    let mut shell = Shell::bash(
        &sandbox,
        "source /usr/share/bash-completion/bash_completion",
    );
    all_is_completed(&mut shell);
    // The command's own completion, which here is tenure's again.
    let typed = "tenure run deploy -- tenure release --fo\tdep\t";
    shell.gives(
        typed,
        &[
            "run", "deploy", "--", "tenure", "release", "--force", "deploy",
        ],
    );
}

#[test]
fn zsh_completes_names_and_values() {
    let sandbox = sandbox();
    let _waiter = with_locks(&sandbox);
    let mut shell = Shell::zsh(&sandbox);
    all_is_completed(&mut shell);
    let typed = "tenure run deploy -- tenure release --fo\tdep\t";
    shell.gives(
        typed,
        &[
            "run", "deploy", "--", "tenure", "release", "--force", "deploy",
        ],
    );
    shell.shows(
        "tenure run -",
        &["How long the lease lives without being renewed"],
    );
}

#[test]
fn fish_completes_names_and_values() {
    let sandbox = sandbox();
    let _waiter = with_locks(&sandbox);
    let mut shell = Shell::fish(&sandbox);
    all_is_completed(&mut shell);
    let typed = "tenure run deploy -- tenure release --fo\tdep\t";
    shell.gives(
        typed,
        &[
            "run", "deploy", "--", "tenure", "release", "--force", "deploy",
        ],
    );
}

#[test]
fn where_there_is_no_database_nothing_is_completed_nothing_said_and_nothing_made() {
    let sandbox = sandbox();
    for start in [
        |sandbox| Shell::bash(sandbox, &format!("source {SCRIPTS}/tenure.bash")),
        Shell::zsh,
        Shell::fish,
    ] {
        let mut shell = start(&sandbox);
        shell.gives("tenure status dep\t", &["status", "dep"]);
        shell.gives(
            "tenure status --db /nowhere/at/all dep\t",
            &["status", "--db", "/nowhere/at/all", "dep"],
        );
        assert!(!shell.terminal.screen().contains("tenure: "));
    }
    let mut left: Vec<_> = fs::read_dir(sandbox.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["bin", "elsewhere"]);
}

#[test]
fn the_names_are_those_in_use_and_whatever_is_wrong_is_not_told() {
    let sandbox = Sandbox::new();
    names(&sandbox)
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    names(&sandbox)
        .db("/proc/nope/l.db")
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    for name in ["b", "a"] {
        sandbox.acquire([name]);
    }
    sandbox
        .tenure()
        .args(["acquire", "--ttl", ".01", "over"])
        .run()
        .exits(0);
    let run = sandbox.tenure().args(["run", "done", "--", "true"]);
    run.run().exits(0);
    until(SOON, "only those that live are named", || {
        let outcome = names(&sandbox).run();
        outcome.exits(0).says_nothing();
        outcome.stdout == "a\nb\n"
    });
    let past = names(&sandbox).arg("--past").run();
    past.exits(0).says_nothing();
    assert!(past.stdout.starts_with("a\nb\ndone\n"), "{past:#?}");
    fs::write(sandbox.path("garbage"), "not a database").unwrap();
    names(&sandbox)
        .db(sandbox.path("garbage"))
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
}

#[test]
fn whoever_has_locked_the_database_keeps_no_shell_waiting() {
    let sandbox = Sandbox::new();
    sandbox.acquire(["a"]);
    let locker = Connection::open(sandbox.db()).unwrap();
    let lock = "pragma locking_mode = exclusive; begin exclusive; delete from claim where 0";
    locker.execute_batch(lock).unwrap();
    let outcome = names(&sandbox).run();
    outcome
        .exits(0)
        .prints_nothing()
        .says_nothing()
        .took(ms(500)..ms(5000));
}
