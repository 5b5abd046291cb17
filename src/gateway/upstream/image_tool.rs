//! An image job at an upstream that offers `/responses` only: one call, in which a text model must draw one image.
//!
//! The module decides where each field of the job goes: the prompt and the images into the input, `user` into the call,
//! a mask and the remaining fields into the tool. Only `n` and `stream` are not passed on. The tool draws one image per
//! call, and the request flow makes as many calls as images. The upstream is always asked for events: the image arrives
//! before the model has finished its text, and a long silence can be distinguished from a dead connection. Files stay
//! on disk; only the text between them is in memory.

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request};
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use uuid::Uuid;

use super::failure_cause::{AttemptFailure, FailureCause};
use super::reply::Reply;
use super::transport::{RequestBody, Transport};
use super::{FaultScope, generation_call};
use crate::gateway::accounts::{Lease, ResponsesEndpoint};
use crate::gateway::rules::{EditInput, Job};
use crate::gateway::spool::{BodyPart, ImageUpload};

/// The instructions of the text model, which must pass the prompt on unchanged, as the image endpoints do.
const INSTRUCTIONS: &str = "Call the image generation tool once. Give it the user's text as its prompt, unchanged.";
/// The upstream's prefix for the fields of the tool.
const TOOL_PREFIX: &str = "tools[0].";

/// Sends one image job, a generation or an edit.
pub(super) async fn send(
    transport: &Transport,
    lease: &Lease,
    host: &ResponsesEndpoint,
    job: &Job,
    until: Instant,
) -> Result<Reply, AttemptFailure> {
    let request = build_request(host, lease.authorization(), job);
    let fault_scope = FaultScope::for_image_tool(job.has_renamed_user(), lease.account().phrases());
    let reply = generation_call::send_request(transport, lease.secret_mask(), request, until, fault_scope)
        .await
        .map_err(restore_caller_field_names)?;
    Ok(Reply { is_from_image_tool: true, ..reply })
}

