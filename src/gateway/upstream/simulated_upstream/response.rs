//! A response of the simulator: the answer that a text model with an image tool would give, without a model.
//!
//! The whole answer is prepared before the first byte, with placeholders for images. An image is drawn just
//! before the text that leads to its first placeholder, and is held in memory once although it is sent twice.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::drawing_task::DrawingTask;
use super::{Detail, ImageSpec, SimulatorJob, detail_for_quality};
use crate::gateway::rules::{ImageTool, ResponseJob};
use crate::gateway::upstream::reply::ReplyError;
use crate::gateway::upstream::simulator;

/// The most bytes of a request's tools that the answer repeats (our choice).
const MAX_ECHOED_TOOL_BYTES: usize = 256 * 1024;
const IMAGE_MESSAGE: &str = "Here is your image. The simulator drew it, not a model.";
const TEXT_MESSAGE: &str = "This is an answer of the simulator: no model has read your message.";

/// A response while it is sent.
#[derive(Debug)]
pub(crate) struct SimulatedResponse {
    segments: VecDeque<ResponseSegment>,
    simulator_job: SimulatorJob,
    drawing: DrawingTask,
    image: Bytes,
}

#[derive(Debug)]
enum ResponseSegment {
    /// Sends this text.
    Text(String),
    /// Draws an image, and sends nothing.
    Draw(ImageSpec),
    /// Sends the image that was drawn last.
    Image,
}

/// A response while it is prepared.
struct ResponseBuilder<'a> {
    job: &'a ResponseJob,
    simulator_job: &'a SimulatorJob,
    tool: Option<&'a ImageTool>,
    id: String,
    image_id: String,
    message_id: String,
    /// The placeholder for an image in the prepared text.
    placeholder: String,
    segments: VecDeque<ResponseSegment>,
    event_count: u64,
}

// === impl SimulatedResponse ===

impl SimulatedResponse {
    pub(super) fn new(job: &ResponseJob, drawing: DrawingTask) -> Self {
        let tool = job.image_tool().filter(|_| !job.forbids_tools());
        let simulator_job = simulator_job(job, tool);
        let mut builder = ResponseBuilder::new(job, &simulator_job, tool);
        if job.is_stream() {
            builder.push_events();
        } else {
            builder.push_json();
        }
        let segments = builder.segments;
        Self { segments, simulator_job, drawing, image: Bytes::new() }
    }
}

fn simulator_job(job: &ResponseJob, tool: Option<&ImageTool>) -> SimulatorJob {
    // If the disk fails, the prompt is empty. The failure was logged where it occurred.
    let prompt = job.prompt().unwrap_or_default();
    let size = tool.and_then(|tool| tool.size.exact());
    let (width, height) = size.map_or_else(|| simulator::resolve_auto(&prompt), |size| (size.width(), size.height()));
    SimulatorJob {
        prompt: prompt.into(),
        count: 1,
        partials: tool.filter(|_| job.is_stream()).map(|tool| tool.partial_images),
        event_prefix: "response",
        width,
        height,
        format: tool.map(|tool| tool.format).unwrap_or_default(),
        compression: tool.map_or(100, |tool| tool.compression),
        detail: tool.map_or(Detail::Low, |tool| detail_for_quality(tool.quality.as_deref())),
        created: job.received_at().timestamp(),
        input_image_tokens: 0,
    }
}

// === impl ResponseBuilder ===

impl<'a> ResponseBuilder<'a> {
    fn new(job: &'a ResponseJob, simulator_job: &'a SimulatorJob, tool: Option<&'a ImageTool>) -> Self {
        let id = |kind: &str| format!("{kind}_{}", Uuid::new_v4().simple());
        let (image_id, message_id, placeholder) = (id("ig"), id("msg"), id("placeholder"));
        Self {
            job,
            simulator_job,
            tool,
            id: id("resp"),
            image_id,
            message_id,
            placeholder,
            segments: VecDeque::new(),
            event_count: 0,
        }
    }

    /// Prepares one JSON value.
    fn push_json(&mut self) {
        if self.tool.is_some() {
            self.segments.push_back(ResponseSegment::Draw(self.simulator_job.image_spec(0)));
        }
        let output = self.output();
        self.push_text(&self.response_object("completed", output).to_string());
    }

