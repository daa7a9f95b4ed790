//! `tools/list`: which caller sees which tool, and how many tokens the list costs a model.

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::support::{ADMIN_KEY, Agent, Broker, broker_program};

/// The bound of the list of an agent, all of it, in tokens of `o200k_base`, and of the number of its tools.
const AGENT_TOKENS_MAX: usize = 2_500;
const AGENT_TOOLS_MAX: usize = 18;
/// The bound of what a client shows to a member's model of a full list: each tool without its result schema.
const SHOWN_TOKENS_MAX: usize = 4_500;
/// The bound of a member's whole full list. Only clients read the schemas of results.
const WHOLE_TOKENS_MAX: usize = 7_800;
/// What the tool that tells of backends may add where a project has some, and twice as much with its result schema.
const BACKEND_TOKENS_MAX: usize = 100;
/// The bound in bytes where no tokenizer is installed: JSON of this kind has about four bytes per token.
const BYTES_OF_A_TOKEN: usize = 5;

const READING: [&str; 8] = [
    "list_sessions",
    "discover_protocols",
    "transform_message",
    "compatibility_matrix",
    "get_message_status",
    "list_dead_letters",
    "list_projects",
    "get_project_info",
];
/// The way of an agent: join, send, receive, acknowledge, ask.
const CORE: [&str; 8] = [
    "register_session",
    "list_sessions",
    "send_message",
    "broadcast_message",
    "receive_messages",
    "acknowledge_messages",
    "clarify",
    "get_answer",
];
/// What is beside it in the list of an agent.
const BESIDE_CORE: [&str; 9] = [
    "register_protocol",
    "discover_protocols",
    "negotiate_capabilities",
    "get_message_status",
    "search_messages",
    "yap",
    "permission_prompt",
    "list_dead_letters",
    "redrive_dead_letters",
];
const ADMINISTRATION: [&str; 5] = [
    "add_backend",
    "create_project",
    "rotate_project_keys",
    "grant_project_access",
    "revoke_project_access",
];

fn tools(agent: &Agent) -> Vec<Value> {
    let mut listed = agent.request("tools/list", json!({})).unwrap();
    match listed["tools"].take() {
        Value::Array(tools) => tools,
        other => panic!("not a list of tools: {other}"),
    }
}

fn names(tools: &[Value]) -> BTreeSet<&str> {
    tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

fn agent_with_key(broker: &Broker, key: &str) -> Agent {
    Agent::legacy(broker.wire_with(&[("X-API-Key", key)]), "2025-11-25", &json!({}))
}

#[test]
fn a_caller_sees_the_tools_that_it_may_use() {
    let broker = Broker::secured();
    let team = broker.project("team", &json!({}));
    let [observer, member] =
        ["observer", "member"].map(|scope| agent_with_key(&broker, &team.new_key_with_scope(scope)));
    let (admin, operator) = (agent_with_key(&broker, &team.key), agent_with_key(&broker, ADMIN_KEY));
    let all = tools(&operator);
    assert_eq!(names(&all).len(), 30);
    assert_eq!(names(&tools(&observer)), BTreeSet::from(READING));
    assert!(
        tools(&observer)
            .iter()
            .all(|tool| tool["annotations"]["readOnlyHint"] == true)
    );
    let administration = BTreeSet::from(ADMINISTRATION);
    let of_member = tools(&member);
    assert_eq!(&names(&all) - &administration, names(&of_member));
    assert_eq!(
        &names(&all) - &BTreeSet::from(["create_project"]),
        names(&tools(&admin))
    );
    // The order is that of the whole list.
    let order = all
        .iter()
        .filter(|tool| names(&of_member).contains(tool["name"].as_str().unwrap()));
    assert!(order.eq(&of_member));
    // A tool that is not listed is refused.
    let project = json!({"project_id": "x", "name": "X"});
    for agent in [&observer, &member, &admin] {
        agent.is_refused_as("forbidden", "create_project", project.clone());
    }
    observer.is_refused_as("forbidden", "heartbeat", json!({}));
}

#[test]
fn without_keys_a_caller_sees_what_anonymous_callers_may_do() {
    let open = Broker::start();
    assert_eq!(names(&tools(&open.client())).len(), 30);
    // With an admin key, administration needs it.
    let administered = Broker::with_admin_key();
    let anonymous = Agent::legacy(administered.wire_with(&[]), "2025-11-25", &json!({}));
    let listed = tools(&anonymous);
    assert!(
        names(&listed).is_disjoint(&BTreeSet::from(ADMINISTRATION)),
        "{listed:?}"
    );
    assert!(names(&listed).contains("send_message"));
}

fn agent_tools() -> BTreeSet<&'static str> {
    CORE.into_iter().chain(BESIDE_CORE).collect()
}

