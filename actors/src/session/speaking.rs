//! Puts leased messages into the versions that their recipient declares, before they leave for its client.
//!
//! What cannot be decided now stays leased and is tried again.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use futures_util::future::BoxFuture;

use super::{Connection, Member, ReadBudget, ReadReservation, UNRESERVED_BYTES_MAX};
use crate::{
    clock::now,
    model::{
        BrokerError, Capabilities, Message, MessageId, ProjectEvent, SessionId, TransformFailure, TransformRule,
        Transformed,
    },
    registry::{Catalog, LargeWork, LensPath, ON_WORKER_BYTES_MAX, WorkBudget},
    speech::{FORMS, Form, FormRequest, Passage, wants_complement},
    storage::{Delivery, Store, StoreError},
    trace::Attribute,
};

/// Work after which other tasks of the worker have a turn, in nanoseconds of the slowest case.
const WORK_PER_TURN: u64 = 2_000_000;
/// How often the messages of a lease are transformed while the session changes what it declares.
const TRIES_MAX: usize = 4;
/// The project of a session, as far as the versions of messages depend on it.
pub(crate) trait SpokenProject: Send + Sync {
    fn catalog(&self) -> &Catalog;
    fn store(&self) -> &Arc<dyn Store>;
    /// The session as the directory has it now.
    fn member(&self, session: SessionId) -> Option<Arc<Member>>;
    /// Other replicas change lenses.
    fn is_shared(&self) -> bool;
    /// Changes of other replicas were missed and are not read yet.
    fn is_behind(&self) -> bool;
    /// Waits until every change is known that any replica made before the call.
    fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>>;
    /// Transforms its large messages.
    fn large_transforms(&self) -> &LargeWork;
}

/// Leased messages that leave for their reader.
#[derive(Default)]
pub(crate) struct Spoken {
    /// In their order, in the versions of the session.
    pub deliveries: Vec<Delivery>,
    /// The messages that could not be transformed, each with the reason.
    pub failed: Vec<(MessageId, String)>,
    /// What the reader has no room for after these, as it was leased.
    pub rest: Vec<Delivery>,
    /// The bytes that the deliveries take beyond what was reserved for the lease.
    pub reservation: ReadReservation,
}

/// Why leased messages do not leave now.
#[derive(Debug)]
pub(crate) enum Unspoken {
    /// The lenses cannot be read.
    Unknown(StoreError),
    /// The connection has no room. It says when it may have some.
    NoRoom,
}

/// The room of a reader: bytes that are reserved, and how more are.
#[derive(Clone)]
pub(crate) enum Room {
    Connection(Arc<dyn Connection>, usize),
    Call(Arc<dyn ReadBudget>, usize),
}

/// What a session needs to put messages into its versions.
#[derive(Clone)]
pub(crate) struct Speaking {
    session: SessionId,
    project: Arc<dyn SpokenProject>,
    recent: Option<RecentPath>,
}

/// How the session got the last message, so that messages like it are not looked up.
#[derive(Clone)]
struct RecentPath {
    capabilities: Arc<Capabilities>,
    /// As [`Message::protocol_bytes`].
    protocol: Arc<[u8]>,
    /// As [`Catalog::lens_changes`] then.
    lens_changes: u64,
    /// None for one that it can read as it was sent.
    path: Option<Arc<LensPath>>,
}

/// The messages of a lease in the versions of a session, by their places in the lease.
#[derive(Default)]
struct Attempt {
    forms: Vec<(usize, Arc<Message>, Arc<Transformed>)>,
    failed: Vec<(usize, String)>,
    /// The session cannot read a message, as far as this replica knows.
    is_unreadable: bool,
    /// Messages that were looked at: the reader has no room for those after them.
    len: usize,
    /// Bytes of those that are delivered.
    bytes: usize,
}

impl Speaking {
    pub fn new(session: SessionId, project: Arc<dyn SpokenProject>) -> Self {
        Self {
            session,
            project,
            recent: None,
        }
    }

