//! The prompts: texts that a person gives to an agent so that it uses the broker well. A prompt is one entry in the
//! table and one text file.

mod template;

use std::{borrow::Cow, sync::LazyLock, time::Duration};

use actors::{
    model::SessionStatus,
    project::{ProjectHandle, SessionQuery},
    registry::DiscoverQuery,
    session::Member,
};
use serde_json::{Value, json};

#[cfg(feature = "conformance-fixtures")]
use super::fixtures;
use super::rpc::{Params, RpcError, shortened};
use common::json::scan;
pub use template::quoted;
use template::render;

/// Bytes of one argument.
const ARGUMENT_LEN_MAX: usize = 16 * 1024;
/// Sessions or protocols that a text names.
const NAMED_LEN_MAX: usize = 20;
/// Bytes of a protocol version that a text shows; registration does not bound them.
const VERSION_LEN_MAX: usize = 64;

/// The name that the agent has already, in texts.
const OWN_NAME: &str = "own_name";

/// A prompt, as `prompts/list` shows it and `prompts/get` renders it.
pub struct Prompt {
    name: &'static str,
    title: &'static str,
    description: &'static str,
    arguments: &'static [Argument],
    text: &'static str,
    /// Values about the project that the text contains besides the arguments.
    facts: &'static [Fact],
}

/// An argument of a prompt.
pub struct Argument {
    name: &'static str,
    description: &'static str,
    required: bool,
    /// The argument is the address of a session, so completion suggests names.
    pub is_address: bool,
}

/// A current value of the project, under the name by which texts refer to it.
struct Fact {
    name: &'static str,
    value: fn(&ProjectHandle, &GivenArguments<'_>) -> String,
}

/// The arguments of one `prompts/get`, in the order of the prompt's table entry.
struct GivenArguments<'a>(Vec<(&'static str, Cow<'a, str>)>);

/// All prompts, in the order of `prompts/list`.
static PROMPTS: &[Prompt] = &[
    Prompt {
        name: "join",
        title: "Join the agents",
        description: "How to take part: register under a durable name, see who is here, read the inbox, stay \
                      reachable.",
        arguments: &[
            Argument {
                name: "name",
                description: "The name to register, the agent's durable address.",
                required: false,
                is_address: false,
            },
            Argument {
                name: "role",
                description: "What the agent does, shown to the others.",
                required: false,
                is_address: false,
            },
        ],
        text: include_str!("prompts/join.txt"),
        facts: &[SESSIONS, PROTOCOLS, STALE_AFTER, DISCONNECT_AFTER, RETENTION],
    },
    Prompt {
        name: "coordinate",
        title: "Reach a goal together",
        description: "How to work with other agents on a goal: find partners, agree on a protocol, ask, wait for the \
                      answers, find out what became of a message.",
        arguments: &[
            Argument {
                name: "goal",
                description: "The goal.",
                required: true,
                is_address: false,
            },
            Argument {
                name: "with",
                description: "The partner to work with: name or id of a session.",
                required: false,
                is_address: true,
            },
        ],
        text: include_str!("prompts/coordinate.txt"),
        facts: &[SESSIONS, PROTOCOLS],
    },
    Prompt {
        name: "hand_over",
        title: "Hand a task over",
        description: "How to give work to another agent so that nothing is lost: send it, wait until it is taken, and \
                      what to do when it is not.",
        arguments: &[
            Argument {
                name: "to",
                description: "Who takes the task: name or id of a session.",
                required: true,
                is_address: true,
            },
            Argument {
                name: "task",
                description: "The task to hand over.",
                required: true,
                is_address: false,
            },
            Argument {
                name: "notes",
                description: "What else the recipient must know.",
                required: false,
                is_address: false,
            },
        ],
        text: include_str!("prompts/hand_over.txt"),
        facts: &[RECIPIENT, PROTOCOLS, RETENTION],
    },
];

/// The prompt of this name.
///
/// # Errors
/// Invalid params if it does not exist (server/prompts, Error Handling).
pub fn find(name: &str) -> Result<&'static Prompt, RpcError> {
    PROMPTS
        .iter()
        .find(|prompt| prompt.name == name)
        .ok_or_else(|| RpcError::invalid_params(format!("Unknown prompt: {}", shortened(name))))
}

/// The names of all prompts.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROMPTS.iter().map(|prompt| prompt.name)
}

/// The result of `prompts/list`.
pub fn list() -> Value {
    static LIST: LazyLock<Value> = LazyLock::new(|| {
        let prompts = PROMPTS.iter().map(Prompt::describe);
        #[cfg(feature = "conformance-fixtures")]
        let prompts = prompts.chain(fixtures::prompts::list());
        prompts.collect()
    });
    LIST.clone()
}

