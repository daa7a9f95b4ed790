//! Group leases: one lease of a broadcast for all sessions of a replica with automatic acknowledgement.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{BudgetFull, DeliveryStatus, Headers, MessageId, SessionId},
    storage::{Append, Appended, Audience, Claim, PushedDelivery, RecipientRefusal},
};

use storage::redis::RedisSettings;

use super::{
    push::PushReplica,
    support::{Proxy, Redis, RedisCluster, ReplicaView, WAIT_TIMEOUT, append, block_on, connect, eventually},
};

/// A sender, a replica, and three sessions on it with automatic acknowledgement.
struct AutoAckReaders {
    sender: ReplicaView,
    replica: PushReplica,
    readers: [(SessionId, Claim); 3],
}

impl AutoAckReaders {
    /// Starts with a write timeout that is never reached.
    async fn start(url: &str) -> Self {
        Self::start_with_timeout(url, 2 * WAIT_TIMEOUT).await
    }

    async fn start_with_timeout(url: &str, posts_within: Duration) -> Self {
        let taker = PushReplica::connect_with(RedisSettings {
            group_lease_timeout: posts_within,
            ..RedisSettings::new(url)
        });
        let taker = taker.await;
        Self {
            sender: ReplicaView::of(&connect(url).await.unwrap(), "acme"),
            readers: [
                taker.join_with_auto_ack(20).await,
                taker.join_with_auto_ack(20).await,
                taker.join_with_auto_ack(20).await,
            ],
            replica: taker,
        }
    }

    fn sessions(&self) -> [SessionId; 3] {
        self.readers.map(|(session, _)| session)
    }

    fn broadcast(&self) -> Append {
        let message = self.sender.message(None, &Headers::default(), false);
        append(message, Audience::Many(Arc::from(self.sessions())))
    }

    async fn send(&self) -> MessageId {
        let broadcast = self.broadcast();
        let id = broadcast.message.id;
        assert_eq!(self.sender.append(broadcast).await, accepted());
        id
    }

    /// Sends a broadcast that arrives as one group lease of all three.
    async fn send_as_group_lease(&mut self) -> MessageId {
        let id = self.send().await;
        let handed = self.replica.next_deliveries().await;
        assert_eq!(handed.len(), 3);
        for handed in handed {
            let reader = (handed.session, handed.claim);
            assert!(self.readers.contains(&reader), "{handed:?}");
            assert!(handed.lease_numbers.is_empty(), "{handed:?}");
            assert_eq!(ids_of(&handed), [id]);
        }
        id
    }

    /// The next message that a session has as a lease of its own: the number, and the id.
    async fn next_own_lease(&mut self, reader: usize) -> (u64, MessageId) {
        let handed = self.replica.next_deliveries().await.remove(0);
        assert_eq!((handed.session, handed.claim), self.readers[reader]);
        assert_eq!(handed.lease_numbers.end - handed.lease_numbers.start, 1, "{handed:?}");
        (handed.lease_numbers.start, ids_of(&handed)[0])
    }

    fn write_in_time(&self, session: SessionId, id: MessageId) {
        assert_eq!(self.note_written(session, id), [], "acknowledged with the others");
    }

    /// Writes the message to these sessions, and acknowledges it where its group lease had already ended.
    async fn write_and_acknowledge(&self, sessions: [SessionId; 2], id: MessageId) {
        for session in sessions {
            let left = self.note_written(session, id);
            self.sender.acknowledge(session, &left).await.unwrap();
        }
    }

    fn note_written(&self, session: SessionId, id: MessageId) -> Vec<MessageId> {
        let mut written = vec![id];
        self.replica
            .view
            .store
            .push()
            .unwrap()
            .settle_group_leases(session, &mut written);
        written
    }

    async fn await_statuses(&self, id: MessageId, statuses: [DeliveryStatus; 3]) {
        eventually(async || {
            let known = self.sender.store.message_status(id, now()).await.unwrap()?;
            let found = self.sessions().map(|session| {
                let of_session = known.iter().find(|known| known.session == session);
                of_session.expect("a recipient").status
            });
            (found == statuses).then_some(())
        })
        .await;
    }

    async fn depths(&self) -> [(usize, usize); 3] {
        let [alice, bob, carol] = self.sessions();
        let depth = |session| self.sender.depth(session);
        [depth(alice).await, depth(bob).await, depth(carol).await]
    }
}

fn ids_of(handed: &PushedDelivery) -> Vec<MessageId> {
    assert!(handed.deliveries.iter().all(|delivery| delivery.count == 1));
    handed.deliveries.iter().map(|delivery| delivery.message.id).collect()
}

fn accepted() -> Appended {
    Appended::accepted_by_all(0)
}

/// The write timeout of group leases in tests that exceed it.
const SOON: Duration = Duration::from_millis(50);

const QUEUED: DeliveryStatus = DeliveryStatus::Queued;
const DELIVERED: DeliveryStatus = DeliveryStatus::Delivered;
const ACKNOWLEDGED: DeliveryStatus = DeliveryStatus::Acknowledged;

