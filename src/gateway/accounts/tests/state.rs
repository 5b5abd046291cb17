use std::time::Duration;

use super::double::AccountStoreDouble;
use super::*;
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::StoreError;
use crate::gateway::store::testing::replace_credentials;
use crate::wire::admin::types::AccountAvailability;

const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

#[track_caller]
fn assert_hour_of_cooldown(result: Result<Lease, LeaseRefusal>) {
    match result {
        Err(LeaseRefusal::InCooldown { exhausted: true, wait: Some(wait) }) => {
            assert!((3500..=3600).contains(&wait.as_secs()), "{wait:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_cooldown_survives_a_restart_and_reaches_other_nodes() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &endpoint).await;
    let other = start(&store, "two", &[with_key("a")], &endpoint).await;
    let held = lease(&accounts).await.unwrap();
    assert_eq!(
        accounts.apply_feedback(&held, AccountFeedback::Exhausted { wait: HOUR }).await,
        RetryTarget::OtherAccount
    );
    assert_eq!(row(&store, "a").await.cooldown_cause.as_deref(), Some("exhausted"));
    assert_hour_of_cooldown(lease(&accounts).await);
    assert!(lease(&other).await.is_ok());
    refresh(&other).await;
    assert_hour_of_cooldown(lease(&other).await);
    assert_hour_of_cooldown(lease(&start(&store, "one", &[with_key("a")], &endpoint).await).await);
}

#[tokio::test]
async fn enabling_an_account_ends_its_cooldown() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Exhausted { wait: HOUR }).await;
    change(&store, "a", AccountChange::Enable).await;
    refresh(&accounts).await;
    assert!(lease(&accounts).await.is_ok());
}

/// Has the account ejected, and the ejection stored.
async fn eject(accounts: &Arc<Accounts>) {
    for _ in 0..3 {
        accounts.apply_feedback(&lease(accounts).await.unwrap(), AccountFeedback::Failed).await;
    }
    assert!(is_ejected(accounts));
    refresh(accounts).await;
}

fn is_ejected(accounts: &Accounts) -> bool {
    matches!(accounts.live_accounts()[0].state, LiveAccountState::Ejected { .. })
}

#[tokio::test]
async fn enabling_an_account_ends_its_ejection_on_every_node() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let (one, two) = (
        start(&store, "one", &[with_key("a")], &endpoint).await,
        start(&store, "two", &[with_key("a")], &endpoint).await,
    );
    eject(&one).await;
    refresh(&two).await;
    assert!(!is_ejected(&two), "each node ejects for itself");
    eject(&two).await;
    two.apply_feedback(&lease(&two).await.unwrap(), AccountFeedback::Success).await;
    for node in [&two, &one, &two] {
        refresh(node).await;
    }
    assert_eq!((is_ejected(&one), is_ejected(&two)), (true, false), "the end of one ejection is not that of the other");
    eject(&two).await;
    change(&store, "a", AccountChange::Enable).await;
    for node in [&two, &one] {
        refresh(node).await;
        assert!(!is_ejected(node));
    }
    assert_eq!(row(&store, "a").await.ejected_since, None, "no node has written its ejection again");
    // This read is older than the ejection.
    let (before, rows) = (PoolSnapshot::from_pool(&one.pool), store.list_accounts().await.unwrap());
    eject(&one).await;
    AccountRows::build(rows, &before, store.vault()).apply(&one.pool, &before);
    assert!(is_ejected(&one));
}

#[tokio::test]
async fn a_stored_cooldown_from_a_wrong_clock_is_capped() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    let until = Timestamp::from(Utc::now() + chrono::TimeDelta::days(50_000));
    change(&store, "a", AccountChange::StartCooldown { until, cause: "exhausted".to_owned() }).await;
    refresh(&accounts).await;
    let Err(LeaseRefusal::InCooldown { wait: Some(wait), .. }) = lease(&accounts).await else {
        panic!("the account is not in cooldown")
    };
    assert!(wait <= Duration::from_secs(400 * 24 * 3600));
}

