//! What is typed: command lines, durations, names, tokens and signals are taken or refused, and what is printed commands no
//! terminal.

#![no_main]

#[path = "../../tests/fuzz/claims.rs"]
mod claims;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // As the kernel hands them over.
    let words = data.split(|byte| *byte == 0);
    claims::of_command_line(words.map(|word| OsString::from_vec(word.to_vec())));
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    claims::of_duration(text);
    claims::of_name(text);
    claims::of_token(text);
    claims::of_signal(text);
    claims::of_print(text);
    claims::of_json(text);
});
