//! Tests of the second factor: its set-up, codes that work once, recovery codes, limits, and its reset.

use super::*;
use crate::gateway::people::totp::TotpSecret;
use crate::gateway::store::SessionStore as _;

const SECOND: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_secs(30);

/// The session of the fixture's admin, as a request of a browser finds it.
async fn session_of(fixture: &Fixture, issued: &IssuedSession) -> UserSession {
    let session = fixture.people.find_session(issued.cookie.expose()).await.unwrap().unwrap();
    session.with_address("192.0.2.1".parse().unwrap())
}

/// The code that an app shows for an address of a QR code, at the time of the fixture.
fn code_of(fixture: &Fixture, uri: &str) -> String {
    let text = uri.split_once("secret=").unwrap().1.split('&').next().unwrap();
    let digit =
        |character: u8| "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567".bytes().position(|known| known == character).unwrap();
    let bits: String = text.bytes().map(|character| format!("{:05b}", digit(character))).collect();
    let bytes: Vec<u8> = bits
        .as_bytes()
        .chunks_exact(8)
        .map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap())
        .collect();
    TotpSecret::new(bytes.try_into().unwrap()).code(fixture.people.unix_seconds() / 30)
}

/// Sets up a second factor; returns the address of its QR code, and the recovery codes.
async fn enrol(fixture: &Fixture, issued: &IssuedSession) -> (String, Vec<SecretText>) {
    let session = session_of(fixture, issued).await;
    let enrolment = fixture.people.begin_enrolment(&session).unwrap();
    let uri = enrolment.uri("imagate");
    let enrolment = fixture.people.reopen_enrolment(&session, enrolment.sealed()).unwrap();
    let codes = fixture.people.confirm_enrolment(&session, &enrolment, &code_of(fixture, &uri)).await.unwrap();
    (uri, codes)
}

/// The cookie of a sign-in that waits for a code.
async fn pending(fixture: &Fixture, address: &str) -> SecretText {
    match fixture.people.sign_in("ada", PASSWORD, &origin_at(address)).await.unwrap() {
        SignInStep::NeedsCode(pending) => pending,
        SignInStep::Complete(_) => panic!("the sign-in must wait for a code"),
    }
}

async fn complete(fixture: &Fixture, pending: &SecretText, code: &str) -> Result<IssuedSession, IdentityError> {
    fixture.people.complete_sign_in(pending.expose(), code, &home_origin()).await
}

#[tokio::test]
async fn a_sign_in_needs_a_code_that_works_once() {
    let (fixture, issued) = Fixture::set_up().await;
    let elsewhere = fixture.sign_in("ada", PASSWORD, "192.0.2.2").await.unwrap();
    let (uri, codes) = enrol(&fixture, &issued).await;
    assert_eq!(codes.len(), 10);
    assert!(fixture.is_open(&issued).await && !fixture.is_open(&elsewhere).await, "the other sessions end");
    let waiting = pending(&fixture, "192.0.2.1").await;
    let first = code_of(&fixture, &uri);
    let refused = complete(&fixture, &waiting, &first).await;
    assert!(matches!(refused, Err(IdentityError::WrongCredentials)), "the set-up has used this code");
    fixture.people.clock.advance(STEP);
    let code = code_of(&fixture, &uri);
    let session = complete(&fixture, &waiting, &code).await.unwrap();
    assert!(fixture.is_open(&session).await);
    let other_node = people_of(&fixture.store);
    other_node.clock.advance(STEP);
    let again = other_node.complete_sign_in(waiting.expose(), &code, &home_origin()).await;
    assert!(matches!(again, Err(IdentityError::WrongCredentials)), "another node accepts the code again");
    let opened = fixture.trail().await.into_iter().rfind(|row| row.action == "session.open").unwrap();
    assert_eq!(opened.details["factor"], "code");
    let wrong_password = fixture.people.sign_in("ada", "another password", &home_origin()).await;
    assert!(matches!(wrong_password, Err(IdentityError::WrongCredentials)));
}

#[tokio::test]
async fn a_waiting_sign_in_belongs_to_one_browser_and_ends() {
    let (fixture, issued) = Fixture::set_up().await;
    let (uri, _) = enrol(&fixture, &issued).await;
    fixture.people.clock.advance(STEP);
    let waiting = pending(&fixture, "192.0.2.1").await;
    let foreign = SignInOrigin { browser: "another".to_owned(), ..home_origin() };
    let stolen = fixture.people.complete_sign_in(waiting.expose(), &code_of(&fixture, &uri), &foreign).await;
    assert!(matches!(stolen, Err(IdentityError::InvalidLink)));
    for forged in ["", ".", "..", "9999999999.usr_x.00", &waiting.expose().replacen('1', "2", 1)] {
        let result = fixture.people.complete_sign_in(forged, &code_of(&fixture, &uri), &home_origin()).await;
        assert!(matches!(result, Err(IdentityError::InvalidLink)), "{forged}");
    }
    fixture.people.clock.advance(PENDING_LIFETIME - SECOND);
    assert!(fixture.people.is_pending(waiting.expose(), &home_origin()).await.unwrap());
    fixture.people.clock.advance(SECOND);
    let late = complete(&fixture, &waiting, &code_of(&fixture, &uri)).await;
    assert!(matches!(late, Err(IdentityError::InvalidLink)));

    let waiting = pending(&fixture, "192.0.2.1").await;
    let session = session_of(&fixture, &issued).await;
    fixture.people.change_password(&session, PASSWORD, "a third password").await.unwrap();
    let stale = complete(&fixture, &waiting, &code_of(&fixture, &uri)).await;
    assert!(matches!(stale, Err(IdentityError::InvalidLink)), "the password has changed");
}

