//! The rooms of the program. `main` is the way in; tests, benches and fuzz targets use what they need of them. Nothing here is an
//! interface for other programs: that is the command line.

pub mod chance;
pub mod child;
pub mod cli;
pub mod clock;
pub mod cmd;
pub mod duration;
pub mod exit;
pub mod guard;
pub mod history;
pub mod holder;
pub mod lock;
pub mod output;
pub mod processes;
pub mod rules;
pub mod secret;
pub mod signals;
pub mod store;
pub mod timeline;
pub mod wait;
pub mod watchdog;
