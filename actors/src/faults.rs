//! Faults that a test injects into a broker process from outside.
//!
//! Only builds with the feature `faults` have them: elsewhere the functions do nothing.

/// Goes no further when the environment variable `FAULT_STALL_AT` names this point, and says so in the log, so that a
/// test can kill the process exactly here.
#[cfg(feature = "faults")]
pub async fn point(name: &str) {
    static STALL_AT: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    let stall_at = STALL_AT.get_or_init(|| std::env::var("FAULT_STALL_AT").ok());
    if stall_at.as_deref() == Some(name) {
        tracing::warn!("a fault stalls {name}");
        std::future::pending::<()>().await;
    }
}

/// Does nothing.
#[cfg(not(feature = "faults"))]
#[allow(clippy::unused_async, reason = "it stalls in builds with the feature `faults`")]
pub async fn point(_: &str) {}
