//! The cost of a finished record.

use chrono::NaiveDate;

use super::table::{PriceTable, TablePrice};
use crate::gateway::config::{ImageModelSpec, PriceFigures};
use crate::gateway::money::Usd;
use crate::gateway::store::{AttemptClass, CostBasis, CostReason, JobState, Record, TokenDetails, TokenUsage, UtcDay};

/// The operations, as records have them.
const CREATE_IMAGE: &str = "create_image";
const CREATE_RESPONSE: &str = "create_response";

/// The cost of a record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The cost; `None` if it is unknown.
    pub(crate) usd: Option<Usd>,
    /// How sure the cost is.
    pub(crate) basis: CostBasis,
    /// The reason why the cost is not exact.
    pub(crate) reason: Option<CostReason>,
    /// The versions of the prices that were used, separated by spaces.
    pub(crate) price_version: Option<String>,
}

/// The sum of the parts of a cost so far.
#[derive(Default)]
struct CostSum {
    usd: Usd,
    basis: CostBasis,
    reason: Option<CostReason>,
    versions: Vec<String>,
}

// === impl PriceTable ===

impl PriceTable {
    /// Returns the cost of a finished record. `most` is the most that one call of its job can cost, if that is known.
    ///
    /// A failed call costs the tokens that the upstream counted for it. A call that broke off (class X or O) counts as
    /// the most that it can cost, because an image may have been made; the other failures cost nothing else. The same
    /// applies to a stream that the caller left, because its tokens come last.
    pub(crate) fn cost(&self, record: &Record, most: Option<Usd>) -> Cost {
        let mut sum = CostSum::default();
        let day = NaiveDate::from(UtcDay::from(record.created_at));
        let is_left = is_left(record);
        // The estimate of a call that broke off also covers an answer whose tokens were not counted.
        let has_whole_answer = !is_left && (record.state == JobState::Succeeded || has_answer(record));
        let uncounted = has_whole_answer.then_some(most);
        if record.usage.is_some() || !record.delivered.is_empty() {
            self.add_images(&mut sum, record, day, uncounted);
        } else if record.host_usage.is_none() {
            uncounted.into_iter().for_each(|most| sum.add_estimate(most, CostReason::NoUsage));
        }
        if let Some(usage) = &record.host_usage {
            let model = record.host_model.as_deref().or(record.model.as_deref());
            match model.and_then(|model| self.price(model, day)) {
                Some(price) => sum.add_text_tokens(price, usage),
                None => sum.set_unknown(CostReason::NoPrice),
            }
        }
        let broken = record.attempts.iter().filter(|attempt| may_have_cost(attempt.class)).count();
        for _ in 0..broken + usize::from(is_left) {
            sum.add_estimate(most, CostReason::Interrupted);
        }
        sum.into_cost()
    }

    /// Adds the images of a record. `uncounted` is the estimate for a whole answer without token counts.
    fn add_images(&self, sum: &mut CostSum, record: &Record, day: NaiveDate, uncounted: Option<Option<Usd>>) {
        let default_model = ImageModelSpec::default_model().name;
        // The model of a response is the text model.
        let requested = record.model.as_deref().filter(|_| record.operation != CREATE_RESPONSE);
        let model = record.image_model.as_deref().or(requested).unwrap_or_else(|| {
            sum.set_estimated(CostReason::AssumedModel);
            &default_model
        });
        let Some(price) = self.price(model, day) else { return sum.set_unknown(CostReason::NoPrice) };
        let images = u64::try_from(record.delivered.len()).unwrap_or(u64::MAX);
        let figures = &price.price.figures;
        let all_images = figures.per_image.map(|per_image| per_image.times(images));
        match (record.usage.as_ref().filter(|usage| figures.is_counted(usage, images)), uncounted) {
            (Some(usage), uncounted) => {
                let tokens = sum.price_image_tokens(figures, usage, record.operation == CREATE_IMAGE);
                sum.add(price, all_images.unwrap_or_default().plus(tokens));
                // Each call made one of the images, and the estimate is for all of them. An answer that broke off has an
                // estimate for all of its calls.
                if let Some(most) = uncounted.filter(|_| usage.uncounted_calls > 0 && figures.charges_tokens()) {
                    let (part, all) = (usage.uncounted_calls.into(), record.n.unwrap_or(1).into());
                    sum.add_estimate(most.map(|most| most.share(part, all)), CostReason::NoUsage);
                }
            }
            // An estimate contains the price of each image. If it is zero, the cost is certain.
            (None, Some(most)) if figures.charges_tokens() || (all_images.is_none() && most != Some(Usd::ZERO)) => {
                sum.add_estimate(most, CostReason::NoUsage);
            }
            (None, Some(_)) => sum.add(price, all_images.unwrap_or_default()),
            (None, None) => {}
        }
    }
}

