//! The completions at the cursor of the prompt: commands, tools, arguments and their values.

use serde_json::Value;

use super::caller::Tool;

/// The commands of the prompt that are no tools.
pub const COMMANDS: [(&str, &str); 6] = [
    ("help", "this text; help TOOL shows the arguments of a tool"),
    ("tools", "the tools of the broker"),
    ("history", "earlier lines"),
    (
        "session",
        "the broker, the session of this connection, and the number of calls",
    ),
    ("exit", "end, as Ctrl-D does"),
    ("quit", "as exit"),
];

/// Where the word at the cursor begins, and what it may become.
pub fn candidates(before_cursor: &str, tools: &[Tool]) -> (usize, Vec<String>) {
    let start = before_cursor.rfind(char::is_whitespace).map_or(0, |at| {
        at + before_cursor[at..].chars().next().map_or(1, char::len_utf8)
    });
    let word = &before_cursor[start..];
    let mut earlier = before_cursor[..start].split_whitespace();
    let names = tools.iter().map(|tool| tool.name.as_str());
    let mut found: Vec<String> = match earlier.next() {
        None => {
            let commands = COMMANDS.iter().map(|(name, _)| *name);
            commands.chain(names).map(str::to_owned).collect()
        }
        Some("help") => names.map(str::to_owned).collect(),
        Some(name) => {
            let given: Vec<&str> = earlier.filter_map(|word| Some(word.split_once('=')?.0)).collect();
            let tool = tools.iter().find(|tool| tool.name == name);
            tool.map(|tool| arguments(tool, word, &given)).unwrap_or_default()
        }
    };
    found.retain(|candidate| candidate.starts_with(word) && candidate != word);
    found.sort();
    (start, found)
}

/// The arguments of a tool that are not given yet; behind a `=` the values that its schema names.
fn arguments(tool: &Tool, word: &str, given: &[&str]) -> Vec<String> {
    let Some(properties) = tool.input_schema["properties"].as_object() else {
        return Vec::new();
    };
    let Some((key, _)) = word.split_once('=') else {
        let missing = properties.keys().filter(|key| !given.contains(&key.as_str()));
        return missing.map(|key| format!("{key}=")).collect();
    };
    let Some(schema) = properties.get(key) else {
        return Vec::new();
    };
    let booleans = [Value::from(true), Value::from(false)];
    let values = match schema["enum"].as_array() {
        Some(values) => values.as_slice(),
        None if schema["type"] == "boolean" => &booleans,
        None => &[],
    };
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    values.iter().map(|value| format!("{key}={}", text(value))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_tools_arguments_and_values_are_completed() {
        let tools = [Tool {
            name: "send_message".to_owned(),
            description: String::new(),
            input_schema: json!({"properties": {
                "to": {"type": "string"}, "priority": {"enum": ["low", "high"]}, "all": {"type": "boolean"}, "topic": {},
            }}),
        }];
        for (line, start, expected) in [
            ("se", 0, vec!["send_message", "session"]),
            ("help s", 5, vec!["send_message"]),
            ("send_message t", 13, vec!["to=", "topic="]),
            ("send_message to=bob t", 20, vec!["topic="]),
            ("send_message priority=", 13, vec!["priority=high", "priority=low"]),
            ("send_message all=t", 13, vec!["all=true"]),
            ("send_message other=", 13, vec![]),
            ("nothing x", 8, vec![]),
            ("send_message ä t", 16, vec!["to=", "topic="]),
        ] {
            assert_eq!(
                candidates(line, &tools),
                (start, expected.into_iter().map(str::to_owned).collect()),
                "{line}"
            );
        }
    }
}
