//! `tenure` as its users meet it: the real binary, real signals, real files. A file a behaviour.

mod cron;
mod deploy;
mod exits;
mod files;
mod force;
mod guard;
mod jobs;
mod leases;
mod names;
mod pid1;
mod pty;
mod queue;
mod readme;
mod run;
mod signals;
mod support;
mod terminal;
