//! Sessions: register, list, connect.

use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};

use super::{Page, ProjectHandle};
use crate::{
    clock::now,
    directory::{SessionOrder, SessionQuery, SortedPage, SortedPlace},
    model::{BrokerError, ConnectionId, Owner, PresenceTimeouts, SessionId, SessionName, SessionStatus},
    project::{
        messages::{ForgetSession, Register},
        registration::{Registered, Registration},
    },
    session::{Attach, CloseReason, Connection, Detach, Disconnect, Member, Subscribe, Unwatch, Watch, Writable},
};

impl ProjectHandle {
    /// Creates a session, resumes the one that holds the name, or changes the caller's own.
    ///
    /// # Errors
    /// `forbidden` for a name of another owner, or when the project has its maximum of sessions or of bytes for their
    /// records; `unavailable`.
    pub async fn register(&self, registration: Registration) -> Result<Registered, BrokerError> {
        self.0.project.request(|reply| Register { registration, reply }).await
    }

    /// Makes a session for an agent of this name that is still to come, unless there is one. It belongs to the first caller
    /// that registers the name, counts as every session, and ends after the retention like one that has left.
    ///
    /// # Errors
    /// As [`Self::register`].
    pub async fn expect(&self, name: SessionName) -> Result<(), BrokerError> {
        let registration = Registration {
            name: Some(name),
            owner: Owner::unclaimed(),
            is_absent: true,
            ..Registration::default()
        };
        self.register(registration).await.map(|_| ())
    }

    /// The presence status of a session, now.
    pub fn status(&self, member: &Member) -> SessionStatus {
        member.status(self.0.settings.presence, now())
    }

    /// The silence after which a session counts as stale and as disconnected.
    pub fn presence_timeouts(&self) -> PresenceTimeouts {
        self.0.settings.presence
    }

    /// A page of the sessions that match.
    pub fn list_sessions(&self, query: &SessionQuery) -> Page<Arc<Member>> {
        let (items, more) = self.0.directory.list(query, now());
        Page { items, more }
    }

    /// A page of the sessions that match behind a place, in an order that the reader chooses.
    pub fn list_sorted_sessions(
        &self,
        query: &SessionQuery,
        order: SessionOrder,
        after: Option<&SortedPlace>,
    ) -> SortedPage {
        self.0.directory.sorted(query, order, after, now())
    }

    /// Updates the number of waiting messages that these sessions show. Returns false, and does nothing, where the
    /// store answers at once and the number is always current. Otherwise the number is the last answer of the store,
    /// which may be outdated by then.
    pub async fn refresh_waiting(&self, members: &[Arc<Member>]) -> bool {
        if self.0.store.is_synchronous() {
            return false;
        }
        let counts = members.iter().map(|member| {
            let begun = member.shared.begin_recount();
            let depth = self.0.store.depth(member.record.id);
            async move {
                if let Ok(depth) = depth.await {
                    member.shared.finish_recount(begun, depth.waiting);
                }
            }
        });
        join_all(counts).await;
        true
    }

    /// As [`Self::refresh_waiting`], for one session. The request starts at once, so that the store gets it with the
    /// caller's next operation. None where the number is known to be current.
    pub fn refresh_waiting_if_unknown(&self, member: &Arc<Member>) -> Option<BoxFuture<'static, ()>> {
        if self.0.store.is_synchronous() || member.shared.is_waiting_current() {
            return None;
        }
        let (project, member) = (self.clone(), Arc::clone(member));
        Some(Box::pin(async move {
            project.refresh_waiting(&[member]).await;
        }))
    }

    /// Ends the presence of the session; name and inbox stay. Returns how many messages wait.
    ///
    /// # Errors
    /// `unavailable` when the session's mailbox is full or its actor has ended.
    pub async fn disconnect(&self, member: &Member) -> Result<usize, BrokerError> {
        member.address.request(|reply| Disconnect { closes: None, reply }).await
    }

    /// As [`Self::disconnect`], by an administrator: the live connection is closed if it is at this replica. Returns
    /// whether it was, and how many messages wait.
    ///
    /// # Errors
    /// As [`Self::disconnect`].
    pub async fn close_connection(&self, member: &Member) -> Result<(bool, usize), BrokerError> {
        let was_connected = member.shared.is_connected();
        let closes = Some(CloseReason::Disconnected);
        let waiting = member.address.request(|reply| Disconnect { closes, reply }).await?;
        Ok((was_connected, waiting))
    }

    /// Ends a session for good: its connections are closed, and its messages become dead letters (`recipient_gone`).
    /// Returns their number.
    ///
    /// # Errors
    /// `unavailable`.
    pub async fn forget_session(&self, session: SessionId) -> Result<usize, BrokerError> {
        self.0.project.request(|reply| ForgetSession { session, reply }).await
    }

    /// Removes a connection that has ended. Its unacknowledged messages wait again.
    pub fn detach(&self, member: &Member, message: Detach) {
        self.tell(member, member.address.tell(message));
    }

    /// Makes this connection the session's live one; an older one is closed as taken over.
    pub fn attach(&self, member: &Member, connection: Arc<dyn Connection>) {
        self.attach_with(member, connection, false);
    }

    /// As [`Self::attach`], for a connection that was the live one before. If the session has another one by now,
    /// this one is closed as taken over.
    pub fn reattach(&self, member: &Member, connection: Arc<dyn Connection>) {
        self.attach_with(member, connection, true);
    }

    fn attach_with(&self, member: &Member, connection: Arc<dyn Connection>, reclaims: bool) {
        let attach = Attach {
            connection: Some(connection),
            named: member.record.is_durable(),
            is_reattach: reclaims,
            keeps_leases: false,
            incarnation: None,
            wake: None,
        };
        self.tell(member, member.address.tell(attach));
    }

    /// Tells `connection`, in addition to the live one, of changes of the inbox. It gets no pushed messages.
    pub fn watch(&self, member: &Member, connection: Arc<dyn Connection>) {
        let watch = Watch {
            connection: Some(connection),
        };
        self.tell(member, member.address.tell(watch));
    }

    /// Ends [`Self::watch`] for this connection.
    pub fn unwatch(&self, member: &Member, connection: ConnectionId) {
        self.tell(member, member.address.tell(Unwatch { connection }));
    }

    /// Sets what the live connection receives: changes of the inbox, pushed messages.
    pub fn subscribe(&self, member: &Member, message: Subscribe) {
        self.tell(member, member.address.tell(message));
    }

    /// Reports that the connection has room for pushed messages again.
    pub fn writable(&self, member: &Member, message: Writable) {
        self.tell(member, member.address.tell(message));
    }
}
