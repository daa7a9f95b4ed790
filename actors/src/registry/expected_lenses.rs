//! Counts the changes of lenses that another replica has announced and this one has not read.

use std::time::Duration;

use tokio::sync::watch;

/// The longest wait. A replica that cannot read the store delivers nothing that lenses may concern.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// The number of announced changes that are not read.
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

    /// A change is announced.
    pub fn add(&self) {
        self.0.send_modify(|count| *count += 1);
    }

    /// A change is read, or the store cannot be read.
    pub fn remove(&self) {
        self.0.send_modify(|count| *count -= 1);
    }

    /// Waits until all are read. False if that takes too long.
    pub async fn until_zero(&self) -> bool {
        if self.is_zero() {
            return true;
        }
        let mut count = self.0.subscribe();
        let read = count.wait_for(|count| *count == 0);
        tokio::time::timeout(WAIT_MAX, read).await.is_ok()
    }
}
