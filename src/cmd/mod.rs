//! One verb a file, and here what they share: opening the store, and taking locks.

mod acquire;
mod extend;
mod log;
mod names;
mod nesting;
mod release;
mod run;
mod status;
mod take;

use std::io::{self, BufRead, Read};

use anyhow::Result;

use crate::cli::{Cli, Common, Taking, TokenFrom, Verb};
use crate::exit::{Exit, Usage};
use crate::lock::{Holder, LockName, Request, Token};
use crate::output;
use crate::store::{self, Purpose, Store};

/// Does what the command line says.
///
/// # Errors
/// [`Usage`] for a mistake of the caller's; anything else means that the store cannot be used.
pub fn dispatch(cli: &Cli) -> Result<Exit> {
    match &cli.verb {
        Verb::Acquire(args) => acquire::run(args, &cli.common),
        Verb::Release(args) => release::run(args, &cli.common),
        Verb::Extend(args) => extend::run(args, &cli.common),
        Verb::Run(args) => run::run(args, &cli.common),
        Verb::Status(args) => status::run(args, &cli.common),
        Verb::Log(args) => log::run(args, &cli.common),
        Verb::Names(args) => Ok(names::run(args, &cli.common)),
    }
}

/// The store that the command line names, for a verb that needs one.
fn open(common: &Common, purpose: Purpose) -> Result<Box<dyn Store>> {
    Ok(store::open(common.db.as_deref(), purpose)?
        .expect("only looking can find no database and go on"))
}

/// The names in order, each once: the order in which stores keep them.
fn sorted(names: &[LockName]) -> Vec<LockName> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    names
}

/// What is asked for.
///
/// # Errors
/// A usage error.
fn request(names: &[LockName], how: &Taking, holder: Holder) -> Result<Request> {
    let names = sorted(names);
    if how.slots.is_some() && names.len() > 1 {
        return Err(Usage("--slots goes with one name".into()).into());
    }
    Ok(Request {
        names,
        mode: how.mode(),
        ttl: how.ttl,
        at_least: how.at_least.unwrap_or_default(),
        enclosing: nesting::around(),
        holder,
    })
}

/// The token, from the command line, the environment or standard input.
fn token_of(token: Option<TokenFrom>) -> Result<Token> {
    match token {
        Some(TokenFrom::Argument(token)) => Ok(token),
        Some(TokenFrom::Stdin) => token_from_stdin(),
        None => Err(Usage(
            "no token: give the one that acquire printed, with --token or in TENURE_TOKEN".into(),
        )
        .into()),
    }
}

/// The first line of standard input, as `acquire` printed it.
fn token_from_stdin() -> Result<Token> {
    let mut line = Vec::new();
    let read = io::stdin()
        .lock()
        .take(MOST_OF_A_LINE)
        .read_until(b'\n', &mut line);
    let usage = |why: &str| Usage(format!("no token on standard input: {why}"));
    if let Err(error) = read {
        return Err(usage(&output::chain(&error.into())).into());
    }
    // What is wrong with it is told without a word of it, for it may be all but right.
    let text = String::from_utf8_lossy(&line);
    match text.trim_end() {
        "" => Err(usage("its first line is empty").into()),
        token => Ok(token.parse().map_err(|why: String| usage(&why))?),
    }
}

/// More than a token has, so that whoever gives something else is told of it and not waited for.
const MOST_OF_A_LINE: u64 = 64;

/// Says, unless told to be quiet, that a token's lease is over.
fn not_held(common: &Common, json: bool, names: &[LockName], location: &str) -> Exit {
    if !common.quiet {
        let what = if names.is_empty() {
            "the lease of this token".to_owned()
        } else {
            output::list(names)
        };
        output::say(&format!(
            "{what} {} not held: the lease is over or another's (in {location})",
            output::is_or_are(names)
        ));
    }
    if json {
        // That it is not held is the answer, whether or not this can be written.
        let _ = output::print_json(&serde_json::json!({ "reason": "not-held" }));
    }
    Exit::NotHeld
}

/// A usage error: a lease ends whole or not at all.
fn only_some(all: &[LockName]) -> anyhow::Error {
    Usage(format!(
        "this lease has more locks: name all of {}, or none",
        output::list(all)
    ))
    .into()
}

/// What was done is done, but nobody will read of it.
fn tell_unlogged(store: &mut dyn Store) {
    if let Some(why) = store.unlogged() {
        output::say(&format!("cannot write the log: {why}"));
    }
}

/// Tells what was done, under `--verbose`. A lock may be held meanwhile.
fn explain(common: &Common, text: impl FnOnce() -> String) {
    if common.verbose {
        output::tell(&text());
    }
}
