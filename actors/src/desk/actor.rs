//! The desk's actor: carries out what the state of the desk plans, and keeps it current.
//!
//! Its tasks sleep until something changes or a deadline comes. Without a console and without a deadline they sleep as
//! long as nothing happens.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Context, Supervised, fut::wrap_future};
use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::{
    changes::{Attempt, NoticeFrom, QuestionChanges, until},
    shared::Todo,
    state::{Effect, Plan},
};
use crate::{
    clock::{millis, now},
    model::{ASKER_GONE, ActorKind, BrokerError, ConsoleId, ProjectEvent, ProjectId, QuestionId, SessionId, ShownYap},
    storage::{SessionKey, StoreError, YAPS_MAX, YapHeld},
    supervise::{self, ActorMetrics, Address, RestartPolicy},
};

/// How often replicas tell each other their consoles.
const EXCHANGE_INTERVAL: Duration = Duration::from_millis(400);
/// How long the desk waits when the store fails.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Operations of the store under way at the same time.
const CONCURRENT_OPS_MAX: usize = 64;
/// The longest sleep before a deadline: the wall clock may be set meanwhile.
const SLEEP_MAX: Duration = Duration::from_secs(300);

/// The desk of one project.
pub struct Desk {
    questions: Arc<QuestionChanges>,
    metrics: Arc<ActorMetrics>,
}

/// What the last exchange has said of the own consoles.
#[derive(Default)]
struct Published {
    consoles: Vec<(ConsoleId, bool, bool)>,
    at_ms: u64,
}

impl Desk {
    /// Starts the desk of a project. `on_give_up` runs if it panics too often.
    pub(crate) fn start(
        project: &ProjectId,
        questions: &Arc<QuestionChanges>,
        restarts: RestartPolicy,
        on_give_up: impl FnOnce() + 'static,
    ) -> Address<Self> {
        let metrics = ActorMetrics::new("desk", project.as_str());
        supervise::start(Arc::clone(&metrics), restarts, on_give_up, |_| Self {
            questions: Arc::clone(questions),
            metrics,
        })
    }
}

impl Actor for Desk {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        self.questions.shared().reload();
        let questions = Arc::clone(&self.questions);
        let run = async move { questions.keep_questions().await };
        ctx.spawn(wrap_future(run).map(|(), desk: &mut Self, ctx| {
            // The project has ended.
            desk.metrics.mark_finished();
            ctx.stop();
        }));
        let yaps = Arc::clone(&self.questions);
        ctx.spawn(wrap_future(async move { yaps.keep_yaps().await }));
        for target in self.questions.shared().settings.targets.iter().cloned() {
            let questions = Arc::clone(&self.questions);
            ctx.spawn(wrap_future(async move { questions.keep_target(target).await }));
        }
    }
}

impl Supervised for Desk {
    fn restarting(&mut self, _: &mut Context<Self>) {
        let event = ProjectEvent::restarted(ActorKind::Desk);
        self.questions.store().record(event, now());
    }
}

crate::supervise::panics!(Desk);

/// The tasks of the actor.
impl QuestionChanges {
    /// Keeps offers, claims and expiries current until the project ends.
    async fn keep_questions(&self) {
        let mut published = Published::default();
        while !self.shared().is_closed() {
            let next = self.round(&mut published).await;
            match next {
                Ok(Some(at_ms)) => {
                    let pause = until(at_ms, now()).min(SLEEP_MAX);
                    let _ = timeout(pause, self.shared().changed()).await;
                }
                Ok(None) => self.shared().changed().await,
                Err(StoreError::RolledBack) => {
                    // The project is opened again from what the store has.
                    let _ = timeout(RETRY_AFTER, self.shared().changed()).await;
                }
                Err(error) => {
                    tracing::warn!(%error, "the desk cannot reach the store; retrying");
                    tokio::time::sleep(RETRY_AFTER).await;
                }
            }
        }
    }

    /// Does everything that can be done now. Returns when to look again.
    async fn round(&self, published: &mut Published) -> Result<Option<u64>, StoreError> {
        loop {
            let todo = self.shared().take_todo();
            if let Err((todo, error)) = self.catch_up(todo).await {
                self.shared().put_back(todo);
                return Err(error);
            }
            let exchange_ms = self.exchange(published).await?;
            let now = now();
            let Plan { effects, next_ms } = self.shared().lock().state.plan(now);
            self.shared().publish_summary(now);
            if effects.is_empty() {
                return Ok([next_ms, exchange_ms].into_iter().flatten().min());
            }
            if !self.carry_out(effects).await? {
                // Others change the same questions: their records come.
                return Ok(Some(now.mono_after(Duration::from_millis(50))));
            }
            if self.shared().is_closed() {
                return Ok(None);
            }
        }
    }

