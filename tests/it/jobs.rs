//! The commands that tests of `run` give it, and how a caller without a terminal starts it.

use std::fs;

use crate::support::{Call, SOON, Sandbox, until};

/// A job that says `ready`, then the name of each signal in its arguments whenever it gets it, and
/// ends with 7 when its stdin has something to read, or ends.
pub const NOTING: &str = r#"
    for my $name (@ARGV) { $SIG{$name} = sub { syswrite STDOUT, "$name\n" } }
    syswrite STDOUT, "ready\n";
    until (defined sysread STDIN, my $text, 1) {}
    exit 7;
"#;

/// As [`NOTING`], twice: a parent and its child, each with its own word before the signal's name.
pub const BOTH_NOTING: &str = r#"
    pipe my $read, my $write;
    my $child = fork // die;
    my $who = $child ? "parent" : "child";
    for my $name (@ARGV) { $SIG{$name} = sub { syswrite STDOUT, "$who $name\n" } }
    if ($child) { close $write; sysread $read, my $text, 1; syswrite STDOUT, "ready\n" }
    else { syswrite $write, "."; close $write }
    until (defined sysread STDIN, my $text, 1) {}
    if ($child) { 1 while wait > 0 && $!{EINTR} }
    exit 7;
"#;

impl Call<'_> {
    /// Started as cron or a CI service would: without a terminal, every signal as a fresh process has it.
    pub fn detached(self) -> Self {
        self.via(["setsid", "env", "--default-signal"])
    }

    /// The job in perl, which can do with signals what shells cannot.
    pub fn perl<'w>(self, program: &str, words: impl IntoIterator<Item = &'w str>) -> Self {
        self.args(["--", "perl", "-e", program]).args(words)
    }
}

/// `tenure run A`, without a terminal.
pub fn run_a(sandbox: &Sandbox) -> Call<'_> {
    sandbox.tenure().args(["run", "A"]).detached()
}

/// How often a line stands in a text.
pub fn count(text: &str, line: &str) -> usize {
    text.lines().filter(|printed| *printed == line).count()
}

/// The one child of a process.
#[track_caller]
pub fn child_of(pid: i32) -> i32 {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let mut children = String::new();
    until(SOON, "the process has one child", || {
        children = fs::read_to_string(&path).unwrap();
        children.split_whitespace().count() == 1
    });
    children.trim().parse().unwrap()
}
