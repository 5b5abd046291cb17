//! How sure the cost of a record is, and why.

use std::str::FromStr;

use serde::Serialize;

/// How sure a cost is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostBasis {
    /// Every token was counted by the upstream and has a price.
    #[default]
    Exact,
    /// The cost rests on an assumption, and is rather too high.
    Estimated,
    /// There is no price, or nothing was counted.
    Unknown,
}

/// The reason why a cost is not exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CostReason {
    /// The model has no price on that day.
    NoPrice,
    /// The price lacks a kind of tokens that was used.
    IncompletePrice,
    /// The upstream counted no tokens.
    NoUsage,
    /// The upstream did not count each kind of tokens by itself.
    NoBreakdown,
    /// A call broke off, so its tokens are not known. The cost includes the most that it can be.
    Interrupted,
    /// No answer names the image model, so the default model is assumed.
    AssumedModel,
}

// === impl CostBasis ===

impl CostBasis {
    const ALL: [Self; 3] = [Self::Exact, Self::Estimated, Self::Unknown];

    /// Returns the word for it in rows and records.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Estimated => "estimated",
            Self::Unknown => "unknown",
        }
    }
}

impl FromStr for CostBasis {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let basis = Self::ALL.into_iter().find(|basis| basis.as_str() == text);
        basis.ok_or_else(|| format!("`{text}` is not the basis of a cost"))
    }
}

// === impl CostReason ===

impl CostReason {
    const ALL: [Self; 6] =
        [Self::NoPrice, Self::IncompletePrice, Self::NoUsage, Self::NoBreakdown, Self::Interrupted, Self::AssumedModel];

    /// Returns the word for it in rows and records.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NoPrice => "no_price",
            Self::IncompletePrice => "incomplete_price",
            Self::NoUsage => "no_usage",
            Self::NoBreakdown => "no_breakdown",
            Self::Interrupted => "interrupted",
            Self::AssumedModel => "assumed_model",
        }
    }
}

impl FromStr for CostReason {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let reason = Self::ALL.into_iter().find(|reason| reason.as_str() == text);
        reason.ok_or_else(|| format!("`{text}` is not the reason of a cost"))
    }
}
