//! Keys of a project: creation, revocation, rotation and last use.

use std::sync::Arc;

use actors::{
    broker::BrokerHandle,
    clock::now,
    model::{KeyId, KeyStatus, NewKey, Scope},
    storage::memory::MemoryStorage,
};

use super::{create_other_project, is_valid, member_key, other_project_id, principal, rename_to, start_broker};
use crate::{slow_storage::SlowStorage, world::run};

#[test]
fn a_key_is_valid_from_its_creation_until_it_is_revoked() {
    run(|| async {
        let broker = start_broker(&Arc::new(SlowStorage::default()));
        let first = create_other_project(&broker).await;
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let [administers, takes_part] = [&first, &second].map(|made| principal(&broker, made));
        assert_eq!((administers.scope, takes_part.scope), (Scope::Admin, Scope::Member));
        assert_eq!(takes_part.only_project, Some(other_project_id()));
        assert_ne!(administers.owner, takes_part.owner);
        let ended_ms = broker.revoke_key(&other_project_id(), second.id.clone()).await.unwrap();
        assert!(ended_ms <= now().unix_ms);
        assert!(
            !takes_part.status.is_valid(now().unix_ms),
            "a live connection sees the revocation"
        );
        assert!(is_valid(&broker, &first));
        let again = broker.revoke_key(&other_project_id(), second.id).await;
        assert_eq!(again, Ok(ended_ms));
        let refused = broker
            .revoke_key(&other_project_id(), KeyId::parse("nobody").unwrap())
            .await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
        let late = NewKey {
            expires_at_ms: Some(1),
            ..member_key()
        };
        let refused = broker.add_key(&other_project_id(), late).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
    });
}

#[test]
fn a_rotation_with_a_grace_period_keeps_the_old_keys_valid_during_it() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let first = create_other_project(&broker).await;
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let hour_ms = 3_600_000;
        let before_ms = now().unix_ms;
        let rotated = broker.rotate_keys(&other_project_id(), None, hour_ms).await.unwrap();
        let after_ms = now().unix_ms;
        let retired: Vec<_> = rotated.retired.iter().map(|(id, _)| id).collect();
        assert_eq!(retired, [&first.id, &second.id]);
        for (old, (new, (_, end_ms))) in [&first, &second]
            .into_iter()
            .zip(rotated.issued.iter().zip(&rotated.retired))
        {
            assert!((before_ms + hour_ms..=after_ms + hour_ms).contains(end_ms));
            let (old, new) = (principal(&broker, old), principal(&broker, new));
            assert_eq!((old.owner.clone(), old.scope), (new.owner.clone(), new.scope));
            assert_eq!(old.status.valid_until_ms(), *end_ms);
            assert!(new.status.is_valid(u64::MAX - 1));
        }
        // A second rotation does not rotate the keys that are already being replaced.
        let again = broker.rotate_keys(&other_project_id(), None, hour_ms).await.unwrap();
        let retired: Vec<_> = again.retired.iter().map(|(id, _)| id).collect();
        assert_eq!(retired, [&rotated.issued[0].id, &rotated.issued[1].id]);
        let refused = broker.rotate_keys(&other_project_id(), Some(&first.id), 0).await;
        assert_eq!(refused.unwrap_err().code(), "invalid_argument");
        let cut_short = broker.revoke_key(&other_project_id(), first.id.clone()).await.unwrap();
        assert!(cut_short <= now().unix_ms && !is_valid(&broker, &first));
    });
}

#[test]
fn a_rotation_without_a_grace_period_ends_only_the_rotated_key_and_immediately() {
    run(|| async {
        let broker = start_broker(&Arc::new(MemoryStorage::default()));
        let first = create_other_project(&broker).await;
        let second = broker.add_key(&other_project_id(), member_key()).await.unwrap();
        let rotated = broker
            .rotate_keys(&other_project_id(), Some(&first.id), 0)
            .await
            .unwrap();
        assert_eq!((rotated.issued.len(), rotated.retired.len()), (1, 1));
        assert_eq!(
            [&first, &second, &rotated.issued[0]].map(|made| is_valid(&broker, made)),
            [false, true, true]
        );
        let record = broker.record(&other_project_id()).unwrap();
        let status = |id: &KeyId| {
            let key = record.keys.iter().find(|key| key.id == *id).unwrap();
            key.status(now().unix_ms)
        };
        assert_eq!(status(&first.id), KeyStatus::Revoked);
        assert_eq!(status(&rotated.issued[0].id), KeyStatus::Active);
    });
}

#[test]
fn the_last_use_of_a_key_is_stored_with_the_next_change() {
    run(|| async {
        let store = Arc::new(MemoryStorage::default());
        let broker = start_broker(&store);
        let made = create_other_project(&broker).await;
        let last_used = |broker: &BrokerHandle| broker.record(&other_project_id()).unwrap().keys[0].last_used_at_ms;
        principal(&broker, &made).status.record_use(123_456_789);
        assert_eq!(last_used(&broker), None);
        broker
            .change_project(&other_project_id(), rename_to("Used"))
            .await
            .unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000), "to the minute");

        // Another process has seen no use of the key, or an earlier one: it does not move the time back.
        let broker = start_broker(&store);
        broker.project(&other_project_id()).await.unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000));
        principal(&broker, &made).status.record_use(60_000);
        broker
            .change_project(&other_project_id(), rename_to("Not used"))
            .await
            .unwrap();
        assert_eq!(last_used(&broker), Some(123_420_000));
        broker.rotate_keys(&other_project_id(), None, 1_000_000).await.unwrap();
        let record = broker.record(&other_project_id()).unwrap();
        let used: Vec<_> = record.keys.iter().map(|key| key.last_used_at_ms).collect();
        assert_eq!(used, [Some(123_420_000), None]);
    });
}
