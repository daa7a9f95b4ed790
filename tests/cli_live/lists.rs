//! `sessions`, `protocols`, `messages` and `dead-letters`.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
};

use serde_json::{Value, json};
use test_client::folder::Folder;

use super::golden::assert_golden;
use super::program::{broker_with, delete, objects, post, prepare, program, run, run_with_input, send, tool};

/// Characters that a terminal would act on, that change the reading direction, or that are markup.
const HOSTILE: &str = "<b>&\u{1b}[31m\u{202e}x";

#[test]
fn sessions_are_listed_and_shown() {
    let broker = broker_with(&["alice", "bob"]);
    let capabilities = json!({"supported_protocols": {"note": ["1.0.0"]}, "supported_features": ["fast"]});
    tool(
        broker.address,
        "register_session",
        &json!({"name": "carol", "capabilities": capabilities, "metadata": {"team": "east"}}),
    );
    send(broker.address, "alice", "bob", "hello");
    let shown = |words: &[&str]| run(broker.address, words).succeeds();
    assert_golden("sessions", &shown(&["sessions"]));
    assert_golden("sessions.json", &shown(&["sessions", "--json"]));
    assert_golden("session", &shown(&["sessions", "carol"]));
    assert_golden("session.json", &shown(&["--json", "sessions", "carol"]));
    assert_golden("sessions-of-a-feature", &shown(&["sessions", "--feature=fast"]));
    assert_eq!(shown(&["sessions", "--status", "stale"]), "no sessions\n");
    let names = |words: &[&str]| {
        let found = objects(&shown(words));
        let names = found.iter().map(|session| session["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(
        names(&["sessions", "--json", "--sort=name", "--reverse"]),
        ["carol", "bob", "alice"]
    );
    assert_eq!(names(&["sessions", "--json", "--query=LIC"]), ["alice"]);
    assert!(shown(&["sessions", "--limit=2"]).ends_with("\nThere are more sessions: --limit shows more.\n"));
    assert_eq!(objects(&shown(&["sessions", "--limit=2", "--json"])).len(), 2);
    let line = run(broker.address, &["sessions", "nemo"]).fails_with(1);
    assert!(line.starts_with("session_not_found: "), "{line}");
}

#[test]
fn protocols_are_listed_and_shown() {
    let broker = broker_with(&[]);
    let schema = json!({"type": "object"});
    for version in ["1.0.0", "1.2.0", "2.0.0"] {
        let chat = json!({"name": "chat", "version": version, "schema": schema, "capabilities": ["broadcast"]});
        post(broker.address, "/api/v1/protocols", &chat);
    }
    let shown = |words: &[&str]| run(broker.address, words).succeeds();
    assert_golden("protocols", &shown(&["protocols"]));
    assert_golden("protocols.json", &shown(&["protocols", "--json"]));
    assert_golden("protocol", &shown(&["protocols", "note", "1.0.0"]));
    assert_golden("protocol.json", &shown(&["protocols", "note", "1.0.0", "--json"]));
    let versions = |words: &[&str]| {
        let found = objects(&shown(words));
        found
            .iter()
            .map(|protocol| protocol["version"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(versions(&["protocols", "chat", "--json"]).len(), 3);
    assert_eq!(
        versions(&["protocols", "chat", "--requirement=^1.1", "--json"]),
        ["1.2.0"]
    );
    assert_eq!(versions(&["protocols", "--query=SHORT text", "--json"]), ["1.0.0"]);
    assert_eq!(
        versions(&["protocols", "--capability=broadcast", "--tag=test", "--json"]).len(),
        0
    );
    let line = run(broker.address, &["protocols", "chat", "9.9.9"]).fails_with(1);
    assert!(line.starts_with("protocol_not_found: "), "{line}");
}

#[test]
fn a_protocol_is_registered_from_a_file_or_stdin() {
    let broker = broker_with(&[]);
    let register = |words: &[&str], text: &str| {
        run_with_input(broker.address, &[&["protocols", "register"], words].concat(), text)
    };
    let chat = json!({"name": "chat", "version": "1.0.0", "schema": {"type": "object"}}).to_string();
    assert_eq!(register(&["-"], &chat).succeeds(), "chat 1.0.0 is registered\n");
    assert_eq!(
        register(&["-"], &chat).succeeds(),
        "chat 1.0.0 was registered before, with the same schema\n"
    );
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("schema-{}.json", std::process::id()));
    fs::write(&file, r#"{"type": "object", "required": ["text"]}"#).unwrap();
    let path = file.to_str().unwrap();
    let shown = objects(&register(&["--name=chat", "--version=1.1.0", "--json", path], "").succeeds());
    assert_eq!(
        (&shown[0]["name"], &shown[0]["version"]),
        (&json!("chat"), &json!("1.1.0"))
    );
    let shown = run(broker.address, &["protocols", "chat", "1.1.0"]).succeeds();
    assert!(shown.contains("\"required\""), "{shown}");
    let line = register(&[path], "").fails_with(2);
    assert!(
        line.contains("is no definition of a protocol; allowed: an object with name, version and schema"),
        "{line}"
    );
    let line = register(&["-"], &chat.replace("1.0.0", "2.0.0").replace("object", "array of")).fails_with(1);
    assert!(line.starts_with("invalid_schema: "), "{line}");
    let line = register(&["-"], "chat").fails_with(2);
    assert!(line.starts_with("stdin is not a JSON object: "), "{line}");
    fs::remove_file(file).unwrap();
}

/// The tables of a terminal have beginnings of ids: each command takes one where it takes the id.
#[test]
fn the_beginning_of_an_id_stands_for_it_and_several_are_named() {
    let broker = broker_with(&["alice", "bob", "gone"]);
    let id = send(broker.address, "alice", "bob", "hello");
    let shown = |words: &[&str]| run(broker.address, words).succeeds();
    for len in [18, 23, 35] {
        let life = objects(&shown(&["messages", &id[..len], "--json"]));
        assert_eq!(life[0]["message_id"], id.as_str());
    }
    assert_eq!(objects(&shown(&["messages", "--thread", &id[..23], "--json"])).len(), 1);
    let bob = objects(&shown(&["sessions", "bob", "--json"]))[0]["session_id"].clone();
    let bob = &bob.as_str().unwrap()[..23];
    assert_eq!(objects(&shown(&["sessions", bob, "--json"]))[0]["name"], "bob");
    assert_eq!(objects(&shown(&["inbox", bob, "--json"]))[0]["message_id"], id.as_str());
    assert_eq!(objects(&shown(&["wait", bob, "--json"]))[0]["name"], "bob");
    assert_eq!(objects(&shown(&["messages", "--session", bob, "--json"])).len(), 1);
    let to_bob = [
        "send",
        "--protocol=note",
        "--version=1.0.0",
        "--from=alice",
        "--to",
        bob,
        r#"{"text": "hi"}"#,
    ];
    shown(&to_bob);
    assert_eq!(objects(&shown(&["inbox", "bob", "--json"])).len(), 2);
    // All ids of a minute begin with the same eight digits, and more of them are needed.
    let first = loop {
        let two = ["one", "two"].map(|text| send(broker.address, "alice", "bob", text)[..8].to_owned());
        if two[0] == two[1] {
            break two[0].clone();
        }
    };
    let line = run(broker.address, &["messages", &first]).fails_with(1);
    assert!(
        line.contains(" is the beginning of ")
            && line.contains(" messages: ")
            && line.ends_with("; give more of the id"),
        "{line}"
    );
    let dead = send(broker.address, "alice", "gone", "lost");
    delete(broker.address, "/api/v1/sessions/gone?forget=true");
    let redriven = shown(&["dead-letters", "redrive", &dead[..23], "--to", bob]);
    assert_eq!(redriven, "sent 1 dead letter again\n");
    let line = run(broker.address, &["dead-letters", "redrive", "123"]).fails_with(1);
    assert_eq!(line, "no dead letter 123: mcp-broker dead-letters lists them");
    // A name that looks like the beginning of an id is a name.
    tool(broker.address, "register_session", &json!({"name": "deadbeef"}));
    assert_eq!(
        objects(&shown(&["sessions", "deadbeef", "--json"]))[0]["name"],
        "deadbeef"
    );
}

#[test]
fn messages_are_listed_and_one_life_is_shown() {
    let broker = broker_with(&["alice", "bob"]);
    send(broker.address, "alice", "bob", "hello");
    let answer = json!({
        "from": "bob", "recipient_id": "alice", "protocol_name": "note", "protocol_version": "1.0.0",
        "payload": {"text": "hi"}, "headers": {"correlation_id": "q1", "priority": "high"},
    });
    let answer = post(broker.address, "/api/v1/messages", &answer);
    let answer = answer["message_id"].as_str().unwrap();
    let all =
        json!({"from": "alice", "protocol_name": "note", "protocol_version": "1.0.0", "payload": {"text": "all"}});
    post(broker.address, "/api/v1/messages", &all);
    let alice = tool(broker.address, "register_session", &json!({"name": "alice"}));
    let take = json!({"session_id": alice["session_id"], "acknowledge": "immediate"});
    tool(broker.address, "receive_messages", &take);
    let shown = |words: &[&str]| run(broker.address, words).succeeds();
    assert_golden("messages", &shown(&["messages"]));
    assert_golden("messages.json", &shown(&["messages", "--json"]));
    assert_golden(
        "messages-with-payload",
        &shown(&["messages", "--payload", "--session=alice"]),
    );
    assert_golden("message", &shown(&["messages", answer, "--payload"]));
    assert_golden("message.json", &shown(&["messages", answer, "--json"]));
    let ids = |words: &[&str]| objects(&shown(words)).len();
    assert_eq!(ids(&["messages", "--correlation-id=q1", "--json"]), 1);
    assert_eq!(ids(&["messages", "--thread", answer, "--json"]), 1);
    assert_eq!(ids(&["messages", "--thread=q1", "--json"]), 0);
    assert_eq!(ids(&["messages", "--status=queued", "--json"]), 2);
    assert_eq!(ids(&["messages", "--since=1h", "--json"]), 3);
    assert_eq!(ids(&["messages", "--until=1h", "--json"]), 0);
    assert_eq!(ids(&["messages", "--priority=high", "--protocol=note", "--json"]), 1);
    assert_eq!(ids(&["messages", "--query=q1", "--json"]), 1);
    assert_eq!(ids(&["messages", "--since=2099-01-01T00:00:00Z", "--json"]), 0);
    let unknown = "00000000-0000-7000-8000-000000000000";
    let line = run(broker.address, &["messages", unknown]).fails_with(1);
    assert!(line.contains("no such message"), "{line}");
    let line = run(broker.address, &["messages", "--since=yesterday"]).fails_with(2);
    assert!(line.contains("10m"), "{line}");
}

#[test]
fn the_history_is_exported_into_a_file() {
    let broker = broker_with(&["alice", "bob"]);
    let sent: Vec<String> = (0..20)
        .map(|at| send(broker.address, "alice", "bob", &at.to_string()))
        .collect();
    let folder = Folder::new();
    let file = folder.join("history.jsonl");
    let file = file.to_str().unwrap();
    let words = ["messages", "--payload", "--export", file];
    let printed = run(broker.address, &words).succeeds();
    assert_eq!(printed, format!("wrote 20 messages to {file}\n"));
    let exported = objects(&fs::read_to_string(file).unwrap());
    let ids: Vec<&str> = exported
        .iter()
        .rev()
        .map(|message| message["message_id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, sent);
    assert_eq!(exported[0]["payload"], json!({"text": "19"}));
    let line = run(broker.address, &words).fails_with(1);
    assert!(
        line.contains("exists, and nothing was exported") && line.contains("--force"),
        "{line}"
    );
    let printed = run(
        broker.address,
        &["messages", "--export", file, "--force", "--json", "--since=1h"],
    )
    .succeeds();
    assert_eq!(objects(&printed)[0]["messages"], 20);
    let line = run(
        broker.address,
        &["messages", "--session=nemo", "--export", file, "--force"],
    )
    .fails_with(1);
    assert!(line.starts_with("session_not_found"), "{line}");
    assert_eq!(
        objects(&fs::read_to_string(file).unwrap()).len(),
        20,
        "a failed export changes nothing"
    );
    assert_eq!(fs::read_dir(&*folder).unwrap().count(), 1, "and leaves nothing behind");
}

#[test]
fn dead_letters_are_listed_and_sent_again() {
    let broker = broker_with(&["alice", "gone"]);
    let lost: Vec<String> = (0..4)
        .map(|at| send(broker.address, "alice", "gone", &at.to_string()))
        .collect();
    delete(broker.address, "/api/v1/sessions/gone?forget=true");
    let shown = |words: &[&str]| run(broker.address, words).succeeds();
    assert_golden("dead-letters", &shown(&["dead-letters"]));
    assert_golden(
        "dead-letters.json",
        &shown(&["dead-letters", "--json", "--payload", "--limit=1"]),
    );
    assert_eq!(shown(&["dead-letters", "--reason=expired"]), "no dead letters\n");
    assert_eq!(
        shown(&["dead-letters", "--session=alice", "--protocol=chat"]),
        "no dead letters\n"
    );
    assert_eq!(objects(&shown(&["dead-letters", "--session=alice", "--json"])).len(), 4);
    // The recipient is gone: nothing is sent again, and the exit code says so.
    let tried = run(broker.address, &["dead-letters", "redrive", &lost[0]]);
    assert_eq!(tried.stdout, "sent 0 dead letters again\n");
    let line = tried.fails_with(1);
    assert!(
        line.contains("session_not_found") && line.contains("--to names another recipient"),
        "{line}"
    );
    tool(broker.address, "register_session", &json!({"name": "heir"}));
    let redrive = |more: &[&str]| {
        run(
            broker.address,
            &[&["dead-letters", "redrive", "--to=heir"], more].concat(),
        )
    };
    assert_eq!(redrive(&[&lost[0]]).succeeds(), "sent 1 dead letter again\n");
    let again = redrive(&[&lost[0], &lost[1], "--json"]);
    assert_eq!(
        objects(&again.stdout),
        [json!({"redriven": 1, "unknown": [lost[0]], "failures": []})]
    );
    assert!(again.fails_with(1).starts_with("no dead letter "));
    let line = redrive(&["--all"]).fails_with(2);
    assert!(
        line.contains("Send 2 dead letters again?") && line.contains("--yes"),
        "{line}"
    );
    assert_eq!(
        redrive(&["--all", "--yes", "--reason=rejected"]).succeeds(),
        "sent 0 dead letters again\n"
    );
    assert_eq!(redrive(&["--all", "--yes"]).succeeds(), "sent 2 dead letters again\n");
    assert_eq!(shown(&["dead-letters"]), "no dead letters\n");
    assert_eq!(objects(&shown(&["sessions", "heir", "--json"]))[0]["queue_size"], 4);
}

#[test]
fn a_thousand_dead_letters_are_sent_again_in_batches() {
    const LEN: usize = 1200;
    let broker = broker_with(&["alice", "gone", "heir"]);
    let address = broker.address;
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                (0..LEN / 8).for_each(|at| drop(send(address, "alice", "gone", &format!("{part} {at}"))))
            });
        }
    });
    // An inbox takes 1,000 messages, so that two brokers' worth of letters come from two sessions.
    delete(address, "/api/v1/sessions/gone?forget=true");
    tool(address, "register_session", &json!({"name": "gone"}));
    std::thread::scope(|scope| {
        for part in 0..4 {
            scope.spawn(move || {
                (0..LEN / 8).for_each(|at| drop(send(address, "alice", "gone", &format!("{part} {at}"))))
            });
        }
    });
    delete(address, "/api/v1/sessions/gone?forget=true");
    let done = run(
        address,
        &["dead-letters", "redrive", "--all", "--yes", "--to=heir", "--json"],
    );
    let told = objects(&done.stdout)[0].clone();
    assert_eq!(told["redriven"], 1000, "an inbox takes so many: {told}");
    assert_eq!(told["failures"].as_array().unwrap().len(), LEN - 1000);
    assert_eq!(told["failures"][0]["code"], "queue_full");
    let line = done.fails_with(1);
    assert!(
        line.contains("200 are not sent again") && line.contains("and 190 more"),
        "{line}"
    );
}

#[test]
fn hostile_texts_are_escaped_and_cut() {
    let broker = broker_with(&[]);
    let long = "\u{1b}".repeat(1000);
    let metadata = json!({"description": format!("{HOSTILE}{long}"), "tags": [HOSTILE]});
    let evil = json!({"name": "evil", "version": "1.0.0", "schema": {"type": "object"}, "metadata": metadata});
    post(broker.address, "/api/v1/protocols", &evil);
    let name = "<i>\u{2028}x \\ y";
    tool(
        broker.address,
        "register_session",
        &json!({"name": name, "metadata": {"note": format!("{HOSTILE}{}", "y".repeat(16_000))}}),
    );
    prepare(broker.address, &["bob"]);
    send(broker.address, name, "bob", &format!("{HOSTILE}{}", "z".repeat(64_000)));
    for words in [
        &["sessions"][..],
        &["sessions", name],
        &["protocols"],
        &["protocols", "evil", "1.0.0"],
        &["messages", "--payload"],
        &["inbox", "bob"],
    ] {
        for json in [&[][..], &["--json"]] {
            let text = run(broker.address, &[words, json].concat()).succeeds();
            assert!(
                text.chars().all(|c| c == '\n' || !c.is_control() && c != '\u{202e}'),
                "{words:?}: {text}"
            );
            if json.is_empty() && !words.contains(&"1.0.0") {
                let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
                assert!(longest < 1000, "{words:?}: a line has {longest} characters");
            }
        }
    }
    let listed = objects(&run(broker.address, &["sessions", "--json"]).succeeds());
    assert!(
        listed.iter().any(|session| session["name"] == name),
        "JSON has the value itself"
    );
}

#[test]
fn colours_are_for_terminals() {
    let broker = broker_with(&["alice"]);
    let mut piped = program(broker.address, &["sessions"]);
    piped.env("TERM", "xterm-256color");
    let text = crate::cli_live::program::Run::of(&mut piped).succeeds();
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn the_key_is_sent_and_a_refusal_says_what_to_do() {
    let key = "admin_tests_0123456789abcdef0123456789abcdef0123456789abcdef";
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cli-{}.key", std::process::id()));
    fs::write(&path, key).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let flag = format!("--admin-key-file={}", path.display());
    let broker = test_client::process::RunningServer::broker(&["--enable-auth", &flag]);
    let line = run(broker.address, &["sessions"]).fails_with(1);
    assert!(
        line.starts_with("authentication_failed") && line.contains("MCP_BROKER_API_KEY"),
        "{line}"
    );
    let with_key = ["sessions", "--key-file", path.to_str().unwrap()];
    assert_eq!(run(broker.address, &with_key).succeeds(), "no sessions\n");
    let wrong = key.replace("tests", "other");
    let mut command = program(broker.address, &["tail"]);
    let line = crate::cli_live::program::Run::of(command.env("MCP_BROKER_API_KEY", &wrong)).fails_with(1);
    assert!(
        line.starts_with("authentication_failed") && !line.contains(&wrong),
        "{line}"
    );
    fs::remove_file(path).unwrap();
}

#[test]
fn wrong_words_are_refused_before_anything_is_sent() {
    let nowhere = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    for (words, says) in [
        (&["sessions", "--status=gone"][..], "active, stale, disconnected, all"),
        (&["sessions", "--limit=0"], "a whole number from 1 to"),
        (&["messages", "--status", "lost"], "dead_lettered"),
        (&["dead-letters", "redrive"], "required"),
        (&["dead-letters", "redrive", "x", "--all"], "--all"),
        (&["send", "--from=a", "--to=b", "--protocol=p", "{}"], "--version"),
        (&["send", "--from=a", "--protocol=p", "--version=1.0.0", "{}"], "--to"),
        (
            &["send", "--from=a", "--to=b", "--protocol=p", "--version=1.0.0", "[]"],
            "not a JSON object",
        ),
        (&["wait"], "NAME"),
        (&["tail", "--limit=0"], "a whole number from 1 to"),
        (&["messages", "x", "--export=y"], "--export"),
    ] {
        let line = run(nowhere, words).fails_with(2);
        assert!(line.contains(says), "{words:?}: {line}");
    }
    for words in [
        &["sessions"][..],
        &["tail"],
        &["wait", "x"],
        &["messages", "--export=/tmp/never-written"],
    ] {
        let line = run(nowhere, words).fails_with(1);
        assert!(line.starts_with("cannot reach http://127.0.0.1:1"), "{words:?}: {line}");
    }
}

#[test]
fn numbers_of_a_payload_keep_their_digits() {
    let broker = broker_with(&["bob"]);
    let open = json!({"name": "open", "version": "1.0.0", "schema": {"type": "object"}});
    post(broker.address, "/api/v1/protocols", &open);
    let payload = r#"{"n":12345678901234567890123}"#;
    let words = [
        "send",
        "--from=a",
        "--to=bob",
        "--protocol=open",
        "--version=1.0.0",
        payload,
    ];
    run(broker.address, &words).succeeds();
    let listed = run(broker.address, &["inbox", "bob", "--payload", "--json"]).succeeds();
    assert!(listed.contains(payload), "{listed}");
    let _: Value = serde_json::from_str(&listed).unwrap();
}
