//! A fake OAuth token endpoint on loopback, with its own ledger.
//!
//! An account `a` signs in as `client-a` with `secret-a`. Its refresh tokens are `refresh-a-0`, `refresh-a-1`, …: each
//! exchange gives the next one and invalidates the one before, as an upstream that rotates them does. Its access tokens
//! are `access-a-1`, `access-a-2`, … in the order of the exchanges, whatever the grant.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::leak_watch::SecretIssuer;
use super::pause;
use super::stub_server::{StubRequest, StubServer};

/// One exchange, as the ledger has it.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// The account that the client id names; empty if it names none.
    pub(crate) account: String,
    pub(crate) form: BTreeMap<String, String>,
    /// True if the client named itself in the header `authorization`.
    pub(crate) basic: bool,
    /// The status of the answer; 0 if there was none.
    pub(crate) status: u16,
    /// The access token that was given.
    pub(crate) token: Option<String>,
    /// When that token expires.
    pub(crate) ends: Option<Instant>,
}

/// The endpoint. Dropping it closes the port.
pub(crate) struct FakeTokens {
    server: StubServer,
    state: Arc<Mutex<State>>,
    issuer: SecretIssuer,
}

struct State {
    issuer: SecretIssuer,
    ledger: Vec<Exchange>,
    /// How many tokens each account was given.
    given: HashMap<String, usize>,
    /// The number of the refresh token that is valid.
    good: HashMap<String, usize>,
    revoked: HashSet<String>,
    lifetime: Duration,
    delay: Duration,
    down: bool,
}

// === impl FakeTokens ===

impl FakeTokens {
    /// Starts it; its access tokens live for an hour.
    pub(crate) fn start() -> Self {
        let issuer = SecretIssuer::default();
        let state = Arc::new(Mutex::new(State {
            issuer: issuer.clone(),
            ledger: Vec::new(),
            given: HashMap::new(),
            good: HashMap::new(),
            revoked: HashSet::new(),
            lifetime: Duration::from_secs(3600),
            delay: Duration::ZERO,
            down: false,
        }));
        let serving = Arc::clone(&state);
        Self { server: StubServer::start(move |request| exchange(&serving, request)), state, issuer }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/oauth/token", self.server.address())
    }

    /// The secrets that it has accepted or issued.
    pub(super) fn issuer(&self) -> &SecretIssuer {
        &self.issuer
    }

    /// The lifetime of the access tokens that are given from now on.
    pub(crate) fn set_lifetime(&self, lifetime: Duration) {
        self.state().lifetime = lifetime;
    }

    /// Delays each exchange by this time from now on, so that other requests can come meanwhile.
    pub(crate) fn set_delay(&self, time: Duration) {
        self.state().delay = time;
    }

    /// The refresh token of this account is refused from now on.
    pub(crate) fn revoke(&self, account: &str) {
        self.state().revoked.insert(account.to_owned());
    }

    /// Sets whether it closes every connection without an answer.
    pub(crate) fn set_down(&self, down: bool) {
        self.state().down = down;
    }

    /// The exchanges that this account asked for.
    pub(crate) fn exchanges_of(&self, account: &str) -> Vec<Exchange> {
        self.ledger().into_iter().filter(|exchange| exchange.account == account).collect()
    }

    pub(crate) fn ledger(&self) -> Vec<Exchange> {
        self.state().ledger.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn exchange(state: &Mutex<State>, request: &StubRequest) -> Option<(u16, String)> {
    let delay = lock(state).delay;
    pause(delay);
    let mut state = lock(state);
    let form = decoded_fields(&request.body);
    let client = client(request, &form);
    let account = client.as_ref().and_then(|(id, _)| id.strip_prefix("client-")).unwrap_or_default().to_owned();
    let known = client.is_some_and(|(_, secret)| secret == format!("secret-{account}"));
    let mut line = Exchange {
        account,
        basic: request.header("authorization").is_some(),
        form,
        status: 0,
        token: None,
        ends: None,
    };
    let answer = if state.down { None } else { Some(state.answer_exchange(&mut line, known)) };
    line.status = answer.as_ref().map_or(0, |(status, _)| *status);
    state.ledger.push(line);
    answer
}

// === impl State ===

impl State {
    fn answer_exchange(&mut self, line: &mut Exchange, known: bool) -> (u16, String) {
        let refused =
            |status, word: &str| (status, json!({"error": word, "error_description": "token-canary"}).to_string());
        if !known {
            return refused(401, "invalid_client");
        }
        let account = line.account.clone();
        self.issuer.add_secret("client secret", &format!("secret-{account}"));
        let field = |name: &str| line.form.get(name).map(String::as_str).unwrap_or_default();
        let mut rotated = None;
        match field("grant_type") {
            "client_credentials" => {}
            "refresh_token" => {
                let good = *self.good.entry(account.clone()).or_insert(0);
                let expected = format!("refresh-{account}-{good}");
                if field("refresh_token") != expected || self.revoked.contains(&account) {
                    return refused(400, "invalid_grant");
                }
                self.issuer.add_secret("refresh token", &expected);
                self.good.insert(account.clone(), good + 1);
                rotated = Some(format!("refresh-{account}-{}", good + 1));
            }
            _ => return refused(400, "unsupported_grant_type"),
        }
        let given = self.given.entry(account.clone()).or_insert(0);
        *given += 1;
        let token = format!("access-{account}-{given}");
        let mut answer = json!({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime.as_secs()});
        self.issuer.add_secret("access token", &token);
        if let Some(rotated) = rotated {
            self.issuer.add_secret("refresh token", &rotated);
            answer["refresh_token"] = rotated.into();
        }
        line.token = Some(token);
        line.ends = Some(Instant::now() + self.lifetime);
        (200, answer.to_string())
    }
}

/// The client's id and secret, from the header or from the form.
pub(super) fn client(request: &StubRequest, form: &BTreeMap<String, String>) -> Option<(String, String)> {
    if let Some(encoded) = request.header("authorization").and_then(|value| value.strip_prefix("Basic ")) {
        let text = String::from_utf8(STANDARD.decode(encoded).ok()?).ok()?;
        let (id, secret) = text.split_once(':')?;
        return Some((decoded(id), decoded(secret)));
    }
    Some((form.get("client_id")?.clone(), form.get("client_secret").cloned().unwrap_or_default()))
}

/// The fields of a URL-encoded form, or of the query of a URL.
pub(crate) fn decoded_fields(encoded: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(encoded);
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// Decodes a name or value of a URL-encoded form.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair: String = rest.by_ref().take(2).map(char::from).collect();
                u8::from_str_radix(&pair, 16).expect("two hexadecimal digits")
            }
            other => other,
        });
    }
    String::from_utf8(bytes).expect("text")
}
