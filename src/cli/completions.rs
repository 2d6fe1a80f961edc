//! The completions: the clap types' options, filled into the scripts in `completions/`, which know what a shell needs.
//!
//! They are not `clap_complete`'s: its scripts ask no database for names, and take what stands behind `--` for tenure's own.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::{Arg, Command};

use crate::duration;
use crate::signals::Signal;

/// What is offered for a duration: the lengths of waits and jobs. Any other is typed.
const DURATIONS: [&str; 7] = ["10s", "30s", "1m", "5m", "10m", "30m", "1h"];

/// What is offered behind a number.
const UNITS: [&str; 4] = ["s", "m", "h", "d"];

/// Those by which somebody would stop a command.
const SIGNALS: [&str; 7] = ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2", "KILL"];

/// What is offered as an option's value.
enum Values {
    Files,
    Durations,
    /// Durations, and `forever`.
    Waits,
    Signals,
    /// These alone.
    Words(Vec<String>),
    /// Nothing: who types it knows it.
    Unknown,
}

impl Values {
    /// None for an option that has no value.
    fn of(arg: &Arg) -> Option<Self> {
        if !arg.get_action().takes_values() {
            return None;
        }
        let words = arg.get_possible_values();
        if !words.is_empty() {
            let words = words.iter().map(|word| word.get_name().to_owned());
            return Some(Self::Words(words.collect()));
        }
        let name = arg.get_value_names().and_then(|names| names.first());
        Some(match name.map_or("", |name| name.as_str()) {
            "DURATION" if arg.get_id() == "wait" => Self::Waits,
            "DURATION" => Self::Durations,
            "SIGNAL" => Self::Signals,
            "PATH" => Self::Files,
            _ => Self::Unknown,
        })
    }

    fn bash(&self) -> String {
        match self {
            Self::Files => "files".into(),
            Self::Durations => "durations".into(),
            Self::Waits => "waits".into(),
            Self::Signals => "signals".into(),
            Self::Words(words) => format!("words:{}", words.join(",")),
            Self::Unknown => "unknown".into(),
        }
    }

    fn zsh(&self) -> String {
        match self {
            Self::Files => "_files".into(),
            Self::Durations => "_tenure_durations".into(),
            Self::Waits => "_tenure_waits".into(),
            Self::Signals => "_tenure_signals".into(),
            Self::Words(words) => format!("({})", words.join(" ")),
            Self::Unknown => " ".into(),
        }
    }

    fn fish(&self) -> String {
        match self {
            Self::Files => " -r -F".into(),
            Self::Durations => " -x -k -a '(__tenure_durations)'".into(),
            Self::Waits => " -x -k -a '(__tenure_durations forever)'".into(),
            Self::Signals => " -x -k -a '(__tenure_signals)'".into(),
            Self::Words(words) => format!(" -x -k -a '{}'", words.join(" ")),
            Self::Unknown => " -x".into(),
        }
    }
}

/// The scripts of bash, zsh and fish: their names, and what is to be in them.
pub fn files(root: &Command) -> Vec<(&'static str, String)> {
    for sample in DURATIONS {
        duration::parse(sample).expect("a sample of a duration is one");
    }
    for sample in SIGNALS {
        sample
            .parse::<Signal>()
            .expect("a sample of a signal is one");
    }
    vec![
        ("tenure.bash", bash(root)),
        ("_tenure", zsh(root)),
        ("tenure.fish", fish(root)),
    ]
}

fn verbs(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|verb| !verb.is_hide_set())
}

/// The program itself, which is without a name here, and its verbs.
fn commands(root: &Command) -> impl Iterator<Item = (&str, &Command)> {
    let verbs = verbs(root).filter(|verb| verb.get_name() != "help");
    std::iter::once(("", root)).chain(verbs.map(|verb| (verb.get_name(), verb)))
}

fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    command
        .get_opts()
        .chain(command.get_arguments().filter(|arg| {
            // `get_opts` leaves out the flags.
            !arg.is_positional() && !arg.get_action().takes_values()
        }))
        .filter(|arg| !arg.is_hide_set())
}

/// The verbs that do something to a lease that is there: a lock that was in use is nothing to them.
const ENDING: [&str; 2] = ["release", "extend"];

/// All ways to write an option, the usual ones first.
fn spellings(arg: &Arg) -> Vec<String> {
    let shorts = arg.get_short_and_visible_aliases().unwrap_or_default();
    let longs = arg.get_long_and_visible_aliases().unwrap_or_default();
    let shorts = shorts.iter().map(|short| format!("-{short}"));
    shorts
        .chain(longs.iter().map(|long| format!("--{long}")))
        .collect()
}

fn names_locks(command: &Command) -> bool {
    command.get_positionals().any(|arg| arg.get_id() == "names")
}

/// The one verb that has a command behind `--`.
fn runs(root: &Command) -> &str {
    let has_command = |verb: &&Command| {
        let mut args = verb.get_positionals();
        args.any(|arg| arg.is_last_set() && !arg.is_hide_set())
    };
    let mut verbs = verbs(root).filter(has_command);
    let verb = verbs.next().expect("a verb that runs a command");
    assert!(verbs.next().is_none(), "the scripts know of one such verb");
    verb.get_name()
}

/// The template with what is the same in all shells.
fn fill(template: &str, root: &Command) -> String {
    template
        .replace("@DURATIONS@", &DURATIONS.join(" "))
        .replace("@SIGNALS@", &SIGNALS.join(" "))
        .replace("@RUNS@", runs(root))
}

