//! `messages --export`: writes the history of messages into a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use indicatif::ProgressBar;

use super::job::Context;
use super::lists::Pages;
use super::lookup::whole_path;
use super::message::PAGE_LEN_MAX;
use super::progress;
use crate::error::CliError;
use crate::output::{json_line, json_value_line, print};
use crate::partial_file::PartialFile;
use crate::short::counted;
use crate::table::escaped;

/// Writes the messages of a list, which `path` names with its query, into a file, one a line.
///
/// # Errors
/// The file exists and is not to be replaced, or cannot be written, or the broker refuses.
pub fn export(context: &Context, path: &str, target: &Path, replaces: bool) -> Result<(), CliError> {
    let shown = escaped(&target.to_string_lossy());
    if !replaces && target.exists() {
        return Err(CliError::Failed(format!(
            "{shown} exists, and nothing was exported: choose another name, or replace it with --force"
        )));
    }
    let failed = |error: std::io::Error| CliError::Failed(format!("the export to {shown} failed: {error}"));
    // The file has its name only when it is complete.
    let partial = PartialFile::create(target, 0o666).map_err(failed)?;
    let bar = progress::count();
    let count = write(context, path, &partial.file, &bar, &failed);
    bar.finish_and_clear();
    let count = count?;
    partial.rename_to(target).map_err(failed)?;
    if context.output.json {
        let done = serde_json::json!({"file": target.to_string_lossy(), "messages": count});
        return print(&json_value_line(&done));
    }
    print(&format!("wrote {} to {shown}\n", counted(count, "message")))
}

fn write(
    context: &Context,
    path: &str,
    file: &File,
    bar: &ProgressBar,
    failed: &impl Fn(std::io::Error) -> CliError,
) -> Result<u64, CliError> {
    let mut out = BufWriter::new(file);
    let path = whole_path(&context.client, path)?;
    let mut pages = Pages::new(&context.client, path, "messages", PAGE_LEN_MAX, usize::MAX);
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
