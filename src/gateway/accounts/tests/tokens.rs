use tokio::task::{JoinSet, yield_now};

use super::double::AccountStoreDouble;
use super::*;
use crate::gateway::store::InstallationStore as _;

const CONCURRENT_REQUESTS: usize = 50;
const REFUSED: AccountFeedback = AccountFeedback::Unauthorized { status: 401 };

/// Requests a lease many times at once, and returns every result.
async fn lease_concurrently(accounts: &Arc<Accounts>) -> Vec<Result<Lease, LeaseRefusal>> {
    let mut all = JoinSet::new();
    for _ in 0..CONCURRENT_REQUESTS {
        let accounts = Arc::clone(accounts);
        all.spawn(async move { lease(&accounts).await });
    }
    all.join_all().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_requests_without_a_token_make_one_exchange() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let leases: Vec<Lease> = lease_concurrently(&accounts).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(leases.len(), CONCURRENT_REQUESTS);
    assert!(leases.iter().all(|lease| authorization_text(lease) == "Bearer canary-access-1"));
    assert!(leases.iter().all(|lease| lease.authorization().unwrap().is_sensitive()));
    assert_eq!((endpoint.exchanges(), endpoint.last_form().contains("refresh_token=first")), (1, true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_refusals_make_one_exchange_and_each_may_retry_once() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let mut all = JoinSet::new();
    for taken in lease_concurrently(&accounts).await {
        let (accounts, lease) = (Arc::clone(&accounts), taken.unwrap());
        all.spawn(async move { (accounts.apply_feedback(&lease, REFUSED).await, lease) });
    }
    let results = all.join_all().await;
    assert!(
        results.iter().all(|(target, lease)| *target == RetryTarget::SameAccount
            && authorization_text(lease) == "Bearer canary-access-2")
    );
    assert_eq!(endpoint.exchanges(), 2);
    // The renewed token is refused too: this refusal counts against the account, and no third token is fetched.
    assert_eq!(accounts.apply_feedback(&results[0].1, REFUSED).await, RetryTarget::OtherAccount);
    assert_eq!(endpoint.exchanges(), 2);
    assert_eq!(row(&store, "t").await.cooldown_cause.as_deref(), Some("unauthorized"));
}

#[tokio::test]
async fn an_upstream_that_refuses_every_token_is_retried_once() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    assert_eq!(accounts.apply_feedback(&lease(&accounts).await.unwrap(), REFUSED).await, RetryTarget::SameAccount);
    // A second lease gets the renewed token; if that is refused too, the request goes to another account.
    assert_eq!(accounts.apply_feedback(&lease(&accounts).await.unwrap(), REFUSED).await, RetryTarget::OtherAccount);
    assert_eq!(endpoint.exchanges(), 2);
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_make_one_exchange_for_each_refresh() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let all = [with_token("t", "first")];
    let nodes = [start(&store, "one", &all, &endpoint).await, start(&store, "two", &all, &endpoint).await];
    let (one, two) = tokio::join!(lease_concurrently(&nodes[0]), lease_concurrently(&nodes[1]));
    let leases: Vec<Lease> = one.into_iter().chain(two).map(Result::unwrap).collect();
    assert!(leases.iter().all(|lease| authorization_text(lease) == "Bearer canary-access-1"));
    assert_eq!(endpoint.exchanges(), 1);
    let (one, two) = tokio::join!(
        nodes[0].apply_feedback(&leases[0], REFUSED),
        nodes[1].apply_feedback(&leases[CONCURRENT_REQUESTS], REFUSED)
    );
    assert_eq!((one, two, endpoint.exchanges()), (RetryTarget::SameAccount, RetryTarget::SameAccount, 2));
    assert_eq!(
        (authorization_text(&leases[0]), authorization_text(&leases[CONCURRENT_REQUESTS])),
        ("Bearer canary-access-2", "Bearer canary-access-2")
    );
    assert!(endpoint.last_form().contains("refresh_token=canary-refresh-1"));
}

#[tokio::test]
async fn the_second_node_waits_for_the_exchange_of_the_first() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    endpoint.gate.forget_permits(1000);
    let all = [with_token("t", "first")];
    let one = start(&store, "one", &all, &endpoint).await;
    let double = AccountStoreDouble::wrapping(&store);
    let (shared, tokens) = (Arc::clone(&double), Arc::clone(&endpoint) as Arc<dyn CredentialService>);
    let two = Accounts::open(&all, shared, store.vault().clone(), tokens, NodeId::from("two")).await.unwrap();
    let mut running = JoinSet::new();
    running.spawn({
        let one = Arc::clone(&one);
        async move { lease(&one).await }
    });
    while endpoint.forms.lock().unwrap().is_empty() {
        yield_now().await;
    }
    let calls_before = double.calls.load(Ordering::SeqCst);
    running.spawn(async move { lease(&two).await });
    // The second node looks for a stored token and asks for the right to fetch one, which the first node holds.
    while double.calls.load(Ordering::SeqCst) < calls_before + 3 {
        yield_now().await;
    }
    endpoint.gate.add_permits(1);
    for taken in running.join_all().await {
        assert_eq!(authorization_text(&taken.unwrap()), "Bearer canary-access-1");
    }
    assert_eq!(endpoint.exchanges(), 1);
}

