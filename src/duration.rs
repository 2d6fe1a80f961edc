//! Durations as people write and read them: `30`, `.5`, `1h30m` in; `3m 20s` out.

use std::time::Duration;

/// The longest duration taken: 1,000 years as humantime counts them, of 365.25 days. It keeps every sum of a clock and a duration
/// far from overflow.
const LONGEST: Duration = Duration::from_hours(1000 * 365 * 24 + 1000 * 6);

/// The shortest time to live: the store counts in milliseconds.
const SHORTEST_TTL: Duration = Duration::from_millis(1);

/// How long a command stands in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// One try.
    None,
    AtMost(Duration),
    Forever,
}

/// A bare decimal number of seconds, as flock(1) takes it, or humantime's form.
///
/// # Errors
/// A sentence for the user, when the text is neither, is negative, or is longer than 1,000 years.
pub fn parse(text: &str) -> Result<Duration, String> {
    let duration = if text.starts_with(|c: char| c.is_ascii_digit() || c == '.')
        && !text.ends_with(char::is_alphabetic)
    {
        seconds(text).ok_or_else(|| unreadable(text))?
    } else {
        match humantime::parse_duration(text) {
            Ok(duration) => duration,
            // With a point it may be too small.
            Err(humantime::DurationError::NumberOverflow) if !text.contains('.') => Duration::MAX,
            Err(_) => return Err(unreadable(text)),
        }
    };
    if duration > LONGEST {
        let seconds = LONGEST.as_secs();
        return Err(format!(
            "a duration is at most 1000y, which is {seconds} seconds"
        ));
    }
    Ok(duration)
}

fn unreadable(text: &str) -> String {
    if text.is_empty() {
        return "a duration cannot be empty".into();
    }
    format!("{text:?} is not a duration: write seconds (30, .5) or units (10m, 1h30m, 500ms)")
}

/// `digits`, `digits.digits`, `.digits` or `digits.`: no sign, no exponent, no infinity.
fn seconds(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && part.is_empty()) || !all_digits(whole) || !all_digits(part) {
        return None;
    }
    let whole = if whole.is_empty() {
        0
    } else {
        whole.parse().unwrap_or(u64::MAX)
    };
    // Beyond nine digits there is nothing that a clock could tell.
    let nanos = format!("{part:0<9}")[..9].parse().ok()?;
    Some(Duration::new(whole, nanos))
}

/// A time to live: as [`parse`], and at least a millisecond.
///
/// # Errors
/// A sentence for the user.
pub fn parse_ttl(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        zero if zero < SHORTEST_TTL => Err("a time to live is at least 1ms".into()),
        ttl => Ok(ttl),
    }
}

/// A limit that must leave CMD some time: as [`parse`], and not zero.
///
/// # Errors
/// A sentence for the user.
pub fn parse_positive(text: &str) -> Result<Duration, String> {
    match parse(text)? {
        Duration::ZERO => Err("the duration must be more than zero".into()),
        duration => Ok(duration),
    }
}

/// `--wait`'s value: as [`parse`], or `forever`. Zero is one try.
///
/// # Errors
/// A sentence for the user.
pub fn parse_patience(text: &str) -> Result<Patience, String> {
    if text == "forever" {
        return Ok(Patience::Forever);
    }
    match parse(text) {
        Ok(Duration::ZERO) => Ok(Patience::None),
        Ok(duration) => Ok(Patience::AtMost(duration)),
        Err(why) if why.contains("not a duration") => Err(format!("{why}, or forever")),
        Err(why) => Err(why),
    }
}

/// For people: the two largest units, such as `3m 20s`; milliseconds only below ten seconds.
pub fn show(duration: Duration) -> String {
    let rounded = if duration < Duration::from_secs(10) {
        Duration::from_millis(millis(duration).unsigned_abs())
    } else if duration < Duration::from_hours(1) {
        Duration::from_secs(duration.as_secs())
    } else if duration < Duration::from_hours(24) {
        Duration::from_secs(duration.as_secs() / 60 * 60)
    } else {
        Duration::from_secs(duration.as_secs() / 3600 * 3600)
    };
    let text = humantime::format_duration(rounded).to_string();
    // Months and years have no whole number of days, and smaller units follow.
    let units: Vec<&str> = text.split(' ').take(2).collect();
    units.join(" ")
}

/// Whole milliseconds, the store's unit. Every duration that [`parse`] lets in fits.
pub fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// The reverse of [`millis`]; what is below zero is zero.
pub fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_as_flock_reads_them() {
        for (text, millis) in [
            ("30", 30_000),
            (".5", 500),
            ("1.25", 1250),
            ("2.", 2000),
            ("0", 0),
            ("007", 7000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn units_are_read_as_humantime_reads_them() {
        for (text, millis) in [
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1h 5s", 3_605_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        let bad = [
            "",
            " ",
            "-1",
            "+1",
            "abc",
            "1e999",
            "1e3",
            "inf",
            "nan",
            ".",
            "1.2.3",
            "5 ",
            "0x10",
            "١",
            "5x",
            "99999999999999999999",
            "1000000y",
            "0.5ns",
        ];
        for text in bad {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_longest_duration_is_the_same_in_every_form() {
        for text in ["1000y", "365250d", "31557600000", "8766000h"] {
            assert_eq!(parse(text), Ok(LONGEST), "{text}");
        }
        for text in [
            "1000y 1ns",
            "365250d 1s",
            "31557600000.000000001",
            "31557600001",
            "1001y",
            "99999999999999999999",
            "99999999999999999999y",
            "9999999999999999999y",
        ] {
            let why = "a duration is at most 1000y, which is 31557600000 seconds";
            assert_eq!(parse(text), Err(why.into()), "{text}");
        }
    }

    #[test]
    fn a_time_to_live_is_never_zero() {
        for text in ["0", "0s", ".0001", "0.000", "1us"] {
            assert!(parse_ttl(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_ttl("1ms"), Ok(Duration::from_millis(1)));
    }

    #[test]
    fn a_wait_of_zero_is_one_try() {
        assert_eq!(parse_patience("0"), Ok(Patience::None));
        assert_eq!(parse_patience("0s"), Ok(Patience::None));
        assert_eq!(parse_patience("forever"), Ok(Patience::Forever));
        assert_eq!(
            parse_patience("2s"),
            Ok(Patience::AtMost(Duration::from_secs(2)))
        );
        assert!(parse_patience("Forever").is_err());
    }

    #[test]
    fn durations_are_shown_in_two_units_at_most() {
        for (millis, text) in [
            (0, "0s"),
            (1_250, "1s 250ms"),
            (200_900, "3m 20s"),
            (7_262_000, "2h 1m"),
            (90_061_000, "1day 1h"),
            (7_000_000_000, "2months 20days"),
        ] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
