//! Whether looking, or a `run`, is slower for all that happened before.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::figures::{Row, Target, Times};
use crate::locks::{NAME, Tenure};
use crate::processes::{output, time};

/// As many as are kept.
const ENTRIES: i64 = 100_000;

const RUNS: usize = 500;

/// Before these, caches are cold.
const WARM_UP: usize = 20;

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let place = |name| {
        let directory = directory.path().join(name);
        std::fs::create_dir(&directory)?;
        let tenure = Tenure::new(&directory);
        output(tenure.tenure().args(["run", NAME, "--", "true"]))?;
        anyhow::Ok(tenure)
    };
    let (empty, full) = (place("empty")?, place("full")?);
    empty_log(&empty)?;
    fill(&full)?;
    let mut rows = Vec::new();
    for (words, target) in [
        (&["log", "-n", "20"] as &[&str], Target::Ratio(2.0)),
        (&["status"], Target::Ratio(2.0)),
        // The last, for it writes to both.
        (&["run", NAME, "--", "true"], Target::Ratio(1.2)),
    ] {
        let (mut in_empty, mut in_full) = (empty.tenure(), full.tenure());
        for command in [&mut in_empty, &mut in_full] {
            command.args(words);
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let mut times = Times::default();
        for run in 0..WARM_UP + RUNS {
            let (of_empty, of_full) = (time(&mut in_empty)?, time(&mut in_full)?);
            if run >= WARM_UP {
                times.other.push(of_empty);
                times.tenure.push(of_full);
            }
        }
        let what = format!("`{}` with 100,000 entries in the log", words.join(" "));
        rows.push(times.row(&what, "empty database", 50, target));
        rows.push(times.row(&what, "empty database", 99, Target::None));
    }
    Ok(rows)
}

fn empty_log(tenure: &Tenure) -> Result<()> {
    let connection = Connection::open(&tenure.database).context("cannot open the database")?;
    connection.execute_batch("delete from log")?;
    Ok(())
}

/// Multiplies the one entry that is there.
fn fill(tenure: &Tenure) -> Result<()> {
    let connection = Connection::open(&tenure.database).context("cannot open the database")?;
    // Columns with nothing that tells one entry from another are copied, whichever there are.
    let columns = "select group_concat(name, ', ') from pragma_table_info('log')
                   where name not in ('id', 'fence', 'names')";
    let columns: String = connection.query_row(columns, [], |row| row.get(0))?;
    connection.execute_batch(&format!(
        "begin immediate;
         with recursive number (n) as (select 1 union all select n + 1 from number where n < {ENTRIES} - 1)
         insert into log (fence, names, {columns})
         select fence + n, 'job ' || (n % 100), {columns} from number, log;
         commit;"
    ))?;
    let count = "select count(*) from log";
    let count: i64 = connection.query_row(count, [], |row| row.get(0))?;
    ensure!(count == ENTRIES, "{count} of {ENTRIES} entries are there");
    connection.close().map_err(|(_, error)| error)?;
    let log = output(tenure.tenure().args(["log", "-n", "20"]))?;
    ensure!(log.lines().count() == 20, "tenure does not see them: {log}");
    Ok(())
}
