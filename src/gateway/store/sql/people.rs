//! The store of people. The statements are in the files of this folder, one file for each kind of row.

mod groups;
mod identities;
mod links;
mod second_factors;
pub(in super::super) mod sessions;
mod tokens;
mod users;

use async_trait::async_trait;

use super::SqlStore;
use super::audit_trail;
use super::error_conversion::during;
use crate::gateway::store::{AuditFilter, AuditRow, ListPage, PeopleStore, SharedAttempts, StoreError};

#[async_trait]
impl PeopleStore for SqlStore {
    fn shared_attempts(&self) -> Option<&dyn SharedAttempts> {
        self.as_shared().map(|store| store as _)
    }

    async fn list_audit_page(&self, filter: &AuditFilter) -> Result<ListPage<AuditRow>, StoreError> {
        audit_trail::page(&self.readers, filter).await.map_err(during("reading the audit trail"))
    }
}
