//! The answers of the upstream: the JSON of images, errors and usage, in every shape a script can ask for.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::super::image_file;
use super::compression;
use super::events::{self, Step};
use super::script::Script;

/// Marks the place of the huge image in the text of a body.
pub(super) const FILLER: &str = "@@filler@@";

/// A body before it is framed.
#[derive(Default)]
pub(super) struct UpstreamAnswer {
    pub(super) before: Vec<u8>,
    /// Characters of filler between `before` and `after`.
    pub(super) filler: usize,
    pub(super) after: Vec<u8>,
    /// The steps of a stream, which then takes the place of the body.
    pub(super) events: Option<Vec<Step>>,
    /// How many of the first steps of a stream are the whole of which `cut` takes its share; `None` if `cut` does not
    /// shorten the stream.
    pub(super) weighed: Option<usize>,
    pub(super) content_type: &'static str,
    pub(super) usage: Option<Value>,
    pub(super) images: Vec<String>,
}

pub(super) fn build_answer(script: &Script, request: &Value, edit: bool, at: usize) -> UpstreamAnswer {
    let failed = script.number("status").is_some_and(|status| status != 200);
    let streams = script.has("sse") || request["stream"] == true && !script.has("plain");
    let made = if streams && !failed && !script.has("body") {
        events::build_stream(script, request, edit, at)
    } else {
        plain(script, request, edit, at, failed)
    };
    match script.get("coding") {
        Some(word) => compression::compress(word, made),
        None => made,
    }
}

fn plain(script: &Script, request: &Value, edit: bool, at: usize, failed: bool) -> UpstreamAnswer {
    match script.word("body") {
        "" if failed => text(error(script, "error"), "application/json"),
        "" => images(script, request, edit, at),
        "html" => text(html(2_000), "text/html; charset=utf-8"),
        "page" => text(html(200_000), "text/html; charset=utf-8"),
        "text" => text("upstream connect error or disconnect/reset before headers".to_owned(), "text/plain"),
        "none" => text(String::new(), "application/json"),
        word => text(error(script, word), "application/json"),
    }
}

fn text(body: String, content_type: &'static str) -> UpstreamAnswer {
    UpstreamAnswer { before: body.into_bytes(), content_type, ..UpstreamAnswer::default() }
}

/// A page of this many paragraphs, like the challenge of a proxy in front of an upstream.
fn html(lines: usize) -> String {
    format!(
        "<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>{}</body></html>",
        "<p>wait</p>".repeat(lines)
    )
}

/// The body of an error. Many of its messages carry `provider-canary`, which must never reach a caller.
fn error(script: &Script, word: &str) -> String {
    json!({ "error": error_detail(script, word) }).to_string()
}

pub(super) fn error_detail(script: &Script, word: &str) -> Value {
    let mut detail = detail_of(script, word);
    if let Some(message) = script.get("say") {
        detail["message"] = json!(message.replace('_', " "));
    }
    detail
}

fn detail_of(script: &Script, word: &str) -> Value {
    match word {
        "error" => {
            json!({"message": "provider-canary: internal trouble", "type": "server_error", "param": null, "code": null})
        }
        "usage-limit" => usage_limit(script),
        "policy" => {
            json!({"message": "provider-canary: rejected by the safety system", "type": "image_generation_user_error",
                           "param": null, "code": "moderation_blocked"})
        }
        "policy-old" => json!({"message": "provider-canary: content policy", "type": "invalid_request_error",
                               "param": null, "code": "content_policy_violation"}),
        "parameter" => json!({"message": "Invalid value: 'low'.", "type": "image_generation_user_error",
                              "param": "quality", "code": "invalid_value"}),
        "request" => json!({"message": "The image is too complex.", "type": "invalid_request_error",
                            "param": null, "code": null}),
        "unpaid" => json!({"message": "You exceeded your current quota.", "type": "insufficient_quota",
                           "param": null, "code": "insufficient_quota"}),
        "tool" => json!({"message": "Invalid value: 'image_generation'.", "type": "invalid_request_error",
                         "param": "tools[0].type", "code": "invalid_value"}),
        "unknown-model" => {
            json!({"message": "The model `gpt-5.5-typo` does not exist or you do not have access to it.",
                                  "type": "invalid_request_error", "param": null, "code": "model_not_found"})
        }
        "unknown-store" => json!({"message": "Vector store with id [vs_1] not found.",
                                  "type": "invalid_request_error", "param": null, "code": null}),
        "too-large" => {
            json!({"message": "Request too large for gpt-5.5 in organization org-1 on tokens per min (TPM): \
                                          Limit 30000, Requested 50000. The input or output tokens must be reduced.",
                              "type": "tokens", "param": null, "code": "rate_limit_exceeded"})
        }
        "revoked" => json!({"message": "provider-canary: the account is gone", "type": "invalid_request_error",
                            "param": null, "code": "account_deactivated"}),
        "organization" => json!({"message": "provider-canary: no such organization", "type": "invalid_request_error",
                                 "param": "organization", "code": null}),
        other => panic!("no such body in a script: {other}"),
    }
}

