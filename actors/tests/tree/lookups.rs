//! Questions about something that only another replica knows yet: the verbs of a project answer them after a wait.

use std::sync::Arc;

use actors::{
    model::{BrokerError, Headers},
    project::{Lookup, PreparedSend, SendRequest},
};

use crate::{
    replicated_memory::{ReplicaConnection, ReplicatedMemory, Unanswered},
    world::{ActorThread, World, envelope, run, settings},
};

/// Two replicas. The second gets no frames, so it learns nothing by itself.
async fn replicas() -> (World, World, Arc<ReplicaConnection>) {
    let cluster = Arc::<ReplicatedMemory>::default();
    let (here, there) = (cluster.connect_replica(), cluster.connect_replica());
    let storage = |connection: &Arc<ReplicaConnection>| connection.storage();
    let first = World::on_storage(storage(&here) as _, settings(), ActorThread::Test).await;
    let second = World::on_shared_storage(storage(&there) as _, settings(), ActorThread::Test).await;
    second.project.wait_until_current().await.unwrap();
    there.frame_filter.lose_one_in(1);
    (first, second, there)
}

#[test]
fn a_session_of_another_replica_is_found_after_a_wait() {
    run(|| async {
        let (here, there, _) = replicas().await;
        let alice = here.register("alice", None).await;
        let found = there.project.resolve("alice");
        assert!(matches!(found, Lookup::Pending(_)));
        assert_eq!(found.answer().await.unwrap().record, alice.record);
        assert!(matches!(there.project.resolve("alice"), Lookup::Ready(Ok(_))));
    });
}

#[test]
fn an_unknown_session_is_not_found_after_a_wait() {
    run(|| async {
        let (_here, there, _) = replicas().await;
        let found = there.project.resolve("alice").answer().await;
        assert!(matches!(found, Err(BrokerError::SessionNotFound(_))));
    });
}

#[test]
fn a_lookup_is_unavailable_while_the_store_cannot_be_read() {
    run(|| async {
        let (here, there, connection) = replicas().await;
        here.register("alice", None).await;
        connection.set_unanswered(Some(Unanswered::Sessions));
        let found = there.project.resolve("alice").answer().await;
        assert!(matches!(found, Err(BrokerError::Unavailable { .. })));
    });
}

#[test]
fn a_message_to_a_session_of_another_replica_is_prepared_after_a_wait() {
    run(|| async {
        let (here, there, _) = replicas().await;
        let bob = there.register("bob", None).await;
        let alice = here.register("alice", None).await;
        let prepared = there.project.prepare_direct(&bob, "alice", &envelope(false));
        assert!(matches!(prepared, Lookup::Pending(_)));
        let Ok(PreparedSend::Local(submission)) = prepared.answer().await else {
            panic!("it is prepared for this project");
        };
        let sent = there.submit(vec![submission]).await.unwrap().remove(0).unwrap();
        assert_eq!(here.read_inbox(&alice).await, [sent.result.message]);
    });
}

#[test]
fn a_keyed_message_to_an_unknown_session_is_left_to_the_router_after_a_wait() {
    run(|| async {
        let (_here, there, _) = replicas().await;
        let bob = there.register("bob", None).await;
        let headers = Headers {
            idempotency_key: Some("once".to_owned()),
            ..Headers::default()
        };
        let request = SendRequest {
            headers: &headers,
            ..envelope(false)
        };
        let prepared = there.project.prepare_direct(&bob, "alice", &request).answer().await;
        let Ok(PreparedSend::Local(submission)) = prepared else {
            panic!("the router decides whether it is a repeat");
        };
        let sent = there.submit(vec![submission]).await.unwrap().remove(0);
        assert!(matches!(sent, Err(BrokerError::SessionNotFound(_))));
    });
}
