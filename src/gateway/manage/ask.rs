//! What asks of accounts and changes none: which one would be taken, and whether one is let in.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::{Known, ManageError, Source, accounts, find};
use crate::gateway::accounts::{Accounts, Explained, TokenEndpoint};
use crate::gateway::config::{self, Config};
use crate::gateway::store::{NodeId, SqliteStore, Store, StoreError, random_base62};
use crate::gateway::upstream::{TransportError, Upstream};

/// What came of asking an account.
#[derive(Debug)]
pub(crate) struct Probed {
    /// Its name.
    pub(crate) name: String,
    /// What the upstream answered; nothing where the account is a simulator, which nobody has to ask.
    pub(crate) status: Option<u16>,
    /// How long that took, without the token.
    pub(crate) latency: Duration,
}

/// Every account in the order in which it would be taken for such a request, as far as the store knows: the calls that a
/// server has under way are not in it.
///
/// # Errors
///
/// Where the store has trouble.
pub(crate) async fn explain(
    config: &Config,
    store: &Arc<SqliteStore>,
    group: &str,
    large: bool,
    session: Option<&str>,
) -> Result<Vec<Explained>, ManageError> {
    let upstream = upstream(config)?;
    Ok(open(config, store, &upstream).await?.explain(group, large, session))
}

/// Asks the upstream of an account for its list of models, with the account's credentials. Nothing is made or paid for.
///
/// # Errors
///
/// There is no such account, or nothing can be sent for it now.
pub(crate) async fn probe(config: &Config, store: &Arc<SqliteStore>, handle: &str) -> Result<Probed, ManageError> {
    let Known { name, account, row, .. } = find(config, store, handle).await?;
    let account = account.map_err(|problem| ManageError::Unusable(name.clone(), problem))?;
    // Settings that a command was started with need not have the secrets.
    let absent = config.absent_of(&name);
    if !absent.is_empty() {
        return Err(ManageError::Settings(absent));
    }
    if row.is_none() {
        store.sync_account(crate::gateway::spec(&account)).await?;
    }
    let upstream = upstream(config)?;
    let accounts = open(config, store, &upstream).await?;
    let group = account.groups.first().map_or(config::DEFAULT_GROUP, String::as_str);
    let answer = match accounts.lease_of(&name, group).await {
        Ok(lease) => {
            let begun = Instant::now();
            let status = match lease.endpoint().address() {
                None => Ok(None),
                Some(address) => upstream.probe(address, lease.authorization()).await.map(Some),
            };
            Ok((status, begun.elapsed()))
        }
        // Either it is out or resting, or the token endpoint has just made it so.
        Err(_) => Err(accounts.explain(group, false, None).into_iter().find(|explained| explained.account == name)),
    };
    // A token that was fetched on the way is worth as much as the account.
    accounts.finish().await;
    match answer {
        Ok((Ok(status), latency)) => Ok(Probed { name, status, latency }),
        Ok((Err(failed), _)) => Err(ManageError::Silent(name, failed)),
        Err(explained) => Err(ManageError::NotNow(name, explained.map(|explained| explained.state))),
    }
}

fn upstream(config: &Config) -> Result<Arc<Upstream>, TransportError> {
    // The certificates of the machine are read when they are needed.
    Upstream::new(config.deadlines.connect, false).map(Arc::new)
}

/// The accounts as a server would have them. Nobody looks after them: what is done with them is soon over.
async fn open(
    config: &Config,
    store: &Arc<SqliteStore>,
    upstream: &Arc<Upstream>,
) -> Result<Arc<Accounts>, StoreError> {
    let endpoint = Arc::clone(upstream) as Arc<dyn TokenEndpoint>;
    let of_file = accounts(config, store).await?.into_iter().filter(|known| known.source == Source::File);
    let of_file: Vec<config::Account> = of_file.filter_map(|known| known.account.ok()).collect();
    // Another node than the server beside it: of two who fetch a token at once one must wait.
    let letters = random_base62::<12>()?;
    let node = NodeId::from(format!("command-{}", String::from_utf8_lossy(&letters)));
    let rows = Arc::clone(store) as Arc<dyn Store>;
    Accounts::open(&of_file, rows, store.vault().clone(), endpoint, node).await
}

// === impl Probed ===

impl Probed {
    /// Whether the upstream lets the account in.
    pub(crate) fn is_good(&self) -> bool {
        self.status.is_none_or(|status| (200..300).contains(&status))
    }
}
