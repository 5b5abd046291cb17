//! Formats a report for code scanners: SARIF 2.1.0.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::manifest::finding::{CheckReport, Finding, FindingLevel, SourceSpan};
use crate::manifest::rules::{self, Rule};
use crate::manifest::text::SourceFile;

/// Returns the report as SARIF: each rule with its text, and each finding with its location. Allowed findings are
/// marked as suppressed.
///
/// # Errors
///
/// Returns an error if the report cannot be written as JSON, which does not happen for the report of a check.
pub fn sarif(report: &CheckReport) -> Result<String, serde_json::Error> {
    let all: Vec<&'static Rule> = rules::all().collect();
    let results: Vec<Value> = report.findings().iter().map(|finding| sarif_result(report, finding, &all)).collect();
    let artifacts: Vec<Value> =
        report.sources().iter().map(|source| json!({"location": {"uri": uri(source.name())}})).collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "imagate",
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": all.iter().map(|rule| rule_descriptor(rule)).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "artifacts": artifacts,
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

fn rule_descriptor(rule: &Rule) -> Value {
    json!({
        "id": rule.id,
        "name": rule.name,
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.explain},
        "help": {"text": format!("imagate skills explain {}", rule.id)},
        "defaultConfiguration": {"enabled": rule.level != FindingLevel::Off, "level": sarif_level(rule.level)},
    })
}

fn sarif_level(level: FindingLevel) -> &'static str {
    match level {
        FindingLevel::Error => "error",
        FindingLevel::Warning => "warning",
        FindingLevel::Note | FindingLevel::Off => "note",
    }
}

fn sarif_result(report: &CheckReport, finding: &Finding, all: &[&'static Rule]) -> Value {
    let text = match finding.help() {
        Some(help) => format!("{}\n{help}", finding.message()),
        None => finding.message().to_owned(),
    };
    let mut result = json!({
        "ruleId": finding.rule().id,
        "level": sarif_level(finding.level()),
        "message": {"text": text},
        "locations": [location(report, finding)],
        "partialFingerprints": {"ruleAndPointer/v1": format!("{}:{}", finding.rule().id, finding.pointer())},
    });
    if let Some(index) = all.iter().position(|rule| *rule == finding.rule()) {
        result["ruleIndex"] = json!(index);
    }
    let related: Vec<Value> = finding
        .related()
        .iter()
        .filter_map(|related| {
            Some(json!({
                "physicalLocation": physical_location(report, &related.span)?,
                "message": {"text": related.message},
            }))
        })
        .collect();
    if !related.is_empty() {
        result["relatedLocations"] = Value::Array(related);
    }
    if let Some(reason) = finding.allowed() {
        result["suppressions"] = json!([{"kind": "external", "justification": reason}]);
    }
    result
}

fn location(report: &CheckReport, finding: &Finding) -> Value {
    let first_file = || report.sources().first().map(|source| json!({"artifactLocation": artifact(source, 0)}));
    let physical = finding.span().and_then(|span| physical_location(report, span)).or_else(first_file);
    let mut location = json!({"physicalLocation": physical});
    if !finding.pointer().is_empty() {
        location["logicalLocations"] = json!([{"fullyQualifiedName": finding.pointer(), "kind": "member"}]);
    }
    location
}

fn physical_location(report: &CheckReport, span: &SourceSpan) -> Option<Value> {
    let source = report.source(span.file)?;
    let (start, end) = report.positions(span)?;
    let index = report.sources().iter().position(|candidate| std::ptr::eq(candidate, source))?;
    Some(json!({
        "artifactLocation": artifact(source, index),
        "region": {
            "startLine": start.line,
            "startColumn": start.column,
            "endLine": end.line,
            "endColumn": end.column,
            "byteOffset": span.start,
            "byteLength": span.end - span.start,
        },
    }))
}

fn artifact(source: &SourceFile, index: usize) -> Value {
    json!({"uri": uri(source.name()), "index": index})
}

/// Returns the name of a file as a URI reference: an https address unchanged, and a path with `/` between its parts and
/// with all characters escaped that have a meaning in a URI.
fn uri(name: &str) -> String {
    if name.starts_with("https://") {
        return name.to_owned();
    }
    let mut uri = String::with_capacity(name.len());
    for byte in name.replace('\\', "/").bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
