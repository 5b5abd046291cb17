//! The members around the images: what the upstream left out is filled in, what it left open is resolved.
//!
//! Pure. The types that clients enforce are those of the contract: `created` in whole seconds, `background` and, in
//! answers, `quality` never `auto`, `size` the pixels really delivered, `usage` complete and whole.

use serde_json::{Map, Value, json};

use crate::image::Facts;

/// What the caller asked for, as far as the answer repeats it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// The model id, verbatim.
    pub(crate) model: String,
    /// The prompt: what `revised_prompt` falls back to.
    pub(crate) prompt: String,
    /// How many images at most.
    pub(crate) count: usize,
    /// How many intermediate images at most.
    pub(crate) partials: u32,
    /// What events are called before the dot.
    pub(crate) events: &'static str,
    /// Whether the caller wants events.
    pub(crate) stream: bool,
    /// Whether the answer is to be one image among others, without anything around it.
    pub(crate) part: bool,
    /// Such as `low`, unless the model chooses.
    pub(crate) quality: Option<String>,
    /// `<width>x<height>`, unless the model chooses.
    pub(crate) size: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub(crate) output_format: &'static str,
    /// Unix seconds now.
    pub(crate) now: i64,
}

/// The token counts of an answer, as the upstream reported them: one for each model, because each has a price of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// The model that makes images.
    pub(crate) image: Option<TokenCounts>,
    /// The text model that runs the image tool, or makes a response without one.
    pub(crate) host: Option<TokenCounts>,
    /// All tokens of both.
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
    /// All of them.
    pub(crate) total: u64,
}

/// The word for a quality that the model chooses.
const AUTO: &str = "auto";
/// Qualities that the document has for answers.
const QUALITIES: [&str; 3] = ["low", "medium", "high"];
/// A longer name is none.
const NAME_MAX: usize = 128;

/// Every member of the answer but `data`. Nothing else that an upstream says goes on: it may speak of its account.
pub(super) fn members(asked: &Asked, found: &Map<String, Value>, first: Option<Facts>) -> Map<String, Value> {
    let mut out = Map::new();
    let created = found.get("created").or_else(|| found.get("created_at")).and_then(seconds).unwrap_or(asked.now);
    out.insert("created".to_owned(), created.into());
    let background = found.get("background").and_then(Value::as_str).filter(|said| *said == "transparent");
    out.insert("background".to_owned(), background.unwrap_or("opaque").into());
    let model = name(found, "model").unwrap_or(&asked.model);
    out.insert("model".to_owned(), model.into());
    let format = first.map_or(asked.output_format, |facts| facts.format.as_str());
    out.insert("output_format".to_owned(), format.into());
    let asked_quality = asked.quality.as_deref();
    let quality = quality(found, "quality").filter(|named| QUALITIES.contains(named) || asked_quality == Some(named));
    // A quality that nobody has named is not made up.
    out.extend(quality.or(asked_quality).map(|quality| ("quality".to_owned(), quality.into())));
    let pixels = first.map(|facts| format!("{}x{}", facts.width, facts.height));
    let size = pixels.or_else(|| said_size(found)).or_else(|| asked.size.clone());
    out.extend(size.map(|size| ("size".to_owned(), size.into())));
    // Nor are tokens that are not known.
    let usage = found.get("usage").and_then(tokens);
    out.extend(usage.map(|usage| ("usage".to_owned(), usage.to_json())));
    out
}

/// The quality that the upstream names in this member. `auto` names none.
pub(super) fn quality<'a>(found: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    name(found, key).filter(|named| *named != AUTO)
}

/// The name of a model, or a word like it, where a member is one: short, and without anything invisible.
pub(super) fn name<'a>(found: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    let said = found.get(key).and_then(Value::as_str)?;
    (!said.is_empty() && said.len() <= NAME_MAX && said.bytes().all(|byte| byte.is_ascii_graphic())).then_some(said)
}

/// The size as the upstream says it, if it is one.
fn said_size(found: &Map<String, Value>) -> Option<String> {
    let said = found.get("size").and_then(Value::as_str)?;
    let (width, height) = said.split_once('x')?;
    let number = |edge: &str| edge.parse::<u32>().is_ok_and(|edge| (1..=65_535).contains(&edge));
    (number(width) && number(height)).then(|| said.to_owned())
}

