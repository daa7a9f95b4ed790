//! Which openings an instance gets until it speaks, what follows when it ends before, and how it is asked to end.

use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering},
};

use actors::gateway::{InstanceEvent, LaunchOrder, LinkEnded};
use tokio::sync::Notify;

use super::probe::Opening;

/// How an attempt to speak with an instance has ended.
pub struct Attempt {
    /// The handshake was completed.
    pub was_agreed: bool,
    /// The instance may have read the opening.
    pub has_read: bool,
    pub ended: Arc<LinkEnded>,
}

/// Runs an instance with the opening for its era. An old server ends when the first message is not `initialize`: where the
/// era is not known, it is tried again with that alone. One that ends with either opening is started once an attempt, with
/// the two in turn. `attempt` runs it to its end, or says what has happened before.
pub async fn try_openings(
    order: &LaunchOrder,
    ending: &Ending,
    attempt: impl AsyncFn(Opening) -> Result<Attempt, InstanceEvent>,
) -> InstanceEvent {
    let failed = order.failed_openings.load(Ordering::Relaxed);
    let mut opening = match Opening::from(order.known_era) {
        Opening::Both if failed % 2 == 1 => Opening::Legacy,
        opening => opening,
    };
    loop {
        let Attempt {
            was_agreed,
            has_read,
            ended,
        } = match attempt(opening).await {
            Ok(attempt) => attempt,
            Err(event) => return event,
        };
        if was_agreed {
            order.failed_openings.store(0, Ordering::Relaxed);
        } else if opening == Opening::Both && failed == 0 && has_read && !ending.is_asked() {
            opening = Opening::Legacy;
            continue;
        } else if has_read {
            order.failed_openings.fetch_add(1, Ordering::Relaxed);
        }
        return InstanceEvent::Ended(ended);
    }
}

/// Whether the instance is to be ended.
#[derive(Default)]
pub struct Ending {
    is_asked: Cell<bool>,
    wake: Notify,
}

impl Ending {
    /// Asks for the end.
    pub fn ask(&self) {
        self.is_asked.set(true);
        self.wake.notify_one();
    }

    /// Whether the end was asked for.
    pub fn is_asked(&self) -> bool {
        self.is_asked.get()
    }

    /// Waits until the end is asked for.
    pub async fn asked(&self) {
        while !self.is_asked.get() {
            self.wake.notified().await;
        }
    }
}
