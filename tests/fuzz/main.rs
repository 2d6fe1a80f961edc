//! Whatever is typed, drawn at random: `PROPTEST_CASES` says how often each claim is tried. `claims` has them.

mod claims;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

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

/// Numbers, units and what looks like them.
const TIMES: &str = r"[0-9]{0,22}\.?[0-9]{0,4} ?(ns|us|ms|s|m|h|d|w|y|min|days|months)?( ?[0-9]{0,20}[a-z]{0,3})?|\PC{0,8}";

proptest! {
    #[test]
    fn a_command_line_is_taken_or_refused(words in vec(word(), 0..12)) {
        claims::of_command_line(words);
    }

    #[test]
    fn a_duration_is_taken_or_refused(text in TIMES) {
        claims::of_duration(&text);
    }

    #[test]
    fn a_name_is_taken_as_it_is_or_refused(text in ".{0,300}") {
        claims::of_name(&text);
    }

    #[test]
    fn a_token_is_taken_as_it_is_or_refused(text in "[0-9a-fA-F]{30,34}|.{0,40}") {
        claims::of_token(&text);
    }

    #[test]
    fn a_signal_is_one_that_the_system_has(text in "(SIG|sig)?[A-Z0-9a-z+-]{0,8}|.{0,6}") {
        claims::of_signal(&text);
    }

    #[test]
    fn nothing_that_is_printed_commands_a_terminal(text in any::<String>()) {
        claims::of_print(&text);
    }

    #[test]
    fn json_says_what_it_was_told_and_commands_no_terminal(text in any::<String>()) {
        claims::of_json(&text);
    }
}
