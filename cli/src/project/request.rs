//! The command line of `project`, and the request that it makes of the broker.

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Subcommand};
use serde::Serialize;
use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::views::{self, View, view};
use crate::access::{AskingFlags, BrokerAccess, EnvVars};
use crate::client::{ApiRequest, percent_encoded, with_query};
use crate::flags::{DURATION_SECONDS_MAX, id, seconds, whole};
use crate::output::EXIT_CODES;
use crate::table::escaped;
use common::config::{Integer, Rule};

const ABOUT: &str = "\
Administer the projects of a broker: keys, limits, and grants to send to other projects.

The broker must be running. It asks for the admin key, or for a key of the project with the scope
admin. Set MCP_BROKER_API_KEY or use --key-file: other users of this machine see the flags of a process.";

/// Administer the projects of a broker: keys, limits, and grants to send to other projects.
#[derive(Debug, Args)]
#[command(long_about = ABOUT, after_help = EXIT_CODES, mut_subcommands(|below| below.after_help(EXIT_CODES)))]
pub struct Project {
    #[command(subcommand)]
    below: Below,
    #[command(flatten)]
    asking: AskingFlags,
}

#[derive(Debug, Subcommand)]
enum Below {
    /// Make a project and print its first keys, which are not shown again.
    #[command(mut_args(true_without_value))]
    Create {
        #[command(flatten)]
        of: OfProject,
        /// Name for people.
        #[arg(long, value_name = "NAME")]
        name: String,
        #[command(flatten)]
        settings: Settings,
    },
    /// List the projects that the key may see.
    List {
        /// Also list projects that are not active.
        #[arg(long)]
        include_inactive: bool,
        /// Only projects that have this tag; may be repeated.
        #[arg(long, value_name = "TAG", value_delimiter = ',')]
        tag: Option<Vec<String>>,
        /// Only projects whose ids come after this one.
        #[arg(long, value_name = "ID", value_parser = id)]
        after: Option<String>,
    },
    /// Show a project: its limits, what it holds, and where it may send.
    Show(OfProject),
    /// Change a project; settings without a flag stay unchanged.
    #[command(mut_arg("tag", |tag| tag.help("Word to find the project by; may be repeated.\n\
        These replace all existing words; '' removes them")))]
    Update {
        #[command(flatten)]
        of: OfProject,
        /// Name for people.
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        #[command(flatten)]
        settings: Settings,
    },
    /// Delete a project with its sessions, protocols, messages and keys.
    Delete {
        #[command(flatten)]
        of: OfProject,
        /// Do not ask for confirmation; required without a terminal.
        #[arg(long)]
        yes: bool,
    },
    /// List the keys of a project, make one, or revoke one.
    Keys {
        #[command(flatten)]
        of: OfProject,
        #[command(flatten)]
        keys: Box<KeyFlags>,
    },
    /// Replace the keys of a project with new ones, which are not shown again.
    Rotate {
        #[command(flatten)]
        of: OfProject,
        #[arg(
            long,
            value_name = "KEY_ID",
            help = "Replace this key only\n[default: all keys of the project]"
        )]
        key_id: Option<String>,
        #[arg(long, value_name = "TIME", value_parser = seconds(0..=DURATION_SECONDS_MAX), help = "How long the old keys \
            stay valid, such as 30m or 1h\n[default: 0s, they become invalid at once]")]
        grace: Option<u64>,
    },
    /// Let a project send to another; both must have --allow-cross-project.
    Grant {
        #[command(flatten)]
        of: OfProject,
        #[command(flatten)]
        to: Target,
        #[arg(
            long,
            value_name = "PROTOCOL",
            value_delimiter = ',',
            help = "Only messages of this protocol; may be repeated\n[default: all]"
        )]
        protocol: Option<Vec<String>>,
        #[arg(long, value_name = "N", value_parser = whole(0..=u32::MAX),
            help = "Messages per minute, 0 for no limit\n[default: 0]")]
        rate: Option<u32>,
    },
    /// Revoke a grant.
    Revoke {
        #[command(flatten)]
        of: OfProject,
        #[command(flatten)]
        to: Target,
    },
    /// Show administrative actions and refusals, the latest first.
    Audit {
        /// Only entries of this project.
        #[arg(value_name = "ID", value_parser = id)]
        id: Option<String>,
        /// The most entries to show.
        #[arg(long, value_name = "N", value_parser = whole(1..=u32::MAX))]
        limit: Option<u32>,
    },
}

#[derive(Debug, Args)]
struct OfProject {
    /// Id of the project.
    #[arg(value_name = "ID", value_parser = id)]
    id: String,
}

#[derive(Debug, Args)]
struct Target {
    /// Id of the project that may be sent to.
    #[arg(value_name = "TARGET", value_parser = id)]
    target: String,
}

