//! Tests of sign-in, sessions, and the limits on attempts.

use super::*;
use crate::gateway::people::rate_limit::PasswordRateLimiter;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const WRONG: &str = "another password";

/// True if a sign-in with a wrong password is refused by the rate limits.
async fn is_rate_limited(fixture: &Fixture, name: &str, address: &str) -> bool {
    match fixture.sign_in(name, WRONG, address).await {
        Err(IdentityError::TooManyAttempts { retry_after }) => retry_after >= Duration::from_secs(1),
        Err(IdentityError::WrongCredentials) => false,
        result => panic!("{result:?}"),
    }
}

#[tokio::test]
async fn each_sign_in_opens_a_session_with_a_new_cookie() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    // Each sign-in has a new cookie, so that a cookie that an attacker has set is never used for a session.
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
    for text in ["", "x", second.session.id.as_str(), &session.csrf] {
        assert!(fixture.people.find_session(text).await.unwrap().is_none(), "{text}");
    }
}

#[tokio::test]
async fn all_wrong_credentials_give_the_same_error() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.people.invite(&AuditContext::command(), new_user("invited", UserRole::Member, &[])).await.unwrap();
    fixture.join("gone", UserRole::Member).await;
    fixture.people.change_user(&AuditContext::command(), "gone", UserChange::Disable).await.unwrap();
    let user = fixture.people.find_user("ada").await.unwrap();
    for (name, password) in [
        ("ada", WRONG),
        ("Adam", PASSWORD),
        (user.id.as_str(), PASSWORD),
        ("nobody", PASSWORD),
        ("", ""),
        ("invited", ""),
        ("gone", PASSWORD),
    ] {
        let error = fixture.sign_in(name, password, "192.0.2.9").await.unwrap_err();
        assert!(matches!(error, IdentityError::WrongCredentials), "{name}: {error:?}");
    }
}

#[tokio::test]
async fn an_unknown_name_costs_one_hash_like_a_known_one() {
    let (fixture, _) = Fixture::set_up().await;
    fixture.people.invite(&AuditContext::command(), new_user("invited", UserRole::Member, &[])).await.unwrap();
    for (name, password) in [("ada", WRONG), ("nobody", WRONG), ("invited", WRONG), ("ada", "")] {
        let hashes_before = fixture.hash_count();
        assert!(fixture.sign_in(name, password, "192.0.2.9").await.is_err());
        assert_eq!(fixture.hash_count() - hashes_before, 1, "{name}");
    }
}

