//! What somebody sees who waits: at a terminal one line that is rewritten in place and gone when the wait is over,
//! elsewhere a line when it begins, one each minute, and one when it ends.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::screen::{self, LiveLine, fit, width};
use super::{asked_of, busy, expires_in, held_for, list, orphan_of, printable, processes};
use crate::duration::show;
use crate::holder;
use crate::lock::{Ahead, Held, LockName, Standing};
use crate::wait;

/// A wait that is shorter leaves the line of the terminal alone, which would only flicker.
const FLICKER: Duration = Duration::from_millis(150);

/// How often the line of a terminal is drawn anew, which tells whole seconds.
const SECOND: Duration = Duration::from_secs(1);

/// A wait that is shorter is not worth a line that stays; nor, where many came together, are as many at once.
const BRIEF: Duration = Duration::from_secs(1);

/// How often a line is written that stays: services that run jobs end those that are silent for some minutes.
const MINUTE: Duration = Duration::from_secs(57);

/// The rest of the minute, of which each takes another part: so that many do not wake in step.
const SPREAD: Duration = Duration::from_secs(2);

/// What a line keeps of a command or a note where there is no room for both, at least.
const LEAST_TEXT: usize = 8;

/// A wait, as it is shown.
pub struct Waiting<'a> {
    asked: &'a [LockName],
    began: Instant,
    deadline: Option<Instant>,
    view: View,
    /// When it is to be shown the next time.
    next: Option<Instant>,
    ahead: Ahead,
}

enum View {
    /// Nobody is to be told.
    Nothing,
    Line(LiveLine),
    Lines {
        has_begun: bool,
    },
}

impl<'a> Waiting<'a> {
    /// A wait that began at some moment and ends at the deadline at the latest.
    pub fn new(
        asked: &'a [LockName],
        quiet: bool,
        began: Instant,
        deadline: Option<Instant>,
    ) -> Self {
        let view = if quiet {
            View::Nothing
        } else if LiveLine::has_place() {
            View::Line(LiveLine::default())
        } else {
            View::Lines { has_begun: false }
        };
        let next = match view {
            View::Nothing => None,
            View::Line(_) => Some(began + FLICKER),
            View::Lines { .. } => Some(began + BRIEF + wait::jittered(BRIEF / 2)),
        };
        Self {
            asked,
            began,
            deadline,
            view,
            next,
            ahead: Ahead::default(),
        }
    }

    /// When it is to be shown the next time, by [`Self::show`].
    pub fn next(&self) -> Option<Instant> {
        self.next
    }

    pub fn is_due(&self) -> bool {
        self.next.is_some_and(|next| Instant::now() >= next)
    }

    /// Who is in the way is known before anything is shown, and the place a moment later.
    pub fn is_behind(&mut self, first: &[Held]) {
        if self.next.is_some() {
            self.ahead.first = first.to_vec();
        }
    }

    /// Shows it; `ahead`, where that is known again.
    pub fn show(&mut self, ahead: Option<Ahead>) {
        if let Some(ahead) = ahead {
            self.ahead = ahead;
        }
        let now = Instant::now();
        match &mut self.view {
            View::Nothing => {}
            View::Line(_) => {
                self.next = Some(now + SECOND);
                self.redraw();
            }
            View::Lines { has_begun } => {
                let begins = !std::mem::replace(has_begun, true);
                self.next = Some(now + MINUTE + wait::jittered(SPREAD));
                screen::write_if_possible(&format!("tenure: {}\n", printable(&self.text(begins))));
            }
        }
    }

    /// Draws the line of a terminal again, whose width may be another now.
    pub fn redraw(&mut self) {
        let facts = Facts::of(self.asked, self.began, self.deadline, &self.ahead);
        if let View::Line(line) = &mut self.view
            && self.began.elapsed() >= FLICKER
        {
            line.draw(|columns| facts.line(columns));
        }
    }

    /// Leaves the terminal to others for a while.
    pub fn pause(&mut self) {
        if let View::Line(line) = &mut self.view {
            line.erase();
            self.next = Some(Instant::now() + FLICKER);
        }
    }

    /// The locks are had.
    pub fn had(self) {
        let (names, waited) = (list(self.asked), seconds(self.began.elapsed()));
        self.ends(&format!("holding {names} after a wait of {waited}"));
    }

