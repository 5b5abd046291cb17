//! The cost of a finished record.

use chrono::NaiveDate;

use super::table::{PriceTable, TablePrice};
use crate::gateway::config::{ImageModelSpec, PriceFigures};
use crate::gateway::money::{Factor, Usd};
use crate::gateway::store::{
    AnswerCharges, AttemptClass, CacheWrites, CostBasis, CostReason, JobRecord, JobState, Timestamp, TokenUsage,
    UtcDay, max_cost_of,
};
use crate::wire::admin::types::RecordTokens;

/// The factor of a service tier without one (our choice). No tier of the provider is dearer: priority processing costs
/// 1.7 to 2.5 times the list price (<https://openai.com/api-priority-processing/>).
const ASSUMED_TIER: Factor = Factor::from_tenths(25);
/// The service tiers that are cheaper than the default one at every provider: they count like the default one.
const CHEAPER_TIERS: [&str; 2] = ["flex", "batch"];
/// The price of a token that was written to the cache, in those of other input tokens, if it is not known (our choice).
/// It is the dearest known one, for an entry of an hour
/// (<https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching>).
const ASSUMED_CACHE_WRITE: u64 = 2;

/// The operations, as records have them.
const CREATE_IMAGE: &str = "create_image";
const CREATE_RESPONSE: &str = "create_response";

/// The cost of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cost {
    /// The cost; `None` if it is unknown.
    pub(crate) usd: Option<Usd>,
    /// The certainty of the cost.
    pub(crate) basis: CostBasis,
    /// The reason why the cost is not exact.
    pub(crate) reason: Option<CostReason>,
    /// The versions of the prices that were used, separated by spaces.
    pub(crate) price_version: Option<String>,
}

/// Tokens of one kind, with their price and the price that is assumed if that is unknown.
type TokenKind = (u64, Option<Usd>, Option<Usd>);

/// The sum of the parts of a cost so far.
#[derive(Default)]
struct CostSum {
    usd: Usd,
    /// The part that is the most that broken calls can cost.
    broken: Usd,
    /// The reason why the sum is not exact, with its certainty; `None` if it is exact.
    doubt: Option<(CostBasis, CostReason)>,
    versions: Vec<String>,
}

// === impl PriceTable ===

impl PriceTable {
    /// Returns the cost of a finished record.
    ///
    /// A failed call costs the tokens that the upstream counted for it. A call that broke off (class X or O) counts as
    /// the most that it can cost, because an image may have been made; the other failures cost nothing else. The same
    /// applies to a stream that the caller left, because its tokens come last. All of these together count at most as
    /// what the job has reserved.
    ///
    /// The cost is exact only if everything in the answers that can change it has a price ([`AnswerCharges`]).
    pub(crate) fn cost(&self, record: &JobRecord) -> Cost {
        let (mut sum, most) = (CostSum::default(), record.max_cost);
        let day = NaiveDate::from(UtcDay::from(Timestamp::from(record.document.created_at)));
        let is_left = is_left(record);
        // The estimate of a call that broke off also covers an answer whose tokens were not counted.
        let has_whole_answer = !is_left && (record.document.state == JobState::Succeeded || has_answer(record));
        let uncounted = has_whole_answer.then_some(most);
        if record.usage.image.is_some() || !record.document.delivered.is_empty() {
            self.add_images(&mut sum, record, day, uncounted);
        } else if record.usage.host.is_none()
            && let Some(most) = uncounted
        {
            sum.add_uncounted(most, &record.usage.charges);
        }
        if let Some(usage) = &record.usage.host {
            let model = record.document.host_model.as_deref().or(record.document.model.as_deref());
            match model.and_then(|model| self.price(model, day)) {
                Some(price) => sum.add_text_tokens(price, usage, &record.usage.charges),
                None => sum.set_unknown(CostReason::NoPrice),
            }
        }
        self.add_charges(&mut sum, record, day);
        for attempt in record.document.attempts.iter().filter(|attempt| may_have_cost(attempt.class)) {
            sum.add_broken(max_cost_of(attempt).or(most));
        }
        if is_left {
            sum.add_broken(most);
        }
        sum.into_cost(record)
    }

    /// Adds the calls of tools, whose prices are those of the text model, and notes what has no price.
    fn add_charges(&self, sum: &mut CostSum, record: &JobRecord, day: NaiveDate) {
        let charges = &record.usage.charges;
        if let Some(reason) = charges.unpriced {
            sum.set_estimated(reason);
        }
        let model = record.document.host_model.as_deref().or(record.document.model.as_deref());
        let price = model.and_then(|model| self.price(model, day));
        for (tool, calls) in &charges.tools {
            match price.and_then(|price| Some((price, price.price.terms.tools.get(tool)?))) {
                Some((price, usd)) => sum.add(price, usd.times(*calls)),
                None => sum.set_estimated(CostReason::UnpricedTool),
            }
        }
    }

