//! `tenure log`: what happened, the newest last.

use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::Result;

use super::sorted;
use crate::cli::{Common, Log};
use crate::duration::millis;
use crate::exit::Exit;
use crate::history::{self, Happening, Told};
use crate::lock::Entry;
use crate::output::{self, screen};
use crate::store::{self, Purpose, Query, Store};
use crate::timeline::{self, Style};
use crate::wait;

/// An entry tells when something happened that may only have been found later, as many at once as a sweep finds: so
/// many more are read than asked for, that what is shown is in order.
const FOUND_LATER: usize = 64;

/// How many entries a picture shows that fits on a screen.
const DRAWN: usize = 20;

/// How much is gathered before it is written.
const CHUNK: usize = 64 * 1024;

/// Time zones begin and end their summers at quarters of an hour, in milliseconds.
const QUARTER: i64 = 15 * 60 * 1000;

/// How soon what happens is shown by `--follow`: at once, for a person.
const LOOK: Duration = Duration::from_millis(200);

/// And how soon what changes nothing in the store: a death.
const LOOK_ANYWAY: Duration = Duration::from_secs(1);

/// # Errors
/// The store cannot be used, or the answer not be written.
pub fn run(args: &Log, common: &Common) -> Result<Exit> {
    let store = loop {
        match store::open(common.db.as_deref(), Purpose::Look)? {
            Some(store) => break store,
            None if args.follow => {
                if !wait::pause_for_reader(LOOK_ANYWAY) {
                    return Ok(Exit::Done);
                }
            }
            None => {
                if !args.json {
                    say_empty(common, &store::location_of(common.db.as_deref())?);
                }
                return Ok(Exit::Done);
            }
        }
    };
    let mut show = Show {
        store,
        json: args.json,
        offsets: HashMap::new(),
    };
    if args.timeline {
        draw(args, common, &mut show)?;
        return Ok(Exit::Done);
    }
    let mut told = Told::default();
    let last = match list(args, common, &mut show, &mut told)? {
        Some(last) if args.follow => last,
        _ => return Ok(Exit::Done),
    };
    follow(args, &mut show, &mut told, last)?;
    Ok(Exit::Done)
}

/// What is there; up to which entry, unless nobody reads it any more.
fn list(args: &Log, common: &Common, show: &mut Show, told: &mut Told) -> Result<Option<i64>> {
    let query = Query {
        names: sorted(&args.names),
        since: since(args, now()),
        most: args.lines.map(|lines| lines.saturating_add(FOUND_LATER)),
        after: None,
    };
    let history = show.store.history(&query)?;
    let mut news = told.news(history.written.iter().chain(&history.present));
    news.retain(|happening| query.since.is_none_or(|since| happening.at >= since));
    if let Some(lines) = args.lines {
        news.drain(..news.len().saturating_sub(lines));
    }
    if news.is_empty() && !args.json && !args.follow {
        say_empty(common, &show.store.location());
    }
    Ok(show.all(&news)?.then_some(history.last))
}

fn now() -> i64 {
    millis(UNIX_EPOCH.elapsed().unwrap_or_default())
}

fn since(args: &Log, now: i64) -> Option<i64> {
    args.since.map(|since| now.saturating_sub(millis(since)))
}

/// The picture.
fn draw(args: &Log, common: &Common, show: &mut Show) -> Result<()> {
    let now = now();
    let query = Query {
        names: sorted(&args.names),
        since: since(args, now),
        most: args.lines.or(args.since.is_none().then_some(DRAWN)),
        after: None,
    };
    let history = show.store.history(&query)?;
    let entries: Vec<&Entry> = history.written.iter().chain(&history.present).collect();
    let style = Style {
        columns: screen::room(&io::stdout()).unwrap_or(screen::USUAL_COLUMNS),
        ascii: knows_only_ascii(),
    };
    let span = (query.since, now);
    let picture = timeline::draw(&entries, &query.names, span, style, &mut |at| {
        show.offset(at)
    });
    if let Some(picture) = picture {
        return output::print(&picture);
    }
    say_empty(common, &show.store.location());
    Ok(())
}

/// Whether the terminal or the locale has nothing but ASCII.
fn knows_only_ascii() -> bool {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(variable);
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    let is_dumb = variable("TERM").is_some_and(|term| term == "dumb");
    is_dumb || !(locale.contains("utf-8") || locale.contains("utf8"))
}

/// Shows what comes after an entry, until nobody reads it any more.
fn follow(args: &Log, show: &mut Show, told: &mut Told, mut last: i64) -> Result<()> {
    let mut looked = Instant::now();
    while wait::pause_for_reader(LOOK) {
        // A death changes nothing in the store.
        if !show.store.has_changed()? && looked.elapsed() < LOOK_ANYWAY {
            continue;
        }
        looked = Instant::now();
        show.store.refresh()?;
        let history = show.store.history(&Query {
            names: sorted(&args.names),
            after: Some(last),
            ..Query::default()
        })?;
        last = history.last;
        let news = told.news(history.written.iter().chain(&history.present));
        if !show.all(&news)? {
            break;
        }
    }
    Ok(())
}

/// Nothing is what stdout gets, whatever counts its lines.
fn say_empty(common: &Common, location: &str) {
    if !common.quiet {
        output::say(&format!(
            "there is nothing to show in the log of {location}"
        ));
    }
}

/// How events are shown.
struct Show {
    store: Box<dyn Store>,
    json: bool,
    /// What local time is ahead of UTC, by quarters of an hour.
    offsets: HashMap<i64, i64>,
}

impl Show {
    /// False when nobody reads them any more.
    fn all(&mut self, news: &[Happening<'_>]) -> Result<bool> {
        let mut text = String::new();
        for (at, happening) in news.iter().enumerate() {
            if self.json {
                text += &output::json_line(&history::as_json(happening));
            } else {
                text += &history::line(happening, self.offset(happening.at));
            }
            let is_last = at + 1 == news.len();
            if is_last || text.len() >= CHUNK {
                if !output::print_to_reader(&text)? {
                    return Ok(false);
                }
                text.clear();
            }
        }
        Ok(true)
    }

    fn offset(&mut self, at: i64) -> i64 {
        *self
            .offsets
            .entry(at.div_euclid(QUARTER))
            .or_insert_with(|| store::local_offset(at))
    }
}
