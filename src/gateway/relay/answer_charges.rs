//! Everything in an answer besides its tokens that can change its price: the service tier, calls of tools that the upstream
//! ran, a stated cost, and members of the usage that are not known.
//!
//! Pure. A member that this module does not know makes the price of the answer uncertain ([`AnswerCharges::unpriced`]):
//! an upstream may use a later version of the contract than this program, and charge for what it counts there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::answer_usage::{ALIASES, CACHE_READ, documented_count, member, parse_count, parse_members};
use crate::gateway::money::Usd;
use crate::gateway::store::{AnswerCharges, CostReason};
use crate::words::lines_of;

/// The members of an answer that are read here, besides the items of a response.
pub(super) const CHARGE_MEMBERS: [&str; 4] = ["usage", "tool_usage", "service_tier", SVG_USAGE];
/// The tokens of the text model that draws a vector image. They have no price.
const SVG_USAGE: &str = "svg_usage";

/// The counts in `usage` whose price is known, by their documented names. Tokens of reasoning and of predictions are part
/// of the output.
const KNOWN_COUNTS: &[&str] = lines_of!("answer_charges/known_counts.txt");

/// The member of `tool_usage` that counts the tokens of the image tool.
pub(super) const IMAGE_TOOL: &str = "image_gen";
/// The count of calls in the other members of `tool_usage`.
const CALLS: &str = "num_requests";
/// The end of the type of an item that is a call of a tool.
const CALL_SUFFIX: &str = "_call";
/// The types of items without a charge besides their tokens: what the model writes, calls of tools that the caller runs,
/// and the image tool, whose tokens are counted.
const FREE_ITEMS: [&str; 15] = [
    "additional_tools",
    "computer_call",
    "message",
    "reasoning",
    "compaction",
    "item_reference",
    "function_call",
    "custom_tool_call",
    "local_shell_call",
    "apply_patch_call",
    "tool_search_call",
    "image_generation_call",
    "mcp_list_tools",
    "mcp_approval_request",
    "mcp_approval_response",
];

/// The calls of tools in the items of a response. An item may come twice: in its own event, and in the response at the
/// end.
#[derive(Clone, Debug, Default)]
pub(super) struct ToolCallCounter {
    /// The items that came in events of their own.
    in_events: AnswerCharges,
    /// The items of the list in the current event, or in a plain response.
    in_list: AnswerCharges,
    /// The most of all lists so far.
    in_lists: AnswerCharges,
    /// True if a member with charges was too large to be read.
    has_unread_member: bool,
}

/// Reads what can change the price of an answer besides its tokens.
pub(super) fn read_charges(objects: &[&Map<String, Value>], calls: &ToolCallCounter) -> AnswerCharges {
    let mut charges = AnswerCharges::default();
    if calls.has_unread_member {
        charges.note_unpriced(CostReason::UnpricedUsage);
    }
    let usage = member(objects, "usage");
    let of_usage = |name: &str| usage.and_then(|usage| usage.get(name)).filter(|value| !value.is_null());
    for tier in [of_usage("service_tier"), member(objects, "service_tier")].into_iter().flatten() {
        match tier.as_str() {
            Some(tier) => charges.set_tier(tier),
            None => charges.note_unpriced(CostReason::UnpricedTier),
        }
    }
    charges.stated_cost = of_usage("cost").and_then(Value::as_f64).and_then(Usd::from_dollars);
    read_tools(&mut charges, member(objects, "tool_usage"), calls);
    if member(objects, SVG_USAGE).is_some_and(may_be_charged) {
        charges.note_unpriced(CostReason::UnpricedUsage);
    }
    if let Some(usage) = usage.and_then(Value::as_object) {
        charges.unpriced = charges.unpriced.or(unpriced_usage(usage));
    }
    charges
}

/// Adds the calls of tools: for each tool the greater of the count that the upstream states and the items of its calls.
fn read_tools(charges: &mut AnswerCharges, tool_usage: Option<&Value>, calls: &ToolCallCounter) {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    let items = calls.in_events.tools.iter().chain(&calls.in_list.tools).chain(&calls.in_lists.tools);
    for (tool, calls) in items {
        let count = counts.entry(tool).or_default();
        *count = (*count).max(*calls);
    }
    match tool_usage {
        Some(Value::Object(tools)) => {
            for (tool, value) in tools {
                if tool == IMAGE_TOOL {
                    charges.unpriced = charges.unpriced.or(value.as_object().and_then(unpriced_usage));
                    continue;
                }
                let stated = value.get(CALLS).unwrap_or(value);
                let stated_calls = parse_count(stated);
                let count = counts.entry(tool).or_default();
                *count = (*count).max(stated_calls.unwrap_or(0));
                let mut others = value.as_object().into_iter().flatten().filter(|(name, _)| *name != CALLS);
                let is_unread = stated_calls.is_none() && may_be_charged(stated);
                if is_unread || others.any(|(_, value)| may_be_charged(value)) {
                    charges.note_unpriced(CostReason::UnpricedTool);
                }
            }
        }
        Some(other) if may_be_charged(other) => charges.note_unpriced(CostReason::UnpricedTool),
        _ => {}
    }
    for (tool, count) in counts {
        charges.add_tool(tool, count);
    }
    for unpriced in [calls.in_events.unpriced, calls.in_list.unpriced, calls.in_lists.unpriced].into_iter().flatten() {
        charges.note_unpriced(unpriced);
    }
}