    /// Whether messages are to be translated. A project without lenses pays this branch, and for a message of a protocol
    /// without lenses one look-up. On a shared store, messages that the session cannot read may need a lens that another
    /// replica has just registered.
    pub fn is_needed(&mut self, deliveries: &[Delivery]) -> bool {
        let catalog = self.project.catalog();
        let (has_lenses, is_shared) = (catalog.has_lenses(), self.project.is_shared());
        if deliveries.is_empty() || !has_lenses && !is_shared {
            return false;
        }
        if catalog.expects_lenses() {
            return true;
        }
        let has_own = |delivery: &Delivery| {
            let protocol = delivery.message.protocol();
            protocol.is_some_and(|(name, _)| catalog.has_lenses_of(name))
        };
        if !is_shared && !deliveries.iter().any(has_own) {
            return false;
        }
        let Some(member) = self.member() else { return true };
        let capabilities = &member.record.capabilities;
        let mut messages = deliveries.iter().map(|delivery| &delivery.message);
        let is_as_sent = |message| matches!(self.path(message, capabilities), Err(Passage::AsSent));
        !capabilities.supported_protocols.is_empty() && !messages.all(is_as_sent)
    }

    /// As [`Passage::path`].
    fn path(&mut self, message: &Arc<Message>, capabilities: &Arc<Capabilities>) -> Result<Arc<LensPath>, Passage> {
        let Some(protocol) = message.protocol_bytes() else {
            return Err(Passage::AsSent);
        };
        let catalog = self.project.catalog();
        let lens_changes = catalog.lens_changes();
        let is_like_it = |recent: &&RecentPath| {
            Arc::ptr_eq(&recent.capabilities, capabilities)
                && recent.lens_changes == lens_changes
                && *recent.protocol == *protocol
        };
        if let Some(recent) = self.recent.as_ref().filter(is_like_it) {
            return recent.path.clone().ok_or(Passage::AsSent);
        }
        let found = Passage::path(catalog, capabilities, message);
        let path = match &found {
            Ok(path) => Some(Arc::clone(path)),
            // Its sender may have excluded lenses, and not that of the next message.
            Err(Passage::AsSent) if message.transform_headers().transform != TransformRule::Never => None,
            Err(_) => return found,
        };
        self.recent = Some(RecentPath {
            capabilities: Arc::clone(capabilities),
            protocol: protocol.into(),
            lens_changes,
            path,
        });
        found
    }

    /// Waits until this replica knows every change that any replica made before the call.
    pub fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>> {
        self.project.until_current()
    }

