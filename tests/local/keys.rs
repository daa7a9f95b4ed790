//! A broker with `local_auth`: the commands and the front take the key from the environment, and say what to do without.

use serde_json::json;

use super::{
    front::FrontBuilder,
    home::{Done, Home},
};

const KEY: &str = "0123456789abcdef0123456789abcdef";
/// The variable of the key.
const VARIABLE: &str = "MCP_BROKER_API_KEY";

/// A user whose brokers ask for a key.
fn home() -> Home {
    Home::new()
        .with("MCP_BROKER_LOCAL_AUTH", "true")
        .with("MCP_BROKER_ENABLE_AUTH", "true")
        .with("MCP_BROKER_ADMIN_KEY", KEY)
}

fn runs_with(home: &Home, key: &str, words: &str) -> Done {
    Done::of(home.command(words).env(VARIABLE, key).output().unwrap())
}

#[test]
fn commands_use_the_key_of_the_environment() {
    let home = home();
    for words in ["local start", "dev start --name try"] {
        let done = runs_with(&home, KEY, words);
        assert_eq!(done.code, 0, "{words}: {done:?}");
    }
    let commands = [
        "local start",
        "local status",
        "status --json",
        "dev status --name try",
        "dev call --name try list_sessions",
    ];
    for words in commands {
        let missing = home.runs(words);
        assert!(
            missing.refusal(2).contains(&format!("put it into {VARIABLE}")),
            "{words}: {missing:?}"
        );
        let wrong = runs_with(&home, "wrong", words);
        assert!(
            wrong
                .refusal(2)
                .contains(&format!("does not accept the key in {VARIABLE}")),
            "{words}: {wrong:?}"
        );
        let right = runs_with(&home, KEY, words);
        assert_eq!(right.code, 0, "{words}: {right:?}");
    }
    assert!(runs_with(&home, KEY, "local start").stdout.contains("runs already"));
    // Nor does a list of all brokers hide the others.
    let all = home.runs("dev status --all");
    assert_eq!(all.code, 1, "{all:?}");
    assert!(all.stdout.contains(VARIABLE), "{all:?}");
    // A process of the user can be ended by the user.
    assert!(home.does("local stop").contains("stopped at SIGTERM"));
    assert!(
        runs_with(&home, KEY, "dev stop --name try")
            .stdout
            .contains("has ended")
    );
}

#[test]
fn a_front_uses_the_key_of_the_environment_and_its_calls_say_what_to_do_without() {
    let home = home();
    let with = |key: Option<&str>| {
        let front = home.front();
        let front = key
            .into_iter()
            .fold(front, |front: FrontBuilder, key| front.env(VARIABLE, key));
        let mut front = front.start();
        front.initialize("x");
        front
    };
    let mut served = with(Some(KEY));
    assert_eq!(
        served.calls("register_session", &json!({"name": "alice"}))["name"],
        "alice"
    );
    for (key, text) in [(None, "put it into"), (Some("wrong"), "does not accept the key in")] {
        let mut front = with(key);
        let refused = front.is_refused("heartbeat", &json!({}));
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("{text} {VARIABLE}")), "{refused}");
        front.closes();
        let (status, errors) = front.ends();
        assert!(status.success() && errors.contains(VARIABLE), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    served.calls("heartbeat", &json!({}));
}
