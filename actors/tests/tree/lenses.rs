//! Messages between versions of a protocol: which recipient gets which form, at the send and at each delivery.
//!
//! The protocol `job` has three versions. 1.0.0 has a `name`, which 2.0.0 calls `title`; 3.0.0 adds a `kind`. 4.0.0 takes
//! titles of at most three characters, and its lens was stored without a proof.

mod changes;
mod deliveries;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use actors::{
    model::{
        BrokerError, Capabilities, CapabilityFilter, Complement, DeadLetterReason, DeliveryStatus, Headers, LensRecord,
        MessageId, OutcomeKind, ProtocolMetadata, ProtocolName, SessionName, TransformRule,
    },
    project::{ProtocolDefinition, Registrant, Registration, SendRequest},
    registry::{Lenses, RegisteredLens},
    router::{RouteAnswer, Routed},
    session::{AckMode, Member, PushMode, ReceiveMode},
    storage::{Delivery, Storage, memory::MemoryStorage},
};
use lens::{Direction, Lens};
use semver::Version;
use serde_json::{Value, json};

use crate::cross_project::{try_send, two_projects_in_memory};
use crate::world::{ActorThread, MANUAL, RecordingConnection, World, envelope, local_submission, run, settings};

const JOB: &str = "job";

fn version(major: u64) -> Version {
    Version::new(major, 0, 0)
}

fn schema(major: u64) -> Value {
    match major {
        1 => json!({"type": "object", "properties": {"name": {"type": "string"}},
            "required": ["name"], "additionalProperties": false}),
        2 => json!({"type": "object", "properties": {"title": {"type": "string"}},
            "required": ["title"], "additionalProperties": false}),
        3 => json!({"type": "object", "properties": {"title": {"type": "string"}, "kind": {"type": "string"}},
            "required": ["title", "kind"], "additionalProperties": false}),
        _ => {
            json!({"type": "object", "properties": {"title": {"type": "string", "maxLength": 3}, "kind": {"type": "string"}},
            "required": ["title", "kind"], "additionalProperties": false})
        }
    }
}

fn operations(from: u64) -> Value {
    match from {
        1 => json!([{"op": "rename", "path": "/name", "to": "title"}]),
        2 => json!([{"op": "add", "path": "/kind", "value": "task"}]),
        _ => json!([]),
    }
}

/// A lens from a version to the next one.
fn record(from: u64, ops: Value) -> LensRecord {
    LensRecord {
        name: ProtocolName::parse(JOB).unwrap(),
        from: version(from),
        to: version(from + 1),
        ops,
        direction: Direction::Both,
        allow_loss: false,
        revision: 1,
        forward: None,
        backward: None,
        registered_by_key: None,
        registered_at_ms: 1,
    }
}

/// Lenses from each of these versions to the next one.
fn set_lenses(world: &World, from: &[u64]) {
    set_operations(
        world,
        &from.iter().map(|&from| (from, operations(from))).collect::<Vec<_>>(),
    );
}

fn set_operations(world: &World, lenses: &[(u64, Value)]) {
    let lens = |(from, ops): &(u64, Value)| {
        let compiled = Lens::parse(ops)
            .unwrap()
            .compile(&schema(*from), &schema(from + 1), Direction::Both)
            .unwrap();
        RegisteredLens {
            record: Arc::new(record(*from, ops.clone())),
            compiled: Arc::new(compiled),
        }
    };
    let lenses = Lenses::new(lenses.iter().map(lens).collect());
    world
        .project
        .catalog()
        .set_lenses(&ProtocolName::parse(JOB).unwrap(), lenses);
}

async fn fleet() -> World {
    fleet_on(Arc::new(MemoryStorage::default())).await
}

async fn fleet_on(storage: Arc<dyn Storage>) -> World {
    let world = World::on_storage(storage, settings(), ActorThread::Test).await;
    register_versions(&world).await;
    set_lenses(&world, &[1, 2, 3]);
    world
}

