//! Every change publishes exactly one frame.

use std::sync::Arc;

use actors::{
    bridge::{BridgeEvent, BridgeStream, Frame, StoreEvent},
    clock::now,
    model::{DeadLetterReason, Headers, ProjectId, ProjectRecord, ProtocolMetadata, ProtocolName, ProtocolRecord},
    storage::{Audience, Before, Release, Storage, Table},
};
use futures_util::StreamExt;

use crate::storage::support::{
    DELIVERY_LIMIT, Redis, RedisCluster, ReplicaView, WAIT_TIMEOUT, append, block_on, record, storage,
};

/// Reads the frames of the bridge from its creation on.
struct FrameReader {
    incoming: BridgeStream,
    sequence: u64,
}

impl FrameReader {
    async fn on(storage: &dyn Storage) -> Self {
        let mut heard = storage.bridge().unwrap().listen();
        assert_eq!(heard.next().await, Some(BridgeEvent::Connected));
        Self {
            incoming: heard,
            sequence: 0,
        }
    }

    /// The next frame, which must have the next sequence number.
    async fn next(&mut self) -> Frame {
        let heard = tokio::time::timeout(WAIT_TIMEOUT, self.incoming.next()).await;
        let Some(BridgeEvent::Frame(text)) = heard.expect("a frame comes") else {
            panic!("no frame");
        };
        let frame = Frame::parse(&text).unwrap();
        self.sequence += 1;
        assert_eq!(frame.seq, self.sequence, "{frame:?}");
        frame
    }

    async fn expects(&mut self, news: StoreEvent) -> u64 {
        let frame = self.next().await;
        assert_eq!(frame.event, news);
        frame.number
    }
}

#[expect(clippy::too_many_lines, reason = "one case for each kind of change")]
async fn each_change_is_published(url: String) {
    let (storage, other) = (storage(url.clone()).await, storage(url).await);
    let mut ear = FrameReader::on(&*other).await;
    let view = ReplicaView::of(&*storage, "acme");
    let store = &view.store;

    let bob = record(Some("bob"));
    view.put(bob.clone()).await;
    let frame = ear.next().await;
    assert_eq!(
        (frame.event, frame.number),
        (StoreEvent::Session(Box::new(bob.clone())), 1)
    );
    assert_eq!(Some(frame.from), storage.bridge().map(|bridge| bridge.replica()));
    assert_eq!(frame.project, view.project);
    view.put(record(Some("bob"))).await;
    let carol = record(None);
    view.put(carol.clone()).await;
    assert_eq!(
        ear.expects(StoreEvent::Session(Box::new(carol.clone()))).await,
        2,
        "a refused session publishes no frame"
    );
    let (bob, carol) = (bob.id, carol.id);

    // One frame announces a whole batch.
    let everyone = Audience::Many(vec![bob, carol].into());
    let broadcast = append(view.message(None, &Headers::default(), false), everyone);
    let batch = vec![view.direct(bob), broadcast, view.direct(bob)];
    store.append(batch, now()).await.unwrap();
    ear.expects(StoreEvent::Waiting(vec![bob, carol])).await;
    view.lease_ids(bob).await;
    view.lease_ids(carol).await;

    store
        .release(carol, Release::Silent(std::time::Duration::ZERO), DELIVERY_LIMIT, now())
        .await
        .unwrap();
    ear.expects(StoreEvent::Waiting(vec![carol])).await;
    view.claim(bob).await;
    assert_eq!(ear.expects(StoreEvent::Claimed(bob)).await, 1);
    ear.expects(StoreEvent::Waiting(vec![bob])).await;

    let watched = append(
        view.message(Some(carol), &Headers::default(), true),
        Audience::One(carol),
    );
    let id = watched.message.id;
    view.append(watched).await;
    ear.expects(StoreEvent::Waiting(vec![carol])).await;
    assert_eq!(view.lease_ids(carol).await.len(), 2);
    ear.expects(StoreEvent::Progress(id)).await;
    store
        .remove_session(carol, DeadLetterReason::RecipientGone, None, now())
        .await
        .unwrap();
    assert_eq!(ear.expects(StoreEvent::Progress(id)).await, 0);
    assert_eq!(ear.expects(StoreEvent::SessionRemoved(carol)).await, 3);
    store.redrive(vec![id], Some(bob), 100, now()).await.unwrap();
    ear.expects(StoreEvent::Waiting(vec![bob])).await;
    view.lease_ids(bob).await;
    view.acknowledge(bob, &[id]).await.unwrap();

    let watched = append(view.message(Some(bob), &Headers::default(), true), Audience::One(bob));
    let id = watched.message.id;
    view.append(watched).await;
    assert_eq!(
        ear.expects(StoreEvent::Waiting(vec![bob])).await,
        0,
        "a message redriven to another session is not tracked"
    );
    view.lease_ids(bob).await;
    ear.expects(StoreEvent::Progress(id)).await;
    view.acknowledge(bob, &[id]).await.unwrap();
    ear.expects(StoreEvent::Progress(id)).await;

    let protocol = ProtocolRecord {
        name: ProtocolName::parse("chat").unwrap(),
        version: semver::Version::new(1, 2, 0),
        schema: serde_json::json!(true),
        capabilities: std::collections::BTreeSet::new(),
        metadata: ProtocolMetadata::default(),
        registered_at_ms: 7,
        registered_by: None,
        owner: None,
    };
    let (name, version) = (protocol.name.clone(), protocol.version.clone());
    for _ in 0..2 {
        store.insert_protocol(&protocol, None).await.unwrap();
    }
    ear.expects(StoreEvent::Protocol { name, version }).await;
    for _ in 0..2 {
        let added = store.put_if(
            Table::AddedBackends,
            "docs".into(),
            Before::Absent { len_max: 1 },
            Some("{}".into()),
        );
        added.await.unwrap();
    }
    ear.expects(StoreEvent::Backends).await;
    let project = ProjectRecord {
        id: ProjectId::parse("acme").unwrap(),
        ..ProjectRecord::default_project(1)
    };
    for _ in 0..2 {
        storage.put_project(Arc::new(project.clone())).await.unwrap();
    }
    ear.expects(StoreEvent::Project(0)).await;
    assert_eq!(store.replicated().unwrap().last_frame_seq().await, Ok(ear.sequence));
    assert_eq!(
        ReplicaView::of(&*other, "none")
            .store
            .replicated()
            .unwrap()
            .last_frame_seq()
            .await,
        Ok(0)
    );
}

