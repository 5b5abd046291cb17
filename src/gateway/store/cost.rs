//! The certainty of the cost of a record, and the reason for it.

use std::collections::BTreeMap;

use super::CostReason;
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

// === impl AnswerCharges ===

impl AnswerCharges {
    /// The most tools whose calls are counted, each for itself (our choice).
    const MOST_TOOLS: usize = 64;
    /// The longest name of a tool or a tier, in bytes (our choice).
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
