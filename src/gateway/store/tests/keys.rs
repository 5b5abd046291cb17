//! Tests of API keys, for every implementation of the store.

use tokio::task::JoinSet;

use super::*;
use crate::gateway::store::testing::audit_context_at;

fn rotation(byte: u8, previous_until: Option<Timestamp>) -> SecretRotation {
    SecretRotation { hash: KeyHash([byte; 32]), previous_until }
}

fn key_names(keys: &[KeyRow]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

#[tokio::test]
async fn a_key_is_read_as_it_was_written() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        for handle in [row.id.as_str(), row.public_id.as_str()] {
            assert_eq!(store.find_key(handle, None).await.unwrap(), Some(row.clone()));
            assert_eq!(store.find_key(handle, Some(&row.user)).await.unwrap(), Some(row.clone()));
            assert_eq!(store.find_key(handle, Some(&"usr_2".into())).await.unwrap(), None);
        }
        assert_eq!(store.find_key("public-two", None).await.unwrap(), None);
        assert!(matches!(store.insert_key(&AuditContext::command(), &row, None).await, Err(StoreError::Conflict)));
    }
}

#[tokio::test]
async fn keys_are_changed_by_either_id_until_they_are_deleted() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let (by_id, by_public_id) = (row.id.as_str(), row.public_id.as_str());
        let (first, later) = (at("2026-02-01T00:00:00Z"), at("2026-03-01T00:00:00Z"));
        let change = async |handle: &str, change, time| {
            store.change_key(&audit_context_at(time), handle, None, &[change]).await.unwrap().done()
        };

        assert_eq!(change(by_id, KeyChange::Disable, first).await.unwrap().disabled_at, Some(first));
        assert_eq!(change(by_public_id, KeyChange::Disable, later).await.unwrap().disabled_at, Some(first));
        assert_eq!(change(by_id, KeyChange::Enable, later).await.unwrap(), row);
        assert_eq!(change("one", KeyChange::Disable, later).await, None);

        assert_eq!(change(by_public_id, KeyChange::Delete, later).await.unwrap().deleted_at, Some(later));
        assert_eq!(change(by_id, KeyChange::Enable, later).await, None);
        assert_eq!(store.list_keys().await.unwrap(), []);
        assert_eq!(store.find_key(by_id, None).await.unwrap(), None);
        // A reader of changed keys is still told about the deleted key, so that it can refuse requests with that key.
        let checks = store.keys_changed_since(1).await.unwrap();
        assert!(checks.iter().any(|check| check.id == row.id && check.is_refused && check.is_deleted));
        // A reader that starts at revision 0 does not need deleted keys.
        assert!(store.keys_changed_since(0).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn several_changes_are_made_together() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let changes = [KeyChange::Rename("two".to_owned()), KeyChange::Expire(None), KeyChange::Disable];
        let changed =
            store.change_key(&AuditContext::command(), row.id.as_str(), None, &changes).await.unwrap().done().unwrap();
        assert_eq!((changed.name.as_str(), changed.expires_at), ("two", None));
        assert!(changed.disabled_at.is_some());
    }
}

#[tokio::test]
async fn an_owner_cannot_change_the_key_of_another_user() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let stranger = UserId::from("usr_2");
        let (context, id) = (AuditContext::command(), row.id.as_str());
        assert_eq!(
            store.change_key(&context, id, Some(&stranger), &[KeyChange::Delete]).await.unwrap(),
            KeyChangeOutcome::Unknown
        );
        assert_eq!(
            store.rotate_key(&context, &row.id, Some(&stranger), rotation(8, None)).await.unwrap(),
            KeyChangeOutcome::Unknown
        );
        assert_eq!(store.find_key(id, Some(&row.user)).await.unwrap(), Some(row.clone()));
        assert!(store.change_key(&context, id, Some(&row.user), &[KeyChange::Delete]).await.unwrap().done().is_some());
    }
}

#[tokio::test]
async fn recording_the_use_of_a_deleted_key_does_not_revive_it() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let time = at("2026-02-01T00:00:00Z");
        store.change_key(&audit_context_at(time), row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        store.record_key_use(std::slice::from_ref(&row.id), time).await.unwrap();
        assert_eq!(store.find_key(row.id.as_str(), None).await.unwrap(), None);
        assert!(store.keys_changed_since(1).await.unwrap()[0].is_refused);
    }
}

