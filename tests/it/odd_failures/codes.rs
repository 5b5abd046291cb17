//! The failure codes of the contract, in each of the places where an upstream states them.

use serde_json::{Value, json};

use super::{OddFailure, RequestKind};

const SNAPSHOT: &str = include_str!("../../../openapi/contract/snapshot.json");

/// Returns the verdict on a code of the contract.
fn expected(code: &str, is_image: bool) -> &'static str {
    match code {
        "server_error" | "vector_store_timeout" => "failed",
        "rate_limit_exceeded" => "throttled",
        "data_residency_mismatch" => "forbidden",
        "invalid_prompt" => "refused",
        policy if policy.contains("policy") => "refused",
        _ if is_image => "rejected image",
        _ => "rejected input",
    }
}

pub(super) fn rows() -> Vec<OddFailure> {
    let snapshot: Value = serde_json::from_str(SNAPSHOT).expect("the snapshot is JSON");
    let codes = snapshot["responses"]["error_codes"].as_array().expect("the snapshot lists the codes");
    let mut rows = Vec::new();
    for code in codes.iter().filter_map(Value::as_str) {
        let image = expected(code, true);
        let error = json!({"code": code, "message": "m"});
        let response = json!({"id": "resp_1", "status": "failed", "error": error, "output": []});
        let failed = json!({"type": "response.failed", "response": response});
        rows.push(OddFailure::event(RequestKind::Tool, &failed, image));
        rows.push(OddFailure::event(RequestKind::ToolStream, &failed, image));
        rows.push(OddFailure::json(RequestKind::Image, 200, &json!({ "error": error }), image));
        let flat = json!({"type": "error", "code": code, "message": "m", "param": null});
        rows.push(OddFailure::event(RequestKind::ImageStream, &flat, image));
        // Of an error with a status, the codes that say more than the status.
        if image != "failed" {
            let stated =
                json!({"error": {"code": code, "message": "m", "type": "invalid_request_error", "param": null}});
            rows.push(OddFailure::json(RequestKind::Image, 400, &stated, image));
            rows.push(OddFailure::json(RequestKind::Response, 400, &stated, expected(code, false)));
        }
    }
    rows
}
