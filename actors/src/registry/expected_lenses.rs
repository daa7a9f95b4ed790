//! Changes of lenses that another replica has announced: deliveries wait until they are in the catalog.

use std::time::Duration;

use tokio::sync::watch;

use super::Catalog;

/// The longest wait. A replica that cannot read the store delivers by the lenses that it has.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// A change that is announced and not read. Dropped once the catalog has it, or the store cannot be read.
#[derive(Debug)]
pub(crate) struct ExpectedLenses(Catalog);

/// The number of [`ExpectedLenses`].
#[derive(Debug)]
pub(super) struct ExpectedCount(watch::Sender<usize>);

impl Default for ExpectedCount {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

impl ExpectedCount {
    pub fn is_zero(&self) -> bool {
        *self.0.borrow() == 0
    }
}

impl Catalog {
    /// Another replica has changed lenses. Until the result is dropped, deliveries wait.
    pub(crate) fn expect_lenses(&self) -> ExpectedLenses {
        self.expected().0.send_modify(|count| *count += 1);
        self.update_has_lenses();
        ExpectedLenses(self.clone())
    }

    /// Waits until the announced changes of lenses are in the catalog.
    pub(crate) async fn until_lenses_are_read(&self) {
        if self.expected().is_zero() {
            return;
        }
        let mut count = self.expected().0.subscribe();
        let read = count.wait_for(|count| *count == 0);
        if tokio::time::timeout(WAIT_MAX, read).await.is_err() {
            tracing::warn!(
                "lenses that another replica has changed are not read: messages are delivered by the ones before"
            );
        }
    }
}

impl Drop for ExpectedLenses {
    fn drop(&mut self) {
        self.0.expected().0.send_modify(|count| *count -= 1);
        self.0.update_has_lenses();
    }
}