/// The result of `prompts/get`: the text with the arguments and the current values of the project, for an agent that may
/// have a name already.
///
/// # Errors
/// Invalid params: an unknown prompt or argument, a missing required argument, or one that is no string or too long
/// (server/prompts, Error Handling).
pub fn get(project: &ProjectHandle, own_name: Option<&str>, params: &Params<'_>) -> Result<Value, RpcError> {
    let name = params
        .named()
        .ok_or_else(|| RpcError::invalid_params("Invalid params: name must be a string, the name of a prompt"))?;
    let prompt = find(&name)?;
    if params
        .arguments
        .is_some_and(|arguments| !arguments.starts_with('{') && arguments != "null")
    {
        return Err(RpcError::invalid_params("Invalid params: arguments must be an object"));
    }
    let given = prompt.read(&params.members)?;
    let facts = prompt
        .facts
        .iter()
        .map(|fact| (fact.name, (fact.value)(project, &given)));
    let own_name = own_name.map(|name| (OWN_NAME, quoted(name)));
    let values: Vec<_> = given.quoted().chain(facts).chain(own_name).collect();
    let text = render(prompt.text, &values);
    Ok(json!({
        "description": prompt.description,
        "messages": [{"role": "user", "content": {"type": "text", "text": text}}],
    }))
}

impl Prompt {
    /// The argument of this name.
    ///
    /// # Errors
    /// Invalid params if the prompt has no such argument.
    pub fn argument(&self, name: &str) -> Result<&'static Argument, RpcError> {
        let mut arguments = self.arguments.iter();
        arguments
            .find(|argument| argument.name == name)
            .ok_or_else(|| self.refuse(&shortened(name), "no such argument"))
    }

    fn describe(&self) -> Value {
        let describe = |argument: &Argument| {
            json!({
                "name": argument.name, "description": argument.description, "required": argument.required,
            })
        };
        let arguments: Value = self.arguments.iter().map(describe).collect();
        json!({
            "name": self.name, "title": self.title, "description": self.description, "arguments": arguments,
        })
    }

    /// Reads the members of `arguments`. Forms send empty strings for empty fields: these count as absent, like `null`.
    /// Reading stops at the first unknown member, so its cost does not grow with the number of members.
    fn read<'a>(&self, members: &[(Cow<'a, str>, &'a str)]) -> Result<GivenArguments<'a>, RpcError> {
        let mut raw: Vec<(&'static str, &'a str)> = Vec::new();
        for (name, value) in members {
            let argument = self.argument(name)?;
            if raw.iter().any(|(known, _)| *known == argument.name) {
                return Err(self.refuse(argument.name, "given twice"));
            }
            raw.push((argument.name, value));
        }
        let mut given = Vec::new();
        for &Argument { name, required, .. } in self.arguments {
            let value = raw.iter().find(|(known, value)| *known == name && *value != "null");
            let value = match value {
                Some((_, value)) => scan::string(value).ok_or_else(|| self.refuse(name, "must be a string"))?,
                None => Cow::Borrowed(""),
            };
            if value.len() > ARGUMENT_LEN_MAX {
                return Err(self.refuse(name, &format!("at most {ARGUMENT_LEN_MAX} bytes")));
            }
            match (value.trim().is_empty(), required) {
                (false, _) => given.push((name, value)),
                (true, true) => return Err(self.refuse(name, "required")),
                (true, false) => {}
            }
        }
        Ok(GivenArguments(given))
    }

    fn refuse(&self, argument: &str, reason: &str) -> RpcError {
        RpcError::invalid_params(format!("Invalid params: prompt {}: {argument}: {reason}", self.name))
    }
}

impl GivenArguments<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        let mut given = self.0.iter();
        given.find(|(known, _)| *known == name).map(|(_, value)| &**value)
    }

    fn quoted(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.0.iter().map(|(name, value)| (*name, quoted(value)))
    }
}

const SESSIONS: Fact = Fact {
    name: "sessions",
    value: |project, _| {
        let page = project.list_sessions(&SessionQuery {
            status: Some(SessionStatus::Active),
            protocol: None,
            feature: None,
            text: None,
            limit: NAMED_LEN_MAX,
            after: None,
        });
        let names = page.items.iter().map(|member| quoted(&address(member)));
        enumerated(names.collect(), page.more, "nobody")
    },
};

