//! Crowds: the cost of many waiting requests for requests of another group.

use super::*;
use crate::gateway::accounts::kinds::WaiterKinds;

/// The number of verdicts that one grant costs while `waiting` requests wait for another group.
async fn verdicts_for_a_place_beside(waiting: usize) -> usize {
    let mut others = account("b", 1, 1);
    others.groups = vec!["other".to_owned()];
    let pool = pool(&[account("a", 1, 1), others]);
    let other = || Wanted { group: "other".to_owned(), ..standard() };
    let held = take(&pool, "x", other()).await.unwrap();
    let line = Line::default();
    for number in 0..waiting {
        line.join(&pool, &format!("{}", number % 8), other()).await;
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
    let (nobody, one) = (verdicts_for_a_place_beside(0).await, verdicts_for_a_place_beside(1).await);
    assert!(nobody < one, "a request that waits is looked at: {nobody}, {one}");
    assert_eq!(verdicts_for_a_place_beside(500).await, one);
}

#[test]
fn a_kind_is_known_as_long_as_somebody_waits_who_needs_it() {
    let mut kinds = WaiterKinds::default();
    let session = Wanted { session: Some(Arc::from(&b"s"[..])), ..standard() };
    let first = kinds.join(&standard());
    assert_eq!(kinds.join(&session), first, "a conversation needs nothing else");
    assert_ne!(kinds.join(&large()), first);
    kinds.leave(first);
    assert_eq!(kinds.where_true(|wanted| !wanted.large), Some(vec![first]));
    kinds.leave(first);
    assert_eq!(kinds.where_true(|wanted| !wanted.large), None);
}
