//! Many at once.

use std::time::Instant;

use super::server::Server;
use crate::sections::Sections;
use crate::support::{SOON, for_each, ms, until};

const CONTENDERS: usize = 50;

#[test]
fn fifty_contenders_enter_one_at_a_time_in_order_with_growing_fences() {
    // With the number of connections that a server takes by itself.
    let server = Server::start("");
    let sandbox = server.sandbox();
    let holder = sandbox.holder("A");
    let sections = Sections::of(&sandbox);
    let mut waiters = Vec::new();
    for number in 0..CONTENDERS {
        waiters.push(sections.contender(&sandbox, number, "0"));
        let count = (number + 1).to_string();
        until(SOON, "it stands in line", || {
            server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]) == count
        });
    }
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    sections.are_in_order(CONTENDERS);
    assert_eq!(server.sql(&["select count(*) from tenure.ticket"]), "0");
    let granted = "select count(*), count(distinct fence) from tenure.log where event = 'released'";
    assert_eq!(server.sql(&[granted]), format!("{0}|{0}", CONTENDERS + 1));
    assert_eq!(
        server.sql(&["select count(distinct host) from tenure.log"]),
        "2"
    );
}

#[test]
fn the_next_is_woken_and_does_not_find_out_by_looking() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    for words in [&["run", "A"][..], &["run", "--slots", "2", "B"]] {
        let holders: Vec<_> = (0..words.len() / 2)
            .map(|_| sandbox.tenure().args(words).hold())
            .collect();
        let call = sandbox
            .tenure()
            .args(words)
            .args(["-q", "-w", "60s", "--", "true"]);
        let waiter = call.start();
        until(SOON, "it stands in line", || {
            server.sql(&["select count(*) from tenure.ticket where state = 'waiting'"]) == "1"
        });
        let ended = Instant::now();
        for holder in holders {
            holder.end().exits(0);
        }
        waiter.wait().exits(0);
        // The slow tick is half of its three seconds away at the least.
        assert!(ended.elapsed() < ms(1000), "{:?}", ended.elapsed());
    }
}

#[test]
fn all_who_come_first_find_the_tables_made() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    let waiters: Vec<_> = (0..20)
        .map(|number| {
            let name = format!("lock{number}");
            sandbox.tenure().args(["run", &name, "--", "true"]).start()
        })
        .collect();
    for waiter in waiters {
        waiter.wait().exits(0).says_nothing();
    }
    assert_eq!(server.sql(&["select count(*) from tenure.state"]), "1");
}

#[test]
fn the_log_forgets_the_oldest_and_what_is_over_is_swept_away() {
    let server = Server::start("");
    let sandbox = server.sandbox();
    for_each(0..8, |number| {
        let name = format!("old{number}");
        sandbox.acquire([name.as_str(), "--ttl", "1ms"]);
    });
    let old = "insert into tenure.log (at, event, names, mode, requested_at, uid, host, pid, command, directory)
               select 1000 + n, 'released', '{old}', 'exclusive', 1, 0, 'h', 1, 'c', '/'
               from generate_series(1, 70) as n";
    server.sql(&[old]);
    until(SOON, "the old ones are forgotten", || {
        sandbox
            .tenure()
            .args(["run", "B", "--", "true"])
            .run()
            .exits(0);
        let left = server.sql(&["select count(*) from tenure.log where at < 2000"]);
        let over = server.sql(&["select count(*) from tenure.ticket"]);
        left == "0" && over == "0"
    });
    let expired = "select count(*) from tenure.log where event = 'expired'";
    assert_eq!(server.sql(&[expired]), "8");
}
