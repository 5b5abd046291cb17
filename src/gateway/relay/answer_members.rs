//! The JSON members of an answer, apart from the base64 of its images: adds members that the upstream left out, and
//! replaces `auto` by the real value.
//!
//! Pure: no I/O and no clock. Clients enforce the types of the contract: `created` is in whole seconds, `background` is
//! never `auto`, nor is the `quality` of an answer without events, `size` states the pixels that were delivered, and
//! `usage` is complete, in whole numbers.

use serde_json::{Map, Value};

use super::answer_usage::{normalized_usage, parse_count};
use crate::image::{ImageProperties, OtherContent};

/// The parts of the request that the answer repeats.
#[derive(Clone, Debug, Default)]
pub(crate) struct RequestedAnswer {
    /// The model id, verbatim.
    pub(crate) model: String,
    /// The prompt, the default of `revised_prompt`.
    pub(crate) prompt: String,
    /// The number of requested images: the answer has at most as many.
    pub(crate) count: usize,
    /// The number of requested intermediate images: the answer has at most as many.
    pub(crate) partials: u32,
    /// The prefix of event names, before the dot.
    pub(crate) event_prefix: &'static str,
    /// True if the caller wants events.
    pub(crate) stream: bool,
    /// True if only an element of `data` is wanted, because it becomes part of a larger answer.
    pub(crate) is_single_element: bool,
    /// The quality, such as `low`, unless the model chooses.
    pub(crate) quality: Option<String>,
    /// The size as `<width>x<height>`, unless the model chooses.
    pub(crate) size: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub(crate) output_format: &'static str,
    /// The current time in Unix seconds.
    pub(crate) now: i64,
}

/// The word for a quality that the model chooses.
const AUTO: &str = "auto";
/// The most bytes of a model name or a descriptive word (our choice). A longer text is ignored.
const NAME_MAX: usize = 128;

/// Returns every documented member of an answer, except `data`. Descriptive words are passed on as the upstream sends
/// them, even if they are unknown; format and size come from the first bytes of the first image, if those
/// state them.
pub(super) fn answer_members(
    requested: &RequestedAnswer,
    received: &Map<String, Value>,
    first_image: Option<ImageProperties>,
) -> Map<String, Value> {
    let mut out = Map::new();
    let created =
        received.get("created").or_else(|| received.get("created_at")).and_then(parse_seconds).unwrap_or(requested.now);
    out.insert("created".to_owned(), created.into());
    out.insert("background".to_owned(), descriptive_word(received, "background").unwrap_or("opaque").into());
    let model = model_name(received).unwrap_or(&requested.model);
    out.insert("model".to_owned(), model.into());
    let format = first_image
        .map(|properties| properties.format.as_str())
        .or_else(|| descriptive_word(received, "output_format"));
    out.insert("output_format".to_owned(), format.unwrap_or(requested.output_format).into());
    // If neither side names a quality, the member is left out.
    let quality = quality(received).or(requested.quality.as_deref());
    out.extend(quality.map(|quality| ("quality".to_owned(), quality.into())));
    let pixels = first_image.map(|properties| format!("{}x{}", properties.width, properties.height));
    let size =
        pixels.or_else(|| descriptive_word(received, "size").map(str::to_owned)).or_else(|| requested.size.clone());
    out.extend(size.map(|size| ("size".to_owned(), size.into())));
    // Unknown token counts are left out too.
    let usage = received.get("usage").and_then(normalized_usage);
    out.extend(usage.map(|usage| ("usage".to_owned(), usage)));
    out
}

/// States the format of an image that is in none of the formats that a request can name. Its size is stated only if the
/// upstream states it.
pub(super) fn state_other_format(
    members: &mut Map<String, Value>,
    received: &Map<String, Value>,
    content: Option<OtherContent>,
) {
    let Some(OtherContent::Image(format)) = content else { return };
    members.insert("output_format".to_owned(), format.into());
    if descriptive_word(received, "size").is_none() {
        members.remove("size");
    }
}

/// Returns the quality that the upstream names; `None` for `auto`.
pub(super) fn quality(received: &Map<String, Value>) -> Option<&str> {
    descriptive_word(received, "quality")
}

/// Returns the model if it is a name: at most `NAME_MAX` bytes, all of them visible ASCII.
pub(super) fn model_name(received: &Map<String, Value>) -> Option<&str> {
    let value = received.get("model").and_then(Value::as_str)?;
    (!value.is_empty() && value.len() <= NAME_MAX && value.bytes().all(|byte| byte.is_ascii_graphic())).then_some(value)
}

