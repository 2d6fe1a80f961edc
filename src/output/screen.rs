//! What a terminal is: how wide it is, how much of it a text takes, and one line on it that is rewritten in place.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

use rustix::process::getpgrp;
use rustix::termios::{tcgetpgrp, tcgetwinsize};
use unicode_width::UnicodeWidthChar;

/// The width of a terminal that does not tell it, such as a serial line.
const USUAL_COLUMNS: usize = 80;

/// Back to the line's begin, and away with all from there on: where the terminal has become narrower, the line has been
/// broken into several.
const ERASE: &str = "\r\x1b[J";

/// The width of the terminal that this is; none for anything else.
pub fn columns(file: &(impl AsFd + IsTerminal)) -> Option<usize> {
    if !file.is_terminal() {
        return None;
    }
    let told = tcgetwinsize(file).map_or(0, |size| usize::from(size.ws_col));
    Some(if told == 0 { USUAL_COLUMNS } else { told })
}

/// Whether what has been written there can be written over.
pub fn can_rewrite(file: &(impl AsFd + IsTerminal)) -> bool {
    let is_dumb = |term: std::ffi::OsString| term.is_empty() || term == "dumb";
    file.is_terminal() && !std::env::var_os("TERM").is_none_or(is_dumb)
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
    /// Whether there is a terminal for it, of which this process is in the foreground: whoever types there at something
    /// else is not to be written over.
    pub fn has_place() -> bool {
        let stderr = io::stderr();
        can_rewrite(&stderr) && tcgetpgrp(&stderr).is_ok_and(|foreground| foreground == getpgrp())
    }

    /// Draws the line that `compose` makes for so many columns.
    pub fn draw(&mut self, compose: impl FnOnce(usize) -> String) {
        let stderr = io::stderr();
        let Some(columns) = columns(&stderr) else {
            return;
        };
        // In the last column some terminals begin a new line.
        let columns = columns.saturating_sub(1);
        let line = fit(&super::printable(&compose(columns)), columns);
        let before = if self.is_drawn { ERASE } else { "" };
        self.is_drawn = true;
        // In one piece, so that nobody sees it half drawn.
        let _ = (&stderr).write_all(format!("{before}{line}\r").as_bytes());
    }

    pub fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = io::stderr().write_all(ERASE.as_bytes());
        }
    }
}

impl Drop for LiveLine {
    fn drop(&mut self) {
        self.erase();
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
