use tokio::task::{JoinSet, yield_now};

use super::*;
use crate::gateway::store::testing::StoreDouble;

const STORM: usize = 50;
const REFUSED: AccountFeedback = AccountFeedback::Unauthorized { status: 401 };

/// Makes many requests at once, and returns the result of each.
async fn storm(accounts: &Arc<Accounts>) -> Vec<Result<Lease, LeaseRefusal>> {
    let mut all = JoinSet::new();
    for _ in 0..STORM {
        let accounts = Arc::clone(accounts);
        all.spawn(async move { lease(&accounts).await });
    }
    all.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_requests_without_a_token_make_one_exchange() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let leases: Vec<Lease> = storm(&accounts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(leases.len(), STORM);
    assert!(leases.iter().all(|lease| shown(lease) == "Bearer canary-access-1"));
    assert!(leases.iter().all(|lease| lease.authorization().unwrap().is_sensitive()));
    assert_eq!((endpoint.exchanges(), endpoint.last_form().contains("refresh_token=first")), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_refusals_makes_one_exchange_and_each_may_ask_once_more() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let mut all = JoinSet::new();
    for taken in storm(&accounts).await {
        let (accounts, lease) = (Arc::clone(&accounts), taken.unwrap());
        all.spawn(async move { (accounts.apply_feedback(&lease, REFUSED).await, lease) });
    }
    let learnt = all.join_all().await;
    assert!(
        learnt
            .iter()
            .all(|(again, lease)| *again == RetryTarget::SameAccount && shown(lease) == "Bearer canary-access-2")
    );
    assert_eq!(endpoint.exchanges(), 2);
    // The fresh token is refused too: now the refusal counts, and no third token is fetched.
    assert_eq!(accounts.apply_feedback(&learnt[0].1, REFUSED).await, RetryTarget::OtherAccount);
    assert_eq!(endpoint.exchanges(), 2);
    assert_eq!(row(&store, "t").await.cooldown_cause.as_deref(), Some("unauthorized"));
}

#[tokio::test]
async fn an_upstream_that_refuses_every_token_makes_no_endless_loop() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    assert_eq!(accounts.apply_feedback(&lease(&accounts).await.unwrap(), REFUSED).await, RetryTarget::SameAccount);
    // Another lease is equivalent to the same one.
    assert_eq!(accounts.apply_feedback(&lease(&accounts).await.unwrap(), REFUSED).await, RetryTarget::OtherAccount);
    assert_eq!(endpoint.exchanges(), 2);
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_make_one_exchange_for_each_refresh() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let all = [with_token("t", "first")];
    let nodes = [start(&store, "one", &all, &endpoint).await, start(&store, "two", &all, &endpoint).await];
    let (one, two) = tokio::join!(storm(&nodes[0]), storm(&nodes[1]));
    let leases: Vec<Lease> = one.into_iter().chain(two).map(Result::unwrap).collect();
    assert!(leases.iter().all(|lease| shown(lease) == "Bearer canary-access-1"));
    assert_eq!(endpoint.exchanges(), 1);
    let (one, two) =
        tokio::join!(nodes[0].apply_feedback(&leases[0], REFUSED), nodes[1].apply_feedback(&leases[STORM], REFUSED));
    assert_eq!((one, two, endpoint.exchanges()), (RetryTarget::SameAccount, RetryTarget::SameAccount, 2));
    assert_eq!((shown(&leases[0]), shown(&leases[STORM])), ("Bearer canary-access-2", "Bearer canary-access-2"));
    assert!(endpoint.last_form().contains("refresh_token=canary-refresh-1"));
}

#[tokio::test]
async fn the_node_that_comes_second_waits_for_the_first() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    endpoint.gate.forget_permits(1000);
    let all = [with_token("t", "first")];
    let one = start(&store, "one", &all, &endpoint).await;
    let double = StoreDouble::wrapping(Arc::clone(&store) as Arc<dyn Store>);
    let (shared, tokens) = (Arc::clone(&double) as Arc<dyn Store>, Arc::clone(&endpoint) as Arc<dyn TokenEndpoint>);
    let two = Accounts::open(&all, shared, store.vault().clone(), tokens, NodeId::from("two")).await.unwrap();
    let mut running = JoinSet::new();
    running.spawn({
        let one = Arc::clone(&one);
        async move { lease(&one).await }
    });
    while endpoint.forms.lock().unwrap().is_empty() {
        yield_now().await;
    }
    let asked = double.calls.load(Ordering::SeqCst);
    running.spawn(async move { lease(&two).await });
    // A read, and a claim that is refused.
    while double.calls.load(Ordering::SeqCst) < asked + 3 {
        yield_now().await;
    }
    endpoint.gate.add_permits(1);
    for taken in running.join_all().await {
        assert_eq!(shown(&taken.unwrap()), "Bearer canary-access-1");
    }
    assert_eq!(endpoint.exchanges(), 1);
}

