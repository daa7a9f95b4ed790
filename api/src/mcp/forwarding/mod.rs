//! Requests that a backend answers: which backend a name leads to, what is sent to it, and what becomes of its answer.
//!
//! `route` finds the backend, `request` writes the frame, `forward` begins the call, `call` runs the call to its answer, `record` counts and traces it, `response` translates the
//! answer into the caller's era, `addresses` notes which addresses it hands out, `asking` brings questions of a backend to its caller, `question` in the form that the caller takes, `tasks` passes its tasks on, under ids of `task_id`, and `own_instance` is the instance that tells a caller of changes. Nothing is parsed but the members that change; all other bytes are passed on as they are.

mod addresses;
mod asking;
mod call;
mod deadlines;
mod forward;
mod own_instance;
mod owner;
mod question;
mod record;
mod request;
mod response;
mod route;
mod subscription;
mod task_id;
mod tasks;

pub use asking::carried_capabilities;
pub use forward::forward;
pub use question::profile_of;
pub use route::{ShownLists, find_route, lists_of};
pub use subscription::watch_resource;
pub use tasks::{task_route, watch_task};
