//! Where the server is and who asks it: from the URL, the environment and the password file, in the manner of libpq
//! (<https://www.postgresql.org/docs/current/libpq-connect.html>).

use std::ffi::OsString;
use std::fmt::Display;
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Uid, User};

/// The port of a server that is not said to have another.
const PORT: u16 = 5432;

/// Where a server of this machine has its socket: first as Debian and others have it, then as it comes.
const SOCKET_DIRECTORIES: [&str; 2] = ["/var/run/postgresql", "/tmp"];

/// How long one server is tried before the next is.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// How much is asked of the encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    None,
    /// If the server can.
    Preferred,
    /// Of whomever.
    Required,
    /// Of one whom the authority knows.
    KnownServer,
    /// And whose name is the one that was asked for.
    NamedServer,
}

/// The files of the encryption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    pub encryption: Encryption,
    /// The authorities; none are the system's.
    pub root: Option<PathBuf>,
    /// The certificate and the key by which the client shows itself.
    pub own: Option<(PathBuf, PathBuf)>,
}

/// One server, by its name or its socket's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    pub name: String,
    /// Where it is, if that was said: nobody is asked then.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub password: Option<String>,
}

impl Host {
    pub fn is_socket(&self) -> bool {
        self.name.starts_with('/')
    }

    fn shown(&self) -> String {
        let name = if self.name.contains(':') {
            format!("[{}]", self.name)
        } else {
            self.name.clone()
        };
        if self.port == PORT {
            name
        } else {
            format!("{name}:{}", self.port)
        }
    }
}

/// How the kernel is to find out that the other side is gone, as far as it was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probes {
    /// That it is not.
    pub are_off: bool,
    pub idle: Option<Duration>,
    pub interval: Option<Duration>,
    pub count: Option<u32>,
    pub unacknowledged: Option<Duration>,
}

/// Everything that is needed to reach the database. No part of it but [`Target::location`] is for people to see.
#[derive(Clone)]
pub struct Target {
    pub hosts: Vec<Host>,
    pub database: String,
    pub user: String,
    pub options: Option<String>,
    pub application: String,
    pub connect_timeout: Duration,
    /// Only a server that takes changes will do, where there is but one, too.
    pub wants_primary: bool,
    pub probes: Probes,
    pub tls: Tls,
    /// A password file that was left aside, because others may read it.
    pub open_passfile: Option<PathBuf>,
}

/// What the URL says, and what stands for it in the environment, if anything does.
const PARAMETERS: [(&str, Option<&str>); 22] = [
    ("host", Some("PGHOST")),
    ("hostaddr", Some("PGHOSTADDR")),
    ("port", Some("PGPORT")),
    ("user", Some("PGUSER")),
    ("password", Some("PGPASSWORD")),
    ("dbname", Some("PGDATABASE")),
    ("passfile", Some("PGPASSFILE")),
    ("options", Some("PGOPTIONS")),
    ("application_name", Some("PGAPPNAME")),
    ("fallback_application_name", None),
    ("connect_timeout", Some("PGCONNECT_TIMEOUT")),
    ("sslmode", Some("PGSSLMODE")),
    ("sslrootcert", Some("PGSSLROOTCERT")),
    ("sslcert", Some("PGSSLCERT")),
    ("sslkey", Some("PGSSLKEY")),
    ("target_session_attrs", Some("PGTARGETSESSIONATTRS")),
    ("channel_binding", Some("PGCHANNELBINDING")),
    ("keepalives", None),
    ("keepalives_idle", None),
    ("keepalives_interval", None),
    ("keepalives_count", None),
    ("tcp_user_timeout", None),
];

