//! A standard error that takes nothing more, as when the pager at its other end is not scrolled: no job goes on by it, no lock is
//! kept, and no signal is without effect.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};

use crate::support::{Call, SOON, Sandbox, Signal, ms, throughout, until};

/// A pipe that is full, and its other end, where nobody reads.
fn full_pipe() -> (Stdio, OwnedFd) {
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let mut writer = File::from(writer);
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe can be asked not to block");
    for piece in [&[b'.'; 4096][..], b"."] {
        while writer.write(piece).is_ok() {}
    }
    rustix::io::ioctl_fionbio(&writer, false).expect("as before");
    (writer.into(), reader)
}

fn deaf(call: Call<'_>, stderr: Stdio) -> Call<'_> {
    call.with(move |command| {
        command.stderr(stderr);
    })
}

#[test]
fn a_command_that_takes_too_long_is_stopped_though_nobody_can_be_told() {
    let sandbox = Sandbox::new();
    let (stderr, _reader) = full_pipe();
    let words = ["run", "-v", "--max-time", "0.3s", "A", "--", "sleep", "60"];
    let outcome = deaf(sandbox.tenure().args(words), stderr).run();
    outcome.exits(124).took(ms(300)..ms(15_000));
    assert!(!sandbox.is_busy("A"));
}

#[test]
fn a_command_that_loses_its_lock_is_stopped_though_nobody_can_be_told() {
    for force in [&["--force"][..], &["--force", "--now"]] {
        let sandbox = Sandbox::new();
        let (stderr, _reader) = full_pipe();
        let words = ["run", "A", "--", "sh", "-c", "echo $$; exec sleep 60"];
        let holder = deaf(sandbox.tenure().args(words), stderr).start();
        until(SOON, "the command runs", || holder.stdout().ends_with('\n'));
        let release = sandbox.tenure().arg("release").args(force).arg("A").run();
        release.exits(0);
        holder.wait().exits(76);
    }
    let sandbox = Sandbox::new();
    let (stderr, _reader) = full_pipe();
    let words = ["run", "A", "--", "sh", "-c", "echo ready; exec sleep 60"];
    let holder = deaf(sandbox.tenure().args(words), stderr).start();
    until(SOON, "the command runs", || holder.stdout() == "ready\n");
    for side in ["", "-wal", "-shm"] {
        fs::remove_file(sandbox.path(format!("l.db{side}"))).expect("it is there");
    }
    holder.wait().exits(76);
}

#[test]
fn what_cannot_be_started_keeps_no_lock_though_nobody_can_be_told() {
    let sandbox = Sandbox::new();
    let (stderr, reader) = full_pipe();
    let words = ["run", "A", "--", "/nonexistent"];
    let holder = deaf(sandbox.tenure().args(words), stderr).start();
    // Without asking for the lock: it might be refused to the one who is to have it first.
    until(SOON, "the lock was had and given back", || {
        let log = sandbox.tenure().args(["log", "A"]).run();
        log.stdout.contains(" released ") && sandbox.status().is_empty()
    });
    drop(reader);
    holder.wait().exits(127);
}

#[test]
fn a_message_waits_for_its_reader() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let (stderr, reader) = full_pipe();
    let words = ["run", "A", "--", "true"];
    let mut refused = deaf(sandbox.tenure().args(words), stderr).start();
    throughout(ms(300), "it waits to be heard", || !refused.is_over());
    let mut text = String::new();
    std::io::Read::read_to_string(&mut File::from(reader), &mut text).expect("it is text");
    assert!(text.contains("..tenure: A is held by "), "{text:?}");
    refused.wait().exits(75);
}

#[test]
fn a_signal_ends_whoever_waits_to_be_heard() {
    let sandbox = Sandbox::new();
    let _holder = sandbox.holder("A");
    let calls: [&[&str]; 4] = [
        &["run", "A", "--", "true"],
        &["run", "-w", "0.1s", "A", "--", "true"],
        &["acquire", "A"],
        &["acquire", "-w", "0.1s", "A"],
    ];
    for words in calls {
        for signal in [Signal::TERM, Signal::INT, Signal::HUP] {
            let (stderr, _reader) = full_pipe();
            let call = sandbox
                .tenure()
                .args(words)
                .via(["env", "--default-signal"]);
            let mut refused = deaf(call, stderr).start();
            // Whether it has come to its message or not yet.
            throughout(ms(250), "it waits to be heard", || !refused.is_over());
            refused.signal(signal);
            let outcome = refused.wait();
            let is_ended = outcome.code == Some(75) || outcome.signal == Some(signal.as_raw());
            assert!(is_ended && outcome.took < SOON, "{outcome:?}");
        }
    }
}

#[test]
fn a_verbose_run_starts_its_command_though_nobody_can_be_told() {
    let sandbox = Sandbox::new();
    let (stderr, _reader) = full_pipe();
    let words = ["run", "-v", "A", "--", "sh", "-c", "exit 7"];
    deaf(sandbox.tenure().args(words), stderr).run().exits(7);
    assert!(!sandbox.is_busy("A"));
}
