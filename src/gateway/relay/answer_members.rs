//! The JSON members of an answer, apart from the base64 of its images: adds members that the upstream left out, and
//! replaces `auto` by the real value.
//!
//! Pure: no I/O and no clock. Clients enforce the types of the contract: `created` is in whole seconds, `background` is
//! never `auto`, nor is the `quality` of an answer without events, `size` states the pixels that were delivered, and
//! `usage` is complete, in whole numbers.

use serde_json::{Map, Value, json};

use super::undocumented_members;
use crate::image::ImageProperties;

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

/// The token counts of an answer, as the upstream reported them. They are separate for each model, because each model
/// has its own price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerUsage {
    /// The tokens of the model that makes images.
    pub(crate) image: Option<TokenCounts>,
    /// The tokens of the text model, which runs the image tool or answers a response.
    pub(crate) host: Option<TokenCounts>,
    /// All tokens of both models.
    pub(crate) total: u64,
}

/// Token counts of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenCounts {
    /// Text and image tokens of the request.
    pub(crate) input: u64,
    /// Image tokens of the request.
    pub(crate) input_image: u64,
    /// Text tokens of the request.
    pub(crate) input_text: u64,
    /// Text and image tokens of the answer.
    pub(crate) output: u64,
    /// Image tokens of the answer.
    pub(crate) output_image: u64,
    /// Text tokens of the answer.
    pub(crate) output_text: u64,
    /// All tokens of the model.
    pub(crate) total: u64,
    /// The text tokens of the request that the upstream had in its cache.
    pub(crate) cached_text: u64,
    /// The image tokens of the request that the upstream had in its cache.
    pub(crate) cached_image: u64,
    /// True if the upstream did not state the kinds of the tokens of the request.
    pub(crate) is_breakdown_assumed: bool,
    /// True if the upstream did not state the kinds of the cached tokens, and both kinds are possible.
    pub(crate) is_cache_breakdown_assumed: bool,
    /// The number of calls that gave an image and whose tokens are missing here, because the upstream did not count them.
    pub(crate) uncounted_calls: u32,
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