#[tokio::test]
async fn only_changes_that_affect_a_check_are_reported_once() {
    for Fixture { store, .. } in stores().await {
        let (one, two) = (add_key(&*store, "one").await, add_key(&*store, "two").await);
        let context = AuditContext::command();
        let mut last_revision = 0;
        let mut changed_ids = async || {
            let checks = store.keys_changed_since(last_revision).await.unwrap();
            last_revision = checks.last().map_or(last_revision, |check| check.revision);
            checks.into_iter().map(|check| check.id).collect::<Vec<_>>()
        };
        assert_eq!(changed_ids().await, [one.id.clone(), two.id.clone()]);
        assert_eq!(changed_ids().await, []);

        let change =
            async |change| store.change_key(&context, one.id.as_str(), None, &[change]).await.unwrap().done().unwrap();
        for change_made in [KeyChange::Disable, KeyChange::Enable, KeyChange::Expire(None)] {
            change(change_made).await;
            assert_eq!(changed_ids().await, std::slice::from_ref(&one.id));
        }
        store.rotate_key(&context, &one.id, None, rotation(8, None)).await.unwrap().done().unwrap();
        assert_eq!(changed_ids().await, std::slice::from_ref(&one.id));
        let limits = UserChange::Limit(Some("{}".to_owned()));
        for change_made in [UserChange::Disable, UserChange::Enable, limits, UserChange::Limit(None)] {
            store.change_user(&context, one.user.as_str(), &[change_made]).await.unwrap();
            assert_eq!(changed_ids().await.len(), 2);
        }

        store.record_key_use(std::slice::from_ref(&one.id), Timestamp::now()).await.unwrap();
        change(KeyChange::Rename("other".to_owned())).await;
        change(KeyChange::Enable).await;
        assert_eq!(changed_ids().await, []);
        change(KeyChange::Delete).await;
        assert_eq!(changed_ids().await, std::slice::from_ref(&one.id));
    }
}

#[tokio::test]
async fn a_rotated_key_keeps_everything_but_its_hash() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let until = at("2026-02-02T00:00:00Z");
        let rotate = async |hash, until| {
            store
                .rotate_key(&AuditContext::command(), &row.id, None, rotation(hash, until))
                .await
                .unwrap()
                .done()
                .unwrap()
        };
        let check = async || store.keys_changed_since(0).await.unwrap().pop().unwrap();
        assert_eq!(
            rotate(8, Some(until)).await,
            KeyRow { hash: KeyHash([8; 32]), previous_until: Some(until), ..row.clone() }
        );
        assert_eq!(check().await.previous, Some((KeyHash([7; 32]), until)));
        rotate(9, Some(until)).await;
        assert_eq!(check().await.previous, Some((KeyHash([8; 32]), until)));
        assert_eq!(rotate(10, None).await, KeyRow { hash: KeyHash([10; 32]), ..row.clone() });
        assert_eq!((check().await.hash, check().await.previous), (KeyHash([10; 32]), None));
    }
}

#[tokio::test]
async fn pages_of_keys_are_sorted_newest_first() {
    for Fixture { store, .. } in stores().await {
        let mut ids = Vec::new();
        for name in ["a", "b", "c", "d"] {
            ids.push(add_key(&*store, name).await.id);
        }
        store.change_key(&AuditContext::command(), ids[1].as_str(), None, &[KeyChange::Delete]).await.unwrap();
        let page = async |before, limit| {
            let filter = KeyFilter { before, limit, ..KeyFilter::default() };
            store.list_keys_page(&filter, Timestamp::now()).await.unwrap()
        };
        let first = page(None, 2).await;
        assert_eq!((key_names(&first.items), first.total, first.has_more), (vec!["d", "c"], 3, true));
        let second = page(Some(ids[2].clone()), 2).await;
        assert_eq!((key_names(&second.items), second.total, second.has_more), (vec!["a"], 3, false));
        // The next page is also found if the last key of the page before it was deleted meanwhile.
        assert_eq!(key_names(&page(Some(ids[1].clone()), 2).await.items), ["a"]);
        assert_eq!(key_names(&page(Some("key_0".into()), 2).await.items), [""; 0]);
    }
}

