//! Accounts of the file and of the store, and the state that the gateway finds out about them.

use super::*;
use crate::gateway::store::testing::audit_context_at;

const FILE: AccountSpec<'_> = AccountSpec { name: "primary", kind: "api_key", protocol: "images", tier: "paid" };

fn own(name: &str) -> NewAccount {
    NewAccount {
        name: name.to_owned(),
        kind: "oauth".to_owned(),
        protocol: "responses".to_owned(),
        tier: "free".to_owned(),
        settings: r#"{"base_url":"https://upstream.test/v1"}"#.to_owned(),
        sealed_credentials: Some(vec![1, 2, 3]),
    }
}

fn cool(second: u8, cause: &str) -> AccountChange {
    AccountChange::StartCooldown { until: moment(second), cause: cause.to_owned() }
}

fn disable(reason: &str) -> AccountChange {
    AccountChange::Disable { reason: reason.to_owned() }
}

fn moment(second: u8) -> Timestamp {
    at(&format!("2026-02-01T00:00:{second:02}Z"))
}

async fn change(store: &dyn Store, name: &str, change: AccountChange, second: u8) -> Option<AccountRow> {
    store.change_account(&audit_context_at(moment(second)), name, change).await.unwrap()
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
async fn an_account_of_the_store_comes_back_as_it_went_in() {
    for Fixture { store, other, .. } in stores().await {
        let row = store.insert_account(&AuditContext::command(), &own("mine")).await.unwrap();
        assert_eq!(row.source, "store");
        assert_eq!((row.kind.as_str(), row.protocol.as_str(), row.tier.as_str()), ("oauth", "responses", "free"));
        assert_eq!(
            (row.settings.clone(), row.sealed_credentials.clone()),
            (Some(own("mine").settings), own("mine").sealed_credentials)
        );
        assert_eq!((row.disabled_at, row.cooldown_until, row.absent_since), (None, None, None));
        assert_eq!(other.list_accounts().await.unwrap(), [row]);
    }
}

#[tokio::test]
async fn a_name_is_taken_whoever_has_it() {
    for Fixture { store, .. } in stores().await {
        let file = store.sync_account(FILE).await.unwrap();
        let mine = store.insert_account(&AuditContext::command(), &own("mine")).await.unwrap();
        for name in ["primary", "mine"] {
            assert!(
                matches!(store.insert_account(&AuditContext::command(), &own(name)).await, Err(StoreError::Conflict)),
                "{name}"
            );
        }
        let spec = AccountSpec { name: "mine", ..FILE };
        assert!(matches!(store.sync_account(spec).await, Err(StoreError::Conflict)));
        assert_eq!(store.list_accounts().await.unwrap(), [mine, file]);
    }
}

#[tokio::test]
async fn the_first_disabling_and_its_reason_stay_until_it_is_enabled() {
    for Fixture { store, .. } in stores().await {
        let row = store.sync_account(FILE).await.unwrap();
        change(&*store, "primary", disable("refused twice"), 1).await;
        let disabled = change(&*store, "primary", disable("again"), 2).await.unwrap();
        assert_eq!(
            (disabled.disabled_at, disabled.disabled_reason.as_deref()),
            (Some(moment(1)), Some("refused twice"))
        );
        assert_eq!(change(&*store, "primary", AccountChange::Enable, 3).await, Some(row));
    }
}

#[tokio::test]
async fn nothing_but_enabling_revives_a_disabled_account() {
    for Fixture { store, .. } in stores().await {
        store.sync_account(FILE).await.unwrap();
        change(&*store, "primary", disable("revoked"), 1).await;
        let late = [cool(5, "late"), AccountChange::EndCooldown, AccountChange::ReplaceCredentials(vec![9])];
        for late in late {
            let row = change(&*store, "primary", late.clone(), 9).await.unwrap();
            assert_eq!(
                (row.disabled_at, row.disabled_reason.as_deref()),
                (Some(moment(1)), Some("revoked")),
                "{late:?}"
            );
        }
        let row = store.sync_account(AccountSpec { tier: "free", ..FILE }).await.unwrap();
        assert_eq!(row.disabled_at, Some(moment(1)));
    }
}

#[tokio::test]
async fn of_two_rests_the_longer_one_holds() {
    for Fixture { store, other, .. } in stores().await {
        store.sync_account(FILE).await.unwrap();
        for (until, cause, holds) in
            [(20, "a", (20, "a")), (10, "b", (20, "a")), (20, "c", (20, "a")), (30, "d", (30, "d"))]
        {
            let row = change(&*other, "primary", cool(until, cause), 1).await.unwrap();
            assert_eq!((row.cooldown_until, row.cooldown_cause.as_deref()), (Some(moment(holds.0)), Some(holds.1)));
            assert_eq!(store.list_accounts().await.unwrap(), [row]);
        }
    }
}

#[tokio::test]
async fn a_late_success_does_not_end_a_rest_and_enabling_does() {
    for Fixture { store, .. } in stores().await {
        let row = store.sync_account(FILE).await.unwrap();
        let resting = change(&*store, "primary", cool(20, "exhausted"), 1).await;
        assert_eq!(change(&*store, "primary", AccountChange::EndCooldown, 19).await, resting);
        assert_eq!(change(&*store, "primary", AccountChange::EndCooldown, 20).await.as_ref(), Some(&row));
        change(&*store, "primary", cool(30, "exhausted"), 21).await;
        assert_eq!(change(&*store, "primary", AccountChange::Enable, 22).await, Some(row));
    }
}

#[tokio::test]
async fn no_change_brings_a_deleted_account_back() {
    for Fixture { store, .. } in stores().await {
        store.insert_account(&AuditContext::command(), &own("mine")).await.unwrap();
        assert!(store.delete_account(&AuditContext::command(), "mine").await.unwrap());
        assert!(!store.delete_account(&AuditContext::command(), "mine").await.unwrap());
        let late = [
            disable("x"),
            AccountChange::Enable,
            cool(9, "x"),
            AccountChange::EndCooldown,
            AccountChange::ReplaceCredentials(vec![9]),
        ];
        for late in late {
            assert_eq!(change(&*store, "mine", late.clone(), 1).await, None, "{late:?}");
        }
        assert_eq!(store.list_accounts().await.unwrap(), []);
    }
}

#[tokio::test]
async fn an_account_that_leaves_the_file_is_marked_until_it_returns() {
    for Fixture { store, .. } in stores().await {
        let stays = store.sync_account(AccountSpec { name: "'stays\"", ..FILE }).await.unwrap();
        let leaves = store.sync_account(FILE).await.unwrap();
        let mine = store.insert_account(&AuditContext::command(), &own("mine")).await.unwrap();
        let names = [stays.name.as_str()];
        assert_eq!(store.mark_absent(&names, moment(1)).await.unwrap(), 1);
        assert_eq!(store.mark_absent(&names, moment(2)).await.unwrap(), 0);
        let marked = AccountRow { absent_since: Some(moment(1)), ..leaves.clone() };
        assert_eq!(store.list_accounts().await.unwrap(), [stays.clone(), mine.clone(), marked]);
        assert_eq!(store.sync_account(FILE).await.unwrap(), leaves);
        assert_eq!(store.mark_absent(&[], moment(3)).await.unwrap(), 2);
    }
}

#[tokio::test]
async fn an_account_is_deleted_from_the_file_before_it_is_deleted_here() {
    for Fixture { store, .. } in stores().await {
        store.sync_account(FILE).await.unwrap();
        assert!(!store.delete_account(&AuditContext::command(), "primary").await.unwrap());
        store.mark_absent(&[], moment(1)).await.unwrap();
        assert!(store.delete_account(&AuditContext::command(), "primary").await.unwrap());
        assert_eq!(store.list_accounts().await.unwrap(), []);
    }
}

#[tokio::test]
async fn other_credentials_keep_everything_but_the_token() {
    for Fixture { store, .. } in stores().await {
        let row = store.insert_account(&AuditContext::command(), &own("mine")).await.unwrap();
        for name in ["mine", "other"] {
            assert!(store.claim_refresh(name, "a", moment(1), moment(9)).await.unwrap());
            assert!(store.store_token(name, "a", b"token").await.unwrap());
        }
        let resealed = change(&*store, "mine", AccountChange::ReplaceCredentials(vec![9]), 1).await;
        assert_eq!(resealed, Some(AccountRow { sealed_credentials: Some(vec![9]), ..row }));
        assert_eq!(store.load_token("mine").await.unwrap(), None);
        assert!(store.load_token("other").await.unwrap().is_some());
    }
}
