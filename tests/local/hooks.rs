//! What the hooks of clients ask a broker and tell their agents, with a broker of the test that answers as it likes.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    fake_broker::{Connection, FakeBroker},
    harness::{CONVERSATION, Hook, hook_input},
    home::{Home, Running, is_alive},
    support::eventually,
};

const MAIL: &str = "dev.mcp-broker/mail";
const ACTIVITY: &str = "dev.mcp-broker/activity";
const TEXT: &str = "mcp-broker: 2 messages wait (1 urgent), from bob, protocol chat. Call receive_messages.";

/// The input of a hook of Claude Code with these members.
fn input(members: &Value) -> String {
    hook_input(CONVERSATION, members)
}

fn two_messages() -> Value {
    json!({"session_id": "s-1", "unread": 2, "urgent": 1, "from": ["bob"], "protocols": ["chat"], "oldest_seconds": 5})
}

fn no_messages() -> Value {
    json!({"session_id": "s-1", "unread": 0, "urgent": 0, "from": [], "protocols": [], "oldest_seconds": 0})
}

/// Answers a request of a hook, which must be this one.
fn answers(connection: &mut Connection, method: &str, params: &Value, result: &Value) {
    let request = connection.reads();
    assert_eq!((&request["method"], &request["params"]), (&json!(method), params));
    connection.writes(&json!({"jsonrpc": "2.0", "id": request["id"], "result": result}));
}

fn takes_activity(connection: &mut Connection, activity: &str) {
    let params = json!({"conversation": "c-1", "activity": activity});
    answers(connection, ACTIVITY, &params, &json!({}));
}

fn tells(connection: &mut Connection, mail: &Value) {
    answers(
        connection,
        MAIL,
        &json!({"conversation": "c-1", "wait_seconds": 0}),
        mail,
    );
}

/// The broker gets a query that waits.
fn gets_wait(connection: &mut Connection) -> Value {
    let request = connection.reads();
    assert_eq!(request["method"], MAIL);
    assert_eq!(
        request["params"],
        json!({"conversation": "c-1", "wait_seconds": 86_400})
    );
    request["id"].clone()
}

const STOP: &str = "Stop";

fn stop_input() -> String {
    input(&json!({"hook_event_name": STOP, "stop_hook_active": false}))
}

#[test]
fn without_a_broker_a_hook_says_nothing_and_starts_none() {
    let user = Home::new();
    for words in [
        "stop",
        "prompt",
        "activity",
        "stop --client cursor",
        "prompt --instance other",
    ] {
        Hook::starts(&user, words, &stop_input()).says_nothing();
    }
    assert!(user.brokers().is_empty() && !user.runtime().exists());
}

#[test]
fn the_end_of_a_turn_goes_on_when_messages_wait() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let hook = Hook::starts(&user, "stop", &stop_input());
    let mut connection = broker.accepts(None);
    assert_eq!(connection.hello["params"]["kind"], "command");
    takes_activity(&mut connection, "idle");
    tells(&mut connection, &two_messages());
    takes_activity(&mut connection, "busy");
    assert_eq!(hook.says(), json!({"decision": "block", "reason": TEXT}));

    let hook = Hook::starts(&user, "stop", &stop_input());
    let mut connection = broker.accepts(None);
    takes_activity(&mut connection, "idle");
    tells(&mut connection, &no_messages());
    hook.says_nothing();

    // The client says that a hook has continued this turn before: it ends, although messages wait.
    let guarded = input(&json!({"hook_event_name": STOP, "stop_hook_active": true}));
    let hook = Hook::starts(&user, "stop", &guarded);
    let mut connection = broker.accepts(None);
    takes_activity(&mut connection, "idle");
    hook.says_nothing();
}

