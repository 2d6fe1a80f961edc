//! A real pseudo-terminal: what somebody at the keyboard types, and what they see.

#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use crate::support::{Call, Running, SOON, ms};

pub const CTRL_C: &str = "\x03";
pub const CTRL_Z: &str = "\x1a";
pub const CTRL_BACKSLASH: &str = "\x1c";

/// What [`Terminal::shell`] says when it wants a command.
pub const PROMPT: &str = "prompt> ";

/// The keyboard and the screen. Dropping it hangs up.
pub struct Terminal {
    keyboard: File,
    line: File,
    screen: String,
    /// Up to here the screen has been looked at.
    seen: usize,
}

impl Terminal {
    pub fn new() -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags).expect("a pseudo-terminal");
        grantpt(&controller).expect("it is ours");
        unlockpt(&controller).expect("it is ours");
        let name = ptsname(&controller, Vec::new()).expect("it has a name");
        let line = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(std::ffi::OsStr::from_bytes(name.as_bytes()))
            .expect("its other end");
        // What is typed is not shown, so that all that is shown was printed by a program.
        let mut modes = tcgetattr(&line).expect("it is a terminal");
        modes.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&line, OptionalActions::Now, &modes).expect("it is a terminal");
        let flags = fcntl_getfl(&controller).expect("it is open");
        fcntl_setfl(&controller, flags | OFlags::NONBLOCK).expect("it is open");
        let keyboard = File::from(controller);
        let terminal = Self {
            keyboard,
            line,
            screen: String::new(),
            seen: 0,
        };
        terminal.resize(80);
        terminal
    }

    /// Starts the command as the leader of a new session on this terminal, with nothing ignored.
    #[track_caller]
    pub fn start<'a>(&self, call: Call<'a>) -> Running<'a> {
        let line = || self.line.try_clone().expect("a descriptor");
        let (stdin, stdout, stderr) = (line(), line(), line());
        let lead = || {
            setsid()?;
            // SAFETY: the descriptor is this process's stdin, which stays open through the call.
            ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
            Ok(())
        };
        let call = call.via(["env", "--default-signal"]).with(move |command| {
            command.stdin(stdin).stdout(stdout).stderr(stderr);
            // SAFETY: between fork and exec it makes two system calls, and nothing else.
            unsafe { command.pre_exec(lead) };
        });
        call.start()
    }

    /// An interactive bash on this terminal, when it has said [`PROMPT`].
    #[track_caller]
    pub fn shell<'a>(&mut self, call: Call<'a>) -> Running<'a> {
        let call = call.args(["--norc", "--noprofile", "--noediting", "-i"]);
        let running = self.start(call.env("PS1", PROMPT).env("TERM", "dumb"));
        self.sees(PROMPT);
        running
    }

    #[track_caller]
    pub fn types(&mut self, text: &str) {
        self.keyboard
            .write_all(text.as_bytes())
            .expect("the terminal takes what is typed");
    }

    /// Waits until the text is on the screen, behind what was seen before.
    #[track_caller]
    pub fn sees(&mut self, text: &str) {
        let start = Instant::now();
        let at = loop {
            self.look();
            if let Some(at) = self.screen[self.seen..].find(text) {
                break at;
            }
            let unseen = &self.screen[self.seen..];
            assert!(
                start.elapsed() < SOON,
                "no {text:?} in {unseen:?} of {:?}",
                self.screen
            );
            std::thread::sleep(ms(5));
        };
        self.seen += at + text.len();
    }

    /// All that is or was on the screen, with bare line feeds.
    pub fn screen(&mut self) -> String {
        self.look();
        self.screen.replace("\r\n", "\n")
    }

    /// Another width, of which the terminal tells its foreground.
    pub fn resize(&self, columns: u16) {
        let size = Winsize {
            ws_row: 24,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.keyboard, size).expect("a terminal has a size");
    }

    /// Reads what was printed since the last time.
    fn look(&mut self) {
        let mut bytes = [0; 4096];
        loop {
            match self.keyboard.read(&mut bytes) {
                Ok(count) if count > 0 => {
                    self.screen += &String::from_utf8_lossy(&bytes[..count]);
                }
                Ok(_) => return,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // Nobody has the other end open.
                Err(error) if error.raw_os_error() == Some(libc::EIO) => return,
                Err(error) => panic!("the screen cannot be read: {error}"),
            }
        }
    }
}