#[tokio::test]
async fn an_unused_session_ends() {
    let (fixture, issued) = Fixture::set_up().await;
    for _ in 0..3 {
        fixture.people.clock.advance(11 * HOUR);
        assert!(fixture.is_open(&issued).await, "each use restarts the idle timeout");
    }
    fixture.people.clock.advance(12 * HOUR);
    assert!(!fixture.is_open(&issued).await);
    let user = issued.session.actor.user().unwrap();
    assert!(fixture.people.sessions(&user.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_session_ends_after_a_week_even_if_used() {
    let (fixture, issued) = Fixture::set_up().await;
    for _ in 0..16 {
        fixture.people.clock.advance(10 * HOUR);
        assert!(fixture.is_open(&issued).await);
    }
    fixture.people.clock.advance(8 * HOUR);
    assert!(!fixture.is_open(&issued).await);
}

#[tokio::test]
async fn sign_out_ends_one_session_and_sign_out_everywhere_all() {
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
async fn one_session_or_all_others_can_be_ended() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    let third = fixture.sign_in("ada", PASSWORD, "192.0.2.3").await.unwrap();
    let bob = fixture.join("bob", UserRole::Member).await;
    fixture.people.end_own_session(&first.session, second.session.id.as_str()).await.unwrap();
    assert!(fixture.is_open(&first).await && !fixture.is_open(&second).await && fixture.is_open(&third).await);
    for id in [bob.session.id.as_str(), second.session.id.as_str(), "ses_unknown"] {
        let result = fixture.people.end_own_session(&first.session, id).await;
        assert!(matches!(result, Err(IdentityError::Unknown)), "{id}");
    }
    assert_eq!(fixture.people.end_other_sessions(&first.session).await.unwrap(), 1);
    assert!(fixture.is_open(&first).await && !fixture.is_open(&third).await && fixture.is_open(&bob).await);
    let actions: Vec<_> = fixture.trail().await.into_iter().map(|row| row.action).collect();
    assert_eq!(actions.iter().filter(|action| *action == "session.close").count(), 1);
    assert_eq!(actions.iter().filter(|action| *action == "session.close_others").count(), 1);
}

#[tokio::test]
async fn a_proof_of_identity_is_fresh_for_ten_minutes() {
    let (fixture, issued) = Fixture::set_up().await;
    let session = async || {
        let found = fixture.people.find_session(issued.cookie.expose()).await.unwrap().unwrap();
        found.with_address("192.0.2.1".parse().unwrap())
    };
    let is_fresh = async || fixture.people.has_fresh_proof(&session().await);
    fixture.people.clock.advance(10 * MINUTE - SECOND);
    assert!(is_fresh().await, "the sign-in is a proof");
    fixture.people.clock.advance(SECOND);
    assert!(!is_fresh().await);
    let refused = fixture.people.prove_identity(&session().await, WRONG, "").await;
    assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    assert!(!is_fresh().await);
    fixture.people.prove_identity(&session().await, PASSWORD, "").await.unwrap();
    assert!(is_fresh().await);
    let other = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    fixture.people.clock.advance(10 * MINUTE);
    fixture.people.prove_identity(&session().await, PASSWORD, "").await.unwrap();
    let other = fixture.people.find_session(other.cookie.expose()).await.unwrap().unwrap();
    assert!(!fixture.people.has_fresh_proof(&other), "a proof is that of one session");
}

#[tokio::test]
async fn wrong_proofs_are_limited_like_sign_ins() {
    let (fixture, issued) = Fixture::set_up().await;
    let session = issued.session.clone().with_address("192.0.2.1".parse().unwrap());
    for _ in 0..5 {
        let refused = fixture.people.prove_identity(&session, WRONG, "").await;
        assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    }
    let refused = fixture.people.prove_identity(&session, PASSWORD, "").await;
    assert!(matches!(refused, Err(IdentityError::TooManyAttempts { .. })));
    let refused = fixture.sign_in("ada", PASSWORD, "192.0.2.1").await;
    assert!(matches!(refused, Err(IdentityError::TooManyAttempts { .. })), "sign-ins share the limit");
    let refusals = fixture.trail().await.into_iter().filter(|row| row.action == "session.refuse").count();
    assert_eq!(refusals, 5);
}

#[tokio::test]
async fn a_member_can_end_only_their_own_sessions() {
    let (fixture, ada) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    let result = fixture.people.sign_out_everywhere(&bob.session.actor, "ada").await;
    assert!(matches!(result, Err(IdentityError::Unknown)));
    assert!(fixture.is_open(&ada).await);
    assert_eq!(fixture.people.sign_out_everywhere(&ada.session.actor, "bob").await.unwrap(), 1);
    assert!(!fixture.is_open(&bob).await && fixture.is_open(&ada).await);
}

#[tokio::test]
async fn disabling_a_user_ends_their_sessions() {
    let (fixture, _) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Member).await;
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Disable).await.unwrap();
    assert!(!fixture.is_open(&bob).await);
    assert!(matches!(fixture.sign_in("bob", PASSWORD, "192.0.2.1").await, Err(IdentityError::WrongCredentials)));
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Enable).await.unwrap();
    assert!(!fixture.is_open(&bob).await, "an ended session stays ended");
    assert!(fixture.sign_in("bob", PASSWORD, "192.0.2.1").await.is_ok());
}

#[tokio::test]
async fn a_password_change_ends_the_other_sessions() {
    let (fixture, first) = Fixture::set_up().await;
    let second = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    let session = second.session.clone().with_address("192.0.2.2".parse().unwrap());
    let result = fixture.people.change_password(&session, WRONG, "a third password").await;
    assert!(matches!(result, Err(IdentityError::WrongCredentials)));
    let result = fixture.people.change_password(&session, PASSWORD, "short").await;
    assert!(matches!(result, Err(IdentityError::InvalidField { field: "password", .. })));
    assert!(fixture.is_open(&first).await);

    fixture.people.change_password(&session, PASSWORD, WRONG).await.unwrap();
    assert!(!fixture.is_open(&first).await && fixture.is_open(&second).await);
    assert!(matches!(fixture.sign_in("ada", PASSWORD, "192.0.2.2").await, Err(IdentityError::WrongCredentials)));
    assert!(fixture.sign_in("ada", WRONG, "192.0.2.2").await.is_ok());
}

