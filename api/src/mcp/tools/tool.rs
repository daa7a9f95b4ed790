//! What a tool is: its description, how it runs, its caller, and the memory that its answer reserves.

use std::{
    cell::{Cell, OnceCell, RefCell},
    rc::Rc,
    sync::Arc,
};

use actors::{
    model::{BrokerError, Owner, PAGE_BYTES_MAX, Scope, SessionId},
    project::{Lookup, ProjectHandle},
    session::{Member, ReadBudget},
};
use futures_util::{FutureExt, TryFutureExt, future::LocalBoxFuture};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::schema::{integer_schema, object_schema, string_schema};
use crate::{
    budget::{AnswerBudget, Reservation},
    mcp::{
        calls::{Resource, Share},
        context::PeerContext,
        pending_receive::PendingReceive,
        reply::{ReplyTo, ToolResult},
        send_reply::ToolSend,
    },
    verbs::arguments::Arguments,
};

/// A tool, as `tools/list` shows it and `tools/call` runs it.
pub struct Tool {
    /// The name in the protocol.
    pub name: &'static str,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) hints: Hints,
    /// The scope that a caller needs.
    pub required_scope: Scope,
    /// The properties and the required ones of its arguments, without `session_id`.
    pub(super) input: fn() -> (Value, &'static [&'static str]),
    /// The properties and the required ones of its result.
    pub(super) output: fn() -> (Value, &'static [&'static str]),
    /// A caller without a session gets one before the tool runs.
    pub acts_as_session: bool,
    /// Later frames of the connection wait until the call has ended.
    pub exclusive: bool,
    /// Runs it.
    pub run: RunFn,
}

/// Runs a tool for a request.
pub type RunFn = fn(&ToolCaller, Arguments<'_>, &ReplyTo) -> Result<Called, BrokerError>;

/// What a tool has made of a call.
pub enum Called {
    /// The answer.
    Answered(ToolResult),
    /// A message, which is submitted with the others of its read.
    Prepared(ToolSend),
    /// It answers later, during other calls of the connection.
    Runs(PendingCall),
    /// It needs something first, usually what another replica may know. No later frame of the connection overtakes it.
    Waits(LocalBoxFuture<'static, Result<Called, BrokerError>>),
}

impl From<ToolResult> for Called {
    fn from(result: ToolResult) -> Self {
        Self::Answered(result)
    }
}

impl From<ToolSend> for Called {
    fn from(send: ToolSend) -> Self {
        Self::Prepared(send)
    }
}

impl From<PendingCall> for Called {
    fn from(call: PendingCall) -> Self {
        Self::Runs(call)
    }
}

impl Called {
    /// A call with a short answer that comes soon.
    pub(super) fn later(
        caller: &ToolCaller,
        answer: impl AsyncFnOnce(ToolCaller) -> Result<ToolResult, BrokerError> + 'static,
    ) -> Self {
        PendingCall::new(answer(caller.for_later())).into()
    }

    /// A call that answers with a page of a list.
    pub(super) fn page(
        caller: &ToolCaller,
        answer: impl AsyncFnOnce(ToolCaller) -> Result<ToolResult, BrokerError> + 'static,
    ) -> Self {
        PendingCall::page(answer(caller.for_later())).into()
    }

    /// What comes of a lookup: now, or once it has an answer.
    ///
    /// # Errors
    /// The errors of the lookup.
    pub(super) fn once_known<T: Into<Self> + 'static>(lookup: Lookup<T>) -> Result<Self, BrokerError> {
        match lookup {
            Lookup::Ready(found) => found.map(Into::into),
            Lookup::Pending(found) => Ok(Self::Waits(found.answer().map_ok(Into::into).boxed_local())),
        }
    }
}

/// A call that answers later.
pub struct PendingCall {
    /// The answer.
    pub answer: LocalBoxFuture<'static, Result<ToolResult, BrokerError>>,
    /// Runs once the answer has been sent.
    pub after_answer: Option<LocalBoxFuture<'static, ()>>,
    /// The receive that the call makes. Its messages return to the inbox if the call is cancelled.
    pub receive: Option<PendingReceive>,
    /// The call may wait for an event: a caller that accepts tasks gets one.
    pub may_wait: bool,
    /// The answer has a page of a list, or one item that may be larger.
    pub has_page: bool,
    /// Ready when the call begins to wait for messages.
    pub wait_started: Option<LocalBoxFuture<'static, ()>>,
    /// Notified when the broker stops: the call, which waits and reports its own progress, then ends its wait.
    pub shutdown: Option<Rc<Notify>>,
}

impl PendingCall {
    /// A call with a short answer that comes soon.
    pub(super) fn new(answer: impl Future<Output = Result<ToolResult, BrokerError>> + 'static) -> Self {
        Self {
            answer: Box::pin(answer),
            after_answer: None,
            receive: None,
            may_wait: false,
            has_page: false,
            wait_started: None,
            shutdown: None,
        }
    }

    /// A call that answers with a page of a list.
    pub(super) fn page(answer: impl Future<Output = Result<ToolResult, BrokerError>> + 'static) -> Self {
        Self {
            has_page: true,
            ..Self::new(answer)
        }
    }
}

/// What a tool declares about its effects (`ToolAnnotations`).
#[derive(Clone, Copy)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the hints of the protocol, which say one thing each"
)]
pub(super) struct Hints {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    /// It reaches people, whom the broker does not know.
    open_world: bool,
}

