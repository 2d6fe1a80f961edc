//! `tenure`: parse, dispatch, print one error line, end as the command did.

mod child;
mod cli;
mod clock;
mod cmd;
mod duration;
mod exit;
mod guard;
mod holder;
mod line;
mod lock;
mod output;
mod signals;
mod standing;
mod store;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::{Exit, Usage};
use crate::wait::Interrupted;

fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => {
            cmd::dispatch(&cli).unwrap_or_else(|error| failed(&error, cli.verb.wants_json()))
        }
        Err(error) => output::clap_error(&error),
    };
    if let Exit::Signal(signal) = exit {
        signals::die_by(signal);
    }
    exit.into()
}

/// Says what went wrong. Whatever is not the caller's mistake means that the store cannot be used.
fn failed(error: &anyhow::Error, wants_json: bool) -> Exit {
    if let Some(Interrupted(signal)) = error.downcast_ref() {
        return Exit::Signal(*signal);
    }
    let message = output::chain(error);
    output::say(&message);
    if error.is::<Usage>() {
        return Exit::Usage;
    }
    if wants_json {
        // stderr has said it already, and the exit status does.
        let _ = output::print_json(&serde_json::json!({ "reason": "store", "message": message }));
    }
    Exit::Store
}
