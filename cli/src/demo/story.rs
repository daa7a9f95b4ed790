//! What the agents do. A round takes the work on a feature from the task to the release.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    agent::Way,
    script::{SPRINTS, Sprint},
    stage::{Stage, Step, Stop},
    staging,
};
use crate::mcp_client::Era;

/// Time of one round of the story when time is plenty.
const ROUND: Duration = Duration::from_secs(90);
/// Pauses of a round, for its pace.
const BEATS: u32 = 34;
/// After the last line, so that a page that follows the demo shows its end.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// The time for which the check waits for the tester, in seconds.
const CHECK_TTL_SECONDS: u64 = 1;

const PLANNER: &str = "planner";
const BACKEND: &str = "backend";
const FRONTEND: &str = "frontend";
const REVIEWER: &str = "reviewer";
const TESTER: &str = "tester";
const WRITER: &str = "writer";
const RELEASE: &str = "release";

/// An agent, its way to the broker, its role, the versions of `review` that it speaks, and its features.
type Member = (
    &'static str,
    Way,
    &'static str,
    &'static [&'static str],
    &'static [&'static str],
);

const WRITER_MEMBER: Member = (WRITER, Way::WebSocket(Era::Legacy), "writes the manual", &[], &["docs"]);

const TEAM: [Member; 7] = [
    (
        PLANNER,
        Way::WebSocket(Era::Legacy),
        "cuts features into tasks",
        &[],
        &["planning"],
    ),
    (
        BACKEND,
        Way::WebSocket(Era::Legacy),
        "writes the server",
        &["1.0.0", "1.1.0"],
        &["rust", "sql"],
    ),
    (
        FRONTEND,
        Way::WebSocket(Era::Modern),
        "writes the pages",
        &["1.1.0"],
        &["typescript"],
    ),
    (
        REVIEWER,
        Way::WebSocket(Era::Modern),
        "reads every change",
        &["1.0.0"],
        &["security"],
    ),
    (
        TESTER,
        Way::WebSocket(Era::Legacy),
        "tries it on staging",
        &[],
        &["staging"],
    ),
    WRITER_MEMBER,
    (RELEASE, Way::Http, "builds and ships", &[], &["deploy"]),
];

/// Plays rounds until the time is over, at least one.
///
/// # Errors
/// `Ended` when the process was asked to stop; `Failed` when a step fails.
pub fn play(stage: &mut Stage<'_>) -> Step {
    let rounds = (stage.duration.as_secs() / ROUND.as_secs()).max(1);
    let round = stage.duration / u32::try_from(rounds).unwrap_or(u32::MAX);
    stage.pace = round / BEATS;
    meet(stage)?;
    share_a_server(stage)?;
    for (at, sprint) in (0..rounds).zip(SPRINTS.iter().cycle()) {
        work(stage, sprint)?;
        let question = ask_a_person(stage, sprint)?;
        ask_and_answer(stage, sprint)?;
        review(stage, sprint)?;
        announce_build(stage, sprint)?;
        fall_silent_and_return(stage, sprint)?;
        crash_and_resume(stage, sprint)?;
        decide(stage, sprint, &question)?;
        // The pauses are shorter than the round by what the steps take.
        let left_rounds = u32::try_from(rounds - at - 1).unwrap_or(0);
        stage.pause(stage.time_left().saturating_sub(round * left_rounds))?;
    }
    stage.say("everyone", "goes home")?;
    stage.pause(LAST_PAUSE)
}

fn capabilities(review: &[&str], features: &[&str]) -> Value {
    let mut protocols = json!({"task": ["1.0.0"], "chat": ["1.0.0"], "build-status": ["1.0.0"]});
    if !review.is_empty() {
        protocols["review"] = json!(review);
    }
    json!({"supported_protocols": protocols, "supported_features": features})
}

