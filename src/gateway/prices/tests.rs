//! Tests of costs against invoices that were worked out by hand from the prices and the token counts. The amounts are
//! written in millionths of a dollar, because a price for a million tokens is that of one token in this unit.

mod charges;
mod table;

use chrono::{DateTime, NaiveDate, Utc};

use super::estimate::image_tokens;
use super::*;
use crate::gateway::config::{ModelPrice, PriceFigures, PriceTerms};
use crate::gateway::money::{Factor, Usd};
use crate::gateway::store::testing::{finished_record, record, running_record, token_usage};
use crate::gateway::store::{
    AnswerCharges, AttemptClass, CacheWrites, CostBasis, CostReason, JobRecord, JobState, TokenUsage,
};
use crate::image::{Size, SizeRequest};
use crate::wire::admin::types::{RecordAttempt, RecordImage, RecordTokens};

impl PriceTable {
    /// Returns the cost of a record whose calls cost at most this much each.
    fn cost_with(&self, record: &JobRecord, most: Option<Usd>) -> Cost {
        self.cost(&record! { max_cost_usd: most, ..record.clone() })
    }
}

fn usd(dollars: f64) -> Usd {
    Usd::from_dollars(dollars).unwrap()
}

#[expect(clippy::unnecessary_wraps, reason = "a cost may be unknown")]
fn micros(micros: u64) -> Option<Usd> {
    Some(Usd::from_nanos(micros * 1000))
}

