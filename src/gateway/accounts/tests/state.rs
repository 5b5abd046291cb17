use std::time::Duration;

use super::*;
use crate::gateway::store::StoreError;
use crate::gateway::store::testing::StoreDouble;

const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

#[track_caller]
fn rests_an_hour(got: Result<Lease, LeaseRefusal>) {
    match got {
        Err(LeaseRefusal::InCooldown { exhausted: true, wait: Some(wait) }) => {
            assert!((3500..=3600).contains(&wait.as_secs()), "{wait:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_rest_survives_a_restart_and_reaches_other_nodes() {
    let (_dir, store) = new_store().await;
    let none = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &none).await;
    let other = start(&store, "two", &[with_key("a")], &none).await;
    let taken = lease(&accounts).await.unwrap();
    assert_eq!(
        accounts.apply_feedback(&taken, AccountFeedback::Exhausted { wait: HOUR }).await,
        RetryTarget::OtherAccount
    );
    assert_eq!(row(&store, "a").await.cooldown_cause.as_deref(), Some("exhausted"));
    rests_an_hour(lease(&accounts).await);
    assert!(lease(&other).await.is_ok());
    round(&other).await;
    rests_an_hour(lease(&other).await);
    rests_an_hour(lease(&start(&store, "one", &[with_key("a")], &none).await).await);
}

#[tokio::test]
async fn an_operator_ends_a_rest_on_every_node() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Exhausted { wait: HOUR }).await;
    change(&store, "a", AccountChange::Enable).await;
    round(&accounts).await;
    assert!(lease(&accounts).await.is_ok());
}

#[tokio::test]
async fn a_stored_rest_from_a_mad_clock_is_capped() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    let until = Timestamp::from(chrono::Utc::now() + chrono::TimeDelta::days(50_000));
    change(&store, "a", AccountChange::StartCooldown { until, cause: "exhausted".to_owned() }).await;
    round(&accounts).await;
    let Err(LeaseRefusal::InCooldown { wait: Some(wait), .. }) = lease(&accounts).await else { panic!("it rests") };
    assert!(wait <= Duration::from_secs(8 * 24 * 3600));
}

#[tokio::test]
async fn disabling_and_enabling_arrive() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    change(&store, "a", AccountChange::Disable { reason: "by hand".to_owned() }).await;
    round(&accounts).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    assert_eq!(
        accounts.explain("default", false, None)[0].state,
        AccountAvailability::Disabled { reason: "by hand".to_owned() }
    );
    let restarted = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    assert_eq!(lease(&restarted).await.err(), Some(LeaseRefusal::NoneLeft));
    change(&store, "a", AccountChange::Enable).await;
    round(&accounts).await;
    assert!(lease(&accounts).await.is_ok());
}

fn kept(store: &SqliteStore, name: &str, key: &str) -> NewAccount {
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
async fn accounts_of_the_store_come_change_and_go_while_leases_are_out() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[], &FakeTokens::rotating()).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    store.insert_account(&AuditContext::command(), &kept(&store, "k", "first")).await.unwrap();
    round(&accounts).await;
    let held = lease(&accounts).await.unwrap();
    assert_eq!(shown(&held), "Bearer first");
    let AccountEndpoint::Images(address) = held.endpoint() else { panic!("{:?}", held.endpoint()) };
    assert_eq!(address.join("/images"), "https://kept.example/v1/images");
    let other = kept(&store, "k", "second").sealed_credentials.unwrap();
    change(&store, "k", AccountChange::ReplaceCredentials(other)).await;
    round(&accounts).await;
    // The only slot of the account is still taken.
    assert_eq!(accounts.explain("default", false, None)[0].state, AccountAvailability::Full);
    drop(held);
    let held = lease(&accounts).await.unwrap();
    assert_eq!(shown(&held), "Bearer second");
    assert!(store.delete_account(&AuditContext::command(), "k").await.unwrap());
    round(&accounts).await;
    assert_eq!(lease(&accounts).await.err(), Some(LeaseRefusal::NoneLeft));
    drop(held);
    store.insert_account(&AuditContext::command(), &kept(&store, "k", "third")).await.unwrap();
    assert!(lease(&start(&store, "one", &[], &FakeTokens::rotating()).await).await.is_ok());
}

#[tokio::test]
async fn an_account_that_cannot_be_read_is_left_out_and_harms_no_other() {
    let (_dir, store) = new_store().await;
    let mut broken = kept(&store, "broken", "x");
    broken.sealed_credentials = kept(&store, "another", "x").sealed_credentials;
    store.insert_account(&AuditContext::command(), &broken).await.unwrap();
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    round(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "a");
    assert_eq!(accounts.explain("default", false, None).len(), 1);
    let mended = kept(&store, "broken", "x").sealed_credentials.unwrap();
    change(&store, "broken", AccountChange::ReplaceCredentials(mended)).await;
    round(&accounts).await;
    assert_eq!(accounts.explain("default", false, None).len(), 2);
}

