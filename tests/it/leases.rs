//! Leases by token: acquire, release, extend, what proves that one is one's own, and fencing numbers.

use std::fs;
use std::time::Instant;

use crate::support::{SOON, Sandbox, for_each, ms, throughout, until};

const WRONG: &str = "0123456789abcdef0123456789abcdef";

impl Sandbox {
    /// Whether `status --token` says that the lease is still held.
    #[track_caller]
    fn is_held(&self, token: &str) -> bool {
        let outcome = self.tenure().args(["status", "--token", token]).run();
        match outcome.code {
            Some(0) => true,
            Some(76) => false,
            _ => panic!("neither held nor not: {outcome:#?}"),
        }
    }
}

#[test]
fn acquire_prints_the_token_alone() {
    let sandbox = Sandbox::new();
    let outcomes = ["A", "B"].map(|name| sandbox.tenure().args(["acquire", name]).run());
    for outcome in &outcomes {
        outcome.exits(0).says_nothing();
        let token = outcome.stdout.strip_suffix('\n').expect("one line");
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        assert!(
            token.len() == 32 && token.bytes().all(is_digit),
            "{outcome:#?}"
        );
    }
    assert_ne!(outcomes[0].stdout, outcomes[1].stdout);
}

#[test]
fn a_lease_is_released_by_its_token() {
    let sandbox = Sandbox::new();
    let release = |words: &[&str]| sandbox.tenure().arg("release").args(words);

    let token = sandbox.acquire(["A"]);
    assert!(sandbox.is_busy("A"));
    release(&["A", "--token", &token])
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    assert!(!sandbox.is_busy("A"));
    release(&["A", "--token", &token]).run().is_not_held("*");

    let token = sandbox.acquire(["A"]);
    release(&["A"])
        .env("TENURE_TOKEN", &token)
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    assert!(!sandbox.is_busy("A"));

    let token = sandbox.acquire(["A"]);
    release(&["--token", &token])
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    assert!(!sandbox.is_busy("A"));

    let token = sandbox.acquire(["A", "B"]);
    release(&[])
        .env("TENURE_TOKEN", &token)
        .run()
        .exits(0)
        .prints_nothing()
        .says_nothing();
    assert!(!sandbox.is_busy("A") && !sandbox.is_busy("B"));

    let token = sandbox.acquire(["A"]);
    let both = release(&["A", "--token", &token])
        .env("TENURE_TOKEN", WRONG)
        .run();
    both.exits(0).prints_nothing().says_nothing();
}

#[test]
fn a_lease_of_several_names_is_released_as_one() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "B", "C"]);
    for names in [&["A"][..], &["A", "B"], &["C", "A"]] {
        for verb in ["release", "extend"] {
            let outcome = sandbox
                .tenure()
                .arg(verb)
                .args(names)
                .args(["--token", &token])
                .run();
            outcome.is_usage_error("*");
        }
    }
    for name in ["A", "B", "C"] {
        assert!(sandbox.is_busy(name), "{name} is still held");
    }
    for names in [["A", "B", "C"], ["C", "B", "A"], ["B", "C", "A"]] {
        let outcome = sandbox
            .tenure()
            .arg("extend")
            .args(names)
            .args(["--token", &token])
            .run();
        outcome.exits(0).prints_nothing().says_nothing();
    }
    let outcome = sandbox
        .tenure()
        .args(["release", "C", "A", "B", "--token", &token])
        .run();
    outcome.exits(0).prints_nothing().says_nothing();
    for name in ["A", "B", "C"] {
        assert!(!sandbox.is_busy(name), "{name} is free");
    }
}

#[test]
fn a_name_that_the_lease_does_not_have_changes_nothing() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    let other = sandbox.acquire(["B"]);
    for verb in ["release", "extend"] {
        for names in [&["B"][..], &["A", "B"], &["free"]] {
            let outcome = sandbox
                .tenure()
                .arg(verb)
                .args(names)
                .args(["--token", &token])
                .run();
            assert!([Some(64), Some(76)].contains(&outcome.code), "{outcome:#?}");
            outcome.prints_nothing().says_a_line();
        }
    }
    assert!(sandbox.is_held(&token) && sandbox.is_held(&other));
}

#[test]
fn a_wrong_token_is_76_and_changes_nothing() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    let before = sandbox.tenure().args(["status", "--token", &token]).run();
    before.exits(0);
    for verb in ["release", "extend"] {
        sandbox
            .tenure()
            .args([verb, "A", "--token", WRONG])
            .run()
            .is_not_held("*");
        sandbox
            .tenure()
            .args([verb, "--token", WRONG])
            .run()
            .is_not_held("*");
        sandbox
            .tenure()
            .arg(verb)
            .env("TENURE_TOKEN", WRONG)
            .run()
            .is_not_held("*");
        // A token is compared as a whole, so all but its last digit are worth nothing.
        let last = if token.ends_with('0') { "1" } else { "0" };
        let near = format!("{}{last}", &token[..31]);
        sandbox
            .tenure()
            .args([verb, "A", "--token", &near])
            .run()
            .is_not_held("*");
    }
    assert!(sandbox.is_held(&token));
    assert!(!sandbox.is_held(WRONG));
}

