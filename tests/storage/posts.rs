//! What is leased as one to all sessions of a replica that acknowledge by writing.

use std::{sync::Arc, time::Duration};

use actors::{
    clock::now,
    model::{Full, Headers, MessageId, SessionId, Status},
    storage::{Append, Appended, Audience, Claim, Handed, Refusal},
};

use mcp_broker::storage::redis::RedisSettings;

use crate::{
    handing::Taker,
    support::{Cluster, PATIENCE, Proxy, Redis, View, append, block_on, connect, until},
};

/// A sender, a replica, and three who read there.
struct Stage {
    sender: View,
    taker: Taker,
    readers: [(SessionId, Claim); 3],
}

impl Stage {
    /// Nobody is too slow to be written to.
    async fn on(url: &str) -> Self {
        Self::within(url, 2 * PATIENCE).await
    }

    async fn within(url: &str, posts_within: Duration) -> Self {
        let taker = Taker::with(RedisSettings {
            posts_within,
            ..RedisSettings::new(url)
        });
        let taker = taker.await;
        Self {
            sender: View::of(&connect(url).await.unwrap(), "acme"),
            readers: [taker.reader(20).await, taker.reader(20).await, taker.reader(20).await],
            taker,
        }
    }

    fn sessions(&self) -> [SessionId; 3] {
        self.readers.map(|(session, _)| session)
    }

    fn broadcast(&self) -> Append {
        let message = self.sender.message(None, &Headers::default(), false);
        append(message, Audience::Many(Arc::from(self.sessions())))
    }

    async fn sends(&self) -> MessageId {
        let broadcast = self.broadcast();
        let id = broadcast.message.id;
        assert_eq!(self.sender.append(broadcast).await, accepted());
        id
    }

    /// Sends one that comes to all three as one.
    async fn posts(&mut self) -> MessageId {
        let id = self.sends().await;
        let handed = self.taker.gets().await;
        assert_eq!(handed.len(), 3);
        for handed in handed {
            let reader = (handed.session, handed.claim);
            assert!(self.readers.contains(&reader), "{handed:?}");
            assert!(handed.numbers.is_empty(), "{handed:?}");
            assert_eq!(ids_of(&handed), [id]);
        }
        id
    }

    /// A message that a reader has as a lease of its own: the number, and the id.
    async fn gets_one(&mut self, reader: usize) -> (u64, MessageId) {
        let handed = self.taker.gets().await.remove(0);
        assert_eq!((handed.session, handed.claim), self.readers[reader]);
        assert_eq!(handed.numbers.end - handed.numbers.start, 1, "{handed:?}");
        (handed.numbers.start, ids_of(&handed)[0])
    }

    fn writes(&self, session: SessionId, id: MessageId) {
        assert_eq!(self.left_of(session, id), [], "acknowledged with the others");
    }

    /// Writes it, and acknowledges it where it was too late to go with the others.
    async fn reaches(&self, sessions: [SessionId; 2], id: MessageId) {
        for session in sessions {
            let left = self.left_of(session, id);
            self.sender.acknowledge(session, &left).await.unwrap();
        }
    }

    fn left_of(&self, session: SessionId, id: MessageId) -> Vec<MessageId> {
        let mut written = vec![id];
        self.taker.view.store.note_written(session, &mut written);
        written
    }

