//! Formats a report for GitHub: workflow commands, which become annotations next to the lines of a change.

use std::fmt::Write as _;

use crate::manifest::finding::{CheckReport, Finding, FindingLevel};

/// Returns the report as workflow commands, one for each finding that is not allowed.
#[must_use]
pub fn github(report: &CheckReport) -> String {
    let findings = report.findings().iter().filter(|finding| finding.allowed().is_none());
    findings.map(|finding| workflow_command(report, finding)).collect()
}

fn workflow_command(report: &CheckReport, finding: &Finding) -> String {
    let name = match finding.level() {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
        FindingLevel::Note | FindingLevel::Off => "notice",
    };
    let mut text = format!("::{name} ");
    if let Some(span) = finding.span()
        && let (Some(source), Some((start, end))) = (report.source(span.file), report.positions(span))
    {
        // Writing to a string cannot fail.
        let _ = write!(text, "file={},line={},endLine={}", escape_property(source.name()), start.line, end.line);
        // GitHub uses columns only within one line, and the end column is inclusive.
        if start.line == end.line {
            let last = end.column.max(start.column + 1) - 1;
            let _ = write!(text, ",col={},endColumn={last}", start.column);
        }
        text.push(',');
    }
    let rule = finding.rule();
    let _ = write!(
        text,
        "title={}::{}",
        escape_property(&format!("{} {}", rule.id, rule.name)),
        escape_data(finding.message())
    );
    if let Some(help) = finding.help() {
        let _ = write!(text, "%0A{}", escape_data(&format!("help: {help}")));
    }
    text.push('\n');
    text
}

fn escape_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn escape_property(text: &str) -> String {
    escape_data(text).replace(':', "%3A").replace(',', "%2C")
}
