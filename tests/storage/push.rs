//! Push: messages that are delivered to a session by the operation that accepts them.

use std::time::Duration;

use actors::{
    bridge::{BridgeEvent, BridgeStream, DeliveryBatch},
    clock::now,
    model::{DeliveryStatus, Headers, MessageId, SessionId},
    storage::{
        Append, Appended, Audience, Claim, Lease, PrefetchLimit, PushedDelivery, Release, ReplicatedStorage, Storage,
    },
};
use futures_util::StreamExt;
use storage::redis::{RedisSettings, RedisStorage};

use crate::storage::support::{
    DELIVERY_LIMIT, Proxy, Redis, RedisCluster, ReplicaView, WAIT_TIMEOUT, append, block_on, connect, eventually,
    record,
};

/// A replica that receives pushed messages.
pub struct PushReplica {
    pub storage: Box<dyn Storage>,
    pub view: ReplicaView,
    incoming: BridgeStream,
}

impl PushReplica {
    async fn connect(url: &str) -> Self {
        Self::connect_with(RedisSettings::new(url)).await
    }

    pub async fn connect_with(settings: RedisSettings) -> Self {
        let storage = RedisStorage::connect(settings).await.unwrap();
        let mut heard = storage.bridge().listen();
        assert_eq!(heard.next().await, Some(BridgeEvent::Connected));
        Self {
            view: ReplicaView::of(&storage, "acme"),
            storage: Box::new(storage),
            incoming: heard,
        }
    }

    async fn claim_and_start_push(&self, session: SessionId, window: usize, room: usize) -> Claim {
        let claim = self.view.claim(session).await;
        self.start_push(session, claim, window, room, 0).await;
        claim
    }

    async fn start_push(&self, session: SessionId, claim: Claim, window: usize, room: usize, from: u64) -> Lease {
        let takes = PrefetchLimit {
            messages: window,
            bytes: room,
            auto_ack: false,
        };
        self.view
            .store
            .push()
            .unwrap()
            .start_push(session, claim, takes, from)
            .await
            .unwrap()
    }

    /// Creates a session with push and automatic acknowledgement.
    pub async fn join_with_auto_ack(&self, window: usize) -> (SessionId, Claim) {
        let session = self.view.join().await;
        let claim = self.view.claim(session).await;
        self.start_auto_ack_push(session, claim, window, 0).await;
        (session, claim)
    }

    pub async fn start_auto_ack_push(&self, session: SessionId, claim: Claim, window: usize, from: u64) -> Lease {
        let takes = PrefetchLimit {
            messages: window,
            bytes: 1 << 20,
            auto_ack: true,
        };
        self.view
            .store
            .push()
            .unwrap()
            .start_push(session, claim, takes, from)
            .await
            .unwrap()
    }

    /// The deliveries of the next batch. Frames are skipped.
    pub async fn next_deliveries(&mut self) -> Vec<PushedDelivery> {
        let batch = self.next_batch().await;
        assert_eq!(batch.project, self.view.project);
        self.view.store.push().unwrap().decode_batch(&batch).unwrap()
    }

