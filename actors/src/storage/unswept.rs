//! Whether a store was used since its last sweep.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Whether a store has carried out operations that may have added what ends soon and that no sweep has seen. The actor of
/// the project waits for it; a project that is not used is swept when its next deadline comes.
#[derive(Debug, Default)]
pub struct Unswept {
    is_used: AtomicBool,
    used: Notify,
}

impl Unswept {
    /// Notes an operation. Costs a load in a store that is used.
    pub fn mark(&self) {
        if !self.is_used.load(Ordering::Relaxed) && !self.is_used.swap(true, Ordering::SeqCst) {
            self.used.notify_one();
        }
    }

    /// A sweep begins, which sees all earlier operations.
    pub fn clear(&self) {
        self.is_used.store(false, Ordering::SeqCst);
    }

    /// Waits until an operation is noted that came after the last [`Self::clear`].
    pub async fn wait(&self) {
        while !self.is_used.load(Ordering::SeqCst) {
            self.used.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn a_store_is_unswept_from_an_operation_to_the_next_sweep() {
        let unswept = Unswept::default();
        let is_used = || unswept.wait().now_or_never().is_some();
        assert!(!is_used());
        unswept.mark();
        assert!(is_used() && is_used());
        unswept.clear();
        assert!(!is_used(), "what woke an earlier wait does not end this one");
        unswept.mark();
        unswept.mark();
        assert!(is_used());
    }
}
