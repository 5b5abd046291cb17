//! The prices of a model as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prices of one model from a day on, in US dollars. The prices of tokens are for a million tokens. A price that is
/// left out is unknown; it is not zero.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawPrice {
    /// The model, as in requests. The prices also apply to its dated snapshots, unless they have prices of their own.
    #[schemars(required)]
    pub(crate) model: Option<String>,
    /// The first day, in UTC, on which the prices apply, such as `2026-04-21`.
    #[schemars(required, regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$"))]
    pub(crate) from: Option<String>,
    /// The price of text tokens of requests.
    pub(crate) text_input: Option<f64>,
    /// The price of text tokens of requests that the upstream had in its cache. Default: `text_input`, and the cost counts
    /// as estimated.
    pub(crate) cached_text_input: Option<f64>,
    /// The price of image tokens of requests.
    pub(crate) image_input: Option<f64>,
    /// The price of image tokens of requests that the upstream had in its cache. Default: `image_input`, and the cost
    /// counts as estimated.
    pub(crate) cached_image_input: Option<f64>,
    /// The price of image tokens of answers.
    pub(crate) image_output: Option<f64>,
    /// The price of text tokens of answers.
    pub(crate) text_output: Option<f64>,
    /// The price of one image, if the upstream charges for images. It is added to the price of the tokens.
    pub(crate) per_image: Option<f64>,
    /// The price of text tokens of requests that the upstream wrote to its cache. Without it, such a request counts twice
    /// `text_input` for them, and the cost counts as estimated.
    pub(crate) cache_write: Option<f64>,
    /// The same for cache entries that live for an hour.
    pub(crate) cache_write_1h: Option<f64>,
    /// The factor of all these prices for each service tier that an answer can state, such as `{ flex = 0.5, priority = 2.5 }`.
    /// The tier `default` needs none. A cost with another tier counts as estimated.
    pub(crate) tiers: Option<BTreeMap<String, f64>>,
    /// The price of one call of each tool that the upstream runs for a text model, such as `{ web_search = 0.01 }`. A cost
    /// with calls of other tools counts as estimated.
    pub(crate) tools: Option<BTreeMap<String, f64>>,
    /// The most tokens of a request and its answer together that a text model takes.
    pub(crate) context_tokens: Option<u64>,
    /// The most tokens of an answer of a text model.
    pub(crate) max_output_tokens: Option<u64>,
    /// The place where the prices are published, for people.
    pub(crate) source: Option<String>,
}
