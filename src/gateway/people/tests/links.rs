//! Tests of one-time links.

use super::*;
use crate::gateway::config::DialectSet;
use crate::gateway::keys::{ApiKeys, NewKey};
use crate::gateway::store::{InstallationStore as _, LinkStore as _, OneTimeLinkPurpose};

#[tokio::test]
async fn the_first_admin_can_be_set_up_only_once() {
    let Fixture { people, store, .. } = &Fixture::new().await;
    assert!(!store.is_set_up().await.unwrap());
    let link = people.create_setup_link().await.unwrap().unwrap();
    assert_eq!(
        people.link_details(link.token.expose()).await.unwrap(),
        LinkDetails { purpose: OneTimeLinkPurpose::Setup, name: None }
    );
    assert_eq!(link.path(), format!("/setup/{}", link.token.expose()));

    let step = people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home_origin()).await.unwrap();
    let session = completed(step);
    assert!(session.session.actor.is_admin() && session.session.actor.restricted_to().is_none());
    assert!(store.is_set_up().await.unwrap());
    let again = people.create_first_admin(link.token.expose(), "eve", PASSWORD, &home_origin()).await;
    assert!(matches!(again, Err(IdentityError::InvalidLink)));
    assert!(people.create_setup_link().await.unwrap().is_none());
}

