//! Stub.
#[path = "/work/main/tests/it/cron.rs"]
mod cron;
#[path = "/work/main/tests/it/deploy.rs"]
mod deploy;
#[path = "/work/main/tests/it/jobs.rs"]
mod jobs;
#[path = "/work/main/tests/it/pid1.rs"]
mod pid1;
#[path = "/work/main/tests/it/pty.rs"]
mod pty;
#[path = "/work/main/tests/it/run.rs"]
mod run;
#[path = "/work/main/tests/it/signals.rs"]
mod signals;
#[path = "/work/main/tests/it/support.rs"]
mod support;
#[path = "/work/main/tests/it/terminal.rs"]
mod terminal;
