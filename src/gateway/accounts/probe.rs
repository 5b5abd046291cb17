//! Checks credentials that were refused several times, separately from requests, before their account is disabled.
//!
//! A caller's request can cause a refusal; the answer to `GET /models` depends on the credentials alone.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::account::UpstreamAccount;
use super::{Accounts, TokenEndpointError};

// === impl Accounts ===

impl Accounts {
    /// Checks the credentials of every account in doubt, each in its own task and never twice at the same time.
    pub(super) fn try_doubted(self: &Arc<Self>) {
        for (member, account) in self.pool.take_doubted() {
            let accounts = Arc::clone(self);
            Handle::current().spawn(async move { accounts.try_credentials(member, &account).await });
        }
    }

    async fn try_credentials(&self, member: u64, account: &Arc<UpstreamAccount>) {
        let status = self.status_of_credentials(account).await.ok();
        tracing::warn!(account = account.name(), status, "refused credentials were checked with a separate request");
        self.pool.tried(member, account, status);
        self.save(account.name()).await;
    }

    async fn status_of_credentials(&self, account: &Arc<UpstreamAccount>) -> Result<u16, TokenEndpointError> {
        let authorization = self.pass(account).await?;
        let address = account.endpoint().address().ok_or(TokenEndpointError)?;
        self.endpoint.probe(address, authorization.as_ref()).await
    }
}
