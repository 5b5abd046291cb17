//! Tests of pages of records, and of the names of keys and users.

use super::*;
use crate::gateway::store::testing::{add_key, finished_record, new_store, record, record_filter, running_record};
use crate::gateway::store::{JobRecord, JobState, NodeId, RecordStore as _, RowWrite, SqlStore, Timestamp};

async fn write_records(store: &SqlStore, records: impl IntoIterator<Item = JobRecord>) {
    for closed in records {
        let open = record! { state: JobState::Running, ..closed.clone() };
        let writes = [RowWrite::Open(&open), RowWrite::Close(&closed)];
        store.write_rows(&NodeId::only(), &writes).await.unwrap();
    }
}

fn ids(page: &RecordPage) -> String {
    page.records.iter().map(|record| record.request_id.as_str()).collect()
}

#[tokio::test]
async fn pages_show_every_record_once_while_new_records_are_written() {
    let (_dir, store) = new_store().await;
    let usage = UsageReader::new(Arc::clone(&store) as Arc<dyn UsageStore>);
    // All records have the same time, so their order is the order in which they were written.
    Box::pin(write_records(&store, ["a", "b", "c", "d", "e"].map(finished_record))).await;
    let (mut filter, mut seen) = (RecordFilter::default(), Vec::new());
    loop {
        let page = usage.records(&filter, 2).await.unwrap();
        seen.push(ids(&page));
        write_records(&store, [finished_record(&format!("new{}", seen.len()))]).await;
        if !page.has_more {
            break;
        }
        filter.query.before = page.records.last().map(|record| record.request_id.clone());
    }
    assert_eq!(seen, ["ed", "cb", "a"]);
}

#[tokio::test]
async fn records_of_other_users_are_invisible_also_as_cursors() {
    let (_dir, store) = new_store().await;
    let usage = UsageReader::new(Arc::clone(&store) as Arc<dyn UsageStore>);
    let foreign = record! { user: "usr_2", key: "key_2", ..finished_record("theirs") };
    write_records(&store, [finished_record("mine"), foreign]).await;
    let owner = Some(UserId::from("usr_1"));

    let page = usage.records(&record_filter! { owner: owner.clone(), ..RecordFilter::default() }, 10).await.unwrap();
    assert_eq!(ids(&page), "mine");
    // The owner restricts the result, whatever other filters are set.
    for (key, user) in [(Some("key_2"), None), (None, Some("usr_2"))] {
        let (key, user) = (key.map(str::to_owned), user.map(str::to_owned));
        let filter = record_filter! { owner: owner.clone(), key, user, ..RecordFilter::default() };
        assert_eq!(ids(&usage.records(&filter, 10).await.unwrap()), "");
    }
    assert!(usage.record(&"theirs".into(), owner.as_ref()).await.unwrap().is_none());
    assert!(usage.record(&"theirs".into(), None).await.unwrap().is_some());
    assert!(usage.record(&"mine".into(), owner.as_ref()).await.unwrap().is_some());
    for (cursor, owner) in [("theirs", owner), ("missing", None)] {
        let filter = record_filter! { owner, before: Some(cursor.into()), ..RecordFilter::default() };
        let refused = usage.records(&filter, 10).await;
        assert!(matches!(&refused, Err(UsageError::UnknownCursor(id)) if id.as_str() == cursor), "{refused:?}");
    }
}

#[tokio::test]
async fn records_and_counts_have_the_names_of_key_and_user() {
    let (_dir, store) = new_store().await;
    let usage = UsageReader::new(Arc::clone(&store) as Arc<dyn UsageStore>);
    let row = add_key(&*store, "laptop").await;
    let known = |id: &str| record! { key: row.id, user: row.user, ..finished_record(id) };
    let unnamed = record! { created_at: "2026-11-20T00:00:00Z".parse::<Timestamp>().unwrap(), ..finished_record("c") };
    write_records(&store, [known("a"), known("b"), unnamed]).await;

    let named = |key: &Option<String>, user: &Option<String>| {
        (key.clone().unwrap_or_default(), user.clone().unwrap_or_default())
    };
    let page = usage.records(&RecordFilter::default(), 10).await.unwrap();
    let names: Vec<_> = page.records.iter().map(|found| named(&found.key_name, &found.user_name)).collect();
    let (known_names, no_names) = (("laptop".to_owned(), "ada".to_owned()), (String::new(), String::new()));
    assert_eq!((ids(&page).as_str(), names), ("bac", vec![known_names.clone(), known_names.clone(), no_names.clone()]));

    let keys = usage.by_key(&UsageFilter::default(), None).await.unwrap();
    let found: Vec<_> =
        keys.iter().map(|key| (named(&key.name, &key.user_name), key.key_counts.counts.requests)).collect();
    assert_eq!(found, [(known_names, 2), (no_names, 1)]);
    assert_eq!(usage.by_key(&UsageFilter::default(), Some(1)).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_running_record_is_listed_only_by_its_state() {
    let (_dir, store) = new_store().await;
    let usage = UsageReader::new(Arc::clone(&store) as Arc<dyn UsageStore>);
    store.write_rows(&NodeId::only(), &[RowWrite::Open(&running_record("now"))]).await.unwrap();
    write_records(&store, [finished_record("then")]).await;
    assert_eq!(ids(&usage.records(&RecordFilter::default(), 10).await.unwrap()), "then");
    let running = record_filter! { state: Some(JobState::Running), ..RecordFilter::default() };
    assert_eq!(ids(&usage.records(&running, 10).await.unwrap()), "now");
    assert_eq!(usage.record(&"now".into(), None).await.unwrap().unwrap().state, JobState::Running);
}
