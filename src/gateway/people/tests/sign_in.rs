//! Sign-in, sessions, and the limits on attempts.

use super::*;
use crate::gateway::people::rate_limit::PasswordRateLimiter;

const HOUR: Duration = Duration::from_secs(3600);
const WRONG: &str = "another password";

async fn is_slow(fixture: &Fixture, name: &str, address: &str) -> bool {
    match fixture.sign_in(name, WRONG, address).await {
        Err(IdentityError::TooManyAttempts { retry_after }) => retry_after >= Duration::from_secs(1),
        Err(IdentityError::WrongCredentials) => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn whoever_knows_the_password_gets_a_session_of_their_own() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    // A new cookie each time, so that a planted one is never used for a sign-in.
    assert!(first.cookie != second.cookie && first.session.id != second.session.id);
    assert!(fixture.is_open(&first).await && fixture.is_open(&second).await);
    let session = fixture.people.find_session(second.cookie.expose()).await.unwrap().unwrap();
    assert_eq!((&session.id, &session.csrf), (&second.session.id, &second.session.csrf));
    assert_ne!(session.csrf, first.session.csrf);
    assert_eq!(session.csrf, fixture.people.form_token(second.cookie.expose()));
    let user = fixture.people.find_user("ada").await.unwrap();
    assert!(user.last_sign_in_at.is_some());
    let sessions = fixture.people.sessions(&user.id).await.unwrap();
    assert_eq!(sessions.iter().map(|row| row.address.as_str()).collect::<Vec<_>>(), ["192.0.2.2", "192.0.2.1"]);
    for nothing in ["", "x", second.session.id.as_str(), &session.csrf] {
        assert!(fixture.people.find_session(nothing).await.unwrap().is_none(), "{nothing}");
    }
}

#[tokio::test]
async fn whatever_is_wrong_is_told_alike() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.people.invite(&AuditContext::command(), "invited", UserRole::Member, &[]).await.unwrap();
    fixture.join("gone", UserRole::Member).await;
    fixture.people.change_user(&AuditContext::command(), "gone", UserChange::Disable).await.unwrap();
    let user = fixture.people.find_user("ada").await.unwrap();
    for (name, password) in [
        ("ada", WRONG),
        ("Ada", PASSWORD),
        (user.id.as_str(), PASSWORD),
        ("nobody", PASSWORD),
        ("", ""),
        ("invited", ""),
        ("gone", PASSWORD),
    ] {
        let refused = fixture.sign_in(name, password, "192.0.2.9").await.unwrap_err();
        assert!(matches!(refused, IdentityError::WrongCredentials), "{name}: {refused:?}");
    }
}

#[tokio::test]
async fn an_unknown_name_costs_as_much_as_a_known_one() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.people.invite(&AuditContext::command(), "invited", UserRole::Member, &[]).await.unwrap();
    for (name, password) in [("ada", WRONG), ("nobody", WRONG), ("invited", WRONG), ("ada", "")] {
        let computed = fixture.computed();
        assert!(fixture.sign_in(name, password, "192.0.2.9").await.is_err());
        assert_eq!(fixture.computed() - computed, 1, "{name}");
    }
}

