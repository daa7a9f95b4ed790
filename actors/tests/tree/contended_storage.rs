//! A storage with a second writer: another replica changes a record, or the disk is full, just before a put.

use std::{
    collections::VecDeque,
    future::ready,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actors::{
    model::ProjectRecord,
    storage::{Op, Storage, StoreError, memory::MemoryStorage},
};
use futures_util::FutureExt;

use crate::intercept::{Hooks, Intercept, StorageHooks};

/// Memory storage with a queue of events. Each put of a project record runs the next event first.
pub type ContendedStorage = Intercept<Contended>;

#[derive(Default)]
pub struct Contended {
    inner: Arc<MemoryStorage>,
    events: Mutex<VecDeque<Event>>,
}

type Event = Box<dyn FnOnce(&MemoryStorage, &ProjectRecord) -> Result<(), StoreError> + Send>;

impl ContendedStorage {
    /// Before the next put (in order of arrangement) another replica changes the stored record with `amend`.
    pub fn amend_before_next_put(&self, amend: impl FnOnce(&mut ProjectRecord) + Send + 'static) {
        self.on_next_put(move |inner, record| {
            let kept = inner.project(record.id.clone()).now_or_never().unwrap()?;
            let mut newer = ProjectRecord::clone(&kept.unwrap());
            amend(&mut newer);
            newer.revision += 1;
            put(inner, newer);
            Ok(())
        });
    }

    /// Before the next put another replica stores `given`.
    pub fn replace_before_next_put(&self, given: ProjectRecord) {
        self.on_next_put(move |inner, _| {
            put(inner, given);
            Ok(())
        });
    }

    /// The next put fails with [`StoreError::Full`].
    pub fn fail_next_put_as_full(&self) {
        self.on_next_put(|_, _| Err(StoreError::Full("the disk".to_owned())));
    }

    fn on_next_put(
        &self,
        event: impl FnOnce(&MemoryStorage, &ProjectRecord) -> Result<(), StoreError> + Send + 'static,
    ) {
        self.0.events().push_back(Box::new(event));
    }

    /// True when every arranged event has happened.
    pub fn has_no_pending_event(&self) -> bool {
        self.0.events().is_empty()
    }
}

impl Contended {
    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn put(inner: &MemoryStorage, record: ProjectRecord) {
    let is_put = inner.put_project(Arc::new(record)).now_or_never().unwrap();
    assert_eq!(is_put, Ok(true), "the other replica writes the next revision");
}

impl Hooks for Contended {
    type Inner = MemoryStorage;

    fn inner(&self) -> &Arc<MemoryStorage> {
        &self.inner
    }
}

impl StorageHooks for Contended {
    const NAME: &'static str = "shared";

    fn put_project(&self, record: Arc<ProjectRecord>) -> Op<bool> {
        let event = self.events().pop_front();
        match event.map_or(Ok(()), |event| event(&self.inner, &record)) {
            Ok(()) => self.inner.put_project(record),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
}
