//! The life of a question over REST.

use std::thread;

use serde_json::{Value, json};

use super::Desk;
use crate::support::{Broker, eventually};

#[test]
fn a_question_is_asked_opened_answered_and_told_to_its_agent() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let options = json!([{"value": "drop", "label": "Drop it"}, "keep"]);
    let id = desk.asks("Drop the old table?", &json!({"options": options, "urgency": "high"}));
    assert_eq!(desk.lists(&desk.mara, ""), [id.as_str()]);
    let shown = desk.gets(&desk.mara, &format!("questions/{id}"));
    assert_eq!(
        (&shown["question"], &shown["asker"]["name"], &shown["urgency"]),
        (&json!("Drop the old table?"), &json!("alice"), &json!("high"))
    );
    assert_eq!(shown["options"][1], json!({"value": "keep", "label": "keep"}));
    let claimed = desk.acts(&desk.mara, &id, "claim", &Value::Null);
    assert_eq!(claimed.json()["claimed_by"]["human"], "mara", "{claimed:?}");
    let tag = claimed.header("etag").unwrap().to_owned();
    assert_eq!(tag, format!("\"{}\"", claimed.json()["revision"]));
    let answer = json!({"selected": ["drop"], "text": "but dump it first\nto s3", "via": "console"});
    let answered = desk.acts(&desk.mara, &id, "answer", &answer);
    let view = answered.json();
    assert_eq!(
        (answered.status, &view["state"]),
        (200, &json!("answered")),
        "{answered:?}"
    );
    assert_eq!(view["answered_by"], json!({"human": "mara", "via": "console"}));
    assert_eq!(view["answer"]["selected"], json!(["drop"]));
    assert_eq!(desk.lists(&desk.mara, ""), [""; 0]);
    assert_eq!(desk.lists(&desk.mara, "?state=answered"), [id.as_str()]);
    // A second end is told about the first.
    for (verb, body) in [
        ("answer", json!({"text": "keep"})),
        ("decline", json!({})),
        ("claim", Value::Null),
        ("handover", json!({"to": "desk"})),
    ] {
        let late = desk.acts(&desk.lena, &id, verb, &body);
        let problem = late.json();
        assert_eq!(
            (late.status, &problem["code"]),
            (409, &json!("question_closed")),
            "{verb}: {late:?}"
        );
        assert_eq!(
            (&problem["state"], &problem["by"]),
            (&json!("answered"), &json!("mara")),
            "{verb}"
        );
        assert!(problem["at"].is_string() && problem["detail"].is_string(), "{late:?}");
    }
    // A text that came too late is kept.
    assert_eq!(
        desk.gets(&desk.lena, &format!("questions/{id}/draft")),
        json!({"text": "keep"})
    );
    let agent = desk.team.agent_as(&desk.agent, "alice");
    let notices = eventually("the agent is told", || {
        let messages = agent.reads(json!({}));
        (!messages.is_empty()).then_some(messages)
    });
    assert_eq!(notices[0]["protocol_name"], "human-answer");
    assert_eq!(notices[0]["sender_name"], "mara");
    assert_eq!(notices[0]["payload"]["answer"]["text"], "but dump it first\nto s3");
    assert_eq!(notices[0]["headers"]["correlation_id"], id.as_str());
}

#[test]
fn an_answer_to_another_revision_than_the_one_seen_changes_nothing() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let id = desk.asks("Which?", &json!({}));
    let seen = desk.request(&desk.mara, "GET", &format!("questions/{id}"), &Value::Null);
    let tag = seen.header("etag").unwrap().to_owned();
    desk.acts(&desk.lena, &id, "claim", &Value::Null);
    let path = format!("/api/v1/questions/{id}/answer");
    let answer = |tag: &str| {
        let headers = [("X-API-Key", desk.mara.as_str()), ("If-Match", tag)];
        broker.rest_with(&headers, "POST", &path, &json!({"text": "a"}))
    };
    for stale in [tag.as_str(), "\"none\"", "W/\"1\""] {
        let refused = answer(stale);
        assert_eq!(refused.problem(), (412, "precondition_failed".to_owned()), "{stale}");
    }
    let present = answer(&tag).json()["revision"].as_u64().unwrap();
    assert_eq!(answer(&format!("\"{present}\"")).status, 200);
    assert_eq!(answer("*").problem(), (409, "question_closed".to_owned()));
}