#[tokio::test]
async fn a_refresh_applies_disabling_and_enabling() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    change(&store, "a", AccountChange::Disable { reason: "by hand".to_owned() }).await;
    refresh(&accounts).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    let explained = &accounts.explain("default", false, None)[0];
    assert_eq!(
        (explained.state, explained.disabled_reason.as_deref()),
        (AccountAvailability::Disabled, Some("by hand"))
    );
    let restarted = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    assert_eq!(lease(&restarted).await.err(), Some(LeaseRefusal::NoneLeft));
    change(&store, "a", AccountChange::Enable).await;
    refresh(&accounts).await;
    assert!(lease(&accounts).await.is_ok());
}

fn stored_account(store: &SqlStore, name: &str, key: &str) -> NewAccount {
    let secrets = BTreeMap::from([("api_key".to_owned(), key.to_owned())]);
    let plain = serde_json::to_vec(&secrets).unwrap();
    NewAccount {
        name: name.to_owned(),
        kind: "api_key".to_owned(),
        protocol: "images".to_owned(),
        tier: "paid".to_owned(),
        settings: r#"{"kind":"api_key","base_url":"https://kept.example/v1","concurrency":1}"#.to_owned(),
        sealed_credentials: Some(store.vault().seal(&credentials_context(name), &plain).unwrap()),
    }
}

#[tokio::test]
async fn accounts_of_the_store_change_while_leases_are_held() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[], &FakeCredentialService::rotating()).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    store.insert_account(&AuditContext::command(), &stored_account(&store, "k", "first")).await.unwrap();
    refresh(&accounts).await;
    let held = lease(&accounts).await.unwrap();
    assert_eq!(authorization_text(&held), "Bearer first");
    let AccountEndpoint::Images(address) = held.endpoint() else { panic!("{:?}", held.endpoint()) };
    assert_eq!(address.join("/images"), "https://kept.example/v1/images");
    let other = stored_account(&store, "k", "second").sealed_credentials.unwrap();
    change(&store, "k", replace_credentials(other)).await;
    refresh(&accounts).await;
    // The lease from before the change still holds the only slot of the account.
    assert_eq!(accounts.explain("default", false, None)[0].state, AccountAvailability::Full);
    drop(held);
    let held = lease(&accounts).await.unwrap();
    assert_eq!(authorization_text(&held), "Bearer second");
    assert!(store.delete_account(&AuditContext::command(), "k").await.unwrap());
    refresh(&accounts).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    drop(held);
    store.insert_account(&AuditContext::command(), &stored_account(&store, "k", "third")).await.unwrap();
    assert!(lease(&start(&store, "one", &[], &FakeCredentialService::rotating()).await).await.is_ok());
}

#[tokio::test]
async fn an_unreadable_account_is_left_out_and_others_stay_usable() {
    let (_dir, store) = new_store().await;
    let mut broken = stored_account(&store, "broken", "x");
    broken.sealed_credentials = stored_account(&store, "another", "x").sealed_credentials;
    store.insert_account(&AuditContext::command(), &broken).await.unwrap();
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    refresh(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "a");
    assert_eq!(accounts.explain("default", false, None).len(), 1);
    let repaired = stored_account(&store, "broken", "x").sealed_credentials.unwrap();
    change(&store, "broken", replace_credentials(repaired)).await;
    refresh(&accounts).await;
    assert_eq!(accounts.explain("default", false, None).len(), 2);
}

#[tokio::test]
async fn a_cooldown_is_stored_once_the_store_works_again() {
    let (_dir, store) = new_store().await;
    let double = AccountStoreDouble::wrapping(&store);
    start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    let (vault, endpoint) = (store.vault().clone(), FakeCredentialService::rotating());
    let accounts =
        Accounts::open(&[with_key("a")], Arc::clone(&double) as _, vault, endpoint, NodeId::only()).await.unwrap();
    let held = lease(&accounts).await.unwrap();
    double.failure.set(Some(|| StoreError::Busy));
    assert_eq!(
        accounts.apply_feedback(&held, AccountFeedback::Exhausted { wait: HOUR }).await,
        RetryTarget::OtherAccount
    );
    assert!(!Arc::clone(&accounts).refresh_once(true).await);
    assert_hour_of_cooldown(lease(&accounts).await);
    assert_eq!(row(&store, "a").await.cooldown_until, None);
    double.failure.set(None);
    refresh(&accounts).await;
    assert!(row(&store, "a").await.cooldown_until.is_some());
    assert_hour_of_cooldown(lease(&accounts).await);
}

