//! Reserves memory for the answers of running calls.
//!
//! A call whose answer may be long reserves a page before it starts, on its connection and in the budget of its
//! project. Messages are read from the store once they have room ([`ReadBudget`]): a page, or a whole message that is
//! larger. A call that waits for messages releases its page until some arrive.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
};

use actors::{model::PAGE_BYTES_MAX, session::ReadBudget};

use super::{
    calls::{Resource, Share},
    context::PeerContext,
};
use crate::budget::{AnswerBudget, Reservation};

/// Bytes of an answer per byte of its object: the object is in it as `structuredContent`, and as text with, at worst,
/// an escape for each byte.
const ANSWER_PER_OBJECT: usize = 3;
/// Bytes of the answer with the longest page.
pub const PAGE_ANSWER_BYTES_MAX: usize = ANSWER_PER_OBJECT * PAGE_BYTES_MAX;

/// The reservation of one call. Dropping it releases the page on the connection; the budget is released when the reader
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
