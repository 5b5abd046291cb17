//! Checks a prompt against the operator's content rules, and refuses it before an upstream is called.

use std::sync::Arc;

use super::unreadable_body_error;
use crate::error::{Error, UpstreamFault};
use crate::gateway::Gateway;
use crate::gateway::config::ModerationErrorPolicy;
use crate::gateway::filter::FilterVerdict;
use crate::gateway::rules::ResponseJob;

/// Checks a prompt that consists of one text: first against the words and patterns of the group, then with its moderation
/// service, if it has one.
///
/// # Errors
///
/// Returns the same error as a refusal by the upstream. If the moderation service fails, the setting `on_error` decides
/// between no error and 503.
pub(super) async fn check_prompt(gateway: &Gateway, group: &str, prompt: &str) -> Result<(), Error> {
    apply_rules(gateway, group, prompt)?;
    moderate(gateway, group, async { Ok(prompt.to_owned()) }).await
}

/// Checks a response job with an image tool. The words and patterns are applied to every text that may get into an
/// image, and the last text of the user is sent to the moderation service.
///
/// # Errors
///
/// Returns the errors of [`check_prompt`], and an error if the job cannot be read back from disk.
pub(super) async fn check_response(gateway: &Arc<Gateway>, group: &str, job: &Arc<ResponseJob>) -> Result<(), Error> {
    if gateway.filters().has_rules(group) {
        let (gateway, group) = (Arc::clone(gateway), group.to_owned());
        read_job(job, move |job| {
            let mut verdict = Ok(());
            job.visit_texts(|text| {
                verdict = apply_rules(&gateway, &group, text);
                verdict.is_err()
            })?;
            verdict
        })
        .await?;
    }
    moderate(gateway, group, read_job(job, ResponseJob::prompt)).await
}

/// Reads a job from memory or disk.
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

/// Calls the moderation service. The prompt is read only if the group has such a service.
async fn moderate(
    gateway: &Gateway,
    group: &str,
    prompt: impl Future<Output = Result<String, Error>> + Send,
) -> Result<(), Error> {
    let Some(moderation) = gateway.filters().moderation(group) else { return Ok(()) };
    match gateway.upstream().moderate(moderation, &prompt.await?).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!(group, "the moderation service refuses a prompt");
            Err(Error::Upstream(UpstreamFault::Refused))
        }
        Err(error) => {
            let open = moderation.on_error == ModerationErrorPolicy::Open;
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                open,
                "the moderation service did not check a prompt"
            );
            if open { Ok(()) } else { Err(Error::Unavailable) }
        }
    }
}
