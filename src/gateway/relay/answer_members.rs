//! The members around the images: fills in those that the upstream left out, and resolves those that it left open.
//!
//! Pure. The types that clients enforce are those of the contract: `created` in whole seconds, `background` and, in
//! answers, `quality` never `auto`, `size` the pixels really delivered, `usage` complete and in whole numbers.

use serde_json::{Map, Value, json};

use super::undocumented_members;
use crate::image::ImageProperties;

/// The parts of the request that the answer repeats.
#[derive(Clone, Debug)]
pub(crate) struct RequestedAnswer {
    /// The model id, verbatim.
    pub(crate) model: String,
    /// The prompt, the default of `revised_prompt`.
    pub(crate) prompt: String,
    /// The most images in the answer.
    pub(crate) count: usize,
    /// The most intermediate images in the answer.
    pub(crate) partials: u32,
    /// The prefix of event names, before the dot.
    pub(crate) event_prefix: &'static str,
    /// True if the caller wants events.
    pub(crate) stream: bool,
    /// True if the answer is to be one image among others, without anything around it.
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

/// The token counts of an answer, as the upstream reported them: one for each model, because each has its own price.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerUsage {
    /// The model that makes images.
    pub(crate) image: Option<TokenCounts>,
    /// The text model that runs the image tool, or makes a response without one.
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
}

/// The word for a quality that the model chooses.
const AUTO: &str = "auto";
/// The most bytes of a name or word. A longer one is ignored.
const NAME_MAX: usize = 128;

/// Returns every member of the answer that the document has, except `data`. The words are the upstream's own, also
/// those of a later version; the format and the size are those of the image itself, if its head states them.
pub(super) fn answer_members(
    requested: &RequestedAnswer,
    received: &Map<String, Value>,
    first: Option<ImageProperties>,
) -> Map<String, Value> {
    let mut out = Map::new();
    let created =
        received.get("created").or_else(|| received.get("created_at")).and_then(parse_seconds).unwrap_or(requested.now);
    out.insert("created".to_owned(), created.into());
    out.insert("background".to_owned(), descriptive_word(received, "background").unwrap_or("opaque").into());
    let model = model_name(received, "model").unwrap_or(&requested.model);
    out.insert("model".to_owned(), model.into());
    let format =
        first.map(|properties| properties.format.as_str()).or_else(|| descriptive_word(received, "output_format"));
    out.insert("output_format".to_owned(), format.unwrap_or(requested.output_format).into());
    // A quality that neither side names is not made up.
    let quality = quality(received, "quality").or(requested.quality.as_deref());
    out.extend(quality.map(|quality| ("quality".to_owned(), quality.into())));
    let pixels = first.map(|facts| format!("{}x{}", facts.width, facts.height));
    let size =
        pixels.or_else(|| descriptive_word(received, "size").map(str::to_owned)).or_else(|| requested.size.clone());
    out.extend(size.map(|size| ("size".to_owned(), size.into())));
    // Unknown tokens are not made up either.
    let usage = received.get("usage").and_then(normalized_usage);
    out.extend(usage.map(|usage| ("usage".to_owned(), usage)));
    out
}

/// Returns the quality that the upstream names in this member. `auto` names none.
pub(super) fn quality<'a>(received: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    descriptive_word(received, key)
}

/// Returns the name of a model if a member is one: short, and without invisible characters.
pub(super) fn model_name<'a>(received: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    let value = received.get(key).and_then(Value::as_str)?;
    (!value.is_empty() && value.len() <= NAME_MAX && value.bytes().all(|byte| byte.is_ascii_graphic())).then_some(value)
}

/// Returns the upstream's word about an image if a member is one, known or not. `auto` states nothing.
fn descriptive_word<'a>(received: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    let value = received.get(key).and_then(Value::as_str)?;
    let fits = !value.trim().is_empty() && value.len() <= NAME_MAX && !value.contains(is_hidden);
    (fits && value != AUTO).then_some(value)
}

