//! Tests of the arguments and of what the asker gets.

use std::{borrow::Cow, time::Duration};

use actors::{
    desk::NewQuestion,
    model::{
        AddressedTo, Answer, AnswerPart, AnsweredBy, Asker, Closed, Closing, Owner, Question, QuestionId,
        QuestionState, SessionId, SessionName, Urgency, Via,
    },
};
use serde_json::{Value, json};

use super::*;
use crate::verbs::arguments::Arguments;

/// Calls `read` with the members of an object as arguments.
fn with_arguments<T>(object: &Value, read: impl FnOnce(&mut Arguments<'_>) -> T) -> T {
    let members: Vec<_> = object.as_object().unwrap().iter().collect();
    let texts: Vec<_> = members.iter().map(|(name, value)| (name, value.to_string())).collect();
    let slices = texts
        .iter()
        .map(|(name, text)| (Cow::from(name.as_str()), text.as_str()));
    read(&mut Arguments::new(slices.collect()).unwrap())
}

fn asked(object: &Value) -> Result<NewQuestion, String> {
    with_arguments(object, |arguments| {
        let question = read_question(arguments).map_err(|error| match error {
            BrokerError::InvalidArgument { field, reason } => {
                assert!(!reason.is_empty());
                field
            }
            other => panic!("{other:?}"),
        })?;
        assert_eq!(arguments.bytes(), 0, "all arguments are taken: {object}");
        Ok(question)
    })
}

/// `{"question": "?"}` with one more argument.
fn with(name: &str, value: impl Into<Value>) -> Value {
    let mut object = json!({"question": "?"});
    object[name] = value.into();
    object
}

#[test]
fn a_question_without_more_is_for_all_people_and_lives_a_day() {
    let question = asked(&json!({"question": "Drop it?"})).unwrap();
    assert_eq!(question.content.items[0].question, "Drop it?");
    assert!(question.content.items[0].allow_other && !question.content.is_form);
    assert_eq!(question.urgency, Urgency::Medium);
    assert_eq!(question.to, AddressedTo::Anyone);
    assert_eq!(question.expires_in, Some(Duration::from_secs(86_400)));
    assert_eq!((question.on_expiry, question.idempotency_key), (None, None));
}

#[test]
fn every_argument_is_read() {
    let question = asked(&json!({
        "question": "Drop it?", "context": "**42**", "urgency": "high", "multi_select": true, "allow_other": false,
        "options": [{"value": "drop", "label": "Drop it", "description": "irreversible"}, "keep"],
        "to": "mara", "expires_in_seconds": 0, "on_expiry": {"value": ["keep"]}, "idempotency_key": "mig-42",
        "links": [{"title": "the plan", "uri": "https://example.org/42"}],
        "images": [{"mime": "image/png", "data": "aGk="}], "sensitive": true,
    }))
    .unwrap();
    let item = &question.content.items[0];
    assert!(item.multi_select && !item.allow_other);
    let options: Vec<_> = item
        .options
        .iter()
        .map(|option| (&*option.value, &*option.label))
        .collect();
    assert_eq!(options, [("drop", "Drop it"), ("keep", "keep")]);
    assert_eq!(question.content.context.as_deref(), Some("**42**"));
    assert_eq!((question.content.links.len(), question.content.images.len()), (1, 1));
    assert_eq!(question.to, AddressedTo::Named("mara".to_owned()));
    assert_eq!((question.urgency, question.expires_in), (Urgency::High, None));
    assert_eq!(question.on_expiry, Some(json!(["keep"])));
    assert_eq!(question.idempotency_key.as_deref(), Some("mig-42"));
    assert!(question.is_sensitive);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of bounds")]
fn every_bound_is_kept_and_its_error_names_the_argument() {
    let text = |len: usize| "ü".repeat(len);
    let item = |id: &str| json!({"id": id, "question": "?"});
    let choice = |name: &str, len: usize| {
        let mut choice = json!({"value": "v", "label": "l"});
        choice[name] = json!(text(len));
        json!([choice])
    };
    let link = |title: usize, uri: &str| json!([{"title": text(title), "uri": uri}]);
    let image = |len: usize| json!({"mime": "image/png", "data": "A".repeat(len)});
    let within = [
        json!({"question": text(8_000)}),
        json!({"questions": (0..8).map(|at| item(&at.to_string())).collect::<Vec<_>>()}),
        json!({"questions": [item(&text(64))]}),
        with("context", "x".repeat(64 * 1024)),
        with("context", "\u{1}".repeat(64 * 1024)),
        with("options", (0..20).map(|at| at.to_string()).collect::<Vec<_>>()),
        with("options", choice("value", 120)),
        with("options", choice("label", 120)),
        with("options", choice("description", 500)),
        with("expires_in_seconds", 60),
        with("expires_in_seconds", 2_592_000),
        with("on_expiry", "none"),
        with("links", vec![link(200, "file:///tmp/x")[0].clone(); 10]),
        with("images", vec![image(256 * 1024); 4]),
    ];
    for object in within {
        let text = object.to_string();
        assert_eq!(
            asked(&object).err(),
            None,
            "{}",
            text.chars().take(200).collect::<String>()
        );
    }
    let beyond = [
        ("question", json!({})),
        ("question", json!({"question": text(8_001)})),
        ("question", json!({"question": 1})),
        ("question", json!({"questions": []})),
        (
            "questions",
            json!({"questions": (0..9).map(|at| item(&at.to_string())).collect::<Vec<_>>()}),
        ),
        ("questions.id", json!({"questions": [item("a"), item("a")]})),
        ("questions.id", json!({"questions": [item("")]})),
        ("questions.id", json!({"questions": [item(&text(201))]})),
        ("questions", json!({"questions": [{"id": "a"}]})),
        ("questions", json!({"questions": [["a", "?"]]})),
        (
            "questions",
            json!({"questions": [{"id": "a", "question": "?", "colour": 1}]}),
        ),
        ("question", json!({"question": "?", "questions": [item("a")]})),
        ("options", json!({"options": ["a"], "questions": [item("a")]})),
        ("context", with("context", "x".repeat(64 * 1024 + 1))),
        (
            "options",
            with("options", (0..21).map(|at| at.to_string()).collect::<Vec<_>>()),
        ),
        ("options.value", with("options", json!(["a", "a"]))),
        ("options.value", with("options", choice("value", 121))),
        ("options.label", with("options", choice("label", 121))),
        ("options.description", with("options", choice("description", 501))),
        ("options", with("options", json!([7]))),
        ("urgency", with("urgency", "urgent")),
        ("expires_in_seconds", with("expires_in_seconds", 59)),
        ("expires_in_seconds", with("expires_in_seconds", 2_592_001)),
        ("expires_in_seconds", with("expires_in_seconds", 0)),
        ("on_expiry", with("on_expiry", "keep")),
        ("on_expiry", with("on_expiry", json!({"values": 1}))),
        ("on_expiry", with("on_expiry", json!({"value": "x".repeat(9 * 1024)}))),
        ("links", with("links", vec![link(1, "https://x")[0].clone(); 11])),
        ("links.title", with("links", link(201, "https://x"))),
        ("links.uri", with("links", link(1, "javascript:alert(1)"))),
        ("links.uri", with("links", link(1, "https://a b"))),
        (
            "links.uri",
            with("links", link(1, &format!("https://{}", "x".repeat(2_048)))),
        ),
        ("images", with("images", vec![image(4); 5])),
        ("images", with("images", vec![image(256 * 1024), image(768 * 1024 + 4)])),
        (
            "images.mime",
            with("images", json!([{"mime": "image/svg+xml", "data": "aGk="}])),
        ),
        (
            "images.data",
            with("images", json!([{"mime": "image/png", "data": "not base64"}])),
        ),
    ];
    for (field, object) in beyond {
        assert_eq!(asked(&object).err().as_deref(), Some(field), "{object:.200}");
    }
}

#[test]
fn a_wrong_item_of_a_list_is_named_with_its_shape() {
    let refused = |name: &str, list: Value| {
        let object = with(name, list);
        match with_arguments(&object, read_question) {
            Err(BrokerError::InvalidArgument { field, reason }) => format!("{field}: {reason}"),
            other => panic!("{other:?}"),
        }
    };
    let good = json!({"title": "the plan", "uri": "https://example.org"});
    for (list, expected) in [
        (
            json!([good, {"title": "x"}]),
            "links: at [1]: `uri` is missing; each item is {title, uri}",
        ),
        (
            json!([good, good, "https://x"]),
            "links: at [2]: must be an object, not a string; each item is {title, uri}",
        ),
        (
            json!("https://x"),
            "links: must be a list, not a string; each item is {title, uri}",
        ),
        (
            json!([{"title": "x", "url": "https://x"}]),
            "links: at [0]: `uri` is missing; each item is {title, uri}",
        ),
        (
            json!([good, {"title": "x", "uri": "x"}]),
            "links.uri: at [1]: begins with one of ",
        ),
    ] {
        let told = refused("links", list);
        assert!(told.starts_with(expected), "{told}");
    }
    assert!(refused("images", json!([{}])).ends_with("at [0]: `mime` is missing; each item is {mime, data}"));
    assert!(refused("options", json!(["a", 7])).ends_with("; each item is a text, or {value, label, description?}"));
    let form = json!({"questions": [{"id": "a"}]});
    match with_arguments(&form, read_question) {
        Err(BrokerError::InvalidArgument { reason, .. }) => {
            assert!(
                reason.starts_with("at [0]: `question` is missing; each item is {id, question, "),
                "{reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_answer_is_read() {
    let read = |object: &Value| with_arguments(object, read_answer);
    let answer = read(&json!({"selected": ["a"], "other": "", "text": "x\ny"})).unwrap();
    assert_eq!(answer.part.selected, ["a"]);
    assert_eq!((answer.part.other, answer.part.text.as_deref()), (None, Some("x\ny")));
    let form = read(&json!({"answers": {"q1": {"text": "yes"}, "q2": {"selected": ["a", "b"]}}})).unwrap();
    let answers = form.answers.unwrap();
    assert_eq!(answers["q1"].text.as_deref(), Some("yes"));
    assert_eq!(answers["q2"].selected, ["a", "b"]);
    for (field, object) in [
        // One byte more than a text of 64 KiB in escapes.
        ("text", json!({"text": "x".repeat(6 * 64 * 1024 + 1)})),
        ("selected", json!({"selected": "a"})),
        ("answers", json!({"answers": {"q": {"texts": "x"}}})),
        ("images", json!({"images": [{"mime": "image/png"}]})),
    ] {
        match read(&object) {
            Err(BrokerError::InvalidArgument { field: named, .. }) => assert_eq!(named, field),
            other => panic!("{field}: {other:?}"),
        }
    }
}

fn question(state: QuestionState) -> Question {
    Question {
        id: QuestionId::generate(),
        revision: 1,
        asker: Asker {
            session: SessionId::generate(),
            name: SessionName::parse("alice").ok(),
            owner: Owner::anonymous(),
        },
        summary: "Drop it?".to_owned(),
        content_bytes: 0,
        urgency: Urgency::Medium,
        to: AddressedTo::Anyone,
        is_sensitive: false,
        expires_at_ms: Some(1_000),
        on_expiry: Some(json!("keep")),
        idempotency_key: None,
        state,
        seen_at_ms: None,
        is_expiring: false,
        sealed_answer: None,
        answer_deleted_ms: None,
        handover: None,
        notice: None,
    }
}

fn outcome(state: QuestionState, humans: Humans) -> Value {
    let question = question(state);
    let outcome = Outcome {
        question: &question,
        position: Some(2),
        humans,
        waited: Duration::from_millis(41_900),
    };
    outcome.to_json()
}

fn closed(how: Closing) -> Value {
    outcome(QuestionState::Closed(Closed { at_ms: 2_000, how }), Humans::default())
}

fn mara(via: Via) -> AnsweredBy {
    AnsweredBy {
        human: SessionName::parse("mara").unwrap(),
        via,
        is_agent: false,
    }
}

#[test]
fn an_open_question_says_what_to_do_next() {
    let one = Humans {
        present: 1,
        ..Humans::default()
    };
    let pending = outcome(QuestionState::Waiting, one);
    assert_eq!(pending["state"], "pending");
    assert_eq!(pending["summary"], "PENDING: 2nd in the queue");
    assert_eq!(pending["humans"], json!({"present": 1, "idle": 0, "away": 0}));
    assert_eq!(
        (&pending["position"], &pending["waited_seconds"]),
        (&json!(2), &json!(41))
    );
    assert!(
        pending["next"]
            .as_str()
            .unwrap()
            .starts_with("No person has answered yet. Do not guess.")
    );
    let alone = outcome(QuestionState::Waiting, Humans::default());
    assert!(alone["next"].as_str().unwrap().contains("mcp-broker console"));
    assert_eq!(alone["summary"], "PENDING: no person is at the desk");
}

#[test]
fn an_end_is_told_in_members_and_in_one_line() {
    let answer = Answer {
        part: AnswerPart {
            selected: vec!["drop".to_owned()],
            other: None,
            text: Some("but dump it first\nto s3".to_owned()),
        },
        ..Answer::default()
    };
    let answered = closed(Closing::Answered {
        by: mara(Via::Console),
        answer,
    });
    assert_eq!(answered["summary"], "ANSWERED by mara: drop. but dump it first to s3");
    assert_eq!(answered["answered_by"], json!({"human": "mara", "via": "console"}));
    let expected = json!({
        "selected": ["drop"], "other": null, "text": "but dump it first\nto s3", "answers": null, "images": [],
    });
    assert_eq!(answered["answer"], expected);
    assert!(answered.get("next").is_none() && answered.get("humans").is_none());
    let declined = closed(Closing::Declined {
        by: mara(Via::Web),
        reason: Some("ask Lena".to_owned()),
    });
    assert_eq!(
        (&declined["summary"], &declined["reason"]),
        (&json!("DECLINED by mara: ask Lena"), &json!("ask Lena"))
    );
    let expired = closed(Closing::Expired);
    assert_eq!(
        (&expired["default"], &expired["seen_at"]),
        (&json!("keep"), &Value::Null)
    );
    let cancelled = closed(Closing::Cancelled {
        by: Some("alice".to_owned()),
        reason: None,
    });
    assert_eq!(
        (&cancelled["by"], &cancelled["summary"]),
        (&json!("alice"), &json!("CANCELLED by alice"))
    );
}

#[test]
fn a_long_answer_is_cut_in_the_summary_only() {
    let answer = Answer {
        part: AnswerPart {
            text: Some("é".repeat(2_000)),
            ..AnswerPart::default()
        },
        ..Answer::default()
    };
    let answered = closed(Closing::Answered {
        by: mara(Via::Api),
        answer,
    });
    assert_eq!(answered["answer"]["text"].as_str().unwrap().chars().count(), 2_000);
    assert!(answered["summary"].as_str().unwrap().chars().count() < 600);
}
