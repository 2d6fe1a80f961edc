//! A picture of who held and who waited when: text from entries of the log. No store, no terminal.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use crate::duration::{from_millis, show};
use crate::history::{self, NO_WAIT};
use crate::holder;
use crate::lock::{Entry, Event, LockName};
use crate::output::printable;
use crate::output::screen::{fit, width};

/// The narrowest picture that shows anything; a terminal that is narrower breaks its lines.
const NARROWEST: usize = 40;

/// What stands between two moments on the scale, at least.
const GAP: usize = 2;

/// In milliseconds, as all lengths of time here.
const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// What can lie between two moments on the scale: as clocks and calendars are divided, up to the years of the calendar.
const STEPS: [i64; 41] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
    91 * DAY,
    182 * DAY,
    365 * DAY,
    730 * DAY,
    1825 * DAY,
    3650 * DAY,
    18_250 * DAY,
    36_500 * DAY,
    365_000 * DAY,
    3_650_000 * DAY,
];

/// What there is to tell of time.
const SHORTEST: Duration = Duration::from_millis(1);

/// How long a picture is of which the milliseconds are not told.
const EXACT: i64 = 10 * SECOND;

/// How a picture is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// The columns of the terminal.
    pub columns: usize,
    /// Nothing but ASCII, for terminals that know no more.
    pub ascii: bool,
}

impl Style {
    fn held(self) -> char {
        if self.ascii { '#' } else { '█' }
    }

    fn waiting(self) -> char {
        if self.ascii { '.' } else { '░' }
    }

    /// Text as this style can show it.
    fn known(self, text: &str) -> String {
        let known = |c: char| if self.ascii && !c.is_ascii() { '?' } else { c };
        printable(text).chars().map(known).collect()
    }

    /// As much of it as fits into so many columns, and the blanks that fill them.
    fn cell(self, text: &str, columns: usize) -> String {
        let mut cell = fit(text, columns);
        if self.ascii {
            // The text itself has none: it is such as this style can show.
            cell = cell.replace('…', "~");
        }
        let left = columns.saturating_sub(width(&cell));
        cell + &" ".repeat(left)
    }
}

/// The time that a picture shows, in milliseconds since 1970, and into how many columns.
#[derive(Clone, Copy)]
struct Axis {
    from: i64,
    until: i64,
    columns: usize,
}

impl Axis {
    /// The column in which a moment lies; the end of the last one for what is later.
    fn column(self, at: i64) -> usize {
        let length = i128::from(self.until) - i128::from(self.from);
        let past = (i128::from(at) - i128::from(self.from)).clamp(0, length);
        let columns = i128::try_from(self.columns).unwrap_or(i128::MAX);
        usize::try_from(past.saturating_mul(columns) / length.max(1)).unwrap_or(self.columns)
    }

    /// The moment at which a column begins.
    fn begin(self, column: usize) -> i64 {
        let columns = i64::try_from(self.columns).unwrap_or(i64::MAX).max(1);
        let column = i64::try_from(column).unwrap_or(i64::MAX).min(columns);
        // Column by column nothing overflows, whatever the length is.
        let (whole, rest) = (self.length() / columns, self.length() % columns);
        self.from + whole * column + rest * column / columns
    }

    fn length(self) -> i64 {
        self.until - self.from
    }
}

/// What one request did.
#[derive(Clone, Copy)]
struct Span<'a> {
    entry: &'a Entry,
    asked: i64,
    granted: Option<i64>,
    ended: i64,
}

impl<'a> Span<'a> {
    /// None of what another entry tells, too.
    fn of(entry: &'a Entry, now: i64) -> Option<Self> {
        if entry.event == Event::Forced && entry.ended_at.is_none() {
            return None;
        }
        // Whatever clocks went wrong, or hands into the database.
        let known = |at: i64| at.clamp(0, history::LAST);
        let ended = known(if is_present(entry) {
            now
        } else {
            history::ended(entry)
        });
        let (asked, granted) = (known(entry.requested_at), entry.granted_at.map(known));
        let limit = granted.unwrap_or(ended);
        let has_waited = from_millis(limit - asked) >= NO_WAIT;
        Some(Self {
            entry,
            asked: if has_waited { asked } else { limit },
            granted,
            ended: ended.max(limit),
        })
    }

    fn has_waited(&self) -> bool {
        self.granted.unwrap_or(self.ended) > self.asked
    }

    fn who(&self) -> String {
        let holder = &self.entry.holder;
        holder::user_at_host(holder)
    }

