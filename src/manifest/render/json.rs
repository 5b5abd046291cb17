//! Formats a report for programs: one JSON document, in a stable order.

use serde::Serialize;

use crate::manifest::finding::{CheckReport, CheckedCounts, Finding, FindingLevel, SourceSpan};
use crate::manifest::text::{SourceFile, TextPosition};

#[derive(Serialize)]
struct JsonReport<'a> {
    format: u32,
    file: &'a str,
    errors: usize,
    warnings: usize,
    notes: usize,
    allowed: usize,
    checked: CheckedCounts,
    findings: Vec<JsonFinding<'a>>,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    rule: &'static str,
    name: &'static str,
    level: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    pointer: &'a str,
    location: Option<JsonLocation<'a>>,
    related: Vec<JsonRelatedLocation<'a>>,
    allowed: Option<&'a str>,
}

#[derive(Serialize)]
struct JsonRelatedLocation<'a> {
    message: &'a str,
    location: Option<JsonLocation<'a>>,
}

#[derive(Serialize)]
struct JsonLocation<'a> {
    file: &'a str,
    start: JsonPosition,
    end: JsonPosition,
}

#[derive(Serialize)]
struct JsonPosition {
    line: usize,
    column: usize,
    offset: usize,
}

/// Returns the report as JSON: the numbers of findings and of what was checked, and each finding.
///
/// A finding has its rule, level, message, help, JSON pointer and locations, and the reason if it is allowed. Lines and
/// columns count from 1 (a column is one character), offsets count bytes from 0.
///
/// # Errors
///
/// Returns an error if the report cannot be written as JSON, which does not happen for the report of a check.
pub fn json(report: &CheckReport) -> Result<String, serde_json::Error> {
    let document = JsonReport {
        format: 1,
        file: report.sources().first().map_or("", SourceFile::name),
        errors: report.count(FindingLevel::Error),
        warnings: report.count(FindingLevel::Warning),
        notes: report.count(FindingLevel::Note),
        allowed: report.count_allowed(),
        checked: report.checked(),
        findings: report.findings().iter().map(|finding| json_finding(report, finding)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

fn json_finding<'a>(report: &'a CheckReport, finding: &'a Finding) -> JsonFinding<'a> {
    let related = |location: &'a crate::manifest::RelatedLocation| JsonRelatedLocation {
        message: &location.message,
        location: json_location(report, &location.span),
    };
    JsonFinding {
        rule: finding.rule().id,
        name: finding.rule().name,
        level: finding.level().as_str(),
        message: finding.message(),
        help: finding.help(),
        pointer: finding.pointer(),
        location: finding.span().and_then(|span| json_location(report, span)),
        related: finding.related().iter().map(related).collect(),
        allowed: finding.allowed(),
    }
}

fn json_location<'a>(report: &'a CheckReport, span: &SourceSpan) -> Option<JsonLocation<'a>> {
    let (start, end) = report.positions(span)?;
    let position = |TextPosition { line, column }, offset| JsonPosition { line, column, offset };
    Some(JsonLocation {
        file: report.source(span.file)?.name(),
        start: position(start, span.start),
        end: position(end, span.end),
    })
}
