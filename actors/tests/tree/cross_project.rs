//! Messages between projects: who may send, the order of the refusals and what they reveal, and what arrives.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use actors::{
    model::{
        BrokerError, Capabilities, ConfigChanges, CrossProjectSide, DeadLetterReason, DeliveryStatus, Headers,
        MessageId, MissingGrant, ProjectChanges, ProjectConfig, ProtocolName, SessionName,
    },
    project::{PreparedSend, Registration, SendRequest},
    router::{RouteAnswer, Routed},
    session::{CloseReason, EndSession, Member, UnboundedReads},
    storage::{DeadLetterQuery, Delivery},
};
use serde_json::{Value, json};

use crate::{
    slow_storage::SlowStorage,
    world::{ActorThread, CHAT, TEST_TIMEOUT, World, envelope, grant_of, project_id, run, settings, within_deadline},
};

fn cross_project_config() -> ProjectConfig {
    ProjectConfig {
        allow_cross_project: true,
        ..ProjectConfig::default()
    }
}

/// Sets whether a project sends to and receives from other projects.
async fn allow_cross_project(world: &World, is_open: bool) {
    let changes = ProjectChanges {
        config: ConfigChanges {
            allow_cross_project: Some(is_open),
            ..ConfigChanges::default()
        },
        ..ProjectChanges::default()
    };
    world.broker.change_project(world.project.id(), changes).await.unwrap();
}

/// Grants `from` to send these protocols to `to`, at most `per_minute` messages per minute.
async fn grant_sending(from: &World, to: &str, protocols: &[&str], per_minute: u32) {
    let grant = grant_of(protocols, per_minute);
    from.broker
        .grant(from.project.id(), project_id(to), grant)
        .await
        .unwrap();
}

/// Alice in one project, and another project to which she may send everything.
async fn two_projects(here: World) -> (World, Arc<Member>, World) {
    allow_cross_project(&here, true).await;
    let there = here.other_project("there", cross_project_config()).await;
    grant_sending(&here, "there", &[], 0).await;
    let alice = here.register("alice", None).await;
    (here, alice, there)
}

async fn two_projects_in_memory() -> (World, Arc<Member>, World) {
    two_projects(World::new(settings(), ActorThread::Test).await).await
}

fn envelope_with<'a>(protocol_name: &'a str, payload: &'a str) -> SendRequest<'a> {
    SendRequest {
        protocol_name,
        payload,
        ..envelope(false)
    }
}

fn refusal(world: &World, sender: &Arc<Member>, to: &str) -> BrokerError {
    refused(world, sender, to, &envelope(false))
}

fn refused(world: &World, sender: &Arc<Member>, to: &str, envelope: &SendRequest<'_>) -> BrokerError {
    let sent = world.project.prepare_direct(sender, to, envelope).known();
    sent.map(drop).expect_err("a refusal")
}

/// Submits a message to the router of its recipient's project.
async fn submit(world: &World, dispatch: PreparedSend) -> RouteAnswer {
    match dispatch {
        PreparedSend::Local(submission) => {
            let answers = world.project.submit(vec![submission]).unwrap();
            within_deadline("the answer", answers).await.unwrap().remove(0)
        }
        PreparedSend::CrossProject(crossing) => {
            within_deadline("the answer", world.project.send_cross_project(*crossing)).await
        }
    }
}

async fn try_send(world: &World, sender: &Arc<Member>, to: &str, envelope: &SendRequest<'_>) -> RouteAnswer {
    submit(world, world.project.prepare_direct(sender, to, envelope).known()?).await
}

/// Sends a message that must be accepted.
async fn send(world: &World, sender: &Arc<Member>, to: &str) -> Routed {
    try_send(world, sender, to, &envelope(true)).await.unwrap()
}

async fn statuses(world: &World, message: MessageId) -> Option<Vec<DeliveryStatus>> {
    let known = world.project.message_status(message).await.unwrap();
    known.map(|known| known.iter().map(|recipient| recipient.status).collect())
}

