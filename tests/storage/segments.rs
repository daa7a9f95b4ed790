//! Messages that are stored together in a segment behave like single messages.

use actors::{
    clock::now,
    model::{DeadLetterReason, DeliveryStatus, MessageId},
    storage::{Acknowledge, DeadLetterQuery, Release},
};

use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, block_on, storage};

/// Sends twelve messages for one session in one batch.
async fn send_twelve(view: &ReplicaView, to: actors::model::SessionId) -> Vec<MessageId> {
    let batch = view.directs(to, 12);
    let ids = batch.iter().map(|append| append.message.id).collect();
    view.store.append(batch, now()).await.unwrap();
    ids
}

#[test]
fn a_segment_is_stored_once_until_its_messages_separate() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let ids = send_twelve(&view, bob).await;
        let bundles = || redis.command(&["HLEN", "{acme}:segments"]);
        assert_eq!((bundles().as_str(), view.depth(bob).await), ("1", (12, 0)));
        assert_eq!(view.statuses(ids[7]).await, [DeliveryStatus::Queued]);
        let leased = view.store.lease(bob, None, 5, usize::MAX, now()).await.unwrap();
        let taken: Vec<_> = leased.deliveries.iter().map(|delivery| delivery.message.id).collect();
        assert_eq!(taken, ids[..5]);
        assert_eq!((bundles().as_str(), view.depth(bob).await), ("0", (7, 5)));
        assert_eq!(view.statuses(ids[4]).await, [DeliveryStatus::Delivered]);
        assert_eq!(view.statuses(ids[5]).await, [DeliveryStatus::Queued]);
    });
}

#[test]
fn acknowledging_one_message_of_a_segment_acknowledges_no_other() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let (view, elsewhere) = (ReplicaView::of(&*storage, "acme"), ReplicaView::of(&*storage, "acme"));
        let bob = view.join().await;
        let ids = send_twelve(&view, bob).await;
        assert_eq!(view.lease_ids(bob).await.len(), 12);
        let done = elsewhere.acknowledge(bob, &ids[3..4]).await.unwrap();
        assert_eq!((done.acknowledged, done.depth.leased), (1, 11));
        let up_to = elsewhere
            .store
            .acknowledge(bob, Acknowledge::UpTo(ids[6]), now())
            .await
            .unwrap();
        assert_eq!((up_to.acknowledged, up_to.depth.leased), (6, 5));
        let released = view
            .store
            .release(bob, Release::Ids(ids[7..9].to_vec()), DELIVERY_LIMIT, now());
        assert_eq!(released.await.unwrap().returned, 2);
        assert_eq!(view.lease_ids(bob).await, [(ids[7], 2), (ids[8], 2)]);
        let rest = view.acknowledge(bob, &ids[7..]).await.unwrap();
        assert_eq!((rest.acknowledged, view.depth(bob).await), (5, (0, 0)));
        for id in ids {
            assert_eq!(view.statuses(id).await, [DeliveryStatus::Acknowledged]);
        }
        // Only receipts are left of them.
        for key in ["messages", "segments"] {
            assert_eq!(redis.command(&["HLEN", &format!("{{acme}}:{key}")]), "0", "{key}");
        }
        assert_eq!(redis.command(&["ZCARD", "{acme}:segments:index"]), "0");
    });
}

#[test]
fn whole_segments_are_acknowledged_in_any_order_and_once() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let [first, second, third] = [
            send_twelve(&view, bob).await,
            send_twelve(&view, bob).await,
            send_twelve(&view, bob).await,
        ];
        assert_eq!(view.lease_ids(bob).await.len(), 36);
        let done = view.acknowledge(bob, &[&second[..], &first].concat()).await.unwrap();
        assert_eq!((done.acknowledged, done.depth.leased, done.unknown), (24, 12, vec![]));
        let twice = view.acknowledge(bob, &[&third[..], &third].concat()).await.unwrap();
        assert_eq!((twice.acknowledged, twice.depth.leased), (12, 0));
        assert_eq!(twice.unknown, third);
        for id in [first, second, third].concat() {
            assert_eq!(view.statuses(id).await, [DeliveryStatus::Acknowledged]);
        }
        for key in ["messages", "segments"] {
            assert_eq!(redis.command(&["HLEN", &format!("{{acme}}:{key}")]), "0", "{key}");
        }
    });
}

#[test]
fn messages_of_a_segment_become_dead_letters_one_by_one() {
    let redis = Redis::start();
    block_on(async {
        let storage = storage(redis.url()).await;
        let view = ReplicaView::of(&*storage, "acme");
        let bob = view.join().await;
        let ids = send_twelve(&view, bob).await;
        for delivery in 1..=DELIVERY_LIMIT {
            view.claim(bob).await;
            let expected: Vec<_> = ids.iter().map(|id| (*id, delivery)).collect();
            assert_eq!(view.lease_ids(bob).await, expected);
        }
        view.claim(bob).await;
        assert_eq!(view.depth(bob).await, (0, 0));
        let query = DeadLetterQuery {
            limit: 100,
            ..DeadLetterQuery::default()
        };
        let letters = view.store.dead_letters(query).await.unwrap().dead_letters;
        let dead: Vec<_> = letters
            .iter()
            .map(|letter| (letter.message.id, letter.reason))
            .collect();
        let expected: Vec<_> = ids.iter().map(|id| (*id, DeadLetterReason::DeliveryLimit)).collect();
        assert_eq!(dead, expected);
        let redriven = view.store.redrive(vec![ids[6]], None, 100, now()).await.unwrap();
        assert_eq!(redriven.sent, [(ids[6], bob, 1)]);
        assert_eq!(view.lease_ids(bob).await, [(ids[6], 1)]);
    });
}
