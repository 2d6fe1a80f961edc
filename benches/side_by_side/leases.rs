//! Whether a `run` is slower for what else the database holds.

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::figures::{Row, Target, Times};
use crate::locks::{NAME, Tenure};
use crate::processes::{output, time};

const OTHERS: i64 = 100_000;

const RUNS: usize = 1000;

/// Before these, caches are cold.
const WARM_UP: usize = 50;

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let place = |name| {
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory)?;
        anyhow::Ok(Tenure::new(&directory))
    };
    let (empty, full) = (place("empty")?, place("full")?);
    fill(&full)?;
    let run = |tenure: &Tenure| {
        let mut command = tenure.tenure();
        command.args(["run", NAME, "--", "true"]);
        command
    };
    let (mut in_empty, mut in_full) = (run(&empty), run(&full));
    let mut times = Times::default();
    for run in 0..WARM_UP + RUNS {
        let (of_empty, of_full) = (time(&mut in_empty)?, time(&mut in_full)?);
        if run >= WARM_UP {
            times.other.push(of_empty);
            times.tenure.push(of_full);
        }
    }
    let row = |percent, target| {
        times.row(
            "`run x -- true` with 100,000 other leases",
            "empty database",
            percent,
            target,
        )
    };
    Ok(vec![row(50, Target::Ratio(1.2)), row(99, Target::None)])
}

/// Takes one lease, and multiplies it in the database.
fn fill(tenure: &Tenure) -> Result<()> {
    output(tenure.tenure().args(["acquire", "--ttl", "1d", "other"]))?;
    let connection = Connection::open(&tenure.database).context("cannot open the database")?;
    // Columns with nothing that tells one lease from another are copied, whichever there are.
    let columns = "select group_concat(name, ', ') from pragma_table_info('ticket')
                   where name not in ('token', 'id', 'fence', 'names')";
    let columns: String = connection.query_row(columns, [], |row| row.get(0))?;
    connection.execute_batch(&format!(
        "begin immediate;
         with recursive number (n) as (select 1 union all select n + 1 from number where n < {OTHERS} - 1)
         insert into ticket (token, id, fence, names, {columns})
         select randomblob(16), serial + 2 * n - 1, serial + 2 * n, 'other ' || n, {columns}
         from number, (select serial from store), ticket;
         insert into claim (name, ticket, token)
         select names, id, token from ticket where id not in (select ticket from claim);
         update store set serial = (select max(fence) from ticket);
         commit;"
    ))?;
    let rows = "select count(*), max(name) from claim";
    let (count, last): (i64, String) =
        connection.query_row(rows, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    ensure!(count == OTHERS, "{count} of {OTHERS} leases are there");
    connection.close().map_err(|(_, error)| error)?;
    // One may speak for all: they differ in name and number only.
    let status = output(tenure.tenure().args(["status", "--json", &last]))?;
    let is_held = status.contains("\"state\":\"held\"");
    ensure!(is_held, "tenure does not see the leases: {status}");
    Ok(())
}