#[tokio::test]
async fn trouble_with_the_store_is_no_trouble_of_the_request_and_is_made_up_for() {
    let (_dir, store) = new_store().await;
    let double = StoreDouble::wrapping(Arc::clone(&store) as Arc<dyn Store>);
    start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    let (vault, endpoint) = (store.vault().clone(), FakeTokens::rotating());
    let shared = Arc::clone(&double) as Arc<dyn Store>;
    let accounts = Accounts::open(&[with_key("a")], shared, vault, endpoint, NodeId::only()).await.unwrap();
    let taken = lease(&accounts).await.unwrap();
    double.set_failure(Some(|| StoreError::Busy));
    assert_eq!(
        accounts.apply_feedback(&taken, AccountFeedback::Exhausted { wait: HOUR }).await,
        RetryTarget::OtherAccount
    );
    assert!(!Arc::clone(&accounts).refresh_once(true).await);
    rests_an_hour(lease(&accounts).await);
    assert_eq!(row(&store, "a").await.cooldown_until, None);
    double.set_failure(None);
    round(&accounts).await;
    assert!(row(&store, "a").await.cooldown_until.is_some());
    rests_an_hour(lease(&accounts).await);
}

#[tokio::test]
async fn an_older_look_does_not_undo_what_was_learnt_since() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    let before = PoolSnapshot::from_pool(&accounts.pool);
    let rows = store.list_accounts().await.unwrap();
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Exhausted { wait: HOUR }).await;
    AccountRows::read(rows, &before, store.vault()).apply(&accounts.pool, &before);
    rests_an_hour(lease(&accounts).await);
}

#[tokio::test]
async fn refused_credentials_disable_an_account_only_if_they_are_refused_by_themselves_too() {
    for status in [401, 403] {
        let (_dir, store) = new_store().await;
        let endpoint = FakeTokens::rotating();
        let accounts = start(&store, "one", &[with_key("a"), with_key("b")], &endpoint).await;
        endpoint.probe.store(status, Ordering::SeqCst);
        refuse(&accounts, status, 2);
        tried(&accounts).await;
        assert_eq!(row(&store, "a").await.disabled_at, None, "{status}: twice is not yet again and again");
        assert_eq!(endpoint.probes.load(Ordering::SeqCst), 0);
        refuse(&accounts, status, 3);
        tried(&accounts).await;
        let row = row(&store, "a").await;
        let reason = format!("the upstream repeatedly refuses its credentials (status {status})");
        assert_eq!((row.disabled_at.is_some(), row.disabled_reason), (true, Some(reason)));
        assert_eq!(endpoint.probes.load(Ordering::SeqCst), 1);
        assert_eq!(lease(&accounts).await.unwrap().account().name(), "b");
    }
}

#[tokio::test]
async fn credentials_that_are_good_by_themselves_end_the_rest() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &endpoint).await;
    refuse(&accounts, 401, 30);
    assert!(lease(&accounts).await.is_err(), "it rests");
    tried(&accounts).await;
    assert_eq!(lease(&accounts).await.unwrap().account().name(), "a");
    let row = row(&store, "a").await;
    assert_eq!((row.disabled_at, row.cooldown_until), (None, None));
}

#[tokio::test]
async fn without_an_answer_an_account_goes_on_resting_and_is_not_disabled() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let accounts = start(&store, "one", &[with_key("a")], &endpoint).await;
    for status in [0, 404, 503] {
        endpoint.probe.store(status, Ordering::SeqCst);
        refuse(&accounts, 401, 3);
        tried(&accounts).await;
        assert!(lease(&accounts).await.is_err(), "{status}");
        assert_eq!(row(&store, "a").await.disabled_at, None, "{status}");
    }
}

#[tokio::test]
async fn a_check_of_credentials_that_were_replaced_says_nothing_of_the_new_ones() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let (old, new) = (with_key("a"), config::AccountConfig { priority: 7, ..with_key("a") });
    let accounts = start(&store, "one", std::slice::from_ref(&old), &endpoint).await;
    endpoint.probe.store(401, Ordering::SeqCst);
    endpoint.probe_gate.forget_permits(1000);
    refuse(&accounts, 401, 3);
    round(&accounts).await;
    while endpoint.probes.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    accounts.configure(&[old], std::slice::from_ref(&new)).await.unwrap();
    endpoint.probe_gate.add_permits(1000);
    tried(&accounts).await;
    assert_eq!(row(&store, "a").await.disabled_at, None);
}

