//! The prices that a gateway lists with its image models, and the cost of an answer by them.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::client::{ImageModel, Images, Json};
use crate::gateway::config::{FIGURE_NAMES, PriceFigures};
use crate::gateway::money::Usd;
use crate::gateway::prices::snapshot_model;
use crate::gateway::store::TokenUsage;
use crate::wire::admin::types::{RecordTokens, RecordUsage};
use crate::wire::types::ImageUsage;

/// The unit of the price of an image, and that of all other prices.
const UNITS: [&str; 2] = ["image", "million_tokens"];
const PER_IMAGE: &str = "per_image";

/// The prices by the id of their model. A model without prices, or with one that this version does not know, is absent.
pub(in crate::cli) struct ListedPrices(BTreeMap<String, PriceFigures>);

// === impl ListedPrices ===

impl ListedPrices {
    pub(super) fn new(models: &[ImageModel]) -> Self {
        Self(models.iter().filter_map(|model| Some((model.id.clone(), read_figures(&model.json)?))).collect())
    }

    /// Returns the cost of an answer in US dollars; `None` if it is not known. As in the gateway, the model that the answer
    /// states counts, and the requested one only if it states none.
    pub(super) fn cost(&self, requested_model: &str, is_edit: bool, images: &Images) -> Option<f64> {
        let model = images.model().unwrap_or(requested_model);
        let figures = self.0.get(model).or_else(|| self.0.get(snapshot_model(model)?))?;
        let count = images.len() as u64;
        let usage = images.usage().map(token_usage);
        figures.cost_of_answer(count, usage.as_ref(), !is_edit).map(Usd::dollars)
    }
}

/// Reads the prices of a model. A price of an unknown kind or unit makes every cost unknown.
fn read_figures(model: &Json) -> Option<PriceFigures> {
    let mut values = [None; FIGURE_NAMES.len()];
    for price in model.member("prices")?.elements() {
        let [billable, unit, usd] = ["billable", "unit", "usd"].map(|name| price.member(name));
        let (billable, unit) = (billable?.read::<String>()?, unit?.read::<String>()?);
        let index = FIGURE_NAMES.iter().position(|name| *name == billable)?;
        let expected_unit = UNITS[usize::from(billable != PER_IMAGE)];
        values[index] = Some(Usd::from_dollars(usd?.read()?).filter(|_| unit == expected_unit)?);
    }
    (values != [None; FIGURE_NAMES.len()]).then(|| PriceFigures::from_values(values))
}

fn token_usage(usage: &ImageUsage) -> TokenUsage {
    let details = |image, text| Some(RecordTokens { image_tokens: Some(image), text_tokens: Some(text) });
    let input = &usage.input_tokens_details;
    let counts = RecordUsage {
        input_tokens: Some(usage.input_tokens),
        input_tokens_details: details(input.image_tokens, input.text_tokens),
        output_tokens: Some(usage.output_tokens),
        output_tokens_details: usage
            .output_tokens_details
            .as_ref()
            .and_then(|output| details(output.image_tokens, output.text_tokens)),
        total_tokens: Some(usage.total_tokens),
        cached_tokens_details: cached_tokens(&input.extra, input.text_tokens),
    };
    TokenUsage { counts, ..TokenUsage::default() }
}

/// Reads the tokens that were in a cache. If only their sum is stated, text tokens come first, as in the gateway.
fn cached_tokens(details: &serde_json::Map<String, Value>, text_tokens: u64) -> Option<RecordTokens> {
    if let Some(kinds) = details.get("cached_tokens_details") {
        let count = |name: &str| kinds.get(name).and_then(Value::as_u64);
        return Some(RecordTokens { image_tokens: count("image_tokens"), text_tokens: count("text_tokens") });
    }
    let sum = details.get("cached_tokens")?.as_u64()?;
    let text = sum.min(text_tokens);
    Some(RecordTokens { image_tokens: Some(sum - text), text_tokens: Some(text) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image_output(prices: Value) -> Option<Usd> {
        read_figures(&json!({ "prices": prices }).into())?.image_output
    }

    #[test]
    fn a_price_that_is_not_understood_makes_every_cost_unknown() {
        let known = json!({"billable": "image_output", "unit": "million_tokens", "usd": 30.0, "newer": true});
        assert_eq!(image_output(json!([known])), Usd::from_dollars(30.0));
        for other in [
            json!({"billable": "energy", "unit": "million_tokens", "usd": 1.0}),
            json!({"billable": "text_input", "unit": "thousand_tokens", "usd": 1.0}),
            json!({"billable": "per_image", "unit": "million_tokens", "usd": 1.0}),
            json!({"billable": "text_input", "unit": "million_tokens", "usd": -1.0}),
            json!({"billable": "text_input", "unit": "million_tokens"}),
        ] {
            assert_eq!(image_output(json!([known, other])), None, "{other}");
        }
        assert_eq!([image_output(json!([])), image_output(Value::Null)], [None; 2]);
    }

    #[test]
    fn cached_tokens_are_read_as_in_the_gateway() {
        let cached = |details: Value| {
            let details = cached_tokens(details.as_object().unwrap(), 30)?;
            Some((details.text_tokens, details.image_tokens))
        };
        assert_eq!(cached(json!({"cached_tokens": 40})), Some((Some(30), Some(10))));
        let kinds = json!({"cached_tokens": 9, "cached_tokens_details": {"text_tokens": 2, "image_tokens": 7}});
        assert_eq!(cached(kinds), Some((Some(2), Some(7))));
        assert_eq!(cached(json!({})), None);
    }
}
