//! Tests of repeated imports from SQLite.

use super::*;
use crate::gateway::store::testing::{add_key, new_store};
use crate::gateway::store::{KeyChange, KeyStore as _, Store, import_from_sqlite};

async fn rename_key(store: &dyn Store, id: &str, name: &str) {
    let change = [KeyChange::Rename(name.to_owned())];
    store.change_key(&AuditContext::command(), id, None, &change).await.unwrap().done().unwrap();
}

#[tokio::test]
async fn an_import_after_both_databases_were_used_is_refused() {
    let Some(url) = new_postgres_database().await else { return };
    let (dir, sqlite) = new_store().await;
    let key = add_key(&*sqlite, "before").await;
    let import = async || import_from_sqlite(dir.path(), None, &url).await;
    import().await.unwrap();
    import().await.unwrap();
    let postgres = SqlStore::open_postgres(dir.path(), &url, None).await.unwrap();
    rename_key(&postgres, key.id.as_str(), "in PostgreSQL").await;
    import().await.unwrap();
    rename_key(&*sqlite, key.id.as_str(), "in SQLite").await;
    let error = import().await.unwrap_err();
    assert!(matches!(error, StoreError::Diverged { table: "audit" }), "{error}");

    let keys = [add_key(&*sqlite, "of SQLite").await, add_key(&postgres, "of PostgreSQL").await];
    let error = import().await.unwrap_err();
    assert!(matches!(error, StoreError::Diverged { table: "keys" }), "{error}");
    let kept: Vec<_> = postgres.list_keys().await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(kept, [key.id, keys[1].id.clone()], "nothing is lost");
}
