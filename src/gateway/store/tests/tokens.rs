//! Tests of the OAuth tokens of accounts: one process fetches a token, and all processes read it.

use super::*;
use crate::gateway::store::testing::{audit_context_at, replace_credentials};

fn time(second: u8) -> Timestamp {
    at(&format!("2026-02-01T00:00:{second:02}Z"))
}

async fn claim(store: Arc<dyn Store>, holder: String) -> bool {
    store.claim_refresh("mine", &holder, time(0), time(30)).await.unwrap()
}

async fn load_sealed_token(store: &dyn Store) -> Option<Vec<u8>> {
    store.load_token("mine").await.unwrap().map(|token| token.sealed_token)
}

#[tokio::test]
async fn only_one_of_concurrent_claims_succeeds() {
    for Fixture { store, second_store, .. } in stores().await {
        let mut tasks = JoinSet::new();
        for (number, store) in [&store, &second_store].into_iter().cycle().take(20).enumerate() {
            tasks.spawn(claim(Arc::clone(store), format!("holder {number}")));
        }
        let granted = tasks.join_all().await.into_iter().filter(|granted| *granted).count();
        assert_eq!(granted, 1);
        assert_eq!(load_sealed_token(&*store).await, None);
    }
}

#[tokio::test]
async fn a_stored_token_is_read_by_all_and_releases_the_claim() {
    for Fixture { store, second_store, .. } in stores().await {
        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        assert!(store.store_token("mine", "a", b"first").await.unwrap());
        assert_eq!(load_sealed_token(&*second_store).await.as_deref(), Some(b"first".as_slice()));
        assert!(claim(Arc::clone(&second_store), "b".to_owned()).await);
        // The current token is available while the next token is fetched.
        assert_eq!(load_sealed_token(&*store).await.as_deref(), Some(b"first".as_slice()));
        assert!(second_store.store_token("mine", "b", b"second").await.unwrap());
        assert_eq!(load_sealed_token(&*store).await.as_deref(), Some(b"second".as_slice()));
    }
}

#[tokio::test]
async fn a_claim_of_a_dead_holder_expires() {
    for Fixture { store, .. } in stores().await {
        let claim =
            async |holder, now, until| store.claim_refresh("mine", holder, time(now), time(until)).await.unwrap();
        assert!(claim("a", 0, 30).await);
        assert!(!claim("b", 29, 59).await);
        assert!(claim("b", 30, 40).await);
        // The claim belongs to `b` now, so `a` can neither renew it, nor store a token, nor release it.
        assert!(!claim("a", 31, 59).await);
        assert!(!store.store_token("mine", "a", b"late").await.unwrap());
        store.release_refresh("mine", "a").await.unwrap();
        assert!(!claim("c", 39, 59).await);
        assert!(store.store_token("mine", "b", b"good").await.unwrap());
        assert_eq!(load_sealed_token(&*store).await.as_deref(), Some(b"good".as_slice()));
    }
}

#[tokio::test]
async fn a_holder_with_an_expired_claim_may_still_store() {
    for Fixture { store, .. } in stores().await {
        let past = at("2020-01-01T00:00:00Z");
        assert!(store.claim_refresh("mine", "a", past, past).await.unwrap());
        assert!(store.store_token("mine", "a", b"late").await.unwrap());
        assert_eq!(load_sealed_token(&*store).await.as_deref(), Some(b"late".as_slice()));
        // Storing the token ended the claim, so a second token cannot be stored.
        assert!(!store.store_token("mine", "a", b"twice").await.unwrap());
    }
}

#[tokio::test]
async fn a_restarted_holder_gets_its_claim_again() {
    for Fixture { store, second_store, .. } in stores().await {
        assert!(claim(store, "a".to_owned()).await);
        assert!(claim(Arc::clone(&second_store), "a".to_owned()).await);
        assert!(!claim(second_store, "b".to_owned()).await);
    }
}

#[tokio::test]
async fn a_released_claim_is_free_and_keeps_the_token() {
    for Fixture { store, .. } in stores().await {
        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        assert!(store.store_token("mine", "a", b"first").await.unwrap());
        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        store.release_refresh("mine", "a").await.unwrap();
        assert!(claim(Arc::clone(&store), "b".to_owned()).await);
        assert_eq!(load_sealed_token(&*store).await.as_deref(), Some(b"first".as_slice()));
    }
}

#[tokio::test]
async fn claims_of_different_accounts_are_independent() {
    for Fixture { store, .. } in stores().await {
        for account in ["one", "two"] {
            assert!(store.claim_refresh(account, account, time(0), time(30)).await.unwrap());
        }
        assert!(!store.store_token("one", "two", b"token").await.unwrap());
    }
}

#[tokio::test]
async fn a_token_for_replaced_credentials_is_not_stored() {
    for Fixture { store, .. } in stores().await {
        let account = NewAccount {
            name: "mine".to_owned(),
            kind: "oauth".to_owned(),
            protocol: "images".to_owned(),
            tier: "paid".to_owned(),
            settings: "{}".to_owned(),
            sealed_credentials: Some(vec![1]),
        };
        store.insert_account(&AuditContext::command(), &account).await.unwrap();
        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        store.change_account(&audit_context_at(time(1)), "mine", replace_credentials(vec![2])).await.unwrap();
        assert!(!store.store_token("mine", "a", b"of the old").await.unwrap());

        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        assert!(store.delete_account(&AuditContext::command(), "mine").await.unwrap());
        assert!(!store.store_token("mine", "a", b"of the deleted").await.unwrap());

        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        store.insert_account(&AuditContext::command(), &account).await.unwrap();
        assert!(!store.store_token("mine", "a", b"of the deleted account of this name").await.unwrap());

        assert!(claim(Arc::clone(&store), "a".to_owned()).await);
        store.delete_token("mine").await.unwrap();
        assert!(!store.store_token("mine", "a", b"forgotten").await.unwrap());
        assert_eq!(load_sealed_token(&*store).await, None);
    }
}
