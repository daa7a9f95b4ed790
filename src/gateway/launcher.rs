//! Starts instances for the actors of the gateway.

use std::rc::Rc;

use actors::gateway::{Instance, InstanceEvent, LaunchOrder, Launcher};
use actors::model::BackendAddress;

use super::instance::{self, Ending};

/// Starts programs on this machine.
#[derive(Debug)]
pub struct ProcessLauncher;

impl Launcher for ProcessLauncher {
    fn launch(&self, order: LaunchOrder) -> Box<dyn Instance> {
        let ending = Rc::<Ending>::default();
        match &order.config.address {
            BackendAddress::Command { .. } => {
                actix_rt::spawn(instance::run(order, Rc::clone(&ending)));
            }
            BackendAddress::Url { .. } => {
                let reason = "backends with a URL are not served yet: name a command";
                (order.report)(InstanceEvent::NotStarted(reason.to_owned()));
            }
        }
        Box::new(RunningInstance(ending))
    }
}

/// An instance on this thread. Its task goes on until the process is gone, also when this is dropped.
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
