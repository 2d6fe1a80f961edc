//! Where the server is and who asks it: from the URL, the environment and the password file, in the manner of libpq
//! (<https://www.postgresql.org/docs/current/libpq-connect.html>).

use std::ffi::OsString;
use std::fs;
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

/// Everything that is needed to reach the database. No part of it but [`Target::location`] is for people to see.
#[derive(Clone)]
pub struct Target {
    pub hosts: Vec<Host>,
    pub database: String,
    pub user: String,
    pub options: Option<String>,
    pub application: String,
    pub connect_timeout: Duration,
    pub tls: Tls,
    /// A password file that was left aside, because others may read it.
    pub open_passfile: Option<PathBuf>,
}

/// What the URL says, and what stands for it in the environment.
const PARAMETERS: [(&str, &str); 15] = [
    ("host", "PGHOST"),
    ("port", "PGPORT"),
    ("user", "PGUSER"),
    ("password", "PGPASSWORD"),
    ("dbname", "PGDATABASE"),
    ("passfile", "PGPASSFILE"),
    ("options", "PGOPTIONS"),
    ("application_name", "PGAPPNAME"),
    ("connect_timeout", "PGCONNECT_TIMEOUT"),
    ("sslmode", "PGSSLMODE"),
    ("sslrootcert", "PGSSLROOTCERT"),
    ("sslcert", "PGSSLCERT"),
    ("sslkey", "PGSSLKEY"),
    // All of these are as this program needs them, whatever they say.
    ("target_session_attrs", "PGTARGETSESSIONATTRS"),
    ("channel_binding", "PGCHANNELBINDING"),
];

struct Settings<'a> {
    said: Vec<(String, String)>,
    variable: &'a dyn Fn(&str) -> Option<OsString>,
}

impl Settings<'_> {
    /// What was said of a parameter in the URL, or in the environment.
    fn of(&self, name: &str) -> Result<Option<String>, String> {
        if let Some((_, value)) = self.said.iter().rev().find(|(said, _)| said == name) {
            return Ok(Some(value.clone()).filter(|value| !value.is_empty()));
        }
        let Some((_, variable)) = PARAMETERS.iter().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let Some(value) = (self.variable)(variable).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let text = value.into_string();
        text.map(Some).map_err(|_| format!("{variable} is no text"))
    }
}

impl Target {
    /// # Errors
    /// What is wrong with the URL or the environment, with no secret in it.
    pub fn of(url: &str) -> Result<Self, String> {
        Self::with(url, &|name| std::env::var_os(name))
    }

    fn with(url: &str, variable: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, String> {
        let settings = Settings {
            said: parse(url)?,
            variable,
        };
        let user = match settings.of("user")? {
            Some(user) => user,
            None => own_name().ok_or("no user: this system has no name for the caller")?,
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
                .unwrap_or_else(|| "tenure".to_owned()),
            connect_timeout: match settings.of("connect_timeout")? {
                None => CONNECT_TIMEOUT,
                Some(text) => match text.parse::<u64>() {
                    Ok(0) => CONNECT_TIMEOUT,
                    Ok(seconds) => Duration::from_secs(seconds),
                    Err(_) => return Err("connect_timeout is no number of seconds".into()),
                },
            },
            tls: tls(&settings, home.as_deref())?,
            open_passfile: None,
        };
        if settings.of("channel_binding")?.as_deref() == Some("require") {
            return Err("channel_binding=require is not there: sslmode=verify-full is".into());
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
            return format!("postgres:///{}?host={}", self.database, host.name);
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
    let names = settings.of("host")?.unwrap_or_else(|| {
        let is_there = |directory: &&&str| Path::new(directory).is_dir();
        let directory = SOCKET_DIRECTORIES.iter().find(is_there);
        (*directory.unwrap_or(&"localhost")).to_owned()
    });
    let names: Vec<&str> = names.split(',').collect();
    let ports = settings.of("port")?.unwrap_or_default();
    let ports: Vec<&str> = ports.split(',').collect();
    if ports.len() > 1 && ports.len() != names.len() {
        return Err(format!(
            "there are {} ports for {} hosts",
            ports.len(),
            names.len()
        ));
    }
    let host = |(at, name): (usize, &&str)| {
        let port = match ports.get(at).or(ports.first()) {
            None | Some(&"") => PORT,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => return Err(format!("{port:?} is no port")),
            },
        };
        let name = if name.is_empty() { "localhost" } else { name };
        Ok(Host {
            name: name.to_owned(),
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
        Some(other) => return Err(format!("there is no sslmode {other:?}")),
    };
    if is_systems && encryption != Encryption::NamedServer {
        return Err("sslrootcert=system goes with sslmode=verify-full".into());
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
        (Some(_), None) => return Err("sslcert goes with sslkey".into()),
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
        assert_eq!(target.location(), "postgres:///ann?host=/run/pg");
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
                "postgres://a:secret@h/d?service=x",
                "there is no parameter \"service\"",
            ),
            (
                "postgres://a@h,i/d?port=1,2,3",
                "there are 3 ports for 2 hosts",
            ),
        ] {
            assert_eq!(of(url, &[]).err().as_deref(), Some(why), "{url}");
        }
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
