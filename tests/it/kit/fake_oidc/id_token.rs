//! ID tokens, correct ones and forged ones.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::signing_key::{KeyKind, SigningKey};
use super::{CLIENT_ID, CLIENT_SECRET, unix_seconds};

/// A fault of an ID token, because of which a client must refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenFlaw {
    OtherIssuer,
    OtherAudience,
    NoAudience,
    /// Two audiences, and no `azp`.
    TwoAudiences,
    /// Two audiences, and another client in `azp`.
    OtherParty,
    Expired,
    NoExpiry,
    OtherNonce,
    NoNonce,
    NoSubject,
    EmptySubject,
    /// The algorithm `none`, without a signature.
    Unsigned,
    /// HS256 with the public key as the secret.
    HmacOfPublicKey,
    /// HS256 with the client secret, which OpenID Connect allows only if the client has asked for it.
    HmacOfClientSecret,
    /// The id of a published key, and a signature of another key.
    OtherSignature,
    /// A correct signature of other claims.
    ChangedClaims,
    /// The signature is missing, although the algorithm is that of the key.
    NoSignature,
    /// An extension that every recipient must understand.
    CriticalHeader,
    /// Two parts in place of three.
    TwoParts,
    /// Claims that are not JSON.
    NotJson,
    /// An id that is not published, and a signature of a key that is not published.
    UnknownKey,
}

/// Every fault. The unknown key is the last one, because after it a client may wait before it fetches keys again.
pub(crate) const ALL_TOKEN_FLAWS: [TokenFlaw; 21] = [
    TokenFlaw::OtherIssuer,
    TokenFlaw::OtherAudience,
    TokenFlaw::NoAudience,
    TokenFlaw::TwoAudiences,
    TokenFlaw::OtherParty,
    TokenFlaw::Expired,
    TokenFlaw::NoExpiry,
    TokenFlaw::OtherNonce,
    TokenFlaw::NoNonce,
    TokenFlaw::NoSubject,
    TokenFlaw::EmptySubject,
    TokenFlaw::Unsigned,
    TokenFlaw::HmacOfPublicKey,
    TokenFlaw::HmacOfClientSecret,
    TokenFlaw::OtherSignature,
    TokenFlaw::ChangedClaims,
    TokenFlaw::NoSignature,
    TokenFlaw::CriticalHeader,
    TokenFlaw::TwoParts,
    TokenFlaw::NotJson,
    TokenFlaw::UnknownKey,
];

/// The ID token with these claims.
pub(super) fn id_token(claims: &Value, key: &SigningKey, flaw: Option<TokenFlaw>) -> String {
    let stranger = SigningKey::new(KeyKind::Curve, "key-of-nobody");
    let mut claims = claims.clone();
    if let Some(flaw) = flaw {
        break_claims(&mut claims, flaw);
    }
    let key_in_header = if flaw == Some(TokenFlaw::UnknownKey) { &stranger } else { key };
    let payload = if flaw == Some(TokenFlaw::NotJson) { "{sub:}".to_owned() } else { claims.to_string() };
    let message = format!("{}.{}", encoded(&header(key_in_header, flaw).to_string()), encoded(&payload));
    let signature = match flaw {
        Some(TokenFlaw::TwoParts) => return message,
        Some(TokenFlaw::Unsigned | TokenFlaw::NoSignature) => Vec::new(),
        Some(TokenFlaw::HmacOfPublicKey) => hmac_sha256(&key.public_bytes(), &message),
        Some(TokenFlaw::HmacOfClientSecret) => hmac_sha256(CLIENT_SECRET.as_bytes(), &message),
        Some(TokenFlaw::OtherSignature | TokenFlaw::UnknownKey) => stranger.sign(message.as_bytes()),
        Some(TokenFlaw::ChangedClaims) => key.sign(format!("{message}.").as_bytes()),
        _ => key.sign(message.as_bytes()),
    };
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn header(key: &SigningKey, flaw: Option<TokenFlaw>) -> Value {
    let mut header = json!({"alg": key.algorithm(), "kid": key.id(), "typ": "JWT"});
    match flaw {
        Some(TokenFlaw::Unsigned) => header["alg"] = json!("none"),
        Some(TokenFlaw::HmacOfPublicKey | TokenFlaw::HmacOfClientSecret) => header["alg"] = json!("HS256"),
        Some(TokenFlaw::CriticalHeader) => {
            header["crit"] = json!(["http://extension.example/unknown"]);
            header["http://extension.example/unknown"] = json!(true);
        }
        _ => {}
    }
    header
}

fn break_claims(claims: &mut Value, flaw: TokenFlaw) {
    let now = unix_seconds();
    match flaw {
        TokenFlaw::OtherIssuer => claims["iss"] = json!("http://127.0.0.1:1"),
        TokenFlaw::OtherAudience => claims["aud"] = json!("another-client"),
        TokenFlaw::NoAudience => remove(claims, "aud"),
        TokenFlaw::TwoAudiences => claims["aud"] = json!([CLIENT_ID, "another-client"]),
        TokenFlaw::OtherParty => {
            claims["aud"] = json!([CLIENT_ID, "another-client"]);
            claims["azp"] = json!("another-client");
        }
        TokenFlaw::Expired => {
            claims["iat"] = json!(now - 7200);
            claims["exp"] = json!(now - 3600);
        }
        TokenFlaw::NoExpiry => remove(claims, "exp"),
        TokenFlaw::OtherNonce => claims["nonce"] = json!("the-nonce-of-another-sign-in"),
        TokenFlaw::NoNonce => remove(claims, "nonce"),
        TokenFlaw::NoSubject => remove(claims, "sub"),
        TokenFlaw::EmptySubject => claims["sub"] = json!(""),
        _ => {}
    }
}

fn remove(claims: &mut Value, name: &str) {
    claims.as_object_mut().expect("claims").remove(name);
}

fn hmac_sha256(secret: &[u8], message: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes()).as_ref().to_vec()
}

fn encoded(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(text)
}