/// What libpq has and this program does not, in the URL and in the environment, and what may be said of it all the same: that it is to
/// be as it is here. Whoever says something else would be led elsewhere by libpq, or would have something demanded of the server.
/// Those of libpq's variables that are not here change nothing of that: for GSS, for texts and for times of day.
const FOREIGN: [(&str, &str, &[&str]); 17] = [
    ("service", "PGSERVICE", &[]),
    ("requiressl", "PGREQUIRESSL", &["0"]),
    ("requirepeer", "PGREQUIREPEER", &[]),
    ("require_auth", "PGREQUIREAUTH", &[]),
    ("gssencmode", "PGGSSENCMODE", &["disable", "prefer"]),
    ("gssdelegation", "PGGSSDELEGATION", &["0"]),
    ("load_balance_hosts", "PGLOADBALANCEHOSTS", &["disable"]),
    ("sslnegotiation", "PGSSLNEGOTIATION", &["postgres"]),
    ("sslcompression", "PGSSLCOMPRESSION", &["0", "1"]),
    ("sslcertmode", "PGSSLCERTMODE", &["allow"]),
    ("sslcrl", "PGSSLCRL", &[]),
    ("sslcrldir", "PGSSLCRLDIR", &[]),
    ("sslsni", "PGSSLSNI", &["1"]),
    (
        "ssl_min_protocol_version",
        "PGSSLMINPROTOCOLVERSION",
        &["TLSv1", "TLSv1.1", "TLSv1.2"],
    ),
    (
        "ssl_max_protocol_version",
        "PGSSLMAXPROTOCOLVERSION",
        &["TLSv1.3"],
    ),
    ("min_protocol_version", "PGMINPROTOCOLVERSION", &["3.0"]),
    (
        "max_protocol_version",
        "PGMAXPROTOCOLVERSION",
        &["3.0", "3.2", "latest"],
    ),
];

struct Settings<'a> {
    said: Vec<(String, String)>,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Settings<'_> {
    /// What was said of a parameter in the URL, or in the environment.
    fn of(&self, name: &str) -> Result<Option<String>, String> {
        if let Some(value) = self.in_url(name) {
            return Ok(Some(value.to_owned()).filter(|value| !value.is_empty()));
        }
        let Some(variable) = variable_of(name) else {
            return Ok(None);
        };
        let Some(value) = (self.variable)(variable).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let text = value.into_string();
        text.map(Some)
            .map_err(|_| self.wrong(name, "it is no text"))
    }

    fn in_url(&self, name: &str) -> Option<&str> {
        let (_, value) = self.said.iter().rev().find(|(said, _)| said == name)?;
        Some(value)
    }

    /// What is wrong with what was said of a parameter, and where it was said.
    fn wrong(&self, name: &str, why: impl Display) -> String {
        match variable_of(name) {
            Some(variable) if self.in_url(name).is_none() => {
                format!("cannot read {variable}: {why}")
            }
            _ => wrong_url(why),
        }
    }

    /// A whole number, none for those that stand for what is usual.
    fn number(&self, name: &str) -> Result<Option<u32>, String> {
        let Some(text) = self.of(name)? else {
            return Ok(None);
        };
        match text.trim().parse::<i32>() {
            Ok(number) => Ok(u32::try_from(number).ok().filter(|number| *number > 0)),
            Err(_) => Err(self.wrong(name, format!("{name} is no number"))),
        }
    }

    fn seconds(&self, name: &str) -> Result<Option<Duration>, String> {
        let seconds = self.number(name)?;
        Ok(seconds.map(|seconds| Duration::from_secs(seconds.into())))
    }

    /// That nobody has said anything that this program does not have.
    fn has_nothing_foreign(&self) -> Result<(), String> {
        for (name, _, passing) in FOREIGN {
            if let Some(value) = self.of(name)?
                && !passing.contains(&value.as_str())
            {
                return Err(self.wrong(name, format!("this program does not have {name}={value}")));
            }
        }
        Ok(())
    }

    /// Whether a server must take changes. All that is done here is one, so one that must not is of no use.
    fn wants_primary(&self) -> Result<bool, String> {
        let name = "target_session_attrs";
        let value = self.of(name)?;
        let why = match value.as_deref() {
            None | Some("any") => return Ok(false),
            Some("read-write" | "primary") => return Ok(true),
            Some(value @ ("read-only" | "standby" | "prefer-standby")) => {
                format!("{name}={value} is of no use: locks are taken where changes are")
            }
            Some(value) => format!("there is no {name} {value:?}"),
        };
        Err(self.wrong(name, why))
    }

    fn probes(&self) -> Result<Probes, String> {
        let name = "keepalives";
        let on = self.of(name)?.map(|text| text.trim().parse::<i32>());
        let milliseconds = self.number("tcp_user_timeout")?;
        Ok(Probes {
            are_off: match on.transpose() {
                Ok(on) => on == Some(0),
                Err(_) => return Err(self.wrong(name, format!("{name} is 0 or 1"))),
            },
            idle: self.seconds("keepalives_idle")?,
            interval: self.seconds("keepalives_interval")?,
            count: self.number("keepalives_count")?,
            unacknowledged: milliseconds.map(|count| Duration::from_millis(count.into())),
        })
    }
}

