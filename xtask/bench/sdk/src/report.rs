//! The tables, in Markdown.

use crate::libraries::ComparedLibrary;
use crate::money::{MoneyOutcome, MoneyOutcomes, MoneySetting};
use crate::speed::{SpeedMedians, SpeedSample};

const LOCK: &str = include_str!("../Cargo.lock");
const OTHERS: [ComparedLibrary; 2] = [ComparedLibrary::AsyncOpenai, ComparedLibrary::GptImage];

/// The version in the lock file.
fn version(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"\nversion = \"");
    let after = LOCK.split_once(&name).map_or("", |(_, after)| after);
    after.split('"').next().unwrap_or_default()
}

pub fn header() -> String {
    let column = |package| format!("{package} {}", version(package));
    format!(
        "| | {} | {} | {} |\n|---|---|---|---|\n",
        column("imagate"),
        column("async-openai"),
        column("gpt-image-2-core")
    )
}

/// Something that is measured.
struct MeasuredQuantity {
    name: &'static str,
    unit: &'static str,
    digits: usize,
    value: fn(&SpeedSample) -> f64,
}

const QUANTITIES: [MeasuredQuantity; 2] = [
    MeasuredQuantity { name: "time", unit: "s", digits: 3, value: |sample| sample.seconds },
    MeasuredQuantity { name: "peak memory", unit: "MB", digits: 0, value: |sample| sample.peak_mb },
];

/// Two rows, time and memory, for each way to call the SDK.
pub fn speed_rows(name: &str, medians: &SpeedMedians) -> String {
    let mut rows = String::new();
    for (ours, call) in
        [(ComparedLibrary::Imagate, "`generate`, `write_to`"), (ComparedLibrary::ImagateSaving, "`generate_to`")]
    {
        let Some(own) = medians.get(&ours) else { continue };
        let call =
            if medians.contains_key(&ComparedLibrary::ImagateSaving) { format!(", {call}") } else { String::new() };
        for quantity in &QUANTITIES {
            rows.push_str(&format!("| {name}{call}: {} | {}", quantity.name, quantity.row_cells(own, medians)));
        }
    }
    rows
}

// === impl MeasuredQuantity ===

impl MeasuredQuantity {
    fn row_cells(&self, own: &SpeedSample, medians: &SpeedMedians) -> String {
        let [first, second] = OTHERS.map(|library| {
            let other = medians.get(&library);
            other.map_or_else(|| "–".to_owned(), |other| self.cell(other, own))
        });
        let Self { unit, digits, value, .. } = self;
        format!("{:.digits$} {unit} | {first} | {second} |\n", value(own))
    }

    /// The value of another library, with its ratio to the own one.
    fn cell(&self, other: &SpeedSample, own: &SpeedSample) -> String {
        let Self { unit, digits, value, .. } = self;
        let ratio = value(other) / value(own);
        let ratio_digits = if ratio < 10.0 { 2 } else { 0 };
        format!("{:.digits$} {unit} ({ratio:.ratio_digits$})", value(other))
    }
}

/// The rows of one setting.
pub fn money_rows(setting: MoneySetting, outcomes: &MoneyOutcomes) -> String {
    let calls = if setting.work == "single-calls" { "one call" } else { "repeated calls" };
    let keys = if setting.honors_keys { "keys honored" } else { "keys ignored" };
    let row = |name: &str, cell: &dyn Fn(&MoneyOutcome) -> String| {
        let cells: Vec<String> = outcomes.iter().map(cell).collect();
        format!("| {calls}, {keys}: {name} | {} |\n", cells.join(" | "))
    };
    [
        row("completions paid", &|outcome| outcome.ledger.completions.to_string()),
        row("images obtained", &|outcome| outcome.images.to_string()),
        row("actions paid more than once", &|outcome| outcome.ledger.actions_paid_repeatedly.to_string()),
        row("attempts", &|outcome| outcome.ledger.attempts.to_string()),
    ]
    .concat()
}