#[expect(clippy::excessive_nesting, reason = "every store, and every step of a history")]
#[tokio::test]
async fn pages_of_keys_follow_their_order() {
    for Fixture { store, .. } in stores().await {
        let mut keys = Vec::new();
        for name in ["b", "A", "c", "a"] {
            keys.push(add_key(&*store, name).await);
        }
        store.record_key_use(std::slice::from_ref(&keys[0].id), at("2026-01-02T00:00:00Z")).await.unwrap();
        store.record_key_use(std::slice::from_ref(&keys[2].id), at("2026-01-03T00:00:00Z")).await.unwrap();
        let refusals = [(0, 1), (3, 5)].map(|(index, count): (usize, u32)| RefusalCount {
            day: at("2026-01-01T00:00:00Z").into(),
            key: keys[index].id.clone(),
            user: keys[index].user.clone(),
            group: keys[index].group_name.clone(),
            count,
        });
        // A row of the usage without a finished request.
        store.add_refusals(&refusals).await.unwrap();
        let all_pages = async |sort| {
            let (mut names, mut before) = (String::new(), None);
            loop {
                let filter = KeyFilter { sort: Some(sort), before, limit: 1, ..KeyFilter::default() };
                let page = store.list_keys_page(&filter, Timestamp::now()).await.unwrap();
                names += &key_names(&page.items).concat();
                before = page.items.last().filter(|_| page.has_more).map(|key| key.id.clone());
                if before.is_none() {
                    return names;
                }
            }
        };
        assert_eq!(all_pages(KeySort::Created).await, "acAb");
        assert_eq!(all_pages(KeySort::Name).await, "Aabc");
        assert_eq!(all_pages(KeySort::LastUsed).await, "cbaA");
        assert_eq!(all_pages(KeySort::Requests).await, "acAb");
    }
}

#[tokio::test]
async fn keys_are_found_by_name_user_group_and_state() {
    for Fixture { store, .. } in stores().await {
        let context = AuditContext::command();
        let key_of_ada = add_key(&*store, "laptop 100%").await;
        let bob = store.ensure_user(&context, "Bob").await.unwrap();
        let studio = store.ensure_group(&context, "studio").await.unwrap();
        let key_of_bob = KeyRow {
            id: "key_b".into(),
            public_id: "public-b".into(),
            name: "build_server".to_owned(),
            user: bob.id.clone(),
            group: studio.id,
            expires_at: None,
            ..key_of_ada.clone()
        };
        store.insert_key(&context, &key_of_bob, None).await.unwrap();
        let find = async |filter: KeyFilter| {
            let filter = KeyFilter { limit: 10, ..filter };
            let page = store.list_keys_page(&filter, at("2026-06-01T00:00:00Z")).await.unwrap();
            assert_eq!(page.total, u64::try_from(page.items.len()).unwrap());
            page.items.into_iter().map(|key| key.name).collect::<Vec<_>>().join(" ")
        };
        let search = async |text: &str| find(KeyFilter { search: Some(text.to_owned()), ..KeyFilter::default() }).await;
        assert_eq!(search("LAPTOP").await, "laptop 100%");
        assert_eq!(search("public-b").await, "build_server");
        assert_eq!(search("bob").await, "build_server");
        // The wildcards of SQL patterns are matched literally.
        assert_eq!((search("0%").await, search("_").await), ("laptop 100%".to_owned(), "build_server".to_owned()));
        assert_eq!(search("\\").await, "");
        assert_eq!(find(KeyFilter { owner: Some(bob.id.clone()), ..KeyFilter::default() }).await, "build_server");
        assert_eq!(find(KeyFilter { group: Some("studio".to_owned()), ..KeyFilter::default() }).await, "build_server");
        assert_eq!(find(KeyFilter { group: Some("none".to_owned()), ..KeyFilter::default() }).await, "");

        let state = async |state| find(KeyFilter { state: Some(state), ..KeyFilter::default() }).await;
        assert_eq!(state(KeyState::Active).await, "build_server laptop 100%");
        store.change_user(&context, "Bob", &[UserChange::Disable]).await.unwrap();
        assert_eq!(state(KeyState::UserDisabled).await, "build_server");
        assert_eq!(state(KeyState::Active).await, "laptop 100%");
        let end = KeyChange::Expire(Some(at("2026-05-01T00:00:00Z")));
        store.change_key(&context, key_of_ada.id.as_str(), None, &[end]).await.unwrap();
        assert_eq!(
            (state(KeyState::Expired).await, state(KeyState::Active).await),
            ("laptop 100%".to_owned(), String::new())
        );
        store.change_key(&context, key_of_ada.id.as_str(), None, &[KeyChange::Disable]).await.unwrap();
        assert_eq!(
            (state(KeyState::Disabled).await, state(KeyState::Expired).await),
            ("laptop 100%".to_owned(), String::new())
        );
    }
}

