//! Tests of the table: which price applies, and its version.

use super::*;
use crate::wire::admin::types::PriceOrigin;

#[test]
fn the_price_of_a_day_is_the_newest_that_has_begun() {
    let figures = |dollars| PriceFigures { per_image: Some(usd(dollars)), ..PriceFigures::default() };
    let file = [price("m", "2026-02-01", figures(2.0)), price("m-2026-05-05", "2026-05-05", figures(9.0))];
    let store = [price("m", "2026-01-01", figures(1.0)), price("m", "2026-02-01", figures(7.0))];
    let table = PriceTable::new(&file, &store);
    let on = |model, text| table.price(model, day(text)).map(|found| found.price.figures.per_image.unwrap().dollars());
    assert_eq!(on("m", "2025-12-31"), None);
    assert_eq!(on("m", "2026-01-31"), Some(1.0));
    assert_eq!(on("m", "2026-02-01"), Some(2.0), "the file has priority over the store");
    // A snapshot has the price of its model, unless it has its own.
    assert_eq!(on("m-2026-03-03", "2026-03-03"), Some(2.0));
    assert_eq!(on("m-2026-05-05", "2026-06-01"), Some(9.0));
    assert_eq!((on("m-2026-99-99", "2026-06-01"), on("m-large", "2026-06-01")), (None, None));
}

#[test]
fn defaults_apply_only_to_models_without_another_price() {
    let figures = PriceFigures { per_image: Some(usd(1.0)), ..PriceFigures::default() };
    let defaults = PriceTable::new(&[], &[]);
    assert!(defaults.iter().all(|price| price.origin == PriceOrigin::Default && price.price.source.is_some()));
    // A price that was agreed on earlier would otherwise lose against the later default.
    let table = PriceTable::new(&[], &[price("gpt-image-2", "2026-01-01", figures)]);
    let found = table.price("gpt-image-2-2026-04-21", day("2026-11-26")).unwrap();
    assert_eq!((found.origin, found.price.figures), (PriceOrigin::Store, figures));
}

#[test]
fn a_version_changes_with_every_figure() {
    let version = |figures| {
        let table = PriceTable::new(&[price("m", "2026-01-01", figures)], &[]);
        table.price("m", day("2026-01-01")).unwrap().version.clone()
    };
    let base = text_figures(1.0, 0.5, 2.0);
    assert_eq!(version(base), version(base));
    let changed = [
        PriceFigures { text_input: None, ..base },
        PriceFigures { cached_text_input: Some(usd(0.6)), ..base },
        PriceFigures { per_image: Some(Usd::ZERO), ..base },
    ];
    assert!(changed.into_iter().all(|figures| version(figures) != version(base)));
}

#[test]
fn a_change_of_one_source_keeps_the_prices_of_the_other() {
    let figures = PriceFigures { per_image: Some(usd(1.0)), ..PriceFigures::default() };
    let current = CurrentPrices::new(&[price("file", "2026-01-01", figures)], Vec::new());
    current.set_store_prices(vec![price("store", "2026-01-01", figures)]);
    let models = || current.table().iter().map(|price| price.price.model.clone()).collect::<Vec<_>>();
    assert_eq!(models(), ["file", "gpt-image-2", "store"]);
    current.set_file_prices(&[]);
    assert_eq!(models(), ["gpt-image-2", "store"]);
}
