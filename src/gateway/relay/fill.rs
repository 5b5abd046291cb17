//! The members around the images: what the upstream left out is filled in, what it left open is resolved.
//!
//! Pure. The types that clients enforce are those of the contract: `created` in whole seconds, `background` and
//! `quality` never `auto`, `size` the pixels really delivered, `usage` complete and whole.

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
    /// `low`, `medium` or `high`, unless the model chooses.
    pub(crate) quality: Option<&'static str>,
    /// `<width>x<height>`, unless the model chooses.
    pub(crate) size: Option<String>,
    /// `png`, `jpeg` or `webp`.
    pub(crate) output_format: &'static str,
    /// Unix seconds now.
    pub(crate) now: i64,
}

/// Token counts as the upstream reported them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
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

/// When the model chose the quality and the upstream does not say which: the specification's word for normal images.
const QUALITY_WHEN_UNSAID: &str = "medium";

/// Every member of the answer but `data`.
pub(super) fn members(asked: &Asked, mut found: Map<String, Value>, first: Option<Facts>) -> Map<String, Value> {
    // An answer with an image in it is none with an error in it; clients look for this key.
    found.remove("error");
    let created = found.get("created").and_then(seconds).unwrap_or(asked.now);
    found.insert("created".to_owned(), created.into());
    found.insert("model".to_owned(), asked.model.as_str().into());
    resolve(&mut found, "background", &["opaque", "transparent"], Some("opaque"));
    resolve(&mut found, "quality", &["low", "medium", "high"], asked.quality.or(Some(QUALITY_WHEN_UNSAID)));
    let format = first.map_or(asked.output_format, |facts| facts.format.as_str());
    found.insert("output_format".to_owned(), format.into());
    let pixels = first.map(|facts| format!("{}x{}", facts.width, facts.height));
    let said = found.get("size").and_then(Value::as_str).filter(|size| *size != "auto").map(str::to_owned);
    match pixels.or(said).or_else(|| asked.size.clone()) {
        Some(size) => found.insert("size".to_owned(), size.into()),
        None => found.remove("size"),
    };
    match found.get("usage").and_then(usage) {
        Some(usage) => found.insert("usage".to_owned(), usage.to_json(found.get("usage"))),
        // Tokens that are not known are not made up.
        None => found.remove("usage"),
    };
    found
}

/// Every member of an element of `data` but the image.
pub(super) fn item_members(asked: &Asked, mut found: Map<String, Value>) -> Map<String, Value> {
    found.remove("b64_json");
    if found.get("url").is_some_and(Value::is_null) {
        found.remove("url");
    }
    if !found.get("revised_prompt").is_some_and(Value::is_string) {
        found.insert("revised_prompt".to_owned(), asked.prompt.as_str().into());
    }
    found
}

/// Reads the token counts; `None` where there is nothing that can be counted.
pub(crate) fn usage(value: &Value) -> Option<Usage> {
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
    Some(Usage {
        input,
        input_image,
        input_text: detail("input_tokens_details", "text_tokens").unwrap_or(input.saturating_sub(input_image)),
        output,
        output_image: detail("output_tokens_details", "image_tokens").unwrap_or(output.saturating_sub(output_text)),
        output_text,
        total: object.get("total_tokens").and_then(count).unwrap_or(input.saturating_add(output)),
    })
}

/// Decodes as much of a head of base64 as is whole, and asks what it is.
pub(super) fn facts(head: &[u8], probe: fn(&[u8]) -> Option<Facts>) -> Option<Facts> {
    use base64::Engine as _;
    let plain: Vec<u8> = head.iter().copied().filter(|byte| *byte != b'\\' && *byte != b'=').collect();
    let whole = plain.len() / 4 * 4;
    let bytes = base64::engine::general_purpose::STANDARD_NO_PAD.decode(&plain[..whole]).ok()?;
    probe(&bytes)
}

/// Keeps a member that has one of the allowed words, else puts the default there.
fn resolve(found: &mut Map<String, Value>, key: &str, allowed: &[&str], default: Option<&str>) {
    let fine = found.get(key).and_then(Value::as_str).is_some_and(|word| allowed.contains(&word));
    if let (false, Some(default)) = (fine, default) {
        found.insert(key.to_owned(), default.into());
    }
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
    /// The complete object of the contract, with whatever else the upstream said kept beside it.
    fn to_json(self, said: Option<&Value>) -> Value {
        let mut object = said.and_then(Value::as_object).cloned().unwrap_or_default();
        object.insert("input_tokens".to_owned(), self.input.into());
        object.insert(
            "input_tokens_details".to_owned(),
            json!({"image_tokens": self.input_image, "text_tokens": self.input_text}),
        );
        object.insert("output_tokens".to_owned(), self.output.into());
        object.insert(
            "output_tokens_details".to_owned(),
            json!({"image_tokens": self.output_image, "text_tokens": self.output_text}),
        );
        object.insert("total_tokens".to_owned(), self.total.into());
        Value::Object(object)
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
            quality: None,
            size: Some("1024x1024".to_owned()),
            output_format: "png",
            now: 1_776_000_000,
        }
    }

    #[track_caller]
    fn check(found: &Value, first: Option<Facts>, expected: &Value) {
        let found = found.as_object().cloned().unwrap_or_default();
        assert_eq!(Value::Object(members(&asked(), found, first)), *expected);
    }

    #[test]
    fn missing_members_are_filled_in_and_tokens_are_not_made_up() {
        let expected = json!({"created": 1_776_000_000, "background": "opaque", "model": "gpt-image-2", "output_format": "png", "quality": "medium", "size": "1024x1024"});
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
            &json!({"created": 17, "background": "opaque", "model": "gpt-image-2", "output_format": "webp", "quality": "medium", "size": "1000x1500", "extra": [1]}),
        );
    }

    #[test]
    fn usage_is_completed_and_made_whole() {
        let usage = usage(&json!({"input_tokens": 17.0, "output_tokens": 196})).expect("has counts");
        assert_eq!(
            usage,
            Usage { input: 17, input_text: 17, output: 196, output_image: 196, total: 213, ..Usage::default() }
        );
        assert_eq!(super::usage(&json!("many")), None);
        assert_eq!(super::usage(&json!({"total_tokens": 5})), None);
    }
}
