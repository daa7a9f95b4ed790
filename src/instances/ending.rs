//! How an instance is asked to end.

use std::cell::Cell;

use tokio::sync::Notify;

/// Whether the instance is to be ended.
#[derive(Default)]
pub struct Ending {
    is_asked: Cell<bool>,
    wake: Notify,
}

impl Ending {
    /// Asks for the end.
    pub fn ask(&self) {
        self.is_asked.set(true);
        self.wake.notify_one();
    }

    /// Whether the end was asked for.
    pub fn is_asked(&self) -> bool {
        self.is_asked.get()
    }

    /// Waits until the end is asked for.
    pub async fn asked(&self) {
        while !self.is_asked.get() {
            self.wake.notified().await;
        }
    }
}