/// True if a call was answered.
fn has_answer(record: &Record) -> bool {
    record.attempts.iter().any(|attempt| attempt.class.is_none())
}

/// True if the caller left a stream before its last image, or, for a response, before the count of its tokens. The call
/// was ended then, and the upstream may charge for more than it has counted.
fn is_left(record: &Record) -> bool {
    let is_whole = match record.n {
        Some(count) => record.delivered.len() >= usize::try_from(count).unwrap_or(usize::MAX),
        None => record.host_usage.is_some(),
    };
    record.state == JobState::Cancelled && record.stream && !is_whole && has_answer(record)
}

/// True if a call of this class ended without a count of its tokens, although it may have been charged.
const fn may_have_cost(class: Option<AttemptClass>) -> bool {
    matches!(class, Some(AttemptClass::X | AttemptClass::O))
}

// === impl PriceFigures ===

impl PriceFigures {
    /// True if any tokens have a price that is not zero.
    fn charges_tokens(&self) -> bool {
        Self { per_image: None, ..*self }.values().into_iter().flatten().any(|price| price > Usd::ZERO)
    }

    /// True if the tokens of images of answers have a price that is not zero.
    fn charges_images(&self) -> bool {
        self.image_output.is_some_and(|price| price > Usd::ZERO)
    }

    /// True if the counts are those of an answer with this number of images. Some upstreams state zero tokens instead of
    /// none, but no image is made of zero tokens.
    fn is_counted(&self, usage: &TokenUsage, images: u64) -> bool {
        images == 0 || usage.output_tokens.is_some_and(|tokens| tokens > 0) || !self.charges_images()
    }

    /// Returns the cost of an answer with this number of images, as far as its caller can know it: without failed calls
    /// and without a text model. Returns `None` if it is not known. `is_text_only` is true if the request cannot have had
    /// image tokens.
    pub(crate) fn cost_of_answer(&self, images: u64, usage: Option<&TokenUsage>, is_text_only: bool) -> Option<Usd> {
        let all_images = self.per_image.map(|per_image| per_image.times(images));
        let Some(usage) = usage.filter(|usage| self.is_counted(usage, images)) else {
            return all_images.filter(|_| !self.charges_tokens());
        };
        let mut sum = CostSum::default();
        let tokens = sum.price_image_tokens(self, usage, is_text_only);
        (sum.basis < CostBasis::Unknown).then(|| all_images.unwrap_or_default().plus(tokens))
    }
}

// === impl CostSum ===

impl CostSum {
    fn add(&mut self, price: &TablePrice, usd: Usd) {
        self.usd = self.usd.plus(usd);
        if !self.versions.contains(&price.version) {
            self.versions.push(price.version.clone());
        }
    }

    fn set_estimated(&mut self, reason: CostReason) {
        if self.basis < CostBasis::Estimated {
            (self.basis, self.reason) = (CostBasis::Estimated, Some(reason));
        }
    }

    fn set_unknown(&mut self, reason: CostReason) {
        if self.basis < CostBasis::Unknown {
            (self.basis, self.reason) = (CostBasis::Unknown, Some(reason));
        }
    }

