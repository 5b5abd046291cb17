//! A test double of the store for accounts and their tokens, which counts calls and can let them fail.

use super::*;
use crate::gateway::store::testing::CallFailure;
use crate::gateway::store::{AccountBinding, TokenRow};

/// A wrapper of a store that counts calls and can let every call fail.
pub(super) struct AccountStoreDouble {
    inner: Arc<SqlStore>,
    /// The number of calls of any method.
    pub(super) calls: AtomicUsize,
    pub(super) failure: CallFailure,
}

impl AccountStoreDouble {
    pub(super) fn wrapping(inner: &Arc<SqlStore>) -> Arc<Self> {
        let (inner, calls) = (Arc::clone(inner), AtomicUsize::new(0));
        Arc::new(Self { inner, calls, failure: CallFailure::default() })
    }

    fn inner(&self) -> Result<&SqlStore, StoreError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.failure.check().map(|()| &*self.inner)
    }
}

#[async_trait]
impl AccountStore for AccountStoreDouble {
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        self.inner()?.sync_account(account).await
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        self.inner()?.list_accounts().await
    }

    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError> {
        self.inner()?.insert_account(audit, account).await
    }

    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError> {
        self.inner()?.change_account(audit, name, change).await
    }

    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError> {
        self.inner()?.delete_account(audit, name).await
    }

    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError> {
        self.inner()?.mark_others_absent(in_file, at).await
    }

    async fn find_bindings(&self, digests: &[&str]) -> Result<Vec<AccountBinding>, StoreError> {
        self.inner()?.find_bindings(digests).await
    }
}

#[async_trait]
impl TokenStore for AccountStoreDouble {
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        self.inner()?.load_token(account).await
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        self.inner()?.claim_refresh(account, holder, now, until).await
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        self.inner()?.store_token(account, holder, sealed).await
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        self.inner()?.release_refresh(account, holder).await
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        self.inner()?.delete_token(account).await
    }
}
