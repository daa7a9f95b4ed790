//! What a process writes to the event log before it ends.

use std::pin::pin;

use actors::{
    clock::now,
    storage::{Release, ReplicatedStorage},
};
use futures_util::{future::join, poll};

use super::sessions_of;
use crate::storage::support::{DELIVERY_LIMIT, Redis, ReplicaView, block_on, connect};

#[test]
fn the_events_of_a_process_that_ends_are_written() {
    let redis = Redis::start();
    block_on(async {
        let (left, right) = (connect(redis.url()).await.unwrap(), connect(redis.url()).await.unwrap());
        let (here, there) = (ReplicaView::of(&left, "acme"), ReplicaView::of(&right, "acme"));
        let session = here.record_session();
        left.flush_events().await.unwrap();
        drop((here, left));
        assert_eq!(sessions_of(&there.all_events(1000).await), [session]);
    });
}

#[test]
fn events_of_operations_without_a_reply_are_written_before_a_process_ends() {
    let redis = Redis::start();
    block_on(async {
        let storage = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&storage, "acme");
        let bob = view.join().await;
        // As long as this, Redis carries out nothing that writes.
        let pause = || redis.command(&["CLIENT", "PAUSE", "300", "WRITE"]);
        // An operation takes along what was recorded before.
        view.record_session();
        pause();
        let mut release = pin!(view.store.release(bob, Release::Ids(Vec::new()), DELIVERY_LIMIT, now()));
        assert!(poll!(&mut release).is_pending());
        storage.flush_events().await.unwrap();
        assert_eq!(redis.command(&["XLEN", "{acme}:events"]), "1");
        // An accepted message is recorded when the reply has come.
        pause();
        let sending = view.send(bob);
        let flushing = async {
            storage.flush_events().await.unwrap();
            redis.command(&["XLEN", "{acme}:events"])
        };
        assert_eq!(join(sending, flushing).await.1, "2");
    });
}