#[tokio::test]
async fn a_revoked_refresh_token_takes_the_account_out_and_the_pool_goes_on() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::refusing("invalid_grant");
    let accounts = start(&store, "one", &[with_token("t", CANARY), with_key("k")], &endpoint).await;
    for taken in storm(&accounts).await {
        assert_eq!(taken.unwrap().account().name(), "k");
    }
    assert_eq!(endpoint.exchanges(), 1);
    let reason = row(&store, "t").await.disabled_reason.unwrap();
    assert_eq!(reason, "its token endpoint refuses to issue tokens (invalid_grant): enter new credentials");
    assert_eq!(store.load_token("t").await.unwrap(), None);
    // An operator re-enables the account, and the endpoint is asked again.
    change(&store, "t", AccountChange::Enable).await;
    *endpoint.script.lock().unwrap() = Vec::new();
    round(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "t");
}

#[tokio::test]
async fn a_revoked_token_is_found_ahead_of_need() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::refusing("refresh_token_reused");
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    round(&accounts).await;
    while row(&store, "t").await.disabled_at.is_none() {
        yield_now().await;
    }
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    assert_eq!(endpoint.exchanges(), 1);
}

#[tokio::test]
async fn a_rotated_refresh_token_survives_a_restart() {
    let (dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let all = [with_token("t", "first")];
    let accounts = start(&store, "one", &all, &endpoint).await;
    assert_eq!(shown(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
    drop(accounts);
    let restarted = start(&store, "one", &all, &endpoint).await;
    let taken = lease(&restarted).await.unwrap();
    // The access token is still valid, so the endpoint is not asked.
    assert_eq!((shown(&taken), endpoint.exchanges()), ("Bearer canary-access-1", 1));
    assert_eq!(restarted.apply_feedback(&taken, REFUSED).await, RetryTarget::SameAccount);
    assert!(endpoint.last_form().contains("refresh_token=canary-refresh-1"), "{}", endpoint.last_form());
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let file = file.unwrap();
        if !file.file_type().unwrap().is_file() {
            continue;
        }
        let bytes = std::fs::read(file.path()).unwrap();
        assert!(!bytes.windows(CANARY.len()).any(|part| part == CANARY.as_bytes()), "{:?}", file.path());
    }
}

#[tokio::test]
async fn a_refresh_token_that_the_operator_replaced_wins() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    lease(&start(&store, "one", &[with_token("t", "first")], &endpoint).await).await.unwrap();
    let accounts = start(&store, "one", &[with_token("t", "second")], &endpoint).await;
    assert_eq!(shown(&lease(&accounts).await.unwrap()), "Bearer canary-access-2");
    assert!(endpoint.last_form().contains("refresh_token=second"));
}

#[tokio::test]
async fn an_endpoint_that_is_down_rests_the_account_for_a_moment_only() {
    let (_dir, store) = new_store().await;
    for answer in [Err(TokenEndpointError), Ok((503, "{}".to_owned())), Ok((200, "<html>".to_owned()))] {
        let endpoint = FakeTokens::scripted(vec![answer]);
        let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
        change(&store, "t", AccountChange::Enable).await;
        round(&accounts).await;
        for taken in storm(&accounts).await {
            assert_eq!(taken.err(), Some(LeaseRefusal::NoneLeft));
        }
        assert_eq!(endpoint.exchanges(), 1);
        let row = row(&store, "t").await;
        assert_eq!((row.disabled_at, row.cooldown_cause.as_deref()), (None, Some("token")));
    }
}

#[tokio::test]
async fn a_token_that_is_good_stays_in_use_when_no_newer_one_is_to_be_had() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    lease(&accounts).await.unwrap();
    *endpoint.script.lock().unwrap() = vec![Err(TokenEndpointError)];
    let [keeper] = &accounts.token_caches()[..] else { panic!("one keeper") };
    assert!(!keeper.needs_refresh(Instant::now()));
    let old = Instant::now() + Duration::from_secs(3400);
    assert!(keeper.needs_refresh(old) && keeper.usable_header(old).is_some());
    assert!(keeper.usable_header(old + Duration::from_secs(191)).is_none());
    // The token is nearly new, so the stored one is enough for a fetch ahead of need. Only a refusal makes an exchange.
    let refused = lease(&accounts).await.unwrap();
    assert_eq!(
        accounts.token_fetcher.renew(keeper, refused.authorization().unwrap()).await,
        Err(TokenFailure::Temporary)
    );
    assert_eq!(endpoint.exchanges(), 2);
    assert!(!keeper.needs_refresh(old - Duration::from_secs(3400)));
    assert_eq!(shown(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
}

#[tokio::test]
async fn an_exchange_is_finished_although_whoever_asked_has_left() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    endpoint.gate.forget_permits(1000);
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let mut asking = JoinSet::new();
    let asker = asking.spawn({
        let accounts = Arc::clone(&accounts);
        async move { lease(&accounts).await }
    });
    while endpoint.forms.lock().unwrap().is_empty() {
        yield_now().await;
    }
    asker.abort();
    assert!(asking.join_next().await.unwrap().unwrap_err().is_cancelled());
    endpoint.gate.add_permits(1);
    accounts.finish().await;
    assert!(store.load_token("t").await.unwrap().is_some());
    assert_eq!(shown(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
    assert_eq!(endpoint.exchanges(), 1);
}
