//! Boot time, wall time and the boot's identity; and whether the time zone can be asked for.
//!
//! Both clocks are read through the C library, where shims that fake time can reach them.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::ops::{Add, Sub};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::duration::millis;
use crate::lock::Expiry;

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const OFFSETS: &str = "/proc/self/timens_offsets";

/// Where the C library looks for time zones that are named, unless TZDIR says otherwise; and for the machine's own.
const ZONES: &str = "/usr/share/zoneinfo";
const OWN_ZONE: &str = "/etc/localtime";

/// More than any time zone has: those that there are have some thousands of bytes.
const MOST_OF_A_ZONE: u64 = 1 << 20;

/// Whether the C library can read the time zone and come back. It opens whatever file TZ names, and would wait for ever for who
/// writes to a FIFO or types at a terminal.
pub fn zone_is_readable() -> bool {
    let variable = |name| env::var_os(name).filter(|value| !value.is_empty());
    let zone = match env::var_os("TZ") {
        Some(zone) => zone_file(&zone, variable("TZDIR").as_deref()),
        None => PathBuf::from(OWN_ZONE),
    };
    // What is not there is no file's name but a rule, such as CET-1CEST.
    fs::metadata(zone).map_or(true, |file| file.is_file() && file.len() <= MOST_OF_A_ZONE)
}

/// The file that the C library would open. A colon before it means nothing.
fn zone_file(zone: &OsStr, directory: Option<&OsStr>) -> PathBuf {
    let zone = zone.as_bytes();
    let zone = zone.strip_prefix(b":").unwrap_or(zone);
    let zone = if zone.is_empty() { b"Universal" } else { zone };
    Path::new(directory.unwrap_or(OsStr::new(ZONES))).join(OsStr::from_bytes(zone))
}

/// A moment by this process's boot clock, which goes on while the machine is suspended, as a lease's time does that others
/// count. Only for comparing within the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

impl Moment {
    pub fn now() -> Self {
        Self(read(ClockId::Boottime))
    }

    /// Milliseconds of this process's boot clock.
    pub fn as_millis(self) -> i64 {
        self.0
    }

    /// How long until then; zero when it has passed.
    pub fn remaining(self) -> Duration {
        let left = self.0.saturating_sub(Self::now().0);
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(millis(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(millis(duration)))
    }
}

/// Where the clocks stood. Both in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since this boot, suspends included; the same in every time namespace.
    pub boot: i64,
    /// Since 1970, by a clock that people set.
    pub wall: i64,
}

/// This machine's clocks.
#[derive(Clone, Debug)]
pub struct Clock {
    boot_id: Option<String>,
    /// What this time namespace adds to the boot clock, in milliseconds.
    offset: i64,
}

impl Clock {
    /// The clocks of the running boot.
    pub fn of_this_boot() -> Self {
        let boot_id = fs::read_to_string(BOOT_ID)
            .ok()
            .map(|id| id.trim().to_owned())
            .filter(|id| !id.is_empty());
        Self {
            boot_id,
            offset: boottime_offset(&fs::read_to_string(OFFSETS).unwrap_or_default()),
        }
    }

    /// The wall clock alone, for a store that several machines share.
    pub fn wall_only() -> Self {
        Self {
            boot_id: None,
            offset: 0,
        }
    }

    /// Which boot the boot clock belongs to; none where that cannot be told, and then only the wall clock counts.
    pub fn boot_id(&self) -> Option<&str> {
        self.boot_id.as_deref()
    }

    pub fn now(&self) -> Now {
        Now {
            boot: read(ClockId::Boottime) - self.offset,
            wall: read(ClockId::Realtime),
        }
    }

    /// How many milliseconds an expiry has to go: by the boot clock while its boot lasts, by the wall clock otherwise.
    pub fn remaining(&self, expiry: &Expiry, now: Now) -> i64 {
        match expiry.boot {
            Some(boot) if self.boot_id.is_some() && self.boot_id == expiry.boot_id => {
                boot.saturating_sub(now.boot)
            }
            _ => expiry.wall.saturating_sub(now.wall),
        }
    }

    /// The moment `millis` from now, on both clocks.
    pub fn after(&self, now: Now, millis: i64) -> Expiry {
        Expiry {
            boot_id: self.boot_id.clone(),
            boot: self
                .boot_id
                .as_ref()
                .map(|_| now.boot.saturating_add(millis)),
            wall: now.wall.saturating_add(millis),
        }
    }
}

fn read(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec
        .saturating_mul(1000)
        .saturating_add(time.tv_nsec / 1_000_000)
}

/// From lines such as `boottime  86400  500000000`, in milliseconds; a kernel without the file has no offset.
fn boottime_offset(text: &str) -> i64 {
    let mut fields = text
        .lines()
        .find_map(|line| line.strip_prefix("boottime"))
        .unwrap_or_default()
        .split_whitespace();
    let mut number = || {
        fields
            .next()
            .and_then(|field| field.parse::<i64>().ok())
            .unwrap_or(0)
    };
    let (seconds, nanos) = (number(), number());
    seconds
        .saturating_mul(1000)
        .saturating_add(nanos / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_of_a_time_namespace_is_read_in_milliseconds() {
        assert_eq!(
            boottime_offset("monotonic           0         0\nboottime       86400 500000000\n"),
            86_400_500
        );
        assert_eq!(boottime_offset("boottime  -5 0"), -5000);
        assert_eq!(boottime_offset(""), 0);
    }

    #[test]
    fn a_zones_file_is_where_the_c_library_has_it() {
        let of = |zone: &str, directory: Option<&str>| {
            zone_file(zone.as_ref(), directory.map(OsStr::new))
        };
        let cases = [
            ("Europe/Rome", None, "/usr/share/zoneinfo/Europe/Rome"),
            (":UTC", None, "/usr/share/zoneinfo/UTC"),
            (":/x/y", Some("/z"), "/x/y"),
            ("../y", Some("/z"), "/z/../y"),
            ("", Some("/z"), "/z/Universal"),
        ];
        for (zone, directory, file) in cases {
            assert_eq!(of(zone, directory), Path::new(file), "{zone}");
        }
    }

    #[test]
    fn the_boot_clock_counts_only_within_its_boot() {
        let clock = Clock {
            boot_id: Some("a".into()),
            offset: 0,
        };
        let now = Now {
            boot: 1000,
            wall: 50_000,
        };
        let mut expiry = clock.after(now, 500);
        assert_eq!(
            clock.remaining(
                &expiry,
                Now {
                    boot: 1200,
                    wall: 999_999
                }
            ),
            300
        );
        expiry.boot_id = Some("b".into());
        assert_eq!(
            clock.remaining(
                &expiry,
                Now {
                    boot: 1200,
                    wall: 50_100
                }
            ),
            400
        );
    }

    #[test]
    fn without_a_boot_the_wall_clock_counts() {
        let clock = Clock::wall_only();
        let expiry = clock.after(
            Now {
                boot: 1,
                wall: 1000,
            },
            500,
        );
        assert_eq!(expiry.boot, None);
        assert_eq!(
            clock.remaining(
                &expiry,
                Now {
                    boot: 1,
                    wall: 1600
                }
            ),
            -100
        );
    }
}