#[test]
fn an_agent_is_listed_what_it_needs() {
    let broker = Broker::secured_with(&["--tools=agent"]);
    let team = broker.project("team", &json!({}));
    let member = agent_with_key(&broker, &team.new_key_with_scope("member"));
    let listed = tools(&member);
    assert_eq!(names(&listed), agent_tools());
    for tool in &listed {
        assert!(!tool["title"].as_str().unwrap().is_empty(), "{tool}");
        let schema = Some(json!({"type": "object"})).filter(|_| tool["name"] != "permission_prompt");
        assert_eq!(tool.get("outputSchema").cloned(), schema, "{tool}");
    }
    let observed = tools(&agent_with_key(&broker, &team.new_key_with_scope("observer")));
    let read_only = |tool: &Value| tool["annotations"] == json!({"readOnlyHint": true});
    assert!(observed.len() >= 4 && observed.iter().all(read_only), "{observed:?}");
    assert!(names(&observed).is_subset(&agent_tools()));
    // Those who administer see the tools for it.
    let administered = tools(&agent_with_key(&broker, &team.key));
    let more = &names(&administered) - &agent_tools();
    let expected = [
        "add_backend",
        "get_project_info",
        "grant_project_access",
        "list_projects",
        "revoke_project_access",
        "rotate_project_keys",
    ];
    assert_eq!(more, BTreeSet::from(expected));
    assert!(names(&tools(&agent_with_key(&broker, ADMIN_KEY))).contains("create_project"));
}

#[test]
fn without_keys_an_agent_is_listed_what_others_are() {
    let broker = Broker::start_with(&["--tools=agent"]);
    assert_eq!(names(&tools(&broker.client())), agent_tools());
    let core = Broker::start_with(&["--tools=core"]);
    assert_eq!(names(&tools(&core.client())), BTreeSet::from(CORE));
}

#[test]
fn a_key_may_say_which_tools_are_listed() {
    let broker = Broker::secured_with(&["--tools=core"]);
    let team = broker.project("team", &json!({}));
    let with = |tools: &str| team.new_key(&json!({"scope": "member", "tools": tools}));
    let listed = |key: &str| tools(&agent_with_key(&broker, key));
    assert_eq!(names(&listed(&team.new_key_with_scope("member"))), BTreeSet::from(CORE));
    assert_eq!(names(&listed(&team.key)), BTreeSet::from(CORE));
    assert_eq!(names(&listed(&with("agent"))), agent_tools());
    let full = with("full");
    assert_eq!(names(&listed(&full)).len(), 25);
    // The new key of a rotation is listed the same.
    assert_eq!(names(&listed(&team.rotate_key(&full, 0))).len(), 25);
    let keys = team.rest("GET", "keys", &Value::Null).json();
    let said = keys["keys"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|key| key["tools"] == "full");
    assert_eq!(said.count(), 2, "{keys}");
    let refused = team.rest("POST", "keys", &json!({"tools": "all"}));
    assert_eq!(
        (refused.status, &refused.json()["detail"]),
        (400, &json!("tools: core, agent or full")),
        "{refused:?}"
    );
}

