//! The room with a real store: what is learnt survives, what others change arrives, and tokens are fetched once.

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
use crate::gateway::config::{ClientAuth, Credentials, Grant, Oauth, Protocol, Secret, Tier};
use crate::gateway::store::testing::fresh;
use crate::gateway::store::{AccountChange, AccountRow, AccountSpec, Act, NewAccount, SqliteStore, Timestamp};

/// Nothing that is a secret may turn up anywhere else.
const CANARY: &str = "canary";

/// A token endpoint that follows a script.
struct FakeTokens {
    exchanges: AtomicUsize,
    forms: Mutex<Vec<String>>,
    /// The answers still to come; the last one is given again and again.
    script: Mutex<Vec<Result<(u16, String), Unreachable>>>,
    /// One permit is one exchange.
    gate: Semaphore,
    /// The status that a check of credentials by themselves gets.
    probe: AtomicU16,
    probes: AtomicUsize,
    /// One permit is one answer to a check.
    probe_gate: Semaphore,
}

impl FakeTokens {
    /// Hands out `canary-access-N` and `canary-refresh-N`.
    fn rotating() -> Arc<Self> {
        Self::scripted(Vec::new())
    }

    fn scripted(script: Vec<Result<(u16, String), Unreachable>>) -> Arc<Self> {
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

    fn next(&self) -> Result<(u16, String), Unreachable> {
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
impl TokenEndpoint for FakeTokens {
    async fn exchange(&self, request: TokenRequest<'_>) -> Result<TokenAnswer, Unreachable> {
        self.forms.lock().unwrap().push(request.form);
        self.gate.acquire().await.unwrap().forget();
        let (status, body) = self.next()?;
        Ok(TokenAnswer { status, body: Bytes::from(body) })
    }

    async fn probe(&self, _: &Address, _: Option<&HeaderValue>) -> Result<u16, Unreachable> {
        self.probes.fetch_add(1, Ordering::SeqCst);
        self.probe_gate.acquire().await.unwrap().forget();
        match self.probe.load(Ordering::SeqCst) {
            0 => Err(Unreachable),
            status => Ok(status),
        }
    }
}

fn endpoint(credentials: Credentials) -> config::Upstream {
    config::Upstream::Api(config::Endpoint {
        base_url: "https://images.example/v1".parse().unwrap(),
        protocol: Protocol::Images,
        host_model: String::new(),
        credentials,
        headers: http::HeaderMap::new(),
    })
}

fn account(name: &str, upstream: config::Upstream) -> config::Account {
    config::Account {
        name: name.to_owned(),
        upstream,
        tier: Tier::Paid,
        groups: vec!["default".to_owned()],
        priority: 0,
        concurrency: NonZeroU32::new(64).unwrap(),
        large_concurrency: NonZeroU32::new(2).unwrap(),
        implicit: false,
    }
}

fn with_key(name: &str) -> config::Account {
    account(name, endpoint(Credentials::ApiKey(Secret::new(format!("{CANARY}-key"), "here"))))
}

fn with_token(name: &str, refresh: &str) -> config::Account {
    account(
        name,
        endpoint(Credentials::Oauth(Oauth {
            token_url: "https://login.example/token".parse().unwrap(),
            grant: Grant::RefreshToken(Secret::new(refresh.to_owned(), "here")),
            client_id: Some("client".to_owned()),
            client_secret: None,
            client_auth: ClientAuth::Body,
            scope: None,
            audience: None,
        })),
    )
}

/// A start of the server, as far as this room is concerned.
async fn start(
    store: &Arc<SqliteStore>,
    node: &str,
    accounts: &[config::Account],
    endpoint: &Arc<FakeTokens>,
) -> Arc<Accounts> {
    for account in accounts {
        let (kind, protocol) = (account.upstream.kind(), "images");
        store.sync_account(AccountSpec { name: &account.name, kind, protocol, tier: "paid" }).await.unwrap();
    }
    let (endpoint, shared) = (Arc::clone(endpoint) as Arc<dyn TokenEndpoint>, Arc::clone(store) as Arc<dyn Store>);
    Accounts::open(accounts, shared, store.vault().clone(), endpoint, NodeId::from(node)).await.unwrap()
}

fn wanted() -> Wanted {
    Wanted { group: "default".to_owned(), ..Wanted::default() }
}

async fn lease(accounts: &Arc<Accounts>) -> Result<Lease, NoLease> {
    accounts.take(&Requester::alone("key_1"), wanted()).await
}

/// What a look each half second does.
async fn round(accounts: &Arc<Accounts>) {
    assert!(Arc::clone(accounts).round(true).await);
}

async fn row(store: &SqliteStore, name: &str) -> AccountRow {
    store.list_accounts().await.unwrap().into_iter().find(|row| row.name == name).unwrap()
}

async fn change(store: &SqliteStore, name: &str, change: AccountChange) {
    store.change_account(&Act::command(), name, change).await.unwrap().unwrap();
}

fn shown(lease: &Lease) -> &str {
    lease.authorization().unwrap().to_str().unwrap()
}
