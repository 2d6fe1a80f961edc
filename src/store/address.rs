//! What `--db` names: a database file, or a server by its URL.

use std::ffi::OsStr;
use std::path::Path;

/// Where the locks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address<'a> {
    File(&'a Path),
    /// `etcd://` or `etcds://`, the whole of it.
    Etcd(&'a str),
    /// `postgres://` or `postgresql://`, the whole of it.
    Postgres(&'a str),
}

impl<'a> Address<'a> {
    /// # Errors
    /// It looks like the URL of a store that there is not, or like one of a server without its slashes. A file of such a name
    /// can be given as `./NAME`.
    pub fn of(named: &'a OsStr) -> Result<Self, String> {
        without_slashes(named)?;
        let Some((scheme, _)) = named.to_str().and_then(|text| text.split_once("://")) else {
            return Ok(Self::File(Path::new(named)));
        };
        let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme
                .chars()
                .all(|character| character.is_ascii_alphanumeric() || "+.-".contains(character));
        let text = named.to_str().unwrap_or_default();
        match scheme.to_ascii_lowercase().as_str() {
            "etcd" | "etcds" => Ok(Self::Etcd(text)),
            "postgres" | "postgresql" => Ok(Self::Postgres(text)),
            _ if is_scheme => Err(format!(
                "{scheme}:// is no store: the locks can be in a file, at etcd://HOST/PREFIX or at postgres://HOST/DATABASE"
            )),
            _ => Ok(Self::File(Path::new(named))),
        }
    }
}

/// Each machine would have such a file for itself, and nobody would be told. What follows the colon is not repeated: it may have a
/// password.
fn without_slashes(named: &OsStr) -> Result<(), String> {
    let named = named.to_string_lossy();
    let Some((scheme, rest)) = named.split_once(':') else {
        return Ok(());
    };
    let scheme = scheme.to_ascii_lowercase();
    let right = match scheme.as_str() {
        _ if rest.starts_with("//") => return Ok(()),
        "etcd" | "etcds" => "HOST:PORT/PREFIX",
        "postgres" | "postgresql" => "HOST/DATABASE",
        _ => return Ok(()),
    };
    Err(format!(
        "{scheme}: without two slashes after it names no server: write {scheme}://{right}, or ./{scheme}:NAME for a file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_by_urls_and_everything_else_is_a_file() {
        let of = |text| Address::of(OsStr::new(text));
        assert_eq!(
            of("etcd://a:1,b:2/x/"),
            Ok(Address::Etcd("etcd://a:1,b:2/x/"))
        );
        assert_eq!(of("ETCDS://a"), Ok(Address::Etcd("ETCDS://a")));
        assert_eq!(of("postgres:///d"), Ok(Address::Postgres("postgres:///d")));
        assert_eq!(
            of("postgresql://h"),
            Ok(Address::Postgres("postgresql://h"))
        );
        for file in [
            "/a/b.db",
            "a.db",
            "./etcd://a",
            "./etcd:a",
            "file:a.db",
            ":memory:",
            "://",
            "a b://c",
        ] {
            assert_eq!(of(file), Ok(Address::File(Path::new(file))), "{file}");
        }
        for server in [
            "etcd:127.0.0.1:2379",
            "etcds:/h",
            "ETCD:",
            "postgres:ops",
            "postgresql:",
        ] {
            assert!(of(server).is_err(), "{server}");
        }
        assert!(of("mysql://h/d").is_err());
        assert!(of("https://h/d").is_err());
    }
}