    /// Waits until the lenses that this replica has to read are read. None if it need not wait.
    pub fn until_ready(&self) -> Option<BoxFuture<'static, Result<(), StoreError>>> {
        let catalog = self.project.catalog();
        if !catalog.has_lenses() || !catalog.expects_lenses() && !self.project.is_behind() {
            return None;
        }
        let speaking = self.clone();
        Some(Box::pin(async move { speaking.become_ready().await }))
    }

    fn member(&self) -> Option<Arc<Member>> {
        self.project.member(self.session)
    }

    async fn become_ready(&self) -> Result<(), StoreError> {
        if !self.project.catalog().until_lenses_are_read().await {
            return Err(StoreError::Unreachable("the lenses cannot be read".to_owned()));
        }
        if self.project.is_behind() {
            self.become_current().await?;
        }
        Ok(())
    }

    async fn become_current(&self) -> Result<(), StoreError> {
        let current = self.project.until_current().await;
        current.map_err(|_| StoreError::Unreachable("the lenses of other replicas cannot be read".to_owned()))
    }

    /// Puts leased messages into the versions that the session declares when this ends, as many as the reader has room for.
    /// What it could not read by the lenses that are known here is decided by those of every replica.
    ///
    /// # Errors
    /// The messages stay as they are: see [`Unspoken`].
    pub async fn translate(mut self, leased: Vec<Delivery>, room: Room) -> Result<Spoken, Unspoken> {
        self.become_ready().await.map_err(Unspoken::Unknown)?;
        let mut is_current = !self.project.is_shared();
        for _ in 0..TRIES_MAX {
            let Some(member) = self.member() else {
                return Ok(Spoken {
                    deliveries: leased,
                    ..Spoken::default()
                });
            };
            let attempt = self.attempt(&member, &leased, room.bytes_max()).await;
            if !is_current && (attempt.is_unreadable || !attempt.failed.is_empty()) {
                self.become_current().await.map_err(Unspoken::Unknown)?;
                is_current = true;
                continue;
            }
            let reservation = room.reserve(attempt.bytes).await.ok_or(Unspoken::NoRoom)?;
            if self.member().is_none_or(|now| declares_the_same(&now, &member)) {
                self.note(&attempt, &leased).await;
                return Ok(attempt.into_spoken(leased, reservation));
            }
        }
        let error = "the session changes its versions while its messages are transformed";
        Err(Unspoken::Unknown(StoreError::Unreachable(error.to_owned())))
    }

    /// Keeps with the receipts, and in the event log, what the session is about to get. The delivery does not depend on it.
    /// The form of a message of one recipient is not needed for another.
    async fn note(&self, attempt: &Attempt, leased: &[Delivery]) {
        if attempt.forms.is_empty() {
            return;
        }
        let (store, now) = (self.project.store(), now());
        let mut notes = Vec::with_capacity(attempt.forms.len());
        for (at, _, transformed) in &attempt.forms {
            let Delivery { message, count } = &leased[*at];
            if message.recipient.is_some() {
                FORMS.forget(message.id);
            }
            let event = ProjectEvent::Transformed {
                message: message.id,
                session: self.session,
                delivery: *count,
                transformed: Arc::clone(transformed),
            };
            store.record(event, now);
            notes.push((message.id, Arc::clone(transformed)));
        }
        if let Err(error) = store.note_transformed(self.session, notes).await {
            tracing::warn!(session = %self.session, %error, "the receipts do not say that messages were transformed");
        }
    }

    /// Transforms messages until the reader has no room for the next one, but one at least.
    async fn attempt(&mut self, member: &Member, leased: &[Delivery], bytes_max: usize) -> Attempt {
        let mut attempt = Attempt::default();
        let capabilities = &member.record.capabilities;
        let wants_complement = wants_complement(capabilities);
        let mut work = 0;
        for (at, Delivery { message: sent, count }) in leased.iter().enumerate() {
            let passage = match self.path(sent, capabilities) {
                Ok(path) => Passage::by(path, wants_complement, sent),
                Err(passage) => passage,
            };
            let form = match passage {
                Passage::AsSent => Ok(None),
                Passage::Unreadable => {
                    attempt.is_unreadable = true;
                    Ok(None)
                }
                Passage::Kept(form) => Ok(Some(form)),
                Passage::Make(plan) => self.make(plan, sent, wants_complement, &mut work).await.map(Some),
                Passage::Fails(failure) => Err(note_of(&failure, sent)),
            };
            match form {
                Ok(form) => {
                    let made = form.and_then(|form| Some((form.of_message(sent)?, form)));
                    let bytes = made.as_ref().map_or(sent, |(message, _)| message).encoded_len(*count);
                    if attempt.bytes > 0 && attempt.bytes + bytes > bytes_max {
                        break;
                    }
                    attempt.bytes += bytes;
                    let made = made.map(|(message, form)| (at, message, Arc::clone(form.kept())));
                    attempt.forms.extend(made);
                }
                Err(reason) => attempt.failed.push((at, reason)),
            }
            attempt.len = at + 1;
            if work > WORK_PER_TURN {
                work = 0;
                tokio::task::yield_now().await;
            }
        }
        attempt
    }

    /// Transforms a message and keeps the form until it is delivered. The error is the note of the dead letter.
    async fn make(
        &self,
        plan: Arc<LensPath>,
        sent: &Arc<Message>,
        wants_complement: bool,
        work: &mut u64,
    ) -> Result<Arc<Form>, String> {
        let (catalog, message) = (self.project.catalog().clone(), Arc::clone(sent));
        let member = self.member();
        let traced = member.as_ref().map(|member| member.shared.traced());
        let mut span = traced.and_then(|traced| traced.begin_transform(sent));
        if let Some(span) = &mut span {
            span.set("messaging.message.id", Attribute::Text(sent.id.to_string()));
        }
        let make = move || {
            let budget = WorkBudget::default();
            let text = message.text().ok_or("the envelope cannot be read")?;
            let headers = message.transform_headers();
            let request = FormRequest {
                plan: &plan,
                protocol_name: text.protocol_name,
                payload: text.payload,
                rule: headers.transform,
                complement: headers.complement(),
                wants_complement,
            };
            let form = Form::make(&catalog, &request, &budget).map_err(|failure| note_of(&failure, &message))?;
            Ok((form, budget.spent()))
        };
        let made = if sent.body().len() > ON_WORKER_BYTES_MAX {
            let made = self.project.large_transforms().run(make).await;
            made.unwrap_or_else(|error| Err(error.to_string()))
        } else {
            caught(make)
        };
        if let (Some(mut span), Some(traced), Err(_)) = (span, traced, &made) {
            span.fail("transform_failed");
            drop(span);
            traced.fail_transform(sent.id, self.session);
        }
        let (form, spent) = made?;
        *work += spent;
        FORMS.keep(sent.id, sent.body().len(), Arc::clone(&form));
        Ok(form)
    }
}

