//! Properties of the records: what is written is read, and nothing makes the reader panic.

use proptest::{collection::vec, option, prelude::*};

use super::{writer::write_number, *};
use crate::model::{Addressing, Headers, LensChangeKind, MessageIds, NewMessage, SessionRecord};

fn uuids() -> impl Strategy<Value = Uuid> {
    any::<u128>().prop_map(Uuid::from_u128)
}

fn messages() -> impl Strategy<Value = MessageId> {
    uuids().prop_map(MessageId::from_uuid)
}

fn sessions() -> impl Strategy<Value = SessionId> {
    uuids().prop_map(SessionId::from_uuid)
}

fn accepted() -> impl Strategy<Value = ProjectEvent> {
    let recipients = prop_oneof![
        sessions().prop_map(LoggedRecipients::One),
        vec(any::<[u8; 8]>().prop_map(SessionMark), 0..20).prop_map(LoggedRecipients::Many),
    ];
    let origin = option::of("[a-z0-9]{1,63}").prop_map(|id| id.map(|id| ProjectId::parse(&id).unwrap()));
    let texts = (".{0,40}", option::of(".{0,200}"), ".{0,40}");
    let fields = (messages(), sessions(), origin, recipients, any::<u64>(), texts);
    fields.prop_map(
        |(message, sender, origin, recipients, timestamp_ms, (head, payload, tail))| {
            ProjectEvent::Accepted(Box::new(AcceptedMessage {
                message,
                sender,
                origin,
                recipients,
                timestamp_ms,
                head,
                payload,
                tail,
            }))
        },
    )
}

pub fn events() -> impl Strategy<Value = ProjectEvent> {
    let of_message = || (messages(), sessions());
    let versions = (0..99_u64, 0..99_u64, 0..99_u64).prop_map(|(a, b, c)| Version::new(a, b, c));
    let names = || option::of("[a-z äö]{0,9}x").prop_map(|name| name.and_then(|name| SessionName::parse(&name).ok()));
    prop_oneof![
        4 => accepted(),
        1 => (of_message(), any::<u32>()).prop_map(|((message, session), delivery)| ProjectEvent::Delivered {
            message,
            session,
            delivery,
        }),
        1 => of_message().prop_map(|(message, session)| ProjectEvent::Acknowledged { message, session }),
        1 => of_message().prop_map(|(message, session)| ProjectEvent::Released { message, session }),
        1 => (of_message(), prop::sample::select(&REASONS[..]), any::<u32>()).prop_map(
            |((message, session), reason, deliveries)| ProjectEvent::DeadLettered {
                message,
                session,
                reason,
                deliveries,
            }
        ),
        1 => (of_message(), any::<u32>(), vec(".{0,40}", 0..4)).prop_map(|((message, session), delivery, loss)| {
            let (from, to) = (Version::new(1, 0, 0), Version::new(2, 0, 0));
            let transformed = Transformed::new(from, to, loss, Vec::new(), delivery % 2 == 0);
            ProjectEvent::Transformed { message, session, delivery, transformed: Arc::new(transformed) }
        }),
        1 => (of_message(), sessions()).prop_map(|((message, session), from)| ProjectEvent::Redriven {
            message,
            session,
            from,
        }),
        1 => (sessions(), names(), prop::sample::select(SessionChange::ALL)).prop_map(|(session, name, change)| {
            ProjectEvent::Session { session, name, change }
        }),
        1 => ("[a-z][a-z0-9]{1,9}", versions, option::of(sessions())).prop_map(|(name, version, by)| {
            ProjectEvent::Protocol {
                name: ProtocolName::parse(&name).unwrap(),
                version,
                by,
            }
        }),
        1 => ("[a-z][a-z0-9]{1,9}", 0..9_u64, prop::sample::select(LensChangeKind::ALL)).prop_map(
            |(name, major, change)| ProjectEvent::Lens {
                name: ProtocolName::parse(&name).unwrap(),
                version: Version::new(major + 1, 0, 0),
                from: Version::new(major, 1, 2),
                change,
            }
        ),
        1 => (prop::sample::select(ActorKind::ALL), prop::sample::select(ActorChange::ALL))
            .prop_map(|(actor, change)| ProjectEvent::Actor { actor, change }),
        1 => any::<u64>().prop_map(|events| ProjectEvent::Lost { events }),
        1 => (uuids(), ".{0,40}", any::<bool>()).prop_map(|(entry, action, is_done)| ProjectEvent::Audit {
            entry,
            action,
            outcome: if is_done { AuditOutcome::Done } else { AuditOutcome::Refused },
        }),
        1 => (uuids(), sessions(), prop::sample::select(QuestionChange::ALL), names()).prop_map(
            |(question, asker, change, human)| ProjectEvent::Question {
                question: QuestionId::from_uuid(question),
                asker,
                change,
                human,
            }
        ),
    ]
}

