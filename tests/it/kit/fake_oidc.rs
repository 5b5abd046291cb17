//! A fake provider of OpenID Connect on loopback: it signs ID tokens itself, and can break every rule.
//!
//! It has no authorization endpoint. A test reads the redirect to it, and gets a code by [`FakeProvider::issue_code`].
//! Its token endpoint is strict: each code is accepted once, from the client with its secret, with the address of the
//! redirect and with the verifier.

mod id_token;
mod signing_key;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::leak_watch::SecretIssuer;
use super::pause;
use super::stub_server::{StubRequest, StubServer};
use super::tokens::{client, decoded_fields};
use id_token::id_token;
pub(crate) use id_token::{ALL_TOKEN_FLAWS, TokenFlaw};
pub(crate) use signing_key::KeyKind;
use signing_key::SigningKey;

pub(crate) const CLIENT_ID: &str = "imagate";
pub(crate) const CLIENT_SECRET: &str = "canary-of-the-client-at-the-provider";

/// The length of the filler in an answer that is too large.
const HUGE_BYTES: usize = 8 << 20;

/// A fault of the token endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnswerFlaw {
    Status400,
    Status500,
    NotJson,
    /// A correct answer with megabytes of filler.
    Huge,
    NoIdToken,
    /// It closes the connection without an answer.
    NoAnswer,
    /// There is no answer until the flaw is taken back.
    Hang,
}

pub(crate) const ALL_ANSWER_FLAWS: [AnswerFlaw; 7] = [
    AnswerFlaw::Status400,
    AnswerFlaw::Status500,
    AnswerFlaw::NotJson,
    AnswerFlaw::Huge,
    AnswerFlaw::NoIdToken,
    AnswerFlaw::NoAnswer,
    AnswerFlaw::Hang,
];

/// A fault of the description of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiscoveryFlaw {
    OtherIssuer,
    NoIssuer,
    NoTokenEndpoint,
    Status500,
    NotJson,
    Huge,
}

pub(crate) const ALL_DISCOVERY_FLAWS: [DiscoveryFlaw; 6] = [
    DiscoveryFlaw::OtherIssuer,
    DiscoveryFlaw::NoIssuer,
    DiscoveryFlaw::NoTokenEndpoint,
    DiscoveryFlaw::Status500,
    DiscoveryFlaw::NotJson,
    DiscoveryFlaw::Huge,
];

/// The provider. Dropping it closes the port.
pub(crate) struct FakeProvider {
    _server: StubServer,
    issuer: String,
    state: Arc<Mutex<FakeProviderState>>,
    secrets: SecretIssuer,
}

struct FakeProviderState {
    issuer: String,
    secrets: SecretIssuer,
    key: SigningKey,
    /// The number of keys that there were before.
    rotations: usize,
    /// The codes that may still be exchanged.
    codes: HashMap<String, IssuedCode>,
    issued_codes: usize,
    /// The paths of all requests.
    requests: Vec<String>,
    token_flaw: Option<TokenFlaw>,
    answer_flaw: Option<AnswerFlaw>,
    discovery_flaw: Option<DiscoveryFlaw>,
    is_down: bool,
}

/// The data that a code stands for.
struct IssuedCode {
    challenge: String,
    redirect_uri: String,
    claims: Value,
}

// === impl FakeProvider ===

impl FakeProvider {
    /// Starts it with a key of an elliptic curve.
    pub(crate) fn start() -> Self {
        let secrets = SecretIssuer::default();
        let state = Arc::new(Mutex::new(FakeProviderState {
            issuer: String::new(),
            secrets: secrets.clone(),
            key: SigningKey::new(KeyKind::Curve, "key-0"),
            rotations: 0,
            codes: HashMap::new(),
            issued_codes: 0,
            requests: Vec::new(),
            token_flaw: None,
            answer_flaw: None,
            discovery_flaw: None,
            is_down: false,
        }));
        let serving = Arc::clone(&state);
        let server = StubServer::start(move |request| answer(&serving, request));
        let issuer = format!("http://{}", server.address());
        lock(&state).issuer.clone_from(&issuer);
        Self { _server: server, issuer, state, secrets }
    }

    pub(crate) fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The secrets that it has issued or received.
    pub(super) fn secrets(&self) -> &SecretIssuer {
        &self.secrets
    }

    /// A code for the person with these claims, as the answer to the authorization request with these fields.
    #[track_caller]
    pub(crate) fn issue_code(&self, request: &BTreeMap<String, String>, claims: &Value) -> String {
        let field = |name: &str| request.get(name).unwrap_or_else(|| panic!("no {name}: {request:?}")).clone();
        let mut state = self.state();
        let now = unix_seconds();
        let mut all = json!({"iss": state.issuer, "aud": CLIENT_ID, "iat": now, "exp": now + 300});
        all["nonce"] = json!(field("nonce"));
        for (name, value) in claims.as_object().expect("claims") {
            all[name] = value.clone();
        }
        state.issued_codes += 1;
        let code = format!("code-of-the-fake-provider-{}", state.issued_codes);
        state.secrets.add_secret("a code", &code);
        let issued =
            IssuedCode { challenge: field("code_challenge"), redirect_uri: field("redirect_uri"), claims: all };
        state.codes.insert(code.clone(), issued);
        code
    }

    /// Sets the fault of the ID tokens from now on.
    pub(crate) fn set_token_flaw(&self, flaw: Option<TokenFlaw>) {
        self.state().token_flaw = flaw;
    }

    /// Sets the fault of the token endpoint from now on.
    pub(crate) fn set_answer_flaw(&self, flaw: Option<AnswerFlaw>) {
        self.state().answer_flaw = flaw;
    }

