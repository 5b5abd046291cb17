//! Texts of a model in place of an image: a chat answer, an output text or a refusal of a response, plain and in events.

use serde_json::{Value, json};

use super::{OddFailure, RequestKind};

const TEXTS: &[(&str, &str)] = &[
    ("I’m sorry, but I can’t help with that request.", "refused"),
    ("I cannot create that image: it violates our content policy.", "refused"),
    ("I can't generate images of real people in such scenes.", "refused"),
    ("抱歉，我无法生成这张图片。", "refused"),
    ("Nope not that, my friend.", "refused"),
    ("I can't generate images.", "not_offered"),
    ("I'm sorry, I can't create images directly, but I can describe one.", "not_offered"),
    ("The image generation tool is not available.", "not_offered"),
    ("I have no tool for pictures here; shall I write a prompt instead?", "not_offered"),
    ("I don't have the ability to make pictures.", "not_offered"),
    ("抱歉，我無法直接生成圖片，但可以為您描述。", "not_offered"),
    ("The picture service is busy just now, ask again in a minute.", "busy"),
    ("You've hit your image generation limit.", "busy"),
    ("图片服务繁忙，请稍后再试。", "busy"),
    ("Come back tomorrow!", "busy"),
    ("Which style would you like?", "text"),
    ("您想要什么风格？", "text"),
    ("Here it is: https://files.example/a.png", "ambiguous image_by_address"),
];

fn response(text: &str) -> Value {
    let message = json!({"type": "message", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": text}]});
    json!({"id": "resp_1", "status": "completed", "error": null, "output": [message]})
}

pub(super) fn rows() -> Vec<OddFailure> {
    let mut rows = Vec::new();
    for (text, expected) in TEXTS {
        let chat = json!({"id": "c1", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": text}}]});
        let completed = json!({"type": "response.completed", "response": response(text)});
        rows.push(OddFailure::json(RequestKind::Image, 200, &chat, expected));
        rows.push(OddFailure::event(RequestKind::Tool, &completed, expected));
        rows.push(OddFailure::event(RequestKind::ToolStream, &completed, expected));
        rows.push(OddFailure::json(RequestKind::Tool, 200, &response(text), expected));
    }
    let refusal = json!({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]});
    let refused = json!({"id": "resp_1", "status": "completed", "output": [refusal]});
    rows.push(OddFailure::json(RequestKind::Tool, 200, &refused, "refused"));
    rows.push(OddFailure::event(
        RequestKind::ToolStream,
        &json!({"type": "response.completed", "response": refused}),
        "refused",
    ));
    let pending = json!({"type": "response.incomplete", "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}});
    rows.push(OddFailure::event(RequestKind::Tool, &pending, "refused"));
    rows
}
