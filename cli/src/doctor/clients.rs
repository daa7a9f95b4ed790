//! The configuration files of MCP clients on this machine: whether they can be read, have an entry for a broker, and
//! lead to one that answers.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use super::{
    client_files::{ServerEntry, StartedCommand, Target, expanded, servers},
    findings::Finding,
    ports::health,
    setup::Setup,
};
use crate::{
    access::BrokerUrl,
    agent_clients::{AgentClient, CLIENTS},
    client_file::{parse, read},
};

/// Most brokers that are asked whether they answer.
const BROKERS_MAX: usize = 8;
/// The names that an entry for a broker usually has.
const USUAL_NAMES: [&str; 2] = ["broker", "mcp-broker"];

/// An entry for a broker in the file of a client.
struct Found {
    client: &'static AgentClient,
    file: PathBuf,
    entry: ServerEntry,
}

/// Reads the files of all clients, and asks the brokers that they name.
pub fn check(setup: &Setup) -> Vec<Finding> {
    let project = std::env::current_dir().ok();
    let (mut findings, mut found) = (Vec::new(), Vec::new());
    for client in &CLIENTS {
        for file in files(setup, client, project.as_deref()) {
            let parsed = |text: String| parse(client.format, &text);
            match read(&file).and_then(|text| text.map(parsed).transpose()) {
                Ok(None) => {}
                Ok(Some(content)) => {
                    let entries = servers(client, &content, project.as_deref());
                    let ours: Vec<_> = entries.into_iter().filter(|entry| is_ours(setup, entry)).collect();
                    if ours.is_empty() {
                        findings.push(without_entry(client, &file));
                    }
                    found.extend(ours.into_iter().map(|entry| Found {
                        client,
                        file: file.clone(),
                        entry,
                    }));
                }
                Err(reason) => findings.push(
                    Finding::error(format!("{}: {} cannot be used: {reason}", client.label, file.display()))
                        .cure("correct the file in an editor: the client ignores it or does not start"),
                ),
            }
        }
    }
    let answers = answers(setup, &found);
    findings.extend(found.iter().flat_map(|found| entry_findings(setup, found, &answers)));
    if findings.is_empty() {
        let words: Vec<_> = CLIENTS[1..].iter().map(|client| client.word).collect();
        let cure = format!(
            "mcp-broker setup {} (or {}) connects one",
            CLIENTS[0].word,
            words.join(", ")
        );
        findings.push(Finding::note("no configuration of an MCP client was found").cure(cure));
    }
    findings
}

/// All places of the files of a client, each once.
fn files(setup: &Setup, client: &AgentClient, project: Option<&Path>) -> Vec<PathBuf> {
    let of_user = client.user_files(|name| setup.variable(name).map(Into::into));
    let of_project = project.map(|project| client.project_files(project)).unwrap_or_default();
    let mut files = of_user;
    for file in of_project {
        if !files.contains(&file) {
            files.push(file);
        }
    }
    files
}

fn without_entry(client: &AgentClient, file: &Path) -> Finding {
    Finding::note(format!(
        "{}: {} has no entry for a broker",
        client.label,
        file.display()
    ))
    .cure(format!("mcp-broker setup {} adds one", client.word))
}

/// Whether an entry is for a broker: by its name, its program or its address.
fn is_ours(setup: &Setup, entry: &ServerEntry) -> bool {
    let is_program = match &entry.target {
        Target::Command(command) => command.is_own,
        Target::Url(_) => base_url(setup, entry).is_some_and(|base| base.text == setup.access.url.text),
        Target::Unknown => false,
    };
    is_program || USUAL_NAMES.iter().any(|name| entry.name.eq_ignore_ascii_case(name))
}

/// The address of the broker that an entry leads to.
fn base_url(setup: &Setup, entry: &ServerEntry) -> Option<BrokerUrl> {
    let Target::Url(url) = &entry.target else { return None };
    let url = expanded(url, |name| setup.variable(name))?;
    let url = match url.strip_prefix("ws") {
        Some(rest) => format!("http{rest}"),
        None => url,
    };
    let url = url.trim_end_matches('/');
    let base = ["/mcp", "/ws"]
        .iter()
        .find_map(|path| url.strip_suffix(path))
        .unwrap_or(url);
    BrokerUrl::parse(base, "a client").ok()
}

