//! Unit tests of project records.

use super::*;
use crate::model::ProtocolName;

const NOW: u64 = 1_000_000;

fn id(text: &str) -> ProjectId {
    ProjectId::parse(text).unwrap()
}

fn project(text: &str) -> ProjectRecord {
    let wanted = NewProject {
        id: id(text),
        name: text.to_owned(),
        description: None,
        tags: BTreeSet::new(),
        config: ProjectConfig::default(),
    };
    ProjectRecord::new(wanted, NOW).unwrap()
}

fn made(project: &ProjectRecord) -> IssuedKey {
    let key = KeyId::generate().unwrap();
    IssuedKey {
        key: ApiKey::generate(&project.id, &key).unwrap(),
        id: key,
    }
}

fn with_key(project: &mut ProjectRecord) -> KeyId {
    let (made, wanted) = (
        made(project),
        NewKey {
            label: None,
            scope: Scope::Admin,
            human: None,
            tools: None,
            expires_at_ms: None,
        },
    );
    project.add_key(&made, &wanted, NOW).unwrap();
    made.id
}

fn open(project: &mut ProjectRecord) {
    project.config.allow_cross_project = true;
}

fn grant(protocols: &[&str]) -> Grant {
    Grant {
        protocols: protocols
            .iter()
            .map(|name| ProtocolName::parse(name).unwrap())
            .collect(),
        message_rate_limit: 0,
        granted_at_ms: NOW,
    }
}

#[test]
fn cross_project_checks_keep_their_order() {
    let (mut ours, mut theirs) = (project("a"), project("b"));
    let target = id("b");
    let verdict = |ours: &ProjectRecord, theirs: Option<&ProjectRecord>| {
        ours.check_send_to(&target, theirs, "chat").map(drop).unwrap_err()
    };
    assert_eq!(
        verdict(&ours, Some(&theirs)),
        BrokerError::CrossProjectDisabled {
            side: CrossProjectSide::Sender
        }
    );
    open(&mut ours);
    let closed = BrokerError::CrossProjectDisabled {
        side: CrossProjectSide::Target,
    };
    assert_eq!(verdict(&ours, Some(&theirs)), closed);
    assert_eq!(verdict(&ours, None), closed, "a missing project is like a closed one");
    open(&mut theirs);
    let forbidden = |wall| BrokerError::CrossProjectForbidden { wall };
    assert_eq!(verdict(&ours, Some(&theirs)), forbidden(MissingGrant::Project));
    ours.grant(target.clone(), grant(&["other"])).unwrap();
    assert_eq!(verdict(&ours, Some(&theirs)), forbidden(MissingGrant::Protocol));
    ours.grant(target.clone(), grant(&["other", "chat"])).unwrap();
    assert!(ours.check_send_to(&target, Some(&theirs), "chat").is_ok());
    ours.grant(target.clone(), grant(&[])).unwrap();
    assert!(ours.check_send_to(&target, Some(&theirs), "chat").is_ok());
    theirs.close(NOW);
    assert_eq!(verdict(&ours, Some(&theirs)), closed);
}

#[test]
fn a_rotated_key_owns_the_sessions_of_the_old_one_which_ends_with_its_grace() {
    let mut project = project("a");
    let first = with_key(&mut project);
    let second = made(&project);
    project
        .rotate(&[(first.clone(), second.clone())], NOW + 500, NOW)
        .unwrap();
    let third = made(&project);
    project.rotate(&[(second.id.clone(), third.clone())], NOW, NOW).unwrap();
    let status = |id: &KeyId, at| project.keys.iter().find(|key| key.id == *id).unwrap().status(at);
    assert_eq!(status(&first, NOW + 499), KeyStatus::Retiring);
    assert_eq!(status(&first, NOW + 500), KeyStatus::Revoked);
    assert_eq!(status(&second.id, NOW), KeyStatus::Revoked);
    assert_eq!(
        status(&second.id, NOW - 1),
        KeyStatus::Revoked,
        "without a grace period it has ended, whatever the clock says"
    );
    assert_eq!(status(&third.id, NOW), KeyStatus::Active);
    assert!(project.keys.iter().all(|key| key.lineage == first));
}

