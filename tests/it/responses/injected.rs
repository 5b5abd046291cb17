//! The injection of the image tool into requests of coding agents, by the group setting `inject_image_tool`.

use serde_json::{Value, json};

use super::call;
use crate::kit::{Account, Call, FakeUpstream, Gateway, eventually};

const TOOL: &str = r#"{"type":"image_generation","output_format":"png"}"#;

/// A gateway with this setting in its default group.
fn gateway_with_group(upstream: &FakeUpstream, setting: &str) -> Gateway {
    let config = format!("[[groups]]\nname = \"default\"\n{setting}\n");
    Gateway::with(&config, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

fn injecting_gateway(upstream: &FakeUpstream) -> Gateway {
    gateway_with_group(upstream, "inject_image_tool = true")
}

/// A request with the headers of a coding agent.
fn agent_call(gateway: &Gateway, body: impl Into<Vec<u8>>) -> Call {
    let call = call(gateway).header("content-type", "application/json").header("originator", "codex_exec");
    call.header("user-agent", "codex_exec/0.125.0 (Debian 12.0.0; x86_64)").bytes(body)
}

/// Sends a request; returns the body that reaches the upstream, and the record.
#[track_caller]
fn body_and_record(gateway: &Gateway, upstream: &FakeUpstream, call: Call) -> (String, Value) {
    let answer = call.send(gateway.address());
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    let record = gateway.final_records(upstream.attempt_count()).pop().expect("a record");
    let body = upstream.received_attempts().pop().expect("an attempt").body;
    (String::from_utf8(body).expect("text"), record)
}

#[test]
fn an_agent_without_an_image_tool_gets_one_and_no_other_change() {
    let upstream = FakeUpstream::start();
    let gateway = injecting_gateway(&upstream);
    let long = "A".repeat(3_000_000);
    for (body, expected_part) in [
        (r#" {"model":"gpt-5.5" , "input":"x"}"#.to_owned(), format!("{{\"tools\":[{TOOL}],\"model\":\"gpt-5.5\" ,")),
        (r#"{"model":"gpt-5.5","tools":[ ],"input":"x"}"#.to_owned(), format!("\"tools\":[ {TOOL}],")),
        (r#"{"model":"gpt-5.5","tools":null,"input":"x"}"#.to_owned(), format!("\"tools\":[{TOOL}],")),
        (
            r#"{"model":"gpt-5.5","tools":[{"type":"function","name":"f","x":1e2}
 ],"input":"x","x":1,"x":-0.0}"#
                .to_owned(),
            format!("\"x\":1e2}}\n ,{TOOL}],"),
        ),
        (
            format!(r#"{{"input":"{long}","tools":[{{"type":"function","name":"f"}}],"model":"gpt-5.5"}}"#),
            format!("\"name\":\"f\"}},{TOOL}],"),
        ),
    ] {
        let (upstream_body, record) = body_and_record(&gateway, &upstream, agent_call(&gateway, body.clone()));
        assert!(upstream_body.contains(&expected_part), "{upstream_body:.300}");
        assert!(serde_json::from_str::<Value>(&upstream_body).is_ok(), "{upstream_body:.300}");
        let inserted = upstream_body.len() - body.len();
        let at = upstream_body.bytes().zip(body.bytes()).take_while(|(sent, received)| sent == received).count();
        assert_eq!(body[at..].len(), upstream_body[at + inserted..].len());
        if !body.contains("null") {
            assert_eq!(
                body[at..],
                upstream_body[at + inserted..],
                "the body must have one insertion and no other change"
            );
        }
        assert_eq!((&record["injected_tool"], &record["output_format"]), (&json!(true), &json!("png")), "{record}");
        assert_eq!(record["delivered"].as_array().map(Vec::len), Some(1), "the image is recorded: {record}");
    }
}

#[test]
fn a_limit_that_does_not_allow_the_tool_refuses_no_request_without_one() {
    let upstream = FakeUpstream::start();
    for limit in ["max_size = \"2560x1440\"", "max_quality = \"low\"", "models = [\"gpt-image-2-2026-04-21\"]"] {
        let gateway = gateway_with_group(&upstream, &format!("inject_image_tool = true\n[groups.limits]\n{limit}"));
        let before = upstream.attempt_count();
        let answer = agent_call(&gateway, r#"{"model":"gpt-5.5","input":"x"}"#).send(gateway.address());
        assert_eq!(answer.status, 200, "{limit}: {:.300}", answer.text());
        let sent = upstream.received_attempts().split_off(before);
        assert!(sent.len() == 1 && sent[0].body == br#"{"model":"gpt-5.5","input":"x"}"#, "{limit}");
        assert_eq!(gateway.final_records(1)[0]["injected_tool"], json!(false));
    }
}

#[test]
fn a_request_refused_with_the_tool_is_sent_again_unchanged() {
    let upstream = FakeUpstream::start();
    for script in ["status=400 body=tool", "status=422 body=tool", "status=400 body=error"] {
        for stream in [false, true] {
            let gateway = injecting_gateway(&upstream);
            let before = upstream.attempt_count();
            upstream.script_sequence("sk-upstream-only", &[script, ""]);
            let body = format!(r#"{{"model":"gpt-5.5","input":"x","tools":[ ],"stream":{stream}}}"#);
            let answer = agent_call(&gateway, body.clone()).send(gateway.address());
            assert_eq!(answer.status, 200, "{script}: {:.300}", answer.text());
            let sent: Vec<String> = upstream.received_attempts()[before..]
                .iter()
                .map(|attempt| String::from_utf8_lossy(&attempt.body).into())
                .collect();
            assert_eq!(sent.len(), 2, "{script}");
            assert!(sent[0].contains(TOOL) && sent[1] == body, "{script}: {sent:?}");
            let record = gateway.final_records(1).pop().expect("a record");
            assert_eq!((&record["state"], record["attempts"][1]["class"].as_str()), (&json!("succeeded"), None));
            let facts = (&record["injected_tool"], &record["size"], &record["output_format"]);
            assert_eq!(facts, (&json!(false), &Value::Null, &Value::Null), "the answer was made without the tool");
        }
    }
}

#[test]
fn an_account_that_refuses_the_tool_does_not_get_it_again_for_a_while() {
    let upstream = FakeUpstream::start();
    let gateway = injecting_gateway(&upstream);
    upstream.script_sequence("sk-upstream-only", &["status=400 body=tool", ""]);
    let body = r#"{"model":"gpt-5.5","input":"x"}"#;
    for _ in 0..5 {
        assert_eq!(agent_call(&gateway, body).send(gateway.address()).status, 200);
    }
    let with_tool = || {
        let attempts = upstream.received_attempts();
        attempts.iter().filter(|attempt| String::from_utf8_lossy(&attempt.body).contains(TOOL)).count()
    };
    assert_eq!((with_tool(), upstream.attempt_count()), (1, 6));
    assert_eq!(gateway.final_records(5).iter().filter(|record| record["state"] == "succeeded").count(), 5);
    for (command, served) in [("disable", false), ("enable", true)] {
        gateway.run_command(&["account", command, "only"]).ok_stdout();
        eventually("the gateway reads the state of the account", || {
            let is_served = agent_call(&gateway, body).send(gateway.address()).status == 200;
            (is_served == served).then_some(())
        });
    }
    let last = upstream.received_attempts().pop().expect("an attempt").body;
    assert!(String::from_utf8_lossy(&last).contains(TOOL), "an operator who enables the account ends the wait");
}

#[test]
fn a_refusal_for_another_reason_or_a_second_one_is_returned() {
    let upstream = FakeUpstream::start();
    for (scripts, attempts, status, param) in [
        (&["status=400 body=parameter", ""][..], 1, 400, json!("quality")),
        (&["status=400 body=policy", ""], 1, 502, Value::Null),
        (&["status=500", ""], 1, 502, Value::Null),
        (&["status=400 body=tool"], 2, 400, json!("tools[0].type")),
    ] {
        let gateway = injecting_gateway(&upstream);
        let before = upstream.attempt_count();
        upstream.script_sequence("sk-upstream-only", scripts);
        let answer = agent_call(&gateway, r#"{"model":"gpt-5.5","input":"x"}"#).send(gateway.address());
        assert_eq!(answer.error_object(status)["param"], param, "{scripts:?}");
        assert_eq!(upstream.attempt_count() - before, attempts, "{scripts:?}");
    }
}

#[test]
fn a_request_with_a_tool_or_from_no_agent_gets_no_tool() {
    let upstream = FakeUpstream::start();
    let gateway = injecting_gateway(&upstream);
    let body_with = |fields: &str| format!(r#"{{"model":"gpt-5.5","input":"x"{fields}}}"#);
    let plain = |body: String| call(&gateway).header("content-type", "application/json").bytes(body);
    for call in [
        agent_call(
            &gateway,
            body_with(r#","tools":[{"type":"function","name":"f"},{"type":"image_generation","size":"auto"}]"#),
        ),
        agent_call(
            &gateway,
            body_with(r#","tools":[{"type":"namespace","name":"image_gen","tools":[{"type":"function"}]}]"#),
        ),
        agent_call(&gateway, body_with(r#","tools":[{"type":"function","name":"image_gen.imagegen"}]"#)),
        agent_call(&gateway, body_with(r#","tools":[{"type":"function","name":"mcp__imagate__generate_image"}]"#)),
        agent_call(&gateway, body_with(r#","tool_choice":"none""#)),
        agent_call(&gateway, body_with(r#","tool_choice":{"type":"function","name":"f"}"#)),
        agent_call(&gateway, body_with(r#","text":{"format":{"type":"json_schema","name":"n","schema":{}}}"#)),
        agent_call(
            &gateway,
            r#"{"model":"gpt-5.5","input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"image_gen"}]}]}"#,
        ),
        agent_call(
            &gateway,
            r#"{"model":"gpt-5.5","input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]}"#,
        ),
        plain(body_with("")),
        plain(body_with("")).header("originator", "opencode").header("user-agent", "OpenAI/Python 2.0 codex"),
    ] {
        let (upstream_body, record) = body_and_record(&gateway, &upstream, call);
        assert!(!upstream_body.contains(TOOL), "{upstream_body}");
        assert_eq!(record["injected_tool"], json!(false), "{record}");
    }
    let browser_tool = agent_call(&gateway, body_with(r#","tools":[{"type":"namespace","name":"browser"}]"#));
    assert!(
        body_and_record(&gateway, &upstream, browser_tool).0.contains(TOOL),
        "only the namespace `image_gen` makes images"
    );
}

#[test]
fn no_tool_is_injected_unless_the_group_setting_is_on() {
    let upstream = FakeUpstream::start();
    for setting in ["", "inject_image_tool = false"] {
        let gateway = gateway_with_group(&upstream, setting);
        let body = r#"{"model":"gpt-5.5","input":"x"}"#;
        assert_eq!(agent_call(&gateway, body).send(gateway.address()).status, 200);
        assert_eq!(upstream.received_attempts().pop().expect("an attempt").body, body.as_bytes());
        assert_eq!(gateway.final_records(1)[0]["injected_tool"], json!(false));
    }
}

#[test]
fn the_content_filter_applies_to_the_requests_of_agents() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with_group(&upstream, "inject_image_tool = true\n[groups.filter]\nwords = [\"zeppelin\"]");
    let body = json!({"model": "gpt-5.5", "input": [{"role": "user", "content": format!("{} a zeppelin", "so ".repeat(200_000))}]});
    for call in [call(&gateway).json(&body), agent_call(&gateway, body.to_string())] {
        assert_eq!(call.send(gateway.address()).error_object(502)["reason"], "content_refused");
    }
    assert_eq!(upstream.attempt_count(), 0);
}
