//! The backends of the gateway in the configuration file: `[backends.NAME]` for the project `default`, and
//! `[projects.ID.backends.NAME]` for others. The table of an added backend has the same keys, as JSON.

use std::{collections::BTreeMap, mem::take, sync::Arc, time::Duration};

use ::config::{File, FileFormat, Source, Value, ValueKind};
use actors::model::{
    BackendAddress, BackendConfig, BackendEra, BackendName, BackendOrigin, BackendsConfig, HttpTransport,
    ProcessLimits, ProjectId, RestartChoice, Sharing, StartChoice,
};
use http::{HeaderName, HeaderValue};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IntoDeserializer},
};

use super::{
    backend_tools::{BACKEND_TIME, ToolsTable},
    file_pattern::FilePattern,
    guess::nearest_name,
    kinds::GatewayCommands,
    one_line::one_line,
    server_url::parse_url,
    span::{Rule, seconds},
};
use crate::refusal::serde_error_reason;

/// The key of the table of backends, in the file and in the table of a project.
pub const BACKENDS: &str = "backends";
/// The key of the table of projects.
pub const PROJECTS: &str = "projects";

/// Backends of one project.
const BACKENDS_MAX: usize = 200;
/// Patterns of files of one backend.
const PATTERNS_MAX: usize = 64;
/// Calls that may run in one backend at once.
const CONCURRENCY_MAX: usize = 4_096;

/// Instances of a backend that may ask.
const INSTANCES_MAX: usize = 64;

/// Bytes of one answer, as `gateway_result_max` may have them.
const RESULT_BYTES_MAX: usize = 1024 * 1024 * 1024;

/// A backend as the file has it, or as it was added.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BackendTable {
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    pass_env: Vec<String>,
    cwd: Option<String>,
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    transport: Option<Transport>,
    #[serde(default)]
    disabled: bool,
    #[serde(default, deserialize_with = "time")]
    stop_when_idle: Option<Duration>,
    concurrency: Option<usize>,
    #[serde(default, deserialize_with = "time")]
    call_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    call_timeout_max: Option<Duration>,
    #[serde(default, deserialize_with = "time")]
    start_timeout: Option<Duration>,
    #[serde(default, deserialize_with = "bytes")]
    result_max: Option<u64>,
    #[serde(default, deserialize_with = "choice")]
    start: Option<Start>,
    #[serde(default, deserialize_with = "choice")]
    restart: Option<Restart>,
    #[serde(default)]
    watch: Vec<String>,
    handover: Option<bool>,
    #[serde(default, deserialize_with = "choice")]
    era: Option<Era>,
    asks: Option<bool>,
    instances_max: Option<usize>,
    #[serde(default, deserialize_with = "choice")]
    sharing: Option<SharingChoice>,
    instructions: Option<bool>,
    #[serde(default)]
    tools: ToolsTable,
    #[serde(default)]
    limits: LimitsTable,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Start {
    Lazy,
    Eager,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Restart {
    Always,
    OnChange,
    Never,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum SharingChoice {
    #[default]
    Project,
    Key,
    Session,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Era {
    Auto,
    Legacy,
    Modern,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    Auto,
    Http,
    Sse,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    #[serde(deserialize_with = "bytes")]
    memory: Option<u64>,
    processes: Option<u64>,
    open_files: Option<u64>,
    cpu_seconds: Option<u64>,
}

/// Settings for all backends: what holds where a table does not say it, and who may name commands.
#[derive(Clone, Copy, Debug)]
pub struct BackendDefaults {
    pub call_timeout: Duration,
    pub result_bytes_max: usize,
    pub commands: GatewayCommands,
}

/// One of a few words. The error names them.
fn choice<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Option<T>, D::Error> {
    let word = String::deserialize(deserializer)?;
    T::deserialize(IntoDeserializer::<D::Error>::into_deserializer(word.as_str())).map(Some)
}

/// A time as other settings have it: `60s`, `5m`, or a number of seconds.
fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span = BACKEND_TIME.parse(text.trim());
    span.map(Some)
        .map_err(|_| D::Error::custom(format!("must be {}", BACKEND_TIME.allowed())))
}

/// A number of bytes: `512KiB`, `10MiB`, `1GiB`, or a bare number.
fn bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = parse_bytes(text.trim());
    parsed
        .map(Some)
        .ok_or_else(|| D::Error::custom("must be a number of bytes, such as 512KiB, 10MiB or 1GiB"))
}

fn parse_bytes(text: &str) -> Option<u64> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("", 0)];
    let (number, shift) = units
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    let number: u64 = number.trim().parse().ok()?;
    number.checked_mul(1 << shift).filter(|bytes| *bytes > 0)
}

