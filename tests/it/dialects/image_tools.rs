//! The image tools of requests for responses are adapted like requests for images.

use serde_json::{Value, json};

use super::{HEADER, REFUSAL};
use crate::edits::data_url;
use crate::kit::{Account, Answer, Call, FakeUpstream, Gateway, alpha_png};

const DECLARED: &str =
    "[[groups]]\nname = \"default\"\ndialects = [\"sizes\", \"legacy-fields\", \"models\", \"url\"]\n";

fn gateway_with(top: &str, upstream: &FakeUpstream) -> Gateway {
    Gateway::with(top, &[Account::for_upstream("only", upstream).with_responses_protocol()])
}

fn send(gateway: &Gateway, body: &str) -> Answer {
    let call = Call::post("/v1/responses").without_document_check().header("content-type", "application/json");
    call.bytes(body).key(gateway.secret()).send(gateway.address())
}

/// A request for a response with these tools.
fn body_with(tools: &Value) -> String {
    json!({"model": "gpt-5.5", "input": "a red cube", "tools": tools}).to_string()
}

#[test]
fn image_tools_are_adapted_and_everything_else_is_sent_byte_for_byte() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let mask = data_url(&alpha_png(64, 64));
    let old = format!(
        r#"{{"type":"image_generation","size":"16:9" ,"quality":"hd","style":"natural","input_fidelity":"high","input_image_mask":{{"image_url":"{mask}"}},"model":"dall-e-3","partial_images":1.0}}"#
    );
    let function = r#"{"type":"function" , "name":"f","parameters":{"quality":"hd"}}"#;
    let current = r#"{ "type":"image_generation","size" : "1024x1024","quality":"high"}"#;
    let with = |tools: [&str; 4]| {
        let tools = tools.join(" , ");
        format!(r#"{{"model":"gpt-5.5" , "input":"a red cube","tools":[{tools}],"max_output_tokens":1e3}}"#)
    };
    let second = r#"{"type":"image_generation","quality":"standard"}"#;
    let answer = send(&gateway, &with([&old, function, current, second]));
    let changes = "tools[0].model dall-e-3->gpt-image-2, tools[0].size 16:9->1360x768, tools[0].quality hd->high, \
                   tools[0].style dropped, tools[0].input_fidelity dropped, tools[3].quality standard->medium";
    assert_eq!((answer.status, answer.header(HEADER)), (200, Some(changes)), "{}", answer.text());
    assert_eq!(gateway.final_records(1)[0]["adapted"], changes);
    let sent = upstream.received_attempts().pop().expect("an attempt");
    let new = json!({"type": "image_generation", "size": "1360x768", "quality": "high", "model": "gpt-image-2",
        "input_image_mask": {"image_url": mask}, "partial_images": 1});
    let mut tools = sent.json()["tools"].clone();
    assert_eq!((tools[0].take(), &tools[3]["quality"]), (new, &json!("medium")));
    let sent = String::from_utf8(sent.body).expect("text");
    let (untouched, end) = (format!(" , {function} , {current} , "), r#"],"max_output_tokens":1e3}"#);
    assert!(sent.contains(&untouched) && sent.ends_with(end), "{sent}");
    assert_eq!(sent.matches("style").count(), 0, "{sent}");
    // A request of the API is not changed.
    let valid = with([current, function, current, r#"{"type" : "image_generation"}"#]);
    let answer = send(&gateway, &valid);
    assert_eq!((answer.status, answer.header(HEADER)), (200, None), "{}", answer.text());
    assert_eq!(upstream.received_attempts().pop().expect("an attempt").body, valid.into_bytes());
}

#[test]
fn a_tool_that_needs_an_undeclared_dialect_is_refused_and_the_refusal_names_it() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with("", &upstream);
    for (field, value, dialect) in [
        ("size", "512x512", Some("sizes")),
        ("quality", "hd", Some("legacy-fields")),
        ("style", "vivid", Some("legacy-fields")),
        ("input_fidelity", "high", Some("legacy-fields")),
        ("model", "gpt-image-1", Some("models")),
        ("size", "huge", None),
        ("response_format", "url", None),
    ] {
        let answer = send(&gateway, &body_with(&json!([{"type": "image_generation", field: value}])));
        let refused = answer.error_object(400);
        assert_eq!(
            (&refused["param"], answer.header(HEADER)),
            (&json!(format!("tools[0].{field}")), None),
            "{refused}"
        );
        let message = refused["message"].as_str().expect("a message");
        let advice = dialect.map(|word| format!("The dialect '{word}' accepts this request;"));
        assert!(advice.as_ref().is_none_or(|advice| message.contains(advice)), "{message}");
        assert_eq!(message.contains("dialect"), advice.is_some(), "{message}");
    }
    // Two dialects, of which no one is enough, and one for a parameter of a request with another fault.
    let tool = json!([{"type": "image_generation", "size": "512x512", "quality": "hd"}]);
    let refused = send(&gateway, &body_with(&tool)).error_object(400);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("The dialects 'sizes' and 'legacy-fields' accept this request;"), "{message}");
    let tool =
        json!([{"type": "image_generation", "quality": "hd"}, {"type": "image_generation", "background": "red"}]);
    let refused = send(&gateway, &body_with(&tool)).error_object(400);
    let message = refused["message"].as_str().expect("a message");
    assert!(message.contains("The dialect 'legacy-fields' accepts this parameter;"), "{message}");
    assert_eq!(upstream.attempt_count(), 0);
}

#[test]
fn a_failed_response_states_how_its_tools_were_adapted() {
    let upstream = FakeUpstream::start();
    let gateway = gateway_with(DECLARED, &upstream);
    let changes = Some("tools[0].quality hd->high");
    let tool = |with: Value| {
        let mut tool = json!({"type": "image_generation", "quality": "hd"});
        with.as_object().expect("fields").iter().for_each(|(name, value)| tool[name] = value.clone());
        body_with(&json!([tool]))
    };
    let refused = send(&gateway, &tool(json!({"background": "red"})));
    assert_eq!((&refused.error_object(400)["param"], refused.header(HEADER)), (&json!("tools[0].background"), changes));
    upstream.script_next(REFUSAL);
    let failed = send(&gateway, &tool(json!({})));
    assert_eq!((failed.status, failed.header(HEADER)), (502, changes), "{}", failed.text());
    assert_eq!(gateway.final_records(1)[0]["adapted"].as_str(), changes);
    // Each changed tool splits the body, so their number is limited.
    let tools = |count: usize| body_with(&vec![json!({"type": "image_generation", "quality": "hd"}); count].into());
    assert_eq!(send(&gateway, &tools(16)).status, 200);
    assert_eq!(send(&gateway, &tools(17)).error_object(400)["param"], "tools[16]");
}