    /// Reads what may have changed. On an error it returns what is left.
    async fn catch_up(&self, todo: Todo) -> Result<(), (Todo, StoreError)> {
        let Todo {
            mut questions,
            askers_gone,
            answers_read,
            reload,
        } = todo;
        let left = |questions, askers_gone, reload| Todo {
            questions,
            askers_gone,
            answers_read: answers_read.clone(),
            reload,
        };
        let mut gone = askers_gone.clone();
        if reload {
            match self.load(&mut questions).await {
                Ok(without_asker) => gone.extend(without_asker),
                Err(error) => return Err((left(questions, askers_gone, true), error)),
            }
        }
        if !questions.is_empty() {
            let ids: Vec<_> = questions.iter().copied().collect();
            match self.store().questions(ids.clone()).await {
                Ok(read) => {
                    let now = now();
                    for (id, question) in ids.into_iter().zip(read) {
                        match question {
                            Some(question) => drop(self.shared().publish(&question, now)),
                            None => self.shared().forget(id),
                        }
                    }
                }
                Err(error) => return Err((left(questions, gone, false), error)),
            }
        }
        for session in gone.clone() {
            if let Err(error) = self.cancel_questions_of(session).await {
                return Err((left(BTreeSet::new(), gone, false), error));
            }
            gone.remove(&session);
        }
        if let Err(error) = self.delete_answers(&answers_read).await {
            return Err((left(BTreeSet::new(), BTreeSet::new(), false), error));
        }
        Ok(())
    }

    /// Deletes the answers to sensitive questions that their askers have.
    async fn delete_answers(&self, answers_read: &BTreeSet<QuestionId>) -> Result<(), StoreError> {
        let ids: Vec<_> = answers_read.iter().copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        for question in self.store().questions(ids).await?.into_iter().flatten() {
            let deleted = question.answer_deleted(now());
            self.store_once(&question, deleted, NoticeFrom::None).await?;
        }
        Ok(())
    }

    /// Reads all open questions. Adds those to `questions` that are to be read one by one, and returns the askers that have
    /// ended.
    async fn load(&self, questions: &mut BTreeSet<QuestionId>) -> Result<Vec<SessionId>, StoreError> {
        let asked = now();
        let open = self.store().open_questions().await?;
        let askers: BTreeSet<_> = open.iter().map(|question| question.asker.session).collect();
        questions.extend(self.shared().replace(open, asked, now()));
        let unknown = askers
            .into_iter()
            .filter(|session| self.directory().by_id(*session).is_none());
        let found = stream::iter(unknown).map(|session| async move {
            let found = self.store().find_session(SessionKey::Id(session)).await?;
            Ok::<_, StoreError>(found.is_none().then_some(session))
        });
        let found: Vec<_> = found.buffer_unordered(CONCURRENT_OPS_MAX).collect().await;
        let ended: Result<Vec<_>, _> = found.into_iter().collect();
        Ok(ended?.into_iter().flatten().collect())
    }

    async fn cancel_questions_of(&self, session: SessionId) -> Result<(), StoreError> {
        for id in self.shared().questions_of(session) {
            let cancelled = self.change(id, NoticeFrom::None, |question, now| {
                Ok(question.cancelled(None, Some(ASKER_GONE.to_owned()), now)?)
            });
            // Any other error says that it is closed or forgotten already.
            if let Err(BrokerError::Unavailable { .. } | BrokerError::StorageFull) = cancelled.await {
                return Err(StoreError::Unreachable("a question could not be cancelled".to_owned()));
            }
        }
        Ok(())
    }

    /// Tells other replicas the consoles of this one, and learns theirs. Returns when to do so again.
    async fn exchange(&self, published: &mut Published) -> Result<Option<u64>, StoreError> {
        if !self.store().is_shared() {
            return Ok(None);
        }
        let begun = now();
        let own = self.shared().lock().state.own_records(begun);
        let consoles: Vec<_> = own
            .iter()
            .map(|console| (console.id, console.is_paused, console.is_away))
            .collect();
        if consoles.is_empty() && published.consoles.is_empty() {
            return Ok(None);
        }
        let next_ms = published.at_ms + millis(EXCHANGE_INTERVAL);
        if consoles == published.consoles && begun.mono_ms < next_ms {
            return Ok(Some(next_ms));
        }
        let all = self.exchange_consoles(&own).await?;
        self.shared().lock().state.exchanged(&own, all, begun, now());
        published.at_ms = begun.mono_ms;
        let is_last = consoles.is_empty();
        published.consoles = consoles;
        Ok((!is_last).then(|| begun.mono_after(EXCHANGE_INTERVAL)))
    }

