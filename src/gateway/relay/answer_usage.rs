//! The tokens of an answer: the one reader for all protocols, plain answers and events. [`answer_charges`] reads what else
//! can change the price.
//!
//! Pure: no I/O and no clock.
//!
//! [`answer_charges`]: super::answer_charges

use serde_json::{Map, Value, json};

use super::answer_charges::{IMAGE_TOOL, ToolCallCounter, read_charges};
use super::undocumented_members;
use crate::gateway::store::AnswerCharges;

/// The token counts and charges of an answer, as the upstream reported them. The counts are separate for each model,
/// because each model has its own price.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnswerUsage {
    /// The tokens of the model that makes images.
    pub(crate) image: Option<TokenCounts>,
    /// The tokens of the text model, which runs the image tool or answers a response.
    pub(crate) host: Option<TokenCounts>,
    /// All tokens of both models.
    pub(crate) total: u64,
    /// The other things that can change the price.
    pub(crate) charges: AnswerCharges,
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
    /// The tokens of the request that the upstream wrote to its cache, for some minutes or an unstated time.
    pub(crate) cache_write: u64,
    /// The tokens of the request that the upstream wrote to its cache for an hour.
    pub(crate) cache_write_1h: u64,
    /// True if the upstream did not state the kinds of the tokens of the request.
    pub(crate) is_breakdown_assumed: bool,
    /// True if the upstream did not state the kinds of the cached tokens, and both kinds are possible.
    pub(crate) is_cache_breakdown_assumed: bool,
    /// The number of calls that gave an image and whose tokens are missing here, because the upstream did not count them.
    pub(crate) uncounted_calls: u32,
}

/// The names that other APIs have for documented members of `usage`: they count if the documented name is absent.
pub(super) const ALIASES: [(&str, &str); 4] = [
    ("prompt_tokens", "input_tokens"),
    ("completion_tokens", "output_tokens"),
    ("prompt_tokens_details", "input_tokens_details"),
    ("completion_tokens_details", "output_tokens_details"),
];
/// The count of cache hits in the form of an API whose input tokens do not contain them.
pub(super) const CACHE_READ: &str = "cache_read_input_tokens";

/// Returns the token counts and charges of an answer of the image endpoints. If several objects have a member, the first
/// counts.
pub(super) fn usage_from_answer(objects: &[&Map<String, Value>]) -> Option<AnswerUsage> {
    let usage = member(objects, "usage").and_then(parse_token_counts);
    AnswerUsage::new(usage, None, read_charges(objects, &ToolCallCounter::default()))
}

/// Returns the token counts and charges of a response, in which `usage` counts the tokens of the text model.
pub(super) fn usage_from_response(response: &Map<String, Value>, calls: &ToolCallCounter) -> Option<AnswerUsage> {
    let image = image_usage(response).and_then(parse_token_counts);
    let host = response.get("usage").and_then(parse_token_counts);
    AnswerUsage::new(image, host, read_charges(&[response], calls))
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

/// Returns the token counts in the form that clients enforce, with any other counts of the upstream; `None` if nothing
/// can be counted.
pub(super) fn normalized_usage(received: &Value) -> Option<Value> {
    let mut usage = parse_token_counts(received)?.to_json();
    undocumented_members::add_missing(&mut usage, received);
    Some(usage)
}

/// Adds the counts of two answers; `None` if neither has any.
pub(crate) fn sum_usage(first: Option<AnswerUsage>, second: Option<AnswerUsage>) -> Option<AnswerUsage> {
    first.into_iter().chain(second).reduce(|first, second| AnswerUsage {
        image: sum_tokens(first.image, second.image),
        host: sum_tokens(first.host, second.host),
        total: first.total.saturating_add(second.total),
        charges: first.charges.plus(second.charges),
    })
}

/// Adds the counts of one model.
fn sum_tokens(first: Option<TokenCounts>, second: Option<TokenCounts>) -> Option<TokenCounts> {
    first.into_iter().chain(second).reduce(TokenCounts::plus)
}

/// Returns a member that is not null, from the first of the objects that has it.
pub(super) fn member<'a>(objects: &[&'a Map<String, Value>], name: &str) -> Option<&'a Value> {
    objects.iter().find_map(|object| object.get(name).filter(|value| !value.is_null()))
}

fn image_usage(response: &Map<String, Value>) -> Option<&Value> {
    response.get("tool_usage")?.get(IMAGE_TOOL)
}

// === token counts ===

/// Reads the token counts; `None` if nothing can be counted.
pub(super) fn parse_token_counts(value: &Value) -> Option<TokenCounts> {
    parse_members(value.as_object()?)
}

