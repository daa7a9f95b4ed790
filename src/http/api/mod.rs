//! The REST API under `/api/v1`: one file per resource. The verbs are those of `admin` and of the project's handle, which
//! the MCP tools share; `verbs` reads arguments and writes results for both.

pub mod added_backends;
pub mod answering;
pub mod audit;
pub mod backends;
pub mod compatibility;
pub mod dead_letters;
pub mod desk;
pub mod desk_messages;
mod desk_requests;
pub mod events;
pub mod flow;
pub mod history;
pub mod log_level;
pub mod login;
pub mod messages;
pub mod open_calls;
mod parties;
pub mod projects;
pub mod protocols;
pub mod questions;
mod session_order;
pub mod sessions;
pub mod settings;
mod shown_question;
pub mod stats;
pub mod threads;
pub mod tree;
pub mod yaps;

use super::resource::Resource;

/// All resources of the REST API.
pub fn resources() -> Vec<Resource> {
    [
        login::resources(),
        projects::resources(),
        added_backends::resources(),
        sessions::resources(),
        compatibility::resources(),
        protocols::resources(),
        messages::resources(),
        dead_letters::resources(),
        questions::resources(),
        answering::resources(),
        yaps::resources(),
        desk::resources(),
        desk_messages::resources(),
        events::resources(),
        flow::resources(),
        threads::resources(),
        stats::resources(),
        backends::resources(),
        open_calls::resources(),
        settings::resources(),
        audit::resources(),
        tree::resources(),
        log_level::resources(),
    ]
    .into_iter()
    .flatten()
    .collect()
}
