//! Three members, and what becomes of those who hold and wait when one of them is gone.

use super::server::Server;
use crate::sections::Sections;
use crate::support::{SOON, Sandbox, is_alive, ms, throughout, until};

const CONTENDERS: usize = 30;

/// Whichever member is asked first.
fn sandbox(servers: &[Server]) -> Sandbox {
    let hosts = servers
        .iter()
        .map(|server| format!("127.0.0.1:{}", server.port));
    let hosts: Vec<_> = hosts.collect();
    Sandbox::at(&format!("etcd://{}/", hosts.join(",")))
}

fn leader(servers: &[Server]) -> Option<usize> {
    servers.iter().position(|server| {
        let status = server.ask(&["endpoint", "status", "-w", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
        let status = &status[0]["Status"];
        status["leader"] == status["header"]["member_id"]
    })
}

#[test]
fn contenders_go_on_in_order_when_the_leader_is_killed() {
    let mut servers: [Server; 3] = Server::start_cluster();
    let mut first = None;
    until(SOON, "there is a leader", || {
        first = leader(&servers);
        first.is_some()
    });
    let at = first.expect("it was waited for");
    // Whoever asks in this order has the leader for his first.
    servers.swap(0, at);
    let sandbox = sandbox(&servers);
    let holder = sandbox.holder("A");
    let sections = Sections::of(&sandbox);
    let mut waiters = Vec::new();
    for number in 0..CONTENDERS {
        waiters.push(sections.contender(&sandbox, number, "0.05"));
        servers[1].until_in_line("A", number + 2);
    }
    holder.end().exits(0);
    until(SOON, "some have had their turn", || {
        sections.count() >= CONTENDERS / 3
    });
    servers[0].kill();
    assert!(
        sections.count() < CONTENDERS,
        "it came too late to tell anything"
    );
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    sections.are_in_order(CONTENDERS);
    // Two of three go on by themselves.
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_job_goes_on_when_the_member_that_it_uses_is_gone() {
    let mut servers: [Server; 3] = Server::start_cluster();
    let sandbox = sandbox(&servers);
    let mut holder = sandbox.tenure().args(["run", "--ttl", "9s", "A"]).hold();
    let words = ["run", "-q", "-w", "60s", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).start();
    servers[1].until_in_line("A", 2);
    servers[0].stop();
    throughout(ms(10_000), "it runs", || {
        is_alive(holder.pid()) && !holder.is_over()
    });
    let stderr = holder.stderr();
    assert!(!stderr.contains("lost"), "{stderr}");
    servers[0].resume();
    servers[2].kill();
    holder.end().exits(0);
    waiter.wait().exits(0);
}

#[test]
fn a_member_without_the_others_grants_nothing() {
    let mut servers: [Server; 3] = Server::start_cluster();
    let sandbox = sandbox(&servers);
    assert!(!sandbox.is_busy("A"));
    servers[1].kill();
    servers[2].kill();
    let proof = sandbox.path("ran");
    let call = sandbox
        .tenure()
        .args(["run", "A", "--", "touch"])
        .arg(&proof);
    let outcome = call.run();
    outcome
        .is_store_error("cannot reach etcd at 127.0.0.1:*")
        .took(ms(0)..ms(12_000));
    assert!(!proof.exists());
}