/// Asks each broker once, all at the same time: its address, and why it does not answer.
fn answers(setup: &Setup, found: &[Found]) -> BTreeMap<String, Result<(), String>> {
    let mut brokers = BTreeMap::new();
    for base in found.iter().filter_map(|found| base_url(setup, &found.entry)) {
        if brokers.len() < BROKERS_MAX {
            brokers.insert(base.text.clone(), base);
        }
    }
    std::thread::scope(|scope| {
        let ask = |(text, base): (String, BrokerUrl)| (text, scope.spawn(move || health(&base).map(drop)));
        let asked: Vec<_> = brokers.into_iter().map(ask).collect();
        let finish = |(text, thread): (String, std::thread::ScopedJoinHandle<'_, _>)| Some((text, thread.join().ok()?));
        asked.into_iter().filter_map(finish).collect()
    })
}

fn entry_findings(setup: &Setup, found: &Found, answers: &BTreeMap<String, Result<(), String>>) -> Vec<Finding> {
    let Found { client, file, entry } = found;
    let at = format!("{}: the entry {} in {}", client.label, entry.name, file.display());
    if entry.is_disabled {
        return vec![Finding::note(format!("{at} is switched off"))];
    }
    let mut findings = vec![target_finding(setup, client, entry, &at, answers)];
    for variable in entry
        .variables
        .iter()
        .filter(|variable| setup.variable(variable).is_none())
    {
        findings.push(
            Finding::warning(format!("{at} refers to the variable {variable}, which is not set here"))
                .cure(format!("set it where the client starts: export {variable}=KEY")),
        );
    }
    if entry.has_plain_key {
        findings.push(Finding::note(format!("{at} holds a key in clear text")).cure(format!(
            "refer to a variable instead: mcp-broker config {} --key-env",
            client.word
        )));
    }
    findings
}

fn target_finding(
    setup: &Setup,
    client: &AgentClient,
    entry: &ServerEntry,
    at: &str,
    answers: &BTreeMap<String, Result<(), String>>,
) -> Finding {
    let again = format!("replace it by what mcp-broker config {} prints", client.word);
    match &entry.target {
        Target::Unknown => Finding::error(format!("{at} has neither a URL nor a command")).cure(again),
        Target::Command(command) => command_finding(setup, client, command, at),
        Target::Url(_) => match base_url(setup, entry) {
            None => Finding::error(format!("{at} has a URL that cannot be used")).cure(again),
            Some(base) => match answers.get(&base.text) {
                Some(Ok(())) => Finding::ok(format!("{at} leads to {}, where a broker answers", base.text)),
                Some(Err(reason)) => Finding::warning(format!(
                    "{at} leads to {}, where no broker answers: {reason}",
                    base.text
                ))
                .cure("start the broker there (mcp-broker serve), or correct the address in the file"),
                None => Finding::note(format!("{at} leads to {}, which was not asked", base.text)),
            },
        },
    }
}

fn command_finding(setup: &Setup, client: &AgentClient, command: &StartedCommand, at: &str) -> Finding {
    let program = &command.program;
    if !is_program_found(setup, program) {
        return Finding::error(format!(
            "{at} starts {program}, which is not found or cannot be executed"
        ))
        .cure("install it on the PATH of the client, or give its full path");
    }
    if command.is_own && !command.is_front {
        return Finding::error(format!(
            "{at} starts {program} without the word connect, and no MCP server answers the client"
        ))
        .cure(format!(
            "remove the entry from the file and run mcp-broker setup {}",
            client.word
        ));
    }
    Finding::ok(format!("{at} starts {program}"))
}

fn is_program_found(setup: &Setup, program: &str) -> bool {
    let is_executable = |path: &Path| {
        let mode = std::fs::metadata(path).map(|metadata| (metadata.is_file(), metadata.permissions().mode()));
        mode.is_ok_and(|(is_file, mode)| is_file && mode & 0o111 != 0)
    };
    if program.contains('/') {
        return is_executable(Path::new(program));
    }
    let path = setup.variable("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_executable(&folder.join(program)))
}