/// Returns the token counts in the form that clients enforce, with any other counts of the upstream; `None` if nothing
/// can be counted.
pub(super) fn normalized_usage(received: &Value) -> Option<Value> {
    let mut usage = parse_token_counts(received)?.to_json();
    undocumented_members::add_missing(&mut usage, received);
    Some(usage)
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

/// Reads the token counts; `None` if nothing can be counted.
fn parse_token_counts(value: &Value) -> Option<TokenCounts> {
    let object = value.as_object()?;
    let input = object.get("input_tokens").and_then(parse_count);
    let output = object.get("output_tokens").and_then(parse_count);
    if input.is_none() && output.is_none() {
        return None;
    }
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    let detail =
        |group: &str, name: &str| object.get(group).and_then(|details| details.get(name)).and_then(parse_count);
    let stated_image = detail("input_tokens_details", "image_tokens");
    let stated_text = detail("input_tokens_details", "text_tokens");
    let input_image = stated_image.unwrap_or(0);
    let input_text = stated_text.unwrap_or(input.saturating_sub(input_image));
    let cached = cached_token_counts(object.get("input_tokens_details"), input_text);
    let output_text = detail("output_tokens_details", "text_tokens").unwrap_or(0);
    Some(TokenCounts {
        input,
        input_image,
        input_text,
        output,
        output_image: detail("output_tokens_details", "image_tokens").unwrap_or(output.saturating_sub(output_text)),
        output_text,
        total: object.get("total_tokens").and_then(parse_count).unwrap_or(input.saturating_add(output)),
        cached_text: cached.text,
        cached_image: cached.image,
        is_breakdown_assumed: stated_image.is_none() && stated_text.is_none() && input > 0,
        is_cache_breakdown_assumed: cached.is_breakdown_assumed && input_image > 0,
        uncounted_calls: 0,
    })
}

/// The tokens of a request that the upstream had in its cache.
#[derive(Default)]
struct CachedTokenCounts {
    text: u64,
    image: u64,
    /// True if only their sum is known, and there are some.
    is_breakdown_assumed: bool,
}

/// Reads the cached tokens from the details of the input tokens. If the upstream states only their sum, text tokens come
/// first, because caching saves the least for them.
fn cached_token_counts(details: Option<&Value>, input_text: u64) -> CachedTokenCounts {
    let Some(details) = details else { return CachedTokenCounts::default() };
    let kinds = details.get("cached_tokens_details");
    let kind = |name: &str| kinds.and_then(|kinds| kinds.get(name)).and_then(parse_count);
    match (kind("text_tokens"), kind("image_tokens")) {
        (None, None) => {
            let sum = details.get("cached_tokens").and_then(parse_count).unwrap_or(0);
            let text = sum.min(input_text);
            CachedTokenCounts { text, image: sum - text, is_breakdown_assumed: sum > 0 }
        }
        (text, image) => {
            CachedTokenCounts { text: text.unwrap_or(0), image: image.unwrap_or(0), is_breakdown_assumed: false }
        }
    }
}

/// Adds the counts of two answers; `None` if neither has any.
pub(crate) fn sum_usage(first: Option<AnswerUsage>, second: Option<AnswerUsage>) -> Option<AnswerUsage> {
    first.into_iter().chain(second).reduce(|first, second| AnswerUsage {
        image: sum_tokens(first.image, second.image),
        host: sum_tokens(first.host, second.host),
        total: first.total.saturating_add(second.total),
    })
}

/// Adds the counts of one model.
fn sum_tokens(first: Option<TokenCounts>, second: Option<TokenCounts>) -> Option<TokenCounts> {
    first.into_iter().chain(second).reduce(TokenCounts::plus)
}

/// Returns the token counts of an answer of the image endpoints.
pub(super) fn usage_from_answer(members: &Map<String, Value>) -> Option<AnswerUsage> {
    AnswerUsage::from_models(members.get("usage").and_then(parse_token_counts), None)
}

/// Returns the token counts of a response, in which `usage` counts the tokens of the text model.
pub(super) fn usage_from_response(response: &Map<String, Value>) -> Option<AnswerUsage> {
    let image = image_usage(response).and_then(parse_token_counts);
    AnswerUsage::from_models(image, response.get("usage").and_then(parse_token_counts))
}

/// Returns the token counts of the images of a response, in the form of the image endpoints. If the upstream does not
/// count them separately, returns the counts of the whole response.
pub(super) fn image_usage_for_caller(response: &Map<String, Value>) -> Option<Value> {
    image_usage(response).and_then(normalized_usage).or_else(|| {
        let all = response.get("usage").and_then(parse_token_counts)?;
        let as_text =
            TokenCounts { input_image: 0, input_text: all.input, output_image: 0, output_text: all.output, ..all };
        Some(as_text.to_json())
    })
}

fn image_usage(response: &Map<String, Value>) -> Option<&Value> {
    response.get("tool_usage")?.get("image_gen")
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

/// Returns a count that is not negative. A count may be written as a float; its fraction is cut off.
fn parse_count(value: &Value) -> Option<u64> {
    /// The greatest number up to which a 64-bit float represents every integer (2^53).
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| (0.0..=EXACT_MAX).contains(float))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked to be in range; a fraction is cut off"
        )]
        Some(float as u64)
    })
}

// === impl AnswerUsage ===

impl AnswerUsage {
    /// Joins the counts of both models; `None` if neither has any.
    pub(super) fn from_models(image: Option<TokenCounts>, host: Option<TokenCounts>) -> Option<Self> {
        let total = sum_tokens(image, host)?.total;
        Some(Self { image, host, total })
    }
}

// === impl TokenCounts ===

impl TokenCounts {
    /// Adds both counts.
    const fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            input_image: self.input_image.saturating_add(other.input_image),
            input_text: self.input_text.saturating_add(other.input_text),
            output: self.output.saturating_add(other.output),
            output_image: self.output_image.saturating_add(other.output_image),
            output_text: self.output_text.saturating_add(other.output_text),
            total: self.total.saturating_add(other.total),
            cached_text: self.cached_text.saturating_add(other.cached_text),
            cached_image: self.cached_image.saturating_add(other.cached_image),
            is_breakdown_assumed: self.is_breakdown_assumed || other.is_breakdown_assumed,
            is_cache_breakdown_assumed: self.is_cache_breakdown_assumed || other.is_cache_breakdown_assumed,
            uncounted_calls: self.uncounted_calls.saturating_add(other.uncounted_calls),
        }
    }

    /// Returns the complete object of the contract.
    fn to_json(self) -> Value {
        json!({
            "input_tokens": self.input,
            "input_tokens_details": {"image_tokens": self.input_image, "text_tokens": self.input_text},
            "output_tokens": self.output,
            "output_tokens_details": {"image_tokens": self.output_image, "text_tokens": self.output_text},
            "total_tokens": self.total,
        })
    }
}

#[cfg(test)]
mod tests;