    /// A signal has ended the wait.
    pub fn interrupted(self) {
        let (names, waited) = (list(self.asked), seconds(self.began.elapsed()));
        self.ends(&format!(
            "a signal ended the wait for {names} after {waited}"
        ));
    }

    /// The last line, where one has told that it began. That of a terminal is erased.
    fn ends(self, text: &str) {
        if let View::Lines { has_begun: true } = self.view {
            screen::write_if_possible(&format!("tenure: {}\n", printable(text)));
        }
    }

    /// A line that stays.
    fn text(&self, begins: bool) -> String {
        let facts = Facts::of(self.asked, self.began, self.deadline, &self.ahead);
        let mut text = String::from("waiting");
        if !begins {
            let _ = write!(text, " for {}", facts.waited);
        }
        text += &facts.place_and_time();
        match self.ahead.first.first() {
            Some(held) => format!("{text}: {}", busy(self.asked, held)),
            None => format!("{text}: for {}", list(self.asked)),
        }
    }
}

/// What there is to tell at one moment.
struct Facts<'a> {
    name: String,
    waited: String,
    left: Option<String>,
    place: Option<(u32, u32)>,
    /// Who is in the way, and since when.
    held: Option<(&'a Held, Duration)>,
}

impl<'a> Facts<'a> {
    fn of(asked: &[LockName], began: Instant, deadline: Option<Instant>, ahead: &'a Ahead) -> Self {
        let held = ahead.first.first();
        let left = deadline
            .map(|deadline| seconds_left(deadline.saturating_duration_since(Instant::now())));
        Self {
            name: held.map_or_else(|| list(asked), |held| asked_of(asked, held).to_string()),
            waited: seconds(began.elapsed()),
            left,
            place: ahead.place,
            held: held.map(|held| (held, held_for(held))),
        }
    }

    /// `, 2nd of 5, 48s left`.
    fn place_and_time(&self) -> String {
        let mut text = String::new();
        if let Some((place, all)) = self.place {
            let _ = write!(text, ", {} of {all}", ordinal(place));
        }
        if let Some(left) = &self.left {
            let _ = write!(text, ", {left} left");
        }
        text
    }

    /// All of it in one line: where there is no room, the last goes first.
    fn line(&self, columns: usize) -> String {
        let name = fit(&printable(&self.name), columns / 3);
        let mut line = format!(
            "tenure: waiting for {name} {}{}",
            self.waited,
            self.place_and_time()
        );
        let Some((held, age)) = self.held else {
            return line;
        };
        if let Some(orphan) = &held.orphan {
            let left = seconds_left(held.remaining.max(orphan.rest));
            let who = printable(&orphan_of(held));
            let _ = write!(line, "; held by {who}, {left} to go at the most");
            let processes = processes(orphan).map(|all| printable(&all));
            return line + &processes.map_or_else(String::new, |all| format!(": {all}"));
        }
        let holder = &held.holder;
        let who = holder::user_at_host(holder);
        let is_held = if held.standing == Standing::Waiting {
            "waited for"
        } else {
            "held"
        };
        if holder.is_unknown() {
            let _ = write!(line, "; {is_held} by {}", printable(&holder.command));
            return fit(&line, columns);
        }
        let _ = write!(
            line,
            "; {is_held} {} by {}",
            seconds(age),
            fit(&printable(&who), columns / 3)
        );
        if let Some(left) = expires_in(held).filter(|_| held.standing != Standing::Waiting) {
            let _ = write!(line, ", {} to go", seconds_left(left));
        }
        let _ = write!(line, " (pid {}, ", holder.pid);
        let command = printable(&holder.command);
        let note = holder
            .note
            .as_ref()
            .map(|note| format!(": {}", printable(note)));
        let note = note.unwrap_or_default();
        let room = columns.saturating_sub(width(&line) + ")".len());
        if room < 2 * LEAST_TEXT {
            return line + &command + ")" + &note;
        }
        // Half of the room for each, and what one does not need for the other.
        let for_note = width(&note).min(room.saturating_sub(width(&command)).max(room / 2));
        let for_command = room - for_note;
        line + &fit(&command, for_command) + ")" + &fit(&note, for_note)
    }
}

/// A duration in whole seconds.
pub fn seconds(duration: Duration) -> String {
    show(Duration::from_secs(duration.as_secs()))
}

/// What is left of a duration in whole seconds: when it begins all of it, and nothing only at its end.
pub fn seconds_left(duration: Duration) -> String {
    seconds(duration + Duration::from_millis(999))
}

