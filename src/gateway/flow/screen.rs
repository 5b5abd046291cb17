//! What the operator does not want made is refused before anything is spent.

use std::sync::Arc;

use super::unreadable;
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
    judge(gateway, group, async { Ok(prompt.to_owned()) }).await
}

/// The task of a text model that may draw: the rules are held against everything that may find its way into an image,
/// and what the user said last is judged.
///
/// # Errors
///
/// As [`check`]; and where the task cannot be read back from the disk.
pub(super) async fn check_task(gateway: &Arc<Gateway>, group: &str, job: &Arc<ResponseJob>) -> Result<(), Error> {
    if gateway.filters().has_rules(group) {
        let (gateway, group) = (Arc::clone(gateway), group.to_owned());
        read(job, move |job| {
            let mut verdict = Ok(());
            job.hear(|words| {
                verdict = rules(&gateway, &group, words);
                verdict.is_err()
            })?;
            verdict
        })
        .await?;
    }
    judge(gateway, group, read(job, ResponseJob::prompt)).await
}

/// Reads a task wherever it lies.
async fn read<T: Send + 'static>(
    job: &Arc<ResponseJob>,
    read: impl FnOnce(&ResponseJob) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let task = Arc::clone(job);
    job.body().reading(move || read(&task)).await.map_err(|error| unreadable(&error))?
}

fn rules(gateway: &Gateway, group: &str, words: &str) -> Result<(), Error> {
    if let Verdict::Refused { rule } = gateway.filters().check(group, words) {
        tracing::info!(rule, group, "the content filter refuses a prompt");
        return Err(Error::Upstream(Fault::Refused));
    }
    Ok(())
}

/// The prompt is looked for only where somebody judges it.
async fn judge(
    gateway: &Gateway,
    group: &str,
    prompt: impl Future<Output = Result<String, Error>> + Send,
) -> Result<(), Error> {
    let Some(moderation) = gateway.filters().moderation(group) else { return Ok(()) };
    match gateway.upstream().moderate(moderation, &prompt.await?).await {
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
