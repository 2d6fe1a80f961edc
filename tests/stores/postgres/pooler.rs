//! Through a pooler that gives each transaction another connection.

use std::fs;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::server::{SECRET, Server};
use crate::servers::free_port;
use crate::support::{SOON, Sandbox, for_each, ms, until};

struct Pooler {
    port: u16,
    child: Child,
}

impl Pooler {
    fn to(server: &Server) -> Self {
        let port = free_port();
        let settings = format!(
            "[databases]\npostgres = host=127.0.0.1 port={} user=postgres password={SECRET}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = 4\nmax_client_conn = 200\nlogfile = {}\n",
            server.port,
            server.path("pooler.log").display(),
        );
        fs::write(server.path("pooler.ini"), settings).expect("our own");
        let mut command = Command::new("setpriv");
        command.args([
            "--pdeathsig",
            "KILL",
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
        ]);
        command
            .args(["--clear-groups", "pgbouncer", "-q"])
            .arg(server.path("pooler.ini"));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("pgbouncer is installed");
        until(SOON, "the pooler answers", || {
            std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        Self { port, child }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

#[test]
fn locks_are_taken_waited_for_and_kept_through_a_pooler() {
    let server = Server::start("");
    let pooler = Pooler::to(&server);
    let sandbox = Sandbox::at(&format!(
        "postgres://ann@127.0.0.1:{}/postgres",
        pooler.port
    ));
    let holder = sandbox.tenure().args(["run", "--ttl", "5s", "A"]).hold();
    assert!(sandbox.is_busy("A"));
    let expiry = server.expiry();
    until(SOON, "it is renewed", || server.expiry() > expiry);
    let waiter = sandbox
        .tenure()
        .args(["run", "-q", "-w", "60s", "A", "--", "true"])
        .start();
    until(SOON, "it stands in line", || {
        server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]) == "1"
    });
    holder.end().exits(0);
    let ended = std::time::Instant::now();
    waiter.wait().exits(0);
    assert!(ended.elapsed() < ms(9000), "{:?}", ended.elapsed());
    let token = sandbox.acquire(["A", "B"]);
    sandbox
        .tenure()
        .args(["extend", "--token", &token])
        .run()
        .exits(0);
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    for_each(0..12, |_| {
        let words = ["run", "-q", "-w", "80s", "A", "--", "true"];
        sandbox.tenure().args(words).run().exits(0);
    });
    let outcome = sandbox.tenure().args(["log", "A"]).run();
    outcome.exits(0).prints_with("released");
}