fn usage_limit(script: &Script) -> Value {
    let mut detail = json!({"message": "provider-canary: limit", "type": "usage_limit_reached", "plan_type": "plus"});
    for (word, field) in [("resets-in", "resets_in_seconds"), ("resets-at", "resets_at")] {
        if let Some(seconds) = script.number(word) {
            detail[field] = seconds.into();
        }
    }
    if let Some(raw) = script.get("resets-raw") {
        detail["resets_in_seconds"] = serde_json::from_str(raw).expect("JSON");
    }
    detail
}

fn images(script: &Script, request: &Value, edit: bool, at: usize) -> UpstreamAnswer {
    let count = script.number("images").unwrap_or(asked(&request["n"]) + script.number("extra").unwrap_or(0));
    let usage = usage(script, request, edit, count);
    let images = image_texts(script, request, count);
    let fields = fields(script, request, at, usage.as_ref(), &images);
    let text = print(script, &fields);
    let filler = usize::try_from(script.number("b64").unwrap_or(0)).expect("a length");
    let (before, after) = text.split_once(FILLER).unwrap_or((&text, ""));
    let before = match script.word("endless") {
        "before" => "{\"created\":1,\"note\":\"",
        "image" if filler == 0 => "{\"created\":1,\"data\":[{\"b64_json\":\"",
        _ => before,
    };
    UpstreamAnswer {
        before: before.as_bytes().to_vec(),
        filler,
        after: after.as_bytes().to_vec(),
        content_type: "application/json",
        events: None,
        weighed: None,
        usage,
        images: images.into_iter().filter(|image| image != FILLER).collect(),
    }
}

/// The number of images that `n` asks for, in any spelling of a whole number.
fn asked(n: &Value) -> u64 {
    (1_u32..=10).find(|count| n.as_f64() == Some(f64::from(*count))).map_or(1, u64::from)
}

fn image_texts(script: &Script, request: &Value, count: u64) -> Vec<String> {
    let mut images = vec![image_text(script, request); usize::try_from(count).expect("a count")];
    if script.has("b64") {
        images[0] = FILLER.to_owned();
    }
    images
}

/// One image as base64.
pub(super) fn image_text(script: &Script, request: &Value) -> String {
    let (width, height) = size(script, request);
    let format = script.get("format").or(request["output_format"].as_str()).unwrap_or("png");
    STANDARD.encode(&*image_file(width, height, format))
}

fn size(script: &Script, request: &Value) -> (u32, u32) {
    let asked = script.get("size").or(request["size"].as_str()).filter(|size| *size != "auto").unwrap_or("1024x1024");
    let (width, height) = asked.split_once('x').expect("a size");
    (width.parse().expect("a width"), height.parse().expect("a height"))
}

/// Token counts that differ from prompt to prompt, so that a record of another request does not pass for this one.
pub(super) fn usage(script: &Script, request: &Value, edit: bool, count: u64) -> Option<Value> {
    let image = if edit { 323 } else { 0 };
    let input = 7 + image + request["prompt"].as_str().unwrap_or_default().chars().count() as u64;
    let output = script.number("tokens").unwrap_or(196 * count);
    let full = |input: Value, output: Value, total: Value| {
        let text = input.as_u64().and_then(|input| input.checked_sub(image)).map_or(input.clone(), Value::from);
        json!({"input_tokens": input, "input_tokens_details": {"image_tokens": image, "text_tokens": text},
               "output_tokens": output, "output_tokens_details": {"image_tokens": output, "text_tokens": 0},
               "total_tokens": total})
    };
    Some(match script.word("usage") {
        "" => full(input.into(), output.into(), (input + output).into()),
        "none" => return None,
        "null" => Value::Null,
        "zero" => full(0.into(), 0.into(), 0.into()),
        "negative" => full((-3).into(), (-5).into(), (-8).into()),
        "float" => full(json!(17.5), json!(196.25), json!(213.75)),
        "text" => full("17".into(), "196".into(), "213".into()),
        "huge" => full(u64::MAX.into(), u64::MAX.into(), u64::MAX.into()),
        "cached" => {
            let mut usage = full(input.into(), output.into(), (input + output).into());
            usage["input_tokens_details"]["cached_tokens_details"] = json!({"image_tokens": 200, "text_tokens": 5});
            usage
        }
        "cached-sum" => {
            let mut usage = full(input.into(), output.into(), (input + output).into());
            usage["input_tokens_details"]["cached_tokens"] = json!(205);
            usage
        }
        "partial" => json!({"total_tokens": input + output}),
        "list" => json!([1, 2, 3]),
        other => panic!("no such usage in a script: {other}"),
    })
}

