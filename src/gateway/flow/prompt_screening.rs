//! Checks a prompt against the operator's content rules, and refuses it before anything is spent.

use std::sync::Arc;

use super::unreadable_body_error;
use crate::error::{Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::config::ModerationErrorPolicy;
use crate::gateway::filter::FilterVerdict;
use crate::gateway::rules::ResponseJob;

/// Checks a prompt of one text: first the operator's own rules, then the moderation endpoint, if the group has one.
///
/// # Errors
///
/// A refusal looks like one of the upstream. If the endpoint does not answer, the operator's setting decides.
pub(super) async fn check_prompt(gateway: &Gateway, group: &str, prompt: &str) -> Result<(), Error> {
    apply_rules(gateway, group, prompt)?;
    moderate(gateway, group, async { Ok(prompt.to_owned()) }).await
}

/// Checks the task of a text model that may draw: the rules are applied to everything that may get into an image, and
/// the last text of the user goes to the moderation endpoint.
///
/// # Errors
///
/// Returns the errors of [`check_prompt`], and an error if the task cannot be read back from disk.
pub(super) async fn check_response(gateway: &Arc<Gateway>, group: &str, job: &Arc<ResponseJob>) -> Result<(), Error> {
    if gateway.filters().has_rules(group) {
        let (gateway, group) = (Arc::clone(gateway), group.to_owned());
        read_job(job, move |job| {
            let mut verdict = Ok(());
            job.visit_texts(|words| {
                verdict = apply_rules(&gateway, &group, words);
                verdict.is_err()
            })?;
            verdict
        })
        .await?;
    }
    moderate(gateway, group, read_job(job, ResponseJob::prompt)).await
}

/// Reads a task from memory or disk.
async fn read_job<T: Send + 'static>(
    job: &Arc<ResponseJob>,
    read: impl FnOnce(&ResponseJob) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let task = Arc::clone(job);
    job.body().read_with(move || read(&task)).await.map_err(|error| unreadable_body_error(&error))?
}

fn apply_rules(gateway: &Gateway, group: &str, text: &str) -> Result<(), Error> {
    if let FilterVerdict::Refused { rule } = gateway.filters().check(group, text) {
        tracing::info!(rule, group, "the content filter refuses a prompt");
        return Err(Error::Upstream(UpstreamFault::Refused));
    }
    Ok(())
}

/// Asks the moderation endpoint. The prompt is read only if the group has one.
async fn moderate(
    gateway: &Gateway,
    group: &str,
    prompt: impl Future<Output = Result<String, Error>> + Send,
) -> Result<(), Error> {
    let Some(moderation) = gateway.filters().moderation(group) else { return Ok(()) };
    match gateway.upstream().moderate(moderation, &prompt.await?).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!(group, "the moderation endpoint refuses a prompt");
            Err(Error::Upstream(UpstreamFault::Refused))
        }
        Err(error) => {
            let open = moderation.on_error == ModerationErrorPolicy::Open;
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                open,
                "the moderation endpoint did not judge a prompt"
            );
            if open { Ok(()) } else { Err(Error::Unavailable) }
        }
    }
}
