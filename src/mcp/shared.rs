//! What the calls of a connection have in common, and what outlives the turn that began them.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, VecDeque},
    future::Future,
    panic::AssertUnwindSafe,
    rc::Rc,
    sync::Arc,
};

use actors::{
    model::BrokerError,
    project::{ProjectHandle, Registration},
    session::{Connection, Member, ReceiveCall},
};
use futures_util::FutureExt;
use tokio::task::AbortHandle;

use super::{
    Limits, Outbox,
    reply::{Answer, ReplyTo, error_object, write_tool_result},
    rpc::{self, INTERNAL_ERROR, RpcError},
    subscriptions::Subscriptions,
    version::PushSettings,
};

/// Calls of one connection that may be under way beyond the turn that brought them.
const CALLS_LEN_MAX: usize = 256;
/// Calls of `receive_messages` that can still be cancelled after they were answered.
const TAKINGS_LEN_MAX: usize = 16;

/// What `initialize` agreed.
#[derive(Debug)]
pub struct Legacy {
    pub version: &'static str,
    pub push: Option<PushSettings>,
}

/// A call of `receive_messages` and whose inbox it is about.
pub struct Taking {
    pub member: Arc<Member>,
    pub call: ReceiveCall,
}

/// What calls that outlive their turn share with the peer.
pub struct Shared {
    pub project: ProjectHandle,
    pub outbox: Arc<Outbox>,
    pub limits: Limits,
    pub session: RefCell<Option<Arc<Member>>>,
    pub legacy: RefCell<Option<Legacy>>,
    pub subscriptions: RefCell<Subscriptions>,
    /// The session said goodbye on this connection: none is made for it again unasked.
    pub said_goodbye: Cell<bool>,
    calls: RefCell<HashMap<Rc<str>, AbortHandle>>,
    /// The last calls that took messages out of an inbox, by the ids of their requests, under way or answered.
    takings: RefCell<VecDeque<(Rc<str>, Taking)>>,
    exclusive: Cell<bool>,
}

impl Shared {
    pub fn new(project: ProjectHandle, outbox: Arc<Outbox>, limits: Limits) -> Rc<Self> {
        Rc::new(Self {
            project,
            outbox,
            limits,
            session: RefCell::default(),
            legacy: RefCell::default(),
            subscriptions: RefCell::default(),
            said_goodbye: Cell::default(),
            calls: RefCell::default(),
            takings: RefCell::default(),
            exclusive: Cell::default(),
        })
    }

    /// Whether a call is under way that no frame may overtake.
    pub fn is_exclusive(&self) -> bool {
        self.exclusive.get()
    }

    pub fn set_exclusive(&self, exclusive: bool) {
        self.exclusive.set(exclusive);
    }

    /// The connection is over: calls are given up, and what they took for other sessions than its own waits again.
    pub fn give_up_calls(&self) {
        for (_, call) in self.calls.borrow_mut().drain() {
            call.abort();
        }
        for (_, Taking { member, call }) in self.takings.borrow_mut().drain(..) {
            self.project.give_back(&member, &call);
        }
    }

    /// Runs a call beside the turn. It can be cancelled by the id of its request, and answers -32603 if it panics.
    pub fn spawn(self: &Rc<Self>, id: Rc<str>, call: impl Future<Output = ()> + 'static) {
        let shared = Rc::clone(self);
        let key = id.clone();
        let mut calls = self.calls.borrow_mut();
        let task = actix_rt::spawn(async move {
            if AssertUnwindSafe(call).catch_unwind().await.is_err() {
                let mut out = Vec::new();
                rpc::write_error(&mut out, Some(&key), &RpcError::new(INTERNAL_ERROR, "Internal error"));
                shared.outbox.send(&out);
            }
            shared.calls.borrow_mut().remove(&key);
        });
        calls.insert(id, task.abort_handle());
    }

    /// Holds on to what a call takes, in case it is cancelled.
    pub fn remember(&self, id: Rc<str>, taking: Taking) {
        let mut takings = self.takings.borrow_mut();
        if takings.len() == TAKINGS_LEN_MAX {
            takings.pop_front();
        }
        takings.push_back((id, taking));
    }

    /// A call is cancelled: what it took waits again, even when the answer is on its way. Who cancels does not look at
    /// an answer that crosses the cancellation (2025-11-25 and 2026-07-28, cancellation).
    pub fn give_back(&self, id: &str) {
        let mut takings = self.takings.borrow_mut();
        if let Some(at) = takings.iter().rposition(|(known, _)| &**known == id)
            && let Some((_, Taking { member, call })) = takings.remove(at)
        {
            self.project.give_back(&member, &call);
        }
    }

    pub fn has_room_for_calls(&self) -> bool {
        self.calls.borrow().len() < CALLS_LEN_MAX
    }

    /// Gives a call up; nothing is answered to it. False when it is not known, or no longer.
    pub fn cancel(&self, id: &str) -> bool {
        let call = self.calls.borrow_mut().remove(id);
        call.inspect(AbortHandle::abort).is_some()
    }

    /// Answers a `tools/call`.
    pub fn answer(&self, to: &ReplyTo, result: Result<Answer, BrokerError>) {
        match result {
            Ok(Answer(object)) => self.tool_result(to, &object, false),
            Err(error) => self.refuse(to, &error),
        }
    }

    /// Answers a `tools/call` that failed inside the tool.
    pub fn refuse(&self, to: &ReplyTo, error: &BrokerError) {
        let Answer(object) = error_object(error).into();
        self.tool_result(to, &object, true);
    }

    fn tool_result(&self, to: &ReplyTo, object: &[u8], is_error: bool) {
        let mut out = Vec::with_capacity(object.len() * 2 + 256);
        write_tool_result(&mut out, to, object, is_error, self.unread());
        to.send(&self.outbox, &out);
    }

    pub fn unread(&self) -> usize {
        self.session
            .borrow()
            .as_ref()
            .map_or(0, |member| member.vitals.waiting())
    }

    /// Makes a session without a name for this connection.
    pub async fn open_session(&self) -> Result<(), BrokerError> {
        let connection = Arc::clone(&self.outbox) as _;
        let registration = Registration {
            connection: Some(connection),
            ..Registration::default()
        };
        let registered = self.project.register(registration).await?;
        self.settle_session(registered.member);
        Ok(())
    }

    /// This connection's session is that one from now on.
    pub fn settle_session(&self, member: Arc<Member>) {
        *self.session.borrow_mut() = Some(member);
        self.said_goodbye.set(false);
        self.subscriptions_changed();
    }

    /// Tells the outbox and the session what the peer wants to hear of.
    pub fn subscriptions_changed(&self) {
        let legacy_push = self.legacy.borrow().as_ref().and_then(|legacy| legacy.push);
        let wanted = self.subscriptions.borrow().wanted(legacy_push);
        let message = wanted.message(self.outbox.id());
        self.outbox.configure(wanted.push_frame, wanted.inbox_frames);
        if let Some(member) = &*self.session.borrow() {
            self.project.subscribe(member, message);
        }
    }
}
