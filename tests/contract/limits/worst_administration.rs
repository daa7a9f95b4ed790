//! The worst calls of the tools that administer projects and backends.

use super::worst_calls::{LARGE, list, text};

/// The arguments that cost most of each tool.
pub(super) fn worst_administration(tool: &str, words: &str) -> Vec<String> {
    match tool {
        "create_project" => vec![
            format!(r#"{{"project_id":"aa","name":{}}}"#, text(LARGE)),
            format!(r#"{{"project_id":"aa","name":"a","tags":{words}}}"#),
        ],
        "list_projects" => vec![format!(r#"{{"tags":{words}}}"#), "{}".to_owned()],
        "get_project_info" | "rotate_project_keys" => vec![format!(r#"{{"project_id":{}}}"#, text(LARGE))],
        "grant_project_access" => vec![format!(r#"{{"target_project_id":"aa","allowed_protocols":{words}}}"#)],
        "revoke_project_access" => vec![format!(r#"{{"target_project_id":{}}}"#, text(LARGE))],
        "add_backend" => vec![
            format!(r#"{{"name":{},"url":"http://a"}}"#, text(LARGE)),
            format!(r#"{{"name":"worst","url":"http://a","disabled":true,"tools":{{"allow":{words}}}}}"#),
            format!(
                r#"{{"name":"worst","url":"http://a","disabled":true,"tools":{{"allow":{}}}}}"#,
                list("\"w\"", 16_000)
            ),
        ],
        _ => panic!("{tool} has no worst call: add the arguments that cost most"),
    }
}
