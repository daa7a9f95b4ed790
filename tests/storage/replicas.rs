//! Two storages on one Redis: changes through one are visible through the other.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{CallReceipt, DeliveryStatus, Headers, SessionName, SessionRecord},
    storage::{Append, Appended, Audience, Claim, PutOutcome, Release, SessionKey, Storage},
};

use storage::redis::{RedisSettings, RedisStorage};

use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, append, block_on, connect, eventually, record};

/// One project through two replicas.
async fn two_replicas(redis: &Redis) -> ((impl Storage, ReplicaView), (impl Storage, ReplicaView)) {
    let here = connect(redis.url()).await.unwrap();
    let there = connect(redis.url()).await.unwrap();
    assert_ne!(here.replica(), there.replica());
    let views = (ReplicaView::of(&here, "acme"), ReplicaView::of(&there, "acme"));
    ((here, views.0), (there, views.1))
}

fn tracked_append(view: &ReplicaView, to: actors::model::SessionId) -> Append {
    append(view.message(Some(to), &Headers::default(), true), Audience::One(to))
}

#[test]
fn both_replicas_have_the_same_sessions_and_the_same_roster() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let bob = record(Some("bob"));
        here.put(bob.clone()).await;
        let (left, right) = (
            here.store.sessions().await.unwrap(),
            there.store.sessions().await.unwrap(),
        );
        assert_eq!((left.sessions, left.version), (vec![bob.clone()], 1));
        assert_eq!((right.sessions, right.version), (vec![bob.clone()], 1));
        there.join().await;
        let everyone = Audience::Many(vec![bob.id].into());
        let broadcast = Append {
            roster_version: Some(1),
            ..append(here.message(None, &Headers::default(), false), everyone)
        };
        assert_eq!(here.append(broadcast).await, Appended::RosterOutdated);
    });
}

#[test]
fn aliases_of_a_session_that_an_older_build_removes_are_free() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let aliased = |name: &str| SessionRecord {
            aliases: vec![SessionName::parse("reviewer").unwrap()],
            ..record(Some(name))
        };
        let bob = aliased("bob");
        assert_eq!(view.put(bob.clone()).await, PutOutcome::Stored);
        assert_eq!(view.put(aliased("carol")).await, PutOutcome::NameTaken);
        // What a build without aliases does when it removes a session.
        let id = bob.id.to_string();
        for (key, field) in [
            ("sessions:by_name", "bob"),
            ("sessions:names", &id),
            ("sessions", &id),
            ("inboxes", &id),
        ] {
            assert_eq!(
                redis.command(&["HDEL", &format!("{{acme}}:{key}"), field]),
                "1",
                "{key}"
            );
        }
        let carol = aliased("carol");
        assert_eq!(view.put(carol.clone()).await, PutOutcome::Stored);
        let by_alias = SessionKey::Name(carol.aliases[0].clone());
        assert_eq!(view.store.find_session(by_alias).await.unwrap(), Some(carol));
        assert_eq!(redis.command(&["HLEN", "{acme}:sessions:aliases"]), "1");
    });
}

#[test]
fn the_last_claim_owns_the_session() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let bob = here.join().await;
        let sent = here.send(bob).await;
        let first = here.claim(bob).await;
        let lease = async |view: &ReplicaView, claim: Claim| {
            let leased = view.store.lease(bob, Some(claim), 9, usize::MAX, now()).await.unwrap();
            (leased.superseded, leased.deliveries.len())
        };
        assert_eq!(lease(&here, first).await, (false, 1));
        let second = there.claim(bob).await;
        assert_eq!(lease(&here, first).await, (true, 0));
        assert_eq!(lease(&there, second).await, (false, 1));
        let late = here.store.release(bob, Release::Claimed(first), DELIVERY_LIMIT, now());
        assert_eq!(late.await.unwrap().returned, 0);
        assert_eq!(there.acknowledge(bob, &[sent]).await.unwrap().acknowledged, 1);
    });
}

