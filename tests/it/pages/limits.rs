//! The rate limits against password guessing: they slow down the attacker and no other user.

use std::time::Duration;

use super::users::{ADA, ADAS_PASSWORD, sign_in, sign_in_ada};
use super::visitor::Visitor;
use crate::kit::Gateway;

const WRONG: &str = "a password that is wrong";

/// Sends at limit `limit` wrong passwords, and returns the number of guesses before the first 429, if there is one.
#[track_caller]
fn guess(visitor: &mut Visitor<'_>, name: &str, limit: usize) -> Option<usize> {
    (0..limit).find(|_| {
        let answer = sign_in(visitor, name, WRONG);
        assert!([400, 401, 403, 422, 429].contains(&answer.status), "{}", answer.status);
        if answer.status != 429 {
            return false;
        }
        let wait = answer.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
        assert!(wait.is_some_and(|seconds| (1..=30).contains(&seconds)), "{answer:?}");
        true
    })
}

#[test]
fn an_attacker_has_to_wait_and_a_known_address_does_not() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    // The address from which Ada signed in before is known.
    let mut attackers = [2, 3, 4, 5, 6].map(|last| Visitor::at_address(&gateway, last));
    assert_eq!(guess(&mut attackers[0], ADA, 8), Some(5), "five guesses from one address");
    assert_eq!(
        sign_in(&mut attackers[0], ADA, ADAS_PASSWORD).status,
        429,
        "the right password is refused during the wait"
    );
    for attacker in &mut attackers[1..] {
        guess(attacker, ADA, 6);
    }
    let stranger = sign_in(&mut Visitor::at_address(&gateway, 9), ADA, ADAS_PASSWORD);
    assert_eq!(stranger.status, 429, "twenty guesses from all addresses");
    let known = sign_in(&mut Visitor::new(&gateway), ADA, ADAS_PASSWORD);
    assert_eq!(known.status, 303, "guesses from other addresses must not lock Ada out: {}", known.text());
}

/// All connections come from the proxy, which names the client address in `x-forwarded-for`.
#[test]
fn behind_a_proxy_guesses_slow_down_only_their_client_address() {
    let gateway = Gateway::with("trusted_proxies = [\"127.0.0.1\"]", &[]);
    drop(sign_in_ada(&gateway));
    // The proxy appends the last address; the caller sent the addresses before it.
    let [mut attacker, mut attacker_with_header, mut other_client] =
        ["203.0.113.2", "198.51.100.7, 203.0.113.2", "198.51.100.7"]
            .map(|header| Visitor::behind_proxy(&gateway, header));
    assert_eq!(guess(&mut attacker, ADA, 8), Some(5));
    assert_eq!(sign_in(&mut attacker_with_header, ADA, ADAS_PASSWORD).status, 429);
    assert_eq!(sign_in(&mut other_client, ADA, ADAS_PASSWORD).status, 303);
    assert!(other_client.get("/audit").text().contains("198.51.100.7"), "the trail has no client address");
}

#[test]
fn one_address_cannot_try_a_password_on_many_names() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let mut attacker = Visitor::at_address(&gateway, 2);
    let guesses = (0..40).find(|count| guess(&mut attacker, &format!("name-{count}"), 1).is_some());
    assert!(guesses.is_some_and(|count| (29..=36).contains(&count)), "{guesses:?}");
}

#[test]
fn unknown_and_known_names_get_the_same_answer() {
    let gateway = Gateway::simulated();
    drop(sign_in_ada(&gateway));
    let mut visitor = Visitor::new(&gateway);
    let timed_sign_in = |visitor: &mut Visitor<'_>, name: &str| {
        let start = std::time::Instant::now();
        let answer = sign_in(visitor, name, WRONG);
        (answer.status, answer.text().replace(name, "NAME"), start.elapsed())
    };
    let (known, unknown): (Vec<_>, Vec<_>) = (0..4)
        .map(|count| (timed_sign_in(&mut visitor, ADA), timed_sign_in(&mut visitor, &format!("nob{count}"))))
        .unzip();
    let strip = |page: &str| page.split("csrf").next().unwrap_or_default().to_owned();
    assert_eq!((known[0].0, strip(&known[0].1)), (unknown[0].0, strip(&unknown[0].1)));
    let fastest = |times: &[(u16, String, Duration)]| times.iter().map(|(_, _, time)| *time).min().unwrap_or_default();
    // Both requests compute a password hash, which takes most of their time.
    assert!(fastest(&unknown) * 2 > fastest(&known), "{:?} {:?}", fastest(&known), fastest(&unknown));
}
