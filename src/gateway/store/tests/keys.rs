//! Keys, for every database.

use tokio::task::JoinSet;

use super::*;
use crate::gateway::store::testing::audit_context_at;

fn rotation(byte: u8, previous_until: Option<Timestamp>) -> SecretRotation {
    SecretRotation { hash: KeyHash([byte; 32]), previous_until }
}

fn keys_named(keys: &[KeyRow]) -> Vec<&str> {
    keys.iter().map(|key| key.name.as_str()).collect()
}

#[tokio::test]
async fn a_key_comes_back_as_it_went_in() {
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
        let change = async |handle: &str, change, when| {
            store.change_key(&audit_context_at(when), handle, None, &[change]).await.unwrap().done()
        };

        assert_eq!(change(by_id, KeyChange::Disable, first).await.unwrap().disabled_at, Some(first));
        assert_eq!(change(by_public_id, KeyChange::Disable, later).await.unwrap().disabled_at, Some(first));
        assert_eq!(change(by_id, KeyChange::Enable, later).await.unwrap(), row);
        assert_eq!(change("one", KeyChange::Disable, later).await, None);

        assert_eq!(change(by_public_id, KeyChange::Delete, later).await.unwrap().deleted_at, Some(later));
        assert_eq!(change(by_id, KeyChange::Enable, later).await, None);
        assert_eq!(store.list_keys().await.unwrap(), []);
        assert_eq!(store.find_key(by_id, None).await.unwrap(), None);
        // A reader of changed keys still gets it, so that it can refuse the key like any other.
        let checks = store.keys_changed_since(1).await.unwrap();
        assert!(checks.iter().any(|check| check.id == row.id && check.is_refused && check.is_deleted));
        // A reader that starts anew does not need deleted keys.
        assert!(store.keys_changed_since(0).await.unwrap().is_empty());
    }
}

#[tokio::test]
async fn several_changes_are_one() {
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
async fn nobody_changes_a_key_of_somebody_else() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let stranger = UserId::from("usr_2");
        let (act, id) = (AuditContext::command(), row.id.as_str());
        assert_eq!(
            store.change_key(&act, id, Some(&stranger), &[KeyChange::Delete]).await.unwrap(),
            KeyChangeOutcome::Unknown
        );
        assert_eq!(
            store.rotate_key(&act, &row.id, Some(&stranger), rotation(8, None)).await.unwrap(),
            KeyChangeOutcome::Unknown
        );
        assert_eq!(store.find_key(id, Some(&row.user)).await.unwrap(), Some(row.clone()));
        assert!(store.change_key(&act, id, Some(&row.user), &[KeyChange::Delete]).await.unwrap().done().is_some());
    }
}

#[tokio::test]
async fn noting_the_use_of_a_deleted_key_does_not_revive_it() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let moment = at("2026-02-01T00:00:00Z");
        store.change_key(&audit_context_at(moment), row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        store.record_key_use(std::slice::from_ref(&row.id), moment).await.unwrap();
        assert_eq!(store.find_key(row.id.as_str(), None).await.unwrap(), None);
        assert!(store.keys_changed_since(1).await.unwrap()[0].is_refused);
    }
}

