//! One running instance of a backend, from its start to the report of its end.

use std::{rc::Rc, sync::Arc};

use super::{answer_room::AnswerRoom, ending::Ending, pipes, remote};
use actors::{
    gateway::{InstanceEvent, LaunchOrder, LinkEnded, Report},
    model::BackendAddress,
};

/// Runs an instance to its end, and reports what becomes of it.
pub async fn run(order: LaunchOrder, room: Rc<AnswerRoom>, ending: Rc<Ending>) {
    let unreported = Unreported(Some(Arc::clone(&order.report)));
    let event = match &order.config.address {
        BackendAddress::Command { .. } => pipes::run(&order, &room, &ending).await,
        BackendAddress::Url {
            url,
            headers,
            transport,
        } => remote::run(&order, &room, (url, headers, *transport), &ending).await,
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
            let ended = LinkEnded::without_output("its task failed");
            report(InstanceEvent::Ended(Arc::new(ended)));
        }
    }
}
