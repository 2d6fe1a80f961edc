//! `tenure` as its users meet it: the real binary, real signals, real files. A file a behaviour.

mod abuse;
mod cron;
mod deadlock;
mod deploy;
mod exits;
mod fd;
mod files;
mod force;
mod guard;
mod jobs;
mod leases;
mod line;
mod modes;
mod names;
mod pid1;
mod pty;
mod readme;
mod run;
mod signals;
mod status;
mod support;
mod terminal;
mod waiters;
mod waiting;
