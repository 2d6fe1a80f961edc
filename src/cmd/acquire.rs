//! `tenure acquire`: take locks and print the lease's token.

use anyhow::{Context, Result};
use serde_json::json;

use super::take::{Taken, pending_end, take};
use super::{nesting, open, request};
use crate::cli::{Acquire, Common};
use crate::duration::millis;
use crate::exit::{Exit, Usage};
use crate::holder;
use crate::lock::{Lease, LockName};
use crate::output::{self, Row};
use crate::signals::Signals;
use crate::store::{Durability, Keeping, Purpose};

/// # Errors
/// The store cannot be used.
pub fn run(args: &Acquire, common: &Common) -> Result<Exit> {
    let outcome = acquire(args, common);
    let exit = outcome.as_ref().map_or_else(Exit::of, |exit| *exit);
    if args.shell && exit != Exit::Done {
        // To evaluate nothing would be a success, and the script would go on without the lock. Whether or not this can be
        // written, the exit status says the same.
        let _ = output::print(&format!("(exit {})\n", exit.code()));
    }
    outcome
}

fn acquire(args: &Acquire, common: &Common) -> Result<Exit> {
    if !args.command.is_empty() {
        return Err(Usage("acquire runs no command; tenure run NAME -- CMD does".into()).into());
    }
    // Until the token is out, whoever interrupts would leave a lease that nobody can end.
    let signals = Signals::for_waiter().context("cannot watch signals")?;
    let mut store = open(common, Purpose::Take(Durability::Power))?;
    let note = args.taking.note.as_deref();
    let request = request(&args.names, &args.taking, holder::of_caller(note))?;
    let keeping = args.fd.map_or(Keeping::Bare, Keeping::Tied);
    if let Some(fault) = args.fd.and_then(|number| store.fault_of(number)) {
        return Err(Usage(fault).into());
    }
    let lease = match take(
        &mut *store,
        &request,
        keeping,
        &args.taking,
        &signals,
        common,
    )? {
        Taken::Granted(lease) => lease,
        Taken::Not(exit, others) => {
            let reason = match exit {
                Exit::Busy(_) => Some("busy"),
                Exit::Deadlock => Some("deadlock"),
                _ => None,
            };
            if let Some(reason) = reason.filter(|_| args.json) {
                let held: Vec<_> = others
                    .iter()
                    .map(|held| {
                        output::lock_json(&Row {
                            name: output::asked_of(&request.names, held),
                            held: Some(held),
                            waiting: 0,
                            line: None,
                            is_last: true,
                        })
                    })
                    .collect();
                let mut answer = json!({ "reason": reason, "held": held });
                if exit == Exit::Deadlock {
                    answer["message"] = output::deadlock(&request.names, &others).into();
                }
                // That it is busy is the answer, whether or not this can be written.
                let _ = output::print_json(&answer);
            }
            return Ok(exit);
        }
    };
    if let Some(signal) = pending_end(&signals) {
        store.release(&lease.token, &lease.names)?;
        return Ok(Exit::Signal(signal));
    }
    let text = if args.json {
        as_json(&lease).to_string()
    } else if args.shell {
        let slot = lease.slot.map(|slot| format!(" TENURE_SLOT={slot}"));
        format!(
            "export {}={} TENURE_FENCE={}{} {}={}",
            nesting::INNERMOST,
            lease.token,
            lease.fence,
            slot.unwrap_or_default(),
            nesting::ALL,
            nesting::with(&lease.token)
        )
    } else {
        lease.token.to_string()
    } + "\n";
    if let Err(error) = output::print_all(&text) {
        // A lease whose token nobody has would stand in everybody's way until its time is over.
        store.release(&lease.token, &lease.names)?;
        return Err(error)
            .context("cannot write the token to standard output; the locks were given back");
    }
    Ok(Exit::Done)
}

fn as_json(lease: &Lease) -> serde_json::Value {
    json!({
        "names": lease.names.iter().map(LockName::as_str).collect::<Vec<_>>(),
        "token": lease.token.to_string(),
        "fence": lease.fence,
        "slot": lease.slot,
        "ttl_ms": millis(lease.ttl),
    })
}