#[tokio::test]
async fn whatever_matters_to_a_check_is_told_once_and_nothing_else_is() {
    for Fixture { store, .. } in stores().await {
        let (one, two) = (add_key(&*store, "one").await, add_key(&*store, "two").await);
        let act = AuditContext::command();
        let mut seen = 0;
        let mut told = async || {
            let checks = store.keys_changed_since(seen).await.unwrap();
            seen = checks.last().map_or(seen, |check| check.revision);
            checks.into_iter().map(|check| check.id).collect::<Vec<_>>()
        };
        assert_eq!(told().await, [one.id.clone(), two.id.clone()]);
        assert_eq!(told().await, []);

        let change =
            async |change| store.change_key(&act, one.id.as_str(), None, &[change]).await.unwrap().done().unwrap();
        for told_of in [KeyChange::Disable, KeyChange::Enable, KeyChange::Expire(None)] {
            change(told_of).await;
            assert_eq!(told().await, std::slice::from_ref(&one.id));
        }
        store.rotate_key(&act, &one.id, None, rotation(8, None)).await.unwrap().done().unwrap();
        assert_eq!(told().await, std::slice::from_ref(&one.id));
        for told_of in [UserChange::Disable, UserChange::Enable] {
            store.change_user(&act, one.user.as_str(), &[told_of]).await.unwrap();
            assert_eq!(told().await.len(), 2);
        }

        store.record_key_use(std::slice::from_ref(&one.id), Timestamp::now()).await.unwrap();
        change(KeyChange::Rename("other".to_owned())).await;
        change(KeyChange::Enable).await;
        assert_eq!(told().await, []);
        change(KeyChange::Delete).await;
        assert_eq!(told().await, std::slice::from_ref(&one.id));
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
async fn keys_come_in_pages_the_newest_first() {
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
        assert_eq!((keys_named(&first.items), first.total, first.has_more), (vec!["d", "c"], 3, true));
        let second = page(Some(ids[2].clone()), 2).await;
        assert_eq!((keys_named(&second.items), second.total, second.has_more), (vec!["a"], 3, false));
        // This also works if the last key of a page was deleted meanwhile.
        assert_eq!(keys_named(&page(Some(ids[1].clone()), 2).await.items), ["a"]);
        assert_eq!(keys_named(&page(Some("key_0".into()), 2).await.items), [""; 0]);
    }
}

#[tokio::test]
async fn keys_are_found_by_what_people_know_of_them() {
    for Fixture { store, .. } in stores().await {
        let act = AuditContext::command();
        let ada = add_key(&*store, "laptop 100%").await;
        let bob = store.ensure_user(&act, "Bob").await.unwrap();
        let studio = store.ensure_group(&act, "studio").await.unwrap();
        let bobs = KeyRow {
            id: "key_b".into(),
            public_id: "public-b".into(),
            name: "build_server".to_owned(),
            user: bob.id.clone(),
            group: studio.id,
            expires_at: None,
            ..ada.clone()
        };
        store.insert_key(&act, &bobs, None).await.unwrap();
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
        // The wildcards of a pattern stand for themselves here.
        assert_eq!((search("0%").await, search("_").await), ("laptop 100%".to_owned(), "build_server".to_owned()));
        assert_eq!(search("\\").await, "");
        assert_eq!(find(KeyFilter { owner: Some(bob.id.clone()), ..KeyFilter::default() }).await, "build_server");
        assert_eq!(find(KeyFilter { group: Some("studio".to_owned()), ..KeyFilter::default() }).await, "build_server");
        assert_eq!(find(KeyFilter { group: Some("none".to_owned()), ..KeyFilter::default() }).await, "");

        let state = async |state| find(KeyFilter { state: Some(state), ..KeyFilter::default() }).await;
        assert_eq!(state(KeyState::Active).await, "build_server laptop 100%");
        store.change_user(&act, "Bob", &[UserChange::Disable]).await.unwrap();
        assert_eq!(state(KeyState::UserDisabled).await, "build_server");
        assert_eq!(state(KeyState::Active).await, "laptop 100%");
        let end = KeyChange::Expire(Some(at("2026-05-01T00:00:00Z")));
        store.change_key(&act, ada.id.as_str(), None, &[end]).await.unwrap();
        assert_eq!(
            (state(KeyState::Expired).await, state(KeyState::Active).await),
            ("laptop 100%".to_owned(), String::new())
        );
        store.change_key(&act, ada.id.as_str(), None, &[KeyChange::Disable]).await.unwrap();
        assert_eq!(
            (state(KeyState::Disabled).await, state(KeyState::Expired).await),
            ("laptop 100%".to_owned(), String::new())
        );
    }
}

#[tokio::test]
async fn an_owner_cannot_undo_what_an_admin_has_decided() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let (id, owner) = (row.id.as_str(), row.user.clone());
        let act = AuditContext::command();
        let by_owner = async |change| store.change_key(&act, id, Some(&owner), &[change]).await.unwrap();
        let by_admin = async |change| store.change_key(&act, id, None, &[change]).await.unwrap().done().unwrap();

        // An owner can undo the owner's own change.
        assert_eq!(by_owner(KeyChange::Disable).await.done().unwrap().locked, None);
        assert_eq!(by_owner(KeyChange::Enable).await.done().unwrap().disabled_at, None);

        let latest = row.latest_end.unwrap();
        let (sooner, later) = (at("2026-12-01T00:00:00Z"), at("2027-02-01T00:00:00Z"));
        for end in [None, Some(later)] {
            assert_eq!(by_owner(KeyChange::Expire(end)).await, KeyChangeOutcome::PastLatestEnd(latest));
        }
        // An earlier expiry can be moved, but not beyond the latest that the admin has allowed.
        assert_eq!(by_owner(KeyChange::Expire(Some(sooner))).await.done().unwrap().expires_at, Some(sooner));
        assert_eq!(by_owner(KeyChange::Expire(Some(later))).await, KeyChangeOutcome::PastLatestEnd(latest));
        assert_eq!(by_owner(KeyChange::Expire(Some(latest))).await.done().unwrap().expires_at, Some(latest));

        // An admin can still lock a key that its owner has disabled.
        by_owner(KeyChange::Disable).await;
        assert_eq!(by_admin(KeyChange::Disable).await.locked, Some(KeyLock::Admin));
        assert_eq!(by_owner(KeyChange::Enable).await, KeyChangeOutcome::Locked(KeyLock::Admin));
        let rotated = store.rotate_key(&act, &row.id, Some(&owner), rotation(8, None)).await.unwrap();
        assert_eq!(rotated, KeyChangeOutcome::Locked(KeyLock::Admin));
        assert_eq!(store.find_key(id, None).await.unwrap().unwrap().hash, row.hash);
        // Several changes are all refused together.
        let both = [KeyChange::Rename("two".to_owned()), KeyChange::Enable];
        assert_eq!(
            store.change_key(&act, id, Some(&owner), &both).await.unwrap(),
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

async fn add_to_three(store: Arc<dyn Store>, row: KeyRow) -> bool {
    store.insert_key(&AuditContext::command(), &row, Some(3)).await.unwrap()
}

#[tokio::test]
async fn no_more_keys_than_allowed_are_added_however_many_ask_at_once() {
    for Fixture { store, .. } in stores().await {
        let row = add_key(&*store, "one").await;
        let more = |number: u32| KeyRow {
            id: KeyId::random().unwrap(),
            public_id: format!("public-{number}").as_str().into(),
            ..row.clone()
        };
        let act = AuditContext::command();
        let mut tries = JoinSet::new();
        for number in 0..8 {
            tries.spawn(add_to_three(Arc::clone(&store), more(number)));
        }
        let added = tries.join_all().await;
        assert_eq!(added.iter().filter(|added| **added).count(), 2);
        // Deleted keys do not count, and without a limit keys can still be added.
        store.change_key(&act, row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        assert!(store.insert_key(&act, &more(8), Some(3)).await.unwrap());
        assert!(!store.insert_key(&act, &more(9), Some(3)).await.unwrap());
        assert!(store.insert_key(&act, &more(10), None).await.unwrap());
    }
}

#[tokio::test]
async fn making_and_deleting_keys_ends_for_a_day_at_ten_times_the_limit() {
    for Fixture { store, .. } in stores().await {
        let (act, first) = (AuditContext::command(), add_key(&*store, "one").await);
        let another = |number: u32, created_at: Timestamp| KeyRow {
            id: KeyId::random().unwrap(),
            public_id: format!("public-{number}").as_str().into(),
            created_at,
            ..first.clone()
        };
        store.change_key(&act, first.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        for number in 1..10 {
            let row = another(number, Timestamp::now());
            assert!(store.insert_key(&act, &row, Some(1)).await.unwrap(), "{number}");
            store.change_key(&act, row.id.as_str(), None, &[KeyChange::Delete]).await.unwrap();
        }
        let now = Timestamp::now();
        assert!(!store.insert_key(&act, &another(10, now), Some(1)).await.unwrap(), "ten were deleted today");
        let tomorrow = now + std::time::Duration::from_secs(86_460);
        assert!(store.insert_key(&act, &another(11, tomorrow), Some(1)).await.unwrap());
    }
}
