//! `messages --export`: writes the history of messages into a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use indicatif::ProgressBar;

use super::job::{Context, Job};
use super::lists::Pages;
use super::lookup::whole_path;
use super::message::PAGE_LEN_MAX;
use super::progress;
use crate::error::CliError;
use crate::output::{json_line, json_value_line, print};
use crate::partial_file::PartialFile;
use crate::short::counted;
use crate::table::escaped;

/// Writes messages into a file, one a line.
#[derive(Debug)]
pub struct Export {
    /// The list of the messages: path and query.
    pub path: String,
    pub file: PathBuf,
    /// Replace a file that exists.
    pub replace: bool,
}

impl Job for Export {
    fn run(&self, context: &Context) -> Result<(), CliError> {
        let shown = escaped(&self.file.to_string_lossy());
        if !self.replace && self.file.exists() {
            return Err(CliError::Failed(format!(
                "{shown} exists, and nothing was exported: choose another name, or replace it with --force"
            )));
        }
        let failed = |error: std::io::Error| CliError::Failed(format!("the export to {shown} failed: {error}"));
        // The file has its name only when it is complete.
        let partial = PartialFile::create(&self.file, 0o666).map_err(failed)?;
        let bar = progress::count();
        let count = self.write(context, &partial.file, &bar, &failed);
        bar.finish_and_clear();
        let count = count?;
        partial.rename_to(&self.file).map_err(failed)?;
        if context.output.json {
            let done = serde_json::json!({"file": self.file.to_string_lossy(), "messages": count});
            return print(&json_value_line(&done));
        }
        print(&format!("wrote {} to {shown}\n", counted(count, "message")))
    }
}

impl Export {
    fn write(
        &self,
        context: &Context,
        file: &File,
        bar: &ProgressBar,
        failed: &impl Fn(std::io::Error) -> CliError,
    ) -> Result<u64, CliError> {
        let mut out = BufWriter::new(file);
        let mut pages = Pages::new(
            &context.client,
            whole_path(&context.client, &self.path)?,
            "messages",
            PAGE_LEN_MAX,
            usize::MAX,
        );
        let mut count = 0;
        while let Some(page) = progress::persistently(bar, || pages.next_page())? {
            for message in &page {
                out.write_all(json_line(message).as_bytes()).map_err(failed)?;
            }
            count += page.len() as u64;
            bar.set_position(count);
        }
        out.flush().map_err(failed)?;
        file.sync_all().map_err(failed)?;
        Ok(count)
    }
}
