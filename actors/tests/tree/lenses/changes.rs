//! Deliveries while lenses, or the versions of the recipient, change.

use std::{sync::Arc, time::Duration};

use actors::{
    model::{DeliveryStatus, TransformRule},
    project::LensDefinition,
    session::{Nudge, ReceiveMode},
};
use lens::Direction;
use serde_json::{Value, json};

use super::{
    JOB, admin, fleet, form, job, listens, operations, read, register_versions, set_lenses, speaks, takes, transforms,
    version,
};
use crate::{
    replicas::{ReplicaPair, await_session},
    replicated_memory::{ReplicatedMemory, Unanswered},
    world::{ActorThread, MANUAL, World, run, settings, within_deadline},
};

/// Two replicas that know the versions of the protocol.
async fn pair_with_versions() -> ReplicaPair {
    let pair = ReplicaPair::new(settings()).await;
    register_versions(&pair.here).await;
    pair.there.project.wait_until_current().await.unwrap();
    pair
}

/// Registers the lens from version 1 to version 2.
async fn register_lens(world: &World) {
    put_lens(world, 1, operations(1)).await;
}

/// Registers, or replaces, the lens from a version to the next one.
async fn put_lens(world: &World, from: u64, ops: Value) {
    let definition = LensDefinition {
        from: version(from),
        ops,
        direction: Direction::Both,
        allow_loss: true,
        replaces: true,
    };
    let (name, to) = (JOB.to_owned(), version(from + 1).to_string());
    let by = admin();
    world.project.put_lens(name, to, &definition, &by).await.unwrap();
}

#[test]
fn a_lens_that_another_replica_has_just_registered_is_used_although_its_frame_is_late() {
    run(|| async {
        let pair = pair_with_versions().await;
        let (here, there) = (&pair.here, &pair.there);
        let bob = speaks(there, "bob", 2, &[], None).await;
        let (listener, line) = listens(there, "carol", 2, MANUAL).await;
        here.project.wait_until_current().await.unwrap();
        let alice = speaks(here, "alice", 1, &[], None).await;
        pair.hold_frames_there(true);
        register_lens(here).await;
        let payload = json!({"name": "dig"});
        let job = job(1, &payload);
        job.to(here, &alice, "bob").await;
        let seen = takes(there, &bob, ReceiveMode::Manual).await;
        assert_eq!(form(&seen[0]), json!(["2.0.0", {"title": "dig"}, [], []]));
        let sent = job.to(here, &alice, "carol").await.result.message;
        listener.address.report(Nudge { barrier: None });
        line.sees(&[sent]).await;
        assert_eq!(form(&read(&line.take_pushed()[0]))[1], json!({"title": "dig"}));
    });
}

#[test]
fn a_broadcast_uses_a_lens_that_another_replica_has_just_registered() {
    run(|| async {
        let pair = pair_with_versions().await;
        let (here, there) = (&pair.here, &pair.there);
        let bob = speaks(there, "bob", 2, &[], None).await;
        let alice = speaks(there, "alice", 1, &[], None).await;
        pair.hold_frames_there(true);
        register_lens(here).await;
        let payload = json!({"name": "dig"});
        let routed = job(1, &payload).to_all(there, &alice).await;
        assert_eq!((routed.result.queued, routed.result.skipped), (1, 0));
        let told = json!({"from": "1.0.0", "to": "2.0.0", "loss": [], "defaulted": []});
        assert_eq!(transforms(&routed), [json!([told, 1])]);
        let seen = takes(there, &bob, ReceiveMode::Manual).await;
        assert_eq!(form(&seen[0]), json!(["2.0.0", {"title": "dig"}, [], []]));
        // A sender that wants no transformation does not wait for lenses.
        let never = job(1, &payload).under(TransformRule::Never).to_all(there, &alice).await;
        assert_eq!((never.result.queued, never.result.skipped), (0, 1));
    });
}

