//! Opens the store that the settings name: a PostgreSQL database, or the SQLite database of the data folder.

use std::sync::Arc;

use super::{DatabaseUrl, MasterKey, SqlStore, Store, StoreError};
use crate::gateway::config::{Config, Durability};

/// Opens the store of a configuration, for the server or for a command, which may run at the same time as a server.
///
/// # Errors
///
/// Returns an error if the data directory or the master key cannot be used.
pub(crate) async fn open_store(config: &Config) -> Result<Arc<dyn Store>, StoreError> {
    let master_key = config.master_key.as_ref().map(|secret| MasterKey::from_text(secret.expose())).transpose()?;
    let syncs_commits = config.durability == Durability::Power;
    if let Some(url) = &config.database_url {
        let url = DatabaseUrl::parse(url.expose())?;
        let store = SqlStore::open_postgres(&config.data_dir, &url, master_key).await?;
        return Ok(if syncs_commits { Arc::new(store) } else { Arc::new(store.without_commit_sync()) });
    }
    let store = SqlStore::open_sqlite(&config.data_dir, master_key).await?;
    Ok(if syncs_commits { Arc::new(store) } else { Arc::new(store.without_commit_sync()) })
}
