//! The arguments of the answer of a person. Whether it fits its question the project decides.

use std::collections::BTreeMap;

use actors::model::{Answer, AnswerPart, BrokerError, OPTIONS_LEN_MAX, QUESTIONS_LEN_MAX};
use serde::Deserialize;

use super::{
    JSON_PER_CHARACTER, OPTION_VALUE, OTHER, REASON, asking::read_images, bounds::ANSWER_BYTES_MAX, check_len,
    check_text,
};
use crate::verbs::arguments::Arguments;

/// Bytes of the JSON of the text of an answer.
const TEXT_JSON_MAX: usize = ANSWER_BYTES_MAX * 6;
/// Bytes of the JSON of the answers to a form.
const ANSWERS_JSON_MAX: usize = 1024 * 1024;

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
            .optional_within::<Vec<String>>("selected", OPTIONS_LEN_MAX * OPTION_VALUE.end() * JSON_PER_CHARACTER)?
            .unwrap_or_default(),
        other: given(arguments.optional_within("other", OTHER.end() * JSON_PER_CHARACTER)?),
        text: given(arguments.optional_within("text", TEXT_JSON_MAX)?),
    };
    check_part("", &part)?;
    let answers = arguments.optional_within::<BTreeMap<String, Part>>("answers", ANSWERS_JSON_MAX)?;
    check_len("answers", answers.as_ref().map_or(0, BTreeMap::len), QUESTIONS_LEN_MAX)?;
    let answers = answers.map(|answers| {
        let read = |(id, part): (String, Part)| {
            let part = AnswerPart {
                selected: part.selected,
                other: given(part.other),
                text: given(part.text),
            };
            check_part(&format!("answers.{id:.64}."), &part)?;
            Ok::<_, BrokerError>((id, part))
        };
        answers.into_iter().map(read).collect::<Result<BTreeMap<_, _>, _>>()
    });
    Ok(Answer {
        part,
        answers: answers.transpose()?,
        images: read_images(arguments)?,
    })
}

/// The reason of a person who declines, or of an agent that cancels.
///
/// # Errors
/// `InvalidArgument` for one that is too long.
pub fn read_reason(arguments: &mut Arguments<'_>) -> Result<Option<String>, BrokerError> {
    let reason = given(arguments.optional_within("reason", REASON.end() * JSON_PER_CHARACTER)?);
    check_text("reason", reason.as_deref().unwrap_or_default(), &REASON)?;
    Ok(reason)
}

/// An empty text is none.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

fn check_part(before: &str, part: &AnswerPart) -> Result<(), BrokerError> {
    check_len(&format!("{before}selected"), part.selected.len(), OPTIONS_LEN_MAX)?;
    check_text(
        &format!("{before}other"),
        part.other.as_deref().unwrap_or_default(),
        &OTHER,
    )?;
    if part.text.as_ref().is_some_and(|text| text.len() > ANSWER_BYTES_MAX) {
        return Err(BrokerError::invalid(
            format!("{before}text"),
            format!("at most {ANSWER_BYTES_MAX} bytes"),
        ));
    }
    Ok(())
}
