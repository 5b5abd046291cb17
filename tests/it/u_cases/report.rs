//! The table of results: the file with all lines, and the printed lines that fail.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use super::fixtures::CaseFixture;
use super::operation::Operation;
use super::row::{AccountsAfter, Row};
use super::rows;
use super::scene::Observations;

/// The result of one row with one operation.
pub(super) struct Line {
    case: &'static str,
    name: &'static str,
    operation: &'static str,
    attempts: String,
    status: String,
    state: String,
    seconds: String,
    verdict: String,
    holds: bool,
}

pub(super) struct Report {
    lines: Vec<Line>,
    run_checks: String,
    run_checks_hold: bool,
}

// === impl Line ===

impl Line {
    pub(super) fn new(fixture: &CaseFixture, seen: &Observations, took: Duration, verdict: Result<(), String>) -> Self {
        let holds = verdict.is_ok();
        let text = match (verdict, fixture.row.after) {
            (Ok(()), AccountsAfter::Unusable(reason)) => format!("holds (LIVE not checked: {reason})"),
            (Ok(()), _) => "holds".to_owned(),
            (Err(fault), _) => format!("FAILS: {:?}: {}", seen.stimulus, short(&fault)),
        };
        let join = |set: &BTreeSet<String>| set.iter().map(String::as_str).collect::<Vec<_>>().join("/");
        let counts: BTreeSet<String> = seen.attempts.iter().map(ToString::to_string).collect();
        Self {
            case: fixture.row.case,
            name: fixture.row.name,
            operation: fixture.operation.name(),
            attempts: join(&counts),
            status: join(&seen.statuses),
            state: join(&seen.states),
            seconds: format!("{:.1}", took.as_secs_f64()),
            verdict: text.chars().take(600).collect(),
            holds,
        }
    }

    fn not_applicable(row: &Row, operation: Operation, reason: &str) -> Self {
        Self {
            case: row.case,
            name: row.name,
            operation: operation.name(),
            attempts: String::new(),
            status: String::new(),
            state: String::new(),
            seconds: String::new(),
            verdict: format!("n/a: {reason}"),
            holds: true,
        }
    }

    fn write(&self, table: &mut String) {
        let Self { case, name, operation, attempts, status, state, seconds: took, verdict, .. } = self;
        writeln!(
            table,
            "{case:<4} {name:<44} {operation:<21} {attempts:<8} {status:<15} {state:<22} {took:>5} {verdict}"
        )
        .expect("writing to a string");
    }
}

/// The header line of the table.
const HEADER: &str = "case name                                         operation             attempts status          state                      s verdict\n";

/// The message on one line, without the images.
fn short(fault: &str) -> String {
    let words = fault.split_whitespace().map(|word| {
        let pieces = word.split('"').map(|piece| if piece.len() > 100 { "…" } else { piece });
        pieces.collect::<Vec<_>>().join("\"")
    });
    words.collect::<Vec<_>>().join(" ")
}

// === impl Report ===

impl Report {
    /// A report with a line for each operation that a row does not have, and the reason.
    pub(super) fn new(rows: &[Row]) -> Self {
        let absent = rows.iter().flat_map(|row| {
            let reasons = Operation::ALL.map(|operation| (operation, row.scripts(operation).err()));
            reasons.into_iter().filter_map(|(operation, reason)| Some(Line::not_applicable(row, operation, reason?)))
        });
        Self { lines: absent.collect(), run_checks: String::new(), run_checks_hold: true }
    }

    pub(super) fn add_lines(&mut self, lines: impl Iterator<Item = Line>) {
        self.lines.extend(lines);
        self.lines.sort_by_key(|line| line.case);
    }

    /// Adds the result of a check of the whole run, which is written below the table.
    pub(super) fn add_run_check(&mut self, what: &str, holds: bool, seen: &str) {
        self.run_checks_hold &= holds;
        writeln!(self.run_checks, "{what}: {} ({seen})", if holds { "holds" } else { "FAILS" })
            .expect("writing to a string");
    }

    /// Writes the files, and prints the lines that fail and all run checks; panics if a line or a run check fails.
    #[track_caller]
    pub(super) fn finish(self, log: &str) {
        let mut table = HEADER.to_owned();
        self.lines.iter().for_each(|line| line.write(&mut table));
        for (case, test) in rows::COVERED_ELSEWHERE {
            writeln!(table, "{case:<4} also: {test}").expect("writing to a string");
        }
        table.push_str(&self.run_checks);
        let folder = Path::new(env!("CARGO_BIN_EXE_imagate")).ancestors().nth(2).expect("the target folder");
        std::fs::write(folder.join("u_cases.txt"), &table).expect("the table is written");
        std::fs::write(folder.join("u_cases.log"), log).expect("the log is written");
        let failed: Vec<&Line> = self.lines.iter().filter(|line| !line.holds).collect();
        let mut printed = HEADER.to_owned();
        failed.iter().for_each(|line| line.write(&mut printed));
        // A test runner may truncate the output, so of the lines only those that fail are printed.
        println!("{printed}{}", self.run_checks);
        assert!(
            failed.is_empty() && self.run_checks_hold,
            "{} of {} lines fail; checks of the run hold: {}",
            failed.len(),
            self.lines.len(),
            self.run_checks_hold
        );
    }
}
