//! Tests of prices.

use super::*;
use crate::gateway::config::{FIGURE_NAMES, ModelPrice, PriceFigures, PriceTerms};
use crate::gateway::money::Factor;
use crate::gateway::store::testing::record;

fn price(model: &str, from: &str, nanos: u64) -> ModelPrice {
    let mut values = [None; FIGURE_NAMES.len()];
    for (index, value) in (0..).zip(&mut values) {
        *value = (index % 2 == 0).then(|| Usd::from_nanos(nanos + index));
    }
    let (figures, source) = (PriceFigures::from_values(values), Some("a page".to_owned()));
    let tools = [("web_search".to_owned(), Usd::from_nanos(nanos))].into_iter().collect();
    let tiers = [("flex".to_owned(), Factor::from_tenths(5))].into_iter().collect();
    let terms = PriceTerms { context_tokens: Some(nanos), max_output_tokens: None, tiers, tools };
    ModelPrice { model: model.to_owned(), from: from.parse().unwrap(), figures, terms, source }
}

#[tokio::test]
async fn a_price_is_read_with_every_figure_and_replaced_by_model_and_day() {
    for Fixture { store, second_store, .. } in stores().await {
        let audit = AuditContext::command();
        let [first, second, other] =
            [price("m", "2026-01-01", 10), price("m", "2026-02-01", 20), price("n", "2026-01-01", 30)];
        for price in [&other, &second, &first] {
            store.set_price(&audit, price).await.unwrap();
        }
        assert_eq!(second_store.list_prices().await.unwrap(), [first.clone(), second.clone(), other.clone()]);
        let replaced = ModelPrice { source: None, ..price("m", "2026-02-01", 99) };
        store.set_price(&audit, &replaced).await.unwrap();
        assert_eq!(store.list_prices().await.unwrap(), [first.clone(), replaced, other.clone()]);
        assert!(store.delete_price(&audit, "m", second.from).await.unwrap());
        assert!(!store.delete_price(&audit, "m", second.from).await.unwrap());
        assert_eq!(store.list_prices().await.unwrap(), [first, other]);
        let trail = store.list_audit_page(&AuditFilter { limit: 9, ..AuditFilter::default() }).await.unwrap().items;
        let actions: Vec<_> = trail.iter().map(|row| row.action.as_str()).collect();
        assert_eq!(actions, ["price.delete", "price.set", "price.set", "price.set", "price.set"]);
    }
}

#[tokio::test]
async fn the_costs_of_records_are_summed_exactly() {
    for Fixture { store, .. } in stores().await {
        let costs = [Some(1), Some(0), None, Some(u64::MAX), Some(7)];
        for (number, nanos) in (0..).zip(costs) {
            let (id, end_user) = (format!("r{number}"), (number > 3).then(|| "u-9".to_owned()));
            let open = record! { end_user: end_user.clone(), ..running_record(&id) };
            let cost_usd = nanos.map(Usd::from_nanos).filter(|usd| *usd < Usd::MAX);
            let closed = record! { cost_usd, end_user, ..finished_record(&id) };
            write(&*store, &[RowWrite::Open(&open), RowWrite::Close(&closed)]).await;
        }
        let total = async |filter: UsageFilter| {
            let counts = store.total_usage(&filter).await.unwrap();
            (counts.cost_usd.nanos(), counts.cost_unknown)
        };
        assert_eq!(total(UsageFilter::default()).await, (8, 2));
        let end_user = Some("u-9".to_owned());
        assert_eq!(total(UsageFilter { end_user, ..UsageFilter::default() }).await, (7, 0));
    }
}

/// The process was killed after a fallback had begun: each attempt counts as the most that its own image can cost.
#[tokio::test]
async fn a_killed_ladder_costs_the_most_of_its_attempts() {
    for Fixture { store, .. } in stores().await {
        let nanos = |nanos| Some(Usd::from_nanos(nanos));
        let attempt = |most: Option<Usd>| types::RecordAttempt {
            class: Some(AttemptClass::MaybePaid),
            max_cost_usd: most.map(Usd::dollars),
            ..finished_record("r").document.attempts.remove(0)
        };
        for (id, bound, expected) in [("r1", nanos(60), 460), ("r2", nanos(300), 500), ("r3", None, 500)] {
            let open = record! { max_cost_usd: nanos(400), max_job_cost_usd: nanos(500), ..running_record(id) };
            let ladder = record! { attempts: vec![attempt(None), attempt(bound)], ..open.clone() };
            write(&*store, &[RowWrite::Open(&open), RowWrite::RecordAttempts(&ladder)]).await;
            store.interrupt_running(&NodeId::only()).await.unwrap();
            let record = store.find_record(&id.into(), None).await.unwrap().unwrap();
            let expected = (nanos(expected).map(Usd::dollars), ladder.document.attempts);
            assert_eq!((record.cost_usd, record.attempts), expected, "{id}");
        }
    }
}
