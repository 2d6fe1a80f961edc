//! `tenure`: parse, dispatch, print one error line, end as the command did.

use std::process::ExitCode;

use clap::Parser;

use tenure::cli::Cli;
use tenure::exit::Exit;
use tenure::{cmd, output, signals};

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