/// Reads only.
pub(super) const READ_ONLY: Hints = Hints {
    read_only: true,
    destructive: false,
    idempotent: true,
    open_world: false,
};
/// Adds something with every call.
pub(super) const ADDITIVE: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: false,
    open_world: false,
};
/// Sets something; a repetition has no further effect.
pub(super) const IDEMPOTENT: Hints = Hints {
    read_only: false,
    destructive: false,
    idempotent: true,
    open_world: false,
};
/// Asks people, or shows them something.
pub(super) const ASKING: Hints = Hints {
    open_world: true,
    ..ADDITIVE
};
/// Removes something with every call.
pub(super) const DESTRUCTIVE: Hints = Hints {
    read_only: false,
    destructive: true,
    idempotent: false,
    open_world: false,
};

impl Tool {
    /// A fixture of the conformance suite, which lists itself.
    #[cfg(feature = "conformance-fixtures")]
    pub const fn fixture(name: &'static str) -> Self {
        Self {
            name,
            title: "",
            description: "",
            hints: READ_ONLY,
            required_scope: Scope::Observer,
            input: || (Value::Null, &[]),
            output: || (Value::Null, &[]),
            acts_as_session: false,
            exclusive: false,
            run: |_, _, _| Err(BrokerError::unavailable()),
        }
    }

    /// Whether a second call with the same arguments changes nothing that the first has not changed.
    pub fn is_repeatable(&self) -> bool {
        self.hints.read_only || self.hints.idempotent
    }

    /// The entry in `tools/list`.
    pub(super) fn describe(&self) -> Value {
        let (mut arguments, required) = (self.input)();
        arguments["session_id"] = string_schema("From register_session.");
        let Hints {
            read_only,
            destructive,
            idempotent,
            open_world,
        } = self.hints;
        let mut entry = json!({
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "inputSchema": object_schema(arguments, required),
            "outputSchema": self.output_schema(),
            "annotations": {
                "readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent,
            },
        });
        if EXACT_TEXTS.contains(&self.name)
            && let Some(entry) = entry.as_object_mut()
        {
            entry.remove("outputSchema");
        }
        if TAKES_MORE.contains(&self.name) {
            entry["inputSchema"]["additionalProperties"] = json!(true);
        }
        if open_world {
            entry["annotations"]["openWorldHint"] = json!(true);
        }
        if OFFERED_AT_ONCE.contains(&self.name) {
            entry["_meta"] = json!({"anthropic/alwaysLoad": true});
        }
        if let Some((_, hint)) = SEARCH_HINTS.iter().find(|(name, _)| *name == self.name) {
            entry["_meta"]["anthropic/searchHint"] = json!(hint);
        }
        entry
    }

    /// The schema of the result or the error object: clients check `structuredContent` against it in both cases.
    fn output_schema(&self) -> Value {
        let (mut properties, required) = (self.output)();
        properties["unread"] = integer_schema("");
        json!({
            "type": "object",
            "properties": properties,
            "anyOf": [{"required": required}, {"required": ["code", "message"]}],
        })
    }
}

/// The tools that a woken agent needs, or one that has a question. Claude Code hides the others behind a search for tools.
const OFFERED_AT_ONCE: [&str; 4] = ["register_session", "receive_messages", "send_message", "clarify"];
/// The tools that take arguments in addition to those of their schemas.
const TAKES_MORE: [&str; 1] = ["add_backend"];
/// The tools whose results are one text that a certain client reads: a client that sees an output schema wants
/// `structuredContent`.
const EXACT_TEXTS: [&str; 1] = ["permission_prompt"];
/// The words by which the search of Claude Code finds a tool.
const SEARCH_HINTS: [(&str, &str); 1] = [("clarify", "ask the human")];

