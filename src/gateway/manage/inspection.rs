//! Operations that do not change accounts: opening them for a command, and probes of the credentials and of models.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::model_probe::{self, RefusalSource};
use super::{AccountSource, ManageError, ManagedAccount, find, list};
use crate::gateway::accounts::{AccountEndpoint, Accounts, CredentialService, Lease, UpstreamAddress};
use crate::gateway::admission::RequestBudgets;
use crate::gateway::config::{self, AddressPolicy, Config};
use crate::gateway::store::{NodeId, Store, StoreError, random_base62};
use crate::gateway::upstream::{ServiceCallError, UpstreamClient};

/// The result of a probe.
#[derive(Debug)]
pub(crate) struct ProbeOutcome {
    /// The status of the upstream's answer; `None` for a simulator, which needs no probe.
    pub(crate) status: Option<u16>,
    /// The duration of the call, without the time to fetch a token.
    pub(crate) latency: Duration,
}

/// The accounts of the file and the store, and the client of their upstreams.
pub(crate) struct OpenAccounts {
    /// The accounts.
    pub(crate) accounts: Arc<Accounts>,
    /// Makes the calls.
    pub(crate) upstream: Arc<UpstreamClient>,
}

/// Probes an account: requests the upstream's list of models with the credentials of the account. A probe makes no
/// image and costs nothing.
///
/// # Errors
///
/// Returns an error if there is no such account, if no call can be sent for it now, or if the upstream gives no answer.
pub(crate) async fn probe(config: &Config, store: &Arc<dyn Store>, handle: &str) -> Result<ProbeOutcome, ManageError> {
    let outcome = with_lease(config, store, handle, async |upstream, lease| {
        let start = Instant::now();
        let status = match lease.endpoint().address() {
            None => Ok(None),
            Some(address) => upstream.probe(address, lease.authorization()).await.map(Some),
        };
        (status, start.elapsed())
    });
    match outcome.await? {
        (_, (Ok(status), latency)) => Ok(ProbeOutcome { status, latency }),
        (name, (Err(error), _)) => Err(ManageError::NoAnswer(name, error)),
    }
}

/// Learns the rules of an image model from refusals of the account's upstream, and returns them as a `[[models]]` table.
/// No request can be fulfilled, so it costs nothing.
///
/// # Errors
///
/// Returns the errors of [`probe`], and an error if the account has no image endpoints, or if the upstream accepts a
/// request or refuses all of them for another reason.
pub(crate) async fn probe_model(
    config: &Config,
    store: &Arc<dyn Store>,
    handle: &str,
    model: &str,
    further_fields: &[String],
) -> Result<String, ManageError> {
    let learned = with_lease(config, store, handle, async |upstream, lease| {
        let AccountEndpoint::Images(address) = lease.endpoint() else { return None };
        let mut source = UpstreamRefusals { upstream, address, authorization: lease.authorization() };
        Some(model_probe::learn(&mut source, model, further_fields).await)
    });
    let (name, learned) = learned.await?;
    let learned = learned.ok_or_else(|| ManageError::NoImageEndpoints(name.clone()))?;
    let findings = learned.map_err(|stop| ManageError::ModelProbe(name, stop))?;
    Ok(model_probe::to_toml(model, &findings))
}

/// The upstream of an account, as the source of refusals.
struct UpstreamRefusals<'a> {
    upstream: &'a UpstreamClient,
    address: &'a UpstreamAddress,
    authorization: Option<&'a HeaderValue>,
}

impl RefusalSource for UpstreamRefusals<'_> {
    type Error = ServiceCallError;

    async fn request(&mut self, fields: &Map<String, Value>) -> Result<(u16, Vec<u8>), ServiceCallError> {
        let (status, body) = self.upstream.request_refusal(self.address, self.authorization, fields).await?;
        Ok((status, body.to_vec()))
    }
}

/// Leases an account for calls that make no image. Returns the name of the account, and the result of `call`.
async fn with_lease<T>(
    config: &Config,
    store: &Arc<dyn Store>,
    handle: &str,
    call: impl AsyncFnOnce(&UpstreamClient, &Lease) -> T,
) -> Result<(String, T), ManageError> {
    let managed = find(config, &**store, handle).await?;
    ensure_row(&**store, &managed).await?;
    let ManagedAccount { name, account, .. } = managed;
    let account = account.map_err(|problem| ManageError::Unusable(name.clone(), problem))?;
    // A command may have been started without the secrets that the settings refer to.
    let missing_secrets = config.absent_secrets_of(&name);
    if !missing_secrets.is_empty() {
        return Err(ManageError::InvalidSettings(missing_secrets));
    }
    let OpenAccounts { accounts, upstream } = open_accounts(config, store).await?;
    let group = account.groups.first().map_or(config::DEFAULT_GROUP, String::as_str);
    let result = match accounts.lease_account(&name, group).await {
        Ok(lease) => Some(call(&upstream, &lease).await),
        // The account is disabled or in a cooldown, or the token endpoint has just caused one.
        Err(_) => None,
    };
    // `finish` stores a token that was fetched for the call.
    accounts.finish().await;
    match result {
        Some(result) => Ok((name, result)),
        None => Err(ManageError::Unavailable(name)),
    }
}

/// Writes the row of an account of the file with which no server has started yet, because tokens are stored with it.
///
/// # Errors
///
/// Returns an error if the store fails.
pub(crate) async fn ensure_row(store: &dyn Store, managed: &ManagedAccount) -> Result<(), StoreError> {
    match (&managed.row, &managed.account) {
        (None, Ok(account)) => store.sync_account(super::account_spec(account)).await.map(drop),
        _ => Ok(()),
    }
}

/// Opens the accounts of the file and the store as a server does, but without background tasks, because a command ends
/// soon. The running calls of a server are not known.
///
/// # Errors
///
/// Returns an error if no call can be sent from this machine, or if the store fails.
pub(crate) async fn open_accounts(config: &Config, store: &Arc<dyn Store>) -> Result<OpenAccounts, ManageError> {
    // The client reads the certificates of the machine when it needs them.
    let (addresses, budgets) =
        (AddressPolicy::for_services(config.allow_link_local), RequestBudgets::new(&config.uploads));
    let upstream = UpstreamClient::new(config.deadlines.connect, addresses, budgets).map(Arc::new)?;
    let endpoint = Arc::clone(&upstream) as Arc<dyn CredentialService>;
    let file_accounts =
        list(config, &**store).await?.into_iter().filter(|account| account.origin == AccountSource::File);
    let file_accounts: Vec<config::AccountConfig> = file_accounts.filter_map(|account| account.account.ok()).collect();
    // The node id differs from the server's: if both fetch a token at the same time, one of them must wait.
    let suffix = random_base62::<12>()?;
    let node = NodeId::from(format!("command-{}", String::from_utf8_lossy(&suffix)));
    let accounts =
        Accounts::open(&file_accounts, Arc::clone(store) as _, store.vault().clone(), endpoint, node).await?;
    Ok(OpenAccounts { accounts, upstream })
}

// === impl ProbeOutcome ===

impl ProbeOutcome {
    /// True if the upstream accepts the account.
    pub(crate) fn is_accepted(&self) -> bool {
        self.status.is_none_or(|status| (200..300).contains(&status))
    }
}