#[tokio::test]
async fn a_session_ends_when_nobody_uses_it() {
    let (fixture, opened) = Fixture::set_up().await;
    for _ in 0..3 {
        fixture.people.clock.advance(11 * HOUR);
        assert!(fixture.is_open(&opened).await, "each use begins the time anew");
    }
    fixture.people.clock.advance(12 * HOUR);
    assert!(!fixture.is_open(&opened).await);
    let user = opened.session.actor.user().unwrap();
    assert!(fixture.people.sessions(&user.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_session_ends_after_a_week_however_busy_it_is() {
    let (fixture, opened) = Fixture::set_up().await;
    for _ in 0..16 {
        fixture.people.clock.advance(10 * HOUR);
        assert!(fixture.is_open(&opened).await);
    }
    fixture.people.clock.advance(8 * HOUR);
    assert!(!fixture.is_open(&opened).await);
}

#[tokio::test]
async fn signing_out_ends_this_session_and_signing_out_everywhere_ends_all() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    let third = fixture.sign_in("ada", PASSWORD, "192.0.2.3").await.unwrap();
    fixture.people.sign_out(&first.session).await.unwrap();
    assert!(!fixture.is_open(&first).await && fixture.is_open(&second).await);
    let ended = fixture.people.sign_out_everywhere(&second.session.actor, "ada").await.unwrap();
    assert_eq!(ended, 2);
    assert!(!fixture.is_open(&second).await && !fixture.is_open(&third).await);
}

#[tokio::test]
async fn members_sign_out_themselves_only() {
    let (fixture, ada) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    let refused = fixture.people.sign_out_everywhere(&bob.session.actor, "ada").await;
    assert!(matches!(refused, Err(IdentityError::Unknown)));
    assert!(fixture.is_open(&ada).await);
    assert_eq!(fixture.people.sign_out_everywhere(&ada.session.actor, "bob").await.unwrap(), 1);
    assert!(!fixture.is_open(&bob).await && fixture.is_open(&ada).await);
}

#[tokio::test]
async fn a_disabled_user_is_out_at_once_and_stays_out() {
    let (fixture, _) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Disable).await.unwrap();
    assert!(!fixture.is_open(&bob).await);
    assert!(matches!(fixture.sign_in("bob", PASSWORD, "192.0.2.1").await, Err(IdentityError::WrongCredentials)));
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Enable).await.unwrap();
    assert!(!fixture.is_open(&bob).await, "an ended session does not begin again");
    assert!(fixture.sign_in("bob", PASSWORD, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn another_password_ends_the_other_sessions_and_keeps_this_one() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    let session = second.session.clone().with_address("192.0.2.2".parse().unwrap());
    let refused = fixture.people.change_password(&session, WRONG, "a third password").await;
    assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    let refused = fixture.people.change_password(&session, PASSWORD, "short").await;
    assert!(matches!(refused, Err(IdentityError::InvalidField { field: "password", .. })));
    assert!(fixture.is_open(&first).await);

    fixture.people.change_password(&session, PASSWORD, WRONG).await.unwrap();
    assert!(!fixture.is_open(&first).await && fixture.is_open(&second).await);
    assert!(matches!(fixture.sign_in("ada", PASSWORD, "192.0.2.2").await, Err(IdentityError::WrongCredentials)));
    assert!(fixture.sign_in("ada", WRONG, "192.0.2.2").await.is_ok());
}

#[tokio::test]
async fn nobody_guesses_the_old_password_in_a_session_without_end() {
    let (fixture, opened) = Fixture::set_up().await;
    let session = opened.session.with_address("192.0.2.1".parse().unwrap());
    for _ in 0..5 {
        let refused = fixture.people.change_password(&session, WRONG, "a third password").await;
        assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    }
    let refused = fixture.people.change_password(&session, PASSWORD, "a third password").await;
    assert!(matches!(refused, Err(IdentityError::TooManyAttempts { .. })));
}

#[tokio::test]
async fn a_role_is_what_it_is_now_and_not_at_the_sign_in() {
    let (fixture, _) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Admin).await;
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Role(UserRole::Member)).await.unwrap();
    let actor = fixture.people.find_session(bob.cookie.expose()).await.unwrap().unwrap().actor;
    assert_eq!((actor.is_admin(), actor.owner()), (false, actor.user().map(|user| &user.id)));
}