#[test]
fn only_active_keys_are_rotated() {
    let mut project = project("a");
    let (first, second) = (with_key(&mut project), with_key(&mut project));
    project.revoke_key(&first, NOW).unwrap();
    assert_eq!(project.rotatable_keys(None, NOW), Ok(vec![second.clone()]));
    assert!(project.rotatable_keys(Some(&first), NOW).is_err());
    assert!(
        project
            .rotatable_keys(Some(&KeyId::parse("nobody").unwrap()), NOW)
            .is_err()
    );
    project
        .rotate(&[(second.clone(), made(&project))], NOW + 1, NOW)
        .unwrap();
    assert!(
        project.rotate(&[(second, made(&project))], NOW + 1, NOW).is_err(),
        "twice"
    );
}

#[test]
fn a_later_revocation_never_moves_an_earlier_one() {
    let mut project = project("a");
    let key = with_key(&mut project);
    assert_eq!(project.revoke_key(&key, NOW), Ok(NOW));
    assert_eq!(project.revoke_key(&key, NOW + 9), Ok(NOW));
    let other = with_key(&mut project);
    project
        .rotate(&[(other.clone(), made(&project))], NOW + 500, NOW)
        .unwrap();
    assert_eq!(
        project.revoke_key(&other, NOW + 9),
        Ok(NOW + 9),
        "the grace period is cut short"
    );
}

#[test]
fn keys_are_bounded_and_the_oldest_invalid_ones_are_dropped() {
    let mut project = project("a");
    for _ in 0..KEYS_LEN_MAX {
        with_key(&mut project);
    }
    let wanted = NewKey {
        label: None,
        scope: Scope::Member,
        human: None,
        tools: None,
        expires_at_ms: None,
    };
    assert!(project.clone().add_key(&made(&project), &wanted, NOW).is_err());
    let first = project.keys[0].id.clone();
    for _ in 0..=RETIRED_KEYS_LEN_MAX {
        let oldest = project.rotatable_keys(None, NOW).unwrap()[0].clone();
        project.rotate(&[(oldest, made(&project))], NOW, NOW).unwrap();
    }
    assert_eq!(project.keys.len(), KEYS_LEN_MAX + RETIRED_KEYS_LEN_MAX);
    assert!(project.keys.iter().all(|key| key.id != first));
}

