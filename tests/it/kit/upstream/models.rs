//! The model list of a fake upstream, with members that no caller of the gateway may see.

use serde_json::{Value, json};

use super::answer::{self, UpstreamAnswer};
use super::script::Script;

/// The models that an upstream lists without a script.
const LISTED: &str = "gpt-5.5,gpt-image-2,text-embedding-3-small";
/// The length of a description that makes the list too long to be accepted.
const HUGE: usize = 3 << 20;

pub(super) fn build_model_list(script: &Script, at: usize) -> UpstreamAnswer {
    if script.has("status") || script.has("body") {
        return answer::build_answer(script, &Value::Null, false, at);
    }
    let ids = script.get("models").unwrap_or(LISTED);
    let model = |id: &str| {
        json!({"id": id, "object": "model", "created": 1_760_000_000, "owned_by": "org-canary",
            "base_url": "http://canary.internal/v1", "description": "x".repeat(if ids == "huge" { HUGE } else { 1 })})
    };
    let data: Vec<Value> = ids.split(',').map(model).collect();
    let body = json!({"object": "list", "data": data}).to_string();
    UpstreamAnswer { before: body.into_bytes(), content_type: "application/json", ..UpstreamAnswer::default() }
}
