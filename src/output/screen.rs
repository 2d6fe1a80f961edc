//! What a terminal is: how wide it is, how much of it a text takes, whether one may write there now, and one line on it
//! that is rewritten in place.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use unicode_width::UnicodeWidthChar;

use crate::signals::{self, NoStops, TERMINATION};

/// The size of a terminal that does not tell it, such as a serial line, and of what is not known at all.
pub const USUAL_COLUMNS: usize = 80;
const USUAL_LINES: usize = 24;

/// Back to the line's begin, and away with all from there on: where the terminal has become narrower, the line has been
/// broken into several.
const ERASE: &str = "\r\x1b[J";

/// From here to the line's end.
const ERASE_LINE: &str = "\x1b[K";

/// A screen of its own, and no cursor on it.
const BEGIN_PICTURE: &str = "\x1b[?1049h\x1b[?25l";
const END_PICTURE: &str = "\x1b[?25h\x1b[?1049l";

/// The upper left corner.
const HOME: &str = "\x1b[H";

/// Whatever is written between these stays on its line: when the line does not begin at the left, when the terminal has
/// become narrower just now, or draws a character wider than it should.
pub const NO_WRAP: &str = "\x1b[?7l";
pub const WRAP: &str = "\x1b[?7h";

/// The width of the terminal that this is; none for anything else.
pub fn columns(file: &(impl AsFd + IsTerminal)) -> Option<usize> {
    file.is_terminal().then(|| size(file).0)
}

/// Columns and lines of a terminal.
fn size(file: &impl AsFd) -> (usize, usize) {
    let told = tcgetwinsize(file).map_or((0, 0), |size| (size.ws_col, size.ws_row));
    let or_usual = |told, usual| {
        if told == 0 { usual } else { usize::from(told) }
    };
    (
        or_usual(told.0, USUAL_COLUMNS),
        or_usual(told.1, USUAL_LINES),
    )
}

/// How wide a table may be there: as the terminal, or as what will show it elsewhere says. None for as wide as it is.
pub fn room(file: &(impl AsFd + IsTerminal)) -> Option<usize> {
    // As many as a terminal can have, at most.
    let said = || std::env::var("COLUMNS").ok()?.parse::<u16>().ok();
    columns(file).or_else(|| said().filter(|said| *said > 0).map(usize::from))
}

/// Whether what has been written there can be written over.
pub fn can_rewrite(file: &(impl AsFd + IsTerminal)) -> bool {
    let is_dumb = |term: OsString| term.is_empty() || term == "dumb";
    file.is_terminal() && !std::env::var_os("TERM").is_none_or(is_dumb)
}

/// Whether this process is in the foreground of that terminal: whoever types there at something else is not to be written
/// over. None where it is not the terminal of this session, which then has no foreground there.
pub fn is_in_foreground(file: &impl AsFd) -> Option<bool> {
    let foreground = tcgetpgrp(file).ok()?;
    Some(foreground == getpgrp())
}

/// How long a write is waited for before it is asked whether it is still wanted.
const PATIENCE: Duration = Duration::from_millis(50);

/// So much goes into a pipe in one piece, and at once where it takes anything at all (pipe(7)).
const PIECE: usize = 4096;

/// What may be done with a file, after a time at most.
///
/// # Errors
/// Those of poll(2): it is unknown.
fn becomes(file: &impl AsFd, within: Duration) -> rustix::io::Result<PollFlags> {
    let mut fds = [PollFd::new(file, PollFlags::OUT)];
    let within = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    match poll(&mut fds, Some(&within)) {
        Ok(_) => Ok(fds[0].revents()),
        Err(Errno::INTR) => Ok(PollFlags::empty()),
        Err(error) => Err(error),
    }
}

/// Whether a write would not block: a terminal may be held by Ctrl-S, and the reader of a pipe may have fallen asleep.
fn takes_more(file: &impl AsFd) -> bool {
    becomes(file, Duration::ZERO).is_ok_and(|is| is.contains(PollFlags::OUT))
}

/// Writes to stderr, by one system call where it is not too long for that, so that no line of another process comes into it.
/// Waits for a reader, but not when a signal has come that ends the program: those that are blocked would never end it.
pub fn write_unless_ended(text: &str) {
    let stderr = io::stderr();
    for piece in text.as_bytes().chunks(PIECE) {
        loop {
            // Where the call is refused the write waits, as any program's does, and not this loop for ever.
            let is = becomes(&stderr, PATIENCE).unwrap_or(PollFlags::OUT);
            if is.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
                return;
            }
            if is.contains(PollFlags::OUT) {
                break;
            }
            if signals::pending(TERMINATION).is_some() {
                return;
            }
        }
        if (&stderr).write_all(piece).is_err() {
            return;
        }
    }
}

/// Writes to stderr in one piece, so that nobody sees it half done, and only what can be written at once: whoever waits
/// in a line must not be kept by a terminal, or all those behind it were too.
pub fn write_if_possible(text: &str) {
    let stderr = io::stderr();
    if takes_more(&stderr) {
        let _ = (&stderr).write_all(text.as_bytes());
    }
}

