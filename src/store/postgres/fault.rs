//! What goes wrong between here and the server, and how people are told of it. No secret is ever in it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use tokio_postgres::error::{DbError, SqlState};

use super::target::Target;
use crate::duration::show;
use crate::output;
use crate::store::tls::{self, Terms};

const TERMS: Terms = Terms {
    authorities: "sslrootcert",
    own: "sslcert and sslkey",
    plain: "sslmode=disable",
};

/// What can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The server does not answer, or not any more: it may in a moment.
    Cut,
    /// Somebody else keeps it from doing what it was asked for. Nothing was done.
    Locked,
    /// Nobody has made the tables yet.
    NoTables,
    /// Nothing, by this program.
    Other,
}

#[derive(Debug)]
pub struct Fault {
    pub kind: Kind,
    text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Error for Fault {}

/// What can be done about any error of this store.
pub fn kind_of(error: &anyhow::Error) -> Kind {
    error
        .downcast_ref::<Fault>()
        .map_or(Kind::Other, |fault| fault.kind)
}

impl Fault {
    pub fn new(kind: Kind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// The server did not answer within this time.
    pub fn no_answer(location: &str, after: Duration) -> Self {
        let after = match show(after) {
            // Its share of the time was none at all.
            zero if zero == "0s" => "time".to_owned(),
            after => after,
        };
        Self::new(
            Kind::Cut,
            format!("cannot reach {location}: no answer in {after}"),
        )
    }

    /// From the client's error.
    pub fn of(target: &Target, error: &tokio_postgres::Error) -> Self {
        let location = target.location();
        let Some(told) = error.as_db_error() else {
            return Self::of_connection(target, error);
        };
        let code = told.code();
        if is_cut(code) {
            let text = format!("cannot reach {location}: {}", told.message());
            return Self::new(Kind::Cut, text);
        }
        if [SqlState::UNDEFINED_TABLE, SqlState::INVALID_SCHEMA_NAME].contains(code) {
            let text = format!(
                "cannot open {location}: there is no schema tenure in it yet (acquire and run make it)"
            );
            return Self::new(Kind::NoTables, text);
        }
        let kind = if is_locked(code) {
            Kind::Locked
        } else {
            Kind::Other
        };
        Self::new(kind, format!("cannot use {location}: {}", explained(told)))
    }

    fn of_connection(target: &Target, error: &tokio_postgres::Error) -> Self {
        let location = target.location();
        if let Some(error) = tls::cause(error) {
            let why = tls::why(error, &TERMS);
            return Self::new(Kind::Other, format!("cannot reach {location}: {why}"));
        }
        let mut innermost: &dyn Error = error;
        let mut is_io = error.is_closed();
        while let Some(source) = innermost.source() {
            is_io |= source
                .downcast_ref::<std::io::Error>()
                .is_some_and(|error| error.kind() != std::io::ErrorKind::InvalidData);
            innermost = source;
        }
        // In the words of the system without its numbers, wherever it stands in the line.
        let why = innermost.to_string();
        let why = why.split(" (os error ").next().unwrap_or(&why);
        let why = output::lower_first(why);
        if why == "password missing" {
            let aside = target.open_passfile.as_ref().map(|path| {
                format!(
                    "; {} was left aside, for others can read it (chmod 600)",
                    path.display()
                )
            });
            let text = format!(
                "cannot use {location}: the server wants a password, and there is none in PGPASSWORD or a password file{}",
                aside.unwrap_or_default()
            );
            return Self::new(Kind::Other, text);
        }
        let why = match why.as_str() {
            // In words of the client's.
            "database does not allow writes" => {
                "it takes no changes (it is a standby, or set to read only)".to_owned()
            }
            _ => why,
        };
        let kind = if is_io { Kind::Cut } else { Kind::Other };
        Self::new(kind, format!("cannot reach {location}: {why}"))
    }
}

/// Whether the connection ended, or the server takes none just now.
fn is_cut(code: &SqlState) -> bool {
    // All of class 08, and what a server says that is being stopped or started.
    code.code().starts_with("08")
        || [
            SqlState::ADMIN_SHUTDOWN,
            SqlState::CRASH_SHUTDOWN,
            SqlState::CANNOT_CONNECT_NOW,
            SqlState::TOO_MANY_CONNECTIONS,
            SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
        ]
        .contains(code)
        || code.code() == "57P05"
}

/// Whether it took too long, which is what others did.
fn is_locked(code: &SqlState) -> bool {
    [SqlState::LOCK_NOT_AVAILABLE, SqlState::QUERY_CANCELED].contains(code)
}

fn explained(told: &DbError) -> String {
    let message = told.message().lines().next().unwrap_or_default();
    let code = told.code();
    let hint = if *code == SqlState::INSUFFICIENT_PRIVILEGE {
        " (whoever owns it can grant the right: see PostgreSQL in the README)"
    } else if *code == SqlState::READ_ONLY_SQL_TRANSACTION || message.contains("during recovery") {
        " (locks are taken on the primary: this is a standby, or set to read only)"
    } else if *code == SqlState::UNDEFINED_COLUMN {
        " (the schema tenure in it is not one of this program)"
    } else if is_locked(code) {
        return format!("somebody else keeps it locked ({message})");
    } else {
        ""
    };
    format!("{message}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_waited_for_has_had_some_time() {
        let told = |micros| Fault::no_answer("x", Duration::from_micros(micros)).to_string();
        assert_eq!(told(250_900), "cannot reach x: no answer in 250ms");
        assert_eq!(told(900), "cannot reach x: no answer in time");
    }
}
