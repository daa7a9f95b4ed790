//! Transformed messages on their way to a reader: what fails, what has no room, and what they do not hold up.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    clock::Now,
    model::{
        BrokerError, Capabilities, DeadLetterReason, DeliveryStatus, MessageId, PAGE_BYTES_MAX, ProjectId, SessionId,
        SessionName,
    },
    project::{ReceiveRequest, Registration},
    session::{AckMode, CloseReason, Connection, Member, PushMode, ReceiveMode, UNRESERVED_BYTES_MAX, Writable},
    storage::{Acknowledge, Acknowledged, Op, Storage, Store, memory::MemoryStorage},
};
use serde_json::{Value, json};

use super::{
    JOB, fleet, fleet_on, form, job, listens, operations, read, record, register_versions, set_lenses, set_operations,
    speaks, takes, version,
};
use crate::intercept::{Hooks, Intercept, InterceptStore, StorageHooks, StoreHooks};
use crate::world::{ActorThread, MANUAL, RecordingConnection, World, run, settings, within_deadline};

/// Bytes that the lens adds to a message on its way to version 3.
const GROWTH: usize = 3000;

async fn growing_fleet() -> World {
    let world = fleet().await;
    let adds = json!([{"op": "add", "path": "/kind", "value": "x".repeat(GROWTH)}]);
    set_operations(&world, &[(2, adds)]);
    world
}

/// Sends messages of version 2 to bob, who speaks it.
async fn sends_many(world: &World, count: usize) -> Vec<MessageId> {
    let alice = speaks(world, "alice", 2, &[], None).await;
    speaks(world, "bob", 2, &[], None).await;
    let mut sent = Vec::new();
    for number in 0..count {
        let payload = json!({"title": number.to_string()});
        sent.push(job(2, &payload).to(world, &alice, "bob").await.result.message);
    }
    sent
}

/// Bob speaks version 3, and has room for the first of the messages that wait for him.
async fn bob_with_little_room(world: &World) -> (Arc<Member>, Arc<RecordingConnection>) {
    let line = RecordingConnection::new();
    // One reservation of a lease, and no second one.
    line.set_budget(UNRESERVED_BYTES_MAX);
    let bob = speaks(world, "bob", 3, &[], Some(&line)).await;
    let push = PushMode {
        window: 100,
        ack: AckMode::Manual,
    };
    world.subscribe(&bob, &line, Some(push));
    line.await_recorded("the first messages", |seen| !seen.pushed.is_empty())
        .await;
    (bob, line)
}

async fn reason_of(world: &World, message: MessageId) -> (DeliveryStatus, String) {
    let status = world.project.message_status(message).await.unwrap().unwrap();
    let note = status[0].outcome.as_ref().map(|outcome| outcome.note.to_string());
    (status[0].status, note.unwrap_or_default())
}

#[test]
fn a_call_that_does_not_wait_goes_past_messages_on_which_lenses_fail() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let mut sent = Vec::new();
        for name in ["too long", "far too long", "long, too", "a"] {
            let payload = json!({"name": name});
            sent.push(job(1, &payload).to(&world, &alice, "bob").await.result.message);
        }
        let bob = speaks(&world, "bob", 4, &[], None).await;
        let request = ReceiveRequest {
            limit: 1,
            mode: ReceiveMode::Manual,
            ..ReceiveRequest::default()
        };
        let received = world.project.receive(&bob, request).await.unwrap();
        let seen: Vec<_> = received.deliveries.iter().map(|delivery| delivery.message.id).collect();
        assert_eq!(seen, [sent[3]]);
        for failed in &sent[..3] {
            let reason = DeadLetterReason::TransformFailed;
            assert_eq!(reason_of(&world, *failed).await.0, DeliveryStatus::DeadLettered(reason));
        }
    });
}

/// Counts the operations that conclude messages.
#[derive(Default)]
struct Counting {
    memory: Arc<MemoryStorage>,
    concluded: Arc<AtomicUsize>,
}