/// The caller of a tool.
#[derive(Clone)]
pub struct ToolCaller {
    /// The session that the call acts as.
    pub session: Option<Arc<Member>>,
    /// What the calls of its peer share.
    pub context: Rc<PeerContext>,
    /// Created for answers that may be long.
    reservation: OnceCell<Rc<AnswerReservation>>,
}

impl ToolCaller {
    /// A caller that acts as the session of its peer.
    pub fn new(context: &Rc<PeerContext>) -> Self {
        Self {
            session: context.binding.member(),
            context: Rc::clone(context),
            reservation: OnceCell::new(),
        }
    }

    /// The caller's project.
    pub fn project(&self) -> &ProjectHandle {
        &self.context.project
    }

    /// The caller for a call that answers later: both share the reservation.
    pub(super) fn for_later(&self) -> Self {
        self.reservation();
        self.clone()
    }

    /// The reservation for the answer, empty at first.
    pub fn reservation(&self) -> &Rc<AnswerReservation> {
        self.reservation.get_or_init(|| AnswerReservation::new(&self.context))
    }

    /// Whether the caller administers its project.
    pub fn may_administer(&self) -> bool {
        self.context.identity.check_scope(Scope::Admin).is_ok()
    }

    /// The owner of what the caller makes.
    pub(super) fn owner(&self) -> &Owner {
        self.context.identity.owner()
    }

    /// The session that the caller may act as by this id, as known at this replica.
    pub fn known_session(&self, id: SessionId) -> Option<Arc<Member>> {
        let own = self.session.as_ref().filter(|own| own.record.id == id.durable());
        if let Some(own) = own {
            return Some(Arc::clone(own));
        }
        let found = self.project().own_session(id, self.context.identity.owner());
        found.known().ok()
    }

    /// Whether this session is the one that the connection acts as.
    pub(super) fn is_connection_session(&self, member: &Member) -> bool {
        self.context.binding.is_member(member)
    }

    /// The session that the call acts as.
    ///
    /// # Errors
    /// `SessionRequired` without a session, or why none could be registered implicitly.
    pub(super) fn session(&self) -> Result<&Arc<Member>, BrokerError> {
        self.session
            .as_ref()
            .ok_or_else(|| self.context.binding.error().unwrap_or(BrokerError::SessionRequired))
    }
}

/// Bytes of an answer per byte of its object: the object is in it as `structuredContent`, and as text with, at worst,
/// an escape for each byte.
const ANSWER_PER_OBJECT: usize = 3;
/// Bytes of the answer with the longest page.
pub const PAGE_ANSWER_BYTES_MAX: usize = ANSWER_PER_OBJECT * PAGE_BYTES_MAX;

/// The memory that is reserved for the answer of one call. A call whose answer may be long reserves a page before it starts, on its
/// connection and in the budget of its project. Messages are read from the store once they have room
/// ([`ReadBudget`](actors::session::ReadBudget)): a page, or a whole message that is larger. A call that waits for messages
/// releases its page until some arrive.
///
/// Dropping it releases the page on the connection; the budget is released when the reader
/// of messages is dropped, too.
pub struct AnswerReservation {
    context: Rc<PeerContext>,
    page: Cell<Option<Share>>,
    budget: RefCell<Option<Arc<AnswerBudget>>>,
}

impl AnswerReservation {
    /// An empty reservation.
    pub fn new(context: &Rc<PeerContext>) -> Rc<Self> {
        Rc::new(Self {
            context: Rc::clone(context),
            page: Cell::default(),
            budget: RefCell::default(),
        })
    }

    /// Reserves a page on the connection. A connection with too many reserved pages accepts no further frames.
    pub fn reserve_page(&self) {
        let page = self.context.calls.hold(Resource::AnswerBytes, PAGE_ANSWER_BYTES_MAX);
        self.page.set(Some(page));
    }

    /// Waits for room for a page in the budget.
    pub async fn wait_for_page(&self) {
        self.budget().reserve(PAGE_BYTES_MAX).await;
    }

    /// The share in the budget of the project.
    pub fn budget(&self) -> Arc<AnswerBudget> {
        let mut budget = self.budget.borrow_mut();
        let budget = budget.get_or_insert_with(|| {
            let reservation = Reservation::new(&self.context.service.outbound, self.context.project.id());
            Arc::new(AnswerBudget::new(reservation, ANSWER_PER_OBJECT))
        });
        Arc::clone(budget)
    }

    /// Releases the page on the connection while the call waits for messages, so that other calls run.
    pub fn release_page(&self) {
        self.page.set(None);
    }
}
