//! Session records, protocols and receipts.

use std::{collections::BTreeSet, sync::Arc};

use semver::Version;
use serde_json::json;

use super::{
    super::{Inserted, LensPut, Storage},
    world::{World, depth, done, record},
};
use crate::model::{
    DeadLetterReason, DeliveryStatus, Headers, LensRecord, ProtocolMetadata, ProtocolName, ProtocolRecord, SessionName,
};

pub async fn a_session_with_a_new_record_keeps_its_inbox(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let sent = world.sends(world.bob).await;
    let mut renamed = record(world.bob);
    renamed.name = Some(SessionName::parse("bob").expect("a valid name"));
    renamed.metadata.insert("role".to_owned(), json!("tester"));
    world.puts_session(renamed.clone()).await;
    let mut expected = vec![record(world.alice), renamed, record(world.carol)];
    let mut sessions = world.sessions().await;
    expected.sort_unstable_by_key(|record| record.id);
    sessions.sort_unstable_by_key(|record| record.id);
    assert_eq!(sessions, expected);
    assert_eq!(world.leases(world.bob, 9).await, [sent]);
}

pub async fn a_removed_session_is_forgotten(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let reason = DeadLetterReason::RecipientGone;
    assert_eq!(world.removes(world.bob, reason).await, 0);
    assert_eq!(world.removes(world.bob, reason).await, 0);
    assert!(world.sessions().await.iter().all(|record| record.id != world.bob));
    world.puts_session(record(world.bob)).await;
    assert_eq!(world.depth(world.bob).await, depth(0, 0));
}

pub async fn a_protocol_version_never_changes(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let name = ProtocolName::parse("chat").expect("a valid name");
    let protocol = |version: Version, schema| {
        Arc::new(ProtocolRecord {
            name: name.clone(),
            version,
            schema,
            capabilities: BTreeSet::new(),
            metadata: ProtocolMetadata::default(),
            registered_at_ms: 7,
            registered_by: Some(world.alice),
            owner: None,
        })
    };
    let (one, two) = (Version::new(1, 0, 0), Version::new(2, 0, 0));
    let (first, second) = (
        protocol(one.clone(), json!(true)),
        protocol(two.clone(), json!({"type": "object"})),
    );
    let insert = async |record: &Arc<ProtocolRecord>, len_max| done(world.store.insert_protocol(record, len_max)).await;
    assert_eq!(insert(&first, Some(1)).await, Inserted::New);
    let another = protocol(one.clone(), json!(false));
    assert_eq!(insert(&another, None).await, Inserted::Exists(first.clone()));
    assert_eq!(insert(&second, Some(1)).await, Inserted::Full);
    assert_eq!(
        insert(&another, Some(1)).await,
        Inserted::Exists(first.clone()),
        "full, and there"
    );
    assert_eq!(insert(&second, Some(2)).await, Inserted::New);
    assert_eq!(done(world.store.protocol(&name, &one)).await, Some(first.clone()));
    assert_eq!(done(world.store.protocol(&name, &Version::new(1, 0, 1))).await, None);
    let mut all = done(world.store.protocols()).await;
    all.sort_by(|a, b| a.version.cmp(&b.version));
    assert_eq!(all, [first, second]);
}

