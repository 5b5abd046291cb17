//! Bounds the cost of a response for a group with strict budgets: sets limits in the body that is sent, and refuses parts
//! of a request whose cost no limit bounds. It must not know what a response costs: the estimate of the cost reads the
//! bounded request.

use chrono::Utc;

use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::BudgetMode;
use crate::gateway::keys::Caller;
use crate::gateway::prices::{CurrentPrices, MAX_OUTPUT_TOKENS};
use crate::gateway::rules::ResponseJob;

/// The maximum number of tool calls for one response, if the request states none (our choice). It may state a larger one.
pub(super) const TOOL_CALLS_MAX: u64 = 10;
/// The type of an image tool.
const IMAGE_TOOL: &str = "image_generation";

/// True if the group of a caller has strict budgets, and a budget applies to the caller.
pub(super) fn applies(caller: &Caller) -> bool {
    caller.group().response_budget.mode == BudgetMode::Strict
        && caller.all_limits().any(|limits| limits.budget.is_some())
}

/// Sets the limits of a response that are absent, if the budgets of its caller are strict.
///
/// # Errors
///
/// Returns 400 for the first part of the request whose cost cannot be bounded.
pub(super) fn bound(prices: &CurrentPrices, caller: &Caller, job: ResponseJob) -> Result<ResponseJob, Error> {
    if !applies(caller) {
        return Ok(job);
    }
    let table = prices.table();
    let terms = table.price(job.model(), Utc::now().date_naive()).map(|price| &price.price.terms);
    let is_priced = |kind: &str| terms.is_some_and(|terms| terms.tools.contains_key(kind));
    if let Some((param, reason)) = first_unbounded(&job, is_priced) {
        let message =
            format!("Invalid '{param}': {reason}, so the cost of the response is not bounded, which a budget needs.");
        return Err(Rejection::new(param, RejectionReason::InvalidValue, message).into());
    }
    let largest = terms.and_then(|terms| terms.max_output_tokens).unwrap_or(MAX_OUTPUT_TOKENS);
    let job = if job.max_output_tokens().is_none() { job.with_max_output_tokens(largest) } else { job };
    Ok(if job.max_tool_calls().is_none() { job.with_max_tool_calls(TOOL_CALLS_MAX) } else { job })
}

/// Returns the path of the first part of a request whose cost cannot be bounded, and the reason.
fn first_unbounded(job: &ResponseJob, is_priced: impl Fn(&str) -> bool) -> Option<(String, &'static str)> {
    let contents = job.contents();
    let unpriced = hosted_kinds(job).find(|kind| !is_priced(kind));
    let tool = unpriced.and_then(|kind| job.hosted_tools().iter().find(|tool| tool.kind == kind));
    let tool = tool.map(|tool| (tool.path.clone(), "the calls of this tool have no price"));
    let address = contents.inputs().first_address.clone().map(|path| (path, "the content is at an address"));
    let stored = contents.stored().first().map(|stored| (stored.path.clone(), "the content is stored at the upstream"));
    let unjudged = contents.unjudged().map(|part| (part.path.clone(), part.reason));
    tool.or(address).or(stored).or(unjudged)
}

/// Returns the types of the tools that the upstream runs, without image tools.
pub(super) fn hosted_kinds(job: &ResponseJob) -> impl Iterator<Item = &str> {
    job.hosted_tools().iter().map(|tool| tool.kind.as_str()).filter(|kind| *kind != IMAGE_TOOL)
}