    /// Carries out a plan. Returns whether one of its effects was stored, or the record of a question has changed.
    async fn carry_out(&self, effects: Vec<Effect>) -> Result<bool, StoreError> {
        let done = stream::iter(effects).map(|effect| self.carry_out_one(effect));
        let done: Vec<_> = done.buffered(CONCURRENT_OPS_MAX).collect().await;
        let mut has_moved = false;
        for result in done {
            has_moved |= result?.is_some();
        }
        Ok(has_moved)
    }

    async fn carry_out_one(&self, effect: Effect) -> Result<Option<Attempt>, StoreError> {
        let now = now();
        let (question, next) = match effect {
            Effect::Offer {
                question,
                console,
                human,
            } => {
                let next = question.offered(console, &human, now);
                (question, next)
            }
            Effect::TakeBack { question, console } => {
                let next = question.taken_back(console);
                (question, next)
            }
            Effect::EndClaim(question) => {
                let next = question.claim_ended(now);
                (question, next)
            }
            Effect::MoveClaim {
                question,
                human,
                console,
            } => {
                let next = question.claim_moved(&human, console);
                (question, next)
            }
            Effect::Expire(question) => {
                let next = question.expired(now);
                (question, next)
            }
            Effect::WarnOfExpiry(question) => {
                let next = question.expiring(now);
                (question, next)
            }
        };
        self.store_once(&question, next, NoticeFrom::Broker).await
    }

    /// Gives yaps their place when their time comes, until the project ends.
    async fn keep_yaps(&self) {
        // Yaps that were held when the process ended are due at once.
        let mut next_ms = Some(0);
        while !self.shared().is_closed() {
            match next_ms {
                Some(at_ms) if at_ms <= now().mono_ms => {}
                Some(at_ms) => drop(timeout(until(at_ms, now()), self.shared().yaps_changed()).await),
                None => self.shared().yaps_changed().await,
            }
            next_ms = match self.release_yaps(next_ms).await {
                Ok(next_ms) => next_ms,
                Err(error) => {
                    tracing::warn!(%error, "yaps cannot be released; retrying");
                    Some(now().mono_after(RETRY_AFTER))
                }
            };
        }
    }

    /// Releases what is due. Returns when to look again.
    async fn release_yaps(&self, due_ms: Option<u64>) -> Result<Option<u64>, StoreError> {
        let store = self.store();
        if self.shared().last_yap().is_none() {
            let last = store.yaps(None, 1).await?;
            self.shared().begin_yaps(last.last().map_or(0, |yap| yap.seq));
        }
        let (folded, folded_ms) = self.shared().take_folded(now());
        let mut folded = folded.into_iter();
        while let Some(yap) = folded.next() {
            let held = store.hold_yap(Arc::new(yap.clone()), now()).await;
            match held {
                Ok(YapHeld::Held) => self.shared().yap_held(self.shared().settings.yap_delay, now()),
                Ok(YapHeld::Late) => self.shared().yap_held(Duration::ZERO, now()),
                // They are shown later: their senders know that they are kept.
                Ok(YapHeld::Full) => self.shared().fold_again(yap, now()),
                Err(error) => {
                    self.shared().fold_again(yap, now());
                    folded.for_each(|yap| self.shared().fold_again(yap, now()));
                    return Err(error);
                }
            }
        }
        let due_ms = [due_ms, self.shared().take_yaps_due()].into_iter().flatten().min();
        let mut next_ms = due_ms;
        if due_ms.is_some_and(|at| at <= now().mono_ms) {
            let released = store.release_yaps(self.shared().settings.yap_delay, now()).await?;
            next_ms = released.next_in.map(|pause| now().mono_after(pause));
            self.show(&released.released).await?;
        }
        if self.shared().take_yaps_behind() {
            self.show_missing().await?;
        }
        Ok([next_ms, folded_ms].into_iter().flatten().min())
    }

    async fn show(&self, released: &[Arc<ShownYap>]) -> Result<(), StoreError> {
        if self.shared().show_yaps(released, false) {
            Ok(())
        } else {
            // Other replicas have released some in between.
            self.show_missing().await
        }
    }

    async fn show_missing(&self) -> Result<(), StoreError> {
        let missing = self.store().yaps(self.shared().last_yap(), YAPS_MAX).await?;
        self.shared().show_yaps(&missing, true);
        Ok(())
    }
}
