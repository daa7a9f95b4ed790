//! A session belongs to the owner that registered it. Only that owner may resume it; for other callers it does not
//! exist.

use std::{collections::BTreeSet, sync::Arc};

use actix_rt::Arbiter;
use actors::{
    broker::Broker,
    model::{
        BrokerError, Capabilities, DeadLetterReason, IssuedKey, MissingSession, NewKey, Owner, ProjectConfig, Scope,
        SessionId, SessionName, SessionRecord,
    },
    project::Registration,
    session::{CloseReason, EndSession, UnboundedReads},
    storage::memory::MemoryStorage,
};

use crate::world::{
    ActorThread, MANUAL, RecordingConnection, World, broker_settings, new_project, project_id, run, settings,
};

fn owner(subject: &str) -> Owner {
    Owner::subject(subject)
}

fn code(refused: Result<impl Sized, BrokerError>) -> &'static str {
    refused.map(drop).unwrap_err().code()
}

#[test]
fn another_owner_is_refused_a_held_name_and_the_session_of_the_holder_is_unaffected() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let line = RecordingConnection::new();
        let bob = world.register_as(&ours, "bob", Some(&line)).await.unwrap().member;
        world.subscribe(&bob, &line, Some(MANUAL));
        let other_line = RecordingConnection::new();
        for stranger in [
            theirs.clone(),
            Owner::anonymous(),
            Owner::operator(),
            Owner::subject("k3"),
        ] {
            let refused = world.register_as(&stranger, "bob", Some(&other_line)).await;
            assert_eq!(code(refused), "forbidden");
        }
        let error = world.register_as(&theirs, "bob", None).await.map(drop).unwrap_err();
        assert!(
            !error.to_string().contains("k1"),
            "the error does not name the owner: {error}"
        );
        let sent = world.send_many(&bob, "bob", 1).await;
        line.sees(&sent).await;
        assert!(line.close_reasons().is_empty() && other_line.close_reasons().is_empty());
        assert_eq!(world.project.resolve("bob").known().unwrap().record, bob.record);
        assert_eq!(world.sessions_len(), 1);
    });
}

#[test]
fn a_name_stays_with_its_owner_while_its_session_is_disconnected() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let bob = world.register_as(&ours, "bob", None).await.unwrap().member;
        world.project.disconnect(&bob).await.unwrap();
        assert_eq!(code(world.register_as(&theirs, "bob", None).await), "forbidden");
        let again = world.register_as(&ours, "bob", None).await.unwrap();
        assert!(again.resumed);
        assert_eq!(again.member.record.id, bob.record.id);
    });
}

#[test]
fn a_name_is_free_for_every_owner_after_its_session_has_ended() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let bob = world.register_as(&ours, "bob", None).await.unwrap().member;
        let reason = DeadLetterReason::RecipientGone;
        bob.address.tell(EndSession { reason }).unwrap();
        let other = world.register_as(&theirs, "bob", None).await.unwrap();
        assert!(!other.resumed);
        assert_eq!(other.member.record.owner, theirs);
        assert_eq!(code(world.register_as(&ours, "bob", None).await), "forbidden");
    });
}

#[test]
fn a_session_of_another_owner_is_refused_like_one_that_does_not_exist() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let bob = world.register_as(&ours, "bob", None).await.unwrap().member;
        let answer = |id, owner: &Owner| {
            world
                .project
                .own_session(id, owner)
                .known()
                .map(|found| found.record.clone())
        };
        assert_eq!(answer(bob.record.holder_id(), &ours), Ok(bob.record.clone()));
        // The id in lists acts for no caller.
        assert_eq!(answer(bob.record.id, &ours).unwrap_err().code(), "invalid_argument");
        for stranger in [theirs, Owner::anonymous(), Owner::operator()] {
            for id in [bob.record.holder_id(), bob.record.id, SessionId::generate()] {
                let missing = MissingSession::own(&id.to_string());
                assert_eq!(answer(id, &stranger), Err(missing.into()));
            }
        }
    });
}

#[test]
fn a_registration_with_the_id_of_another_owners_session_does_not_affect_it() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let line = RecordingConnection::new();
        let registration = |owner: &Owner, name: Option<&str>, current| Registration {
            name: name.map(|name| SessionName::parse(name).unwrap()),
            owner: owner.clone(),
            current,
            ..Registration::default()
        };
        let register = async |registration| world.project.register(registration).await.unwrap();
        let of_ours = Registration {
            connection: Some(Arc::clone(&line) as _),
            ..registration(&ours, None, None)
        };
        let victim = register(of_ours).await.member;
        let sent = world.send_many(&victim, &victim.record.id.to_string(), 1).await;
        register(registration(&theirs, Some("held"), None)).await;
        // The caller registers with a name that it holds, with a free one, and without one.
        for name in [Some("held"), Some("free"), None] {
            let registered = register(registration(&theirs, name, Some(victim.record.id))).await;
            assert_ne!(registered.member.record.id, victim.record.id);
            assert_eq!(registered.resumed, name == Some("held"));
            let found = world
                .project
                .own_session(victim.record.holder_id(), &ours)
                .known()
                .unwrap();
            assert_eq!(found.record, victim.record);
        }
        assert_eq!(world.read_inbox(&victim).await, sent);
        assert!(line.close_reasons().is_empty());
    });
}

