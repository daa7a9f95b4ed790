//! Starts instances for the actors of the gateway.

use std::rc::Rc;

use actors::gateway::{Instance, LaunchOrder, Launcher};

use super::{ending::Ending, instance};

/// Starts programs on this machine, and connects to servers elsewhere.
#[derive(Debug)]
pub struct InstanceLauncher;

impl Launcher for InstanceLauncher {
    fn launch(&self, order: LaunchOrder) -> Box<dyn Instance> {
        let ending = Rc::<Ending>::default();
        actix_rt::spawn(instance::run(order, Rc::clone(&ending)));
        Box::new(RunningInstance(ending))
    }
}

/// An instance on this thread. Its task goes on until its process or connection is gone, also when this is dropped.
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
