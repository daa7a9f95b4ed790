//! Answers of people to questions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Image;
use crate::model::SessionName;

/// The answer to a question, as the asker gets it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The answer to a single question.
    #[serde(flatten)]
    pub part: AnswerPart,
    /// The answers to a form, by the id of the question.
    pub answers: Option<BTreeMap<String, AnswerPart>>,
    pub images: Vec<Image>,
}

/// The answer to one question.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerPart {
    /// Values of the chosen options.
    pub selected: Vec<String>,
    /// The text in place of an option.
    pub other: Option<String>,
    /// The text next to the chosen options, or the whole answer.
    pub text: Option<String>,
}

/// The person who closed a question, and the way in which.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnsweredBy {
    pub human: SessionName,
    pub via: Via,
    /// The answer came with the key of an agent, which the operator allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_agent: bool,
}

/// The way of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = ClosedVia)]
pub enum Via {
    /// `mcp-broker console`.
    Console,
    /// The page `/desk`.
    Web,
    /// `/api/v1` and `mcp-broker desk`.
    Api,
    /// The form of the asker's own client.
    Elicitation,
    /// A console of the rubberduck programs.
    Rubberduck,
    /// A link that can be answered without a login.
    Link,
}
