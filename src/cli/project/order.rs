//! From the words of a command line to the request that they mean. Nothing is asked here.

use std::ffi::OsString;

use clap::ArgMatches;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::views::View;
use crate::cli::Stop;
use crate::cli::access::{Access, Env};
use crate::cli::client::{Ask, encoded};
use crate::cli::mistakes::without_keys;
use crate::cli::table::escaped;

/// One command of `project`, ready to be carried out.
#[derive(Debug)]
pub struct Order {
    pub access: Access,
    pub ask: Ask,
    /// How the answer is shown.
    pub view: View,
    /// Show the answer as it is.
    pub json: bool,
    /// To be answered with yes first.
    pub question: Option<String>,
}

/// Reads the words behind `project`.
pub fn read(
    matches: ArgMatches,
    before: &ArgMatches,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Order, Stop> {
    let env: Vec<_> = env.into_iter().collect();
    order(matches, before, &env).map_err(|line| Stop::Usage(without_keys(&line)))
}

/// `before` holds the flags that stand before the command.
fn order(mut matches: ArgMatches, before: &ArgMatches, env: &Env) -> Result<Order, String> {
    let Some((name, matches)) = matches.remove_subcommand() else {
        return Err("no command behind project".to_owned());
    };
    let access = Access::read([&matches, before], env)?;
    let (ask, view) = request(&name, &matches)?;
    let question = (name == "delete" && !matches.get_flag("yes")).then(|| {
        let id = escaped(&text(&matches, "id"));
        format!("Delete the project {id} with its sessions, protocols, messages and keys?")
    });
    let json = matches.get_flag("json") || before.get_flag("json");
    Ok(Order {
        access,
        ask,
        view,
        json,
        question,
    })
}

fn request(name: &str, matches: &ArgMatches) -> Result<(Ask, View), String> {
    let id = || text(matches, "id");
    let project = || format!("{PROJECTS}/{}", encoded(&id()));
    Ok(match name {
        "create" => (
            Ask::new(Method::POST, PROJECTS.to_owned()).with(new_project(matches)),
            View::Created,
        ),
        "list" => (Ask::new(Method::GET, list(matches)), View::Projects),
        "show" => (Ask::new(Method::GET, project()), View::Project),
        "update" => (
            Ask::new(Method::PATCH, project()).with(changes(matches)?),
            View::Changed,
        ),
        "delete" => (Ask::new(Method::DELETE, project()), View::Deleted(id())),
        "keys" => keys(&format!("{}/keys", project()), matches),
        "rotate" => {
            let path = format!("{}/keys/rotate", project());
            (Ask::new(Method::POST, path).with(rotation(matches)), View::Rotated)
        }
        "grant" => {
            let (path, target) = grants(&project(), matches);
            (
                Ask::new(Method::PUT, path).with(terms(matches)),
                View::Granted(id(), target),
            )
        }
        "revoke" => {
            let (path, target) = grants(&project(), matches);
            (Ask::new(Method::DELETE, path), View::GrantTaken(id(), target))
        }
        "audit" => (Ask::new(Method::GET, audit(matches)), View::Audit),
        other => return Err(format!("command {other:?} is not known")),
    })
}

const PROJECTS: &str = "/api/v1/projects";

fn list(matches: &ArgMatches) -> String {
    let tags: Vec<String> = many(matches, "tag")
        .unwrap_or_default()
        .iter()
        .map(|tag| encoded(tag))
        .collect();
    let inactive = matches
        .get_flag("include-inactive")
        .then(|| "include_inactive=true".to_owned());
    let tags = (!tags.is_empty()).then(|| format!("tags={}", tags.join(",")));
    let after = matches
        .get_one::<String>("after")
        .map(|id| format!("cursor={}", encoded(id)));
    with_query(PROJECTS, [inactive, tags, after])
}

fn audit(matches: &ArgMatches) -> String {
    let project = matches
        .get_one::<String>("id")
        .map(|id| format!("project={}", encoded(id)));
    let limit = matches.get_one::<u32>("limit").map(|limit| format!("limit={limit}"));
    with_query("/api/v1/audit", [project, limit])
}

fn with_query<const N: usize>(path: &str, parts: [Option<String>; N]) -> String {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return path.to_owned();
    }
    format!("{path}?{}", parts.join("&"))
}

