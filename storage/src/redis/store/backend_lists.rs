//! The kept lists of backends (`scripts/backend_lists.lua`).

use std::sync::Arc;

use actors::{
    model::BackendName,
    storage::{BackendListStore, Op},
};

use super::{
    super::{
        operation::Operation,
        reply::{into_bytes, unreadable},
    },
    RedisStore,
};

impl BackendListStore for RedisStore {
    fn keep_backend_lists(&self, backend: BackendName, lists: Option<Arc<str>>) -> Op<()> {
        let operation = match &lists {
            Some(_) => Operation::accepting("keep_backend_lists"),
            None => Operation::new("keep_backend_lists"),
        };
        let operation = operation
            .without_reading_inboxes()
            .text(backend.as_str())
            .text(lists.as_deref().unwrap_or_default());
        self.run(operation, |_, _| Ok(()))
    }

    fn backend_lists(&self, backend: BackendName) -> Op<Option<Arc<str>>> {
        let operation = Operation::new("backend_lists")
            .without_reading_inboxes()
            .text(backend.as_str());
        self.run(operation, |_, mut reply| {
            let Some(lists) = reply.next() else {
                return Ok(None);
            };
            let text = String::from_utf8(into_bytes(lists)?);
            let text = text.map_err(|_| unreadable("the lists of a backend"))?;
            Ok(Some(text.into()))
        })
    }

    fn retain_backend_lists(&self, backends: Vec<BackendName>) -> Op<()> {
        let operation = Operation::new("retain_backend_lists").without_reading_inboxes();
        let names = backends.iter().map(BackendName::as_str);
        self.run(names.fold(operation, |operation, name| operation.text(name)), |_, _| {
            Ok(())
        })
    }
}
