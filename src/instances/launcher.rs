//! Starts instances for the actors of the gateway, and runs each to the report of its end.

use std::{any::Any, fmt, rc::Rc, sync::Arc};

use actors::{
    clock::now,
    gateway::{BackendLog, Instance, InstanceEvent, LaunchOrder, Launcher, LinkEnded, Report},
    model::{BackendAddress, BackendConfig},
};

use super::{answer_room::AnswerRoom, openings::Ending, pipes, process::watched_files, remote, watch::Watch};
use api::budget::ByteBudget;

/// Starts programs on this machine, and connects to servers elsewhere.
pub struct InstanceLauncher {
    /// What the answers of backends count against.
    pub outbound: Arc<ByteBudget>,
}

impl fmt::Debug for InstanceLauncher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InstanceLauncher").finish_non_exhaustive()
    }
}

impl Launcher for InstanceLauncher {
    fn launch(&self, order: LaunchOrder) -> Box<dyn Instance> {
        let ending = Rc::<Ending>::default();
        let room = AnswerRoom::new(&self.outbound, &order.project);
        actix_rt::spawn(run(order, room, Rc::clone(&ending)));
        Box::new(RunningInstance(ending))
    }

    fn watch(
        &self,
        config: &BackendConfig,
        log: Arc<BackendLog>,
        changed: Arc<dyn Fn() + Send + Sync>,
    ) -> Box<dyn Any> {
        let name = config.name.clone();
        let failed = move |reason: &str| {
            tracing::warn!(backend = %name, reason, "the files of a backend cannot be watched");
            log.push(reason, now().unix_ms);
        };
        match watched_files(config) {
            Ok(patterns) => Box::new(Watch::start(patterns, move || changed(), failed)),
            Err(reason) => {
                failed(&format!("watch: {reason}"));
                Box::new(())
            }
        }
    }
}

/// An instance on this thread. Its task runs until its process or connection is gone, also when this is dropped.
struct RunningInstance(Rc<Ending>);

impl Instance for RunningInstance {
    fn end(&self) {
        self.0.ask();
    }
}

impl Drop for RunningInstance {
    fn drop(&mut self) {
        self.0.ask();
    }
}

/// Runs an instance to its end, and reports what becomes of it.
async fn run(order: LaunchOrder, room: Rc<AnswerRoom>, ending: Rc<Ending>) {
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
