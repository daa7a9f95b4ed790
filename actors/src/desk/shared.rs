//! What readers and the desk's actor share: the state of the desk, its feed, and the calls that wait for a question.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{
        Arc, MutexGuard,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Notify, broadcast, watch};

use super::{
    ConsoleChange, DeskEvent, DeskFeed, DeskSummary, Presence, feed::FEED_LEN_MAX, state::DeskState,
    yap_rates::YapRates,
};
use crate::{
    clock::Now,
    locked::Locked,
    metrics::METRICS,
    model::{ConsoleId, Question, QuestionId, ReplicaId, SessionId, SessionName, ShownYap, Urgency, Yap},
    policy::DeskSettings,
};

/// Consoles of one project at one replica.
pub const CONSOLES_MAX: usize = 200;

/// The desk of a project at this replica. No store is called under its locks.
pub struct DeskShared {
    pub(super) settings: DeskSettings,
    state: Locked<DeskState>,
    consoles: AtomicUsize,
    /// The questions that calls wait for. The value counts changes.
    watched: Locked<HashMap<QuestionId, watch::Sender<u64>>>,
    /// None when the project has ended.
    events: Locked<Option<broadcast::Sender<DeskEvent>>>,
    yaps: Locked<Yaps>,
    last_summary: Locked<Arc<DeskSummary>>,
    /// Wakes the actor.
    changed: Notify,
    yaps_changed: Notify,
    /// Counts what may be a change of any question.
    any_change: watch::Sender<u64>,
    is_closed: AtomicBool,
    todo: Locked<Todo>,
}

#[derive(Debug, Default)]
struct Yaps {
    rates: YapRates,
    /// When yaps are to be released, on the monotonic clock.
    due_ms: Option<u64>,
    /// The last yap that the feed has shown.
    last_seq: Option<u64>,
}

/// What the actor is to read again from the store.
#[derive(Debug, Default)]
pub(super) struct Todo {
    /// Questions that may have changed.
    pub questions: BTreeSet<QuestionId>,
    /// Sessions that have ended: their open questions are cancelled.
    pub askers_gone: BTreeSet<SessionId>,
    /// Sensitive questions whose askers have the answer: it is deleted.
    pub answers_read: BTreeSet<QuestionId>,
    /// Yaps may have been released by other replicas.
    pub yaps: bool,
    /// All open questions.
    pub reload: bool,
}

impl Todo {
    /// Questions that are read one by one. If more may have changed, all open ones are read.
    const QUESTIONS_MAX: usize = 1_024;

    /// Adds what another one has.
    pub fn add(&mut self, mut other: Self) {
        self.questions.append(&mut other.questions);
        self.askers_gone.append(&mut other.askers_gone);
        self.answers_read.append(&mut other.answers_read);
        self.yaps |= other.yaps;
        self.reload |= other.reload;
        if self.questions.len() > Self::QUESTIONS_MAX {
            self.questions.clear();
            self.reload = true;
        }
    }
}

/// A call that waits for changes of a question.
pub struct QuestionWatch<'a> {
    shared: &'a DeskShared,
    id: QuestionId,
    changes: watch::Receiver<u64>,
}

impl DeskShared {
    /// Of a project whose store is shared with other replicas, or is not.
    pub fn new(settings: DeskSettings, is_shared: bool) -> Arc<Self> {
        let state = DeskState::new(ReplicaId::generate(), is_shared, settings.capacity);
        Arc::new(Self {
            settings,
            state: Locked::new(state),
            consoles: AtomicUsize::new(0),
            watched: Locked::default(),
            events: Locked::new(Some(broadcast::channel(FEED_LEN_MAX).0)),
            yaps: Locked::default(),
            last_summary: Locked::default(),
            changed: Notify::new(),
            yaps_changed: Notify::new(),
            any_change: watch::Sender::new(0),
            is_closed: AtomicBool::new(false),
            todo: Locked::default(),
        })
    }