    fn draw(&self, axis: Axis, style: Style, cells: &mut [char]) {
        let last = cells.len() - 1;
        let from = axis.column(self.asked).min(last);
        let end = axis.column(self.ended).clamp(from + 1, cells.len());
        let held_from = self.granted.map_or(end, |granted| {
            // Something of it is seen, however short it was.
            axis.column(granted).clamp(from, end - 1)
        });
        for (at, cell) in cells.iter_mut().enumerate().take(end).skip(from) {
            if *cell == ' ' || *cell == style.waiting() {
                *cell = if at >= held_from {
                    style.held()
                } else {
                    style.waiting()
                };
            }
        }
        if let Some((mark, _)) = mark(self.entry) {
            cells[end - 1] = mark;
        }
    }
}

fn is_present(entry: &Entry) -> bool {
    matches!(entry.event, Event::Granted | Event::Waiting)
}

/// How it ended, where there is more to say than that.
fn mark(entry: &Entry) -> Option<(char, &'static str)> {
    let has_failed = entry.signal.is_some() || entry.status.is_some_and(|code| code != 0);
    match entry.event {
        Event::Released => has_failed.then_some(('!', "failed")),
        Event::Granted | Event::Waiting => Some(('>', "goes on")),
        Event::Expired => Some(('e', "expired")),
        Event::Crashed => Some(('x', "crashed")),
        Event::Lost if entry.reason.as_deref() != Some("forced") => Some(('l', "lost")),
        Event::Lost | Event::Forced => Some(('f', "forced")),
        Event::Busy => Some(('b', "busy")),
        Event::Deadlock => Some(('d', "deadlock")),
    }
}

/// One line of the picture: what the same command of the same user did, as long as it did one thing at a time.
struct Line<'a> {
    label: String,
    spans: Vec<Span<'a>>,
    ended: i64,
}

/// The lines of one lock, in the order of their beginnings.
#[derive(Default)]
struct Group<'a> {
    lines: Vec<Line<'a>>,
    alike: HashMap<String, Vec<usize>>,
}

impl<'a> Group<'a> {
    /// Spans come in the order of their beginnings.
    fn add(&mut self, label: String, span: Span<'a>) {
        let lines = &mut self.lines;
        let alike = self.alike.entry(label.clone()).or_default();
        if let Some(at) = alike.iter().find(|at| lines[**at].ended <= span.asked) {
            lines[*at].ended = span.ended;
            lines[*at].spans.push(span);
            return;
        }
        alike.push(lines.len());
        lines.push(Line {
            label,
            ended: span.ended,
            spans: vec![span],
        });
    }
}

/// Draws what these entries tell of the asked-for locks, or of all: from a moment on until `now`, or from the first to
/// the last of it. None when there is nothing to draw. `offset` tells how far local time is ahead of UTC.
pub fn draw(
    entries: &[&Entry],
    asked: &[LockName],
    (from, now): (Option<i64>, i64),
    style: Style,
    offset: &mut dyn FnMut(i64) -> i64,
) -> Option<String> {
    let mut fences = HashSet::new();
    let mut spans: Vec<Span<'_>> = entries
        .iter()
        .filter_map(|entry| Span::of(entry, now))
        .filter(|span| span.entry.fence.is_none_or(|fence| fences.insert(fence)))
        .filter(|span| from.is_none_or(|from| span.ended >= from))
        .collect();
    spans.sort_by_key(|span| span.asked);
    let first = spans.first()?.asked;
    let last = spans.iter().map(|span| span.ended).max()?;
    let until = if from.is_some() { now.max(last) } else { last };
    let from = from.unwrap_or(first).clamp(0, history::LAST);

    // Whom all lines would name, none does.
    let everybody: BTreeSet<String> = spans.iter().map(Span::who).collect();
    let alone = everybody.first().filter(|_| everybody.len() == 1);
    let label = |span: &Span<'_>| {
        let command = &span.entry.holder.command;
        style.known(&match alone {
            Some(_) => command.clone(),
            None => format!("{} {command}", span.who()),
        })
    };
    let groups = groups(&spans, asked, label);
    let columns = style.columns.max(NARROWEST);
    let lines = groups.values().flat_map(|group| &group.lines);
    let longest = lines.map(|line| width(&line.label)).max()?;
    let label_columns = longest.min(columns * 2 / 5);
    let axis = Axis {
        from,
        until: until.max(from + 1),
        columns: columns - label_columns - 3,
    };

    let mut text = String::new();
    let scale = scale(axis, offset);
    if !scale.is_empty() {
        let _ = writeln!(text, "{:margin$}{scale}", "", margin = label_columns + 3);
    }
    for (name, group) in &groups {
        let _ = writeln!(
            text,
            "{}",
            style.cell(&style.known(name.as_str()), columns).trim_end()
        );
        for line in &group.lines {
            let mut cells = vec![' '; axis.columns];
            for span in &line.spans {
                span.draw(axis, style, &mut cells);
            }
            let bar: String = cells.into_iter().collect();
            let label = style.cell(&line.label, label_columns);
            let _ = writeln!(text, "{}", format!("  {label} {bar}").trim_end());
        }
    }
    let alone = alone.map(|who| style.known(who));
    text += &flow(&about(axis, alone.as_ref(), offset), " ", columns);
    text += &flow(&legend(&spans, style), "  ", columns);
    Some(text)
}