#[test]
fn a_sender_learns_the_status_of_its_message_at_another_replica() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let bob = here.join().await;
        let sent = tracked_append(&here, bob);
        let (id, view) = (sent.message.id, sent.message.progress.subscribe().unwrap());
        here.append(sent).await;
        // The message object is dropped at this replica, and its delivery is tracked.
        assert_eq!(there.lease_ids(bob).await, [(id, 1)]);
        assert_eq!(*view.borrow(), DeliveryStatus::Queued);
        here.store
            .replicated()
            .unwrap()
            .notify_progress(Some(id))
            .await
            .unwrap();
        assert_eq!(*view.borrow(), DeliveryStatus::Delivered);
        let acknowledged = there.acknowledge(bob, &[id]).await.unwrap();
        assert!(acknowledged.tracked.is_empty(), "the sender is at another replica");
        here.store.replicated().unwrap().notify_progress(None).await.unwrap();
        assert_eq!(*view.borrow(), DeliveryStatus::Acknowledged);
    });
}

#[test]
fn a_message_arrives_unchanged_at_another_replica() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let (bob, carol) = (here.join().await, here.join().await);
        let headers = Headers {
            ttl_seconds: Some(60),
            ..Headers::default()
        };
        let sent = here.message(Some(bob), &headers, false);
        here.append(append(Arc::clone(&sent), Audience::One(bob))).await;
        let text = |message: &actors::model::Message| {
            let mut text = Vec::new();
            message.write(&mut text, 1);
            String::from_utf8(text).unwrap()
        };
        let leased = there.lease(bob).await.unwrap();
        let message = &leased.deliveries[0].message;
        assert_eq!(text(message), text(&sent));
        assert_eq!(
            (message.recipient, message.ttl),
            (Some(bob), Some(Duration::from_secs(60)))
        );
        assert!(!Arc::ptr_eq(message, &sent));

        let reason = actors::model::DeadLetterReason::RecipientGone;
        there.store.remove_session(bob, reason, None, now()).await.unwrap();
        let letters = here.store.dead_letters(actors::storage::DeadLetterQuery {
            limit: 9,
            ..Default::default()
        });
        assert_eq!(letters.await.unwrap().dead_letters[0].message.recipient, Some(bob));
        there.store.redrive(vec![sent.id], Some(carol), 9, now()).await.unwrap();
        let leased = here.lease(carol).await.unwrap();
        assert_eq!(leased.deliveries[0].message.recipient, Some(carol));
        assert!(text(&leased.deliveries[0].message).contains(&carol.to_string()));
    });
}

#[test]
fn messages_leased_for_calls_of_a_dead_replica_wait_again() {
    let redis = Redis::start();
    block_on(async {
        let (left, right) = (connect(redis.url()).await.unwrap(), connect(redis.url()).await.unwrap());
        let (here, there) = (ReplicaView::of(&left, "acme"), ReplicaView::of(&right, "acme"));
        let [bob, carol, dora] = [here.join().await, here.join().await, here.join().await];
        let claim = there.claim(carol).await;
        let lost = here.send(bob).await;
        there.lease_ids(bob).await;
        let own = here.send(bob).await;
        here.lease_ids(bob).await;
        here.send(carol).await;
        there
            .store
            .lease(carol, Some(claim), 9, usize::MAX, now())
            .await
            .unwrap();
        let answered = here.send(dora).await;
        there.lease_ids(dora).await;
        there
            .store
            .replicated()
            .unwrap()
            .mark_returned(dora, vec![answered])
            .await
            .unwrap();

        left.release_leases_of(right.replica()).await.unwrap();
        assert_eq!(here.depth(bob).await, (1, 1));
        assert_eq!(here.lease_ids(bob).await, [(lost, 2)]);
        assert_eq!(
            here.depth(carol).await,
            (0, 1),
            "a claimed session is read by its connection"
        );
        assert_eq!(
            here.depth(dora).await,
            (0, 1),
            "the caller has the message and acknowledges it"
        );
        let acknowledged = here
            .store
            .replicated()
            .unwrap()
            .acknowledge_returned(dora, now())
            .await
            .unwrap();
        assert_eq!(acknowledged.acknowledged, 1);
        assert_eq!(here.acknowledge(bob, &[lost, own]).await.unwrap().acknowledged, 2);
    });
}

