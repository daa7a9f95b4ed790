//! Requests that a backend answers: which backend a name leads to, what is sent to it, and what becomes of its answer.
//!
//! In the order of a call:
//!
//! - `route` finds the backend, and `forward` begins the call.
//! - `request` takes the params apart and writes the frame.
//! - `call` runs the call to its answer. Its `opening` gets an instance, for which `owner` names the caller; `deadlines` says
//!   when the call has taken too long; `record` lists, counts and traces it.
//! - `asking` brings questions of a backend to its caller, `question` in the form that the caller takes.
//! - `response` translates the answer into the caller's era, and `addresses` notes which addresses it hands out.
//! - `tasks` passes the tasks of backends on, under ids of `task_id`. `subscription` watches resources, at the instance that
//!   `own_instance` finds.
//!
//! Nothing is parsed but the members that change; all other bytes are passed on as they are.

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