#[tokio::test]
async fn attempts_to_guess_the_old_password_are_limited() {
    let (fixture, issued) = Fixture::set_up().await;
    let session = issued.session.with_address("192.0.2.1".parse().unwrap());
    for _ in 0..5 {
        let result = fixture.people.change_password(&session, WRONG, "a third password").await;
        assert!(matches!(result, Err(IdentityError::WrongCredentials)));
    }
    let result = fixture.people.change_password(&session, PASSWORD, "a third password").await;
    assert!(matches!(result, Err(IdentityError::TooManyAttempts { .. })));
}

#[tokio::test]
async fn a_role_change_applies_to_existing_sessions() {
    let (fixture, _) = Fixture::set_up().await;
    let bob = fixture.join("bob", UserRole::Admin).await;
    fixture.people.change_user(&AuditContext::command(), "bob", UserChange::Role(UserRole::Member)).await.unwrap();
    let actor = fixture.people.find_session(bob.cookie.expose()).await.unwrap().unwrap().actor;
    assert_eq!((actor.is_admin(), actor.restricted_to()), (false, actor.user().map(|user| &user.id)));
}

#[tokio::test]
async fn five_wrong_passwords_block_a_name_and_address() {
    let (fixture, _) = Fixture::set_up().await;
    for _ in 0..5 {
        assert!(!is_rate_limited(&fixture, "ada", "192.0.2.66").await);
    }
    let hashes_before = fixture.hash_count();
    assert!(is_rate_limited(&fixture, "ada", "192.0.2.66").await);
    // The right password is refused too; otherwise guessing could continue.
    let result = fixture.sign_in("ada", PASSWORD, "192.0.2.66").await;
    assert!(matches!(result, Err(IdentityError::TooManyAttempts { .. })));
    assert_eq!(fixture.hash_count(), hashes_before, "no hash is computed");
    // Other addresses and other users are not affected. Every 30 seconds, one more attempt is allowed.
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok());
    assert!(!is_rate_limited(&fixture, "bob", "192.0.2.66").await);
    fixture.people.clock.advance(Duration::from_secs(30));
    assert!(!is_rate_limited(&fixture, "ada", "192.0.2.66").await);
    assert!(is_rate_limited(&fixture, "ada", "192.0.2.66").await);
    fixture.people.clock.advance(Duration::from_secs(30));
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.66").await.is_ok());
    assert!(!is_rate_limited(&fixture, "ada", "192.0.2.66").await, "the right password resets the limit");
}

#[tokio::test]
async fn attempts_of_one_address_with_many_names_are_limited() {
    let (fixture, _) = Fixture::set_up().await;
    for number in 0..30 {
        assert!(!is_rate_limited(&fixture, &format!("user {number}"), "192.0.2.66").await, "{number}");
    }
    assert!(is_rate_limited(&fixture, "somebody else", "192.0.2.66").await);
    assert!(!is_rate_limited(&fixture, "somebody else", "192.0.2.67").await);
    fixture.people.clock.advance(Duration::from_secs(2));
    assert!(!is_rate_limited(&fixture, "somebody else", "192.0.2.66").await);
}

#[tokio::test]
async fn attempts_on_a_name_are_limited_without_locking_out_its_user() {
    let (fixture, _) = Fixture::set_up().await;
    for number in 1..=20 {
        assert!(!is_rate_limited(&fixture, "ada", &format!("198.51.100.{number}")).await, "{number}");
    }
    assert!(is_rate_limited(&fixture, "ada", "198.51.100.21").await);
    // Ada has signed in from this address before, so the limit for her name does not apply to the address.
    for _ in 0..8 {
        assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok());
    }
    assert!(is_rate_limited(&fixture, "ada", "198.51.100.22").await);
    fixture.people.clock.advance(Duration::from_secs(10));
    assert!(!is_rate_limited(&fixture, "ada", "198.51.100.22").await);
    // An unknown name has the same limits, so that the answers do not reveal which names exist.
    for number in 1..=20 {
        assert!(!is_rate_limited(&fixture, "nobody", &format!("203.0.113.{number}")).await, "{number}");
    }
    assert!(is_rate_limited(&fixture, "nobody", "203.0.113.21").await);
}

