//! What the operator does not want made is refused before anything is spent.

use crate::error::{Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::config::OnError;
use crate::gateway::filter::Verdict;

/// What is looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    /// Everything that may find its way into an image: the operator's rules are held against it.
    pub(super) all: &'a str,
    /// What is asked for: a service judges it.
    pub(super) prompt: &'a str,
}

/// The operator's own rules, and then the moderation endpoint, where the group has one.
///
/// # Errors
///
/// A refusal reads as one of the upstream. Where the endpoint does not answer the operator has said what that means.
pub(super) async fn check(gateway: &Gateway, group: &str, words: Words<'_>) -> Result<(), Error> {
    if let Verdict::Refused { rule } = gateway.filters().check(group, words.all) {
        tracing::info!(rule, group, "the content filter refuses a prompt");
        return Err(Error::Upstream(Fault::Refused));
    }
    let Some(moderation) = gateway.filters().moderation(group) else { return Ok(()) };
    match gateway.upstream().moderate(moderation, words.prompt).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!(group, "the moderation endpoint refuses a prompt");
            Err(Error::Upstream(Fault::Refused))
        }
        Err(error) => {
            let open = moderation.on_error == OnError::Open;
            tracing::warn!(error = &error as &dyn std::error::Error, open, "the moderation endpoint does not answer");
            if open { Ok(()) } else { Err(Error::Unavailable) }
        }
    }
}
