//! A memory storage whose operations, and those of its stores, pass hooks. A hook can delay, fail or replace an
//! operation; each operation has one of its own, which by default calls [`Hooks::run`].

use std::{sync::Arc, time::Duration};

use actors::{
    clock::Now,
    model::{
        AuditEntry, AuditQuery, DeadLetterReason, Message, MessageId, ProjectEvent, ProjectId, ProjectRecord, Question,
        QuestionContent, QuestionId, RecipientStatus, SessionId, SessionName, SessionRecord, ShownYap, Transformed,
        Yap,
    },
    storage::{
        Acknowledge, Acknowledged, Append, Appended, Asked, Before, Claim, ClaimEpoch, ClaimStore, Claimed,
        DeadLetterPage, DeadLetterQuery, DeadLetterStore, Depth, DraftPut, EventPage, EventQuery, EventStore,
        HeldClaim, InboxStore, KeyReservation, Lease, Op, Peeked, PushStore, PutOutcome, PutSession, QuestionStore,
        RecordPut, RecordStore, Redriven, Release, Released, ReleasedYaps, ReplicatedStorage, ReplicatedStore, Roster,
        SendResult, SessionKey, SessionStore, Storage, StorageHealth, Store, Swept, Table, TrackingStore, Unreported,
        Unswept, Updated, Usage, YapHeld, memory::MemoryStorage,
    },
};
use uuid::Uuid;

/// The storage.
#[derive(Default)]
pub struct Intercept<H>(pub H);

/// The store of one project.
pub struct InterceptStore<H>(pub H);

/// What happens to an operation that has no hook of its own: by default it reaches the inner storage or store.
pub trait Hooks: Send + Sync + 'static {
    type Inner: ?Sized;

    fn inner(&self) -> &Arc<Self::Inner>;

    fn run<T: Send + 'static>(&self, operation: impl FnOnce(&Self::Inner) -> Op<T> + Send + 'static) -> Op<T> {
        operation(self.inner())
    }
}

/// Declares a trait with a hook for each operation, and implements the traits of the storage contract by calling them.
macro_rules! hooks {
    (
        trait $hooks:ident of $inner:ty { $($own:tt)* }
        $(impl $contract:ident for $intercept:ident {
            { $($other:tt)* }
            $(fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $answer:ty;)*
        })*
    ) => {
        pub trait $hooks: Hooks<Inner = $inner> {
            $($own)*

            $($(fn $name(&self, $($argument: $type),*) -> Op<$answer> {
                self.run(move |inner| inner.$name($($argument),*))
            })*)*
        }

        $(impl<H: $hooks> $contract for $intercept<H> {
            $($other)*

            $(fn $name(&self, $($argument: $type),*) -> Op<$answer> {
                self.0.$name($($argument),*)
            })*
        })*
    };
}

hooks! {
    trait StorageHooks of MemoryStorage {
        const NAME: &'static str;

        fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
            self.inner().open(project)
        }

        fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
            None
        }
    }

    impl Storage for Intercept {
        {
            fn name(&self) -> &'static str {
                H::NAME
            }

            fn durability(&self) -> String {
                self.0.inner().durability()
            }

            fn health(&self) -> StorageHealth {
                StorageHealth::Healthy
            }

            fn replicated(&self) -> Option<&dyn ReplicatedStorage> {
                self.0.replicated()
            }

            fn open(&self, project: &ProjectId) -> Arc<dyn Store> {
                self.0.open(project)
            }
        }
        fn projects() -> Vec<Arc<ProjectRecord>>;
        fn project(project: ProjectId) -> Option<Arc<ProjectRecord>>;
        fn put_project(record: Arc<ProjectRecord>) -> bool;
        fn clear_project(project: ProjectId) -> ();
        fn append_audit(entry: AuditEntry) -> ();
        fn audit(query: AuditQuery) -> Vec<Arc<AuditEntry>>;
    }
}

