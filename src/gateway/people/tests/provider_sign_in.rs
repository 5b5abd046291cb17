//! Tests of users whom a provider of OpenID Connect identifies.

use super::*;
use crate::gateway::store::{IdentityStore as _, NewIdentity, SessionStore as _, SignInProof};

fn identity(subject: &str, name: Option<&str>) -> ProviderIdentity {
    ProviderIdentity {
        issuer: "https://login.example.com".to_owned(),
        subject: subject.to_owned(),
        name: name.map(str::to_owned),
        authenticated_at: None,
    }
}

async fn sign_in(fixture: &Fixture, identity: &ProviderIdentity, creates: bool) -> Result<SignInStep, IdentityError> {
    fixture.people.sign_in_with_provider(identity, creates, &home_origin()).await
}

async fn session_of(fixture: &Fixture, issued: &IssuedSession) -> UserSession {
    let session = fixture.people.find_session(issued.cookie.expose()).await.unwrap().unwrap();
    session.with_address("192.0.2.1".parse().unwrap())
}

#[tokio::test]
async fn a_person_becomes_a_member_once_and_keeps_the_user() {
    let (fixture, _) = Fixture::set_up().await;
    let kim = identity("person-1", Some("kim"));
    assert!(matches!(sign_in(&fixture, &kim, false).await, Err(IdentityError::Unknown)));
    let first = completed(sign_in(&fixture, &kim, true).await.unwrap());
    let user = fixture.people.find_user("kim").await.unwrap();
    assert_eq!((user.role, user.has_password, user.has_identity), (UserRole::Member, false, true));
    assert_eq!(user.groups, ["default"]);
    // Another name at the provider is still the same person, and the former name is not given away.
    let renamed = completed(sign_in(&fixture, &identity("person-1", Some("kimberly")), true).await.unwrap());
    assert_eq!(renamed.session.actor.user().unwrap().id, first.session.actor.user().unwrap().id);
    let impostor = sign_in(&fixture, &identity("person-2", Some("kim")), true).await;
    assert!(matches!(impostor, Err(IdentityError::NameTaken)), "{impostor:?}");
    let admin = sign_in(&fixture, &identity("person-3", Some("ada")), true).await;
    assert!(matches!(admin, Err(IdentityError::NameTaken)), "{admin:?}");
    for name in [None, Some(""), Some("usr_1"), Some("k\u{202e}im")] {
        let refused = sign_in(&fixture, &identity("person-4", name), true).await;
        assert!(matches!(refused, Err(IdentityError::InvalidField { field: "name", .. })), "{name:?}: {refused:?}");
    }
    let trail: Vec<_> = fixture.trail().await.into_iter().map(|row| row.action).collect();
    assert!(
        trail.ends_with(&["user.create", "identity.connect", "session.open", "session.open"].map(str::to_owned)),
        "{trail:?}"
    );
}

#[tokio::test]
async fn the_subject_of_another_issuer_is_another_person() {
    let (fixture, _) = Fixture::set_up().await;
    completed(sign_in(&fixture, &identity("person-1", Some("kim")), true).await.unwrap());
    let elsewhere =
        ProviderIdentity { issuer: "https://other.example.com".to_owned(), ..identity("person-1", Some("kim")) };
    assert!(matches!(sign_in(&fixture, &elsewhere, false).await, Err(IdentityError::Unknown)));
}

