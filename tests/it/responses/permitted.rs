//! The lists of allowed text models and hosted tools of a group.

use serde_json::{Value, json};

use super::{call, response_body};
use crate::kit::{Account, FakeUpstream, Gateway};

fn start_gateway(upstream: &FakeUpstream, config: &str) -> Gateway {
    Gateway::with(config, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

#[track_caller]
fn assert_passes(gateway: &Gateway, patch: &Value) {
    let answer = call(gateway).json(&response_body(patch)).send(gateway.address());
    assert_eq!(answer.status, 200, "{patch}: {}", answer.text());
}

#[test]
fn a_model_that_is_not_on_the_list_is_not_found_and_costs_nothing() {
    let upstream = FakeUpstream::start();
    for config in [
        "text_models = [\"gpt-5.5\"]",
        "[[groups]]\nname = \"default\"\ntext_models = [\"gpt-5.5\"]\n",
        "text_models = [\"o1-pro\"]\n[[groups]]\nname = \"default\"\ntext_models = [\"gpt-5.5\"]\n",
    ] {
        let gateway = start_gateway(&upstream, config);
        let before = upstream.accepted();
        for model in ["o1-pro", "gpt-5.5-typo", "GPT-5.5"] {
            let error =
                call(&gateway).json(&response_body(&json!({"model": model}))).send(gateway.address()).error_object(404);
            assert_eq!((&error["code"], &error["param"]), (&json!("model_not_found"), &json!("model")), "{config}");
        }
        assert_eq!((upstream.accepted(), gateway.records().len()), (before, 0), "{config}");
        assert_passes(&gateway, &json!({}));
        gateway.generate(json!({})).ok_json();
    }
}

#[test]
fn a_group_may_use_only_its_listed_hosted_tools() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, "[[groups]]\nname = \"default\"\ntools = [\"image_generation\"]\n");
    let image_tool = json!({"type": "image_generation"});
    let function = json!({"type": "function", "name": "f", "parameters": {}});
    let hosted = |kind: &str| json!({"tools": [function, image_tool, {"type": kind}]});
    let nested = json!({"type": "namespace", "name": "n", "tools": [function, {"type": "web_search"}]});
    let allowed_tools = json!({"type": "allowed_tools", "mode": "auto", "tools": [image_tool, {"type": "mcp"}]});
    for (patch, param) in [
        (hosted("web_search"), "tools[2].type"),
        (hosted("code_interpreter"), "tools[2].type"),
        (hosted("file_search"), "tools[2].type"),
        (hosted("mcp"), "tools[2].type"),
        (json!({"tools": [nested]}), "tools[0].tools[1].type"),
        (json!({"tools": [image_tool], "tool_choice": {"type": "web_search"}}), "tool_choice.type"),
        (json!({"tools": [image_tool], "tool_choice": allowed_tools}), "tool_choice.tools[1].type"),
        (json!({"prompt": {"id": "pmpt_1"}}), "prompt"),
    ] {
        let error = call(&gateway).json(&response_body(&patch)).send(gateway.address()).error_object(400);
        let found = (&error["code"], &error["param"]);
        assert_eq!(found, (&json!("invalid_request_error"), &json!(param)), "{patch}");
    }
    assert_eq!((upstream.accepted(), gateway.records().len()), (0, 0));
    let namespace = json!({"type": "namespace", "name": "image_gen", "tools": [function]});
    for patch in [
        json!({"tools": [image_tool, function, {"type": "custom", "name": "c"}, namespace]}),
        json!({"tools": [image_tool], "tool_choice": {"type": "image_generation"}}),
        json!({"tools": [function], "tool_choice": {"type": "function", "name": "f"}}),
        json!({"tools": [function], "tool_choice": "required"}),
    ] {
        assert_passes(&gateway, &patch);
    }
}

#[test]
fn without_a_list_every_tool_passes() {
    let upstream = FakeUpstream::start();
    let gateway = start_gateway(&upstream, "");
    assert_passes(&gateway, &json!({"model": "o1-pro", "tools": [{"type": "web_search"}], "prompt": {"id": "pmpt_1"}}));
}
