//! One list of warnings: `/health`, the statistics, `status`, `top` and `doctor` show the same.

use std::fs;

use serde_json::{Value, json};

use super::{
    home::Home,
    screen::Screen,
    support::{Request, eventually},
};

/// A backend that can never start.
const BROKEN_BACKEND: &str = "[backends.broken]\ncommand = \"/does/not/exist\"\nstart = \"eager\"\n";

fn get(user: &Home, path: &str) -> Value {
    let info: Value = serde_json::from_slice(&fs::read(user.runtime().join("broker.json")).unwrap()).unwrap();
    let address = info["http"].as_str().unwrap().replace("http://", "");
    let request = Request::get(address.parse().unwrap()).with_path(path);
    request.with("Connection", "close").answered().json()
}

fn codes(answer: &Value) -> Vec<&str> {
    let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{answer}"));
    warnings
        .iter()
        .map(|warning| warning["code"].as_str().unwrap())
        .collect()
}

#[test]
#[ignore = "needs tmux: scripts/test installs it"]
fn all_views_show_the_same_warnings() {
    let user = Home::new();
    user.has_configuration(BROKEN_BACKEND);
    let mut asker = user.front().start();
    asker.initialize("a test");
    asker.calls("register_session", &json!({"name": "asker"}));
    asker.asks_tool(
        "clarify",
        &json!({"question": "Blue or green?", "urgency": "high", "wait_seconds": 0}),
    );
    let expected = ["backend_failed", "questions_unseen"];
    eventually("both problems are in /health", || {
        (codes(&get(&user, "/health")) == expected).then_some(())
    });
    let stats = get(&user, "/api/v1/stats");
    assert_eq!(codes(&stats), expected);
    assert_eq!(stats["desk"], json!({"open": 1, "urgent": 1, "unseen": 1}));
    assert_eq!(stats["backends"], json!({"all": 1, "ready": 0, "failed": 1}));

    let texts = [
        "1 backend has failed",
        "1 question waits for an answer, and no person is at the desk",
    ];
    let status = user.json("status --json");
    for (shown, text) in status["warnings"].as_array().unwrap().iter().zip(texts) {
        assert!(shown.as_str().unwrap().starts_with(text), "{status}");
    }
    let shown = user.does("status");
    let doctor = user.runs("doctor");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for text in texts {
        assert!(words(&shown).contains(text), "{shown}");
    }
    let findings = user.runs("doctor --json").stdout;
    for text in texts {
        assert!(findings.contains(text), "{findings}");
    }
    assert!(
        findings.contains("your own broker") && findings.contains("storage"),
        "{findings}"
    );
    assert!(!findings.contains("storage = memory"), "{findings}");

    let home = user.path.display();
    let environment = format!(
        "HOME={home} XDG_RUNTIME_DIR={home}/run XDG_STATE_HOME={home}/state MCP_BROKER_PORT=0 PATH=/usr/bin:/bin"
    );
    let screen = Screen::start((100, 24), &environment, "top");
    screen.shows("1 backend has failed");
    // The figures are those of the statistics; each list comes with its own view.
    screen.shows("1 question waits");
    screen.shows("1 urgent");
    screen.presses(&["6"]);
    screen.shows("Blue or green?");
    screen.presses(&["7"]);
    screen.shows("broken");
    screen.presses(&["q"]);
    assert_eq!(screen.ends(), 0);
}

#[test]
fn a_file_that_does_not_parse_is_a_warning_of_the_broker_that_runs() {
    let user = Home::new();
    user.has_configuration("log_level = \"info\"\n");
    user.start_broker();
    assert_eq!(user.json("status --json")["warnings"], json!([]));
    user.has_configuration("log_level = \n");
    eventually("the broker has read the file", || {
        (codes(&get(&user, "/health")) == ["configuration"]).then_some(())
    });
    let status = user.does("status");
    assert!(status.contains("configuration file cannot be used"), "{status}");
    let doctor = user.runs("doctor --json");
    assert_eq!(doctor.code, 1, "{doctor:?}");
    assert!(
        doctor
            .stdout
            .contains("these are the settings of your own broker, which agents start: a start is refused"),
        "{doctor:?}"
    );
    user.has_configuration("log_level = \"info\"\n");
    eventually("the warning is gone", || {
        codes(&get(&user, "/health")).is_empty().then_some(())
    });
}
