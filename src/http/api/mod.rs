//! The REST API under `/api/v1`: one file per resource. The verbs are those of `admin`, which the MCP tools share.

pub mod audit;
pub mod projects;
pub mod tree;

use super::resource::Resource;

/// All resources of the REST API.
pub fn resources() -> Vec<Resource> {
    [projects::resources(), audit::resources(), tree::resources()]
        .into_iter()
        .flatten()
        .collect()
}
