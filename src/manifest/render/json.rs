//! For programs: one JSON document, in an order that is stable.

use serde::Serialize;

use crate::manifest::finding::{Finding, Level, Report, Span};
use crate::manifest::text::{Position, Source};

#[derive(Serialize)]
struct Document<'a> {
    format: u32,
    file: &'a str,
    errors: usize,
    warnings: usize,
    notes: usize,
    allowed: usize,
    findings: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Item<'a> {
    rule: &'static str,
    name: &'static str,
    level: &'static str,
    message: &'a str,
    help: Option<&'a str>,
    pointer: &'a str,
    location: Option<Location<'a>>,
    related: Vec<Related<'a>>,
    allowed: Option<&'a str>,
}

#[derive(Serialize)]
struct Related<'a> {
    message: &'a str,
    location: Option<Location<'a>>,
}

#[derive(Serialize)]
struct Location<'a> {
    file: &'a str,
    start: Place,
    end: Place,
}

#[derive(Serialize)]
struct Place {
    line: usize,
    column: usize,
    offset: usize,
}

/// The report as JSON: every finding with rule, level, message, help, JSON pointer and place; lines and columns count
/// characters from 1, offsets count bytes from 0.
///
/// # Errors
///
/// Never for a report that was made by a check.
pub fn json(report: &Report) -> Result<String, serde_json::Error> {
    let document = Document {
        format: 1,
        file: report.sources().first().map_or("", Source::name),
        errors: report.count(Level::Error),
        warnings: report.count(Level::Warning),
        notes: report.count(Level::Note),
        allowed: report.count_allowed(),
        findings: report.findings().iter().map(|finding| item(report, finding)).collect(),
    };
    let mut text = serde_json::to_string_pretty(&document)?;
    text.push('\n');
    Ok(text)
}

fn item<'a>(report: &'a Report, finding: &'a Finding) -> Item<'a> {
    let related =
        |one: &'a crate::manifest::Related| Related { message: &one.message, location: location(report, &one.span) };
    Item {
        rule: finding.rule().id,
        name: finding.rule().name,
        level: finding.level().as_str(),
        message: finding.message(),
        help: finding.help(),
        pointer: finding.pointer(),
        location: finding.span().and_then(|span| location(report, span)),
        related: finding.related().iter().map(related).collect(),
        allowed: finding.allowed(),
    }
}

fn location<'a>(report: &'a Report, span: &Span) -> Option<Location<'a>> {
    let (start, end) = report.positions(span)?;
    let place = |Position { line, column }, offset| Place { line, column, offset };
    Some(Location {
        file: report.source(span.file)?.name(),
        start: place(start, span.start),
        end: place(end, span.end),
    })
}
