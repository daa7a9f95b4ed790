//! What readers and the desk's actor share: the state of the desk, its feed, and the calls that wait for a question. A
//! changed record reaches all three by [`DeskShared::publish`].

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, MutexGuard},
    time::Duration,
};

use tokio::sync::{Notify, broadcast, watch};

use super::{
    ConsoleChange, DeskEvent, DeskFeed, DeskSummary, Presence, requests::FEED_LEN_MAX, state::DeskState,
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

/// The desk of a project at this replica. No store is called under its lock.
pub struct DeskShared {
    pub(super) settings: DeskSettings,
    desk: Locked<DeskData>,
    /// Wakes the task that keeps questions.
    changed: Notify,
    /// Wakes the task that keeps yaps.
    yaps_changed: Notify,
    /// Counts what may be a change of any question.
    any_change: watch::Sender<u64>,
}

/// What the lock of the desk guards.
pub(super) struct DeskData {
    pub state: DeskState,
    /// The questions that calls wait for, each with its record after the last change.
    watched: HashMap<QuestionId, watch::Sender<Option<Arc<Question>>>>,
    /// None when the project has ended.
    events: Option<broadcast::Sender<DeskEvent>>,
    yaps: Yaps,
    last_summary: Arc<DeskSummary>,
    todo: Todo,
}

#[derive(Debug, Default)]
struct Yaps {
    rates: YapRates,
    /// When yaps are to be released, on the monotonic clock.
    due_ms: Option<u64>,
    /// The last yap that the feed has shown.
    last_seq: Option<u64>,
    /// Other replicas may have released some.
    may_be_behind: bool,
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
        self.reload |= other.reload;
        if self.questions.len() > Self::QUESTIONS_MAX {
            self.questions.clear();
            self.reload = true;
        }
    }
}

impl DeskData {
    fn send(&self, event: DeskEvent) {
        if let Some(events) = &self.events {
            // Without a reader there is nothing to send.
            let _ = events.send(event);
        }
    }

    /// Shows a changed question to readers and to the calls that wait for it. The lock keeps its changes in their order.
    fn show(&self, question: &Arc<Question>) {
        self.send(DeskEvent::Question(Arc::clone(question)));
        if let Some(watched) = self.watched.get(&question.id) {
            watched.send_replace(Some(Arc::clone(question)));
        }
    }
}

impl DeskShared {
    /// The desk of a project. `is_shared` says that other replicas share its store.
    pub fn new(settings: DeskSettings, is_shared: bool) -> Arc<Self> {
        let state = DeskState::new(ReplicaId::generate(), is_shared, settings.capacity);
        Arc::new(Self {
            settings,
            desk: Locked::new(DeskData {
                state,
                watched: HashMap::new(),
                events: Some(broadcast::channel(FEED_LEN_MAX).0),
                yaps: Yaps::default(),
                last_summary: Arc::default(),
                todo: Todo::default(),
            }),
            changed: Notify::new(),
            yaps_changed: Notify::new(),
            any_change: watch::Sender::new(0),
        })
    }