fn build_request(
    host: &ResponsesEndpoint,
    authorization: Option<&HeaderValue>,
    job: &Job,
) -> Result<Request<RequestBody>, http::Error> {
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(host.address().join("/responses"))
        .header(USER_AGENT, concat!("imagate/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, "text/event-stream")
        .header(ACCEPT_ENCODING, "identity")
        .header(CONTENT_TYPE, "application/json")
        .body(build_body(host.model(), job))?;
    for (name, value) in host.address().headers() {
        request.headers_mut().insert(name.clone(), value.clone());
    }
    if let Some(authorization) = authorization {
        request.headers_mut().insert(AUTHORIZATION, authorization.clone());
    }
    Ok(request)
}

fn build_body(host_model: &str, job: &Job) -> RequestBody {
    let (mut tool, mut call) = split_fields(job);
    let mut files = EmbeddedFiles { marker: Uuid::new_v4().simple().to_string(), files: Vec::new() };
    let mut content = vec![json!({"type": "input_text", "text": job.prompt()})];
    if let Some(EditInput { images, mask, .. }) = job.edit_input() {
        content.extend(
            images.iter().map(|image| json!({"type": "input_image", "image_url": files.placeholder_url(image)})),
        );
        let mask = mask.as_ref().map(|mask| json!({"image_url": files.placeholder_url(mask)}));
        tool.extend(mask.map(|mask| ("input_image_mask".to_owned(), mask)));
    }
    let fixed_fields = json!({
        "model": host_model,
        "instructions": INSTRUCTIONS,
        "input": [{"type": "message", "role": "user", "content": content}],
        "tools": [tool],
        "tool_choice": {"type": "image_generation"},
        // One image was requested, and every further image would be charged.
        "parallel_tool_calls": false,
        "store": false,
        "stream": true,
    });
    call.extend(fixed_fields.as_object().cloned().unwrap_or_default());
    files.to_request_body(&Value::Object(call).to_string())
}

/// Returns the fields of the job that go into the tool, and those that go into the call.
fn split_fields(job: &Job) -> (Map<String, Value>, Map<String, Value>) {
    let (mut tool, mut call) = (Map::new(), Map::new());
    for (name, value) in job.upstream_fields() {
        match name.as_str() {
            // The prompt is in the input, `n` is the number of calls, and every call is a stream.
            "prompt" | "n" | "stream" => {}
            "user" => drop(call.insert(name.clone(), value.clone())),
            _ => drop(tool.insert(name.clone(), value.clone())),
        }
    }
    let action = if job.edit_input().is_some() { "edit" } else { "generate" };
    tool.insert("type".to_owned(), "image_generation".into());
    tool.insert("action".to_owned(), action.into());
    (tool, call)
}

/// Removes the prefix of the tool, which the caller does not know.
fn restore_caller_field_names(failure: AttemptFailure) -> AttemptFailure {
    let FailureCause::InvalidRequest { param, message } = failure.cause else { return failure };
    let param = param.map(|param| param.strip_prefix(TOOL_PREFIX).map_or(param.clone(), str::to_owned));
    AttemptFailure {
        cause: FailureCause::InvalidRequest { param, message: message.replace(TOOL_PREFIX, "") },
        ..failure
    }
}

/// Files that are embedded in JSON. A random marker stands for each file until the text is split at the markers.
struct EmbeddedFiles<'a> {
    marker: String,
    files: Vec<&'a ImageUpload>,
}

// === impl EmbeddedFiles ===

impl<'a> EmbeddedFiles<'a> {
    /// Returns the data URL of a file, with a marker and its index in place of its bytes.
    fn placeholder_url(&mut self, upload: &'a ImageUpload) -> String {
        // The rules accept only images whose format is known, so the general type is not expected here. With it, the
        // upstream could still detect the format.
        let media_type = upload.header.as_ref().map_or_else(
            |_| "application/octet-stream".to_owned(),
            |header| format!("image/{}", header.properties.format),
        );
        self.files.push(upload);
        format!("data:{media_type};base64,{}-{:02}", self.marker, self.files.len() - 1)
    }

    /// Returns a body with the text and, in place of the markers, the files.
    fn to_request_body(&self, text: &str) -> RequestBody {
        let mut sections = text.split(self.marker.as_str());
        let first = sections.next().unwrap_or_default();
        let mut body_parts = vec![BodyPart::Bytes(Bytes::copy_from_slice(first.as_bytes()))];
        for section in sections {
            let (number, remaining) = section.split_at_checked("-00".len()).unwrap_or((section, ""));
            let file = number[1..].parse().ok().and_then(|index: usize| self.files.get(index));
            body_parts.extend(file.map(|file| BodyPart::Base64(file.file.clone())));
            body_parts.push(BodyPart::Bytes(Bytes::copy_from_slice(remaining.as_bytes())));
        }
        body_parts.into()
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use chrono::Utc;
    use http_body::Body as _;
    use http_body_util::BodyExt as _;
    use tempfile::TempDir;

    use super::*;
    use crate::gateway::rules;
    use crate::gateway::spool::{EditForm, Spool};

    fn png(width: u32, filler: usize) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, width, 2);
        encoder.set_color(png::ColorType::Rgba);
        encoder.write_header().unwrap().write_image_data(&vec![9; width as usize * 8]).unwrap();
        file.resize(file.len() + filler, 7);
        file
    }

    async fn sent_json(job: &Job) -> Value {
        let body = build_body("gpt-5.5", job);
        let length = body.size_hint().exact().unwrap();
        let bytes = body.collect().await.unwrap().to_bytes();
        assert_eq!(bytes.len() as u64, length);
        serde_json::from_slice(&bytes).unwrap()
    }

    #[tokio::test]
    async fn every_field_of_a_generation_is_sent() {
        let request = json!({"model": "gpt-image-2", "prompt": "a \"red\" cube\n", "n": 3, "size": "1536x1024",
            "quality": "low", "output_format": "webp", "output_compression": 40, "background": "opaque",
            "moderation": "low", "user": "u-1"});
        let job = rules::check_generation(request.to_string().as_bytes(), Utc::now()).unwrap();
        let expected = json!({
            "model": "gpt-5.5", "stream": true, "store": false, "parallel_tool_calls": false,
            "instructions": INSTRUCTIONS, "tool_choice": {"type": "image_generation"}, "user": "u-1",
            "input": [{"type": "message", "role": "user",
                       "content": [{"type": "input_text", "text": "a \"red\" cube\n"}]}],
            "tools": [{"type": "image_generation", "action": "generate", "model": "gpt-image-2", "size": "1536x1024",
                       "quality": "low", "output_format": "webp", "output_compression": 40, "background": "opaque",
                       "moderation": "low"}],
        });
        assert_eq!(sent_json(&job).await, expected);
    }

    #[tokio::test]
    async fn the_images_of_an_edit_and_its_mask_are_data_urls_of_the_same_bytes() {
        let folder = TempDir::new().unwrap();
        let spool = Spool::new(folder.path()).unwrap();
        // The lengths cover every remainder by three, and one file is read in several chunks.
        let contents = [png(2, 700_000), png(2, 1), png(2, 2), png(2, 0)];
        let upload = |content: &[u8]| {
            let mut writer = spool.create_writer_blocking().unwrap();
            writer.write(content).unwrap();
            ImageUpload::new("image", writer.finish())
        };
        let fields = json!({"model": "gpt-image-2", "prompt": "a hat", "stream": true, "partial_images": 2});
        let images = contents[..3].iter().map(|content| upload(content)).collect();
        let form = EditForm {
            fields: fields.as_object().unwrap().clone(),
            images,
            mask: Some(upload(&contents[3])),
            ..EditForm::default()
        };
        let body = sent_json(&rules::check_edit(form, Utc::now()).unwrap()).await;
        let url = |content: &[u8]| json!(format!("data:image/png;base64,{}", STANDARD.encode(content)));
        let content = &body["input"][0]["content"];
        for (index, file) in contents[..3].iter().enumerate() {
            let image = &content[index + 1];
            assert!(image["type"] == "input_image" && image["image_url"] == url(file), "image {index}");
        }
        let tool = &body["tools"][0];
        assert!(tool["input_image_mask"]["image_url"] == url(&contents[3]));
        assert_eq!((&tool["action"], &tool["partial_images"]), (&json!("edit"), &json!(2)));
    }

    #[test]
    fn errors_about_tool_fields_name_the_callers_fields() {
        let rejected = |param: &str| {
            let message = format!("Unknown parameter: '{param}'.");
            let cause = FailureCause::InvalidRequest { param: Some(param.to_owned()), message };
            AttemptFailure::new(cause).with_status(400)
        };
        assert_eq!(restore_caller_field_names(rejected("tools[0].size")), rejected("size"));
    }
}
