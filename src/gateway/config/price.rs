//! The prices of models, as settings and the store hold them.

use std::collections::BTreeMap;

use chrono::NaiveDate;
use serde::{Deserialize, Serialize};

use crate::gateway::money::{Factor, Usd};
use crate::tables::{
    ADMIN_MAX_PRICE_TERM_BYTES, ADMIN_MAX_PRICE_TEXT_BYTES, MODEL_TOKENS_MAX, PRICE_FACTOR_MAX, PRICE_MAX_USD,
    PRICE_TERMS_MAX,
};

/// The prices of one model from a day on. Prices of tokens are for a million tokens of one kind; `None` is a price that
/// is not known, which is different from a price of zero.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelPrice {
    /// The model, as in requests. The price also applies to its dated snapshots, unless they have prices of their own.
    pub(crate) model: String,
    /// The first day, in UTC, on which the prices apply.
    pub(crate) from: NaiveDate,
    /// The prices.
    pub(crate) figures: PriceFigures,
    /// The prices that depend on names which an upstream chooses, and the most tokens that the model takes.
    pub(crate) terms: PriceTerms,
    /// The place where the prices are published, for people.
    pub(crate) source: Option<String>,
}

/// The terms of a price besides its figures.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PriceTerms {
    /// The most tokens of a request and its answer together that the model takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) context_tokens: Option<u64>,
    /// The most tokens of an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_output_tokens: Option<u64>,
    /// The factor of the figures for each service tier, as answers name it. The tier `default` needs none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tiers: BTreeMap<String, Factor>,
    /// The price of one call of each tool that the upstream runs, such as `web_search`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) tools: BTreeMap<String, Usd>,
}

/// The terms as somebody writes them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TermsInput {
    /// `context_tokens`.
    pub(crate) context_tokens: Option<u64>,
    /// `max_output_tokens`.
    pub(crate) max_output_tokens: Option<u64>,
    /// `tiers`.
    pub(crate) tiers: BTreeMap<String, f64>,
    /// `tools`, in dollars.
    pub(crate) tools: BTreeMap<String, f64>,
}

/// The prices of one model, in US dollars; `f64` is an amount as somebody writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceFigures<Amount = Usd> {
    /// A million text tokens of the request.
    pub(crate) text_input: Option<Amount>,
    /// A million text tokens of the request that the upstream had in its cache.
    pub(crate) cached_text_input: Option<Amount>,
    /// A million image tokens of the request.
    pub(crate) image_input: Option<Amount>,
    /// A million image tokens of the request that the upstream had in its cache.
    pub(crate) cached_image_input: Option<Amount>,
    /// A million image tokens of the answer.
    pub(crate) image_output: Option<Amount>,
    /// A million text tokens of the answer.
    pub(crate) text_output: Option<Amount>,
    /// One image of the answer, in addition to the tokens.
    pub(crate) per_image: Option<Amount>,
    /// A million text tokens of the request that the upstream wrote to its cache.
    pub(crate) cache_write: Option<Amount>,
    /// The same, for a cache entry that lives for an hour.
    pub(crate) cache_write_1h: Option<Amount>,
}

/// The names of the prices in settings, commands, the admin API and the store, in the order in which they are listed.
pub(crate) const FIGURE_NAMES: [&str; 9] = [
    "text_input",
    "cached_text_input",
    "image_input",
    "cached_image_input",
    "image_output",
    "text_output",
    "per_image",
    "cache_write",
    "cache_write_1h",
];

/// Prices as somebody writes them: in settings, in a command, or in a request to the admin API.
#[derive(Clone, Debug)]
pub(crate) struct PriceInput<'a> {
    /// The model.
    pub(crate) model: &'a str,
    /// The first day.
    pub(crate) from: NaiveDate,
    /// The prices.
    pub(crate) figures: PriceFigures<f64>,
    /// The terms.
    pub(crate) terms: TermsInput,
    /// The place where the prices are published.
    pub(crate) source: Option<&'a str>,
}

/// The reason why prices cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PriceFault {
    /// The field with the fault.
    pub(crate) field: &'static str,
    /// The reason, as the end of a sentence whose subject is the field.
    pub(crate) reason: String,
}

// === impl ModelPrice ===