#[test]
fn a_receipt_names_the_messages_of_its_call_at_every_replica() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let bob = here.join().await;
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(here.send(bob).await);
        }
        let lease = async |view: &ReplicaView, limit| {
            let receipt = CallReceipt::generate();
            let leased = view.store.lease_for_call(bob, receipt, limit, usize::MAX, now());
            (receipt, leased.await.unwrap().deliveries.len())
        };
        let settle = async |view: &ReplicaView, receipt| {
            let settled = view
                .store
                .replicated()
                .unwrap()
                .acknowledge_receipt(bob, receipt, 5, now());
            settled.await.unwrap().acknowledged
        };
        let (first, len) = lease(&here, 2).await;
        assert_eq!(len, 2);
        assert_eq!(
            settle(&there, CallReceipt::generate()).await,
            0,
            "no call leased that message"
        );
        assert_eq!(here.depth(bob).await, (2, 2));
        let (second, _) = lease(&here, 1).await;
        here.store
            .replicated()
            .unwrap()
            .mark_returned(bob, vec![sent[2]])
            .await
            .unwrap();
        assert_eq!(settle(&there, first).await, 2);
        assert_eq!(here.depth(bob).await, (2, 0), "messages of another answer wait again");
        assert_eq!(settle(&there, first).await, 0);
        assert_eq!(settle(&there, second).await, 1, "the message waits again");
        // What was leased for a later call belongs to that call.
        let (third, _) = lease(&here, 1).await;
        here.store
            .release(bob, Release::Ids(vec![sent[3]]), 5, now())
            .await
            .unwrap();
        let (fourth, _) = lease(&there, 1).await;
        assert_eq!(settle(&here, third).await, 0);
        assert_eq!(settle(&here, fourth).await, 1);
        assert_eq!(here.depth(bob).await, (0, 0));
    });
}

#[test]
fn a_receipt_does_not_name_what_had_no_room_in_the_answer() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), _) = two_replicas(&redis).await;
        let bob = here.join().await;
        let mut sent = Vec::new();
        for _ in 0..3 {
            sent.push(here.send(bob).await);
        }
        // The last one was delivered before.
        here.store.lease(bob, None, 3, usize::MAX, now()).await.unwrap();
        let releases = async |which| here.store.release(bob, which, 5, now()).await.unwrap();
        releases(Release::Undelivered(sent[..2].to_vec())).await;
        releases(Release::Ids(vec![sent[2]])).await;
        let receipt = CallReceipt::generate();
        let leased = here.store.lease_for_call(bob, receipt, 3, usize::MAX, now()).await;
        assert_eq!(leased.unwrap().deliveries.len(), 3);
        releases(Release::Undelivered(sent[1..].to_vec())).await;
        let shared = here.store.replicated().unwrap();
        let settled = shared.acknowledge_receipt(bob, receipt, 5, now()).await.unwrap();
        assert_eq!(settled.acknowledged, 1, "the one that the answer had");
        assert_eq!(here.depth(bob).await, (2, 0));
    });
}

#[test]
fn receipts_of_calls_are_bounded_and_end_with_their_session() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), _) = two_replicas(&redis).await;
        let bob = here.join().await;
        let mut receipts = Vec::new();
        for _ in 0..65 {
            here.send(bob).await;
            let receipt = CallReceipt::generate();
            let leased = here.store.lease_for_call(bob, receipt, 1, usize::MAX, now());
            assert_eq!(leased.await.unwrap().deliveries.len(), 1);
            receipts.push(receipt);
        }
        let key = format!("{{acme}}:call_receipts:{bob}");
        assert_eq!(redis.command(&["HLEN", &key]), "33", "the older half was evicted");
        let settled = |receipt| {
            here.store
                .replicated()
                .unwrap()
                .acknowledge_receipt(bob, receipt, 5, now())
        };
        assert_eq!(settled(receipts[0]).await.unwrap().acknowledged, 0);
        assert_eq!(settled(receipts[64]).await.unwrap().acknowledged, 1);
        let reason = actors::model::DeadLetterReason::RecipientGone;
        here.store.remove_session(bob, reason, None, now()).await.unwrap();
        assert_eq!(redis.command(&["EXISTS", &key]), "0");
    });
}