#[tokio::test]
async fn five_wrong_passwords_are_enough_for_a_while() {
    let (fixture, _) = Fixture::set_up().await;
    for _ in 0..5 {
        assert!(!is_slow(&fixture, "ada", "192.0.2.66").await);
    }
    let computed = fixture.computed();
    assert!(is_slow(&fixture, "ada", "192.0.2.66").await);
    // The right password is refused too, because otherwise guessing could go on.
    let right = fixture.sign_in("ada", PASSWORD, "192.0.2.66").await;
    assert!(matches!(right, Err(IdentityError::TooManyAttempts { .. })));
    assert_eq!(fixture.computed(), computed, "nothing is computed for it");
    // One attempt is forgotten every half minute; other addresses and other users are not affected.
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok());
    assert!(!is_slow(&fixture, "bob", "192.0.2.66").await);
    fixture.people.clock.advance(Duration::from_secs(30));
    assert!(!is_slow(&fixture, "ada", "192.0.2.66").await);
    assert!(is_slow(&fixture, "ada", "192.0.2.66").await);
    fixture.people.clock.advance(Duration::from_secs(30));
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.66").await.is_ok());
    assert!(!is_slow(&fixture, "ada", "192.0.2.66").await, "the right password begins anew");
}

#[tokio::test]
async fn one_address_cannot_try_the_names_of_everybody() {
    let (fixture, _) = Fixture::set_up().await;
    for number in 0..30 {
        assert!(!is_slow(&fixture, &format!("user {number}"), "192.0.2.66").await, "{number}");
    }
    assert!(is_slow(&fixture, "somebody else", "192.0.2.66").await);
    assert!(!is_slow(&fixture, "somebody else", "192.0.2.67").await);
    fixture.people.clock.advance(Duration::from_secs(2));
    assert!(!is_slow(&fixture, "somebody else", "192.0.2.66").await);
}

#[tokio::test]
async fn many_addresses_cannot_guess_one_password_nor_keep_its_owner_out() {
    let (fixture, _) = Fixture::set_up().await;
    for number in 1..=20 {
        assert!(!is_slow(&fixture, "ada", &format!("198.51.100.{number}")).await, "{number}");
    }
    assert!(is_slow(&fixture, "ada", "198.51.100.21").await);
    // Ada has signed in from that address before, and can do so again and again.
    for _ in 0..8 {
        assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok());
    }
    assert!(is_slow(&fixture, "ada", "198.51.100.22").await);
    fixture.people.clock.advance(Duration::from_secs(10));
    assert!(!is_slow(&fixture, "ada", "198.51.100.22").await);
    // An unknown name gives the same result, so that the answers do not reveal which names exist.
    for number in 1..=20 {
        assert!(!is_slow(&fixture, "nobody", &format!("203.0.113.{number}")).await, "{number}");
    }
    assert!(is_slow(&fixture, "nobody", "203.0.113.21").await);
}

#[test]
fn a_network_of_ipv6_is_one_address_and_ipv4_in_ipv6_is_ipv4() {
    let limits = PasswordRateLimiter::default();
    let now = std::time::Instant::now();
    let tried = |address: &str| limits.count_attempt("ada", address.parse::<IpAddr>().unwrap(), now).is_ok();
    for number in 0..5 {
        assert!(tried(&format!("2001:db8:1:2::{number}")), "{number}");
    }
    assert!(!tried("2001:db8:1:2:ffff::1") && tried("2001:db8:1:3::1"));
    for _ in 0..5 {
        assert!(tried("192.0.2.1"));
    }
    assert!(!tried("::ffff:192.0.2.1"));
}

#[test]
fn a_try_that_is_refused_makes_the_wait_no_longer() {
    let limits = PasswordRateLimiter::default();
    let mut now = std::time::Instant::now();
    let address = "192.0.2.1".parse().unwrap();
    let mut waits = 0;
    for _ in 0..1000 {
        now += Duration::from_secs(1);
        waits += u32::from(limits.count_attempt("ada", address, now).is_err());
    }
    // Five at once, and one for each half minute of a thousand seconds.
    assert_eq!(1000 - waits, 5 + 33);
}

#[test]
fn what_is_forgotten_takes_no_room() {
    let limits = PasswordRateLimiter::default();
    let now = std::time::Instant::now();
    for number in 0..50_000_u32 {
        let address = IpAddr::from(number.to_be_bytes());
        assert!(limits.count_attempt("ada", address, now + Duration::from_secs(u64::from(number))).is_ok());
    }
    assert!(limits.len() < 10_010, "{}", limits.len());
}