/// Returns the reason why the price of a usage is not certain, if it has members that are not known, or lacks a count.
fn unpriced_usage(usage: &Map<String, Value>) -> Option<CostReason> {
    let counts = parse_members(usage);
    let is_incomplete = counts.is_some_and(|counts| {
        let is_stated = |name: &str| documented_count(usage, name).is_some();
        let is_sum_of_more = counts.total > counts.input.saturating_add(counts.output);
        !(is_stated("input_tokens") && is_stated("output_tokens")) || is_sum_of_more
    });
    let disagrees = |(alias, name): &(&str, &str)| {
        let counts = [*alias, *name].map(|name| usage.get(name).and_then(parse_count));
        matches!(counts, [Some(alias), Some(count)] if alias != count)
    };
    let unknown = usage.iter().find_map(|(name, value)| {
        let alias = ALIASES.iter().find(|(alias, _)| alias == name);
        let mut path = alias.map_or(name.as_str(), |(_, documented)| *documented).to_owned();
        unknown_member(&mut path, value)
    });
    let is_uncertain = is_incomplete || ALIASES.iter().any(disagrees);
    unknown.or_else(|| is_uncertain.then_some(CostReason::UnpricedUsage))
}

/// Returns the reason if a member, or one inside of it, is not known and may stand for a charge. Leaves the path as it
/// was.
fn unknown_member(path: &mut String, value: &Value) -> Option<CostReason> {
    let length = path.len();
    match value {
        Value::Object(members) => members.iter().find_map(|(name, value)| {
            path.extend([".", name.as_str()]);
            let reason = unknown_member(path, value);
            path.truncate(length);
            reason
        }),
        Value::Number(_) if path == "cost" => None,
        Value::String(_) if path == "service_tier" => None,
        _ if !may_be_charged(value) => None,
        _ if (KNOWN_COUNTS.contains(&path.as_str()) || path == CACHE_READ) && parse_count(value).is_some() => None,
        _ if path.contains("cache_creation") || path.contains("cache_write") => Some(CostReason::UnpricedCacheWrite),
        _ => Some(CostReason::UnpricedUsage),
    }
}

/// True if a value may stand for something that is charged: it is not zero, false or empty.
fn may_be_charged(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(values) => values.iter().any(may_be_charged),
        Value::Object(members) => members.values().any(may_be_charged),
    }
}

// === impl ToolCallCounter ===

impl ToolCallCounter {
    /// Counts an item that came in an event of its own.
    pub(super) fn add_event_item(&mut self, item: &Map<String, Value>) {
        add_item(&mut self.in_events, item);
    }

    /// Counts an item of the list of a response.
    pub(super) fn add_list_item(&mut self, item: &Map<String, Value>) {
        add_item(&mut self.in_list, item);
    }

    /// Ends an event, whose list is complete.
    pub(super) fn end_event(&mut self) {
        let AnswerCharges { tools, unpriced, .. } = std::mem::take(&mut self.in_list);
        for (tool, calls) in tools {
            let missing = calls.saturating_sub(self.in_lists.tools.get(&tool).copied().unwrap_or(0));
            self.in_lists.add_tool(&tool, missing);
        }
        if let Some(reason) = unpriced {
            self.in_lists.note_unpriced(reason);
        }
    }

    /// Notes that a member of the answer could not be read.
    pub(super) fn note_unread_member(&mut self, name: &str) {
        self.has_unread_member |= CHARGE_MEMBERS.contains(&name);
    }
}

/// Counts an item, if it is the call of a tool that is not free. An item of a type that is not known counts as one.
fn add_item(charges: &mut AnswerCharges, item: &Map<String, Value>) {
    if item.get(SVG_USAGE).is_some_and(may_be_charged) {
        charges.note_unpriced(CostReason::UnpricedUsage);
    }
    let Some(kind) = item.get("type").and_then(Value::as_str) else { return };
    if !FREE_ITEMS.contains(&kind) && !kind.ends_with("_output") {
        charges.add_tool(kind.strip_suffix(CALL_SUFFIX).unwrap_or(kind), 1);
    }
}

#[cfg(test)]
mod tests;
