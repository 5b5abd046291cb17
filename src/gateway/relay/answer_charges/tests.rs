//! Tests of the reader: nothing in an answer that may be charged goes unnoticed.

use serde_json::json;

use super::*;
use crate::gateway::relay::answer_usage::{parse_token_counts, usage_from_response};

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// The charges of a plain response with these members, besides an ordinary usage.
fn charges(members: &Value) -> AnswerCharges {
    let mut response = object(&json!({"usage": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}}));
    response.extend(object(members));
    let mut calls = ToolCallCounter::default();
    for item in response.get("output").and_then(Value::as_array).into_iter().flatten() {
        calls.add_list_item(&object(item));
    }
    usage_from_response(&response, &calls).expect("counts").charges
}

fn tools(names: &[(&str, u64)]) -> BTreeMap<String, u64> {
    names.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
}

#[test]
fn an_ordinary_answer_has_no_charges_besides_its_tokens() {
    for members in [
        json!({}),
        json!({"service_tier": "default"}),
        json!({"service_tier": null, "tool_usage": null}),
        json!({"tool_usage": {"image_gen": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}, "web_search": {"num_requests": 0}}}),
        json!({"output": [{"type": "message"}, {"type": "reasoning"}, {"type": "image_generation_call"}, {"type": "function_call"}]}),
        json!({"usage": {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 5,
            "output_tokens_details": {"reasoning_tokens": 3}, "total_tokens": 15, "other": 0, "more": {"x": [0, null, false, ""]}}}),
        json!({"usage": {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}),
    ] {
        assert!(charges(&members).is_empty(), "{members}: {:?}", charges(&members));
    }
}

#[test]
fn the_tier_is_that_of_the_answer() {
    let tier = |members: &Value| charges(members).tier;
    assert_eq!(tier(&json!({"service_tier": "flex"})).as_deref(), Some("flex"));
    let of_usage = json!({"usage": {"input_tokens": 1, "output_tokens": 1, "service_tier": "priority"}});
    assert_eq!(tier(&of_usage).as_deref(), Some("priority"));
    assert_eq!(charges(&json!({"service_tier": 7})).unpriced, Some(CostReason::UnpricedTier));
}

#[test]
fn calls_of_tools_are_counted_once_wherever_they_are_stated() {
    let items =
        json!([{"type": "web_search_call"}, {"type": "web_search_call"}, {"type": "mcp_call"}, {"type": "later_item"}]);
    let stated =
        json!({"web_search": {"num_requests": 50}, "probe": 3, "code_interpreter": {"num_requests": 1, "seconds": 9}});
    let read = charges(&json!({"output": items, "tool_usage": stated}));
    let expected = [("web_search", 50), ("mcp", 1), ("later_item", 1), ("probe", 3), ("code_interpreter", 1)];
    assert_eq!(read.tools, tools(&expected));
    assert_eq!(read.unpriced, Some(CostReason::UnpricedTool), "the seconds have no price");
    // In events, each item comes in its own event and in the list at the end.
    let mut calls = ToolCallCounter::default();
    let item = object(&json!({"type": "file_search_call"}));
    for _ in 0..2 {
        calls.add_event_item(&item);
        calls.end_event();
    }
    (0..2).for_each(|_| calls.add_list_item(&item));
    calls.end_event();
    let response = object(&json!({"usage": {"input_tokens": 1, "output_tokens": 1}}));
    let read = usage_from_response(&response, &calls).expect("counts").charges;
    assert_eq!(read.tools, tools(&[("file_search", 2)]));
}

#[test]
fn a_member_of_the_usage_that_is_not_known_is_noticed_at_any_depth() {
    let base = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15});
    let with = |members: Value| {
        let mut usage = object(&base);
        usage.extend(object(&members));
        charges(&json!({ "usage": usage })).unpriced
    };
    assert_eq!(with(json!({})), None);
    for members in [
        json!({"search_units": 1}),
        json!({"server_tool_use": {"web_search_requests": 2}}),
        json!({"input_tokens_details": {"audio_tokens": 3}}),
        json!({"steps": [{"input_tokens": 4}]}),
        json!({"speed": "fast"}),
        json!({"is_byok": true}),
        json!({"later": -1}),
        json!({"total_tokens": 900}),
        json!({"input_tokens": "10"}),
        json!({"output_tokens": null}),
        json!({"prompt_tokens": 11}),
    ] {
        assert_eq!(with(members.clone()), Some(CostReason::UnpricedUsage), "{members}");
    }
    let lifetime = json!({"input_tokens_details": {"cache_creation": {"ephemeral_1d_input_tokens": 5}}});
    assert_eq!(with(lifetime), Some(CostReason::UnpricedCacheWrite));
    let of_tool = json!({"tool_usage": {"image_gen": {"input_tokens": 1, "output_tokens": 2, "frames": 3}}});
    assert_eq!(charges(&of_tool).unpriced, Some(CostReason::UnpricedUsage));
    let of_vectors = json!({"svg_usage": {"input_tokens": 1, "output_tokens": 2}});
    assert_eq!(charges(&of_vectors).unpriced, Some(CostReason::UnpricedUsage));
    assert_eq!(charges(&json!({"svg_usage": null})).unpriced, None);
    let mut calls = ToolCallCounter::default();
    calls.note_unread_member("tool_usage");
    assert_eq!(read_charges(&[], &calls).unpriced, Some(CostReason::UnpricedUsage));
}

#[test]
fn cache_writes_are_counted_by_lifetime() {
    let counts = |usage: Value| {
        let counts = parse_token_counts(&usage).expect("counts");
        (counts.input, counts.cached_text, counts.cache_write, counts.cache_write_1h)
    };
    let details = json!({"input_tokens": 100, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 30}});
    assert_eq!(counts(details), (100, 20, 30, 0));
    let lifetimes = json!({"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4});
    let inside =
        json!({"input_tokens": 100, "output_tokens": 1, "input_tokens_details": {"cache_creation": lifetimes}});
    assert_eq!(counts(inside), (100, 0, 3, 4));
    // In the form of an API whose input tokens are only those besides the cache.
    let beside = json!({"input_tokens": 100, "output_tokens": 1, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 5,
        "cache_creation": lifetimes});
    assert_eq!(counts(beside), (112, 5, 3, 4));
    let included =
        json!({"input_tokens": 100, "output_tokens": 1, "total_tokens": 101, "cache_creation_input_tokens": 7});
    assert_eq!(counts(included), (100, 0, 7, 0));
}

#[test]
fn charges_of_several_answers_add_up() {
    let [flex, plain] = [json!({"service_tier": "flex"}), json!({})].map(|members| charges(&members));
    assert_eq!(flex.clone().plus(flex.clone()).tier.as_deref(), Some("flex"));
    assert_eq!(flex.plus(plain).tier.as_deref(), Some("flex+default"), "no price has such a name");
    let stated = |cost: f64| {
        charges(
            &json!({"usage": {"input_tokens": 1, "output_tokens": 1, "cost": cost}, "tool_usage": {"web_search": 2}}),
        )
    };
    let sum = stated(0.5).plus(stated(0.25));
    assert_eq!((sum.stated_cost, sum.tools), (Usd::from_dollars(0.75), tools(&[("web_search", 4)])));
    let mut many = AnswerCharges::default();
    (0..100).for_each(|number| many.add_tool(&format!("tool_{number}"), 1));
    assert_eq!((many.tools.len(), many.unpriced), (64, Some(CostReason::UnpricedTool)));
}