#[test]
fn a_client_without_a_guard_is_asked_once_about_the_same_messages() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    for (client, input, said) in [
        (
            "copilot",
            json!({"sessionId": "c-1", "stopReason": "end_turn"}),
            json!({"decision": "block", "reason": TEXT}),
        ),
        (
            "cursor",
            json!({"conversation_id": "c-1", "hook_event_name": "stop", "status": "completed", "loop_count": 0}),
            json!({"followup_message": TEXT}),
        ),
    ] {
        let told = |mail: &Value, is_told: bool| {
            let hook = Hook::starts(&user, &format!("stop --client {client}"), &input.to_string());
            let mut connection = broker.accepts(None);
            takes_activity(&mut connection, "idle");
            tells(&mut connection, mail);
            if is_told {
                takes_activity(&mut connection, "busy");
                assert_eq!(hook.says(), said);
            } else {
                hook.says_nothing();
            }
        };
        told(&two_messages(), true);
        told(&two_messages(), false);
        let mut newer = two_messages();
        newer["oldest_seconds"] = json!(0);
        told(&newer, true);
        for file in fs::read_dir(user.runtime()).unwrap().flatten().map(|file| file.path()) {
            if file.extension().is_some_and(|extension| extension == "told") {
                fs::remove_file(file).unwrap();
            }
        }
    }
    let aborted = json!({"conversation_id": "c-1", "hook_event_name": "stop", "status": "aborted"});
    let hook = Hook::starts(&user, "stop --client cursor", &aborted.to_string());
    takes_activity(&mut broker.accepts(None), "idle");
    hook.says_nothing();
}

#[test]
fn the_begin_of_a_turn_says_what_waits() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let context = |event: &str| json!({"hookSpecificOutput": {"hookEventName": event, "additionalContext": TEXT}});
    for (client, event, activity, said) in [
        ("claude", "UserPromptSubmit", "busy", context("UserPromptSubmit")),
        ("claude", "SessionStart", "idle", context("SessionStart")),
        ("codex", "UserPromptSubmit", "busy", context("UserPromptSubmit")),
        ("gemini", "BeforeAgent", "busy", context("BeforeAgent")),
        ("cursor", "sessionStart", "idle", json!({"additional_context": TEXT})),
        (
            "copilot",
            "userPromptSubmitted",
            "busy",
            json!({"additionalContext": TEXT}),
        ),
    ] {
        let input = input(&json!({"hook_event_name": event}));
        for (mail, said) in [(two_messages(), Some(&said)), (no_messages(), None)] {
            let hook = Hook::starts(&user, &format!("prompt --client {client}"), &input);
            let mut connection = broker.accepts(None);
            takes_activity(&mut connection, activity);
            tells(&mut connection, &mail);
            match said {
                Some(said) => assert_eq!(hook.says(), *said, "{client}"),
                None => hook.says_nothing(),
            }
        }
    }
}

#[test]
fn an_activity_is_reported_after_the_event() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    for (words, event, activity) in [
        ("activity", "UserPromptSubmit", "busy"),
        ("activity", STOP, "idle"),
        ("activity --client gemini", "AfterAgent", "idle"),
    ] {
        let hook = Hook::starts(&user, words, &input(&json!({"hook_event_name": event})));
        takes_activity(&mut broker.accepts(None), activity);
        hook.says_nothing();
    }
    let mut notify = user.command("hook notify --client codex");
    notify.arg(json!({"type": "agent-turn-complete", "thread-id": "c-1", "turn-id": "t"}).to_string());
    let hook = Hook::without_input(notify);
    takes_activity(&mut broker.accepts(None), "idle");
    hook.says_nothing();
}

#[test]
fn a_hook_keeps_its_client_waiting_for_two_seconds_at_most() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let within = |hook: Hook, what: &str| {
        let begin = Instant::now();
        hook.says_nothing();
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(5), "{what}: {took:?}");
    };
    let hook = Hook::starts(&user, "prompt", &stop_input());
    let connection = broker.accepts(None);
    within(hook, "no answer");
    drop(connection);
    // The system accepts the connection, and no broker reads it.
    within(Hook::starts(&user, "stop", &stop_input()), "no hello");
    let mut hook = Hook::without_input(user.command("hook stop"));
    let stdin = hook.0.0.stdin.take();
    within(hook, "no input");
    drop(stdin);
}

