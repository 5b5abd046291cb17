//! Keys that sign ID tokens, and their public halves as the provider publishes them.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// The kind of a key, which determines the algorithm of its signatures: ES256 or RS256.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    Curve,
    Rsa,
}

/// A key with the id under which it is published.
pub(super) struct SigningKey {
    id: String,
    pair: KeyPair,
}

enum KeyPair {
    Curve(EcdsaKeyPair),
    Rsa(RsaKeyPair),
}

// === impl SigningKey ===

impl SigningKey {
    pub(super) fn new(kind: KeyKind, id: &str) -> Self {
        let pair = match kind {
            KeyKind::Curve => KeyPair::Curve(EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key")),
            KeyKind::Rsa => KeyPair::Rsa(RsaKeyPair::generate(KeySize::Rsa2048).expect("a key")),
        };
        Self { id: id.to_owned(), pair }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn algorithm(&self) -> &'static str {
        match self.pair {
            KeyPair::Curve(_) => "ES256",
            KeyPair::Rsa(_) => "RS256",
        }
    }

    /// The public half as a member of a JSON Web Key Set.
    pub(super) fn public_jwk(&self) -> Value {
        let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = match &self.pair {
            KeyPair::Curve(pair) => {
                // One byte for the format of the point, then both coordinates.
                let point: &[u8] = pair.public_key().as_ref();
                let (x, y) = point[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)})
            }
            KeyPair::Rsa(pair) => {
                let key = pair.public_key();
                let modulus = key.modulus().big_endian_without_leading_zero();
                let exponent = key.exponent().big_endian_without_leading_zero();
                json!({"kty": "RSA", "n": encoded(modulus), "e": encoded(exponent)})
            }
        };
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.algorithm());
        jwk["kid"] = json!(self.id);
        jwk
    }

    /// The bytes of the public half: the secret of a forger who signs with a public key.
    pub(super) fn public_bytes(&self) -> Vec<u8> {
        match &self.pair {
            KeyPair::Curve(pair) => pair.public_key().as_ref().to_vec(),
            KeyPair::Rsa(pair) => pair.public_key().as_ref().to_vec(),
        }
    }

    pub(super) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match &self.pair {
            KeyPair::Curve(pair) => pair.sign(&random, message).expect("a signature").as_ref().to_vec(),
            KeyPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature).expect("a signature");
                signature
            }
        }
    }
}

#[test]
fn signatures_of_both_kinds_fit_the_public_keys() {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
    let (curve, rsa) = (SigningKey::new(KeyKind::Curve, "a"), SigningKey::new(KeyKind::Rsa, "b"));
    let of_curve = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, curve.public_bytes());
    assert!(of_curve.verify(b"text", &curve.sign(b"text")).is_ok());
    assert!(of_curve.verify(b"other", &curve.sign(b"text")).is_err());
    let of_rsa = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, rsa.public_bytes());
    assert!(of_rsa.verify(b"text", &rsa.sign(b"text")).is_ok());
    let [curve, rsa] = [curve, rsa].map(|key| key.public_jwk());
    assert_eq!((curve["alg"].as_str(), rsa["alg"].as_str()), (Some("ES256"), Some("RS256")));
    assert_eq!((curve["x"].as_str().map(str::len), rsa["n"].as_str().map(str::len)), (Some(43), Some(342)));
}