impl Room {
    /// Bytes that the reader gets at once.
    fn bytes_max(&self) -> usize {
        match self {
            Self::Connection(_, reserved) => (*reserved).max(UNRESERVED_BYTES_MAX),
            Self::Call(_, reserved) => *reserved,
        }
    }

    /// Reserves what these bytes take beyond the room. None if the connection does not have it now.
    async fn reserve(&self, bytes: usize) -> Option<ReadReservation> {
        match self {
            Self::Connection(_, reserved) | Self::Call(_, reserved) if bytes <= *reserved => {}
            Self::Connection(connection, reserved) => return Arc::clone(connection).reserve(bytes - reserved),
            Self::Call(budget, _) => {
                if !budget.try_reserve(bytes) {
                    budget.reserve(bytes).await;
                }
            }
        }
        Some(ReadReservation::default())
    }
}

impl Attempt {
    /// Puts the forms in their places, and takes out what failed and what has no room.
    fn into_spoken(self, mut deliveries: Vec<Delivery>, reservation: ReadReservation) -> Spoken {
        let rest = deliveries.split_off(self.len);
        for (at, message, _) in self.forms {
            deliveries[at].message = message;
        }
        let mut failed = Vec::with_capacity(self.failed.len());
        let mut reasons = self.failed.into_iter().peekable();
        let mut at = 0..;
        deliveries.retain(|delivery| {
            let is_here = at.next();
            let reason = reasons.next_if(|(place, _)| Some(*place) == is_here);
            let is_delivered = reason.is_none();
            failed.extend(reason.map(|(_, reason)| (delivery.message.id, reason)));
            is_delivered
        });
        Spoken {
            deliveries,
            failed,
            rest,
            reservation,
        }
    }
}

/// The note of the dead letter.
fn note_of(failure: &TransformFailure, message: &Message) -> String {
    match &message.origin {
        None => failure.to_string(),
        // Its sender may not know the versions of this project.
        Some(_) => "the message could not be transformed for its recipient".to_owned(),
    }
}

/// What `make` returns. A panic is an error of this message: the session delivers its other messages.
fn caught<T>(make: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let made = catch_unwind(AssertUnwindSafe(make));
    made.unwrap_or_else(|_| Err("the transformation panicked".to_owned()))
}

