//! Tests of repeated imports from SQLite.

use super::*;
use crate::gateway::store::testing::{add_key, fold_records, new_store};
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

/// SQLite counts the outcomes of interrupted jobs like all others, and PostgreSQL reads them again in the transaction.
#[tokio::test]
async fn an_import_goes_on_with_a_step_of_counts_that_was_begun() {
    let Some(url) = new_postgres_database().await else { return };
    let (dir, sqlite) = new_store().await;
    let records = [running_record("interrupted"), running_record("finished")];
    sqlite.write_rows(&NodeId::only(), &records.each_ref().map(RowWrite::Open)).await.unwrap();
    sqlite.write_rows(&NodeId::only(), &[RowWrite::Close(&finished_record("finished"))]).await.unwrap();
    assert_eq!(sqlite.interrupt_running(&NodeId::only()).await.unwrap(), 1);
    let details =
        async |store: &SqlStore| store.usage_details(&UsageFilter::default(), &UsageGrouping::ALL).await.unwrap();
    let expected = details(&sqlite).await;
    let mut step = sqlite.read_fold_step(i64::MAX, 100).await.unwrap().unwrap();
    assert!(sqlite.write_fold_step(&mut step, 5).await.unwrap(), "rows are left");
    assert_eq!(details(&sqlite).await, expected);
    import_from_sqlite(dir.path(), None, &url).await.unwrap();
    let postgres = SqlStore::open_postgres(dir.path(), &url, None).await.unwrap();
    assert_eq!(details(&postgres).await, expected);
    assert!(fold_records(&postgres, i64::MAX, 100).await.unwrap());
    assert_eq!(details(&postgres).await, expected);
}
