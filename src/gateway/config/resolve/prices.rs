//! Resolves the prices of models.

use std::collections::BTreeSet;

use chrono::NaiveDate;
use serde_json::Value;

use super::ConfigResolver;
use super::written::written_settings;
use crate::gateway::config::raw::RawPrice;
use crate::gateway::config::{FIGURE_NAMES, ModelPrice, PriceFault, PriceFigures, PriceInput, TermsInput};

impl ConfigResolver<'_> {
    pub(super) fn prices(&mut self) -> Vec<ModelPrice> {
        let raw = self.raw.prices.as_deref().unwrap_or_default();
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
        let written = written_settings(raw);
        let figures = PriceFigures::from_values(FIGURE_NAMES.map(|name| written.get(name).and_then(Value::as_f64)));
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
        if FIGURE_NAMES.iter().any(|name| self.written.file.has_reported_problem(&format!("{path}.{name}"))) {
            return None;
        }
        let price = ModelPrice::new(PriceInput { model, from, figures, terms, source: raw.source.as_deref() });
        let price =
            price.map_err(|PriceFault { field, reason }| self.report(&format!("{path}.{field}"), &reason)).ok()?;
        self.show_price(path, &price);
        Some(price)
    }

    fn show_price(&mut self, path: &str, price: &ModelPrice) {
        self.text(path, "model", &price.model);
        self.text(path, "from", price.from);
        for (name, figure) in FIGURE_NAMES.into_iter().zip(price.figures.values()) {
            self.number(path, name, figure);
        }
        let terms = &price.terms;
        self.value(path, "context_tokens", terms.context_tokens);
        self.value(path, "max_output_tokens", terms.max_output_tokens);
        self.entries(path, "tiers", terms.tiers.iter().map(|(name, factor)| (name, factor.number().to_string())));
        self.entries(path, "tools", terms.tools.iter().map(|(name, usd)| (name, usd.to_string())));
        self.value(path, "source", price.source.as_deref());
    }
}