    /// Adds the images of a record. `uncounted` is the estimate for a whole answer without token counts.
    fn add_images(&self, sum: &mut CostSum, record: &JobRecord, day: NaiveDate, uncounted: Option<Option<Usd>>) {
        let default_model = ImageModelSpec::default_model().name;
        // The model of a response is the text model.
        let requested = record.document.model.as_deref().filter(|_| record.document.operation != CREATE_RESPONSE);
        let model = record.document.image_model.as_deref().or(requested).unwrap_or_else(|| {
            sum.set_estimated(CostReason::AssumedModel);
            &default_model
        });
        let Some(price) = self.price(model, day) else { return sum.set_unknown(CostReason::NoPrice) };
        let images = record.document.delivered.len() as u64;
        let figures = &price.price.figures;
        let all_images = figures.per_image.map(|per_image| per_image.times(images));
        match (record.usage.image.as_ref().filter(|usage| figures.is_counted(usage, images)), uncounted) {
            (Some(usage), uncounted) => {
                let tokens = sum.price_image_tokens(figures, usage, record.document.operation == CREATE_IMAGE);
                sum.add_tiered(price, all_images.unwrap_or_default().plus(tokens), &record.usage.charges);
                // Each call made one of the images, and the estimate is for all of them. An answer that broke off has
                // an estimate for all of its calls.
                if let Some(most) = uncounted.filter(|_| usage.uncounted_calls > 0 && figures.charges_tokens()) {
                    let (part, all) = (usage.uncounted_calls.into(), record.document.n.unwrap_or(1));
                    sum.add_uncounted(most.map(|most| most.share(part, all)), &record.usage.charges);
                }
            }
            // An estimate contains the price of each image. If it is zero, the cost is certain.
            (None, Some(most)) if figures.charges_tokens() || (all_images.is_none() && most != Some(Usd::ZERO)) => {
                sum.add_uncounted(most, &record.usage.charges);
            }
            (None, Some(_)) => sum.add_tiered(price, all_images.unwrap_or_default(), &record.usage.charges),
            (None, None) => {}
        }
    }
}

/// Returns the factor of a service tier that has none in the price.
fn assumed_factor(tier: &str) -> Factor {
    if CHEAPER_TIERS.contains(&tier) { Factor::ONE } else { ASSUMED_TIER }
}

/// Returns the tokens of images and of text. A count that is not stated is 0.
fn kinds(tokens: Option<&RecordTokens>) -> [u64; 2] {
    tokens.map_or([0; 2], |tokens| [tokens.image_tokens, tokens.text_tokens].map(Option::unwrap_or_default))
}

/// True if a call was answered.
fn has_answer(record: &JobRecord) -> bool {
    record.document.attempts.iter().any(|attempt| attempt.class.is_none())
}

/// True if the caller left a stream before its last image, or, for a response, before the count of its tokens. The call
/// was ended then, and the upstream may charge for more than it has counted.
fn is_left(record: &JobRecord) -> bool {
    let is_whole = match record.document.n {
        Some(count) => record.document.delivered.len() >= usize::try_from(count).unwrap_or(usize::MAX),
        None => record.usage.host.is_some(),
    };
    record.document.state == JobState::Cancelled && record.document.stream && !is_whole && has_answer(record)
}

