//! The results of tool calls: short texts, links and previews, and never more than an agent can take.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{CallToolResult, ContentBlock, Resource};
use serde_json::{Value, json};

use super::image_id::{CallDigest, ImageId};
use super::preview::PREVIEW_TYPE;
use crate::error::{Error, RejectionReason};

/// The most bytes of a result (our choice). Clients refuse results of more than 25,000 tokens, and a token is at least
/// four bytes long on average.
const RESULT_MAX_BYTES: usize = 100_000;
/// The most characters of a text that the upstream wrote (our choice).
const TEXT_MAX_CHARS: usize = 1000;

/// An image that a result shows.
#[derive(Debug)]
pub(super) struct ResultImage {
    /// The id of the image.
    pub(super) id: ImageId,
    /// The link to the file.
    pub(super) url: String,
    /// The media type of the file.
    pub(super) media_type: String,
    /// The length of the file in bytes.
    pub(super) bytes: usize,
    /// Width and height, if the file states them.
    pub(super) size: Option<(u32, u32)>,
    /// The prompt as the upstream revised it.
    pub(super) revised_prompt: Option<String>,
    /// A small JPEG file.
    pub(super) preview: Option<Vec<u8>>,
}

/// Returns the result with these images.
pub(super) fn show_images(images: &[ResultImage]) -> CallToolResult {
    let lines = images.iter().map(ResultImage::line);
    let mut text = lines.collect::<Vec<_>>().join("\n");
    text.push_str("\nThe pictures here are small previews. Give the link to the user, or download it; give the id to edit_image or fetch_image.");
    let mut content = vec![ContentBlock::text(text)];
    for image in images {
        if let Some(preview) = &image.preview {
            content.push(ContentBlock::image(STANDARD.encode(preview), PREVIEW_TYPE));
        }
        let link = Resource::new(&image.url, image.id.to_string()).with_mime_type(&image.media_type);
        content.push(ContentBlock::resource_link(link));
    }
    let values: Vec<Value> = images.iter().map(ResultImage::value).collect();
    let mut result = CallToolResult::success(content);
    result.structured_content = Some(json!({ "status": "completed", "images": values }));
    bounded(result)
}

/// Returns the result of a call whose images are not finished.
pub(super) fn show_running(call: CallDigest) -> CallToolResult {
    let id = call.image(0);
    let text = format!(
        "The image is not finished yet. It is being made, and is paid for once. Call fetch_image with the id {id}, or repeat this call with the same arguments, to get it."
    );
    let mut result = CallToolResult::success(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "status": "in_progress", "images": [{ "id": id.to_string() }] }));
    result
}

/// Returns a result that is one JSON value.
pub(super) fn show_value(value: Value) -> CallToolResult {
    bounded(CallToolResult::structured(value))
}

/// Returns the result of a call that was refused.
pub(super) fn show_error(error: &Error) -> CallToolResult {
    show_error_body(&error.body(), "")
}

/// Adds to a result the changes that dialects made to the request, if there are any.
pub(super) fn show_changes(mut result: CallToolResult, adapted: Option<&str>) -> CallToolResult {
    let text = adapted.map(|adapted| ContentBlock::text(format!("Changed in the request: {adapted}")));
    result.content.extend(text);
    bounded(result)
}

/// Returns the result of a call for images that has failed with this error.
pub(super) fn show_call_error(call: CallDigest, error: &Error) -> CallToolResult {
    match error {
        Error::Invalid(rejection) if rejection.reason == Some(RejectionReason::IdempotencyKeyReused) => {
            show_changed_request(call)
        }
        Error::Upstream(_) => show_failure(&error.body(), false),
        error => show_error(error),
    }
}

/// Returns the result of a call that was made before, when the gateway made another request of it.
fn show_changed_request(call: CallDigest) -> CallToolResult {
    let id = call.image(0);
    let text = format!(
        "The same call was made before, and the settings of the gateway have changed since. Call fetch_image with the id {id} to get the earlier image, or give another 'variation' to make a new one."
    );
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "status": "failed", "images": [{ "id": id.to_string() }] }));
    result
}

/// Returns the result of a call for images that has failed with this body of an error answer of the API.
pub(super) fn show_failure(body: &Value, may_repeat: bool) -> CallToolResult {
    let advice = if may_repeat {
        " Repeat the call later."
    } else {
        " The same call may get this error again without another attempt. To try again, give another 'variation'."
    };
    show_error_body(body, advice)
}

