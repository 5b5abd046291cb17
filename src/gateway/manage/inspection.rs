//! Operations that read accounts and change none: the order of selection, and a probe of the credentials.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{AccountOrigin, ManageError, ManagedAccount, find, list};
use crate::gateway::accounts::{AccountExplanation, Accounts, TokenEndpoint};
use crate::gateway::config::{self, Config};
use crate::gateway::store::{NodeId, SqliteStore, Store, StoreError, random_base62};
use crate::gateway::upstream::{TransportError, UpstreamClient};

/// The result of a probe.
#[derive(Debug)]
pub(crate) struct ProbeOutcome {
    /// The name of the account.
    pub(crate) name: String,
    /// The status of the upstream's answer; `None` for a simulator, which needs no probe.
    pub(crate) status: Option<u16>,
    /// The duration of the call, without the fetching of a token.
    pub(crate) latency: Duration,
}

/// Lists every account in the order of selection for such a request, as far as the store knows. The calls that a
/// running server has in progress are not considered.
///
/// # Errors
///
/// Returns an error if the store fails.
pub(crate) async fn explain(
    config: &Config,
    store: &Arc<SqliteStore>,
    group: &str,
    large: bool,
    session: Option<&str>,
) -> Result<Vec<AccountExplanation>, ManageError> {
    let upstream = upstream_client(config)?;
    Ok(open_accounts(config, store, &upstream).await?.explain(group, large, session))
}

/// Probes an account: requests the upstream's list of models with the account's credentials. This makes no image and
/// costs nothing.
///
/// # Errors
///
/// Returns an error if there is no such account, or if no call can be sent for it now.
pub(crate) async fn probe(
    config: &Config,
    store: &Arc<SqliteStore>,
    handle: &str,
) -> Result<ProbeOutcome, ManageError> {
    let ManagedAccount { name, account, row, .. } = find(config, store, handle).await?;
    let account = account.map_err(|problem| ManageError::Unusable(name.clone(), problem))?;
    // The settings of a command may lack the secrets.
    let absent = config.absent_secrets_of(&name);
    if !absent.is_empty() {
        return Err(ManageError::InvalidSettings(absent));
    }
    if row.is_none() {
        store.sync_account(super::account_spec(&account)).await?;
    }
    let upstream = upstream_client(config)?;
    let accounts = open_accounts(config, store, &upstream).await?;
    let group = account.groups.first().map_or(config::DEFAULT_GROUP, String::as_str);
    let answer = match accounts.lease_account(&name, group).await {
        Ok(lease) => {
            let begun = Instant::now();
            let status = match lease.endpoint().address() {
                None => Ok(None),
                Some(address) => upstream.probe(address, lease.authorization()).await.map(Some),
            };
            Ok((status, begun.elapsed()))
        }
        // The account is disabled or in a cooldown, or the token endpoint has just caused one.
        Err(_) => Err(accounts.explain(group, false, None).into_iter().find(|explained| explained.account == name)),
    };
    // A token that was fetched on the way must be stored.
    accounts.finish().await;
    match answer {
        Ok((Ok(status), latency)) => Ok(ProbeOutcome { name, status, latency }),
        Ok((Err(failed), _)) => Err(ManageError::NoAnswer(name, failed)),
        Err(explained) => Err(ManageError::Unavailable(name, explained.map(|explained| explained.state))),
    }
}

fn upstream_client(config: &Config) -> Result<Arc<UpstreamClient>, TransportError> {
    // The certificates of the machine are read when they are needed.
    UpstreamClient::new(config.deadlines.connect, false).map(Arc::new)
}

/// Opens the accounts as a server does, but without background tasks: a command ends soon.
async fn open_accounts(
    config: &Config,
    store: &Arc<SqliteStore>,
    upstream: &Arc<UpstreamClient>,
) -> Result<Arc<Accounts>, StoreError> {
    let endpoint = Arc::clone(upstream) as Arc<dyn TokenEndpoint>;
    let of_file = list(config, store).await?.into_iter().filter(|known| known.source == AccountOrigin::File);
    let of_file: Vec<config::AccountConfig> = of_file.filter_map(|known| known.account.ok()).collect();
    // This node differs from the server's: if both fetch a token at once, one of them must wait.
    let letters = random_base62::<12>()?;
    let node = NodeId::from(format!("command-{}", String::from_utf8_lossy(&letters)));
    let rows = Arc::clone(store) as Arc<dyn Store>;
    Accounts::open(&of_file, rows, store.vault().clone(), endpoint, node).await
}

// === impl ProbeOutcome ===

impl ProbeOutcome {
    /// True if the upstream accepts the account.
    pub(crate) fn is_accepted(&self) -> bool {
        self.status.is_none_or(|status| (200..300).contains(&status))
    }
}