/// Every member of an event but its type and its image. The events of the field have no model; their answers have. The
/// official types have no event without a quality, so one that nobody has named is `auto`, which they know.
pub(super) fn event_members(asked: &Asked, found: &Map<String, Value>, facts: Option<Facts>) -> Map<String, Value> {
    let mut out = members(asked, found, facts);
    out.remove("model");
    out.entry("quality").or_insert_with(|| AUTO.into());
    if let Some(created) = out.remove("created") {
        out.insert("created_at".to_owned(), created);
    }
    out
}

/// Every member of an element of `data` but the image.
pub(super) fn item_members(asked: &Asked, found: &Map<String, Value>) -> Map<String, Value> {
    let revised = found.get("revised_prompt").and_then(Value::as_str).unwrap_or(&asked.prompt);
    Map::from_iter([("revised_prompt".to_owned(), revised.into())])
}

/// What an item may say without having an image.
const WORDS: &[&str] = &[
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

/// Whether a final event without an image says why. One that does not may be about an image that was made.
pub(super) fn says_why(members: &Map<String, Value>) -> bool {
    ["error", "message", "refusal", "text"].iter().any(|key| members.get(*key).is_some_and(|value| !value.is_null()))
}

/// Whether a member of an item can stand for an image that was made: anything but words and an absence.
pub(super) fn is_something(key: &str, value: &Value) -> bool {
    if key == "response" {
        // A whole response, at the end of its events: an image is in its output or nowhere.
        return value.get("output").is_none_or(|output| output.as_array().is_none_or(|output| !output.is_empty()));
    }
    !value.is_null() && !WORDS.contains(&key)
}

/// Reads the token counts; `None` where there is nothing that can be counted.
pub(super) fn tokens(value: &Value) -> Option<TokenCounts> {
    let object = value.as_object()?;
    let input = object.get("input_tokens").and_then(count);
    let output = object.get("output_tokens").and_then(count);
    if input.is_none() && output.is_none() {
        return None;
    }
    let (input, output) = (input.unwrap_or(0), output.unwrap_or(0));
    let detail = |group: &str, name: &str| object.get(group).and_then(|details| details.get(name)).and_then(count);
    let input_image = detail("input_tokens_details", "image_tokens").unwrap_or(0);
    let output_text = detail("output_tokens_details", "text_tokens").unwrap_or(0);
    Some(TokenCounts {
        input,
        input_image,
        input_text: detail("input_tokens_details", "text_tokens").unwrap_or(input.saturating_sub(input_image)),
        output,
        output_image: detail("output_tokens_details", "image_tokens").unwrap_or(output.saturating_sub(output_text)),
        output_text,
        total: object.get("total_tokens").and_then(count).unwrap_or(input.saturating_add(output)),
    })
}

/// Both counts, where there are any.
pub(crate) fn sum(one: Option<Usage>, other: Option<Usage>) -> Option<Usage> {
    either(one, other, |one, other| Usage {
        image: sum_tokens(one.image, other.image),
        host: sum_tokens(one.host, other.host),
        total: one.total.saturating_add(other.total),
    })
}

/// The same of one model.
pub(super) fn sum_tokens(one: Option<TokenCounts>, other: Option<TokenCounts>) -> Option<TokenCounts> {
    either(one, other, TokenCounts::and)
}

fn either<T>(one: Option<T>, other: Option<T>, both: impl FnOnce(T, T) -> T) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(both(one, other)),
        (one, other) => one.or(other),
    }
}

/// The token counts of an answer of the image endpoints.
pub(super) fn of_answer(members: &Map<String, Value>) -> Option<Usage> {
    Usage::of(members.get("usage").and_then(tokens), None)
}

/// The token counts of a response, in which `usage` counts the tokens of the text model.
pub(super) fn of_response(response: &Map<String, Value>) -> Option<Usage> {
    Usage::of(of_images(response), response.get("usage").and_then(tokens))
}

/// The token counts of the images of a response, as the image endpoints would report them; if the upstream does not count
/// them apart, those of the whole response.
pub(super) fn shown_of_response(response: &Map<String, Value>) -> Option<TokenCounts> {
    of_images(response).or_else(|| {
        let text = response.get("usage").and_then(tokens)?;
        Some(TokenCounts { input_image: 0, input_text: text.input, output_image: 0, output_text: text.output, ..text })
    })
}

fn of_images(response: &Map<String, Value>) -> Option<TokenCounts> {
    response.get("tool_usage").and_then(|tools| tools.get("image_gen")).and_then(tokens)
}