#[tokio::test]
async fn a_new_setup_link_invalidates_the_former_one() {
    let Fixture { people, store, .. } = &Fixture::new().await;
    let first = people.create_setup_link().await.unwrap().unwrap();
    let second = people_of(store).create_setup_link().await.unwrap().unwrap();
    assert!(matches!(people.link_details(first.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(people.link_details(second.token.expose()).await.is_ok());
}

/// Two processes of one installation, each with its own database connections.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setup_link_used_twice_at_once_creates_one_admin() {
    let fixture = Fixture::new().await;
    let second_store = Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap());
    let link = Arc::new(fixture.people.create_setup_link().await.unwrap().unwrap());
    let mut tasks = tokio::task::JoinSet::new();
    for (store, name) in [(&fixture.store, "ada"), (&second_store, "eve")] {
        let (people, link) = (people_of(store), Arc::clone(&link));
        tasks
            .spawn(async move { people.create_first_admin(link.token.expose(), name, PASSWORD, &home_origin()).await });
    }
    let results = tasks.join_all().await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    assert!(results.iter().any(|result| matches!(result, Err(IdentityError::InvalidLink))), "{results:?}");
    let users = fixture.people.user_page(&UserFilter { limit: 10, ..UserFilter::default() }).await.unwrap();
    assert_eq!((users.total, users.items[0].role), (1, UserRole::Admin));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invitation_used_twice_at_once_is_accepted_once() {
    let (fixture, _) = Fixture::set_up().await;
    let (_, link) =
        fixture.people.invite(&AuditContext::command(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    let other_process = people_of(&Arc::new(SqlStore::open_sqlite(fixture.dir.path(), None).await.unwrap()));
    let token = link.token.expose();
    let origin = home_origin();
    let (first, second) = tokio::join!(
        fixture.people.accept_link(token, PASSWORD, &origin),
        other_process.accept_link(token, "another password", &origin),
    );
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let accepted_password = if first.is_ok() { PASSWORD } else { "another password" };
    assert!(fixture.sign_in("bob", accepted_password, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_link_is_valid_until_it_expires() {
    let (fixture, _) = Fixture::set_up().await;
    let not_set_up = Fixture::new().await;
    let setup = not_set_up.people.create_setup_link().await.unwrap().unwrap();
    let (_, invitation) =
        fixture.people.invite(&AuditContext::command(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    let (_, reset) = fixture.people.create_reset_link(&AuditContext::command(), "ada").await.unwrap();
    for (fixture, link, minutes) in
        [(&not_set_up, setup, 30), (&fixture, reset, 24 * 60), (&fixture, invitation, 72 * 60)]
    {
        let token = link.token.expose();
        let (lifetime, last_millisecond) = (Duration::from_secs(minutes * 60), Duration::from_millis(1));
        fixture.people.clock.advance(lifetime - last_millisecond);
        assert!(fixture.people.link_details(token).await.is_ok(), "{minutes} minutes");
        fixture.people.clock.advance(last_millisecond);
        assert!(
            matches!(fixture.people.link_details(token).await, Err(IdentityError::InvalidLink)),
            "{minutes} minutes"
        );
        let result = match link.purpose {
            OneTimeLinkPurpose::Setup => {
                fixture.people.create_first_admin(token, "eve", PASSWORD, &home_origin()).await
            }
            _ => fixture.people.accept_link(token, PASSWORD, &home_origin()).await,
        };
        assert!(matches!(result, Err(IdentityError::InvalidLink)), "{minutes} minutes");
        fixture.people.clock.rewind(lifetime);
    }
}

#[tokio::test]
async fn a_link_works_only_for_its_purpose() {
    let fixture = Fixture::new().await;
    let setup = fixture.people.create_setup_link().await.unwrap().unwrap();
    let (_, invitation) =
        fixture.people.invite(&AuditContext::command(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    let hashes_before = fixture.hash_count();
    let [setup, invitation] = [&setup, &invitation].map(|link| link.token.expose());
    for result in [
        fixture.people.accept_link(setup, PASSWORD, &home_origin()).await,
        fixture.people.create_first_admin(invitation, "eve", PASSWORD, &home_origin()).await,
        fixture.people.accept_link("nothing", PASSWORD, &home_origin()).await,
        fixture.people.create_first_admin("", "eve", PASSWORD, &home_origin()).await,
    ] {
        assert!(matches!(result, Err(IdentityError::InvalidLink)), "{result:?}");
    }
    assert_eq!(fixture.hash_count(), hashes_before, "no hash is computed without a valid link");
    assert!(fixture.people.accept_link(invitation, PASSWORD, &home_origin()).await.is_ok());
    assert!(fixture.people.create_first_admin(setup, "ada", PASSWORD, &home_origin()).await.is_ok());
}

#[tokio::test]
async fn an_invalid_password_does_not_use_up_the_link() {
    let fixture = Fixture::new().await;
    let link = fixture.people.create_setup_link().await.unwrap().unwrap();
    let refused_field = async |name: &str, password: &str| match fixture
        .people
        .create_first_admin(link.token.expose(), name, password, &home_origin())
        .await
    {
        Err(IdentityError::InvalidField { field, .. }) => field,
        result => panic!("{result:?}"),
    };
    assert_eq!(refused_field("ada", "short").await, "password");
    assert_eq!(refused_field("ada", &"x".repeat(257)).await, "password");
    assert_eq!(refused_field("Ada Lovelace 1", "ada lovelace 1").await, "password");
    assert_eq!(refused_field(" ", PASSWORD).await, "name");
    assert_eq!(refused_field("usr_ada", PASSWORD).await, "name");
    assert!(
        fixture.people.create_first_admin(link.token.expose(), "ada", &"x".repeat(256), &home_origin()).await.is_ok()
    );
}

#[tokio::test]
async fn an_admin_invited_by_a_command_completes_the_set_up() {
    let fixture = Fixture::new().await;
    let setup = fixture.people.create_setup_link().await.unwrap().unwrap();
    fixture.join("ada", UserRole::Admin).await;
    assert!(fixture.store.is_set_up().await.unwrap());
    assert!(matches!(fixture.people.link_details(setup.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(fixture.people.create_setup_link().await.unwrap().is_none());
}

#[tokio::test]
async fn only_an_admin_completes_the_set_up() {
    let fixture = Fixture::new().await;
    fixture.join("bob", UserRole::Member).await;
    assert!(!fixture.store.is_set_up().await.unwrap());
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Role(UserRole::Admin)).await.unwrap();
    assert!(fixture.store.is_set_up().await.unwrap());
}

#[tokio::test]
async fn a_user_created_by_a_command_can_become_the_first_admin() {
    let fixture = Fixture::new().await;
    let created = fixture.people.find_or_create_user(&AuditContext::command(), "admin").await.unwrap();
    let link = fixture.people.create_setup_link().await.unwrap().unwrap();
    let step = fixture.people.create_first_admin(link.token.expose(), "admin", PASSWORD, &home_origin()).await.unwrap();
    let session = completed(step);
    let user = session.session.actor.user().unwrap();
    assert_eq!((&user.id, user.role, user.has_password), (&created.id, UserRole::Admin, true));
}

#[tokio::test]
async fn a_new_reset_link_invalidates_the_former_one_and_its_use_ends_all_sessions() {
    let (fixture, session) = Fixture::set_up().await;
    let (_, first) = fixture.people.create_reset_link(&AuditContext::command(), "ada").await.unwrap();
    let (_, second) = fixture.people.create_reset_link(&AuditContext::command(), "ada").await.unwrap();
    assert!(matches!(fixture.people.link_details(first.token.expose()).await, Err(IdentityError::InvalidLink)));
    assert!(fixture.is_open(&session).await, "an unused link changes nothing");
    let step = fixture.people.accept_link(second.token.expose(), "another password", &home_origin()).await.unwrap();
    let new_session = completed(step);
    assert!(!fixture.is_open(&session).await && fixture.is_open(&new_session).await);
    assert!(matches!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await, Err(IdentityError::WrongCredentials)));
    assert!(fixture.sign_in("ada", "another password", "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_disabled_user_has_no_links() {
    let (fixture, _) = Fixture::set_up().await;
    let (bob, link) =
        fixture.people.invite(&AuditContext::command(), new_user("bob", UserRole::Member, &[])).await.unwrap();
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Disable).await.unwrap();
    assert!(matches!(fixture.people.link_details(link.token.expose()).await, Err(IdentityError::InvalidLink)));
    let result = fixture.people.create_reset_link(&AuditContext::command(), bob.id.as_str()).await;
    assert!(matches!(result, Err(IdentityError::InvalidField { field: "user", .. })));
}

#[tokio::test]
async fn unowned_keys_are_assigned_to_the_first_admin() {
    let fixture = Fixture::new().await;
    let keys = ApiKeys::new(&(Arc::clone(&fixture.store) as _), Pepper::new(fixture.store.pepper_key()));
    let nobody = fixture.people.default_owner().await.unwrap();
    assert!(nobody.id.is_nobody());
    let new_key = NewKey {
        name: "first key",
        user: &nobody,
        group: "default",
        expires_at: None,
        limits: None,
        dialects: DialectSet::default(),
        max_keys: None,
    };
    let created = keys.create(&AuditContext::system(), new_key).await.unwrap();
    assert_eq!(
        (created.row.user_name, keys.find(created.row.id.as_str(), None).await.unwrap().user_name),
        (None, None)
    );

    // The user that stands for "no owner" is not a real user: it is not listed, cannot be found and cannot be changed.
    let page = async || fixture.people.user_page(&UserFilter { limit: 10, ..UserFilter::default() }).await.unwrap();
    assert_eq!(page().await.total, 0);
    for handle in ["usr_nobody", ""] {
        assert!(matches!(fixture.people.find_user(handle).await, Err(IdentityError::Unknown)));
        let result = fixture.people.change_user(&AuditContext::command(), handle, UserChange::Disable).await;
        assert!(matches!(result, Err(IdentityError::Unknown)), "{result:?}");
    }

    // A member who joins does not receive the unowned keys.
    fixture.join("ben", UserRole::Member).await;
    assert!(keys.find(created.row.id.as_str(), None).await.unwrap().user.is_nobody());
    let link = fixture.people.create_setup_link().await.unwrap().unwrap();
    fixture.people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home_origin()).await.unwrap();
    let key = keys.find(created.row.id.as_str(), None).await.unwrap();
    assert_eq!(key.user_name.as_deref(), Some("ada"));
    assert_eq!(page().await.total, 2);
    let rows = fixture.trail().await;
    let transfers: Vec<_> = rows.iter().filter(|row| row.action == "key.hand_over").collect();
    assert_eq!(transfers.len(), 1);
    assert_eq!((transfers[0].target_name.as_deref(), transfers[0].actor_name.as_str()), (Some("first key"), "ada"));

    // Now the only admin is the default owner; with a second admin there is no default owner.
    assert_eq!(fixture.people.default_owner().await.unwrap().name, "ada");
    fixture.join("noor", UserRole::Admin).await;
    let result = fixture.people.default_owner().await;
    assert!(matches!(result, Err(IdentityError::InvalidField { field: "user", .. })), "{result:?}");
}
