//! The bar chart of the usage per day, as SVG. A table on the same page has the same numbers.

use chrono::NaiveDate;

use super::format::CountValue as _;
use super::usage_measure::{UsageMeasure, to_f64};
use crate::wire::admin::types::Usage;

/// The size of the chart, in SVG units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 200.0;
/// The margins around the bars, in SVG units.
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 28.0;
const TOP: f64 = 8.0;
/// The longest period, in days, whose days without requests are shown too (our choice).
const DAYS_MAX: usize = 400;
/// The maximum width of a bar, in SVG units.
const BAR_MAX: f64 = 36.0;

/// The elements of a chart.
pub(super) struct UsageChart {
    pub(super) bars: Vec<ChartBar>,
    pub(super) lines: Vec<ChartGridLine>,
    pub(super) labels: Vec<ChartLabel>,
}

/// One part of a day's bar.
pub(super) struct ChartBar {
    pub(super) day: NaiveDate,
    pub(super) kind: &'static str,
    pub(super) x: String,
    pub(super) y: String,
    pub(super) width: String,
    pub(super) height: String,
    pub(super) title: String,
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
    /// Creates the chart of this measure for the days in `usage`.
    pub(super) fn from_usage(usage: &Usage, measure: UsageMeasure) -> Self {
        let days = all_days(usage, measure);
        let max_count = days.iter().map(|(_, succeeded, failed)| succeeded + failed).max().unwrap_or(0);
        let step = grid_step(max_count);
        let top = (max_count.max(1) + step - 1) / step * step;
        let plot_height = HEIGHT - TOP - BOTTOM;
        let height = |count: i64| to_f64(count) / to_f64(top) * plot_height;
        let day_width = (WIDTH - LEFT) / to_f64(days.len().max(1).count());
        let width = (day_width * 0.72).min(BAR_MAX);
        let base = HEIGHT - BOTTOM;
        let mut chart = Self { bars: Vec::new(), lines: Vec::new(), labels: Vec::new() };
        for value in (0..=top).step_by(usize::try_from(step).unwrap_or(1)) {
            let y = base - height(value);
            chart.lines.push(ChartGridLine {
                y: svg_number(y),
                text_y: svg_number(y + 4.0),
                text: measure.format(value),
            });
        }
        let label_interval = days.len().div_ceil(8).max(1);
        for (index, (day, succeeded, failed)) in days.iter().enumerate() {
            let center = LEFT + day_width * (to_f64(index.count()) + 0.5);
            let (succeeded_height, failed_height) = (height(*succeeded), height(*failed));
            let parts = [
                ("good", base - succeeded_height, succeeded_height, *succeeded),
                ("bad", base - succeeded_height - failed_height, failed_height, *failed),
            ];
            for (kind, y, bar_height, count) in parts.into_iter().filter(|(.., count)| *count > 0) {
                let title = format!("{day} · {}", measure.format(count));
                let (x, width) = (svg_number(center - width / 2.0), svg_number(width));
                chart.bars.push(ChartBar {
                    day: *day,
                    kind,
                    x,
                    y: svg_number(y),
                    width,
                    height: svg_number(bar_height.max(1.0)),
                    title,
                });
            }
            if (days.len() - 1 - index).is_multiple_of(label_interval) {
                chart.labels.push(ChartLabel { x: svg_number(center), text: day.format("%m-%d").to_string() });
            }
        }
        chart
    }
}

/// The days with their amounts, oldest first. Days without requests are included if the period
/// has at most [`DAYS_MAX`] days.
fn all_days(usage: &Usage, measure: UsageMeasure) -> Vec<(NaiveDate, i64, i64)> {
    let days_with_usage = usage.days.iter().map(|day| {
        let (good, bad) = measure.of_day(day);
        (day.day, good, bad)
    });
    let mut days: Vec<_> = usage.since.iter_days().take_while(|day| *day <= usage.until).take(DAYS_MAX + 1).collect();
    if days.len() > DAYS_MAX {
        days.clear();
    }
    let mut result: Vec<_> = days_with_usage.collect();
    result.extend(days.into_iter().filter(|day| usage.days.iter().all(|used| used.day != *day)).map(|day| (day, 0, 0)));
    result.sort_unstable();
    result
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

    fn usage(since: &str, until: &str, days: &[(&str, i64, i64)]) -> Usage {
        let counts = |succeeded: i64, failed: i64| {
            serde_json::json!({
                "requests": succeeded + failed, "succeeded": succeeded, "failed": failed, "refused": 0, "images": 0,
                "input_tokens": 0, "output_tokens": 0, "total_tokens": 0,
            })
        };
        let day = |(day, succeeded, failed): &(&str, i64, i64)| {
            let mut counts = counts(*succeeded, *failed);
            counts["day"] = (*day).into();
            counts
        };
        let days: Vec<_> = days.iter().map(day).collect();
        let totals = counts(0, 0);
        let usage = serde_json::json!({"since": since, "until": until, "days": days, "keys": [], "totals": totals});
        serde_json::from_value(usage).unwrap()
    }

    #[test]
    fn a_bar_stacks_failed_requests_on_succeeded_ones() {
        let chart =
            UsageChart::from_usage(&usage("2026-11-20", "2026-11-22", &[("2026-11-21", 3, 1)]), UsageMeasure::Requests);
        let kinds: Vec<&str> = chart.bars.iter().map(|bar| bar.kind).collect();
        assert_eq!(kinds, ["good", "bad"]);
        let number = |text: &str| text.parse::<f64>().unwrap();
        let (good, bad) = (&chart.bars[0], &chart.bars[1]);
        assert!((number(&bad.y) + number(&bad.height) - number(&good.y)).abs() < 0.2, "the two parts touch");
        assert!(
            (number(&good.y) + number(&good.height) - (HEIGHT - BOTTOM)).abs() < 0.2,
            "the bar stands on the base line"
        );
        assert_eq!(good.title, "2026-11-21 · 3");
        let labels: Vec<&str> = chart.labels.iter().map(|label| label.text.as_str()).collect();
        assert_eq!(labels, ["11-20", "11-21", "11-22"], "days without requests have labels too");
    }

    #[test]
    fn there_are_few_grid_lines_for_any_count() {
        for (count, lines) in [(0, 2), (1, 2), (4, 5), (5, 4), (99, 3), (1_000_000, 3)] {
            let chart = UsageChart::from_usage(
                &usage("2026-11-21", "2026-11-21", &[("2026-11-21", count, 0)]),
                UsageMeasure::Requests,
            );
            assert_eq!(chart.lines.len(), lines, "{count}");
        }
        assert!(
            UsageChart::from_usage(&usage("1970-01-01", "2026-11-21", &[]), UsageMeasure::Requests).bars.is_empty()
        );
    }
}
