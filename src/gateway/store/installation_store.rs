//! The properties of the whole installation: its keys, and the right to serve.

use std::time::Duration;

use async_trait::async_trait;

use super::{MasterKey, NodeId, PepperKey, ServeLock, StoreError, Vault};

/// The time without a heartbeat after which a node counts as dead (our choice): longer than any statement may wait, and
/// short enough that the records of a dead node do not look alive for long.
pub(crate) const NODE_TIMEOUT: Duration = Duration::from_secs(60);

/// The parts of an open store that belong to no single subject.
#[async_trait]
pub(crate) trait InstallationStore: Send + Sync {
    /// Returns the vault that seals secrets for this database, and for files beside it.
    fn vault(&self) -> &Vault;

    /// Returns the key under which API keys are hashed.
    fn pepper_key(&self) -> &PepperKey;

    /// Returns the id under which this node writes records. It is the same after a restart of the node.
    fn node_id(&self) -> &NodeId;

    /// Tells the other nodes of a shared database that this one lives. Does nothing if no other node can share it.
    async fn record_heartbeat(&self) -> Result<(), StoreError>;

    /// Closes as interrupted the running records of nodes that have written no heartbeat for [`NODE_TIMEOUT`], removes
    /// what their jobs without a record have reserved, and returns the number of records.
    async fn close_records_of_dead_nodes(&self) -> Result<u64, StoreError>;

    /// Returns the right to serve from the data directory of this node. It is held until the lock is dropped.
    ///
    /// # Errors
    /// Returns [`StoreError::InUse`] if another process serves from the directory.
    fn lock_for_serving(&self) -> Result<ServeLock, StoreError>;

    /// Wraps every data key with another master key. The sealed data stays as it is, and a server that runs at the same
    /// time is not affected, because it holds the data keys themselves.
    ///
    /// If the key is in `master.key`, that file changes too, and a random key is made if no next key is given. If the
    /// configuration gives the key, the next key must be given, and the configuration must be changed afterwards.
    ///
    /// # Errors
    /// Returns [`StoreError::MasterKey`] if the next key is missing, and [`StoreError::Damaged`] if the key of the
    /// configuration is no longer in use. In both cases, nothing has changed.
    async fn rotate_master_key(&self, next: Option<MasterKey>) -> Result<(), StoreError>;

    /// Closes every connection, after the writes that are running.
    async fn close(&self);
}