#[test]
fn a_lease_ends_when_its_time_to_live_has_passed_and_not_before() {
    let sandbox = Sandbox::new();
    let before = Instant::now();
    let token = sandbox.acquire(["A", "--ttl", "1200ms"]);
    let after = Instant::now();
    while before.elapsed() < ms(1100) {
        let held = sandbox.is_held(&token);
        // Unless the machine was so slow that the answer may be about a later moment.
        assert!(
            held || before.elapsed() >= ms(1200),
            "it ended {:?} early",
            before.elapsed()
        );
    }
    until(SOON, "the lease is over", || !sandbox.is_held(&token));
    assert!(
        before.elapsed() >= ms(1200),
        "it ended {:?} after its start",
        before.elapsed()
    );
    assert!(
        after.elapsed() < ms(5000),
        "it ended {:?} after its start",
        after.elapsed()
    );
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_lease_that_is_over_is_not_held_even_if_nobody_took_the_lock() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "200ms"]);
    until(SOON, "the lease is over", || !sandbox.is_held(&token));
    sandbox
        .tenure()
        .args(["extend", "A", "--token", &token, "--ttl", "1h"])
        .run()
        .is_not_held("*");
    assert!(!sandbox.is_held(&token), "it cannot be brought back");
    sandbox
        .tenure()
        .args(["release", "A", "--token", &token])
        .run()
        .is_not_held("*");
    assert_eq!(sandbox.status(), Vec::<serde_json::Value>::new());
}

#[test]
fn the_token_of_an_expired_lease_does_not_disturb_the_next_holder() {
    let sandbox = Sandbox::new();
    let old = sandbox.acquire(["A", "--ttl", "200ms"]);
    let outcome = sandbox
        .tenure()
        .args(["acquire", "A", "--wait", "20s", "--ttl", "1h"])
        .run();
    let new = outcome.exits(0).stdout.trim_end().to_owned();
    for verb in ["release", "extend"] {
        sandbox
            .tenure()
            .args([verb, "A", "--token", &old])
            .run()
            .is_not_held("*");
        sandbox
            .tenure()
            .args([verb, "--token", &old])
            .run()
            .is_not_held("*");
        assert!(sandbox.is_held(&new), "after {verb} with the old token");
    }
    sandbox
        .tenure()
        .args(["release", "A", "--token", &new])
        .run()
        .exits(0);

    sandbox.acquire(["A", "--ttl", "200ms"]);
    let old = sandbox.acquire(["B", "--ttl", "200ms"]);
    until(SOON, "the lease is over", || !sandbox.is_busy("B"));
    let holder = sandbox.holder("B");
    for verb in ["release", "extend"] {
        sandbox
            .tenure()
            .args([verb, "B", "--token", &old])
            .run()
            .is_not_held("*");
    }
    assert!(sandbox.is_busy("B"));
    holder.end().exits(0).says_nothing();
}

#[test]
fn extend_keeps_a_lease_beyond_its_time_to_live() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "1s"]);
    sandbox
        .tenure()
        .args(["extend", "--token", &token, "--ttl", "1h"])
        .run()
        .exits(0);
    throughout(ms(1500), "the lease is held", || sandbox.is_held(&token));
    // The new time is counted from now, and so may be shorter than what was left.
    sandbox
        .tenure()
        .args(["extend", "--token", &token, "--ttl", "200ms"])
        .run()
        .exits(0);
    until(SOON, "the lease is over", || !sandbox.is_held(&token));
}

#[test]
fn extend_without_a_time_to_live_gives_the_lease_its_own_again() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "2s"]);
    let start = Instant::now();
    while start.elapsed() < ms(2400) {
        let extended = sandbox
            .tenure()
            .args(["extend", "A"])
            .env("TENURE_TOKEN", &token)
            .run();
        extended.exits(0).prints_nothing().says_nothing();
    }
    until(SOON, "the lease is over", || !sandbox.is_busy("A"));
    assert!(
        start.elapsed() >= ms(4000),
        "2 s after the last extension, not {:?}",
        start.elapsed()
    );
}

#[test]
fn the_time_to_live_of_extend_becomes_that_of_the_lease() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A", "--ttl", "1h"]);
    sandbox
        .tenure()
        .args(["extend", "--token", &token, "--ttl", "30m"])
        .run()
        .exits(0);
    sandbox
        .tenure()
        .args(["extend", "--token", &token, "--ttl", "300ms"])
        .run()
        .exits(0);
    until(SOON, "the lease is over", || !sandbox.is_busy("A"));
}

