//! Random numbers of the operating system. It may have none to give, which is an error here and no panic, as it would be
//! in the generators that keep a state for each thread.

use std::io;

use rand::TryRng;
use rand::rngs::SysRng;

/// So many random bytes.
///
/// # Errors
/// When the operating system has none to give.
pub fn bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(io::Error::other)?;
    Ok(bytes)
}
