//! On what, and with what, it was measured: figures without that say little.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use rustix::system::uname;

use crate::locks::TENURE;
use crate::processes::{output, version};

/// How many wanted a processor in the last minute, on average: what else went on shows in the figures.
pub fn load() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').next().unwrap_or_default().to_owned()
}

/// A sentence, in Markdown; `load` is what it was before.
pub fn describe(load: &str) -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |model| {
        model.trim_start_matches([' ', '\t', ':'])
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let system = uname();
    let place = std::env::temp_dir();
    let file_system = output(
        Command::new("findmnt")
            .args(["-n", "-o", "FSTYPE", "-T"])
            .arg(&place),
    );
    format!(
        "Measured on {}, Linux {}, {model}, {cores} core{}, files on {}, load {load} before; {}, {}.",
        humantime::format_rfc3339_seconds(SystemTime::now()),
        system.release().to_string_lossy(),
        if cores == 1 { "" } else { "s" },
        file_system
            .as_deref()
            .map_or("an unknown file system", str::trim),
        version(TENURE, "--version").unwrap_or_default(),
        version("flock", "--version").unwrap_or_default(),
    )
}