    /// Settings of the desk.
    pub const fn settings(&self) -> &DeskSettings {
        &self.settings
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, DeskData> {
        self.desk.lock()
    }

    /// Tells readers of a record that the store has, if it is news. Returns whether it was.
    pub fn publish(&self, question: &Arc<Question>, now: Now) -> bool {
        // Also when it is no news here: the event log has more than before.
        self.any_change.send_modify(|count| *count += 1);
        let mut desk = self.lock();
        let is_news = desk.state.put(Arc::clone(question), now);
        if is_news {
            desk.show(question);
            drop(desk);
            self.changed.notify_one();
        }
        is_news
    }

    /// The store no longer has this question.
    pub fn forget(&self, id: QuestionId) {
        let mut desk = self.lock();
        desk.state.remove(id);
        desk.watched.remove(&id);
        drop(desk);
        self.changed.notify_one();
    }

    /// Takes over the open questions of the store, read at or after `asked`. Returns the ids of those to read one by one:
    /// those that are open here and not there, and those that calls wait for and that are not open.
    pub(super) fn replace(&self, questions: Vec<Arc<Question>>, asked: Now, now: Now) -> Vec<QuestionId> {
        self.any_change.send_modify(|count| *count += 1);
        let mut desk = self.lock();
        let (news, mut gone) = desk.state.replace(questions, asked, now);
        for question in &news {
            desk.show(question);
        }
        let not_open = |id: &&QuestionId| desk.state.question(**id).is_none();
        gone.extend(desk.watched.keys().filter(not_open));
        gone
    }

    /// The record of an open question as this replica knows it.
    pub fn known(&self, id: QuestionId) -> Option<Arc<Question>> {
        self.lock().state.question(id).cloned()
    }

    /// See [`DeskState::position`].
    pub fn position(&self, id: QuestionId) -> Option<usize> {
        self.lock().state.position(id)
    }

    /// The open questions of one session, as this replica knows them.
    pub fn questions_of(&self, asker: SessionId) -> Vec<QuestionId> {
        let desk = self.lock();
        let own = desk.state.questions();
        let own = own.filter(|question| question.asker.session == asker);
        own.map(|question| question.id).collect()
    }

    /// Open questions of this urgency, as this replica knows them.
    pub fn open_len(&self, urgency: Urgency) -> usize {
        let desk = self.lock();
        let questions = desk.state.questions();
        questions.filter(|question| question.urgency == urgency).count()
    }

    /// People with this presence at consoles of this replica.
    pub fn own_humans(&self, presence: Presence, now: Now) -> usize {
        self.lock().state.own_humans(presence, now)
    }

    /// The desk at a glance.
    pub fn summary(&self, now: Now) -> Arc<DeskSummary> {
        Arc::new(self.lock().state.summary(now))
    }

    /// Tells readers who is at the desk, if that has changed.
    pub(super) fn publish_summary(&self, now: Now) {
        let mut desk = self.lock();
        let summary = Arc::new(desk.state.summary(now));
        if desk.last_summary != summary {
            desk.last_summary = Arc::clone(&summary);
            desk.send(DeskEvent::Desk(summary));
        }
    }

    /// A feed from now on; None when the project has ended.
    pub fn feed(&self) -> Option<DeskFeed> {
        let desk = self.lock();
        desk.events.as_ref().map(|events| DeskFeed::new(events.subscribe()))
    }

    /// Connects a console. None when [`CONSOLES_MAX`] are connected.
    pub fn attach(&self, human: SessionName, roles: Vec<String>, now: Now) -> Option<ConsoleId> {
        let mut desk = self.lock();
        if desk.state.own_consoles().count() >= CONSOLES_MAX {
            return None;
        }
        let id = desk.state.attach(human, roles, now);
        drop(desk);
        self.changed.notify_one();
        Some(id)
    }

    /// A console has left.
    pub(super) fn detach(&self, console: ConsoleId) {
        self.lock().state.detach(console);
        self.changed.notify_one();
    }

    /// Changes a console of this replica. False for an unknown one.
    pub fn change_console(&self, console: ConsoleId, change: ConsoleChange, now: Now) -> bool {
        let changed = self.lock().state.change(console, change, now);
        if changed == Some(true) {
            self.changed.notify_one();
        }
        changed.is_some()
    }

    /// A person has done something: their consoles at this replica are active.
    pub fn person_active(&self, human: &SessionName, now: Now) {
        if self.lock().state.person_active(human, now) {
            self.changed.notify_one();
        }
    }

    /// The person at a console of any replica, as this one knows it.
    pub fn human_at(&self, console: ConsoleId) -> Option<SessionName> {
        self.lock().state.human_at(console).cloned()
    }

    /// The records of a question after changes that come after this call. It ends when the question is removed, or with the
    /// project.
    pub(super) fn watch(&self, id: QuestionId) -> watch::Receiver<Option<Arc<Question>>> {
        let mut desk = self.lock();
        if desk.events.is_some() {
            desk.watched.entry(id).or_default().subscribe()
        } else {
            watch::channel(None).1
        }
    }

    /// One of the receivers of [`Self::watch`] is dropped next.
    pub(super) fn unwatch(&self, id: QuestionId) {
        let mut desk = self.lock();
        if desk.watched.get(&id).is_some_and(|sender| sender.receiver_count() <= 1) {
            desk.watched.remove(&id);
        }
    }

    /// Gives the yap back if its session is within its rate; else it is folded.
    pub fn admit_yap(&self, yap: Yap, now: Now) -> Option<Yap> {
        let admitted = self.lock().yaps.rates.admit(yap, now);
        if admitted.is_none() {
            self.yaps_changed.notify_one();
        }
        admitted
    }

    /// Folded yaps that may be shown, and when the next may be.
    pub(super) fn take_folded(&self, now: Now) -> (Vec<Yap>, Option<u64>) {
        self.lock().yaps.rates.take_due(now)
    }

    /// A folded yap that could not be held waits for the next turn of its session.
    pub(super) fn fold_again(&self, yap: Yap, now: Now) {
        self.lock().yaps.rates.fold_again(yap, now);
    }

    /// A yap is held: its place is decided after this time.
    pub fn yap_held(&self, delay: Duration, now: Now) {
        let at = now.mono_after(delay);
        let due_ms = &mut self.lock().yaps.due_ms;
        *due_ms = Some(due_ms.map_or(at, |due| due.min(at)));
        self.yaps_changed.notify_one();
    }

    /// When yaps are to be released, on the monotonic clock; it is forgotten by this call.
    pub(super) fn take_yaps_due(&self) -> Option<u64> {
        self.lock().yaps.due_ms.take()
    }

    /// The feed shows the yaps behind this one.
    pub(super) fn begin_yaps(&self, last_seq: u64) {
        self.lock().yaps.last_seq.get_or_insert(last_seq);
    }

    /// The last yap that the feed has shown.
    pub(super) fn last_yap(&self) -> Option<u64> {
        self.lock().yaps.last_seq
    }

    /// Shows yaps to readers, in their order. Returns false, and shows none, if some before them are missing.
    pub(super) fn show_yaps(&self, shown: &[Arc<ShownYap>], may_skip: bool) -> bool {
        let mut desk = self.lock();
        let last = desk.yaps.last_seq;
        let news = shown.iter().filter(|yap| last.is_none_or(|last| yap.seq > last));
        let news: Vec<_> = news.collect();
        let (Some(first), Some(end)) = (news.first(), news.last()) else {
            return true;
        };
        if !may_skip && last.is_none_or(|last| first.seq != last + 1) {
            return false;
        }
        desk.yaps.last_seq = Some(end.seq);
        METRICS.yaps.add(news.len() as u64);
        for yap in &news {
            desk.send(DeskEvent::Yap(Arc::clone(yap)));
        }
        true
    }

    fn do_later(&self, todo: Todo) {
        self.put_back(todo);
        self.changed.notify_one();
    }

    /// What could not be read is read later.
    pub(super) fn put_back(&self, todo: Todo) {
        self.lock().todo.add(todo);
    }

    /// Has the actor read a question again: it may have changed.
    pub fn read_again(&self, id: QuestionId) {
        self.do_later(Todo {
            questions: BTreeSet::from([id]),
            ..Todo::default()
        });
    }

    /// Has the actor read all open questions and the latest yaps again: changes may have been missed.
    pub fn reload(&self) {
        self.do_later(Todo {
            reload: true,
            ..Todo::default()
        });
        self.yaps_released();
    }

    /// Another replica has released yaps.
    pub fn yaps_released(&self) {
        self.lock().yaps.may_be_behind = true;
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

    /// What is to be read.
    pub(super) fn take_todo(&self) -> Todo {
        std::mem::take(&mut self.lock().todo)
    }

    /// Whether other replicas may have released yaps since the last call.
    pub(super) fn take_yaps_behind(&self) -> bool {
        std::mem::take(&mut self.lock().yaps.may_be_behind)
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

    /// The project has ended: feeds, the calls that wait and the actor end.
    pub fn close(&self) {
        let mut desk = self.lock();
        desk.events = None;
        desk.watched.clear();
        drop(desk);
        self.look_again();
    }

    /// Whether the project has ended.
    pub fn is_closed(&self) -> bool {
        self.lock().events.is_none()
    }
}

impl std::fmt::Debug for DeskShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DeskShared").finish_non_exhaustive()
    }
}
