//! Room for the answers of calls that are under way.
//!
//! A call whose answer may be long reserves a page of it before it starts, on its connection and in the budget of its
//! project. What waits for messages gives that back until there are some; and before a single item is written that is
//! larger than a page, its call waits for room for all of it.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use actors::model::PAGE_BYTES_MAX;

use super::shared::Shared;
use crate::budget::Hold;

/// Bytes of an answer for each byte of its object, which is in it as `structuredContent` and, at worst with an escape for
/// each of its bytes, as text.
const ANSWER_PER_OBJECT: usize = 3;
/// Bytes of the answer that holds the longest page.
pub const PAGE_ANSWER_BYTES_MAX: usize = ANSWER_PER_OBJECT * PAGE_BYTES_MAX;

/// The room of one call, given back when it is dropped.
pub struct AnswerRoom {
    home: Rc<Shared>,
    reserved: Cell<usize>,
    hold: RefCell<Option<Hold>>,
}

impl AnswerRoom {
    /// Nothing is reserved yet.
    pub fn new(home: &Rc<Shared>) -> Rc<Self> {
        Rc::new(Self {
            home: Rc::clone(home),
            reserved: Cell::new(0),
            hold: RefCell::default(),
        })
    }

    /// A page is reserved on the connection: it takes up no further call meanwhile when too many are.
    pub fn reserve_page(&self) {
        self.home.reserved.set(self.home.reserved.get() + PAGE_ANSWER_BYTES_MAX);
        self.reserved.set(self.reserved.get() + PAGE_ANSWER_BYTES_MAX);
    }

    /// Waits for room for a page in the budget.
    pub async fn opens(&self) {
        self.grows(PAGE_ANSWER_BYTES_MAX).await;
    }

    /// Waits for room for an answer with an object of so many bytes. What was reserved is given up first: calls that hold
    /// on to a part while they wait for the rest would wait for one another.
    pub async fn takes(&self, object_len: usize) {
        self.grows(object_len.saturating_mul(ANSWER_PER_OBJECT)).await;
    }

    async fn grows(&self, bytes: usize) {
        let hold = self.hold.take();
        let mut hold = hold.unwrap_or_else(|| Hold::new(&self.home.service.outbound, self.home.project.id()));
        if bytes > hold.bytes() {
            hold.set(0);
            hold.grow(bytes).await;
        }
        self.hold.replace(Some(hold));
    }

    /// The call waits for what may come late: it takes no room meanwhile.
    pub fn closes(&self) {
        self.hold.take();
        let reserved = self.reserved.take();
        if reserved > 0 {
            self.home.reserved.set(self.home.reserved.get() - reserved);
            self.home.wake();
        }
    }
}

impl Drop for AnswerRoom {
    fn drop(&mut self) {
        self.closes();
    }
}
