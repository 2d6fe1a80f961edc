//! What must not go wrong when everything else does: power failures at every write, and system calls that fail.
//!
//! A program of its own, so that it runs alone: it is about tenure, not about a machine that is busy. As it is called by
//! `cargo test`, it takes a sample of the places and of the ways in which a disk loses writes. `TENURE_FAULTS=all` takes
//! all of them, and `--nocapture` shows how many that were:
//!
//! ```sh
//! TENURE_FAULTS=all cargo test --locked --test faults -- --nocapture
//! ```

mod calls;
mod disk;
mod lost;
mod power;
mod strace;
#[path = "../it/support.rs"]
#[allow(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;

/// Whether all that can be tried is tried, or a sample.
fn tries_all() -> bool {
    std::env::var_os("TENURE_FAULTS").is_some_and(|value| value == "all")
}

/// Numbers that look like chance and are the same each time: splitmix64.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Less than `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit
    }
}
