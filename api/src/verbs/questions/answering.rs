//! The arguments of the answer of a person. The project decides whether it fits its question.

use std::collections::BTreeMap;

use actors::model::{Answer, AnswerPart, BrokerError, OPTIONS_LEN_MAX, QUESTION_CHARACTERS_MAX};
use serde::Deserialize;

use super::{asking::read_images, given, json_of_bytes, json_of_characters};
use crate::verbs::arguments::Arguments;

/// Bytes of the JSON of the text of an answer.
const TEXT_JSON_MAX: usize = json_of_bytes(64 * 1024);
/// Bytes of the JSON of the chosen options.
const SELECTED_JSON_MAX: usize = json_of_characters(OPTIONS_LEN_MAX * 128);
/// Bytes of the JSON of the answers to a form.
const ANSWERS_JSON_MAX: usize = 1024 * 1024;
/// Characters of a reason.
const REASON_CHARACTERS_MAX: usize = 2_000;

/// Takes the arguments of an answer.
///
/// # Errors
/// `InvalidArgument` that names the argument.
pub fn read_answer(arguments: &mut Arguments<'_>) -> Result<Answer, BrokerError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Part {
        #[serde(default)]
        selected: Vec<String>,
        other: Option<String>,
        text: Option<String>,
    }
    let part = AnswerPart {
        selected: arguments
            .optional_within("selected", SELECTED_JSON_MAX)?
            .unwrap_or_default(),
        other: given(arguments.optional_within("other", json_of_characters(QUESTION_CHARACTERS_MAX))?),
        text: given(arguments.optional_within("text", TEXT_JSON_MAX)?),
    };
    let answers = arguments.optional_within::<BTreeMap<String, Part>>("answers", ANSWERS_JSON_MAX)?;
    let read = |(id, part): (String, Part)| {
        let part = AnswerPart {
            selected: part.selected,
            other: given(part.other),
            text: given(part.text),
        };
        (id, part)
    };
    Ok(Answer {
        part,
        answers: answers.map(|answers| answers.into_iter().map(read).collect()),
        images: read_images(arguments)?,
    })
}

/// The reason of a person who declines, or of an agent that cancels.
///
/// # Errors
/// `InvalidArgument` for one that is too long.
pub fn read_reason(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let reason = given(arguments.optional_within("reason", json_of_characters(REASON_CHARACTERS_MAX))?);
    if reason
        .as_ref()
        .is_some_and(|reason| reason.chars().count() > REASON_CHARACTERS_MAX)
    {
        let text = format!("at most {REASON_CHARACTERS_MAX} characters");
        return Err(BrokerError::invalid("reason", text));
    }
    Ok(reason)
}