/// Reads the token counts in the members of a usage; `None` if nothing can be counted.
pub(super) fn parse_members(object: &Map<String, Value>) -> Option<TokenCounts> {
    let (stated_input, stated_output) =
        (documented_count(object, "input_tokens"), documented_count(object, "output_tokens"));
    if stated_input.is_none() && stated_output.is_none() {
        return None;
    }
    let (stated_input, output) = (stated_input.unwrap_or(0), stated_output.unwrap_or(0));
    let stated_total = object.get("total_tokens").and_then(parse_count);
    // In some APIs the input tokens are only those that the cache neither had nor got.
    let count = |name: &str| object.get(name).and_then(parse_count).unwrap_or(0);
    let is_cache_apart = stated_total != Some(stated_input.saturating_add(output));
    let apart = |tokens: u64| if is_cache_apart { tokens } else { 0 };
    let writes = cache_writes(object);
    let written_apart = apart(count("cache_creation_input_tokens").max(writes.apart));
    let input = stated_input.saturating_add(written_apart).saturating_add(apart(count(CACHE_READ)));
    let detail = |group: &str, name: &str| documented(object, group)?.get(name).and_then(parse_count);
    let stated_image = detail("input_tokens_details", "image_tokens");
    let stated_text = detail("input_tokens_details", "text_tokens");
    let input_image = stated_image.unwrap_or(0);
    let input_text = stated_text.unwrap_or(input.saturating_sub(input_image));
    let cached = cached_token_counts(object, input_text);
    let output_text = detail("output_tokens_details", "text_tokens").unwrap_or(0);
    Some(TokenCounts {
        input,
        input_image,
        input_text,
        output,
        output_image: detail("output_tokens_details", "image_tokens").unwrap_or(output.saturating_sub(output_text)),
        output_text,
        total: stated_total.unwrap_or(input.saturating_add(output)),
        cached_text: cached.text.max(count(CACHE_READ)),
        cached_image: cached.image,
        cache_write: writes.short,
        cache_write_1h: writes.hour,
        is_breakdown_assumed: stated_image.is_none() && stated_text.is_none() && input > 0,
        is_cache_breakdown_assumed: cached.is_breakdown_assumed && input_image > 0,
        uncounted_calls: 0,
    })
}

/// Returns a member by its documented name, or else by its alias.
fn documented<'a>(usage: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let alias = ALIASES.iter().find(|(_, documented)| *documented == name).map(|(alias, _)| *alias);
    let of = |name: &str| usage.get(name).filter(|value| !value.is_null());
    of(name).or_else(|| alias.and_then(of))
}

pub(super) fn documented_count(usage: &Map<String, Value>, name: &str) -> Option<u64> {
    documented(usage, name).and_then(parse_count)
}

/// The tokens of a request that the upstream wrote to its cache.
struct CacheWriteCounts {
    /// For some minutes, or an unstated time.
    short: u64,
    hour: u64,
    /// The sum of those that are stated beside the input tokens and not in their details.
    apart: u64,
}

/// Reads the tokens that were written to the cache: in the details of the input tokens, or beside them.
fn cache_writes(usage: &Map<String, Value>) -> CacheWriteCounts {
    let details = documented(usage, "input_tokens_details").and_then(Value::as_object);
    let read = |object: Option<&Map<String, Value>>, names: [&str; 2]| {
        let count = |value: Option<&Value>| value.and_then(parse_count).unwrap_or(0);
        let by_lifetime = object.and_then(|object| object.get("cache_creation"));
        let lifetime = |name: &str| count(by_lifetime.and_then(|counts| counts.get(name)));
        let (short, hour) = (lifetime("ephemeral_5m_input_tokens"), lifetime("ephemeral_1h_input_tokens"));
        let all = names.map(|name| count(object.and_then(|object| object.get(name)))).into_iter().max().unwrap_or(0);
        (short.max(all.saturating_sub(hour)), hour)
    };
    let inside = read(details, ["cache_write_tokens", "cache_creation_tokens"]);
    let beside = read(Some(usage), ["cache_creation_input_tokens", "cache_write_tokens"]);
    // Some upstreams state the same counts in both places.
    CacheWriteCounts {
        short: inside.0.max(beside.0),
        hour: inside.1.max(beside.1),
        apart: beside.0.saturating_add(beside.1).saturating_sub(inside.0.saturating_add(inside.1)),
    }
}

/// The tokens of a request that the upstream had in its cache.
#[derive(Default)]
struct CachedTokenCounts {
    text: u64,
    image: u64,
    /// True if only their sum is known, and there are some.
    is_breakdown_assumed: bool,
}

/// Reads the cached tokens from the details of the input tokens, or, as the contract has them for the image tool of a
/// response, beside them. If the upstream states only their sum, text tokens come first, because caching saves the least
/// for them.
fn cached_token_counts(usage: &Map<String, Value>, input_text: u64) -> CachedTokenCounts {
    let details = documented(usage, "input_tokens_details");
    let stated = |name: &str| details.and_then(|details| details.get(name)).or_else(|| usage.get(name));
    let kinds = stated("cached_tokens_details");
    let kind = |names: [&str; 2]| names.iter().find_map(|name| parse_count(kinds?.get(name)?));
    match (kind(["text_tokens", "cached_text_tokens"]), kind(["image_tokens", "cached_image_tokens"])) {
        (None, None) => {
            let sum = stated("cached_tokens").and_then(parse_count).unwrap_or(0);
            let text = sum.min(input_text);
            CachedTokenCounts { text, image: sum - text, is_breakdown_assumed: sum > 0 }
        }
        (text, image) => {
            CachedTokenCounts { text: text.unwrap_or(0), image: image.unwrap_or(0), is_breakdown_assumed: false }
        }
    }
}

/// Returns a count that is not negative. A count may be written as a float; its fraction is cut off.
pub(super) fn parse_count(value: &Value) -> Option<u64> {
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
    /// Joins the counts of both models and the charges; `None` if there are none.
    pub(super) fn new(image: Option<TokenCounts>, host: Option<TokenCounts>, charges: AnswerCharges) -> Option<Self> {
        let sum = sum_tokens(image, host);
        if sum.is_none() && charges.is_empty() {
            return None;
        }
        Some(Self { image, host, total: sum.unwrap_or_default().total, charges })
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
            cache_write: self.cache_write.saturating_add(other.cache_write),
            cache_write_1h: self.cache_write_1h.saturating_add(other.cache_write_1h),
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