fn times() -> impl Strategy<Value = RecordTime> {
    let near = (any::<u64>(), -100_000..100_000_i64).prop_map(|(block_ms, delta)| RecordTime {
        at_ms: block_ms.wrapping_add_signed(delta),
        block_ms,
    });
    let any_time = (any::<u64>(), any::<u64>()).prop_map(|(at_ms, block_ms)| RecordTime { at_ms, block_ms });
    prop_oneof![near, any_time]
}

fn written(event: &ProjectEvent, time: RecordTime) -> Vec<u8> {
    let mut out = Vec::new();
    write_event(&mut out, time, event);
    out
}

proptest! {
    #[test]
    fn an_event_is_read_back_with_its_time(event in events(), time in times()) {
        let bytes = written(&event, time);
        let mut rest = &bytes[..];
        let record = take_record(&mut rest).unwrap();
        prop_assert_eq!(rest.len(), 0);
        prop_assert_eq!(kind_of(record), Some(event.kind()));
        prop_assert_eq!(time_of(record, time.block_ms), Ok(time.at_ms));
        prop_assert_eq!(read_record(record, time.block_ms), Ok((time.at_ms, event)));
    }

    #[test]
    fn a_truncated_record_is_damaged(event in events(), time in times(), cut: prop::sample::Index) {
        let bytes = written(&event, time);
        prop_assert_eq!(take_record(&mut &bytes[..cut.index(bytes.len())]), Err(DamagedLog));
        let record = take_record(&mut &bytes[..]).unwrap();
        let shorter = &record[..cut.index(record.len())];
        prop_assert_eq!(read_record(shorter, time.block_ms), Err(DamagedLog));
        let longer = [record, &[0]].concat();
        prop_assert_eq!(read_record(&longer, time.block_ms), Err(DamagedLog));
    }

    #[test]
    fn hostile_bytes_are_refused_or_written_back_the_same(bytes: Vec<u8>, kind in 0..14_u8, block_ms: u64) {
        let mut rest = &bytes[..];
        while take_record(&mut rest).is_ok() {}
        let record = [&[kind][..], &bytes].concat();
        let _ = time_of(&record, block_ms);
        if let Ok((at_ms, event)) = read_record(&record, block_ms) {
            let again = written(&event, RecordTime { at_ms, block_ms });
            prop_assert_eq!(take_record(&mut &again[..]), Ok(&record[..]));
        }
    }

    #[test]
    fn a_changed_byte_never_makes_the_reader_panic(
        event in events(),
        time in times(),
        at: prop::sample::Index,
        by in 1..=255_u8,
    ) {
        let mut bytes = written(&event, time);
        let at = at.index(bytes.len());
        bytes[at] ^= by;
        let mut rest = &bytes[..];
        while let Ok(record) = take_record(&mut rest) {
            let _ = (time_of(record, time.block_ms), read_record(record, time.block_ms));
        }
    }

    #[test]
    fn a_number_is_read_as_it_was_written(number: u64, shift in 0..64_u32) {
        let mut out = Vec::new();
        write_number(&mut out, number >> shift);
        prop_assert_eq!(Reader(&out).number(), Ok(number >> shift));
    }

    #[test]
    fn a_message_is_logged_as_it_was_sent(
        unix_ms in 0..=4_000_000_000_000_u64,
        late_by in -60_000..60_000_i64,
        recipients in vec(sessions(), 1..5),
        is_direct: bool,
        with_payload: bool,
        name in option::of("[a-z\"\\\\]{0,9}x"),
    ) {
        let now = crate::clock::Now { unix_ms, mono_ms: 0 };
        let sender = SessionRecord { name: name.map(|name| SessionName::parse(&name).unwrap()), ..SessionRecord::unnamed() };
        let headers = Headers { correlation_id: Some("a \"b\"".to_owned()), ..Headers::default() };
        let (to, recipient) = if is_direct {
            (Addressing::Direct, Some(recipients[0]))
        } else {
            (Addressing::Broadcast, None)
        };
        let recipients = if is_direct { &recipients[..1] } else { &recipients[..] };
        let (project, payload) = (ProjectId::default_project(), r#"{"text":"hi"}"#);
        let draft = NewMessage::new(&project, &sender, to, ("chat", "1.0.0"), payload, &headers);
        let message = draft.seal(MessageIds::default().next(now), recipient, now, false);
        let at_ms = unix_ms.saturating_add_signed(late_by);
        let mut out = Vec::new();
        let time = RecordTime { at_ms, block_ms: at_ms };
        prop_assert!(write_accepted(&mut out, time, &message, recipients, with_payload));
        let read = read_record(take_record(&mut &out[..]).unwrap(), at_ms);
        let Ok((_, ProjectEvent::Accepted(accepted))) = read else { panic!("{read:?}") };
        prop_assert_eq!(accepted.payload.as_deref(), with_payload.then_some(payload));
        prop_assert!(recipients.iter().all(|session| accepted.recipients.may_contain(*session)));
        prop_assert_eq!(accepted.recipients.len(), recipients.len());
        prop_assert_eq!(accepted.parse_headers(), Some(headers));
        let head = accepted.parse_head().unwrap();
        prop_assert_eq!(head.sender_name.as_deref(), sender.name.as_ref().map(SessionName::as_str));
        prop_assert_eq!((&*head.protocol_name, &*head.protocol_version), ("chat", "1.0.0"));
        let mut envelope = Vec::new();
        accepted.write_envelope(&project, Some(payload), &mut envelope);
        envelope.pop();
        prop_assert_eq!(String::from_utf8(envelope), String::from_utf8(message.body().to_vec()));
    }
}

/// The record of a broadcast with this payload and these headers.
fn logged(payload: &str, headers: &Headers) -> AcceptedMessage {
    let sender = SessionRecord::unnamed();
    let (now, project) = (crate::clock::now(), ProjectId::default_project());
    let draft = NewMessage::new(
        &project,
        &sender,
        Addressing::Broadcast,
        ("chat", "1.0.0"),
        payload,
        headers,
    );
    let message = draft.seal(MessageIds::default().next(now), None, now, false);
    let (mut out, time) = (Vec::new(), RecordTime { at_ms: 0, block_ms: 0 });
    write_accepted(&mut out, time, &message, &[], true);
    match read_record(take_record(&mut &out[..]).unwrap(), 0) {
        Ok((_, ProjectEvent::Accepted(accepted))) => *accepted,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_payload_that_is_too_large_is_left_out() {
    for (len, is_kept) in [(PAYLOAD_BYTES_MAX, true), (PAYLOAD_BYTES_MAX + 1, false)] {
        let accepted = logged(&" ".repeat(len), &Headers::default());
        assert_eq!(accepted.payload.is_some(), is_kept, "{len}");
    }
}

#[test]
fn of_headers_that_are_too_large_the_priority_is_kept() {
    for priority in Priority::ALL {
        let headers = |len| Headers {
            priority,
            correlation_id: Some("x".repeat(len)),
            ..Headers::default()
        };
        assert_eq!(logged("{}", &headers(1000)).parse_headers(), Some(headers(1000)));
        let kept = Headers {
            priority,
            ..Headers::default()
        };
        assert_eq!(logged("{}", &headers(TAIL_BYTES_MAX)).parse_headers(), Some(kept));
    }
}

#[test]
fn the_bytes_of_a_record_never_change() {
    let (message, session) = (
        MessageId::from_uuid(Uuid::from_u128(0x0102)),
        SessionId::from_uuid(Uuid::from_u128(0x0304)),
    );
    let time = RecordTime {
        at_ms: 1_064,
        block_ms: 1_000,
    };
    let mut id = [0; 16];
    let expected = |length: u8, kind: u8, rest: &[u8]| {
        id[14..].copy_from_slice(&[1, 2]);
        let first = id;
        id[14..].copy_from_slice(&[3, 4]);
        [&[length, kind, 0x80, 1][..], &first, &id, rest].concat()
    };
    let mut expected = expected;
    let delivered = ProjectEvent::Delivered {
        message,
        session,
        delivery: 300,
    };
    assert_eq!(written(&delivered, time), expected(37, 2, &[0xac, 2]));
    let acknowledged = ProjectEvent::Acknowledged { message, session };
    assert_eq!(written(&acknowledged, time), expected(35, 3, &[]));
}
