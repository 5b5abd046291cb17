//! Rejections: of what the caller wrote, of what only the gateway wrote, of the model, and of the account; refusals of the
//! content; and answers that state nothing.

use serde_json::{Value, json};

use super::{Asked, Row};

fn rejected(param: Option<&str>, message: &str) -> Value {
    json!({"error": {"message": message, "type": "invalid_request_error", "param": param, "code": null}})
}

/// Parameters of an image job at an account with the image endpoints, and at one with the Responses API.
const PARAMS: &[(Asked, &str, &str)] = &[
    (Asked::Image, "size", "rejected size"),
    (Asked::Image, "quality", "rejected quality"),
    (Asked::Image, "model", "not_offered"),
    (Asked::Tool, "tools[0].size", "rejected size"),
    (Asked::Tool, "tools[0].quality", "rejected quality"),
    (Asked::Tool, "tools[0].type", "not_offered"),
    (Asked::Tool, "tools[0].model", "not_offered"),
    (Asked::Tool, "tools[0].action", "not_offered"),
    (Asked::Tool, "tools", "not_offered"),
    (Asked::Tool, "tool_choice", "not_offered"),
    (Asked::Tool, "stream", "not_offered"),
    (Asked::Tool, "store", "not_offered"),
    (Asked::Tool, "instructions", "not_offered"),
    (Asked::Tool, "parallel_tool_calls", "not_offered"),
    (Asked::Tool, "model", "not_offered"),
    (Asked::Response, "tools[0].type", "rejected tools[0].type"),
    (Asked::Response, "input[0].content", "rejected input[0].content"),
];
/// Sentences without a parameter.
const SENTENCES: &[(Asked, u16, &str, &str)] = &[
    (Asked::Tool, 400, "Tool choice 'image_generation' not found in 'tools' parameter.", "not_offered"),
    (Asked::Tool, 400, "Unsupported parameter: 'store'", "not_offered"),
    (Asked::Image, 403, "Image generation is not enabled for your plan.", "not_offered"),
    (Asked::Image, 400, "当前分组未开通图像生成", "not_offered"),
    (Asked::Image, 400, "The model `gpt-image-2` does not exist or you do not have access to it.", "not_offered"),
    (Asked::Image, 503, "当前分组 default 下对于模型 gpt-image-2 无可用渠道", "not_offered"),
    (Asked::Response, 400, "The model `gpt-9` does not exist or you do not have access to it.", "unknown_model"),
    (Asked::Image, 400, "The image is too complex.", "rejected"),
    (Asked::Image, 400, "提示词包含违规内容,请修改后重试", "refused"),
    (Asked::Image, 400, "提示詞包含違規內容，請修改後重試", "refused"),
    (Asked::Image, 403, "您的请求违反了使用政策", "refused"),
    (Asked::Tool, 422, "內容審核未通過", "refused"),
    (Asked::Tool, 500, "Your request was rejected by the safety system.", "refused"),
    (Asked::Image, 503, "触发内容安全策略", "refused"),
    (Asked::Image, 418, "Nope, not that", "ambiguous network"),
    (Asked::Image, 500, "NOPE NOT THAT", "refused"),
    (Asked::Image, 409, "The job is running", "ambiguous network"),
    (Asked::Image, 404, "no such thing", "not_offered"),
    (Asked::Image, 402, "pay first", "unpaid"),
    (Asked::Image, 401, "who are you", "credentials"),
];

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for (asked, param, expected) in PARAMS {
        for status in [400, 422] {
            rows.push(Row::json(*asked, status, &rejected(Some(param), "Invalid value."), expected));
        }
        if *asked == Asked::Tool {
            let event = json!({"type": "error", "error": {"type": "invalid_request_error", "message": "Invalid value.", "param": param}});
            rows.push(Row::event(Asked::Tool, &event, expected));
        }
    }
    for (asked, status, message, expected) in SENTENCES {
        rows.push(Row::json(*asked, *status, &rejected(None, message), expected));
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
        rows.push(Row::json(Asked::Image, status, &body, expected));
    }
    rows
}