fn groups<'a>(
    spans: &[Span<'a>],
    asked: &[LockName],
    label: impl Fn(&Span<'_>) -> String,
) -> BTreeMap<&'a LockName, Group<'a>> {
    let mut groups: BTreeMap<&LockName, Group<'_>> = BTreeMap::new();
    for span in spans {
        let names = span.entry.names.iter();
        for name in names.filter(|name| asked.is_empty() || asked.contains(name)) {
            groups.entry(name).or_default().add(label(span), *span);
        }
    }
    groups
}

/// What a picture is about: its time, whose it is where it is one user's, and how long a column is.
fn about(axis: Axis, alone: Option<&String>, offset: &mut dyn FnMut(i64) -> i64) -> Vec<String> {
    let mut moment = |at: i64| {
        let mut text = history::moment(at, offset(at));
        if axis.length() >= EXACT {
            text.truncate(19);
        }
        text
    };
    let (begin, end) = (moment(axis.from), moment(axis.until));
    let same_day = begin[..11] == end[..11];
    let end = if same_day { &end[11..] } else { &end };
    let mut parts = vec![format!("from {begin} to"), format!("{end},")];
    parts.extend(alone.map(|who| format!("all by {who},")));
    let column = from_millis(axis.begin(1) - axis.from).max(SHORTEST);
    parts.push(format!("a column is {}", show(column)));
    parts
}

/// Round moments of local time along the axis, as many as there is room for, each behind a mark at its column.
fn scale(axis: Axis, offset: &mut dyn FnMut(i64) -> i64) -> String {
    let part = |step: i64| match step {
        DAY.. => 0..10,
        MINUTE.. if axis.length() >= DAY => 5..16,
        MINUTE.. => 11..16,
        SECOND.. => 11..19,
        _ => 11..23,
    };
    let has_room = |step: &i64| {
        let room = i128::try_from(1 + part(*step).len() + GAP).unwrap_or(i128::MAX);
        let columns = i128::try_from(axis.columns).unwrap_or(i128::MAX);
        columns * i128::from(*step) >= room * i128::from(axis.length())
    };
    let mut line = String::new();
    let Some(step) = STEPS.into_iter().find(has_room) else {
        return line;
    };
    let local = axis.from + offset(axis.from);
    let mut at = axis.from + (step - local.rem_euclid(step)) % step;
    while at <= axis.until {
        let text = &history::moment(at, offset(at))[part(step)];
        let gap = axis.column(at) - line.len();
        if line.len() + gap + 1 + text.len() > axis.columns {
            break;
        }
        let _ = write!(line, "{:gap$}|{text}", "");
        at += step;
    }
    line
}

/// What the characters mean that are in the picture.
fn legend(spans: &[Span<'_>], style: Style) -> Vec<String> {
    let mut parts = Vec::new();
    if spans.iter().any(|span| span.granted.is_some()) {
        parts.push(format!("{} held", style.held()));
    }
    if spans.iter().any(Span::has_waited) {
        parts.push(format!("{} waiting", style.waiting()));
    }
    let marks: BTreeMap<char, &str> = spans.iter().filter_map(|span| mark(span.entry)).collect();
    parts.extend(marks.iter().map(|(mark, word)| format!("{mark} {word}")));
    parts
}

/// The parts in as many lines as they need.
fn flow(parts: &[String], between: &str, columns: usize) -> String {
    let mut text = String::new();
    let mut line = String::new();
    for part in parts {
        if line.is_empty() {
            line.clone_from(part);
        } else if width(&line) + width(between) + width(part) > columns {
            let _ = writeln!(text, "{}", format!("{line}{between}").trim_end());
            line.clone_from(part);
        } else {
            line = line + between + part;
        }
    }
    text + &line + "\n"
}