fn admin() -> Registrant {
    Registrant {
        is_admin: true,
        ..Registrant::default()
    }
}

async fn register_versions(world: &World) {
    for major in 1..=4 {
        let definition = ProtocolDefinition {
            name: ProtocolName::parse(JOB).unwrap(),
            version: version(major),
            schema: schema(major),
            capabilities: BTreeSet::new(),
            metadata: ProtocolMetadata::default(),
            by: admin(),
            lens: None,
            dry_run: false,
        };
        world.project.register_protocol(definition).await.unwrap();
    }
}

/// Registers a session that declares this version of the protocol, and features.
async fn speaks(
    world: &World,
    name: &str,
    major: u64,
    features: &[&str],
    line: Option<&Arc<RecordingConnection>>,
) -> Arc<Member> {
    let versions = [version(major)].into();
    let registration = Registration {
        name: Some(SessionName::parse(name).unwrap()),
        capabilities: Some(Capabilities {
            supported_protocols: BTreeMap::from([(ProtocolName::parse(JOB).unwrap(), versions)]),
            supported_features: features.iter().map(|feature| (*feature).to_owned()).collect(),
        }),
        connection: line.map(|line| Arc::clone(line) as _),
        ..Registration::default()
    };
    world.project.register(registration).await.unwrap().member
}

/// As [`speaks`], with a connection that takes pushed messages.
async fn listens(world: &World, name: &str, major: u64, push: PushMode) -> (Arc<Member>, Arc<RecordingConnection>) {
    let line = RecordingConnection::new();
    let member = speaks(world, name, major, &[], Some(&line)).await;
    world.subscribe(&member, &line, Some(push));
    (member, line)
}

struct Job<'a> {
    major: u64,
    payload: &'a Value,
    headers: Headers,
}

fn job(major: u64, payload: &Value) -> Job<'_> {
    Job {
        major,
        payload,
        headers: Headers::default(),
    }
}

impl Job<'_> {
    fn under(mut self, rule: TransformRule) -> Self {
        self.headers.transform = Some(rule);
        self
    }

    async fn try_to(&self, world: &World, sender: &Arc<Member>, to: &str) -> RouteAnswer {
        let (version, payload) = (version(self.major).to_string(), self.payload.to_string());
        let request = SendRequest {
            protocol_name: JOB,
            protocol_version: &version,
            payload: &payload,
            headers: &self.headers,
            ..envelope(true)
        };
        let prepared = world.project.prepare_direct(sender, to, &request).answer().await?;
        world.submit(vec![local_submission(prepared)]).await?.pop().unwrap()
    }

    async fn to(&self, world: &World, sender: &Arc<Member>, to: &str) -> Routed {
        self.try_to(world, sender, to).await.unwrap()
    }

    async fn to_all(&self, world: &World, sender: &Arc<Member>) -> Routed {
        let (version, payload) = (version(self.major).to_string(), self.payload.to_string());
        let request = SendRequest {
            protocol_name: JOB,
            protocol_version: &version,
            payload: &payload,
            headers: &self.headers,
            ..envelope(false)
        };
        let filter = CapabilityFilter::default();
        let prepared = world.project.prepare_broadcast(sender, filter, &request);
        let submission = prepared.answer().await.unwrap();
        world.submit(vec![submission]).await.unwrap().pop().unwrap().unwrap()
    }
}

/// The envelope as the client gets it.
fn read(delivery: &Delivery) -> Value {
    let mut text = Vec::new();
    delivery.message.write(&mut text, delivery.count);
    assert_eq!(text.len(), delivery.message.encoded_len(delivery.count));
    serde_json::from_slice(&text).unwrap()
}

/// Version, payload, loss and made up places of an envelope.
fn form(envelope: &Value) -> Value {
    let transformed = &envelope["transformed"];
    json!([
        envelope["protocol_version"],
        envelope["payload"],
        transformed["loss"],
        transformed["defaulted"]
    ])
}

