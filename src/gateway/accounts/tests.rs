//! Tests of the accounts with a real store: state survives a restart, changes made by other processes arrive, and a
//! token is fetched once for all requests that need it.

mod conversations;
mod double;
mod shared_slots;
mod state;
mod tokens;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Semaphore;

use super::*;
use crate::gateway::config::{
    AccountCredentials, AccountProtocol, AccountTier, ConfigSecret, GrantConfig, OauthClientAuth, OauthConfig,
};
use crate::gateway::store::InstallationStore as _;
use crate::gateway::store::testing::new_store;
use crate::gateway::store::{AccountChange, AccountRow, AccountSpec, AuditContext, NewAccount, SqlStore, Timestamp};

/// A text in the secrets of these tests, which must not appear in debug output or, unencrypted, in a file of the store.
const CANARY: &str = "canary";

/// A credential service whose exchanges follow a script, and whose answers wait for permits.
struct FakeCredentialService {
    exchanges: AtomicUsize,
    forms: Mutex<Vec<String>>,
    /// The answers that are left, of which the last one is repeated. If the script is empty, every exchange succeeds.
    script: Mutex<Vec<Result<(u16, String), CredentialServiceError>>>,
    /// Each permit allows one exchange.
    gate: Semaphore,
    /// The status of the answer to a credential check; 0 stands for no answer.
    probe: AtomicU16,
    probes: AtomicUsize,
    /// Each permit allows one answer to a check.
    probe_gate: Semaphore,
}

impl FakeCredentialService {
    /// Returns a service whose exchange number N issues `canary-access-N` and `canary-refresh-N`.
    fn rotating() -> Arc<Self> {
        Self::scripted(Vec::new())
    }

    fn scripted(script: Vec<Result<(u16, String), CredentialServiceError>>) -> Arc<Self> {
        Arc::new(Self {
            exchanges: AtomicUsize::new(0),
            forms: Mutex::default(),
            script: Mutex::new(script),
            gate: Semaphore::new(1000),
            probe: AtomicU16::new(200),
            probes: AtomicUsize::new(0),
            probe_gate: Semaphore::new(1000),
        })
    }

    fn refusing(code: &str) -> Arc<Self> {
        Self::scripted(vec![Ok((400, format!(r#"{{"error":"{code}","error_description":"{CANARY}"}}"#)))])
    }

    fn exchanges(&self) -> usize {
        self.exchanges.load(Ordering::SeqCst)
    }

    fn last_form(&self) -> String {
        self.forms.lock().unwrap().last().cloned().unwrap_or_default()
    }

    fn next(&self) -> Result<(u16, String), CredentialServiceError> {
        let number = self.exchanges.fetch_add(1, Ordering::SeqCst) + 1;
        let mut script = self.script.lock().unwrap();
        match script.len() {
            0 => Ok((
                200,
                format!(
                    r#"{{"access_token":"{CANARY}-access-{number}","refresh_token":"{CANARY}-refresh-{number}","expires_in":3600}}"#
                ),
            )),
            1 => script[0].clone(),
            _ => script.remove(0),
        }
    }
}

#[async_trait]
impl CredentialService for FakeCredentialService {
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenResponse, CredentialServiceError> {
        self.forms.lock().unwrap().push(request.form);
        self.gate.acquire().await.unwrap().forget();
        let (status, body) = self.next()?;
        Ok(TokenResponse { status, body: Bytes::from(body) })
    }

    async fn probe(&self, _: &UpstreamAddress, _: Option<&HeaderValue>) -> Result<u16, CredentialServiceError> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.probe_gate.acquire().await.unwrap().forget();
        match self.probe.load(Ordering::SeqCst) {
            0 => Err(CredentialServiceError),
            status => Ok(status),
        }
    }
}

fn endpoint(credentials: AccountCredentials) -> config::UpstreamConfig {
    config::UpstreamConfig::Api(config::EndpointConfig {
        base_url: "https://images.example/v1".parse().unwrap(),
        protocol: AccountProtocol::Images,
        host_model: String::new(),
        image_urls: config::AccountImageUrls::Refuse,
        credentials,
        headers: http::HeaderMap::new(),
        phrases: config::FailurePhrases::default(),
    })
}

fn account(name: &str, upstream: config::UpstreamConfig) -> config::AccountConfig {
    config::AccountConfig {
        name: name.to_owned(),
        upstream,
        tier: AccountTier::Paid,
        groups: vec!["default".to_owned()],
        priority: 0,
        concurrency: NonZeroU32::new(64).unwrap(),
        large_concurrency: NonZeroU32::new(2).unwrap(),
        implicit: false,
    }
}

fn with_key(name: &str) -> config::AccountConfig {
    account(name, endpoint(AccountCredentials::ApiKey(ConfigSecret::new(format!("{CANARY}-key"), "here"))))
}

fn with_token(name: &str, refresh: &str) -> config::AccountConfig {
    account(
        name,
        endpoint(AccountCredentials::Oauth(OauthConfig {
            token_url: "https://login.example/token".parse().unwrap(),
            grant: GrantConfig::RefreshToken(ConfigSecret::new(refresh.to_owned(), "here")),
            client_id: Some("client".to_owned()),
            client_secret: None,
            client_auth: OauthClientAuth::Body,
            scope: None,
            audience: None,
        })),
    )
}

/// Opens the accounts as the server does when it starts, but without the refresh task.
async fn start(
    store: &Arc<SqlStore>,
    node: &str,
    accounts: &[config::AccountConfig],
    endpoint: &Arc<FakeCredentialService>,
) -> Arc<Accounts> {
    for account in accounts {
        let (kind, protocol) = (account.upstream.kind(), "images");
        store.sync_account(AccountSpec { name: &account.name, kind, protocol, tier: "paid" }).await.unwrap();
    }
    let endpoint = Arc::clone(endpoint) as Arc<dyn CredentialService>;
    Accounts::open(accounts, Arc::clone(store) as _, store.vault().clone(), endpoint, NodeId::from(node)).await.unwrap()
}

fn requirements() -> AccountRequirements {
    AccountRequirements { group: "default".to_owned(), ..AccountRequirements::default() }
}

async fn lease(accounts: &Arc<Accounts>) -> Result<Lease, LeaseRefusal> {
    accounts.acquire_lease(&RequesterId::from_name("key_1"), requirements(), SLOT_WAIT_MAX).await
}

/// Refreshes the accounts once, as the refresh task does every half second, and checks that the store was read.
async fn refresh(accounts: &Arc<Accounts>) {
    assert!(Arc::clone(accounts).refresh_once(true).await);
}

async fn row(store: &SqlStore, name: &str) -> AccountRow {
    store.list_accounts().await.unwrap().into_iter().find(|row| row.name == name).unwrap()
}

async fn change(store: &SqlStore, name: &str, change: AccountChange) {
    store.change_account(&AuditContext::command(), name, change).await.unwrap().unwrap();
}

fn authorization_text(lease: &Lease) -> &str {
    lease.authorization().unwrap().to_str().unwrap()
}
