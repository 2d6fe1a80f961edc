//! What the parser has to say of a command line: help and version on stdout, a mistake as one line on stderr.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory};

use super::{chain, print, printable, say};
use crate::cli::Cli;
use crate::exit::Exit;

/// Says it; what was asked for is not done.
pub fn tell(mut error: clap::Error) -> Exit {
    if !error.use_stderr() {
        return match print(&error.render().to_string()) {
            Ok(()) => Exit::Done,
            Err(error) => {
                say(&chain(&error));
                Exit::Store
            }
        };
    }
    if is_for_eval() {
        // As `acquire` does where it was understood: what is not, is not to pass for a lock that was had.
        let _ = print(&format!("(exit {})\n", Exit::Usage.code()));
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = write!(io::stderr(), "{}", error.render());
        return Exit::Usage;
    }
    let mistake = hint_for_flock(&error).unwrap_or_else(|| {
        let about_token = why_no_token(&error);
        show_all(&mut error);
        name_variable(&mut error);
        hide_hidden(&mut error);
        let mistake = match about_token {
            Some(why) => format!("invalid value for '{}': {why}", argument_of(&error)),
            None => first_paragraph(&error),
        };
        format!("{mistake} (tenure --help tells more)")
    });
    say(&mistake);
    Exit::Usage
}

/// Whether a shell's eval is going to read standard output: of `acquire`, or of what was to be that.
fn is_for_eval() -> bool {
    let words: Vec<OsString> = env::args_os()
        .skip(1)
        .take_while(|word| word != "--")
        .collect();
    let verb = words.iter().find(|word| !word.as_bytes().starts_with(b"-"));
    let is_another = ["run", "extend", "release", "status", "log"]
        .iter()
        .any(|other| verb.is_some_and(|verb| verb == other));
    !is_another && words.iter().any(|word| word == "--shell")
}

/// It names the mistake; what follows it repeats the usage.
fn first_paragraph(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let what = text.split("\n\n").next().unwrap_or(&text);
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let words: Vec<&str> = what.lines().map(str::trim).collect();
    words.join(" ")
}

/// As the usage has it: `--ttl <DURATION>`.
fn argument_of(error: &clap::Error) -> String {
    let argument = error.get(ContextKind::InvalidArg);
    argument.map(ToString::to_string).unwrap_or_default()
}

/// What is wrong with a token, which must be said without a word of it: it may be all but right, and what is said here is kept
/// in logs.
fn why_no_token(error: &clap::Error) -> Option<String> {
    let is_bad =
        error.kind() == ErrorKind::ValueValidation && argument_of(error).starts_with("--token");
    let why = std::error::Error::source(error).filter(|_| is_bad)?;
    Some(why.to_string())
}

/// Has what could command a terminal shown as an escape; the parser would leave it out, and what is wrong with it.
fn show_all(error: &mut clap::Error) {
    let texts = error.context().filter_map(|(kind, value)| match value {
        ContextValue::String(text) => Some((kind, printable(text))),
        _ => None,
    });
    for (kind, text) in texts.collect::<Vec<_>>() {
        error.insert(kind, ContextValue::String(text));
    }
}

/// Has the variable named from which a bad value came, and not an option that nobody gave.
fn name_variable(error: &mut clap::Error) {
    let argument = argument_of(error);
    let Some(option) = argument
        .split(' ')
        .next()
        .filter(|word| word.starts_with("--"))
    else {
        return;
    };
    let is_given = |word: &OsStr| {
        let rest = word.as_bytes().strip_prefix(option.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"="))
    };
    let mut words = env::args_os().take_while(|word| word != "--");
    if words.any(|word| is_given(&word)) {
        return;
    }
    let program = Cli::command();
    let verbs = program.get_subcommands();
    let all = verbs.flat_map(Command::get_arguments);
    let variable = all.chain(program.get_arguments()).find_map(|known| {
        let is_it = known.get_long() == Some(&option[2..]);
        known.get_env().filter(|_| is_it)
    });
    if let Some(variable) = variable {
        let variable = variable.to_string_lossy().into_owned();
        error.insert(ContextKind::InvalidArg, ContextValue::String(variable));
    }
}

/// Leaves out of a list of verbs those that are for programs.
fn hide_hidden(error: &mut clap::Error) {
    let Some(ContextValue::Strings(verbs)) = error.get(ContextKind::ValidSubcommand) else {
        return;
    };
    let program = Cli::command();
    let is_shown = |name: &&String| {
        !program
            .find_subcommand(name)
            .is_some_and(Command::is_hide_set)
    };
    let verbs = verbs.iter().filter(is_shown).cloned().collect();
    error.insert(ContextKind::ValidSubcommand, ContextValue::Strings(verbs));
}

/// What to do here instead, for an option that flock(1) has and the verb that takes a lock has not.
fn hint_for_flock(error: &clap::Error) -> Option<String> {
    let text = |kind| error.get(kind).map(ToString::to_string);
    let usage = text(ContextKind::Usage)?;
    let takes = ["tenure run ", "tenure acquire "];
    if error.kind() != ErrorKind::UnknownArgument || !takes.iter().any(|verb| usage.contains(verb))
    {
        return None;
    }
    let option = text(ContextKind::InvalidArg)?;
    let instead = match option.as_str() {
        "-c" | "--command" => ": a shell reads a command with tenure run NAME -- sh -c 'COMMAND'",
        "-o" | "--close" => {
            ", nor a need for it: what a command leaves running does not keep the lock"
        }
        "-u" | "--unlock" => ": tenure release gives back what tenure acquire took",
        _ => return None,
    };
    Some(format!("there is no {option}{instead}"))
}
