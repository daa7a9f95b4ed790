//! The stream of the desk: a console is the life of its response.

use std::net::TcpStream;

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use super::{Desk, awaits};
use crate::support::{Broker, ResponseReader, TIMEOUTS_OFF, eventually};

const ALL: &str = "topics=questions,yaps,desk";

fn about(id: &str) -> impl Fn(&Value) -> bool + '_ {
    move |question| question["question_id"] == id
}

#[test]
fn a_console_is_told_of_questions_and_is_there_as_long_as_its_stream() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let before = desk.asks("before", &json!({}));
    let (mut stream, first) = desk.follows(&desk.mara, &format!("{ALL}&console=mara"));
    let console = first["console"].as_str().unwrap().to_owned();
    awaits(&mut stream, "question", about(&before));
    // The broker offers a question to the one console there is.
    let id = desk.asks("Drop it?", &json!({}));
    let offered = awaits(&mut stream, "question", |question| {
        question["question_id"] == id.as_str() && question["mine"] == true
    });
    assert_eq!(offered["offered_to"], json!({"human": "mara", "console": console}));
    let shown = desk.gets(&desk.lena, "desk");
    assert_eq!(shown["humans"][0]["human"], "mara");
    assert_eq!(shown["humans"][0]["presence"], "present");
    assert_eq!(shown["consoles"][0]["console"], console.as_str());
    desk.acts(&desk.mara, &id, "claim", &json!({"console": console}));
    awaits(&mut stream, "question", |question| {
        question["question_id"] == id.as_str() && question["claimed_by"]["console"] == console.as_str()
    });
    desk.acts(&desk.mara, &id, "answer", &json!({"text": "yes"}));
    awaits(&mut stream, "question", |question| {
        question["question_id"] == id.as_str() && question["state"] == "answered"
    });
    let path = format!("desk/consoles/{console}");
    let changed = desk.request(&desk.mara, "PUT", &path, &json!({"paused": true, "away": true}));
    assert_eq!(changed.status, 204, "{changed:?}");
    let told = awaits(&mut stream, "desk", |desk| desk["consoles"][0]["paused"] == true);
    assert_eq!(told["humans"][0]["presence"], "away");
    let refused = desk.request(&desk.lena, "PUT", &path, &json!({"paused": false}));
    assert_eq!(refused.status, 400, "{refused:?}");
    // The console leaves with its connection, without a word.
    stream.disconnects();
    eventually("the console has left", || {
        let consoles = &desk.gets(&desk.lena, "desk")["consoles"];
        consoles.as_array().unwrap().is_empty().then_some(())
    });
}

#[test]
fn a_question_moves_to_another_console_when_its_console_leaves() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let (mut of_mara, _) = desk.follows(&desk.mara, "topics=questions&console=mara");
    let id = desk.asks("Whose?", &json!({}));
    let is_mine = |question: &Value| question["question_id"] == id.as_str() && question["mine"] == true;
    awaits(&mut of_mara, "question", is_mine);
    let (mut of_lena, _) = desk.follows(&desk.lena, "topics=questions&console=");
    of_mara.disconnects();
    let moved = awaits(&mut of_lena, "question", is_mine);
    assert_eq!(moved["offered_to"]["human"], "lena");
}

#[test]
fn a_watcher_sees_what_it_may_and_is_no_console() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let observer = desk.team.new_key_with_scope("observer");
    let (mut of_lena, first) = desk.follows(&desk.lena, ALL);
    assert_eq!((&first["consoles"], first.get("console")), (&json!([]), None));
    let (mut of_agent, _) = desk.follows(&desk.agent, "topics=questions");
    let (mut of_observer, _) = desk.follows(&observer, "topics=desk");
    let hidden = desk.asks("for mara", &json!({"to": "mara"}));
    let open = desk.asks("for all", &json!({}));
    // Lena gets nothing about the first question.
    assert_eq!(awaits(&mut of_lena, "question", |_| true)["question_id"], open.as_str());
    awaits(&mut of_agent, "question", about(&hidden));
    let told = awaits(&mut of_observer, "desk", |desk| desk["waiting"] == 2);
    assert_eq!(told.get("questions"), None);
    // A question that is handed over to another person is gone from the lists of the others.
    desk.acts(&desk.mara, &open, "handover", &json!({"to": "mara"}));
    awaits(&mut of_lena, "gap", |_| true);
}