    async fn are(&self, id: MessageId, statuses: [Status; 3]) {
        until(async || {
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

fn ids_of(handed: &Handed) -> Vec<MessageId> {
    assert!(handed.deliveries.iter().all(|delivery| delivery.count == 1));
    handed.deliveries.iter().map(|delivery| delivery.message.id).collect()
}

fn accepted() -> Appended {
    Appended::by_all(0)
}

/// For those who are never written to.
const SOON: Duration = Duration::from_millis(50);

const QUEUED: Status = Status::Queued;
const DELIVERED: Status = Status::Delivered;
const ACKNOWLEDGED: Status = Status::Acknowledged;

async fn many_are_written_to_and_acknowledge_as_one(url: String) {
    let mut stage = Stage::on(&url).await;
    let [alice, bob, carol] = stage.sessions();
    let first = stage.posts().await;
    stage.are(first, [DELIVERED; 3]).await;
    let second = stage.posts().await;
    for session in [bob, alice, carol] {
        stage.writes(session, first);
    }
    stage.are(first, [ACKNOWLEDGED; 3]).await;
    stage.are(second, [DELIVERED; 3]).await;
    for session in [bob, alice, carol] {
        stage.writes(session, second);
    }
    stage.are(second, [ACKNOWLEDGED; 3]).await;
    assert_eq!(stage.depths().await, [(0, 0); 3]);
    // Their own leases are counted without them.
    let direct = stage.sender.send(bob).await;
    assert_eq!(stage.gets_one(1).await, (0, direct));
}

#[test]
fn what_is_written_to_many_is_acknowledged_as_one() {
    let redis = Redis::start();
    block_on(many_are_written_to_and_acknowledge_as_one(redis.url()));
}

#[test]
fn what_is_written_to_many_is_acknowledged_as_one_in_a_cluster_too() {
    let cluster = Cluster::start();
    block_on(many_are_written_to_and_acknowledge_as_one(cluster.url()));
}

#[test]
fn nothing_stays_of_what_is_over() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let id = stage.posts().await;
        for session in stage.sessions() {
            stage.writes(session, id);
        }
        stage.are(id, [ACKNOWLEDGED; 3]).await;
        for key in ["posts", "messages", "copies"] {
            let key = format!("{{acme}}:{key}");
            assert_eq!(redis.ask(&["EXISTS", &key]), "0", "{key}");
        }
    });
}

#[test]
fn who_is_asked_about_has_it_as_a_lease_of_its_own() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.posts().await;
        assert_eq!(stage.sender.depth(bob).await, (0, 1));
        assert_eq!(stage.gets_one(1).await, (0, id), "once more, with a number");
        let direct = stage.sender.send(bob).await;
        assert_eq!(stage.gets_one(1).await, (1, direct));
        stage.are(id, [DELIVERED; 3]).await;
        for session in [alice, bob, carol] {
            stage.writes(session, id);
        }
        stage.are(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(stage.sender.depth(bob).await, (0, 1), "the other");
    });
}

#[test]
fn when_all_have_it_as_leases_of_their_own_these_are_acknowledged() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let id = stage.posts().await;
        assert_eq!(stage.depths().await, [(0, 1); 3]);
        for session in stage.sessions() {
            stage.writes(session, id);
        }
        stage.are(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(stage.depths().await, [(0, 0); 3]);
    });
}

#[test]
fn who_is_not_written_to_in_time_has_it_as_a_lease_of_its_own() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::within(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.posts().await;
        stage.reaches([alice, bob], id).await;
        while stage.taker.gets().await.remove(0).session != carol {}
        stage.are(id, [ACKNOWLEDGED, ACKNOWLEDGED, DELIVERED]).await;
        assert_eq!(stage.depths().await, [(0, 0), (0, 0), (0, 1)]);
        assert_eq!(stage.left_of(carol, id), [id], "nobody acknowledges it with others");
        stage.sender.acknowledge(carol, &[id]).await.unwrap();
        stage.are(id, [ACKNOWLEDGED; 3]).await;
    });
}

#[test]
fn a_message_is_published_once_to_all_who_are_late() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::within(&redis.url(), SOON).await;
        let id = stage.posts().await;
        let handed = stage.taker.gets().await;
        assert_eq!(handed.len(), 3);
        for handed in handed {
            assert_eq!((handed.numbers.clone(), ids_of(&handed)), (0..1, vec![id]));
        }
        assert_eq!(stage.depths().await, [(0, 1); 3]);
    });
}

#[test]
fn what_was_written_is_acknowledged_before_the_inbox_is_asked_about() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let [alice, bob, _] = stage.sessions();
        let id = stage.posts().await;
        stage.writes(alice, id);
        assert_eq!(stage.taker.view.depth(alice).await, (0, 0));
        assert_eq!(stage.taker.view.depth(bob).await, (0, 1));
    });
}

#[test]
fn another_claim_puts_it_back_for_that_one_alone() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::within(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.posts().await;
        stage.sender.claim(bob).await;
        stage.are(id, [DELIVERED, QUEUED, DELIVERED]).await;
        stage.reaches([alice, carol], id).await;
        stage.are(id, [ACKNOWLEDGED, QUEUED, ACKNOWLEDGED]).await;
        assert_eq!(stage.sender.leases(bob).await, [(id, 2)]);
    });
}

#[test]
fn a_replica_that_is_no_more_has_no_posts() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let id = stage.posts().await;
        let replica = stage.taker.storage.bridge().unwrap().replica();
        let other = connect(redis.url()).await.unwrap();
        let _project = View::of(&other, "acme");
        other.release_leases_of(replica).await.unwrap();
        assert_eq!(redis.ask(&["EXISTS", "{acme}:posts"]), "0");
        stage.are(id, [DELIVERED; 3]).await;
        // They are for connections, which may come to another replica.
        for session in stage.sessions() {
            stage.sender.claim(session).await;
            assert_eq!(stage.sender.leases(session).await, [(id, 2)]);
        }
    });
}