/// How many columns a text takes at most, which has nothing that commands a terminal. A terminal that draws several
/// characters as one takes fewer.
pub fn width(text: &str) -> usize {
    text.chars().map(|c| c.width().unwrap_or(0)).sum()
}

/// As much of the text as fits into so many columns, with an ellipsis where it was cut.
pub fn fit(text: &str, columns: usize) -> String {
    if width(text) <= columns {
        return text.to_owned();
    }
    let mut left = columns.saturating_sub(1);
    let mut cut = String::new();
    for c in text.chars() {
        let Some(rest) = left.checked_sub(c.width().unwrap_or(0)) else {
            break;
        };
        left = rest;
        cut.push(c);
    }
    if columns > 0 {
        cut.push('…');
    }
    cut
}

/// A line on stderr that is written over again and again, and is gone when this is dropped. The cursor stays at its begin:
/// a terminal that breaks lines anew when its width changes keeps the cursor with the text, and so all of the line can be
/// erased from there.
#[derive(Default)]
pub struct LiveLine {
    is_drawn: bool,
}

impl LiveLine {
    /// Whether stderr is a terminal for it, with a foreground and a background.
    pub fn has_place() -> bool {
        let stderr = io::stderr();
        can_rewrite(&stderr) && is_in_foreground(&stderr).is_some()
    }

    /// Draws the line that `compose` makes for so many columns, unless this process is in the background.
    pub fn draw(&mut self, compose: impl FnOnce(usize) -> String) {
        // Whoever looks first may be in the background by the time it writes, and would be stopped for that.
        let _no_stops = NoStops::begin();
        let stderr = io::stderr();
        if is_in_foreground(&stderr) != Some(true) {
            // What was drawn is no longer where the cursor is.
            self.is_drawn = false;
            return;
        }
        let Some(columns) = columns(&stderr) else {
            return;
        };
        let line = fit(&super::printable(&compose(columns)), columns);
        let before = if self.is_drawn { ERASE } else { "" };
        self.is_drawn = true;
        write_if_possible(&format!("{before}{NO_WRAP}{line}{WRAP}\r"));
    }

    pub fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _no_stops = NoStops::begin();
            if is_in_foreground(&io::stderr()) == Some(true) {
                write_if_possible(ERASE);
            }
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.erase();
    }
}

/// The whole screen of the terminal that stdout is, which is drawn again and again. What was there before is back when this
/// is dropped.
#[derive(Default)]
pub struct Picture {
    is_shown: bool,
}

impl Picture {
    /// Whether stdout is a terminal for it.
    pub fn has_place() -> bool {
        can_rewrite(&io::stdout())
    }

    /// Draws what `compose` makes for so many columns: as much of it as fits on the screen. Draws nothing while this
    /// process is in the background, or the terminal takes nothing.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn draw(&mut self, compose: impl FnOnce(usize) -> String) -> io::Result<()> {
        let _no_stops = NoStops::begin();
        let stdout = io::stdout();
        if is_in_foreground(&stdout) == Some(false) || !takes_more(&stdout) {
            return Ok(());
        }
        let (columns, lines) = size(&stdout);
        let text = compose(columns);
        let mut drawn = String::new();
        if !std::mem::replace(&mut self.is_shown, true) {
            drawn += BEGIN_PICTURE;
        }
        drawn += HOME;
        drawn += NO_WRAP;
        // The cursor needs a line of its own, from which it erases what is left of a longer picture.
        let lines = lines.saturating_sub(1).max(1);
        let too_many = text.lines().count() > lines;
        for line in text.lines().take(lines - usize::from(too_many)) {
            let _ = writeln!(drawn, "{ERASE_LINE}{}", fit(line, columns));
        }
        if too_many {
            let _ = writeln!(drawn, "{ERASE_LINE}…");
        }
        drawn += WRAP;
        drawn += ERASE;
        let mut stdout = stdout.lock();
        stdout.write_all(drawn.as_bytes())?;
        stdout.flush()
    }

    /// Gives the terminal back as it was; the next picture takes it again.
    pub fn leave(&mut self) {
        let _no_stops = NoStops::begin();
        let stdout = io::stdout();
        if std::mem::take(&mut self.is_shown) && is_in_foreground(&stdout) != Some(false) {
            let mut stdout = stdout.lock();
            let _ = stdout.write_all(END_PICTURE.as_bytes());
            let _ = stdout.flush();
        }
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_by_the_columns_it_takes() {
        assert_eq!(fit("deploy", 6), "deploy");
        assert_eq!(fit("deploy", 5), "depl…");
        assert_eq!(fit("漢字かな", 8), "漢字かな");
        assert_eq!(fit("漢字かな", 7), "漢字か…");
        assert_eq!(fit("漢字かな", 6), "漢字…");
        assert_eq!(fit("e\u{301}e\u{301}", 2), "e\u{301}e\u{301}");
        assert_eq!((fit("ab", 1).as_str(), fit("ab", 0).as_str()), ("…", ""));
    }

    #[test]
    fn no_cut_text_takes_more_columns_than_there_are() {
        let text = "a漢é👨\u{200d}👩\u{200d}👧\u{301}字";
        for columns in 0..20 {
            assert!(width(&fit(text, columns)) <= columns, "{columns}");
        }
    }
}
