//! The bindings of values to users and accounts.

use super::*;
use crate::gateway::store::testing::record;

fn digests(record: &JobRecord) -> Vec<&str> {
    record.bindings.iter().map(BindingDigest::as_str).collect()
}

fn closed(request: &str, user: &str, account: &str, ids: &[&str]) -> JobRecord {
    record! {
        user: user,
        account: Some(account.to_owned()),
        bindings: ids.iter().map(|id| BindingDigest::of_id(id)).collect(),
        ..finished_record(request)
    }
}

#[tokio::test]
async fn a_closed_record_binds_its_values_to_its_user_and_account() {
    for Fixture { store, second_store, .. } in stores().await {
        let first = closed("r1", "usr_1", "a", &["resp_1", "rs_1", "resp_1"]);
        let other_user = closed("r2", "usr_2", "b", &["rs_1"]);
        let same_batch = closed("r3", "usr_2", "c", &["rs_1", "rs_3"]);
        write(&*store, &["r1", "r2", "r3"].map(running_record).each_ref().map(RowWrite::Open)).await;
        let before = store.find_bindings(&digests(&first)).await.unwrap();
        assert_eq!(before, [], "a running record binds nothing");
        let outcomes = write(&*store, &[&first, &other_user, &same_batch].map(RowWrite::Close)).await;
        assert_eq!(outcomes, vec![RowWriteOutcome::Done; 3]);
        let mut found = second_store.find_bindings(&digests(&first)).await.unwrap();
        found.sort_by(|one, other| one.account.cmp(&other.account));
        let pairs: Vec<_> = found.iter().map(|row| (row.owner.as_str(), row.account.as_str())).collect();
        assert_eq!(pairs, [("usr_1", "a"), ("usr_1", "a"), ("usr_2", "c")], "the later record counts");
        // A later record of the same user moves the value; that of a key without a user has an owner of its own.
        let moved = closed("r4", "usr_1", "b", &["rs_1"]);
        let of_key = record! { key: "key_9", ..closed("r5", UserId::NOBODY, "d", &["rs_1"]) };
        for record in [&moved, &of_key] {
            let open = record! { user: record.document.user, ..running_record(&record.document.request_id) };
            write(&*store, &[RowWrite::Open(&open)]).await;
            write(&*store, &[RowWrite::Close(record)]).await;
        }
        let found = store.find_bindings(&digests(&moved)).await.unwrap();
        let mut pairs: Vec<_> = found.iter().map(|row| (row.owner.as_str(), row.account.as_str())).collect();
        pairs.sort_unstable();
        assert_eq!(pairs, [("key_9", "d"), ("usr_1", "b"), ("usr_2", "c")]);
        assert_eq!(store.find_bindings(&[]).await.unwrap(), []);
    }
}

#[tokio::test]
async fn unused_bindings_are_removed_in_batches() {
    for Fixture { store, .. } in stores().await {
        let ids: Vec<String> = (0..30).map(|number| format!("resp_{number}")).collect();
        let record = closed("r1", "usr_1", "a", &ids.iter().map(String::as_str).collect::<Vec<_>>());
        write(&*store, &[RowWrite::Open(&running_record("r1"))]).await;
        write(&*store, &[RowWrite::Close(&record)]).await;
        let remove = async |before: Timestamp| {
            store.remove_expired_rows(RetentionClass::AccountBindings, before, 20).await.unwrap()
        };
        let day = Duration::from_secs(24 * 3600);
        assert_eq!(remove(Timestamp::now() - day).await, 0, "they were used today");
        let later = Timestamp::now() + day * 2;
        assert_eq!((remove(later).await, remove(later).await), (20, 10));
        assert_eq!(store.find_bindings(&digests(&record)).await.unwrap(), []);
    }
}