/// True for control characters, and for those that reverse a text or cannot be seen.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Returns every member of an event that the document has, except its type and its image. The real events have neither
/// a model nor a prompt, so none is added; one that the upstream names is passed on. The official types have no event
/// without a quality, so an unnamed quality is `auto`, which they know.
pub(super) fn event_members(
    requested: &RequestedAnswer,
    received: &Map<String, Value>,
    properties: Option<ImageProperties>,
) -> Map<String, Value> {
    let mut out = answer_members(requested, received, properties);
    if model_name(received, "model").is_none() {
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

/// Returns every member of an element of `data` that the document has, except the image.
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

/// Adds the usage of two images, each in the form of [`normalized_usage`]: every count is added up.
pub(super) fn add_usage(mut one: Value, other: Value) -> Value {
    match (&mut one, other) {
        (Value::Object(sums), Value::Object(counts)) => {
            for (name, count) in counts {
                let sum = match sums.remove(&name) {
                    Some(sum) => add_usage(sum, count),
                    None => count,
                };
                sums.insert(name, sum);
            }
            one
        }
        (Value::Number(sum), Value::Number(count)) => match (sum.as_u64(), count.as_u64()) {
            (Some(sum), Some(count)) => sum.saturating_add(count).into(),
            _ => (sum.as_f64().unwrap_or(0.0) + count.as_f64().unwrap_or(0.0)).into(),
        },
        _ => one,
    }
}

/// The members that an item without an image may have.
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

/// True if a final event without an image states a reason. One without a reason may be about an image that was made.
pub(super) fn states_reason(members: &Map<String, Value>) -> bool {
    ["error", "message", "refusal", "text"].iter().any(|key| members.get(*key).is_some_and(|value| !value.is_null()))
}

/// True if a member of an item can stand for an image that was made: anything except words and `null`.
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
    let input_image = detail("input_tokens_details", "image_tokens").unwrap_or(0);
    let output_text = detail("output_tokens_details", "text_tokens").unwrap_or(0);
    Some(TokenCounts {
        input,
        input_image,
        input_text: detail("input_tokens_details", "text_tokens").unwrap_or(input.saturating_sub(input_image)),
        output,
        output_image: detail("output_tokens_details", "image_tokens").unwrap_or(output.saturating_sub(output_text)),
        output_text,
        total: object.get("total_tokens").and_then(parse_count).unwrap_or(input.saturating_add(output)),
    })
}

/// Adds both counts, if there are any.
pub(crate) fn sum_usage(one: Option<AnswerUsage>, other: Option<AnswerUsage>) -> Option<AnswerUsage> {
    combine(one, other, |one, other| AnswerUsage {
        image: sum_tokens(one.image, other.image),
        host: sum_tokens(one.host, other.host),
        total: one.total.saturating_add(other.total),
    })
}

/// Adds the counts of one model.
fn sum_tokens(one: Option<TokenCounts>, other: Option<TokenCounts>) -> Option<TokenCounts> {
    combine(one, other, TokenCounts::plus)
}

fn combine<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

/// Returns the token counts of an answer of the image endpoints.
pub(super) fn usage_from_answer(members: &Map<String, Value>) -> Option<AnswerUsage> {
    AnswerUsage::from_models(members.get("usage").and_then(parse_token_counts), None)
}

/// Returns the token counts of a response, in which `usage` counts the tokens of the text model.
pub(super) fn usage_from_response(response: &Map<String, Value>) -> Option<AnswerUsage> {
    AnswerUsage::from_models(image_token_counts(response), response.get("usage").and_then(parse_token_counts))
}

/// Returns the token counts of the images of a response, as the image endpoints would report them; if the upstream does
/// not count them apart, those of the whole response.
pub(super) fn image_usage_for_caller(response: &Map<String, Value>) -> Option<Value> {
    image_usage(response).and_then(normalized_usage).or_else(|| {
        let text = response.get("usage").and_then(parse_token_counts)?;
        let all =
            TokenCounts { input_image: 0, input_text: text.input, output_image: 0, output_text: text.output, ..text };
        Some(all.to_json())
    })
}

fn image_token_counts(response: &Map<String, Value>) -> Option<TokenCounts> {
    image_usage(response).and_then(parse_token_counts)
}

fn image_usage(response: &Map<String, Value>) -> Option<&Value> {
    response.get("tool_usage")?.get("image_gen")
}

/// Decodes the complete part of a head of base64, and reads the properties of the image in it.
pub(super) fn properties_from_base64(
    head: &[u8],
    probe: fn(&[u8]) -> Option<ImageProperties>,
) -> Option<ImageProperties> {
    use base64::Engine as _;
    let plain: Vec<u8> = head.iter().copied().filter(|byte| *byte != b'\\' && *byte != b'=').collect();
    let whole = plain.len() / 4 * 4;
    let bytes = base64::engine::general_purpose::STANDARD_NO_PAD.decode(&plain[..whole]).ok()?;
    probe(&bytes)
}

/// Returns whole seconds that fit the clients' types; some upstreams send a fraction.
fn parse_seconds(value: &Value) -> Option<i64> {
    parse_count(value).filter(|seconds| *seconds > 0).and_then(|seconds| u32::try_from(seconds).ok()).map(i64::from)
}

/// Returns a count in any spelling that is whole and not negative.
fn parse_count(value: &Value) -> Option<u64> {
    /// Beyond this number a float no longer represents every integer.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    value.as_u64().or_else(|| {
        let float = value.as_f64().filter(|float| (0.0..=EXACT).contains(float))?;
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
    /// Joins the counts of both models, if there is one of either.
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
