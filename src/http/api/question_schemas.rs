//! Schemas for `/openapi.json` of questions, yaps and the desk. No value has these types.

#![allow(dead_code, reason = "schemas only")]
#![allow(unused_qualifications, reason = "what utoipa writes")]

use utoipa::{IntoParams, ToSchema};

use super::schemas::SessionStatus;
use api::admin::schemas;

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
    #[param(rename = "X-Human", value_type = Option<schemas::HumanName>)]
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

/// How soon a question is to be answered.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Urgency {
    Low,
    Medium,
    High,
}

/// The state of a question.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum State {
    Pending,
    Answered,
    Declined,
    Expired,
    Cancelled,
}

/// Where a pending question is.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum DeskState {
    Waiting,
    Offered,
    Claimed,
}

/// The agent that asks.
#[derive(ToSchema)]
pub struct Asker {
    #[schema(format = "uuid")]
    session_id: String,
    #[schema(required)]
    name: Option<String>,
    status: SessionStatus,
    /// Seconds since the agent was there; 0 while it is active.
    away_seconds: usize,
}

/// An option of a question.
#[derive(ToSchema)]
pub struct Choice {
    value: String,
    label: String,
    #[schema(nullable = false)]
    description: Option<String>,
}

/// A link of a question.
#[derive(ToSchema)]
#[schema(as = QuestionLink)]
pub struct Link {
    title: String,
    uri: String,
}

/// An image.
#[derive(ToSchema)]
pub struct Image {
    mime: ImageType,
    /// Base64. Lists leave it empty.
    #[schema(pattern = "^[A-Za-z0-9+/]*={0,2}$")]
    data: String,
}

/// The format of an image.
#[derive(ToSchema)]
pub enum ImageType {
    #[schema(rename = "image/png")]
    Png,
    #[schema(rename = "image/jpeg")]
    Jpeg,
    #[schema(rename = "image/gif")]
    Gif,
    #[schema(rename = "image/webp")]
    Webp,
}

/// One question of a form.
#[derive(ToSchema)]
pub struct FormQuestion {
    id: String,
    question: String,
    options: Vec<Choice>,
    multi_select: bool,
    allow_other: bool,
    required: bool,
}

/// A person with a console.
#[derive(ToSchema)]
pub struct OfferedTo {
    human: String,
    console: String,
}

/// The person who has opened a question.
#[derive(ToSchema)]
pub struct ClaimedBy {
    human: String,
    /// Null for a claim without a console.
    #[schema(required)]
    console: Option<String>,
    #[schema(format = DateTime)]
    until: String,
    typing: bool,
}

/// A question was handed over.
#[derive(ToSchema)]
#[schema(as = QuestionHandover)]
pub struct HandoverView {
    from: String,
    to: String,
    #[schema(required)]
    note: Option<String>,
    #[schema(format = DateTime)]
    at: String,
}

/// The person who closed a question.
#[derive(ToSchema)]
pub struct ClosedBy {
    human: String,
    via: ClosedVia,
    /// `agent`: the answer came with the key of an agent.
    #[schema(nullable = false, pattern = "^agent$")]
    kind: Option<String>,
}

/// The way of an answer.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum ClosedVia {
    Console,
    Web,
    Api,
    Elicitation,
    Rubberduck,
    Link,
}

/// The answer to one question.
#[derive(ToSchema)]
pub struct AnswerPart {
    selected: Vec<String>,
    #[schema(required)]
    other: Option<String>,
    #[schema(required)]
    text: Option<String>,
}

/// An answer.
#[derive(ToSchema)]
pub struct Answer {
    selected: Vec<String>,
    #[schema(required)]
    other: Option<String>,
    #[schema(required)]
    text: Option<String>,
    /// The answers to a form by the id of the question.
    #[schema(required, value_type = Option<std::collections::BTreeMap<String, AnswerPart>>)]
    answers: Option<()>,
    images: Vec<Image>,
}