fn day(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn price(model: &str, from: &str, figures: PriceFigures) -> ModelPrice {
    ModelPrice { model: model.to_owned(), from: day(from), figures, terms: PriceTerms::default(), source: None }
}

fn text_figures(input: f64, cached: f64, output: f64) -> PriceFigures {
    PriceFigures {
        text_input: Some(usd(input)),
        cached_text_input: Some(usd(cached)),
        text_output: Some(usd(output)),
        ..PriceFigures::default()
    }
}

/// The defaults for the image model, and prices of a text model.
fn table() -> PriceTable {
    PriceTable::new(&[price("gpt-5.5", "2026-01-01", text_figures(2.0, 0.5, 8.0))], &[])
}

#[expect(clippy::unnecessary_wraps, reason = "the form of the fields")]
fn details(image: u64, text: u64) -> Option<RecordTokens> {
    Some(RecordTokens { image_tokens: Some(image), text_tokens: Some(text) })
}

/// The tokens of an image model: input text, input images, output images.
fn usage(text: u64, image: u64, output: u64) -> TokenUsage {
    token_usage! {
        input_tokens: Some(text + image),
        input_tokens_details: details(image, text),
        output_tokens: Some(output),
        output_tokens_details: details(output, 0),
        total_tokens: Some(text + image + output),
        ..TokenUsage::default()
    }
}

fn host_usage(input: u64, cached: u64, output: u64) -> TokenUsage {
    token_usage! {
        input_tokens: Some(input),
        output_tokens: Some(output),
        total_tokens: Some(input + output),
        cached_tokens_details: Some(RecordTokens { image_tokens: None, text_tokens: Some(cached) }),
        ..TokenUsage::default()
    }
}

/// A record of a finished image without a text model.
fn image_record(usage: TokenUsage) -> JobRecord {
    record! { usage: Some(usage), host_model: None, host_usage: None, ..finished_record("r1") }
}

fn edit_record(usage: TokenUsage) -> JobRecord {
    record! { operation: "edit_image".to_owned(), ..image_record(usage) }
}

fn attempt(class: Option<AttemptClass>) -> RecordAttempt {
    RecordAttempt { class, ..finished_record("r1").document.attempts.swap_remove(0) }
}

/// A record without an answer, after attempts of these classes.
fn failed_record(state: JobState, classes: &[AttemptClass]) -> JobRecord {
    let attempts = classes.iter().map(|class| attempt(Some(*class))).collect();
    record! { state, attempts, ..running_record("r1") }
}

fn outcome(cost: &Cost) -> (Option<Usd>, CostBasis, Option<CostReason>) {
    (cost.usd, cost.basis, cost.reason)
}

fn assert_exact(record: &JobRecord, expected_micros: u64) {
    assert_eq!(outcome(&table().cost_with(record, None)), (micros(expected_micros), CostBasis::Exact, None));
}

fn assert_estimated(record: &JobRecord, most: Option<Usd>, expected_micros: u64, reason: CostReason) {
    let expected = (micros(expected_micros), CostBasis::Estimated, Some(reason));
    assert_eq!(outcome(&table().cost_with(record, most)), expected);
}

fn assert_unknown(record: &JobRecord, reason: CostReason) {
    assert_eq!(outcome(&table().cost_with(record, None)), (None, CostBasis::Unknown, Some(reason)));
}

#[test]
fn a_generation_costs_its_text_and_its_image() {
    // 17 x 5 + 196 x 30
    assert_exact(&image_record(usage(17, 0, 196)), 85 + 5_880);
    // Three images, and the 100 tokens of each of their two intermediate images, are in the count of the upstream.
    assert_exact(&image_record(usage(40, 0, 3 * (7_024 + 200))), 200 + 650_160);
}

#[test]
fn an_edit_costs_its_input_images_too() {
    // 50 x 5 + 1000 x 8 + 7024 x 30
    assert_exact(&edit_record(usage(50, 1_000, 7_024)), 250 + 8_000 + 210_720);
}

#[test]
fn cached_tokens_have_their_own_price_by_kind() {
    let cached = |text, image| token_usage! { cached_tokens_details: details(image, text), ..usage(200, 1_000, 100) };
    // All text and 200 of the image tokens: 200 x 1.25 + 800 x 8 + 200 x 2 + 100 x 30
    assert_exact(&edit_record(cached(200, 200)), 250 + 6_400 + 400 + 3_000);
    // Only images: 200 x 5 + 1000 x 2 + 100 x 30
    assert_exact(&edit_record(cached(0, 1_000)), 1_000 + 2_000 + 3_000);
    // More than there are tokens of the kind: at most all of them.
    assert_exact(&edit_record(cached(9_999, 9_999)), 250 + 2_000 + 3_000);
}

#[test]
fn a_missing_breakdown_makes_an_estimate_that_is_too_high() {
    let totals = token_usage! {
        input_tokens: Some(1_000),
        input_tokens_details: details(0, 1_000),
        output_tokens: Some(1_000),
        is_breakdown_assumed: true,
        ..TokenUsage::default()
    };
    // All input counts as image tokens, which are dearer: 1000 x 8 + 1000 x 30
    assert_estimated(&edit_record(totals.clone()), None, 8_000 + 30_000, CostReason::NoBreakdown);
    // A generation has no input images.
    assert_exact(&image_record(totals), 5_000 + 30_000);
    // 300 of 1000 input tokens are explained: 100 x 5 + 200 x 8 + 700 x 8 + 1000 x 30
    let partial = token_usage! { input_tokens: Some(1_000), ..usage(100, 200, 1_000) };
    assert_estimated(&edit_record(partial), None, 500 + 1_600 + 5_600 + 30_000, CostReason::NoBreakdown);
    let cached = token_usage! {
        cached_tokens_details: details(200, 200),
        is_cache_breakdown_assumed: true,
        ..usage(200, 1_000, 100)
    };
    assert_estimated(&edit_record(cached), None, 250 + 6_400 + 400 + 3_000, CostReason::NoBreakdown);
}

#[test]
fn a_response_costs_its_text_model_and_its_images() {
    let response = record! {
        operation: "create_response".to_owned(),
        model: Some("gpt-5.5".to_owned()),
        usage: Some(usage(20, 0, 1_000)),
        host_usage: Some(host_usage(500, 100, 60)),
        ..finished_record("r1")
    };
    // Images: 20 x 5 + 1000 x 30. Text: 400 x 2 + 100 x 0.5 + 60 x 8.
    assert_exact(&response, 100 + 30_000 + 800 + 50 + 480);
    let versions = table().cost_with(&response, None).price_version.unwrap();
    assert!(versions.starts_with("gpt-image-2@2026-04-21#") && versions.contains(" gpt-5.5@2026-01-01#"), "{versions}");
    // A response without an image has the cost of its text.
    let text_only = record! { usage: None, delivered: Vec::new(), image_model: None, ..response.clone() };
    assert_exact(&text_only, 800 + 50 + 480);
    // Tokens of images that were not delivered: no answer names their model.
    let no_image = record! { delivered: Vec::new(), image_model: None, ..response.clone() };
    assert_estimated(&no_image, None, 100 + 30_000 + 1_330, CostReason::AssumedModel);
    // Without a price of the text model, the whole is unknown.
    assert_unknown(&record! { host_model: Some("other".to_owned()), ..response }, CostReason::NoPrice);
}

#[test]
fn a_failure_costs_the_tokens_that_were_counted_for_it() {
    use AttemptClass::{NothingDone, Refused, ReportedFailed};
    for (state, class) in
        [(JobState::Failed, NothingDone), (JobState::Failed, ReportedFailed), (JobState::Refused, Refused)]
    {
        assert_exact(&failed_record(state, &[class]), 0);
        let counted = record! { usage: Some(usage(17, 0, 50)), ..failed_record(state, &[class]) };
        assert_exact(&counted, 85 + 1_500);
    }
    assert_exact(&failed_record(JobState::Failed, &[]), 0);
}

#[test]
fn a_call_that_broke_off_counts_as_the_most_that_it_can_cost() {
    use AttemptClass::{MaybePaid, NothingDone, OutputBegun};
    let most = micros(211_000);
    for (state, class) in
        [(JobState::Cancelled, MaybePaid), (JobState::Interrupted, MaybePaid), (JobState::Interrupted, OutputBegun)]
    {
        let record = failed_record(state, &[NothingDone, class]);
        assert_estimated(&record, most, 211_000, CostReason::Interrupted);
        assert_unknown(&record, CostReason::Interrupted);
    }
    // A fallback whose larger image may have been charged too.
    let mut fallback = image_record(usage(17, 0, 196));
    fallback.document.attempts = vec![attempt(Some(MaybePaid)), attempt(None)];
    assert_estimated(&fallback, most, 5_965 + 211_000, CostReason::Interrupted);
    // The caller left, and the upstream's answer was read to its end.
    let read_to_end = record! { state: JobState::Cancelled, ..image_record(usage(17, 0, 196)) };
    assert_exact(&read_to_end, 5_965);
}

#[test]
fn an_answer_that_broke_off_after_an_image_counts_once() {
    let broken = record! {
        state: JobState::Interrupted,
        usage: None,
        attempts: vec![attempt(Some(AttemptClass::OutputBegun))],
        ..image_record(TokenUsage::default())
    };
    assert_estimated(&broken, micros(211_000), 211_000, CostReason::Interrupted);
    // The tokens of the first image were counted before the second one broke off.
    let counted = record! { usage: Some(usage(17, 0, 196)), ..broken };
    assert_estimated(&counted, micros(211_000), 5_965 + 211_000, CostReason::Interrupted);
}

#[test]
fn a_stream_that_its_caller_left_counts_as_the_most_that_it_can_cost() {
    let most = micros(211_000);
    let left = record! {
        state: JobState::Cancelled,
        stream: true,
        n: Some(1),
        attempts: vec![attempt(None)],
        ..running_record("r1")
    };
    assert_estimated(&left, most, 211_000, CostReason::Interrupted);
    assert_unknown(&left, CostReason::Interrupted);
    // One of two images had come, with its tokens.
    let first = record! { n: Some(2), state: JobState::Cancelled, stream: true, ..image_record(usage(17, 0, 196)) };
    assert_eq!(first.document.delivered.len(), 1);
    assert_estimated(&first, most, 5_965 + 211_000, CostReason::Interrupted);
    // All images had come.
    assert_exact(&record! { n: Some(1), ..first }, 5_965);
    let response = record! { n: None, operation: "create_response".to_owned(), ..left };
    assert_estimated(&response, most, 211_000, CostReason::Interrupted);
    let counted =
        record! { host_model: Some("gpt-5.5".to_owned()), host_usage: Some(host_usage(500, 100, 60)), ..response };
    assert_exact(&counted, 800 + 50 + 480);
}

#[test]
fn an_answer_without_token_counts_counts_as_the_most_that_it_can_cost() {
    let most = micros(211_000);
    let uncounted = record! { usage: None, ..image_record(TokenUsage::default()) };
    assert_estimated(&uncounted, most, 211_000, CostReason::NoUsage);
    assert_unknown(&uncounted, CostReason::NoUsage);
    // No image is made of zero tokens.
    assert_estimated(&image_record(usage(0, 0, 0)), most, 211_000, CostReason::NoUsage);
    assert_unknown(&image_record(usage(17, 0, 0)), CostReason::NoUsage);
    // The caller got an error, because the image is not the requested one.
    let refused = record! { state: JobState::Failed, delivered: Vec::new(), ..uncounted };
    assert_estimated(&refused, most, 211_000, CostReason::NoUsage);
}

#[test]
fn a_call_without_token_counts_among_others_counts_as_its_share_of_the_most() {
    // Of three images, each made by its own call, two were counted.
    let two_calls = token_usage! { uncounted_calls: 1, ..usage(20, 0, 392) };
    let record = record! { n: Some(3), ..image_record(two_calls) };
    assert_estimated(&record, micros(30_000), 100 + 11_760 + 10_000, CostReason::NoUsage);
    assert_unknown(&record, CostReason::NoUsage);
    assert_exact(&record! { usage: Some(usage(20, 0, 392)), ..record.clone() }, 100 + 11_760);
    let broken =
        record! { state: JobState::Interrupted, attempts: vec![attempt(Some(AttemptClass::OutputBegun))], ..record };
    assert_estimated(&broken, micros(30_000), 100 + 11_760 + 30_000, CostReason::Interrupted);
}

#[test]
fn the_largest_counts_do_not_overflow() {
    let usage = token_usage! { input_tokens: Some(u64::MAX), ..usage(0, 0, u64::MAX) };
    let details = details(u64::MAX, u64::MAX);
    let usage = token_usage! { input_tokens_details: details.clone(), cached_tokens_details: details, ..usage };
    assert_eq!(outcome(&table().cost_with(&edit_record(usage), None)).0, Some(Usd::MAX));
}

#[test]
fn an_image_can_have_a_price_of_its_own() {
    let per_image = |figures| PriceTable::new(&[price("sketch-1", "2026-01-01", figures)], &[]);
    let image = || RecordImage { size: None, output_format: None, quality: None };
    let two_images = record! {
        image_model: Some("sketch-1".to_owned()),
        delivered: vec![image(), image()],
        usage: None,
        ..image_record(TokenUsage::default())
    };
    let only_images = per_image(PriceFigures { per_image: Some(usd(0.04)), ..PriceFigures::default() });
    assert_eq!(outcome(&only_images.cost_with(&two_images, None)), (micros(80_000), CostBasis::Exact, None));
    // Tokens that cost nothing need not be counted.
    let free = PriceFigures { per_image: Some(usd(0.04)), image_output: Some(Usd::ZERO), ..PriceFigures::default() };
    assert_eq!(outcome(&per_image(free).cost_with(&two_images, None)), (micros(80_000), CostBasis::Exact, None));
    let all_free = PriceFigures { image_output: Some(Usd::ZERO), ..PriceFigures::default() };
    let free_cost = per_image(all_free).cost_with(&two_images, Some(Usd::ZERO));
    assert_eq!(outcome(&free_cost), (Some(Usd::ZERO), CostBasis::Exact, None));
    assert_eq!(outcome(&per_image(all_free).cost_with(&two_images, None)).1, CostBasis::Unknown);
    // An estimate contains the price of each image.
    let with_tokens = PriceFigures { image_output: Some(usd(30.0)), ..free };
    let estimate = (micros(500_000), CostBasis::Estimated, Some(CostReason::NoUsage));
    assert_eq!(outcome(&per_image(with_tokens).cost_with(&two_images, micros(500_000))), estimate);
    let broken = record! {
        state: JobState::Interrupted,
        attempts: vec![attempt(Some(AttemptClass::OutputBegun))],
        ..two_images.clone()
    };
    let estimate = (micros(80_000), CostBasis::Estimated, Some(CostReason::Interrupted));
    assert_eq!(outcome(&only_images.cost_with(&broken, micros(80_000))), estimate);
    let with_text = per_image(PriceFigures { per_image: Some(usd(0.04)), ..text_figures(5.0, 1.0, 0.0) });
    let counted = record! { usage: Some(usage(10, 0, 0)), ..two_images };
    assert_eq!(outcome(&with_text.cost_with(&counted, None)), (micros(80_050), CostBasis::Exact, None));
}

#[test]
fn an_unknown_price_is_never_guessed() {
    let other_model = record! { image_model: Some("other".to_owned()), ..image_record(usage(1, 0, 1)) };
    assert_unknown(&other_model, CostReason::NoPrice);
    let before_the_first_price = record! { created_at: "2026-04-20T23:59:59.999Z".parse::<DateTime<Utc>>().unwrap(), ..image_record(usage(1, 0, 1)) };
    assert_unknown(&before_the_first_price, CostReason::NoPrice);
    // The image model has no price for text that it writes.
    let text_output = token_usage! { output_tokens_details: details(190, 6), ..usage(17, 0, 196) };
    assert_unknown(&image_record(text_output), CostReason::IncompletePrice);
    // The tokens of an edit may be of a kind that has no price.
    let only_text = PriceFigures { image_output: Some(usd(30.0)), ..text_figures(5.0, 1.0, 0.0) };
    let only_text = PriceTable::new(&[price("gpt-image-2", "2026-01-01", only_text)], &[]);
    let totals = token_usage! { is_breakdown_assumed: true, ..usage(100, 0, 10) };
    let expected = (None, CostBasis::Unknown, Some(CostReason::IncompletePrice));
    assert_eq!(outcome(&only_text.cost_with(&edit_record(totals), None)), expected);
    // Without a price for cached tokens, the full price is an upper bound.
    let figures = PriceFigures { cached_text_input: None, ..text_figures(5.0, 0.0, 0.0) };
    let table = PriceTable::new(&[price("gpt-image-2", "2026-01-01", figures)], &[]);
    let cached = token_usage! { cached_tokens_details: details(0, 4), ..usage(10, 0, 0) };
    let expected = (micros(50), CostBasis::Estimated, Some(CostReason::IncompletePrice));
    assert_eq!(outcome(&table.cost_with(&image_record(cached), None)), expected);
}

#[test]
fn image_tokens_are_those_of_the_providers_calculator() {
    let tokens = |width, height, quality| image_tokens(Size::new(width, height).ok(), Some(quality));
    // Figures that users read from the calculator.
    assert_eq!((tokens(1024, 1024, "high"), tokens(1536, 1024, "high")), (7_024, 5_488));
    assert_eq!(tokens(1024, 1536, "high"), tokens(1536, 1024, "high"));
    // The prices that the provider states for a square image are 0.006, 0.053 and 0.211 dollars.
    let dollars =
        |quality| (Usd::cost_of_tokens([(tokens(1024, 1024, quality), usd(30.0))]).dollars() * 1000.0).round();
    assert_eq!((dollars("low"), dollars("medium"), dollars("high")), (6.0, 53.0, 211.0));
}

#[test]
fn open_properties_count_as_the_dearest() {
    let most = image_tokens(None, None);
    for (width, height) in [(2880, 2880), (3840, 2160), (1024, 1024), (3840, 1280)] {
        for quality in ["low", "medium", "high", "auto"] {
            assert!(image_tokens(Size::new(width, height).ok(), Some(quality)) <= most, "{width}x{height} {quality}");
        }
    }
}

#[test]
fn the_most_that_work_can_cost_includes_all_of_its_parts() {
    let table = table();
    let today = day("2026-11-26");
    let image = WorkEstimate {
        image_model: Some("gpt-image-2"),
        size: Some("1024x1024".parse::<SizeRequest>().unwrap()),
        quality: Some("high"),
        images: 2,
        partial_images: 3,
        input_images: 1,
        text_bytes: 100,
        ..WorkEstimate::default()
    };
    // (100 + 16) x 5 + 8192 x 8 + 2 x (7024 + 300) x 30
    assert_eq!(table.max_cost(&image, today).ok(), micros(580 + 65_536 + 439_440));
    let text = WorkEstimate {
        text_model: Some("gpt-5.5"),
        max_output_tokens: Some(50),
        text_bytes: 30,
        ..WorkEstimate::default()
    };
    // 30 x 2 + 50 x 8
    assert_eq!(table.max_cost(&text, today).ok(), micros(60 + 400));
    // Two calls, each with the whole input: 2 x ((100 + 16) x 5 + 8192 x 8) + 439 440,
    // and for the text model 2 x (100 + 8192 + 8192) x 2 + 2 x (100 + 8192) x 8
    let hosted = WorkEstimate { text_model: Some("gpt-5.5"), is_tool_host: true, calls: 2, ..image.clone() };
    assert_eq!(table.max_cost(&hosted, today).ok(), micros(132_232 + 439_440 + 65_936 + 132_672));
    let unknown = |model: &str, reason| UnknownPrice { model: model.to_owned(), reason };
    let other = WorkEstimate { text_model: Some("other"), ..image.clone() };
    assert_eq!(table.max_cost(&other, today), Err(unknown("other", CostReason::NoPrice)));
    let figures = PriceFigures { text_input: Some(usd(5.0)), ..PriceFigures::default() };
    let incomplete = PriceTable::new(&[price("gpt-image-2", "2026-01-01", figures)], &[]).max_cost(&image, today);
    assert_eq!(incomplete, Err(unknown("gpt-image-2", CostReason::IncompletePrice)));
}