#[tokio::test]
async fn an_owner_cannot_undo_a_decision_of_an_admin() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let (id, owner) = (row.id.as_str(), row.user.clone());
        let context = AuditContext::command();
        let by_owner = async |change| store.change_key(&context, id, Some(&owner), &[change]).await.unwrap();
        let by_admin = async |change| store.change_key(&context, id, None, &[change]).await.unwrap().done().unwrap();

        // An owner can undo a change that the owner has made.
        assert_eq!(by_owner(KeyChange::Disable).await.done().unwrap().locked, None);
        assert_eq!(by_owner(KeyChange::Enable).await.done().unwrap().disabled_at, None);

        let latest = row.latest_end.unwrap();
        let (sooner, later) = (at("2026-12-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
        for end in [None, Some(later)] {
            assert_eq!(by_owner(KeyChange::Expire(end)).await, KeyChangeOutcome::PastLatestEnd(latest));
        }
        // An owner can choose an earlier expiry and move it again, but not beyond the latest one that the admin allows.
        assert_eq!(by_owner(KeyChange::Expire(Some(sooner))).await.done().unwrap().expires_at, Some(sooner));
        assert_eq!(by_owner(KeyChange::Expire(Some(later))).await, KeyChangeOutcome::PastLatestEnd(latest));
        assert_eq!(by_owner(KeyChange::Expire(Some(latest))).await.done().unwrap().expires_at, Some(latest));

        // An admin can still lock a key that its owner has disabled.
        by_owner(KeyChange::Disable).await;
        assert_eq!(by_admin(KeyChange::Disable).await.locked, Some(KeyLock::Admin));
        assert_eq!(by_owner(KeyChange::Enable).await, KeyChangeOutcome::Locked(KeyLock::Admin));
        let rotated = store.rotate_key(&context, &row.id, Some(&owner), rotation(8, None)).await.unwrap();
        assert_eq!(rotated, KeyChangeOutcome::Locked(KeyLock::Admin));
        assert_eq!(store.find_key(id, None).await.unwrap().unwrap().hash, row.hash);
        // If one change is refused, none of the changes is made.
        let both = [KeyChange::Rename("two".to_owned()), KeyChange::Enable];
        assert_eq!(
            store.change_key(&context, id, Some(&owner), &both).await.unwrap(),
            KeyChangeOutcome::Locked(KeyLock::Admin)
        );
        assert_eq!(store.find_key(id, None).await.unwrap().unwrap().name, "one");

        let enabled = by_admin(KeyChange::Enable).await;
        assert_eq!((enabled.locked, enabled.disabled_at), (None, None));
        assert_eq!(by_admin(KeyChange::Expire(None)).await.latest_end, None);
        assert_eq!(by_owner(KeyChange::Expire(Some(later))).await.done().unwrap().expires_at, Some(later));
        by_admin(KeyChange::Disable).await;
        assert!(by_owner(KeyChange::Delete).await.done().unwrap().deleted_at.is_some());
    }
}

async fn insert_with_limit_of_three(store: Arc<dyn Store>, row: KeyRow) -> bool {
    store.insert_key(&AuditContext::command(), &row, Some(3)).await.unwrap()
}