#[test]
fn a_key_that_replaces_another_resumes_its_sessions() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let (_, first) = world
            .broker
            .create_project(new_project("there", ProjectConfig::default()))
            .await
            .unwrap();
        let id = project_id("there");
        let there = world.with_project(world.broker.project(&id).await.unwrap());
        let who = |key: &IssuedKey| world.broker.keyring().find(&key.key.digest()).unwrap().owner.clone();
        let other = NewKey {
            label: None,
            scope: Scope::Admin,
            human: None,
            tools: None,
            expires_at_ms: None,
        };
        let other = world.broker.add_key(&id, other).await.unwrap();
        let (line, newer_line) = (RecordingConnection::new(), RecordingConnection::new());
        let bob = there.register_as(&who(&first), "bob", Some(&line)).await.unwrap();
        let sent = {
            there.register_protocol("chat").await.unwrap();
            there.send_many(&bob.member, "bob", 2).await
        };
        let second = world
            .broker
            .rotate_keys(&id, Some(&first.id), 1000)
            .await
            .unwrap()
            .issued;
        let third = world
            .broker
            .rotate_keys(&id, Some(&second[0].id), 0)
            .await
            .unwrap()
            .issued;
        let again = there
            .register_as(&who(&third[0]), "bob", Some(&newer_line))
            .await
            .unwrap();
        assert!(again.resumed);
        assert_eq!(again.member.record.id, bob.member.record.id);
        line.closes_with(CloseReason::TakenOver).await;
        assert_eq!(there.read_inbox(&again.member).await, sent);
        assert!(
            there
                .project
                .own_session(again.member.record.holder_id(), &who(&third[0]))
                .known()
                .is_ok()
        );
        // Another key of the same project is another owner.
        assert_eq!(code(there.register_as(&who(&other), "bob", None).await), "forbidden");
        assert_eq!(
            code(
                there
                    .project
                    .own_session(again.member.record.holder_id(), &who(&other))
                    .known()
            ),
            "session_not_found"
        );
    });
}

#[test]
fn a_session_keeps_its_owner_after_a_restart() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let world = World::on_storage(Arc::clone(&store) as _, settings(), ActorThread::Test).await;
        let (ours, theirs) = (owner("k1"), owner("k2"));
        let bob = world.register_as(&ours, "bob", None).await.unwrap().member;
        let settings = broker_settings(settings());
        let broker = Broker::start(settings, store, vec![Arbiter::current()], || ());
        let project = broker.project(world.project.id()).await.unwrap();
        let restarted = world.with_project(project);
        while restarted.project.resolve("bob").known().is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(code(restarted.register_as(&theirs, "bob", None).await), "forbidden");
        let again = restarted.register_as(&ours, "bob", None).await.unwrap();
        assert!(again.resumed);
        let holder = again.member.record.holder;
        assert_eq!(
            again.member.record,
            SessionRecord {
                holder,
                ..bob.record.clone()
            }
        );
    });
}

#[test]
fn a_refused_registration_changes_nothing_about_the_session() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let bob = world.register_as(&owner("k1"), "bob", None).await.unwrap().member;
        let registration = Registration {
            name: bob.record.name.clone(),
            capabilities: Some(Capabilities {
                supported_features: BTreeSet::from(["theirs".to_owned()]),
                ..Capabilities::default()
            }),
            metadata: Some(serde_json::Map::from_iter([("role".to_owned(), "theirs".into())])),
            owner: owner("k2"),
            ..Registration::default()
        };
        assert_eq!(code(world.project.register(registration).await), "forbidden");
        let again = world.register_as(&owner("k1"), "bob", None).await.unwrap();
        let holder = again.member.record.holder;
        assert_eq!(
            again.member.record,
            SessionRecord {
                holder,
                ..bob.record.clone()
            }
        );
    });
}

#[test]
fn a_name_whose_last_key_has_ended_is_free_and_its_messages_become_dead_letters() {
    run(|| async {
        let world = World::new(settings(), ActorThread::Test).await;
        let project = project_id("default");
        let wanted = || NewKey {
            label: None,
            scope: Scope::Member,
            human: None,
            tools: None,
            expires_at_ms: None,
        };
        let [lost, other] = [(); 2].map(|()| wanted());
        let lost = world.broker.add_key(&project, lost).await.unwrap();
        let other = Owner::key(&world.broker.add_key(&project, other).await.unwrap().id);
        let line = RecordingConnection::new();
        let bob = world
            .register_as(&Owner::key(&lost.id), "bob", Some(&line))
            .await
            .unwrap()
            .member;
        let sent = world.send_many(&bob, "bob", 2).await;
        // A key that replaces the lost one still owns the session.
        let rotated = world.broker.rotate_keys(&project, Some(&lost.id), 0).await.unwrap();
        assert_eq!(code(world.register_as(&other, "bob", None).await), "forbidden");
        world
            .broker
            .revoke_key(&project, rotated.issued[0].id.clone())
            .await
            .unwrap();
        let new = world.register_as(&other, "bob", None).await.unwrap();
        assert!(!new.resumed);
        line.closes_with(CloseReason::SessionEnded).await;
        assert_eq!(
            world.project.resolve("bob").known().unwrap().record.id,
            new.member.record.id
        );
        let query = actors::storage::DeadLetterQuery {
            limit: 9,
            ..actors::storage::DeadLetterQuery::default()
        };
        let dead = world.project.dead_letters(query, &UnboundedReads).await.unwrap().items;
        let dead: Vec<_> = dead.iter().map(|letter| (letter.message.id, letter.reason)).collect();
        let gone = |&id| (id, DeadLetterReason::RecipientGone);
        assert_eq!(dead, sent.iter().map(gone).collect::<Vec<_>>());
    });
}