async fn a_group_lease_is_acknowledged_as_one(url: String) {
    let mut stage = AutoAckReaders::start(&url).await;
    let [alice, bob, carol] = stage.sessions();
    let first = stage.send_as_group_lease().await;
    stage.await_statuses(first, [DELIVERED; 3]).await;
    let second = stage.send_as_group_lease().await;
    for session in [bob, alice, carol] {
        stage.write_in_time(session, first);
    }
    stage.await_statuses(first, [ACKNOWLEDGED; 3]).await;
    stage.await_statuses(second, [DELIVERED; 3]).await;
    for session in [bob, alice, carol] {
        stage.write_in_time(session, second);
    }
    stage.await_statuses(second, [ACKNOWLEDGED; 3]).await;
    assert_eq!(stage.depths().await, [(0, 0); 3]);
    // The numbers of their own leases do not count it.
    let direct = stage.sender.send(bob).await;
    assert_eq!(stage.next_own_lease(1).await, (0, direct));
}

#[test]
fn a_group_lease_is_acknowledged_as_one_on_a_server() {
    let redis = Redis::start();
    block_on(a_group_lease_is_acknowledged_as_one(redis.url()));
}

#[test]
fn a_group_lease_is_acknowledged_as_one_in_a_cluster() {
    let cluster = RedisCluster::start();
    block_on(a_group_lease_is_acknowledged_as_one(cluster.url()));
}

#[test]
fn a_finished_group_lease_leaves_no_keys() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let id = stage.send_as_group_lease().await;
        for session in stage.sessions() {
            stage.write_in_time(session, id);
        }
        stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
        for key in ["group_leases", "messages", "copies"] {
            let key = format!("{{acme}}:{key}");
            assert_eq!(redis.command(&["EXISTS", &key]), "0", "{key}");
        }
    });
}

#[test]
fn a_request_about_a_session_turns_its_part_of_a_group_lease_into_a_lease() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.send_as_group_lease().await;
        assert_eq!(stage.sender.depth(bob).await, (0, 1));
        assert_eq!(stage.next_own_lease(1).await, (0, id), "delivered again with a number");
        let direct = stage.sender.send(bob).await;
        assert_eq!(stage.next_own_lease(1).await, (1, direct));
        stage.await_statuses(id, [DELIVERED; 3]).await;
        for session in [alice, bob, carol] {
            stage.write_in_time(session, id);
        }
        stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(stage.sender.depth(bob).await, (0, 1), "the other");
    });
}

#[test]
fn a_group_lease_whose_sessions_all_have_leases_is_acknowledged_by_these() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let id = stage.send_as_group_lease().await;
        assert_eq!(stage.depths().await, [(0, 1); 3]);
        for session in stage.sessions() {
            stage.write_in_time(session, id);
        }
        stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(stage.depths().await, [(0, 0); 3]);
    });
}

#[test]
fn a_session_not_written_to_in_time_gets_a_lease_of_its_own() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start_with_timeout(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.send_as_group_lease().await;
        stage.write_and_acknowledge([alice, bob], id).await;
        while stage.replica.next_deliveries().await.remove(0).session != carol {}
        stage.await_statuses(id, [ACKNOWLEDGED, ACKNOWLEDGED, DELIVERED]).await;
        assert_eq!(stage.depths().await, [(0, 0), (0, 0), (0, 1)]);
        assert_eq!(stage.note_written(carol, id), [id], "no longer part of the group lease");
        stage.sender.acknowledge(carol, &[id]).await.unwrap();
        stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
    });
}

#[test]
fn a_message_is_published_once_to_all_late_sessions() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start_with_timeout(&redis.url(), SOON).await;
        let id = stage.send_as_group_lease().await;
        let handed = stage.replica.next_deliveries().await;
        assert_eq!(handed.len(), 3);
        for handed in handed {
            assert_eq!((handed.lease_numbers.clone(), ids_of(&handed)), (0..1, vec![id]));
        }
        assert_eq!(stage.depths().await, [(0, 1); 3]);
    });
}

#[test]
fn written_messages_are_acknowledged_before_a_request_about_the_inbox() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let [alice, bob, _] = stage.sessions();
        let id = stage.send_as_group_lease().await;
        stage.write_in_time(alice, id);
        assert_eq!(stage.replica.view.depth(alice).await, (0, 0));
        assert_eq!(stage.replica.view.depth(bob).await, (0, 1));
    });
}

#[test]
fn a_new_claim_releases_a_group_lease_for_its_session_only() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start_with_timeout(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.send_as_group_lease().await;
        stage.sender.claim(bob).await;
        stage.await_statuses(id, [DELIVERED, QUEUED, DELIVERED]).await;
        stage.write_and_acknowledge([alice, carol], id).await;
        stage.await_statuses(id, [ACKNOWLEDGED, QUEUED, ACKNOWLEDGED]).await;
        assert_eq!(stage.sender.lease_ids(bob).await, [(id, 2)]);
    });
}

