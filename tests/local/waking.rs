//! How a front wakes its client when the broker asks for it: the test plays the broker and the clients.

use std::{
    fs,
    os::unix::net::UnixListener,
    path::Path,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::{
    fake_broker::{Connection, FakeBroker, attached_to},
    front::{Front, FrontBuilder},
    home::Home,
    screen::Screen,
    support::eventually,
    ways::{CodexProgram, Inbox, TOKEN},
};

const TEXT: &str = "mcp-broker: 2 messages wait (1 urgent), from bob, protocol chat. Call receive_messages.";
/// Longest time that a front tries to wake its client.
const WAKE_MAX: Duration = Duration::from_secs(5);

fn of_claude_code(user: &Home, socket: &Path) -> FrontBuilder {
    user.front()
        .args(&["--no-start"])
        .of_claude_code(&user.project("shop"), "c-1")
        .env("CLAUDE_CODE_MESSAGING_SOCKET", socket.to_str().unwrap())
        .env("CLAUDE_CODE_MESSAGING_TOKEN", TOKEN)
}

fn starts(front: FrontBuilder, client: &str, broker: &FakeBroker) -> (Front, Connection) {
    attached_to(front.start(), client, broker)
}

fn rungs(connection: &Connection) -> Value {
    connection.hello["params"]["agent"]["wake"].clone()
}

fn wakes(connection: &mut Connection, wake_id: &str) {
    connection.writes(
        &json!({"jsonrpc": "2.0", "method": "notifications/dev.mcp-broker/wake", "params": {
            "wake_id": wake_id, "session_id": "s1", "reason": "message",
            "unread": 2, "urgent": 1, "from": ["bob"], "protocols": ["chat"], "oldest_seconds": 3,
        }}),
    );
}

fn woken(connection: &mut Connection) -> Value {
    connection.notification("notifications/dev.mcp-broker/woken")["params"].clone()
}

#[test]
fn the_inbox_gets_the_token_first_and_then_one_line_for_each_wake() {
    let user = Home::new();
    let (broker, inbox) = (FakeBroker::of(&user), Inbox::of(&user));
    let (mut front, mut connection) = starts(of_claude_code(&user, &inbox.path), "claude-code", &broker);
    assert_eq!(rungs(&connection), json!(["inbox"]));
    assert!(!connection.hello.to_string().contains(TOKEN));
    let mut ids = Vec::new();
    for wake_id in ["w1", "w2"] {
        wakes(&mut connection, wake_id);
        let lines = inbox.takes();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert_eq!(lines[0], format!(r#"{{"type":"auth","token":"{TOKEN}"}}"#));
        let user_line: Value = serde_json::from_str(&lines[1]).unwrap();
        let id = user_line["msg_id"].as_str().unwrap().to_owned();
        assert_eq!(
            user_line,
            json!({"type": "user", "message": {"role": "user", "content": TEXT}, "from": "mcp-broker", "msg_id": id})
        );
        assert!(uuid::Uuid::parse_str(&id).is_ok());
        ids.push(id);
        assert_eq!(
            woken(&mut connection),
            json!({"wake_id": wake_id, "rung": "inbox", "result": "written"})
        );
    }
    assert_ne!(ids[0], ids[1]);
    front.request("ping", &json!({}));
    let others = front.others();
    // The lists of the test's broker differ.
    let is_of_wake = |frame: &Value| !frame["method"].as_str().unwrap_or_default().ends_with("/list_changed");
    assert!(
        !others.iter().any(is_of_wake),
        "the client sees nothing of it: {others:?}"
    );
    assert!(user.connect_log().contains("woke the agent by inbox"));
    assert!(!user.connect_log().contains(TOKEN));
}

#[test]
fn an_inbox_that_is_no_socket_of_a_listener_is_not_written_to() {
    for (kind, result) in [("none", "absent"), ("file", "failed"), ("stale", "absent")] {
        let user = Home::new();
        let broker = FakeBroker::of(&user);
        let path = user.path.join("inbox.sock");
        match kind {
            "file" => fs::write(&path, "").unwrap(),
            "stale" => drop(UnixListener::bind(&path).unwrap()),
            _ => {}
        }
        let (_front, mut connection) = starts(of_claude_code(&user, &path), "claude-code", &broker);
        wakes(&mut connection, "w1");
        let woken = woken(&mut connection);
        assert_eq!(woken["result"], result, "{kind}: {woken}");
        assert_eq!(woken["rung"], "inbox");
        assert!(!woken.to_string().contains(TOKEN) && !user.connect_log().contains(TOKEN));
        if kind == "file" {
            assert_eq!(fs::read_to_string(&path).unwrap(), "");
        }
    }
}

#[test]
fn an_inbox_that_accepts_nothing_ends_the_wake_and_holds_up_no_frame() {
    let user = Home::new();
    let (broker, inbox) = (FakeBroker::of(&user), Inbox::of(&user));
    // A full backlog: further connections wait.
    let socket = socket2::Socket::from(inbox.listener.try_clone().unwrap());
    socket.listen(0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&inbox.path).unwrap();
    let (mut front, mut connection) = starts(of_claude_code(&user, &inbox.path), "claude-code", &broker);
    for wake_id in ["w1", "w2", "w3"] {
        wakes(&mut connection, wake_id);
    }
    let id = front.asks("resources/read", &json!({"uri": "broker://sessions"}));
    assert_eq!(connection.reads()["id"], id);
    connection.writes(&json!({"jsonrpc": "2.0", "id": id, "result": {}}));
    front.answer(id);
    // The front has read that answer in a read of its own, so this request shows what its wakes have done by then.
    let id = front.asks("resources/read", &json!({"uri": "broker://sessions"}));
    assert_eq!(connection.reads()["id"], id);
    let has_failed = |frame: &Value| frame["params"]["detail"].to_string().contains("takes nothing");
    assert!(!connection.kept.iter().any(has_failed), "frames go on during a wake");
    let mut answers = [(); 3].map(|()| woken(&mut connection));
    answers.sort_by_key(|answer| answer["wake_id"].to_string());
    let ids = answers.each_ref().map(|answer| answer["wake_id"].as_str().unwrap());
    assert_eq!(ids, ["w1", "w2", "w3"], "one answer each");
    // How many wakes arrive before the thread takes the first one is a matter of the scheduler.
    let has = |at: usize, text: &str| {
        answers[at]["detail"]
            .as_str()
            .is_some_and(|detail| detail.contains(text))
    };
    assert!(has(2, "takes nothing"), "{answers:?}");
    assert!(has(0, "newer wake") || has(1, "newer wake"), "{answers:?}");
}

#[test]
fn a_channel_is_announced_and_told_only_where_it_is_chosen() {
    let user = Home::new();
    let (broker, inbox) = (FakeBroker::of(&user), Inbox::of(&user));
    let front = of_claude_code(&user, &inbox.path).env("MCP_BROKER_WAKE", "channel");
    let mut front = front.start();
    let answer = front.initialize("claude-code");
    let announced = |answer: &Value| {
        answer["result"]["capabilities"]["experimental"]
            .get("claude/channel")
            .cloned()
    };
    assert_eq!(announced(&answer), Some(json!({})));
    let mut connection = broker.accepts(None);
    connection.answers_opening(1);
    assert_eq!(rungs(&connection), json!(["channel"]), "without the inbox");
    wakes(&mut connection, "w1");
    let told = front.notification("notifications/claude/channel");
    assert_eq!(
        told["params"],
        json!({"content": TEXT, "meta": {"sender": "mcp-broker"}})
    );
    assert_eq!(
        woken(&mut connection),
        json!({"wake_id": "w1", "rung": "channel", "result": "written"})
    );
    for (client, how) in [("cursor", "channel"), ("claude-code", "auto")] {
        let user = Home::new();
        let mut front = user.front().args(&["--no-start", "--wake", how]).start();
        assert_eq!(announced(&front.initialize(client)), None, "{client} {how}");
    }
}

#[test]
fn the_queue_of_codex_gets_the_thread_of_the_last_call() {
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let codex = CodexProgram::of(&user, "");
    let front = user
        .front()
        .args(&["--no-start"])
        .env("MCP_BROKER_CODEX", codex.path.to_str().unwrap());
    let (mut front, mut connection) = starts(front, "codex-mcp-client", &broker);
    assert_eq!(rungs(&connection), json!(["queue"]));
    wakes(&mut connection, "w1");
    assert_eq!(
        woken(&mut connection)["result"],
        "absent",
        "no call has told the thread"
    );
    for thread in ["t-1", "t-2"] {
        let params = json!({"name": "heartbeat", "arguments": {}, "_meta": {"threadId": thread}});
        let id = front.asks("tools/call", &params);
        assert_eq!(connection.reads()["id"], id);
    }
    wakes(&mut connection, "w2");
    assert_eq!(
        woken(&mut connection),
        json!({"wake_id": "w2", "rung": "queue", "result": "written"})
    );
    assert_eq!(codex.was_given(), [format!("queue --thread t-2 --message {TEXT}")]);
}

#[test]
fn a_queue_that_fails_or_hangs_is_told_and_killed() {
    for (script, result) in [("exit 1", "refused"), ("sleep 600 & sleep 600", "failed")] {
        let user = Home::new();
        let broker = FakeBroker::of(&user);
        let codex = CodexProgram::of(&user, &format!("echo $$ > \"$0.pid\"\n{script}"));
        let front = user
            .front()
            .args(&["--no-start"])
            .env("MCP_BROKER_CODEX", codex.path.to_str().unwrap());
        let (mut front, mut connection) = starts(front, "codex-mcp-client", &broker);
        front.asks(
            "tools/call",
            &json!({"name": "heartbeat", "_meta": {"threadId": "t-1"}}),
        );
        connection.reads();
        let started = Instant::now();
        wakes(&mut connection, "w1");
        let woken = woken(&mut connection);
        assert_eq!(woken["result"], result, "{woken}");
        assert!(started.elapsed() < WAKE_MAX * 2);
        assert_eq!(codex.was_given().len(), 1);
        let pid = fs::read_to_string(codex.path.with_file_name("codex.pid")).unwrap();
        let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
        eventually("the program has gone", || {
            rustix::process::test_kill_process_group(pid).is_err().then_some(())
        });
    }
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn a_terminal_is_typed_into_only_where_its_prompt_is_empty() {
    let screen = Screen::start((100, 24), "", "--version");
    let user = Home::new();
    let broker = FakeBroker::of(&user);
    let (pane, socket) = (
        screen.tmux(&["display-message", "-p", "#{pane_id}"]),
        screen.tmux(&["display-message", "-p", "#{socket_path}"]),
    );
    let front = user
        .front()
        .args(&["--no-start", "--wake", "tmux", "--wake-tmux", pane.trim()]);
    let front = front
        .env("PATH", &std::env::var("PATH").unwrap())
        .env("TMUX", &format!("{},1,0", socket.trim()));
    let (_front, mut connection) = starts(front, "claude-code", &broker);
    assert_eq!(rungs(&connection), json!(["tmux"]));
    let typed = user.path.join("typed");
    for (prompt, is_written) in [
        ("❯ half a sen", false),
        ("Do you want to go on? (y/n)", false),
        ("❯ ", true),
    ] {
        let script = format!(
            "printf '%s' '{prompt}'; head -n 1 > '{typed}.new'; mv '{typed}.new' '{typed}'; cat",
            typed = typed.display()
        );
        screen.tmux(&["respawn-pane", "-k", &script]);
        screen.shows(prompt.trim());
        wakes(&mut connection, prompt);
        let woken = woken(&mut connection);
        let result = if is_written { "written" } else { "refused" };
        assert_eq!(
            (&woken["wake_id"], &woken["result"]),
            (&json!(prompt), &json!(result)),
            "{woken}"
        );
        assert!(is_written || !typed.exists(), "nothing is typed");
    }
    eventually("the line has been typed", || typed.exists().then_some(()));
    assert_eq!(fs::read_to_string(&typed).unwrap(), format!("{TEXT}\n"));
}

#[test]
fn off_names_no_rung_and_a_wrong_setting_is_refused() {
    let user = Home::new();
    let (broker, inbox) = (FakeBroker::of(&user), Inbox::of(&user));
    let front = of_claude_code(&user, &inbox.path).args(&["--wake", "off"]);
    let (_front, mut connection) = starts(front, "claude-code", &broker);
    assert_eq!(rungs(&connection), Value::Null);
    wakes(&mut connection, "w1");
    let woken = woken(&mut connection);
    assert_eq!((&woken["rung"], &woken["result"]), (&json!("none"), &json!("absent")));
    for (words, expected) in [
        ("connect --wake loud", "auto, inbox, channel, queue, tmux, off"),
        ("connect --wake tmux", "--wake-tmux"),
        ("connect --wake tmux --wake-tmux=-t", "such as %3"),
        (
            "connect --wake off --url http://127.0.0.1:1",
            "--wake is for the broker of this user",
        ),
    ] {
        let done = user.runs(words);
        assert_eq!(done.code, 2, "{words}: {done:?}");
        assert!(done.stderr.contains(expected), "{words}: {done:?}");
    }
    let done = Home::new().with("MCP_BROKER_WAKE", "loud").runs("connect");
    assert!(done.code == 2 && done.stderr.contains("MCP_BROKER_WAKE"), "{done:?}");
}

#[test]
fn a_session_that_the_agent_registers_has_its_conversation() {
    let user = Home::new();
    let (broker, inbox) = (FakeBroker::of(&user), Inbox::of(&user));
    let (mut front, mut connection) = starts(of_claude_code(&user, &inbox.path), "claude-code", &broker);
    for (given, expected) in [
        (json!({"name": "alice"}), json!({"conversation": "c-1"})),
        (
            json!({"name": "alice", "metadata": {"team": "blue"}}),
            json!({"conversation": "c-1", "team": "blue"}),
        ),
        (
            json!({"name": "alice", "metadata": {"conversation": "mine"}}),
            json!({"conversation": "mine"}),
        ),
    ] {
        let id = front.asks_tool("register_session", &given);
        let call = connection.reads();
        assert_eq!(call["id"], id);
        assert_eq!(call["params"]["arguments"]["metadata"], expected);
        assert_eq!(call["params"]["arguments"]["name"], "alice");
    }
}