/// Reads the tables of backends from a file: the value of [`BACKENDS`] and that of [`PROJECTS`].
///
/// # Errors
/// The first wrong key, and what is allowed.
pub fn read_backends(
    own: Option<&Value>,
    projects: Option<&Value>,
    defaults: BackendDefaults,
) -> Result<BackendsConfig, (String, String)> {
    let mut all = BackendsConfig::new();
    if let Some(own) = own {
        all.insert(ProjectId::default_project(), of_project(BACKENDS, own, defaults)?);
    }
    for (id, project) in projects
        .map(|projects| table(PROJECTS, projects))
        .transpose()?
        .unwrap_or_default()
    {
        let key = format!("{PROJECTS}.{id}");
        let project_id = ProjectId::parse(&id).map_err(|error| (key.clone(), error.to_string()))?;
        for (name, value) in table(&key, &project)? {
            let key = format!("{key}.{name}");
            if name != BACKENDS {
                return Err((key, format!("the table of a project has only {BACKENDS}")));
            }
            let backends = of_project(&key, &value, defaults)?;
            if all.insert(project_id.clone(), backends).is_some() {
                return Err((key, format!("the backends of this project are in {BACKENDS} already")));
            }
        }
    }
    Ok(all)
}

/// Reads the backends of a text in TOML. Other tables and keys are not checked.
///
/// # Errors
/// The first wrong key, and what is allowed.
pub fn parse_backends(text: &str, defaults: BackendDefaults) -> Result<BackendsConfig, String> {
    let tables = File::from_str(text, FileFormat::Toml).collect();
    let tables = tables.map_err(|error| without_excerpt(&error.to_string()))?;
    let read = read_backends(tables.get(BACKENDS), tables.get(PROJECTS), defaults);
    read.map_err(|(key, reason)| format!("{key}: {reason}"))
}

/// Checks the backends of a text in TOML, as [`parse_backends`] does.
///
/// # Errors
/// The first wrong key, and what is allowed.
pub fn check_backends(text: &str) -> Result<(), String> {
    // Defaults are allowed in any case.
    let defaults = BackendDefaults {
        call_timeout: Duration::ZERO,
        result_bytes_max: 0,
        commands: GatewayCommands::Configured,
    };
    parse_backends(text, defaults).map(drop)
}

/// Reads the table of an added backend: a JSON object.
///
/// # Errors
/// The wrong key if it is known, and why it is wrong, in the words of serde or of the configuration.
pub fn parse_table(
    name: &BackendName,
    table: &str,
    defaults: BackendDefaults,
) -> Result<BackendConfig, (Option<String>, String)> {
    let members: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(table).map_err(|error| (None, error.to_string()))?;
    // No key depends on another one, so each can be read by itself. That tells which one is wrong.
    for (key, value) in &members {
        let alone = serde_json::Map::from_iter([(key.clone(), value.clone())]);
        let read = serde_json::from_value::<BackendTable>(alone.into());
        if let Err(error) = read {
            return Err((Some(key.clone()), error.to_string()));
        }
    }
    let table = serde_json::from_value(members.into()).map_err(|error| (None, error.to_string()))?;
    let config = described(name.clone(), table, defaults).map_err(|reason| match reason.split_once(": ") {
        Some((key, reason)) if !key.contains(' ') => (Some(key.to_owned()), reason.to_owned()),
        _ => (None, reason),
    })?;
    Ok(BackendConfig {
        origin: BackendOrigin::Added,
        ..config
    })
}

/// Removes the excerpt that the TOML parser draws between bars: a file's content must not reach the log.
pub fn without_excerpt(message: &str) -> String {
    let lines: Vec<&str> = message.trim().lines().filter(|line| !line.contains('|')).collect();
    lines.join(": ")
}