impl Hooks for Counting {
    type Inner = MemoryStorage;

    fn inner(&self) -> &Arc<MemoryStorage> {
        &self.memory
    }
}

impl StorageHooks for Counting {
    const NAME: &'static str = "counting";

    fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
        Arc::new(InterceptStore(CountingStore {
            store: self.memory.open(project),
            concluded: Arc::clone(&self.concluded),
        }))
    }
}

struct CountingStore {
    store: Arc<dyn Store>,
    concluded: Arc<AtomicUsize>,
}

impl Hooks for CountingStore {
    type Inner = dyn Store;

    fn inner(&self) -> &Arc<dyn Store> {
        &self.store
    }
}

impl StoreHooks for CountingStore {
    fn acknowledge(&self, session: SessionId, which: Acknowledge, now: Now) -> Op<Acknowledged> {
        if which.rejects() {
            self.concluded.fetch_add(1, Ordering::SeqCst);
        }
        self.store.acknowledge(session, which, now)
    }
}

#[test]
fn what_fails_for_one_reason_is_concluded_in_one_operation() {
    run(|| async {
        let (storage, concluded) = (Counting::default(), Arc::<AtomicUsize>::default());
        let storage = Counting {
            concluded: Arc::clone(&concluded),
            ..storage
        };
        let world = fleet_on(Arc::new(Intercept(storage))).await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let mut sent = Vec::new();
        for name in ["too long", "a", "far too long", "b", "long, too"] {
            let payload = json!({"name": name});
            sent.push(job(1, &payload).to(&world, &alice, "bob").await.result.message);
        }
        let (_, line) = listens(&world, "bob", 4, MANUAL).await;
        line.sees(&[sent[1], sent[3]]).await;
        let dead = DeliveryStatus::DeadLettered(DeadLetterReason::TransformFailed);
        for failed in [sent[0], sent[2], sent[4]] {
            assert_eq!(reason_of(&world, failed).await.0, dead);
        }
        assert_eq!(concluded.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn what_a_connection_gets_is_counted_as_it_is_delivered_and_waits_for_room() {
    run(|| async {
        let world = growing_fleet().await;
        let sent = sends_many(&world, 40).await;
        let (bob, line) = bob_with_little_room(&world).await;
        // Nothing else of the session waits.
        world.acknowledge(&bob, vec![sent[0]]).await;
        let bytes = |line: &RecordingConnection| -> usize {
            let recorded = line.recorded();
            let lens = recorded
                .pushed
                .iter()
                .map(|pushed| pushed.message.encoded_len(pushed.count));
            lens.sum()
        };
        assert!(bytes(&line) <= UNRESERVED_BYTES_MAX, "{}", bytes(&line));
        line.set_budget(usize::MAX);
        bob.address.report(Writable { connection: line.id() });
        line.sees(&sent).await;
        assert!(bytes(&line) > sent.len() * GROWTH);
        assert!(line.recorded().pushed.iter().all(|pushed| pushed.count == 1));
    });
}

#[test]
fn a_call_goes_past_messages_that_a_stalled_connection_holds() {
    run(|| async {
        let world = growing_fleet().await;
        sends_many(&world, 40).await;
        let (bob, line) = bob_with_little_room(&world).await;
        let held = line.recorded().pushed.len();
        assert!(held < 40, "the connection has no room for all");
        let alice = speaks(&world, "alice", 2, &[], None).await;
        job(2, &json!({"title": "last"})).to(&world, &alice, "bob").await;
        let received = within_deadline("the answer", world.project.receive(&bob, ReceiveRequest::default())).await;
        assert!(!received.unwrap().deliveries.is_empty());
        assert_eq!(line.recorded().pushed.len(), held, "they are held");
    });
}

#[test]
fn an_answer_has_a_page_of_bytes_as_they_are_delivered() {
    run(|| async {
        let world = growing_fleet().await;
        let sent = sends_many(&world, 400).await;
        let bob = speaks(&world, "bob", 3, &[], None).await;
        let mut seen = Vec::new();
        while seen.len() < sent.len() {
            let request = ReceiveRequest {
                limit: 1000,
                mode: ReceiveMode::Immediate,
                ..ReceiveRequest::default()
            };
            let received = world.project.receive(&bob, request).await.unwrap();
            let lens = received
                .deliveries
                .iter()
                .map(|delivery| delivery.message.encoded_len(delivery.count));
            let bytes: usize = lens.sum();
            assert!(bytes > 0 && bytes <= PAGE_BYTES_MAX, "{bytes}");
            assert_eq!(received.remaining, sent.len() - seen.len() - received.deliveries.len());
            assert!(received.deliveries.iter().all(|delivery| delivery.count == 1));
            seen.extend(received.deliveries.iter().map(|delivery| delivery.message.id));
        }
        assert_eq!(seen, sent);
    });
}

/// The lens looks up each title in 40 maps. What its work costs is calculated, not measured: the test needs no clock.
#[test]
fn a_neighbour_is_served_between_the_transformations_of_one_lease() {
    run(|| async {
        let world = fleet().await;
        let pairs: Vec<_> = (0..30)
            .map(|at| json!([format!("old{at}"), format!("new{at}")]))
            .collect();
        let mut ops = vec![json!({"op": "map", "path": "/title", "values": pairs}); 40];
        ops.push(json!({"op": "add", "path": "/kind", "value": "task"}));
        set_operations(&world, &[(2, json!(ops))]);
        let sent = sends_many(&world, 400).await;
        let carol = speaks(&world, "carol", 2, &[], None).await;
        let bob = speaks(&world, "bob", 3, &[], None).await;
        let request = ReceiveRequest {
            limit: 1000,
            ..ReceiveRequest::default()
        };
        let mut receiving = std::pin::pin!(world.project.receive(&bob, request));
        let mut served = 0;
        let received = loop {
            tokio::select! {
                biased;
                received = &mut receiving => break received.unwrap(),
                () = world.acknowledge(&carol, Vec::new()) => served += 1,
            }
        };
        assert_eq!(received.deliveries.len(), sent.len(), "one lease");
        // If the session kept the worker, the answer would come first.
        assert!(served > 1, "{served} calls of the neighbour were answered");
    });
}

#[test]
fn a_session_is_served_while_a_message_is_transformed_for_it() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let large = json!({"name": "x".repeat(300 * 1024)});
        let first = job(1, &large).to(&world, &alice, "bob").await.result.message;
        let held = world.project.hold_large_transforms().await;
        let (bob, line) = listens(&world, "bob", 2, MANUAL).await;
        let small = json!({"name": "dig"});
        let second = job(1, &small).to(&world, &alice, "bob").await.result.message;
        // The lease is not answered, and the acknowledgement is.
        within_deadline("an acknowledgement", world.acknowledge(&bob, Vec::new())).await;
        assert_eq!(line.recorded().pushed.len(), 0);
        drop(held);
        line.sees(&[first, second]).await;
        let seen: Vec<_> = line.take_pushed().iter().map(read).collect();
        assert!(seen.iter().all(|envelope| envelope["protocol_version"] == "2.0.0"));
    });
}

#[test]
fn a_new_owner_gets_its_messages_although_the_ones_before_were_being_transformed() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let large = json!({"name": "x".repeat(300 * 1024)});
        let sent = job(1, &large).to(&world, &alice, "bob").await.result.message;
        let held = world.project.hold_large_transforms().await;
        let (_, before) = listens(&world, "bob", 2, MANUAL).await;
        let (_, line) = listens(&world, "bob", 3, MANUAL).await;
        before.closes_with(CloseReason::TakenOver).await;
        drop(held);
        line.sees(&[sent]).await;
        assert_eq!(read(&line.take_pushed()[0])["protocol_version"], "3.0.0");
        assert_eq!(before.recorded().pushed.len(), 0);
    });
}