#[tokio::test]
async fn a_user_who_has_signed_in_from_an_ipv6_network_is_not_locked_out_at_its_other_addresses() {
    let (fixture, _) = Fixture::set_up().await;
    assert!(fixture.sign_in("ada", PASSWORD, "2001:db8:1:2::1").await.is_ok());
    let user = fixture.people.find_user("ada").await.unwrap();
    let addresses: Vec<_> =
        fixture.people.sessions(&user.id).await.unwrap().into_iter().map(|row| row.address).collect();
    assert!(addresses.contains(&"2001:db8:1:2::1".to_owned()), "a session has the whole address: {addresses:?}");
    for number in 1..=20 {
        assert!(!is_rate_limited(&fixture, "ada", &format!("198.51.100.{number}")).await, "{number}");
    }
    assert!(is_rate_limited(&fixture, "ada", "198.51.100.21").await);
    for (address, is_known) in [("2001:db8:1:2:ffff::7", true), ("2001:db8:1:3::1", false), ("::ffff:192.0.2.1", true)]
    {
        let result = fixture.sign_in("ada", PASSWORD, address).await;
        assert_eq!(result.is_ok(), is_known, "{address}: {result:?}");
    }
}

#[tokio::test]
async fn sessions_and_tokens_are_valid_while_the_time_of_their_use_cannot_be_stored() {
    let (fixture, issued) = Fixture::set_up().await;
    let user = fixture.people.find_user("ada").await.unwrap();
    let (_, token) =
        fixture.people.create_token(&AuditContext::command(), &user, new_token("deploy", None)).await.unwrap();
    let used_at = async || fixture.people.tokens(None).await.unwrap()[0].last_used_at;
    execute(
        &fixture.dir,
        "CREATE TRIGGER full_sessions BEFORE UPDATE ON sessions BEGIN SELECT raise(ABORT, 'full'); END; \
         CREATE TRIGGER full_tokens BEFORE UPDATE ON admin_tokens BEGIN SELECT raise(ABORT, 'full'); END;",
    )
    .await;
    fixture.people.clock.advance(2 * MINUTE);
    for _ in 0..2 {
        assert!(fixture.is_open(&issued).await);
        assert!(fixture.people.authenticate_token(token.expose().as_bytes()).await.unwrap().is_some());
        assert_eq!(used_at().await, None);
    }
    // A use that could not be stored does not count as stored.
    execute(&fixture.dir, "DROP TRIGGER full_sessions; DROP TRIGGER full_tokens;").await;
    assert!(fixture.is_open(&issued).await);
    assert!(fixture.people.authenticate_token(token.expose().as_bytes()).await.unwrap().is_some());
    assert!(used_at().await.is_some());
    let session = fixture.people.sessions(&user.id).await.unwrap().remove(0);
    assert!(session.last_seen_at > session.created_at);
}

#[test]
fn an_ipv6_network_and_a_mapped_ipv4_address_count_as_one_address() {
    let limits = PasswordRateLimiter::default();
    let now = std::time::Instant::now();
    let is_allowed = |address: &str| limits.count_attempt("ada", address.parse::<IpAddr>().unwrap(), now).is_ok();
    for number in 0..5 {
        assert!(is_allowed(&format!("2001:db8:1:2::{number}")), "{number}");
    }
    assert!(!is_allowed("2001:db8:1:2:ffff::1") && is_allowed("2001:db8:1:3::1"));
    for _ in 0..5 {
        assert!(is_allowed("192.0.2.1"));
    }
    assert!(!is_allowed("::ffff:192.0.2.1"));
}

#[test]
fn a_refused_attempt_does_not_extend_the_wait() {
    let limits = PasswordRateLimiter::default();
    let mut now = std::time::Instant::now();
    let address = "192.0.2.1".parse().unwrap();
    let mut refused = 0;
    for _ in 0..1000 {
        now += Duration::from_secs(1);
        refused += u32::from(limits.count_attempt("ada", address, now).is_err());
    }
    // Five attempts at once, and then one every 30 seconds for 1,000 seconds.
    assert_eq!(1000 - refused, 5 + 33);
}

#[test]
fn empty_buckets_are_removed() {
    let limits = PasswordRateLimiter::default();
    let now = std::time::Instant::now();
    for number in 0..50_000_u32 {
        let address = IpAddr::from(number.to_be_bytes());
        assert!(limits.count_attempt("ada", address, now + Duration::from_secs(u64::from(number))).is_ok());
    }
    assert!(limits.len() < 10_010, "{}", limits.len());
}
