//! Room for the answers of calls that are under way.
//!
//! A call whose answer may be long reserves a page of it before it starts, on its connection and in the budget of its
//! project. Messages are read for it when they have room ([`ReadRoom`]): a page, or all of a single message that is larger.
//! What waits for messages gives its room back until there are some.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    pin::Pin,
    rc::Rc,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use actors::{model::PAGE_BYTES_MAX, session::ReadBudget};

use super::context::PeerContext;
use crate::budget::Reservation;

/// Bytes of an answer for each byte of its object, which is in it as `structuredContent` and, at worst with an escape for
/// each of its bytes, as text.
const ANSWER_PER_OBJECT: usize = 3;
/// Bytes of the answer that holds the longest page.
pub const PAGE_ANSWER_BYTES_MAX: usize = ANSWER_PER_OBJECT * PAGE_BYTES_MAX;

/// The room of one call, given back when it is dropped; in the budget when what is read for it has come, too.
pub struct AnswerReservation {
    context: Rc<PeerContext>,
    reserved: Cell<usize>,
    hold: RefCell<Option<Arc<AnswerBudget>>>,
}

impl AnswerReservation {
    /// Nothing is reserved yet.
    pub fn new(home: &Rc<PeerContext>) -> Rc<Self> {
        Rc::new(Self {
            context: Rc::clone(home),
            reserved: Cell::new(0),
            hold: RefCell::default(),
        })
    }

    /// A page is reserved on the connection: it takes up no further call meanwhile when too many are.
    pub fn reserve_page(&self) {
        self.context
            .reserved_answer_bytes
            .set(self.context.reserved_answer_bytes.get() + PAGE_ANSWER_BYTES_MAX);
        self.reserved.set(self.reserved.get() + PAGE_ANSWER_BYTES_MAX);
    }

    /// Waits for room for a page in the budget.
    pub async fn wait_for_page(&self) {
        self.budget().reserve(PAGE_BYTES_MAX).await;
    }

    /// The room in the budget of the project.
    pub fn budget(&self) -> Arc<AnswerBudget> {
        let mut hold = self.hold.borrow_mut();
        let hold = hold.get_or_insert_with(|| {
            let hold = Reservation::new(&self.context.service.outbound, self.context.project.id());
            Arc::new(AnswerBudget(Mutex::new(hold)))
        });
        Arc::clone(hold)
    }

    /// The call waits for what may come late: others of the connection are taken up meanwhile.
    pub fn release_page(&self) {
        let reserved = self.reserved.take();
        if reserved > 0 {
            self.context
                .reserved_answer_bytes
                .set(self.context.reserved_answer_bytes.get() - reserved);
            self.context.wake();
        }
    }
}

impl Drop for AnswerReservation {
    fn drop(&mut self) {
        self.release_page();
    }
}

/// What a call holds of the budget of answers.
pub struct AnswerBudget(Mutex<Reservation>);

impl AnswerBudget {
    fn hold(&self) -> MutexGuard<'_, Reservation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadBudget for AnswerBudget {
    fn try_reserve(&self, bytes: usize) -> bool {
        self.hold().try_grow_to(answer_bytes(bytes))
    }

    fn reserve(&self, bytes: usize) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        let bytes = answer_bytes(bytes);
        Box::pin(async move {
            {
                let mut hold = self.hold();
                if bytes > hold.bytes() {
                    hold.set_bytes(0);
                }
            }
            let waiting = QueueGuard(self);
            poll_fn(|cx| waiting.0.hold().poll_grow_to(bytes, cx)).await;
        })
    }

    fn release(&self) {
        self.hold().set_bytes(0);
    }
}

/// Gives its place in the queue up when it is no longer waited for.
struct QueueGuard<'a>(&'a AnswerBudget);

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.0.hold().cancel_wait();
    }
}

const fn answer_bytes(object_len: usize) -> usize {
    object_len.saturating_mul(ANSWER_PER_OBJECT)
}