fn variable_of(name: &str) -> Option<&'static str> {
    let foreign = FOREIGN
        .iter()
        .map(|(known, variable, _)| (*known, Some(*variable)));
    let all = PARAMETERS.iter().copied().chain(foreign);
    all.into_iter().find(|(known, _)| *known == name)?.1
}

fn wrong_url(why: impl Display) -> String {
    format!("cannot read the URL of the PostgreSQL database: {why}")
}

impl Target {
    /// # Errors
    /// What is wrong with the URL or the environment, with no secret in it.
    pub fn of(url: &str) -> Result<Self, String> {
        Self::with(url, &|name| std::env::var_os(name))
    }

    fn with(url: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let settings = Settings {
            said: parse(url).map_err(wrong_url)?,
            variable,
        };
        settings.has_nothing_foreign()?;
        let user = match settings.of("user")? {
            Some(user) => user,
            None => own_name().ok_or(
                "no user for the PostgreSQL database: this system has no name for the caller, and there is none in PGUSER",
            )?,
        };
        let database = settings.of("dbname")?.unwrap_or_else(|| user.clone());
        let home = variable("HOME").map(PathBuf::from).or_else(own_home);
        let mut target = Self {
            hosts: hosts(&settings)?,
            database,
            user,
            options: settings.of("options")?,
            application: settings
                .of("application_name")?
                .or(settings.of("fallback_application_name")?)
                .unwrap_or_else(|| "tenure".to_owned()),
            connect_timeout: match settings.of("connect_timeout")? {
                None => CONNECT_TIMEOUT,
                Some(text) => match text.parse::<u64>() {
                    Ok(0) => CONNECT_TIMEOUT,
                    Ok(seconds) => Duration::from_secs(seconds),
                    Err(_) => {
                        let why = "connect_timeout is no number of seconds";
                        return Err(settings.wrong("connect_timeout", why));
                    }
                },
            },
            wants_primary: settings.wants_primary()?,
            probes: settings.probes()?,
            tls: tls(&settings, home.as_deref())?,
            open_passfile: None,
        };
        let name = "channel_binding";
        match settings.of(name)?.as_deref() {
            None | Some("disable" | "prefer") => {}
            Some("require") => {
                let why = "channel_binding=require is not there: sslmode=verify-full is";
                return Err(settings.wrong(name, why));
            }
            Some(other) => {
                return Err(settings.wrong(name, format!("there is no {name} {other:?}")));
            }
        }
        match settings.of("password")? {
            Some(password) => {
                for host in &mut target.hosts {
                    host.password = Some(password.clone());
                }
            }
            None => target.look_up_passwords(&settings, home.as_deref())?,
        }
        Ok(target)
    }

