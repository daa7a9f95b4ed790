//! What the sender of a cross-project message can find out about it.

use std::sync::Arc;

use actors::{
    model::{DeliveryStatus, MessageId},
    session::UnboundedReads,
    storage::DeadLetterQuery,
};

use super::{
    allow_cross_project, cross_project_config, dead_letters, end_session, grant_sending, send, statuses, submit,
    two_projects, two_projects_in_memory,
};
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, TEST_TIMEOUT, World, envelope, run, settings},
};

#[test]
fn the_sender_can_query_the_status_of_a_cross_project_message() {
    run(|| async {
        let (here, alice, there) =
            two_projects(World::on_storage(Arc::new(SlowStorage::default()), settings(), ActorThread::Own).await).await;
        let further = here.other_project("further", cross_project_config()).await;
        let bob = there.register("bob", None).await;
        let dispatch = here
            .project
            .prepare_direct(&alice, "bob@there", &envelope(false))
            .known()
            .unwrap();
        let sent = submit(&here, dispatch).await.unwrap().result.message;
        assert_eq!(statuses(&here, sent).await, Some(vec![DeliveryStatus::Queued]));
        assert_eq!(there.read_inbox(&bob).await, [sent]);
        assert_eq!(statuses(&here, sent).await, Some(vec![DeliveryStatus::Delivered]));
        // The answer stays the same after the grant has been withdrawn.
        here.broker
            .revoke_grant(here.project.id(), there.project.id())
            .await
            .unwrap();
        allow_cross_project(&there, false).await;
        there.acknowledge(&bob, vec![sent]).await;
        for world in [&here, &there] {
            assert_eq!(statuses(world, sent).await, Some(vec![DeliveryStatus::Acknowledged]));
        }
        assert_eq!(statuses(&further, sent).await, None);
        // It reveals nothing else about the other project.
        let inner = there.send(&bob, "bob").await.result.message;
        assert_eq!(statuses(&here, inner).await, None);
        here.broker.delete_project(there.project.id()).await.unwrap();
        assert_eq!(statuses(&here, sent).await, None);
    });
}

#[test]
fn the_sender_can_track_a_cross_project_message() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let bob = there.register("bob", None).await;
        let routed = send(&here, &alice, "bob@there").await;
        there.acknowledge(&bob, there.read_inbox(&bob).await).await;
        let reached = here
            .project
            .wait_for_status(routed.status.unwrap(), DeliveryStatus::Acknowledged, TEST_TIMEOUT);
        assert_eq!(reached.await, DeliveryStatus::Acknowledged);
    });
}

#[test]
fn both_projects_list_a_cross_project_dead_letter_and_the_sender_only_its_own() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let further = here.other_project("further", cross_project_config()).await;
        grant_sending(&further, "there", &[], 0).await;
        let (bob, carol) = (there.register("bob", None).await, further.register("carol", None).await);
        let (zoe, dave) = (here.register("zoe", None).await, there.register("dave", None).await);
        let at_home = send(&here, &alice, "zoe").await.result.message;
        let first = send(&here, &alice, "bob@there").await.result.message;
        let theirs = send(&there, &dave, "bob").await.result.message;
        let others = send(&further, &carol, "bob@there").await.result.message;
        let last = send(&here, &alice, "bob@there").await.result.message;
        end_session(&there, &bob).await;
        end_session(&here, &zoe).await;
        let sorted = |mut ids: Vec<MessageId>| {
            ids.sort_unstable();
            ids
        };
        assert_eq!(dead_letters(&here).await, sorted(vec![at_home, first, last]));
        assert_eq!(dead_letters(&there).await, sorted(vec![first, theirs, others, last]));
        assert_eq!(dead_letters(&further).await, [others]);

        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let query = DeadLetterQuery {
                after,
                limit: 1,
                ..DeadLetterQuery::default()
            };
            let page = here.project.dead_letters(query, &UnboundedReads).await.unwrap();
            seen.extend(page.items.iter().map(|letter| letter.message.id));
            after = page.items.last().map(|letter| (letter.message.id, letter.recipient));
            if !page.more {
                break;
            }
        }
        assert_eq!(seen, sorted(vec![at_home, first, last]), "page by page");
    });
}

#[test]
fn a_sender_lists_its_dead_letters_after_its_grant_was_withdrawn() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let bob = there.register("bob", None).await;
        let sent = send(&here, &alice, "bob@there").await.result.message;
        end_session(&there, &bob).await;
        assert_eq!(dead_letters(&here).await, [sent]);
        here.broker
            .revoke_grant(here.project.id(), there.project.id())
            .await
            .unwrap();
        assert_eq!(dead_letters(&here).await, [sent]);
    });
}
