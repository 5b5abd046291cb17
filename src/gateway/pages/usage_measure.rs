//! The quantities that the chart of the usage can show.

use super::format::{self, CountValue as _};
use crate::wire::admin::types::{UsageCounts, UsageDay};

/// A quantity of the usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageMeasure {
    Requests,
    Images,
    Tokens,
    Cost,
}

/// The parts of a dollar in which amounts of money are counted.
const PARTS_OF_DOLLAR: f64 = 1_000_000.0;

// === impl UsageMeasure ===

impl UsageMeasure {
    /// All measures, in the order in which they are offered.
    pub(super) const ALL: [Self; 4] = [Self::Requests, Self::Images, Self::Tokens, Self::Cost];

    /// The measure with this word; [`UsageMeasure::Requests`] for any other text.
    pub(super) fn from_code(code: Option<&str>) -> Self {
        Self::ALL.into_iter().find(|measure| Some(measure.code()) == code).unwrap_or(Self::Requests)
    }

    /// The word for the measure in addresses.
    pub(super) const fn code(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Images => "images",
            Self::Tokens => "tokens",
            Self::Cost => "cost",
        }
    }

    /// The key of the text for the measure.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Requests => "count.requests",
            Self::Images => "count.images",
            Self::Tokens => "count.total_tokens",
            Self::Cost => "count.cost",
        }
    }

    /// The amounts of a day: of requests that succeeded and of the others, and otherwise the whole amount and nothing.
    pub(super) fn of_day(self, day: &UsageDay) -> (i64, i64) {
        match self {
            Self::Requests => (day.succeeded.count(), day.failed.count()),
            Self::Images => (day.images.count(), 0),
            Self::Tokens => (day.total_tokens.count(), 0),
            Self::Cost => (to_parts(day.cost_usd), 0),
        }
    }

    /// The amount of a whole period.
    pub(super) fn of_period(self, totals: &UsageCounts) -> i64 {
        match self {
            Self::Requests => totals.requests.count(),
            Self::Images => totals.images.count(),
            Self::Tokens => totals.total_tokens.count(),
            Self::Cost => to_parts(totals.cost_usd),
        }
    }

    /// An amount as text.
    pub(super) fn format(self, amount: i64) -> String {
        match self {
            Self::Requests | Self::Images | Self::Tokens => format::with_thousands_separators(amount),
            Self::Cost => format::dollars(to_f64(amount) / PARTS_OF_DOLLAR, 2, 4),
        }
    }
}

/// The change from an amount to another, such as `+12 %`; `None` if there is nothing to compare with.
pub(super) fn change(before: i64, now: i64) -> Option<String> {
    if before == 0 {
        return None;
    }
    let percent = (to_f64(now) - to_f64(before)) / to_f64(before) * 100.0;
    // The minus sign is as wide as the plus sign.
    let sign = if percent < 0.0 { '\u{2212}' } else { '+' };
    Some(format!("{sign}{:.0} %", percent.abs()))
}

/// A part of a whole in percent, such as `98.5 %`; `None` if the whole is nothing.
pub(super) fn share(part: i64, whole: i64) -> Option<String> {
    (whole > 0).then(|| format!("{:.1} %", to_f64(part) / to_f64(whole) * 100.0))
}

#[expect(clippy::cast_possible_truncation, reason = "no amount of money is that large")]
fn to_parts(usd: Option<f64>) -> i64 {
    (usd.unwrap_or_default() * PARTS_OF_DOLLAR).round() as i64
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
        assert_eq!(change(0, 7), None);
        assert_eq!(share(985, 1000).as_deref(), Some("98.5 %"));
        assert_eq!(share(0, 0), None);
    }

    #[test]
    fn amounts_have_the_unit_of_their_measure() {
        assert_eq!(UsageMeasure::Tokens.format(12_345), "12,345");
        assert_eq!(UsageMeasure::Cost.format(to_parts(Some(1_234.5))), "$1,234.50");
        assert_eq!(UsageMeasure::Cost.format(to_parts(Some(0.0421))), "$0.0421");
        for measure in UsageMeasure::ALL {
            assert_eq!(UsageMeasure::from_code(Some(measure.code())), measure);
        }
        assert_eq!(UsageMeasure::from_code(Some("other")), UsageMeasure::Requests);
    }
}
