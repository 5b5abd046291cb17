//! Formats a report for build servers: a JUnit document with one test case for each rule that was checked.

use std::fmt::Write as _;

use crate::manifest::finding::{CheckReport, Finding};
use crate::manifest::rules::Rule;
use crate::manifest::text::SourceFile;

/// Returns the report as JUnit XML.
///
/// The test of a rule has failed if it has a finding that is an error and not allowed. It was skipped if all its findings are allowed. In all other cases it has passed, and its findings are its output.
#[must_use]
pub fn junit(report: &CheckReport) -> String {
    let file = escaped(report.sources().first().map_or("", SourceFile::name));
    let (mut cases, mut failures, mut skipped) = (String::new(), 0, 0);
    let mut count = 0;
    for (rule, findings) in by_rule(report) {
        let outcome = test_case_body(report, &findings);
        failures += usize::from(outcome.starts_with("<failure"));
        skipped += usize::from(outcome.starts_with("<skipped"));
        count += 1;
        // Writing to a string cannot fail.
        let _ = write!(cases, "    <testcase classname=\"{file}\" name=\"{} {}\"", rule.id, rule.name);
        let _ = if outcome.is_empty() {
            writeln!(cases, "/>")
        } else {
            writeln!(cases, ">\n      {outcome}\n    </testcase>")
        };
    }
    let counts = format!("tests=\"{count}\" failures=\"{failures}\" errors=\"0\" skipped=\"{skipped}\"");
    let total = format!("tests=\"{count}\" failures=\"{failures}\" errors=\"0\"");
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"imagate skills validate\" {total}>\n  \
         <testsuite name=\"{file}\" {counts}>\n{cases}  </testsuite>\n</testsuites>\n"
    )
}

/// Returns each rule that was checked or has findings, with its findings. A rule that was not checked can have
/// findings, for example in a file other than the manifest.
fn by_rule(report: &CheckReport) -> Vec<(&'static Rule, Vec<&Finding>)> {
    let mut rules: Vec<&'static Rule> = report.checked_rules().iter().map(|(rule, _)| *rule).collect();
    rules.extend(report.findings().iter().map(Finding::rule));
    rules.sort_unstable_by_key(|rule| rule.id);
    rules.dedup_by_key(|rule| rule.id);
    let findings_of = |rule: &'static Rule| report.findings().iter().filter(|finding| finding.rule() == rule).collect();
    rules.into_iter().map(|rule| (rule, findings_of(rule))).collect()
}

fn test_case_body(report: &CheckReport, findings: &[&Finding]) -> String {
    let Some(first) = findings.first() else { return String::new() };
    let lines: Vec<String> = findings.iter().map(|finding| finding_line(report, finding)).collect();
    let lines = escaped(&lines.join("\n"));
    let errors: Vec<&&Finding> = findings.iter().filter(|finding| finding.is_error()).collect();
    if let Some(error) = errors.first() {
        let message = escaped(error.message());
        format!("<failure type=\"{}\" message=\"{message}\">{lines}</failure>", first.rule().id)
    } else if findings.iter().all(|finding| finding.allowed().is_some()) {
        format!("<skipped message=\"{}\"/>", escaped(first.allowed().unwrap_or_default()))
    } else {
        format!("<system-out>{lines}</system-out>")
    }
}

fn finding_line(report: &CheckReport, finding: &Finding) -> String {
    let location = finding.span().and_then(|span| {
        let (start, _) = report.positions(span)?;
        Some(format!("{}:{}:{}: ", report.source(span.file)?.name(), start.line, start.column))
    });
    format!("{}{}: {}", location.unwrap_or_default(), finding.level().as_str(), finding.message())
}

fn escaped(text: &str) -> String {
    let mut xml = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\n' | '\t' => xml.push(character),
            // XML does not allow these characters, not even escaped, except `\r`, which readers turn into `\n`.
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => xml.push('\u{fffd}'),
            other => xml.push(other),
        }
    }
    xml
}