fn fields(
    script: &Script,
    request: &Value,
    at: usize,
    usage: Option<&Value>,
    images: &[String],
) -> Vec<(&'static str, Value)> {
    let mut fields = vec![("created", json!(1_776_000_000 + at)), ("data", data(script, request, images))];
    fields.extend(resolved_fields(script, request));
    if let Some(usage) = usage {
        let position = if script.word("shape") == "usage-first" { 0 } else { fields.len() };
        fields.insert(position, ("usage", usage.clone()));
    }
    fields.retain(|(name, _)| *name != "data" || script.word("data") != "none");
    apply_field_edits(script, &mut fields);
    fields
}

/// The properties of the images that were made, as fields of the API.
pub(super) fn resolved_fields(script: &Script, request: &Value) -> Vec<(&'static str, Value)> {
    let (width, height) = size(script, request);
    let format = script.get("format").or(request["output_format"].as_str()).unwrap_or("png");
    let quality = request["quality"].as_str().filter(|quality| *quality != "auto").unwrap_or("low");
    vec![
        ("background", json!("opaque")),
        ("model", script.get("model").map_or_else(|| request["model"].clone(), Into::into)),
        ("output_format", json!(format)),
        ("quality", json!(quality)),
        ("size", json!(format!("{width}x{height}"))),
    ]
}

/// Leaves out fields, makes them `auto`, or makes them odd, as the script says.
pub(super) fn apply_field_edits(script: &Script, fields: &mut Vec<(&'static str, Value)>) {
    fields.retain(|(name, _)| !script.lists("omit", name));
    for (name, value) in fields {
        if script.lists("auto", name) {
            *value = json!("auto");
        }
        if script.lists("odd", name) {
            *value = match *name {
                "created" | "created_at" => json!(1_776_000_000.75),
                _ => json!("a value of next year"),
            };
        }
    }
}

fn data(script: &Script, request: &Value, images: &[String]) -> Value {
    let revised = (script.word("revised") != "none").then(|| revised(script, request));
    let items = images.iter().map(|image| {
        let mut item = Map::new();
        match script.word("data") {
            "null" => drop(item.insert("b64_json".into(), Value::Null)),
            "blank" => drop(item.insert("b64_json".into(), json!(""))),
            "missing" => {}
            "words" => drop(item.insert("text".into(), json!("I would rather not draw that."))),
            _ => drop(item.insert("b64_json".into(), json!(image))),
        }
        if let Some(revised) = &revised {
            item.insert("revised_prompt".into(), revised.clone());
        }
        Value::Object(item)
    });
    if script.word("data") == "empty" { json!([]) } else { items.collect() }
}

pub(super) fn revised(script: &Script, request: &Value) -> Value {
    match script.word("revised") {
        "escapes" => json!("\"quoted\" \\ back\u{8}\u{c}\n\r\t/ \u{1}\u{7f} \u{2028} é 漢 🦀 }]{[ \\\"usage\\\":{"),
        _ => json!(format!("revised: {}", request["prompt"].as_str().unwrap_or_default())),
    }
}

/// Prints the fields in their order; a map of the JSON library would sort them.
pub(super) fn print(script: &Script, fields: &[(&'static str, Value)]) -> String {
    let shape = script.word("shape");
    let (open, colon, comma, close) = match shape {
        "pretty" => ("{\n  ", ": ", ",\n  ", "\n}\n"),
        "spaced" => (" \r\n\t{ ", " :\t", " ,\r\n ", " } \n\n "),
        _ => ("{", ":", ",", "}"),
    };
    let mut members: Vec<String> = Vec::new();
    for (name, value) in fields {
        if shape == "nested" {
            members.push(format!(
                r#""x_{name}"{colon}[null,true,-1.5e-3,"]}}\"\\",{{"b64_json":"no","usage":{{"total_tokens":1}}}}]"#
            ));
        }
        let value = if shape == "pretty" { serde_json::to_string_pretty(value) } else { serde_json::to_string(value) };
        members.push(format!("\"{name}\"{colon}{}", value.expect("JSON")));
    }
    format!("{open}{}{close}", members.join(comma))
}