const PROTOCOLS: Fact = Fact {
    name: "protocols",
    value: |project, _| {
        let query = DiscoverQuery {
            limit: Some(NAMED_LEN_MAX),
            ..DiscoverQuery::default()
        };
        // The limit is allowed, so this cannot fail.
        let Ok(page) = project.discover_protocols(&query) else {
            return String::new();
        };
        let short = |version: &str| version.len() <= VERSION_LEN_MAX;
        let shown = page.protocols.iter().filter(|protocol| short(&protocol.version_text));
        let shown: Vec<_> = shown
            .map(|protocol| format!("{} {}", protocol.name(), protocol.version_text))
            .collect();
        let more = page.next_cursor.is_some() || shown.len() < page.protocols.len();
        enumerated(shown, more, "none")
    },
};

const STALE_AFTER: Fact = Fact {
    name: "stale_after",
    value: |project, _| in_seconds(project.settings().presence.stale_after),
};

const DISCONNECT_AFTER: Fact = Fact {
    name: "disconnect_after",
    value: |project, _| in_seconds(project.settings().presence.disconnect_after),
};

const RETENTION: Fact = Fact {
    name: "retention",
    value: |project, _| in_seconds(project.settings().session_retention),
};

/// The presence, inbox and protocols of the session that `to` names.
const RECIPIENT: Fact = Fact {
    name: "recipient",
    value: |project, given| {
        let Ok(member) = project.resolve(given.get("to").unwrap_or_default()).known() else {
            return "which is no session of this project now".to_owned();
        };
        let status = project.status(&member).as_str();
        let waiting = member.shared.waiting();
        format!(
            "now {status}, messages that wait for it: {waiting}, declared protocols: {}",
            declared_protocols(&member)
        )
    },
};

fn declared_protocols(member: &Member) -> String {
    let protocols = &member.record.capabilities.supported_protocols;
    let mut all = protocols
        .iter()
        .flat_map(|(name, versions)| versions.iter().map(move |version| format!("{name} {version}")));
    let shown: Vec<_> = all.by_ref().take(NAMED_LEN_MAX).collect();
    let len = shown.len();
    let shown: Vec<_> = shown
        .into_iter()
        .filter(|text| text.len() <= 2 * VERSION_LEN_MAX)
        .collect();
    let more = all.next().is_some() || shown.len() < len;
    enumerated(shown, more, "none")
}

/// The address by which other sessions reach this one.
fn address(member: &Member) -> Cow<'_, str> {
    match &member.record.name {
        Some(name) => name.as_str().into(),
        None => member.record.id.to_string().into(),
    }
}

fn enumerated(items: Vec<String>, more: bool, none: &str) -> String {
    match (items.is_empty(), more) {
        (true, false) => none.to_owned(),
        (true, true) => "some".to_owned(),
        (false, false) => items.join(", "),
        (false, true) => format!("{} and more", items.join(", ")),
    }
}

