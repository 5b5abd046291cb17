//! A text model as agents use it: what it does in each step of a conversation, in the events of a real service.
//!
//! The request shows which step it is: a client sends again what the model has said so far. After the last step the
//! model repeats that step.

use serde_json::{Value, json};

use super::answer::{self, UpstreamAnswer};
use super::events::Step;
use super::script::Script;

/// The action of the model in one step.
#[derive(Clone, Debug)]
pub(crate) enum ModelStep {
    Says(&'static str),
    /// Calls a tool of the agent, which may belong to a namespace.
    Calls {
        namespace: Option<&'static str>,
        name: &'static str,
        arguments: Value,
    },
    /// Draws with the hosted image tool, whether or not the request has it, and adds a message.
    Draws,
}

/// Builds the answer to one step.
struct ModelStepWriter<'a> {
    request: &'a Value,
    /// The number of the attempt, which every id carries.
    attempt_index: usize,
    output: Vec<Value>,
    frames: Vec<Step>,
    images: Vec<String>,
}

/// The answer to a step; `None` if no conversation is set, if the attempt has a script, or if the request must draw.
pub(super) fn answer(steps: &[ModelStep], script: &Script, request: &Value, at: usize) -> Option<UpstreamAnswer> {
    let forced = request["tool_choice"]["type"] == "image_generation";
    if steps.is_empty() || !script.is_good() || forced {
        return None;
    }
    let step = &steps[replayed_steps(request).min(steps.len() - 1)];
    let mut writer =
        ModelStepWriter { request, attempt_index: at, output: Vec::new(), frames: Vec::new(), images: Vec::new() };
    writer.begin();
    match step {
        ModelStep::Says(text) => writer.message(text),
        ModelStep::Calls { namespace, name, arguments } => writer.call(*namespace, name, arguments),
        ModelStep::Draws => {
            writer.image();
            writer.message("Here is your image.");
        }
    }
    Some(writer.end())
}