#[test]
fn every_grant_has_a_larger_fence_than_any_before() {
    let sandbox = Sandbox::new();
    let mut fences = vec![];
    fences.push(sandbox.fence("A"));
    fences.push(sandbox.fence("A"));
    fences.push(sandbox.fence("B"));
    sandbox.acquire(["A", "--ttl", "1ms"]);
    until(SOON, "the lease is over", || !sandbox.is_busy("A"));
    fences.push(sandbox.fence("A"));

    let call = sandbox.tenure().args(["run", "A", "--", "sh", "-c"]);
    let crashed = call
        .arg("echo $TENURE_FENCE; echo ready; read x; exit 0")
        .start_ready();
    fences.push(
        crashed
            .stdout()
            .lines()
            .next()
            .expect("a line")
            .parse()
            .expect("a number"),
    );
    crashed.kill();
    fences.push(sandbox.fence("A"));

    sandbox.holder("A").kill();
    sandbox
        .tenure()
        .args(["release", "--force", "B"])
        .run()
        .exits(76);
    fences.push(sandbox.fence("B"));
    let acquired = sandbox.tenure().args(["acquire", "C", "--json"]).run();
    fences.push(
        acquired.exits(0).json()[0]["fence"]
            .as_i64()
            .expect("a number"),
    );
    fences.push(sandbox.fence("D"));
    assert!(
        fences.windows(2).all(|pair| pair[0] < pair[1]),
        "{fences:?}"
    );
}

#[test]
fn fences_grow_in_the_order_of_entry_over_many_processes() {
    let sandbox = Sandbox::new();
    for_each(0..40, |_| {
        let call = sandbox
            .tenure()
            .args(["run", "--wait", "60s", "A", "--", "sh", "-c"]);
        call.arg("echo $TENURE_FENCE >> fences")
            .run()
            .exits(0)
            .says_nothing();
    });
    let text = fs::read_to_string(sandbox.path("fences")).expect("they ran");
    let fences: Vec<u64> = text
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    assert_eq!(fences.len(), 40);
    assert!(
        fences.windows(2).all(|pair| pair[0] < pair[1]),
        "{fences:?}"
    );
}

#[test]
fn a_new_store_starts_above_every_fence_of_a_deleted_one() {
    let sandbox = Sandbox::new();
    let before = sandbox.fence("A");
    for name in ["l.db", "l.db-wal", "l.db-shm", "l.db-guard"] {
        fs::remove_file(sandbox.path(name)).expect("it was made");
    }
    assert!(sandbox.fence("A") > before);
}

#[test]
fn acquire_extend_and_release_tell_what_they_did_in_json() {
    let sandbox = Sandbox::new();
    let outcome = sandbox
        .tenure()
        .args(["acquire", "B", "A", "--json", "--ttl", "90s"])
        .run();
    let objects = outcome.exits(0).says_nothing().json();
    assert_eq!(objects.len(), 1, "{outcome:#?}");
    let token = objects[0]["token"].as_str().expect("a token");
    assert_eq!(token.len(), 32);
    assert!(objects[0]["fence"].as_u64().expect("a number") > 0);
    assert!(sandbox.is_held(token));
    let extended = sandbox
        .tenure()
        .args(["extend", "--json", "--token", token])
        .run();
    assert_eq!(
        extended.exits(0).says_nothing().json().len(),
        1,
        "{extended:#?}"
    );
    assert!(!extended.stdout.contains(token), "{extended:#?}");
    let released = sandbox
        .tenure()
        .args(["release", "--json", "--token", token])
        .run();
    assert_eq!(
        released.exits(0).says_nothing().json().len(),
        1,
        "{released:#?}"
    );
}

#[test]
fn nobody_is_shown_the_token_of_another() {
    let sandbox = Sandbox::new();
    let bare = sandbox.acquire(["A"]);
    let call = sandbox.tenure().args(["run", "B", "--", "sh", "-c"]);
    let holder = call
        .arg("echo $TENURE_TOKEN; echo ready; read x; exit 0")
        .start_ready();
    let guarded = holder.stdout().lines().next().expect("a line").to_owned();
    assert_eq!(guarded.len(), 32);

    let calls: &[&[&str]] = &[
        &["status"],
        &["status", "--json"],
        &["status", "-v"],
        &["status", "--token", &bare],
        &["status", "--token", &bare, "--json"],
        &["acquire", "A"],
        &["acquire", "B", "-v"],
        &["acquire", "A", "--json"],
        &["acquire", "B", "--json"],
        &["release", "A", "--token", WRONG],
        &["release", "B", "--token", &guarded],
        &["run", "A", "-v", "--", "true"],
        &["release", "--force", "--if-fence", "1", "A", "-v"],
    ];
    for words in calls {
        let outcome = sandbox.tenure().args(*words).run();
        for token in [&bare, &guarded] {
            assert!(!outcome.stdout.contains(token.as_str()), "{outcome:#?}");
            assert!(!outcome.stderr.contains(token.as_str()), "{outcome:#?}");
        }
    }
    holder.end().exits(0);
}