#[test]
fn a_field_that_does_not_fit_is_refused_by_name() {
    let wanted = |change: fn(&mut NewProject)| {
        let mut wanted = NewProject {
            id: id("a"),
            name: "A".to_owned(),
            description: None,
            tags: BTreeSet::new(),
            config: ProjectConfig::default(),
        };
        change(&mut wanted);
        match ProjectRecord::new(wanted, NOW) {
            Err(BrokerError::InvalidArgument { field, .. }) => field,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(wanted(|w| w.id = ProjectId::parse("system").unwrap()), "project_id");
    assert_eq!(wanted(|w| w.name.clear()), "name");
    assert_eq!(wanted(|w| w.name = "a\u{1b}[2J".to_owned()), "name");
    assert_eq!(wanted(|w| w.name = "a\nb".to_owned()), "name");
    assert_eq!(wanted(|w| w.description = Some("x".repeat(1025))), "description");
    assert_eq!(wanted(|w| w.tags = (0..33).map(|n| n.to_string()).collect()), "tags");
    assert_eq!(wanted(|w| w.config.max_sessions = Some(0)), "config.max_sessions");
}

#[test]
fn a_record_at_its_limits_is_accepted() {
    let mut project = project("a");
    project.tags = (0..TAGS_LEN_MAX).map(|n| n.to_string()).collect();
    project.description = Some("one line\nand another".to_owned());
    assert_eq!(project.check(), Ok(()));
    project.description = Some("a\u{1b}[2J".to_owned());
    assert!(project.check().is_err());
}

#[test]
fn a_new_key_expires_in_the_future() {
    let mut project = project("a");
    let made = made(&project);
    let mut add = |expires_at_ms| {
        let wanted = NewKey {
            label: None,
            scope: Scope::Member,
            human: None,
            tools: None,
            expires_at_ms: Some(expires_at_ms),
        };
        project.add_key(&made, &wanted, NOW).is_ok()
    };
    assert_eq!([NOW, NOW + 1].map(&mut add), [false, true]);
}

#[test]
fn a_key_of_scope_answer_has_a_person_which_a_rotation_keeps() {
    let mut project = project("a");
    let mara = KeyHuman::parse("mara", vec!["oncall".to_owned()]).unwrap();
    let made_key = made(&project);
    let mut add = |scope, human| {
        let wanted = NewKey {
            label: None,
            scope,
            human,
            tools: None,
            expires_at_ms: None,
        };
        project.add_key(&made_key, &wanted, NOW)
    };
    for (scope, human) in [
        (Scope::Answer, None),
        (Scope::Member, Some(mara.clone())),
        (Scope::Admin, Some(mara.clone())),
    ] {
        let refused = add(scope, human).unwrap_err();
        assert!(matches!(refused, BrokerError::InvalidArgument { field, .. } if field == "human"));
    }
    add(Scope::Answer, Some(mara.clone())).unwrap();
    let replaced = [(made_key.id.clone(), made(&project))];
    project.rotate(&replaced, NOW, NOW).unwrap();
    let humans: Vec<_> = project.keys.iter().map(|key| key.human.clone()).collect();
    assert_eq!(humans, [Some(mara.clone()), Some(mara)]);
}

#[test]
fn a_key_that_an_older_version_has_stored_names_no_person() {
    let mut project = project("a");
    with_key(&mut project);
    let mut stored = serde_json::to_value(&project.keys[0]).unwrap();
    assert!(
        stored.as_object_mut().unwrap().remove("human").is_none(),
        "other keys are stored as before"
    );
    assert_eq!(serde_json::from_value::<KeyRecord>(stored).unwrap(), project.keys[0]);
}

#[test]
fn replaced_keys_in_their_grace_period_are_bounded() {
    let mut project = project("a");
    let replaced: Vec<_> = (0..KEYS_LEN_MAX)
        .map(|_| (with_key(&mut project), made(&project)))
        .collect();
    assert_eq!(project.rotate(&replaced, NOW + 500, NOW), Ok(()));
    let replaced = [(replaced[0].1.id.clone(), made(&project))];
    let refused = project.rotate(&replaced, NOW + 500, NOW).unwrap_err();
    assert!(matches!(refused, BrokerError::InvalidArgument { field, .. } if field == "grace_period_seconds"));
}

#[test]
fn an_owner_is_orphaned_when_no_key_of_its_lineage_is_valid() {
    let mut project = project("a");
    let key = with_key(&mut project);
    let owner = Owner::key(&key);
    assert!(!project.is_orphaned(&owner, NOW));
    assert!(project.is_orphaned(&Owner::key(&KeyId::parse("k1").unwrap()), NOW));
    assert!(!project.is_orphaned(&Owner::anonymous(), NOW), "it never had a key");
    let replaced = [(key, made(&project))];
    project.rotate(&replaced, NOW, NOW).unwrap();
    assert!(
        !project.is_orphaned(&owner, NOW),
        "the new key owns the sessions of the old one"
    );
    project.revoke_key(&replaced[0].1.id, NOW).unwrap();
    assert!(project.is_orphaned(&owner, NOW));
}

#[test]
fn changes_apply_and_other_fields_stay() {
    let read = |text: &str| serde_json::from_str::<ConfigChanges>(text);
    assert!(read(r#"{"rate_limit": null}"#).is_err() && read(r#"{"unknown": 1}"#).is_err());
    for (text, is_limit) in [
        ("{}", false),
        (r#"{"allow_cross_project": true, "discoverable": true}"#, false),
        (r#"{"max_sessions": null}"#, true),
        (r#"{"max_protocols": 7}"#, true),
        (r#"{"queue_capacity": 7}"#, true),
        (r#"{"rate_limit": 7}"#, true),
    ] {
        assert_eq!(read(text).unwrap().touches_limits(), is_limit, "{text}");
    }
    let mut project = project("a");
    project.config.max_sessions = Some(5);
    project.config.queue_capacity = Some(6);
    let mut expected = project.clone();
    expected.description = Some("new".to_owned());
    expected.config.max_sessions = None;
    expected.config.rate_limit = 8;
    let changes = ProjectChanges {
        description: Some(Some("new".to_owned())),
        config: read(r#"{"max_sessions": null, "rate_limit": 8}"#).unwrap(),
        ..ProjectChanges::default()
    };
    assert_eq!(project.change(&changes), Ok(()));
    assert_eq!(project, expected);
    let refused = ProjectChanges {
        name: Some(String::new()),
        ..ProjectChanges::default()
    };
    assert!(project.change(&refused).is_err());
}

#[test]
fn a_record_is_stored_and_read_back() {
    let mut project = project("a");
    with_key(&mut project);
    project.grant(id("b"), grant(&["chat"])).unwrap();
    let text = serde_json::to_string(&project).unwrap();
    assert_eq!(serde_json::from_str::<ProjectRecord>(&text).unwrap(), project);
}
