//! `tenure extend`: reset a lease's time to live.

use anyhow::Result;
use serde_json::json;

use super::{explain, not_held, only_some, open, sorted, token_of};
use crate::cli::{Common, Extend};
use crate::duration::{millis, show};
use crate::exit::{Exit, Usage};
use crate::lock::LockName;
use crate::output;
use crate::store::{Purpose, Shown};

/// # Errors
/// A usage error, or the store cannot be used.
pub fn run(args: &Extend, common: &Common) -> Result<Exit> {
    let token = token_of(args.proof.token)?;
    let names = sorted(&args.names);
    let mut store = open(common, Purpose::Change)?;
    match store.extend(&token, &names, args.ttl)? {
        Shown::NotHeld => Ok(not_held(common, args.json, &names, &store.location())),
        Shown::OnlySome(all) => Err(only_some(&all)),
        Shown::OfRun(held) => Err(Usage(format!(
            "{} {} held by a run (pid {}), which reckons with {}: its time to live can be made longer, and not shorter",
            output::list(&held.names),
            output::is_or_are(&held.names),
            held.holder.pid,
            show(held.ttl)
        ))
        .into()),
        Shown::Done(held) => {
            let ttl = args.ttl.unwrap_or(held.ttl);
            explain(common, || {
                format!(
                    "{} is held for {} from now (in {})",
                    output::list(&held.names),
                    show(ttl),
                    store.location()
                )
            });
            if args.json {
                let names: Vec<_> = held.names.iter().map(LockName::as_str).collect();
                output::print_json(
                    &json!({ "names": names, "fence": held.fence, "ttl_ms": millis(ttl) }),
                )?;
            }
            Ok(Exit::Done)
        }
    }
}
