//! What a URL of etcd's says, and what the environment adds to it: where the cluster is, as whom it is asked, and under which
//! prefix the locks are. The variables are etcdctl's.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::exit::Usage;

/// Where etcd listens for clients.
const PORT: u16 = 2379;

/// A cluster, and how to come in.
#[derive(Clone)]
pub struct Target {
    /// As it was given: for child processes, and never to be shown.
    pub url: String,
    /// Each `HOST:PORT`.
    pub endpoints: Vec<String>,
    /// What comes before every lock's name in a key.
    pub prefix: String,
    pub tls: Option<Tls>,
    pub login: Option<Login>,
    location: String,
}

/// Files for TLS, as etcdctl names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Whom to trust instead of what the system trusts.
    pub authorities: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Any certificate of any host is believed.
    pub is_insecure: bool,
}

/// Has no `Debug`: it is a secret.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: String,
}

impl Target {
    /// # Errors
    /// A usage error for a URL that cannot be read, which is not repeated: it may have a password. Or a file that the
    /// environment names cannot be read.
    pub fn of(url: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let parts = Parts::of(url).map_err(|why| Usage(format!("cannot read --db: {why}")))?;
        let variable = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(|value| {
                let value = value.into_string();
                value.map_err(|_| Usage(format!("cannot read {name}: it is not UTF-8")))
            })
        };
        let login = login(&parts, |name| Ok(variable(name).transpose()?))?;
        let path = |name: &str| -> Result<Option<PathBuf>> {
            Ok(variable(name).transpose()?.map(PathBuf::from))
        };
        let tls = if parts.is_tls {
            Some(Tls {
                authorities: path("ETCDCTL_CACERT")?,
                certificate: path("ETCDCTL_CERT")?,
                key: path("ETCDCTL_KEY")?,
                is_insecure: match variable("ETCDCTL_INSECURE_SKIP_TLS_VERIFY").transpose()? {
                    None => false,
                    Some(word) => is_yes(&word).with_context(|| {
                        Usage(
                            "cannot read ETCDCTL_INSECURE_SKIP_TLS_VERIFY: it is true or false"
                                .into(),
                        )
                    })?,
                },
            })
        } else {
            None
        };
        let scheme = if parts.is_tls { "etcds" } else { "etcd" };
        Ok(Self {
            url: url.to_owned(),
            location: format!(
                "{scheme}://{}/{}",
                parts.endpoints.join(","),
                parts.raw_prefix
            ),
            endpoints: parts.endpoints,
            prefix: parts.prefix,
            tls,
            login,
        })
    }

    /// For people: with no secret in it.
    pub fn location(&self) -> &str {
        &self.location
    }
}

/// As Go reads it.
fn is_yes(word: &str) -> Option<bool> {
    match word {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

fn login(
    parts: &Parts,
    variable: impl Fn(&str) -> Result<Option<String>>,
) -> Result<Option<Login>> {
    let password = || -> Result<Option<String>> {
        if let Some(password) = variable("ETCDCTL_PASSWORD")? {
            return Ok(Some(password));
        }
        let file = variable("TENURE_ETCD_PASSWORD_FILE")?;
        file.map(|path| password_in(Path::new(&path))).transpose()
    };
    let (user, known) = match &parts.user {
        Some(user) => (user.clone(), parts.password.clone()),
        None => match variable("ETCDCTL_USER")? {
            None => return Ok(None),
            // With a password of its own the whole of it is the name, for etcdctl as well.
            Some(user) => match (password()?, user.split_once(':')) {
                (None, Some((user, password))) => (user.to_owned(), Some(password.to_owned())),
                (password, _) => (user, password),
            },
        },
    };
    let known = match known {
        None => password()?,
        known => known,
    };
    let Some(password) = known else {
        return Err(Usage(format!(
            "no password for user {user} of etcd: it comes in ETCDCTL_PASSWORD, or in a file that \
             TENURE_ETCD_PASSWORD_FILE names"
        ))
        .into());
    };
    Ok(Some(Login { user, password }))
}

/// The first line of a file.
fn password_in(path: &Path) -> Result<String> {
    let why = || format!("cannot read {}", path.display());
    let text = fs::read_to_string(path).with_context(why)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        bail!("{}: its first line is empty", why());
    }
    Ok(line.to_owned())
}

/// A URL's own parts.
struct Parts {
    is_tls: bool,
    user: Option<String>,
    password: Option<String>,
    endpoints: Vec<String>,
    prefix: String,
    raw_prefix: String,
}

impl Parts {
    fn of(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("it is no URL")?;
        if rest.contains(['?', '#']) {
            return Err(
                "there is nothing to say after a ? or #; in a prefix they are %3F and %23".into(),
            );
        }
        let (authority, raw_prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if raw_prefix.contains('@') {
            // It may be what follows a password with a slash in it.
            return Err("a / in a password is %2F, and an @ in a prefix %40".into());
        }
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (Some(login), hosts),
            None => (None, authority),
        };
        let (user, password) = match login {
            None => (None, None),
            Some(login) => {
                let (user, password) = match login.split_once(':') {
                    Some((user, password)) => (user, Some(password)),
                    None => (login, None),
                };
                let user =
                    decoded(user).ok_or("its user is not percent-encoded as it should be")?;
                if user.is_empty() {
                    return Err("there is no user before the @".into());
                }
                let password = password.map(decoded).map(|password| {
                    password.ok_or("its password is not percent-encoded as it should be")
                });
                (Some(user), password.transpose()?)
            }
        };
        let prefix =
            decoded(raw_prefix).ok_or("its prefix is not percent-encoded as it should be")?;
        if prefix.chars().any(char::is_control) {
            return Err("a prefix cannot have control characters".into());
        }
        Ok(Self {
            is_tls: scheme.eq_ignore_ascii_case("etcds"),
            user,
            password,
            endpoints: hosts.split(',').map(endpoint).collect::<Result<_, _>>()?,
            prefix,
            raw_prefix: raw_prefix.to_owned(),
        })
    }
}

/// `HOST:PORT` of what may have no port. The host is an IPv6 address in brackets, or a name or an IPv4 address.
fn endpoint(text: &str) -> Result<String, String> {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, rest)) => {
            let is_address = address.parse::<std::net::Ipv6Addr>().is_ok();
            let port = rest.strip_prefix(':');
            if !is_address || (port.is_none() && !rest.is_empty()) {
                return Err(format!("{text:?} is no host"));
            }
            (&text[..=address.len() + 1], port)
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    if host.is_empty() {
        return Err("it names no host".into());
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if !host.starts_with('[') && !host.chars().all(is_name) {
        // It may be part of a password with a character that should have been encoded.
        return Err("what comes before its prefix is no list of hosts".into());
    }
    let port = match port {
        None => PORT,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("the port of {host} is no number from 1 to 65535")),
        },
    };
    Ok(format!("{host}:{port}"))
}

