//! Tests of registrations: what each of them plans.

use super::*;
use crate::model::KeyId;

fn owner(key: &str) -> Owner {
    Owner::key(&KeyId::parse(key).unwrap())
}

fn name(text: &str) -> SessionName {
    SessionName::parse(text).unwrap()
}

/// A session with a connection.
fn session(named: Option<&str>, key: &str) -> SessionRecord {
    SessionRecord {
        id: SessionId::generate(),
        name: named.map(name),
        capabilities: Arc::default(),
        metadata: Map::from_iter([("kept".to_owned(), Value::Bool(true))]),
        aliases: Vec::new(),
        connected_at_ms: 7,
        owner: owner(key),
        holder: Holder::default(),
        wake: WakePreference::default(),
    }
}

fn candidate(record: &SessionRecord) -> Candidate<'_> {
    Candidate {
        record,
        is_orphaned: false,
    }
}

fn facts<'a>(current: Option<&'a SessionRecord>, holder: Option<&'a SessionRecord>) -> Facts<'a> {
    Facts {
        current: current.map(candidate),
        holder: holder.map(candidate),
        leaves_empty: false,
        sessions_len: 2,
        sessions_max: 3,
        now_ms: 1000,
    }
}

/// Of a caller without a connection, which names its session by id.
fn registration(named: Option<&str>, key: &str) -> Registration {
    Registration {
        name: named.map(name),
        owner: owner(key),
        ..Registration::default()
    }
}

#[test]
fn an_unknown_name_gets_a_new_session_and_the_caller_leaves_the_one_it_had() {
    let own = session(Some("alice"), "k1");
    let plan = registration(Some("bob"), "k1").plan(&facts(Some(&own), None)).unwrap();
    assert!(!plan.resumes && !plan.renews && plan.evicts.is_none());
    assert_eq!(plan.leaves, Some(own.id));
    let SessionRecord {
        name: named,
        connected_at_ms,
        holder,
        owner: owned_by,
        ..
    } = plan.record;
    assert_eq!(
        (named, connected_at_ms, owned_by),
        (Some(name("bob")), 1000, owner("k1"))
    );
    assert!(holder.incarnation != 0 && holder.by_id);
}

#[test]
fn a_known_name_resumes_its_session_and_keeps_what_is_not_given() {
    let (own, holder) = (session(None, "k1"), session(Some("bob"), "k1"));
    let plan = registration(Some("bob"), "k1")
        .plan(&facts(Some(&own), Some(&holder)))
        .unwrap();
    assert!(plan.resumes && !plan.renews);
    assert_eq!((plan.record.id, plan.leaves), (holder.id, Some(own.id)));
    assert_eq!(
        (&plan.record.metadata, plan.record.connected_at_ms),
        (&holder.metadata, 7)
    );
}

#[test]
fn aliases_are_replaced_when_given_and_kept_when_absent() {
    let mut holder = session(Some("bob"), "k1");
    holder.aliases = vec![name("reviewer")];
    let mut wanted = registration(Some("bob"), "k1");
    let aliases = |wanted: &Registration| wanted.plan(&facts(None, Some(&holder))).unwrap().record.aliases;
    assert_eq!(aliases(&wanted), [name("reviewer")]);
    wanted.aliases = Some(vec![name("tester"), name("bob"), name("tester"), name("db")]);
    assert_eq!(aliases(&wanted), [name("tester"), name("db")]);
    wanted.aliases = Some(Vec::new());
    assert_eq!(aliases(&wanted), []);
    let mut nameless = registration(None, "k1");
    nameless.aliases = Some(vec![name("tester")]);
    assert_eq!(
        nameless.plan(&facts(None, None)).unwrap_err().code(),
        "invalid_argument"
    );
    assert!(nameless.plan(&facts(Some(&holder), None)).is_ok());
}

#[test]
fn a_session_without_a_name_takes_one_and_a_named_session_keeps_its_own() {
    let nameless = session(None, "k1");
    let plan = registration(Some("bob"), "k1")
        .plan(&facts(Some(&nameless), None))
        .unwrap();
    assert!(plan.resumes && plan.renews);
    assert_eq!((plan.record.id, plan.record.name), (nameless.id, Some(name("bob"))));
    let named = session(Some("alice"), "k1");
    let plan = registration(None, "k1").plan(&facts(Some(&named), None)).unwrap();
    assert_eq!(
        (plan.record.id, plan.record.name, plan.leaves),
        (named.id, named.name, None)
    );
}

