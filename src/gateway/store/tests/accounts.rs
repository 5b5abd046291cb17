//! Tests of the rows of accounts: accounts of the configuration file, accounts that exist only in the store, and the
//! stored state of both.

use super::*;
use crate::gateway::store::testing::{audit_context_at, replace_credentials};

const FILE_ACCOUNT: AccountSpec<'_> =
    AccountSpec { name: "primary", kind: "api_key", protocol: "images", tier: "paid" };

fn store_account(name: &str) -> NewAccount {
    NewAccount {
        name: name.to_owned(),
        kind: "oauth".to_owned(),
        protocol: "responses".to_owned(),
        tier: "free".to_owned(),
        settings: r#"{"base_url":"https://upstream.test/v1"}"#.to_owned(),
        sealed_credentials: Some(vec![1, 2, 3]),
    }
}

fn start_cooldown(second: u8, cause: &str) -> AccountChange {
    AccountChange::StartCooldown { until: time(second), cause: cause.to_owned() }
}

fn disable(reason: &str) -> AccountChange {
    AccountChange::Disable { reason: reason.to_owned() }
}

fn time(second: u8) -> Timestamp {
    at(&format!("2026-02-01T00:00:{second:02}Z"))
}

async fn change(store: &dyn Store, name: &str, change: AccountChange, second: u8) -> Option<AccountRow> {
    store.change_account(&audit_context_at(time(second)), name, change).await.unwrap()
}

#[tokio::test]
async fn an_account_keeps_its_id_when_the_file_changes() {
    for Fixture { store, .. } in stores().await {
        let spec = AccountSpec { name: "primary", kind: "api_key", protocol: "images", tier: "paid" };
        let before = store.sync_account(spec).await.unwrap();
        let after = store.sync_account(AccountSpec { protocol: "responses", tier: "free", ..spec }).await.unwrap();
        assert_eq!(after.id, before.id);
        assert_eq!((after.protocol.as_str(), after.tier.as_str()), ("responses", "free"));
        assert_eq!(store.list_accounts().await.unwrap(), [after]);
    }
}

#[tokio::test]
async fn an_account_of_the_store_is_read_as_it_was_written() {
    for Fixture { store, second_store, .. } in stores().await {
        let row = store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        assert_eq!(row.source, "store");
        assert_eq!((row.kind.as_str(), row.protocol.as_str(), row.tier.as_str()), ("oauth", "responses", "free"));
        assert_eq!(
            (row.settings.clone(), row.sealed_credentials.clone()),
            (Some(store_account("mine").settings), store_account("mine").sealed_credentials)
        );
        assert_eq!((row.disabled_at, row.cooldown_until, row.absent_since), (None, None, None));
        assert_eq!(second_store.list_accounts().await.unwrap(), [row]);
    }
}

#[tokio::test]
async fn a_name_is_unique_among_all_accounts() {
    for Fixture { store, .. } in stores().await {
        let file = store.sync_account(FILE_ACCOUNT).await.unwrap();
        let mine = store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        for name in ["primary", "mine"] {
            assert!(
                matches!(
                    store.insert_account(&AuditContext::command(), &store_account(name)).await,
                    Err(StoreError::Conflict)
                ),
                "{name}"
            );
        }
        let spec = AccountSpec { name: "mine", ..FILE_ACCOUNT };
        assert!(matches!(store.sync_account(spec).await, Err(StoreError::Conflict)));
        assert_eq!(store.list_accounts().await.unwrap(), [mine, file]);
    }
}

#[tokio::test]
async fn the_first_disabling_and_its_reason_are_kept() {
    for Fixture { store, .. } in stores().await {
        let row = store.sync_account(FILE_ACCOUNT).await.unwrap();
        change(&*store, "primary", disable("refused twice"), 1).await;
        let disabled = change(&*store, "primary", disable("again"), 2).await.unwrap();
        assert_eq!((disabled.disabled_at, disabled.disabled_reason.as_deref()), (Some(time(1)), Some("refused twice")));
        assert_eq!(change(&*store, "primary", AccountChange::Enable, 3).await, Some(row));
    }
}