/// Puts a member of the team on the stage.
fn join(stage: &mut Stage<'_>, member: &Member) -> Step {
    let (name, way, role, review, features) = member;
    stage.join(name, *way, &capabilities(review, features), role)
}

/// The agents register, and so do the protocols; two of them negotiate.
fn meet(stage: &mut Stage<'_>) -> Step {
    for member in &TEAM {
        join(stage, member)?;
        let way = if member.1 == Way::Http { "HTTP" } else { "WebSocket" };
        stage.say(member.0, format!("registers over {way}: {}", member.2))?;
        stage.pause(stage.pace / 4)?;
    }
    let text = json!({"type": "string", "minLength": 1});
    let schema = |required: &[&str]| {
        let properties: serde_json::Map<_, _> =
            required.iter().map(|name| ((*name).to_owned(), text.clone())).collect();
        json!({"type": "object", "properties": properties, "required": required})
    };
    for (name, version, required, tags) in [
        ("task", "1.0.0", &["title", "state"][..], ["work"]),
        ("chat", "1.0.0", &["text"][..], ["talk"]),
        ("review", "1.0.0", &["change", "verdict"][..], ["work"]),
        ("review", "1.1.0", &["change", "verdict"][..], ["work"]),
        ("build-status", "1.0.0", &["commit", "state"][..], ["status"]),
    ] {
        let protocol = json!({
            "name": name, "version": version, "schema": schema(required),
            "metadata": {"author": PLANNER, "description": format!("What the team uses for {name}."), "tags": tags},
        });
        stage.call(PLANNER, "register_protocol", protocol)?;
    }
    stage.say(
        PLANNER,
        "registers the protocols task, chat, review 1.0.0 and 1.1.0, build-status",
    )?;
    stage.beat()?;
    for other in [REVIEWER, FRONTEND] {
        let wanted = json!({"target_session_id": other});
        let agreed = stage.call(BACKEND, "negotiate_capabilities", wanted)?;
        let version = agreed["supported_protocols"]["review"]
            .as_str()
            .unwrap_or("none")
            .to_owned();
        stage.say(&format!("{BACKEND} + {other}"), format!("negotiate: review {version}"))?;
        stage.beat()?;
    }
    Ok(())
}

/// The planner puts an MCP server behind the gateway, for all of the team.
fn share_a_server(stage: &mut Stage<'_>) -> Step {
    let program = std::env::current_exe().map_err(|error| Stop::Failed(error.to_string()))?;
    let flag = format!("--{}", staging::FLAG);
    let backend = json!({"name": staging::NAME, "command": program, "args": ["demo", flag]});
    stage.call(PLANNER, "add_backend", backend)?;
    stage.say(PLANNER, "shares the MCP server staging with the team")?;
    stage.beat()
}

/// The planner asks the person who watches the demo. Returns the id of the question.
fn ask_a_person(stage: &mut Stage<'_>, sprint: &Sprint) -> Step<String> {
    let question = json!({
        "question": sprint.decision, "context": sprint.feature, "options": sprint.options, "wait_seconds": 0,
    });
    let asked = stage.call(PLANNER, "clarify", question)?;
    let text = format!("asks: {} Answer at {}", sprint.decision, stage.desk());
    stage.say(&format!("{PLANNER} -> you"), text)?;
    stage.beat()?;
    Ok(asked["question_id"].as_str().unwrap_or_default().to_owned())
}

/// The planner takes the answer, or withdraws a question that has none.
fn decide(stage: &mut Stage<'_>, sprint: &Sprint, question: &str) -> Step {
    let asked = stage.call(PLANNER, "get_answer", json!({"question_id": question}))?;
    if asked["state"] == "pending" {
        stage.call(PLANNER, "get_answer", json!({"question_id": question, "cancel": true}))?;
        stage.say(PLANNER, format!("withdraws the question: {}", sprint.options[0]))?;
    } else {
        let selected = asked["answer"]["selected"].as_array().into_iter().flatten();
        let words = selected.chain([&asked["answer"]["text"]]).filter_map(Value::as_str);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        stage.say(&format!("you -> {PLANNER}"), words.join(": "))?;
    }
    stage.beat()?;
    receive(stage, PLANNER)
}