#[test]
fn the_token_of_a_run_extends_it_and_does_not_release_it() {
    let sandbox = Sandbox::new();
    let script = "tenure status --token $TENURE_TOKEN > /dev/null && tenure extend --ttl 1h";
    sandbox
        .tenure()
        .args(["run", "A", "--", "sh", "-c", script])
        .run()
        .exits(0)
        .says_nothing();

    let call = sandbox.tenure().args(["run", "A", "--", "sh", "-c"]);
    let holder = call
        .arg("echo $TENURE_TOKEN; echo ready; read x; exit 0")
        .start_ready();
    let token = holder.stdout().lines().next().expect("a line").to_owned();
    for words in [vec!["A", "--token", &token], vec!["--token", &token]] {
        sandbox
            .tenure()
            .arg("release")
            .args(words)
            .run()
            .is_usage_error("*");
    }
    assert!(sandbox.is_busy("A"), "A stays held");
    holder.end().exits(0).says_nothing();
    sandbox
        .tenure()
        .args(["release", "A", "--token", &token])
        .run()
        .is_not_held("*");
}

#[test]
fn a_token_is_read_from_standard_input() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    let given = |verb: &str, text: &str| {
        let file = sandbox.path("token");
        fs::write(&file, text).expect("a fresh directory");
        let file = fs::File::open(&file).expect("it was written");
        sandbox
            .tenure()
            .args([verb, "--token", "-"])
            .stdin(file)
            .run()
    };
    // As `acquire` printed it, with no line's end, with that of another system, and with more after it.
    for text in [
        format!("{token}\n"),
        token.clone(),
        format!("{token}\r\n"),
        format!("{token}\nmore\n"),
    ] {
        given("status", &text).exits(0).says_nothing();
        given("extend", &text).exits(0).says_nothing();
    }
    for (text, why) in [
        ("", "its first line is empty"),
        ("\n", "its first line is empty"),
        ("c0ffee\n", "a token has 32 hexadecimal digits"),
        (&token[1..], "a token has 32 hexadecimal digits"),
        (&"0".repeat(1_000_000), "a token has 32 hexadecimal digits"),
    ] {
        for verb in ["status", "extend", "release"] {
            given(verb, text).is_usage_error(&format!("no token on standard input: {why}"));
        }
    }
    let closed = "exec tenure release --token - <&-";
    sandbox
        .sh(closed)
        .run()
        .is_usage_error("no token on standard input: its first line is empty");
    given("release", &token).exits(0).says_nothing();
    given("release", &token).is_not_held("the lease of this token *");
}

#[test]
fn a_token_that_is_all_but_right_is_not_repeated() {
    let sandbox = Sandbox::new();
    let token = sandbox.acquire(["A"]);
    for wrong in [&token[1..], &format!("{token} "), &format!("{token}0")] {
        for verb in ["status", "extend", "release"] {
            let call = sandbox.tenure().args([verb, "--token", wrong]);
            let outcome = call.run();
            outcome.is_usage_error(
                "invalid value for '--token <TOKEN>': a token has 32 hexadecimal digits *",
            );
            assert!(!outcome.stderr.contains(&token[1..]), "{outcome:#?}");
        }
        let outcome = sandbox
            .tenure()
            .arg("release")
            .env("TENURE_TOKEN", wrong)
            .run();
        outcome.exits(64);
        assert!(!outcome.stderr.contains(&token[1..]), "{outcome:#?}");
    }
}

/// The guard file, in which the first writer of a boot writes a number down, is made by those who acquire.
#[test]
fn any_verb_may_be_the_first_after_a_restart() {
    let sandbox = Sandbox::new();
    let restart = || {
        let another = "update store set boot_id = 'another'; update ticket set boot_id = 'another'";
        sandbox.connect().execute_batch(another).expect("our own");
    };
    for words in [
        &["extend"][..],
        &["release"],
        &["release", "--force", "A"],
        &["status", "A"],
        &["run", "B", "--", "true"],
    ] {
        let token = sandbox.acquire(["A"]);
        let last = sandbox.fence("B");
        restart();
        let call = sandbox.tenure().args(words).env("TENURE_TOKEN", &token);
        call.run().exits(0).says_nothing();
        assert!(sandbox.fence("B") > last, "{words:?}");
        sandbox
            .tenure()
            .args(["release", "--force", "--now", "A"])
            .run();
    }
}
