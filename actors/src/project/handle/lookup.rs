//! What a name or an id of a session means, and answers that another replica may know.
//!
//! On a shared store, the directory and the catalog of a replica may be behind. A question that names something unknown
//! waits until this replica knows every change that was made before it, and is then answered again. Callers see a future;
//! they need not know about replicas.

use std::{collections::BTreeSet, sync::Arc};

use futures_util::{
    FutureExt,
    future::{LocalBoxFuture, try_join_all},
};

use super::ProjectHandle;
use crate::{
    directory::CONVERSATION_PREFIX,
    model::{BrokerError, MissingSession, Owner, ProjectId, SessionId, SessionName},
    session::Member,
};

/// An answer that is known at this replica, or will be after a wait.
pub enum Lookup<T> {
    /// The answer.
    Ready(Result<T, BrokerError>),
    /// Something is unknown at this replica, and another may know it.
    Pending(PendingLookup<T>),
}

/// A wait for an answer. It is exact for everything that any replica did before the question.
pub struct PendingLookup<T> {
    unknown: BrokerError,
    later: LocalBoxFuture<'static, LateAnswer<T>>,
}

/// The answer after a wait.
pub struct LateAnswer<T> {
    /// The answer. `unavailable` if the store could not be read, so that it is open whether the thing exists.
    pub result: Result<T, BrokerError>,
    /// The work of checking the payload during the wait, in nanoseconds; 0 where none is checked.
    pub work: u64,
}

impl<T: 'static> Lookup<T> {
    /// An answer that `later` finds.
    pub(super) fn later(later: impl Future<Output = LateAnswer<T>> + 'static) -> Self {
        Self::Pending(PendingLookup {
            unknown: BrokerError::unavailable(),
            later: later.boxed_local(),
        })
    }

    /// The answer as it is known at this replica now, without a wait.
    ///
    /// # Errors
    /// Those of the question; for something unknown its error, although another replica may know it.
    pub fn known(self) -> Result<T, BrokerError> {
        match self {
            Self::Ready(result) => result,
            Self::Pending(PendingLookup { unknown, .. }) => Err(unknown),
        }
    }

    /// Returns an error that is known already, instead of the lookup.
    ///
    /// # Errors
    /// Those of the question.
    pub fn fail_fast(self) -> Result<Self, BrokerError> {
        match self {
            Self::Ready(Err(error)) => Err(error),
            lookup => Ok(lookup),
        }
    }

    /// The answer, after a wait if necessary.
    ///
    /// # Errors
    /// Those of the question, and `unavailable` if the store could not be read.
    pub async fn answer(self) -> Result<T, BrokerError> {
        match self {
            Self::Ready(result) => result,
            Self::Pending(lookup) => lookup.answer().await,
        }
    }

    /// Applies `f` to the answer: now, or after the wait.
    pub fn map<U: 'static>(self, f: impl FnOnce(LateAnswer<T>) -> Result<U, BrokerError> + 'static) -> Lookup<U> {
        match self {
            Self::Ready(result) => Lookup::Ready(f(LateAnswer { result, work: 0 })),
            Self::Pending(lookup) => Lookup::Pending(lookup.map(f)),
        }
    }
}

impl<T: 'static> PendingLookup<T> {
    /// Waits for the answer.
    pub fn answer(self) -> impl Future<Output = Result<T, BrokerError>> + 'static {
        self.later.map(|late| late.result)
    }

    /// Applies `f` to the answer after the wait.
    pub fn map<U: 'static>(
        self,
        f: impl FnOnce(LateAnswer<T>) -> Result<U, BrokerError> + 'static,
    ) -> PendingLookup<U> {
        let later = self.later.map(|late| LateAnswer {
            result: f(late),
            work: 0,
        });
        PendingLookup {
            unknown: self.unknown,
            later: later.boxed_local(),
        }
    }
}

impl ProjectHandle {
    // What a name means

    /// The session that an id addresses: all incarnations share one inbox.
    pub fn session(&self, id: SessionId) -> Option<Arc<Member>> {
        let directory = &self.0.directory;
        directory.by_id(id).or_else(|| directory.by_id(id.durable()))
    }

    /// The session of this id, for its owner to act as it.
    ///
    /// # Errors
    /// `session_not_found` for a session that does not exist or belongs to another owner; `session_taken_over` when
    /// another caller has registered the session since this id was issued; `invalid_argument` for the id that lists show.
    pub fn own_session(&self, id: SessionId, owner: &Owner) -> Lookup<Arc<Member>> {
        match self.known_own_session(id, owner) {
            Err(_) if self.is_shared() => {
                let owner = owner.clone();
                self.look_up(move |project| project.known_own_session(id, &owner))
            }
            known => Lookup::Ready(known),
        }
    }

    fn known_own_session(&self, id: SessionId, owner: &Owner) -> Result<Arc<Member>, BrokerError> {
        let member = self
            .session(id)
            .filter(|member| member.record.owner == *owner)
            .ok_or_else(|| MissingSession::own(&id.to_string()))?;
        match &member.record {
            record if record.acts_by(id) => Ok(member),
            record if record.id == id => Err(BrokerError::listed_session_id("session_id")),
            _ => Err(BrokerError::SessionTakenOver),
        }
    }