/// A message of the story.
struct Message<'a> {
    from: &'static str,
    to: &'static str,
    protocol: &'static str,
    payload: Value,
    headers: Value,
    /// What the narration says.
    text: &'a str,
}

/// Sends a message and prints a line about it. Returns its id.
fn send(stage: &mut Stage<'_>, message: Message<'_>) -> Step<String> {
    let Message {
        from,
        to,
        protocol,
        payload,
        headers,
        text,
    } = message;
    let version = "1.0.0";
    let arguments = json!({
        "recipient_id": to, "protocol_name": protocol, "protocol_version": version,
        "payload": payload, "headers": headers,
    });
    let sent = stage.call(from, "send_message", arguments)?;
    stage.say(&format!("{from} -> {to}"), format!("{protocol}: {text}"))?;
    Ok(sent["message_id"].as_str().unwrap_or_default().to_owned())
}

/// Receives everything that waits, and acknowledges it.
fn receive(stage: &mut Stage<'_>, name: &str) -> Step {
    stage
        .call(
            name,
            "receive_messages",
            json!({"limit": 50, "acknowledge": "immediate"}),
        )
        .map(drop)
}

fn thread(sprint: &Sprint) -> Value {
    json!({"correlation_id": sprint.thread})
}

fn chat<'a>(from: &'static str, to: &'static str, sprint: &Sprint, text: &'a str) -> Message<'a> {
    let payload = json!({"text": text});
    Message {
        from,
        to,
        protocol: "chat",
        payload,
        headers: thread(sprint),
        text,
    }
}

/// The planner hands out the work, and it is taken.
fn work(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    for to in [BACKEND, FRONTEND] {
        let payload = json!({"title": sprint.feature, "details": sprint.details, "state": "open"});
        let task = Message {
            from: PLANNER,
            to,
            protocol: "task",
            payload,
            headers: thread(sprint),
            text: sprint.feature,
        };
        send(stage, task)?;
        stage.beat()?;
    }
    receive(stage, BACKEND)?;
    send(stage, chat(BACKEND, PLANNER, sprint, sprint.accepted))?;
    stage.beat()?;
    receive(stage, PLANNER)
}

fn ask_and_answer(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    receive(stage, FRONTEND)?;
    send(stage, chat(FRONTEND, BACKEND, sprint, sprint.question))?;
    stage.beat()?;
    receive(stage, BACKEND)?;
    send(stage, chat(BACKEND, FRONTEND, sprint, sprint.answer))?;
    stage.beat()?;
    receive(stage, FRONTEND)
}

fn review(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    let steps = [
        (BACKEND, REVIEWER, "requested", "normal", sprint.change),
        (REVIEWER, BACKEND, "changes wanted", "high", sprint.objection),
        (BACKEND, REVIEWER, "requested", "normal", sprint.correction),
        (REVIEWER, BACKEND, "approved", "high", sprint.approval),
    ];
    for (from, to, verdict, priority, text) in steps {
        let headers = json!({"correlation_id": sprint.thread, "priority": priority});
        let payload = json!({"change": text, "verdict": verdict});
        send(
            stage,
            Message {
                from,
                to,
                protocol: "review",
                payload,
                headers,
                text,
            },
        )?;
        stage.beat()?;
        receive(stage, to)?;
    }
    Ok(())
}

