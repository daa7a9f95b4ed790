//! Delivery reports: what the broker reports to the senders of messages that were given up, or whose recipient is blocked.
//! Pure.
//!
//! A report is a message of the broker, of the built-in protocol `delivery-report`. One names all messages of one sender
//! that were given up together. About a message of the broker itself there is no report, so a report makes no other one.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::{
    clock::rfc3339_text,
    model::{
        DeadLetter, DeadLetterReason, HOPS_MAX, Headers, Message, MessageId, Outcome, Priority, ProjectId,
        ReportChoice, SessionId, SessionName,
    },
    registry::builtin,
    storage::REPORT_LEN_MAX,
};

/// Characters of a note, and of a subject, in a report. The whole note is in the receipt.
const TEXT_CHARACTERS_MAX: usize = 200;

/// What became of one message for one recipient.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    pub message: MessageId,
    /// Its sender, and the project of the sender where it is another one.
    sender: (Option<ProjectId>, SessionId),
    /// Its priority and its hops, which the report takes over.
    priority: Priority,
    hops: u64,
    /// The thread that it belongs to.
    thread_id: String,
    entry: Value,
}

/// A report that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The project of the recipient, where it is another one.
    pub project: Option<ProjectId>,
    pub recipient: SessionId,
    /// The text of the payload.
    pub payload: String,
    pub headers: Headers,
}

/// The recipient of a message, as far as its sender may know it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShownRecipient {
    pub id: Option<SessionId>,
    pub name: Option<SessionName>,
}

impl Fate {
    /// A message that became a dead letter. `outcome` is what the recipient said when it rejected it. None if the sender
    /// is not reported, as a recipient of a broadcast that has gone: the sender has not chosen it.
    pub fn of_dead_letter(dead: &DeadLetter, recipient: ShownRecipient, outcome: Option<&Outcome>) -> Option<Self> {
        if dead.message.recipient.is_none() && dead.reason == DeadLetterReason::RecipientGone {
            return None;
        }
        Self::of(&dead.message, recipient, dead.reason.as_str(), outcome, dead.at_ms)
    }

    /// A message whose recipient cannot continue with it. None if the sender gets no report.
    pub fn of_blocked(message: &Message, recipient: ShownRecipient, outcome: &Outcome, at_ms: u64) -> Option<Self> {
        Self::of(message, recipient, "blocked", Some(outcome), at_ms)
    }

    fn of(
        message: &Message,
        recipient: ShownRecipient,
        reason: &str,
        outcome: Option<&Outcome>,
        at_ms: u64,
    ) -> Option<Self> {
        let summary = message.summary();
        let is_of_broker = message.sender == SessionId::BROKER || builtin::is_of_broker(&summary.protocol);
        if is_of_broker || summary.report == Some(ReportChoice::None) {
            return None;
        }
        let thread_id = summary.thread_id.unwrap_or_else(|| message.id.to_string());
        let mut entry = json!({
            "message_id": message.id,
            "reason": reason,
            "at": rfc3339_text(at_ms),
            "protocol_name": summary.protocol,
            "thread_id": thread_id,
        });
        let mut add = |name: &str, text: Option<String>| {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                entry[name] = text.into();
            }
        };
        add("recipient_id", recipient.id.map(|id| id.to_string()));
        add("recipient_name", recipient.name.map(|name| name.to_string()));
        add("note", outcome.map(|outcome| cut(&outcome.note)));
        add("subject", summary.subject.map(|subject| cut(&subject)));
        Some(Self {
            message: message.id,
            sender: (message.origin.clone(), message.sender),
            priority: message.priority,
            hops: summary.hops,
            thread_id,
            entry,
        })
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARACTERS_MAX).collect()
}

/// The reports about these messages: one for each sender, and one more for each [`REPORT_LEN_MAX`] messages.
pub fn reports(fates: Vec<Fate>) -> Vec<Report> {
    let mut by_sender: BTreeMap<_, Vec<Fate>> = BTreeMap::new();
    for fate in fates {
        by_sender.entry(fate.sender.clone()).or_default().push(fate);
    }
    let chunks = by_sender.values().flat_map(|fates| fates.chunks(REPORT_LEN_MAX));
    chunks.filter_map(report).collect()
}