/// The entries of a table, sorted by key.
fn table(key: &str, value: &Value) -> Result<BTreeMap<String, Value>, (String, String)> {
    match &value.kind {
        ValueKind::Table(table) => Ok(table.clone().into_iter().collect()),
        _ => Err((key.to_owned(), "must be a table".to_owned())),
    }
}

fn of_project(
    key: &str,
    value: &Value,
    defaults: BackendDefaults,
) -> Result<Vec<Arc<BackendConfig>>, (String, String)> {
    let backends = table(key, value)?;
    if backends.len() > BACKENDS_MAX {
        return Err((key.to_owned(), format!("at most {BACKENDS_MAX} backends")));
    }
    let one = |(name, value): (String, Value)| {
        let key = format!("{key}.{name}");
        backend(&key, &name, value, defaults).map(Arc::new)
    };
    backends.into_iter().map(one).collect()
}

fn backend(key: &str, name: &str, value: Value, defaults: BackendDefaults) -> Result<BackendConfig, (String, String)> {
    let of_table = |reason: String| (key.to_owned(), reason);
    let name = BackendName::parse(name).map_err(|error| of_table(error.to_string()))?;
    // No key depends on another one, so each can be read by itself. That tells which one is wrong.
    for (member, value) in table(key, &value)? {
        let alone = Value::new(None, ValueKind::Table([(member.clone(), value)].into_iter().collect()));
        if let Err(error) = alone.try_deserialize::<BackendTable>() {
            let reason = reason_of_member(&member, &error.to_string());
            return Err((format!("{key}.{member}"), reason));
        }
    }
    let table = value.try_deserialize().map_err(|error| of_table(error.to_string()))?;
    described(name, table, defaults).map_err(of_table)
}

/// Why a key of a backend is refused, in words of the file.
fn reason_of_member(member: &str, error: &str) -> String {
    // The parser names the key a second time.
    let error = error.rsplit_once(" for key `").map_or(error, |(error, _)| error);
    let Some(known) = error.strip_prefix(&format!("unknown field `{member}`, expected one of ")) else {
        return serde_error_reason(error);
    };
    let known: Vec<&str> = known.split(", ").map(|name| name.trim_matches('`')).collect();
    match nearest_name(member, &known) {
        Some(near) => format!("no such key; did you mean {near}?"),
        None => format!("no such key; known: {}", known.join(", ")),
    }
}

/// The backend that a table describes.
fn described(name: BackendName, mut table: BackendTable, defaults: BackendDefaults) -> Result<BackendConfig, String> {
    if table.command.is_some() && defaults.commands == GatewayCommands::None {
        return Err("command: gateway_commands is none, so no backend has one".to_owned());
    }
    let address = address(&mut table)?;
    let mut config = BackendConfig::new(name, address);
    config.is_disabled = table.disabled;
    config.stop_when_idle = table.stop_when_idle;
    if let Some(concurrency) = table.concurrency {
        if !(1..=CONCURRENCY_MAX).contains(&concurrency) {
            return Err(format!(
                "concurrency: must be a whole number from 1 to {CONCURRENCY_MAX}"
            ));
        }
        config.concurrency = concurrency;
    }
    config.call_timeout = table.call_timeout.unwrap_or(defaults.call_timeout);
    config.call_timeout_max = table
        .call_timeout_max
        .unwrap_or(config.call_timeout_max)
        .max(config.call_timeout);
    config.start_timeout = table.start_timeout.unwrap_or(seconds(60));
    let result_max = table
        .result_max
        .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    if result_max.is_some_and(|bytes| bytes > RESULT_BYTES_MAX) {
        return Err("result_max: at most 1GiB".to_owned());
    }
    config.result_bytes_max = result_max.unwrap_or(defaults.result_bytes_max);
    if matches!(table.start, Some(Start::Eager)) {
        config.start = StartChoice::Eager;
    }
    config.restart = match table.restart {
        Some(Restart::Never) if !table.watch.is_empty() => {
            return Err("restart: with watch a change starts it again, so it is on-change".to_owned());
        }
        Some(Restart::OnChange | Restart::Never) => RestartChoice::Never,
        Some(Restart::Always) | None => RestartChoice::Always,
    };
    if table.watch.len() > PATTERNS_MAX {
        return Err(format!("watch: at most {PATTERNS_MAX} patterns"));
    }
    for pattern in &table.watch {
        FilePattern::parse(pattern).map_err(|reason| format!("watch: {reason}"))?;
    }
    if matches!(config.address, BackendAddress::Url { .. }) && !table.watch.is_empty() {
        return Err("watch: only a program is started again, not a server at a url".to_owned());
    }
    config.watch = table.watch;
    config.hands_over = table.handover.unwrap_or(true);
    config.era = match table.era {
        Some(Era::Legacy) => Some(BackendEra::Legacy),
        Some(Era::Modern) => Some(BackendEra::Modern),
        Some(Era::Auto) | None => None,
    };
    config.asks = table.asks;
    config.sharing = match table.sharing.unwrap_or_default() {
        SharingChoice::Project => Sharing::Project,
        SharingChoice::Key => Sharing::Key,
        SharingChoice::Session => Sharing::Session,
    };
    if let Some(instances) = table.instances_max {
        if !(1..=INSTANCES_MAX).contains(&instances) {
            return Err(format!(
                "instances_max: must be a whole number from 1 to {INSTANCES_MAX}"
            ));
        }
        if instances == 1 && config.sharing != Sharing::Project {
            return Err("instances_max: at least 2, because the main instance serves no caller".to_owned());
        }
        config.instances_max = Some(instances);
    }
    config.shows_instructions = table.instructions.unwrap_or(true);
    config.tools = table.tools.choice(config.call_timeouts(None))?;
    config.limits = ProcessLimits {
        memory_bytes: table.limits.memory,
        processes: table.limits.processes,
        open_files: table.limits.open_files,
        cpu_seconds: table.limits.cpu_seconds,
    };
    Ok(config)
}

