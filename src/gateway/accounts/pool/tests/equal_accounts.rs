//! Tests of the choice between equal accounts.

use std::collections::BTreeSet;

use super::*;

/// The record of a job names its likely account before the first attempt; another account costs one more write.
#[tokio::test]
async fn the_likely_account_of_a_request_is_the_one_that_it_gets() {
    let names: Vec<String> = (0..7).map(|number| format!("a{number}")).collect();
    let pool = pool(&names.iter().map(|name| account(name, 9, 9)).collect::<Vec<_>>());
    let mut used = BTreeSet::new();
    for seed in 0..100 {
        let requirements = AccountRequirements { tie_seed: Some(pseudo_random(seed, 0)), ..standard() };
        let likely = pool.likely_account(&requirements, pseudo_random(seed, 0)).unwrap();
        let slot = pool.acquire_slot(&RequesterId::from_name("r"), requirements, Instant::now() + WAIT_LIMIT).await;
        assert_eq!(slot.unwrap().account().name(), likely, "seed {seed}");
        used.insert(likely);
    }
    assert_eq!(used.len(), names.len(), "equal accounts get equal shares");
}