async fn dead_letters(world: &World) -> Vec<MessageId> {
    let query = DeadLetterQuery {
        limit: 100,
        ..DeadLetterQuery::default()
    };
    let page = world.project.dead_letters(query, &UnboundedReads).await.unwrap();
    assert!(!page.more);
    page.items.iter().map(|letter| letter.message.id).collect()
}

async fn end_session(world: &World, member: &Member) {
    let reason = DeadLetterReason::RecipientGone;
    member.address.tell(EndSession { reason }).unwrap();
    within_deadline("its end", async {
        while world.project.session(member.record.id).is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

fn delivered_json(delivery: &Delivery) -> Value {
    let mut text = Vec::new();
    delivery.message.write(&mut text, delivery.count);
    serde_json::from_slice(&text).unwrap()
}

// Refusals

#[test]
fn cross_project_refusals_come_in_order_and_reveal_nothing_about_the_other_project() {
    run(|| async {
        let here = World::new(settings(), ActorThread::Test).await;
        let alice = here.register("alice", None).await;
        let takes = here.other_project("takes", cross_project_config()).await;
        let closed = here.other_project("closed", ProjectConfig::default()).await;
        let deleted = here.other_project("deleted", cross_project_config()).await;
        let mut addresses = BTreeMap::new();
        for world in [&takes, &closed, &deleted] {
            let bob = world.register("bob", None).await.record.id.to_string();
            let id = world.project.id();
            let known = ["bob".to_owned(), "nobody".to_owned(), String::new(), bob];
            addresses.insert(id.to_string(), known.map(|name| format!("{name}@{id}")).to_vec());
        }
        addresses.insert("nowhere".to_owned(), vec!["bob@nowhere".to_owned()]);
        here.broker.delete_project(deleted.project.id()).await.unwrap();
        // Everything else that is wrong is checked later.
        let letters = [
            envelope(false),
            envelope_with("nothing-of-the-kind", "{}"),
            envelope_with(CHAT, "[]"),
        ];
        let all_say = |projects: &[&str], error: BrokerError| {
            for to in projects.iter().flat_map(|project| &addresses[*project]) {
                for letter in &letters {
                    assert_eq!(
                        refused(&here, &alice, to, letter),
                        error,
                        "{to} {}",
                        letter.protocol_name
                    );
                }
            }
        };
        let everywhere = ["takes", "closed", "deleted", "nowhere"];
        let not_there = ["closed", "deleted", "nowhere"];
        let own = BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Sender,
        };
        let target = BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Target,
        };
        let forbidden = |wall| BrokerError::CrossProjectForbidden { wall };

        all_say(&everywhere, own.clone());
        allow_cross_project(&here, true).await;
        all_say(&not_there, target.clone());
        all_say(&["takes"], forbidden(MissingGrant::Project));
        for project in everywhere {
            grant_sending(&here, project, &["other"], 1).await;
        }
        all_say(&not_there, target.clone());
        all_say(&["takes"], forbidden(MissingGrant::Protocol));
        for project in everywhere {
            grant_sending(&here, project, &["other", CHAT, "nothing-of-the-kind"], 1).await;
        }
        all_say(&not_there, target.clone());
        assert!(
            here.project
                .prepare_direct(&alice, "bob@takes", &letters[0])
                .known()
                .is_ok()
        );
        for to in &addresses["takes"] {
            for letter in &letters {
                assert_eq!(refused(&here, &alice, to, letter).code(), "rate_limited");
            }
        }
        allow_cross_project(&takes, false).await;
        all_say(&everywhere, target);
        allow_cross_project(&here, false).await;
        all_say(&everywhere, own);
    });
}

#[test]
fn a_grant_is_for_one_direction_and_one_project() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let further = here.other_project("further", cross_project_config()).await;
        let (bob, carol) = (there.register("bob", None).await, further.register("carol", None).await);
        let forbidden = BrokerError::CrossProjectForbidden {
            wall: MissingGrant::Project,
        };
        assert!(
            here.project
                .prepare_direct(&alice, "bob@there", &envelope(false))
                .known()
                .is_ok()
        );
        assert_eq!(refusal(&there, &bob, "alice@default"), forbidden);
        assert_eq!(refusal(&here, &alice, "carol@further"), forbidden);
        assert_eq!(refusal(&further, &carol, "bob@there"), forbidden);
        assert!(
            here.broker
                .revoke_grant(here.project.id(), there.project.id())
                .await
                .unwrap()
        );
        assert_eq!(refusal(&here, &alice, "bob@there"), forbidden);
    });
}