fn show_error_body(body: &Value, advice: &str) -> CallToolResult {
    let error = &body["error"];
    let code = error["code"].as_str().unwrap_or("error");
    let text = format!("{} ({code}){advice}", shortened(error["message"].as_str().unwrap_or("The request failed.")));
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(json!({ "status": "failed", "code": code, "param": error["param"] }));
    bounded(result)
}

/// Removes the previews from a result that is too large, and replaces one that is too large even so.
fn bounded(mut result: CallToolResult) -> CallToolResult {
    let is_small =
        |result: &CallToolResult| serde_json::to_string(result).is_ok_and(|text| text.len() <= RESULT_MAX_BYTES);
    if !is_small(&result) {
        result.content.retain(|block| block.as_image().is_none());
    }
    if is_small(&result) {
        return result;
    }
    CallToolResult::error(vec![ContentBlock::text("The result is too large to be shown.")])
}

fn shortened(text: &str) -> String {
    let mut shortened: String = text.chars().take(TEXT_MAX_CHARS).collect();
    if shortened.len() < text.len() {
        shortened.push('…');
    }
    shortened
}

// === impl ResultImage ===

impl ResultImage {
    fn line(&self) -> String {
        let size = self.size.map(|(width, height)| format!("{width}x{height} ")).unwrap_or_default();
        format!("Image {}: {size}{}, {} bytes, {}", self.id, self.media_type, self.bytes, self.url)
    }

    fn value(&self) -> Value {
        let mut value = json!({
            "id": self.id.to_string(), "url": self.url, "media_type": self.media_type, "bytes": self.bytes,
        });
        if let Some((width, height)) = self.size {
            value["size"] = json!(format!("{width}x{height}"));
        }
        if let Some(prompt) = &self.revised_prompt {
            value["revised_prompt"] = json!(shortened(prompt));
        }
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::mcp::arguments::ToolArguments;
    use crate::gateway::mcp::preview::PREVIEWS_MAX_BYTES;

    fn image(index: u8, preview: usize, prompt: usize) -> ResultImage {
        ResultImage {
            id: CallDigest::of("generate_image", &ToolArguments::default()).image(index),
            url: format!("http://127.0.0.1:8080/v1/images/files/{}", "a".repeat(160)),
            media_type: "image/png".to_owned(),
            bytes: 3_000_000,
            size: Some((1024, 1024)),
            revised_prompt: Some("🦀".repeat(prompt)),
            preview: Some(vec![7; preview]),
        }
    }

    fn length(result: &CallToolResult) -> usize {
        serde_json::to_string(result).unwrap().len()
    }

    fn previews(result: &CallToolResult) -> usize {
        result.content.iter().filter(|block| block.as_image().is_some()).count()
    }

    #[test]
    fn a_result_with_the_most_images_is_small_enough() {
        for count in [1, 4, 10] {
            let images: Vec<_> =
                (0..count).map(|index| image(index, PREVIEWS_MAX_BYTES / usize::from(count), 100)).collect();
            let result = show_changes(show_images(&images), Some("size 512x512->1024x1024"));
            assert!(length(&result) <= RESULT_MAX_BYTES);
            assert_eq!(previews(&result), usize::from(count), "the previews are shown");
        }
    }

    #[test]
    fn a_result_that_would_be_too_large_has_no_previews() {
        let images: Vec<_> = (0..10).map(|index| image(index, PREVIEWS_MAX_BYTES, 32_000)).collect();
        let result = show_images(&images);
        assert!(length(&result) <= RESULT_MAX_BYTES);
        assert_eq!((previews(&result), result.is_error), (0, Some(false)));
        let long = show_value(json!({ "models": "m".repeat(RESULT_MAX_BYTES) }));
        assert!(length(&long) <= RESULT_MAX_BYTES && long.is_error == Some(true));
    }

    #[test]
    fn a_failure_says_the_code_and_the_parameter() {
        let body = json!({"error": {"message": "'size' is wrong.", "code": "invalid_request", "param": "size"}});
        let result = show_error_body(&body, "");
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.content[0].as_text().unwrap().text, "'size' is wrong. (invalid_request)");
        assert_eq!(result.structured_content.unwrap()["param"], "size");
    }
}