/// `1st`, `2nd`, `11th`.
pub fn ordinal(number: u32) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{Holder, Mode, Orphan, Process};

    fn held(command: &str, note: Option<&str>) -> Held {
        Held {
            id: 1,
            names: vec!["production".parse().unwrap()],
            mode: Mode::Exclusive,
            fence: Some(1),
            slot: None,
            holder: Holder {
                uid: 987_654,
                host: "web1".into(),
                pid: 812,
                command: command.into(),
                directory: "/".into(),
                note: note.map(str::to_owned),
                url: None,
            },
            ttl: Duration::from_mins(1),
            since: 0,
            remaining: Duration::from_mins(1),
            standing: Standing::Supervised,
            orphan: None,
            revoked: false,
            guarded: true,
            inside_of: None,
        }
    }

    fn line(held: Option<&Held>, columns: usize) -> String {
        let facts = Facts {
            name: "production".into(),
            waited: "12s".into(),
            left: Some("48s".into()),
            place: Some((2, 5)),
            held: held.map(|held| (held, Duration::from_secs(200))),
        };
        // As it is drawn.
        fit(&facts.line(columns), columns)
    }

    #[test]
    fn the_most_important_comes_first_and_is_what_is_left_where_there_is_no_room() {
        let held = held("./deploy.sh --all", Some("release 41"));
        let whole = "tenure: waiting for production 12s, 2nd of 5, 48s left; held 3m 20s by 987654@web1 (pid 812, ./deploy.sh --all): release 41";
        assert_eq!(line(Some(&held), 200), whole);
        assert_eq!(
            line(Some(&held), 80),
            "tenure: waiting for production 12s, 2nd of 5, 48s left; held 3m 20s by 987654@w…"
        );
        assert_eq!(
            line(Some(&held), 40),
            "tenure: waiting for production 12s, 2nd…"
        );
        assert_eq!(
            line(None, 80),
            "tenure: waiting for production 12s, 2nd of 5, 48s left"
        );
    }

    #[test]
    fn of_an_orphan_the_processes_are_told_that_keep_the_lock_and_for_how_long() {
        let mut held = held("./deploy.sh", Some("release 41"));
        held.standing = Standing::Orphaned;
        let process = |pid, command: &str| Process {
            other_user: None,
            pid,
            command: command.into(),
        };
        held.orphan = Some(Orphan {
            byte: (1, 2),
            rest: Duration::ZERO,
            processes: vec![process(815, "sleep 600"), process(816, "")],
            are_all: true,
        });
        let start = "tenure: waiting for production 12s, 2nd of 5, 48s left; held by processes of 987654@web1's run";
        assert_eq!(
            line(Some(&held), 300),
            format!(
                "{start} (pid 812, killed), 1m to go at the most: pid 815 (sleep 600), pid 816"
            )
        );
        held.orphan = held.orphan.map(|orphan| Orphan {
            rest: Duration::from_mins(2),
            processes: Vec::new(),
            ..orphan
        });
        assert_eq!(
            line(Some(&held), 300),
            format!("{start} (pid 812, ./deploy.sh, killed), 2m to go at the most")
        );
    }

    #[test]
    fn command_and_note_share_what_room_there_is() {
        let (long, short) = ("x".repeat(200), "y z");
        for (command, note) in [
            (long.as_str(), Some(long.as_str())),
            (&long, Some(short)),
            (short, Some(&long)),
            (&long, None),
        ] {
            let held = held(command, note);
            for columns in 100..150 {
                let line = Facts {
                    name: "production".into(),
                    waited: "12s".into(),
                    left: None,
                    place: None,
                    held: Some((&held, Duration::from_secs(200))),
                }
                .line(columns);
                assert_eq!(width(&line), columns, "{line}");
                let has_short = [Some(command), note].contains(&Some(short));
                assert!(line.contains(short) || !has_short, "{line}");
            }
        }
    }

    #[test]
    fn places_are_told_as_in_a_sentence() {
        for (number, text) in [
            (1, "1st"),
            (2, "2nd"),
            (3, "3rd"),
            (4, "4th"),
            (11, "11th"),
            (12, "12th"),
            (13, "13th"),
            (21, "21st"),
            (102, "102nd"),
            (111, "111th"),
        ] {
            assert_eq!(ordinal(number), text);
        }
    }
}
