//! A call reads messages from the store only after it has reserved memory for them.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use actors::{
    model::{Headers, MessageId, PAGE_BYTES_MAX, Priority},
    project::{ReceiveRequest, SendRequest},
    session::{Connection, Member, ReadBudget, ReceiveCall, UNRESERVED_BYTES_MAX, Writable},
};
use tokio::sync::Semaphore;

use crate::world::{ActorThread, World, envelope, ids, local_submission, run, settings};

/// Sends a message with a text of `len` bytes.
async fn sends(world: &World, sender: &Arc<Member>, to: &str, len: usize, priority: Priority) -> MessageId {
    let payload = format!("{{\"text\":\"{}\"}}", "x".repeat(len));
    let headers = Headers {
        priority,
        ..Headers::default()
    };
    let envelope = SendRequest {
        payload: &payload,
        headers: &headers,
        ..envelope(false)
    };
    let submission = local_submission(
        world
            .project
            .prepare_direct(sender, to, &envelope)
            .answer()
            .await
            .unwrap(),
    );
    let mut answers = world.submit(vec![submission]).await.unwrap();
    answers.pop().unwrap().unwrap().result.message
}

/// A budget of `bytes` that records what was reserved. It grows when the test adds a permit.
struct GrowingRoom {
    bytes: AtomicUsize,
    asked: Mutex<Vec<usize>>,
    grows: Semaphore,
}

impl GrowingRoom {
    fn of(bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: AtomicUsize::new(bytes),
            asked: Mutex::default(),
            grows: Semaphore::new(0),
        })
    }

    fn asked(&self) -> Vec<usize> {
        self.asked.lock().unwrap().clone()
    }
}

impl ReadBudget for GrowingRoom {
    fn try_reserve(&self, bytes: usize) -> bool {
        bytes <= self.bytes.load(Ordering::SeqCst)
    }

    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.asked.lock().unwrap().push(bytes);
        Box::pin(async move {
            self.grows.acquire().await.unwrap().forget();
            self.bytes.store(bytes, Ordering::SeqCst);
        })
    }

    fn release(&self) {
        self.bytes.store(0, Ordering::SeqCst);
    }
}

fn receives<'a>(
    world: &'a World,
    member: &'a Member,
    room: &Arc<GrowingRoom>,
) -> impl Future<Output = Vec<MessageId>> + 'a {
    let room: Arc<dyn ReadBudget> = Arc::<GrowingRoom>::clone(room);
    async move {
        let request = ReceiveRequest {
            limit: 9,
            wait: Duration::from_secs(30),
            ..ReceiveRequest::default()
        };
        let call = ReceiveCall::default();
        let received = world.project.receive_for_call(&call, member, request, room).await;
        ids(&received.unwrap().deliveries)
    }
}

#[test]
fn a_call_reads_a_message_longer_than_a_page_once_all_of_it_is_reserved() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (alice, bob) = (world.register("alice", None).await, world.register("bob", None).await);
        let long = sends(&world, &alice, "bob", PAGE_BYTES_MAX, Priority::Normal).await;
        let room = GrowingRoom::of(PAGE_BYTES_MAX);
        room.grows.add_permits(1);
        assert_eq!(receives(&world, &bob, &room).await, [long]);
        let asked = room.asked();
        assert!(asked.len() == 1 && asked[0] > PAGE_BYTES_MAX, "{asked:?}");
    });
}

#[test]
fn a_waiting_call_reserves_nothing_until_a_message_arrives() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (alice, bob) = (world.register("alice", None).await, world.register("bob", None).await);
        let (never, soon) = (GrowingRoom::of(PAGE_BYTES_MAX), GrowingRoom::of(PAGE_BYTES_MAX));
        let first = receives(&world, &bob, &never);
        let second = receives(&world, &bob, &soon);
        let sending = async {
            while [&never, &soon].iter().any(|room| room.try_reserve(1)) {
                tokio::task::yield_now().await;
            }
            soon.grows.add_permits(1);
            world.send(&alice, "bob").await.result.message
        };
        tokio::pin!(first);
        let both = async { tokio::join!(second, sending) };
        tokio::select! {
            _ = &mut first => panic!("the reservation must fail"),
            (read, sent) = both => assert_eq!(read, [sent]),
        }
        assert_eq!(
            (never.asked(), soon.asked()),
            (vec![PAGE_BYTES_MAX], vec![PAGE_BYTES_MAX])
        );
        // The call reserves memory, finds an empty inbox, and waits for the next message.
        never.grows.add_permits(2);
        let sending = async { world.send(&alice, "bob").await.result.message };
        let (read, sent) = tokio::join!(first, sending);
        assert_eq!(read, [sent]);
    });
}

#[test]
fn a_short_message_overtakes_a_long_one_that_cannot_be_reserved() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (bob, line) = world.register_with_push("bob").await;
        line.set_room(UNRESERVED_BYTES_MAX);
        let long = sends(&world, &alice, "bob", UNRESERVED_BYTES_MAX, Priority::Normal).await;
        assert!(line.recorded().pushed.is_empty());
        let urgent = sends(&world, &alice, "bob", 1, Priority::Urgent).await;
        line.sees(&[urgent]).await;
        line.set_room(2 * UNRESERVED_BYTES_MAX);
        let connection = line.id();
        world.project.writable(&bob, Writable { connection });
        line.sees(&[urgent, long]).await;
    });
}

#[test]
fn many_messages_are_leased_in_order_as_reservations_succeed() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let alice = world.register("alice", None).await;
        let (_, line) = world.register_with_push("bob").await;
        line.set_room(UNRESERVED_BYTES_MAX);
        let mut sent = Vec::new();
        for _ in 0..4 {
            sent.push(sends(&world, &alice, "bob", UNRESERVED_BYTES_MAX / 3, Priority::Normal).await);
        }
        line.sees(&sent).await;
    });
}