/// Takes the program or the server out of a table.
fn address(table: &mut BackendTable) -> Result<BackendAddress, String> {
    match (table.command.take(), table.url.take()) {
        (Some(command), None) if command.trim().is_empty() => Err("command: it is empty".to_owned()),
        (Some(command), None) => Ok(BackendAddress::Command {
            command,
            args: take(&mut table.args),
            env: take(&mut table.env),
            pass_env: take(&mut table.pass_env),
            cwd: table.cwd.take(),
        }),
        (None, Some(url)) => {
            // One with references is known when the backend starts.
            if !url.contains("${") {
                parse_url(&url).map_err(|reason| format!("url: {reason}"))?;
            }
            table.headers.iter().try_for_each(check_header)?;
            Ok(BackendAddress::Url {
                url,
                headers: take(&mut table.headers),
                transport: match table.transport {
                    Some(Transport::Http) => Some(HttpTransport::Streamable),
                    Some(Transport::Sse) => Some(HttpTransport::Sse),
                    Some(Transport::Auto) | None => None,
                },
            })
        }
        (Some(_), Some(_)) => Err("it has a command and a url: leave one out".to_owned()),
        (None, None) => Err("it needs a command or a url".to_owned()),
    }
}

/// Checks what a request has as a header. References in the value are replaced when the backend starts, and checked again.
fn check_header((name, value): (&String, &String)) -> Result<(), String> {
    let wrong = |reason: &str| format!("headers.{}: {reason}", one_line(name));
    HeaderName::try_from(name.as_str()).map_err(|_| wrong("is no name of a header"))?;
    HeaderValue::try_from(value.as_str()).map_err(|_| wrong("has characters that no header may have"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<BackendsConfig, (String, String)> {
        let file = File::from_str(text, FileFormat::Toml).collect().unwrap();
        let defaults = BackendDefaults {
            call_timeout: seconds(60),
            result_bytes_max: 1024,
            commands: GatewayCommands::Configured,
        };
        read_backends(file.get(BACKENDS), file.get(PROJECTS), defaults)
    }

    #[test]
    fn a_backend_has_what_its_table_says_and_the_defaults() {
        let all = read(
            r#"
            [backends.github]
            command = "npx"
            args = ["-y", "server"]
            env = { GITHUB_Token = "${X}" }
            call_timeout = "5s"
            start = "eager"
            result_max = "2MiB"
            limits = { memory = "1GiB" }
            [backends.github.tools]
            deny = ["delete_*"]
            rename = { Search_It = "find" }
            [backends.github.tools."Slow.Tool"]
            call_timeout = 30
            [backends.github.tools.override.find]
            title = "Find"
            [projects.team-a.backends.docs]
            url = "http://localhost/mcp"
            disabled = true
            "#,
        )
        .unwrap();
        let github = &all[&ProjectId::default_project()][0];
        assert!(
            matches!(&github.address, BackendAddress::Command { env, .. } if env["GITHUB_Token"] == "${X}"),
            "the case of names is kept"
        );
        assert_eq!(github.tools.rename["Search_It"], "find");
        assert_eq!(github.tools.overrides["Search_It"].title.as_deref(), Some("Find"));
        assert_eq!(github.call_timeouts(Some("Slow.Tool")).silent, seconds(30));
        assert_eq!(github.call_timeouts(Some("Search_It")).silent, seconds(5));
        assert_eq!(
            (github.call_timeout, github.result_bytes_max),
            (seconds(5), 2 * 1024 * 1024)
        );
        assert_eq!(github.limits.memory_bytes, Some(1 << 30));
        let docs = &all[&ProjectId::parse("team-a").unwrap()][0];
        assert!(docs.is_disabled);
        assert_eq!((github.start, docs.start), (StartChoice::Eager, StartChoice::Lazy));
    }

    #[test]
    fn a_wrong_table_is_refused_with_its_key() {
        for (text, key, reason) in [
            ("backends = 1", "backends", "must be a table"),
            ("[backends.a]", "backends.a", "it needs a command or a url"),
            ("[backends.A]\ncommand = 'x'", "backends.A", "1 to 32 of a-z"),
            ("[backends.mcp]\ncommand = 'x'", "backends.mcp", "reserved"),
            ("[backends.a]\ncommand = 'x'\nurl = 'y'", "backends.a", "leave one out"),
            ("[backends.a]\nurl = 'y'", "backends.a", "url: it must begin with"),
            (
                "[backends.a]\ncommand = 'x'\ncall_timeout = 'soon'",
                "backends.a.call_timeout",
                "must be a time",
            ),
            (
                "[backends.a]\ncommand = 'x'\nstart = 'soon'",
                "backends.a.start",
                "soon",
            ),
            (
                "[backends.a]\ncommand = 'x'\nresult_max = '1TB'",
                "backends.a.result_max",
                "a number of bytes",
            ),
            (
                "[backends.a]\ncommand = 'x'\nresult_max = '2GiB'",
                "backends.a",
                "at most 1GiB",
            ),
            (
                "[backends.a]\ncommand = 'x'\ninstances_max = 0",
                "backends.a",
                "instances_max: must be a whole number from 1 to 64",
            ),
            (
                "[backends.a]\ncommand = 'x'\nsharing = 'key'\ninstances_max = 1",
                "backends.a",
                "instances_max: at least 2",
            ),
            (
                "[backends.a]\ncommand = 'x'\nconcurrency = 0",
                "backends.a",
                "from 1 to",
            ),
            (
                "[backends.a]\ncommand = 'x'\nwatch = ['[a']",
                "backends.a",
                "watch: [a: unclosed character class",
            ),
            (
                "[backends.a]\nurl = 'http://x'\nwatch = ['a']",
                "backends.a",
                "watch: only a program",
            ),
            (
                "[backends.a]\ncommand = 'x'\nrestart = 'never'\nwatch = ['a']",
                "backends.a",
                "so it is on-change",
            ),
            (
                "[backends.a]\ncommand = 'x'\n[backends.a.tools.x]\ncall_timeout = '8d'",
                "backends.a",
                "tools.x.call_timeout: must be a time",
            ),
            (
                "[backends.a]\ncommand = 'x'\n[backends.a.tools.allow]\ncall_timeout = '1s'",
                "backends.a.tools",
                "a tool that is called so has its table in tools.override",
            ),
            ("[projects.X.backends.a]\ncommand = 'x'", "projects.X", "1 to 63"),
            ("[projects.x]\nquota = 1", "projects.x.quota", "has only backends"),
        ] {
            let (found_key, found) = read(text).unwrap_err();
            assert_eq!(found_key, key, "{text}");
            assert!(found.contains(reason), "{text}: {found}");
        }
    }
}
