//! Claims (`scripts/claims.lua`).

use std::{sync::Arc, time::Duration};

use actors::{
    clock::Now,
    storage::{ClaimEpoch, ClaimStore, HeldClaim, Op, StoreError},
};

use uuid::Uuid;

use super::{
    super::{
        operation::Operation,
        reply::{Reply, unreadable},
    },
    RedisStore,
};

impl ClaimStore for RedisStore {
    fn claim(&self, thing: Arc<str>, holder: Uuid, ttl: Duration, note: Arc<str>, _: Now) -> Op<Option<ClaimEpoch>> {
        let operation = Operation::new("claim_thing")
            .without_reading_inboxes()
            .text(&*thing)
            .text(holder.to_string())
            .duration(ttl)
            .text(&*note);
        self.run(operation, |_, mut reply| {
            let epoch = reply.number()?;
            Ok((epoch > 0).then_some(ClaimEpoch(epoch)))
        })
    }

    fn settle(&self, epoch: ClaimEpoch) -> Op<bool> {
        let operation = Operation::new("settle_claim").without_reading_inboxes().number(epoch.0);
        self.run(operation, |_, mut reply| Ok(reply.int()? == 1))
    }

    fn end_silent(&self, _: Now) -> Op<Vec<HeldClaim>> {
        let operation = Operation::new("end_silent").without_reading_inboxes();
        self.run(operation, |_, mut reply| held_claims(&mut reply))
    }

    fn claims(&self, prefix: Arc<str>, _: Now) -> Op<Vec<HeldClaim>> {
        let operation = Operation::new("claims").without_reading_inboxes().text(&*prefix);
        self.run(operation, |_, mut reply| {
            let mut claims = held_claims(&mut reply)?;
            claims.sort_unstable_by(|left, right| left.thing.cmp(&right.thing));
            Ok(claims)
        })
    }
}

fn held_claims(reply: &mut Reply) -> Result<Vec<HeldClaim>, StoreError> {
    let mut claims = Vec::new();
    while !reply.is_empty() {
        let epoch = ClaimEpoch(reply.number()?);
        let mut text = || String::from_utf8(reply.bytes()?).map_err(|_| unreadable("a claim"));
        let (thing, holder, note) = (text()?, text()?, text()?);
        claims.push(HeldClaim {
            epoch,
            thing: thing.into(),
            holder: holder.parse().map_err(|_| unreadable("the holder of a claim"))?,
            note: note.into(),
        });
    }
    Ok(claims)
}
