//! Retention: finished records are kept up to their bounds, and no longer.

use std::time::Duration;

use actors::{
    clock::{Now, now},
    model::{Addressing, DeadLetterReason, Headers, MessageIds, NewMessage, ProjectId, SessionId},
    storage::{Append, Appended, Audience, DeadLetterQuery, Retention},
};
use storage::redis::{RedisSettings, RedisStorage};

use crate::storage::support::{Redis, ReplicaView, append, block_on, eventually, record};

async fn connect_with_retention(redis: &Redis, retention: Retention) -> RedisStorage {
    let settings = RedisSettings {
        retention,
        ..RedisSettings::new(redis.url())
    };
    RedisStorage::connect(settings).await.unwrap()
}

fn append_with_key(view: &ReplicaView, to: SessionId, key: &str) -> Append {
    let message = view.message(Some(to), &Headers::default(), false);
    Append {
        idempotency_key: Some(key.to_owned()),
        ..append(message, Audience::One(to))
    }
}

#[test]
fn the_newest_dead_letters_are_kept_and_evicted_ones_leave_no_keys() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            dead_letters_len_max: 3,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let mut sent = Vec::new();
        for _ in 0..5 {
            sent.push(view.send(bob).await);
        }
        let reason = DeadLetterReason::RecipientGone;
        assert_eq!(view.store.remove_session(bob, reason, None, now()).await, Ok(Some(5)));
        let query = DeadLetterQuery {
            limit: 9,
            ..DeadLetterQuery::default()
        };
        let letters = view.store.dead_letters(query).await.unwrap().dead_letters;
        let ids: Vec<_> = letters.iter().map(|letter| letter.message.id).collect();
        assert_eq!(
            (ids.as_slice(), view.store.dead_letter_count().await),
            (&sent[2..], Ok(3))
        );
        assert_eq!(redis.command(&["HLEN", "{acme}:messages"]), "3");
    });
}

#[test]
fn an_idempotency_key_is_free_again_after_its_window_and_when_there_are_too_many() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            idempotency_keys_len_max: 2,
            idempotency_window: Duration::from_millis(300),
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let (bob, alice) = (view.join().await, record(None));
        let send = async |key| {
            let draft = NewMessage::new(
                &view.project,
                &alice,
                Addressing::Direct,
                ("chat", "1.0.0"),
                "{}",
                &Headers::default(),
            );
            let message = draft.seal(
                view.message(None, &Headers::default(), false).id,
                Some(bob),
                now(),
                false,
            );
            let append = Append {
                message,
                ..append_with_key(&view, bob, key)
            };
            matches!(view.append(append).await, Appended::Duplicate(_))
        };
        assert!(!send("a").await && send("a").await);
        eventually(async || (!send("a").await).then_some(())).await;
        let before = redis.command(&["HLEN", "{acme}:idempotency"]);
        for key in ["b", "c", "d"] {
            assert!(!send(key).await);
        }
        assert_eq!(
            (before.as_str(), redis.command(&["HLEN", "{acme}:idempotency"]).as_str()),
            ("1", "2")
        );
        let swept = eventually(async || {
            view.store.sweep(now()).await.unwrap();
            (redis.command(&["EXISTS", "{acme}:idempotency", "{acme}:idempotency:until"]) == "0").then_some(())
        });
        swept.await;
    });
}

#[test]
fn the_oldest_receipts_are_evicted_and_their_messages_stay() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            receipts_len_max: 4,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        let (ids, sender) = (MessageIds::default(), record(None));
        let mut sent = Vec::new();
        for minutes_ago in [3, 2, 1] {
            let then = Now {
                unix_ms: now().unix_ms - minutes_ago * 60_000,
                ..now()
            };
            for _ in 0..2 {
                let draft = NewMessage::new(
                    &view.project,
                    &sender,
                    Addressing::Direct,
                    ("chat", "1.0.0"),
                    "{}",
                    &Headers::default(),
                );
                let message = draft.seal(ids.next(then), Some(bob), then, false);
                sent.push(message.id);
                view.append(append(message, Audience::One(bob))).await;
            }
        }
        assert_eq!(redis.command(&["HGET", "{acme}:receipts", "len"]), "4");
        let leased: Vec<_> = view.lease_ids(bob).await.into_iter().map(|(id, _)| id).collect();
        assert_eq!(leased, sent);
        // The receipt of the first message has been evicted: its status comes from the inbox.
        assert_eq!(view.statuses(sent[0]).await, [actors::model::DeliveryStatus::Delivered]);
        view.acknowledge(bob, &sent).await.unwrap();
        assert_eq!(view.statuses(sent[0]).await, []);
        assert_eq!(
            view.statuses(sent[5]).await,
            [actors::model::DeliveryStatus::Acknowledged]
        );
        let buckets = redis.command(&["KEYS", "{acme}:receipts:*"]);
        assert_eq!(buckets.lines().count(), 2, "{buckets}");
    });
}

#[test]
fn the_newest_records_of_cross_project_messages_are_kept() {
    let redis = Redis::start();
    block_on(async {
        let retention = Retention {
            cross_project_targets_len_max: 2,
            ..Retention::default()
        };
        let storage = connect_with_retention(&redis, retention).await;
        let view = ReplicaView::of(&storage, "acme");
        let targets = ["first", "second", "third"].map(|id| ProjectId::parse(id).unwrap());
        let mut sent = Vec::new();
        for target in &targets {
            let id = view.message(None, &Headers::default(), false).id;
            sent.push(id);
            view.store.put_cross_project_target(id, target.clone()).await.unwrap();
        }
        assert_eq!(view.store.cross_project_target(sent[0]).await, Ok(None));
        assert_eq!(
            view.store.cross_project_target(sent[2]).await,
            Ok(Some(targets[2].clone()))
        );
        let mut known = view.store.cross_project_targets().await.unwrap();
        known.sort_unstable();
        assert_eq!(known, targets[1..]);
    });
}
