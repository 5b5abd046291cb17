//! Accounts for calls that make no image, such as a list of models. Such a call takes no slot, and its result is no
//! account feedback; only a revoked token disables its account.

use std::sync::Arc;

use http::HeaderValue;

use super::account::{AccountAuth, UpstreamAccount};
use super::cooldown::WorkKind;
use super::{Accounts, CredentialServiceError, TokenFailure};

/// An account that offers text models. A change of settings creates a new object; the old one keeps the old settings.
pub(crate) type TextModelAccount = UpstreamAccount;

// === impl Accounts ===

impl Accounts {
    /// Returns the enabled accounts that serve this group and support the Responses API, in the order in which they
    /// were added.
    pub(crate) fn text_model_accounts(&self, group: &str) -> Vec<Arc<TextModelAccount>> {
        let state = self.pool.lock();
        let enabled =
            state.members.iter().filter(|member| member.disabled_reason.is_none()).map(|member| &member.account);
        let accounts = enabled.filter(|account| account.serves_group(group) && account.supports(Some(WorkKind::Text)));
        accounts.cloned().collect()
    }

    /// True if no account that serves this group and supports the Responses API serves another group, even one that is
    /// disabled: it may be enabled again.
    pub(crate) fn serve_only(&self, group: &str) -> bool {
        let state = self.pool.lock();
        let mut serving = state
            .members
            .iter()
            .map(|member| &member.account)
            .filter(|account| account.serves_group(group) && account.supports(Some(WorkKind::Text)));
        serving.all(|account| account.serves_only(group))
    }

    /// Returns the authorization header for a call; `None` if the account needs none.
    ///
    /// # Errors
    ///
    /// Returns an error if the account needs a token and none can be fetched now.
    pub(crate) async fn authorization_header(
        &self,
        account: &TextModelAccount,
    ) -> Result<Option<HeaderValue>, CredentialServiceError> {
        match account.auth() {
            AccountAuth::Unauthenticated => Ok(None),
            AccountAuth::Key(header) => Ok(Some(header.clone())),
            AccountAuth::Token(cache) => match self.token_fetcher.valid_token(cache).await {
                Ok(header) => Ok(Some(header)),
                Err(TokenFailure::Revoked(code)) => {
                    self.disable_revoked_account(&cache.account, code).await;
                    Err(CredentialServiceError)
                }
                Err(TokenFailure::Temporary) => Err(CredentialServiceError),
            },
        }
    }
}