#[test]
fn a_name_of_another_owner_is_refused_unless_its_key_has_ended() {
    let holder = session(Some("bob"), "k2");
    let mut facts = facts(None, Some(&holder));
    let wanted = registration(Some("bob"), "k1");
    assert_eq!(wanted.plan(&facts).unwrap_err().code(), "forbidden");
    facts.holder.as_mut().unwrap().is_orphaned = true;
    let plan = wanted.plan(&facts).unwrap();
    assert!(!plan.resumes && plan.record.id != holder.id);
    assert_eq!(plan.evicts, Some(holder.id));
}

#[test]
fn an_owner_resumes_its_session_whatever_became_of_its_key() {
    let holder = session(Some("bob"), "k1");
    let mut facts = facts(None, Some(&holder));
    facts.holder.as_mut().unwrap().is_orphaned = true;
    let plan = registration(Some("bob"), "k1").plan(&facts).unwrap();
    assert_eq!((plan.record.id, plan.evicts), (holder.id, None));
}

#[test]
fn a_session_of_another_owner_counts_as_missing() {
    let other = session(None, "k2");
    let plan = registration(None, "k1").plan(&facts(Some(&other), None)).unwrap();
    assert!(!plan.resumes && plan.leaves.is_none() && plan.record.id != other.id);
}

#[test]
fn an_expected_name_belongs_to_its_first_caller() {
    let mut expected = session(Some("bob"), "k1");
    expected.owner = Owner::unclaimed();
    let plan = registration(Some("bob"), "k2")
        .plan(&facts(None, Some(&expected)))
        .unwrap();
    assert!(plan.resumes && !plan.renews);
    assert_eq!((plan.record.id, &plan.record.owner), (expected.id, &owner("k2")));
    let later = registration(Some("bob"), "k1").plan(&facts(None, Some(&plan.record)));
    assert_eq!(later.unwrap_err().code(), "forbidden");
}

/// A session whose front has named it after its folder, and the registration of another name for it.
fn automatic() -> (SessionRecord, Registration) {
    let mut own = session(Some("shop"), "k1");
    own.metadata = Map::from_iter([(AUTOMATIC_NAME.to_owned(), Value::Bool(true))]);
    (own, registration(Some("alice"), "k1"))
}

#[test]
fn an_agent_renames_the_session_that_its_front_has_named() {
    let (own, wanted) = automatic();
    let plan = wanted.plan(&facts(Some(&own), None)).unwrap();
    assert!(plan.resumes && plan.renews && plan.leaves.is_none());
    assert_eq!((plan.record.id, &plan.record.name), (own.id, &Some(name("alice"))));
    assert_eq!(
        (plan.record.aliases.clone(), plan.renames),
        (vec![name("shop")], Some(name("shop")))
    );
    assert!(!is_name_automatic(&plan.record.metadata));

    // The name is the choice of the agent now: another one is another session, and registering the former one resumes its session.
    let renamed = plan.record;
    let other = registration(Some("bob"), "k1")
        .plan(&facts(Some(&renamed), None))
        .unwrap();
    assert_eq!((other.resumes, other.leaves), (false, Some(renamed.id)));
    let back = registration(Some("shop"), "k1")
        .plan(&facts(Some(&renamed), None))
        .unwrap();
    assert_eq!((back.record.id, back.record.name), (own.id, Some(name("shop"))));
    assert_eq!(back.record.aliases, [name("alice")]);
}

#[test]
fn a_session_that_exists_under_the_name_is_resumed_and_not_replaced() {
    let ((own, wanted), alice) = (automatic(), session(Some("alice"), "k1"));
    let plan = wanted.plan(&facts(Some(&own), Some(&alice))).unwrap();
    assert_eq!((plan.record.id, plan.leaves), (alice.id, Some(own.id)));
    assert_eq!((plan.merges, plan.renames), (false, None), "mail waits for it");
    // Nothing is lost with it: one address is left.
    let mut facts = facts(Some(&own), Some(&alice));
    facts.leaves_empty = true;
    let plan = wanted.plan(&facts).unwrap();
    assert_eq!((plan.record.id, plan.merges), (alice.id, true));
    assert_eq!(
        (plan.record.aliases, plan.renames),
        (vec![name("shop")], Some(name("shop")))
    );
}