/// Returns the value of a member if it is a word that describes an image, known to this version or not; `None` for
/// `auto`.
fn descriptive_word<'a>(received: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    let value = received.get(key).and_then(Value::as_str)?;
    let fits = !value.trim().is_empty() && value.len() <= NAME_MAX && !value.contains(is_hidden);
    (fits && value != AUTO).then_some(value)
}

/// True for control characters, and for characters that are invisible or change the direction of a text.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns every documented member of an event, except its type and its image. The events of OpenAI have neither a
/// model nor a prompt, so these are only passed on, not added. The types of the official SDKs demand a quality in every
/// event, so an unknown quality becomes `auto`, which they accept.
pub(super) fn event_members(
    requested: &RequestedAnswer,
    received: &Map<String, Value>,
    properties: Option<ImageProperties>,
) -> Map<String, Value> {
    let mut out = answer_members(requested, received, properties);
    if model_name(received).is_none() {
        out.remove("model");
    }
    let revised = received.get("revised_prompt").filter(|revised| revised.is_string());
    out.extend(revised.map(|revised| ("revised_prompt".to_owned(), revised.clone())));
    out.entry("quality").or_insert_with(|| AUTO.into());
    if let Some(created) = out.remove("created") {
        out.insert("created_at".to_owned(), created);
    }
    out
}

/// Returns every documented member of an element of `data`, except the image.
pub(super) fn item_members(requested: &RequestedAnswer, received: &Map<String, Value>) -> Map<String, Value> {
    let revised = received.get("revised_prompt").and_then(Value::as_str).unwrap_or(&requested.prompt);
    Map::from_iter([("revised_prompt".to_owned(), revised.into())])
}

/// Adds the usage of two images, each in the form of [`normalized_usage`], count by count. Of two other
/// values, or of values of different types, the first stays.
pub(super) fn add_usage(mut first: Value, second: Value) -> Value {
    match (&mut first, second) {
        (Value::Object(sums), Value::Object(counts)) => {
            for (name, count) in counts {
                let sum = match sums.remove(&name) {
                    Some(sum) => add_usage(sum, count),
                    None => count,
                };
                sums.insert(name, sum);
            }
            first
        }
        (Value::Number(sum), Value::Number(count)) => match (sum.as_u64(), count.as_u64()) {
            (Some(sum), Some(count)) => sum.saturating_add(count).into(),
            _ => (sum.as_f64().unwrap_or(0.0) + count.as_f64().unwrap_or(0.0)).into(),
        },
        _ => first,
    }
}

/// The members of an item that do not stand for an image.
const NON_IMAGE_MEMBERS: &[&str] = &[
    "code",
    "content_filter_results",
    "error",
    "message",
    "param",
    "prompt_filter_results",
    "refusal",
    "respect_moderation",
    "revised_prompt",
    "sequence_number",
    "text",
    "type",
    "usage",
];

/// True if a final event without an image states a reason. Without a reason, the event may belong to an image that was
/// made.
pub(super) fn states_reason(members: &Map<String, Value>) -> bool {
    ["error", "message", "refusal", "text"].iter().any(|key| members.get(*key).is_some_and(|value| !value.is_null()))
}

/// True if a member of an item can stand for an image that was made, such as a URL: any member except those of
/// `NON_IMAGE_MEMBERS` and `null`.
pub(super) fn is_image_substitute(key: &str, value: &Value) -> bool {
    if key == "response" {
        // A whole response, at the end of its events: only its output can hold an image.
        return value.get("output").is_none_or(|output| output.as_array().is_none_or(|output| !output.is_empty()));
    }
    !value.is_null() && !NON_IMAGE_MEMBERS.contains(&key)
}

/// Decodes the beginning of an image's base64, without a last incomplete group of four characters.
pub(super) fn decode_base64_head(head: &[u8]) -> Option<Vec<u8>> {
    use base64::Engine as _;
    let plain = head.split(|byte| *byte == b'=').next().unwrap_or_default();
    let complete = plain.len() / 4 * 4;
    base64::engine::general_purpose::STANDARD_NO_PAD.decode(&plain[..complete]).ok()
}

/// Returns a time in whole Unix seconds, if it is positive and fits into 32 bits, as the types of clients demand. Some
/// upstreams send a fraction, which is cut off.
fn parse_seconds(value: &Value) -> Option<i64> {
    parse_count(value).filter(|seconds| *seconds > 0).and_then(|seconds| u32::try_from(seconds).ok()).map(i64::from)
}

#[cfg(test)]
mod tests;
