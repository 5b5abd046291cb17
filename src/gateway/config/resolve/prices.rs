//! Resolves the prices of models.

use std::collections::BTreeSet;

use chrono::NaiveDate;

use super::ConfigResolver;
use crate::gateway::config::raw::RawPrice;
use crate::gateway::config::{FIGURE_NAMES, ModelPrice, PriceFault, PriceFigures, PriceInput, TermsInput};

impl ConfigResolver<'_> {
    pub(super) fn prices(&mut self) -> Vec<ModelPrice> {
        let raw = self.layers.file.raw.prices.as_deref().unwrap_or_default();
        let mut used_days = BTreeSet::new();
        let prices = raw.iter().enumerate();
        prices.filter_map(|(index, price)| self.price(&format!("prices[{index}]"), price, &mut used_days)).collect()
    }

    fn price(
        &mut self,
        path: &str,
        raw: &RawPrice,
        used_days: &mut BTreeSet<(String, NaiveDate)>,
    ) -> Option<ModelPrice> {
        let Ok(from) = raw.from.as_deref().unwrap_or_default().parse::<NaiveDate>() else {
            self.report(&format!("{path}.from"), "must be a day, such as `2026-04-21`");
            return None;
        };
        let figures = PriceFigures {
            text_input: raw.text_input,
            cached_text_input: raw.cached_text_input,
            image_input: raw.image_input,
            cached_image_input: raw.cached_image_input,
            image_output: raw.image_output,
            text_output: raw.text_output,
            per_image: raw.per_image,
            cache_write: raw.cache_write,
            cache_write_1h: raw.cache_write_1h,
        };
        let terms = TermsInput {
            context_tokens: raw.context_tokens,
            max_output_tokens: raw.max_output_tokens,
            tiers: raw.tiers.clone().unwrap_or_default(),
            tools: raw.tools.clone().unwrap_or_default(),
        };
        let model = raw.model.as_deref().unwrap_or_default();
        if !used_days.insert((model.to_owned(), from)) {
            self.report(&format!("{path}.from"), "is the day of an earlier price of this model");
        }
        // A price with another fault does not count as missing.
        if FIGURE_NAMES.iter().any(|name| self.layers.file.is_flagged(&format!("{path}.{name}"))) {
            return None;
        }
        let price = ModelPrice::new(PriceInput { model, from, figures, terms, source: raw.source.as_deref() });
        price.map_err(|PriceFault { field, reason }| self.report(&format!("{path}.{field}"), &reason)).ok()
    }
}