#[tokio::test]
async fn only_enabling_revives_a_disabled_account() {
    for Fixture { store, .. } in stores().await {
        store.sync_account(FILE_ACCOUNT).await.unwrap();
        change(&*store, "primary", disable("revoked"), 1).await;
        let changes = [start_cooldown(5, "late"), AccountChange::EndCooldown, replace_credentials(vec![9])];
        for late_change in changes {
            let row = change(&*store, "primary", late_change.clone(), 9).await.unwrap();
            assert_eq!(
                (row.disabled_at, row.disabled_reason.as_deref()),
                (Some(time(1)), Some("revoked")),
                "{late_change:?}"
            );
        }
        let row = store.sync_account(AccountSpec { tier: "free", ..FILE_ACCOUNT }).await.unwrap();
        assert_eq!(row.disabled_at, Some(time(1)));
    }
}

#[tokio::test]
async fn the_later_end_of_two_cooldowns_applies() {
    for Fixture { store, second_store, .. } in stores().await {
        store.sync_account(FILE_ACCOUNT).await.unwrap();
        for (until, cause, expected) in
            [(20, "a", (20, "a")), (10, "b", (20, "a")), (20, "c", (20, "a")), (30, "d", (30, "d"))]
        {
            let row = change(&*second_store, "primary", start_cooldown(until, cause), 1).await.unwrap();
            assert_eq!((row.cooldown_until, row.cooldown_cause.as_deref()), (Some(time(expected.0)), Some(expected.1)));
            assert_eq!(store.list_accounts().await.unwrap(), [row]);
        }
    }
}

#[tokio::test]
async fn the_begin_of_an_ejection_stays_until_the_account_is_enabled() {
    for Fixture { store, .. } in stores().await {
        store.sync_account(FILE_ACCOUNT).await.unwrap();
        let ejection = StoredEjection { since: time(1), until: time(11), reason: "it failed".to_owned() };
        for (new_state, since, until) in [
            (AccountChange::SetEjection(Some(ejection)), Some(time(1)), Some(time(11))),
            (AccountChange::SetEjection(None), Some(time(1)), None),
            (AccountChange::Enable, None, None),
            (AccountChange::SetEjection(None), None, None),
        ] {
            let row = change(&*store, "primary", new_state.clone(), 2).await.unwrap();
            assert_eq!((row.ejected_since, row.ejected_until), (since, until), "{new_state:?}");
            assert_eq!(row.ejection_reason.is_some(), until.is_some(), "{new_state:?}");
        }
    }
}

#[tokio::test]
async fn enabling_ends_a_cooldown_but_a_late_success_does_not() {
    for Fixture { store, .. } in stores().await {
        let row = store.sync_account(FILE_ACCOUNT).await.unwrap();
        let cooling_down = change(&*store, "primary", start_cooldown(20, "exhausted"), 1).await;
        assert_eq!(change(&*store, "primary", AccountChange::EndCooldown, 19).await, cooling_down);
        assert_eq!(change(&*store, "primary", AccountChange::EndCooldown, 20).await.as_ref(), Some(&row));
        change(&*store, "primary", start_cooldown(30, "exhausted"), 21).await;
        assert_eq!(change(&*store, "primary", AccountChange::Enable, 22).await, Some(row));
    }
}

