//! Hand-offs of `etcdctl lock`, with a server of its own on this machine, beside tenure's in a file and in that server.

use std::fs::File;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::figures::{Row, Target};
use crate::hand_off::compare;
use crate::locks::{Lock, NAME, Tenure};
use crate::processes::{Running, output, until, version};

/// Each of its contenders is a program that takes tens of milliseconds to start.
const CONTENDERS: usize = 20;

const ROUNDS: usize = 5;

/// How long a job takes: no time at all, so that its end meets what its start has caused, and as long as a short one.
const JOBS: [Duration; 2] = [Duration::ZERO, Duration::from_millis(20)];

/// # Errors
/// A command failed.
pub fn measure(directory: &TempDir) -> Result<Vec<Row>> {
    let what = format!("hand-off, {CONTENDERS} contenders");
    for (program, word) in [("etcd", "--version"), ("etcdctl", "version")] {
        if version(program, word).is_none() {
            let what = format!("{what}, etcdctl lock");
            return Ok(vec![Row::not_measured(
                &what,
                &format!("{program} is missing"),
            )]);
        }
    }
    let directory = directory.path();
    let etcd = Etcd::start(directory)?;
    let times = compare(
        directory,
        [&etcd, &Tenure::new(directory)],
        CONTENDERS,
        ROUNDS,
    )?;
    let mut rows: Vec<Row> = [50, 99]
        .map(|percent| times.row(&what, "etcdctl lock", percent, Target::None))
        .into();
    if cfg!(feature = "etcd") {
        for takes in JOBS {
            let what = format!("{what}, both in etcd, jobs of {} ms", takes.as_millis());
            let (other, tenure) = (Lasting(&etcd, takes), Lasting(&InEtcd(&etcd), takes));
            let times = compare(directory, [&other, &tenure], CONTENDERS, ROUNDS)?;
            rows.push(times.row(&what, "etcdctl lock", 50, Target::Ratio(1.0)));
            rows.push(times.row(&what, "etcdctl lock", 99, Target::None));
        }
    }
    Ok(rows)
}

/// tenure's lock of the very same keys.
struct InEtcd<'a>(&'a Etcd);

impl Lock for InEtcd<'_> {
    fn command(&self) -> Command {
        let address = self.0.address.replacen("http", "etcd", 1) + "/";
        let mut command = Tenure {
            database: address.into(),
        }
        .tenure();
        command.args(["run", NAME, "--wait", "forever", "--"]);
        command
    }

    fn is_awaited_by(&self, waiters: usize) -> Result<bool> {
        self.0.is_awaited_by(waiters)
    }
}

/// A lock whose sections last for some time.
struct Lasting<'a>(&'a dyn Lock, Duration);

impl Lock for Lasting<'_> {
    fn command(&self) -> Command {
        let mut command = self.0.command();
        command.env("SECTION_TAKES", self.1.as_micros().to_string());
        command
    }

    fn is_awaited_by(&self, waiters: usize) -> Result<bool> {
        self.0.is_awaited_by(waiters)
    }
}

/// A server that listens on loopback only. It ends when this is dropped.
struct Etcd {
    address: String,
    _server: Running,
}

impl Etcd {
    fn start(directory: &Path) -> Result<Self> {
        // Both at once, so that they differ. Another program may take one before etcd does: then etcd fails, and
        // says so.
        let listeners = [
            TcpListener::bind("127.0.0.1:0")?,
            TcpListener::bind("127.0.0.1:0")?,
        ];
        let mut addresses = Vec::new();
        for listener in listeners {
            addresses.push(format!("http://{}", listener.local_addr()?));
        }
        let (clients, peers) = (&addresses[0], &addresses[1]);

        let log = directory.join("etcd.log");
        let mut command = bound_to_this("etcd");
        command.args(["--name", "bench", "--data-dir"]);
        command.arg(directory.join("etcd"));
        command.args(["--initial-cluster", &format!("bench={peers}")]);
        for (option, address) in [
            ("--listen-client-urls", clients),
            ("--advertise-client-urls", clients),
            ("--listen-peer-urls", peers),
            ("--initial-advertise-peer-urls", peers),
        ] {
            command.args([option, address]);
        }
        // It runs on amd64 alone, unless it is told that one knows.
        command.env("ETCD_UNSUPPORTED_ARCH", "arm64");
        command
            .stdout(File::create(&log)?)
            .stderr(File::options().append(true).open(&log)?);
        let mut server = Running::start(&mut command)?;
        until("etcd answers", || {
            if let Some(status) = server.ended()? {
                let said = std::fs::read_to_string(&log).unwrap_or_default();
                bail!(
                    "etcd: {status}: {}",
                    said.lines().last().unwrap_or_default()
                );
            }
            Ok(output(control(clients).args(["endpoint", "health"])).is_ok())
        })?;
        Ok(Self {
            address: clients.clone(),
            _server: server,
        })
    }
}

impl Lock for Etcd {
    fn command(&self) -> Command {
        let mut command = control(&self.address);
        command.args(["lock", NAME, "--"]);
        command
    }

    /// Whoever wants the lock has a key below its name, and the oldest key is the holder's.
    fn is_awaited_by(&self, waiters: usize) -> Result<bool> {
        let mut command = control(&self.address);
        command.args(["get", &format!("{NAME}/"), "--prefix", "--keys-only"]);
        let keys = output(&mut command).context("cannot tell who waits in etcd")?;
        Ok(keys.lines().filter(|line| !line.is_empty()).count() == waiters + 1)
    }
}

/// etcdctl in the version of its language that has locks.
fn control(address: &str) -> Command {
    let mut command = bound_to_this("etcdctl");
    command
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", address]);
    command
}

/// A program that is killed when this one is: etcd would stay for ever, and etcdctl would wait for it.
fn bound_to_this(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]);
    command
}
