//! The signing keys of a provider, and the check of an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

use aws_lc_rs::constant_time::verify_slices_are_equal;
use jsonwebtoken::jwk::{Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::OidcError;
use crate::gateway::config::OidcConfig;

/// The accepted signatures: those with a public key. With a symmetric one, whoever knows a public text could sign.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];
/// The longest subject (OpenID Connect Core 1.0, section 2).
const SUBJECT_MAX: usize = 255;

/// The keys with which a provider signs.
#[derive(Debug)]
pub(super) struct SigningKeys(Vec<Jwk>);

/// The claims of a checked ID token.
#[derive(Debug, Deserialize)]
pub(super) struct IdTokenClaims {
    pub(super) sub: String,
    nonce: Option<String>,
    aud: Value,
    azp: Option<String>,
    pub(super) auth_time: Option<i64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

/// True if a token names the key with which it is signed.
pub(super) fn names_key(token: &str) -> bool {
    decode_header(token).is_ok_and(|header| header.kid.is_some())
}

// === impl SigningKeys ===

impl SigningKeys {
    /// Reads a set of keys. Keys of unknown kinds are left out, as RFC 7517 (section 5) requires.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not a set of keys.
    pub(super) fn parse(body: &[u8]) -> Result<Self, OidcError> {
        #[derive(Deserialize)]
        struct PublishedKeys {
            keys: Vec<Value>,
        }
        let published: PublishedKeys =
            serde_json::from_slice(body).map_err(|_| OidcError::Metadata("the keys are not a set of keys"))?;
        let keys = published.keys.into_iter().filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        Ok(Self(keys.filter(is_signing_key).collect()))
    }

    /// True if the key with which a token says that it is signed is known. A token without the id of a key may be signed
    /// with any.
    pub(super) fn has_key_of(&self, token: &str) -> bool {
        let Ok(header) = decode_header(token) else { return true };
        header.kid.is_none_or(|id| self.0.iter().any(|key| key.common.key_id.as_deref() == Some(&id)))
    }

    /// Checks the signature and the claims of an ID token.
    ///
    /// # Errors
    ///
    /// Returns an error if any of them is wrong.
    pub(super) fn verify(&self, token: &str, config: &OidcConfig, nonce: &str) -> Result<IdTokenClaims, OidcError> {
        let header = decode_header(token).map_err(|_| OidcError::Token("its header cannot be read"))?;
        if header.crit.is_some() {
            return Err(OidcError::Token("it has an extension that must be understood"));
        }
        if !ALGORITHMS.contains(&header.alg) {
            return Err(OidcError::Token("its signature is not of an accepted kind"));
        }
        let mut validation = Validation::new(header.alg);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&config.issuer]);
        validation.set_audience(&[&config.client_id]);
        validation.validate_nbf = true;
        let is_named = |key: &&Jwk| header.kid.is_none() || key.common.key_id == header.kid;
        let decoded = self.0.iter().filter(is_named).filter_map(|key| {
            let key =
                DecodingKey::from_jwk(key).ok().filter(|key| key.family() != jsonwebtoken::AlgorithmFamily::Hmac)?;
            decode::<IdTokenClaims>(token, &key, &validation).ok()
        });
        let claims = decoded.map(|decoded| decoded.claims).next();
        let claims = claims.ok_or(OidcError::Token("its signature, issuer, audience or time is wrong"))?;
        claims.check(config, nonce)?;
        Ok(claims)
    }
}

/// True for a public key that may be used for signatures.
fn is_signing_key(key: &Jwk) -> bool {
    key.common.public_key_use.as_ref().is_none_or(|purpose| *purpose == PublicKeyUse::Signature)
}

// === impl IdTokenClaims ===

impl IdTokenClaims {
    fn check(&self, config: &OidcConfig, nonce: &str) -> Result<(), OidcError> {
        let stated = self.nonce.as_deref().unwrap_or_default();
        if verify_slices_are_equal(stated.as_bytes(), nonce.as_bytes()).is_err() {
            return Err(OidcError::Token("it answers another request"));
        }
        let has_several_audiences = self.aud.as_array().is_some_and(|list| list.len() > 1);
        let is_for_gateway = match &self.azp {
            Some(party) => *party == config.client_id,
            None => !has_several_audiences,
        };
        if !is_for_gateway {
            return Err(OidcError::Token("it is for another party"));
        }
        if self.sub.is_empty() || self.sub.len() > SUBJECT_MAX {
            return Err(OidcError::Token("its subject is empty or too long"));
        }
        Ok(())
    }

    /// Returns a claim that is a text.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        if name == "sub" { Some(&self.sub) } else { self.others.get(name)?.as_str() }
    }

    /// True if a claim is this value, or a list that contains it.
    pub(super) fn contains(&self, name: &str, value: &str) -> bool {
        match self.others.get(name) {
            Some(Value::Array(list)) => list.iter().any(|item| item.as_str() == Some(value)),
            Some(Value::String(text)) => text == value,
            Some(Value::Bool(flag)) => flag.to_string() == value,
            _ => self.text(name) == Some(value),
        }
    }
}