/// What a project has besides its id and name.
#[derive(Debug, Args)]
struct Settings {
    /// What it is for.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Word to find the project by; may be repeated.
    #[arg(long, value_name = "TAG", value_delimiter = ',')]
    tag: Option<Vec<String>>,
    #[arg(
        long,
        value_name = "BOOL",
        hide_possible_values = true,
        help = "Whether this project may exchange messages with \
        others, where a grant allows it\n[allowed: true, false]"
    )]
    allow_cross_project: Option<bool>,
    #[arg(
        long,
        value_name = "BOOL",
        hide_possible_values = true,
        help = "Whether other projects see this one in lists\n[allowed: true, false]"
    )]
    discoverable: Option<bool>,
    #[arg(long, value_name = "N", value_parser = Limit::parse, help = Limit::help("Sessions at once"))]
    max_sessions: Option<Limit>,
    #[arg(long, value_name = "N", value_parser = Limit::parse, help = Limit::help("Protocols that may be registered"))]
    max_protocols: Option<Limit>,
    #[arg(long, value_name = "N", value_parser = Limit::parse, help = Limit::help("Messages that may wait for one session"))]
    queue_capacity: Option<Limit>,
    /// Requests per minute, 0 for no limit.
    #[arg(long, value_name = "N", value_parser = whole(0..=u32::MAX))]
    rate_limit: Option<u32>,
}

/// `--allow-cross-project` alone means true where a project is made.
fn true_without_value(arg: Arg) -> Arg {
    if ["allow_cross_project", "discoverable"].contains(&arg.get_id().as_str()) {
        arg.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        arg
    }
}

/// A limit of a project; None for the broker's setting.
#[derive(Debug, Clone, Copy, Serialize)]
struct Limit(Option<u32>);

impl Limit {
    fn help(meaning: &str) -> String {
        format!("{meaning}\n[allowed: a number, or default for the broker's setting]")
    }

    fn parse(text: &str) -> Result<Self, String> {
        if text == "default" {
            return Ok(Self(None));
        }
        let rule = Integer(1..=u32::MAX);
        let limit = rule
            .parse(text)
            .map_err(|_| format!("default, or {}", rule.allowed()))?;
        Ok(Self(Some(limit)))
    }
}

#[derive(Debug, Args)]
struct KeyFlags {
    /// Make a key and print it; it is not shown again.
    #[arg(long, conflicts_with = "revoke")]
    create: bool,
    /// What the new key is for.
    #[arg(long, value_name = "LABEL", requires = "create")]
    label: Option<String>,
    #[arg(long, value_name = "SCOPE", requires = "create", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(["admin", "member", "answer", "observer"]),
        help = "What the new key may do: admin, member, answer or observer\n[default: member]")]
    scope: Option<String>,
    /// With --scope answer: the person who holds the new key.
    #[arg(long, value_name = "NAME", requires = "create")]
    human: Option<String>,
    /// Role of that person, to which questions may be addressed; may be repeated.
    #[arg(long, value_name = "ROLE", value_delimiter = ',', requires = "human")]
    role: Option<Vec<String>>,
    #[arg(long, value_name = "SET", requires = "create", hide_possible_values = true,
        value_parser = PossibleValuesParser::new(["core", "agent", "full"]), help = "The tools that agents with the new key \
        are listed: core, agent or full\n[default: as the broker's setting]")]
    tools: Option<String>,
    #[arg(long, value_name = "TIME", value_parser = seconds(1..=DURATION_SECONDS_MAX), requires = "create",
        help = "How long the new key is valid, such as 12h or 30d\n[default: no expiry]")]
    expires_in: Option<u64>,
    /// Revoke this key: it is invalid from now on.
    #[arg(long, value_name = "KEY_ID", value_parser = id)]
    revoke: Option<String>,
}

/// A `project` command that is ready to run.
pub struct ProjectCommand {
    pub access: BrokerAccess,
    pub request: ApiRequest,
    pub view: View,
    pub json: bool,
    /// The question to confirm before the request is sent.
    pub question: Option<String>,
}

impl Project {
    /// The request that the arguments make.
    ///
    /// # Errors
    /// One line for the user, for what only the whole command line shows.
    pub fn read(self, env: &EnvVars) -> Result<ProjectCommand, String> {
        // The paths name the project, so that no header does: the broker would refuse a contradiction.
        let access = BrokerAccess {
            project: None,
            ..BrokerAccess::read(&self.asking.broker, env)?
        };
        let question = match &self.below {
            Below::Delete { of, yes: false } => Some(format!(
                "Delete the project {} with its sessions, protocols, messages and keys?",
                escaped(&of.id)
            )),
            _ => None,
        };
        let (request, view) = request(self.below)?;
        Ok(ProjectCommand {
            access,
            request,
            view,
            json: self.asking.json,
            question,
        })
    }
}

const PROJECTS: &str = "/api/v1/projects";

impl OfProject {
    fn path(&self, part: &str) -> String {
        format!("{PROJECTS}/{}{part}", percent_encoded(&self.id))
    }

    fn grant(&self, to: &Target) -> String {
        self.path(&format!("/grants/{}", percent_encoded(&to.target)))
    }
}

