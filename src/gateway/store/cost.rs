//! How sure the cost of a record is, and why.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::Serialize;

use crate::gateway::money::Usd;

/// The members of an answer, besides its tokens, that can change its price. Not stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerCharges {
    /// The service tier, as the upstream names it; `None` for the default one.
    pub(crate) tier: Option<String>,
    /// The number of calls of each tool that the upstream ran.
    pub(crate) tools: BTreeMap<String, u64>,
    /// The reason why the price of another member is not known.
    pub(crate) unpriced: Option<CostReason>,
    /// The cost that the upstream states, in US dollars.
    pub(crate) stated_cost: Option<Usd>,
}

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
    /// The answer states a service tier that has no factor.
    UnpricedTier,
    /// The upstream ran tools whose calls have no price.
    UnpricedTool,
    /// The upstream wrote tokens to its cache, which have no price.
    UnpricedCacheWrite,
    /// The usage of the answer has a member that is not known, or lacks a count.
    UnpricedUsage,
    /// The upstream states a cost above that of the prices. The cost is the stated one.
    StatedCost,
}

// === impl AnswerCharges ===

impl AnswerCharges {
    /// The most tools that are counted apart, and the longest name of a tool or a tier in bytes (our choice).
    const MOST_TOOLS: usize = 64;
    const LONGEST_NAME: usize = 64;

    /// Adds calls of a tool.
    pub(crate) fn add_tool(&mut self, tool: &str, calls: u64) {
        if calls == 0 {
            return;
        }
        if tool.len() > Self::LONGEST_NAME || (self.tools.len() >= Self::MOST_TOOLS && !self.tools.contains_key(tool)) {
            self.note_unpriced(CostReason::UnpricedTool);
            return;
        }
        let count = self.tools.entry(tool.to_owned()).or_default();
        *count = count.saturating_add(calls);
    }

    /// Sets the service tier of the answer.
    pub(crate) fn set_tier(&mut self, tier: &str) {
        if !tier.is_empty() && tier != "default" {
            self.tier = Some(tier[..tier.floor_char_boundary(Self::LONGEST_NAME)].to_owned());
        }
    }

    /// Notes that something of the answer has no price. The first reason stays.
    pub(crate) fn note_unpriced(&mut self, reason: CostReason) {
        self.unpriced.get_or_insert(reason);
    }

    /// True if nothing besides tokens can change the price.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the charges of another answer of the same job. Tokens of different tiers are not told apart, so their tier has
    /// no price then.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        if self.tier != other.tier {
            let tiers = [self.tier.as_deref(), other.tier.as_deref()].map(|tier| tier.unwrap_or("default"));
            self.tier = Some(tiers.join("+"));
        }
        for (tool, calls) in other.tools {
            self.add_tool(&tool, calls);
        }
        other.unpriced.into_iter().for_each(|reason| self.note_unpriced(reason));
        self.stated_cost = self.stated_cost.into_iter().chain(other.stated_cost).reduce(Usd::plus);
        self
    }
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
    const ALL: [Self; 11] = [
        Self::NoPrice,
        Self::IncompletePrice,
        Self::NoUsage,
        Self::NoBreakdown,
        Self::Interrupted,
        Self::AssumedModel,
        Self::UnpricedTier,
        Self::UnpricedTool,
        Self::UnpricedCacheWrite,
        Self::UnpricedUsage,
        Self::StatedCost,
    ];

    /// Returns the word for it in rows and records.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NoPrice => "no_price",
            Self::IncompletePrice => "incomplete_price",
            Self::NoUsage => "no_usage",
            Self::NoBreakdown => "no_breakdown",
            Self::Interrupted => "interrupted",
            Self::AssumedModel => "assumed_model",
            Self::UnpricedTier => "unpriced_tier",
            Self::UnpricedTool => "unpriced_tool",
            Self::UnpricedCacheWrite => "unpriced_cache_write",
            Self::UnpricedUsage => "unpriced_usage",
            Self::StatedCost => "stated_cost",
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
