//! Tools that a request declares outside of `tools`: the same rules, limits and reservations hold for them.

use serde_json::{Value, json};

use super::{call, response_body};
use crate::kit::{Account, Call, FakeUpstream, Gateway};

/// The rules of the group. A small image of low quality costs less than its budget, a large one of high quality more.
const RULES: &str = "[[groups]]\nname = \"default\"\ntools = [\"image_generation\"]\n[groups.limits]\nmax_size = \
                     \"1536x1024\"\nmax_quality = \"low\"\nimages_per_day = 1\n";
const BUDGET: &str = "[[prices]]\nmodel = \"gpt-5.5\"\nfrom = \"2026-01-01\"\ntext_input = 2\ntext_output = 8\n[[groups]]\nname = \
                      \"default\"\nbudget_mode = \"strict\"\n[groups.limits]\nbudget_usd = 0.3\n";

fn start_gateway(upstream: &FakeUpstream, settings: &str) -> Gateway {
    Gateway::with(settings, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

/// Returns requests that declare a tool, each at another place, with the path of the tool.
fn places(tool: &Value) -> Vec<(Value, &'static str)> {
    let namespace = |tool: &Value| json!({"type": "namespace", "name": "n", "tools": [tool]});
    let item = |kind: &str, tool: &Value| json!([{"role": "user", "content": "draw"}, {"type": kind, "tools": [tool]}]);
    let choice = |tool: &Value| json!({"type": "allowed_tools", "mode": "auto", "tools": [tool]});
    vec![
        (json!({"tools": [tool]}), "tools[0]"),
        (json!({"tools": [namespace(tool)]}), "tools[0].tools[0]"),
        (json!({"tools": [namespace(&namespace(tool))]}), "tools[0].tools[0].tools[0]"),
        (json!({"input": item("additional_tools", tool)}), "input[1].tools[0]"),
        (json!({"input": item("tool_search_output", tool)}), "input[1].tools[0]"),
        (json!({"input": item("not_known_yet", &namespace(tool))}), "input[1].tools[0].tools[0]"),
        (json!({"tool_choice": choice(tool)}), "tool_choice.tools[0]"),
        (json!({"later": {"tools": [tool]}}), "later.tools[0]"),
    ]
}

#[test]
fn a_tool_is_judged_at_every_place_and_no_refused_one_reaches_an_upstream() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, RULES);
    let image = |fields: Value| {
        let mut tool = json!({"type": "image_generation", "size": "1024x1024", "quality": "low"});
        tool.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
        tool
    };
    for (tool, param) in [
        (image(json!({"size": "3840x2160"})), "size"),
        (image(json!({"quality": "high"})), "quality"),
        (image(json!({"size": "7x7"})), "size"),
        (image(json!({"background": "transparent"})), "background"),
        (json!({"type": "image_generation"}), "size"),
        (json!({"type": "web_search"}), "type"),
        (json!({"type": "not_known_yet"}), "type"),
    ] {
        for (patch, path) in places(&tool) {
            let error = call(&gateway).json(&response_body(&patch)).send(gateway.address()).error_object(400);
            assert_eq!(error["param"], format!("{path}.{param}"), "{patch}: {error}");
        }
    }
    assert_eq!((upstream.accepted(), gateway.records().len()), (0, 0));
}

#[test]
fn an_image_tool_counts_for_the_day_and_the_record_wherever_it_is_declared() {
    let tool = json!({"type": "image_generation", "size": "1024x1024", "quality": "low"});
    let (upstream, places) = (FakeUpstream::start(), places(&tool));
    let send = |gateway: &Gateway, patch: &Value| call(gateway).json(&response_body(patch)).send(gateway.address());
    let unlimited = start_gateway(&upstream, "");
    for (count, (patch, _)) in places.iter().enumerate() {
        assert_eq!(send(&unlimited, patch).status, 200, "{patch}");
        let record = unlimited.final_records(count + 1).pop().expect("a record");
        assert_eq!((&record["size"], &record["quality"]), (&json!("1024x1024"), &json!("low")), "{patch}");
    }
    let limited = start_gateway(&upstream, RULES);
    let before = upstream.attempt_count();
    // The image of the first request is the last one of the day.
    assert_eq!(send(&limited, &places[0].0).status, 200);
    for (patch, _) in &places {
        let error = send(&limited, patch).error_object(429);
        assert_eq!(
            (&error["code"], &error["limit"]),
            (&json!("insufficient_quota"), &json!("images_per_day")),
            "{patch}"
        );
    }
    assert_eq!(upstream.attempt_count(), before + 1);
}

#[test]
fn an_image_tool_reserves_its_price_wherever_it_is_declared() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, BUDGET);
    for (mut patch, _) in places(&json!({"type": "image_generation", "size": "3840x2160", "quality": "high"})) {
        (patch["max_output_tokens"], patch["max_tool_calls"]) = (json!(100), json!(1));
        let error = call(&gateway).json(&response_body(&patch)).send(gateway.address()).error_object(429);
        assert_eq!((&error["code"], &error["limit"]), (&json!("insufficient_quota"), &json!("budget_usd")), "{patch}");
    }
    assert_eq!(upstream.accepted(), 0);
}

#[test]
fn a_member_that_is_given_twice_is_refused_in_every_body() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, "");
    let high = r#"[{"type":"image_generation","quality":"high"}]"#;
    let generation = r#""model":"gpt-image-2","prompt":"a""#;
    for (path, body, param) in [
        ("/v1/responses", format!(r#"{{"model":"m","input":"x","tools":{high},"tools":[]}}"#), "tools"),
        ("/v1/responses", format!(r#"{{"model":"m","input":"x","to\u006fls":{high},"tools":[]}}"#), "tools"),
        ("/v1/responses", r#"{"model":"m","input":[{"tools":[],"tools":[]}]}"#.to_owned(), "input[0].tools"),
        ("/v1/images/generations", format!(r#"{{{generation},"n":9,"n":1}}"#), "n"),
        ("/v1/images/generations", format!(r#"{{{generation},"pr\u006fmpt":"b"}}"#), "prompt"),
        ("/v1/images/estimate", format!(r#"{{{generation},"size":"3840x2160","size":"1024x1024"}}"#), "size"),
        ("/v1/images/edits", format!(r#"{{{generation},"n":9,"n":1,"images":[]}}"#), "n"),
    ] {
        let sent =
            Call::post(path).key(gateway.secret()).header("content-type", "application/json").bytes(body.as_bytes());
        let error = sent.send(gateway.address()).error_object(400);
        assert_eq!(error["param"], param, "{body}: {error}");
    }
    let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"generate_image","arguments":{"prompt":"a","prompt":"b"}}}"#;
    let sent = Call::post("/mcp").key(gateway.secret()).header("content-type", "application/json").bytes(message);
    let answer = sent.header("accept", "application/json, text/event-stream").send(gateway.address());
    assert!(answer.text().contains("'params.arguments.prompt' is given more than once"), "{}", answer.text());
    assert_eq!((upstream.accepted(), gateway.records().len()), (0, 0));
}