    /// Prepares the events, in the order of the contract.
    fn push_events(&mut self) {
        for kind in ["created", "in_progress"] {
            let response = self.response_object("in_progress", Vec::new());
            self.push_event(&format!("response.{kind}"), json!({ "response": response }));
        }
        if self.tool.is_some() {
            self.push_image_events();
        }
        self.push_message_events(u64::from(self.tool.is_some()));
        let response = self.response_object("completed", self.output());
        self.push_event("response.completed", json!({ "response": response }));
    }

    fn push_image_events(&mut self) {
        let call = |builder: &mut Self, kind: &str, mut event: Value| {
            event["output_index"] = 0.into();
            event["item_id"] = builder.image_id.as_str().into();
            builder.push_event(&format!("response.image_generation_call.{kind}"), event);
        };
        let unfinished_item = json!({"id": self.image_id, "type": "image_generation_call", "status": "in_progress"});
        self.push_event("response.output_item.added", json!({"output_index": 0, "item": unfinished_item}));
        call(self, "in_progress", json!({}));
        call(self, "generating", json!({}));
        for index in 0..self.simulator_job.partials.unwrap_or(0) {
            self.segments.push_back(ResponseSegment::Draw(self.simulator_job.image_spec(index)));
            let mut partial = Value::Object(self.image_properties());
            partial["partial_image_index"] = index.into();
            partial["partial_image_b64"] = self.placeholder.as_str().into();
            call(self, "partial_image", partial);
        }
        self.segments
            .push_back(ResponseSegment::Draw(self.simulator_job.image_spec(self.simulator_job.partials.unwrap_or(0))));
        call(self, "completed", json!({}));
        let item = self.image_item();
        self.push_event("response.output_item.done", json!({"output_index": 0, "item": item}));
    }

