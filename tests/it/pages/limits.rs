//! Guessing passwords: it is slow for whoever guesses, and for nobody else.

use std::time::Duration;

use super::people::{ADA, ADAS_PASSWORD, ada, sign_in};
use super::visitor::Visitor;
use crate::kit::Gateway;

const WRONG: &str = "a password that is wrong";

/// Guesses until it has to wait; how often it could guess.
#[track_caller]
fn guess(visitor: &mut Visitor<'_>, name: &str, most: usize) -> Option<usize> {
    (0..most).find(|_| {
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
fn whoever_guesses_has_to_wait_and_whoever_is_known_does_not() {
    let gateway = Gateway::simulated();
    drop(ada(&gateway));
    // The address from which she came first is known.
    let mut attackers = [2, 3, 4, 5, 6].map(|last| Visitor::from(&gateway, last));
    assert_eq!(guess(&mut attackers[0], ADA, 8), Some(5), "five guesses from one address");
    assert_eq!(sign_in(&mut attackers[0], ADA, ADAS_PASSWORD).status, 429, "a right guess too late is a guess");
    for attacker in &mut attackers[1..] {
        guess(attacker, ADA, 6);
    }
    let stranger = sign_in(&mut Visitor::from(&gateway, 9), ADA, ADAS_PASSWORD);
    assert_eq!(stranger.status, 429, "twenty guesses from all addresses");
    let known = sign_in(&mut Visitor::to(&gateway), ADA, ADAS_PASSWORD);
    assert_eq!(known.status, 303, "nobody locks her out: {}", known.text());
}

/// All connections come from the proxy, which says for whom.
#[test]
fn behind_a_proxy_whoever_guesses_slows_down_nobody_but_themselves() {
    let gateway = Gateway::with("trusted_proxies = [\"127.0.0.1\"]", &[]);
    drop(ada(&gateway));
    // What stands before the last address is what the caller wrote.
    let [mut attacker, mut again, mut other] =
        ["203.0.113.2", "198.51.100.7, 203.0.113.2", "198.51.100.7"].map(|from| Visitor::by_proxy(&gateway, from));
    assert_eq!(guess(&mut attacker, ADA, 8), Some(5));
    assert_eq!(sign_in(&mut again, ADA, ADAS_PASSWORD).status, 429);
    assert_eq!(sign_in(&mut other, ADA, ADAS_PASSWORD).status, 303);
    assert!(other.get("/audit").text().contains("198.51.100.7"), "the trail names who has signed in");
}

#[test]
fn one_address_cannot_try_one_password_on_many_names() {
    let gateway = Gateway::simulated();
    drop(ada(&gateway));
    let mut attacker = Visitor::from(&gateway, 2);
    let tried = (0..40).find(|count| guess(&mut attacker, &format!("name-{count}"), 1).is_some());
    assert!(tried.is_some_and(|count| (29..=36).contains(&count)), "{tried:?}");
}

#[test]
fn a_name_that_nobody_has_is_answered_like_one_that_somebody_has() {
    let gateway = Gateway::simulated();
    drop(ada(&gateway));
    let mut visitor = Visitor::to(&gateway);
    let time = |visitor: &mut Visitor<'_>, name: &str| {
        let start = std::time::Instant::now();
        let answer = sign_in(visitor, name, WRONG);
        (answer.status, answer.text().replace(name, "NAME"), start.elapsed())
    };
    let (known, unknown): (Vec<_>, Vec<_>) =
        (0..4).map(|count| (time(&mut visitor, ADA), time(&mut visitor, &format!("nob{count}")))).unzip();
    let strip = |page: &str| page.split("csrf").next().unwrap_or_default().to_owned();
    assert_eq!((known[0].0, strip(&known[0].1)), (unknown[0].0, strip(&unknown[0].1)));
    let fastest = |times: &[(u16, String, Duration)]| times.iter().map(|(_, _, time)| *time).min().unwrap_or_default();
    // Both compute the same hash, which takes longer than all else.
    assert!(fastest(&unknown) * 2 > fastest(&known), "{:?} {:?}", fastest(&known), fastest(&unknown));
}