#[tokio::test]
async fn new_accounts_of_a_reload_are_used_once_the_store_can_be_read() {
    let (_dir, store) = new_store().await;
    let double = AccountStoreDouble::wrapping(&store);
    start(&store, "one", &[with_key("a"), with_key("b")], &FakeCredentialService::rotating()).await;
    let (vault, endpoint) = (store.vault().clone(), FakeCredentialService::rotating());
    let accounts =
        Accounts::open(&[with_key("a")], Arc::clone(&double) as _, vault, endpoint, NodeId::only()).await.unwrap();
    double.failure.set(Some(|| StoreError::Busy));
    accounts.configure(&[with_key("a")], &[with_key("b")]).await;
    assert!(lease(&accounts).await.is_err());
    double.failure.set(None);
    refresh(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "b");
}

#[tokio::test]
async fn an_older_store_read_does_not_undo_newer_feedback() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    let before = PoolSnapshot::from_pool(&accounts.pool);
    let rows = store.list_accounts().await.unwrap();
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Exhausted { wait: HOUR }).await;
    AccountRows::build(rows, &before, store.vault()).apply(&accounts.pool, &before);
    assert_hour_of_cooldown(lease(&accounts).await);
}

#[tokio::test]
async fn refused_credentials_disable_an_account_only_after_a_check() {
    for status in [401, 403] {
        let (_dir, store) = new_store().await;
        let endpoint = FakeCredentialService::rotating();
        let accounts = start(&store, "one", &[with_key("a"), with_key("b")], &endpoint).await;
        endpoint.probe.store(status, Ordering::SeqCst);
        refuse(&accounts, status, 2);
        refresh_and_check(&accounts).await;
        assert_eq!(row(&store, "a").await.disabled_at, None, "{status}: two refusals do not cause a check");
        assert_eq!(endpoint.probes.load(Ordering::SeqCst), 0);
        refuse(&accounts, status, 3);
        refresh_and_check(&accounts).await;
        let row = row(&store, "a").await;
        let reason = format!("the upstream repeatedly refuses its credentials (status {status})");
        assert_eq!((row.disabled_at.is_some(), row.disabled_reason), (true, Some(reason)));
        assert_eq!(endpoint.probes.load(Ordering::SeqCst), 1);
        assert_eq!(lease(&accounts).await.unwrap().account().name(), "b");
    }
}

#[tokio::test]
async fn a_passed_credential_check_ends_the_cooldown() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &endpoint).await;
    refuse(&accounts, 401, 30);
    assert!(lease(&accounts).await.is_err(), "the account is in cooldown");
    refresh_and_check(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "a");
    let row = row(&store, "a").await;
    assert_eq!((row.disabled_at, row.cooldown_until), (None, None));
}

#[tokio::test]
async fn an_inconclusive_credential_check_does_not_disable_the_account() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &endpoint).await;
    for status in [0, 404, 503] {
        endpoint.probe.store(status, Ordering::SeqCst);
        refuse(&accounts, 401, 3);
        refresh_and_check(&accounts).await;
        assert!(lease(&accounts).await.is_err(), "{status}");
        assert_eq!(row(&store, "a").await.disabled_at, None, "{status}");
    }
}

#[tokio::test]
async fn a_check_of_replaced_settings_does_not_disable_the_account() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let (old, new) = (with_key("a"), config::AccountConfig { priority: 7, ..with_key("a") });
    let accounts = start(&store, "one", std::slice::from_ref(&old), &endpoint).await;
    endpoint.probe.store(401, Ordering::SeqCst);
    endpoint.probe_gate.forget_permits(1000);
    refuse(&accounts, 401, 3);
    refresh(&accounts).await;
    while endpoint.probes.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    accounts.configure(&[old], std::slice::from_ref(&new)).await;
    endpoint.probe_gate.add_permits(1000);
    refresh_and_check(&accounts).await;
    assert_eq!(row(&store, "a").await.disabled_at, None);
}

