//! `tenure`: parse, dispatch, print one error line, end as the command did.

mod chance;
mod child;
mod cli;
mod clock;
mod cmd;
mod duration;
mod exit;
#[cfg(test)]
mod fuzz;
mod guard;
mod history;
mod holder;
mod line;
mod lock;
#[cfg(test)]
mod model;
mod obstacle;
mod output;
mod processes;
mod secret;
mod signals;
mod standing;
mod store;
mod timeline;
mod wait;
mod watchdog;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::exit::Exit;

fn main() -> ExitCode {
    let exit = match Cli::try_parse() {
        Ok(cli) => {
            cmd::dispatch(&cli).unwrap_or_else(|error| failed(&error, cli.verb.wants_json()))
        }
        Err(error) => output::mistake::tell(error),
    };
    if let Exit::Signal(signal) = exit {
        signals::die_by(signal);
    }
    exit.into()
}

/// Says what went wrong, unless that is a signal.
fn failed(error: &anyhow::Error, wants_json: bool) -> Exit {
    let exit = Exit::of(error);
    if let Exit::Signal(_) = exit {
        return exit;
    }
    let message = output::chain(error);
    output::say(&message);
    if exit == Exit::Store && wants_json {
        // stderr has said it already, and the exit status does.
        let _ = output::print_json(&serde_json::json!({ "reason": "store", "message": message }));
    }
    exit
}