#[test]
fn a_broadcast_waits_for_a_lens_in_place_of_one_that_fails() {
    run(|| async {
        let pair = pair_with_versions().await;
        let (here, there) = (&pair.here, &pair.there);
        speaks(there, "bob", 4, &[], None).await;
        let alice = speaks(there, "alice", 3, &[], None).await;
        pair.hold_frames_there(true);
        // Its titles are too long for version 4.
        set_lenses(there, &[3]);
        let replacement = json!([
            {"op": "drop", "path": "/title", "back": "x"}, {"op": "add", "path": "/title", "value": "new"},
        ]);
        put_lens(here, 3, replacement).await;
        let payload = json!({"title": "plant", "kind": "garden"});
        let routed = job(3, &payload).to_all(there, &alice).await;
        let transforms = routed.result.transforms.unwrap();
        assert_eq!((transforms.versions[0].1, transforms.failed.len()), (1, 0));
    });
}

#[test]
fn nothing_is_delivered_before_the_lenses_are_loaded() {
    run(|| async {
        let cluster = Arc::<ReplicatedMemory>::default();
        let (first, second) = (cluster.connect_replica(), cluster.connect_replica());
        let here = World::on_storage(first.storage(), settings(), ActorThread::Test).await;
        register_versions(&here).await;
        register_lens(&here).await;
        let alice = speaks(&here, "alice", 1, &[], None).await;
        let bob = speaks(&here, "bob", 2, &[], None).await;
        let payload = json!({"name": "dig"});
        job(1, &payload).to(&here, &alice, "bob").await;
        second.set_unanswered(Some(Unanswered::Protocols));
        let there = World::on_shared_storage(second.storage(), settings(), ActorThread::Test).await;
        await_session(&there, "bob").await;
        let bob_there = there.project.resolve("bob").known().unwrap();
        assert_eq!(bob_there.record.id, bob.record.id);
        let refused = there.receive(&bob_there, Duration::ZERO, ReceiveMode::Manual).await;
        assert_eq!(refused.err().map(|error| error.code()), Some("unavailable"));
        second.set_unanswered(None);
        there.project.wait_until_current().await.unwrap();
        within_deadline("the lenses are loaded", async {
            while there.project.lenses_len() == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
        let seen = takes(&there, &bob_there, ReceiveMode::Manual).await;
        assert_eq!(form(&seen[0])[1], json!({"title": "dig"}));
    });
}

/// What is too large for a worker, so that its transformation can be held up.
fn large_payload() -> Value {
    json!({"name": "x".repeat(300 * 1024)})
}

#[test]
fn a_failure_of_a_lease_that_has_ended_gives_up_nothing() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let payload = large_payload();
        let sent = job(1, &payload).to(&world, &alice, "bob").await.result.message;
        let held = world.project.hold_large_transforms().await;
        // The title is too long for version 4.
        listens(&world, "bob", 4, MANUAL).await;
        let (bob, line) = listens(&world, "bob", 1, MANUAL).await;
        drop(held);
        line.sees(&[sent]).await;
        assert_eq!(read(&line.take_pushed()[0])["payload"], payload);
        world.acknowledge(&bob, vec![sent]).await;
        let status = world.project.message_status(sent).await.unwrap().unwrap();
        assert_eq!(status[0].status, DeliveryStatus::Acknowledged);
    });
}

#[test]
fn a_session_that_declares_another_version_during_a_transformation_gets_that_one() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let payload = large_payload();
        let sent = job(1, &payload).to(&world, &alice, "bob").await.result.message;
        let held = world.project.hold_large_transforms().await;
        let (_, line) = listens(&world, "bob", 2, MANUAL).await;
        // The same connection registers again: its lease goes on.
        speaks(&world, "bob", 3, &[], Some(&line)).await;
        drop(held);
        line.sees(&[sent]).await;
        assert_eq!(read(&line.take_pushed()[0])["protocol_version"], "3.0.0");
    });
}

#[test]
fn a_change_whose_answer_was_lost_is_known_when_it_is_repeated() {
    run(|| async {
        let pair = pair_with_versions().await;
        let (here, there) = (&pair.here, &pair.there);
        pair.hold_frames_there(true);
        register_lens(here).await;
        assert_eq!(there.project.lenses_len(), 0);
        register_lens(there).await;
        assert_eq!(there.project.lenses_len(), 1);
        here.project
            .remove_lens(JOB.to_owned(), version(2).to_string(), &version(1), &admin())
            .await
            .unwrap();
        let removed = there
            .project
            .remove_lens(JOB.to_owned(), version(2).to_string(), &version(1), &admin())
            .await;
        assert_eq!(removed.err().map(|error| error.code()), Some("protocol_not_found"));
        assert_eq!(there.project.lenses_len(), 0);
    });
}
