//! Responses of a gateway without accounts: the simulator answers.

use serde_json::json;

use super::{call, image_response_body, response_body, size_of};
use crate::kit::{Events, Gateway};

#[test]
fn the_simulator_makes_an_image_only_with_the_image_tool() {
    let gateway = Gateway::simulated();
    let answer = call(&gateway).json(&image_response_body("", false)).send(gateway.address());
    let response = answer.ok_json();
    assert_eq!(answer.header("x-imagate-simulated"), Some("true"));
    assert_eq!(size_of(&response["output"][0]), "1024x640");
    let text_response = call(&gateway).json(&response_body(&json!({}))).send(gateway.address()).ok_json();
    assert_eq!(text_response["output"][0]["type"], "message");
    let records = gateway.final_records(2);
    assert_eq!(records[0]["delivered"], json!([{"size": "1024x640", "output_format": "png", "quality": "low"}]));
    assert_eq!((&records[0]["operation"], &records[1]["delivered"]), (&json!("create_response"), &json!([])));
    assert!(records[0]["usage"]["output_tokens_details"]["image_tokens"].as_u64() > Some(0));
    assert!(records.iter().all(|record| record["host_usage"]["total_tokens"].as_u64() > Some(0)));
    assert!(records[1]["usage"].is_null(), "a response without an image must have no image usage: {}", records[1]);
}

#[test]
fn the_events_of_the_simulator_are_in_the_order_of_the_contract() {
    let gateway = Gateway::simulated();
    let reply = call(&gateway).json(&image_response_body("", true)).open(gateway.address()).expect("an answer");
    let events = Events::from_reply(reply).remaining();
    let names: Vec<&str> = events.iter().map(|event| event.name.trim_start_matches("response.")).collect();
    let expected = "created in_progress output_item.added image_generation_call.in_progress \
                    image_generation_call.generating image_generation_call.partial_image image_generation_call.completed \
                    output_item.done output_item.added content_part.added output_text.delta output_text.done \
                    content_part.done output_item.done completed";
    assert_eq!(names.join(" "), expected);
    for (index, event) in events.iter().enumerate() {
        assert_eq!(event.data["sequence_number"], index);
    }
    let done = &events[7].data["item"];
    assert_eq!(done["result"], events[14].data["response"]["output"][0]["result"]);
    assert_eq!(gateway.final_records(1)[0]["delivered"].as_array().map(Vec::len), Some(1));
}
