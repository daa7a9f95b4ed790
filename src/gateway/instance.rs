//! One running instance of a backend, from its start to the report of its end.

use std::{cell::Cell, rc::Rc, sync::Arc};

use actors::{
    gateway::{InstanceEvent, LaunchOrder, LinkEnded, Report},
    model::BackendAddress,
};
use tokio::sync::Notify;

use super::{pipes, remote};

/// Runs an instance to its end, and reports what becomes of it.
pub async fn run(order: LaunchOrder, ending: Rc<Ending>) {
    let unreported = Unreported(Some(Arc::clone(&order.report)));
    let event = match &order.config.address {
        BackendAddress::Command { .. } => pipes::run(&order, &ending).await,
        BackendAddress::Url {
            url,
            headers,
            transport,
        } => remote::run(&order, (url, headers, *transport), &ending).await,
    };
    unreported.report(event);
}

/// Reports an end also if the task fails.
struct Unreported(Option<Report>);

impl Unreported {
    fn report(mut self, event: InstanceEvent) {
        if let Some(report) = self.0.take() {
            report(event);
        }
    }
}

impl Drop for Unreported {
    fn drop(&mut self) {
        if let Some(report) = self.0.take() {
            let status = "its task failed".to_owned();
            report(InstanceEvent::Ended(Arc::new(LinkEnded {
                status,
                last_line: None,
            })));
        }
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
