//! The content of a question: what the agent wrote. It is checked when the question is asked and never changes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Characters of one question.
pub const QUESTION_CHARACTERS_MAX: usize = 8_000;
/// Questions of one form.
pub const QUESTIONS_LEN_MAX: usize = 8;
/// Bytes of the context.
pub const CONTEXT_BYTES_MAX: usize = 64 * 1024;
/// Options of one question.
pub const OPTIONS_LEN_MAX: usize = 20;
/// Links of one question.
pub const LINKS_LEN_MAX: usize = 10;
/// Images of one question or answer.
pub const IMAGES_LEN_MAX: usize = 4;
/// Bytes of the images of one question or answer together, as their senders encode them (base64).
pub const IMAGES_BYTES_MAX: usize = 1024 * 1024;

/// The content of a question.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QuestionContent {
    /// One question, or the questions of a form in their order. Never empty.
    pub items: Vec<QuestionItem>,
    /// The asker wrote `questions`, so that the answer has a member for each id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_form: bool,
    /// Markdown, which is shown escaped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<Image>,
}

impl QuestionContent {
    /// Bytes of the content as stores keep it: JSON.
    pub fn stored_len(&self) -> usize {
        // Writing plain values to memory cannot fail.
        serde_json::to_vec(self).map_or(0, |text| text.len())
    }
}

/// One question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QuestionItem {
    /// The name of the question in its form; empty for a single question.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    pub question: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<QuestionChoice>,
    /// More than one option may be chosen.
    #[serde(default)]
    pub multi_select: bool,
    /// A text may be in place of an option.
    #[serde(default = "yes")]
    pub allow_other: bool,
    /// An answer of the form needs this question answered.
    #[serde(default)]
    pub required: bool,
}

const fn yes() -> bool {
    true
}

/// An option of a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Choice)]
pub struct QuestionChoice {
    pub value: String,
    pub label: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub description: Option<String>,
}

/// A link that belongs to a question.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = QuestionLink)]
pub struct Link {
    pub title: String,
    pub uri: String,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Image {
    /// `image/png`, `image/jpeg`, `image/gif` or `image/webp`.
    #[schema(pattern = "^image/(png|jpeg|gif|webp)$")]
    pub mime: String,
    /// Base64. Lists leave it empty.
    #[schema(pattern = "^[A-Za-z0-9+/]*={0,2}$")]
    pub data: String,
}
