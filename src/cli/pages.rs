//! The man pages: made from the clap types, the exit statuses and the texts in `pages/`. Its tests keep the completions
//! fresh, too.
//!
//! `TENURE_BLESS=1 cargo test pages` writes `man/` and `completions/` anew.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use clap::{Arg, Command, CommandFactory};
use clap_mangen::Man;

use super::{Cli, completions};
use crate::exit::Exit;
use crate::signals::Signal;

/// The outcomes in the order of their tables.
const EXITS: [Exit; 10] = [
    Exit::Done,
    Exit::Command(0),
    Exit::Signal(Signal::TERM),
    Exit::Usage,
    Exit::Store,
    Exit::Busy(Exit::BUSY),
    Exit::NotHeld,
    Exit::TimedOut,
    Exit::CannotExecute,
    Exit::NotFound,
];

/// What stands in the tables of exit statuses; a new outcome does not compile before it has its row.
fn row(exit: Exit) -> (String, &'static str) {
    let code = exit.code().to_string();
    match exit {
        Exit::Done => (code, "done"),
        Exit::Usage => (code, "usage error: nothing was done"),
        Exit::Store => (
            code,
            "the database cannot be used (missing, not tenure's, damaged, no permission, disk full, locked by another program for 10 s): CMD was not started. Also when standard output cannot be written",
        ),
        Exit::Busy(_) | Exit::Deadlock => (
            code,
            "busy: a lock is held by another, or the wait ran out; nothing was taken, CMD was not started; `-E N` puts N in its place. Also when waiting would be for ever, or a lease around the command itself holds the lock, which neither `-E` nor `-q` covers",
        ),
        Exit::NotHeld => (
            code,
            "not held: the token's lease is over or another's, or nobody holds a lock that `--force` names; under `run`: the lease was lost, and CMD was stopped",
        ),
        Exit::Signal(_) => (
            "128+n".into(),
            "a signal ended CMD, or a wait: tenure ends itself by the same signal, and shells show this",
        ),
        Exit::Command(_) => (
            "CMD's own".into(),
            "`run`: CMD ended by itself, with any status from 0 to 255",
        ),
        Exit::TimedOut => (code, "`run`: `--max-time` ran out, and CMD was stopped"),
        Exit::CannotExecute => (
            code,
            "`run`: CMD cannot be executed; the locks were given back",
        ),
        Exit::NotFound => (code, "`run`: CMD was not found; the locks were given back"),
    }
}

/// Those with which a verb can end.
fn exits_of(verb: &str) -> Vec<Exit> {
    let may_be = |exit: &Exit| match exit {
        Exit::Done | Exit::Usage | Exit::Store => true,
        Exit::Busy(_) | Exit::Deadlock => verb == "acquire",
        Exit::NotHeld => !matches!(verb, "acquire" | "log"),
        Exit::Signal(_) => matches!(verb, "acquire" | "release" | "status"),
        _ => false,
    };
    let is_full = matches!(verb, "tenure" | "run");
    EXITS
        .into_iter()
        .filter(|exit| is_full || may_be(exit))
        .collect()
}

/// What no option can tell, in the notation that [`to_roff`] reads.
fn text_of(verb: &str) -> &'static str {
    match verb {
        "tenure" => include_str!("pages/tenure.txt"),
        "acquire" => include_str!("pages/acquire.txt"),
        "release" => include_str!("pages/release.txt"),
        "extend" => include_str!("pages/extend.txt"),
        "run" => include_str!("pages/run.txt"),
        "status" => include_str!("pages/status.txt"),
        "log" => include_str!("pages/log.txt"),
        other => panic!("{other} has no text in src/cli/pages/"),
    }
}

