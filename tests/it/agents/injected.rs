//! Long conversations with the image tool that the gateway adds: no turn is refused by a provider that enforces
//! conflicts between tools.

use serde_json::json;

use super::AgentFixture;
use super::codex::{Codex, Release};
use crate::kit::{Call, ModelStep};

const TURNS: usize = 20;

/// The steps of the model in twenty turns: calls of the shell, images and messages.
fn steps() -> Vec<ModelStep> {
    let call = || ModelStep::Calls { namespace: None, name: "exec_command", arguments: json!({"cmd": "echo one"}) };
    let turns = (0..TURNS).map(|turn| match turn % 3 {
        0 => vec![call(), ModelStep::Says("The shell works.")],
        1 => vec![ModelStep::Draws],
        _ => vec![ModelStep::Says("Yes.")],
    });
    turns.flatten().collect()
}

/// Runs the turns, and returns the number of requests that went upstream with the hosted image tool.
#[track_caller]
fn run_turns(fixture: &AgentFixture, codex: &Codex) -> usize {
    fixture.upstream.set_conversation(&steps());
    for turn in 0..TURNS {
        let output = if turn == 0 { codex.exec("Turn 0.") } else { codex.resume(&format!("Turn {turn}.")) };
        assert!(!output.message().is_empty(), "turn {turn}");
    }
    let attempts = fixture.upstream.received_attempts();
    let is_hosted = |tool: &serde_json::Value| tool["type"] == "image_generation";
    let with_tool = attempts
        .iter()
        .filter(|attempt| attempt.json()["tools"].as_array().is_some_and(|tools| tools.iter().any(is_hosted)));
    let records = fixture.gateway.final_records(attempts.len());
    assert!(records.iter().all(|record| record["state"] == "succeeded"), "{records:#?}");
    assert!(attempts.len() >= TURNS, "{} requests", attempts.len());
    with_tool.count()
}

#[test]
fn twenty_turns_of_codex_with_the_added_tool_are_never_refused() {
    let fixture = AgentFixture::with_injected_tool();
    let codex = Codex::with_provider(&fixture.proxy, fixture.gateway.secret());
    assert!(run_turns(&fixture, &codex) > 0, "the tool was added");
}

#[test]
fn twenty_turns_of_codex_with_an_image_tool_of_its_own_are_never_refused() {
    let fixture = AgentFixture::with_injected_tool();
    let codex = Codex::with_chatgpt_login(&fixture.proxy, fixture.gateway.secret());
    run_turns(&fixture, &codex);
}

#[test]
fn twenty_turns_of_an_older_codex_are_never_refused() {
    let fixture = AgentFixture::with_injected_tool();
    let codex = Codex::with_provider(&fixture.proxy, fixture.gateway.secret()).with_release(Release::V0_125);
    assert!(run_turns(&fixture, &codex) > 0, "the tool was added, or is its own");
}

#[test]
fn turns_that_conflict_with_a_hosted_image_tool_are_sent_without_it() {
    let fixture = AgentFixture::with_injected_tool();
    fixture.upstream.set_conversation(&[ModelStep::Says("Yes.")]);
    let function = |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    let namespace = json!({"type": "namespace", "name": "image_gen", "tools": [function("imagegen")]});
    let deferred = json!([{"type": "additional_tools", "tools": [namespace]}, {"role": "user", "content": "x"}]);
    let schema = json!({"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}});
    let parts = [
        json!({"tools": [function("image_gen.imagegen")]}),
        json!({"tools": [function("image_gen__imagegen")]}),
        json!({"tools": [function("imagegen")]}),
        json!({"tools": [namespace]}),
        json!({"tools": [function("f")], "tool_choice": {"type": "function", "name": "f"}}),
        json!({"tools": [function("f")], "text": schema}),
        json!({"input": deferred}),
        json!({"input": [{"role": "user", "content": "x"}, {"type": "compaction_trigger"}]}),
    ];
    for part in &parts {
        let mut body = json!({"model": "gpt-5.5", "input": "x"});
        for (name, value) in part.as_object().expect("members") {
            body[name] = value.clone();
        }
        let call = Call::post("/v1/responses").key(fixture.gateway.secret()).header("originator", "codex_exec");
        let answer = call.json(&body).send(fixture.gateway.address());
        assert_eq!(answer.status, 200, "{part}: {:.300}", answer.text());
    }
    assert_eq!(fixture.upstream.attempt_count(), parts.len(), "none is sent twice");
}
