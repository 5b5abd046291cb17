//! The decision about one budget: whether a job may hold a part of it now, must wait for room, or is refused.
//!
//! The cost of a job for images is bounded, and it is refused at once if it does not fit beside the other bounds. The cost
//! of a response is decided by its text model, so it holds its ceiling. One that does not fit, or whose ceiling is not
//! known, runs alone: it waits until nothing is reserved, and then holds everything that is left. So a budget is passed by
//! at most one request, whatever the upstream counts. Pure.

use chrono::NaiveDate;

use super::counters::{period_end, period_refusal};
use super::reservation::{BoundKind, JobDemand, LimitError};
use crate::error::LimitRefusal;
use crate::gateway::config::Budget;
use crate::gateway::money::Usd;
use crate::gateway::store::{HeldMoney, OpenMoney};

/// The name of the budget in settings.
pub(crate) const BUDGET: &str = "budget_usd";
/// The wait that is advised to a job that has found no room for long, in seconds (our choice).
const ROOM_WAIT_SECONDS: u64 = 5;

/// The use of a budget in its current period.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BudgetUse {
    /// The cost of the jobs that have ended.
    pub(super) spent: Usd,
    /// The money that running jobs hold.
    pub(super) open: OpenMoney,
    /// The cost of the dearest response that has cost more than it had reserved.
    pub(super) dearest_excess: Usd,
}

// === impl BudgetUse ===

impl BudgetUse {
    /// Returns what running jobs hold of a budget of this amount.
    pub(super) fn reserved(&self, budget: Usd) -> Usd {
        let left = budget.minus(self.spent);
        if self.open.unbounded > 0 { self.open.sum().max(left) } else { self.open.sum() }
    }

    /// Returns what is left beside the amounts that are known.
    pub(super) const fn left(&self, budget: Usd) -> Usd {
        budget.minus(self.spent.plus(self.open.sum()))
    }
}

/// Returns what a job would hold in a budget.
pub(super) fn check(
    budget: Budget,
    used: BudgetUse,
    demand: &JobDemand,
    is_queued: bool,
    today: NaiveDate,
) -> Result<HeldMoney, LimitError> {
    let BudgetUse { spent, open, dearest_excess } = used;
    let exhausted = || period_refusal(BUDGET, budget.usd.to_string(), period_end(budget.period, today)).into();
    // A response that has cost more than its amount shows that the others may.
    let at_least = if demand.bound == BoundKind::Images { Usd::ZERO } else { dearest_excess };
    let amount = demand.cost.map(|cost| cost.max(at_least));
    let is_ceiling = demand.bound == BoundKind::Ceiling;
    if is_ceiling {
        if spent >= budget.usd {
            return Err(exhausted());
        }
    } else if spent.plus(open.bounds).plus(amount.ok_or(LimitError::PriceUnknown)?) > budget.usd {
        return Err(exhausted());
    }
    if is_queued || open.unbounded > 0 {
        return Err(LimitError::FullyReserved(fully_reserved(budget.usd)));
    }
    match amount.filter(|amount| spent.plus(open.sum()).plus(*amount) <= budget.usd) {
        Some(amount) => Ok(HeldMoney { amount: Some(amount), is_ceiling }),
        None if is_ceiling && open.is_nothing() => Ok(HeldMoney { amount: None, is_ceiling }),
        None => Err(LimitError::FullyReserved(fully_reserved(budget.usd))),
    }
}

/// The refusal of a job that has found no room, although the budget is not spent.
pub(super) fn fully_reserved(budget: Usd) -> LimitRefusal {
    let value = budget.to_string();
    LimitRefusal { scope: "", limit: BUDGET, value, resets_at: None, wait_seconds: ROOM_WAIT_SECONDS, is_quota: false }
}
