//! What a check finds, and how findings are printed.

use std::fmt::Write;

use serde::Serialize;

use crate::table::{escaped, escaped_json};

/// How much a finding matters. The order is that of the weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing is wrong.
    Note,
    /// Works now, and is likely to fail or to lose something later.
    Warning,
    /// Does not work.
    Error,
}

impl Severity {
    /// Whether something has to be done.
    pub fn needs_fix(self) -> bool {
        self >= Self::Warning
    }

    fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The name of the check, which the list of checks has.
    pub check: &'static str,
    pub severity: Severity,
    /// What is the case.
    pub found: String,
    /// What to do about it, with a command where one exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl Finding {
    /// It is as it should be.
    pub fn ok(found: impl Into<String>) -> Self {
        Self::new(Severity::Ok, found)
    }

    /// It is worth knowing.
    pub fn note(found: impl Into<String>) -> Self {
        Self::new(Severity::Note, found)
    }

    /// It will fail, or lose something, later.
    pub fn warning(found: impl Into<String>) -> Self {
        Self::new(Severity::Warning, found)
    }

    /// It does not work.
    pub fn error(found: impl Into<String>) -> Self {
        Self::new(Severity::Error, found)
    }

    fn new(severity: Severity, found: impl Into<String>) -> Self {
        Self {
            check: "",
            severity,
            found: found.into(),
            cure: None,
        }
    }

    /// Names the check that has found it, unless it has a name already.
    pub fn of(mut self, check: &'static str) -> Self {
        if self.check.is_empty() {
            self.check = check;
        }
        self
    }

    /// Adds what to do.
    pub fn cure(mut self, cure: impl Into<String>) -> Self {
        self.cure = Some(cure.into());
        self
    }
}

/// The greatest weight of all findings.
pub fn worst(findings: &[Finding]) -> Severity {
    findings
        .iter()
        .map(|finding| finding.severity)
        .max()
        .unwrap_or(Severity::Ok)
}

/// One JSON object a line.
pub fn json_text(findings: &[Finding]) -> String {
    let line = |finding| serde_json::to_string(finding).unwrap_or_default();
    findings.iter().fold(String::new(), |text, finding| {
        text + &escaped_json(&line(finding)) + "\n"
    })
}

/// A table for people: a line for each finding, the cure below it, and a summary.
pub fn table_text(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
    let mut text = String::new();
    for finding in findings {
        let word = finding.severity.word();
        let _ = writeln!(
            text,
            "{:<width$}  {word:<7}  {}",
            finding.check,
            escaped(&finding.found)
        );
        if let Some(cure) = &finding.cure {
            let label = if finding.severity.needs_fix() {
                "to fix it"
            } else {
                "hint"
            };
            let _ = writeln!(text, "{:<width$}           {label}: {}", "", escaped(cure));
        }
    }
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let summary = match (errors, warnings) {
        (0, 0) => "Nothing needs fixing.".to_owned(),
        (errors, warnings) => format!("Found: errors: {errors}, warnings: {warnings}."),
    };
    let _ = writeln!(text, "\n{summary}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_a_table_for_people_and_lines_for_programs() {
        let findings = [
            Finding::ok("it is right").of("clock"),
            Finding::error("\u{1b}[31mtaken")
                .of("ports")
                .cure("choose another --port"),
        ];
        let table = "clock  ok       it is right\n\
                     ports  error    \\u{1b}[31mtaken\n\
                     \x20               to fix it: choose another --port\n\
                     \nFound: errors: 1, warnings: 0.\n";
        assert_eq!(table_text(&findings), table);
        let lines = "{\"check\":\"clock\",\"severity\":\"ok\",\"found\":\"it is right\"}\n\
                     {\"check\":\"ports\",\"severity\":\"error\",\"found\":\"\\u001b[31mtaken\",\"cure\":\"choose another --port\"}\n";
        assert_eq!(json_text(&findings), lines);
        assert!(worst(&findings).needs_fix() && !worst(&findings[..1]).needs_fix());
        assert!(table_text(&findings[..1]).ends_with("\nNothing needs fixing.\n"));
    }
}
