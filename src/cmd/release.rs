//! `tenure release`: give a lease's locks back, or with `--force` take them from whoever holds them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;

use super::{explain, not_held, only_some, open, sorted, tell_unlogged, token_of};
use crate::cli::{Common, Release};
use crate::exit::{Exit, Usage};
use crate::holder;
use crate::lock::{Held, LockName};
use crate::output;
use crate::signals::{self, Signal};
use crate::store::{self, Purpose, Shown, Store};
use crate::wait;

/// The pause between two looks at a holder that was told to end.
const LOOK: Duration = Duration::from_millis(25);

/// How long it waits without a word: most holders have ended by then.
const SILENCE: Duration = Duration::from_secs(2);

/// # Errors
/// A usage error, or the store cannot be used.
pub fn run(args: &Release, common: &Common) -> Result<Exit> {
    if args.force {
        take_away(args, common)
    } else {
        give_back(args, common)
    }
}

fn give_back(args: &Release, common: &Common) -> Result<Exit> {
    let names = sorted(&args.names);
    let mut store;
    let shown = if let Some(number) = args.fd {
        store = open(common, Purpose::Change)?;
        if let Some(fault) = store.fault_of(number) {
            return Err(Usage(fault).into());
        }
        store.release_tied(number, &names)?
    } else {
        let token = token_of(args.proof.token)?;
        store = open(common, Purpose::Change)?;
        store.release(&token, &names)?
    };
    tell_unlogged(&mut *store);
    match shown {
        Shown::Done(held) => done(args, common, &[held], &store.location()),
        Shown::NotHeld => Ok(not_held(common, args.json, &names, &store.location())),
        Shown::OnlySome(all) => Err(only_some(&all)),
        Shown::OfRun(held) if held.orphan.is_some() => {
            let mut held = [held];
            store::find_orphans(&mut held);
            let [held] = &held;
            Err(Usage(format!(
                "{}; the token of a run does not release what it holds",
                output::busy(&held.names, held)
            ))
            .into())
        }
        Shown::OfRun(held) => Err(Usage(format!(
            "{} {} held by a run (pid {}), which gives back what it holds when its command ends; release --force stops that",
            output::list(&held.names),
            output::is_or_are(&held.names),
            held.holder.pid
        ))
        .into()),
    }
}

fn take_away(args: &Release, common: &Common) -> Result<Exit> {
    let names = sorted(&args.names);
    let mut store = open(common, Purpose::Change)?;
    let by = holder::show(&holder::of_caller(None));
    let taken = store.revoke(&names, args.if_fence, args.now, &by)?;
    tell_unlogged(&mut *store);
    let location = store.location();
    let is_free = |name: &&LockName| !taken.iter().any(|held| held.names.contains(name));
    let free: Vec<LockName> = names.iter().filter(is_free).cloned().collect();
    if !free.is_empty() && !common.quiet {
        say_what_was_free(args, &free, &location);
    }
    for held in &taken {
        say_what_goes_with_it(&names, held);
    }
    if !args.now && !taken.is_empty() {
        wait_until_gone(&mut *store, &taken)?;
    }
    let exit = done(args, common, &taken, &location)?;
    if free.is_empty() {
        return Ok(exit);
    }
    if args.json {
        let names: Vec<_> = free.iter().map(LockName::as_str).collect();
        // As with a token: that they are not held is the answer.
        let _ = output::print_json(&json!({ "reason": "not-held", "names": names }));
    }
    Ok(Exit::NotHeld)
}

/// A name that was mistyped is not to pass for one that was released.
fn say_what_was_free(args: &Release, free: &[LockName], location: &str) {
    let (names, are) = (output::list(free), output::is_or_are(free));
    let fence = args.if_fence.map(|fence| format!(" with fence {fence}"));
    let fence = fence.unwrap_or_default();
    output::say(&format!("{names} {are} not held{fence} (in {location})"));
}

fn say_what_goes_with_it(asked: &[LockName], held: &Held) {
    let (named, others): (Vec<LockName>, Vec<LockName>) = held
        .names
        .iter()
        .cloned()
        .partition(|name| asked.contains(name));
    if !others.is_empty() {
        output::say(&format!(
            "{} goes with {}: one lease holds them",
            output::list(&others),
            output::list(&named)
        ));
    }
}

/// Returns when none of these leases lives any more.
fn wait_until_gone(store: &mut dyn Store, taken: &[Held]) -> Result<()> {
    let names: Vec<LockName> = taken.iter().flat_map(|held| held.names.clone()).collect();
    let is_taken = |held: &Held| taken.iter().any(|taken| taken.id == held.id);
    let began = Instant::now();
    let (mut watches_interrupt, mut told) = (false, false);
    loop {
        let held = store.held(&names)?;
        let Some(left) = held.iter().find(|held| is_taken(held)) else {
            return Ok(());
        };
        if !watches_interrupt {
            watches_interrupt = true;
            explain_interrupt(&names)?;
        }
        if !told && began.elapsed() > SILENCE {
            told = true;
            say_what_is_waited_for(left);
        }
        wait::pause(LOOK);
    }
}

fn say_what_is_waited_for(left: &Held) {
    let (names, are) = (output::list(&left.names), output::is_or_are(&left.names));
    let mut left = [left.clone()];
    store::find_orphans(&mut left);
    let [left] = &left;
    let Some(orphan) = &left.orphan else {
        let who = holder::show(&left.holder);
        return output::say(&format!(
            "waiting for {who} to end, which may be stopped or cleaning up; {names} {are} revoked (--now does not wait)"
        ));
    };
    let (who, end) = (
        output::orphan_of(left),
        output::orphans_end(&left.names[0], left, orphan),
    );
    let processes = output::processes(orphan).map(|all| format!(": {all}"));
    output::say(&format!(
        "waiting until {who} end by themselves{}; {end}; {names} {are} revoked (--now does not wait)",
        processes.unwrap_or_default()
    ));
}

/// Ctrl-C ends the wait and nothing else: says so, and ends as any program does that is interrupted.
fn explain_interrupt(names: &[LockName]) -> Result<()> {
    if signals::is_ignored(Signal::INT) {
        return Ok(());
    }
    let names = output::list(names);
    ctrlc::set_handler(move || {
        output::tell(&format!(
            "not waiting any longer: {names} was revoked, but its holder has not ended yet"
        ));
        signals::die_by(Signal::INT);
    })
    .context("cannot watch for Ctrl-C")
}

fn done(args: &Release, common: &Common, released: &[Held], location: &str) -> Result<Exit> {
    for held in released {
        explain(common, || {
            format!("{} is free (in {location})", output::list(&held.names))
        });
        if args.json {
            let names: Vec<_> = held.names.iter().map(LockName::as_str).collect();
            output::print_json(&json!({ "names": names, "fence": held.fence }))?;
        }
    }
    Ok(Exit::Done)
}
