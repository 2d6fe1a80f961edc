//! Servers of the tests' own: one of each kind for all tests of this process, on a free port of the loopback, in a directory that is
//! gone with them.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{SOON, Sandbox, until};

#[derive(Clone, Copy, Debug)]
#[allow(dead_code, reason = "each is of a feature")]
pub enum Kind {
    Etcd,
    Postgres,
}

/// A sandbox whose locks are at a server, in a place where nobody else's are.
pub fn sandbox(kind: Kind) -> Sandbox {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    match kind {
        Kind::Etcd => {
            let port = etcd().port;
            Sandbox::at(&format!("etcd://127.0.0.1:{port}/{number}/"))
        }
        Kind::Postgres => {
            let server = postgres();
            let database = format!("tenure_{number}");
            server.psql(&format!("create database {database}"));
            let port = server.port;
            Sandbox::at(&format!(
                "postgres://postgres:secret@127.0.0.1:{port}/{database}"
            ))
        }
    }
}

pub struct Server {
    pub port: u16,
    /// A shell that ends the server when its stdin does, which is when this process has ended, however that came.
    _shell: Child,
}

impl Server {
    /// Starts a server by a script for the shell that leaves its pid in `$!`.
    fn start(script: &str, dir: &Path, port: u16) -> Self {
        let script = format!("{script}\nread x; kill $!; wait; rm -rf {}", dir.display());
        let shell = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("there is a shell");
        Self {
            port,
            _shell: shell,
        }
    }

    fn psql(&self, sql: &str) {
        let mut psql = self.psql_command();
        let output = psql.arg(sql).output().expect("psql is installed");
        assert!(output.status.success(), "{output:?}");
    }

    fn psql_command(&self) -> Command {
        let mut psql = Command::new("psql");
        let url = format!(
            "postgres://postgres:secret@127.0.0.1:{}/postgres",
            self.port
        );
        psql.args(["-q", "-X", &url, "-c"]);
        psql
    }
}

fn directory() -> PathBuf {
    let dir = tempfile::Builder::new().prefix("tenure-server-").tempdir();
    dir.expect("a directory").keep()
}

/// That nobody listens at; somebody else may take it before its server does, and then that one does not start.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("it is bound").port()
}

pub fn etcd() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (dir, port, peer) = (directory(), free_port(), free_port());
        let script = format!(
            "etcd --name t --data-dir {0}/data --listen-client-urls http://127.0.0.1:{port} \
             --advertise-client-urls http://127.0.0.1:{port} --listen-peer-urls http://127.0.0.1:{peer} \
             --initial-advertise-peer-urls http://127.0.0.1:{peer} --initial-cluster t=http://127.0.0.1:{peer} \
             > {0}/log 2>&1 &",
            dir.display()
        );
        let server = Server::start(&script, &dir, port);
        until(SOON, "etcd answers", || {
            let endpoint = format!("--endpoints=127.0.0.1:{port}");
            let mut health = Command::new("etcdctl");
            health.args([&endpoint, "endpoint", "health"]).env("ETCDCTL_API", "3");
            health.output().expect("etcdctl is installed").status.success()
        });
        server
    })
}

/// Where Debian has the programs of the newest version that is installed.
pub fn postgres_programs() -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").expect("postgresql is installed");
    let newest = versions
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .max();
    newest.expect("a version").join("bin")
}

pub fn postgres() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let (dir, port, programs) = (directory(), free_port(), postgres_programs());
        // It does not run as root.
        let script = format!(
            "chown postgres {dir}; echo secret > {dir}/password; cd {dir}
             setpriv --reuid postgres --regid postgres --clear-groups {programs}/initdb -D {dir}/data -A scram-sha-256 \
             -U postgres --pwfile {dir}/password > {dir}/log 2>&1
             setpriv --reuid postgres --regid postgres --clear-groups {programs}/postgres -D {dir}/data -p {port} \
             -c listen_addresses=127.0.0.1 -c unix_socket_directories={dir} -c max_connections=300 > {dir}/log 2>&1 &",
            dir = dir.display(),
            programs = programs.display(),
        );
        let server = Server::start(&script, &dir, port);
        until(SOON, "PostgreSQL answers", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok() && {
                let mut psql = server.psql_command();
                psql.arg("select 1").output().expect("psql is installed").status.success()
            }
        });
        server
    })
}

/// What a command prints, which is to succeed.
#[track_caller]
pub fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