#[test]
fn a_stopped_replica_has_no_group_leases() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let id = stage.send_as_group_lease().await;
        let replica = stage.replica.storage.bridge().unwrap().replica();
        let other = connect(redis.url()).await.unwrap();
        let _project = ReplicaView::of(&other, "acme");
        other.release_leases_of(replica).await.unwrap();
        assert_eq!(redis.command(&["EXISTS", "{acme}:group_leases"]), "0");
        stage.await_statuses(id, [DELIVERED; 3]).await;
        // Stored leases belong to connections, which may move to another replica.
        for session in stage.sessions() {
            stage.sender.claim(session).await;
            assert_eq!(stage.sender.lease_ids(session).await, [(id, 2)]);
        }
    });
}

#[test]
fn a_removed_session_leaves_its_part_of_a_group_lease_to_the_dead_letters() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start_with_timeout(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.send_as_group_lease().await;
        let gone = actors::model::DeadLetterReason::RecipientGone;
        let dead = stage.sender.store.remove_session(bob, gone, None, now()).await;
        assert_eq!(dead.unwrap(), Some(1));
        stage.write_and_acknowledge([alice, carol], id).await;
        stage
            .await_statuses(id, [ACKNOWLEDGED, DeliveryStatus::DeadLettered(gone), ACKNOWLEDGED])
            .await;
    });
}

#[test]
fn a_lost_group_lease_is_found_by_the_next_read() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let id = stage.send().await;
        stage.replica.next_batch().await;
        for (session, claim) in stage.readers {
            let leased = stage.replica.start_auto_ack_push(session, claim, 20, 0).await;
            assert_eq!((leased.deliveries[0].message.id, leased.lease_numbers), (id, 0..1));
            assert_eq!(stage.note_written(session, id), [id]);
            stage.replica.view.acknowledge(session, &[id]).await.unwrap();
        }
        stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(redis.command(&["EXISTS", "{acme}:group_leases"]), "0");
    });
}

#[test]
fn group_leases_are_bounded_by_windows_queues_and_replica() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        let [_, bob, _] = stage.sessions();
        for number in 0..3 {
            let id = stage.sender.send(bob).await;
            assert_eq!(stage.next_own_lease(1).await, (number, id));
        }
        // These messages fill bob's queue, and then a broadcast as a group lease.
        let full = |stage: &AutoAckReaders| {
            let broadcast = stage.broadcast();
            Append {
                queue_capacity: 4,
                ..broadcast
            }
        };
        assert_eq!(stage.sender.append(full(&stage)).await, accepted());
        assert_eq!(stage.replica.next_deliveries().await.len(), 3);
        let refusing = Appended::Accepted {
            queue_len: 0,
            refused: vec![bob],
            refusal: Some(RecipientRefusal::Full(BudgetFull::queue_messages(4))),
        };
        assert_eq!(stage.sender.append(full(&stage)).await, refusing);
    });
    block_on(async {
        let mut stage = AutoAckReaders::start(&redis.url()).await;
        // Sixteen broadcasts at once are group leases; the next one is a lease per session.
        for _ in 0..16 {
            stage.send_as_group_lease().await;
        }
        let last = stage.send().await;
        let mut numbered = Vec::new();
        for handed in stage.replica.next_deliveries().await {
            numbered.push((handed.session, handed.lease_numbers.start, ids_of(&handed)[0]));
        }
        assert_eq!(numbered.len(), 3 * 17);
        for session in stage.sessions() {
            let own: Vec<_> = numbered.iter().filter(|(of, ..)| *of == session).collect();
            let numbers: Vec<_> = own.iter().map(|(_, number, _)| *number).collect();
            assert_eq!(
                numbers,
                (0..17).collect::<Vec<_>>(),
                "all earlier messages are leases too"
            );
            assert_eq!(own[16].2, last);
        }
        // The window is full at 20.
        for _ in 0..3 {
            stage.send().await;
        }
        let waiting = stage.sender.append(stage.broadcast()).await;
        assert_eq!(waiting, Appended::accepted_by_all(1));
    });
}

#[test]
fn messages_written_while_redis_is_down_are_acknowledged_after_it_returns() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    block_on(async {
        for is_asked_about in [false, true] {
            let mut stage = AutoAckReaders::start(&format!("redis://{}", proxy.address)).await;
            let sender = connect(redis.url()).await.unwrap();
            stage.sender = ReplicaView::of(&sender, "acme");
            let id = stage.send_as_group_lease().await;
            if is_asked_about {
                // Each session has a lease of its own.
                assert_eq!(stage.depths().await, [(0, 1); 3]);
            }
            proxy.cut();
            for session in stage.sessions() {
                stage.write_in_time(session, id);
            }
            stage.await_statuses(id, [DELIVERED; 3]).await;
            proxy.restore();
            stage.await_statuses(id, [ACKNOWLEDGED; 3]).await;
        }
    });
}
