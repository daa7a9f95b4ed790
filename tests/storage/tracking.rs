//! Questions about many messages at once: their statuses and their texts.

use std::sync::Arc;

use actors::{
    clock::now,
    model::{DeadLetterReason, Headers, MessageId},
    storage::Audience,
};
use futures_util::future::join_all;
use uuid::Uuid;

use crate::storage::support::{Redis, ReplicaView, append, block_on, connect, record};

#[test]
fn texts_are_read_of_messages_that_wait_are_leased_or_are_dead_letters() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let (bob, carol) = (view.join().await, view.join().await);
        // Two segments and a part of a third; of the first a part is acknowledged.
        let batch: Vec<_> = (0..40).map(|_| view.direct(bob)).collect();
        let mut messages: Vec<_> = batch.iter().map(|append| Arc::clone(&append.message)).collect();
        view.store.append(batch, now()).await.unwrap();
        let leased = view.store.lease(bob, None, 20, usize::MAX, now()).await.unwrap();
        assert_eq!(leased.deliveries.len(), 20);
        let done: Vec<_> = messages[..3].iter().map(|message| message.id).collect();
        view.acknowledge(bob, &done).await.unwrap();
        let broadcast = view.message(None, &Headers::default(), false);
        view.append(append(Arc::clone(&broadcast), Audience::Many([bob, carol].into())))
            .await;
        messages.push(broadcast);
        let large = view.message_with(
            Some(carol),
            &format!("{{\"a\":\"{}\"}}", "x".repeat(100_000)),
            &Headers::default(),
            false,
        );
        view.append(append(Arc::clone(&large), Audience::One(carol))).await;
        messages.push(large);
        view.store
            .remove_session(carol, DeadLetterReason::RecipientGone, None, now())
            .await
            .unwrap();
        let mut ids: Vec<_> = messages.iter().map(|message| message.id).collect();
        ids.push(MessageId::from_uuid(Uuid::now_v7()));
        let texts = view.store.messages(ids.clone()).await.unwrap();
        assert_eq!(texts.len(), ids.len());
        for (at, (message, text)) in messages.iter().zip(&texts).enumerate() {
            let text = text.as_ref().map(|text| (text.id, text.body()));
            let expected = (at >= 3).then(|| (message.id, message.body()));
            assert_eq!(text, expected, "message {at}");
        }
        assert!(texts.last().unwrap().is_none());
    });
}

#[test]
fn many_messages_and_recipients_are_asked_about_in_parts() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let sessions: Vec<_> = (0..600).map(|_| record(None)).collect();
        let everyone: Vec<_> = sessions.iter().map(|record| record.id).collect();
        join_all(sessions.into_iter().map(|record| view.put(record))).await;
        let mut ids = Vec::new();
        for _ in 0..20 {
            let message = view.message(None, &Headers::default(), false);
            ids.push(message.id);
            view.append(append(message, Audience::Many(everyone.clone().into())))
                .await;
            ids.push(view.send(everyone[0]).await);
        }
        ids.push(MessageId::from_uuid(Uuid::now_v7()));
        redis.command(&["CONFIG", "RESETSTAT"]);
        let statuses = view.store.message_statuses(ids.clone(), now()).await.unwrap();
        let lens: Vec<_> = statuses.iter().map(|known| known.as_ref().map(Vec::len)).collect();
        let expected = [Some(600), Some(1)].repeat(20).into_iter().chain([None]);
        assert_eq!(lens, expected.collect::<Vec<_>>());
        let calls = redis.command(&["INFO", "commandstats"]);
        let calls = calls
            .lines()
            .find(|line| line.starts_with("cmdstat_fcall"))
            .unwrap()
            .to_owned();
        let calls: usize = calls.split(['=', ',']).nth(1).unwrap().parse().unwrap();
        assert!(
            (3..=4).contains(&calls),
            "one call answers for 5,000 recipients: {calls}"
        );
        // Short texts are read by few calls.
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(900_000));
        let mut large_ids = Vec::new();
        for _ in 0..10 {
            let message = view.message_with(Some(everyone[1]), &large, &Headers::default(), false);
            large_ids.push(message.id);
            view.append(append(message, Audience::One(everyone[1]))).await;
        }
        let texts = view.store.messages(large_ids.clone()).await.unwrap();
        let read: Vec<_> = texts.into_iter().map(|text| text.unwrap().id).collect();
        assert_eq!(read, large_ids);
    });
}