/// Decodes as much of a head of base64 as is whole, and asks what it is.
pub(super) fn facts(head: &[u8], probe: fn(&[u8]) -> Option<Facts>) -> Option<Facts> {
    use base64::Engine as _;
    let plain: Vec<u8> = head.iter().copied().filter(|byte| *byte != b'\\' && *byte != b'=').collect();
    let whole = plain.len() / 4 * 4;
    let bytes = base64::engine::general_purpose::STANDARD_NO_PAD.decode(&plain[..whole]).ok()?;
    probe(&bytes)
}

/// Whole seconds that fit the clients' types; some upstreams send a fraction.
fn seconds(value: &Value) -> Option<i64> {
    count(value).filter(|seconds| *seconds > 0).and_then(|seconds| u32::try_from(seconds).ok()).map(i64::from)
}

/// A count in any spelling that is whole and not negative.
fn count(value: &Value) -> Option<u64> {
    /// Beyond this a float no longer counts one by one.
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

// === impl Usage ===

impl Usage {
    /// Of both models, where anything is known of either.
    pub(super) fn of(image: Option<TokenCounts>, host: Option<TokenCounts>) -> Option<Self> {
        let total = sum_tokens(image, host)?.total;
        Some(Self { image, host, total })
    }
}

// === impl TokenCounts ===

impl TokenCounts {
    /// Both together.
    const fn and(self, other: Self) -> Self {
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

    /// The complete object of the contract.
    pub(super) fn to_json(self) -> Value {
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
mod tests {
    use super::*;
    use crate::image::Format;

    fn asked() -> Asked {
        Asked {
            model: "gpt-image-2".to_owned(),
            prompt: "a red square".to_owned(),
            count: 1,
            partials: 0,
            events: "image_generation",
            stream: false,
            part: false,
            quality: None,
            size: Some("1024x1024".to_owned()),
            output_format: "png",
            now: 1_776_000_000,
        }
    }

    #[track_caller]
    fn check(found: &Value, first: Option<Facts>, expected: &Value) {
        let found = found.as_object().cloned().unwrap_or_default();
        assert_eq!(Value::Object(members(&asked(), &found, first)), *expected);
    }

    #[test]
    fn missing_members_are_filled_in_and_neither_tokens_nor_a_quality_are_made_up() {
        let expected = json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "size": "1024x1024"});
        check(&json!({}), None, &expected);
        check(&json!({"usage": null, "error": null}), None, &expected);
        check(&json!({"usage": {"input_tokens": -1}, "created": -5}), None, &expected);
    }

    #[test]
    fn auto_is_resolved_to_what_was_delivered() {
        let facts = Facts { format: Format::Webp, width: 1000, height: 1500 };
        check(
            &json!({"created": 17.5, "background": "auto", "quality": "auto", "size": "auto", "output_format": "png", "extra": [1]}),
            Some(facts),
            &json!({"created": 17, "background": "opaque", "model": "gpt-image-2", "output_format": "webp", "size": "1000x1500"}),
        );
    }

    #[test]
    fn what_the_upstream_names_is_told_and_what_is_no_name_is_not() {
        let named = |found: Value| {
            let told = members(
                &Asked { quality: Some("high".to_owned()), ..asked() },
                found.as_object().expect("members"),
                None,
            );
            (told["model"].clone(), told["quality"].clone())
        };
        let pair = |model: &str, quality: &str| (json!(model), json!(quality));
        let snapshot = "gpt-image-2-2026-04-21";
        assert_eq!(named(json!({"model": snapshot, "quality": "low"})), pair(snapshot, "low"));
        for model in [json!(null), json!(7), json!(""), json!("two words"), json!("a\u{202e}b"), json!("m".repeat(129))]
        {
            assert_eq!(named(json!({"model": model, "quality": "auto"})), pair("gpt-image-2", "high"));
        }
    }

    #[test]
    fn an_event_always_has_a_quality() {
        let found = json!({"model": "m", "quality": "auto"});
        let told = event_members(&asked(), found.as_object().expect("members"), None);
        assert_eq!((&told["quality"], told.get("model")), (&json!("auto"), None));
    }

    #[test]
    fn usage_is_completed_and_made_whole() {
        let usage = tokens(&json!({"input_tokens": 17.0, "output_tokens": 196})).expect("has counts");
        assert_eq!(
            usage,
            TokenCounts {
                input: 17,
                input_text: 17,
                output: 196,
                output_image: 196,
                total: 213,
                ..TokenCounts::default()
            }
        );
        assert_eq!(tokens(&json!("many")), None);
        assert_eq!(tokens(&json!({"total_tokens": 5})), None);
    }
}
