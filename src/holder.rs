//! Who asks for locks, and how people are shown it. Nothing is ever decided by any of this.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use nix::unistd::{Uid, User};
use rustix::process::{Pid, getpid, getppid, getuid};
use rustix::system::uname;

use crate::lock::{Holder, Process};
use crate::secret;

/// The longest command line kept, in bytes: enough to know a command by, and a row stays on its page.
const COMMAND_BYTES: usize = 200;

/// The longest note and directory kept, in bytes.
const TEXT_BYTES: usize = 1000;

/// This process, which holds locks while `command` runs.
pub fn of_command(command: &[OsString], note: Option<&str>) -> Holder {
    describe(
        getpid(),
        command_line(command.iter().map(OsString::as_os_str)),
        note,
    )
}

/// The caller of this process, usually a script: it is the holder of what `acquire` takes, and it lives on.
pub fn of_caller(note: Option<&str>) -> Holder {
    let caller = getppid();
    let command = caller.map_or_else(String::new, |pid| command_of(pid.as_raw_pid()));
    describe(caller.unwrap_or_else(getpid), command, note)
}

/// The command line of a process; empty where it has none, or none that can be seen.
fn command_of(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if words.is_empty() {
        return String::new();
    }
    let words = words
        .strip_suffix(b"\0")
        .unwrap_or(&words)
        .split(|byte| *byte == 0)
        .map(OsStr::from_bytes);
    command_line(words)
}

/// What can be seen of a process.
pub fn process(pid: i32) -> Process {
    let owner = fs::metadata(format!("/proc/{pid}")).map(|process| process.uid());
    Process {
        pid,
        other_user: owner.ok().filter(|uid| *uid != getuid().as_raw()),
        command: command_of(pid),
    }
}

/// `pid 812 (sleep 30)`, or of another user `pid 812 of bob (sleep 30)`.
pub fn show_process(process: &Process) -> String {
    let mut text = format!("pid {}", process.pid);
    if let Some(uid) = process.other_user {
        let _ = write!(text, " of {}", user_name(uid));
    }
    if !process.command.is_empty() {
        let _ = write!(text, " ({})", process.command);
    }
    text
}

/// As a shell takes it for one word, for a command that people can copy.
pub fn as_word(text: &str) -> String {
    command_line([OsStr::new(text)].into_iter())
}

fn describe(pid: Pid, command: String, note: Option<&str>) -> Holder {
    let directory = std::env::current_dir().unwrap_or_default();
    Holder {
        uid: getuid().as_raw(),
        host: uname().nodename().to_string_lossy().into_owned(),
        pid: pid.as_raw_nonzero().get().unsigned_abs(),
        command,
        directory: bounded(&directory.to_string_lossy(), TEXT_BYTES),
        note: note.map(|note| bounded(note, TEXT_BYTES)),
        url: run_address(|name| std::env::var_os(name)),
    }
}

/// Where the CI service under which this runs shows the run to people, by the variables that it documents: GitHub
/// Actions, GitLab CI, Buildkite, Jenkins.
fn run_address(variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let text = |name| {
        let value = variable(name)?.to_string_lossy().into_owned();
        Some(value).filter(|value| !value.is_empty())
    };
    let github = || {
        text("GITHUB_ACTIONS").filter(|value| value == "true")?;
        let (server, repository) = (text("GITHUB_SERVER_URL")?, text("GITHUB_REPOSITORY")?);
        let run = text("GITHUB_RUN_ID")?;
        Some(format!("{server}/{repository}/actions/runs/{run}"))
    };
    let gitlab = || text("GITLAB_CI").and_then(|_| text("CI_JOB_URL"));
    let buildkite = || {
        text("BUILDKITE")?;
        let build = text("BUILDKITE_BUILD_URL")?;
        Some(text("BUILDKITE_JOB_ID").map_or(build.clone(), |job| format!("{build}#{job}")))
    };
    let jenkins = || text("JENKINS_URL").and_then(|_| text("BUILD_URL"));
    let address = github()
        .or_else(gitlab)
        .or_else(buildkite)
        .or_else(jenkins)?;
    Some(bounded(&secret::hide_in_urls(&address), TEXT_BYTES))
}

/// `name@host (pid N, command)`.
pub fn show(holder: &Holder) -> String {
    if holder.is_unknown() {
        return holder.command.clone();
    }
    format!(
        "{} (pid {}, {})",
        user_at_host(holder),
        holder.pid,
        holder.command
    )
}

/// `name@host`.
pub fn user_at_host(holder: &Holder) -> String {
    if holder.is_unknown() {
        return "unknown".into();
    }
    format!("{}@{}", user_name(holder.uid), holder.host)
}

/// Whether the process of a `run` on this machine is stopped, as far as a look at it tells: another process may have its
/// number by now.
pub fn is_stopped(holder: &Holder) -> bool {
    let of = |file| fs::read_to_string(format!("/proc/{}/{file}", holder.pid)).ok();
    let is_here = holder.host == uname().nodename().to_string_lossy();
    let is_tenure = || {
        of("comm")
            .is_some_and(|name| fs::read_to_string("/proc/self/comm").is_ok_and(|own| own == name))
    };
    // After the name in parentheses.
    let state = || of("stat")?.rsplit(") ").next()?.chars().next();
    is_here && is_tenure() && state().is_some_and(|state| matches!(state, 'T' | 't'))
}