#[test]
fn of_many_answers_at_once_exactly_one_counts_and_all_are_told_the_same() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    for _ in 0..10 {
        let id = desk.asks("Who is first?", &json!({}));
        let answers: Vec<_> = thread::scope(|scope| {
            let answers = (0..8).map(|at| {
                let (desk, id) = (&desk, &id);
                scope.spawn(move || {
                    let key = if at % 2 == 0 { &desk.mara } else { &desk.lena };
                    desk.acts(key, id, "answer", &json!({"text": at.to_string()}))
                })
            });
            answers
                .collect::<Vec<_>>()
                .into_iter()
                .map(|answer| answer.join().unwrap())
                .collect()
        });
        let winners: Vec<_> = answers.iter().filter(|answer| answer.status == 200).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let by = &winners[0].json()["answered_by"]["human"];
        for late in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(late.problem(), (409, "question_closed".to_owned()));
            assert_eq!(&late.json()["by"], by);
        }
        let kept = desk.gets(&desk.mara, &format!("questions/{id}"));
        assert_eq!(kept["answer"], winners[0].json()["answer"]);
    }
}

#[test]
fn a_question_is_declined_cancelled_handed_over_released_and_forgotten() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let id = desk.asks("One?", &json!({}));
    let declined = desk
        .acts(&desk.mara, &id, "decline", &json!({"reason": "ask Lena"}))
        .json();
    assert_eq!(
        (&declined["state"], &declined["reason"]),
        (&json!("declined"), &json!("ask Lena"))
    );
    assert_eq!(declined["declined_by"]["human"], "mara");
    // A closed question that is cancelled stays as it is.
    let cancelled = desk.acts(&desk.agent, &id, "cancel", &Value::Null);
    assert_eq!(
        (cancelled.status, &cancelled.json()["state"]),
        (200, &json!("declined"))
    );
    let id = desk.asks("Two?", &json!({}));
    let cancelled = desk
        .acts(&desk.agent, &id, "cancel", &json!({"reason": "not needed"}))
        .json();
    assert_eq!(
        (&cancelled["state"], &cancelled["reason"]),
        (&json!("cancelled"), &json!("not needed"))
    );
    let id = desk.asks("Three?", &json!({}));
    assert_eq!(desk.acts(&desk.mara, &id, "claim", &Value::Null).status, 200);
    let typed = desk.acts(&desk.mara, &id, "typed", &Value::Null).json();
    assert_eq!(typed["claimed_by"]["typing"], true);
    let released = desk.acts(&desk.mara, &id, "release", &Value::Null).json();
    assert_eq!(
        (&released["desk_state"], &released["claimed_by"]),
        (&json!("waiting"), &Value::Null)
    );
    let given = desk
        .acts(&desk.mara, &id, "handover", &json!({"to": "lena", "note": "yours"}))
        .json();
    assert_eq!(
        (&given["handover"]["from"], &given["handover"]["note"]),
        (&json!("mara"), &json!("yours"))
    );
    assert_eq!(given["to"], "lena");
    assert_eq!(desk.lists(&desk.lena, "?to=lena"), [id.as_str()]);
    // The draft is that of one person.
    let path = format!("questions/{id}/draft");
    desk.does(&desk.lena, "PUT", &path, &json!({"text": "so far"}));
    assert_eq!(desk.gets(&desk.lena, &path), json!({"text": "so far"}));
    desk.does(&desk.lena, "PUT", &path, &json!({"text": ""}));
    assert_eq!(desk.gets(&desk.lena, &path), json!({"text": ""}));
    let path = format!("questions/{id}");
    let removed = desk.request(&desk.team.key, "DELETE", &path, &Value::Null);
    assert_eq!(removed.status, 204, "{removed:?}");
    let gone = desk.request(&desk.lena, "GET", &path, &Value::Null);
    assert_eq!(gone.problem(), (404, "question_not_found".to_owned()));
    let audit = desk.gets(&desk.team.key, "audit");
    let actions: Vec<_> = audit["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["action"].clone())
        .collect();
    for action in [
        "question.decline",
        "question.claim",
        "question.handover",
        "question.remove",
    ] {
        assert!(actions.contains(&json!(action)), "{action}: {actions:?}");
    }
    let entries = audit["entries"].as_array().unwrap();
    let handover = entries.iter().find(|entry| entry["action"] == "question.handover");
    let actor = handover.unwrap()["actor"].as_str().unwrap();
    assert!(actor.starts_with("key:") && actor.ends_with(" as mara"), "{actor}");
}