    fn look_up_passwords(
        &mut self,
        settings: &Settings<'_>,
        home: Option<&Path>,
    ) -> Result<(), String> {
        let path = match settings.of("passfile")? {
            Some(path) => PathBuf::from(path),
            None => match home {
                Some(home) => home.join(".pgpass"),
                None => return Ok(()),
            },
        };
        let Ok(metadata) = fs::metadata(&path) else {
            return Ok(());
        };
        if metadata.is_file() && metadata.permissions().mode() & 0o077 != 0 {
            self.open_passfile = Some(path);
            return Ok(());
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        for host in &mut self.hosts {
            let is_default = SOCKET_DIRECTORIES.contains(&host.name.as_str());
            let name = if is_default { "localhost" } else { &host.name };
            let port = host.port.to_string();
            host.password = password(&text, [name, &port, &self.database, &self.user]);
        }
        Ok(())
    }

    /// For people: the servers and the database.
    pub fn location(&self) -> String {
        if let [host] = &self.hosts[..]
            && host.is_socket()
        {
            let port = match host.port {
                PORT => String::new(),
                port => format!("&port={port}"),
            };
            return format!("postgres:///{}?host={}{port}", self.database, host.name);
        }
        let hosts: Vec<String> = self.hosts.iter().map(Host::shown).collect();
        format!("postgres://{}/{}", hosts.join(","), self.database)
    }
}

/// The parameters that a URL has, in their order.
fn parse(url: &str) -> Result<Vec<(String, String)>, String> {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = place.split_once('/').unwrap_or((place, ""));
    // A password may have an `@` that nobody encoded.
    let (user_and_password, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
    let mut said = Vec::new();
    let mut say = |name: &str, value: &str| {
        if !value.is_empty() {
            let value = decoded(value).ok_or_else(|| format!("its {name} is badly encoded"))?;
            said.push((name.to_owned(), value));
        }
        Ok::<_, String>(())
    };
    let (user, password) = user_and_password
        .split_once(':')
        .unwrap_or((user_and_password, ""));
    say("user", user)?;
    say("password", password)?;
    say("dbname", database)?;
    let (mut names, mut ports, mut has_port) = (Vec::new(), Vec::new(), false);
    for host in hosts.split(',').filter(|host| !host.is_empty()) {
        let (name, port) = match host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            Some((address, port)) => (address, port.strip_prefix(':').unwrap_or(port)),
            None => host.split_once(':').unwrap_or((host, "")),
        };
        has_port |= !port.is_empty();
        names.push(name);
        ports.push(port);
    }
    say("host", &names.join(","))?;
    if has_port {
        say("port", &ports.join(","))?;
    }
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = match name {
            "ssl" if value == "true" => {
                say("sslmode", "require")?;
                continue;
            }
            name if PARAMETERS.iter().any(|(known, _)| *known == name) => name,
            name if FOREIGN.iter().any(|(known, ..)| *known == name) => name,
            _ => return Err(format!("there is no parameter {name:?}")),
        };
        say(name, value)?;
    }
    Ok(said)
}

/// Without percent signs; none if it is no text then.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?;
            u8::from_str_radix(digits, 16).ok()?
        } else {
            byte
        });
    }
    // A zero byte would end a word on its way to the server.
    String::from_utf8(bytes)
        .ok()
        .filter(|text| !text.contains('\0'))
}

fn hosts(settings: &Settings<'_>) -> Result<Vec<Host>, String> {
    let addresses = settings.of("hostaddr")?;
    let names = settings.of("host")?.or_else(|| addresses.clone());
    let names = names.unwrap_or_else(|| {
        let is_there = |directory: &&&str| Path::new(directory).is_dir();
        let directory = SOCKET_DIRECTORIES.iter().find(is_there);
        (*directory.unwrap_or(&"localhost")).to_owned()
    });
    let names: Vec<&str> = names.split(',').collect();
    let addresses: Vec<&str> = addresses.iter().flat_map(|list| list.split(',')).collect();
    if !addresses.is_empty() && addresses.len() != names.len() {
        let (addresses, names) = (addresses.len(), names.len());
        let why = format!("there are {addresses} addresses for {names} hosts");
        return Err(settings.wrong("hostaddr", why));
    }
    let ports = settings.of("port")?.unwrap_or_default();
    let ports: Vec<&str> = ports.split(',').collect();
    if ports.len() > 1 && ports.len() != names.len() {
        let (ports, names) = (ports.len(), names.len());
        let why = format!("there are {ports} ports for {names} hosts");
        return Err(settings.wrong("port", why));
    }
    let host = |(at, name): (usize, &&str)| {
        let port = match ports.get(at).or(ports.first()) {
            None | Some(&"") => PORT,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(settings.wrong("port", format!("{port:?} is no port"))),
            },
        };
        let address = match addresses.get(at) {
            None | Some(&"") => None,
            Some(_) if name.starts_with('/') => {
                return Err(settings.wrong("hostaddr", format!("{name} has no address")));
            }
            Some(address) => match address.parse() {
                Ok(address) => Some(address),
                Err(_) => {
                    return Err(settings.wrong("hostaddr", format!("{address:?} is no address")));
                }
            },
        };
        let name = if name.is_empty() { "localhost" } else { name };
        Ok(Host {
            name: name.to_owned(),
            address,
            port,
            password: None,
        })
    };
    names.iter().enumerate().map(host).collect()
}