/// Every generated file: its path in the repository, and what is to be in it.
fn files() -> Vec<(String, String)> {
    let mut root = Cli::command()
        .disable_help_subcommand(true)
        .subcommand_help_heading("COMMANDS")
        .mut_args(for_page)
        .mut_subcommands(|verb| verb.mut_args(for_page));
    root.build();
    let mut commands = vec![&root];
    commands.extend(root.get_subcommands().filter(|verb| !verb.is_hide_set()));
    let names: Vec<String> = commands.iter().map(|command| page_name(command)).collect();
    let mut files: Vec<_> = commands
        .iter()
        .map(|command| {
            let path = format!("man/{}.1", page_name(command));
            (path, page(command, &names))
        })
        .collect();
    let mut root = Cli::command();
    root.build();
    for (name, script) in completions::files(&root) {
        files.push((format!("completions/{name}"), script));
    }
    files
}

fn page_name(command: &Command) -> String {
    let name = command.get_display_name();
    name.unwrap_or(command.get_name()).to_owned()
}

/// An option as a page tells it: in sentences, with its other names.
fn for_page(arg: Arg) -> Arg {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let long = arg.get_long_help().map(ToString::to_string);
    let rest = long.and_then(|long| long.strip_prefix(&help).map(str::to_owned));
    let short = arg.get_visible_short_aliases().unwrap_or_default();
    let short = short.iter().map(|name| format!("`-{name}`"));
    let long = arg.get_visible_aliases().unwrap_or_default();
    let long = long.iter().map(|name| format!("`--{name}`"));
    let names: Vec<String> = short.chain(long).collect();
    let also = match names.as_slice() {
        [] => String::new(),
        names => format!("\n\nThe same as {}.", names.join(" and ")),
    };
    let environment = arg.get_env().map(|name| name.to_string_lossy());
    let environment = environment.map_or_else(String::new, |name| {
        format!("\n\n{name} in the environment stands for it.")
    });
    arg.long_help(format!(
        "{help}.{}{also}{environment}",
        rest.unwrap_or_default()
    ))
}

fn page(command: &Command, all: &[String]) -> String {
    let man = Man::new(command.clone()).source(format!("tenure {}", env!("CARGO_PKG_VERSION")));
    let section = |write: &dyn Fn(&mut Vec<u8>) -> std::io::Result<()>| {
        let mut out = Vec::new();
        write(&mut out).expect("memory can be written");
        String::from_utf8(out).expect("pages are text")
    };
    let verb = command.get_name();
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    // The first paragraph says what NAME has said.
    let about = about
        .split_once("\n\n")
        .map_or(about.as_str(), |(_, rest)| rest);

    // An empty date has to be written as one, or what comes after it is taken for it.
    let mut page = section(&|out| man.render_title(out)).replace(" 1  \"", " 1 \"\" \"");
    // No hyphenation and a ragged margin: names such as TENURE_FENCE stay whole.
    page += ".nh\n.ad l\n";
    page += &section(&|out| man.render_name_section(out));
    page += &synopsis(command);
    page += &to_roff(&format!("# DESCRIPTION\n\n{about}"));
    if command.has_subcommands() {
        page += &section(&|out| man.render_subcommands_section(out));
    }
    let options = section(&|out| man.render_options_section(out));
    page += &bold_code(&options).replace("\n\n", "\n.IP\n");
    let mut rest = String::from("# EXIT STATUS\n\n");
    for (code, when) in exits_of(verb).into_iter().map(row) {
        let _ = write!(rest, "{code}\n: {when}\n\n");
    }
    let others = all.iter().filter(|name| **name != page_name(command));
    let others: Vec<String> = others.map(|name| format!("`{name}`(1), ")).collect();
    let _ = write!(
        rest,
        "{}\n# SEE ALSO\n\n{}`flock`(1)\n",
        text_of(verb),
        others.concat()
    );
    page += &to_roff(&rest);
    without_idle_requests(&page)
}