#[test]
fn a_session_that_is_removed_leaves_it_to_the_dead_letters() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::within(&redis.url(), SOON).await;
        let [alice, bob, carol] = stage.sessions();
        let id = stage.posts().await;
        let gone = actors::model::DeadLetterReason::RecipientGone;
        let dead = stage.sender.store.remove_session(bob, gone, None, now()).await;
        assert_eq!(dead.unwrap(), Some(1));
        stage.reaches([alice, carol], id).await;
        stage
            .are(id, [ACKNOWLEDGED, Status::DeadLettered(gone), ACKNOWLEDGED])
            .await;
    });
}

#[test]
fn what_nobody_heard_of_is_looked_up() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let id = stage.sends().await;
        stage.taker.hears().await;
        for (session, claim) in stage.readers {
            let leased = stage.taker.reads(session, claim, 20, 0).await;
            assert_eq!((leased.deliveries[0].message.id, leased.numbers), (id, 0..1));
            assert_eq!(stage.left_of(session, id), [id]);
            stage.taker.view.acknowledge(session, &[id]).await.unwrap();
        }
        stage.are(id, [ACKNOWLEDGED; 3]).await;
        assert_eq!(redis.ask(&["EXISTS", "{acme}:posts"]), "0");
    });
}

#[test]
fn there_are_not_more_than_windows_and_queues_and_a_replica_hold() {
    let redis = Redis::start();
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        let [_, bob, _] = stage.sessions();
        for number in 0..3 {
            let id = stage.sender.send(bob).await;
            assert_eq!(stage.gets_one(1).await, (number, id));
        }
        // The queue of bob is full with these, and then with what is posted to him.
        let full = |stage: &Stage| {
            let broadcast = stage.broadcast();
            Append {
                queue_capacity: 4,
                ..broadcast
            }
        };
        assert_eq!(stage.sender.append(full(&stage)).await, accepted());
        assert_eq!(stage.taker.gets().await.len(), 3);
        let refusing = Appended::Accepted {
            queue_len: 0,
            refused: vec![bob],
            refusal: Some(Refusal::Full(Full::of_queue(4))),
        };
        assert_eq!(stage.sender.append(full(&stage)).await, refusing);
    });
    block_on(async {
        let mut stage = Stage::on(&redis.url()).await;
        // Sixteen at once are posts; the next is handed to each by itself.
        for _ in 0..16 {
            stage.posts().await;
        }
        let last = stage.sends().await;
        let mut numbered = Vec::new();
        for handed in stage.taker.gets().await {
            numbered.push((handed.session, handed.numbers.start, ids_of(&handed)[0]));
        }
        assert_eq!(numbered.len(), 3 * 17);
        for session in stage.sessions() {
            let own: Vec<_> = numbered.iter().filter(|(of, ..)| *of == session).collect();
            let numbers: Vec<_> = own.iter().map(|(_, number, _)| *number).collect();
            assert_eq!(
                numbers,
                (0..17).collect::<Vec<_>>(),
                "all that came before is a lease too"
            );
            assert_eq!(own[16].2, last);
        }
        // The window is full at 20.
        for _ in 0..3 {
            stage.sends().await;
        }
        let waiting = stage.sender.append(stage.broadcast()).await;
        assert_eq!(waiting, Appended::by_all(1));
    });
}

#[test]
fn what_was_written_while_redis_is_gone_is_acknowledged_when_it_is_back() {
    let redis = Redis::start();
    let proxy = Proxy::to(redis.address);
    block_on(async {
        for is_asked_about in [false, true] {
            let mut stage = Stage::on(&format!("redis://{}", proxy.address)).await;
            let sender = connect(redis.url()).await.unwrap();
            stage.sender = View::of(&sender, "acme");
            let id = stage.posts().await;
            if is_asked_about {
                // Each has it as a lease of its own.
                assert_eq!(stage.depths().await, [(0, 1); 3]);
            }
            proxy.cut();
            for session in stage.sessions() {
                stage.writes(session, id);
            }
            stage.are(id, [DELIVERED; 3]).await;
            proxy.open();
            stage.are(id, [ACKNOWLEDGED; 3]).await;
        }
    });
}
