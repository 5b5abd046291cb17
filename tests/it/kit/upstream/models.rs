//! The list of models of a fake upstream, which lists what it has and says more of it than anybody should hear.

use serde_json::{Value, json};

use super::answer::{self, UpstreamAnswer};
use super::script::Script;

/// What an upstream lists that was told nothing.
const LISTED: &str = "gpt-5.5,gpt-image-2,text-embedding-3-small";
/// More than anybody reads.
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
