//! The cost of many waiting requests for requests of another group.

use super::*;
use crate::gateway::accounts::waiter_kinds::WaiterKinds;

/// The number of verdicts that one grant costs while `waiting` requests wait for another group. All of them ask for one
/// model, or each for its own.
async fn verdicts_for_a_place_beside(waiting: usize, own_models: bool) -> usize {
    let mut others = account("b", 1, 1);
    others.groups = vec!["other".to_owned()];
    let pool = pool(&[account("a", 1, 1), others]);
    let other = || AccountRequirements { group: "other".to_owned(), ..standard() };
    let held = take(&pool, "x", other()).await.unwrap();
    let line = AnswerLog::default();
    for number in 0..waiting {
        let model = if own_models { format!("m{number}") } else { "m".to_owned() };
        let wanted = AccountRequirements { model: Some(model.into()), ..other() };
        line.join(&pool, &format!("{}", number % 8), wanted).await;
    }
    let before = VERDICTS.get();
    drop(take(&pool, "y", standard()).await.unwrap());
    let verdicts = VERDICTS.get() - before;
    pool.stop();
    drop(held);
    verdicts
}

#[tokio::test]
async fn requests_that_wait_for_another_group_cost_one_verdict_together() {
    let (nobody, one) = (verdicts_for_a_place_beside(0, false).await, verdicts_for_a_place_beside(1, false).await);
    assert!(nobody < one, "a request that waits is looked at: {nobody}, {one}");
    assert_eq!(verdicts_for_a_place_beside(500, false).await, one);
    assert_eq!(verdicts_for_a_place_beside(500, true).await, one, "callers choose the names of models");
}

#[tokio::test]
async fn who_waits_for_a_model_that_no_account_has_any_more_is_told() {
    let pool = pool(&[account("a", 1, 1)]);
    let unfit = AccountRequirements { model: Some("x".into()), ..standard() };
    let held = take(&pool, "h", unfit.clone()).await.unwrap();
    let line = AnswerLog::default();
    line.join(&pool, "1", unfit).await;
    line.join(&pool, "2", standard()).await;
    pool.apply_feedback(held.grant(), AccountFeedback::ModelUnavailable { status: 404 });
    settled().await;
    assert_eq!((line.keys().as_str(), line.got()), ("1", vec![Err(LeaseRefusal::NoneLeft)]));
    drop(held);
    settled().await;
    assert_eq!(line.got()[1], Ok("a".to_owned()));
    is_clean(&pool);
}

#[test]
fn a_kind_is_known_as_long_as_somebody_waits_who_needs_it() {
    let mut kinds = WaiterKinds::default();
    let first = kinds.add(standard());
    assert_eq!(kinds.add(standard()), first);
    assert_ne!(kinds.add(large()), first);
    kinds.remove(first);
    assert_eq!(kinds.matching(|wanted| !wanted.is_large), Some(vec![first]));
    kinds.remove(first);
    assert_eq!(kinds.matching(|wanted| !wanted.is_large), None);
}
