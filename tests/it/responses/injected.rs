//! The image tool that coding agents get where the operator of their group wants it.

use serde_json::{Value, json};

use super::call;
use crate::kit::{Account, Call, FakeUpstream, Gateway};

const TOOL: &str = r#"{"type":"image_generation","output_format":"png"}"#;

fn group(upstream: &FakeUpstream, setting: &str) -> Gateway {
    let top = format!("[[groups]]\nname = \"default\"\n{setting}\n");
    Gateway::with(&top, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

fn injecting(upstream: &FakeUpstream) -> Gateway {
    group(upstream, "inject_image_tool = true")
}

fn agent(gateway: &Gateway, body: impl Into<Vec<u8>>) -> Call {
    let sent = call(gateway).header("content-type", "application/json").header("originator", "codex_exec");
    sent.header("user-agent", "codex_exec/0.125.0 (Debian 12.0.0; x86_64)").bytes(body)
}

/// What came upstream of this, and what the record says of it.
#[track_caller]
fn arrives(gateway: &Gateway, upstream: &FakeUpstream, sent: Call) -> (String, Value) {
    let answer = sent.send(gateway.address());
    assert_eq!(answer.status, 200, "{:.300}", answer.text());
    let record = gateway.final_records(upstream.attempts()).pop().expect("a record");
    let body = upstream.ledger().pop().expect("an attempt").body;
    (String::from_utf8(body).expect("text"), record)
}

#[test]
fn an_agent_without_an_image_tool_gets_one_and_everything_else_stays_to_the_byte() {
    let upstream = FakeUpstream::start();
    let gateway = injecting(&upstream);
    let long = "A".repeat(3_000_000);
    for (body, place) in [
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
        let (arrived, record) = arrives(&gateway, &upstream, agent(&gateway, body.clone()));
        assert!(arrived.contains(&place), "{arrived:.300}");
        assert!(serde_json::from_str::<Value>(&arrived).is_ok(), "{arrived:.300}");
        let inserted = arrived.len() - body.len();
        let at = arrived.bytes().zip(body.bytes()).take_while(|(one, other)| one == other).count();
        assert_eq!(body[at..].len(), arrived[at + inserted..].len());
        if !body.contains("null") {
            assert_eq!(body[at..], arrived[at + inserted..], "only one thing was put in");
        }
        assert_eq!((&record["injected_tool"], &record["output_format"]), (&json!(true), &json!("png")), "{record}");
        assert_eq!(record["delivered"].as_array().map(Vec::len), Some(1), "the image is recorded: {record}");
    }
}

#[test]
fn what_is_refused_with_our_tool_is_asked_for_once_more_as_it_came() {
    let upstream = FakeUpstream::start();
    for script in ["status=400 body=tool", "status=422 body=tool", "status=400 body=error"] {
        for stream in [false, true] {
            let gateway = injecting(&upstream);
            let before = upstream.attempts();
            upstream.in_turn("sk-upstream-only", &[script, ""]);
            let body = format!(r#"{{"model":"gpt-5.5","input":"x","tools":[ ],"stream":{stream}}}"#);
            let answer = agent(&gateway, body.clone()).send(gateway.address());
            assert_eq!(answer.status, 200, "{script}: {:.300}", answer.text());
            let sent: Vec<String> = upstream.ledger()[before..]
                .iter()
                .map(|attempt| String::from_utf8_lossy(&attempt.body).into())
                .collect();
            assert_eq!(sent.len(), 2, "{script}");
            assert!(sent[0].contains(TOOL) && sent[1] == body, "{script}: {sent:?}");
            let record = gateway.final_records(1).pop().expect("a record");
            assert_eq!((&record["state"], record["attempts"][1]["class"].as_str()), (&json!("succeeded"), None));
        }
    }
}

#[test]
fn what_is_refused_for_another_reason_or_again_is_told() {
    let upstream = FakeUpstream::start();
    for (scripts, attempts, status, param) in [
        (&["status=400 body=parameter", ""][..], 1, 400, json!("quality")),
        (&["status=400 body=policy", ""], 1, 502, Value::Null),
        (&["status=500", ""], 1, 502, Value::Null),
        (&["status=400 body=tool"], 2, 400, json!("tools[0].type")),
    ] {
        let gateway = injecting(&upstream);
        let before = upstream.attempts();
        upstream.in_turn("sk-upstream-only", scripts);
        let answer = agent(&gateway, r#"{"model":"gpt-5.5","input":"x"}"#).send(gateway.address());
        assert_eq!(answer.error_object(status)["param"], param, "{scripts:?}");
        assert_eq!(upstream.attempts() - before, attempts, "{scripts:?}");
    }
}

#[test]
fn whoever_has_a_tool_or_forbids_them_or_is_no_agent_gets_none() {
    let upstream = FakeUpstream::start();
    let gateway = injecting(&upstream);
    let with = |more: &str| format!(r#"{{"model":"gpt-5.5","input":"x"{more}}}"#);
    let plain = |body: String| call(&gateway).header("content-type", "application/json").bytes(body);
    for sent in [
        agent(&gateway, with(r#","tools":[{"type":"function","name":"f"},{"type":"image_generation","size":"auto"}]"#)),
        agent(&gateway, with(r#","tools":[{"type":"namespace","name":"image_gen","tools":[{"type":"function"}]}]"#)),
        agent(&gateway, with(r#","tool_choice":"none""#)),
        plain(with("")),
        plain(with("")).header("originator", "opencode").header("user-agent", "OpenAI/Python 2.0 codex"),
    ] {
        let (arrived, record) = arrives(&gateway, &upstream, sent);
        assert!(!arrived.contains(TOOL), "{arrived}");
        assert_eq!(record["injected_tool"], json!(false), "{record}");
    }
    let named = agent(&gateway, with(r#","tools":[{"type":"namespace","name":"browser"}]"#));
    assert!(arrives(&gateway, &upstream, named).0.contains(TOOL), "only one namespace makes images");
}

#[test]
fn nobody_gets_a_tool_unless_the_operator_says_so() {
    let upstream = FakeUpstream::start();
    for setting in ["", "inject_image_tool = false"] {
        let gateway = group(&upstream, setting);
        let body = r#"{"model":"gpt-5.5","input":"x"}"#;
        assert_eq!(agent(&gateway, body).send(gateway.address()).status, 200);
        assert_eq!(upstream.ledger().pop().expect("an attempt").body, body.as_bytes());
        assert_eq!(gateway.final_records(1)[0]["injected_tool"], json!(false));
    }
}

#[test]
fn a_tool_of_ours_does_not_pass_the_operators_filter() {
    let upstream = FakeUpstream::start();
    let gateway = group(&upstream, "inject_image_tool = true\n[groups.filter]\nwords = [\"zeppelin\"]");
    let body = json!({"model": "gpt-5.5", "input": [{"role": "user", "content": format!("{} a zeppelin", "so ".repeat(200_000))}]});
    let plain = call(&gateway).json(&body).send(gateway.address());
    assert_eq!(plain.status, 200, "talk is not what the filter is for");
    let answer = agent(&gateway, body.to_string()).send(gateway.address());
    assert_eq!(answer.error_object(502)["reason"], "content_refused");
    assert_eq!(upstream.attempts(), 1);
}
