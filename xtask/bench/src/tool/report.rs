//! The tables of a run.

use std::collections::BTreeMap;

use super::cases::{BenchCase, BenchCell};
use super::measure::Row;
use super::peers::PeerProgram;
use super::statistics::{median, median_difference, median_ratio};
use super::targets::DIRECT;

/// All measurements of a run.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// The names of the targets, in the order of the tables.
    pub(crate) targets: Vec<String>,
    /// The names of the gateways among them.
    pub(crate) gateways: Vec<String>,
    pub(crate) cells: Vec<BenchCell>,
    pub(crate) rows: Vec<Row>,
    /// The reasons for which a target fails the check of a case.
    pub(crate) failures: BTreeMap<(String, BenchCase), String>,
}

/// A value of a measurement.
type Value = fn(&Row) -> Option<f64>;

/// The cases that a table shows.
type CaseFilter = fn(BenchCase) -> bool;

const RATIOS: [(&str, Value, CaseFilter); 3] = [
    ("Throughput", Row::throughput, |case| !matches!(case, BenchCase::Slow)),
    ("CPU seconds per 1000 requests", Row::cpu_per_1000_requests, |case| matches!(case, BenchCase::Small)),
    ("CPU seconds per GB moved", Row::cpu_per_gb, |case| !matches!(case, BenchCase::Small | BenchCase::Slow)),
];
const LATENCIES: [(&str, Value); 6] = [
    ("time to the first byte, p50", |row| row.load.first_byte.p50),
    ("time to the first byte, p99", |row| row.load.first_byte.p99),
    ("time until the first event is whole, p50", |row| row.load.first_event.p50),
    ("time until the first event is whole, p99", |row| row.load.first_event.p99),
    ("total time, p50", |row| row.load.total.p50),
    ("total time, p99", |row| row.load.total.p99),
];

impl Results {
    /// All tables in Markdown, then the failures.
    pub(crate) fn to_markdown(&self) -> String {
        let mut text = String::new();
        let has_nginx = self.targets.iter().any(|target| target == PeerProgram::Nginx.name());
        for (index, (title, value, belongs)) in RATIOS.into_iter().enumerate() {
            let cells: Vec<BenchCell> = self.cells.iter().filter(|cell| belongs(cell.case)).copied().collect();
            if index == 0 {
                let ratio = |target: &str, cell| self.ratio(target, DIRECT, cell, value);
                text += &self.table(&format!("{title}, share of a direct connection"), &cells, &self.targets, ratio);
            } else {
                let value = |target: &str, cell| median(self.of(target, cell).filter_map(value));
                text += &self.table(title, &cells, &self.without_direct(), value);
            }
            if has_nginx {
                let ratio = |target: &str, cell| self.ratio(target, PeerProgram::Nginx.name(), cell, value);
                text += &self.table(&format!("{title}, times nginx"), &cells, &self.without_direct(), ratio);
            }
        }
        for (title, value) in LATENCIES {
            let is_shown = |cell: &&BenchCell| {
                cell.case == BenchCase::Stream || (cell.connections == 1 && cell.case != BenchCase::Slow)
            };
            let cells: Vec<BenchCell> = self.cells.iter().filter(is_shown).copied().collect();
            let added = |target: &str, cell| self.added(target, cell, value);
            let title = format!("Added by the target, µs: {title}");
            text += &self.table(&title, &cells, &self.without_direct(), added);
        }
        let peak = |target: &str, cell| self.of(target, cell).map(|row| row.peak_mb).reduce(f64::max);
        text += &self.table("Peak memory, MB of all its processes", &self.cells, &self.without_direct(), peak);
        text + &self.comparison() + "\n" + &self.failure_list()
    }

    /// The second program compared with the first.
    fn comparison(&self) -> String {
        let [base, other] = &self.gateways[..] else { return String::new() };
        let mut text = String::new();
        for (title, value, belongs) in RATIOS {
            let cells: Vec<BenchCell> = self.cells.iter().filter(|cell| belongs(cell.case)).copied().collect();
            let ratio = |target: &str, cell| self.ratio(target, base, cell, value);
            text += &self.table(&format!("{title}, times {base}"), &cells, std::slice::from_ref(other), ratio);
        }
        text
    }

    fn failure_list(&self) -> String {
        let mut text = String::new();
        for ((target, case), reason) in &self.failures {
            text += &format!("failed the check, not measured: {target}, {}: {reason}\n", case.name());
        }
        let mut counts: BTreeMap<(&str, BenchCell, &str), u64> = BTreeMap::new();
        for row in &self.rows {
            for (failure, count) in &row.load.failures {
                *counts.entry((&row.target, row.cell, failure)).or_default() += count;
            }
        }
        for ((target, cell, failure), count) in counts {
            text += &format!("failed requests: {target}, {cell}: {count} times {failure}\n");
        }
        text
    }

    fn without_direct(&self) -> Vec<String> {
        self.targets.iter().filter(|target| *target != DIRECT).cloned().collect()
    }

