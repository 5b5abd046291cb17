//! The properties of the installation, as both databases keep them.

use async_trait::async_trait;

use super::master_key_rotation;
use super::{SqlDatabase, SqlStore};
use crate::gateway::store::{InstallationStore, MasterKey, NodeId, PepperKey, ServeLock, StoreError, Vault};

#[async_trait]
impl InstallationStore for SqlStore {
    fn vault(&self) -> &Vault {
        &self.vault
    }

    fn pepper_key(&self) -> &PepperKey {
        &self.pepper
    }

    fn node_id(&self) -> &NodeId {
        &self.node
    }

    async fn record_heartbeat(&self) -> Result<(), StoreError> {
        match self.as_shared() {
            Some(store) => store.write_heartbeat().await,
            None => Ok(()),
        }
    }

    async fn close_records_of_dead_nodes(&self) -> Result<u64, StoreError> {
        match self.as_shared() {
            Some(store) => store.interrupt_dead_nodes().await,
            None => Ok(0),
        }
    }

    fn lock_for_serving(&self) -> Result<ServeLock, StoreError> {
        self.data_dir.lock_for_serving()
    }

    async fn rotate_master_key(&self, next: Option<MasterKey>) -> Result<(), StoreError> {
        master_key_rotation::rotate(self, next).await
    }

    async fn close(&self) {
        self.readers.close().await;
        match &self.database {
            // The last process to close the file merges the write-ahead log into it.
            SqlDatabase::Sqlite(database) => database.close().await,
            SqlDatabase::Postgres(database) => database.batch_writer.close().await,
        }
        self.writer.close().await;
    }
}