#[tokio::test]
async fn a_revoked_refresh_token_disables_only_its_account() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::refusing("invalid_grant");
    let accounts = start(&store, "one", &[with_token("t", CANARY), with_key("k")], &endpoint).await;
    for taken in lease_concurrently(&accounts).await {
        assert_eq!(taken.unwrap().account().name(), "k");
    }
    assert_eq!(endpoint.exchanges(), 1);
    let reason = row(&store, "t").await.disabled_reason.unwrap();
    assert_eq!(reason, "its token endpoint refuses to issue tokens (invalid_grant): enter new credentials");
    assert_eq!(store.load_token("t").await.unwrap(), None);
    // An operator re-enables the account, and the endpoint is asked again.
    change(&store, "t", AccountChange::Enable).await;
    *endpoint.script.lock().unwrap() = Vec::new();
    refresh(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "t");
}

#[tokio::test]
async fn a_refresh_finds_a_revoked_token_before_a_request() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::refusing("refresh_token_reused");
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    refresh(&accounts).await;
    while row(&store, "t").await.disabled_at.is_none() {
        yield_now().await;
    }
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    assert_eq!(endpoint.exchanges(), 1);
}

#[tokio::test]
async fn a_rotated_refresh_token_survives_a_restart() {
    let (dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let all = [with_token("t", "first")];
    let accounts = start(&store, "one", &all, &endpoint).await;
    assert_eq!(authorization_text(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
    drop(accounts);
    let restarted = start(&store, "one", &all, &endpoint).await;
    let taken = lease(&restarted).await.unwrap();
    // The access token is still valid, so the endpoint is not asked.
    assert_eq!((authorization_text(&taken), endpoint.exchanges()), ("Bearer canary-access-1", 1));
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
async fn a_refresh_token_replaced_by_the_operator_is_used() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    lease(&start(&store, "one", &[with_token("t", "first")], &endpoint).await).await.unwrap();
    let accounts = start(&store, "one", &[with_token("t", "second")], &endpoint).await;
    assert_eq!(authorization_text(&lease(&accounts).await.unwrap()), "Bearer canary-access-2");
    assert!(endpoint.last_form().contains("refresh_token=second"));
}

#[tokio::test]
async fn an_unavailable_token_endpoint_starts_a_cooldown() {
    let (_dir, store) = new_store().await;
    for answer in [Err(CredentialServiceError), Ok((503, "{}".to_owned())), Ok((200, "<html>".to_owned()))] {
        let endpoint = FakeCredentialService::scripted(vec![answer]);
        let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
        change(&store, "t", AccountChange::Enable).await;
        refresh(&accounts).await;
        for taken in lease_concurrently(&accounts).await {
            assert_eq!(taken.err(), Some(LeaseRefusal::NoneLeft));
        }
        assert_eq!(endpoint.exchanges(), 1);
        let row = row(&store, "t").await;
        assert_eq!((row.disabled_at, row.cooldown_cause.as_deref()), (None, Some("token")));
    }
}

#[tokio::test]
async fn a_valid_token_stays_in_use_if_renewal_fails() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    lease(&accounts).await.unwrap();
    *endpoint.script.lock().unwrap() = vec![Err(CredentialServiceError)];
    let [cache] = &accounts.token_caches()[..] else { panic!("there is not exactly one token cache") };
    assert!(!cache.needs_refresh(Instant::now()));
    let old = Instant::now() + Duration::from_secs(3400);
    assert!(cache.needs_refresh(old) && cache.usable_header(old).is_some());
    assert!(cache.usable_header(old + Duration::from_secs(191)).is_none());
    // The stored token is nearly new, so a fetch ahead of its expiry would make no exchange. Only a refusal makes one.
    let refused = lease(&accounts).await.unwrap();
    assert_eq!(
        accounts.token_fetcher.renew(cache, refused.authorization().unwrap()).await,
        Err(TokenFailure::Temporary)
    );
    assert_eq!(endpoint.exchanges(), 2);
    assert!(!cache.needs_refresh(old - Duration::from_secs(3400)));
    assert_eq!(authorization_text(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
}

#[tokio::test]
async fn an_exchange_completes_after_its_requester_has_left() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    endpoint.gate.forget_permits(1000);
    let accounts = start(&store, "one", &[with_token("t", "first")], &endpoint).await;
    let mut requests = JoinSet::new();
    let requester = requests.spawn({
        let accounts = Arc::clone(&accounts);
        async move { lease(&accounts).await }
    });
    while endpoint.forms.lock().unwrap().is_empty() {
        yield_now().await;
    }
    requester.abort();
    assert!(requests.join_next().await.unwrap().unwrap_err().is_cancelled());
    endpoint.gate.add_permits(1);
    accounts.finish().await;
    assert!(store.load_token("t").await.unwrap().is_some());
    assert_eq!(authorization_text(&lease(&accounts).await.unwrap()), "Bearer canary-access-1");
    assert_eq!(endpoint.exchanges(), 1);
}
