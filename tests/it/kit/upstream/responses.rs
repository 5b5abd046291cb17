//! The answers of the upstream at `/responses`: one JSON value, or the events of a response.
//!
//! The words of a script mean here what they mean at the image endpoints; `events=` has words of its own:
//!
//! | Event | What the upstream sends |
//! |---|---|
//! | `created` `progress` | the response as it begins |
//! | `added` `generating` `p` `item` | the image call: begun, at work, a partial image, done with its image |
//! | `half` | the first half of `item` |
//! | `text` | a whole message |
//! | `c` `incomplete` | the response as it ends |
//! | `failed` `failed-W` `e` `e-W` | a failure as a response or as an error event; `W` is a word of `body=` |
//! | `x` `k` `~MS` `@NAME` `stall` `eof` `cut` `murmur` `done` | as at the image endpoints |
//! | `item-failed` `item-refused` `item-blank` `item-link` | the image call ends without an image: failed, failed by policy, empty, an address |
//! | `filtered` | the response ends, cut off by the content filter |
//!
//! A request that must draw comes from a gateway that carries out an image job. For it, `events=` and `data=` have the
//! words of the image endpoints, so that one script means the same for accounts of both protocols, and `tale=` has the
//! words of this table.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::{self, FILLER, UpstreamAnswer};
use super::events::Step;
use super::ledger::prompt;
use super::script::Script;

/// Builds a response, or its events.
struct ResponseStreamBuilder<'a> {
    script: &'a Script,
    model: Value,
    /// The image tool of the request, with the input as its prompt; `None` if the request has no image tool.
    image_tool: Option<Value>,
    /// True if the request must draw.
    is_image_required: bool,
    input: Value,
    at: usize,
    number: u64,
    steps: Vec<Step>,
    images: Vec<String>,
    output: Vec<Value>,
    /// The number of steps up to the end of the final image. Later steps do not count for a `cut` in percent.
    image_end: Option<usize>,
}