#[test]
fn questions_are_listed_by_urgency_and_age_in_pages() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let ids: Vec<_> = [("a", "low"), ("b", "high"), ("c", "medium"), ("d", "high")]
        .map(|(text, urgency)| desk.asks(text, &json!({"urgency": urgency})))
        .into();
    let expected = [1, 3, 2, 0].map(|at| ids[at].clone());
    assert_eq!(desk.lists(&desk.mara, ""), expected);
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = desk.gets(&desk.mara, &format!("questions?limit=1{cursor}"));
        let questions = page["questions"].as_array().unwrap();
        assert!(questions.len() <= 1);
        for question in questions {
            assert!(question.get("question").is_none(), "lists have a summary: {question}");
            paged.push(question["question_id"].as_str().unwrap().to_owned());
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(paged, expected);
    assert_eq!(desk.lists(&desk.mara, "?asker=alice&q=B"), [ids[1].as_str()]);
    assert_eq!(desk.lists(&desk.mara, "?asker=bob"), [""; 0]);
    for query in ["?state=open", "?cursor=x", "?limit=0", "?q="] {
        let refused = desk.request(&desk.mara, "GET", &format!("questions{query}"), &Value::Null);
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{query}");
    }
}

#[test]
fn an_answer_has_to_fit_its_question() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let id = desk.asks("Which?", &json!({"options": ["a", "b"], "allow_other": false}));
    for wrong in [
        json!({"selected": ["c"]}),
        json!({"selected": ["a", "b"]}),
        json!({}),
        json!({"other": "c"}),
        json!({"text": "a", "via": "post"}),
        json!({"txt": "a"}),
        json!({"text": 7}),
    ] {
        let refused = desk.acts(&desk.mara, &id, "answer", &wrong);
        assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()), "{wrong}");
    }
    assert_eq!(
        desk.acts(&desk.mara, &id, "answer", &json!({"selected": ["a"]})).status,
        200
    );
    let form = json!([{"id": "db", "question": "Database?", "required": true}, {"id": "os", "question": "System?"}]);
    let body = json!({"from": "alice", "questions": form});
    let asked = desk.request(&desk.agent, "POST", "questions", &body);
    assert_eq!(asked.status, 201, "{asked:?}");
    let id = asked.json()["question_id"].as_str().unwrap().to_owned();
    let refused = desk.acts(
        &desk.mara,
        &id,
        "answer",
        &json!({"answers": {"os": {"text": "linux"}}}),
    );
    assert_eq!(refused.problem(), (400, "invalid_argument".to_owned()));
    let answered = desk.acts(
        &desk.mara,
        &id,
        "answer",
        &json!({"answers": {"db": {"text": "redis"}}}),
    );
    assert_eq!(
        answered.json()["answer"]["answers"]["db"]["text"],
        "redis",
        "{answered:?}"
    );
}

#[test]
fn the_same_key_of_the_same_agent_finds_the_same_question() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let id = desk.asks("Once?", &json!({"idempotency_key": "once"}));
    let body = json!({"from": "alice", "question": "Once?", "idempotency_key": "once"});
    let again = desk.request(&desk.agent, "POST", "questions", &body);
    assert_eq!((again.status, &again.json()["question_id"]), (200, &json!(id)));
    assert_eq!(desk.lists(&desk.agent, ""), [id.as_str()]);
}
