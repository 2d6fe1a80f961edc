//! A real pseudo-terminal: what somebody at the keyboard types, what programs print there, and what one sees of it.

#![allow(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Instant;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{ioctl_tiocsctty, setsid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OptionalActions, Winsize, tcgetattr, tcsetattr, tcsetwinsize};

use unicode_width::UnicodeWidthChar;

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
    /// All that was printed.
    screen: String,
    /// Up to here it has been looked at.
    seen: usize,
    picture: Picture,
    /// Up to here it is in the picture.
    drawn: usize,
    /// Bytes of a character that has not come whole.
    rest: Vec<u8>,
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
        let mut terminal = Self {
            keyboard,
            line,
            screen: String::new(),
            seen: 0,
            picture: Picture::default(),
            drawn: 0,
            rest: Vec::new(),
        };
        terminal.resize(80);
        terminal
    }

    /// The device that programs open.
    pub fn path(&self) -> PathBuf {
        let number = self.line.as_raw_fd();
        fs::read_link(format!("/proc/self/fd/{number}")).expect("it is open")
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

    /// What one sees now: lines without the blanks at their ends.
    pub fn picture(&mut self) -> String {
        self.draw();
        self.picture.text()
    }

    /// Draws what was printed since the last time. Only where the picture is asked for: other programs use more of a
    /// terminal than it knows.
    fn draw(&mut self) {
        self.look();
        self.picture.print(&self.screen[self.drawn..]);
        self.drawn = self.screen.len();
    }

    /// Waits until one sees what `is_it` looks for, and returns all that one sees then.
    #[track_caller]
    pub fn shows(&mut self, what: &str, mut is_it: impl FnMut(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let picture = self.picture();
            if is_it(&picture) {
                return picture;
            }
            assert!(
                start.elapsed() < SOON,
                "{what} is not to be seen:\n{picture}\nof {:?}",
                self.screen
            );
            std::thread::sleep(ms(5));
        }
    }

    /// Another width, of which the terminal tells its foreground.
    pub fn resize(&mut self, columns: u16) {
        self.draw();
        self.picture.columns = columns.into();
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
                    self.rest.extend(&bytes[..count]);
                    let whole = match std::str::from_utf8(&self.rest) {
                        Err(error) if error.error_len().is_none() => error.valid_up_to(),
                        _ => self.rest.len(),
                    };
                    let text: Vec<u8> = self.rest.drain(..whole).collect();
                    let text = String::from_utf8_lossy(&text);
                    self.screen += &text;
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

/// Its cells. A wide character is followed by an empty one.
type Line = Vec<Option<char>>;

/// As much of a terminal as programs use here: it knows the sequences that tenure writes, and panics at any other. It
/// has as many lines as are written.
#[derive(Default)]
struct Picture {
    columns: usize,
    cells: Vec<Line>,
    row: usize,
    column: usize,
    no_wrap: bool,
    /// A sequence that has begun.
    sequence: String,
    /// The lines and the place in them to which the alternate screen will give way.
    behind: Option<(Vec<Line>, usize, usize)>,
}

impl Picture {
    fn print(&mut self, text: &str) {
        for c in text.chars() {
            if !self.sequence.is_empty() {
                self.sequence.push(c);
                if c.is_ascii_alphabetic() {
                    let sequence = std::mem::take(&mut self.sequence);
                    self.obey(&sequence);
                }
                continue;
            }
            match c {
                '\x1b' => self.sequence.push(c),
                '\r' => self.column = 0,
                '\n' => self.row += 1,
                '\x07' => {}
                _ => self.draw(c),
            }
        }
    }

    fn draw(&mut self, c: char) {
        assert!(!c.is_control(), "{c:?} reached the terminal");
        let width = c.width().unwrap_or(0);
        if self.column + width > self.columns {
            if self.no_wrap {
                self.column = self.columns - width;
            } else {
                (self.row, self.column) = (self.row + 1, 0);
            }
        }
        while self.cells.len() <= self.row {
            self.cells.push(Vec::new());
        }
        let line = &mut self.cells[self.row];
        while line.len() < self.column + width {
            line.push(Some(' '));
        }
        if width > 0 {
            line[self.column] = Some(c);
        }
        if width == 2 {
            line[self.column + 1] = None;
        }
        self.column += width;
    }

    fn obey(&mut self, sequence: &str) {
        match &sequence[1..] {
            "[J" => {
                self.cells.truncate(self.row + 1);
                self.erase_line();
            }
            "[K" => self.erase_line(),
            "[H" => (self.row, self.column) = (0, 0),
            "[?7l" => self.no_wrap = true,
            "[?7h" => self.no_wrap = false,
            "[?25l" | "[?25h" => {}
            "[?1049h" => {
                let before = std::mem::take(&mut self.cells);
                self.behind = Some((before, self.row, self.column));
            }
            "[?1049l" => {
                let behind = self.behind.take().expect("the alternate screen");
                (self.cells, self.row, self.column) = behind;
            }
            other => panic!("an unknown sequence: ESC {other:?}"),
        }
    }

    fn erase_line(&mut self) {
        if let Some(line) = self.cells.get_mut(self.row) {
            line.truncate(self.column);
        }
    }

    fn text(&self) -> String {
        let line = |cells: &Line| {
            let text: String = cells.iter().flatten().collect();
            text.trim_end().to_owned()
        };
        let lines: Vec<String> = self.cells.iter().map(line).collect();
        lines.join("\n").trim_end().to_owned()
    }
}
