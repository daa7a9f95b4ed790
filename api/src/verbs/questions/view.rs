//! A question as people and administrators see it, and what its asker gets: the result object of `clarify` and `get_answer`, and the
//! texts of progress.

use std::time::Duration;

use actors::{
    clock::{now, rfc3339_text},
    desk::{DeskSummary, Presence},
    model::{self, AnsweredBy, Closing, Image, QuestionClaim, QuestionContent, QuestionState, SessionStatus},
    project::ProjectHandle,
};
use rest::{
    questions::{Answer, AnswerPart, Asker, ClaimedBy, ClosedBy, FormQuestion, HandoverView, OfferedTo, Question},
    word,
};
use serde_json::{Value, json};

/// The view of a question: with its content the whole of it, without only what lists show.
pub fn question_view(
    project: &ProjectHandle,
    question: &model::Question,
    content: Option<&QuestionContent>,
) -> Question {
    let mut view = record_view(question, content, content.is_some());
    let member = project.directory().by_id(question.asker.session);
    let status = member.as_ref().map(|member| project.status(member));
    let away = member.filter(|_| status != Some(SessionStatus::Active)).map(|member| {
        let away_ms = now().unix_ms.saturating_sub(member.shared.last_seen_unix_ms());
        away_ms / 1_000
    });
    let status = status.unwrap_or(SessionStatus::Disconnected);
    status.as_str().clone_into(&mut view.asker.status);
    view.asker.away_seconds = away.unwrap_or(0);
    view.position = project.queue_position(question.id);
    view
}

/// The view without what only this broker knows: whether the asker is there, and the place in the queue. Images have no data
/// unless `has_images`.
pub fn record_view(question: &model::Question, content: Option<&QuestionContent>, has_images: bool) -> Question {
    let mut view = Question {
        question_id: question.id.to_string(),
        revision: question.revision,
        state: question.state_str().to_owned(),
        asked_at: rfc3339_text(question.asked_at_ms()),
        expires_at: question.expires_at_ms.map(rfc3339_text),
        urgency: question.urgency.as_str().to_owned(),
        to: question.to.as_str().to_owned(),
        asker: Asker {
            session_id: question.asker.session.to_string(),
            name: question.asker.name.as_ref().map(ToString::to_string),
            ..Asker::default()
        },
        summary: question.summary.clone(),
        sensitive: question.is_sensitive,
        handover: question.handover.as_ref().map(|handover| HandoverView {
            from: handover.from.to_string(),
            to: handover.to.as_str().to_owned(),
            note: handover.note.clone(),
            at: rfc3339_text(handover.at_ms),
        }),
        seen_at: question.seen_at_ms.map(rfc3339_text),
        has_more: has_more(question),
        ..Question::default()
    };
    add_state(&mut view, question, has_images);
    if let Some(content) = content {
        add_content(&mut view, content, has_images);
    }
    view
}

/// Whether the content says more than the summary.
fn has_more(question: &model::Question) -> bool {
    question.content_bytes > QuestionContent::text(question.summary.as_str()).stored_len()
}

fn add_state(view: &mut Question, question: &model::Question, is_whole: bool) {
    let desk_state = match &question.state {
        QuestionState::Waiting => "waiting",
        QuestionState::Offered(offer) => {
            view.offered_to = Some(OfferedTo {
                human: offer.human.to_string(),
                console: offer.console.to_string(),
            });
            "offered"
        }
        QuestionState::Claimed(claim) => {
            view.claimed_by = Some(claimed_by(claim));
            "claimed"
        }
        QuestionState::Closed(closed) => {
            let at = Some(rfc3339_text(closed.at_ms));
            match &closed.how {
                Closing::Answered { by, answer } => {
                    view.answered_at = at;
                    view.answered_by = Some(closed_by(by));
                    view.answer = Some((!question.is_sensitive).then(|| answer_view(answer, is_whole)));
                    view.answer_deleted_at = question.answer_deleted_ms.map(rfc3339_text);
                }
                Closing::Declined { by, reason } => {
                    view.declined_at = at;
                    view.declined_by = Some(closed_by(by));
                    view.reason = Some(reason.clone());
                }
                Closing::Expired => {
                    view.expired_at = at;
                    view.default = Some(question.on_expiry.clone());
                }
                Closing::Cancelled { by, reason } => {
                    view.cancelled_at = at;
                    view.by = Some(by.clone());
                    view.reason = Some(reason.clone());
                }
            }
            return;
        }
    };
    view.desk_state = Some(desk_state.to_owned());
}

fn claimed_by(claim: &QuestionClaim) -> ClaimedBy {
    ClaimedBy {
        human: claim.human.to_string(),
        console: claim.console.map(|console| console.to_string()),
        until: rfc3339_text(claim.until_ms),
        typing: claim.is_typing(now()),
    }
}

fn closed_by(by: &AnsweredBy) -> ClosedBy {
    ClosedBy {
        human: by.human.to_string(),
        via: word(by.via),
        kind: by.is_agent.then(|| "agent".to_owned()),
    }
}

