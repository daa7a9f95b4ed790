//! When the actor of a project sweeps its store: not while the project is not used and nothing ends.

use std::{sync::Arc, time::Duration};

use actors::project::SendRequest;
use tokio::time::sleep;

use crate::{
    counting_storage::{CountingStorage, Counts},
    world::{ActorThread, World, envelope, local_submission, run, settings, within_deadline},
};

/// Several times the pause between two sweeps of a project that is used.
const PAUSE: Duration = Duration::from_secs(2);

impl Counts {
    /// Waits until nothing has been swept for a while.
    async fn rest(&self) {
        within_deadline("a pause without a sweep", async {
            loop {
                let before = self.sweeps();
                sleep(PAUSE).await;
                if self.sweeps() == before {
                    return;
                }
            }
        })
        .await;
    }
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    within_deadline(what, async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[test]
fn a_project_is_swept_when_it_is_used_and_when_something_ends() {
    run(|| async {
        let storage = Arc::<CountingStorage>::default();
        let counts = storage.counts();
        let world = World::on_storage(storage, settings(), ActorThread::Test).await;
        let (alice, bob) = (world.register("alice", None).await, world.register("bob", None).await);
        counts.rest().await;

        let (before, mut headers) = (counts.sweeps(), envelope(false).headers.clone());
        headers.ttl_seconds = Some(4);
        let message = SendRequest {
            headers: &headers,
            ..envelope(false)
        };
        let submission = local_submission(world.project.prepare_direct(&alice, "bob", &message).known().unwrap());
        world.submit(vec![submission]).await.unwrap().remove(0).unwrap();
        eventually("a sweep of the used project", || counts.sweeps() > before).await;
        // Nothing uses the project then: only a sweep finds the message.
        eventually("the expiry", || !counts.expired_in().is_empty()).await;
        assert_eq!(*counts.expired_in(), [bob.record.id]);
        counts.rest().await;
    });
}
