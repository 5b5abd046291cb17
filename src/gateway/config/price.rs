//! The prices of models, as settings and the store hold them.

use chrono::NaiveDate;

use crate::gateway::money::Usd;

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
    /// The place where the prices are published, for people.
    pub(crate) source: Option<String>,
}

/// The prices of one model, in US dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PriceFigures {
    /// A million text tokens of the request.
    pub(crate) text_input: Option<Usd>,
    /// A million text tokens of the request that the upstream had in its cache.
    pub(crate) cached_text_input: Option<Usd>,
    /// A million image tokens of the request.
    pub(crate) image_input: Option<Usd>,
    /// A million image tokens of the request that the upstream had in its cache.
    pub(crate) cached_image_input: Option<Usd>,
    /// A million image tokens of the answer.
    pub(crate) image_output: Option<Usd>,
    /// A million text tokens of the answer.
    pub(crate) text_output: Option<Usd>,
    /// One image of the answer, in addition to the tokens.
    pub(crate) per_image: Option<Usd>,
}

/// The names of the prices in settings, commands, the admin API and the store, in the order in which they are listed.
pub(crate) const FIGURE_NAMES: [&str; 7] = [
    "text_input",
    "cached_text_input",
    "image_input",
    "cached_image_input",
    "image_output",
    "text_output",
    "per_image",
];

/// The longest name of a model, in bytes, and the longest source (our choice): both fit into a record.
const LONGEST_TEXT: usize = 256;
/// The highest price, in dollars (our choice).
const HIGHEST_PRICE: u32 = 1_000_000;

/// Prices as somebody writes them: in settings, in a command, or in a request to the admin API.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriceInput<'a> {
    /// The model.
    pub(crate) model: &'a str,
    /// The first day.
    pub(crate) from: NaiveDate,
    /// The prices in dollars, in the order of [`FIGURE_NAMES`].
    pub(crate) dollars: [Option<f64>; FIGURE_NAMES.len()],
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
        let PriceInput { model, from, dollars, source } = input;
        let fault = |field, reason: &str| Err(PriceFault { field, reason: reason.to_owned() });
        if model.is_empty() || model.len() > LONGEST_TEXT || !model.bytes().all(|byte| byte.is_ascii_graphic()) {
            return fault("model", "must be the id of a model, without spaces");
        }
        let mut values = [None; FIGURE_NAMES.len()];
        for ((value, dollars), field) in values.iter_mut().zip(dollars).zip(FIGURE_NAMES) {
            let Some(dollars) = dollars else { continue };
            *value = Usd::from_dollars(dollars).filter(|_| dollars <= f64::from(HIGHEST_PRICE));
            if value.is_none() {
                return fault(field, &format!("must be from 0 to {HIGHEST_PRICE}"));
            }
            // A price that is rounded to zero would make its tokens free.
            if *value == Some(Usd::ZERO) && dollars > 0.0 {
                return fault(field, "is below a billionth of a dollar and would count as 0");
            }
        }
        if values == [None; FIGURE_NAMES.len()] {
            return fault("model", "has no price; set at least one, such as `image_output`");
        }
        if source.is_some_and(|source| source.len() > LONGEST_TEXT || source.chars().any(char::is_control)) {
            return fault("source", &format!("must be one line of at most {LONGEST_TEXT} bytes"));
        }
        let (figures, source) = (PriceFigures::from_values(values), source.map(str::to_owned));
        Ok(Self { model: model.to_owned(), from, figures, source })
    }
}

// === impl PriceFigures ===

impl PriceFigures {
    /// Returns the prices in the order of [`FIGURE_NAMES`].
    pub(crate) const fn values(self) -> [Option<Usd>; FIGURE_NAMES.len()] {
        [
            self.text_input,
            self.cached_text_input,
            self.image_input,
            self.cached_image_input,
            self.image_output,
            self.text_output,
            self.per_image,
        ]
    }

    /// Creates prices from values in the order of [`FIGURE_NAMES`].
    pub(crate) const fn from_values(values: [Option<Usd>; FIGURE_NAMES.len()]) -> Self {
        let [text_input, cached_text_input, image_input, cached_image_input, image_output, text_output, per_image] =
            values;
        Self { text_input, cached_text_input, image_input, cached_image_input, image_output, text_output, per_image }
    }
}
