//! A call that waits for the end of a question: how long it waits, what it says meanwhile, and what it answers.

use std::{pin::pin, rc::Rc, sync::Arc, time::Duration};

use actors::{
    clock,
    desk::{QuestionWatch, Reader},
    model::{BrokerError, PAGE_BYTES_MAX, Question, QuestionContent, QuestionId},
    session::ReadBudget,
};
use futures_util::future::{OptionFuture, select_all};
use serde_json::Value;
use tokio::{
    sync::Notify,
    time::{Instant, MissedTickBehavior, interval_at, sleep},
};

use crate::{
    mcp::{
        client::PeerKind,
        pending_receive::PendingNotices,
        question_tasks,
        reply::{ReplyTo, ResultForm, ToolResult},
        tools::tool::{PendingCall, ToolCaller},
    },
    verbs::questions::{Humans, Outcome, progress_text},
};
use common::json::page::JsonPage;

/// How long a call of a client that takes tasks waits before it becomes one.
const BEFORE_TASK: Duration = Duration::from_secs(2);
/// Bytes of a record from which on an answer reserves bytes before it is written.
const LARGE_BYTES_MIN: usize = 32 * 1024;

/// A call that waits.
pub struct Wait {
    pub caller: ToolCaller,
    pub to: ReplyTo,
    /// Notified when the broker stops.
    shutdown: Rc<Notify>,
    started: Instant,
    longest: Duration,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The question has ended.
    Closed,
    /// The time is over.
    TimeOut,
    /// The broker stops.
    Stopping,
}

impl Wait {
    /// A call that waits so long at most, from now on.
    pub fn new(caller: &ToolCaller, to: &ReplyTo, longest: Duration) -> Self {
        Self {
            caller: caller.for_later(),
            to: to.clone(),
            shutdown: Rc::default(),
            started: Instant::now(),
            longest,
        }
    }

    /// The call that runs `answer`.
    pub fn into_call(
        self,
        answer: impl AsyncFnOnce(&Self) -> Result<ToolResult, BrokerError> + 'static,
    ) -> PendingCall {
        let shutdown = Rc::clone(&self.shutdown);
        let mut call = PendingCall::new(async move { answer(&self).await });
        call.shutdown = Some(shutdown);
        call
    }

    /// Waits for the end of a question, and answers with it or with where the question is then. A client that takes tasks
    /// gets a task when that takes long. `content` is that of a question to which the client of the caller may answer.
    pub async fn answer_of(
        &self,
        question: Arc<Question>,
        content: Option<Arc<QuestionContent>>,
    ) -> Result<ToolResult, BrokerError> {
        let becomes_task = self.to.takes_tasks && self.longest > BEFORE_TASK;
        let longest = if becomes_task { BEFORE_TASK } else { self.longest };
        let (question, end) = self.until_end(question, longest, content).await?;
        if becomes_task && end == WaitEnd::TimeOut {
            let task = question_tasks::created_result(&question, &self.progress(&question).await);
            return Ok(ToolResult::of_form(task, ResultForm::Whole));
        }
        self.result_of(&question).await
    }