fn answer_view(answer: &model::Answer, is_whole: bool) -> Answer {
    let part = |part: &model::AnswerPart| AnswerPart {
        selected: part.selected.clone(),
        other: part.other.clone(),
        text: part.text.clone(),
    };
    let AnswerPart { selected, other, text } = part(&answer.part);
    let answers = answer.answers.as_ref();
    Answer {
        selected,
        other,
        text,
        answers: answers.map(|answers| answers.iter().map(|(id, answer)| (id.clone(), part(answer))).collect()),
        images: images_view(&answer.images, is_whole),
    }
}

/// Images; without their data in lists and histories.
fn images_view(images: &[Image], has_data: bool) -> Vec<Image> {
    let images = images.iter().map(|image| Image {
        mime: image.mime.clone(),
        data: if has_data { image.data.clone() } else { String::new() },
    });
    images.collect()
}

/// Adds the members of the view that are the content.
fn add_content(view: &mut Question, content: &QuestionContent, has_images: bool) {
    view.links = Some(content.links.clone());
    view.images = Some(images_view(&content.images, has_images));
    view.context.clone_from(&content.context);
    match content.items.as_slice() {
        [item] if !content.is_form => {
            view.question = Some(item.question.clone());
            view.options = Some(item.options.clone());
            view.multi_select = Some(item.multi_select);
            view.allow_other = Some(item.allow_other);
        }
        items => {
            let items = items.iter().map(|item| FormQuestion {
                id: item.id.clone(),
                question: item.question.clone(),
                options: item.options.clone(),
                multi_select: item.multi_select,
                allow_other: item.allow_other,
                required: item.required,
            });
            view.questions = Some(items.collect());
        }
    }
}

/// The people at the desk, as the asker sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Humans {
    pub present: usize,
    pub idle: usize,
    /// With a console, and away by their own word.
    pub away: usize,
}

impl Humans {
    /// Those who have a console now, each by the console at which they are most present.
    #[must_use]
    pub fn of(desk: &DeskSummary) -> Self {
        Self {
            present: desk.humans(Presence::Present),
            idle: desk.humans(Presence::Idle),
            away: desk.humans(Presence::Away),
        }
    }

    /// Whether no person has a console.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.present + self.idle + self.away == 0
    }
}

/// What the asker gets.
#[derive(Debug)]
pub struct Outcome<'a> {
    pub question: &'a model::Question,
    /// The place in the queue of the desk, 1 first.
    pub position: Option<usize>,
    pub humans: Humans,
    /// How long this call waited.
    pub waited: Duration,
}

impl Outcome<'_> {
    /// The result object of `clarify` and `get_answer`.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let Self {
            question,
            position,
            humans,
            waited,
        } = self;
        let mut object = question.outcome();
        if question.sealed_answer.is_some() {
            object.insert("answer".to_owned(), Value::Null);
        }
        object.insert("waited_seconds".to_owned(), json!(waited.as_secs()));
        if question.is_open() {
            object.insert("position".to_owned(), json!(position));
            let humans = json!({"present": humans.present, "idle": humans.idle, "away": humans.away});
            object.insert("humans".to_owned(), humans);
            object.insert("next".to_owned(), json!(self.next()));
        }
        object.insert("summary".to_owned(), json!(self.summary()));
        Value::Object(object)
    }

    /// What the agent does next.
    fn next(&self) -> &'static str {
        if self.humans.is_empty() {
            return "No person is at the desk; one opens it with `mcp-broker console` or at /desk. Do not guess. Continue with \
                    other work, or call get_answer with this question_id; the answer also comes to your inbox.";
        }
        "No person has answered yet. Do not guess. Continue with other work, or call get_answer with this question_id; the answer \
         also comes to your inbox."
    }

    /// One line for models.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.question.is_open() {
            return format!("PENDING: {}", progress_text(self.question, self.position, self.humans));
        }
        if self.question.sealed_answer.is_some() {
            return "ANSWERED, but the broker cannot decrypt the answer: its desk_secret_file has changed. Ask again."
                .to_owned();
        }
        self.question.outcome_line()
    }
}

/// The progress of a call that waits: where the question is now.
#[must_use]
pub fn progress_text(question: &model::Question, position: Option<usize>, humans: Humans) -> String {
    match &question.state {
        QuestionState::Claimed(claim) if claim.is_typing(now()) => format!("{} is typing", claim.human),
        QuestionState::Claimed(claim) => format!("{} is reading it", claim.human),
        _ if humans.is_empty() => "no person is at the desk".to_owned(),
        QuestionState::Offered(offer) => format!("shown to {}", offer.human),
        _ => match position {
            Some(position) => format!("{} in the queue", ordinal(position)),
            None => "it waits at the desk".to_owned(),
        },
    }
}

fn ordinal(number: usize) -> String {
    let ending = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}
