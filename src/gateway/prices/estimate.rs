//! The most that a request can cost, before it is sent.

use chrono::NaiveDate;

use super::table::PriceTable;
use crate::gateway::config::{ModelPrice, PriceFigures};
use crate::gateway::money::Usd;
use crate::gateway::store::CostReason;
use crate::image::{Size, SizeRequest};
use crate::tables::MAX_PIXELS;

/// The image tokens of an image in three qualities: the square of this number of tokens for a square image of two
/// million pixels. Source: the cost calculator of the provider for `gpt-image-2`, in
/// <https://developers.openai.com/api/docs/guides/image-generation>, as users derived it from its results: 7024 tokens
/// for 1024x1024 and 5488 for 1536x1024, both with high quality.
const LOW_EDGE: u64 = 16;
const MEDIUM_EDGE: u64 = 48;
const HIGH_EDGE: u64 = 96;
/// The pixels that count in addition to those of the image, and the divisor of both (the same source).
const EXTRA_PIXELS: u64 = 2_000_000;
const PIXEL_DIVISOR: u64 = 4_000_000;
/// The image tokens of one intermediate image. Source: the provider's guide to image generation.
pub(crate) const PARTIAL_IMAGE_TOKENS: u64 = 100;
/// The most image tokens of one image of the request (our choice). The provider publishes no count for `gpt-image-2`; its
/// predecessor counts at most 6240 tokens for the details of an image, and 839 for its tiles.
pub(crate) const INPUT_IMAGE_TOKENS: u64 = 8_192;
/// The text tokens that the image model may count in addition to those of the prompt, for each call (our choice). In the
/// provider's examples there are about ten.
const EXTRA_TEXT_TOKENS: u64 = 16;
/// The most text tokens that a text model reads and writes (our choice): the context windows of the current models.
const MAX_CONTEXT_TOKENS: u64 = 400_000;
/// The most tokens that a text model writes if the request sets no limit (our choice): the limit of the current models.
pub(crate) const MAX_OUTPUT_TOKENS: u64 = 128_000;
/// The most tokens that a text model reads and the most that it writes in addition to the prompt, if it only passes the
/// prompt on to the image tool (our choice): the description of the tool, the instructions, and its considerations.
pub(crate) const TOOL_CALL_TOKENS: u64 = 8_192;

/// The work that a request asks for, as far as its cost depends on it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkEstimate<'a> {
    /// The model that makes the images, if any are asked for.
    pub(crate) image_model: Option<&'a str>,
    /// The size of each image.
    pub(crate) size: Option<SizeRequest>,
    /// The quality of each image; `None` if the upstream chooses it.
    pub(crate) quality: Option<&'a str>,
    /// The most pixels of an image whose size is open; `None` if any size is possible.
    pub(crate) max_pixels: Option<u64>,
    /// The number of images.
    pub(crate) images: u64,
    /// The number of intermediate images for each image.
    pub(crate) partial_images: u64,
    /// The number of images in the request, with the mask.
    pub(crate) input_images: u64,
    /// The bytes of text in the request. A token is at least one byte.
    pub(crate) text_bytes: u64,
    /// The number of calls, each of which sends the whole input; 0 stands for one call.
    pub(crate) calls: u64,
    /// The text model, if one works on the request.
    pub(crate) text_model: Option<&'a str>,
    /// True if the text model only passes the prompt on to the image tool.
    pub(crate) is_tool_host: bool,
    /// The most tokens that the text model may write, if the request limits them.
    pub(crate) max_output_tokens: Option<u64>,
}

impl WorkEstimate<'_> {
    /// Returns the most image tokens of the answer.
    fn image_output_tokens(&self) -> u64 {
        let size = self.size.and_then(SizeRequest::exact);
        let tokens = match (size, self.max_pixels) {
            (None, Some(pixels)) => tokens_of_shape(1, 1, pixels, self.quality),
            (size, _) => image_tokens(size, self.quality),
        };
        let each = tokens + self.partial_images * PARTIAL_IMAGE_TOKENS;
        each.saturating_mul(self.images)
    }
}

/// Returns the image tokens of one image: exact for `gpt-image-2`, if both size and quality are stated, and otherwise the
/// most of all sizes or qualities that are left open. An unknown quality counts as the best one.
pub(super) fn image_tokens(size: Option<Size>, quality: Option<&str>) -> u64 {
    // A square has the most tokens of all images with as many pixels.
    let Some(size) = size else { return tokens_of_shape(1, 1, u64::from(MAX_PIXELS), quality) };
    let (width, height) = (u64::from(size.width()), u64::from(size.height()));
    tokens_of_shape(width.max(height), width.min(height), width * height, quality)
}

/// Returns the image tokens of an image of which the ratio of its longer to its shorter edge and the pixels are known.
fn tokens_of_shape(long: u64, short: u64, pixels: u64, quality: Option<&str>) -> u64 {
    let edge = match quality {
        Some("low") => LOW_EDGE,
        Some("medium") => MEDIUM_EDGE,
        _ => HIGH_EDGE,
    };
    // The shorter edge has a share of the tokens, rounded to the nearest number.
    let short_edge = (2 * edge * short + long) / (2 * long);
    (edge * short_edge * (EXTRA_PIXELS + pixels)).div_ceil(PIXEL_DIVISOR)
}

