//! Batches that are larger than a Lua script can unpack at once.

use std::time::Instant;

use actors::{
    clock::now,
    model::{DeadLetterReason, Headers},
    storage::{Acknowledge, Appended, Audience, DeadLetterQuery, PutSession, Release},
};
use futures_util::future::join_all;

use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, append, block_on, record, storage};

const MANY: usize = 5_000;

#[test]
fn thousands_of_messages_pass_through_one_inbox() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let begun = Instant::now();
        let told = |what| eprintln!("{what}: {:?}", begun.elapsed());
        let batch = |count| {
            let batch = (0..count).map(|_| {
                let mut append = view.direct(bob);
                append.queue_capacity = 2 * MANY;
                append
            });
            batch.collect::<Vec<_>>()
        };
        view.store.append(batch(MANY), now()).await.unwrap();
        told("append");
        let lease = || view.store.lease(bob, None, MANY, usize::MAX, now());
        let ids: Vec<_> = lease()
            .await
            .unwrap()
            .deliveries
            .iter()
            .map(|delivery| delivery.message.id)
            .collect();
        told("lease");
        assert_eq!(ids.len(), MANY);
        let released = view
            .store
            .release(bob, Release::Ids(ids.clone()), DELIVERY_LIMIT, now());
        assert_eq!(released.await.unwrap().returned, MANY);
        told("release");
        assert_eq!(lease().await.unwrap().deliveries.len(), MANY);
        let up_to = view.store.acknowledge(bob, Acknowledge::UpTo(ids[MANY / 2]), now());
        assert_eq!(up_to.await.unwrap().acknowledged, MANY / 2 + 1);
        told("acknowledge up to");
        assert_eq!(
            view.acknowledge(bob, &ids).await.unwrap().acknowledged,
            MANY - MANY / 2 - 1
        );
        told("acknowledge");
        view.store.append(batch(MANY), now()).await.unwrap();
        let reason = DeadLetterReason::RecipientGone;
        let removed = view.store.remove_session(bob, reason, None, now());
        assert_eq!(removed.await, Ok(Some(MANY)));
        told("append and remove");
        let query = DeadLetterQuery {
            limit: usize::MAX,
            bytes_max: usize::MAX,
            ..DeadLetterQuery::default()
        };
        let letters = view.store.dead_letters(query).await.unwrap().dead_letters;
        told("list dead letters");
        let dead: Vec<_> = letters.iter().map(|letter| letter.message.id).collect();
        let carol = view.join().await;
        let redriven = view.store.redrive(dead, Some(carol), MANY, now()).await.unwrap();
        assert_eq!(redriven.sent.len(), MANY);
        told("redrive");
        storage.clear_project(view.project.clone()).await.unwrap();
        told("clear");
        let left = redis.command(&["KEYS", "{acme}:*"]);
        let mut left: Vec<_> = left.lines().collect();
        left.sort_unstable();
        assert_eq!(
            left,
            ["epoch", "frame_seq", "poll_seq", "roster", "write_seq"].map(|name| format!("{{acme}}:{name}")),
            "counters"
        );
    });
}

#[test]
fn a_broadcast_reaches_thousands_of_sessions() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let records: Vec<_> = (0..MANY).map(|_| record(None)).collect();
        let put = |record| view.store.put_session(record, PutSession::default());
        join_all(records.iter().cloned().map(put)).await;
        let ids: Vec<_> = records.iter().map(|record| record.id).collect();
        let everyone = Audience::Many(ids.clone().into());
        let sent = append(view.message(None, &Headers::default(), false), everyone);
        let id = sent.message.id;
        let begun = Instant::now();
        let accepted = Appended::accepted_by_all(1);
        assert_eq!(view.append(sent).await, accepted);
        eprintln!("broadcast: {:?}", begun.elapsed());
        assert_eq!(view.store.message_status(id, now()).await.unwrap().unwrap().len(), MANY);
        let leased = join_all(ids.iter().map(|id| view.lease(*id))).await;
        assert!(
            leased
                .iter()
                .all(|leased| leased.as_ref().unwrap().deliveries.len() == 1)
        );
        let acknowledged = join_all(ids.iter().map(|session| view.acknowledge(*session, &[id]))).await;
        assert!(acknowledged.iter().all(|done| done.as_ref().unwrap().acknowledged == 1));
        eprintln!("leased and acknowledged: {:?}", begun.elapsed());
        assert_eq!(redis.command(&["EXISTS", "{acme}:messages", "{acme}:copies"]), "0");
    });
}
