//! One line for all: `etcdctl lock` and tenure exclude each other.

use super::server::Server;
use crate::support::{Running, Sandbox, Signal, ms};

/// An `etcdctl lock` that has it until it is interrupted.
fn held<'a>(server: &Server, sandbox: &'a Sandbox, key: &str) -> Running<'a> {
    let mut lock = server.lock(sandbox).arg(key).start();
    let name = || server.keys(&format!("{key}/"));
    crate::support::until(crate::support::SOON, "etcdctl has the lock", || {
        name()
            .first()
            .is_some_and(|key| lock.stdout().contains(key.as_str()))
            || lock.is_over()
    });
    lock
}

#[test]
fn what_etcdctl_holds_is_busy_and_free_when_it_ends() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let etcdctl = held(&server, &sandbox, "A");
    let outcome = sandbox.tenure().args(["run", "A", "--", "true"]).run();
    outcome.is_busy("A");
    assert!(
        outcome.stderr.contains("another client of etcd"),
        "{outcome:?}"
    );
    assert!(!sandbox.is_busy("B"));
    let status = &sandbox.status()[0];
    assert_eq!(
        (&status["name"], &status["state"]),
        (&"A".into(), &"held".into())
    );
    let words = ["run", "-q", "-w", "60s", "A", "--", "true"];
    let waiter = sandbox.tenure().args(words).start();
    server.until_in_line("A", 2);
    etcdctl.signal(Signal::INT);
    waiter.wait().exits(0).says_nothing();
    server.until_in_line("A", 0);
}

#[test]
fn etcdctl_waits_for_what_tenure_holds() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let proof = sandbox.path("proof");
    let holder = sandbox.holder("A");
    let fence = sandbox.status()[0]["fence"].as_i64().expect("a number");
    let script = format!("echo $ETCD_LOCK_REV > {}", proof.display());
    let etcdctl = server
        .lock(&sandbox)
        .args(["A", "--", "sh", "-c", &script])
        .start();
    server.until_in_line("A", 2);
    assert_eq!(sandbox.status()[0]["waiting"], 1);
    assert!(!proof.exists());
    holder.end().exits(0);
    etcdctl.wait().exits(0);
    let revision = std::fs::read_to_string(proof).expect("it ran");
    let revision: i64 = revision.trim_end().parse().expect("a number");
    assert!(revision > fence, "{revision} after {fence}");
}

#[test]
fn etcdctl_and_tenure_enter_in_the_order_in_which_they_came() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let order = sandbox.path("order");
    let token = sandbox.acquire(["A", "--ttl", "5m"]);
    let first = sandbox.status()[0]["fence"].as_i64().expect("a number");
    let mut waiters = Vec::new();
    for number in 0..6 {
        let variable = if number % 2 == 0 {
            "ETCD_LOCK_REV"
        } else {
            "TENURE_FENCE"
        };
        let script = format!("echo {number} ${variable} >> {}", order.display());
        let call = if number % 2 == 0 {
            server.lock(&sandbox).arg("A")
        } else {
            sandbox.tenure().args(["run", "-q", "-w", "80s", "A"])
        };
        waiters.push(call.args(["--", "sh", "-c", &script]).start());
        server.until_in_line("A", number + 2);
    }
    let release = sandbox.tenure().args(["release", "--token", &token]);
    release.run().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0).took(ms(0)..ms(60_000));
    }
    let text = std::fs::read_to_string(order).expect("they ran");
    let mut last = first;
    for (number, line) in text.lines().enumerate() {
        let (who, fence) = line.split_once(' ').expect("two words");
        assert_eq!(who, number.to_string(), "{text}");
        let fence = fence.parse().expect("a number");
        assert!(fence > last, "{text}");
        last = fence;
    }
    assert_eq!(text.lines().count(), 6);
}

#[test]
fn a_prefix_is_a_part_of_etcdctls_name() {
    let server = Server::start();
    let sandbox = Sandbox::at(&format!("{}ci/", server.url()));
    let etcdctl = held(&server, &sandbox, "ci/A");
    assert!(sandbox.is_busy("A"));
    assert!(!server.sandbox().is_busy("A"));
    etcdctl.signal(Signal::INT);
    etcdctl.wait();
    let token = sandbox.acquire(["A"]);
    let keys = server.keys("ci/A/");
    // As etcd's own locks have it: the lease in hexadecimal, without zeros in front.
    let lease = i64::from_str_radix(&token[..16], 16).expect("a token");
    assert_eq!(keys, [format!("ci/A/{lease:x}")]);
    sandbox
        .tenure()
        .args(["release", "--token", &token])
        .run()
        .exits(0);
    assert!(server.keys("ci/A/").is_empty());
}

#[test]
fn what_etcdctl_holds_can_be_taken_by_force() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let etcdctl = held(&server, &sandbox, "A");
    sandbox
        .tenure()
        .args(["release", "--force", "A"])
        .run()
        .exits(0);
    assert!(!sandbox.is_busy("A"));
    // It notices that its lease is gone, and ends.
    etcdctl.wait().took(ms(0)..ms(60_000));
}