impl ModelPrice {
    /// Checks prices.
    ///
    /// # Errors
    ///
    /// Returns the first fault.
    pub(crate) fn new(input: PriceInput<'_>) -> Result<Self, PriceFault> {
        let PriceInput { model, from, figures, terms, source } = input;
        let fault = |field, reason: &str| Err(PriceFault { field, reason: reason.to_owned() });
        if model.is_empty() || is_too_long(model) || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            return fault("model", "must be the id of a model, without spaces");
        }
        let mut values = [None; FIGURE_NAMES.len()];
        for ((value, dollars), field) in values.iter_mut().zip(figures.values()).zip(FIGURE_NAMES) {
            *value = dollars.map(|dollars| read_dollars(field, dollars)).transpose()?;
        }
        if values == [None; FIGURE_NAMES.len()] {
            return fault("model", "has no price; set at least one, such as `image_output`");
        }
        if source.is_some_and(|source| is_too_long(source) || source.chars().any(char::is_control)) {
            return fault("source", &format!("must be one line of at most {ADMIN_MAX_PRICE_TEXT_BYTES} bytes"));
        }
        let (figures, terms) = (PriceFigures::from_values(values), PriceTerms::new(terms)?);
        Ok(Self { model: model.to_owned(), from, figures, terms, source: source.map(str::to_owned) })
    }
}

fn is_too_long(text: &str) -> bool {
    text.len() as u64 > ADMIN_MAX_PRICE_TEXT_BYTES
}

/// Checks an amount.
fn read_dollars(field: &'static str, dollars: f64) -> Result<Usd, PriceFault> {
    let fault = |reason: String| PriceFault { field, reason };
    let value = Usd::from_dollars(dollars).filter(|_| dollars <= f64::from(PRICE_MAX_USD));
    let value = value.ok_or_else(|| fault(format!("must be from 0 to {PRICE_MAX_USD}")))?;
    // A price that is rounded to zero would make its tokens free.
    if value == Usd::ZERO && dollars > 0.0 {
        return Err(fault("is below a billionth of a dollar and would count as 0".to_owned()));
    }
    Ok(value)
}

// === impl PriceTerms ===

impl PriceTerms {
    fn new(input: TermsInput) -> Result<Self, PriceFault> {
        let TermsInput { context_tokens, max_output_tokens, tiers, tools } = input;
        for (field, tokens) in [("context_tokens", context_tokens), ("max_output_tokens", max_output_tokens)] {
            if tokens.is_some_and(|tokens| tokens == 0 || tokens > u64::from(MODEL_TOKENS_MAX)) {
                return Err(PriceFault { field, reason: format!("must be from 1 to {MODEL_TOKENS_MAX}") });
            }
        }
        let factor = |number| {
            let reason = || format!("must have factors from 0 to {PRICE_FACTOR_MAX}");
            Factor::from_number(number).ok_or_else(|| PriceFault { field: "tiers", reason: reason() })
        };
        let tiers = read_terms("tiers", tiers, factor)?;
        let tools = read_terms("tools", tools, |dollars| read_dollars("tools", dollars))?;
        Ok(Self { context_tokens, max_output_tokens, tiers, tools })
    }
}

fn read_terms<T>(
    field: &'static str,
    values: BTreeMap<String, f64>,
    read: impl Fn(f64) -> Result<T, PriceFault>,
) -> Result<BTreeMap<String, T>, PriceFault> {
    let is_name = |name: &String| {
        (1..=ADMIN_MAX_PRICE_TERM_BYTES).contains(&(name.len() as u64))
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
    };
    if values.len() as u64 > u64::from(PRICE_TERMS_MAX) || !values.keys().all(is_name) {
        let reason = format!(
            "must have at most {PRICE_TERMS_MAX} names, each of at most {ADMIN_MAX_PRICE_TERM_BYTES} letters, digits, `.`, `_` and `-`"
        );
        return Err(PriceFault { field, reason });
    }
    values.into_iter().map(|(name, value)| Ok((name, read(value)?))).collect()
}

// === impl PriceFigures ===

impl<Amount: Copy> PriceFigures<Amount> {
    /// Returns the prices in the order of [`FIGURE_NAMES`].
    pub(crate) const fn values(self) -> [Option<Amount>; FIGURE_NAMES.len()] {
        [
            self.text_input,
            self.cached_text_input,
            self.image_input,
            self.cached_image_input,
            self.image_output,
            self.text_output,
            self.per_image,
            self.cache_write,
            self.cache_write_1h,
        ]
    }

    /// Creates prices from values in the order of [`FIGURE_NAMES`].
    pub(crate) const fn from_values(values: [Option<Amount>; FIGURE_NAMES.len()]) -> Self {
        let [text_input, cached_text_input, image_input, cached_image_input, image_output, text_output, ..] = values;
        let [.., per_image, cache_write, cache_write_1h] = values;
        Self {
            text_input,
            cached_text_input,
            image_input,
            cached_image_input,
            image_output,
            text_output,
            per_image,
            cache_write,
            cache_write_1h,
        }
    }
}

// === impl PriceFigures<Usd> ===

impl PriceFigures {
    /// Returns the prices as numbers of dollars.
    pub(crate) fn dollars(self) -> PriceFigures<f64> {
        PriceFigures::from_values(self.values().map(|price| price.map(Usd::dollars)))
    }
}