#[test]
fn an_address_of_an_impossible_project_is_refused_like_a_closed_project() {
    run(|| async {
        let (here, alice, _there) = two_projects_in_memory().await;
        for to in ["bob@", "bob@No", "bob@there ", "bob@a_b", "@"] {
            let closed = BrokerError::CrossProjectDisabled {
                side: CrossProjectSide::Target,
            };
            assert_eq!(refusal(&here, &alice, to), closed, "{to}");
        }
    });
}

#[test]
fn the_protocols_of_the_other_project_are_not_revealed() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let other = ProtocolName::parse("secret").unwrap();
        let registration = || Registration {
            name: SessionName::parse("bob").ok(),
            capabilities: Some(Capabilities {
                supported_protocols: [(other.clone(), BTreeSet::from([semver::Version::new(7, 0, 0)]))].into(),
                ..Capabilities::default()
            }),
            ..Registration::default()
        };
        for world in [&here, &there] {
            world.project.register(registration()).await.unwrap();
        }
        let speaks = |to: &str| match refusal(&here, &alice, to) {
            BrokerError::IncompatibleProtocol { recipient, speaks, .. } => (recipient, speaks),
            error => panic!("{error:?}"),
        };
        assert_eq!(speaks("bob@there"), ("bob".to_owned(), vec![]));
        assert_eq!(speaks("bob"), ("bob".to_owned(), vec!["secret 7.0.0".to_owned()]));
        assert_eq!(speaks("bob@default").1, ["secret 7.0.0"]);
    });
}

#[test]
fn a_payload_must_match_the_schemas_of_both_projects() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        there.register("bob", None).await;
        let wants = |field: &str| json!({ "type": "object", "required": [field] });
        here.register_schema("both", wants("ours")).await.unwrap();
        there.register_schema("both", wants("theirs")).await.unwrap();
        here.register_schema("ours", wants("ours")).await.unwrap();
        there.register_schema("theirs", wants("theirs")).await.unwrap();
        let code = |protocol: &str, payload: &str| {
            let sent = here
                .project
                .prepare_direct(&alice, "bob@there", &envelope_with(protocol, payload))
                .known();
            sent.map(drop).map_err(|error| error.code())
        };
        let (neither, ours, theirs, all) = ("{}", r#"{"ours":1}"#, r#"{"theirs":1}"#, r#"{"ours":1,"theirs":1}"#);
        for payload in [neither, ours, theirs] {
            assert_eq!(code("both", payload), Err("payload_invalid"), "{payload}");
        }
        assert_eq!(code("both", all), Ok(()));
        assert_eq!(
            (code("ours", theirs), code("ours", ours)),
            (Err("payload_invalid"), Ok(()))
        );
        assert_eq!(
            (code("theirs", ours), code("theirs", theirs)),
            (Err("payload_invalid"), Ok(()))
        );
        assert_eq!(code("none", all), Err("protocol_not_found"));
    });
}

#[test]
fn the_queue_capacity_of_a_recipient_is_set_by_its_own_project() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let changes = ProjectChanges {
            config: ConfigChanges {
                queue_capacity: Some(Some(1)),
                ..ConfigChanges::default()
            },
            ..ProjectChanges::default()
        };
        there.broker.change_project(there.project.id(), changes).await.unwrap();
        there.register("bob", None).await;
        send(&here, &alice, "bob@there").await;
        let full = try_send(&here, &alice, "bob@there", &envelope(false)).await;
        assert_eq!(full.err(), Some(BrokerError::RecipientFull));
    });
}

// The rate limit

