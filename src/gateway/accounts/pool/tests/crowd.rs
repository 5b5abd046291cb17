//! Crowds: what those cost the others who wait for something else.

use super::*;
use crate::gateway::accounts::kinds::Kinds;

/// How long so many places take to go out and come back beside as many who wait for another group.
async fn beside(waiting: usize) -> (Duration, Arc<Pool>, Line) {
    let mut others = account("b", 1, 1);
    others.groups = vec!["other".to_owned()];
    let accounts: Vec<_> = (0..4).map(|number| account(&format!("a{number}"), 1, 1)).chain([others]).collect();
    let pool = pool(&accounts);
    let other = || Wanted { group: "other".to_owned(), ..standard() };
    let held = take(&pool, "x", other()).await.unwrap();
    let line = Line::default();
    for number in 0..waiting {
        line.join(&pool, &format!("{}", number % 8), other()).await;
    }
    let begun = std::time::Instant::now();
    for _ in 0..200 {
        drop(take(&pool, "y", standard()).await.unwrap());
    }
    let took = begun.elapsed();
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        look_at_everybody(&mut pool.lock());
    }
    println!("{waiting} wait for another group: {:?} to look at each of them", begun.elapsed() / 20);
    pool.stop();
    drop(held);
    (took, pool, line)
}

/// What each place that came back did before requests were counted by kind.
fn look_at_everybody(inner: &mut Inner) {
    let Inner { members, queue, .. } = inner;
    let now = Instant::now();
    let served = queue.take(|waiter| matches!(verdict(members, &waiter.wanted, now, 0), Verdict::Take(_)));
    assert!(served.is_none());
}

/// `cargo test --lib -- --ignored --nocapture thousands_who_wait`.
#[tokio::test]
#[ignore = "a measurement"]
async fn thousands_who_wait_for_another_group_cost_the_others_little() {
    for waiting in [0, 1000, 4000] {
        let (took, ..) = beside(waiting).await;
        println!("{waiting} wait for another group: {:?} for a place", took / 200);
    }
}

#[test]
fn a_kind_is_known_as_long_as_somebody_waits_who_needs_it() {
    let mut kinds = Kinds::default();
    let session = Wanted { session: Some(Arc::from(&b"s"[..])), ..standard() };
    let first = kinds.join(&standard());
    assert_eq!(kinds.join(&session), first, "a conversation needs nothing else");
    assert_ne!(kinds.join(&large()), first);
    kinds.leave(first);
    assert_eq!(kinds.where_true(|wanted| !wanted.large), Some(vec![first]));
    kinds.leave(first);
    assert_eq!(kinds.where_true(|wanted| !wanted.large), None);
}
