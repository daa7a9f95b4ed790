//! What is told of questions outside the broker: webhooks, ntfy, and links by which a question is answered.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use test_client::folder::Folder;

use super::Desk;
use crate::support::{ADMIN_KEY, Broker, Got, Request, Response, SECRET, Target, secret_file};

/// The type of the event.
fn kind_of(got: &Got) -> String {
    got.json()["type"].as_str().unwrap().to_owned()
}

fn signature_of(got: &Got) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(&SECRET).unwrap();
    let signed = format!(
        "{}.{}.",
        got.header("webhook-id").unwrap(),
        got.header("webhook-timestamp").unwrap()
    );
    mac.update(signed.as_bytes());
    mac.update(&got.body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

#[test]
fn every_change_of_a_question_is_sent_signed_and_in_order() {
    let (target, secret) = (Target::start(&[]), secret_file());
    let webhook = target.flag("/hook?x=1");
    let broker = Broker::secured_with(&[&webhook, &secret.flag()]);
    let desk = Desk::open(&broker);
    let options = json!([{"value": "drop", "label": "Drop it"}, "keep"]);
    let id = desk.asks("Drop the old table?", &json!({"options": options, "urgency": "high"}));
    assert_eq!(desk.acts(&desk.mara, &id, "claim", &Value::Null).status, 200);
    assert_eq!(
        desk.acts(&desk.mara, &id, "answer", &json!({"selected": ["drop"]}))
            .status,
        200
    );
    let other = desk.asks("And now?", &json!({}));
    assert_eq!(
        desk.acts(&desk.mara, &other, "decline", &json!({"reason": "no"}))
            .status,
        200
    );
    let withdrawn = desk.asks("Or that?", &json!({}));
    assert_eq!(desk.acts(&desk.agent, &withdrawn, "cancel", &json!({})).status, 200);

    let got: Vec<_> = (0..7).map(|_| target.next()).collect();
    let kinds: Vec<_> = got.iter().map(kind_of).collect();
    let expected = [
        "asked",
        "claimed",
        "answered",
        "asked",
        "declined",
        "asked",
        "cancelled",
    ];
    assert_eq!(kinds, expected.map(|kind| format!("question.{kind}")));
    for one in &got {
        assert_eq!(one.path, "/hook?x=1");
        assert_eq!(one.header("content-type").unwrap(), "application/json");
        assert_eq!(one.header("webhook-signature").unwrap(), signature_of(one));
        let event = one.json();
        assert_eq!(event["id"], one.header("webhook-id").unwrap());
        assert!(event["at"].is_string(), "{event}");
        assert_eq!(event["data"]["project_id"], "team");
    }
    let ids: std::collections::BTreeSet<_> = got.iter().map(|one| one.header("webhook-id").unwrap()).collect();
    assert_eq!(ids.len(), got.len(), "each event has an id of its own");
    let answered = got[2].json();
    assert_eq!(answered["data"]["question_id"], id.as_str());
    assert_eq!(answered["data"]["question"], "Drop the old table?");
    assert_eq!(answered["data"]["answer"]["selected"], json!(["drop"]));
    assert!(target.has_nothing());
}

#[test]
fn what_a_webhook_refuses_is_sent_again_in_order_and_a_redirect_is_not_followed() {
    // The first attempt is redirected to a path of the target itself, where a follower would be seen.
    let target = Target::start(&["307 Temporary Redirect\r\nLocation: /elsewhere"]);
    let secret = secret_file();
    let webhook = target.flag("/hook");
    let broker = Broker::secured_with(&[&webhook, &secret.flag()]);
    let desk = Desk::open(&broker);
    let id = desk.asks("Drop it?", &json!({}));
    let refused = target.next();
    assert_eq!(
        desk.acts(&desk.mara, &id, "answer", &json!({"text": "yes"})).status,
        200
    );
    let again = target.next();
    assert_eq!(
        (
            again.path.as_str(),
            kind_of(&again),
            again.header("webhook-id").unwrap()
        ),
        (
            "/hook",
            "question.asked".to_owned(),
            refused.header("webhook-id").unwrap()
        )
    );
    let then = target.next();
    assert_eq!(kind_of(&then), "question.answered");
    let metrics = broker.rest(ADMIN_KEY, "GET", "/metrics", &Value::Null);
    let metrics = metrics.body;
    assert!(metrics.contains("\nmcp_broker_webhook_failures_total 1\n"), "{metrics}");
}

#[test]
fn an_event_that_was_not_sent_before_a_crash_is_sent_after_the_restart() {
    let folder = Folder::new();
    let (target, secret) = (Target::start(&["503 Service Unavailable"]), secret_file());
    let webhook = target.flag("/hook");
    let (data, secret_flag) = (folder.data_dir(), secret.flag());
    let flags = ["--storage=disk", &data, &webhook, &secret_flag];
    let mut broker = Broker::start_with(&flags);
    let asked = broker
        .agent("alice")
        .calls("clarify", json!({"question": "Still there?", "wait_seconds": 0}));
    let refused = target.next();
    broker.kill();
    drop(broker);
    let again = Broker::on_existing_storage(&flags);
    // The project is opened at the start, because it has sessions.
    let sent = target.next();
    assert_eq!(
        sent.header("webhook-id").unwrap(),
        refused.header("webhook-id").unwrap()
    );
    assert_eq!(sent.json()["data"]["question_id"], asked["question_id"]);
    drop(again);
}

#[test]
fn a_sensitive_answer_is_encrypted_on_the_disk_until_its_agent_has_it() {
    let folder = Folder::new();
    let (secret, data) = (secret_file(), folder.data_dir());
    let (text, secret_flag) = ("a password that is found nowhere", secret.flag());
    let flags = ["--storage=disk", &data, &secret_flag];
    let mut broker = Broker::start_with(&flags);
    let asked = broker.agent("alice").calls(
        "clarify",
        json!({"question": "Password?", "sensitive": true, "wait_seconds": 0}),
    );
    let id = asked["question_id"].as_str().unwrap();
    let path = format!("/api/v1/questions/{id}/answer");
    let answered = broker.rest_with(
        &[("X-Human", "mara")],
        "POST",
        &path,
        &json!({"text": text, "via": "web"}),
    );
    assert_eq!(answered.status, 200, "{answered:?}");
    broker.kill();
    let is_on_disk = |text: &str| {
        let mut files = files_in(&folder).into_iter().map(|file| std::fs::read(file).unwrap());
        files.any(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes()))
    };
    assert!(is_on_disk("Password?"), "the question is");
    assert!(!is_on_disk(text), "the answer is not");
    // With another secret it cannot be decrypted, and is kept; with the right one the agent gets it.
    let read = |broker: &Broker| broker.agent("alice").calls("get_answer", json!({"question_id": id}));
    let mut other = Broker::on_existing_storage(&flags[..2]);
    let sealed = read(&other);
    assert_eq!(
        (&sealed["state"], &sealed["answer"]),
        (&json!("answered"), &Value::Null)
    );
    assert!(
        sealed["summary"].as_str().unwrap().contains("cannot decrypt"),
        "{sealed}"
    );
    other.kill();
    let again = Broker::on_existing_storage(&flags);
    assert_eq!(read(&again)["answer"]["text"], text);
    drop(again);
}