#[test]
fn a_wrong_line_or_input_is_no_refusal_of_the_turn() {
    let user = Home::new();
    for words in ["hook", "hook sleep", "hook stop --client emacs", "hook stop --what"] {
        let done = user.runs(words);
        assert_eq!((done.code, done.stdout.as_str()), (1, ""), "{words}: {done:?}");
        assert!(!done.stderr.is_empty(), "{words}");
    }
    for text in ["", "[]", "{\"session_id\": \"c-1\""] {
        let done = Hook::starts(&user, "stop", text).ends();
        assert!(done.refusal(1).contains("not a JSON object"), "{done:?}");
    }
    let done = Hook::starts(&user, "stop", &" ".repeat((1 << 20) + 1)).ends();
    assert!(done.refusal(1).contains("longer than 1048576 bytes"), "{done:?}");
    Hook::starts(&user, "stop", "{\"cwd\": \"/\"}").says_nothing();
}

fn waiter(user: &Home) -> Hook {
    Hook::starts(user, "wait", &input(&json!({"hook_event_name": "SessionStart"})))
}

#[test]
fn a_waiter_ends_with_the_line_about_what_waits() {
    let user = Home::new();
    // It may be faster than the start of the broker.
    let hook = waiter(&user);
    eventually("the waiter has its lock", || {
        user.runtime().read_dir().ok()?.flatten().next()
    });
    let broker = FakeBroker::of(&user);
    let mut connection = broker.accepts(None);
    let id = gets_wait(&mut connection);
    // A second one of the conversation ends at once.
    waiter(&user).says_nothing();
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "result": two_messages()}));
    let done = hook.ends();
    assert_eq!((done.code, done.stdout.as_str()), (2, ""));
    assert_eq!(done.stderr, format!("{TEXT}\n"));
    // The next turn arms the next one, and another waiter may take its place.
    let hook = waiter(&user);
    let mut connection = broker.accepts(None);
    let id = gets_wait(&mut connection);
    let mut replaced = no_messages();
    replaced["is_replaced"] = json!(true);
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "result": replaced}));
    hook.says_nothing();
}

#[test]
fn a_waiter_outlives_brokers_and_queries_without_result() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let hook = waiter(&user);
    let mut connection = broker.accepts(None);
    gets_wait(&mut connection);
    drop(connection);
    let mut connection = broker.accepts(None);
    let id = gets_wait(&mut connection);
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "result": no_messages()}));
    let id = gets_wait(&mut connection);
    let busy = json!({"code": -32603, "message": "the storage does not answer"});
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "error": busy}));
    let mut connection = broker.accepts(None);
    let id = gets_wait(&mut connection);
    let unknown = json!({"code": -32601, "message": "no such method"});
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "error": unknown}));
    hook.says_nothing();
}

#[test]
fn a_waiter_ends_with_its_client() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let program = user.program.display();
    // The shell is the client: it starts the waiter and lives until its own stdin ends.
    let line = format!("{program} hook wait --parent-check-ms 10 < \"$HOME/input\" & echo $!; read end");
    fs::write(user.path.join("input"), stop_input()).unwrap();
    let command = user.command("");
    let mut shell = std::process::Command::new("sh");
    shell
        .env_clear()
        .envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut shell = Running(
        shell
            .args(["-c", &line])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut pid = String::new();
    BufReader::new(shell.0.stdout.take().unwrap())
        .read_line(&mut pid)
        .unwrap();
    let pid: i32 = pid.trim().parse().unwrap();
    let mut connection = broker.accepts(None);
    gets_wait(&mut connection);
    assert!(is_alive(pid));
    drop(shell.0.stdin.take());
    eventually("the waiter has ended", || (!is_alive(pid)).then_some(()));
    let locks = fs::read_dir(user.runtime()).unwrap().flatten();
    let names: Vec<_> = locks.map(|entry| entry.file_name().into_string().unwrap()).collect();
    assert_eq!(names, ["broker.sock"]);
}