#[test]
fn the_former_name_has_room_among_the_aliases() {
    let (mut own, mut wanted) = automatic();
    own.aliases = vec![name("old")];
    let aliases: Vec<_> = (0..ALIASES_LEN_MAX).map(|number| name(&format!("a{number}"))).collect();
    wanted.aliases = Some(aliases);
    let record = wanted.plan(&facts(Some(&own), None)).unwrap().record;
    assert_eq!(
        (record.aliases.len(), record.aliases.last()),
        (ALIASES_LEN_MAX, Some(&name("shop")))
    );
}

#[test]
fn a_front_finds_a_session_by_its_former_name_and_keeps_the_present_one() {
    let (own, wanted) = automatic();
    let renamed = wanted.plan(&facts(Some(&own), None)).unwrap().record;
    let mut by_front = registration(Some("shop"), "k1");
    by_front.metadata = Some(own.metadata.clone());
    let plan = by_front.plan(&facts(None, Some(&renamed))).unwrap();
    assert_eq!((plan.record.id, &plan.record.name), (own.id, &Some(name("alice"))));
    assert_eq!((plan.record.aliases.clone(), plan.renames), (vec![name("shop")], None));
    assert!(!is_name_automatic(&plan.record.metadata), "the agent has chosen it");
}

#[test]
fn an_agent_does_not_take_the_name_of_a_person() {
    let mut mara = session(Some("mara"), "k1");
    mara.metadata = Map::from_iter([("kind".to_owned(), HUMAN_KIND.into())]);
    let refused = registration(Some("mara"), "k1").plan(&facts(None, Some(&mara)));
    assert_eq!(refused.unwrap_err().code(), "forbidden");
    let mut person = registration(Some("mara"), "k1");
    person.metadata = Some(mara.metadata.clone());
    assert!(person.plan(&facts(None, Some(&mara))).unwrap().resumes);
}

#[test]
fn the_name_of_a_command_becomes_an_agent_when_one_registers_it() {
    let by_command = Registration {
        is_absent: true,
        only_sends: true,
        ..registration(Some("alice"), "k1")
    };
    let sender = by_command.plan(&facts(None, None)).unwrap().record;
    assert!(sender.holder.only_sends && !sender.is_durable());
    assert!(by_command.leaves_alone(&sender));
    let asks = Registration {
        only_sends: false,
        ..by_command
    };
    assert!(!asks.leaves_alone(&sender), "an answer is awaited");
    let agent = registration(Some("alice"), "k1")
        .plan(&facts(None, Some(&sender)))
        .unwrap();
    assert!(agent.record.id == sender.id && agent.record.is_durable());
}

#[test]
fn only_a_new_session_counts_against_the_maximum() {
    let holder = session(Some("bob"), "k1");
    let mut facts = facts(None, Some(&holder));
    facts.sessions_len = facts.sessions_max;
    assert!(registration(Some("bob"), "k1").plan(&facts).unwrap().resumes);
    facts.holder = None;
    assert_eq!(
        registration(Some("bob"), "k1").plan(&facts).unwrap_err().code(),
        "forbidden"
    );
}

#[test]
fn another_caller_gets_another_incarnation_and_the_holder_keeps_its_own() {
    let mut before = session(Some("bob"), "k1");
    let incarnation = |before: &SessionRecord, is_own: bool| {
        let facts = facts(is_own.then_some(before), Some(before));
        let holder = registration(Some("bob"), "k1").plan(&facts).unwrap().record.holder;
        assert!(holder.by_id && holder.incarnation != 0);
        holder.incarnation
    };
    incarnation(&before, true);
    before.holder.incarnation = 5;
    assert_ne!(incarnation(&before, false), 5);
    assert_eq!(incarnation(&before, true), 5);
}
