//! What is claimed of whatever is typed: parsers take it or refuse it, and printers let nothing through that a terminal obeys. For
//! inputs that are drawn by `fuzz`, and for those that `fuzz/` finds. A claim that does not hold panics.

use std::ffi::OsString;

use clap::Parser;
use serde_json::Value;

use tenure::cli::Cli;
use tenure::duration::{parse, parse_patience, parse_ttl, show};
use tenure::lock::{LockName, Token};
use tenure::output::{json_line, printable};
use tenure::signals::Signal;

/// Nothing that a terminal obeys.
fn is_clean(text: &str) -> bool {
    let turns_around = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|c| c.is_control() || turns_around(c))
}

pub fn of_command_line(words: impl IntoIterator<Item = OsString>) {
    let words = std::iter::once(OsString::from("tenure")).chain(words);
    if let Err(error) = Cli::try_parse_from(words) {
        assert!(!error.to_string().is_empty());
    }
}

pub fn of_duration(text: &str) {
    let _ = parse_patience(text);
    if let Ok(ttl) = parse_ttl(text) {
        assert!(ttl.as_millis() > 0 && i64::try_from(ttl.as_millis()).is_ok());
    }
    if let Ok(duration) = parse(text) {
        // What is shown can be typed again, and leaves out no more than what it does not show.
        let shown = show(duration);
        let again = parse(&shown);
        assert!(again.is_ok_and(|again| again <= duration), "{shown}");
    }
}

pub fn of_name(text: &str) {
    if let Ok(name) = text.parse::<LockName>() {
        assert_eq!(name.as_str(), text);
        assert!((1..=255).contains(&text.len()));
    }
}

pub fn of_token(text: &str) {
    if let Ok(token) = text.parse::<Token>() {
        assert_eq!(token.to_string(), text.to_lowercase());
    }
}

pub fn of_signal(text: &str) {
    if let Ok(signal) = text.parse::<Signal>() {
        assert!((1..=64).contains(&signal.number()));
    }
}

pub fn of_print(text: &str) {
    assert!(is_clean(&printable(text)));
}

/// JSON says what it was told, too.
pub fn of_json(text: &str) {
    let value = serde_json::json!({ "text": text });
    let line = json_line(&value);
    assert!(is_clean(line.trim_end_matches('\n')));
    let again: Value = serde_json::from_str(&line).expect("it is JSON");
    assert_eq!(again, value);
}
