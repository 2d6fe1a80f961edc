//! Processes die, and others on their machine see it before the time of what they had has passed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use super::server::Server;
use crate::support::{Call, Running, SOON, Sandbox, is_alive, ms, throughout, until};

/// Longer than any test.
const LONG: [&str; 2] = ["--ttl", "1h"];

fn count(server: &Server, of_which: &str) -> i64 {
    let sql = format!("select count(*) from tenure.ticket where {of_which}");
    server.sql(&[&sql]).parse().expect("a number")
}

/// The guard file of the only ticket.
fn guard_file(server: &Server) -> PathBuf {
    let told = server.sql(&["select guard_file from tenure.ticket"]);
    let name = told.split(' ').nth(1).expect("a boot, a name and more");
    PathBuf::from(format!("/var/lib/tenure/postgres/{name}-guard"))
}

fn waiter(sandbox: &Sandbox) -> Running<'_> {
    let words = ["run", "-q", "-w", "90s", "A", "--", "true"];
    sandbox.tenure().args(words).start()
}

fn events(sandbox: &Sandbox) -> Vec<String> {
    let log = sandbox.tenure().args(["log", "--json", "A"]).run().json();
    let event = |entry: &serde_json::Value| entry["event"].as_str().expect("a word").to_owned();
    log.iter().map(event).collect()
}

#[test]
fn what_a_killed_run_had_is_the_next_waiters_at_once() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let holder = sandbox.tenure().arg("run").args(LONG).arg("A").hold();
    let inode = fs::metadata(guard_file(&server))
        .expect("it is there")
        .ino();
    let waiter = waiter(&sandbox);
    until(SOON, "it waits in the kernel", || {
        let locks = fs::read_to_string("/proc/locks").expect("it is there");
        let of_file = format!(":{inode} ");
        locks
            .lines()
            .any(|line| line.contains("-> ") && line.contains(&of_file))
    });
    holder.kill();
    waiter.wait().exits(0);
    assert_eq!(
        events(&sandbox),
        ["granted", "crashed", "granted", "released"]
    );
    // And without anybody who waits.
    sandbox
        .tenure()
        .arg("run")
        .args(LONG)
        .arg("A")
        .hold()
        .kill();
    until(SOON, "its processes are gone", || !sandbox.is_busy("A"));
    assert_eq!(count(&server, "true"), 0);
}

#[test]
fn what_a_killed_runs_job_left_running_keeps_the_lock_until_it_has_ended() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    // In no group or session that is killed along.
    let script = "setsid sh -c 'echo $$; echo ready; exec sleep 300' & wait";
    let call = sandbox.tenure().arg("run").args(LONG);
    let mut holder = call.args(["A", "--", "sh", "-c", script]).start();
    holder.await_line("ready");
    let pid = holder.stdout().lines().next().map(str::parse::<i32>);
    let pid = pid.expect("a line").expect("a pid");
    let waiter = waiter(&sandbox);
    until(SOON, "it stands in line", || {
        count(&server, "state = 'waiting'") == 1
    });
    holder.kill();
    until(SOON, "it is seen", || {
        sandbox.status()[0]["state"] == "orphaned"
    });
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    outcome.exits(75).says(&format!(
        "A is held by processes of root@*'s run (pid *, killed): *pid {pid} (sleep 300)*; for * at the most; kill *{pid} ends it*"
    ));
    throughout(ms(4000), "it is waited for", || {
        is_alive(pid) && count(&server, "state = 'waiting'") == 1
    });
    kill_process(Pid::from_raw(pid).expect("no 0"), Signal::KILL).expect("it lives");
    waiter.wait().exits(0);
}

#[test]
fn a_killed_waiter_is_in_nobodys_way() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let killed = waiter(&sandbox);
    until(SOON, "it stands in line", || {
        count(&server, "state = 'waiting'") == 1
    });
    let next = waiter(&sandbox);
    until(SOON, "both stand in line", || {
        count(&server, "state = 'waiting'") == 2
    });
    killed.kill();
    // Its place is kept for much longer by time.
    until(ms(5000), "it is out of the line", || {
        sandbox.status()[0]["waiting"] == 1
    });
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    next.wait().exits(0);
}

#[test]
fn what_is_taken_with_a_token_outlives_who_took_it() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let first = sandbox.acquire(["A"]);
    let words = ["acquire", "-q", "-w", "90s", "--ttl", "1h", "A"];
    let second = sandbox.tenure().args(words).start();
    until(SOON, "it stands in line", || {
        count(&server, "state = 'waiting' and guard_file is not null") == 1
    });
    let release = sandbox.tenure().args(["release", "--token", &first]);
    release.run().exits(0);
    second.wait().exits(0);
    assert!(sandbox.is_busy("A"));
    assert_eq!(count(&server, "guard_file is null"), 1);
}

#[test]
fn who_cannot_see_it_goes_by_time() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let call = |via: &[&str]| -> Call<'_> {
        let call = sandbox.tenure().args(["run", "A", "--", "true"]);
        call.via(via)
    };
    // On another machine, and as a user who has no home there.
    let boot = "mount --bind boot_id /proc/sys/kernel/random/boot_id && exec \"$@\"";
    fs::write(sandbox.path("boot_id"), "another\n").expect("our own");
    let machine = ["unshare", "-m", "sh", "-c", boot, "sh"];
    let user = sandbox.tenure_as(4711, "").db(server.url());
    sandbox
        .tenure()
        .arg("run")
        .args(LONG)
        .arg("A")
        .hold()
        .kill();
    until(SOON, "its processes are gone", || {
        sandbox.status().is_empty()
    });
    call(&machine).run().is_busy("A");
    user.args(["run", "A", "--", "true"]).run().is_busy("A");
    call(&[]).run().exits(0);
}

#[test]
fn where_no_file_can_be_made_a_run_goes_on_without() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    sandbox.fence("A");
    let user = sandbox.tenure_as(4711, "").db(server.url());
    let holder = user.args(["run", "A"]).hold();
    assert_eq!(count(&server, "guard_file is null"), 1);
    assert!(sandbox.is_busy("A"));
    holder.end().exits(0);
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn nothing_is_left_of_what_has_ended_well() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let holder = sandbox.holder("A");
    let file = guard_file(&server);
    assert!(file.exists());
    holder.end().exits(0);
    assert!(!file.exists());
    let token = sandbox.acquire(["A"]);
    let waiter = waiter(&sandbox);
    until(SOON, "it stands in line", || {
        count(&server, "state = 'waiting'") == 1
    });
    server.sql(&["delete from tenure.ticket where state = 'held'"]);
    let file = guard_file(&server);
    waiter.wait().exits(0);
    assert!(!file.exists());
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .is_not_held("*");
    assert_eq!(count(&server, "true"), 0);
}
