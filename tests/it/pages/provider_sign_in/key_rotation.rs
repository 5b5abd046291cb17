//! The keys of the provider: both kinds, and keys that it replaces while the gateway runs.

use super::super::users::sign_in_ada;
use super::super::visitor::Visitor;
use super::flow::{assert_refused, assert_signed_in, claims_of, gateway_for, sign_in_with};
use crate::kit::{FakeProvider, KeyKind, TokenFlaw};

#[test]
fn new_keys_of_the_provider_are_fetched_when_a_token_names_them() {
    let provider = FakeProvider::start();
    let gateway = gateway_for(provider.issuer(), "create_users = true");
    gateway.watch_provider(&provider);
    drop(sign_in_ada(&gateway));
    let sign_in = |address| {
        let mut visitor = Visitor::at_address(&gateway, address);
        let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim"));
        assert_signed_in(&mut visitor, &answer, "/studio");
    };
    sign_in(2);
    let fetches = provider.count_requests("/jwks");
    assert_eq!(fetches, 1, "the keys are fetched once");
    sign_in(3);
    assert_eq!(provider.count_requests("/jwks"), fetches, "known keys are not fetched again");

    provider.rotate_key(KeyKind::Rsa);
    sign_in(4);
    assert!(provider.count_requests("/jwks") > fetches, "the new key was fetched");
    sign_in(5);

    provider.set_token_flaw(Some(TokenFlaw::OtherSignature));
    let mut visitor = Visitor::at_address(&gateway, 6);
    let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim"));
    assert_refused(&mut visitor, &answer, "a signature of another key");
    provider.set_token_flaw(Some(TokenFlaw::HmacOfPublicKey));
    let answer = sign_in_with(&mut visitor, &provider, &claims_of("kim"));
    assert_refused(&mut visitor, &answer, "a public key as a secret");
}

#[test]
fn keys_of_both_kinds_work_from_the_start() {
    for kind in [KeyKind::Curve, KeyKind::Rsa] {
        let provider = FakeProvider::start();
        provider.rotate_key(kind);
        let gateway = gateway_for(provider.issuer(), "create_users = true");
        gateway.watch_provider(&provider);
        drop(sign_in_ada(&gateway));
        let mut kim = Visitor::new(&gateway);
        let answer = sign_in_with(&mut kim, &provider, &claims_of("kim"));
        assert_signed_in(&mut kim, &answer, "/studio");
    }
}