#[tokio::test]
async fn each_recovery_code_works_once() {
    let (fixture, issued) = Fixture::set_up().await;
    let (_, codes) = enrol(&fixture, &issued).await;
    let user = fixture.people.find_user("ada").await.unwrap();
    let entered = codes[0].expose().to_uppercase().replace('-', " ");
    let waiting = pending(&fixture, "192.0.2.1").await;
    complete(&fixture, &waiting, &entered).await.unwrap();
    assert_eq!(fixture.people.recovery_codes_left(&user.id).await.unwrap(), Some(9));
    let again = complete(&fixture, &waiting, &entered).await;
    assert!(matches!(again, Err(IdentityError::WrongCredentials)));
    let opened = fixture.trail().await.into_iter().rfind(|row| row.action == "session.open").unwrap();
    assert_eq!(opened.details["factor"], "recovery code");

    let new_codes = fixture.people.renew_recovery_codes(&session_of(&fixture, &issued).await).await.unwrap();
    let old = complete(&fixture, &waiting, codes[1].expose()).await;
    assert!(matches!(old, Err(IdentityError::WrongCredentials)), "former codes no longer work");
    complete(&fixture, &waiting, new_codes[1].expose()).await.unwrap();
}

#[tokio::test]
async fn guesses_of_a_code_are_limited_even_with_the_right_password() {
    let (fixture, issued) = Fixture::set_up().await;
    let (uri, _) = enrol(&fixture, &issued).await;
    fixture.people.clock.advance(STEP);
    let guess = async |address: &str| {
        // A right password between the guesses resets nothing.
        let waiting = pending(&fixture, "192.0.2.1").await;
        let refused = fixture.people.complete_sign_in(waiting.expose(), "aaaaaa", &origin_at(address)).await;
        match refused {
            Err(IdentityError::WrongCredentials) => true,
            Err(IdentityError::TooManyAttempts { .. }) => false,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..10 {
        assert!(guess(&format!("2001:db8::{number}")).await, "{number}");
    }
    assert!(!guess("2001:db8::1:0").await, "the network has used up its guesses");
    for network in 1..=40 {
        assert!(guess(&format!("198.51.100.{network}")).await, "{network}");
    }
    assert!(!guess("198.51.100.41").await, "all networks together have used up their guesses");
    fixture.people.clock.advance(Duration::from_secs(300));
    assert!(guess("198.51.100.41").await && !guess("198.51.100.42").await);
    // The owner signs in all the same, from a network that is known, with either kind of code.
    let waiting = pending(&fixture, "192.0.2.1").await;
    complete(&fixture, &waiting, &code_of(&fixture, &uri)).await.unwrap();
}

#[tokio::test]
async fn wrong_codes_of_an_app_do_not_use_up_the_recovery_codes() {
    let (fixture, issued) = Fixture::set_up().await;
    let (_, codes) = enrol(&fixture, &issued).await;
    for _ in 0..10 {
        let waiting = pending(&fixture, "192.0.2.1").await;
        let refused = complete(&fixture, &waiting, "aaaaaa").await;
        assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    }
    let waiting = pending(&fixture, "192.0.2.1").await;
    let refused = complete(&fixture, &waiting, "aaaaaa").await;
    assert!(matches!(refused, Err(IdentityError::TooManyAttempts { .. })));
    complete(&fixture, &waiting, codes[0].expose()).await.unwrap();
}

#[tokio::test]
async fn a_reset_link_does_not_replace_the_second_factor() {
    let (fixture, issued) = Fixture::set_up().await;
    let (uri, _) = enrol(&fixture, &issued).await;
    let (_, link) = fixture.people.create_reset_link(&AuditContext::command(), "ada").await.unwrap();
    let step = fixture.people.accept_link(link.token.expose(), "a third password", &home_origin()).await.unwrap();
    let SignInStep::NeedsCode(waiting) = step else { panic!("a link must not skip the code") };
    let user = fixture.people.find_user("ada").await.unwrap();
    assert!(fixture.store.list_sessions(&user.id).await.unwrap().is_empty());
    fixture.people.clock.advance(STEP);
    complete(&fixture, &waiting, &code_of(&fixture, &uri)).await.unwrap();
}

#[tokio::test]
async fn a_proof_of_identity_needs_the_second_factor_too() {
    let (fixture, issued) = Fixture::set_up().await;
    let (uri, _) = enrol(&fixture, &issued).await;
    fixture.people.clock.advance(Duration::from_secs(600));
    let session = session_of(&fixture, &issued).await;
    for code in ["", "000000"] {
        let refused = fixture.people.prove_identity(&session, PASSWORD, code).await;
        assert!(matches!(refused, Err(IdentityError::WrongCredentials)), "{code}");
    }
    let code = code_of(&fixture, &uri);
    fixture.people.prove_identity(&session, PASSWORD, &code).await.unwrap();
    assert!(fixture.people.has_fresh_proof(&session_of(&fixture, &issued).await));
    let again = fixture.people.prove_identity(&session, PASSWORD, &code).await;
    assert!(matches!(again, Err(IdentityError::WrongCredentials)), "a code works once");
}

#[tokio::test]
async fn a_new_factor_is_stored_only_after_its_code_and_once() {
    let (fixture, issued) = Fixture::set_up().await;
    let session = session_of(&fixture, &issued).await;
    let enrolment = fixture.people.begin_enrolment(&session).unwrap();
    let sealed = enrolment.sealed();
    let bob = fixture.join("bob", UserRole::Member).await;
    assert!(fixture.people.reopen_enrolment(&bob.session, sealed).is_none(), "the secret is that of one session");
    assert!(fixture.people.reopen_enrolment(&session, &sealed[1..]).is_none());
    let refused = fixture.people.confirm_enrolment(&session, &enrolment, "000000").await;
    assert!(matches!(refused, Err(IdentityError::WrongCredentials)));
    assert!(!fixture.people.find_user("ada").await.unwrap().has_second_factor);
    let code = code_of(&fixture, &enrolment.uri("imagate"));
    fixture.people.confirm_enrolment(&session, &enrolment, &code).await.unwrap();
    let again = fixture.people.confirm_enrolment(&session, &enrolment, &code).await;
    assert!(matches!(again, Err(IdentityError::InUse)));
    fixture.people.clock.advance(Duration::from_secs(1800));
    assert!(fixture.people.reopen_enrolment(&session, sealed).is_none(), "the page is too old");
}

#[tokio::test]
async fn a_factor_is_reset_by_an_admin_or_a_command() {
    let (fixture, issued) = Fixture::set_up().await;
    drop(enrol(&fixture, &issued).await);
    let reset = fixture.people.remove_second_factor(&AuditContext::command(), "ada").await.unwrap();
    assert!(!reset.has_second_factor);
    assert!(fixture.sign_in("ada", PASSWORD, "192.0.2.1").await.is_ok(), "the password is enough again");
    let again = fixture.people.remove_second_factor(&AuditContext::command(), "ada").await;
    assert!(matches!(again, Err(IdentityError::InvalidField { field: "user", .. })));
    let unknown = fixture.people.remove_second_factor(&AuditContext::command(), "nobody").await;
    assert!(matches!(unknown, Err(IdentityError::Unknown)));
}

/// The first factor of a sign-in is that of its session: an identity that was removed opens none, and a sign-in at the
/// provider without a question is no fresh proof, whatever code follows.
#[tokio::test]
async fn a_code_does_not_change_the_first_factor() {
    let (fixture, issued) = Fixture::set_up().await;
    let (_, codes) = enrol(&fixture, &issued).await;
    let session = session_of(&fixture, &issued).await;
    let kim = ProviderIdentity {
        issuer: "https://login.example.com".to_owned(),
        subject: "person-1".to_owned(),
        name: None,
        authenticated_at: None,
    };
    fixture.people.connect_provider(&session, &kim).await.unwrap();
    let at_provider = async || match fixture.people.sign_in_with_provider(&kim, false, &home_origin()).await.unwrap() {
        SignInStep::NeedsCode(pending) => pending,
        SignInStep::Complete(_) => panic!("the sign-in must wait for a code"),
    };
    let opened = complete(&fixture, &at_provider().await, codes[0].expose()).await.unwrap();
    assert!(!fixture.people.has_fresh_proof(&session_of(&fixture, &opened).await));
    let opened = complete(&fixture, &pending(&fixture, "192.0.2.1").await, codes[1].expose()).await.unwrap();
    assert!(fixture.people.has_fresh_proof(&session_of(&fixture, &opened).await));
    let waiting = at_provider().await;
    fixture.people.disconnect_provider(&AuditContext::command(), "ada").await.unwrap();
    let refused = complete(&fixture, &waiting, codes[2].expose()).await;
    assert!(matches!(refused, Err(IdentityError::InvalidLink)), "{refused:?}");
}