#[test]
fn a_stream_is_refused_to_a_caller_without_the_right_and_for_topics_of_two_streams() {
    let broker = Broker::secured();
    let desk = Desk::open(&broker);
    let observer = desk.team.new_key_with_scope("observer");
    for (key, query, refusal) in [
        (&desk.mara, "topics=questions&console=lena", (403, "forbidden")),
        (
            &desk.mara,
            "topics=questions&console=mara&roles=dba",
            (403, "forbidden"),
        ),
        (&desk.agent, "topics=questions&console=alice", (403, "forbidden")),
        (&observer, "topics=questions", (403, "forbidden")),
        (&desk.mara, "topics=questions,message", (400, "invalid_argument")),
        (&desk.mara, "topics=desk&console=mara", (400, "invalid_argument")),
        (&desk.mara, "console=mara", (400, "invalid_argument")),
    ] {
        let (status, code) = desk.stream_request(key, query).answered().problem();
        assert_eq!((status, code.as_str()), refusal, "{query}");
    }
    let request = desk
        .stream_request(&desk.mara, "topics=yaps")
        .with("Last-Event-ID", "17");
    assert_eq!(request.answered().problem(), (400, "invalid_argument".to_owned()));
}

/// A connection that takes few bytes before it is read.
fn narrow_socket(broker: &Broker) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&broker.address.into()).unwrap();
    socket.into()
}

#[test]
fn a_reader_that_stalls_is_told_what_was_not_kept_for_it_and_holds_up_no_other() {
    use std::io::Write;
    /// Each may show 50 yaps at once.
    const SENDERS: usize = 20;
    const YAPS_OF_SENDER: usize = 50;

    // It stalls for as long as the yaps take.
    let broker = Broker::secured_with(&TIMEOUTS_OFF);
    let desk = Desk::open(&broker);
    let mut socket = narrow_socket(&broker);
    let request = desk.stream_request(&desk.mara, &format!("{ALL}&console=mara"));
    socket.write_all(&request.bytes()).unwrap();
    let (mut other, _) = desk.follows(&desk.lena, "topics=yaps");
    // 24 KB of JSON each: together far more than the buffers of a socket hold.
    let message = "\u{1}".repeat(4_000);
    let mut last = Value::Null;
    for sender in 0..SENDERS {
        let name = format!("sender-{sender}");
        for _ in 0..YAPS_OF_SENDER {
            let yap = json!({"from": name, "message": message});
            let accepted = desk.request(&desk.agent, "POST", "yaps", &yap);
            assert_eq!(accepted.status, 201, "{accepted:?}");
            last = accepted.json()["yap_id"].clone();
        }
        awaits(&mut other, "yap", |yap| yap["yap_id"] == last);
    }
    let mut stalled = ResponseReader::from_socket(socket);
    let (mut kept, mut dropped, mut newest) = (0, 0, Value::Null);
    while newest != last {
        let event = stalled.next_event().expect("the stream goes on");
        match event.kind.as_deref() {
            Some("gap") => dropped += event.json()["dropped"].as_u64().unwrap(),
            Some("yap") => {
                kept += 1;
                newest = event.json()["yap_id"].clone();
            }
            _ => {}
        }
    }
    // What the broker did not keep for the reader, it has said: it keeps 512 events, and the system a few more.
    let sent = (SENDERS * YAPS_OF_SENDER) as u64;
    assert!(
        dropped > 0 && kept < sent && kept + dropped >= sent,
        "{kept} and {dropped} of {sent}"
    );
}