/// Takes the waiting messages of a session and leaves them leased.
async fn takes(world: &World, member: &Member, mode: ReceiveMode) -> Vec<Value> {
    let received = world.receive(member, Duration::ZERO, mode).await.unwrap();
    received.deliveries.iter().map(read).collect()
}

fn transforms(routed: &Routed) -> Vec<Value> {
    let transforms = routed.result.transforms.as_ref().unwrap();
    let versions = transforms.versions.iter();
    versions
        .map(|(transformed, recipients)| json!([transformed, recipients]))
        .collect()
}

#[test]
fn each_recipient_gets_a_direct_message_in_its_version() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        let (_, line) = listens(&world, "bob", 3, MANUAL).await;
        let same = speaks(&world, "carol", 1, &[], None).await;
        let payload = json!({"name": "dig"});
        let routed = job(1, &payload).to(&world, &alice, "bob").await;
        let told = json!({"from": "1.0.0", "to": "3.0.0", "loss": [], "defaulted": ["/kind"]});
        assert_eq!(transforms(&routed), [json!([told, 1])]);
        line.sees(&[routed.result.message]).await;
        let envelope = read(&line.take_pushed()[0]);
        assert_eq!(
            form(&envelope),
            json!(["3.0.0", {"title": "dig", "kind": "task"}, [], ["/kind"]])
        );
        assert_eq!(envelope["transformed"], told);
        assert_eq!(envelope["message_id"], json!(routed.result.message));
        assert_eq!(routed.result.delivered, 1, "the answer counts the delivery of the form");

        let routed = job(1, &payload).to(&world, &alice, "carol").await;
        assert!(routed.result.transforms.is_none());
        let seen = takes(&world, &same, ReceiveMode::Manual).await;
        assert_eq!(seen[0]["payload"], payload);
        assert!(seen[0].get("transformed").is_none());
    });
}

#[test]
fn a_broadcast_is_transformed_once_for_each_version() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 3, &[], None).await;
        let mut members = Vec::new();
        for (name, major) in [("one", 1), ("uno", 1), ("two", 2), ("three", 3), ("four", 4)] {
            members.push(speaks(&world, name, major, &[], None).await);
        }
        let payload = json!({"title": "plant", "kind": "garden"});
        let routed = job(3, &payload).to_all(&world, &alice).await;
        let row = |to: &str| json!({"from": "3.0.0", "to": to, "loss": ["/kind"], "defaulted": []});
        let mut rows = transforms(&routed);
        rows.sort_by_key(|row| row[0]["to"].to_string());
        assert_eq!(rows, [json!([row("1.0.0"), 2]), json!([row("2.0.0"), 1])]);
        let failed = &routed.result.transforms.as_ref().unwrap().failed;
        assert_eq!(*failed, [members[4].record.id], "the title is too long for version 4");
        assert_eq!(routed.result.queued + routed.result.delivered, 4);
        let mut seen = Vec::new();
        let mut bodies = Vec::new();
        for member in &members {
            let received = world
                .receive(member, Duration::ZERO, ReceiveMode::Manual)
                .await
                .unwrap();
            seen.extend(received.deliveries.iter().map(|delivery| form(&read(delivery))));
            bodies.extend(received.deliveries.into_iter().map(|delivery| delivery.message));
        }
        let old = json!(["1.0.0", {"name": "plant"}, ["/kind"], []]);
        let second = json!(["2.0.0", {"title": "plant"}, ["/kind"], []]);
        assert_eq!(seen, [old.clone(), old, second, json!(["3.0.0", payload, null, null])]);
        assert!(Arc::ptr_eq(&bodies[0], &bodies[1]), "both recipients share one form");
    });
}