    fn push_message_events(&mut self, index: u64) {
        let event_base = || json!({"output_index": index, "item_id": self.message_id, "content_index": 0});
        let event_with = |name: &str, value: Value| {
            let mut event = event_base();
            event[name] = value;
            event
        };
        let unfinished_item = json!({"id": self.message_id, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
        let (empty, text) = (text_part(""), self.message_text());
        let events = [
            ("output_item.added", json!({"output_index": index, "item": unfinished_item})),
            ("content_part.added", event_with("part", empty)),
            ("output_text.delta", event_with("delta", text.into())),
            ("output_text.done", event_with("text", text.into())),
            ("content_part.done", event_with("part", text_part(text))),
            ("output_item.done", json!({"output_index": index, "item": self.message_item()})),
        ];
        for (kind, mut event) in events {
            if kind.starts_with("output_text") {
                event["logprobs"] = json!([]);
            }
            self.push_event(&format!("response.{kind}"), event);
        }
    }

    fn push_event(&mut self, kind: &str, mut event: Value) {
        event["type"] = kind.into();
        event["sequence_number"] = self.event_count.into();
        self.event_count += 1;
        self.push_text(&format!("event: {kind}\ndata: {event}\n\n"));
    }

    /// Adds a text, split at its placeholders.
    fn push_text(&mut self, text: &str) {
        for (index, section) in text.split(&self.placeholder).enumerate() {
            if index > 0 {
                self.segments.push_back(ResponseSegment::Image);
            }
            self.segments.push_back(ResponseSegment::Text(section.to_owned()));
        }
    }

    /// Returns the properties of the image, as the contract names them.
    fn image_properties(&self) -> Map<String, Value> {
        let mut properties = match self.simulator_job.answer_members() {
            Value::Object(properties) => properties,
            _ => Map::new(),
        };
        properties.remove("usage");
        properties
    }

    fn image_item(&self) -> Value {
        let mut item = Value::Object(self.image_properties());
        item["id"] = self.image_id.as_str().into();
        item["type"] = "image_generation_call".into();
        item["status"] = "completed".into();
        item["action"] = "generate".into();
        item["revised_prompt"] = (&*self.simulator_job.prompt).into();
        item["result"] = self.placeholder.as_str().into();
        item
    }

    fn message_item(&self) -> Value {
        json!({"id": self.message_id, "type": "message", "status": "completed", "role": "assistant", "content": [text_part(self.message_text())]})
    }

    fn output(&self) -> Vec<Value> {
        self.tool.map(|_| self.image_item()).into_iter().chain([self.message_item()]).collect()
    }

    const fn message_text(&self) -> &'static str {
        if self.tool.is_some() { IMAGE_MESSAGE } else { TEXT_MESSAGE }
    }

    fn response_object(&self, status: &str, output: Vec<Value>) -> Value {
        let echoed = |value: Option<Value>, default: Value| value.filter(|value| !value.is_null()).unwrap_or(default);
        let tools = self.job.listed_tools(MAX_ECHOED_TOOL_BYTES);
        let mut response = json!({
            "id": self.id, "object": "response", "created_at": self.simulator_job.created, "status": status,
            "background": false, "error": null, "incomplete_details": null, "instructions": null,
            "max_output_tokens": null, "max_tool_calls": null, "model": self.job.model(), "output": output,
            "parallel_tool_calls": true, "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "service_tier": "default", "store": false, "temperature": 1.0, "text": {"format": {"type": "text"}},
            "tool_choice": echoed(self.job.tool_choice().cloned(), json!("auto")),
            "tools": tools.and_then(|raw| serde_json::from_slice(&raw).ok()).map_or_else(|| json!([]), stated_tools),
            "top_p": 1.0, "truncation": "disabled", "usage": null, "user": null, "metadata": {},
        });
        if status == "completed" {
            response["completed_at"] = self.simulator_job.created.into();
            response["usage"] = self.usage();
            // One strict client accepts the token usage of tools only if it includes that of images.
            if self.tool.is_some() {
                let image = self.simulator_job.answer_members()["usage"].take();
                response["tool_usage"] = json!({"image_gen": image, "web_search": {"num_requests": 0}});
            }
        }
        response
    }

    fn usage(&self) -> Value {
        let count = |text: &str| simulator::estimate_tokens(text, 0, 0, Detail::Low, 0).input_text;
        let (input, output) = (count(&self.simulator_job.prompt), count(self.message_text()));
        json!({
            "input_tokens": input, "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": input + output,
        })
    }
}

/// Returns the tools of a request as a service states them: with the default of each option that an image tool leaves
/// out.
fn stated_tools(mut tools: Value) -> Value {
    let list = tools.as_array_mut().into_iter().flatten().filter(|tool| tool["type"] == "image_generation");
    for tool in list.filter_map(Value::as_object_mut) {
        for (name, default) in [
            ("background", json!("auto")),
            ("moderation", json!("auto")),
            ("output_compression", json!(100)),
            ("output_format", json!("png")),
            ("quality", json!("auto")),
            ("size", json!("auto")),
        ] {
            let option = tool.entry(name).or_insert(Value::Null);
            if option.is_null() {
                *option = default;
            }
        }
    }
    if tools.is_null() { json!([]) } else { tools }
}

fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

impl SimulatedResponse {
    /// Resolves when the image is drawn.
    fn poll_image(&mut self, cx: &mut Context<'_>, spec: ImageSpec) -> Poll<Result<(), ReplyError>> {
        if self.drawing.is_empty() {
            let simulator_job = self.simulator_job.clone();
            self.drawing.begin(move || simulator_job.draw_base64(spec));
        }
        let drawn = ready!(self.drawing.poll(cx));
        if drawn.is_err() {
            self.segments.clear();
        }
        Poll::Ready(drawn.map(|base64| self.image = base64.into()))
    }
}

impl Body for SimulatedResponse {
    type Data = Bytes;
    type Error = ReplyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ReplyError>>> {
        let this = &mut *self;
        loop {
            match this.segments.front_mut() {
                Some(ResponseSegment::Draw(spec)) => {
                    let spec = *spec;
                    ready!(this.poll_image(cx, spec))?;
                    this.segments.pop_front();
                }
                Some(ResponseSegment::Image) => {
                    this.segments.pop_front();
                    return Poll::Ready(Some(Ok(Frame::data(this.image.clone()))));
                }
                Some(ResponseSegment::Text(text)) => {
                    let text = std::mem::take(text);
                    this.segments.pop_front();
                    return Poll::Ready(Some(Ok(Frame::data(text.into()))));
                }
                None => return Poll::Ready(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use chrono::Utc;
    use http_body_util::BodyExt as _;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::gateway::rules;

    async fn answer(request: &Value) -> String {
        let job = rules::check_response(Bytes::from(request.to_string()).into(), &http::HeaderMap::new(), Utc::now())
            .expect("a legal request");
        let body = SimulatedResponse::new(&job, DrawingTask::new(&Arc::new(Semaphore::new(1))));
        String::from_utf8(body.collect().await.expect("an answer").to_bytes().to_vec()).expect("text")
    }

    #[tokio::test]
    async fn a_plain_response_contains_the_image_in_its_image_call() {
        let tools =
            json!([{"type": "image_generation", "size": "1024x640", "quality": "low", "output_format": "jpeg"}]);
        let text = answer(&json!({"model": "m", "input": "a cat", "tools": tools})).await;
        let response: Value = serde_json::from_str(&text).expect("JSON");
        let call = &response["output"][0];
        assert_eq!((&call["type"], &call["size"]), (&json!("image_generation_call"), &json!("1024x640")));
        assert!(call["result"].as_str().is_some_and(|result| result.starts_with("/9j/")), "the image must be a JPEG");
        assert_eq!(response["output"][1]["type"], "message");
        let mut stated = tools;
        for (name, default) in
            [("background", json!("auto")), ("moderation", json!("auto")), ("output_compression", json!(100))]
        {
            stated[0][name] = default;
        }
        assert_eq!(response["tools"], stated);
        assert!(response["tool_usage"]["image_gen"]["total_tokens"].is_u64());
    }

    #[tokio::test]
    async fn no_image_is_drawn_without_an_allowed_image_tool() {
        let tool = json!([{"type": "image_generation"}]);
        for request in [
            json!({"model": "m", "input": "a cat", "tools": [{"type": "web_search"}]}),
            json!({"model": "m", "input": "a cat", "tools": tool, "tool_choice": "none"}),
        ] {
            let response: Value = serde_json::from_str(&answer(&request).await).expect("JSON");
            assert_eq!(response["output"].as_array().map(Vec::len), Some(1));
            assert_eq!(response["tools"].as_array().map(Vec::len), Some(1));
            assert_eq!(response["output"][0]["type"], "message");
        }
    }

    #[tokio::test]
    async fn events_have_the_order_of_the_contract() {
        let tool = json!({"type": "image_generation", "size": "1024x640", "quality": "medium", "partial_images": 1});
        let text = answer(&json!({"model": "m", "input": "a cat", "stream": true, "tools": [tool]})).await;
        let frames: Vec<&str> = text.split_terminator("\n\n").collect();
        let events: Vec<Value> = frames
            .iter()
            .map(|frame| {
                let (name, data) = frame.split_once('\n').expect("two lines");
                let event: Value = serde_json::from_str(data.strip_prefix("data: ").expect("data")).expect("one line");
                assert_eq!(name.strip_prefix("event: "), event["type"].as_str());
                event
            })
            .collect();
        let kinds: Vec<&str> =
            events.iter().filter_map(|event| event["type"].as_str()?.strip_prefix("response.")).collect();
        let expected = "created in_progress output_item.added image_generation_call.in_progress \
                        image_generation_call.generating image_generation_call.partial_image image_generation_call.completed \
                        output_item.done output_item.added content_part.added output_text.delta output_text.done \
                        content_part.done output_item.done completed";
        assert_eq!(kinds.join(" "), expected);
        for (index, event) in events.iter().enumerate() {
            assert_eq!(event["sequence_number"], index);
        }
        let result = &events[7]["item"]["result"];
        assert_eq!(*result, events[14]["response"]["output"][0]["result"]);
        assert_ne!(*result, events[5]["partial_image_b64"]);
    }

    #[tokio::test]
    async fn each_intermediate_image_adds_output_tokens() {
        let mut counts = Vec::new();
        for partial_images in [0, 1, 3] {
            let tool = json!({"type": "image_generation", "size": "1024x640", "quality": "low", "partial_images": partial_images});
            let text = answer(&json!({"model": "m", "input": "a cat", "stream": true, "tools": [tool]})).await;
            let (_, data) = text.rsplit_once("data: ").expect("an event");
            let event: Value = serde_json::from_str(data).expect("one line");
            counts.push(event["response"]["tool_usage"]["image_gen"]["output_tokens"].as_u64().expect("a count"));
        }
        assert_eq!(counts, [counts[0], counts[0] + 100, counts[0] + 300]);
    }
}