pub(super) fn build_response(script: &Script, request: &Value, at: usize) -> UpstreamAnswer {
    let failed = script.number("status").is_some_and(|status| status != 200);
    if failed || script.has("body") {
        let mut made = answer::build_answer(script, &json!({}), false, at);
        if request["tool_choice"]["type"] == "image_generation" {
            let text = String::from_utf8_lossy(&made.before);
            made.before = text.replace(r#""param":"quality""#, r#""param":"tools[0].quality""#).into_bytes();
        }
        return made;
    }
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let asked = tools.into_iter().find(|tool| tool["type"] == "image_generation").map(|mut tool| {
        tool["prompt"] = prompt(request).clone();
        tool
    });
    let builder = ResponseStreamBuilder {
        script,
        // An upstream that does not keep large bodies does not know the model.
        model: request["model"].as_str().map_or_else(|| json!("gpt-5.5"), Into::into),
        input: prompt(request).clone(),
        image_tool: asked,
        is_image_required: request["tool_choice"]["type"] == "image_generation",
        at,
        number: 0,
        steps: Vec::new(),
        images: Vec::new(),
        output: Vec::new(),
        image_end: None,
    };
    let streams = script.has("sse") || request["stream"] == true && !script.has("plain");
    if streams { builder.events() } else { builder.answer() }
}

// === impl ResponseStreamBuilder ===

impl ResponseStreamBuilder<'_> {
    fn answer(mut self) -> UpstreamAnswer {
        let item = match (self.script.word("data"), &self.image_tool) {
            ("", Some(_)) => self.image(),
            ("" | "words", _) => Self::message(),
            _ => Self::blank("completed", Value::Null),
        };
        self.output.push(item);
        let text = self.response("completed", &self.output).to_string();
        let (before, after) = text.split_once(FILLER).unwrap_or((&text, ""));
        UpstreamAnswer {
            before: before.as_bytes().to_vec(),
            filler: self.filler(),
            after: after.as_bytes().to_vec(),
            content_type: "application/json",
            events: None,
            usage: Some(self.usage()),
            images: self.images,
            weighed: None,
        }
    }

    fn events(mut self) -> UpstreamAnswer {
        let partials = self.image_tool.as_ref().and_then(|asked| asked["partial_images"].as_u64()).unwrap_or(0);
        let usual = match self.image_tool {
            Some(_) => format!(
                "created,progress,added,generating,{}item,text,c",
                "p,".repeat(usize::try_from(partials).expect("a count"))
            ),
            None => "created,progress,text,c".to_owned(),
        };
        let words = match (self.is_image_required, self.script.get("events"), self.script.word("data")) {
            (true, Some(events), _) => to_response_events(events),
            (true, None, "words") => "created,progress,text,c".to_owned(),
            (true, None, "") => self.script.get("tale").unwrap_or(&usual).to_owned(),
            (true, None, _) => "created,progress,added,item-blank,c".to_owned(),
            (false, events, _) => events.unwrap_or(&usual).to_owned(),
        };
        for word in words.split(',') {
            self.add_event(word);
        }
        let (usage, steps) = (Some(self.usage()), self.steps.len());
        UpstreamAnswer {
            events: Some(self.steps),
            weighed: Some(self.image_end.unwrap_or(steps)),
            content_type: "text/event-stream",
            usage,
            images: self.images,
            ..UpstreamAnswer::default()
        }
    }

    fn add_event(&mut self, word: &str) {
        if let Some(pause) = word.strip_prefix('~') {
            return self.steps.push(Step::Pause(Duration::from_millis(pause.parse().expect("milliseconds"))));
        }
        if let Some(gate) = word.strip_prefix('@') {
            return self.steps.push(Step::Gate(gate.to_owned()));
        }
        match word {
            "created" | "progress" => {
                let name = if word == "created" { "created" } else { "in_progress" };
                let response = self.response("in_progress", &[]);
                self.event(&format!("response.{name}"), json!({ "response": response }));
            }
            "c" | "incomplete" => {
                let name = if word == "c" { "completed" } else { word };
                // If the script cuts the image, the final event must not contain it a second time.
                let output = if self.script.has("cut") { Vec::new() } else { self.output.clone() };
                let response = self.response(name, &output);
                self.event(&format!("response.{name}"), json!({ "response": response }));
            }
            "k" => self.steps.push(Step::Text(b": keep-alive\n\n".to_vec())),
            "x" => self.event("response.web_search_call.searching", json!({"output_index": 7, "item_id": "ws_1"})),
            "stall" => self.steps.push(Step::Stall),
            "murmur" => self.steps.push(Step::CommentsForever),
            "done" => self.steps.push(Step::Text(b"data: [DONE]\n\n".to_vec())),
            "filtered" => {
                let mut response = self.response("incomplete", &self.output.clone());
                response["incomplete_details"] = json!({"reason": "content_filter"});
                self.event("response.incomplete", json!({ "response": response }));
            }
            "eof" => self.steps.push(Step::End),
            "cut" => self.steps.push(Step::Break),
            word => self.item_or_failure(word),
        }
    }

    fn item_or_failure(&mut self, word: &str) {
        match word {
            "added" => {
                let item = json!({"id": "ig_1", "type": "image_generation_call", "status": "in_progress"});
                self.event("response.output_item.added", json!({"output_index": 0, "item": item}));
            }
            "generating" => {
                self.event("response.image_generation_call.generating", json!({"output_index": 0, "item_id": "ig_1"}));
            }
            "item-failed" | "item-refused" | "item-blank" | "item-link" => {
                let mut item = match word {
                    "item-blank" => Self::blank("completed", json!("")),
                    "item-link" => Self::blank("completed", json!("https://pictures.example/1.png?a=b")),
                    _ => Self::blank("failed", Value::Null),
                };
                if word == "item-refused" {
                    item["error"] = answer::error_detail(self.script, "policy");
                }
                self.output.push(item.clone());
                self.event("response.output_item.done", json!({"output_index": 0, "item": item}));
            }
            "p" => {
                let partial = self.partial();
                self.event("response.image_generation_call.partial_image", partial);
            }
            "item" | "half" => {
                let item = self.image();
                self.output.push(item.clone());
                let before = self.steps.len();
                self.event("response.output_item.done", json!({"output_index": 0, "item": item}));
                if word == "half" {
                    self.halve(before);
                }
                self.image_end = Some(self.steps.len());
            }
            "text" => {
                let (item, index) = (Self::message(), self.output.len());
                let place = |name: &str, value: Value| {
                    let mut event = json!({"output_index": index, "item_id": "msg_1", "content_index": 0});
                    event[name] = value;
                    event
                };
                let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
                let mut begun = item.clone();
                (begun["status"], begun["content"]) = (json!("in_progress"), json!([]));
                self.event("response.output_item.added", json!({"output_index": index, "item": begun}));
                self.event("response.content_part.added", place("part", part("")));
                let mut delta = place("delta", json!("Done."));
                delta["logprobs"] = json!([]);
                self.event("response.output_text.delta", delta);
                self.event("response.content_part.done", place("part", part("Done.")));
                self.event("response.output_item.done", json!({"output_index": index, "item": item}));
                self.output.push(item);
            }
            word => self.failure(word),
        }
    }

    fn failure(&mut self, word: &str) {
        let kind = word.split_once('-').map_or("error", |(_, kind)| kind);
        let detail = answer::error_detail(self.script, kind);
        if word.starts_with("failed") {
            let mut response = self.response("failed", &[]);
            response["error"] = detail;
            response["usage"] = Value::Null;
            return self.event("response.failed", json!({ "response": response }));
        }
        assert!(word == "e" || word.starts_with("e-"), "no such event in a script: {word}");
        self.event(
            "error",
            json!({"code": detail["code"], "message": detail["message"], "param": null, "error": detail}),
        );
    }

    fn event(&mut self, kind: &str, event: Value) {
        // The type comes first, as real upstreams have it.
        let mut text = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{}", self.number);
        self.number += 1;
        for (name, value) in event.as_object().expect("members") {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
        text.push_str("}\n\n");
        let mut pieces = text.split(FILLER);
        self.steps.push(Step::Text(pieces.next().unwrap_or_default().as_bytes().to_vec()));
        for piece in pieces {
            self.steps.extend([Step::Filler(self.filler()), Step::Text(piece.as_bytes().to_vec())]);
        }
        self.steps.push(Step::Sent);
    }

    /// Keeps the first half of everything from this step on.
    fn halve(&mut self, from: usize) {
        let tail = self.steps.split_off(from);
        match tail.as_slice() {
            [Step::Text(before), Step::Filler(length), ..] => {
                self.steps.extend([Step::Text(before.clone()), Step::Filler(length / 8 * 4)]);
            }
            [Step::Text(text), ..] => self.steps.push(Step::Text(text[..text.len() / 2].to_vec())),
            _ => {}
        }
    }

    fn filler(&self) -> usize {
        usize::try_from(self.script.number("b64").unwrap_or(0)).expect("a length")
    }

    fn image(&mut self) -> Value {
        let asked = self.image_tool.clone().unwrap_or(json!({"prompt": self.input}));
        let base64 = if self.script.has("b64") { FILLER.to_owned() } else { answer::image_text(self.script, &asked) };
        if base64 != FILLER {
            self.images.push(base64.clone());
        }
        let mut fields = answer::resolved_fields(self.script, &asked);
        answer::apply_field_edits(self.script, &mut fields);
        let mut item: Map<String, Value> = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        item.remove("model");
        item.insert("revised_prompt".to_owned(), answer::revised(self.script, &asked));
        let call = json!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": base64});
        item.extend(call.as_object().cloned().unwrap_or_default());
        item.into()
    }

    /// A partial image of the requested size, also if the final image is filler.
    fn partial(&mut self) -> Value {
        let mut image = self.image();
        let asked = self.image_tool.clone().unwrap_or(json!({"prompt": self.input}));
        let mut partial = json!({"output_index": 0, "item_id": "ig_1", "partial_image_index": 0});
        partial["partial_image_b64"] = answer::image_text(self.script, &asked).into();
        for name in ["size", "quality", "background", "output_format"] {
            partial[name] = image[name].take();
        }
        partial
    }

    /// An image call without an image.
    fn blank(status: &str, result: Value) -> Value {
        json!({"id": "ig_1", "type": "image_generation_call", "status": status, "result": result})
    }

    /// The tokens of the text.
    fn usage(&self) -> Value {
        let mut counted = usage(&self.input);
        for (word, name) in [("read", "input_tokens"), ("written", "output_tokens")] {
            if let Some(tokens) = self.script.number(word) {
                counted[name] = tokens.into();
                counted["total_tokens"] = (counted["input_tokens"].as_u64().unwrap_or(0)
                    + counted["output_tokens"].as_u64().unwrap_or(0))
                .into();
            }
        }
        let zero = json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0});
        if self.is_image_required && self.script.word("usage") == "zero" { zero } else { counted }
    }

    fn message() -> Value {
        json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
               "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}]})
    }

    /// The tools as upstreams repeat them in a response, without the prompt and the mask.
    fn tools(&self) -> Vec<Value> {
        let mut tool = self.image_tool.clone().unwrap_or_default();
        let Some(members) = tool.as_object_mut() else { return Vec::new() };
        members.retain(|name, _| !matches!(name.as_str(), "prompt" | "input_image_mask"));
        members.extend(self.script.get("model").map(|model| ("model".to_owned(), model.into())));
        vec![tool]
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.at), "object": "response", "created_at": 1_776_000_000 + self.at,
            "status": status, "model": self.model, "output": output, "error": null, "incomplete_details": null,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": self.tools(), "usage": null,
        });
        if status == "completed" {
            response["usage"] = self.usage();
            if let Some(asked) = &self.image_tool {
                let edit = self.is_image_required && asked["action"] == "edit";
                let image = answer::usage(self.script, asked, edit, 1).unwrap_or_default();
                response["tool_usage"] = json!({"image_gen": image, "web_search": {"num_requests": 0}});
            }
        }
        response
    }
}

/// Translates `events=` from the words of the image endpoints to those of a response.
fn to_response_events(events: &str) -> String {
    let word = |word: &str| match word {
        "c" => "item,text,c".to_owned(),
        "blank" | "missing" => "item-blank,c".to_owned(),
        "words" => "text,c".to_owned(),
        "e-limit" => "e-usage-limit".to_owned(),
        word if word.starts_with('p') => "p".to_owned(),
        word => word.to_owned(),
    };
    let words: Vec<String> = events.split(',').map(word).collect();
    format!("created,progress,added,generating,{}", words.join(","))
}

/// Token counts of the text, which differ from request to request.
fn usage(input: &Value) -> Value {
    let read = 30 + input.to_string().chars().count();
    json!({"input_tokens": read, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
           "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + 50})
}