fn report(fates: &[Fate]) -> Option<Report> {
    let first = fates.first()?;
    let is_of_one_thread = fates.iter().all(|fate| fate.thread_id == first.thread_id);
    let hops = fates.iter().map(|fate| fate.hops).max().unwrap_or(0).min(HOPS_MAX);
    let entries: Vec<_> = fates.iter().map(|fate| &fate.entry).collect();
    let (project, recipient) = first.sender.clone();
    Some(Report {
        project,
        recipient,
        payload: json!({"messages": entries}).to_string(),
        headers: Headers {
            priority: fates.iter().map(|fate| fate.priority).max().unwrap_or_default(),
            subject: Some(subject(fates)),
            thread_id: is_of_one_thread.then(|| first.thread_id.clone()),
            hops: (hops > 0).then_some(hops),
            ..Headers::default()
        },
    })
}

fn subject(fates: &[Fate]) -> String {
    let blocked = fates.iter().filter(|fate| fate.entry["reason"] == "blocked").count();
    match (fates.len() - blocked, blocked) {
        (1, 0) => "1 message was not delivered".to_owned(),
        (len, 0) => format!("{len} messages were not delivered"),
        (_, 1) => "1 message is blocked".to_owned(),
        (_, blocked) => format!("{blocked} messages are blocked"),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        clock::Now,
        model::{Addressing, DeadLetterReason, MessageIds, NewMessage, OutcomeKind, SessionRecord},
        registry::WorkBudget,
    };

    const NOW: Now = Now {
        unix_ms: 1_790_000_000_000,
        mono_ms: 0,
    };

    fn message(sender: &SessionRecord, protocol: &str, headers: &Headers) -> Arc<Message> {
        let (project, to) = (ProjectId::default_project(), SessionId::generate());
        let draft = NewMessage::new(&project, sender, Addressing::Direct, (protocol, "1.0.0"), "{}", headers);
        draft.seal(MessageIds::default().next(NOW), Some(to), NOW, false)
    }

    fn dead(message: Arc<Message>, reason: DeadLetterReason) -> DeadLetter {
        DeadLetter {
            recipient: message.recipient.unwrap_or(SessionId::BROKER),
            recipient_name: None,
            message,
            reason,
            at_ms: NOW.unix_ms,
            deliveries: 1,
        }
    }

    fn fate(sender: &SessionRecord, headers: &Headers) -> Option<Fate> {
        let dead = dead(message(sender, "chat", headers), DeadLetterReason::Expired);
        Fate::of_dead_letter(&dead, ShownRecipient::default(), None)
    }

    fn payload(report: &Report) -> Value {
        serde_json::from_str(&report.payload).unwrap()
    }

    #[test]
    fn a_report_says_of_which_message_what_became_and_why() {
        let alice = SessionRecord::unnamed();
        let headers = Headers {
            subject: Some("s".repeat(200)),
            ..Headers::default()
        };
        let dead = dead(message(&alice, "chat", &headers), DeadLetterReason::Rejected);
        let recipient = ShownRecipient {
            id: Some(dead.recipient),
            name: SessionName::parse("bob").ok(),
        };
        let outcome = Outcome::new(OutcomeKind::Rejected, &"ü".repeat(1000));
        let fate = Fate::of_dead_letter(&dead, recipient, Some(&outcome)).unwrap();
        let [report] = &reports(vec![fate])[..] else {
            panic!("one report")
        };
        let expected = json!({"messages": [{
            "message_id": dead.message.id, "reason": "rejected", "at": "2026-09-21T14:13:20.000Z",
            "recipient_id": dead.recipient, "recipient_name": "bob", "note": "ü".repeat(200),
            "protocol_name": "chat", "subject": "s".repeat(200), "thread_id": dead.message.id,
        }]});
        assert_eq!(payload(report), expected);
        assert_eq!((report.project.as_ref(), report.recipient), (None, alice.id));
        let thread = dead.message.id.to_string();
        assert_eq!(report.headers.thread_id.as_deref(), Some(&*thread));
        assert_eq!(report.headers.subject.as_deref(), Some("1 message was not delivered"));
    }

    #[test]
    fn some_senders_are_not_told() {
        let quiet = Headers {
            report: Some(ReportChoice::None),
            ..Headers::default()
        };
        assert_eq!(fate(&SessionRecord::unnamed(), &quiet), None);
        assert_eq!(
            fate(&SessionRecord::broker(), &Headers::default()),
            None,
            "a report about a report"
        );
        let of_builtin = message(&SessionRecord::unnamed(), builtin::DELIVERY_REPORT.name, &quiet);
        let dead = dead(of_builtin, DeadLetterReason::Expired);
        assert_eq!(Fate::of_dead_letter(&dead, ShownRecipient::default(), None), None);
    }

    #[test]
    fn a_sender_is_not_told_that_a_recipient_of_a_broadcast_has_gone() {
        let (project, alice) = (ProjectId::default_project(), SessionRecord::unnamed());
        let is_told = |reason| {
            let (protocol, headers) = (("chat", "1.0.0"), Headers::default());
            let draft = NewMessage::new(&project, &alice, Addressing::Broadcast, protocol, "{}", &headers);
            let dead = dead(draft.seal(MessageIds::default().next(NOW), None, NOW, false), reason);
            Fate::of_dead_letter(&dead, ShownRecipient::default(), None).is_some()
        };
        assert!(!is_told(DeadLetterReason::RecipientGone));
        assert!(is_told(DeadLetterReason::Rejected) && is_told(DeadLetterReason::Expired));
        let direct = dead(
            message(&alice, "chat", &Headers::default()),
            DeadLetterReason::RecipientGone,
        );
        assert!(Fate::of_dead_letter(&direct, ShownRecipient::default(), None).is_some());
    }

    #[test]
    fn the_sender_of_a_text_is_told() {
        let text = message(&SessionRecord::unnamed(), builtin::TEXT.name, &Headers::default());
        let dead = dead(text, DeadLetterReason::Expired);
        assert!(Fate::of_dead_letter(&dead, ShownRecipient::default(), None).is_some());
    }

    #[test]
    fn blocked_messages_are_named_as_such() {
        let message = message(&SessionRecord::unnamed(), "chat", &Headers::default());
        let outcome = Outcome::new(OutcomeKind::Blocked, "no access");
        let fate = Fate::of_blocked(&message, ShownRecipient::default(), &outcome, 0).unwrap();
        let [report] = &reports(vec![fate])[..] else {
            panic!("one report")
        };
        assert_eq!(report.headers.subject.as_deref(), Some("1 message is blocked"));
        let entry = &payload(report)["messages"][0];
        assert_eq!(
            (&entry["reason"], &entry["note"]),
            (&json!("blocked"), &json!("no access"))
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// Every message is in one report, every report is for one sender, fits the schema and is bounded.
        #[test]
        fn every_message_is_reported_once_to_its_sender(
            sent in prop::collection::vec((0_usize..4, prop::sample::select(&Priority::ALL[..]), 0_u64..70, any::<bool>()), 0..300)
        ) {
            let senders: [_; 4] = std::array::from_fn(|_| SessionRecord::unnamed());
            let fates: Vec<_> = sent.iter().map(|&(sender, priority, hops, in_thread)| {
                let headers = Headers {
                    priority,
                    hops: Some(hops),
                    thread_id: in_thread.then(|| "t".to_owned()),
                    ..Headers::default()
                };
                fate(&senders[sender], &headers).unwrap()
            }).collect();
            let made = reports(fates.clone());
            let schema = &builtin::by_name(builtin::DELIVERY_REPORT.name).unwrap().schema;
            let mut named = Vec::new();
            for report in &made {
                prop_assert!(schema.validate_within(&WorkBudget::default(), &report.payload).is_ok());
                prop_assert!(report.payload.len() < 256 << 10);
                let payload = payload(report);
                let entries = payload["messages"].as_array().unwrap();
                prop_assert!((1..=REPORT_LEN_MAX).contains(&entries.len()));
                for entry in entries {
                    let fate = fates.iter().find(|fate| json!(fate.message) == entry["message_id"]).unwrap();
                    prop_assert_eq!(fate.sender.1, report.recipient);
                    prop_assert!(fate.priority <= report.headers.priority);
                    prop_assert!(fate.hops.min(HOPS_MAX) <= report.headers.hops.unwrap_or(0));
                    prop_assert!(report.headers.thread_id.as_ref().is_none_or(|thread| *thread == fate.thread_id));
                    named.push(fate.message);
                }
            }
            named.sort_unstable();
            let mut all: Vec<_> = fates.iter().map(|fate| fate.message).collect();
            all.sort_unstable();
            prop_assert_eq!(named, all);
        }
    }
}
