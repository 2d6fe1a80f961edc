//! What only a PostgreSQL database can do, or must survive.

mod access;
mod crowd;
mod deaths;
mod faults;
mod pooler;
mod server;
