//! Tests of users, groups and admin tokens.

use super::*;
use crate::gateway::keys::{ApiKeys, BearerSecret, BearerSecretKind, KeyError};
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::{ActorKind, KeyChange, KeyLock};

fn names(users: &[UserRow]) -> Vec<&str> {
    users.iter().map(|user| user.name.as_str()).collect()
}

#[tokio::test]
async fn the_last_admin_who_can_sign_in_stays_an_admin() {
    let (fixture, _) = Fixture::set_up().await;
    let change = async |name: &str, change| fixture.people.change_user(&AuditContext::command(), name, change).await;
    // Neither an invited admin who has not joined nor a disabled admin counts as one who can sign in.
    fixture.people.invite(&AuditContext::command(), new_user("invited", UserRole::Admin, &[])).await.unwrap();
    fixture.join("gone", UserRole::Admin).await;
    change("gone", UserChange::Disable).await.unwrap();
    fixture.join("bob", UserRole::Member).await;
    for user_change in [UserChange::Disable, UserChange::Role(UserRole::Member)] {
        assert!(matches!(change("ada", user_change).await, Err(IdentityError::LastAdmin)));
    }
    let changes = [UserChange::Groups(vec![]), UserChange::Disable];
    assert!(matches!(
        fixture.people.apply_user_changes(&AuditContext::command(), "ada", &changes).await,
        Err(IdentityError::LastAdmin)
    ));
    let ada = fixture.people.find_user("ada").await.unwrap();
    assert_eq!((ada.role, ada.disabled_at, ada.groups), (UserRole::Admin, None, vec!["default".to_owned()]));

    change("invited", UserChange::Disable).await.unwrap();
    change("bob", UserChange::Role(UserRole::Admin)).await.unwrap();
    assert!(change("ada", UserChange::Role(UserRole::Member)).await.is_ok());
    assert!(matches!(change("bob", UserChange::Disable).await, Err(IdentityError::LastAdmin)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_admins_who_disable_each_other_are_not_both_disabled() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.join("bob", UserRole::Admin).await;
    let other_process = people_of(&Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap()));
    let audit = AuditContext::command();
    let (first, second) = tokio::join!(
        fixture.people.change_user(&audit, "ada", UserChange::Disable),
        other_process.change_user(&audit, "bob", UserChange::Disable),
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
}

#[tokio::test]
async fn users_are_listed_in_pages_newest_first() {
    let (fixture, _) = Fixture::set_up().await;
    for name in ["b_b", "cc", "dd"] {
        fixture.people.find_or_create_user(&AuditContext::command(), name).await.unwrap();
    }
    let page = async |filter: UserFilter| fixture.people.user_page(&UserFilter { limit: 2, ..filter }).await.unwrap();
    let first = page(UserFilter::default()).await;
    assert_eq!((names(&first.items), first.total, first.has_more), (vec!["dd", "cc"], 4, true));
    let second = page(UserFilter { before: Some(first.items[1].id.clone()), ..UserFilter::default() }).await;
    assert_eq!((names(&second.items), second.has_more), (vec!["b_b", "ada"], false));
    let found = page(UserFilter { search: Some("_".to_owned()), ..UserFilter::default() }).await;
    assert_eq!((names(&found.items), found.total), (vec!["b_b"], 1));
    let admins = page(UserFilter { role: Some(UserRole::Admin), ..UserFilter::default() }).await;
    assert_eq!(names(&admins.items), ["ada"]);
}

#[tokio::test]
async fn a_user_name_is_unique_and_a_group_must_exist() {
    let (fixture, _) = Fixture::set_up().await;
    let invite = async |name: &str, groups: &[&str]| {
        fixture.people.invite(&AuditContext::command(), new_user(name, UserRole::Member, groups)).await
    };
    assert!(matches!(invite("ada", &[]).await, Err(IdentityError::NameTaken)));
    assert!(matches!(invite("bob", &["nowhere"]).await, Err(IdentityError::InvalidField { field: "groups", .. })));
    assert!(
        matches!(fixture.people.find_user("bob").await, Err(IdentityError::Unknown)),
        "a failed invitation creates no user"
    );
    let (bob, _) = invite("bob", &["default"]).await.unwrap();
    assert_eq!(bob.groups, ["default"]);
    let groups = UserChange::Groups(vec!["nowhere".to_owned()]);
    assert!(matches!(
        fixture.people.change_user(&AuditContext::command(), "bob", groups).await,
        Err(IdentityError::InvalidField { field: "groups", .. })
    ));
    assert_eq!(fixture.people.find_user("bob").await.unwrap().groups, ["default"]);
}

#[tokio::test]
async fn a_member_can_find_only_themselves() {
    let (fixture, ada) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    let (ada, bob) = (&ada.session.actor, &bob.session.actor);
    assert!(fixture.people.find_visible_user(ada, "bob").await.is_ok());
    assert!(fixture.people.find_visible_user(bob, "bob").await.is_ok());
    assert!(matches!(fixture.people.find_visible_user(bob, "ada").await, Err(IdentityError::Unknown)));
}

#[tokio::test]
async fn a_group_without_keys_can_be_deleted_and_created_again() {
    let (fixture, _) = Fixture::set_up().await;
    let audit = AuditContext::command();
    let keys = ApiKeys::new(&(Arc::clone(&fixture.store) as _), Pepper::new(fixture.store.pepper_key()));
    let created = fixture.people.create_group(&audit, "studio", None).await.unwrap();
    assert!(!created.is_in_file && created.row.key_count == 0);
    assert!(matches!(fixture.people.create_group(&audit, "studio", None).await, Err(IdentityError::NameTaken)));
    assert!(matches!(
        fixture.people.create_group(&audit, " ", None).await,
        Err(IdentityError::InvalidField { field: "name", .. })
    ));
    assert!(matches!(fixture.people.delete_group(&audit, "default").await, Err(IdentityError::DefinedInFile)));
    let key = keys.create_for_test("k", "ada", "studio").await;
    assert!(matches!(fixture.people.delete_group(&audit, "studio").await, Err(IdentityError::InUse)));
    assert_eq!(fixture.people.groups().await.unwrap()[1].row.key_count, 1);
    fixture.people.change_user(&audit, "ada", UserChange::Groups(vec!["studio".to_owned()])).await.unwrap();
    keys.change(&audit, key.row.id.as_str(), None, KeyChange::Delete).await.unwrap();
    assert_eq!(fixture.people.delete_group(&audit, "studio").await.unwrap().id, created.row.id);
    assert!(matches!(fixture.people.delete_group(&audit, "studio").await, Err(IdentityError::Unknown)));
    assert_eq!(fixture.people.groups().await.unwrap().len(), 1);
    assert!(fixture.people.find_user("ada").await.unwrap().groups.is_empty());
    assert_eq!(fixture.people.create_group(&audit, "studio", None).await.unwrap().row.id, created.row.id);
}

#[tokio::test]
async fn an_admin_token_has_the_current_permissions_of_its_user() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.join("bob", UserRole::Admin).await;
    let audit = AuditContext::command();
    let bob = fixture.people.find_user("bob").await.unwrap();
    let (token, secret) = fixture.people.create_token(&audit, &bob, new_token("ci", None)).await.unwrap();
    let admit = async || fixture.people.authenticate_token(secret.expose().as_bytes()).await.unwrap();
    let actor = admit().await.unwrap();
    assert!(
        actor.is_admin()
            && actor.audit_context().kind == ActorKind::Token
            && actor.audit_context().user == Some(bob.id.clone())
    );
    assert!(fixture.people.tokens(None).await.unwrap()[0].last_used_at.is_some());
    fixture.people.change_user(&audit, "bob", UserChange::Role(UserRole::Member)).await.unwrap();
    assert_eq!(admit().await.unwrap().restricted_to(), Some(&bob.id));
    fixture.people.change_user(&audit, "bob", UserChange::Disable).await.unwrap();
    assert!(admit().await.is_none());
    fixture.people.change_user(&audit, "bob", UserChange::Enable).await.unwrap();
    assert!(admit().await.is_some());
    let other_user = "usr_2".into();
    let result = fixture.people.revoke_token(&audit, token.id.as_str(), Some(&other_user)).await;
    assert!(matches!(result, Err(IdentityError::Unknown)));
    assert_eq!(
        fixture.people.revoke_token(&audit, token.public_id.as_str(), Some(&bob.id)).await.unwrap().id,
        token.id
    );
    assert!(admit().await.is_none());
    assert!(fixture.people.tokens(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_token_makes_no_token_that_outlives_it() {
    let (fixture, _) = Fixture::set_up().await;
    let (audit, people) = (AuditContext::command(), &fixture.people);
    let ada = people.find_user("ada").await.unwrap();
    let at = |seconds: u64| people.clock.now() + Duration::from_secs(seconds);
    let admit = async |secret: &SecretText| people.authenticate_token(secret.expose().as_bytes()).await.unwrap();
    let make = async |maker: &SecretText, expires_at| {
        let actor = admit(maker).await.unwrap();
        let new = NewToken { maker: actor.token(), ..new_token("child", expires_at) };
        people.create_token(&audit, &ada, new).await
    };
    let (parent, parent_secret) = people.create_token(&audit, &ada, new_token("ci", Some(at(3600)))).await.unwrap();
    for too_late in [None, Some(at(3601))] {
        let refused = make(&parent_secret, too_late).await;
        assert!(matches!(refused, Err(IdentityError::InvalidField { field: "expires_at", .. })), "{too_late:?}");
    }
    let (_, child) = make(&parent_secret, parent.expires_at).await.unwrap();
    let (_, grandchild) = make(&child, Some(at(60))).await.unwrap();
    assert!(admit(&grandchild).await.is_some());
    people.revoke_token(&audit, parent.id.as_str(), None).await.unwrap();
    assert!(admit(&child).await.is_none() && admit(&grandchild).await.is_none(), "they end with their maker");
    assert!(people.tokens(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn the_tokens_that_a_disabled_user_made_for_others_do_not_work() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.join("bob", UserRole::Admin).await;
    let (audit, people) = (AuditContext::command(), &fixture.people);
    let (ada, bob) = (people.find_user("ada").await.unwrap(), people.find_user("bob").await.unwrap());
    let (_, bobs) = people.create_token(&audit, &bob, new_token("ci", None)).await.unwrap();
    let actor = people.authenticate_token(bobs.expose().as_bytes()).await.unwrap().unwrap();
    let new = NewToken { maker: actor.token(), ..new_token("for ada", None) };
    let (_, adas) = people.create_token(&audit, &ada, new).await.unwrap();
    let is_valid = async || people.authenticate_token(adas.expose().as_bytes()).await.unwrap().is_some();
    assert!(is_valid().await);
    people.change_user(&audit, "bob", UserChange::Disable).await.unwrap();
    assert!(!is_valid().await);
    people.change_user(&audit, "bob", UserChange::Enable).await.unwrap();
    assert!(is_valid().await);
}

#[tokio::test]
async fn a_user_has_a_limited_number_of_tokens() {
    let (fixture, _) = Fixture::set_up().await;
    let (audit, people) = (AuditContext::command(), &fixture.people);
    let ada = people.find_user("ada").await.unwrap();
    let make = async |expires_at| {
        let audit = AuditContext { at: people.clock.now(), ..audit.clone() };
        people.create_token(&audit, &ada, NewToken { max_tokens: 2, ..new_token("ci", expires_at) }).await
    };
    make(None).await.unwrap();
    make(Some(people.clock.now() + Duration::from_secs(60))).await.unwrap();
    assert!(matches!(make(None).await, Err(IdentityError::TooManyTokens(2))));
    people.clock.advance(Duration::from_secs(61));
    make(None).await.expect("a token that has ended does not count");
}

#[tokio::test]
async fn names_that_differ_by_case_only_are_one_name() {
    let (fixture, _) = Fixture::set_up().await;
    let audit = AuditContext::command();
    for name in ["ada", "ADA", "Ada", "ａｄａ"] {
        let refused = fixture.people.invite(&audit, new_user(name, UserRole::Member, &[])).await;
        assert!(matches!(refused, Err(IdentityError::NameTaken)), "{name}");
        assert_eq!(fixture.people.find_or_create_user(&audit, name).await.unwrap().name, "ada", "{name}");
    }
    assert!(fixture.people.sign_in("Ada", PASSWORD, &home_origin()).await.is_ok());
}

#[tokio::test]
async fn an_invalid_token_is_refused() {
    let (fixture, _) = Fixture::set_up().await;
    let audit = AuditContext::command();
    let ada = fixture.people.find_user("ada").await.unwrap();
    let end = fixture.people.clock.now() + Duration::from_secs(3600);
    let (_, secret) = fixture.people.create_token(&audit, &ada, new_token("ci", Some(end))).await.unwrap();
    let valid = secret.expose();
    let key = BearerSecret::generate(BearerSecretKind::Key).unwrap();
    let unknown = BearerSecret::generate(BearerSecretKind::AdminToken).unwrap();
    let body = format!("{}{}", &valid[..20], &unknown.expose()[20..52]);
    let forged = format!("{body}{}", BearerSecret::checksum_of(&body));
    for invalid in ["", &valid[1..], key.expose(), unknown.expose(), forged.as_str()] {
        assert!(fixture.people.authenticate_token(invalid.as_bytes()).await.unwrap().is_none(), "{invalid}");
    }
    assert!(fixture.people.authenticate_token(valid.as_bytes()).await.unwrap().is_some());
    fixture.people.clock.advance(Duration::from_secs(3600));
    assert!(fixture.people.authenticate_token(valid.as_bytes()).await.unwrap().is_none());

    for (name, end, expected_field) in [("", None, "name"), ("a", Some(audit.at), "expires_at")] {
        let result = fixture.people.create_token(&audit, &ada, new_token(name, end)).await;
        assert!(matches!(result, Err(IdentityError::InvalidField { field, .. }) if field == expected_field));
    }
}

#[tokio::test]
async fn keys_are_disabled_when_their_user_leaves_their_group() {
    let (fixture, _) = Fixture::set_up().await;
    let keys = ApiKeys::new(&(Arc::clone(&fixture.store) as _), Pepper::new(fixture.store.pepper_key()));
    let key_in_group = keys.create_for_test("inside", "ben", "default").await;
    let key_in_other_group = keys.create_for_test("outside", "ben", "studio").await;
    let key_of_other_user = keys.create_for_test("others", "eve", "default").await;
    let audit = AuditContext::command();
    let set_groups = async |groups: &[&str]| {
        let groups = UserChange::Groups(groups.iter().map(|group| (*group).to_owned()).collect());
        let (_, disabled) =
            fixture.people.apply_user_changes_and_list_stopped_keys(&audit, "ben", &[groups]).await.unwrap();
        disabled.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    let locked = async |id: &str| keys.find(id, None).await.unwrap().locked;

    assert_eq!(set_groups(&[]).await, std::slice::from_ref(&key_in_group.row.id));
    assert_eq!(locked(key_in_group.row.id.as_str()).await, Some(KeyLock::LeftGroup));
    // A key in a group to which ben never belonged stays as it is, and so do the keys of other users.
    assert_eq!(
        (locked(key_in_other_group.row.id.as_str()).await, locked(key_of_other_user.row.id.as_str()).await),
        (None, None)
    );
    // If ben joins the group again, his key stays disabled; if he leaves it again, no key is disabled a second time.
    assert_eq!(set_groups(&["default"]).await, []);
    assert_eq!(locked(key_in_group.row.id.as_str()).await, Some(KeyLock::LeftGroup));
    assert_eq!(set_groups(&[]).await, []);
    let ben = fixture.people.find_user("ben").await.unwrap();
    let enable = keys.change(&audit, key_in_group.row.id.as_str(), Some(&ben.id), KeyChange::Enable).await;
    assert!(matches!(enable, Err(KeyError::Locked(KeyLock::LeftGroup))), "{enable:?}");
    let rows: Vec<_> = fixture.trail().await.into_iter().filter(|row| row.action == "key.disable").collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].details, serde_json::json!({"left_group": "default"}));
}