#[test]
fn what_is_not_listed_can_be_called_by_its_name() {
    let broker = Broker::start_with(&["--tools=core"]);
    let (alice, bob) = (broker.agent("alice"), broker.agent("bob"));
    alice.calls("heartbeat", json!({}));
    alice.calls(
        "register_session",
        json!({"name": "alice", "aliases": ["al"], "wake": {"for": "never"}}),
    );
    let headers = json!({"hops": 1, "report": "none", "reply_to": "bob"});
    let message = json!({"recipient_id": "bob", "payload": "hello", "headers": headers});
    let sent = alice.calls("send_message", message);
    let thread = bob.calls("get_thread", json!({"thread_id": sent["message_id"]}));
    assert_eq!(thread["messages"][0]["headers"]["reply_to"], "bob", "{thread}");
    assert_eq!(
        bob.calls("compatibility_matrix", json!({}))["rows"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    let arguments = json!({"question": "Which?", "wait_seconds": 0, "idempotency_key": "once", "allow_other": false});
    let asked = alice.calls("clarify", arguments);
    alice.calls("cancel_question", json!({"question_id": asked["question_id"]}));
    bob.calls("yap", json!({"message": "hm", "mode": "concise"}));
    assert_eq!(
        bob.calls("get_project_info", json!({}))["project"]["project_id"],
        "default"
    );
    assert_eq!(bob.calls("disconnect_session", json!({}))["status"], "disconnected");
}

#[test]
fn every_argument_is_described() {
    let broker = Broker::start();
    let agent = Broker::start_with(&["--tools=agent"]);
    for tool in tools(&broker.client()).into_iter().chain(tools(&agent.client())) {
        for (name, argument) in tool["inputSchema"]["properties"].as_object().unwrap() {
            let described = argument["description"].as_str().unwrap_or_default();
            assert!(described.len() > 3, "{} {name}: {argument}", tool["name"]);
        }
    }
}

#[test]
#[ignore = "needs the tokenizer: scripts/test installs it"]
fn the_list_of_an_agent_stays_within_its_token_budget() {
    let of_agents = ["--tools=agent"];
    assert_affordable(&Broker::secured_with(&of_agents), [AGENT_TOKENS_MAX; 2], false);
    let file = env::temp_dir().join(format!("tool-list-{}.toml", uuid::Uuid::new_v4().simple()));
    let backends = "[projects.team.backends.silent]\ncommand = \"no-such-program\"\n";
    fs::write(&file, format!("tools = \"agent\"\n{backends}")).unwrap();
    let config = format!("--config={}", file.display());
    let broker = Broker::secured_with_program(broker_program(), &[&config, of_agents[0]]);
    let listed = assert_affordable(&broker, [AGENT_TOKENS_MAX; 2], true);
    assert!(listed <= AGENT_TOOLS_MAX, "{listed} tools");
    fs::remove_file(file).unwrap();
}

#[test]
#[ignore = "needs the tokenizer: scripts/test installs it"]
fn the_full_list_stays_within_its_token_budget() {
    assert_affordable(&Broker::secured(), [SHOWN_TOKENS_MAX, WHOLE_TOKENS_MAX], false);
    let file = env::temp_dir().join(format!("tool-list-{}.toml", uuid::Uuid::new_v4().simple()));
    fs::write(
        &file,
        "[projects.team.backends.silent]\ncommand = \"no-such-program\"\n",
    )
    .unwrap();
    let broker = Broker::secured_with_program(broker_program(), &[&format!("--config={}", file.display())]);
    let with_backends = SHOWN_TOKENS_MAX + BACKEND_TOKENS_MAX;
    assert_affordable(
        &broker,
        [with_backends, WHOLE_TOKENS_MAX + 2 * BACKEND_TOKENS_MAX],
        true,
    );
    fs::remove_file(file).unwrap();
}

/// Asserts how many tokens the list of a member of the project `team` has: what a client shows to a model, and the whole.
/// Returns the number of tools.
fn assert_affordable(broker: &Broker, [shown_max, whole_max]: [usize; 2], has_backends: bool) -> usize {
    let member = agent_with_key(broker, &broker.project("team", &json!({})).new_key_with_scope("member"));
    let whole = tools(&member);
    assert_eq!(names(&whole).contains("list_backends"), has_backends);
    let mut shown = whole.clone();
    for tool in &mut shown {
        tool.as_object_mut().unwrap().remove("outputSchema");
    }
    for (what, list, tokens_max) in [("shown", &shown, shown_max), ("whole", &whole, whole_max)] {
        let text = serde_json::to_string(list).unwrap();
        let len = text.len();
        assert!(len <= tokens_max * BYTES_OF_A_TOKEN, "{what}: {len} bytes");
        let tokens = count_tokens(&text);
        println!("{what}: {tokens} tokens, {len} bytes");
        assert!(tokens <= tokens_max, "{what}: {tokens} tokens");
    }
    whole.len()
}

/// Counts the tokens of a text with a public tokenizer, which `scripts/test` installs.
fn count_tokens(text: &str) -> usize {
    const PROGRAM: &str = "import sys, bpe_openai; \
        print(len(bpe_openai.get_encoding('o200k_base').encode_ordinary(sys.stdin.read())))";
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/clients/tokenizer/bin/python");
    assert!(python.exists(), "the tokenizer is not installed: run scripts/test");
    let mut command = Command::new(python);
    let command = command
        .args(["-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}
