//! Tests of the checks of metadata, keys and ID tokens, with tokens that are signed here.

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use chrono::Utc;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::id_token::IdTokenClaims;
use super::*;

const NONCE: &str = "nonce";

fn config() -> OidcConfig {
    OidcConfig {
        issuer: "https://login.example.com".to_owned(),
        client_id: "imagate".to_owned(),
        client_secret: None,
        label: "Example".to_owned(),
        scopes: vec!["openid".to_owned()],
        name_claim: "preferred_username".to_owned(),
        create_users: false,
        required_claim: None,
        allow_http: false,
        allow_link_local: false,
    }
}

/// A key that signs tokens, and its id.
struct SigningKey {
    key: EncodingKey,
    id: &'static str,
}

impl SigningKey {
    fn new(id: &'static str) -> Self {
        let document = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap().to_pkcs8v1().unwrap();
        Self { key: EncodingKey::from_ec_der(document.as_ref()), id }
    }

    fn published(&self) -> Value {
        let mut key = serde_json::to_value(Jwk::from_encoding_key(&self.key, Algorithm::ES256).unwrap()).unwrap();
        key["kid"] = self.id.into();
        key
    }

    fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&header, claims, &self.key).unwrap()
    }
}

fn keys(published: &[Value]) -> SigningKeys {
    SigningKeys::parse(json!({ "keys": published }).to_string().as_bytes()).unwrap()
}

