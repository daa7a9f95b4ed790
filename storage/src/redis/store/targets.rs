//! Targets outside the broker (`scripts/targets.lua`).

use std::time::Duration;

use actors::storage::{Op, TargetCursor, TargetId, TargetStore};

use super::{
    super::{operation::Operation, reply::parse_json},
    RedisStore,
};

impl TargetStore for RedisStore {
    fn claim_target(&self, target: TargetId, ttl: Duration) -> Op<Option<TargetCursor>> {
        let operation = Operation::new("claim_target")
            .without_reading_inboxes()
            .text(target.as_bytes().as_slice())
            .duration(ttl);
        self.run(operation, |_, mut reply| {
            if reply.int()? == 0 {
                return Ok(None);
            }
            let cursor = if reply.is_empty() {
                None
            } else {
                reply.optional_bytes()?
            };
            Ok(Some(cursor.map_or_else(
                || Ok(TargetCursor::default()),
                |cursor| parse_json(&cursor),
            )?))
        })
    }

    fn move_target(&self, target: TargetId, cursor: TargetCursor, ttl: Duration) -> Op<bool> {
        let operation = Operation::new("move_target")
            .without_reading_inboxes()
            .text(target.as_bytes().as_slice())
            .json(&cursor)
            .duration(ttl);
        self.run(operation, |_, mut reply| Ok(reply.int()? == 1))
    }
}
