//! Questions of agents to people, as every surface reads and shows them: the arguments of `clarify`, the answer of a
//! person, the view of a question, and what the asker gets.

mod answering;
mod asking;
mod outcome;
mod view;

use std::ops::RangeInclusive;

use actors::model::{BrokerError, IMAGES_BYTES_MAX, IMAGES_LEN_MAX, Image, QUESTION_CHARACTERS_MAX, QuestionId};
use base64::{Engine, engine::general_purpose::STANDARD};

use super::arguments::Arguments;

pub use answering::{read_answer, read_reason};
pub use asking::read_question;
pub use outcome::{Humans, Outcome, progress_text};
pub use view::{content_json, question_view};

/// The bounds of what callers write about a question. Those of the lists are with
/// [`QuestionContent`](actors::model::QuestionContent), those of its life with [`NewQuestion`](actors::desk::NewQuestion).
pub mod bounds {
    /// Default of `wait_seconds` of `clarify`.
    pub const WAIT_DEFAULT_SECONDS: f64 = 100.0;
    /// Bytes of the text of an answer, of a reason and of a note.
    pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
    /// Bytes of the URI of a link.
    pub const URI_BYTES_MAX: usize = 2_048;
}

/// How long a text may be, in characters.
type Characters = RangeInclusive<usize>;

const QUESTION: Characters = 1..=QUESTION_CHARACTERS_MAX;
const ITEM_ID: Characters = 1..=64;
const OPTION_VALUE: Characters = 1..=120;
const OPTION_LABEL: Characters = 1..=120;
const OPTION_DESCRIPTION: Characters = 0..=500;
const LINK_TITLE: Characters = 1..=200;
const TO: Characters = 1..=128;
const OTHER: Characters = 0..=QUESTION_CHARACTERS_MAX;
const REASON: Characters = 0..=2_000;
/// Bytes of JSON that one character of a text may take: an escape of a surrogate pair.
const JSON_PER_CHARACTER: usize = 12;
/// The image formats that are shown.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Checks the length of a text.
fn check_text(field: &str, text: &str, allowed: &Characters) -> Result<(), BrokerError> {
    // A text of more bytes than that has too many characters, too.
    let is_counted = text.len() <= allowed.end() * 4;
    if is_counted && allowed.contains(&text.chars().count()) {
        return Ok(());
    }
    let reason = match allowed.start() {
        0 => format!("at most {} characters", allowed.end()),
        least => format!("{least} to {} characters", allowed.end()),
    };
    Err(BrokerError::invalid(field, reason))
}

/// Checks the length of a list.
fn check_len(field: &str, len: usize, most: usize) -> Result<(), BrokerError> {
    if len > most {
        return Err(BrokerError::invalid(field, format!("at most {most}")));
    }
    Ok(())
}

/// Checks images: their number, their formats, their encoding, and their bytes together.
fn check_images(images: &[Image]) -> Result<(), BrokerError> {
    check_len("images", images.len(), IMAGES_LEN_MAX)?;
    let bytes: usize = images.iter().map(|image| image.data.len()).sum();
    if bytes > IMAGES_BYTES_MAX {
        let reason = format!("at most {IMAGES_BYTES_MAX} bytes together, in base64");
        return Err(BrokerError::invalid("images", reason));
    }
    for (at, image) in images.iter().enumerate() {
        if !IMAGE_TYPES.contains(&image.mime.as_str()) {
            let reason = format!("one of {}", IMAGE_TYPES.join(", "));
            return Err(BrokerError::invalid(format!("images[{at}].mime"), reason));
        }
        if image.data.is_empty() || STANDARD.decode(&image.data).is_err() {
            return Err(BrokerError::invalid(format!("images[{at}].data"), "base64"));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests;