fn tls(settings: &Settings<'_>, home: Option<&Path>) -> Result<Tls, String> {
    let in_home = |name: &str| {
        let path = home?.join(".postgresql").join(name);
        path.exists().then_some(path)
    };
    let root = settings.of("sslrootcert")?;
    let is_systems = root.as_deref() == Some("system");
    let root = match root {
        Some(_) if is_systems => None,
        Some(path) => Some(PathBuf::from(path)),
        None => in_home("root.crt"),
    };
    let mode = settings.of("sslmode")?;
    let encryption = match mode.as_deref() {
        None if is_systems => Encryption::NamedServer,
        Some("disable") => Encryption::None,
        None | Some("allow" | "prefer") => Encryption::Preferred,
        // With an authority at hand it is asked, as libpq does.
        Some("require") if root.is_some() => Encryption::KnownServer,
        Some("require") => Encryption::Required,
        Some("verify-ca") => Encryption::KnownServer,
        Some("verify-full") => Encryption::NamedServer,
        Some(other) => {
            return Err(settings.wrong("sslmode", format!("there is no sslmode {other:?}")));
        }
    };
    if is_systems && encryption != Encryption::NamedServer {
        let why = "sslrootcert=system goes with sslmode=verify-full";
        return Err(settings.wrong("sslrootcert", why));
    }
    if let Some(revoked) = in_home("root.crl")
        && [Encryption::KnownServer, Encryption::NamedServer].contains(&encryption)
    {
        let revoked = revoked.display();
        return Err(format!(
            "cannot heed {revoked}: this program does not have sslcrl"
        ));
    }
    let path = |name, usual| {
        let said = settings.of(name)?.map(PathBuf::from);
        Ok::<_, String>(said.or_else(|| in_home(usual)))
    };
    let own = match (
        path("sslcert", "postgresql.crt")?,
        path("sslkey", "postgresql.key")?,
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (Some(certificate), None) if settings.of("sslcert")?.is_none() => {
            let certificate = certificate.display();
            return Err(format!(
                "cannot use {certificate}: there is no sslkey for it"
            ));
        }
        (Some(_), None) => return Err(settings.wrong("sslcert", "sslcert goes with sslkey")),
        (None, _) => None,
    };
    Ok(Tls {
        encryption,
        root,
        own,
    })
}

/// The password of the first line that fits: `host:port:database:user:password`, where `*` fits all.
fn password(text: &str, wanted: [&str; 4]) -> Option<String> {
    let fits = |line: &str| {
        let mut fields = vec![String::new()];
        let mut characters = line.chars();
        while let Some(character) = characters.next() {
            match character {
                ':' if fields.len() < 5 => fields.push(String::new()),
                '\\' => fields.last_mut()?.extend(characters.next()),
                other => fields.last_mut()?.push(other),
            }
        }
        let password = fields.pop()?;
        let fits = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
        (fields.len() == 4 && fields.iter().zip(wanted).all(fits)).then_some(password)
    };
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.find_map(fits)
}