#[tokio::test]
async fn no_change_restores_a_deleted_account() {
    for Fixture { store, .. } in stores().await {
        store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        assert!(store.delete_account(&AuditContext::command(), "mine").await.unwrap());
        assert!(!store.delete_account(&AuditContext::command(), "mine").await.unwrap());
        let changes = [
            disable("x"),
            AccountChange::Enable,
            start_cooldown(9, "x"),
            AccountChange::EndCooldown,
            replace_credentials(vec![9]),
        ];
        for late_change in changes {
            assert_eq!(change(&*store, "mine", late_change.clone(), 1).await, None, "{late_change:?}");
        }
        assert_eq!(store.list_accounts().await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_account_that_leaves_the_file_is_marked_until_it_returns() {
    for Fixture { store, .. } in stores().await {
        let stays = store.sync_account(AccountSpec { name: "'stays\"", ..FILE_ACCOUNT }).await.unwrap();
        let leaves = store.sync_account(FILE_ACCOUNT).await.unwrap();
        let mine = store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        let names = [stays.name.as_str()];
        assert_eq!(store.mark_others_absent(&names, time(1)).await.unwrap(), 1);
        assert_eq!(store.mark_others_absent(&names, time(2)).await.unwrap(), 0);
        let marked = AccountRow { absent_since: Some(time(1)), ..leaves.clone() };
        assert_eq!(store.list_accounts().await.unwrap(), [stays.clone(), mine.clone(), marked]);
        assert_eq!(store.sync_account(FILE_ACCOUNT).await.unwrap(), leaves);
        assert_eq!(store.mark_others_absent(&[], time(3)).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn an_account_of_the_file_cannot_be_deleted() {
    for Fixture { store, .. } in stores().await {
        store.sync_account(FILE_ACCOUNT).await.unwrap();
        assert!(!store.delete_account(&AuditContext::command(), "primary").await.unwrap());
        store.mark_others_absent(&[], time(1)).await.unwrap();
        assert!(store.delete_account(&AuditContext::command(), "primary").await.unwrap());
        assert_eq!(store.list_accounts().await.unwrap(), []);
    }
}

#[tokio::test]
async fn replaced_credentials_delete_only_the_token() {
    for Fixture { store, .. } in stores().await {
        let row = store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        for name in ["mine", "other"] {
            assert!(store.claim_refresh(name, "a", time(1), time(9)).await.unwrap());
            assert!(store.store_token(name, "a", b"token").await.unwrap());
        }
        let resealed = change(&*store, "mine", replace_credentials(vec![9]), 1).await;
        assert_eq!(resealed, Some(AccountRow { sealed_credentials: Some(vec![9]), ..row }));
        assert_eq!(store.load_token("mine").await.unwrap(), None);
        assert!(store.load_token("other").await.unwrap().is_some());
    }
}

#[tokio::test]
async fn new_credentials_keep_or_replace_the_token_as_they_say() {
    for Fixture { store, .. } in stores().await {
        store.insert_account(&AuditContext::command(), &store_account("mine")).await.unwrap();
        let replace = |before: &[u8]| TokenChange::Replace { before: before.to_vec(), after: b"expired".to_vec() };
        for (token, stored, later) in [
            (TokenChange::Delete, None, false),
            (TokenChange::Keep, Some("token"), true),
            (replace(b"token"), Some("expired"), true),
            // A newer token has been stored since the change was decided.
            (replace(b"older"), Some("token"), true),
        ] {
            assert!(store.claim_refresh("mine", "a", time(1), time(9)).await.unwrap());
            assert!(store.store_token("mine", "a", b"token").await.unwrap());
            assert!(store.claim_refresh("mine", "a", time(1), time(9)).await.unwrap());
            let credentials = NewCredentials { sealed: vec![9], token: token.clone() };
            change(&*store, "mine", AccountChange::ReplaceCredentials(credentials), 1).await.unwrap();
            let row = store.load_token("mine").await.unwrap();
            assert_eq!(row.map(|row| row.sealed_token), stored.map(|text| text.as_bytes().to_vec()), "{token:?}");
            // The token of a fetch that was in progress meanwhile.
            assert_eq!(store.store_token("mine", "a", b"later").await.unwrap(), later, "{token:?}");
        }
    }
}