#[tokio::test]
async fn doubt_ends_with_the_credentials_that_gave_rise_to_it() {
    let (_dir, store) = new_store().await;
    let endpoint = FakeTokens::rotating();
    let (old, new) = (with_key("a"), config::AccountConfig { priority: 7, ..with_key("a") });
    let accounts = start(&store, "one", std::slice::from_ref(&old), &endpoint).await;
    refuse(&accounts, 401, 3);
    accounts.configure(&[old], std::slice::from_ref(&new)).await.unwrap();
    tried(&accounts).await;
    assert_eq!(endpoint.probes.load(Ordering::SeqCst), 0);
}

/// Runs a round, and waits until the checks that it has started are over.
async fn tried(accounts: &Arc<Accounts>) {
    round(accounts).await;
    while accounts.pool.lock().members.iter().any(|member| member.is_checking_credentials) {
        tokio::task::yield_now().await;
    }
    round(accounts).await;
}

/// Refuses the credentials of the first account this many times in a row, in calls that followed each other.
fn refuse(accounts: &Accounts, status: u16, times: u64) {
    let mut inner = accounts.pool.lock();
    let begin = Instant::now();
    let granted = LeaseGrant { member_id: 0, granted_at: begin, model: None, caller: "usr_1".into() };
    inner.members[0].apply_feedback(AccountFeedback::Success, &granted, at(begin), chrono::Utc::now());
    for step in 1..=times {
        let moment = at(begin + Duration::from_secs(1000 * step));
        inner.members[0].apply_feedback(AccountFeedback::Unauthorized { status }, &granted, moment, chrono::Utc::now());
    }
}

const fn at(now: Instant) -> cooldown::AttemptTiming {
    cooldown::AttemptTiming { granted_at: now, now, jitter: 0 }
}

#[tokio::test]
async fn an_image_clears_the_stored_rest_that_is_over() {
    let (_dir, store) = new_store().await;
    let accounts = start(&store, "one", &[with_key("a")], &FakeTokens::rotating()).await;
    let until = Timestamp::from(chrono::Utc::now() - chrono::TimeDelta::seconds(1));
    change(&store, "a", AccountChange::StartCooldown { until, cause: "throttled".to_owned() }).await;
    round(&accounts).await;
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Success).await;
    assert_eq!(row(&store, "a").await.cooldown_until, None);
    accounts.apply_feedback(&lease(&accounts).await.unwrap(), AccountFeedback::Neutral).await;
}

#[tokio::test]
async fn a_choice_is_explained_in_the_order_of_the_choice() {
    let (_dir, store) = new_store().await;
    let free = config::AccountConfig { tier: BillingTier::Free, ..with_key("free") };
    let liked = config::AccountConfig { priority: 5, ..with_key("liked") };
    let token = with_token("token", "r");
    let all = [free, with_key("plain"), liked, token, account("far", config::UpstreamConfig::Simulator)];
    let mut all = Vec::from(all);
    all[4].groups = vec!["elsewhere".to_owned()];
    let accounts = start(&store, "one", &all, &FakeTokens::rotating()).await;
    let explained = accounts.explain("default", false, None);
    let names: Vec<&str> = explained.iter().map(|one| one.account.as_str()).collect();
    assert_eq!(names, ["token", "liked", "plain", "free", "far"]);
    assert_eq!(explained.iter().map(|one| one.chosen).collect::<Vec<_>>(), [true, false, false, false, false]);
    let json = serde_json::to_value(&explained[4]).unwrap();
    assert_eq!(
        json,
        serde_json::json!({
            "account": "far", "chosen": false, "state": {"is": "other_group"}, "paid": true, "kind": "simulator",
            "priority": 0, "taken": 0, "places": 64,
        })
    );
    assert!(accounts.explain("nobody", true, None).iter().all(|one| !one.chosen));
}

#[tokio::test]
async fn what_can_be_seen_of_a_lease_holds_no_secret() {
    let (_dir, store) = new_store().await;
    let all = [with_key("a"), with_token("t", CANARY)];
    let accounts = start(&store, "one", &all, &FakeTokens::rotating()).await;
    let leases = [
        lease(&accounts).await.unwrap(),
        accounts
            .acquire_lease(
                &RequesterId::from_name("k"),
                AccountRequirements { tried_accounts: vec!["t".to_owned()], ..wanted() },
            )
            .await
            .unwrap(),
    ];
    assert!(leases.iter().all(|lease| shown(lease).contains(CANARY)));
    let seen = format!("{leases:?} {:?} {:?}", accounts.pool, accounts.explain("default", false, None));
    assert!(!seen.contains(CANARY), "{seen}");
}