#[test]
fn an_absent_recipient_gets_the_version_that_it_declares_when_it_returns_and_at_each_delivery() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let payload = json!({"name": "dig"});
        let routed = job(1, &payload).to(&world, &alice, "bob").await;
        assert!(routed.result.transforms.is_none());
        let bob = speaks(&world, "bob", 2, &[], None).await;
        assert_eq!(
            form(&takes(&world, &bob, ReceiveMode::Manual).await[0])[1],
            json!({"title": "dig"})
        );
        // The lease ends with the next registration, which speaks another version.
        let bob = speaks(&world, "bob", 3, &[], None).await;
        let again = takes(&world, &bob, ReceiveMode::Manual).await;
        assert_eq!(again[0]["delivery_count"], 2);
        assert_eq!(form(&again[0])[1], json!({"title": "dig", "kind": "task"}));
        // Back at the version of the message, it gets the bytes as sent.
        let bob = speaks(&world, "bob", 1, &[], None).await;
        let third = takes(&world, &bob, ReceiveMode::Manual).await;
        assert_eq!((&third[0]["payload"], third[0].get("transformed")), (&payload, None));
        let status = world
            .project
            .message_status(routed.result.message)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(status[0].status, DeliveryStatus::Delivered);
    });
}

#[test]
fn a_sender_decides_whether_its_message_may_be_transformed() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 3, &[], None).await;
        speaks(&world, "bob", 2, &[], None).await;
        let (lossless, lossy) = (
            json!({"title": "dig", "kind": "task"}),
            json!({"title": "dig", "kind": "x"}),
        );
        let only = |rule| job(3, &lossless).under(rule);
        assert!(
            only(TransformRule::Lossless)
                .try_to(&world, &alice, "bob")
                .await
                .is_ok()
        );
        let refused = job(3, &lossy)
            .under(TransformRule::Lossless)
            .try_to(&world, &alice, "bob")
            .await;
        let Err(BrokerError::TransformFailed(failure)) = refused else {
            panic!("{:?}", refused.err())
        };
        assert!(failure.to_string().contains("it would lose `/kind`"), "{failure}");
        let refused = only(TransformRule::Never).try_to(&world, &alice, "bob").await;
        let Err(BrokerError::IncompatibleProtocol { suggestions, .. }) = refused else {
            panic!("{:?}", refused.err())
        };
        assert_eq!(suggestions, ["register a lens of job from 2.0.0 to 3.0.0"]);
    });
}

#[test]
fn a_repeat_gets_the_first_answer_whatever_the_recipient_speaks_by_then() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let payload = json!({"name": "long"});
        let keyed = |key: &str| {
            let mut job = job(1, &payload);
            job.headers.idempotency_key = Some(key.to_owned());
            job
        };
        let first = keyed("k").to(&world, &alice, "bob").await;
        speaks(&world, "bob", 4, &[], None).await;
        let repeat = keyed("k").to(&world, &alice, "bob").await;
        assert_eq!((repeat.result.message, repeat.is_repeat), (first.result.message, true));
        let other = keyed("other").try_to(&world, &alice, "bob").await;
        assert_eq!(other.err().map(|error| error.code()), Some("transform_failed"));
        set_lenses(&world, &[]);
        let other = keyed("other").try_to(&world, &alice, "bob").await;
        assert_eq!(other.err().map(|error| error.code()), Some("incompatible_protocol"));
    });
}