#[tokio::test]
async fn replaced_settings_cancel_a_requested_check() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeCredentialService::rotating();
    let (old, new) = (with_key("a"), config::AccountConfig { priority: 7, ..with_key("a") });
    let accounts = start(&store, "one", std::slice::from_ref(&old), &endpoint).await;
    refuse(&accounts, 401, 3);
    accounts.configure(&[old], std::slice::from_ref(&new)).await;
    refresh_and_check(&accounts).await;
    assert_eq!(endpoint.probes.load(Ordering::SeqCst), 0);
}

/// Refreshes the accounts, waits until the credential checks that the refresh has started have ended, and refreshes
/// again.
async fn refresh_and_check(accounts: &Arc<Accounts>) {
    refresh(accounts).await;
    while accounts.pool.lock().members.iter().any(|member| member.is_checking_credentials) {
        tokio::task::yield_now().await;
    }
    refresh(accounts).await;
}

/// Applies a success and then this many refusals of its credentials to the first account. Each refusal counts, because
/// its call began after the refusal before it.
fn refuse(accounts: &Accounts, status: u16, times: u64) {
    let mut state = accounts.pool.lock();
    let begin = Instant::now();
    let granted =
        LeaseGrant { member_id: 0, granted_at: begin, model: None, work: WorkKind::Images, caller: "usr_1".into() };
    state.members[0].apply_feedback(AccountFeedback::Success, &granted, at(begin), Utc::now());
    for step in 1..=times {
        let timing = at(begin + Duration::from_secs(1000 * step));
        state.members[0].apply_feedback(AccountFeedback::Unauthorized { status }, &granted, timing, Utc::now());
    }
}

const fn at(now: Instant) -> cooldown::AttemptTiming {
    cooldown::AttemptTiming { granted_at: now, now, jitter: 0 }
}

#[tokio::test]
async fn a_success_clears_a_stored_cooldown_that_has_ended() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeCredentialService::rotating()).await;
    let until = Timestamp::from(Utc::now() - chrono::TimeDelta::seconds(1));
    change(&store, "a", AccountChange::StartCooldown { until, cause: "throttled".to_owned() }).await;
    refresh(&accounts).await;
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Success).await;
    assert_eq!(row(&store, "a").await.cooldown_until, None);
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Neutral).await;
}

#[tokio::test]
async fn accounts_are_explained_in_the_order_of_selection() {
    let (_dir, store) = new_store().await;
    let free = config::AccountConfig { tier: AccountTier::Free, ..with_key("free") };
    let preferred = config::AccountConfig { priority: 5, ..with_key("liked") };
    let token = with_token("token", "r");
    let all = [free, with_key("plain"), preferred, token, account("far", config::UpstreamConfig::Simulator)];
    let mut all = Vec::from(all);
    all[4].groups = vec!["elsewhere".to_owned()];
    let accounts = start(&store, "one", &all, &FakeCredentialService::rotating()).await;
    let explained = accounts.explain("default", false, None);
    let names: Vec<&str> = explained.iter().map(|explanation| explanation.name.as_str()).collect();
    assert_eq!(names, ["token", "liked", "plain", "free", "far"]);
    assert_eq!(
        explained.iter().map(|explanation| explanation.chosen).collect::<Vec<_>>(),
        [true, false, false, false, false]
    );
    let json = serde_json::to_value(&explained[4]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "name": "far", "chosen": false, "state": "other_group", "tier": "paid", "kind": "simulator",
            "priority": 0, "slots_in_use": 0, "slots": 64,
        })
    );
    assert!(accounts.explain("nobody", true, None).iter().all(|explanation| !explanation.chosen));
}

#[tokio::test]
async fn debug_output_of_leases_and_pool_contains_no_secret() {
    let (_dir, store) = new_store().await;
    let all = [with_key("a"), with_token("t", CANARY)];
    let accounts = start(&store, "one", &all, &FakeCredentialService::rotating()).await;
    let leases = [
        lease(&accounts).await.unwrap(),
        accounts
            .acquire_lease(
                &RequesterId::from_name("k"),
                AccountRequirements { tried_accounts: vec!["t".to_owned()], ..requirements() },
                SLOT_WAIT_MAX,
            )
            .await
            .unwrap(),
    ];
    assert!(leases.iter().all(|lease| authorization_text(lease).contains(CANARY)));
    let output = format!("{leases:?} {:?} {:?}", accounts.pool, accounts.explain("default", false, None));
    assert!(!output.contains(CANARY), "{output}");
}
