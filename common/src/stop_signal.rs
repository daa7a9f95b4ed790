//! Waits for the signals that end a process.

use std::io;

use tokio::signal::unix::{SignalKind, signal};

/// Returns when the process is asked to stop: SIGTERM or SIGINT.
///
/// # Errors
/// The signals cannot be received.
pub async fn stop_signal() -> io::Result<()> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