pub async fn a_lens_is_changed_only_by_who_knows_it(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let parsed = |text| ProtocolName::parse(text).expect("a valid name");
    let lens = |name, from: &str, to: &str, revision| LensRecord {
        name: parsed(name),
        from: from.parse().expect("a version"),
        to: to.parse().expect("a version"),
        ops: json!([{"op": "rename", "path": "/a", "to": "b"}]),
        direction: lens::Direction::Both,
        allow_loss: false,
        revision,
        forward: Some(json!({"class": "exact", "proof": "proved", "may_lose": [], "unproved": []})),
        backward: None,
        registered_by_key: None,
        registered_at_ms: 7,
    };
    let (first, next) = (lens("chat", "1.0.0+a", "2.0.0", 1), lens("chat", "1.0.0", "2.0.0+b", 2));
    let put = async |record, before| done(world.store.put_lens(record, before)).await;
    let stored = async || done(world.store.lens(&first.name, &next.from, &first.to)).await;
    assert_eq!(stored().await, None);
    assert_eq!(put(&first, None).await, LensPut::Stored);
    let known = stored().await.expect("build metadata counts for nothing");
    assert_eq!(*known.record, first);
    assert_eq!(put(&next, None).await, LensPut::Differs(Some(known.clone())));
    assert_eq!(put(&next, Some(&known)).await, LensPut::Stored);
    let newer = stored().await.expect("it is stored");
    assert_eq!(*newer.record, next);
    assert_eq!(put(&first, Some(&known)).await, LensPut::Differs(Some(newer.clone())));
    let remove = async |known| done(world.store.remove_lens(known)).await;
    assert_eq!(remove(&known).await, LensPut::Differs(Some(newer.clone())));

    let (of_another, earlier) = (lens("chat-b", "1.0.0", "2.0.0", 1), lens("chat", "1.0.0", "1.10.0", 1));
    for record in [&of_another, &earlier] {
        assert_eq!(put(record, None).await, LensPut::Stored);
    }
    let large = LensRecord {
        ops: json!(["a".repeat(128 << 10)]),
        ..lens("chat", "1.0.0", "3.0.0", 1)
    };
    assert_eq!(put(&large, None).await, LensPut::TooLarge);
    let lenses = async |name| done(world.store.lenses(name)).await;
    let expected = [earlier, next, of_another].map(Arc::new);
    assert_eq!(lenses(Some(&first.name)).await, expected[..2]);
    assert_eq!(lenses(None).await, expected);
    assert_eq!(remove(&newer).await, LensPut::Stored);
    assert_eq!(remove(&newer).await, LensPut::Differs(None));
    assert_eq!(lenses(Some(&first.name)).await, expected[..1]);
}

pub async fn receipts_give_the_status_of_a_message_for_each_recipient(storage: Arc<dyn Storage>) {
    let mut world = World::new(&*storage).await;
    let append = world.broadcast(&[world.bob, world.carol]);
    let id = append.message.id;
    world.append(append).await;
    let both = |world: &World, bob: DeliveryStatus| {
        let mut all = vec![(world.bob, bob), (world.carol, DeliveryStatus::Queued)];
        all.sort_unstable_by_key(|(session, _)| *session);
        all
    };
    assert_eq!(world.statuses(id).await, both(&world, DeliveryStatus::Queued));
    world.leases(world.bob, 1).await;
    assert_eq!(world.statuses(id).await, both(&world, DeliveryStatus::Delivered));
    world.releases_all(world.bob).await;
    assert_eq!(
        world.statuses(id).await,
        both(&world, DeliveryStatus::Queued),
        "it waits again"
    );
    world.leases(world.bob, 1).await;
    world.pass(std::time::Duration::from_millis(5));
    world.acknowledges(world.bob, &[id]).await;
    assert_eq!(world.statuses(id).await, both(&world, DeliveryStatus::Acknowledged));
    let entries = done(world.store.message_status(id, world.now))
        .await
        .expect("it is known");
    let of_bob = entries
        .iter()
        .find(|entry| entry.session == world.bob)
        .expect("bob was in the audience");
    assert_eq!(of_bob.at_ms, world.now.unix_ms);
}

pub async fn an_unknown_message_has_no_receipt(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let before = world.message(None, &Headers::default()).id;
    world.sends(world.bob).await;
    let between = world.message(None, &Headers::default()).id;
    world.sends(world.bob).await;
    let after = world.message(None, &Headers::default()).id;
    for id in [before, between, after] {
        assert_eq!(done(world.store.message_status(id, world.now)).await, None);
    }
}

pub async fn projects_are_isolated_from_each_other(storage: Arc<dyn Storage>) {
    let (here, there) = (World::new(&*storage).await, World::new(&*storage).await);
    there.puts_session(record(here.bob)).await;
    let id = here.sends(here.bob).await;
    assert_eq!(there.leases(here.bob, 9).await, []);
    assert_eq!(there.statuses(id).await, []);
    assert_eq!(here.sessions().await.len(), 3);
    there.removes(here.bob, DeadLetterReason::RecipientGone).await;
    assert_eq!((here.dead().await, there.dead().await), (vec![], vec![]));
    assert_eq!(here.leases(here.bob, 9).await, [id]);
}

pub async fn two_stores_of_a_project_share_its_data(storage: Arc<dyn Storage>) {
    let world = World::new(&*storage).await;
    let id = world.sends(world.bob).await;
    let again = storage.open(&world.project);
    let leased = done(again.lease(world.bob, None, 9, usize::MAX, world.now)).await;
    assert_eq!(leased.deliveries[0].message.id, id);
    assert_eq!(world.depth(world.bob).await, depth(0, 1));
}