/// The files in a folder and in those below it.
fn files_in(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files_in(&path) } else { vec![path] })
        .collect()
}

/// Follows a link of a notification at this broker.
fn follows(broker: &Broker, link: &str, method: &str, body: Option<(&str, &str)>) -> Response {
    let path = link.strip_prefix("https://broker.example.com").unwrap();
    let (content_type, body) = body.unwrap_or(("application/json", ""));
    let request = match method {
        "POST" => Request::post(broker.address, body),
        _ => Request::get(broker.address),
    };
    // As a browser does for a form.
    let origin = format!("http://{}", broker.address);
    let request = request.with_path(path).with("Content-Type", content_type);
    request.with("Origin", origin).answered()
}

/// A broker whose notifications show texts and have links.
fn notifying_broker(target: &Target, secret: &str) -> Broker {
    let topic = format!("--desk-ntfy=http://{}/my-topic", target.address);
    let public = "--desk-public-url=https://broker.example.com";
    Broker::secured_with(&[&topic, secret, public, "--desk-notify-text"])
}

#[test]
fn a_notification_has_links_that_answer_once_and_only_by_post() {
    let (target, secret) = (Target::start(&[]), secret_file());
    let broker = notifying_broker(&target, &secret.flag());
    let desk = Desk::open(&broker);
    let options = json!([{"value": "drop", "label": "<b>Drop it</b>"}, "keep"]);
    let id = desk.asks("Drop <the> table?", &json!({"options": options, "urgency": "high"}));
    let told = target.next();
    assert_eq!(told.path, "/");
    let message = told.json();
    assert_eq!(
        (&message["topic"], &message["title"]),
        (&json!("my-topic"), &json!("alice asks (high)"))
    );
    assert_eq!(message["message"], "Drop <the> table?");
    assert_eq!(message["click"], format!("https://broker.example.com/desk/q/{id}"));
    let action = &message["actions"][0];
    let link = action["url"].as_str().unwrap();

    // What shows a preview fetches the address.
    let preview = follows(&broker, link, "GET", None);
    assert_eq!(preview.status, 200, "{preview:?}");
    let page = &preview.body;
    assert!(
        page.contains("Drop &lt;the&gt; table?") && page.contains("&lt;b&gt;Drop it"),
        "{page}"
    );
    assert!(!page.contains("<b>"), "{page}");
    // With `no-referrer` a browser sends the form with the origin `null`, which is refused.
    assert_eq!(preview.header("referrer-policy"), Some("same-origin"));
    assert!(
        preview
            .header("content-security-policy")
            .unwrap()
            .starts_with("default-src 'none'")
    );
    assert_eq!(desk.gets(&desk.mara, &format!("questions/{id}"))["state"], "pending");

    let forged = format!("{}A", &link[..link.len() - 1]);
    let forged = if forged == link {
        format!("{}B", &link[..link.len() - 1])
    } else {
        forged
    };
    let refused = follows(&broker, &forged, "POST", Some(("application/json", "{}")));
    assert_eq!(refused.status, 404, "{refused:?}");
    let unfit = follows(
        &broker,
        link,
        "POST",
        Some(("application/json", r#"{"selected":["none"]}"#)),
    );
    assert_eq!(unfit.status, 400, "{unfit:?}");

    let body = action["body"].as_str().unwrap();
    let answered = follows(&broker, link, "POST", Some(("application/json", body)));
    assert_eq!(answered.status, 200, "{answered:?}");
    let question = desk.gets(&desk.mara, &format!("questions/{id}"));
    assert_eq!(question["answered_by"], json!({"human": "answer-link", "via": "link"}));
    assert_eq!(question["answer"]["selected"], json!(["drop"]));
    let second = follows(
        &broker,
        link,
        "POST",
        Some(("application/x-www-form-urlencoded", "text=late")),
    );
    assert_eq!(second.status, 409, "{second:?}");
    let now = follows(&broker, link, "GET", None);
    assert!(now.body.contains("answered by answer-link"), "{now:?}");
}

#[test]
fn the_form_of_a_link_answers_a_question_to_one_person() {
    let (target, secret) = (Target::start(&[]), secret_file());
    let broker = notifying_broker(&target, &secret.flag());
    let desk = Desk::open(&broker);
    // A text area ends its lines with CR LF.
    let other = desk.asks("And this?", &json!({"to": "mara", "options": ["yes", "no"]}));
    let message = target.next().json();
    let link = message["actions"][0]["url"].as_str().unwrap();
    let form = Some((
        "application/x-www-form-urlencoded",
        "selected=no&text=not+now%0D%0Aor+never",
    ));
    assert_eq!(follows(&broker, link, "POST", form).status, 200);
    let answer = &desk.gets(&desk.mara, &format!("questions/{other}"))["answer"];
    assert_eq!(
        (&answer["selected"], &answer["text"]),
        (&json!(["no"]), &json!("not now\nor never"))
    );
}

#[test]
fn a_person_at_the_desk_is_not_notified() {
    let (target, secret) = (Target::start(&[]), secret_file());
    let topic = format!("--desk-ntfy=http://{}/my-topic", target.address);
    let webhook = target.flag("/hook");
    let broker = Broker::secured_with(&[&topic, &webhook, &secret.flag()]);
    let desk = Desk::open(&broker);
    let (_stream, _) = desk.follows(&desk.mara, "topics=questions&console=mara");
    let id = desk.asks("Which one?", &json!({}));
    let told = target.next();
    assert_eq!(
        (told.path.as_str(), kind_of(&told)),
        ("/hook", "question.asked".to_owned())
    );
    assert_eq!(
        desk.acts(&desk.mara, &id, "answer", &json!({"text": "this"})).status,
        200
    );
    let told = target.next();
    assert_eq!(
        (told.path.as_str(), kind_of(&told)),
        ("/hook", "question.answered".to_owned())
    );
    // Events of one target do not wait for those of another: the notification was decided on before.
    assert!(target.has_nothing());
}
