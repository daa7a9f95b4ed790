//! `desk watch`: prints questions, yaps and who is at the desk as they change.

use std::collections::HashMap;

use clap::{ArgAction, Args, builder::PossibleValuesParser};
use rest::questions::Question;
use serde_json::Value;

use super::human::HumanFlags;
use crate::client::parameter;
use crate::error::CliError;
use crate::flags::{one_of, whole};
use crate::operate::events::EventStream;
use crate::operate::job::Context;
use crate::operate::tail;
use crate::table::shortened;

/// The most characters of one word of a line.
const WORD_CHARS_MAX: usize = 200;
/// Questions of which the last printed revision is remembered.
const KNOWN_LEN_MAX: usize = 10_000;

const TOPICS: &[&str] = &["questions", "yaps", "desk"];

const ABOUT: &str = "\
Print questions, yaps and who is at the desk as they change, beginning with the questions that are open.

With --console the command is a console: agents see that a person is present, and the desk offers it questions; answer
them with desk answer. Without it the command only shows them. When the connection is lost, it connects again.";

/// Print questions, yaps and who is at the desk as they change.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = crate::output::EXIT_CODES)]
pub struct Watch {
    #[arg(long, value_name = "TOPIC", help = one_of(TOPICS, "Only these"), value_parser = PossibleValuesParser::new(TOPICS),
        hide_possible_values = true, action = ArgAction::Set, value_delimiter = ',', num_args = 1..)]
    topics: Vec<String>,
    /// Act as a console, to which the desk offers questions.
    #[arg(long)]
    console: bool,
    /// End after this many events.
    #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
    limit: Option<u32>,
}

impl Watch {
    /// Prints what the person may see.
    pub fn run(&self, context: &Context, human: &HumanFlags) -> Result<(), CliError> {
        let topics = if self.topics.is_empty() {
            TOPICS.join(",")
        } else {
            self.topics.join(",")
        };
        let mut stream = EventStream::new(&context.client, Some(&topics), None);
        let name = human.name(&context.client)?;
        if self.console {
            // An empty name is the person of the key.
            stream = stream.with_parameter(parameter("console", Some(name.unwrap_or_default())));
            stream = stream.with_parameter(parameter("roles", human.roles()));
        } else {
            stream = stream.with_header("x-human", name);
            stream = stream.with_header("x-human-roles", human.roles());
        }
        stream.connect()?;
        let mut known = Known::default();
        tail::follow(context, stream, self.limit, |topic, data| {
            (topic != "question" || known.is_news(data)).then(|| line(topic, data))
        })
    }
}

/// The last printed revision of each open question: a stream that connects again begins with all open questions.
#[derive(Default)]
struct Known(HashMap<String, u64>);

impl Known {
    fn is_news(&mut self, question: &Value) -> bool {
        let (Some(id), Some(revision)) = (question["question_id"].as_str(), question["revision"].as_u64()) else {
            return true;
        };
        if self.0.len() >= KNOWN_LEN_MAX {
            self.0.clear();
        }
        let is_news = self.0.get(id) != Some(&revision);
        self.0.insert(id.to_owned(), revision);
        is_news
    }
}

/// An event as one line.
fn line(topic: &str, data: &Value) -> String {
    let text = |member: &str| word(data[member].as_str().unwrap_or_default());
    let details = match topic {
        "question" => {
            let question: Question = serde_json::from_value(data.clone()).unwrap_or_default();
            format!(
                "{:<9}  {}  {}: {}  {}",
                word(&question.stage()),
                word(&question.urgency),
                word(question.asker()),
                word(&question.summary),
                word(&question.question_id)
            )
        }
        "yap" => {
            let folded = match data["folded"].as_u64() {
                Some(more) if more > 0 => format!(" ({more} more)"),
                _ => String::new(),
            };
            format!("{}: {}{folded}", text("sender_name"), text("message"))
        }
        "desk" => {
            let humans = data["humans"].as_array().into_iter().flatten();
            let humans = humans.map(|human| {
                let text = |member: &str| word(human[member].as_str().unwrap_or_default());
                format!("{} {}", text("human"), text("presence"))
            });
            let humans = humans.collect::<Vec<_>>().join(", ");
            let humans = if humans.is_empty() {
                "no person is at the desk".to_owned()
            } else {
                humans
            };
            format!("{humans}; {} waiting, {} high", data["waiting"], data["high"])
        }
        "gap" => "events are missing: desk list shows the questions".to_owned(),
        _ => shortened(&data.to_string(), 4 * WORD_CHARS_MAX),
    };
    format!("{:<8}  {details}", word(topic)).trim_end().to_owned()
}

fn word(text: &str) -> String {
    shortened(text, WORD_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_of_the_desk_are_lines() {
        let question = json!({"question_id": "q1", "revision": 2, "state": "pending", "desk_state": "waiting",
            "urgency": "high", "asker": {"session_id": "s", "name": "alice\u{1b}"}, "summary": "Drop?", "to": "desk"});
        assert_eq!(
            line("question", &question),
            "question  waiting    high  alice\\u{1b}: Drop?  q1"
        );
        let yap = json!({"sender_name": "bob", "message": "hi\u{7}", "folded": 3});
        assert_eq!(line("yap", &yap), "yap       bob: hi\\u{7} (3 more)");
        let desk = json!({"humans": [{"human": "mara", "presence": "present"}], "waiting": 2, "high": 1});
        assert_eq!(line("desk", &desk), "desk      mara present; 2 waiting, 1 high");
        assert_eq!(
            line("desk", &json!({"humans": [], "waiting": 0, "high": 0})),
            "desk      no person is at the desk; 0 waiting, 0 high"
        );
    }

    #[test]
    fn a_revision_is_printed_once() {
        let mut known = Known::default();
        let question = |revision: u64| json!({"question_id": "q1", "revision": revision});
        assert_eq!(
            [1, 1, 2, 2].map(|revision| known.is_news(&question(revision))),
            [true, false, true, false]
        );
    }
}
