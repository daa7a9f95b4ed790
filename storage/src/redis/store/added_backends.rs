//! The tables of added backends (`scripts/added_backends.lua`).

use std::sync::Arc;

use actors::{
    bridge::StoreEvent,
    model::BackendName,
    storage::{ADDED_BACKENDS_MAX, AddedBackendStore, Op, StoreError, TableChange},
};
use deadpool_redis::redis::Value;

use super::{
    super::{
        operation::Operation,
        reply::{into_bytes, unreadable},
    },
    RedisStore,
};

fn text(value: Value) -> Result<String, StoreError> {
    let text = String::from_utf8(into_bytes(value)?);
    text.map_err(|_| unreadable("the table of a backend"))
}

impl AddedBackendStore for RedisStore {
    fn added_backends(&self) -> Op<Vec<(BackendName, Arc<str>)>> {
        let operation = Operation::new("added_backends").without_reading_inboxes();
        self.run(operation, |_, mut reply| {
            let mut tables = Vec::new();
            while let (Some(name), Some(table)) = (reply.next(), reply.next()) {
                let name = BackendName::parse(&text(name)?).map_err(|_| unreadable("the name of a backend"))?;
                tables.push((name, text(table)?.into()));
            }
            tables.sort_unstable();
            Ok(tables)
        })
    }

    fn change_added_backend(
        &self,
        backend: BackendName,
        before: Option<Arc<str>>,
        table: Option<Arc<str>>,
    ) -> Op<TableChange> {
        let operation = match &table {
            Some(_) => Operation::accepting("change_added_backend"),
            None => Operation::new("change_added_backend"),
        };
        let operation = operation
            .without_reading_inboxes()
            .text(backend.as_str())
            .text(before.as_deref().unwrap_or_default())
            .text(table.as_deref().unwrap_or_default())
            .text(self.frame(&StoreEvent::Backends))
            .bound(ADDED_BACKENDS_MAX);
        self.run(operation, |_, mut reply| {
            Ok(match reply.int()? {
                1 => TableChange::Stored,
                0 => TableChange::Full,
                _ => TableChange::Differs(reply.next().map(text).transpose()?.map(Arc::from)),
            })
        })
    }
}