/// The claims of a token that is accepted, with these changes. A claim that is changed to null is removed.
fn claims(changes: &Value) -> Value {
    let now = Utc::now().timestamp();
    let mut claims = json!({
        "iss": "https://login.example.com",
        "aud": "imagate",
        "sub": "person-1",
        "nonce": NONCE,
        "iat": now,
        "exp": now + 300,
        "preferred_username": "kim",
        "groups": ["painters", "admins"],
    });
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

fn verify(keys: &SigningKeys, token: &str) -> Result<IdTokenClaims, OidcError> {
    keys.verify(token, &config(), NONCE)
}

#[test]
fn a_right_token_is_accepted() {
    let key = SigningKey::new("one");
    let keys = keys(&[key.published()]);
    for changes in [
        json!({}),
        json!({ "aud": ["imagate"] }),
        json!({ "aud": ["imagate", "other"], "azp": "imagate" }),
        json!({ "azp": "imagate" }),
        json!({ "exp": Utc::now().timestamp() - 30 }),
    ] {
        let claims = verify(&keys, &key.sign(&claims(&changes))).unwrap_or_else(|error| panic!("{changes}: {error}"));
        assert_eq!((claims.sub.as_str(), claims.text("preferred_username")), ("person-1", Some("kim")));
        assert!(claims.contains("groups", "painters") && !claims.contains("groups", "paint"));
        assert!(claims.contains("preferred_username", "kim") && !claims.contains("hd", "example.com"));
    }
}

#[test]
fn a_token_with_a_wrong_claim_is_refused() {
    let key = SigningKey::new("one");
    let keys = keys(&[key.published()]);
    for changes in [
        json!({ "iss": "https://login.example.com/" }),
        json!({ "iss": null }),
        json!({ "aud": "other" }),
        json!({ "aud": ["other"] }),
        json!({ "aud": null }),
        json!({ "aud": ["imagate", "other"] }),
        json!({ "azp": "other" }),
        json!({ "nonce": "other" }),
        json!({ "nonce": null }),
        json!({ "exp": Utc::now().timestamp() - 120 }),
        json!({ "exp": null }),
        json!({ "nbf": Utc::now().timestamp() + 120 }),
        json!({ "sub": "" }),
        json!({ "sub": null }),
        json!({ "sub": "s".repeat(256) }),
    ] {
        let refused = verify(&keys, &key.sign(&claims(&changes)));
        assert!(matches!(refused, Err(OidcError::Token(_))), "{changes}: {refused:?}");
    }
}

#[test]
fn a_token_that_the_provider_has_not_signed_is_refused() {
    let (key, other) = (SigningKey::new("one"), SigningKey::new("one"));
    let known = keys(&[key.published()]);
    let forged = other.sign(&claims(&json!({})));
    assert!(verify(&known, &forged).is_err());
    let genuine = key.sign(&claims(&json!({})));
    let parts: Vec<&str> = genuine.split('.').collect();
    let unsigned = |header: &Value, signature: &str| {
        format!("{}.{}.{signature}", URL_SAFE_NO_PAD.encode(header.to_string()), parts[1])
    };
    for token in [
        unsigned(&json!({ "alg": "none" }), ""),
        unsigned(&json!({ "alg": "none", "kid": "one" }), parts[2]),
        unsigned(&json!({ "alg": "RS256", "kid": "one" }), parts[2]),
        format!("{}.{}.", parts[0], parts[1]),
        format!("{}.{}", parts[0], parts[1]),
        String::new(),
    ] {
        assert!(verify(&known, &token).is_err(), "{token}");
    }
}

/// Signs with texts that everybody knows: those of the public key, and the id of the gateway.
#[test]
fn a_symmetric_signature_is_refused() {
    let key = SigningKey::new("one");
    let published = key.published();
    let symmetric = json!({ "kty": "oct", "k": URL_SAFE_NO_PAD.encode("known"), "kid": "one", "alg": "HS256" });
    let keys = keys(&[published.clone(), symmetric]);
    let texts = [published["x"].as_str().unwrap(), &published.to_string(), "imagate", "known"].map(str::to_owned);
    for text in texts {
        let header = Header { kid: Some("one".to_owned()), ..Header::new(Algorithm::HS256) };
        let token = encode(&header, &claims(&json!({})), &EncodingKey::from_secret(text.as_bytes())).unwrap();
        assert!(verify(&keys, &token).is_err(), "{text}");
    }
}

#[test]
fn keys_are_found_by_their_id_and_unusable_ones_are_left_out() {
    let (first, second, unknown) = (SigningKey::new("one"), SigningKey::new("two"), SigningKey::new("three"));
    let mut for_encryption = second.published();
    for_encryption["use"] = "enc".into();
    let keys_with = |second: Value| keys(&[json!({ "kty": "new" }), json!(7), first.published(), second]);
    let keys = keys_with(second.published());
    assert!(keys.has_key_of(&first.sign(&claims(&json!({})))));
    assert!(verify(&keys, &second.sign(&claims(&json!({})))).is_ok());
    assert!(!keys.has_key_of(&unknown.sign(&claims(&json!({})))), "the keys must be loaded again");
    assert!(verify(&keys_with(for_encryption), &second.sign(&claims(&json!({})))).is_err());
    // A token may omit the id of its key.
    let unnamed = encode(&Header::new(Algorithm::ES256), &claims(&json!({})), &second.key).unwrap();
    assert!(keys.has_key_of(&unnamed) && verify(&keys, &unnamed).is_ok());
    assert!(SigningKeys::parse(b"{}").is_err());
}

#[test]
fn metadata_of_another_issuer_or_with_unencrypted_addresses_is_refused() {
    let published = |changes: &Value| {
        let mut metadata = json!({
            "issuer": "https://login.example.com",
            "authorization_endpoint": "https://login.example.com/authorize?tenant=1",
            "token_endpoint": "https://login.example.com/token",
            "jwks_uri": "https://login.example.com/keys",
        });
        for (name, value) in changes.as_object().unwrap() {
            metadata[name] = value.clone();
        }
        ProviderMetadata::parse(metadata.to_string().as_bytes(), &config())
    };
    let metadata = published(&json!({})).unwrap();
    assert!(metadata.takes_basic_authentication && !metadata.states_issuer);
    let post = json!({ "token_endpoint_auth_methods_supported": ["private_key_jwt", "client_secret_post"] });
    assert!(!published(&post).unwrap().takes_basic_authentication);
    for changes in [
        json!({ "issuer": "https://other.example.com" }),
        json!({ "issuer": "https://login.example.com/" }),
        json!({ "token_endpoint": "http://login.example.com/token" }),
        json!({ "jwks_uri": "file:///keys" }),
        json!({ "authorization_endpoint": "javascript:alert(1)" }),
        json!({ "token_endpoint": null }),
    ] {
        assert!(matches!(published(&changes), Err(OidcError::Metadata(_))), "{changes}");
    }
    assert_eq!(metadata::url("https://a.example/b/"), "https://a.example/b/.well-known/openid-configuration");
}
