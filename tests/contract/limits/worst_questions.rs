//! The most expensive arguments of the tools that ask people, for `worst_calls`.

use super::worst_calls::{LARGE, list, text};

/// Arguments of a tool that asks people.
pub fn worst_questions(tool: &str, words: &str) -> Vec<String> {
    match tool {
        "clarify" => {
            let image = format!(r#"{{"mime":"image/png","data":"{}"}}"#, "A".repeat(1024 * 1024));
            let options = list(r#"{"value":"a","label":"a"}"#, 100_000);
            vec![
                format!(r#"{{"question":"?","wait_seconds":0,"images":[{image}]}}"#),
                format!(r#"{{"question":"?","wait_seconds":0,"options":{options}}}"#),
                format!(r#"{{"questions":{words},"wait_seconds":0}}"#),
                format!(r#"{{"question":{},"wait_seconds":0}}"#, text(LARGE)),
                format!(
                    r#"{{"question":"?","wait_seconds":0,"context":"{}"}}"#,
                    "\\u0001".repeat(64 * 1024)
                ),
            ]
        }
        "get_answer" => vec![format!(r#"{{"question_id":{}}}"#, text(LARGE)), "{}".to_owned()],
        "cancel_question" => vec![format!(r#"{{"question_id":{}}}"#, text(LARGE))],
        "yap" => vec![
            format!(r#"{{"message":{}}}"#, text(LARGE)),
            format!(r#"{{"message":{}}}"#, list("[]", LARGE)),
            format!(r#"{{"message":"{}"}}"#, "\\n".repeat(LARGE / 2)),
            format!(r#"{{"message":"{}"}}"#, "\\u0001".repeat(4_000)),
        ],
        // One that is accepted waits for a person.
        _ => vec![
            format!(r#"{{"tool_name":"a","input":{{"a":{words}}}}}"#),
            format!(r#"{{"tool_name":{},"input":{{}}}}"#, text(LARGE)),
        ],
    }
}
