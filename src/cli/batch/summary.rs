//! The summary at the end of a batch: the lines by their result, the images, and what is missing.

use serde_json::{Value, json};

use super::{LineDelivery, LineResult};
use crate::cli::image_cost::rounded_usd;
use crate::client::{Error, ErrorKind};

/// The numbers of lines by their result.
#[derive(Default)]
pub(super) struct BatchSummary {
    /// The lines whose images were received and written, each in its file.
    pub(super) made: usize,
    /// The lines whose images the service had made before, also those whose files could not all be written.
    replayed: usize,
    existing: usize,
    pub(super) failed: usize,
    pub(super) not_sent: usize,
    images: usize,
    /// The requested images of the lines that were made whose files do not exist.
    missing_images: usize,
    tokens: u64,
    /// The sum of the costs that are known, in US dollars; `None` if none is.
    cost_usd: Option<f64>,
    /// The number of lines with images whose cost is not known.
    cost_unknown: usize,
    /// True if running the same command again can complete a line.
    can_succeed_later: bool,
}

// === impl BatchSummary ===

impl BatchSummary {
    pub(super) fn add(&mut self, result: &LineResult) {
        match result {
            LineResult::Delivered(delivery) => self.add_delivery(delivery),
            LineResult::Existing => self.existing += 1,
            LineResult::Failed(_) => self.failed += 1,
            LineResult::NotSent => self.not_sent += 1,
        }
        self.can_succeed_later |= result.error().is_some_and(can_succeed_later);
    }

    fn add_delivery(&mut self, LineDelivery { images, cost, files, missing, failure }: &LineDelivery) {
        match failure {
            Some(_) => self.failed += 1,
            None => {
                self.made += 1;
                self.missing_images += missing;
                // A gateway that has made the images before sends the same ones again.
                self.can_succeed_later |= *missing > 0 && !images.is_replayed();
            }
        }
        self.images += files.len();
        if images.is_replayed() {
            self.replayed += 1;
        } else {
            self.tokens += images.usage().map_or(0, |usage| usage.total_tokens);
        }
        match cost.usd() {
            Some(usd) => self.cost_usd = Some(rounded_usd(self.cost_usd.unwrap_or(0.0) + usd)),
            None => self.cost_unknown += 1,
        }
    }

    pub(super) fn has_unknown_cost(&self) -> bool {
        self.cost_unknown > 0
    }

    /// Returns the cost for the last line: a sum without the lines whose cost is not known is not printed alone.
    fn cost_text(&self) -> String {
        match (self.cost_usd, self.cost_unknown) {
            (None, 0) => String::new(),
            (None, _) => ", cost not known".to_owned(),
            (Some(cost), 0) => format!(", cost {cost} USD"),
            (Some(cost), lines) => format!(", cost {cost} USD without the lines whose cost is not known ({lines})"),
        }
    }

    /// Returns what is missing at the end of the batch of `total` lines; `None` if nothing is.
    pub(super) fn problem(&self, total: usize) -> Option<String> {
        let lines = match self.failed + self.not_sent {
            0 => None,
            lines => Some(format!("{lines} of {total} lines have no images")),
        };
        let place = if lines.is_some() { " in other lines" } else { "" };
        let images = match self.missing_images {
            0 => None,
            1 => Some(format!("1 image is missing{place}")),
            images => Some(format!("{images} images are missing{place}")),
        };
        let problems: Vec<String> = [lines, images].into_iter().flatten().collect();
        let advice = if self.can_succeed_later { ": run the same command again to make them" } else { "" };
        (!problems.is_empty()).then(|| format!("{}{advice}", problems.join(", and ")))
    }

    pub(super) fn to_json(&self) -> Value {
        let Self { made, replayed, existing, failed, not_sent, images, missing_images, tokens, .. } = self;
        json!({
            "made": made, "replayed": replayed, "existing": existing, "failed": failed, "not_sent": not_sent,
            "images": images, "missing_images": missing_images, "tokens": tokens, "cost_usd": self.cost_usd,
            "cost_unknown": self.cost_unknown,
        })
    }

    pub(super) fn lines(&self) -> usize {
        self.made + self.existing + self.failed + self.not_sent
    }
}

impl std::fmt::Display for BatchSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { made, replayed, existing, failed, not_sent, images, tokens, .. } = self;
        let missing =
            if self.missing_images > 0 { format!(" (missing: {})", self.missing_images) } else { String::new() };
        let cost = self.cost_text();
        write!(
            f,
            "lines: made {made} (before: {replayed}), existing {existing}, failed {failed}, not sent {not_sent}; \
             images {images}{missing}, tokens {tokens}{cost}"
        )
    }
}

/// Returns true if the same line can succeed when the command is run again, without a change of its request, of the key
/// or of the address.
fn can_succeed_later(error: &Error) -> bool {
    let is_settled = error.is_invalid_request() || error.is_refused() || error.is_invalid_key();
    !is_settled && !matches!(error.kind(), ErrorKind::Settings | ErrorKind::Unintelligible)
}
