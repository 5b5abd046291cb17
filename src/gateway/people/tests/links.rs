//! One-time links.

use super::*;
use crate::gateway::keys::{ApiKeys, NewKey};
use crate::gateway::store::OneTimeLinkPurpose;

#[tokio::test]
async fn the_first_admin_is_made_once_and_the_way_is_closed_for_ever() {
    let Fixture { people, store, .. } = &Fixture::new().await;
    assert!(!store.is_set_up().await.unwrap());
    let link = people.setup_link().await.unwrap().unwrap();
    assert_eq!(
        people.link_details(link.token.expose()).await.unwrap(),
        LinkDetails { purpose: OneTimeLinkPurpose::Setup, name: None }
    );
    assert_eq!(link.path(), format!("/setup/{}", link.token.expose()));

    let opened = people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home()).await.unwrap();
    assert!(opened.session.actor.is_admin() && opened.session.actor.owner().is_none());
    assert!(store.is_set_up().await.unwrap());
    let again = people.create_first_admin(link.token.expose(), "eve", PASSWORD, &home()).await;
    assert!(matches!(again, Err(IdentityError::InvalidLink)));
    assert!(people.setup_link().await.unwrap().is_none());
}

#[tokio::test]
async fn a_restart_makes_another_setup_link_and_the_former_one_is_over() {
    let Fixture { people, store, .. } = &Fixture::new().await;
    let first = people.setup_link().await.unwrap().unwrap();
    let second = people_of(store).setup_link().await.unwrap().unwrap();
    assert!(matches!(people.link_details(first.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(people.link_details(second.token.expose()).await.is_ok());
}

/// Two processes of one installation, each with connections of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_browsers_that_race_one_becomes_the_first_admin() {
    let fixture = Fixture::new().await;
    let other = Arc::new(SqliteStore::open(fixture.dir.path(), None).await.unwrap());
    let link = Arc::new(fixture.people.setup_link().await.unwrap().unwrap());
    let mut race = tokio::task::JoinSet::new();
    for (store, name) in [(&fixture.store, "ada"), (&other, "eve")] {
        let (people, link) = (people_of(store), Arc::clone(&link));
        race.spawn(async move { people.create_first_admin(link.token.expose(), name, PASSWORD, &home()).await });
    }
    let ends = race.join_all().await;
    assert_eq!(ends.iter().filter(|end| end.is_ok()).count(), 1, "{ends:?}");
    assert!(ends.iter().any(|end| matches!(end, Err(IdentityError::InvalidLink))), "{ends:?}");
    let users = fixture.people.user_page(&UserFilter { limit: 10, ..UserFilter::default() }).await.unwrap();
    assert_eq!((users.total, users.items[0].role), (1, UserRole::Admin));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invitation_that_is_used_twice_at_once_lets_one_in() {
    let (fixture, _) = Fixture::set_up().await;
    let (_, link) = fixture.people.invite(&AuditContext::command(), "bob", UserRole::Member, &[]).await.unwrap();
    let other = people_of(&Arc::new(SqliteStore::open(fixture.dir.path(), None).await.unwrap()));
    let token = link.token.expose();
    let origin = home();
    let (one, two) = tokio::join!(
        fixture.people.accept_link(token, PASSWORD, &origin),
        other.accept_link(token, "another password", &origin),
    );
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let right = if one.is_ok() { PASSWORD } else { "another password" };
    assert!(fixture.sign_in("bob", right, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_link_is_good_until_its_time_is_over() {
    let (fixture, _) = Fixture::set_up().await;
    let unused = Fixture::new().await;
    let setup = unused.people.setup_link().await.unwrap().unwrap();
    let (_, invitation) = fixture.people.invite(&AuditContext::command(), "bob", UserRole::Member, &[]).await.unwrap();
    let (_, reset) = fixture.people.make_reset_link(&AuditContext::command(), "ada").await.unwrap();
    for (fixture, link, minutes) in [(&unused, setup, 30), (&fixture, reset, 24 * 60), (&fixture, invitation, 72 * 60)]
    {
        let token = link.token.expose();
        let (life, last) = (Duration::from_secs(minutes * 60), Duration::from_millis(1));
        fixture.people.clock.advance(life - last);
        assert!(fixture.people.link_details(token).await.is_ok(), "{minutes} minutes");
        fixture.people.clock.advance(last);
        assert!(
            matches!(fixture.people.link_details(token).await, Err(IdentityError::InvalidLink)),
            "{minutes} minutes"
        );
        let late = fixture.people.accept_link(token, PASSWORD, &home()).await;
        assert!(matches!(late, Err(IdentityError::InvalidLink)), "{minutes} minutes");
        fixture.people.clock.go_back(life);
    }
}

#[tokio::test]
async fn a_link_does_what_it_is_for_and_nothing_else() {
    let fixture = Fixture::new().await;
    let setup = fixture.people.setup_link().await.unwrap().unwrap();
    let (_, invitation) = fixture.people.invite(&AuditContext::command(), "bob", UserRole::Member, &[]).await.unwrap();
    let computed = fixture.computed();
    let [setup, invitation] = [&setup, &invitation].map(|link| link.token.expose());
    for refused in [
        fixture.people.accept_link(setup, PASSWORD, &home()).await,
        fixture.people.create_first_admin(invitation, "eve", PASSWORD, &home()).await,
        fixture.people.accept_link("nothing", PASSWORD, &home()).await,
        fixture.people.create_first_admin("", "eve", PASSWORD, &home()).await,
    ] {
        assert!(matches!(refused, Err(IdentityError::InvalidLink)), "{refused:?}");
    }
    assert_eq!(fixture.computed(), computed, "nobody makes us hash without a link");
    assert!(fixture.people.accept_link(invitation, PASSWORD, &home()).await.is_ok());
    assert!(fixture.people.create_first_admin(setup, "ada", PASSWORD, &home()).await.is_ok());
}

#[tokio::test]
async fn a_bad_password_does_not_use_a_link_up() {
    let fixture = Fixture::new().await;
    let link = fixture.people.setup_link().await.unwrap().unwrap();
    let set_up = async |name: &str, password: &str| match fixture
        .people
        .create_first_admin(link.token.expose(), name, password, &home())
        .await
    {
        Err(IdentityError::InvalidField { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert_eq!(set_up("ada", "short").await, "password");
    assert_eq!(set_up("ada", &"x".repeat(257)).await, "password");
    assert_eq!(set_up("Ada Lovelace 1", "ada lovelace 1").await, "password");
    assert_eq!(set_up(" ", PASSWORD).await, "name");
    assert_eq!(set_up("usr_ada", PASSWORD).await, "name");
    assert!(fixture.people.create_first_admin(link.token.expose(), "ada", &"x".repeat(256), &home()).await.is_ok());
}

#[tokio::test]
async fn an_admin_who_was_invited_by_command_closes_the_set_up_too() {
    let fixture = Fixture::new().await;
    let setup = fixture.people.setup_link().await.unwrap().unwrap();
    fixture.join("ada", UserRole::Admin).await;
    assert!(fixture.store.is_set_up().await.unwrap());
    assert!(matches!(fixture.people.link_details(setup.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(fixture.people.setup_link().await.unwrap().is_none());
}

#[tokio::test]
async fn a_member_does_not_close_the_set_up_and_becoming_an_admin_does() {
    let fixture = Fixture::new().await;
    fixture.join("bob", UserRole::Member).await;
    assert!(!fixture.store.is_set_up().await.unwrap());
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Role(UserRole::Admin)).await.unwrap();
    assert!(fixture.store.is_set_up().await.unwrap());
}

#[tokio::test]
async fn the_name_that_a_command_made_for_its_keys_can_be_the_first_admins() {
    let fixture = Fixture::new().await;
    let made = fixture.people.find_or_create_user(&AuditContext::command(), "admin").await.unwrap();
    let link = fixture.people.setup_link().await.unwrap().unwrap();
    let opened = fixture.people.create_first_admin(link.token.expose(), "admin", PASSWORD, &home()).await.unwrap();
    let user = opened.session.actor.user().unwrap();
    assert_eq!((&user.id, user.role, user.has_password), (&made.id, UserRole::Admin, true));
}

#[tokio::test]
async fn a_reset_ends_every_session_and_the_other_links() {
    let (fixture, opened) = Fixture::set_up().await;
    let (_, first) = fixture.people.make_reset_link(&AuditContext::command(), "ada").await.unwrap();
    let (_, second) = fixture.people.make_reset_link(&AuditContext::command(), "ada").await.unwrap();
    assert!(matches!(fixture.people.link_details(first.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(fixture.is_open(&opened).await, "the link alone changes nothing");
    let again = fixture.people.accept_link(second.token.expose(), "another password", &home()).await.unwrap();
    assert!(!fixture.is_open(&opened).await && fixture.is_open(&again).await);
    assert!(matches!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await, Err(IdentityError::WrongCredentials)));
    assert!(fixture.sign_in("ada", "another password", "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_disabled_user_has_no_links() {
    let (fixture, _) = Fixture::set_up().await;
    let (bob, link) = fixture.people.invite(&AuditContext::command(), "bob", UserRole::Member, &[]).await.unwrap();
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Disable).await.unwrap();
    assert!(matches!(fixture.people.link_details(link.token.expose()).await, Err(IdentityError::InvalidLink)));
    let refused = fixture.people.make_reset_link(&AuditContext::command(), bob.id.as_str()).await;
    assert!(matches!(refused, Err(IdentityError::InvalidField { field: "user", .. })));
}

#[tokio::test]
async fn keys_that_belong_to_nobody_are_handed_to_the_first_admin() {
    let fixture = Fixture::new().await;
    let keys = ApiKeys::new(Arc::clone(&fixture.store) as Arc<dyn Store>, Pepper::new(fixture.store.pepper_key()));
    let nobody = fixture.people.default_owner().await.unwrap();
    assert!(nobody.id.is_nobody());
    let new = NewKey { name: "first key", user: &nobody, group: "default", expires_at: None, max_keys: None };
    let made = keys.create(&AuditContext::system(), new).await.unwrap();
    assert_eq!((made.user_name, keys.find(made.id.as_str(), None).await.unwrap().user_name), (None, None));

    // The owner of unowned keys is not a user: it is not listed, not found and cannot be changed.
    let page = async || fixture.people.user_page(&UserFilter { limit: 10, ..UserFilter::default() }).await.unwrap();
    assert_eq!(page().await.total, 0);
    for handle in ["usr_nobody", ""] {
        assert!(matches!(fixture.people.find_user(handle).await, Err(IdentityError::Unknown)));
        let disable = fixture.people.change_user(&AuditContext::command(), handle, UserChange::Disable).await;
        assert!(matches!(disable, Err(IdentityError::Unknown)), "{disable:?}");
    }

    // A member who joins does not receive the unowned keys.
    fixture.join("ben", UserRole::Member).await;
    assert!(keys.find(made.id.as_str(), None).await.unwrap().user.is_nobody());
    let link = fixture.people.setup_link().await.unwrap().unwrap();
    fixture.people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home()).await.unwrap();
    let key = keys.find(made.id.as_str(), None).await.unwrap();
    assert_eq!(key.user_name.as_deref(), Some("ada"));
    assert_eq!(page().await.total, 2);
    let rows = fixture.trail().await;
    let handed: Vec<_> = rows.iter().filter(|row| row.action == "key.hand_over").collect();
    assert_eq!(handed.len(), 1);
    assert_eq!((handed[0].target_name.as_deref(), handed[0].actor_name.as_str()), (Some("first key"), "ada"));

    // From now on there is a default owner, as long as there is only one admin.
    assert_eq!(fixture.people.default_owner().await.unwrap().name, "ada");
    fixture.join("noor", UserRole::Admin).await;
    let unclear = fixture.people.default_owner().await;
    assert!(matches!(unclear, Err(IdentityError::InvalidField { field: "user", .. })), "{unclear:?}");
}