    fn add_estimate(&mut self, most: Option<Usd>, reason: CostReason) {
        match most {
            Some(most) => {
                self.usd = self.usd.plus(most);
                self.set_estimated(reason);
            }
            None => self.set_unknown(reason),
        }
    }

    /// Returns the cost of the tokens of an image model, and notes how sure it is. `is_text_only` is true if the request
    /// cannot have had image tokens.
    fn price_image_tokens(&mut self, figures: &PriceFigures, usage: &TokenUsage, is_text_only: bool) -> Usd {
        let input = usage.input_tokens.unwrap_or_default();
        let TokenDetails { image_tokens, text_tokens } = usage.input_tokens_details.unwrap_or_default();
        let (mut image, mut text) = (image_tokens.unwrap_or_default(), text_tokens.unwrap_or_default());
        // Tokens of an unknown kind count as those of the dearer kind, if both kinds have a price.
        let is_unstated = usage.is_breakdown_assumed && !is_text_only;
        let unknown = if is_unstated { input } else { input.saturating_sub(image.saturating_add(text)) };
        if unknown > 0 {
            if !is_text_only && (figures.text_input.is_none() || figures.image_input.is_none()) {
                self.set_unknown(CostReason::IncompletePrice);
            }
            if usage.is_breakdown_assumed {
                (image, text) = (0, 0);
            }
            if is_text_only || figures.text_input >= figures.image_input {
                text += unknown;
            } else {
                image += unknown;
            }
            if !is_text_only {
                self.set_estimated(CostReason::NoBreakdown);
            }
        }
        let cached = usage.cached_tokens_details.unwrap_or_default();
        let cached_text = cached.text_tokens.unwrap_or_default().min(text);
        let cached_image = cached.image_tokens.unwrap_or_default().min(image);
        if usage.is_cache_breakdown_assumed {
            self.set_estimated(CostReason::NoBreakdown);
        }
        let details = usage.output_tokens_details.unwrap_or_default();
        let output_text = details.text_tokens.unwrap_or_default();
        let output_image = usage.output_tokens.unwrap_or_default().saturating_sub(output_text);
        self.price_kinds([
            (text - cached_text, figures.text_input, None),
            (cached_text, figures.cached_text_input, figures.text_input),
            (image - cached_image, figures.image_input, None),
            (cached_image, figures.cached_image_input, figures.image_input),
            (output_image, figures.image_output, None),
            (output_text, figures.text_output, None),
        ])
    }

    /// Adds the tokens of a text model, all of which have the prices of text.
    fn add_text_tokens(&mut self, price: &TablePrice, usage: &TokenUsage) {
        let figures = price.price.figures;
        let input = usage.input_tokens.unwrap_or_default();
        let cached = usage.cached_tokens_details.and_then(|details| details.text_tokens).unwrap_or_default().min(input);
        let tokens = self.price_kinds([
            (input - cached, figures.text_input, None),
            (cached, figures.cached_text_input, figures.text_input),
            (usage.output_tokens.unwrap_or_default(), figures.text_output, None),
        ]);
        self.add(price, tokens);
    }

    /// Returns the cost of tokens, each kind with its price and the price that is assumed if that is unknown.
    fn price_kinds<const N: usize>(&mut self, kinds: [(u64, Option<Usd>, Option<Usd>); N]) -> Usd {
        let mut priced = Vec::with_capacity(N);
        for (tokens, known, assumed) in kinds.into_iter().filter(|(tokens, ..)| *tokens > 0) {
            match known.or(assumed) {
                Some(usd) => priced.push((tokens, usd)),
                None => self.set_unknown(CostReason::IncompletePrice),
            }
            if known.is_none() {
                self.set_estimated(CostReason::IncompletePrice);
            }
        }
        Usd::cost_of_tokens(priced)
    }

    fn into_cost(self) -> Cost {
        let Self { usd, basis, reason, versions } = self;
        Cost {
            usd: (basis != CostBasis::Unknown).then_some(usd),
            basis,
            reason,
            price_version: (!versions.is_empty()).then(|| versions.join(" ")),
        }
    }
}
