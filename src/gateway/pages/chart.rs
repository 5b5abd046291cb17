//! The bar chart of the usage per day or hour, as SVG. A table on the same page has the same numbers.

use super::format::CountValue as _;
use super::usage_measure::{self, to_f64};
use crate::gateway::usage::UsageMeasure;

/// The size of the chart, in SVG units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 216.0;
/// The margins around the bars, in SVG units. Above them is the read-out of a bar.
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 28.0;
const TOP: f64 = 24.0;
/// The maximum width of a bar, in SVG units.
const BAR_MAX: f64 = 36.0;

/// The amounts of one day or hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChartSlot {
    /// The day, such as `2026-11-21`, or the hour, such as `2026-11-21T03`.
    pub(super) time: String,
    /// The amount of the requests that succeeded; the whole amount of any other measure.
    pub(super) good: i64,
    /// The amount of the other requests.
    pub(super) bad: i64,
    /// The amounts as text.
    pub(super) read_out: String,
}

/// The elements of a chart.
pub(super) struct UsageChart {
    pub(super) bars: Vec<ChartBar>,
    pub(super) lines: Vec<ChartGridLine>,
    pub(super) labels: Vec<ChartLabel>,
}

/// The bar of a day or hour: an area that reacts to the pointer, the parts of the bar, and the text that it shows.
pub(super) struct ChartBar {
    pub(super) time: String,
    pub(super) x: String,
    pub(super) width: String,
    pub(super) parts: Vec<ChartPart>,
    pub(super) read_out: String,
    pub(super) text_x: String,
    /// The side of `text_x` on which the text is: `start`, `middle` or `end`.
    pub(super) text_anchor: &'static str,
}

/// One part of a bar.
pub(super) struct ChartPart {
    pub(super) kind: &'static str,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
}

/// A horizontal line with its count.
pub(super) struct ChartGridLine {
    pub(super) y: String,
    pub(super) text_y: String,
    pub(super) text: String,
}

/// The label of a day below its bar.
pub(super) struct ChartLabel {
    pub(super) x: String,
    pub(super) text: String,
}

// === impl UsageChart ===

impl UsageChart {
    /// Creates the chart of these days or hours, oldest first.
    pub(super) fn from_slots(slots: &[ChartSlot], measure: UsageMeasure) -> Self {
        let max_count = slots.iter().map(|slot| slot.good.saturating_add(slot.bad)).max().unwrap_or(0);
        let step = grid_step(max_count);
        // The number of spaces between the grid lines, and the amount at the uppermost line.
        let spaces = (max_count.max(1).saturating_add(step - 1)) / step;
        let axis_end = spaces * step;
        let plot_height = HEIGHT - TOP - BOTTOM;
        let height = |count: i64| to_f64(count) / to_f64(axis_end) * plot_height;
        let slot_width = (WIDTH - LEFT) / to_f64(slots.len().max(1).count());
        let base = HEIGHT - BOTTOM;
        let mut chart = Self { bars: Vec::new(), lines: Vec::new(), labels: Vec::new() };
        for value in (0..=spaces).map(|index| index * step) {
            let y = base - height(value);
            let text = usage_measure::format(measure, value);
            chart.lines.push(ChartGridLine { y: svg_number(y), text_y: svg_number(y + 4.0), text });
        }
        // More than 8 labels would overlap.
        let label_interval = slots.len().div_ceil(8).max(1);
        for (index, slot) in slots.iter().enumerate() {
            let left = LEFT + slot_width * to_f64(index.count());
            let center = left + slot_width / 2.0;
            if slot.good > 0 || slot.bad > 0 {
                chart.bars.push(ChartBar::of_slot(slot, left, slot_width, base, height));
            }
            if (slots.len() - 1 - index).is_multiple_of(label_interval) {
                chart.labels.push(ChartLabel { x: svg_number(center), text: short_time(&slot.time) });
            }
        }
        chart
    }
}

// === impl ChartBar ===

