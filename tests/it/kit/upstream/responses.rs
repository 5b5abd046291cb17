//! What the upstream says at `/responses`: one JSON value, or the events of a response, word by word.
//!
//! The words of a script mean here what they mean at the image endpoints; `events=` has its own:
//!
//! | Event | What the upstream sends |
//! |---|---|
//! | `created` `progress` | the response as it begins |
//! | `added` `generating` `p` `item` | the image call: begun, at work, a partial image, done with its image |
//! | `half` | the first half of `item` |
//! | `text` | a whole message |
//! | `c` `incomplete` | the response as it ends |
//! | `failed` `failed-W` `e` `e-W` | a failure as a response or as an error event; `W` is a word of `body=` |
//! | `x` `k` `~MS` `@NAME` `stall` `eof` `cut` | as everywhere |

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::answer::{self, FILLER, Made};
use super::events::Step;
use super::script::Script;

/// A response that is being told.
struct Story<'a> {
    script: &'a Script,
    model: Value,
    /// The image tool with the task as its prompt, where there is one.
    asked: Option<Value>,
    input: Value,
    at: usize,
    number: u64,
    steps: Vec<Step>,
    images: Vec<String>,
    output: Vec<Value>,
}

pub(super) fn make(script: &Script, request: &Value, at: usize) -> Made {
    let failed = script.number("status").is_some_and(|status| status != 200);
    if failed || script.has("body") {
        return answer::make(script, &json!({}), false, at);
    }
    let tools = request["tools"].as_array().cloned().unwrap_or_default();
    let asked = tools.into_iter().find(|tool| tool["type"] == "image_generation").map(|mut tool| {
        tool["prompt"] = request["input"].clone();
        tool
    });
    let story = Story {
        script,
        model: request["model"].clone(),
        input: request["input"].clone(),
        asked,
        at,
        number: 0,
        steps: Vec::new(),
        images: Vec::new(),
        output: Vec::new(),
    };
    let streams = script.has("sse") || request["stream"] == true && !script.has("plain");
    if streams { story.events() } else { story.answer() }
}

// === impl Story ===

impl Story<'_> {
    fn answer(mut self) -> Made {
        let item = if self.asked.is_some() { self.image() } else { Self::message() };
        self.output.push(item);
        let text = self.response("completed", &self.output).to_string();
        let (before, after) = text.split_once(FILLER).unwrap_or((&text, ""));
        Made {
            before: before.as_bytes().to_vec(),
            filler: self.filler(),
            after: after.as_bytes().to_vec(),
            content_type: "application/json",
            events: None,
            usage: Some(usage(&self.input)),
            images: self.images,
        }
    }

    fn events(mut self) -> Made {
        let partials = self.asked.as_ref().and_then(|asked| asked["partial_images"].as_u64()).unwrap_or(0);
        let usual = match self.asked {
            Some(_) => format!(
                "created,progress,added,generating,{}item,text,c",
                "p,".repeat(usize::try_from(partials).expect("a count"))
            ),
            None => "created,progress,text,c".to_owned(),
        };
        for word in self.script.get("events").unwrap_or(&usual).split(',') {
            self.tell(word);
        }
        let usage = Some(usage(&self.input));
        Made {
            events: Some(self.steps),
            content_type: "text/event-stream",
            usage,
            images: self.images,
            ..Made::default()
        }
    }

    fn tell(&mut self, word: &str) {
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
                let response = self.response(name, &self.output.clone());
                self.event(&format!("response.{name}"), json!({ "response": response }));
            }
            "k" => self.steps.push(Step::Text(b": keep-alive\n\n".to_vec())),
            "x" => self.event("response.web_search_call.searching", json!({"output_index": 7, "item_id": "ws_1"})),
            "stall" => self.steps.push(Step::Stall),
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
            "p" => {
                let base64 = self.image()["result"].take();
                let partial = json!({"output_index": 0, "item_id": "ig_1", "partial_image_index": 0, "partial_image_b64": base64});
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
        let asked = self.asked.clone().unwrap_or(json!({"prompt": self.input}));
        let base64 = if self.script.has("b64") { FILLER.to_owned() } else { answer::file(self.script, &asked) };
        if base64 != FILLER {
            self.images.push(base64.clone());
        }
        let mut item: Map<String, Value> =
            answer::resolved(self.script, &asked).into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        item.remove("model");
        item.insert("revised_prompt".to_owned(), answer::revised(self.script, &asked));
        let call = json!({"id": "ig_1", "type": "image_generation_call", "status": "completed", "result": base64});
        item.extend(call.as_object().cloned().unwrap_or_default());
        item.into()
    }

    fn message() -> Value {
        json!({"id": "msg_1", "type": "message", "status": "completed", "role": "assistant",
               "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}]})
    }

    fn response(&self, status: &str, output: &[Value]) -> Value {
        let mut response = json!({
            "id": format!("resp_{}", self.at), "object": "response", "created_at": 1_776_000_000 + self.at,
            "status": status, "model": self.model, "output": output, "error": null, "incomplete_details": null,
            "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "usage": null,
        });
        if status == "completed" {
            response["usage"] = usage(&self.input);
            if let Some(asked) = &self.asked {
                let image = answer::usage(self.script, asked, false, 1).unwrap_or_default();
                response["tool_usage"] = json!({"image_gen": image, "web_search": {"num_requests": 0}});
            }
        }
        response
    }
}

/// Token counts of the text, which differ from task to task.
fn usage(input: &Value) -> Value {
    let read = 30 + input.to_string().chars().count();
    json!({"input_tokens": read, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
           "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + 50})
}