#[tokio::test]
async fn a_user_connects_and_disconnects() {
    let (fixture, issued) = Fixture::set_up().await;
    let (session, kim) = (session_of(&fixture, &issued).await, identity("person-1", Some("kim")));
    fixture.people.connect_provider(&session, &kim).await.unwrap();
    let user = session.actor.user().unwrap();
    assert_eq!(fixture.people.identity_of(&user.id).await.unwrap().unwrap().name, "kim");
    assert!(matches!(
        fixture.people.connect_provider(&session, &identity("person-2", None)).await,
        Err(IdentityError::InUse)
    ));
    let bob = fixture.join("bob", UserRole::Member).await;
    let session_of_bob = session_of(&fixture, &bob).await;
    assert!(matches!(fixture.people.connect_provider(&session_of_bob, &kim).await, Err(IdentityError::InUse)));
    assert!(fixture.people.is_identity_of(&session, &kim).await.unwrap());
    assert!(!fixture.people.is_identity_of(&session_of_bob, &kim).await.unwrap());
    let with_provider = completed(sign_in(&fixture, &kim, false).await.unwrap());
    assert_eq!(with_provider.session.actor.user().unwrap().name, "ada");
    fixture.people.disconnect_own_provider(&session).await.unwrap();
    assert!(fixture.is_open(&issued).await && !fixture.is_open(&with_provider).await);
    assert!(matches!(sign_in(&fixture, &kim, false).await, Err(IdentityError::Unknown)));
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_user_of_the_provider_gets_no_name_that_differs_from_another_by_case_only() {
    let (fixture, _) = Fixture::set_up().await;
    for name in ["Ada", "ADA", "ａda"] {
        let refused = sign_in(&fixture, &identity("person-9", Some(name)), true).await;
        assert!(matches!(refused, Err(IdentityError::NameTaken)), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn an_admin_removes_a_connection_and_all_sessions() {
    let (fixture, _) = Fixture::set_up().await;
    let kim = identity("person-1", Some("kim"));
    let issued = completed(sign_in(&fixture, &kim, true).await.unwrap());
    let session = session_of(&fixture, &issued).await;
    let own = fixture.people.disconnect_own_provider(&session).await;
    assert!(matches!(own, Err(IdentityError::InUse)), "a user without a password could not sign in again");
    let user = fixture.people.disconnect_provider(&AuditContext::command(), "kim").await.unwrap();
    assert!(!user.has_identity && !fixture.is_open(&issued).await);
    let again = fixture.people.disconnect_provider(&AuditContext::command(), "kim").await;
    assert!(matches!(again, Err(IdentityError::InvalidField { field: "user", .. })), "{again:?}");
}

#[tokio::test]
async fn a_disabled_user_is_refused() {
    let (fixture, _) = Fixture::set_up().await;
    let kim = identity("person-1", Some("kim"));
    completed(sign_in(&fixture, &kim, true).await.unwrap());
    fixture.people.change_user(&AuditContext::command(), "kim", UserChange::Disable).await.unwrap();
    assert!(matches!(sign_in(&fixture, &kim, true).await, Err(IdentityError::WrongCredentials)));
    assert_eq!(fixture.trail().await.last().unwrap().action, "session.refuse");
}

/// The connection can be removed while the provider is asked.
#[tokio::test]
async fn a_session_is_opened_only_for_a_connection_that_still_exists() {
    let (fixture, _) = Fixture::set_up().await;
    let kim = identity("person-1", Some("kim"));
    let issued = completed(sign_in(&fixture, &kim, true).await.unwrap());
    let user = issued.session.actor.user().unwrap().id.clone();
    let (session, _) = fixture.people.new_session(&home_origin(), fixture.people.clock.now()).unwrap();
    let identity = Some((kim.issuer.clone(), "person-2".to_owned()));
    let proof = SignInProof { identity, ..SignInProof::default() };
    assert!(!fixture.store.open_session(&AuditContext::command(), &user, &proof, &session).await.unwrap());
}

#[tokio::test]
async fn the_proof_of_the_provider_is_for_one_session_and_a_short_time() {
    let (fixture, issued) = Fixture::set_up().await;
    let session = session_of(&fixture, &issued).await;
    let other = session_of(&fixture, &fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.unwrap()).await;
    let sealed = fixture.people.seal_provider_proof(&session).unwrap();
    assert!(fixture.people.is_provider_proof(&session, &sealed));
    assert!(!fixture.people.is_provider_proof(&other, &sealed));
    for wrong in ["", "?", &sealed[1..]] {
        assert!(!fixture.people.is_provider_proof(&session, wrong), "{wrong}");
    }
    fixture.people.clock.advance(Duration::from_secs(11 * 60));
    assert!(!fixture.people.is_provider_proof(&session, &sealed));
    let session = session_of(&fixture, &issued).await;
    assert!(!fixture.people.has_fresh_proof(&session));
    fixture.people.prove_with_provider(&session, None).await.unwrap();
    assert!(fixture.people.has_fresh_proof(&session_of(&fixture, &issued).await));
}

/// Otherwise somebody could wait under the name that the first admin will have, and become the admin with it.
#[tokio::test]
async fn nobody_is_created_before_the_first_admin() {
    let fixture = Fixture::new().await;
    let admin = identity("person-1", Some("admin"));
    assert!(matches!(sign_in(&fixture, &admin, true).await, Err(IdentityError::Unknown)));
    let link = fixture.people.create_setup_link().await.unwrap().unwrap();
    let issuer = NewIdentity { issuer: admin.issuer.clone(), subject: admin.subject.clone(), name: "admin".to_owned() };
    fixture.store.create_user_with_identity(&AuditContext::command(), "admin", &issuer).await.unwrap();
    let taken = fixture.people.create_first_admin(link.token.expose(), "admin", PASSWORD, &home_origin()).await;
    assert!(matches!(taken, Err(IdentityError::NameTaken)), "{taken:?}");
    completed(fixture.people.create_first_admin(link.token.expose(), "ada", PASSWORD, &home_origin()).await.unwrap());
}

#[tokio::test]
async fn an_identity_is_not_connected_after_its_session_has_ended() {
    let (fixture, issued) = Fixture::set_up().await;
    let (session, kim) = (session_of(&fixture, &issued).await, identity("person-1", Some("kim")));
    fixture.people.sign_out_everywhere(&session.actor, "ada").await.unwrap();
    assert!(matches!(fixture.people.connect_provider(&session, &kim).await, Err(IdentityError::InUse)));
    assert!(matches!(sign_in(&fixture, &kim, false).await, Err(IdentityError::Unknown)));
}

#[tokio::test]
async fn an_identity_of_another_issuer_is_replaced() {
    let (fixture, issued) = Fixture::set_up().await;
    let (session, former) = (session_of(&fixture, &issued).await, identity("person-1", Some("kim")));
    let now = ProviderIdentity { issuer: "https://other.example.com".to_owned(), ..former.clone() };
    fixture.people.connect_provider(&session, &former).await.unwrap();
    fixture.people.connect_provider(&session, &now).await.unwrap();
    assert!(matches!(sign_in(&fixture, &former, false).await, Err(IdentityError::Unknown)));
    completed(sign_in(&fixture, &now, false).await.unwrap());
}

#[tokio::test]
async fn a_sign_in_without_a_question_is_no_fresh_proof() {
    let (fixture, _) = Fixture::set_up().await;
    let now = fixture.people.unix_seconds();
    for (authenticated_at, is_fresh) in
        [(None, false), (Some(now), true), (Some(now - 3600), false), (Some(now + 30), true)]
    {
        let kim = ProviderIdentity { authenticated_at, ..identity("person-1", Some("kim")) };
        let issued = completed(sign_in(&fixture, &kim, true).await.unwrap());
        let session = session_of(&fixture, &issued).await;
        assert_eq!(fixture.people.has_fresh_proof(&session), is_fresh, "{authenticated_at:?}");
    }
}
