//! Requests that a backend answers: which backend a name leads to, what is sent to it, and what becomes of its answer.
//!
//! `route` finds the backend, `request` writes the frame, `forward` begins the call, `call` runs the call to its answer, `record` counts and traces it, `response` translates the
//! answer into the caller's era, `asking` brings questions of a backend to its caller, `question` in the form that the caller takes, `tasks` passes its tasks on, under ids of `task_id`. Nothing is parsed but the members that change; all other bytes are passed on as they are.

mod asking;
mod call;
mod deadlines;
mod forward;
mod held_bytes;
mod owner;
mod question;
mod record;
mod request;
mod response;
mod route;
mod subscription;
mod task_id;
mod tasks;

pub use forward::forward;
pub use route::{find_route, lists_of};
pub use subscription::{notify_of_resource, subscribe};
pub use tasks::{task_route, watch_task};