/// A world whose store has the lens from version 2 to 3, and one from 1 to 2 that this build cannot compile.
async fn world_with_a_broken_lens() -> World {
    let storage = Arc::new(MemoryStorage::default());
    let before = World::on_storage(Arc::clone(&storage) as _, settings(), ActorThread::Test).await;
    register_versions(&before).await;
    let store = storage.open(&ProjectId::default_project());
    let broken = record(1, json!([{"op": "of a later build", "path": "/name"}]));
    store.put_lens(&broken, None).await.unwrap();
    store.put_lens(&record(2, operations(2)), None).await.unwrap();
    World::on_shared_storage(storage, settings(), ActorThread::Test).await
}

async fn receives(world: &World, member: &Member) -> Vec<Value> {
    takes(world, member, ReceiveMode::Immediate).await
}

#[test]
fn a_lens_that_does_not_compile_holds_up_neither_other_lenses_nor_other_messages() {
    run(|| async {
        let world = world_with_a_broken_lens().await;
        let alice = speaks(&world, "alice", 2, &[], None).await;
        let bob = speaks(&world, "bob", 3, &[], None).await;
        assert_eq!(world.project.lenses_len(), 1);
        let payload = json!({"title": "dig"});
        job(2, &payload).to(&world, &alice, "bob").await;
        let seen = receives(&world, &bob).await;
        assert_eq!(form(&seen[0])[1], json!({"title": "dig", "kind": "task"}));
        let old = json!({"name": "dig"});
        let carol = speaks(&world, "carol", 1, &[], None).await;
        job(1, &old).to(&world, &carol, "carol").await;
        assert_eq!(receives(&world, &carol).await[0]["payload"], old);
    });
}

