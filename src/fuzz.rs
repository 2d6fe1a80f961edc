//! Whatever is typed or stored: parsers that take it or refuse it, and printers that let nothing through. `PROPTEST_CASES` says how
//! often each is tried.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::Parser;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use crate::cli::Cli;
use crate::duration::{parse, parse_patience, parse_ttl, show};
use crate::lock::{LockName, Token};
use crate::output::{json_line, printable};
use crate::signals::Signal;

/// Words that mean something, so that more than the first of them is looked at.
const KNOWN: [&str; 48] = [
    "acquire",
    "release",
    "extend",
    "run",
    "status",
    "log",
    "help",
    "__names",
    "--",
    "-",
    "-q",
    "-v",
    "-n",
    "-w",
    "-s",
    "-x",
    "-e",
    "-E",
    "-k",
    "-f",
    "-h",
    "-V",
    "--db",
    "--db=",
    "--ttl",
    "--ttl=1",
    "--wait",
    "--wait=forever",
    "--slots",
    "--slots=0",
    "--at-least",
    "--note",
    "--max-time",
    "--on-lost",
    "--on-lost=9",
    "--fd",
    "--shell",
    "--json",
    "--token",
    "--force",
    "--now",
    "--if-fence",
    "--since",
    "--timeline",
    "--watch",
    "A",
    "1",
    "-1",
];

fn word() -> impl Strategy<Value = OsString> {
    prop_oneof![
        6 => select(&KNOWN[..]).prop_map(OsString::from),
        1 => ".{0,12}".prop_map(OsString::from),
        1 => vec(any::<u8>(), 0..12).prop_map(OsString::from_vec),
        1 => "-{1,2}[a-z=-]{0,10}".prop_map(OsString::from),
    ]
}

/// Nothing that a terminal obeys.
fn is_clean(text: &str) -> bool {
    let turns_around = |c| matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !text.chars().any(|c| c.is_control() || turns_around(c))
}

/// Numbers, units and what looks like them.
const TIMES: &str = r"[0-9]{0,22}\.?[0-9]{0,4} ?(ns|us|ms|s|m|h|d|w|y|min|days|months)?( ?[0-9]{0,20}[a-z]{0,3})?|\PC{0,8}";

proptest! {
    #[test]
    fn a_command_line_is_taken_or_refused(words in vec(word(), 0..12)) {
        let words = std::iter::once(OsString::from("tenure")).chain(words);
        if let Err(error) = Cli::try_parse_from(words) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn a_duration_is_taken_or_refused(text in TIMES) {
        let parsed = parse(&text);
        let _ = parse_patience(&text);
        if let Ok(ttl) = parse_ttl(&text) {
            prop_assert!(ttl.as_millis() > 0 && i64::try_from(ttl.as_millis()).is_ok());
        }
        if let Ok(duration) = parsed {
            // What is shown can be typed again, and leaves out no more than what it does not show.
            let shown = show(duration);
            let again = parse(&shown);
            prop_assert!(again.as_ref().is_ok_and(|again| *again <= duration), "{shown}");
        }
    }

    #[test]
    fn a_name_is_taken_as_it_is_or_refused(text in ".{0,300}") {
        if let Ok(name) = text.parse::<LockName>() {
            prop_assert_eq!(name.as_str(), &text);
            prop_assert!((1..=255).contains(&text.len()));
        }
    }

    #[test]
    fn a_token_is_taken_as_it_is_or_refused(text in "[0-9a-fA-F]{30,34}|.{0,40}") {
        if let Ok(token) = text.parse::<Token>() {
            prop_assert_eq!(token.to_string(), text.to_lowercase());
        }
    }

    #[test]
    fn a_signal_is_one_that_the_system_has(text in "(SIG|sig)?[A-Z0-9a-z+-]{0,8}|.{0,6}") {
        if let Ok(signal) = text.parse::<Signal>() {
            prop_assert!((1..=64).contains(&signal.number()));
        }
    }

    #[test]
    fn nothing_that_is_printed_commands_a_terminal(text in any::<String>()) {
        prop_assert!(is_clean(&printable(&text)));
    }

    #[test]
    fn json_says_what_it_was_told_and_commands_no_terminal(text in any::<String>()) {
        let value = serde_json::json!({ "text": text });
        let line = json_line(&value);
        prop_assert!(is_clean(line.trim_end_matches('\n')));
        let again: Value = serde_json::from_str(&line).expect("it is JSON");
        prop_assert_eq!(again, value);
    }
}
