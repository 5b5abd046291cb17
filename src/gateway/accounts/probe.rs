//! Checks refused credentials with a request of its own, before their account is disabled.
//!
//! A caller's request can cause a refusal; the answer to `GET /models` depends on the credentials alone.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::account::UpstreamAccount;
use super::{Accounts, CredentialServiceError};

// === impl Accounts ===

impl Accounts {
    /// Checks the credentials of every account in doubt, each in its own task and never twice at the same time.
    pub(super) fn check_suspected_credentials(self: &Arc<Self>) {
        for (member, account) in self.pool.take_credential_checks() {
            let accounts = Arc::clone(self);
            Handle::current().spawn(async move { accounts.check_credentials(member, &account).await });
        }
    }

    async fn check_credentials(&self, member: u64, account: &Arc<UpstreamAccount>) {
        let status = self.credential_status(account).await.ok();
        tracing::warn!(account = account.name(), status, "refused credentials were checked with a separate request");
        self.pool.apply_credential_check(member, account, status);
        self.save_state(account.name()).await;
    }

    async fn credential_status(&self, account: &Arc<UpstreamAccount>) -> Result<u16, CredentialServiceError> {
        let authorization = self.authorization_header(account).await?;
        let address = account.endpoint().address().ok_or(CredentialServiceError)?;
        self.token_endpoint.probe(address, authorization.as_ref()).await
    }
}