/// The work of a response, as far as it is bounded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseWork<'a> {
    /// The text model.
    pub(crate) text_model: &'a str,
    /// The most tokens that the text model reads at once; `None` for its largest context.
    pub(crate) input_tokens: Option<u64>,
    /// The most tokens that it writes; `None` for its largest output.
    pub(crate) output_tokens: Option<u64>,
    /// The number of times that it reads its input; 0 stands for once.
    pub(crate) passes: u64,
    /// The images of each image tool, of which the text model uses the dearest.
    pub(crate) images: Vec<WorkEstimate<'a>>,
    /// The other tools that the upstream runs; one without a price is not counted.
    pub(crate) hosted_tools: Vec<&'a str>,
    /// The most calls of those.
    pub(crate) calls: u64,
}

/// A price that the estimate of a request needs, and that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownPrice {
    /// The model.
    pub(crate) model: String,
    /// The reason: the model has no price, or its price lacks a kind of tokens.
    pub(crate) reason: CostReason,
}

// === impl PriceTable ===

impl PriceTable {
    /// Returns the most that this work can cost on a day.
    ///
    /// # Errors
    ///
    /// Returns the first price that is unknown.
    pub(crate) fn max_cost(&self, work: &WorkEstimate<'_>, day: NaiveDate) -> Result<Usd, UnknownPrice> {
        type MostCost = fn(&PriceFigures, &WorkEstimate<'_>) -> Option<Usd>;
        let parts: [(_, MostCost); 2] = [(work.image_model, most_for_images), (work.text_model, most_for_text)];
        let mut sum = Usd::ZERO;
        for (model, most) in parts {
            let Some(model) = model else { continue };
            let unknown = |reason| UnknownPrice { model: model.to_owned(), reason };
            let price = self.price(model, day).ok_or_else(|| unknown(CostReason::NoPrice))?;
            let part = most(&price.price.figures, work).ok_or_else(|| unknown(CostReason::IncompletePrice))?;
            sum = sum.plus(part);
        }
        Ok(sum)
    }

    /// Returns the most that a response can cost on a day, in the dearest tier.
    ///
    /// # Errors
    ///
    /// Returns the first price that is unknown.
    pub(crate) fn max_response_cost(&self, work: &ResponseWork<'_>, day: NaiveDate) -> Result<Usd, UnknownPrice> {
        let unknown = |reason| UnknownPrice { model: work.text_model.to_owned(), reason };
        let price = &self.price(work.text_model, day).ok_or_else(|| unknown(CostReason::NoPrice))?.price;
        let text = text_of_response(price, work).ok_or_else(|| unknown(CostReason::IncompletePrice))?;
        let mut images = Usd::ZERO;
        for tool in &work.images {
            images = images.max(self.max_cost(tool, day)?);
        }
        let calls = price.terms.tools.iter().filter(|(tool, _)| work.hosted_tools.contains(&tool.as_str()));
        let dearest_call = calls.map(|(_, call)| *call).max().unwrap_or_default();
        Ok(text.plus(images).plus(dearest_call.times(work.calls)))
    }
}

/// Returns the cost of what the text model of a response reads and writes.
fn text_of_response(price: &ModelPrice, work: &ResponseWork<'_>) -> Option<Usd> {
    let ModelPrice { figures, terms, .. } = price;
    let context = terms.context_tokens.unwrap_or(MAX_CONTEXT_TOKENS);
    let input = work.input_tokens.map_or(context, |input| input.min(context)).saturating_mul(work.passes.max(1));
    let output = work.output_tokens.or(terms.max_output_tokens).unwrap_or(MAX_OUTPUT_TOKENS);
    let read = [figures.text_input?].into_iter().chain(figures.cache_write).chain(figures.cache_write_1h).max();
    let cost = cost_of_kinds([(input, read), (output, figures.text_output)])?;
    Some(terms.tiers.values().map(|tier| cost.scaled(*tier)).fold(cost, Usd::max))
}

fn most_for_images(figures: &PriceFigures, work: &WorkEstimate<'_>) -> Option<Usd> {
    let per_image = figures.per_image.unwrap_or_default().times(work.images);
    if (PriceFigures { per_image: None, ..*figures }) == PriceFigures::default() {
        return Some(per_image);
    }
    let calls = work.calls.max(1);
    let input_images = work.input_images.saturating_mul(INPUT_IMAGE_TOKENS);
    let kinds = [
        (work.text_bytes.saturating_add(EXTRA_TEXT_TOKENS).saturating_mul(calls), figures.text_input),
        (input_images.saturating_mul(calls), figures.image_input),
        (work.image_output_tokens(), figures.image_output),
    ];
    cost_of_kinds(kinds).map(|tokens| tokens.plus(per_image))
}

fn most_for_text(figures: &PriceFigures, work: &WorkEstimate<'_>) -> Option<Usd> {
    let input = work.text_bytes.saturating_add(work.input_images.saturating_mul(INPUT_IMAGE_TOKENS));
    if work.is_tool_host {
        let calls = work.calls.max(1);
        let in_all =
            |tokens: u64| tokens.saturating_add(TOOL_CALL_TOKENS).min(MAX_CONTEXT_TOKENS).saturating_mul(calls);
        return cost_of_kinds([(in_all(input), figures.text_input), (in_all(work.text_bytes), figures.text_output)]);
    }
    let output = work.max_output_tokens.unwrap_or(MAX_OUTPUT_TOKENS);
    cost_of_kinds([(input.min(MAX_CONTEXT_TOKENS), figures.text_input), (output, figures.text_output)])
}

/// Returns the cost of these tokens; `None` if a kind that occurs has no price.
fn cost_of_kinds<const N: usize>(kinds: [(u64, Option<Usd>); N]) -> Option<Usd> {
    let is_priced = kinds.iter().all(|(tokens, price)| *tokens == 0 || price.is_some());
    is_priced.then(|| Usd::cost_of_tokens(kinds.map(|(tokens, price)| (tokens, price.unwrap_or_default()))))
}
