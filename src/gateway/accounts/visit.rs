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
    pub(crate) fn speakers(&self, group: &str) -> Vec<Arc<TextModelAccount>> {
        let inner = self.pool.lock();
        let enabled = inner.members.iter().filter(|member| member.disabled.is_none()).map(|member| &member.account);
        let speakers =
            enabled.filter(|account| account.serves(group) && account.speaks(Some(UpstreamProtocol::Responses)));
        speakers.cloned().collect()
    }

    /// Returns the credentials for a call.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no token now.
    pub(crate) async fn pass(&self, speaker: &TextModelAccount) -> Result<Option<HeaderValue>, TokenEndpointError> {
        match speaker.access() {
            AccountAuth::Open => Ok(None),
            AccountAuth::Key(header) => Ok(Some(header.clone())),
            AccountAuth::Token(keeper) => match self.tokens.access(keeper).await {
                Ok(header) => Ok(Some(header)),
                Err(TokenFailure::Revoked(code)) => {
                    self.put_out(&keeper.account, code).await;
                    Err(TokenEndpointError)
                }
                Err(TokenFailure::Trouble) => Err(TokenEndpointError),
            },
        }
    }
}