fn in_seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use actors::{model::BrokerError, registry::Schema};

    use actors::model::{Scope, ToolSet};

    use super::*;
    use crate::mcp::{rpc, tools};

    /// Names and raw values.
    type Members<'a> = [(&'static str, &'a str)];

    fn read<'a>(prompt: &str, members: &Members<'a>) -> Result<Vec<(&'static str, Cow<'a, str>)>, String> {
        let members: Vec<_> = members
            .iter()
            .map(|&(name, value)| (Cow::Borrowed(name), value))
            .collect();
        let given = find(prompt).unwrap().read(&members);
        given.map(|GivenArguments(given)| given).map_err(|error| {
            assert_eq!(error.code, rpc::INVALID_PARAMS);
            error.message.into_owned()
        })
    }

    /// Every prompt with every subset of its optional arguments.
    fn rendered() -> Vec<(&'static str, String)> {
        let mut texts = Vec::new();
        for prompt in PROMPTS {
            let (required, optional): (Vec<_>, Vec<_>) =
                prompt.arguments.iter().partition(|argument| argument.required);
            for choice in 0..1_usize << optional.len() {
                let chosen = optional
                    .iter()
                    .enumerate()
                    .filter(|(at, _)| choice & (1 << at) != 0)
                    .map(|(_, argument)| argument);
                let arguments = required.iter().chain(chosen);
                let given = GivenArguments(arguments.map(|argument| (argument.name, "a \"b\"".into())).collect());
                let facts = prompt
                    .facts
                    .iter()
                    .map(|fact| (fact.name, fact.name.to_uppercase().replace('_', "-")));
                let values: Vec<_> = given.quoted().chain(facts).collect();
                let text = render(prompt.text, &values);
                for (name, value) in &values {
                    assert!(
                        text.contains(value.as_str()),
                        "{}: nothing is said of {name}",
                        prompt.name
                    );
                }
                texts.push((prompt.name, text));
            }
        }
        texts
    }

    #[test]
    fn arguments_are_read_in_the_order_of_the_prompt() {
        let given = read("hand_over", &[("task", r#""\u0074""#), ("to", "\"bob\"")]).unwrap();
        assert_eq!(given, [("to", "bob".into()), ("task", "t".into())]);
        assert_eq!(read("join", &[]).unwrap(), []);
        // Absent, as forms send it.
        assert_eq!(read("join", &[("name", "null"), ("role", "\" \"")]).unwrap(), []);
    }

    #[test]
    fn invalid_arguments_are_refused_by_name() {
        let long = format!("\"{}\"", "x".repeat(ARGUMENT_LEN_MAX + 1));
        let other = "x".repeat(101);
        let refusals: [(&str, &Members<'_>, &str); 9] = [
            ("coordinate", &[], "goal: required"),
            ("coordinate", &[("goal", "null")], "goal: required"),
            ("coordinate", &[("goal", "\"\"")], "goal: required"),
            ("hand_over", &[("to", "\"bob\"")], "task: required"),
            ("coordinate", &[("goal", "5")], "goal: must be a string"),
            ("coordinate", &[("goal", "[\"x\"]")], "goal: must be a string"),
            ("join", &[("goal", "\"x\"")], "goal: no such argument"),
            ("join", &[("name", "\"a\""), ("name", "\"b\"")], "name: given twice"),
            ("join", &[("role", &long)], "role: at most 16384 bytes"),
        ];
        for (prompt, members, expected) in refusals {
            let expected = format!("Invalid params: prompt {prompt}: {expected}");
            assert_eq!(read(prompt, members), Err(expected));
        }
        assert_eq!(
            find(&other).err().unwrap().message,
            format!("Unknown prompt: {}", &other[..100])
        );
    }

    #[test]
    fn a_text_has_no_gaps_when_optional_arguments_are_absent() {
        for (name, text) in rendered() {
            for remains in ["{{", "^", "#", "  \n", "\n\n\n"] {
                assert!(!text.contains(remains), "{name}: {remains:?}\n{text}");
            }
            assert!(text.ends_with(".\n") || text.ends_with("{}\n"), "{name}");
        }
    }

    #[test]
    fn the_calls_in_the_texts_match_the_tools() {
        let tools = tools::list(true, true, Scope::Operator, ToolSet::Full);
        let of_agents = tools::list(false, false, Scope::Member, ToolSet::Agent);
        let is_listed = |name: &str| of_agents.as_array().unwrap().iter().any(|tool| tool["name"] == name);
        for (prompt, text) in rendered() {
            let calls = text.lines().filter_map(|line| line.strip_prefix("    "));
            let mut count = 0;
            for call in calls {
                let (name, arguments) = call.split_once(' ').unwrap();
                let tool = tools.as_array().unwrap().iter().find(|tool| tool["name"] == name);
                let tool = tool.unwrap_or_else(|| panic!("{prompt}: no such tool: {call}"));
                assert!(is_listed(name), "{prompt}: no agent sees this tool: {call}");
                let schema = Schema::compile(&tool["inputSchema"]).unwrap();
                assert_eq!(schema.validate(arguments), Ok(()), "{prompt}: {call}");
                count += 1;
            }
            assert!(count > 5, "{prompt}");
        }
    }

    #[test]
    fn the_names_in_the_texts_are_those_of_the_tools() {
        let mut known: BTreeSet<String> = words(&tools::list(true, true, Scope::Operator, ToolSet::Full).to_string());
        let errors = [
            BrokerError::SessionTakenOver,
            BrokerError::PayloadInvalid { failures: Vec::new() },
            BrokerError::RecipientFull,
        ];
        known.extend(errors.iter().map(|error| error.code().to_owned()));
        // A variant with fields that are laborious to fill.
        known.insert("incompatible_protocol".to_owned());
        for (prompt, text) in rendered() {
            for word in words(&text) {
                let is_name = word.contains('_') && !word.starts_with('_');
                assert!(!is_name || known.contains(&word), "{prompt}: {word}");
            }
        }
    }

    fn words(text: &str) -> BTreeSet<String> {
        text.split(|character: char| !character.is_alphanumeric() && character != '_')
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_truncated_enumeration_says_so() {
        let items = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(enumerated(items(), false, "none"), "a, b");
        assert_eq!(enumerated(items(), true, "none"), "a, b and more");
        assert_eq!(enumerated(Vec::new(), false, "none"), "none");
        assert_eq!(enumerated(Vec::new(), true, "none"), "some");
        assert_eq!(in_seconds(Duration::from_millis(800)), "0.8 s");
        assert_eq!(in_seconds(Duration::from_secs(86_400)), "86400 s");
    }
}
