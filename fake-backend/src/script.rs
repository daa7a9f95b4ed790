//! The flags: how the server begins, and what it offers.

use std::{
    fs::OpenOptions,
    io::{Write, stderr},
    process::exit,
    thread::sleep,
    time::Duration,
};

fn number<T: std::str::FromStr>(text: String) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text} is no number"))
}

/// What the flags say.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
#[derive(Default)]
pub struct Script {
    /// `legacy`, `modern` or `both`.
    pub era: String,
    /// The first handshake decides the era for the process.
    pub locks: bool,
    pub exits_on_discover: bool,
    pub is_silent: bool,
    pub ignores_eof: bool,
    /// Exit with code 7 after this many calls.
    pub exit_after: Option<u64>,
    pub page_size: Option<usize>,
    pub extra_tools: usize,
    /// Further tools that answer as `echo` does, after `ms` milliseconds if there is this argument.
    pub tools: Vec<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
    /// Further resources.
    pub resources: Vec<String>,
    /// What the texts of its resources say of it.
    pub name: String,
    /// Further items, as their lists have them: JSON objects.
    pub items: Vec<(String, serde_json::Value)>,
    pub refuses_lists: bool,
    /// Methods that it does not have, although it declares them.
    pub missing_methods: Vec<String>,
    /// A cursor that each last page gives, and that leads to a last page without items; the empty one leads to the first page.
    pub last_cursor: Option<String>,
    /// The number of the page that each list refuses.
    pub failing_page: Option<usize>,
    /// Calls of its tool `task` go on as tasks.
    pub has_tasks: bool,
    /// How many subscriptions of modern clients are refused before one is accepted.
    pub refused_listens: u64,
    /// It has a further tool for each capability that its client declares in `initialize`: `for_roots` and so on.
    pub lists_by_capability: bool,
    /// It exits when its client declares this capability in `initialize`.
    pub exits_when_told: Option<String>,
    /// It declares neither prompts nor resources.
    pub has_only_tools: bool,
    /// A process with this file in its place exits at the start: `exit-while` names it.
    exit_while: Option<String>,
    ignores_term: bool,
    start_delay: Duration,
    exit_at_start: Option<i32>,
    garbage_at_start: usize,
    stderr_at_start: usize,
    starts: Option<String>,
}

impl Script {
    /// Parses the flags.
    pub fn parse(flags: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut script = Self {
            era: "legacy".to_owned(),
            ..Self::default()
        };
        script.read(flags)?;
        Ok(script)
    }

    fn read(&mut self, mut flags: impl Iterator<Item = String>) -> Result<(), String> {
        let script = self;
        while let Some(flag) = flags.next() {
            let mut value = || flags.next().ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--era" => script.era = value()?,
                "--lock" => script.locks = true,
                "--exit-on-discover" => script.exits_on_discover = true,
                "--silent" => script.is_silent = true,
                "--ignore-eof" => script.ignores_eof = true,
                "--ignore-term" => script.ignores_term = true,
                "--item" => {
                    let list = value()?;
                    let item = value()?;
                    let item = serde_json::from_str(&item).map_err(|error| format!("{item}: {error}"))?;
                    script.items.push((list, item));
                }
                "--name" => script.name = value()?,
                "--missing-method" => script.missing_methods.push(value()?),
                "--last-cursor" => script.last_cursor = Some(value()?),
                "--failing-page" => script.failing_page = Some(number(value()?)?),
                "--no-lists" => script.refuses_lists = true,
                "--tasks" => script.has_tasks = true,
                "--refused-listens" => script.refused_listens = number(value()?)?,
                "--list-by-capability" => script.lists_by_capability = true,
                "--exit-when-told" => script.exits_when_told = Some(value()?),
                "--only-tools" => script.has_only_tools = true,
                "--exit-after" => script.exit_after = Some(number(value()?)?),
                "--exit-at-start" => script.exit_at_start = Some(number(value()?)?),
                "--exit-while" => script.exit_while = Some(value()?),
                "--page-size" => script.page_size = Some(number(value()?)?),
                "--extra-tools" => script.extra_tools = number(value()?)?,
                "--garbage-at-start" => script.garbage_at_start = number(value()?)?,
                "--stderr-at-start" => script.stderr_at_start = number(value()?)?,
                "--start-delay" => script.start_delay = Duration::from_millis(number(value()?)?),
                "--starts" => script.starts = Some(value()?),
                "--resource" => script.resources.push(value()?),
                "--tool" => script.tools.push(value()?),
                "--description" => script.description = Some(value()?),
                "--instructions" => script.instructions = Some(value()?),
                // What the server does depends on a file, as it does for a program in Python.
                "--flags-of" => {
                    let file = std::fs::read_to_string(value()?).map_err(|error| error.to_string())?;
                    script.read(
                        file.split_whitespace()
                            .map(str::to_owned)
                            .collect::<Vec<_>>()
                            .into_iter(),
                    )?;
                }
                _ => return Err(format!("{flag} is not known")),
            }
        }
        Ok(())
    }

    /// What happens before the first line is read.
    pub fn begin(&self) {
        if let Some(starts) = &self.starts {
            let file = OpenOptions::new().create(true).append(true).open(starts);
            let noted = file.and_then(|mut file| writeln!(file, "{}", std::process::id()));
            noted.expect("the file of starts can be written");
        }
        if self.ignores_term {
            let ignored = std::sync::Arc::default();
            signal_hook::flag::register(signal_hook::consts::SIGTERM, ignored).expect("SIGTERM can be ignored");
        }
        let line = format!("{}\n", "e".repeat(99));
        for _ in 0..self.stderr_at_start / line.len() {
            let _ = stderr().write_all(line.as_bytes());
        }
        if let Some(code) = self.exit_at_start {
            eprintln!("missing FAKE_TOKEN");
            exit(code);
        }
        if self
            .exit_while
            .as_ref()
            .is_some_and(|file| std::path::Path::new(file).exists())
        {
            eprintln!("the file is there");
            exit(9);
        }
        sleep(self.start_delay);
    }

    /// Writes the lines that are no messages.
    pub fn garbage(&self, write: impl Fn(&str)) {
        for at in 0..self.garbage_at_start {
            write(&format!("starting up, step {at}\n"));
        }
    }
}
