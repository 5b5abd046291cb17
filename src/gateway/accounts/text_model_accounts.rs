//! Accounts that are asked for their models. No image is made, so no slot is taken and the result changes no account.

use std::sync::Arc;

use http::HeaderValue;

use super::account::{AccountAuth, UpstreamAccount};
use super::{Accounts, TokenEndpointError, TokenFailure};
use crate::gateway::config::UpstreamProtocol;

/// An account that can answer for text models. It is a new object after each change of its settings.
pub(crate) type TextModelAccount = UpstreamAccount;

// === impl Accounts ===

impl Accounts {
    /// Returns the enabled accounts that serve this group and can hold a conversation, in the order in which they were
    /// added.
    pub(crate) fn text_model_accounts(&self, group: &str) -> Vec<Arc<TextModelAccount>> {
        let inner = self.pool.lock();
        let enabled =
            inner.members.iter().filter(|member| member.disabled_reason.is_none()).map(|member| &member.account);
        let accounts = enabled.filter(|account| {
            account.serves_group(group) && account.supports_protocol(Some(UpstreamProtocol::Responses))
        });
        accounts.cloned().collect()
    }

    /// Returns the credentials for a call.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no token now.
    pub(crate) async fn authorization_for(
        &self,
        account: &TextModelAccount,
    ) -> Result<Option<HeaderValue>, TokenEndpointError> {
        match account.auth() {
            AccountAuth::Unauthenticated => Ok(None),
            AccountAuth::Key(header) => Ok(Some(header.clone())),
            AccountAuth::Token(cache) => match self.token_fetcher.valid_token(cache).await {
                Ok(header) => Ok(Some(header)),
                Err(TokenFailure::Revoked(code)) => {
                    self.disable_revoked_account(&cache.account, code).await;
                    Err(TokenEndpointError)
                }
                Err(TokenFailure::Temporary) => Err(TokenEndpointError),
            },
        }
    }
}