/// The user's name in the password database, or the number where there is none.
pub fn user_name(uid: u32) -> String {
    // The database may be on some server, and a list of leases has few users.
    static KNOWN: Mutex<BTreeMap<u32, String>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let name = known.entry(uid).or_insert_with(|| {
        let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
        user.map_or_else(|| uid.to_string(), |user| user.name)
    });
    name.clone()
}

/// The home directory that the password database gives to the user of this process.
pub fn home() -> Option<PathBuf> {
    User::from_uid(Uid::effective())
        .ok()
        .flatten()
        .map(|user| user.dir)
}

/// Joined as a shell would need it, for people to read, without what is known to be secret; never executed.
fn command_line<'a>(words: impl Iterator<Item = &'a OsStr>) -> String {
    let mut line = String::new();
    for word in words {
        if !line.is_empty() {
            line.push(' ');
        }
        let word = word.to_string_lossy();
        let is_plain = !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_alphanumeric() || "%+,-./:=@_".contains(c));
        // Before anything is cut off: a part of a secret has no form by which it would be known.
        let word = secret::hide(&word);
        if is_plain {
            line.push_str(&word);
        } else {
            line.push('\'');
            line.push_str(&word.replace('\'', r"'\''"));
            line.push('\'');
        }
        if line.len() > COMMAND_BYTES {
            break;
        }
    }
    bounded(&line, COMMAND_BYTES)
}

/// At most `bytes` of the text, cut between characters, with an ellipsis where it was cut.
fn bounded(text: &str, bytes: usize) -> String {
    if text.len() <= bytes {
        return text.to_owned();
    }
    format!(
        "{}…",
        &text[..text.floor_char_boundary(bytes - '…'.len_utf8())]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_quoted_as_a_shell_needs_it() {
        let words = ["sh", "-c", "echo 'x y'; read z", "", "./a-b_c.d"].map(OsStr::new);
        assert_eq!(
            command_line(words.into_iter()),
            r"sh -c 'echo '\''x y'\''; read z' '' ./a-b_c.d"
        );
    }

    #[test]
    fn the_address_of_a_run_is_told_by_its_service() {
        let address = |variables: &[(&str, &str)]| {
            run_address(|name| {
                let known = variables.iter().find(|(known, _)| *known == name);
                known.map(|(_, value)| value.into())
            })
        };
        let github = [
            ("GITHUB_ACTIONS", "true"),
            ("GITHUB_SERVER_URL", "https://github.com"),
            ("GITHUB_REPOSITORY", "ann/site"),
            ("GITHUB_RUN_ID", "42"),
        ];
        assert_eq!(
            address(&github).as_deref(),
            Some("https://github.com/ann/site/actions/runs/42")
        );
        assert_eq!(address(&github[1..]), None, "not under Actions");
        assert_eq!(address(&github[..3]), None, "no run");
        let gitlab = [("GITLAB_CI", "true"), ("CI_JOB_URL", "https://gl/jobs/7")];
        assert_eq!(address(&gitlab).as_deref(), Some("https://gl/jobs/7"));
        let buildkite = [
            ("BUILDKITE", "true"),
            ("BUILDKITE_BUILD_URL", "https://bk/builds/3"),
            ("BUILDKITE_JOB_ID", "a-b"),
        ];
        assert_eq!(
            address(&buildkite).as_deref(),
            Some("https://bk/builds/3#a-b")
        );
        let jenkins = [
            ("JENKINS_URL", "https://ci/"),
            ("BUILD_URL", "https://ci/job/x/9/"),
        ];
        assert_eq!(address(&jenkins).as_deref(), Some("https://ci/job/x/9/"));
        assert_eq!(address(&jenkins[1..]), None);
        let secret = [("GITLAB_CI", "true"), ("CI_JOB_URL", "https://a:b@gl/7")];
        assert_eq!(address(&secret).as_deref(), Some("https://***@gl/7"));
    }

    #[test]
    fn no_part_of_a_secret_is_left_where_a_command_line_is_cut() {
        let token = "0123456789abcdef0123456789abcdef";
        for before in COMMAND_BYTES - 40..COMMAND_BYTES + 2 {
            let script = format!("{:x<before$} {token} postgres://ann:pw@db", "");
            let line = command_line(["sh", "-c", &script].map(OsStr::new).into_iter());
            assert!(!line.contains("0123") && !line.contains("ann"), "{line}");
        }
    }

    #[test]
    fn a_long_command_line_is_cut_between_characters() {
        let long = "ä".repeat(500);
        let cut = command_line([OsStr::new(&long)].into_iter());
        assert!(cut.len() <= COMMAND_BYTES && cut.ends_with('…'), "{cut}");
    }
}