/// True if a call of this class ended without a count of its tokens, although it may have been charged.
const fn may_have_cost(class: Option<AttemptClass>) -> bool {
    matches!(class, Some(AttemptClass::MaybePaid | AttemptClass::OutputBegun))
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

    /// True if the counts are those of an answer with this number of images. Some upstreams state zero tokens instead
    /// of none, but no image is made of zero tokens.
    fn is_counted(&self, usage: &TokenUsage, images: u64) -> bool {
        images == 0 || usage.counts.output_tokens.is_some_and(|tokens| tokens > 0) || !self.charges_images()
    }

    /// Returns the cost of an answer with this number of images, as far as its caller can know it: without failed calls
    /// and without a text model. Returns `None` if it is not known. `is_text_only` is true if the request cannot have
    /// had image tokens.
    pub(crate) fn cost_of_answer(&self, images: u64, usage: Option<&TokenUsage>, is_text_only: bool) -> Option<Usd> {
        let all_images = self.per_image.map(|per_image| per_image.times(images));
        let Some(usage) = usage.filter(|usage| self.is_counted(usage, images)) else {
            return all_images.filter(|_| !self.charges_tokens());
        };
        let mut sum = CostSum::default();
        let tokens = sum.price_image_tokens(self, usage, is_text_only);
        (!sum.is_unknown()).then(|| all_images.unwrap_or_default().plus(tokens))
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

    /// Adds a cost that depends on the service tier. A tier without a factor counts as the dearest.
    fn add_tiered(&mut self, price: &TablePrice, usd: Usd, charges: &AnswerCharges) {
        let Some(tier) = charges.tier.as_deref().filter(|_| usd > Usd::ZERO) else { return self.add(price, usd) };
        let factor = price.price.terms.tiers.get(tier).copied().unwrap_or_else(|| {
            self.set_estimated(CostReason::UnpricedTier);
            assumed_factor(tier)
        });
        self.add(price, usd.scaled(factor));
    }

    /// Adds the most that an answer without token counts can cost.
    fn add_uncounted(&mut self, most: Option<Usd>, charges: &AnswerCharges) {
        let factor = charges.tier.as_deref().map_or(Factor::ONE, assumed_factor);
        self.add_estimate(most.map(|most| most.scaled(factor)), CostReason::NoUsage);
    }

    /// Adds the most that a call that broke off can cost.
    fn add_broken(&mut self, most: Option<Usd>) {
        self.broken = self.broken.plus(most.unwrap_or_default());
        self.add_estimate(most, CostReason::Interrupted);
    }

    fn set_estimated(&mut self, reason: CostReason) {
        self.doubt.get_or_insert((CostBasis::Estimated, reason));
    }

    fn set_unknown(&mut self, reason: CostReason) {
        if !self.is_unknown() {
            self.doubt = Some((CostBasis::Unknown, reason));
        }
    }

    fn is_unknown(&self) -> bool {
        matches!(self.doubt, Some((CostBasis::Unknown, _)))
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

    /// Returns the cost of the tokens of an image model, and notes how sure it is. `is_text_only` is true if the
    /// request cannot have had image tokens.
    fn price_image_tokens(&mut self, figures: &PriceFigures, usage: &TokenUsage, is_text_only: bool) -> Usd {
        let input = usage.counts.input_tokens.unwrap_or_default();
        let [mut image, mut text] = kinds(usage.counts.input_tokens_details.as_ref());
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
        let [cached_image, cached_text] = kinds(usage.counts.cached_tokens_details.as_ref());
        let (cached_image, cached_text) = (cached_image.min(image), cached_text.min(text));
        if usage.is_cache_breakdown_assumed {
            self.set_estimated(CostReason::NoBreakdown);
        }
        let (written, write_prices) = self.cache_writes(figures, usage);
        let [_, output_text] = kinds(usage.counts.output_tokens_details.as_ref());
        let output_image = usage.counts.output_tokens.unwrap_or_default().saturating_sub(output_text);
        self.price_kinds([
            write_prices[0],
            write_prices[1],
            ((text - cached_text).saturating_sub(written), figures.text_input, None),
            (cached_text, figures.cached_text_input, figures.text_input),
            (image - cached_image, figures.image_input, None),
            (cached_image, figures.cached_image_input, figures.image_input),
            (output_image, figures.image_output, None),
            (output_text, figures.text_output, None),
        ])
    }

    /// Adds the tokens of a text model, all of which have the prices of text.
    fn add_text_tokens(&mut self, price: &TablePrice, usage: &TokenUsage, charges: &AnswerCharges) {
        let figures = price.price.figures;
        let (written, write_prices) = self.cache_writes(&figures, usage);
        let input = usage.counts.input_tokens.unwrap_or_default();
        let [_, cached] = kinds(usage.counts.cached_tokens_details.as_ref());
        let cached = cached.min(input);
        let tokens = self.price_kinds([
            write_prices[0],
            write_prices[1],
            ((input - cached).saturating_sub(written), figures.text_input, None),
            (cached, figures.cached_text_input, figures.text_input),
            (usage.counts.output_tokens.unwrap_or_default(), figures.text_output, None),
        ]);
        self.add_tiered(price, tokens, charges);
    }

    /// Returns the number of tokens that were written to the cache, and their kinds for [`CostSum::price_kinds`].
    fn cache_writes(&mut self, figures: &PriceFigures, usage: &TokenUsage) -> (u64, [TokenKind; 2]) {
        let CacheWrites { short, hour } = usage.cache_writes;
        let assumed = figures.text_input.map(|price| price.times(ASSUMED_CACHE_WRITE));
        let kinds = [(short, figures.cache_write, assumed), (hour, figures.cache_write_1h, assumed)];
        if kinds.iter().any(|(tokens, known, _)| *tokens > 0 && known.is_none()) {
            self.set_estimated(CostReason::UnpricedCacheWrite);
        }
        (short.saturating_add(hour), kinds)
    }

    /// Returns the cost of tokens, each kind with its price and the price that is assumed if that is unknown.
    fn price_kinds<const N: usize>(&mut self, kinds: [TokenKind; N]) -> Usd {
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

    /// Ends the sum. The cost of broken calls is capped by the reservation of the job, and the whole is at least what
    /// the upstream states.
    fn into_cost(mut self, record: &JobRecord) -> Cost {
        let certain = self.usd.minus(self.broken);
        if let Some(reserved) = record.max_job_cost {
            self.usd = self.usd.min(reserved.max(certain));
        }
        if let Some(stated) = record.usage.charges.stated_cost.filter(|stated| *stated > self.usd) {
            self.doubt = self.doubt.filter(|(basis, _)| *basis != CostBasis::Unknown);
            self.usd = stated;
            self.set_estimated(CostReason::StatedCost);
        }
        let Self { usd, doubt, versions, .. } = self;
        let basis = doubt.map_or(CostBasis::Exact, |(basis, _)| basis);
        Cost {
            usd: (basis != CostBasis::Unknown).then_some(usd),
            basis,
            reason: doubt.map(|(_, reason)| reason),
            price_version: (!versions.is_empty()).then(|| versions.join(" ")),
        }
    }
}