    /// Waits for the end of a question and reports progress. Returns it as it is then.
    pub async fn until_end(
        &self,
        mut question: Arc<Question>,
        longest: Duration,
        content: Option<Arc<QuestionContent>>,
    ) -> Result<(Arc<Question>, WaitEnd), BrokerError> {
        let left = || longest.saturating_sub(self.started.elapsed());
        let by_client = match content.filter(|_| question.is_open() && !left().is_zero()) {
            Some(content) => self.ask_client(&question, content).await,
            None => None,
        };
        let mut by_client = pin!(OptionFuture::from(by_client));
        let mut is_client_asked = true;
        let every = self.caller.context.service.progress_interval;
        let mut ticks = interval_at(Instant::now() + every, every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut watch = self.caller.project().watch_question(&question);
        let mut over = pin!(sleep(left()));
        loop {
            if !question.is_open() {
                return Ok((question, WaitEnd::Closed));
            }
            if left().is_zero() {
                return Ok((question, WaitEnd::TimeOut));
            }
            self.report(&question).await;
            tokio::select! {
                changed = watch.changed() => question = changed?,
                () = &mut over => question = watch.read().await?,
                _ = ticks.tick() => self.stay_present(),
                () = self.shutdown.notified() => return Ok((question, WaitEnd::Stopping)),
                // It changes the question, which the watch sees.
                _ = &mut by_client, if is_client_asked => is_client_asked = false,
            }
        }
    }

    /// A caller without a connection is present as long as its call waits: the call ends with its request.
    fn stay_present(&self) {
        let context = &self.caller.context;
        if context.kind == PeerKind::Stateless {
            let presence = self.caller.project().settings().presence;
            context
                .binding
                .with_member(|member| member.touch(presence, clock::now()));
        }
    }

    /// Says how far the question is, if the caller asked for progress.
    async fn report(&self, question: &Question) {
        if self.to.progress.is_none() {
            return;
        }
        let text = self.progress(question).await;
        let waited = self.started.elapsed().as_secs_f64();
        self.to
            .notify_progress(&self.caller.context.outbox, waited, None, Some(&text));
    }

    async fn progress(&self, question: &Question) -> String {
        progress_text(
            question,
            self.caller.project().queue_position(question.id),
            self.humans().await,
        )
    }

    /// The people at the desk. None where the desk cannot tell.
    pub async fn humans(&self) -> Humans {
        let desk = self.caller.project().desk().await;
        desk.map_or_else(|_| Humans::default(), |desk| Humans::of(&desk))
    }

    /// The result about one question. When it has ended, the answer replaces the message about it.
    async fn result_of(&self, question: &Arc<Question>) -> Result<ToolResult, BrokerError> {
        let humans = if question.is_open() {
            self.humans().await
        } else {
            Humans::default()
        };
        let bytes = question.stored_len();
        if bytes >= LARGE_BYTES_MIN {
            self.caller.reservation().budget().reserve(bytes).await;
        }
        let mut result = ToolResult::from(self.outcome(question, humans));
        result.notices = self.notices_of(question);
        Ok(result)
    }

    /// The message about the end of a question, which an answer hands over that tells it.
    pub fn notices_of(&self, question: &Arc<Question>) -> Option<PendingNotices> {
        let member = self.caller.session.as_ref()?;
        PendingNotices::of(self.caller.project(), member, [question])
    }

    fn outcome(&self, question: &Arc<Question>, humans: Humans) -> Value {
        let question = &*self.caller.project().opened(question);
        let outcome = Outcome {
            question,
            position: self.caller.project().queue_position(question.id),
            humans,
            waited: self.started.elapsed().min(self.longest),
        };
        outcome.to_json()
    }

    /// The questions of the session that are open or unread, once one has ended or the time is over.
    pub async fn answers_of_all(&self) -> Result<ToolResult, BrokerError> {
        let member = Arc::clone(self.caller.session()?);
        let project = self.caller.project();
        let left = || self.longest.saturating_sub(self.started.elapsed());
        let mut watches: Vec<QuestionWatch<'_>> = Vec::new();
        loop {
            let questions = project.open_questions_of(&member).await?;
            let has_ended = questions.iter().any(|question| !question.is_open());
            if has_ended || questions.is_empty() || left().is_zero() {
                let humans = self.humans().await;
                let room = self.caller.reservation().budget();
                room.reserve(PAGE_BYTES_MAX).await;
                return Ok(answers_page(&self.caller, &questions, |question| {
                    self.outcome(question, humans)
                }));
            }
            watches.retain(|watch| questions.iter().any(|question| question.id == watch.id()));
            for question in &questions {
                if !watches.iter().any(|watch| watch.id() == question.id) {
                    watches.push(project.watch_question(question));
                }
            }
            let pause = self.caller.context.service.progress_interval.min(left());
            tokio::select! {
                _ = select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed()))) => {}
                () = sleep(pause) => self.stay_present(),
                () = self.shutdown.notified() => {
                    let humans = self.humans().await;
                    return Ok(answers_page(&self.caller, &questions, |question| self.outcome(question, humans)));
                }
            }
        }
    }
}

/// A question that the caller has asked. One of another caller is answered like one that does not exist.
pub async fn own_question(caller: &ToolCaller, id: QuestionId) -> Result<Arc<Question>, BrokerError> {
    let reader = Reader::Asker(caller.owner());
    caller.project().question_record(id, &reader).await
}

/// The answers to all questions of one session that are open or unread.
///
/// Questions that have ended come first: a page that is full hands over a part of them, and the next call the rest.
fn answers_page(
    caller: &ToolCaller,
    questions: &[Arc<Question>],
    view: impl Fn(&Arc<Question>) -> Value,
) -> ToolResult {
    let (open, ended): (Vec<_>, Vec<_>) = questions.iter().partition(|question| question.is_open());
    let mut page = JsonPage::new("questions");
    let mut shown = Vec::new();
    for question in ended.iter().chain(&open) {
        if !page.push(&view(question)) {
            break;
        }
        shown.push(*question);
    }
    let summary = match (open.len(), ended.len()) {
        (0, 0) => "No question of yours is open, and no answer is unread.".to_owned(),
        (open, ended) => format!("{ended} ended and unread, {open} pending."),
    };
    let mut result = ToolResult::from(page.with("summary", &summary).finish(None::<&str>));
    result.notices = caller
        .session
        .as_ref()
        .and_then(|member| PendingNotices::of(caller.project(), member, shown));
    result
}