    /// The next batch, without its deliveries.
    pub async fn next_batch(&mut self) -> DeliveryBatch {
        loop {
            let heard = tokio::time::timeout(WAIT_TIMEOUT, self.incoming.next()).await;
            match heard.expect("a delivery batch arrives") {
                Some(BridgeEvent::DeliveryBatch(messages, last)) => {
                    return DeliveryBatch::parse(messages, &last).unwrap();
                }
                Some(BridgeEvent::Frame(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The messages of the next batch, which must be for one session, and the number of the first.
    async fn next_delivery(&mut self, session: SessionId, claim: Claim) -> (u64, Vec<MessageId>) {
        let handed = self.next_deliveries().await.remove(0);
        assert_eq!((handed.session, handed.claim), (session, claim));
        assert_eq!(
            handed.lease_numbers.end - handed.lease_numbers.start,
            handed.deliveries.len() as u64
        );
        assert!(handed.deliveries.iter().all(|delivery| delivery.count == 1));
        let ids = handed.deliveries.iter().map(|delivery| delivery.message.id);
        (handed.lease_numbers.start, ids.collect())
    }
}

/// Sends a message and returns whether it waits in the inbox.
async fn is_queued(view: &ReplicaView, append: Append) -> bool {
    match view.append(append).await {
        Appended::Accepted { queue_len, refused, .. } if refused.is_empty() => queue_len > 0,
        other => panic!("{other:?}"),
    }
}

async fn accepted_messages_are_pushed(url: String) {
    let (sender, mut taker) = (connect(url.clone()).await.unwrap(), PushReplica::connect(&url).await);
    let sender = ReplicaView::of(&sender, "acme");
    let (bob, carol) = (sender.join().await, sender.join().await);
    let early = sender.send(bob).await;
    let claim = taker.claim_and_start_push(bob, 20, 1 << 20).await;
    assert!(is_queued(&sender, sender.direct(bob)).await, "an earlier message waits");
    let leased = taker.view.store.lease(bob, Some(claim), 9, usize::MAX, now()).await;
    let leased = leased.unwrap();
    assert_eq!((leased.deliveries[0].message.id, leased.deliveries.len()), (early, 2));
    assert_eq!((leased.lease_numbers.clone(), leased.is_pushing), (0..2, true));

    let direct = sender.direct(bob);
    let message = direct.message.clone();
    assert!(!is_queued(&sender, direct).await);
    let handed = taker.next_deliveries().await.remove(0);
    assert_eq!((handed.session, handed.lease_numbers), (bob, 2..3));
    assert_eq!(handed.deliveries[0].message.body(), message.body());
    assert_eq!(sender.statuses(message.id).await, [DeliveryStatus::Delivered]);
    assert_eq!(sender.depth(bob).await, (0, 3));

    // One batch, to a session with push and one without.
    let bundle = sender.directs(bob, 5);
    let ids: Vec<_> = bundle.iter().map(|append| append.message.id).collect();
    sender.store.append(bundle, now()).await.unwrap();
    assert_eq!(taker.next_delivery(bob, claim).await, (3, ids));
    let everyone = Audience::Many(vec![bob, carol].into());
    let broadcast = append(sender.message(None, &Headers::default(), false), everyone);
    let id = broadcast.message.id;
    assert!(is_queued(&sender, broadcast).await, "for carol");
    assert_eq!(taker.next_delivery(bob, claim).await, (8, vec![id]));
    assert_eq!(sender.depth(carol).await, (1, 0));

    let held: Vec<_> = taker.start_push(bob, claim, 20, 1 << 20, 2).await.deliveries;
    assert_eq!(held.len(), 7, "all from the third on");
    let ids: Vec<_> = held.iter().map(|delivery| delivery.message.id).collect();
    let done = sender.acknowledge(bob, &ids).await.unwrap();
    assert_eq!((done.acknowledged, done.depth.leased), (7, 2));
}

#[test]
fn accepted_messages_are_pushed_to_the_claim_that_started_push() {
    let redis = Redis::start();
    block_on(accepted_messages_are_pushed(redis.url()));
}

#[test]
fn push_works_through_any_node_of_a_cluster() {
    let cluster = RedisCluster::start();
    block_on(accepted_messages_are_pushed(cluster.url()));
}

#[test]
fn push_stops_at_the_window_in_messages_and_in_bytes() {
    let redis = Redis::start();
    block_on(async {
        let mut taker = PushReplica::connect(&redis.url()).await;
        let sender = ReplicaView::of(&connect(redis.url()).await.unwrap(), "acme");
        let bob = sender.join().await;
        let claim = taker.claim_and_start_push(bob, 3, 1 << 20).await;
        let mut ids = Vec::new();
        for waits_now in [false, false, false, true, true] {
            let direct = sender.direct(bob);
            ids.push(direct.message.id);
            assert_eq!(is_queued(&sender, direct).await, waits_now, "{} before", ids.len() - 1);
        }
        for (number, id) in (0..).zip(&ids[..3]) {
            assert_eq!(taker.next_delivery(bob, claim).await, (number, vec![*id]));
        }
        // The reader has not received all of them, and gets no more than its window holds.
        let lease = |limit| taker.view.store.lease(bob, Some(claim), limit, usize::MAX, now());
        assert!(lease(3).await.unwrap().deliveries.is_empty());
        taker.view.acknowledge(bob, &ids[..1]).await.unwrap();
        let leased = lease(3).await.unwrap();
        assert_eq!((leased.deliveries.len(), leased.lease_numbers), (1, 3..4));

        taker.view.acknowledge(bob, &ids[1..4]).await.unwrap();
        assert_eq!(lease(3).await.unwrap().deliveries[0].message.id, ids[4]);
        taker.view.acknowledge(bob, &ids[4..]).await.unwrap();
        let len = sender.direct(bob).message.encoded_len(1);
        taker.start_push(bob, claim, 9, 2 * len, 5).await;
        let waiting = [
            is_queued(&sender, sender.direct(bob)).await,
            is_queued(&sender, sender.direct(bob)).await,
            is_queued(&sender, sender.direct(bob)).await,
        ];
        assert_eq!(waiting, [false, false, true], "two messages use all bytes");
    });
}

#[test]
fn tracked_messages_and_messages_with_a_ttl_are_not_pushed() {
    let redis = Redis::start();
    block_on(async {
        let taker = PushReplica::connect(&redis.url()).await;
        let bob = taker.view.join().await;
        taker.claim_and_start_push(bob, 9, 1 << 20).await;
        let watched = taker.view.message(Some(bob), &Headers::default(), true);
        assert!(is_queued(&taker.view, append(watched, Audience::One(bob))).await);
        let other = taker.view.join().await;
        taker.claim_and_start_push(other, 9, 1 << 20).await;
        let headers = Headers {
            ttl_seconds: Some(3600),
            ..Headers::default()
        };
        let timed = taker.view.message(Some(other), &headers, false);
        assert!(is_queued(&taker.view, append(timed, Audience::One(other))).await);
    });
}

#[test]
fn push_ends_with_the_claim_and_with_a_release_of_all() {
    let redis = Redis::start();
    block_on(async {
        let taker = PushReplica::connect(&redis.url()).await;
        let other = connect(redis.url()).await.unwrap();
        let view = ReplicaView::of(&other, "acme");
        let silent = Release::Silent(Duration::ZERO);
        for ended_by in ["another claim", "release", "silence", "death"] {
            let bob = view.join().await;
            let claim = taker.claim_and_start_push(bob, 9, 1 << 20).await;
            assert!(!is_queued(&view, view.direct(bob)).await);
            let release = |which| view.store.release(bob, which, DELIVERY_LIMIT, now());
            match ended_by {
                "another claim" => {
                    view.claim(bob).await;
                    assert!(taker.start_push(bob, claim, 9, 1 << 20, 0).await.superseded);
                }
                "release" => assert_eq!(release(Release::Claimed(claim)).await.unwrap().returned, 1),
                "silence" => assert_eq!(release(silent.clone()).await.unwrap().returned, 1),
                _ => {
                    let replica = taker.storage.bridge().unwrap().replica();
                    other.release_leases_of(replica).await.unwrap();
                    assert_eq!(view.depth(bob).await, (0, 1), "the session has a connection");
                }
            }
            assert!(is_queued(&view, view.direct(bob)).await, "after {ended_by}");
        }
    });
}

#[test]
fn a_delivery_number_that_the_store_has_lost_starts_again_at_zero() {
    let redis = Redis::start();
    block_on(async {
        let taker = PushReplica::connect(&redis.url()).await;
        let session = record(None);
        let bob = session.id;
        taker.view.put(session).await;
        let claim = taker.claim_and_start_push(bob, 9, 1 << 20).await;
        let sent = taker.view.send(bob).await;
        // The reader reports more deliveries than the store knows.
        let leased = taker.start_push(bob, claim, 9, 1 << 20, 7).await;
        assert_eq!((leased.deliveries[0].message.id, leased.lease_numbers), (sent, 0..1));
        assert!(taker.start_push(bob, claim, 9, 1 << 20, 1).await.deliveries.is_empty());
    });
}

/// A recipient whose replica has lost the answer to a lease of its backlog, and does not know of the loss.
struct LostLease {
    taker: PushReplica,
    proxy: Proxy,
    sender: ReplicaView,
    bob: SessionId,
    claim: Claim,
    backlog: [MessageId; 3],
}

impl LostLease {
    async fn new(redis: &Redis) -> Self {
        let proxy = Proxy::to(redis.address);
        let taker = PushReplica::connect_with(RedisSettings {
            deadline: Duration::from_millis(400),
            ..RedisSettings::new(format!("redis://{}", proxy.address))
        })
        .await;
        let sender = ReplicaView::of(&connect(redis.url()).await.unwrap(), "acme");
        let bob = sender.join().await;
        let claim = taker.view.claim(bob).await;
        let backlog = [sender.send(bob).await, sender.send(bob).await, sender.send(bob).await];
        taker.start_push(bob, claim, 99, 1 << 20, 0).await;
        // The delay of the request alone exceeds the deadline for the answer.
        proxy.delay(Duration::from_millis(300));
        let unheard = taker.view.store.lease(bob, Some(claim), 9, usize::MAX, now()).await;
        assert!(unheard.is_err(), "{unheard:?}");
        eventually(async || (sender.depth(bob).await == (0, 3)).then_some(())).await;
        Self {
            taker,
            proxy,
            sender,
            bob,
            claim,
            backlog,
        }
    }

    /// The replica returns what the lost answer was about.
    async fn notices_the_loss(&self) {
        self.proxy.restore();
        eventually(async || self.taker.view.store.depth(self.bob).await.ok()).await;
    }
}

#[test]
fn what_was_pushed_behind_a_lost_lease_is_delivered_after_the_backlog() {
    let redis = Redis::start();
    block_on(async {
        let lost = LostLease::new(&redis).await;
        let (taker, sender, bob) = (&lost.taker, &lost.sender, lost.bob);
        let newest = sender.direct(bob);
        let newest_id = newest.message.id;
        assert!(!is_queued(sender, newest).await, "it is pushed");
        lost.notices_the_loss().await;
        assert_eq!(sender.depth(bob).await, (3, 1));
        let started = taker.start_push(bob, lost.claim, 99, 1 << 20, 0).await;
        assert_eq!(started.deliveries.len(), 0, "the backlog comes first");
        let leased = taker
            .view
            .store
            .lease(bob, Some(lost.claim), 9, usize::MAX, now())
            .await;
        let deliveries = leased.unwrap().deliveries;
        let found: Vec<_> = deliveries.iter().map(|it| (it.message.id, it.count)).collect();
        let [first, second, third] = lost.backlog;
        assert_eq!(found, [first, second, third, newest_id].map(|id| (id, 1)));
        assert!(!is_queued(sender, sender.direct(bob)).await, "push continues");
    });
}

#[test]
fn leases_that_a_start_of_push_has_answered_with_are_not_returned() {
    let redis = Redis::start();
    block_on(async {
        let lost = LostLease::new(&redis).await;
        let bob = lost.bob;
        let limit = PrefetchLimit {
            messages: 99,
            bytes: 1 << 20,
            auto_ack: false,
        };
        // As a batch does that the replica has sent before it noticed.
        let started = lost
            .sender
            .store
            .push()
            .unwrap()
            .start_push(bob, lost.claim, limit, 0)
            .await;
        let known = started.unwrap().deliveries;
        let known: Vec<_> = known.iter().map(|delivery| delivery.message.id).collect();
        assert_eq!(known, lost.backlog);
        lost.notices_the_loss().await;
        assert_eq!(lost.sender.depth(bob).await, (0, 3));
    });
}

#[test]
fn written_messages_are_acknowledged_together_and_before_the_next_request() {
    let redis = Redis::start();
    block_on(async {
        let view = ReplicaView::of(&connect(redis.url()).await.unwrap(), "acme");
        let (bob, carol) = (view.join().await, view.join().await);
        let to_bob = [view.send(bob).await, view.send(bob).await, view.send(bob).await];
        let to_carol = view.send(carol).await;
        view.lease_ids(bob).await;
        view.lease_ids(carol).await;
        let written = |session, ids: &[MessageId]| view.store.acknowledge_written(session, ids.to_vec(), now());
        let (first, second, third, depth) = tokio::join!(
            written(bob, &to_bob[..1]),
            written(carol, &[to_carol, to_bob[0]]),
            written(bob, &to_bob[1..2]),
            view.store.depth(bob),
        );
        let depth = depth.unwrap();
        assert_eq!((depth.waiting, depth.leased), (0, 1));
        // The answer to the last of two combined operations has the depth after both.
        let [first, second, third] = [first, second, third].map(Result::unwrap);
        assert_eq!((first.acknowledged + third.acknowledged, third.depth), (2, depth));
        assert_eq!((second.acknowledged, second.unknown), (1, vec![to_bob[0]]));

        // No request to Redis is needed.
        assert_eq!(written(bob, &to_bob[2..]).await.unwrap().depth.leased, 0);
    });
}
