//! Questions of agents to people, as every surface reads and shows them: the arguments of `clarify`, the answer of a
//! person, the view of a question, and what the asker gets.
//!
//! The project checks the bounds of questions and answers. Here are the shapes, and how long the JSON of an argument may be.

mod answering;
mod asking;
mod outcome;
mod view;

use actors::model::{BrokerError, QuestionId};

pub use answering::{read_answer, read_reason};
pub use asking::{PERMISSION_KEYS, WAIT_DEFAULT_SECONDS, read_question};
pub use outcome::{Humans, Outcome, progress_text};
pub use view::{question_view, record_view};

use super::arguments::Arguments;

/// Bytes of the JSON of a text of so many bytes at most: each is the escape of a control character, between quotes.
const fn json_of_bytes(bytes: usize) -> usize {
    bytes * 6 + 2
}

/// Bytes of the JSON of a text of so many characters at most: each is the escape of a surrogate pair.
const fn json_of_characters(characters: usize) -> usize {
    characters * 12 + 2
}

/// The argument `question_id`; None without one.
///
/// # Errors
/// `InvalidArgument` for a text that is no id.
pub fn read_id(arguments: &mut Arguments<'_>) -> Result<Option<QuestionId>, BrokerError> {
    let text = arguments.text("question_id")?;
    text.map(|text| parse_id(&text)).transpose()
}

/// The id of a question.
///
/// # Errors
/// `InvalidArgument` for a text that is no id.
pub fn parse_id(text: &str) -> Result<QuestionId, BrokerError> {
    QuestionId::parse(text).ok_or_else(|| BrokerError::invalid("question_id", "not the id of a question"))
}

/// An empty text is none.
fn given(text: Option<String>) -> Option<String> {
    text.filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests;
