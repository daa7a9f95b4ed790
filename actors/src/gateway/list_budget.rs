//! Bounds what the added backends of one project offer together: the routing table, the storage and every reader of a list have it
//! in memory, and its size is the choice of servers that an administrator of the project has chosen.

use std::sync::Arc;

use super::room::Room;

/// Bytes of the lists of all added backends of a project.
pub(super) const ADDED_LISTS_BYTES_MAX: usize = 32 * 1024 * 1024;

/// The bytes that the added backends of a project offer together.
#[derive(Debug)]
pub(super) struct ListBudget(Room);

impl Default for ListBudget {
    fn default() -> Self {
        Self(Room::new(ADDED_LISTS_BYTES_MAX))
    }
}

/// The part of one backend. It is free again when this is dropped.
pub(super) struct ListBytes {
    budget: Arc<ListBudget>,
    taken: usize,
}

impl ListBytes {
    /// Nothing yet.
    pub fn new(budget: Arc<ListBudget>) -> Self {
        Self { budget, taken: 0 }
    }

    /// Takes this many bytes in place of those before. Returns false, and takes none, if there are not so many left.
    pub fn take(&mut self, bytes: usize) -> bool {
        self.budget.0.give_back(self.taken);
        let has_room = self.budget.0.take(bytes);
        self.taken = if has_room { bytes } else { 0 };
        has_room
    }
}

impl Drop for ListBytes {
    fn drop(&mut self) {
        self.take(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_backend_gives_back_another_can_take() {
        let budget = Arc::<ListBudget>::default();
        let part = || ListBytes::new(Arc::clone(&budget));
        let (mut first, mut second) = (part(), part());
        assert!(first.take(ADDED_LISTS_BYTES_MAX - 1));
        assert!(!second.take(2));
        assert!(second.take(1));
        assert!(first.take(ADDED_LISTS_BYTES_MAX - 1), "its own bytes are free for it");
        assert!(!first.take(ADDED_LISTS_BYTES_MAX));
        assert!(second.take(ADDED_LISTS_BYTES_MAX), "a refused backend holds none");
        drop(second);
        assert!(first.take(ADDED_LISTS_BYTES_MAX));
        assert!(!first.take(usize::MAX));
    }
}
