//! A backend: how a command names it, how the broker shows it, and how it is printed.

use anstyle::{AnsiColor, Style};
use clap::Args;
use rest::backends::Backend;

use crate::{flags::id, output::Output, short::counted, table::Table};

/// The path of the backends.
pub const PATH: &str = "/api/v1/backends";

/// A table of backends.
pub fn table(output: &Output, backends: &[Backend]) -> Table {
    let mut table = Table::new(&[
        "NAME", "STATE", "ORIGIN", "ERA", "TOOLS", "CALLS", "OPEN", "SINCE", "REASON",
    ]);
    for backend in backends {
        let plain = Style::new();
        table.styled_row([
            (backend.name.as_str(), plain),
            (backend.state.as_str(), style_of(&backend.state)),
            (backend.origin.as_str(), plain),
            (backend.era.as_deref().unwrap_or_default(), plain),
            (backend.tools.to_string().as_str(), plain),
            (backend.calls.to_string().as_str(), plain),
            (backend.open_calls.to_string().as_str(), plain),
            (output.age(&backend.since).as_str(), plain),
            (shown_reason(backend).as_str(), plain),
        ]);
    }
    table
}

/// All that is known of one backend.
pub fn details(output: &Output, backend: &Backend) -> Table {
    let mut table = Table::without_headings();
    let mut row = |name: &str, value: String| table.row([name, value.as_str()]);
    row("name", backend.name.clone());
    row(
        "state",
        format!("{} since {}", backend.state, output.time(&backend.since)),
    );
    if let Some(reason) = &backend.reason {
        row("reason", reason.clone());
    }
    if let Some(wait) = backend.retry_after_ms {
        row("next attempt", format!("in {} s", wait.div_ceil(1000)));
    }
    if !backend.origin.is_empty() {
        row("origin", backend.origin.clone());
    }
    row("address", backend.address.clone());
    if let Some(server) = &backend.server {
        row("server", server.clone());
    }
    if let (Some(era), Some(version)) = (&backend.era, &backend.protocol_version) {
        row("protocol", format!("{era}, {version}"));
    }
    if let Some(pid) = backend.pid {
        row("process group", pid.to_string());
    }
    if backend.processes > 1 {
        row("processes", backend.processes.to_string());
    }
    let offers = [
        (backend.tools, "tool"),
        (backend.prompts, "prompt"),
        (backend.resources, "resource"),
    ];
    row(
        "offers",
        offers.map(|(count, noun)| counted(count as u64, noun)).join(", "),
    );
    for problem in &backend.list_problems {
        row("not offered", problem.clone());
    }
    let calls = format!(
        "{} answered, {} failed, {} open, {} of them waiting",
        backend.calls, backend.failures, backend.open_calls, backend.waiting_calls
    );
    row("calls", calls);
    row("starts", backend.starts.to_string());
    table
}

/// Why it is in its state, and whether a part of what it lists is not offered.
fn shown_reason(backend: &Backend) -> String {
    let not_offered = match backend.list_problems.as_slice() {
        [] => None,
        [problem] => Some(format!("not offered: {problem}")),
        [problem, others @ ..] => Some(format!("not offered: {problem}, and {} more", others.len())),
    };
    let parts = backend.reason.iter().cloned().chain(not_offered);
    parts.collect::<Vec<_>>().join("; ")
}

fn style_of(state: &str) -> Style {
    match state {
        "ready" => AnsiColor::Green.on_default(),
        "failed" | "backoff" => AnsiColor::Red.on_default(),
        _ => Style::new(),
    }
}

/// The backend that a command is about.
#[derive(Debug, Args)]
pub struct OfBackend {
    /// Name of the backend.
    #[arg(value_name = "NAME", value_parser = id)]
    pub backend: String,
}

impl OfBackend {
    /// The path of the backend, and of a part of it.
    pub fn path(&self, part: &str) -> String {
        format!("{PATH}/{}{part}", crate::client::percent_encoded(&self.backend))
    }
}
