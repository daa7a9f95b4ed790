//! Accepted cross-project messages: addresses, order, and a recipient that disappears.

use std::sync::Arc;

use actors::{
    model::{BrokerError, CrossProjectSide},
    project::PreparedSend,
    session::CloseReason,
};
use serde_json::json;

use super::{delivered_json, refusal, send, submit, two_projects, two_projects_in_memory};
use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, World, envelope, run, settings, within_deadline},
};

#[test]
fn a_cross_project_message_arrives_by_name_and_by_id_and_names_its_project() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let (bob, line) = there.register_with_push("bob").await;
        let by_id = format!("{}@there", bob.record.id);
        let sent = [
            send(&here, &alice, "bob@there").await.result.message,
            send(&here, &alice, &by_id).await.result.message,
        ];
        line.sees(&sent).await;
        for delivery in line.take_pushed() {
            let message = delivered_json(&delivery);
            assert_eq!(message["project_id"], "default");
            assert_eq!(message["sender_id"], alice.record.id.to_string());
            assert_eq!(message["sender_name"], "alice");
            assert_eq!(message["recipient_id"], bob.record.id.to_string());
            assert_eq!(delivery.message.origin.as_ref(), Some(here.project.id()));
        }
        let own = there.send(&bob, "bob").await.result.message;
        line.sees(&[own]).await;
        let delivery = line.take_pushed().remove(0);
        assert_eq!(delivered_json(&delivery)["project_id"], "there");
        assert_eq!(delivery.message.origin, None);
    });
}

#[test]
fn cross_project_messages_stay_in_order() {
    run(|| async {
        let (here, alice, there) =
            two_projects(World::on_storage(Arc::new(SlowStorage::default()), settings(), ActorThread::Own).await).await;
        let (bob, line) = there.register_with_push("bob").await;
        let mut answers = Vec::new();
        for _ in 0..50 {
            let PreparedSend::CrossProject(crossing) = here
                .project
                .prepare_direct(&alice, "bob@there", &envelope(false))
                .known()
                .unwrap()
            else {
                panic!("a message to another project");
            };
            let project = here.project.clone();
            answers.push(actix_rt::spawn(
                async move { project.send_cross_project(*crossing).await },
            ));
        }
        let mut sent = Vec::new();
        for answer in answers {
            sent.push(
                within_deadline("an answer", answer)
                    .await
                    .unwrap()
                    .unwrap()
                    .result
                    .message,
            );
        }
        for some in sent.chunks(crate::world::MANUAL.window) {
            line.sees(some).await;
            line.take_pushed();
            there.acknowledge(&bob, some.to_vec()).await;
        }
    });
}

#[test]
fn an_address_in_the_own_project_is_not_cross_project() {
    run(|| async {
        let here = World::new(settings(), ActorThread::Test).await;
        let alice = here.register("alice", None).await;
        let (bob, line) = here.register_with_push("bob").await;
        // This project neither sends to nor receives from others.
        for to in ["bob@default".to_owned(), format!("{}@default", bob.record.id)] {
            let dispatch = here
                .project
                .prepare_direct(&alice, &to, &envelope(false))
                .known()
                .unwrap();
            assert!(matches!(dispatch, PreparedSend::Local(_)));
            let sent = submit(&here, dispatch).await.unwrap().result.message;
            line.sees(&[sent]).await;
            let delivery = line.take_pushed().remove(0);
            assert_eq!(
                (
                    delivered_json(&delivery)["project_id"].clone(),
                    delivery.message.origin.clone()
                ),
                (json!("default"), None)
            );
        }
        for to in ["nobody@default", "@default", "bob@there@default"] {
            assert_eq!(refusal(&here, &alice, to).code(), "session_not_found", "{to}");
        }
    });
}

#[test]
fn a_broadcast_stays_in_its_project() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let (near, far) = (here.register("bob", None).await, there.register("bob", None).await);
        let submission = here.broadcast_submission(&alice).unwrap();
        let sent = here
            .submit(vec![submission])
            .await
            .unwrap()
            .remove(0)
            .unwrap()
            .result
            .message;
        assert_eq!(
            (here.read_inbox(&near).await, there.read_inbox(&far).await),
            (vec![sent], vec![])
        );
    });
}

#[test]
fn a_message_that_was_checked_before_its_recipients_project_was_deleted_is_not_accepted() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let (_, line) = there.register_with_push("bob").await;
        let dispatch = here
            .project
            .prepare_direct(&alice, "bob@there", &envelope(false))
            .known()
            .unwrap();
        here.broker.delete_project(there.project.id()).await.unwrap();
        line.closes_with(CloseReason::SessionEnded).await;
        assert_eq!(
            submit(&here, dispatch).await.err(),
            Some(BrokerError::CrossProjectDisabled {
                side: CrossProjectSide::Target
            })
        );
    });
}