#[test]
fn the_rate_limit_of_a_grant_bounds_cross_project_messages() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let further = here.other_project("further", cross_project_config()).await;
        for world in [&there, &further] {
            world.register("bob", None).await;
        }
        grant_sending(&here, "there", &[CHAT], 3).await;
        grant_sending(&here, "further", &[CHAT], 2).await;
        let crosses = |to: &str, count: usize| {
            let send = |_: &usize| {
                here.project
                    .prepare_direct(&alice, to, &envelope(false))
                    .known()
                    .is_ok()
            };
            (0..count).filter(send).count()
        };
        // A message that another check refuses does not count.
        assert!(matches!(
            refused(&here, &alice, "bob@there", &envelope_with("other", "{}")),
            BrokerError::CrossProjectForbidden { .. }
        ));
        assert_eq!(crosses("bob@there", 9), 3);
        assert_eq!(crosses("bob@further", 9), 2, "each grant has its own count");
        let error = refusal(&here, &alice, "bob@there");
        assert!(error.retry_after().is_some_and(|wait| !wait.is_zero()), "{error:?}");
        assert_eq!(crosses("alice", 100), 100, "messages inside a project are not limited");
    });
}

#[test]
fn a_changed_grant_with_an_unchanged_rate_limit_keeps_its_count() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        there.register("bob", None).await;
        let crosses = |count: usize| {
            let send = |_: &usize| {
                here.project
                    .prepare_direct(&alice, "bob@there", &envelope(false))
                    .known()
                    .is_ok()
            };
            (0..count).filter(send).count()
        };
        grant_sending(&here, "there", &[], 3).await;
        assert_eq!(crosses(2), 2);
        grant_sending(&here, "there", &[CHAT, "other"], 3).await;
        grant_sending(&here, "further", &[], 9).await;
        let renamed = ProjectChanges {
            name: Some("Renamed".to_owned()),
            ..ProjectChanges::default()
        };
        here.broker.change_project(here.project.id(), renamed).await.unwrap();
        assert_eq!(crosses(9), 1);
        grant_sending(&here, "there", &[], 4).await;
        assert_eq!(crosses(9), 4);
        grant_sending(&here, "there", &[], 0).await;
        assert_eq!(crosses(100), 100);
    });
}

// Delivery

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

// What the sender can find out

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

// Repeats

fn once(headers: &Headers) -> SendRequest<'_> {
    SendRequest {
        headers,
        ..envelope(false)
    }
}

fn keyed(key: &str) -> Headers {
    Headers {
        idempotency_key: Some(key.to_owned()),
        ..Headers::default()
    }
}

#[test]
fn a_cross_project_repeat_returns_the_first_answer_and_sends_nothing() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let bob = there.register("bob", None).await;
        let (headers, unused) = (keyed("once"), keyed("unused"));
        let first = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        let again = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert!(!first.is_repeat && again.is_repeat);
        assert_eq!(again.result.message, first.result.message);
        assert_eq!(there.read_inbox(&bob).await, [first.result.message]);
        // The same key of another sender is another key.
        let zoe = here.register("zoe", None).await;
        assert!(
            !try_send(&here, &zoe, "bob@there", &once(&headers))
                .await
                .unwrap()
                .is_repeat
        );
        end_session(&there, &bob).await;
        let late = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert_eq!((late.is_repeat, late.result.message), (true, first.result.message));
        let refused = try_send(&here, &alice, "bob@there", &once(&unused)).await;
        assert_eq!(refused.err().map(|error| error.code()), Some("session_not_found"));
    });
}

#[test]
fn a_repeat_to_another_project_sends_nothing() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        let (near, far) = (here.register("bob", None).await, there.register("bob", None).await);
        let headers = keyed("once");
        let first = try_send(&here, &alice, "bob", &once(&headers)).await.unwrap();
        let again = try_send(&here, &alice, "bob@there", &once(&headers)).await.unwrap();
        assert_eq!((again.is_repeat, again.result.message), (true, first.result.message));
        assert_eq!(
            (here.read_inbox(&near).await.len(), there.read_inbox(&far).await.len()),
            (1, 0)
        );
    });
}