#[tokio::test]
async fn concurrent_insertions_respect_the_limit_of_keys() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let new_key = |number: u32| KeyRow {
            id: KeyId::random().unwrap(),
            public_id: format!("public-{number}").as_str().into(),
            ..row.clone()
        };
        let context = AuditContext::command();
        let mut tasks = JoinSet::new();
        for number in 0..8 {
            tasks.spawn(insert_with_limit_of_three(Arc::clone(&store), new_key(number)));
        }
        let added = tasks.join_all().await;
        assert_eq!(added.iter().filter(|added| **added).count(), 2);
        // A few deleted keys do not count against the limit. Without a limit, keys can still be added.
        store.change_key(&context, row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        assert!(store.insert_key(&context, &new_key(8), Some(3)).await.unwrap());
        assert!(!store.insert_key(&context, &new_key(9), Some(3)).await.unwrap());
        assert!(store.insert_key(&context, &new_key(10), None).await.unwrap());
    }
}

#[tokio::test]
async fn creating_and_deleting_keys_is_limited_for_each_day() {
    for Fixture { store, .. } in stores().await {
        let (context, first) = (AuditContext::command(), add_key(&*store, "one").await);
        let new_key = |number: u32, created_at: Timestamp| KeyRow {
            id: KeyId::random().unwrap(),
            public_id: format!("public-{number}").as_str().into(),
            created_at,
            ..first.clone()
        };
        store.change_key(&context, first.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        for number in 1..10 {
            let row = new_key(number, Timestamp::now());
            assert!(store.insert_key(&context, &row, Some(1)).await.unwrap(), "{number}");
            store.change_key(&context, row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        }
        let now = Timestamp::now();
        assert!(!store.insert_key(&context, &new_key(10, now), Some(1)).await.unwrap(), "ten keys were deleted today");
        let tomorrow = now + Duration::from_secs(86_460);
        assert!(store.insert_key(&context, &new_key(11, tomorrow), Some(1)).await.unwrap());
    }
}

#[tokio::test]
async fn the_first_key_is_added_once_by_all_nodes_together() {
    for Fixture { store, second_store, .. } in stores().await {
        let context = AuditContext::command();
        let other = add_key(&*store, "other").await;
        let first =
            |name: &str| KeyRow { id: KeyId::random().unwrap(), public_id: PublicId::from(name), ..other.clone() };
        assert!(!store.insert_first_key(&context, &first("first-0")).await.unwrap(), "there is a key");
        let delete = async |id: &KeyId| {
            store.change_key(&context, id.as_str(), None, &[KeyChange::Delete]).await.unwrap().done().unwrap()
        };
        delete(&other.id).await;
        let (system, keys) = (AuditContext::system(), (first("first-1"), first("first-2")));
        let inserts =
            tokio::join!(store.insert_first_key(&system, &keys.0), second_store.insert_first_key(&system, &keys.1));
        assert_ne!(inserts.0.unwrap(), inserts.1.unwrap(), "one of two nodes adds it");
        let [key] = store.list_keys().await.unwrap().try_into().unwrap();
        assert_eq!(second_store.first_key().await.unwrap(), Some(key.id.clone()));
        store.forget_first_key().await.unwrap();
        assert_eq!(second_store.first_key().await.unwrap(), None);
        delete(&key.id).await;
        assert!(!store.insert_first_key(&context, &first("first-3")).await.unwrap(), "there was a first key");
    }
}

/// Adds a first key beside an account of this kind, and returns whether it was added.
async fn add_first_key_beside(fixture: &Fixture, kind: &str) -> bool {
    let context = AuditContext::command();
    let key = add_key(&*fixture.store, "other").await;
    fixture.store.change_key(&context, key.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
    fixture.store.sync_account(AccountSpec { name: "a", kind, protocol: "images", tier: "paid" }).await.unwrap();
    let first = KeyRow { id: KeyId::random().unwrap(), public_id: PublicId::from("first"), ..key };
    fixture.second_store.insert_first_key(&context, &first).await.unwrap()
}

#[tokio::test]
async fn the_first_key_is_not_added_to_an_account_that_costs_something() {
    for (kind, is_added) in [("api_key", false), ("simulator", true)] {
        for fixture in stores().await {
            assert_eq!(add_first_key_beside(&fixture, kind).await, is_added, "{kind}");
        }
    }
}