    /// The session that an address means: an id, a name, an alias, `conversation:` and the id of a
    /// conversation, or one of them and `@` with this project.
    ///
    /// # Errors
    /// `session_not_found`, with similar names: every caller of this may list the sessions of the project.
    pub fn resolve(&self, address: &str) -> Lookup<Arc<Member>> {
        match self.known_session(address) {
            Err(_) if self.is_shared() => {
                let address = address.to_owned();
                self.look_up(move |project| project.known_session(&address))
            }
            known => Lookup::Ready(known),
        }
    }

    pub(super) fn known_session(&self, address: &str) -> Result<Arc<Member>, BrokerError> {
        self.find(address).ok_or_else(|| {
            let similar = self.0.directory.similar(self.strip_own_project(address));
            MissingSession::other(address, similar).into()
        })
    }

    pub(super) fn find(&self, address: &str) -> Option<Arc<Member>> {
        let address = self.strip_own_project(address);
        self.0
            .directory
            .by_address(address)
            .or_else(|| self.session(SessionId::parse(address)?))
    }

    /// The name of an agent that is still to come, if an address can be one and no session has it here.
    pub(super) fn unknown_name(&self, address: &str) -> Option<SessionName> {
        let name = SessionName::parse(self.strip_own_project(address)).ok()?;
        let is_conversation = name.as_str().starts_with(CONVERSATION_PREFIX);
        (!is_conversation && self.find(address).is_none()).then_some(name)
    }

    /// The address without this project behind it.
    fn strip_own_project<'a>(&self, address: &'a str) -> &'a str {
        match address.rsplit_once('@') {
            Some((local, project)) if project == self.0.id.as_str() => local,
            _ => address,
        }
    }

    // What another replica may know

    /// The answer of `find`. If it is an error about something unknown, another replica may know it.
    pub fn look_up<T: 'static>(&self, find: impl Fn(&Self) -> Result<T, BrokerError> + 'static) -> Lookup<T> {
        match find(self) {
            Err(unknown) if self.may_be_elsewhere(&unknown) => {
                let again = move |project: &Self, current: Result<(), BrokerError>| LateAnswer {
                    result: after_wait(find(project), current),
                    work: 0,
                };
                self.once_current(unknown, BTreeSet::new(), again)
            }
            result => Lookup::Ready(result),
        }
    }

    /// As [`Self::look_up`], where `find` returns `None` for something unknown.
    pub fn look_up_optional<T: 'static>(&self, find: impl Fn() -> Option<T> + 'static) -> Lookup<Option<T>> {
        match find() {
            None if self.is_shared() => {
                let again = move |_: &Self, current: Result<(), BrokerError>| {
                    let found = find();
                    let result = if found.is_some() { Ok(()) } else { current };
                    LateAnswer {
                        result: result.map(|()| found),
                        work: 0,
                    }
                };
                self.once_current(BrokerError::unavailable(), BTreeSet::new(), again)
            }
            found => Lookup::Ready(Ok(found)),
        }
    }

    /// Whether other replicas work on the same project, so that the directory may be outdated.
    pub fn is_shared(&self) -> bool {
        self.0.store.is_shared()
    }

    /// Waits until this replica knows every change that any replica made before the call.
    ///
    /// # Errors
    /// `unavailable` when the store cannot tell, or takes too long.
    pub async fn wait_until_current(&self) -> Result<(), BrokerError> {
        self.0.view.until_current().await
    }

    /// As [`Self::wait_until_current`], for this project and for those of the others to which it may send.
    ///
    /// # Errors
    /// As of [`Self::wait_until_current`].
    pub async fn wait_until_current_with(&self, others: &BTreeSet<ProjectId>) -> Result<(), BrokerError> {
        let limits = self.limits();
        let granted = others.iter().filter(|id| limits.record.grants.contains_key(*id));
        let remote: Vec<_> = granted.filter_map(|id| self.other_project(id)).collect();
        try_join_all(remote.iter().chain([self]).map(Self::wait_until_current)).await?;
        Ok(())
    }

    /// Whether another replica may know what this error calls unknown.
    pub(super) fn may_be_elsewhere(&self, error: &BrokerError) -> bool {
        self.is_shared() && is_about_unknown(error)
    }

    /// Calls `again` once this replica is current, for this project and for `others`. It gets the error if that cannot
    /// be reached.
    pub(super) fn once_current<T: 'static>(
        &self,
        unknown: BrokerError,
        others: BTreeSet<ProjectId>,
        again: impl FnOnce(&Self, Result<(), BrokerError>) -> LateAnswer<T> + 'static,
    ) -> Lookup<T> {
        let project = self.clone();
        let later = async move {
            let current = project.wait_until_current_with(&others).await;
            again(&project, current)
        };
        Lookup::Pending(PendingLookup {
            unknown,
            later: later.boxed_local(),
        })
    }
}

/// The result of asking again. Something that is still unknown may exist if the replica could not become current.
pub(super) fn after_wait<T>(
    result: Result<T, BrokerError>,
    current: Result<(), BrokerError>,
) -> Result<T, BrokerError> {
    match (result, current) {
        (Err(error), Err(unavailable)) if is_about_unknown(&error) => Err(unavailable),
        (result, _) => result,
    }
}

fn is_about_unknown(error: &BrokerError) -> bool {
    matches!(
        error,
        // The newest id of a session that was taken over may be known elsewhere.
        BrokerError::SessionNotFound(_)
            | BrokerError::SessionTakenOver
            | BrokerError::ProtocolNotFound { .. }
            | BrokerError::IncompatibleProtocol { .. }
            | BrokerError::NoLens { .. }
            // Another lens may transform the payload.
            | BrokerError::TransformFailed(_)
    )
}
