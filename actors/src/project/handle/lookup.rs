//! Answers that another replica may know.
//!
//! On a shared store, the directory and the catalog of a replica may be behind. A question that names something unknown
//! waits until this replica knows every change that was made before it, and is then answered again. Callers see a future;
//! they need not know about replicas.

use std::collections::BTreeSet;

use futures_util::{FutureExt, future::LocalBoxFuture};

use super::ProjectHandle;
use crate::model::{BrokerError, ProjectId};

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
