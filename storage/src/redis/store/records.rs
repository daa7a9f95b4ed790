//! Records (`scripts/records.lua`).

use std::{future::ready, sync::Arc};

use actors::storage::{Before, Op, RecordPut, RecordStore, StoreError, Table};
use deadpool_redis::redis::Value;

use super::{
    super::{
        operation::Operation,
        replicas,
        reply::{into_bytes, unreadable},
    },
    RedisStore,
};

fn text(value: Value) -> Result<Arc<str>, StoreError> {
    let text = String::from_utf8(into_bytes(value)?);
    text.map(Arc::from).map_err(|_| unreadable("the text of a record"))
}

fn about(operation: Operation, table: Table, key: Vec<u8>) -> Operation {
    operation.without_reading_inboxes().text(table.name()).text(key)
}

impl RecordStore for RedisStore {
    fn get(&self, table: Table, key: Vec<u8>) -> Op<Option<Arc<str>>> {
        self.run(about(Operation::new("get_record"), table, key), |_, mut reply| {
            reply.next().map(text).transpose()
        })
    }

    fn keys(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<Vec<u8>>> {
        self.run(about(Operation::new("record_keys"), table, prefix), |_, mut reply| {
            let mut keys = Vec::new();
            while let Some(key) = reply.next() {
                keys.push(into_bytes(key)?);
            }
            keys.sort_unstable();
            Ok(keys)
        })
    }

    fn list(&self, table: Table, prefix: Vec<u8>) -> Op<Vec<(Vec<u8>, Arc<str>)>> {
        self.run(about(Operation::new("list_records"), table, prefix), |_, mut reply| {
            let mut records = Vec::new();
            while let (Some(key), Some(value)) = (reply.next(), reply.next()) {
                records.push((into_bytes(key)?, text(value)?));
            }
            records.sort_unstable();
            Ok(records)
        })
    }

    fn put_if(&self, table: Table, key: Vec<u8>, before: Before, after: Option<Arc<str>>) -> Op<RecordPut> {
        if after.as_ref().is_some_and(|after| after.len() > table.text_bytes_max()) {
            return Box::pin(ready(Ok(RecordPut::Full)));
        }
        let frame = table.event(&key).map(|event| self.frame(&event));
        let (is_any, before, len_max) = match before {
            Before::Any => (true, None, usize::MAX),
            Before::Absent { len_max } => (false, None, len_max),
            Before::Text(before) => (false, Some(before), usize::MAX),
        };
        let put = |is_trial| {
            let operation = if after.is_some() && table.adds_data() {
                Operation::accepting("put_record")
            } else {
                Operation::new("change_record")
            };
            let operation = about(operation, table, key.clone())
                .flag(is_any)
                .text(before.as_deref().unwrap_or_default())
                .text(after.as_deref().unwrap_or_default())
                .text(frame.as_deref().unwrap_or_default())
                .bound(len_max)
                .flag(is_trial);
            self.run(operation, |_, mut reply| {
                Ok(match reply.int()? {
                    1 => RecordPut::Stored,
                    0 => RecordPut::Full,
                    _ => RecordPut::Differs(reply.next().map(text).transpose()?),
                })
            })
        };
        if table == Table::Lenses && after.is_some() {
            self.put_lens(put(true), put(false))
        } else {
            put(false)
        }
    }
}

impl RedisStore {
    /// Stores a lens, and before it the version of data with lenses, which is on another node of a cluster. What is refused is
    /// refused by the trial: the version stays as it is then.
    fn put_lens(&self, trial: Op<RecordPut>, put: Op<RecordPut>) -> Op<RecordPut> {
        let client = Arc::clone(&self.pipeline.client);
        Box::pin(async move {
            match trial.await? {
                RecordPut::Stored => {}
                refused => return Ok(refused),
            }
            let admitted = replicas::admit_lenses(Arc::clone(&client));
            client.run_on_thread(admitted).await?;
            put.await
        })
    }
}