#[test]
fn each_change_is_published_by_a_server() {
    let redis = Redis::start();
    block_on(each_change_is_published(redis.url()));
}

#[test]
fn each_change_is_published_on_every_node_of_a_cluster() {
    let cluster = RedisCluster::start();
    for node in &cluster.nodes {
        node.command(&["FLUSHALL"]);
    }
    block_on(each_change_is_published(cluster.url()));
}

#[test]
fn another_database_is_another_broker() {
    let redis = Redis::start();
    block_on(async {
        let (here, there) = (storage(redis.url()).await, storage(format!("{}/1", redis.url())).await);
        let mut ear = FrameReader::on(&*there).await;
        ReplicaView::of(&*here, "acme").join().await;
        let own = ReplicaView::of(&*there, "acme");
        let joined = own.join().await;
        assert!(matches!(ear.next().await.event, StoreEvent::Session(record) if record.id == joined));
        assert_eq!(own.store.sessions().await.unwrap().sessions.len(), 1);
    });
}

#[test]
fn the_bridge_reports_a_possible_loss_of_frames() {
    let mut redis = Redis::durable();
    block_on(async {
        let storage = storage(redis.url()).await;
        let mut ear = FrameReader::on(&*storage).await;
        redis.kill();
        assert_eq!(ear.incoming.next().await, Some(BridgeEvent::Disconnected));
        redis.restart();
        assert_eq!(ear.incoming.next().await, Some(BridgeEvent::Connected));
        let view = ReplicaView::of(&*storage, "acme");
        let put = crate::storage::support::eventually(async || {
            let put = view
                .store
                .put_session(record(None), actors::storage::PutSession::default());
            put.await.ok()
        });
        put.await;
        ear.next().await;
    });
}