#[test]
fn an_expired_message_is_a_dead_letter_at_every_replica() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), (_b, there)) = two_replicas(&redis).await;
        let bob = here.join().await;
        let headers = Headers {
            ttl_seconds: Some(1),
            ..Headers::default()
        };
        let sent = here.message(Some(bob), &headers, true);
        let (id, view) = (sent.id, sent.progress.subscribe().unwrap());
        here.append(append(sent, Audience::One(bob))).await;
        let kept = here.send(bob).await;
        assert_eq!(here.depth(bob).await, (2, 0));
        let thinned = eventually(async || {
            let thinned = there.store.sweep(now()).await.unwrap().expired_in;
            (!thinned.is_empty()).then_some(thinned)
        });
        assert_eq!(thinned.await, [(bob, 1)]);
        assert_eq!(there.statuses(id).await, [DeliveryStatus::Expired]);
        assert_eq!(
            here.store.sweep(now()).await.unwrap().expired_in,
            [(bob, 1)],
            "both replicas report it"
        );
        assert_eq!(here.store.sweep(now()).await.unwrap().expired_in, [], "once");
        assert_eq!(here.lease_ids(bob).await, [(kept, 1)]);
        here.store
            .replicated()
            .unwrap()
            .notify_progress(Some(id))
            .await
            .unwrap();
        assert_eq!(*view.borrow(), DeliveryStatus::Expired);
    });
}

#[test]
fn a_message_released_after_its_expiry_is_a_dead_letter() {
    let redis = Redis::start();
    block_on(async {
        let ((_a, here), _there) = two_replicas(&redis).await;
        let bob = here.join().await;
        let headers = Headers {
            ttl_seconds: Some(1),
            ..Headers::default()
        };
        let [late, returned] = [(); 2].map(|()| here.message(Some(bob), &headers, false));
        let ids = [late.id, returned.id];
        for message in [late, returned] {
            here.append(append(message, Audience::One(bob))).await;
        }
        assert_eq!(here.lease_ids(bob).await.len(), 2);
        let release = |ids| here.store.release(bob, Release::Ids(ids), DELIVERY_LIMIT, now());
        assert_eq!(release(vec![ids[1]]).await.unwrap().returned, 1);
        // The message waits again, and expires while it waits.
        eventually(async || (here.depth(bob).await == (0, 1)).then_some(())).await;
        let released = release(vec![ids[0]]).await.unwrap();
        assert_eq!((released.returned, released.dead), (0, 1));
        let count = here.store.dead_letter_count().await;
        assert_eq!(count, Ok(2));
    });
}

#[test]
fn a_silent_replica_is_removed_by_another() {
    let redis = Redis::start();
    block_on(async {
        let mut settings = RedisSettings::new(redis.url());
        settings.heartbeat = Duration::from_millis(100);
        let left = RedisStorage::connect(settings.clone()).await.unwrap();
        let right = RedisStorage::connect(settings).await.unwrap();
        let (here, there) = (ReplicaView::of(&left, "acme"), ReplicaView::of(&right, "acme"));
        let (bob, carol) = (here.join().await, here.join().await);
        here.send(bob).await;
        here.send(carol).await;
        assert_eq!(
            (there.lease_ids(bob).await.len(), here.lease_ids(carol).await.len()),
            (1, 1)
        );
        let gone = right.replica().to_string();
        drop((there, right));
        eventually(async || (here.depth(bob).await == (1, 0)).then_some(())).await;
        assert_eq!(here.depth(carol).await, (0, 1), "the calling replica is not silent");
        let known = async || {
            (!redis
                .command(&["ZRANGE", "{system}:replicas", "0", "-1"])
                .contains(&gone))
            .then_some(())
        };
        eventually(known).await;
    });
}