hooks! {
    trait StoreHooks of dyn Store {
        fn replicated(&self) -> Option<&dyn ReplicatedStore> {
            None
        }
    }

    impl Store for InterceptStore {
        {
            fn is_synchronous(&self) -> bool {
                false
            }

            fn replicated(&self) -> Option<&dyn ReplicatedStore> {
                self.0.replicated()
            }

            fn push(&self) -> Option<&dyn PushStore> {
                None
            }

            fn unswept(&self) -> Arc<Unswept> {
                self.0.inner().unswept()
            }
        }
        fn usage() -> Usage;
    }

    impl SessionStore for InterceptStore {
        {}
        fn put_session(record: SessionRecord, condition: PutSession) -> PutOutcome;
        fn sessions() -> Roster;
        fn find_session(wanted: SessionKey) -> Option<SessionRecord>;
        fn remove_session(
            session: SessionId,
            reason: DeadLetterReason,
            silent_for: Option<Duration>,
            now: Now,
        ) -> Option<usize>;
        fn claim_session(session: SessionId, claim: Claim, delivery_limit: u32, now: Now) -> Claimed;
    }

    impl InboxStore for InterceptStore {
        {}
        fn append(batch: Vec<Append>, now: Now) -> Vec<Appended>;
        fn lease(session: SessionId, by: Option<Claim>, limit: usize, bytes_max: usize, now: Now) -> Lease;
        fn acknowledge(session: SessionId, which: Acknowledge, now: Now) -> Acknowledged;
        fn release(session: SessionId, which: Release, delivery_limit: u32, now: Now) -> Released;
        fn depth(session: SessionId) -> Depth;
        fn peek(session: SessionId, limit: usize, bytes_max: usize) -> Peeked;
        fn sweep(now: Now) -> Swept;
    }

    impl TrackingStore for InterceptStore {
        {}
        fn update_send_result(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn message_statuses(messages: Vec<MessageId>, now: Now) -> Vec<Option<Vec<RecipientStatus>>>;
        fn note_transformed(session: SessionId, messages: Vec<(MessageId, Arc<Transformed>)>) -> ();
        fn messages(messages: Vec<MessageId>) -> Vec<Option<Arc<Message>>>;
        fn put_cross_project_target(message: MessageId, target: ProjectId) -> ();
        fn cross_project_target(message: MessageId) -> Option<ProjectId>;
        fn cross_project_targets() -> Vec<ProjectId>;
        fn reserve_key(sender: SessionId, key: String, target: ProjectId, now: Now) -> KeyReservation;
        fn complete_reservation(sender: SessionId, key: String, outcome: SendResult) -> ();
        fn cancel_reservation(sender: SessionId, key: String) -> ();
    }

    impl DeadLetterStore for InterceptStore {
        {}
        fn dead_letters(query: DeadLetterQuery) -> DeadLetterPage;
        fn redrive(
            messages: Vec<MessageId>,
            recipient: Option<SessionId>,
            queue_capacity: usize,
            now: Now,
        ) -> Redriven;
        fn dead_letter_count() -> usize;
        fn unreported() -> Unreported;
        fn mark_reported(until: u64) -> ();
    }

    impl QuestionStore for InterceptStore {
        {}
        fn ask(question: Arc<Question>, content: Arc<QuestionContent>, now: Now) -> Asked;
        fn update_question(
            question: Arc<Question>,
            event: Option<ProjectEvent>,
            notice: Option<Append>,
            now: Now,
        ) -> Updated;
        fn questions(ids: Vec<QuestionId>) -> Vec<Option<Arc<Question>>>;
        fn question_content(id: QuestionId) -> Option<Arc<QuestionContent>>;
        fn open_questions() -> Vec<Arc<Question>>;
        fn question_page(before: Option<QuestionId>, limit: usize) -> Vec<Arc<Question>>;
        fn remove_question(id: QuestionId) -> bool;
        fn put_draft(id: QuestionId, human: SessionName, text: String) -> DraftPut;
        fn draft(id: QuestionId, human: SessionName) -> String;
        fn hold_yap(yap: Arc<Yap>, now: Now) -> YapHeld;
        fn release_yaps(delay: Duration, now: Now) -> ReleasedYaps;
        fn yaps(after: Option<u64>, limit: usize) -> Vec<Arc<ShownYap>>;
    }

    impl RecordStore for InterceptStore {
        {}
        fn get(table: Table, key: Vec<u8>) -> Option<Arc<str>>;
        fn keys(table: Table, prefix: Vec<u8>) -> Vec<Vec<u8>>;
        fn list(table: Table, prefix: Vec<u8>) -> Vec<(Vec<u8>, Arc<str>)>;
        fn put_if(table: Table, key: Vec<u8>, before: Before, text: Option<Arc<str>>) -> RecordPut;
    }

    impl ClaimStore for InterceptStore {
        {}
        fn claim(
            thing: Arc<str>,
            holder: Uuid,
            ttl: Duration,
            note: Arc<str>,
            now: Now,
        ) -> Option<ClaimEpoch>;
        fn settle(epoch: ClaimEpoch) -> bool;
        fn end_silent(now: Now) -> Vec<HeldClaim>;
        fn claims(prefix: Arc<str>, now: Now) -> Vec<HeldClaim>;
    }

    impl EventStore for InterceptStore {
        {
            fn record(&self, event: ProjectEvent, now: Now) {
                self.0.inner().record(event, now);
            }
        }
        fn events(query: EventQuery) -> EventPage;
    }
}