/// True if a real provider refuses the request, because its hosted image tool conflicts with another part of it: an image
/// tool of the agent, another choice that is forced, a structured answer, or a compaction.
pub(super) fn has_conflict(request: &Value) -> bool {
    let hosted = |tool: &&Value| tool["type"] == "image_generation";
    let tools = request["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    let items = request["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let of_items = items.iter().filter_map(|item| item["tools"].as_array()).flatten();
    let choice = &request["tool_choice"];
    tools.iter().filter(hosted).count() > 1
        || tools.iter().any(|tool| hosted(&tool))
            && (tools.iter().chain(of_items).any(is_agents_image_tool)
                || choice["type"].as_str().is_some_and(|kind| !["image_generation", "allowed_tools"].contains(&kind))
                || request["text"]["format"]["type"].as_str().is_some_and(|kind| kind != "text")
                || items.iter().any(|item| item["type"].as_str().is_some_and(|kind| kind.starts_with("compaction"))))
}

/// True if a tool of the agent, or one in its namespace, has a name of an image tool.
fn is_agents_image_tool(tool: &Value) -> bool {
    let name: String = tool["name"].as_str().unwrap_or_default().chars().filter(char::is_ascii_alphabetic).collect();
    name.contains("imagegen") || tool["tools"].as_array().is_some_and(|tools| tools.iter().any(is_agents_image_tool))
}

/// How many steps the request replays: each has one call or ends in one message.
fn replayed_steps(request: &Value) -> usize {
    let items = request["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_call =
        |item: &Value| item["type"].as_str().is_some_and(|kind| kind.ends_with("tool_call") || kind == "function_call");
    items.iter().filter(|item| is_call(item) || item["role"] == "assistant").count()
}

// === impl ModelStepWriter ===

impl ModelStepWriter<'_> {
    fn begin(&mut self) {
        for name in ["created", "in_progress"] {
            let response = self.response("in_progress");
            self.event(name, json!({ "response": response }));
        }
    }

    fn end(mut self) -> UpstreamAnswer {
        let response = self.response("completed");
        let usage = Some(response["usage"].clone());
        if self.request["stream"] != true {
            let before = response.to_string().into_bytes();
            return UpstreamAnswer {
                before,
                content_type: "application/json",
                usage,
                images: self.images,
                ..UpstreamAnswer::default()
            };
        }
        self.event("completed", json!({ "response": response }));
        let (events, images) = (Some(self.frames), self.images);
        UpstreamAnswer { events, content_type: "text/event-stream", usage, images, ..UpstreamAnswer::default() }
    }

    fn message(&mut self, text: &str) {
        let (id, index) = (format!("msg_{}", self.attempt_index), self.output.len());
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
        let item = |status: &str, content: Value| json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
        let place = |more: Value| merged(json!({"output_index": index, "item_id": id, "content_index": 0}), more);
        self.event("output_item.added", json!({"output_index": index, "item": item("in_progress", json!([]))}));
        self.event("content_part.added", place(json!({"part": part("")})));
        self.event("output_text.delta", place(json!({"delta": text, "logprobs": []})));
        self.event("output_text.done", place(json!({"text": text, "logprobs": []})));
        self.event("content_part.done", place(json!({"part": part(text)})));
        self.done(item("completed", json!([part(text)])));
    }

    fn call(&mut self, namespace: Option<&str>, name: &str, arguments: &Value) {
        let (id, call_id) = (format!("fc_{}", self.attempt_index), format!("call_{}", self.attempt_index));
        let (index, text) = (self.output.len(), arguments.to_string());
        let item = |status: &str, arguments: &str| {
            let mut item = json!({"id": id, "type": "function_call", "status": status, "call_id": call_id,
                                  "name": name, "arguments": arguments});
            if let Some(namespace) = namespace {
                item["namespace"] = json!(namespace);
            }
            item
        };
        let place = |more: Value| merged(json!({"output_index": index, "item_id": id}), more);
        self.event("output_item.added", json!({"output_index": index, "item": item("in_progress", "")}));
        self.event("function_call_arguments.delta", place(json!({"delta": text})));
        self.event("function_call_arguments.done", place(json!({"arguments": text, "name": name})));
        self.done(item("completed", &text));
    }

    fn image(&mut self) {
        let tool = self.tool().unwrap_or(json!({}));
        let (id, index) = (format!("ig_{}", self.attempt_index), self.output.len());
        let image = answer::image_text(&Script::default(), &tool);
        let fields = |more: Value| {
            let known =
                answer::resolved_fields(&Script::default(), &tool).into_iter().filter(|(name, _)| *name != "model");
            merged(known.map(|(name, value)| (name.to_owned(), value)).collect::<serde_json::Map<_, _>>().into(), more)
        };
        let place = || json!({"output_index": index, "item_id": id});
        let begun = json!({"id": id, "type": "image_generation_call", "status": "in_progress"});
        self.event("output_item.added", json!({"output_index": index, "item": begun}));
        self.event("image_generation_call.in_progress", place());
        self.event("image_generation_call.generating", place());
        for number in 0..tool["partial_images"].as_u64().unwrap_or(0) {
            let partial = json!({"partial_image_index": number, "partial_image_b64": image});
            self.event("image_generation_call.partial_image", merged(merged(place(), fields(json!({}))), partial));
            self.images.push(image.clone());
        }
        self.event("image_generation_call.completed", place());
        let call = json!({"id": id, "type": "image_generation_call", "status": "completed", "action": "generate",
                          "revised_prompt": "a red cube on a table", "result": image});
        self.images.push(image);
        self.done(fields(call));
    }

    fn tool(&self) -> Option<Value> {
        let tools = self.request["tools"].as_array()?;
        tools.iter().find(|tool| tool["type"] == "image_generation").cloned()
    }

    fn done(&mut self, item: Value) {
        self.event("output_item.done", json!({"output_index": self.output.len(), "item": item}));
        self.output.push(item);
    }

    /// The type comes first, as real services have it.
    fn event(&mut self, name: &str, event: Value) {
        let number = self.frames.iter().filter(|step| matches!(step, Step::Sent)).count();
        let kind = format!("response.{name}");
        let mut text = format!("event: {kind}\ndata: {{\"type\":\"{kind}\",\"sequence_number\":{number}");
        for (name, value) in event.as_object().expect("members") {
            text.push_str(&format!(",\"{name}\":{value}"));
        }
        text.push_str("}\n\n");
        self.frames.extend([Step::Text(text.into_bytes()), Step::Sent]);
    }

    fn response(&self, status: &str) -> Value {
        let created = 1_776_000_000 + self.attempt_index;
        let mut response = json!({
            "id": format!("resp_{}", self.attempt_index), "object": "response", "created_at": created, "status": status,
            "background": false, "error": null, "incomplete_details": null, "instructions": null,
            "max_output_tokens": null, "max_tool_calls": null, "model": self.request["model"], "output": self.output,
            "parallel_tool_calls": true, "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "service_tier": "default", "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}},
            "tool_choice": "auto", "tools": [], "top_p": 1.0, "truncation": "disabled", "usage": null, "user": null,
            "metadata": {},
        });
        if status == "completed" {
            let read = self.request["input"].to_string().chars().count();
            response["completed_at"] = json!(created + 9);
            response["usage"] = json!({
                "input_tokens": read, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens": 50, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + 50,
            });
            if !self.images.is_empty() {
                let tool = self.tool().unwrap_or(json!({}));
                let image = answer::usage(&Script::default(), &tool, false, 1).unwrap_or_default();
                response["tool_usage"] = json!({"image_gen": image, "web_search": {"num_requests": 0}});
            }
        }
        response
    }
}

/// The members of both objects in one object; those of `more` win.
fn merged(mut all: Value, more: Value) -> Value {
    for (name, value) in more.as_object().expect("members") {
        all[name] = value.clone();
    }
    all
}
