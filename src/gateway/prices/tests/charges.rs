//! Tests of what an answer is charged for besides its tokens, and of calls that broke off.

use super::*;
use crate::gateway::store::testing::record;

/// Prices with everything that an answer can be charged for.
fn full_table() -> PriceTable {
    let figures =
        PriceFigures { cache_write: Some(usd(2.5)), cache_write_1h: Some(usd(4.0)), ..text_figures(2.0, 0.5, 8.0) };
    let tiers = [("flex".to_owned(), Factor::from_tenths(5))].into_iter().collect();
    let tools = [("web_search".to_owned(), usd(0.01))].into_iter().collect();
    let terms = PriceTerms { tiers, tools, ..PriceTerms::default() };
    PriceTable::new(&[ModelPrice { terms, ..price("gpt-5.5", "2026-01-01", figures) }], &[])
}

/// A response without an image: 1000 input tokens, 100 of them cached, and 50 output tokens.
fn text_response() -> JobRecord {
    record! {
        operation: "create_response".to_owned(),
        model: Some("gpt-5.5".to_owned()),
        n: None,
        delivered: Vec::new(),
        image_model: None,
        usage: None,
        host_model: Some("gpt-5.5".to_owned()),
        host_usage: Some(host_usage(1000, 100, 50)),
        ..image_record(TokenUsage::default())
    }
}

#[test]
fn everything_that_an_answer_is_charged_for_has_its_price_or_the_cost_is_not_exact() {
    let (bare, full, plain) = (table(), full_table(), text_response());
    let cost = |table: &PriceTable, record: &JobRecord| outcome(&table.cost(record));
    let exact = |amount| (micros(amount), CostBasis::Exact, None);
    let estimated = |amount, reason| (micros(amount), CostBasis::Estimated, Some(reason));
    // 900 x 2 + 100 x 0.5 + 50 x 8
    assert_eq!([&bare, &full].map(|table| cost(table, &plain)), [exact(2_250), exact(2_250)]);
    let with = |charges| record! { charges, ..plain.clone() };
    let tier = |name: &str| with(AnswerCharges { tier: Some(name.to_owned()), ..AnswerCharges::default() });
    assert_eq!(cost(&full, &tier("flex")), exact(1_125));
    assert_eq!(cost(&bare, &tier("flex")), estimated(2_250, CostReason::UnpricedTier));
    // A tier that is not known counts as the dearest.
    assert_eq!(cost(&full, &tier("priority")), estimated(5_625, CostReason::UnpricedTier));
    let tools = [("web_search".to_owned(), 50)].into_iter().collect();
    let searches = with(AnswerCharges { tools, ..AnswerCharges::default() });
    assert_eq!(cost(&full, &searches), exact(502_250));
    assert_eq!(cost(&bare, &searches), estimated(2_250, CostReason::UnpricedTool));
    let mut written = plain.clone();
    written.usage.host.as_mut().unwrap().cache_writes = CacheWrites { short: 200, hour: 300 };
    // 400 x 2 + 100 x 0.5 + 200 x 2.5 + 300 x 4 + 50 x 8, and without prices of writes twice the price of input
    assert_eq!(cost(&full, &written), exact(2_950));
    assert_eq!(cost(&bare, &written), estimated(3_250, CostReason::UnpricedCacheWrite));
    let unknown = with(AnswerCharges { unpriced: Some(CostReason::UnpricedUsage), ..AnswerCharges::default() });
    assert_eq!(cost(&full, &unknown), estimated(2_250, CostReason::UnpricedUsage));
    let stated = |dollars| with(AnswerCharges { stated_cost: Some(usd(dollars)), ..AnswerCharges::default() });
    assert_eq!(cost(&full, &stated(0.001)), exact(2_250));
    assert_eq!(cost(&full, &stated(0.04)), estimated(40_000, CostReason::StatedCost));
    let unpriced = record! { host_model: Some("other".to_owned()), ..stated(0.04) };
    assert_eq!(cost(&full, &unpriced), estimated(40_000, CostReason::StatedCost));
}

#[test]
fn an_image_has_the_price_of_its_tier_too() {
    let tier = AnswerCharges { tier: Some("flex".to_owned()), ..AnswerCharges::default() };
    let image = record! { charges: tier, ..image_record(usage(17, 0, 196)) };
    assert_estimated(&image, None, 5_965, CostReason::UnpricedTier);
    let figures = PriceFigures { per_image: Some(usd(0.04)), ..PriceFigures::default() };
    let uncounted = record! { usage: None, image_model: Some("sketch-1".to_owned()), ..image };
    let table = PriceTable::new(&[price("sketch-1", "2026-01-01", figures)], &[]);
    assert_eq!(
        outcome(&table.cost(&uncounted)),
        (micros(40_000), CostBasis::Estimated, Some(CostReason::UnpricedTier))
    );
}

#[test]
fn each_broken_attempt_costs_what_its_own_image_can_cost() {
    use AttemptClass::MaybePaid;
    let ladder = |bounds: [Option<Usd>; 3]| {
        bounds.map(|max_cost_usd| RecordAttempt {
            max_cost_usd: max_cost_usd.map(Usd::dollars),
            ..attempt(Some(MaybePaid))
        })
    };
    let lost = record! {
        attempts: ladder([None, micros(100_000), micros(41_000)]).into(),
        max_cost_usd: micros(400_000),
        max_job_cost_usd: micros(541_000),
        ..failed_record(JobState::Interrupted, &[])
    };
    let expected = |amount| (micros(amount), CostBasis::Estimated, Some(CostReason::Interrupted));
    assert_eq!(outcome(&table().cost(&lost)), expected(541_000));
    // Attempts of which no more is known cost at most what the job has reserved, together.
    let unknown = record! { attempts: ladder([None, None, None]).into(), ..lost.clone() };
    assert_eq!(outcome(&table().cost(&unknown)), expected(541_000));
    // The known part counts in full.
    let made = record! {
        attempts: lost.document.attempts,
        usage: Some(usage(0, 0, 20_000)),
        max_job_cost_usd: micros(541_000),
        max_cost_usd: micros(400_000),
        ..image_record(TokenUsage::default())
    };
    assert_eq!(outcome(&table().cost(&made)), expected(600_000));
}
