//! The table of prices, and the choice of the price of a model on a day.

use std::collections::BTreeMap;

use chrono::NaiveDate;

use crate::gateway::config::{FIGURE_NAMES, ModelPrice, PriceFigures, PriceTerms};
use crate::gateway::money::Usd;
pub(crate) use crate::wire::admin::types::PriceOrigin;

/// The prices that the provider of the built-in image model publishes. They apply to a model for which neither the
/// configuration nor the store has a price.
///
/// Source: the pricing page of the provider, <https://developers.openai.com/api/docs/pricing>, as read on 2026-04-28
/// (our reading is of a copy of that page). The first day is that of the snapshot `gpt-image-2-2026-04-21`.
const DEFAULTS: [DefaultPrice; 1] = [DefaultPrice {
    model: "gpt-image-2",
    from: NaiveDate::from_ymd_opt(2026, 4, 21),
    figures: PriceFigures {
        text_input: Some(dollars(5, 0)),
        cached_text_input: Some(dollars(1, 25)),
        image_input: Some(dollars(8, 0)),
        cached_image_input: Some(dollars(2, 0)),
        image_output: Some(dollars(30, 0)),
        text_output: None,
        per_image: None,
        cache_write: None,
        cache_write_1h: None,
    },
    source: "https://developers.openai.com/api/docs/pricing, read on 2026-04-28",
}];

/// A price that is part of the program.
struct DefaultPrice {
    model: &'static str,
    from: Option<NaiveDate>,
    figures: PriceFigures,
    source: &'static str,
}

/// The length of the date at the end of a snapshot's name, with the hyphen before it: `-2026-04-21`.
const SNAPSHOT_SUFFIX: usize = 11;

/// The number of bytes of a digest in a version (our choice): enough to tell the few prices of one model and day apart.
const VERSION_BYTES: usize = 4;

/// The prices of all models, in the order of their precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceTable {
    models: BTreeMap<String, BTreeMap<NaiveDate, TablePrice>>,
}

/// A price with its origin and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TablePrice {
    /// The price.
    pub(crate) price: ModelPrice,
    /// The place where it was set.
    pub(crate) origin: PriceOrigin,
    /// A name that changes with every figure, such as `gpt-image-2@2026-04-21#1f0c93ab`.
    pub(crate) version: String,
}

// === impl PriceTable ===

impl PriceTable {
    /// True if there is a model all of whose prices are zero.
    pub(crate) fn has_free_model(&self) -> bool {
        let mut prices = self.models.values().flat_map(BTreeMap::values);
        prices.any(|entry| entry.price.figures.values().into_iter().flatten().all(|price| price == Usd::ZERO))
    }

    /// Joins the prices of the configuration file, those of the store and the defaults.
    pub(crate) fn new(file: &[ModelPrice], store: &[ModelPrice]) -> Self {
        let mut table = Self::default();
        for (prices, origin) in [(store, PriceOrigin::Store), (file, PriceOrigin::File)] {
            for price in prices {
                table.insert(price.clone(), origin);
            }
        }
        for DefaultPrice { model, from, figures, source } in DEFAULTS {
            if let Some(from) = from.filter(|_| !table.models.contains_key(model)) {
                let (terms, source) = (PriceTerms::default(), Some(source.to_owned()));
                let price = ModelPrice { model: model.to_owned(), from, figures, terms, source };
                table.insert(price, PriceOrigin::Default);
            }
        }
        table
    }

    fn insert(&mut self, price: ModelPrice, origin: PriceOrigin) {
        let version = version_of(&price);
        let days = self.models.entry(price.model.clone()).or_default();
        days.insert(price.from, TablePrice { price, origin, version });
    }

    /// Returns the price of a model on a day: the one with the latest first day that is not after it. A snapshot without
    /// a price has that of its model.
    pub(crate) fn price(&self, model: &str, day: NaiveDate) -> Option<&TablePrice> {
        let on_day = |name: &str| Some(self.models.get(name)?.range(..=day).next_back()?.1);
        on_day(model).or_else(|| on_day(snapshot_model(model)?))
    }

    /// Returns all prices, sorted by model and day.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &TablePrice> {
        self.models.values().flat_map(BTreeMap::values)
    }
}

/// Returns the name of a snapshot without its date; `None` if it has no date.
pub(crate) fn snapshot_model(model: &str) -> Option<&str> {
    let (name, suffix) = model.split_at_checked(model.len().checked_sub(SNAPSHOT_SUFFIX)?)?;
    suffix.strip_prefix('-')?.parse::<NaiveDate>().ok()?;
    Some(name)
}

/// Returns the version of a price. Nodes that have the same price give it the same version.
fn version_of(price: &ModelPrice) -> String {
    let named = FIGURE_NAMES.into_iter().zip(price.figures.values());
    let mut text: String = named.map(|(name, value)| format!("{name}={:?};", value.map(Usd::nanos))).collect();
    text.push_str(&format!("{:?}", price.terms));
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    format!("{}@{}#{}", price.model, price.from, hex::encode(&digest.as_ref()[..VERSION_BYTES]))
}

const fn dollars(whole: u64, cents: u64) -> Usd {
    Usd::from_nanos(whole * 1_000_000_000 + cents * 10_000_000)
}