    /// Settings of the desk.
    pub const fn settings(&self) -> &DeskSettings {
        &self.settings
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, DeskState> {
        self.state.lock()
    }

    /// Tells readers of a record that the store has, if it is news. Returns whether it was.
    pub fn publish(&self, question: &Arc<Question>, now: Now) -> bool {
        // Also when it is no news here: the event log has more than before.
        self.any_change.send_modify(|count| *count += 1);
        let mut state = self.state();
        let is_news = state.put(Arc::clone(question), now);
        if is_news {
            // Under the lock, so that the feed has the changes of a question in their order.
            self.send(DeskEvent::Question(Arc::clone(question)));
        }
        drop(state);
        if is_news {
            self.notify_watchers(question.id);
            self.changed.notify_one();
        }
        is_news
    }

    /// The store no longer has this question.
    pub fn forget(&self, id: QuestionId) {
        self.state().remove(id);
        self.notify_watchers(id);
        self.changed.notify_one();
    }

    /// Takes over the open questions of the store, read at or after `asked`. Returns those that were news, and the ids of
    /// those that are open here and no longer there. Every call that waits for a question reads it again.
    pub(super) fn replace(
        &self,
        questions: Vec<Arc<Question>>,
        asked: Now,
        now: Now,
    ) -> (Vec<Arc<Question>>, Vec<QuestionId>) {
        self.any_change.send_modify(|count| *count += 1);
        let mut state = self.state();
        let (news, gone) = state.replace(questions, asked, now);
        for question in &news {
            self.send(DeskEvent::Question(Arc::clone(question)));
        }
        drop(state);
        self.notify_all_watchers();
        (news, gone)
    }

    /// The record of an open question as this replica knows it.
    pub fn known(&self, id: QuestionId) -> Option<Arc<Question>> {
        self.state().question(id).cloned()
    }

    /// See [`DeskState::position`].
    pub fn position(&self, id: QuestionId) -> Option<usize> {
        self.state().position(id)
    }

    /// The open questions of one session, as this replica knows them.
    pub fn questions_of(&self, asker: SessionId) -> Vec<QuestionId> {
        let state = self.state();
        let own = state.questions().filter(|question| question.asker.session == asker);
        own.map(|question| question.id).collect()
    }

    /// Open questions of this urgency, as this replica knows them.
    pub fn open_len(&self, urgency: Urgency) -> usize {
        self.state()
            .questions()
            .filter(|question| question.urgency == urgency)
            .count()
    }

    /// People with this presence at consoles of this replica.
    pub fn own_humans(&self, presence: Presence, now: Now) -> usize {
        self.state().own_humans(presence, now)
    }

    /// The desk at a glance.
    pub fn summary(&self, now: Now) -> Arc<DeskSummary> {
        Arc::new(self.state().summary(now))
    }

    /// Tells readers who is at the desk, if that has changed.
    pub(super) fn publish_summary(&self, now: Now) {
        let summary = self.summary(now);
        let mut last = self.last_summary.lock();
        if **last != *summary {
            *last = Arc::clone(&summary);
            self.send(DeskEvent::Desk(summary));
        }
    }

    fn send(&self, event: DeskEvent) {
        if let Some(events) = &*self.events.lock() {
            // Without a reader there is nothing to tell.
            let _ = events.send(event);
        }
    }

    /// A feed from now on; None when the project has ended.
    pub fn feed(&self) -> Option<DeskFeed> {
        let events = self.events.lock();
        events.as_ref().map(|events| DeskFeed::new(events.subscribe()))
    }

    /// Connects a console. None when [`CONSOLES_MAX`] are connected.
    pub fn attach(&self, human: SessionName, roles: Vec<String>, now: Now) -> Option<ConsoleId> {
        let has_room = |count: usize| (count < CONSOLES_MAX).then_some(count + 1);
        self.consoles
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, has_room)
            .ok()?;
        let id = self.state().attach(human, roles, now);
        self.changed.notify_one();
        Some(id)
    }