/// None where a `%` is not followed by two hexadecimal digits, or the whole is not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(url: &str, variables: &[(&str, &str)]) -> Result<Target> {
        Target::of(url, |name| {
            let known = variables.iter().find(|(known, _)| *known == name);
            known.map(|(_, value)| value.into())
        })
    }

    fn of(url: &str) -> Target {
        with(url, &[]).expect("a good URL")
    }

    fn login_of(url: &str, variables: &[(&str, &str)]) -> Option<(String, String)> {
        let login = with(url, variables).expect("a good URL").login;
        login.map(|login| (login.user, login.password))
    }

    #[test]
    fn hosts_have_ports_and_what_follows_the_first_slash_is_the_prefix() {
        let target = of("etcd://a,10.0.0.1:12379,[::1],[fe80::1]:1/ci/x%20y/");
        let endpoints = ["a:2379", "10.0.0.1:12379", "[::1]:2379", "[fe80::1]:1"];
        assert_eq!(target.endpoints, endpoints);
        assert_eq!(target.prefix, "ci/x y/");
        assert!(target.tls.is_none());
        assert_eq!(of("etcd://a").prefix, "");
        assert_eq!(of("etcd://a/").prefix, "");
        assert_eq!(of("etcd://a//x").prefix, "/x");
        assert!(of("ETCDS://a/").tls.is_some());
    }

    #[test]
    fn a_password_comes_from_the_url_or_the_environment_and_is_not_shown() {
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        let full = "etcd://ann:s%40cr%3At@h/p/";
        assert_eq!(login_of(full, &[]), pair("ann", "s@cr:t"));
        assert_eq!(of(full).location(), "etcd://h:2379/p/");
        let user = [("ETCDCTL_USER", "bob:x"), ("ETCDCTL_PASSWORD", "")];
        assert_eq!(login_of("etcd://h/", &user), pair("bob", "x"));
        assert_eq!(login_of(full, &user), pair("ann", "s@cr:t"));
        let both = [("ETCDCTL_USER", "bob:x"), ("ETCDCTL_PASSWORD", "y")];
        assert_eq!(login_of("etcd://h/", &both), pair("bob:x", "y"));
        let password = [("ETCDCTL_PASSWORD", "y")];
        assert_eq!(login_of("etcd://ann@h/", &password), pair("ann", "y"));
        assert_eq!(login_of("etcd://h/", &password), None);
        assert!(with("etcd://ann@h/", &[]).is_err());
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_a_word_of_the_password() {
        for url in [
            "etcd://",
            "etcd:///p",
            "etcd://h:0/",
            "etcd://h:x/",
            "etcd://h:70000/",
            "etcd://[::1/",
            "etcd://[x]/",
            "etcd://a,/",
            "etcd://h/%",
            "etcd://h/%zz",
            "etcd://h/%ff",
            "etcd://h/a%0a",
            "etcd://h/?x",
            "etcd://h#y",
            "etcd://ann:sec%ret@h/",
            "etcd://:secret@h/",
            "etcd://ann:sec/ret@h/",
            "etcd://ann:secret@h h/",
            "etcd://ann:1/secret@h/",
            "etcd://ann:secret@h/%",
        ] {
            let error = with(url, &[])
                .err()
                .unwrap_or_else(|| panic!("{url} was taken"));
            let text = format!("{error:#}");
            assert!(
                error.is::<Usage>() && !text.contains("sec"),
                "{url}: {text}"
            );
        }
    }
}
