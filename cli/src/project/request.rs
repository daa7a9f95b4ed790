//! Turns the arguments of `project` into a request. It does no I/O.

use clap::ArgMatches;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::views::View;
use crate::access::{BrokerAccess, EnvVars};
use crate::client::{ApiRequest, percent_encoded, with_query};
use crate::error::CliError;
use crate::table::escaped;
use crate::usage_errors::redact_keys;

/// One command of `project`, ready to run.
#[derive(Debug)]
pub struct ProjectCommand {
    pub access: BrokerAccess,
    pub request: ApiRequest,
    /// How the response is shown.
    pub view: View,
    /// Print the response as JSON.
    pub json: bool,
    /// A question that the user must answer with yes first.
    pub question: Option<String>,
}

/// Parses the arguments of `project`.
///
/// # Errors
/// [`CliError::Usage`] with one line for the user.
pub fn read(matches: ArgMatches, env: &EnvVars) -> Result<ProjectCommand, CliError> {
    read_command(matches, env).map_err(|line| CliError::Usage(redact_keys(&line)))
}

fn read_command(mut matches: ArgMatches, env: &EnvVars) -> Result<ProjectCommand, String> {
    let Some((name, matches)) = matches.remove_subcommand() else {
        return Err("no command after project".to_owned());
    };
    // These commands name their project themselves.
    let access = BrokerAccess {
        project: None,
        ..BrokerAccess::read(&matches, env)?
    };
    let (ask, view) = request(&name, &matches)?;
    let question = (name == "delete" && !matches.get_flag("yes")).then(|| {
        let id = escaped(&text(&matches, "id"));
        format!("Delete the project {id} with its sessions, protocols, messages and keys?")
    });
    let json = matches.get_flag("json");
    Ok(ProjectCommand {
        access,
        request: ask,
        view,
        json,
        question,
    })
}

fn request(name: &str, matches: &ArgMatches) -> Result<(ApiRequest, View), String> {
    let id = || text(matches, "id");
    let project = || format!("{PROJECTS}/{}", percent_encoded(&id()));
    Ok(match name {
        "create" => (
            ApiRequest::new(Method::POST, PROJECTS.to_owned()).with_body(new_project(matches)),
            View::Created,
        ),
        "list" => (ApiRequest::new(Method::GET, list(matches)), View::Projects),
        "show" => (ApiRequest::new(Method::GET, project()), View::Project),
        "update" => (
            ApiRequest::new(Method::PATCH, project()).with_body(changes(matches)?),
            View::Changed,
        ),
        "delete" => (ApiRequest::new(Method::DELETE, project()), View::Deleted(id())),
        "keys" => keys(&format!("{}/keys", project()), matches),
        "rotate" => {
            let path = format!("{}/keys/rotate", project());
            (
                ApiRequest::new(Method::POST, path).with_body(rotation(matches)),
                View::Rotated,
            )
        }
        "grant" => {
            let (path, target) = grants(&project(), matches);
            (
                ApiRequest::new(Method::PUT, path).with_body(grant_body(matches)),
                View::Granted(id(), target),
            )
        }
        "revoke" => {
            let (path, target) = grants(&project(), matches);
            (ApiRequest::new(Method::DELETE, path), View::GrantTaken(id(), target))
        }
        "audit" => (ApiRequest::new(Method::GET, audit(matches)), View::Audit),
        other => return Err(format!("command {other:?} is not known")),
    })
}

const PROJECTS: &str = "/api/v1/projects";

fn list(matches: &ArgMatches) -> String {
    let tags: Vec<String> = many(matches, "tag")
        .unwrap_or_default()
        .iter()
        .map(|tag| percent_encoded(tag))
        .collect();
    let inactive = matches
        .get_flag("include-inactive")
        .then(|| "include_inactive=true".to_owned());
    let tags = (!tags.is_empty()).then(|| format!("tags={}", tags.join(",")));
    let after = matches
        .get_one::<String>("after")
        .map(|id| format!("cursor={}", percent_encoded(id)));
    with_query(PROJECTS, [inactive, tags, after])
}

fn audit(matches: &ArgMatches) -> String {
    let project = matches
        .get_one::<String>("id")
        .map(|id| format!("project={}", percent_encoded(id)));
    let limit = matches.get_one::<u32>("limit").map(|limit| format!("limit={limit}"));
    with_query("/api/v1/audit", [project, limit])
}