    /// Sets the fault of its description from now on.
    pub(crate) fn set_discovery_flaw(&self, flaw: Option<DiscoveryFlaw>) {
        self.state().discovery_flaw = flaw;
    }

    /// Replaces the key by one with another id.
    pub(crate) fn rotate_key(&self, kind: KeyKind) {
        let mut state = self.state();
        state.rotations += 1;
        state.key = SigningKey::new(kind, &format!("key-{}", state.rotations));
    }

    /// Sets whether it closes every connection without an answer.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state().is_down = is_down;
    }

    /// The number of requests for this path.
    pub(crate) fn count_requests(&self, path: &str) -> usize {
        self.state().requests.iter().filter(|known| *known == path).count()
    }

    fn state(&self) -> MutexGuard<'_, FakeProviderState> {
        lock(&self.state)
    }
}

impl Drop for FakeProvider {
    /// Releases the requests that wait for an answer.
    fn drop(&mut self) {
        self.set_answer_flaw(None);
    }
}

fn lock(state: &Mutex<FakeProviderState>) -> MutexGuard<'_, FakeProviderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("a time").as_secs()
}

fn answer(state: &Mutex<FakeProviderState>, request: &StubRequest) -> Option<(u16, String)> {
    let path = request.path.split('?').next().unwrap_or_default();
    lock(state).requests.push(path.to_owned());
    if lock(state).is_down {
        return None;
    }
    match path {
        "/.well-known/openid-configuration" => Some(lock(state).describe()),
        "/jwks" => Some((200, lock(state).public_keys().to_string())),
        "/token" => answer_exchange(state, request),
        _ => Some((404, "{}".to_owned())),
    }
}

fn answer_exchange(state: &Mutex<FakeProviderState>, request: &StubRequest) -> Option<(u16, String)> {
    while lock(state).answer_flaw == Some(AnswerFlaw::Hang) {
        pause(Duration::from_millis(20));
    }
    let mut state = lock(state);
    let mut tokens = match state.exchange(request) {
        Ok(tokens) => tokens,
        Err(reason) => return Some(refusal(400, reason)),
    };
    match state.answer_flaw {
        Some(AnswerFlaw::Status400) => Some(refusal(400, "invalid_grant")),
        Some(AnswerFlaw::Status500) => Some(refusal(500, "server_error")),
        Some(AnswerFlaw::NotJson) => Some((200, "<!doctype html><title>Maintenance</title>".to_owned())),
        Some(AnswerFlaw::NoAnswer | AnswerFlaw::Hang) => None,
        Some(AnswerFlaw::Huge) => {
            tokens["filler"] = json!("x".repeat(HUGE_BYTES));
            Some((200, tokens.to_string()))
        }
        Some(AnswerFlaw::NoIdToken) => {
            tokens["id_token"] = Value::Null;
            Some((200, tokens.to_string()))
        }
        None => Some((200, tokens.to_string())),
    }
}

fn refusal(status: u16, reason: &str) -> (u16, String) {
    (status, json!({"error": reason, "error_description": "canary of the provider"}).to_string())
}

// === impl FakeProviderState ===

impl FakeProviderState {
    fn describe(&self) -> (u16, String) {
        let issuer = &self.issuer;
        let mut description = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "jwks_uri": format!("{issuer}/jwks"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256", "ES256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        });
        match self.discovery_flaw {
            Some(DiscoveryFlaw::Status500) => return refusal(500, "server_error"),
            Some(DiscoveryFlaw::NotJson) => return (200, "<!doctype html><title>Welcome</title>".to_owned()),
            Some(DiscoveryFlaw::OtherIssuer) => description["issuer"] = json!("http://127.0.0.1:1"),
            Some(DiscoveryFlaw::NoIssuer) => description["issuer"] = Value::Null,
            Some(DiscoveryFlaw::NoTokenEndpoint) => description["token_endpoint"] = Value::Null,
            Some(DiscoveryFlaw::Huge) => description["filler"] = json!("x".repeat(HUGE_BYTES)),
            None => {}
        }
        (200, description.to_string())
    }

    /// The keys, with one of a kind that clients do not know and need not know.
    fn public_keys(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode([9; 32]);
        let other = json!({"kty": "OKP", "crv": "X25519", "use": "enc", "kid": "encryption-1", "x": x});
        json!({"keys": [other, self.key.public_jwk()]})
    }

    /// Exchanges a code, if the client and the code are as they must be.
    fn exchange(&mut self, request: &StubRequest) -> Result<Value, &'static str> {
        let form = decoded_fields(&request.body);
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        let verifier = field("code_verifier");
        if verifier.len() < 43 {
            return Err("invalid_request");
        }
        self.secrets.add_secret("a verifier", verifier);
        let is_client = client(request, &form).is_some_and(|(id, secret)| id == CLIENT_ID && secret == CLIENT_SECRET);
        if !is_client {
            return Err("invalid_client");
        }
        if field("grant_type") != "authorization_code" {
            return Err("unsupported_grant_type");
        }
        let issued = self.codes.remove(field("code")).ok_or("invalid_grant")?;
        let challenge = URL_SAFE_NO_PAD.encode(digest::digest(&digest::SHA256, verifier.as_bytes()));
        if challenge != issued.challenge || field("redirect_uri") != issued.redirect_uri {
            return Err("invalid_grant");
        }
        let id_token = id_token(&issued.claims, &self.key, self.token_flaw);
        let access_token = format!("access-token-of-{}", field("code"));
        self.secrets.add_secret("an ID token", &id_token);
        self.secrets.add_secret("an access token", &access_token);
        Ok(json!({"access_token": access_token, "token_type": "Bearer", "expires_in": 300, "id_token": id_token}))
    }
}
