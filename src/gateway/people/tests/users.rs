//! Users, groups and admin tokens.

use super::*;
use crate::gateway::keys::{ApiKeys, BearerSecret, BearerSecretKind, KeyError, Pepper};
use crate::gateway::store::{ActorKind, KeyChange, KeyLock};

fn names(users: &[UserRow]) -> Vec<&str> {
    users.iter().map(|user| user.name.as_str()).collect()
}

#[tokio::test]
async fn the_last_admin_who_can_sign_in_stays_one() {
    let (fixture, _) = Fixture::set_up().await;
    let change = async |name: &str, change| fixture.people.change_user(&AuditContext::command(), name, change).await;
    // Neither an invited admin who has not joined nor a disabled admin counts as one who can sign in.
    fixture.people.invite(&AuditContext::command(), "invited", UserRole::Admin, &[]).await.unwrap();
    fixture.join("gone", UserRole::Admin).await;
    change("gone", UserChange::Disable).await.unwrap();
    fixture.join("bob", UserRole::Member).await;
    for last in [UserChange::Disable, UserChange::Role(UserRole::Member)] {
        assert!(matches!(change("ada", last).await, Err(IdentityError::LastAdmin)));
    }
    let both = [UserChange::Groups(vec![]), UserChange::Disable];
    assert!(matches!(
        fixture.people.apply_user_changes(&AuditContext::command(), "ada", &both).await,
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
async fn two_admins_who_disable_each_other_at_once_are_not_both_gone() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.join("bob", UserRole::Admin).await;
    let other = people_of(&Arc::new(SqliteStore::open(fixture.dir.path(), None).await.unwrap()));
    let act = AuditContext::command();
    let (one, two) = tokio::join!(
        fixture.people.change_user(&act, "ada", UserChange::Disable),
        other.change_user(&act, "bob", UserChange::Disable),
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
}

#[tokio::test]
async fn users_come_in_pages_the_newest_first() {
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
async fn a_name_is_taken_once_and_a_group_must_exist() {
    let (fixture, _) = Fixture::set_up().await;
    let invite = async |name: &str, groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        fixture.people.invite(&AuditContext::command(), name, UserRole::Member, &groups).await
    };
    assert!(matches!(invite("ada", &[]).await, Err(IdentityError::NameTaken)));
    assert!(matches!(invite("bob", &["nowhere"]).await, Err(IdentityError::InvalidField { field: "groups", .. })));
    assert!(matches!(fixture.people.find_user("bob").await, Err(IdentityError::Unknown)), "nothing is left of it");
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
async fn members_know_of_themselves_only() {
    let (fixture, ada) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    let (ada, bob) = (&ada.session.actor, &bob.session.actor);
    assert!(fixture.people.find_visible_user(ada, "bob").await.is_ok());
    assert!(fixture.people.find_visible_user(bob, "bob").await.is_ok());
    assert!(matches!(fixture.people.find_visible_user(bob, "ada").await, Err(IdentityError::Unknown)));
}

#[tokio::test]
async fn a_group_goes_when_no_key_is_in_it_and_can_come_again() {
    let (fixture, _) = Fixture::set_up().await;
    let act = AuditContext::command();
    let keys = ApiKeys::new(Arc::clone(&fixture.store) as Arc<dyn Store>, Pepper::new(fixture.store.pepper_key()));
    let made = fixture.people.make_group(&act, "studio", None).await.unwrap();
    assert!(!made.of_file && made.row.key_count == 0);
    assert!(matches!(fixture.people.make_group(&act, "studio", None).await, Err(IdentityError::NameTaken)));
    assert!(matches!(
        fixture.people.make_group(&act, " ", None).await,
        Err(IdentityError::InvalidField { field: "name", .. })
    ));
    assert!(matches!(fixture.people.delete_group(&act, "default").await, Err(IdentityError::DefinedInFile)));
    let key = keys.create_for_test("k", "ada", "studio").await;
    assert!(matches!(fixture.people.delete_group(&act, "studio").await, Err(IdentityError::InUse)));
    assert_eq!(fixture.people.groups().await.unwrap()[1].row.key_count, 1);
    fixture.people.change_user(&act, "ada", UserChange::Groups(vec!["studio".to_owned()])).await.unwrap();
    keys.change(&act, key.id.as_str(), None, KeyChange::Delete).await.unwrap();
    assert_eq!(fixture.people.delete_group(&act, "studio").await.unwrap().id, made.row.id);
    assert!(matches!(fixture.people.delete_group(&act, "studio").await, Err(IdentityError::Unknown)));
    assert_eq!(fixture.people.groups().await.unwrap().len(), 1);
    assert!(fixture.people.find_user("ada").await.unwrap().groups.is_empty());
    assert_eq!(fixture.people.make_group(&act, "studio", None).await.unwrap().row.id, made.row.id);
}

#[tokio::test]
async fn an_admin_token_is_worth_what_its_user_is_worth() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.join("bob", UserRole::Admin).await;
    let act = AuditContext::command();
    let bob = fixture.people.find_user("bob").await.unwrap();
    let (token, secret) = fixture.people.make_token(&act, &bob, "ci", None).await.unwrap();
    let admit = async || fixture.people.admit_token(secret.expose().as_bytes()).await.unwrap();
    let actor = admit().await.unwrap();
    assert!(
        actor.is_admin()
            && actor.audit_context().kind == ActorKind::Token
            && actor.audit_context().user == Some(bob.id.clone())
    );
    assert!(fixture.people.tokens(None).await.unwrap()[0].last_used_at.is_some());
    fixture.people.change_user(&act, "bob", UserChange::Role(UserRole::Member)).await.unwrap();
    assert_eq!(admit().await.unwrap().owner(), Some(&bob.id));
    fixture.people.change_user(&act, "bob", UserChange::Disable).await.unwrap();
    assert!(admit().await.is_none());
    fixture.people.change_user(&act, "bob", UserChange::Enable).await.unwrap();
    assert!(admit().await.is_some());
    let stranger = "usr_2".into();
    let refused = fixture.people.revoke_token(&act, token.id.as_str(), Some(&stranger)).await;
    assert!(matches!(refused, Err(IdentityError::Unknown)));
    assert_eq!(fixture.people.revoke_token(&act, token.public_id.as_str(), Some(&bob.id)).await.unwrap().id, token.id);
    assert!(admit().await.is_none());
    assert!(fixture.people.tokens(None).await.unwrap().is_empty());
}

#[tokio::test]
async fn whatever_is_no_good_token_lets_nobody_in() {
    let (fixture, _) = Fixture::set_up().await;
    let act = AuditContext::command();
    let ada = fixture.people.find_user("ada").await.unwrap();
    let end = fixture.people.clock.now() + Duration::from_secs(3600);
    let (_, secret) = fixture.people.make_token(&act, &ada, "ci", Some(end)).await.unwrap();
    let good = secret.expose();
    let key = BearerSecret::generate(BearerSecretKind::Key).unwrap();
    let stranger = BearerSecret::generate(BearerSecretKind::AdminToken).unwrap();
    let body = format!("{}{}", &good[..20], &stranger.expose()[20..52]);
    let forged = format!("{body}{}", BearerSecret::checksum_of(&body));
    for bad in ["", &good[1..], key.expose(), stranger.expose(), forged.as_str()] {
        assert!(fixture.people.admit_token(bad.as_bytes()).await.unwrap().is_none(), "{bad}");
    }
    assert!(fixture.people.admit_token(good.as_bytes()).await.unwrap().is_some());
    fixture.people.clock.advance(Duration::from_secs(3600));
    assert!(fixture.people.admit_token(good.as_bytes()).await.unwrap().is_none());

    for (name, end, field) in [("", None, "name"), ("a", Some(act.at), "expires_at")] {
        let refused = fixture.people.make_token(&act, &ada, name, end).await;
        assert!(matches!(refused, Err(IdentityError::InvalidField { field: of, .. }) if of == field));
    }
}

#[tokio::test]
async fn whoever_leaves_a_group_has_no_good_key_in_it() {
    let (fixture, _) = Fixture::set_up().await;
    let keys = ApiKeys::new(Arc::clone(&fixture.store) as Arc<dyn Store>, Pepper::new(fixture.store.pepper_key()));
    let inside = keys.create_for_test("inside", "ben", "default").await;
    let outside = keys.create_for_test("outside", "ben", "studio").await;
    let others = keys.create_for_test("others", "eve", "default").await;
    let act = AuditContext::command();
    let regroup = async |groups: &[&str]| {
        let groups = UserChange::Groups(groups.iter().map(|group| (*group).to_owned()).collect());
        let (_, stopped) = fixture.people.apply_user_changes_with_keys(&act, "ben", &[groups]).await.unwrap();
        stopped.into_iter().map(|key| key.id).collect::<Vec<_>>()
    };
    let locked = async |id: &str| keys.find(id, None).await.unwrap().locked;

    assert_eq!(regroup(&[]).await, std::slice::from_ref(&inside.id));
    assert_eq!(locked(inside.id.as_str()).await, Some(KeyLock::LeftGroup));
    // A key that an admin made in a group to which ben never belonged is not touched, and neither are the keys of
    // others.
    assert_eq!((locked(outside.id.as_str()).await, locked(others.id.as_str()).await), (None, None));
    // Joining again enables nothing, and leaving again disables nothing twice.
    assert_eq!(regroup(&["default"]).await, []);
    assert_eq!(locked(inside.id.as_str()).await, Some(KeyLock::LeftGroup));
    assert_eq!(regroup(&[]).await, []);
    let ben = fixture.people.find_user("ben").await.unwrap();
    let enable = keys.change(&act, inside.id.as_str(), Some(&ben.id), KeyChange::Enable).await;
    assert!(matches!(enable, Err(KeyError::Locked(KeyLock::LeftGroup))), "{enable:?}");
    let rows: Vec<_> = fixture.trail().await.into_iter().filter(|row| row.action == "key.disable").collect();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].details, serde_json::json!({"left_group": "default"}));
}
