//! What the operator does not want made is refused before anything is spent.

use crate::error::{Error, Fault};
use crate::gateway::Gateway;
use crate::gateway::config::OnError;
use crate::gateway::filter::Verdict;
use crate::gateway::rules::ResponseJob;

/// A prompt of one text: the operator's own rules, and then the moderation endpoint, where the group has one.
///
/// # Errors
///
/// A refusal reads as one of the upstream. Where the endpoint does not answer the operator has said what that means.
pub(super) async fn check(gateway: &Gateway, group: &str, prompt: &str) -> Result<(), Error> {
    rules(gateway, group, prompt)?;
    judge(gateway, group, || Ok(prompt.to_owned())).await
}

/// The task of a text model that may draw: the rules are held against everything that may find its way into an image,
/// and what the user said last is judged.
///
/// # Errors
///
/// As [`check`]; and where the task cannot be read back from the disk.
pub(super) async fn check_task(gateway: &Gateway, group: &str, job: &ResponseJob) -> Result<(), Error> {
    if gateway.filters().has_rules(group) {
        let mut verdict = Ok(());
        job.hear(|words| {
            verdict = rules(gateway, group, words);
            verdict.is_err()
        })?;
        verdict?;
    }
    judge(gateway, group, || job.prompt()).await
}

fn rules(gateway: &Gateway, group: &str, words: &str) -> Result<(), Error> {
    if let Verdict::Refused { rule } = gateway.filters().check(group, words) {
        tracing::info!(rule, group, "the content filter refuses a prompt");
        return Err(Error::Upstream(Fault::Refused));
    }
    Ok(())
}

/// The prompt is looked for only where somebody judges it.
async fn judge(gateway: &Gateway, group: &str, prompt: impl FnOnce() -> Result<String, Error>) -> Result<(), Error> {
    let Some(moderation) = gateway.filters().moderation(group) else { return Ok(()) };
    match gateway.upstream().moderate(moderation, &prompt()?).await {
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
