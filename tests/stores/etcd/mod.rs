//! What only etcd can do, or must survive.

mod access;
mod cluster;
mod crowd;
mod faults;
mod handoff;
mod lock;
mod log;
mod server;
