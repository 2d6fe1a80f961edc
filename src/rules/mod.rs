//! What is decided about locks, once for all stores and for the model. Pure: it knows no store, no clock and no kernel, and is told
//! what they say.
//!
//! `line` says which requests conflict, `queue` walks along a line, `standing` says when a lease is over, `obstacle` what a
//! waiter watches.

pub mod line;
pub mod obstacle;
pub mod queue;
pub mod standing;