/// A heading ends the paragraph before it, and begins one.
fn without_idle_requests(page: &str) -> String {
    let mut lines: Vec<&str> = Vec::new();
    for line in page.lines().map(str::trim_end) {
        let before = lines.last().copied().unwrap_or_default();
        if line.starts_with(".SH") && before == ".br" {
            lines.pop();
        }
        if !(line == ".PP" && before.starts_with(".SH")) {
            lines.push(line);
        }
    }
    lines.join("\n") + "\n"
}

/// The usage that `--help` shows, a line each way to call the command: `clap_mangen`'s own drops the values' names.
fn synopsis(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut out = String::from(".SH SYNOPSIS\n");
    for line in usage.trim_start_matches("Usage: ").lines() {
        let rest = line.trim().strip_prefix(name).expect("usage has the name");
        let rest = escape(rest).replace('<', "\\fI").replace('>', "\\fR");
        let _ = writeln!(out, "\\fB{}\\fR{rest}\n.br", escape(name));
    }
    out
}

/// From the notation of the texts: blocks between empty lines, each a `# HEADING`, a `term` and `: what it means`,
/// code indented by four blanks, or a paragraph; with `code` in backticks.
fn to_roff(text: &str) -> String {
    let mut out = String::new();
    for block in text.split("\n\n").map(|block| block.trim_matches('\n')) {
        if let Some(heading) = block.strip_prefix("# ") {
            let _ = writeln!(out, ".SH \"{heading}\"");
        } else if let Some((term, meaning)) = block.split_once("\n: ") {
            let _ = writeln!(out, ".TP\n{}\n{}", line(term), line(meaning));
        } else if block.starts_with("    ") {
            let code: Vec<String> = block.lines().map(|text| code_line(text.get(4..))).collect();
            let _ = writeln!(out, ".PP\n.RS 4\n.EX\n{}\n.EE\n.RE", code.join("\n"));
        } else if !block.is_empty() {
            let _ = writeln!(out, ".PP\n{}", line(block));
        }
    }
    out
}

fn line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    bold_code(&protect(&escape(&text)))
}

fn code_line(text: Option<&str>) -> String {
    protect(&escape(text.unwrap_or_default()).replace('\'', "\\(aq"))
}

fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    text.replace('~', "\\(ti").replace('^', "\\(ha")
}

/// A line of text that starts as a request does is not one.
fn protect(text: &str) -> String {
    if text.starts_with(['.', '\'']) {
        format!("\\&{text}")
    } else {
        text.to_owned()
    }
}

fn bold_code(text: &str) -> String {
    let mut parts = text.split('`');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (part, font) in parts.zip(["\\fB", "\\fR"].into_iter().cycle()) {
        out += font;
        out += part;
    }
    out
}

#[test]
fn man_pages_and_completions_are_fresh() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in files() {
        if std::env::var_os("TENURE_BLESS").is_some() {
            fs::write(root.join(&path), &text).unwrap();
        }
        assert!(
            fs::read_to_string(root.join(&path)).is_ok_and(|committed| committed == text),
            "{path} is stale: TENURE_BLESS=1 cargo test pages"
        );
    }
}

#[test]
fn nothing_else_lies_in_man_and_completions() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made: Vec<_> = files()
        .into_iter()
        .map(|(path, _)| root.join(path))
        .collect();
    for folder in ["man", "completions"] {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            assert!(
                made.contains(&path),
                "{} is made by nothing",
                path.display()
            );
        }
    }
}

#[test]
fn the_readme_has_the_table_of_exit_statuses() {
    let readme = include_str!("../../README.md");
    let table: String = EXITS.into_iter().map(row).fold(
        "| status | when |\n| --- | --- |\n".into(),
        |mut table, (code, when)| {
            let _ = writeln!(table, "| {code} | {when} |");
            table
        },
    );
    assert!(readme.contains(&format!("\n{table}\n")), "wanted:\n{table}");
}

#[test]
fn the_command_line_is_sound() {
    Cli::command().debug_assert();
}
