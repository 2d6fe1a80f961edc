//! A server of one test's own, which can be stopped, killed and started again.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::servers::{free_port, postgres_programs, run};
use crate::support::{SOON, Sandbox, state, until};

/// The password of all roles, which nothing is to show.
pub const SECRET: &str = "s3cretPassw0rd";

/// Ends with this process, whoever ends that, and is not root.
const AS_POSTGRES: [&str; 7] = [
    "--pdeathsig",
    "KILL",
    "--reuid",
    "postgres",
    "--regid",
    "postgres",
    "--clear-groups",
];

pub struct Server {
    dir: TempDir,
    pub port: u16,
    postmaster: Option<Child>,
}

impl Server {
    /// Made anew and started, with the settings that all tests have and these.
    pub fn start(settings: &str) -> Self {
        let dir = tempfile::Builder::new().prefix("tenure-server-").tempdir();
        let dir = dir.expect("a directory");
        let server = Self {
            port: free_port(),
            dir,
            postmaster: None,
        };
        fs::set_permissions(server.dir(), Permissions::from_mode(0o777)).expect("our own");
        fs::write(server.path("password"), SECRET).expect("our own");
        let data = server.path("data");
        let initdb = run(as_postgres(postgres_programs().join("initdb"))
            .args(["-A", "scram-sha-256", "-U", "postgres", "-N", "--pwfile"])
            .arg(server.path("password"))
            .arg("-D")
            .arg(&data));
        assert!(initdb.contains("Success"), "{initdb}");
        let settings = format!(
            "port = {}\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\n{settings}\n",
            server.port,
            server.dir().display()
        );
        let conf = data.join("postgresql.conf");
        let all = fs::read_to_string(&conf).expect("initdb made it") + &settings;
        fs::write(conf, all).expect("our own");
        server.started()
    }

    fn started(mut self) -> Self {
        self.start_again();
        self
    }

    /// After it has ended.
    pub fn start_again(&mut self) {
        until(SOON, "PostgreSQL answers", || {
            let is_over = self
                .postmaster
                .as_mut()
                .is_none_or(|child| child.try_wait().expect("our own child").is_some());
            if is_over {
                // What is left of one that was killed may keep it from starting for a moment.
                let mut command = as_postgres(postgres_programs().join("postgres"));
                command.arg("-D").arg(self.path("data"));
                let log = fs::File::create(self.path("log")).expect("our own");
                command
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(log);
                self.postmaster = Some(command.spawn().expect("postgresql is installed"));
            }
            self.psql("postgres", &["select 1"]).is_ok()
        });
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// As its administrator.
    pub fn url(&self) -> String {
        self.url_of("postgres", "127.0.0.1", "postgres")
    }

    pub fn url_of(&self, role: &str, host: &str, database: &str) -> String {
        format!("postgres://{role}:{SECRET}@{host}:{}/{database}", self.port)
    }

    pub fn sandbox(&self) -> Sandbox {
        Sandbox::at(&self.url())
    }

    fn psql_command(&self, database: &str, statements: &[&str]) -> Command {
        let mut psql = Command::new("psql");
        psql.args(["-q", "-X", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        psql.arg(self.url_of("postgres", "127.0.0.1", database));
        for statement in statements {
            psql.args(["-c", statement]);
        }
        psql
    }

    /// Somebody else who has the row that all lock who change something, for so many seconds.
    pub fn keep_row(&self, seconds: u32) -> Child {
        let sleep = format!("select pg_sleep({seconds})");
        let lock = "select from tenure.state for update";
        let mut psql = self.psql_command("postgres", &["begin", lock, &sleep, "commit"]);
        let child = psql.stdout(Stdio::null()).spawn();
        let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep'";
        until(SOON, "the row is locked", || self.sql(&[sleeps]) == "1");
        child.expect("psql is installed")
    }

    fn psql(&self, database: &str, statements: &[&str]) -> Result<String, String> {
        let mut psql = self.psql_command(database, statements);
        let output = psql.output().expect("psql is installed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if output.status.success() {
            Ok(text(&output.stdout))
        } else {
            Err(text(&output.stderr))
        }
    }

    /// What the statements print.
    #[track_caller]
    pub fn sql(&self, statements: &[&str]) -> String {
        self.sql_in("postgres", statements)
    }

    #[track_caller]
    pub fn sql_in(&self, database: &str, statements: &[&str]) -> String {
        let answer = self.psql(database, statements);
        answer.unwrap_or_else(|error| panic!("{statements:?}: {error}"))
    }

    /// When the only lease ends by the clock that all of this machine share, in milliseconds since 1970.
    pub fn expiry(&self) -> i64 {
        let answer = self.sql(&["select expires_at from tenure.ticket where state = 'held'"]);
        answer.parse().expect("there is one lease")
    }

    fn postmaster(&self) -> i32 {
        let child = self.postmaster.as_ref().expect("it was started");
        i32::try_from(child.id()).expect("pids are small")
    }

    /// The processes of this server: its first, and that one's children.
    fn processes(&self) -> Vec<i32> {
        let first = self.postmaster();
        let is_child = |pid: &i32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let after = stat.rsplit(") ").next().unwrap_or_default();
            after.split(' ').nth(1) == Some(&first.to_string())
        };
        let pids = fs::read_dir("/proc").expect("/proc is there");
        let pids = pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        std::iter::once(first)
            .chain(pids.filter(is_child))
            .collect()
    }

    fn signal(&self, signal: Signal) {
        for pid in self.processes() {
            let pid = Pid::from_raw(pid).expect("no pid is 0");
            // One that has just ended is no matter.
            let _ = kill_process(pid, signal);
        }
    }

    /// SIGSTOP for all of it: it answers nobody, and its connections stay.
    pub fn stop(&self) {
        // The first of them starts no more when it is stopped.
        until(SOON, "all of the server stands still", || {
            self.signal(Signal::STOP);
            self.processes()
                .into_iter()
                .all(|pid| matches!(state(pid), Some('T' | 'Z') | None))
        });
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        let mut child = self.postmaster.take().expect("it was started");
        child.kill().expect("our own child");
        child.wait().expect("our own child");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(mut child) = self.postmaster.take() else {
            return;
        };
        self.postmaster = None;
        let pid = Pid::from_child(&child);
        // At once, and no word to its clients.
        let _ = kill_process(pid, Signal::QUIT);
        let _ = kill_process(pid, Signal::CONT);
        let _ = child.wait();
    }
}

fn as_postgres(program: PathBuf) -> Command {
    let mut command = Command::new("setpriv");
    command.args(AS_POSTGRES).arg(program).current_dir("/");
    command
}