fn grants(project: &str, matches: &ArgMatches) -> (String, String) {
    let target = text(matches, "target");
    (format!("{project}/grants/{}", percent_encoded(&target)), target)
}

fn new_project(matches: &ArgMatches) -> Value {
    let mut body = project_body(matches);
    body.insert("project_id".to_owned(), text(matches, "id").into());
    Value::Object(body)
}

fn changes(matches: &ArgMatches) -> Result<Value, String> {
    let body = project_body(matches);
    if body.is_empty() {
        return Err("nothing to change; allowed: see mcp-broker project update --help".to_owned());
    }
    Ok(Value::Object(body))
}

/// The fields that the flags of `create` and `update` set; absent flags set no field.
fn project_body(matches: &ArgMatches) -> Map<String, Value> {
    let config = config(matches);
    let mut body = Map::new();
    insert_flag(&mut body, "name", matches.get_one::<String>("name"));
    insert_flag(&mut body, "description", matches.get_one::<String>("description"));
    insert_flag(&mut body, "tags", many(matches, "tag").as_ref());
    insert_flag(&mut body, "config", Some(&config).filter(|config| !config.is_empty()));
    body
}

fn config(matches: &ArgMatches) -> Map<String, Value> {
    let mut config = Map::new();
    for flag in ["allow-cross-project", "discoverable"] {
        let is_wanted = matches.get_one::<String>(flag).map(|word| word == "true");
        insert_flag(&mut config, flag, is_wanted.as_ref());
    }
    for flag in ["max-sessions", "max-protocols", "queue-capacity"] {
        insert_flag(&mut config, flag, matches.get_one::<Option<u32>>(flag));
    }
    insert_flag(&mut config, "rate-limit", matches.get_one::<u32>("rate-limit"));
    config
}

fn keys(path: &str, matches: &ArgMatches) -> (ApiRequest, View) {
    if let Some(key_id) = matches.get_one::<String>("revoke") {
        let path = format!("{path}/{}", percent_encoded(key_id));
        return (ApiRequest::new(Method::DELETE, path), View::KeyRevoked);
    }
    if !matches.get_flag("create") {
        return (ApiRequest::new(Method::GET, path.to_owned()), View::Keys);
    }
    let mut body = Map::new();
    insert_flag(&mut body, "label", matches.get_one::<String>("label"));
    insert_flag(&mut body, "scope", matches.get_one::<String>("scope"));
    insert_flag(&mut body, "human", matches.get_one::<String>("human"));
    if let Some(roles) = many(matches, "role") {
        body.insert("roles".to_owned(), json!(roles));
    }
    insert_flag(&mut body, "tools", matches.get_one::<String>("tools"));
    insert_flag(&mut body, "expires_in_seconds", matches.get_one::<u64>("expires-in"));
    (
        ApiRequest::new(Method::POST, path.to_owned()).with_body(Value::Object(body)),
        View::KeyCreated,
    )
}

fn rotation(matches: &ArgMatches) -> Value {
    let mut body = Map::new();
    insert_flag(&mut body, "key_id", matches.get_one::<String>("key-id"));
    insert_flag(&mut body, "grace_period_seconds", matches.get_one::<u64>("grace"));
    Value::Object(body)
}

/// Absent flags leave the defaults of the API: all protocols, no limit.
fn grant_body(matches: &ArgMatches) -> Value {
    let mut body = Map::new();
    insert_flag(&mut body, "allowed_protocols", many(matches, "protocol").as_ref());
    insert_flag(&mut body, "message_rate_limit", matches.get_one::<u32>("rate"));
    Value::Object(body)
}

/// Sets the field with the flag's name. An absent flag sets nothing, not even null.
fn insert_flag(body: &mut Map<String, Value>, flag: &str, value: Option<&(impl serde::Serialize + ?Sized)>) {
    if let Some(value) = value {
        body.insert(flag.replace('-', "_"), json!(value));
    }
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

/// The values of a repeatable flag. The empty text means the empty list.
fn many(matches: &ArgMatches, name: &str) -> Option<Vec<String>> {
    let values = matches.get_many::<String>(name)?.map(|value| value.trim().to_owned());
    Some(values.filter(|value| !value.is_empty()).collect())
}

#[cfg(test)]
mod tests;