    /// The rows of a target in a cell, by round.
    fn of(&self, target: &str, cell: BenchCell) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.target == target && row.cell == cell)
    }

    /// The values of a target and of a base in each round of a cell.
    fn pairs(&self, target: &str, base: &str, cell: BenchCell, value: Value) -> Vec<(Option<f64>, Option<f64>)> {
        let of_base = |round| self.of(base, cell).find(|row| row.round == round).and_then(value);
        self.of(target, cell).map(|row| (value(row), of_base(row.round))).collect()
    }

    fn ratio(&self, target: &str, base: &str, cell: BenchCell, value: Value) -> Option<f64> {
        median_ratio(self.pairs(target, base, cell, value))
    }

    fn added(&self, target: &str, cell: BenchCell, value: Value) -> Option<f64> {
        median_difference(self.pairs(target, DIRECT, cell, value))
    }

    /// A table with a row for each target; empty if it has no value at all.
    fn table(
        &self,
        title: &str,
        cells: &[BenchCell],
        targets: &[String],
        value: impl Fn(&str, BenchCell) -> Option<f64>,
    ) -> String {
        let values: Vec<Vec<Option<f64>>> =
            targets.iter().map(|target| cells.iter().map(|cell| value(target, *cell)).collect()).collect();
        if values.iter().flatten().flatten().next().is_none() {
            return String::new();
        }
        let heads: String = cells.iter().map(|cell| format!(" {cell} |")).collect();
        let mut text = format!("\n{title}\n\n| target |{heads}\n|---|{}\n", "---|".repeat(cells.len()));
        for (target, values) in targets.iter().zip(values) {
            let has_failed = |cell: &BenchCell| self.failures.contains_key(&(target.clone(), cell.case.checked_as()));
            let shown = cells.iter().zip(values).map(|(cell, value)| match has_failed(cell) {
                true => " failed |".to_owned(),
                false => format!(" {} |", format_value(value)),
            });
            text += &format!("| {target} |{}\n", shown.collect::<String>());
        }
        text
    }
}

/// A value with about three significant digits.
fn format_value(value: Option<f64>) -> String {
    let Some(value) = value else { return "-".to_owned() };
    let decimals = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 || size == 0.0 => 2,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::load::LoadReport;

    const SMALL: BenchCell = BenchCell { case: BenchCase::Small, connections: 64 };

    fn row(target: &str, round: u32, requests: u64, cpu_seconds: f64) -> Row {
        let load = LoadReport { requests, seconds: 2.0, bytes: 1_000_000, ..LoadReport::default() };
        Row { target: target.to_owned(), cell: SMALL, round, load, cpu_seconds, peak_mb: 10.0 + f64::from(round) }
    }

    fn results(rows: Vec<Row>) -> Results {
        let targets = ["direct", "nginx", "imagate"].map(str::to_owned).to_vec();
        let gateways = vec!["imagate".to_owned()];
        Results { targets, gateways, cells: vec![SMALL], rows, failures: BTreeMap::new() }
    }

    #[test]
    fn ratios_and_costs_are_those_of_the_rounds() {
        let text = results(vec![
            row("direct", 0, 10_000, 9.0),
            row("nginx", 0, 5000, 0.1),
            row("imagate", 0, 2500, 0.2),
            row("imagate", 1, 100, 0.008),
            row("direct", 1, 400, 9.0),
            row("nginx", 1, 200, 0.004),
        ])
        .to_markdown();
        let section = |title: &str| {
            let start = text.find(&format!("\n{title}\n")).unwrap_or_else(|| panic!("{title}: {text}"));
            let table = text[start..].trim_start().split_once("\n\n").unwrap().1;
            table.split("\n\n").next().unwrap().lines().skip(2).map(str::to_owned).collect::<Vec<_>>()
        };
        let share = section("Throughput, share of a direct connection");
        assert_eq!(share, ["| direct | 1.00 |", "| nginx | 0.50 |", "| imagate | 0.25 |"]);
        assert_eq!(section("Throughput, times nginx"), ["| nginx | 1.00 |", "| imagate | 0.50 |"]);
        assert_eq!(section("CPU seconds per 1000 requests"), ["| nginx | 0.0200 |", "| imagate | 0.0800 |"]);
        assert_eq!(section("CPU seconds per 1000 requests, times nginx"), ["| nginx | 1.00 |", "| imagate | 4.00 |"]);
        assert_eq!(section("Peak memory, MB of all its processes"), ["| nginx | 11.0 |", "| imagate | 11.0 |"]);
    }

    #[test]
    fn a_failed_check_is_shown_and_not_counted() {
        let mut results = results(vec![row("direct", 0, 10, 1.0)]);
        results.failures.insert(("imagate".to_owned(), BenchCase::Small), "another image".to_owned());
        let text = results.to_markdown();
        assert!(text.contains("| imagate | failed |") && text.contains("| nginx | - |"), "{text}");
        assert!(text.ends_with("failed the check, not measured: imagate, S: another image\n"), "{text}");
    }

    #[test]
    fn failed_requests_are_listed() {
        let mut row = row("imagate", 0, 10, 1.0);
        row.load.failures.insert("status 503: {}".to_owned(), 3);
        let text = results(vec![row.clone(), row]).to_markdown();
        assert!(text.contains("failed requests: imagate, S c=64: 6 times status 503: {}\n"), "{text}");
    }

    #[test]
    fn values_have_three_digits() {
        for (value, text) in [(0.0, "0.00"), (0.0123, "0.0123"), (0.26, "0.26"), (12.34, "12.3"), (-981.4, "-981")] {
            assert_eq!(format_value(Some(value)), text);
        }
        assert_eq!(format_value(None), "-");
    }
}
