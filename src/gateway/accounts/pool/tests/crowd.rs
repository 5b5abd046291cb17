//! The cost that many waiting requests of one group cause for requests of another group, and the kinds of waiting
//! requests, which keep that cost low.

use super::*;
use crate::gateway::accounts::waiter_kinds::WaiterKinds;

/// Returns the number of lease decisions that one slot costs, granted and returned, while `waiting` requests of another
/// group wait. With `own_models` each of them names another model, otherwise all name the same one.
async fn lease_decisions_per_grant(waiting: usize, own_models: bool) -> usize {
    let mut other_account = account("b", 1, 1);
    other_account.groups = vec!["other".to_owned()];
    let pool = pool(&[account("a", 1, 1), other_account]);
    let other_group = || AccountRequirements { group: "other".to_owned(), ..standard() };
    let held = acquire(&pool, "x", other_group()).await.unwrap();
    let log = AnswerLog::default();
    for number in 0..waiting {
        let model = if own_models { format!("m{number}") } else { "m".to_owned() };
        let wanted = AccountRequirements { model: Some(model.into()), ..other_group() };
        log.enqueue(&pool, &format!("{}", number % 8), wanted).await;
    }
    let before = LEASE_DECISIONS.get();
    drop(acquire(&pool, "y", standard()).await.unwrap());
    let decisions = LEASE_DECISIONS.get() - before;
    pool.stop();
    drop(held);
    decisions
}

#[tokio::test]
async fn waiting_requests_of_another_group_cost_one_decision_together() {
    let (idle, waiting) = (lease_decisions_per_grant(0, false).await, lease_decisions_per_grant(1, false).await);
    assert!(idle < waiting, "a waiting request is examined: {idle}, {waiting}");
    assert_eq!(lease_decisions_per_grant(500, false).await, waiting);
    assert_eq!(
        lease_decisions_per_grant(500, true).await,
        waiting,
        "the cost does not depend on model names, which callers choose"
    );
}

#[tokio::test]
async fn a_request_for_a_model_that_no_account_has_is_refused() {
    let pool = pool(&[account("a", 1, 1)]);
    let unfit = AccountRequirements { model: Some("x".into()), ..standard() };
    let held = acquire(&pool, "h", unfit.clone()).await.unwrap();
    let log = AnswerLog::default();
    log.enqueue(&pool, "1", unfit).await;
    log.enqueue(&pool, "2", standard()).await;
    pool.apply_feedback(held.grant(), AccountFeedback::ModelUnavailable { status: 404 });
    run_until_idle().await;
    assert_eq!((log.keys().as_str(), log.results()), ("1", vec![Err(LeaseRefusal::NoneLeft)]));
    drop(held);
    run_until_idle().await;
    assert_eq!(log.results()[1], Ok("a".to_owned()));
    assert_idle(&pool);
}

#[test]
fn a_kind_exists_while_a_request_of_it_waits() {
    let mut kinds = WaiterKinds::default();
    let first = kinds.add(standard());
    assert_eq!(kinds.add(standard()), first);
    assert_ne!(kinds.add(large()), first);
    kinds.remove(first);
    let small = |wanted: &AccountRequirements| (!wanted.is_large).then_some(());
    assert_eq!(kinds.select(small).into_keys().collect::<Vec<_>>(), [first]);
    kinds.remove(first);
    assert!(kinds.select(small).is_empty());
}

/// The record of a job names its likely account before the first attempt; another account costs one more write.
#[tokio::test]
async fn the_likely_account_of_a_request_is_the_one_that_it_gets() {
    let names: Vec<String> = (0..7).map(|number| format!("a{number}")).collect();
    let pool = pool(&names.iter().map(|name| account(name, 9, 9)).collect::<Vec<_>>());
    let mut used = std::collections::BTreeSet::new();
    for seed in 0..100 {
        let requirements = AccountRequirements { tie_seed: Some(pseudo_random(seed, 0)), ..standard() };
        let likely = pool.likely_account(&requirements, pseudo_random(seed, 0)).unwrap();
        let slot = pool.acquire_slot(&RequesterId::from_name("r"), requirements, Instant::now() + WAIT_LIMIT).await;
        assert_eq!(slot.unwrap().account().name(), likely, "seed {seed}");
        used.insert(likely);
    }
    assert_eq!(used.len(), names.len(), "equal accounts get equal shares");
}
