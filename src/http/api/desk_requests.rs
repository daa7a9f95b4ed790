//! Schemas for `/openapi.json` of requests about questions and yaps: the arguments of the tools. No value has these types.

#![allow(dead_code, reason = "schemas only")]
use actors::model::{Image, Urgency};
use rest::{desk::YapMode, words};
use utoipa::{IntoParams, ToSchema};

/// The id of a question.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
pub struct QuestionPath {
    #[param(format = "uuid")]
    question_id: String,
}

/// Who acts, for a caller who may act for any person: without a key, or with the admin key.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct HumanHeaders {
    /// The name of the person; `human` by default. A key of scope `answer` has a person of its own.
    #[param(rename = "X-Human", value_type = Option<words::HumanName>)]
    x_human: Option<String>,
    /// Roles of the person, separated by commas; by default those of the consoles of that name.
    #[param(rename = "X-Human-Roles")]
    x_human_roles: Option<String>,
}

/// The revision that the person has seen.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub struct IfMatchHeader {
    /// The `ETag` of the question: the request changes nothing if it has another by now.
    #[param(rename = "If-Match", pattern = "^(\"[0-9]{1,18}\"|\\*)$")]
    if_match: Option<String>,
}

/// A question to ask: the arguments of the tool `clarify` with `from`, without `wait_seconds`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AskQuestion {
    /// Name or id of the session that asks. It belongs to the caller; a name that no session has is registered.
    #[schema(min_length = 1, max_length = 128)]
    from: String,
    /// Required without `questions`.
    #[schema(min_length = 1, max_length = 8000)]
    question: Option<String>,
    /// A form of 1 to 8 questions, in place of `question`.
    #[schema(value_type = Option<Vec<Object>>)]
    questions: Option<()>,
    /// Markdown, at most 64 KiB.
    context: Option<String>,
    /// Up to 20 options: texts, or objects with `value`, `label` and `description`.
    #[schema(value_type = Option<Vec<Object>>)]
    options: Option<()>,
    multi_select: Option<bool>,
    allow_other: Option<bool>,
    urgency: Option<Urgency>,
    /// The name of a person, a role, or `desk`.
    to: Option<String>,
    /// 60 to 2,592,000; 0 for a question that lives until it is cancelled, which needs `to`.
    expires_in_seconds: Option<f64>,
    /// `none`, or an object with a `value` that the asker gets as `default`.
    #[schema(value_type = Option<Object>)]
    on_expiry: Option<()>,
    idempotency_key: Option<String>,
    #[schema(value_type = Option<Vec<Object>>)]
    links: Option<()>,
    #[schema(value_type = Option<Vec<Object>>)]
    images: Option<()>,
    sensitive: Option<bool>,
}

/// The console at which a person acts.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AtConsole {
    /// Its id, from its stream of events. Absent without one.
    console: Option<String>,
}

/// An object without members.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// To whom a question is handed over.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = HandOverQuestion)]
pub struct Handover {
    /// The name of a person, a role, or `desk`.
    #[schema(min_length = 1, max_length = 128)]
    to: String,
    note: Option<String>,
}

/// The surface on which a person answers.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Surface {
    Console,
    Web,
}

/// An answer to give. It has one of `text`, `selected`, `other`, `answers` and `images` at least.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// The answer, or what is said next to an option; at most 64 KiB.
    text: Option<String>,
    /// Values of options.
    #[schema(max_items = 20)]
    selected: Option<Vec<String>>,
    /// A text in place of an option.
    #[schema(max_length = 8000)]
    other: Option<String>,
    /// Answers to a form by the id of the question.
    #[schema(value_type = Option<std::collections::BTreeMap<String, GivenPart>>)]
    answers: Option<()>,
    #[schema(max_items = 4)]
    images: Option<Vec<Image>>,
    via: Option<Surface>,
}

/// The answer to one question of a form.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenPart {
    #[schema(nullable = false)]
    selected: Option<Vec<String>>,
    other: Option<String>,
    text: Option<String>,
}

/// How to decline.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclineQuestion {
    /// Why, for the agent.
    #[schema(max_length = 2000)]
    reason: Option<String>,
    via: Option<Surface>,
}

/// How to cancel.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelQuestion {
    #[schema(max_length = 2000)]
    reason: Option<String>,
}

/// What a person has written so far.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    text: String,
}

/// A yap to show: the arguments of the tool `yap` with `from`.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PostYap {
    /// Name or id of the session that yaps. It belongs to the caller; a name that no session has is registered.
    #[schema(min_length = 1, max_length = 128)]
    from: String,
    #[schema(min_length = 1, max_length = 4000)]
    message: String,
    mode: Option<YapMode>,
    /// One line in your own words, such as `progress`.
    #[schema(min_length = 1, max_length = 40)]
    category: Option<String>,
    #[schema(max_length = 1000)]
    task_context: Option<String>,
    /// When the sender wrote it, by which yaps that arrive together are ordered.
    #[schema(format = DateTime)]
    sent_at: Option<String>,
}