/// The request of a command, and how its answer is shown.
fn request(below: Below) -> Result<(ApiRequest, View), String> {
    let with_body = |method, path: String, body| ApiRequest::new(method, path).with_body(Value::Object(body));
    Ok(match below {
        Below::Create { of, name, settings } => {
            let mut body = settings.body(Some(&name));
            body.insert("project_id".to_owned(), of.id.into());
            (with_body(Method::POST, PROJECTS.to_owned(), body), view(views::created))
        }
        Below::List {
            include_inactive,
            tag,
            after,
        } => {
            let tags: Vec<String> = words(tag)
                .into_iter()
                .flatten()
                .map(|tag| percent_encoded(&tag))
                .collect();
            let inactive = include_inactive.then(|| "include_inactive=true".to_owned());
            let tags = (!tags.is_empty()).then(|| format!("tags={}", tags.join(",")));
            let after = after.map(|id| format!("cursor={}", percent_encoded(&id)));
            let path = with_query(PROJECTS, [inactive, tags, after]);
            (ApiRequest::get(path), view(views::projects))
        }
        Below::Show(of) => (ApiRequest::get(of.path("")), view(views::shown)),
        Below::Update { of, name, settings } => {
            let body = settings.body(name.as_ref());
            if body.is_empty() {
                return Err("nothing to change; allowed: see mcp-broker project update --help".to_owned());
            }
            (with_body(Method::PATCH, of.path(""), body), view(views::changed))
        }
        Below::Delete { of, .. } => {
            let ask = ApiRequest::new(Method::DELETE, of.path(""));
            (ask, Box::new(move |_| Ok(views::deleted(&of.id))))
        }
        Below::Keys { of, keys } => keys.request(&of.path("/keys")),
        Below::Rotate { of, key_id, grace } => {
            let mut body = Map::new();
            insert(&mut body, "key_id", key_id);
            insert(&mut body, "grace_period_seconds", grace);
            (
                with_body(Method::POST, of.path("/keys/rotate"), body),
                view(views::rotated),
            )
        }
        Below::Grant { of, to, protocol, rate } => {
            let mut body = Map::new();
            insert(&mut body, "allowed_protocols", words(protocol));
            insert(&mut body, "message_rate_limit", rate);
            let ask = with_body(Method::PUT, of.grant(&to), body);
            (ask, view(move |answer| views::granted(&of.id, &to.target, answer)))
        }
        Below::Revoke { of, to } => {
            let ask = ApiRequest::new(Method::DELETE, of.grant(&to));
            (ask, view(move |answer| views::grant_taken(&of.id, &to.target, answer)))
        }
        Below::Audit { id, limit } => {
            let project = id.map(|id| format!("project={}", percent_encoded(&id)));
            let limit = limit.map(|limit| format!("limit={limit}"));
            let ask = ApiRequest::get(with_query("/api/v1/audit", [project, limit]));
            (ask, view(views::audit))
        }
    })
}

impl Settings {
    /// What was given, as the body of a request.
    fn body(self, name: Option<&String>) -> Map<String, Value> {
        let (mut body, mut config) = (Map::new(), Map::new());
        insert(&mut config, "allow_cross_project", self.allow_cross_project);
        insert(&mut config, "discoverable", self.discoverable);
        insert(&mut config, "max_sessions", self.max_sessions);
        insert(&mut config, "max_protocols", self.max_protocols);
        insert(&mut config, "queue_capacity", self.queue_capacity);
        insert(&mut config, "rate_limit", self.rate_limit);
        insert(&mut body, "name", name);
        insert(&mut body, "description", self.description);
        insert(&mut body, "tags", words(self.tag));
        insert(&mut body, "config", Some(config).filter(|config| !config.is_empty()));
        body
    }
}

impl KeyFlags {
    fn request(self, path: &str) -> (ApiRequest, View) {
        if let Some(key_id) = self.revoke {
            let path = format!("{path}/{}", percent_encoded(&key_id));
            return (ApiRequest::new(Method::DELETE, path), view(views::revoked));
        }
        if !self.create {
            return (ApiRequest::get(path), view(views::keys));
        }
        let mut body = Map::new();
        insert(&mut body, "label", self.label);
        insert(&mut body, "scope", self.scope);
        insert(&mut body, "human", self.human);
        insert(&mut body, "roles", words(self.role));
        insert(&mut body, "tools", self.tools);
        insert(&mut body, "expires_in_seconds", self.expires_in);
        let ask = ApiRequest::new(Method::POST, path.to_owned()).with_body(Value::Object(body));
        (ask, view(views::key_created))
    }
}

/// Adds what was given.
fn insert(body: &mut Map<String, Value>, name: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        body.insert(name.to_owned(), json!(value));
    }
}

/// The words of a flag that may be repeated, without empty ones.
fn words(given: Option<Vec<String>>) -> Option<Vec<String>> {
    let words = given?.into_iter().map(|word| word.trim().to_owned());
    Some(words.filter(|word| !word.is_empty()).collect())
}

#[cfg(test)]
mod tests;
