//! A deleted project: its connections close, its actors end, and its data is cleared.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{BrokerError, ProjectConfig},
    project::ReceiveRequest,
    session::{CloseReason, ReceiveCall, ReceiveMode, UnboundedReads},
    storage::{Storage, memory::MemoryStorage},
    supervise::ActorMetrics,
};

use super::until;
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, World, run, settings, within_deadline},
};

/// The metrics of all actors of a project, including its sessions.
fn actor_metrics(world: &World) -> Vec<Arc<ActorMetrics>> {
    let (project, registry, router) = world.project.actor_addresses();
    let mut metrics = [project.metrics(), registry.metrics(), router.metrics()]
        .map(Arc::clone)
        .to_vec();
    let sessions = world.project.directory().all();
    metrics.extend(sessions.iter().map(|member| Arc::clone(member.address.metrics())));
    metrics
}

fn lifecycle_state(metrics: &ActorMetrics) -> &'static str {
    metrics.node(Vec::new()).state
}

async fn assert_deletion_ends_actors(world: World) {
    let (_, own_line) = world.register_with_push("alice").await;
    let there = world.other_project("there", ProjectConfig::default()).await;
    let (alice, line) = there.register_with_push("alice").await;
    let bob = there.register("bob", None).await;
    let sent = there.send_many(&bob, "alice", 1).await;
    line.sees(&sent).await;
    let call = ReceiveCall::default();
    let waiting = actix_rt::spawn({
        let (project, bob, call) = (there.project.clone(), Arc::clone(&bob), call.clone());
        async move {
            let request = ReceiveRequest {
                limit: 1,
                wait: Duration::from_secs(100),
                mode: ReceiveMode::Manual,
                ..ReceiveRequest::default()
            };
            let budget = Arc::new(UnboundedReads);
            project.receive_for_call(&call, &bob, request, budget).await.map(drop)
        }
    });
    within_deadline("the beginning of the wait", call.until_waiting()).await;
    let metrics = actor_metrics(&there);
    assert_eq!(
        metrics
            .iter()
            .map(|metrics| lifecycle_state(metrics))
            .collect::<Vec<_>>(),
        ["running"; 5]
    );

    world.broker.delete_project(there.project.id()).await.unwrap();
    line.closes_with(CloseReason::SessionEnded).await;
    let answer = within_deadline("the end of the wait", waiting).await.unwrap();
    assert_eq!(answer.map_err(|error| error.code()), Err("session_not_found"));
    let tree = world.broker.observe();
    let names: Vec<_> = tree.children.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["default"]);
    // A handle to the deleted project gets only errors.
    until("the end of the project", || lifecycle_state(&metrics[0]) == "finished").await;
    let refused = there.try_register("late", None).await.err();
    assert_eq!(refused, Some(BrokerError::unavailable()));
    drop((there, alice, bob));
    until("the end of all actors", || {
        metrics.iter().all(|metrics| lifecycle_state(metrics) == "finished")
    })
    .await;
    assert!(own_line.close_reasons().is_empty(), "of another project");
    assert!(world.project.resolve("alice").known().is_ok());
}

#[test]
fn a_deleted_project_closes_its_connections_and_stops_its_actors() {
    for threads in [ActorThread::Test, ActorThread::Own] {
        run(move || async move { assert_deletion_ends_actors(World::new(settings(), threads).await).await });
        run(move || async move {
            let store = Arc::new(SlowStorage::default());
            assert_deletion_ends_actors(World::on_storage(store, settings(), threads).await).await;
        });
    }
}

#[test]
fn a_deleted_project_leaves_nothing_in_the_store() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let bob = there.register("bob", None).await;
        there.send_many(&bob, "bob", 3).await;
        world.broker.delete_project(there.project.id()).await.unwrap();
        let left = store.open(there.project.id());
        assert!(left.sessions().await.unwrap().sessions.is_empty() && left.protocols().await.unwrap().is_empty());
    });
}

#[test]
fn a_project_that_panics_during_its_deletion_is_still_deleted() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let there = world.other_project("there", ProjectConfig::default()).await;
        let (_, line) = there.register_with_push("bob").await;
        let (project, _, router) = there.project.actor_addresses();
        for _ in 0..3 {
            project.tell(actors::supervise::Panic).unwrap();
            router.tell(actors::supervise::Panic).unwrap();
        }
        world.broker.delete_project(there.project.id()).await.unwrap();
        line.closes_with(CloseReason::SessionEnded).await;
        assert!(world.broker.project(there.project.id()).await.is_err());
    });
}
