//! Requests that a backend answers: which backend a name leads to, what is sent to it, and what becomes of its answer.
//!
//! In the order of a call:
//!
//! - `route` finds the backend. `forward` begins the call and gets an instance, for which `caller` names the caller.
//! - `request` takes the params apart and writes the frame.
//! - `call` runs the call to its answer; `record` lists, counts and traces it.
//! - `asking` brings questions of a backend to its caller, `question` in the form that the caller takes.
//! - `response` translates the answer into the caller's era, and `caller` notes which addresses it hands out.
//! - `tasks` passes the tasks of backends on, under ids of `task_id`. `subscription` watches resources, and finds the instance
//!   that tells a caller of changes.
//!
//! Nothing is parsed but the members that change; all other bytes are passed on as they are.

mod asking;
mod call;
mod caller;
mod forward;
mod question;
mod record;
mod request;
mod response;
mod route;
mod subscription;
mod task_id;
mod tasks;

pub use caller::{carried_capabilities, profile_of};
pub use forward::forward;
pub use route::{ShownLists, find_route, lists_of};
pub use subscription::watch_resource;
pub use tasks::{task_route, watch_task};
