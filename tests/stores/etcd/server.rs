//! Servers of one test's own, which can be stopped, killed and started again; and etcdctl, which asks them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::servers::{free_port, run};
use crate::support::{Call, SOON, Sandbox, state, until};

/// The password of all users, which nothing is to show.
pub const SECRET: &str = "s3cretPassw0rd";

/// One member of a cluster, mostly the only one.
pub struct Server {
    dir: TempDir,
    pub port: u16,
    words: Vec<String>,
    child: Option<Child>,
}

impl Server {
    pub fn start() -> Self {
        let [server] = Self::start_cluster();
        server
    }

    /// With more words for it.
    pub fn start_with(words: &[&str]) -> Self {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let all = format!("default={peer}");
        let peers = [
            ["--initial-cluster", &all],
            ["--listen-peer-urls", &peer],
            ["--initial-advertise-peer-urls", &peer],
        ];
        let mut server = Self::new(peers.as_flattened());
        server
            .words
            .extend(words.iter().map(|word| (*word).to_owned()));
        server.spawn();
        server.await_start();
        server
    }

    /// As many as there are in the array.
    pub fn start_cluster<const MEMBERS: usize>() -> [Self; MEMBERS] {
        let peers: [u16; MEMBERS] = std::array::from_fn(|_| free_port());
        let of = |at: usize| format!("http://127.0.0.1:{}", peers[at]);
        let all: Vec<String> = (0..MEMBERS).map(|at| format!("m{at}={}", of(at))).collect();
        let mut servers: [Self; MEMBERS] = std::array::from_fn(|at| {
            let words = [
                ["--name", &format!("m{at}")],
                ["--initial-cluster", &all.join(",")],
                ["--listen-peer-urls", &of(at)],
                ["--initial-advertise-peer-urls", &of(at)],
            ];
            Self::new(words.as_flattened())
        });
        for server in &mut servers {
            server.spawn();
        }
        for server in &mut servers {
            server.await_start();
        }
        servers
    }

    /// With a directory for its certificates, that has them by now, and whether clients must have one.
    pub fn start_with_tls(certify: impl FnOnce(&Path), clients_too: bool) -> Self {
        let peer = format!("http://127.0.0.1:{}", free_port());
        let mut server = Self::new(&[
            "--initial-cluster",
            &format!("default={peer}"),
            "--listen-peer-urls",
            &peer,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
        certify(server.dir());
        for (option, file) in [("--cert-file", "server.crt"), ("--key-file", "server.key")] {
            let path = server.path(file).display().to_string();
            server.words.extend([option.to_owned(), path]);
        }
        if clients_too {
            let path = server.path("ca.crt").display().to_string();
            let more = ["--client-cert-auth", "--trusted-ca-file", &path];
            server.words.extend(more.map(str::to_owned));
        }
        for word in &mut server.words {
            *word = word.replace(
                &format!("http://127.0.0.1:{}", server.port),
                &format!("https://127.0.0.1:{}", server.port),
            );
        }
        server.spawn();
        server.await_start();
        server
    }

    fn new(words: &[&str]) -> Self {
        let dir = tempfile::Builder::new().prefix("tenure-server-").tempdir();
        let (dir, port) = (dir.expect("a directory"), free_port());
        let url = format!("http://127.0.0.1:{port}");
        let data = dir.path().join("data").display().to_string();
        let more = [
            ["--data-dir", &data],
            ["--listen-client-urls", &url],
            ["--advertise-client-urls", &url],
        ];
        let words = words.iter().chain(more.as_flattened());
        Self {
            words: words.map(|word| (*word).to_owned()).collect(),
            dir,
            port,
            child: None,
        }
    }

    fn spawn(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.path("log"));
        // It ends with this process, whoever ends that. On other machines than amd64 it wants to be told that one knows.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "etcd"])
            .args(&self.words)
            .env("ETCD_UNSUPPORTED_ARCH", "arm64")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.expect("our own"));
        self.child = Some(command.spawn().expect("etcd is installed"));
    }

    fn await_start(&self) {
        until(SOON, "etcd answers", || {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            log.contains("ready to serve client requests")
        });
    }

    /// After it was killed.
    pub fn start_again(&mut self) {
        fs::remove_file(self.path("log")).expect("our own");
        self.spawn();
        self.await_start();
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    pub fn url(&self) -> String {
        format!("etcd://127.0.0.1:{}/", self.port)
    }

    pub fn sandbox(&self) -> Sandbox {
        Sandbox::at(&self.url())
    }

    fn endpoint(&self) -> String {
        format!("--endpoints=127.0.0.1:{}", self.port)
    }

    /// What etcdctl prints.
    #[track_caller]
    pub fn ask(&self, words: &[&str]) -> String {
        let mut etcdctl = Command::new("etcdctl");
        etcdctl.arg(self.endpoint()).args(words);
        run(etcdctl.env("ETCDCTL_API", "3"))
    }

    /// `etcdctl lock`, whose words come last.
    pub fn lock<'a>(&self, sandbox: &'a Sandbox) -> Call<'a> {
        let call = sandbox.program("etcdctl").env("ETCDCTL_API", "3");
        call.arg(self.endpoint()).arg("lock")
    }

    /// Which keys there are that begin like this.
    #[track_caller]
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.ask(&["get", "--prefix", "--keys-only", prefix]);
        let lines = keys.lines().filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// Waits until so many hold a lock or stand in line for it.
    #[track_caller]
    pub fn until_in_line(&self, name: &str, count: usize) {
        until(SOON, &format!("{count} are in line for {name}"), || {
            self.keys(&format!("{name}/")).len() == count
        });
    }

    fn pid(&self) -> Pid {
        Pid::from_child(self.child.as_ref().expect("it was started"))
    }

    /// SIGSTOP: it answers nobody, and its connections stay.
    pub fn stop(&self) {
        kill_process(self.pid(), Signal::STOP).expect("our own child");
        let pid = self.pid().as_raw_nonzero().get();
        until(SOON, "it stands still", || state(pid) == Some('T'));
    }

    pub fn resume(&self) {
        kill_process(self.pid(), Signal::CONT).expect("our own child");
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it was started");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}
