//! The quantities of usage as the page shows them.

use super::format::{self, CountValue as _};
use crate::gateway::usage::{UsageGroup, UsageMeasure};

/// The parts of a dollar, and of a whole, in which amounts are counted.
const NANOS_OF_DOLLAR: f64 = 1_000_000_000.0;
const MILLIONTHS_OF_PERCENT: f64 = 10_000.0;

/// The quotient from which a change is shown as a multiple and not in percent (our choice).
const MULTIPLE_MIN: f64 = 10.0;

/// The key of the text for a measure.
pub(super) const fn label(measure: UsageMeasure) -> &'static str {
    match measure {
        UsageMeasure::Requests => "count.requests",
        UsageMeasure::Images => "count.images",
        UsageMeasure::Tokens => "count.total_tokens",
        UsageMeasure::Cost => "count.cost",
        UsageMeasure::Saved => "count.saved",
        UsageMeasure::P50 => "count.median",
        UsageMeasure::P95 => "count.nearly_all",
        UsageMeasure::Success => "count.success",
    }
}

/// The amount of a group; 0 if it is not known.
pub(super) fn amount(measure: UsageMeasure, group: &UsageGroup) -> i64 {
    measure.of_group(group).unwrap_or_default().count()
}

/// An amount as text.
pub(super) fn format(measure: UsageMeasure, amount: i64) -> String {
    match measure {
        UsageMeasure::Requests | UsageMeasure::Images | UsageMeasure::Tokens => {
            format::with_thousands_separators(amount)
        }
        UsageMeasure::Cost | UsageMeasure::Saved => format::dollars(to_f64(amount) / NANOS_OF_DOLLAR, 2..=4),
        UsageMeasure::P50 | UsageMeasure::P95 => format::latency(amount),
        UsageMeasure::Success => format!("{:.1} %", to_f64(amount) / MILLIONTHS_OF_PERCENT),
    }
}

/// The change from an amount to another, such as `+12 %`, or `× 13` of much less; `None` if there is nothing to compare
/// with.
pub(super) fn change(before: i64, now: i64) -> Option<String> {
    if before == 0 {
        return None;
    }
    let times = to_f64(now) / to_f64(before);
    if times >= MULTIPLE_MIN {
        return Some(format!("× {times:.0}"));
    }
    let percent = (times - 1.0) * 100.0;
    // The minus sign is as wide as the plus sign.
    let sign = match percent.round() {
        rounded if rounded < 0.0 => '\u{2212}',
        rounded if rounded > 0.0 => '+',
        _ => '±',
    };
    Some(format!("{sign}{:.0} %", percent.abs()))
}

/// A part of a whole in percent, such as `98.5 %`; `None` if the whole is nothing.
pub(super) fn share(part: i64, whole: i64) -> Option<String> {
    (whole > 0).then(|| format!("{:.1} %", to_f64(part) / to_f64(whole) * 100.0))
}

#[expect(clippy::cast_precision_loss, reason = "a page does not need that precision")]
pub(super) const fn to_f64(count: i64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_and_shares_are_percentages_of_something() {
        assert_eq!(change(100, 112).as_deref(), Some("+12 %"));
        assert_eq!(change(100, 40).as_deref(), Some("\u{2212}60 %"));
        assert_eq!(change(1000, 999).as_deref(), Some("±0 %"));
        assert_eq!(change(10, 99).as_deref(), Some("+890 %"));
        assert_eq!(change(2, 1_179).as_deref(), Some("× 590"));
        assert_eq!(change(0, 7), None);
        assert_eq!(share(985, 1000).as_deref(), Some("98.5 %"));
        assert_eq!(share(0, 0), None);
    }

    #[test]
    fn amounts_have_the_unit_of_their_measure() {
        assert_eq!(format(UsageMeasure::Tokens, 12_345), "12,345");
        assert_eq!(format(UsageMeasure::Cost, 1_234_500_000_000), "$1,234.50");
        assert_eq!(format(UsageMeasure::Saved, 42_100_000), "$0.0421");
        assert_eq!(format(UsageMeasure::Success, 985_000), "98.5 %");
        for measure in UsageMeasure::ALL {
            assert_eq!(measure.as_str().parse().ok(), Some(measure));
        }
        assert!("weight".parse::<UsageMeasure>().is_err());
    }
}
