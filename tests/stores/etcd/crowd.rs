//! Many at once.

use std::time::Instant;

use super::server::Server;
use crate::sections::Sections;
use crate::support::ms;

const CONTENDERS: usize = 50;

#[test]
fn fifty_contenders_enter_one_at_a_time_in_order_with_growing_fences() {
    let server = Server::start();
    let sandbox = server.sandbox();
    let holder = sandbox.holder("A");
    let sections = Sections::of(&sandbox);
    let mut waiters = Vec::new();
    for number in 0..CONTENDERS {
        waiters.push(sections.contender(&sandbox, number, "0"));
        server.until_in_line("A", number + 2);
    }
    holder.end().exits(0);
    for waiter in waiters {
        waiter.wait().exits(0);
    }
    sections.are_in_order(CONTENDERS);
    server.until_in_line("A", 0);
    // Of what they had, nothing is left to expire.
    let leases = server.ask(&["lease", "list"]);
    assert_eq!(leases.trim_end(), "found 0 leases");
}

#[test]
fn the_next_is_woken_and_does_not_find_out_by_looking() {
    let server = Server::start();
    let sandbox = server.sandbox();
    for (name, words) in [
        ("A", &["run", "A"][..]),
        ("B", &["run", "--slots", "2", "B"]),
    ] {
        let holders: Vec<_> = (0..words.len() / 2)
            .map(|_| sandbox.tenure().args(words).hold())
            .collect();
        let call = sandbox.tenure().args(words);
        let waiter = call.args(["-q", "-w", "60s", "--", "true"]).start();
        server.until_in_line(name, holders.len() + 1);
        let ended = Instant::now();
        for holder in holders {
            holder.end().exits(0);
        }
        waiter.wait().exits(0);
        let took = ended.elapsed();
        assert!(took < ms(3000), "{name}: {took:?}");
    }
}