#[test]
fn a_lens_that_does_not_compile_is_the_reason_of_a_refusal_and_of_a_dead_letter() {
    run(|| async {
        let world = world_with_a_broken_lens().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let payload = json!({"name": "dig"});
        let accepted = job(1, &payload).to(&world, &alice, "bob").await.result.message;
        let bob = speaks(&world, "bob", 3, &[], None).await;
        let reason = "this broker cannot compile the lens from 1.0.0 to 2.0.0: replace the lens";
        let refused = job(1, &payload).try_to(&world, &alice, "bob").await.err();
        let Some(BrokerError::TransformFailed(failure)) = refused else {
            panic!("{refused:?}")
        };
        assert_eq!(failure.to.to_string(), "3.0.0");
        assert!(failure.to_string().contains(reason), "{failure}");
        let failed = job(1, &payload).to_all(&world, &alice).await;
        assert_eq!(failed.result.transforms.unwrap().failed, [bob.record.id]);
        assert!(receives(&world, &bob).await.is_empty());
        let (status, note) = reason_of(&world, accepted).await;
        let dead = DeliveryStatus::DeadLettered(DeadLetterReason::TransformFailed);
        assert!(status == dead && note.contains(reason), "{status:?} {note}");
        // Once the lens is replaced, the message arrives.
        set_lenses(&world, &[1, 2]);
        let third = job(1, &payload).to(&world, &alice, "bob").await.result.message;
        let seen = receives(&world, &bob).await;
        assert_eq!(seen[0]["message_id"], json!(third));
    });
}

#[test]
fn a_session_without_protocols_gets_what_lenses_do_not_concern() {
    run(|| async {
        let world = world_with_a_broken_lens().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        let registration = Registration {
            name: Some(SessionName::parse("bob").unwrap()),
            capabilities: Some(Capabilities::default()),
            ..Registration::default()
        };
        let bob = world.project.register(registration).await.unwrap().member;
        let payload = json!({"name": "dig"});
        job(1, &payload).to(&world, &alice, "bob").await;
        let seen = world
            .receive(&bob, Duration::ZERO, ReceiveMode::Immediate)
            .await
            .unwrap();
        assert_eq!(read(&seen.deliveries[0])["payload"], payload);
        assert_eq!(read(&seen.deliveries[0])["protocol_version"], json!(version(1)));
        assert_eq!(read(&seen.deliveries[0])["protocol_name"], JOB);
    });
}
