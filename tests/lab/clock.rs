//! A wall clock that is wrong.

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use crate::support::{Call, Sandbox};

static SHIM: LazyLock<PathBuf> = LazyLock::new(|| {
    let shim = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lab-clock.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clock.c");
    let mut cc = Command::new("cc");
    let cc = cc.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(source);
    assert!(cc.status().is_ok_and(|status| status.success()));
    shim
});

/// `tenure`, whose wall clock is off by so many seconds.
pub fn off_by(sandbox: &Sandbox, seconds: i64) -> Call<'_> {
    sandbox
        .tenure()
        .env("LD_PRELOAD", &*SHIM)
        .env("STEP", seconds.to_string())
}