/// The release agent tells all who understand it of the build.
fn announce_build(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    for state in ["building", "passed"] {
        let arguments = json!({
            "protocol_name": "build-status", "protocol_version": "1.0.0",
            "payload": {"commit": sprint.commit, "state": state},
            "capability_filter": {"protocols": {"build-status": "^1"}},
            "headers": {"ttl_seconds": 3600},
        });
        let sent = stage.call(RELEASE, "broadcast_message", arguments)?;
        let text = format!(
            "build-status: {} {state}, to {} agents",
            sprint.commit, sent["recipients"]
        );
        stage.say(&format!("{RELEASE} -> all"), text)?;
        stage.beat()?;
    }
    for (name, ..) in &TEAM {
        receive(stage, name)?;
    }
    stage.beat()
}

/// The tester hangs, a message for it expires, and it is sent again when the tester is back.
fn fall_silent_and_return(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    stage.set_silent(TESTER, true)?;
    stage.say(TESTER, "hangs and gives no sign of life")?;
    stage.wait_for_status(PLANNER, TESTER, "stale")?;
    stage.say(TESTER, "is stale")?;
    stage.beat()?;
    let check = send(
        stage,
        Message {
            from: PLANNER,
            to: TESTER,
            protocol: "task",
            payload: json!({"title": sprint.check, "state": "open"}),
            headers: json!({"correlation_id": sprint.thread, "ttl_seconds": CHECK_TTL_SECONDS}),
            text: sprint.check,
        },
    )?;
    let reason = stage.wait_for_dead_letter(RELEASE, &check)?;
    stage.say(
        TESTER,
        format!("did not read the task in time: it is a dead letter ({reason})"),
    )?;
    stage.beat()?;
    stage.set_silent(TESTER, false)?;
    stage.wait_for_status(PLANNER, TESTER, "active")?;
    stage.say(TESTER, "is back")?;
    stage.beat()?;
    redrive(stage, &check, TESTER)?;
    receive(stage, TESTER)?;
    let tool = format!("{}__run_check", staging::NAME);
    let checked = stage.call(TESTER, &tool, json!({"check": sprint.check}))?;
    stage.say(
        &format!("{TESTER} -> {}", staging::NAME),
        "calls run_check through the gateway",
    )?;
    stage.beat()?;
    let result = checked["result"].as_str().unwrap_or_default();
    send(stage, chat(TESTER, PLANNER, sprint, result))?;
    stage.beat()?;
    receive(stage, PLANNER)
}

/// The writer crashes twice over the same message, and gets it again when it is repaired.
fn crash_and_resume(stage: &mut Stage<'_>, sprint: &Sprint) -> Step {
    let page = send(
        stage,
        Message {
            from: PLANNER,
            to: WRITER,
            protocol: "task",
            payload: json!({"title": sprint.page, "state": "open"}),
            headers: thread(sprint),
            text: sprint.page,
        },
    )?;
    stage.beat()?;
    for _ in 0..2 {
        stage.call(WRITER, "receive_messages", json!({"limit": 1, "acknowledge": "manual"}))?;
        stage.crash(WRITER);
        stage.say(WRITER, "takes the task and crashes over it")?;
        stage.beat()?;
        join(stage, &WRITER_MEMBER)?;
        stage.say(WRITER, "restarts and resumes its session")?;
        stage.beat()?;
    }
    let reason = stage.wait_for_dead_letter(RELEASE, &page)?;
    stage.say(WRITER, format!("lost the task: it is a dead letter ({reason})"))?;
    stage.beat()?;
    redrive(stage, &page, WRITER)?;
    receive(stage, WRITER)?;
    let done = format!("Written: {}", sprint.page);
    send(stage, chat(WRITER, PLANNER, sprint, &done))?;
    stage.beat()?;
    receive(stage, PLANNER)
}

/// The release agent sends a dead letter again.
fn redrive(stage: &mut Stage<'_>, message: &str, to: &str) -> Step {
    stage.call(RELEASE, "redrive_dead_letters", json!({"message_ids": [message]}))?;
    stage.say(&format!("{RELEASE} -> {to}"), "redrives the dead letter")?;
    stage.beat()
}