fn own_name() -> Option<String> {
    Some(User::from_uid(Uid::effective()).ok()??.name)
}

fn own_home() -> Option<PathBuf> {
    Some(User::from_uid(Uid::effective()).ok()??.dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(url: &str, environment: &[(&str, &str)]) -> Result<Target, String> {
        Target::with(url, &|name| {
            let found = environment.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn a_url_says_everything() {
        let url =
            "postgres://ann:s%40c:ret@db1:1,[::1],db2:3/app?sslmode=verify-full&sslrootcert=/ca";
        let target = of(url, &[("PGUSER", "bob"), ("PGPASSWORD", "other")]).unwrap();
        let hosts: Vec<_> = target
            .hosts
            .iter()
            .map(|host| (host.name.as_str(), host.port))
            .collect();
        assert_eq!(hosts, [("db1", 1), ("::1", 5432), ("db2", 3)]);
        assert_eq!((&*target.user, &*target.database), ("ann", "app"));
        assert_eq!(target.hosts[2].password.as_deref(), Some("s@c:ret"));
        assert_eq!(target.tls.encryption, Encryption::NamedServer);
        assert_eq!(target.location(), "postgres://db1:1,[::1],db2:3/app");
    }

    #[test]
    fn the_environment_stands_behind_it() {
        let environment = [
            ("PGHOST", "/run/pg"),
            ("PGPORT", "7"),
            ("PGUSER", "ann"),
            ("PGPASSWORD", "secret"),
            ("PGSSLMODE", "disable"),
            ("HOME", "/nowhere"),
        ];
        let target = of("postgresql://", &environment).unwrap();
        assert_eq!(target.location(), "postgres:///ann?host=/run/pg&port=7");
        assert_eq!(target.hosts[0].port, 7);
        assert_eq!(target.hosts[0].password.as_deref(), Some("secret"));
        assert_eq!(target.tls.encryption, Encryption::None);
    }

    #[test]
    fn what_makes_no_sense_is_told_without_the_secret() {
        for (url, why) in [
            ("postgres://a:secret@h:x/d", "\"x\" is no port"),
            ("postgres://a:secret@h:0/d", "\"0\" is no port"),
            ("postgres://a:secret%4@h/d", "its password is badly encoded"),
            (
                "postgres://a:secret@h/d?sslmode=no",
                "there is no sslmode \"no\"",
            ),
            (
                "postgres://a:secret@h/d?sslrot=x",
                "there is no parameter \"sslrot\"",
            ),
            (
                "postgres://a@h,i/d?port=1,2,3",
                "there are 3 ports for 2 hosts",
            ),
            (
                "postgres://a@h,i/d?hostaddr=::1",
                "there are 1 addresses for 2 hosts",
            ),
            ("postgres://a@h/d?hostaddr=i", "\"i\" is no address"),
            ("postgres://a@h/d?keepalives=on", "keepalives is 0 or 1"),
            (
                "postgres://a@h/d?keepalives_idle=1s",
                "keepalives_idle is no number",
            ),
            (
                "postgres://a@h/d?target_session_attrs=bogus",
                "there is no target_session_attrs \"bogus\"",
            ),
            (
                "postgres://a@h/d?channel_binding=bogus",
                "there is no channel_binding \"bogus\"",
            ),
        ] {
            let found = of(url, &[]).err().unwrap_or_else(|| panic!("{url}"));
            assert_eq!(found, wrong_url(why), "{url}");
        }
    }

    #[test]
    fn what_comes_from_a_variable_is_told_by_its_name() {
        for (name, value, why) in [
            ("PGPORT", "x", "\"x\" is no port"),
            ("PGSSLMODE", "x", "there is no sslmode \"x\""),
            (
                "PGCONNECT_TIMEOUT",
                "x",
                "connect_timeout is no number of seconds",
            ),
            ("PGSSLCERT", "/x", "sslcert goes with sslkey"),
        ] {
            let found = of("postgres://a@h/d", &[(name, value), ("HOME", "/nowhere")]);
            assert_eq!(found.err(), Some(format!("cannot read {name}: {why}")));
        }
    }

    #[test]
    fn what_libpq_has_and_this_program_has_not_is_refused_unless_it_says_that_all_is_as_it_is() {
        for (name, variable, passing) in FOREIGN {
            let refused = format!("this program does not have {name}=no-such");
            let in_url = of(&format!("postgres://a@h/d?{name}=no-such"), &[]);
            assert_eq!(in_url.err(), Some(wrong_url(&refused)));
            let found = of("postgres://a@h/d", &[(variable, "no-such")]);
            assert_eq!(
                found.err(),
                Some(format!("cannot read {variable}: {refused}"))
            );
            for value in passing {
                assert!(of(&format!("postgres://a@h/d?{name}={value}"), &[]).is_ok());
                assert!(of("postgres://a@h/d", &[(variable, *value)]).is_ok());
            }
            assert!(of("postgres://a@h/d", &[(variable, "")]).is_ok());
        }
    }

    #[test]
    fn a_list_of_what_was_revoked_is_not_passed_over_where_the_server_is_to_be_known() {
        let home = tempfile::tempdir().unwrap();
        let directory = home.path().join(".postgresql");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("root.crl"), "").unwrap();
        let with = |mode| {
            let home = ("HOME", home.path().to_str().unwrap());
            of("postgres://a@h/d", &[("PGSSLMODE", mode), home])
        };
        assert!(with("require").is_ok());
        let refused = with("verify-full").err().unwrap();
        assert!(refused.ends_with("root.crl: this program does not have sslcrl"));
    }

    #[test]
    fn only_servers_that_take_changes_can_be_asked_for() {
        let with = |value: &str| of("postgres://a@h/d", &[("PGTARGETSESSIONATTRS", value)]);
        for (value, wants) in [("any", false), ("read-write", true), ("primary", true)] {
            assert_eq!(with(value).unwrap().wants_primary, wants, "{value}");
        }
        for value in ["read-only", "standby", "prefer-standby"] {
            assert_eq!(
                with(value).err(),
                Some(format!(
                    "cannot read PGTARGETSESSIONATTRS: target_session_attrs={value} is of no use: locks are taken where changes are"
                ))
            );
        }
    }

    #[test]
    fn addresses_and_probes_are_taken_as_they_are_said() {
        let url = "postgres://a@h,i/d?hostaddr=10.0.0.1,::1&keepalives=0&keepalives_idle=7\
                   &keepalives_interval=0&keepalives_count=3&tcp_user_timeout=1500&fallback_application_name=x";
        let target = of(url, &[]).unwrap();
        let address = |at: usize| target.hosts[at].address.map(|address| address.to_string());
        assert_eq!(address(0).as_deref(), Some("10.0.0.1"));
        assert_eq!(address(1).as_deref(), Some("::1"));
        assert_eq!(target.location(), "postgres://h,i/d");
        let probes = Probes {
            are_off: true,
            idle: Some(Duration::from_secs(7)),
            interval: None,
            count: Some(3),
            unacknowledged: Some(Duration::from_millis(1500)),
        };
        assert_eq!((target.probes, &*target.application), (probes, "x"));
        let target = of("postgres://a@/d", &[("PGHOSTADDR", "::1")]).unwrap();
        assert_eq!(target.location(), "postgres://[::1]/d");
        assert_eq!(
            (target.probes, &*target.application),
            (Probes::default(), "tenure")
        );
    }

    #[test]
    fn the_password_file_is_read_as_libpq_reads_it() {
        let text = "# host\nother:*:*:*:no\ndb\\:1:5432:*:ann:a\\:b:c\n*:*:*:*:last";
        assert_eq!(
            password(text, ["db:1", "5432", "app", "ann"]).as_deref(),
            Some("a:b:c")
        );
        assert_eq!(
            password(text, ["db", "5432", "app", "ann"]).as_deref(),
            Some("last")
        );
        assert_eq!(password("a:b", ["a", "b", "c", "d"]), None);
    }
}
