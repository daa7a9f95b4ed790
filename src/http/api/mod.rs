//! The REST API under `/api/v1`: the table of all paths, and a file of handlers for each resource. The verbs are those of
//! `verbs::administration` and of the project's handle, which the MCP tools share; `verbs` reads arguments and writes
//! results for both.

#![allow(unused_qualifications, reason = "what utoipa writes")]

pub mod added_backends;
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
pub mod stats;
pub mod threads;
pub mod tree;
pub mod yaps;

use super::{
    paths::{LOGIN, LOGOUT},
    resource::Resource,
};

/// All resources, which `/openapi.json` describes. Of two paths that match, the first serves.
pub fn resources() -> Vec<Resource> {
    let groups = [of_administration(), of_messages(), of_desk(), of_broker()];
    groups.into_iter().flatten().collect()
}

fn of_administration() -> Vec<Resource> {
    let at = |path: &'static str| Resource::at(path);
    vec![
        at(LOGIN).post(login::log_in),
        at(LOGOUT).post(login::log_out),
        at("/api/v1/me").get(login::me),
        at("/api/v1/projects")
            .get_with_query(projects::list)
            .post(projects::create),
        at("/api/v1/projects/{project_id}")
            .get(projects::show)
            .patch(projects::change)
            .delete(projects::delete),
        at("/api/v1/projects/{project_id}/keys")
            .get(projects::keys)
            .post(projects::add_key),
        at("/api/v1/projects/{project_id}/keys/rotate").post(projects::rotate),
        at("/api/v1/projects/{project_id}/keys/{key_id}").delete(projects::revoke_key),
        at("/api/v1/projects/{project_id}/grants").get_with_query(projects::grants),
        at("/api/v1/projects/{project_id}/grants/{target_project_id}")
            .put(projects::grant)
            .delete(projects::revoke_grant),
        at("/api/v1/audit").get_with_query(audit::list),
        at("/api/v1/settings").get(settings::show),
        at("/api/v1/log-level").get(log_level::show).put(log_level::change),
    ]
}

fn of_messages() -> Vec<Resource> {
    let at = |path: &'static str| Resource::at(path);
    vec![
        at("/sessions").get_with_query(sessions::list),
        at("/api/v1/sessions").get_with_query(sessions::list),
        at("/api/v1/sessions/{session_id}")
            .get(sessions::show)
            .delete_with_query(sessions::end),
        at("/api/v1/compatibility").get_with_query(compatibility::matrix),
        at("/protocols").get_with_query(protocols::list),
        at("/api/v1/protocols")
            .get_with_query(protocols::list)
            .post(protocols::register),
        at("/api/v1/protocols/{name}").get_with_query(protocols::usage),
        at("/api/v1/protocols/{name}/transform").post(protocols::transform),
        at("/api/v1/protocols/{name}/{version}").get(protocols::show),
        at("/api/v1/protocols/{name}/{version}/lenses/{from}")
            .put(protocols::put_lens)
            .delete(protocols::remove_lens),
        at("/api/v1/messages")
            .get_with_query(history::list)
            .post(messages::send),
        at("/api/v1/messages/{message_id}").get_with_query(history::life),
        at("/api/v1/dead-letters").get_with_query(dead_letters::list),
        at("/api/v1/dead-letters/redrive").post(dead_letters::redrive),
        at("/api/v1/threads").get_with_query(threads::list),
        at("/api/v1/flow").get_with_query(flow::show),
    ]
}

fn of_desk() -> Vec<Resource> {
    let at = |path: &'static str| Resource::at(path);
    vec![
        at("/api/v1/questions")
            .get_with_query(questions::list)
            .post(questions::ask),
        at("/api/v1/questions/{question_id}")
            .get(questions::show)
            .delete(questions::remove),
        at("/api/v1/questions/{question_id}/claim").post(questions::claim),
        at("/api/v1/questions/{question_id}/release").post(questions::release),
        at("/api/v1/questions/{question_id}/handover").post(questions::hand_over),
        at("/api/v1/questions/{question_id}/answer").post(questions::answer),
        at("/api/v1/questions/{question_id}/decline").post(questions::decline),
        at("/api/v1/questions/{question_id}/cancel").post(questions::cancel),
        at("/api/v1/questions/{question_id}/typed").post(questions::typed),
        at("/api/v1/questions/{question_id}/draft")
            .get(questions::draft)
            .put(questions::put_draft),
        at("/api/v1/yaps").get_with_query(yaps::list).post(yaps::yap),
        at("/api/v1/desk").get(desk::show),
        at("/api/v1/desk/consoles/{console}").put(desk::change),
        at("/api/v1/desk/messages")
            .get_with_query(desk_messages::list)
            .post(desk_messages::send),
        at("/api/v1/desk/messages/read").post(desk_messages::read),
    ]
}

fn of_broker() -> Vec<Resource> {
    let at = |path: &'static str| Resource::at(path);
    vec![
        at("/api/v1/backends/{backend}/enable").post(added_backends::enable),
        at("/api/v1/backends/{backend}/disable").post(added_backends::disable),
        at("/api/v1/backends").get(backends::list).post(added_backends::add),
        at("/api/v1/backends/{backend}")
            .get(backends::show)
            .put(added_backends::replace)
            .patch(added_backends::patch)
            .delete(added_backends::remove),
        at("/api/v1/backends/{backend}/tools").get(backends::tools),
        at("/api/v1/backends/{backend}/log").get_with_query(backends::log),
        at("/api/v1/backends/{backend}/start").post(backends::start),
        at("/api/v1/backends/{backend}/restart").post(backends::restart),
        at("/api/v1/backends/{backend}/stop").post(backends::stop),
        at("/api/v1/gateway/ready").get_with_query(backends::ready),
        at("/api/v1/gateway/calls").get_with_query(open_calls::list),
        at("/api/v1/gateway/calls/{call_id}").delete_with_query(open_calls::end),
        at("/api/v1/events").get_with_query(events::follow),
        at("/api/v1/stats").get_with_query(stats::show),
        at("/api/v1/tree").get_with_query(tree::tree),
    ]
}
