//! What is typed: command lines, durations, names, tokens and signals are taken or refused, and what is printed commands no
//! terminal.

#![no_main]
#![allow(dead_code, unused_imports, reason = "the program uses the rest")]

#[path = "../../src/chance.rs"]
mod chance;
#[path = "../../src/child.rs"]
mod child;
#[path = "../../src/cli.rs"]
mod cli;
#[path = "../../src/clock.rs"]
mod clock;
#[path = "../../src/cmd/mod.rs"]
mod cmd;
#[path = "../../src/duration.rs"]
mod duration;
#[path = "../../src/exit.rs"]
mod exit;
#[path = "../../src/guard.rs"]
mod guard;
#[path = "../../src/history.rs"]
mod history;
#[path = "../../src/holder.rs"]
mod holder;
#[path = "../../src/line.rs"]
mod line;
#[path = "../../src/lock.rs"]
mod lock;
#[path = "../../src/obstacle.rs"]
mod obstacle;
#[path = "../../src/output/mod.rs"]
mod output;
#[path = "../../src/signals.rs"]
mod signals;
#[path = "../../src/standing.rs"]
mod standing;
#[path = "../../src/store/mod.rs"]
mod store;
#[path = "../../src/timeline.rs"]
mod timeline;
#[path = "../../src/wait.rs"]
mod wait;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Parser;
use libfuzzer_sys::fuzz_target;

/// Nothing that a terminal obeys.
fn is_clean(text: &str) -> bool {
    let turns_around = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|c| c.is_control() || turns_around(c))
}

fuzz_target!(|data: &[u8]| {
    // As the kernel hands them over.
    let words = data.split(|byte| *byte == 0);
    let words = words.map(|word| OsString::from_vec(word.to_vec()));
    let words = std::iter::once(OsString::from("tenure")).chain(words);
    match cli::Cli::try_parse_from(words) {
        Ok(_) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Ok(ttl) = duration::parse_ttl(text) {
        assert!(ttl.as_millis() > 0 && i64::try_from(ttl.as_millis()).is_ok());
    }
    if let Ok(parsed) = duration::parse(text) {
        let shown = duration::show(parsed);
        assert!(duration::parse(&shown).is_ok_and(|again| again <= parsed), "{shown}");
    }
    let _ = duration::parse_patience(text);
    if let Ok(name) = text.parse::<lock::LockName>() {
        assert_eq!(name.as_str(), text);
    }
    if let Ok(token) = text.parse::<lock::Token>() {
        assert_eq!(token.to_string(), text.to_lowercase());
    }
    if let Ok(signal) = text.parse::<signals::Signal>() {
        assert!((1..=64).contains(&signal.number()));
    }
    assert!(is_clean(&output::printable(text)));
    let line = output::json_line(&serde_json::json!({ "text": text }));
    assert!(is_clean(line.trim_end_matches('\n')));
    let again: serde_json::Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(again["text"], text);
});