fn bash(root: &Command) -> String {
    let mut all = String::new();
    let mut by_kind: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (verb, command) in commands(root) {
        let longs: Vec<String> = options(command)
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        let label = if verb.is_empty() { "''" } else { verb };
        let _ = writeln!(all, "        {label}) echo '{}' ;;", longs.join(" "));
        for arg in options(command) {
            if let Some(values) = Values::of(arg) {
                let patterns = spellings(arg).into_iter();
                let patterns = patterns.map(|name| format!("'{verb} {name}'"));
                by_kind.entry(values.bash()).or_default().extend(patterns);
            }
        }
    }
    let mut kinds = String::new();
    for (kind, patterns) in by_kind {
        let lines: Vec<String> = patterns.chunks(4).map(|line| line.join(" | ")).collect();
        let lines = lines.join(" | \\\n            ");
        let _ = writeln!(kinds, "        {lines})\n            echo '{kind}' ;;");
    }
    let naming = verbs(root).filter(|verb| names_locks(verb));
    let naming = naming.map(Command::get_name);
    let naming: Vec<&str> = naming.filter(|verb| !ENDING.contains(verb)).collect();
    let words: Vec<&str> = verbs(root).map(Command::get_name).collect();
    fill(include_str!("completions/tenure.bash"), root)
        .replace("@UNITS@", &UNITS.join(","))
        .replace("@VERBS@", &words.join(" "))
        .replace("@NAMING@", &naming.join(" | "))
        .replace("@ENDING@", &ENDING.join(" | "))
        .replace("@OPTIONS@", all.trim_end())
        .replace("@KINDS@", kinds.trim_end())
}

fn zsh(root: &Command) -> String {
    let quoted = |text: &str| text.replace('\'', "'\\''");
    let mut cases = String::new();
    for (verb, command) in commands(root) {
        let label = if verb.is_empty() { "''" } else { verb };
        let _ = writeln!(
            cases,
            "        ({label})\n            _arguments -s -S : \\"
        );
        for arg in options(command) {
            let own = spellings(arg);
            let others = command.get_arg_conflicts_with(arg);
            let others = others.into_iter().flat_map(spellings);
            let excluded: Vec<String> = own.iter().cloned().chain(others).collect();
            let values = Values::of(arg);
            // How a value may follow: `-w5` and `-w 5`, `--wait=5` and `--wait 5`.
            let with_sign = |name: &String| match (&values, name.starts_with("--")) {
                (None, _) => name.clone(),
                (Some(_), true) => format!("{name}="),
                (Some(_), false) => format!("{name}+"),
            };
            let mut names: Vec<String> = own.iter().map(with_sign).collect();
            let names = if names.len() > 1 {
                format!("'{{{}}}'", names.join(","))
            } else {
                names.remove(0)
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let help = help
                .replace('\\', "\\\\")
                .replace('[', "\\[")
                .replace(']', "\\]");
            let value = values.map_or(String::new(), |values| {
                let name = arg.get_value_names().and_then(|names| names.first());
                let name = name.map_or("", |name| name.as_str());
                format!(":{name}:{}", values.zsh())
            });
            let _ = writeln!(
                cases,
                "                '({}){names}[{}]{value}' \\",
                excluded.join(" "),
                quoted(&help),
            );
        }
        let rest = match verb {
            "" => "'1:command:_tenure_verbs'",
            _ if ENDING.contains(&verb) => "'*:lock:_tenure_names'",
            _ if names_locks(command) => "'*:lock:_tenure_names --past'",
            _ => "",
        };
        let _ = writeln!(cases, "                {rest}\n            ;;");
    }
    cases += "        (help) _arguments '1:command:_tenure_verbs' ;;";
    let about = |verb: &Command| {
        verb.get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let described =
        verbs(root).map(|verb| format!("        '{}:{}'", verb.get_name(), quoted(&about(verb))));
    fill(include_str!("completions/_tenure"), root)
        .replace("@UNITS@", &UNITS.join(" "))
        .replace("@VERBS@", &described.collect::<Vec<_>>().join("\n"))
        .replace("@CASES@", &cases)
}

fn fish(root: &Command) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let about = |verb: &Command| {
        verb.get_about()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let mut lines = String::new();
    for verb in verbs(root) {
        for at in ["__tenure_at", "__tenure_at help"] {
            let _ = writeln!(
                lines,
                "complete -c tenure -n '{at}' -a {} -d '{}'",
                verb.get_name(),
                quoted(&about(verb))
            );
        }
    }
    for (verb, command) in commands(root) {
        let at = format!("__tenure_at {verb}");
        let at = at.trim_end();
        if names_locks(command) {
            let past = if ENDING.contains(&verb) {
                ""
            } else {
                " --past"
            };
            let _ = writeln!(
                lines,
                "complete -c tenure -n '{at}' -a '(__tenure_names{past})' -d lock"
            );
        }
        for arg in options(command) {
            let names = spellings(arg)
                .into_iter()
                .map(|name| match name.strip_prefix("--") {
                    Some(long) => format!(" -l {long}"),
                    None => format!(" -s {}", name.trim_start_matches('-')),
                });
            let names: String = names.collect();
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            let values = Values::of(arg).map_or(String::new(), |values| values.fish());
            let _ = writeln!(
                lines,
                "complete -c tenure -n '{at}'{names}{values} -d '{}'",
                quoted(&help)
            );
        }
    }
    fill(include_str!("completions/tenure.fish"), root)
        .replace("@UNITS@", &UNITS.join(" "))
        .replace("@COMPLETES@", lines.trim_end())
}
