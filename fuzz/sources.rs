// The modules of the program, for a target to include: each is a program of its own.
#[path = "../src/chance.rs"]
mod chance;
#[path = "../src/child.rs"]
mod child;
#[path = "../src/cli.rs"]
mod cli;
#[path = "../src/clock.rs"]
mod clock;
#[path = "../src/cmd/mod.rs"]
mod cmd;
#[path = "../src/duration.rs"]
mod duration;
#[path = "../src/exit.rs"]
mod exit;
#[path = "../src/guard.rs"]
mod guard;
#[path = "../src/history.rs"]
mod history;
#[path = "../src/holder.rs"]
mod holder;
#[path = "../src/line.rs"]
mod line;
#[path = "../src/lock.rs"]
mod lock;
#[path = "../src/obstacle.rs"]
mod obstacle;
#[path = "../src/output/mod.rs"]
mod output;
#[path = "../src/secret.rs"]
mod secret;
#[path = "../src/signals.rs"]
mod signals;
#[path = "../src/standing.rs"]
mod standing;
#[path = "../src/store/mod.rs"]
mod store;
#[path = "../src/timeline.rs"]
mod timeline;
#[path = "../src/wait.rs"]
mod wait;
#[path = "../src/watchdog.rs"]
mod watchdog;