/// Whether a session that registered again gets messages as before.
fn declares_the_same(now: &Arc<Member>, before: &Arc<Member>) -> bool {
    Arc::ptr_eq(now, before) || now.record.capabilities == before.record.capabilities
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use semver::Version;
    use serde_json::json;

    use super::*;
    use crate::{
        model::{Addressing, Headers, MessageIds, NewMessage, ProjectId, ProtocolName, SessionRecord},
        registry::{Lenses, Protocol, fixtures},
        storage::{Storage, memory::MemoryStorage},
    };

    struct Stub {
        catalog: Catalog,
        store: Arc<dyn Store>,
        transforms: LargeWork,
    }

    impl SpokenProject for Stub {
        fn catalog(&self) -> &Catalog {
            &self.catalog
        }

        fn store(&self) -> &Arc<dyn Store> {
            &self.store
        }

        fn member(&self, _: SessionId) -> Option<Arc<Member>> {
            None
        }

        fn is_shared(&self) -> bool {
            false
        }

        fn is_behind(&self) -> bool {
            false
        }

        fn until_current(&self) -> BoxFuture<'static, Result<(), BrokerError>> {
            Box::pin(std::future::ready(Ok(())))
        }

        fn large_transforms(&self) -> &LargeWork {
            &self.transforms
        }
    }

    fn delivery(protocol: &str) -> Delivery {
        let project = ProjectId::default_project();
        let draft = NewMessage::new(
            &project,
            &SessionRecord::unnamed(),
            Addressing::Broadcast,
            (protocol, "1.0.0"),
            "{}",
            &Headers::default(),
        );
        let message = draft.seal(MessageIds::default().next(now()), None, now(), false);
        Delivery { message, count: 1 }
    }

    fn speaking(catalog: &Catalog) -> Speaking {
        let project = Stub {
            catalog: catalog.clone(),
            store: MemoryStorage::default().open(&ProjectId::default_project()),
            transforms: LargeWork::transforms(),
        };
        Speaking::new(SessionId::generate(), Arc::new(project))
    }

    /// A lens of `job` from 1.0.0 to 2.0.0.
    fn set_lens(catalog: &Catalog) {
        let (name, schema) = (ProtocolName::parse("job").unwrap(), json!({"type": "object"}));
        let lens = fixtures::lens_between("job", json!([]), [&schema, &schema]);
        catalog.set_lenses(&name, Lenses::new(vec![lens]));
    }

    #[test]
    fn only_messages_of_protocols_with_lenses_are_translated() {
        let catalog = Catalog::default();
        let mut speaking = speaking(&catalog);
        let mut is_needed = |protocols: &[&str]| {
            let deliveries: Vec<_> = protocols.iter().map(|protocol| delivery(protocol)).collect();
            speaking.is_needed(&deliveries)
        };
        assert!(!is_needed(&["job"]));
        set_lens(&catalog);
        assert!(!is_needed(&["chat", "text"]));
        assert!(is_needed(&["chat", "job"]));
        let expected = catalog.expect_lenses();
        assert!(
            is_needed(&["chat"]),
            "another replica may have registered its first lens"
        );
        drop(expected);
        assert!(!is_needed(&["chat"]));
    }

    #[test]
    fn a_path_that_was_looked_up_holds_until_lenses_or_capabilities_change() {
        let (catalog, message) = (Catalog::default(), delivery("job").message);
        let record = fixtures::protocol_record("job", "1.0.0", json!({}));
        catalog.insert(Protocol::compile(Arc::new(record)).unwrap());
        set_lens(&catalog);
        let declares = |version| {
            let declared = BTreeMap::from([(ProtocolName::parse("job").unwrap(), BTreeSet::from([version]))]);
            Arc::new(Capabilities {
                supported_protocols: declared,
                ..Capabilities::default()
            })
        };
        let (newer, same) = (declares(Version::new(2, 0, 0)), declares(Version::new(1, 0, 0)));
        let mut speaking = speaking(&catalog);
        let mut path = |capabilities| speaking.path(&message, capabilities);
        let first = path(&newer).unwrap();
        assert!(Arc::ptr_eq(&first, &path(&newer).unwrap()));
        assert!(matches!(path(&same), Err(Passage::AsSent)));
        assert!(matches!(path(&same), Err(Passage::AsSent)));
        assert!(path(&newer).is_ok());
        catalog.set_lenses(&ProtocolName::parse("job").unwrap(), Lenses::default());
        assert!(matches!(path(&newer), Err(Passage::Unreadable)));
        set_lens(&catalog);
        assert!(!Arc::ptr_eq(&first, &path(&newer).unwrap()));
    }

    #[test]
    fn a_panic_is_an_error_of_its_message() {
        assert_eq!(caught(|| Ok(1)), Ok(1));
        let panicked: Result<(), _> = caught(|| panic!("a defect"));
        assert_eq!(panicked, Err("the transformation panicked".to_owned()));
    }
}