#[test]
fn what_fails_only_at_the_delivery_is_a_dead_letter_and_later_messages_arrive_in_order() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        speaks(&world, "bob", 1, &[], None).await;
        let mut sent: Vec<MessageId> = Vec::new();
        for name in ["a", "b", "too long", "c", "far too long", "d"] {
            let payload = json!({"name": name});
            sent.push(job(1, &payload).to(&world, &alice, "bob").await.result.message);
        }
        let (bob, line) = listens(
            &world,
            "bob",
            4,
            PushMode {
                window: 2,
                ack: AckMode::Manual,
            },
        )
        .await;
        let delivered = [sent[0], sent[1], sent[3], sent[5]];
        for (taken, expected) in delivered.iter().enumerate() {
            line.await_recorded("the next message", |seen| seen.pushed.len() > taken)
                .await;
            let pushed = line.recorded().pushed[taken].message.id;
            assert_eq!(pushed, *expected);
            world.acknowledge(&bob, vec![pushed]).await;
        }
        line.sees(&delivered).await;
        let reason = DeadLetterReason::TransformFailed;
        for failed in [sent[2], sent[4]] {
            let status = world.project.message_status(failed).await.unwrap().unwrap();
            assert_eq!(status[0].status, DeliveryStatus::DeadLettered(reason));
            let outcome = status[0].outcome.as_ref().unwrap();
            assert_eq!(outcome.kind, OutcomeKind::TransformFailed);
            assert!(outcome.note.contains("does not fit the schema"), "{}", outcome.note);
        }
    });
}

#[test]
fn a_lens_that_is_replaced_holds_for_what_is_delivered_afterwards() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 1, &[], None).await;
        let bob = speaks(&world, "bob", 2, &[], None).await;
        let payload = json!({"name": "dig"});
        job(1, &payload).to(&world, &alice, "bob").await;
        // Without a path the message, which was accepted, is delivered as sent.
        set_lenses(&world, &[2]);
        assert_eq!(takes(&world, &bob, ReceiveMode::Manual).await[0]["payload"], payload);
        set_lenses(&world, &[1]);
        let bob = speaks(&world, "bob", 2, &[], None).await;
        assert_eq!(
            form(&takes(&world, &bob, ReceiveMode::Manual).await[0])[1],
            json!({"title": "dig"})
        );
    });
}

#[test]
fn a_complement_restores_on_the_way_back_what_the_way_there_lost() {
    run(|| async {
        let world = fleet().await;
        let alice = speaks(&world, "alice", 3, &[], None).await;
        let bob = speaks(&world, "bob", 1, &["complement"], None).await;
        let payload = json!({"title": "plant", "kind": "garden"});
        job(3, &payload).to(&world, &alice, "bob").await;
        let seen = takes(&world, &bob, ReceiveMode::Immediate).await;
        assert_eq!(form(&seen[0])[1], json!({"name": "plant"}));
        let complement: Complement = serde_json::from_value(seen[0]["transformed"]["complement"].clone()).unwrap();
        let answer = json!({"name": "plant!"});
        let mut answering = job(1, &answer);
        answering.headers.complement = Some(complement);
        answering.to(&world, &bob, "alice").await;
        let back = takes(&world, &alice, ReceiveMode::Immediate).await;
        assert_eq!(form(&back[0])[1], json!({"title": "plant!", "kind": "garden"}));
    });
}

#[test]
fn the_lenses_of_the_recipients_project_decide_and_are_not_revealed() {
    run(|| async {
        let (here, alice, there) = two_projects_in_memory().await;
        register_versions(&there).await;
        set_lenses(&there, &[1, 2, 3]);
        let bob = speaks(&there, "bob", 2, &[], None).await;
        let sends = async |payload: &'static str| {
            let request = SendRequest {
                protocol_name: JOB,
                protocol_version: "1.0.0",
                payload,
                ..envelope(false)
            };
            try_send(&here, &alice, "bob@there", &request).await
        };
        let routed = sends(r#"{"name":"dig"}"#).await.unwrap();
        assert_eq!(routed.result.transforms.unwrap().versions[0].0.from, version(1));
        let seen = takes(&there, &bob, ReceiveMode::Immediate).await;
        assert_eq!(form(&seen[0]), json!(["2.0.0", {"title": "dig"}, [], []]));
        speaks(&there, "bob", 4, &[], None).await;
        let refused = sends(r#"{"name":"too long"}"#).await.err();
        let Some(BrokerError::IncompatibleProtocol {
            speaks, suggestions, ..
        }) = refused
        else {
            panic!("{refused:?}")
        };
        assert!(speaks.is_empty() && suggestions.is_empty());
    });
}