fn grants(project: &str, matches: &ArgMatches) -> (String, String) {
    let target = text(matches, "target");
    (format!("{project}/grants/{}", encoded(&target)), target)
}

fn new_project(matches: &ArgMatches) -> Value {
    let mut body = described(matches);
    body.insert("project_id".to_owned(), text(matches, "id").into());
    Value::Object(body)
}

fn changes(matches: &ArgMatches) -> Result<Value, String> {
    let body = described(matches);
    if body.is_empty() {
        return Err("nothing to change; allowed: see mcp-broker project update --help".to_owned());
    }
    Ok(Value::Object(body))
}

/// What the flags of `create` and `update` say of a project, and nothing that none of them names.
fn described(matches: &ArgMatches) -> Map<String, Value> {
    let config = config(matches);
    let mut body = Map::new();
    put(&mut body, "name", matches.get_one::<String>("name"));
    put(&mut body, "description", matches.get_one::<String>("description"));
    put(&mut body, "tags", many(matches, "tag").as_ref());
    put(&mut body, "config", Some(&config).filter(|config| !config.is_empty()));
    body
}

fn config(matches: &ArgMatches) -> Map<String, Value> {
    let mut config = Map::new();
    for flag in ["allow-cross-project", "discoverable"] {
        let is_wanted = matches.get_one::<String>(flag).map(|word| word == "true");
        put(&mut config, flag, is_wanted.as_ref());
    }
    for flag in ["max-sessions", "max-protocols", "queue-capacity"] {
        put(&mut config, flag, matches.get_one::<Option<u32>>(flag));
    }
    put(&mut config, "rate-limit", matches.get_one::<u32>("rate-limit"));
    config
}

fn keys(path: &str, matches: &ArgMatches) -> (Ask, View) {
    if let Some(key_id) = matches.get_one::<String>("revoke") {
        let path = format!("{path}/{}", encoded(key_id));
        return (Ask::new(Method::DELETE, path), View::KeyRevoked);
    }
    if !matches.get_flag("create") {
        return (Ask::new(Method::GET, path.to_owned()), View::Keys);
    }
    let mut body = Map::new();
    put(&mut body, "label", matches.get_one::<String>("label"));
    put(&mut body, "scope", matches.get_one::<String>("scope"));
    put(&mut body, "expires_in_seconds", matches.get_one::<u64>("expires-in"));
    (
        Ask::new(Method::POST, path.to_owned()).with(Value::Object(body)),
        View::KeyCreated,
    )
}

fn rotation(matches: &ArgMatches) -> Value {
    let mut body = Map::new();
    put(&mut body, "key_id", matches.get_one::<String>("key-id"));
    put(&mut body, "grace_period_seconds", matches.get_one::<u64>("grace"));
    Value::Object(body)
}

/// A flag that is not given takes the spec's default: all protocols, no limit.
fn terms(matches: &ArgMatches) -> Value {
    let mut body = Map::new();
    put(&mut body, "allowed_protocols", many(matches, "protocol").as_ref());
    put(&mut body, "message_rate_limit", matches.get_one::<u32>("rate"));
    Value::Object(body)
}

/// A flag becomes the field of the same name. One that was not given leaves no trace, not even null.
fn put(body: &mut Map<String, Value>, flag: &str, value: Option<&(impl serde::Serialize + ?Sized)>) {
    if let Some(value) = value {
        body.insert(flag.replace('-', "_"), json!(value));
    }
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

/// The values of a flag that may be repeated. The empty text stands for none, to say that there shall be none.
fn many(matches: &ArgMatches, name: &str) -> Option<Vec<String>> {
    let values = matches.get_many::<String>(name)?.map(|value| value.trim().to_owned());
    Some(values.filter(|value| !value.is_empty()).collect())
}

#[cfg(test)]
mod tests;
