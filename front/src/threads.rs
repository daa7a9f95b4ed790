//! The threads of the front.

use std::{panic, process, thread};

/// Bytes of the stack of a thread of the front.
pub const STACK_LEN: usize = 512 * 1024;

/// Starts a thread. If it panics, the process ends, because the client would wait for ever.
///
/// # Errors
/// The system refuses a thread.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    let guarded = || {
        if panic::catch_unwind(panic::AssertUnwindSafe(run)).is_err() {
            process::exit(i32::from(common::exit::FAILED));
        }
    };
    thread::Builder::new()
        .name(name.to_owned())
        .stack_size(STACK_LEN)
        .spawn(guarded)?;
    Ok(())
}