/// A question. Lists leave its content out: the members from `question` to `images`.
#[allow(clippy::struct_field_names, reason = "the names are those of the contract")]
#[derive(ToSchema)]
pub struct Question {
    #[schema(format = "uuid")]
    question_id: String,
    /// Counts the changes.
    revision: usize,
    state: State,
    /// Of a pending question.
    #[schema(nullable = false)]
    desk_state: Option<DeskState>,
    #[schema(format = DateTime)]
    asked_at: String,
    /// Null for a question that lives until it is cancelled.
    #[schema(required, format = DateTime)]
    expires_at: Option<String>,
    urgency: Urgency,
    /// The name of a person, a role, or `desk`.
    to: String,
    asker: Asker,
    /// The first characters of the question on one line.
    summary: String,
    sensitive: bool,
    #[schema(required)]
    offered_to: Option<OfferedTo>,
    #[schema(required)]
    claimed_by: Option<ClaimedBy>,
    #[schema(required)]
    handover: Option<HandoverView>,
    /// When a person first saw it.
    #[schema(required, format = DateTime)]
    seen_at: Option<String>,
    /// The place in the queue of the desk, 1 first; null for a question that a console has, or that is closed.
    #[schema(required)]
    position: Option<usize>,
    /// The content says more than the summary.
    has_more: bool,
    /// Of a single question.
    #[schema(nullable = false)]
    question: Option<String>,
    #[schema(nullable = false)]
    options: Option<Vec<Choice>>,
    #[schema(nullable = false)]
    multi_select: Option<bool>,
    #[schema(nullable = false)]
    allow_other: Option<bool>,
    /// Of a form.
    #[schema(nullable = false)]
    questions: Option<Vec<FormQuestion>>,
    /// Markdown.
    #[schema(nullable = false)]
    context: Option<String>,
    #[schema(nullable = false)]
    links: Option<Vec<Link>>,
    #[schema(nullable = false)]
    images: Option<Vec<Image>>,
    /// Of an answered question; null for a sensitive one.
    answer: Option<Answer>,
    #[schema(nullable = false)]
    answered_by: Option<ClosedBy>,
    #[schema(nullable = false, format = DateTime)]
    answered_at: Option<String>,
    /// When the answer to a sensitive question was deleted: its asker has it.
    #[schema(nullable = false, format = DateTime)]
    answer_deleted_at: Option<String>,
    #[schema(nullable = false)]
    declined_by: Option<ClosedBy>,
    #[schema(nullable = false, format = DateTime)]
    declined_at: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    expired_at: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    cancelled_at: Option<String>,
    /// Who cancelled it.
    by: Option<String>,
    /// Why it was declined or cancelled.
    reason: Option<String>,
    /// Of an expired question: what its asker gets.
    #[schema(value_type = Option<Object>)]
    default: Option<()>,
}

/// A page of questions.
#[derive(ToSchema)]
pub struct Questions {
    questions: Vec<Question>,
    /// Cursor of the next page, when questions are left.
    #[schema(nullable = false)]
    next_cursor: Option<String>,
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

/// A remark of an agent.
#[derive(ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
pub struct Yap {
    /// Counts the yaps of the project, without gaps.
    seq: usize,
    #[schema(format = "uuid")]
    yap_id: String,
    #[schema(format = "uuid")]
    sender_id: String,
    #[schema(required)]
    sender_name: Option<String>,
    message: String,
    #[schema(required)]
    mode: Option<YapMode>,
    #[schema(required)]
    category: Option<String>,
    #[schema(required)]
    task_context: Option<String>,
    #[schema(format = DateTime)]
    at: String,
    /// It came after a yap with a later time was shown.
    late: bool,
    /// Further yaps over the rate of the sender that this one replaces.
    folded: usize,
}

/// How much an agent says.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum YapMode {
    Concise,
    Verbose,
    Detailed,
}

/// Yaps, the oldest first.
#[derive(ToSchema)]
pub struct Yaps {
    yaps: Vec<Yap>,
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

/// A yap that was accepted.
#[derive(ToSchema)]
pub struct YapAccepted {
    #[schema(format = "uuid")]
    yap_id: String,
    /// Consoles that are connected now.
    shown_to: usize,
    kept: bool,
}

/// Whether a person is at a console.
#[derive(ToSchema)]
#[schema(rename_all = "lowercase")]
pub enum Presence {
    Present,
    Idle,
    Away,
}

/// A person with a console.
#[derive(ToSchema)]
pub struct HumanAtDesk {
    human: String,
    presence: Presence,
    /// Questions that are offered to its consoles or claimed by them.
    open: usize,
    consoles: usize,
}

/// A console.
#[derive(ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON")]
pub struct Console {
    console: String,
    human: String,
    roles: Vec<String>,
    presence: Presence,
    /// Questions that are offered to it or claimed by it.
    open: usize,
    /// It takes no new questions.
    paused: bool,
}

/// The desk.
#[derive(ToSchema)]
pub struct Desk {
    humans: Vec<HumanAtDesk>,
    consoles: Vec<Console>,
    /// Open questions that no console has.
    waiting: usize,
    /// Open questions that are offered to a console.
    offered: usize,
    /// Open questions that a person has opened.
    claimed: usize,
    /// Open questions that are urgent.
    high: usize,
    #[schema(required, format = DateTime)]
    oldest_asked_at: Option<String>,
}