impl ChartBar {
    fn of_slot(slot: &ChartSlot, left: f64, slot_width: f64, base: f64, height: impl Fn(i64) -> f64) -> Self {
        let (center, width) = (left + slot_width / 2.0, (slot_width * 0.72).min(BAR_MAX));
        let (good, bad) = (height(slot.good), height(slot.bad));
        let parts = [("good", base - good, good, slot.good), ("bad", base - good - bad, bad, slot.bad)];
        let parts = parts.into_iter().filter(|(.., count)| *count > 0).map(|(kind, y, height, _)| ChartPart {
            kind,
            x: svg_number(center - width / 2.0),
            y: svg_number(y),
            width: svg_number(width),
            height: svg_number(height.max(1.0)),
        });
        // The text stays within the drawing.
        let (text_x, text_anchor) = match (center - LEFT) / (WIDTH - LEFT) {
            share if share < 0.33 => (LEFT, "start"),
            share if share > 0.67 => (WIDTH, "end"),
            _ => (center, "middle"),
        };
        Self {
            time: slot.time.clone(),
            x: svg_number(left),
            width: svg_number(slot_width),
            parts: parts.collect(),
            read_out: slot.read_out.clone(),
            text_x: svg_number(text_x),
            text_anchor,
        }
    }
}

/// The month and day of a time, and its hour if it has one.
fn short_time(time: &str) -> String {
    match (time.get(5..10), time.get(11..13)) {
        (Some(day), Some(hour)) => format!("{day} {hour}h"),
        (Some(day), None) => day.to_owned(),
        (None, _) => time.to_owned(),
    }
}

/// The distance between the grid lines: 1, 2 or 5 times a power of ten, so that there are at most five lines.
fn grid_step(max_count: i64) -> i64 {
    let mut power = 1_i64;
    loop {
        for factor in [1, 2, 5] {
            let step = power.saturating_mul(factor);
            if step.saturating_mul(4) >= max_count {
                return step;
            }
        }
        power = power.saturating_mul(10);
    }
}

fn svg_number(value: f64) -> String {
    format!("{value:.1}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(time: &str, good: i64, bad: i64) -> ChartSlot {
        ChartSlot { time: time.to_owned(), good, bad, read_out: format!("{time}: {good}") }
    }

    #[test]
    fn a_bar_stacks_failed_requests_on_succeeded_ones() {
        let slots = [slot("2026-11-20", 0, 0), slot("2026-11-21", 3, 1), slot("2026-11-22", 0, 0)];
        let chart = UsageChart::from_slots(&slots, UsageMeasure::Requests);
        let [bar] = &chart.bars[..] else { panic!("{}", chart.bars.len()) };
        let kinds: Vec<&str> = bar.parts.iter().map(|part| part.kind).collect();
        assert_eq!((kinds, bar.text_anchor, bar.read_out.as_str()), (vec!["good", "bad"], "middle", "2026-11-21: 3"));
        let number = |text: &str| text.parse::<f64>().unwrap();
        let (good, bad) = (&bar.parts[0], &bar.parts[1]);
        assert!((number(&bad.y) + number(&bad.height) - number(&good.y)).abs() < 0.2, "the two parts touch");
        assert!(
            (number(&good.y) + number(&good.height) - (HEIGHT - BOTTOM)).abs() < 0.2,
            "the bar stands on the base line"
        );
        let labels: Vec<&str> = chart.labels.iter().map(|label| label.text.as_str()).collect();
        assert_eq!(labels, ["11-20", "11-21", "11-22"], "days without requests have labels too");
        assert_eq!(short_time("2026-11-21T03"), "11-21 03h");
    }

    #[test]
    fn there_are_few_grid_lines_for_any_count() {
        for (count, lines) in [(0, 2), (1, 2), (4, 5), (5, 4), (99, 3), (1_000_000, 3), (i64::MAX, 3)] {
            let chart = UsageChart::from_slots(&[slot("2026-11-21", count, 0)], UsageMeasure::Requests);
            assert!(chart.lines.len() <= lines, "{count}: {}", chart.lines.len());
        }
        assert!(UsageChart::from_slots(&[], UsageMeasure::Requests).bars.is_empty());
    }
}
