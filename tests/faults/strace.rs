//! What strace(1) writes: the system calls of a command and of its threads, up to the exec of whatever it starts.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::support::Call;

/// One system call.
#[derive(Debug)]
pub struct SystemCall {
    pub pid: u32,
    pub name: String,
    /// As they are written: `3</x/y>, "\x61", 1`.
    pub arguments: String,
    pub result: String,
}

impl SystemCall {
    pub fn has_failed(&self) -> bool {
        self.result.starts_with('-')
    }

    /// The arguments, in which no text has a comma: strings are in hexadecimal.
    pub fn argument(&self, number: usize) -> &str {
        self.arguments.split(", ").nth(number).unwrap_or("")
    }

    pub fn number(&self, argument: usize) -> u64 {
        let text = self.argument(argument);
        text.parse()
            .unwrap_or_else(|_| panic!("{text:?} in {self:?}"))
    }

    /// The path of a descriptor, as in `3</x/y>`.
    pub fn path_of(descriptor: &str) -> String {
        let path = descriptor.split_once('<').map_or("", |(_, rest)| rest);
        let path = path.split_once('>').map_or(path, |(path, _)| path);
        String::from_utf8(unquoted(path)).expect("our own paths are text")
    }

    pub fn path(&self, argument: usize) -> String {
        let text = self.argument(argument).trim_matches('"');
        String::from_utf8(unquoted(text)).expect("our own paths are text")
    }

    pub fn bytes(&self, argument: usize) -> Vec<u8> {
        unquoted(self.argument(argument).trim_matches('"'))
    }
}

/// The bytes of `\x61\x62`; whatever is not in hexadecimal stands for itself.
fn unquoted(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4);
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        if let [b'\\', b'x', high, low, tail @ ..] = rest {
            let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hexadecimal digit");
            bytes.push(u8::try_from(digit(*high) * 16 + digit(*low)).expect("two digits"));
            rest = tail;
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    bytes
}

/// The system calls in a file that strace has written, in the order of their ends.
pub fn calls_in(file: &Path) -> Vec<SystemCall> {
    let text = fs::read_to_string(file);
    read(&text.unwrap_or_else(|error| panic!("no trace ({error}); is strace installed?")))
}

/// The command under strace, which follows its threads, and its children as far as their exec.
pub fn under<'a>(call: Call<'a>, file: &Path, options: &[&str]) -> Call<'a> {
    let file = file.to_str().expect("our own paths are text");
    let start = ["strace", "-f", "-b", "execve", "-o", file];
    call.via(start.iter().chain(options))
}

fn read(text: &str) -> Vec<SystemCall> {
    let mut begun: HashMap<u32, String> = HashMap::new();
    let mut calls = Vec::new();
    for line in text.lines() {
        let Some((pid, rest)) = line.split_once(' ') else {
            continue;
        };
        let (Ok(pid), rest) = (pid.parse(), rest.trim_start()) else {
            continue;
        };
        if let Some(beginning) = rest.strip_suffix(" <unfinished ...>") {
            begun.insert(pid, beginning.to_owned());
            continue;
        }
        let whole = match rest.strip_prefix("<... ") {
            Some(end) => {
                let end = end.split_once(" resumed>").map_or("", |(_, end)| end);
                begun.remove(&pid).unwrap_or_default() + end
            }
            None => rest.to_owned(),
        };
        let Some(((name, arguments), result)) = whole
            .rsplit_once(" = ")
            .and_then(|(call, result)| Some((call.split_once('(')?, result)))
        else {
            continue;
        };
        let arguments = arguments.trim_end();
        calls.push(SystemCall {
            pid,
            name: name.to_owned(),
            arguments: arguments.strip_suffix(')').unwrap_or(arguments).to_owned(),
            result: result.to_owned(),
        });
    }
    calls
}
