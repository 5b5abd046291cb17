//! Accounts that are asked what they know. Nothing is made, so no place is taken and nothing is learnt.

use std::sync::Arc;

use http::HeaderValue;

use super::account::{Access, Account};
use super::{Accounts, NoToken, Unreachable};
use crate::gateway::config::Protocol;

/// An account that can answer for text models. Another one as soon as its settings change.
pub(crate) type Speaker = Account;

// === impl Accounts ===

impl Accounts {
    /// The enabled accounts that serve this group and can hold a conversation, in the order in which they were added.
    pub(crate) fn speakers(&self, group: &str) -> Vec<Arc<Speaker>> {
        let inner = self.pool.lock();
        let enabled = inner.members.iter().filter(|member| member.disabled.is_none()).map(|member| &member.account);
        let speakers = enabled.filter(|account| account.serves(group) && account.speaks(Some(Protocol::Responses)));
        speakers.cloned().collect()
    }

    /// What lets a question in.
    ///
    /// # Errors
    ///
    /// Where there is no token now.
    pub(crate) async fn pass(&self, speaker: &Speaker) -> Result<Option<HeaderValue>, Unreachable> {
        match speaker.access() {
            Access::Open => Ok(None),
            Access::Key(header) => Ok(Some(header.clone())),
            Access::Token(keeper) => match self.tokens.access(keeper).await {
                Ok(header) => Ok(Some(header)),
                Err(NoToken::Revoked(code)) => {
                    self.put_out(&keeper.account, code).await;
                    Err(Unreachable)
                }
                Err(NoToken::Trouble) => Err(Unreachable),
            },
        }
    }
}
