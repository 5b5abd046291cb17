//! Rejections: of what the caller wrote, of what only the gateway wrote, of the model, and of the account; refusals of the
//! content; and answers that state nothing.

use serde_json::{Value, json};

use super::{OddFailure, RequestKind};

fn rejected(param: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": null}})
}

/// Parameters of an image job at an account with the image endpoints, and at one with the Responses API.
const PARAMS: &[(RequestKind, &str, &str)] = &[
    (RequestKind::Image, "size", "rejected size"),
    (RequestKind::Image, "quality", "rejected quality"),
    (RequestKind::Image, "model", "not_offered"),
    (RequestKind::Tool, "tools[0].size", "rejected size"),
    (RequestKind::Tool, "tools[0].quality", "rejected quality"),
    (RequestKind::Tool, "tools[0].type", "not_offered"),
    (RequestKind::Tool, "tools[0].model", "not_offered"),
    (RequestKind::Tool, "tools[0].action", "not_offered"),
    (RequestKind::Tool, "tools", "not_offered"),
    (RequestKind::Tool, "tool_choice", "not_offered"),
    (RequestKind::Tool, "stream", "not_offered"),
    (RequestKind::Tool, "store", "not_offered"),
    (RequestKind::Tool, "instructions", "not_offered"),
    (RequestKind::Tool, "parallel_tool_calls", "not_offered"),
    (RequestKind::Tool, "model", "not_offered"),
    (RequestKind::Response, "tools[0].type", "rejected tools[0].type"),
    (RequestKind::Response, "input[0].content", "rejected input[0].content"),
];
/// Sentences without a parameter.
const SENTENCES: &[(RequestKind, u16, &str, &str)] = &[
    (RequestKind::Tool, 400, "Tool choice 'image_generation' not found in 'tools' parameter.", "not_offered"),
    (RequestKind::Tool, 400, "Unsupported parameter: 'store'", "not_offered"),
    (RequestKind::Image, 403, "Image generation is not enabled for your plan.", "not_offered"),
    (RequestKind::Image, 400, "当前分组未开通图像生成", "not_offered"),
    (RequestKind::Image, 400, "The model `gpt-image-2` does not exist or you do not have access to it.", "not_offered"),
    (RequestKind::Image, 503, "当前分组 default 下对于模型 gpt-image-2 无可用渠道", "not_offered"),
    (RequestKind::Response, 400, "The model `gpt-9` does not exist or you do not have access to it.", "unknown_model"),
    (RequestKind::Image, 400, "The image is too complex.", "rejected"),
    (RequestKind::Image, 400, "提示词包含违规内容,请修改后重试", "refused"),
    (RequestKind::Image, 400, "提示詞包含違規內容，請修改後重試", "refused"),
    (RequestKind::Image, 403, "您的请求违反了使用政策", "refused"),
    (RequestKind::Tool, 422, "內容審核未通過", "refused"),
    (RequestKind::Tool, 500, "Your request was rejected by the safety system.", "refused"),
    (RequestKind::Image, 503, "触发内容安全策略", "refused"),
    (RequestKind::Image, 418, "Nope, not that", "ambiguous network"),
    (RequestKind::Image, 500, "NOPE NOT THAT", "refused"),
    (RequestKind::Image, 409, "The job is running", "ambiguous network"),
    (RequestKind::Image, 404, "no such thing", "not_offered"),
    (RequestKind::Image, 402, "pay first", "unpaid"),
    (RequestKind::Image, 401, "who are you", "credentials"),
];

pub(super) fn rows() -> Vec<OddFailure> {
    let mut rows = Vec::new();
    for (asked, param, expected) in PARAMS {
        for status in [400, 422] {
            rows.push(OddFailure::json(*asked, status, &rejected(Some(param), "Invalid value."), expected));
        }
        if *asked == RequestKind::Tool {
            let event = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Invalid value.", "param": param}});
            rows.push(OddFailure::event(RequestKind::Tool, &event, expected));
        }
    }
    for (asked, status, message, expected) in SENTENCES {
        rows.push(OddFailure::json(*asked, *status, &rejected(None, message), expected));
    }
    for (status, body, expected) in [
        (500, json!({"error": {"message": "the worker died", "type": "server_error"}}), "failed"),
        (500, json!({"error": {"message": "Cannot draw 'a sign that says usage limit'"}}), "failed"),
        (500, json!({"error": {"message": "usage limit"}, "usage": {"total_tokens": 9}}), "ambiguous network"),
        (502, json!({"error": {"message": "bad gateway"}}), "ambiguous network"),
        (504, json!({"error": {"message": "late"}}), "ambiguous timeout"),
        (200, json!({}), "ambiguous no_image_data"),
        (200, json!({"created": 1, "data": []}), "ambiguous no_image_data"),
        (200, json!({"task_id": "t1", "status": "queued"}), "ambiguous async_upstream"),
        (400, json!({"error": {"message": "too many pixels"}}), "declined"),
        (429, json!({"error": {"message": "m", "code": "moderation_blocked"}}), "refused"),
    ] {
        rows.push(OddFailure::json(RequestKind::Image, status, &body, expected));
    }
    rows
}
