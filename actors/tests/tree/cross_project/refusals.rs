//! Refused cross-project messages: the order of the checks, and what a refusal reveals.

use std::collections::{BTreeMap, BTreeSet};

use actors::{
    model::{
        BrokerError, Capabilities, ConfigChanges, CrossProjectSide, MissingGrant, ProjectChanges, ProjectConfig,
        ProtocolName, SessionName,
    },
    project::Registration,
};
use serde_json::json;

use super::{
    allow_cross_project, cross_project_config, envelope_with, grant_sending, refusal, refused, send, try_send,
    two_projects_in_memory,
};
use crate::world::{ActorThread, CHAT, World, envelope, run, settings};

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