    /// A console has left.
    pub(super) fn detach(&self, console: ConsoleId) {
        self.state().detach(console);
        self.consoles.fetch_sub(1, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Changes a console of this replica. False for an unknown one.
    pub fn change_console(&self, console: ConsoleId, change: ConsoleChange, now: Now) -> bool {
        let changed = self.state().change(console, change, now);
        if changed == Some(true) {
            self.changed.notify_one();
        }
        changed.is_some()
    }

    /// A person has done something: their consoles at this replica are active.
    pub fn person_active(&self, human: &SessionName, now: Now) {
        if self.state().person_active(human, now) {
            self.changed.notify_one();
        }
    }

    /// The person at a console of any replica, as this one knows it.
    pub fn human_at(&self, console: ConsoleId) -> Option<SessionName> {
        self.state().human_at(console).cloned()
    }

    /// Waits for changes of a question that come after this call.
    pub fn watch(&self, id: QuestionId) -> QuestionWatch<'_> {
        let mut watched = self.watched.lock();
        let sender = watched.entry(id).or_insert_with(|| watch::channel(0).0);
        QuestionWatch {
            shared: self,
            id,
            changes: sender.subscribe(),
        }
    }

    fn notify_watchers(&self, id: QuestionId) {
        if let Some(sender) = self.watched.lock().get(&id) {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    /// Has every call that waits for a question read it again: changes may have been missed.
    pub(super) fn notify_all_watchers(&self) {
        for sender in self.watched.lock().values() {
            sender.send_modify(|changes| *changes += 1);
        }
    }

    /// Gives the yap back if its session is within its rate; else it is folded.
    pub fn admit_yap(&self, yap: Yap, now: Now) -> Option<Yap> {
        let admitted = self.yaps.lock().rates.admit(yap, now);
        if admitted.is_none() {
            self.yaps_changed.notify_one();
        }
        admitted
    }

    /// Folded yaps that may be shown, and when the next may be.
    pub(super) fn take_folded(&self, now: Now) -> (Vec<Yap>, Option<u64>) {
        self.yaps.lock().rates.take_due(now)
    }

    /// A folded yap that could not be held waits for the next turn of its session.
    pub(super) fn fold_again(&self, yap: Yap, now: Now) {
        self.yaps.lock().rates.fold_again(yap, now);
    }

    /// A yap is held: its place is decided after this time.
    pub fn yap_held(&self, delay: Duration, now: Now) {
        let at = now.mono_after(delay);
        let mut yaps = self.yaps.lock();
        yaps.due_ms = Some(yaps.due_ms.map_or(at, |due| due.min(at)));
        drop(yaps);
        self.yaps_changed.notify_one();
    }

    /// When yaps are to be released, on the monotonic clock; it is forgotten by this call.
    pub(super) fn take_yaps_due(&self) -> Option<u64> {
        self.yaps.lock().due_ms.take()
    }

    /// The feed shows the yaps behind this one.
    pub(super) fn begin_yaps(&self, last_seq: u64) {
        self.yaps.lock().last_seq.get_or_insert(last_seq);
    }

    /// The last yap that the feed has shown.
    pub(super) fn last_yap(&self) -> Option<u64> {
        self.yaps.lock().last_seq
    }

    /// Shows yaps to readers, in their order. Returns false, and shows none, if some before them are missing.
    pub(super) fn show_yaps(&self, shown: &[Arc<ShownYap>], may_skip: bool) -> bool {
        let mut yaps = self.yaps.lock();
        let last = yaps.last_seq;
        let news = shown.iter().filter(|yap| last.is_none_or(|last| yap.seq > last));
        let news: Vec<_> = news.collect();
        let (Some(first), Some(end)) = (news.first(), news.last()) else {
            return true;
        };
        if !may_skip && last.is_none_or(|last| first.seq != last + 1) {
            return false;
        }
        yaps.last_seq = Some(end.seq);
        METRICS.yaps.add(news.len() as u64);
        for yap in &news {
            self.send(DeskEvent::Yap(Arc::clone(yap)));
        }
        true
    }

    fn do_later(&self, todo: Todo) {
        self.todo.lock().add(todo);
        self.changed.notify_one();
    }

    /// Has the actor read a question again: it may have changed.
    pub fn read_again(&self, id: QuestionId) {
        self.do_later(Todo {
            questions: BTreeSet::from([id]),
            ..Todo::default()
        });
    }

    /// Has the actor read all open questions again: changes may have been missed.
    pub fn reload(&self) {
        self.do_later(Todo {
            reload: true,
            yaps: true,
            ..Todo::default()
        });
    }

    /// Another replica has released yaps.
    pub fn yaps_released(&self) {
        self.todo.lock().yaps = true;
        self.yaps_changed.notify_one();
    }

    /// A session has ended: its open questions are cancelled.
    pub fn asker_gone(&self, session: SessionId) {
        self.do_later(Todo {
            askers_gone: BTreeSet::from([session]),
            ..Todo::default()
        });
    }

    /// The asker has the answer to a sensitive question: it is deleted.
    pub fn answer_read(&self, id: QuestionId) {
        self.do_later(Todo {
            answers_read: BTreeSet::from([id]),
            ..Todo::default()
        });
    }

    /// What is to be read, except yaps.
    pub(super) fn take_todo(&self) -> Todo {
        let mut todo = self.todo.lock();
        let yaps = std::mem::take(&mut todo.yaps);
        let taken = std::mem::take(&mut *todo);
        todo.yaps = yaps;
        taken
    }

    /// What could not be read is read later.
    pub(super) fn put_back(&self, todo: Todo) {
        self.todo.lock().add(todo);
    }

    /// Whether other replicas have released yaps since the last call.
    pub(super) fn take_yaps_todo(&self) -> bool {
        std::mem::take(&mut self.todo.lock().yaps)
    }

    /// Waits until the state has changed.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until a yap is held or folded.
    pub(super) async fn yaps_changed(&self) {
        self.yaps_changed.notified().await;
    }

    /// Has the actor look again. For tests that move the clock.
    pub fn look_again(&self) {
        self.changed.notify_one();
        self.yaps_changed.notify_one();
        self.any_change.send_modify(|count| *count += 1);
    }

    /// Reports changes of any question from now on.
    pub(super) fn watch_all(&self) -> watch::Receiver<u64> {
        self.any_change.subscribe()
    }

    /// The project has ended: feeds and the actor end.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.events.lock().take();
        self.notify_all_watchers();
        self.look_again();
    }

    /// Whether the project has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

impl QuestionWatch<'_> {
    /// Waits for a change since the last call, or since the watch was made.
    pub async fn changed(&mut self) {
        // The sender lives as long as this receiver.
        let _ = self.changes.changed().await;
    }
}

impl Drop for QuestionWatch<'_> {
    fn drop(&mut self) {
        let mut watched = self.shared.watched.lock();
        if watched.get(&self.id).is_some_and(|sender| sender.receiver_count() <= 1) {
            watched.remove(&self.id);
        }
    }
}

impl std::fmt::Debug for DeskShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeskShared").finish_non_exhaustive()
    }
}
