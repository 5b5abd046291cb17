//! Checks the text models and the hosted tools that the requests of a group may use.

use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::Gateway;
use crate::gateway::rules::ResponseJob;

/// Checks a response request against the lists of its group.
///
/// # Errors
///
/// Returns 404 for a model that is not on the list of models. If the group has a list of tools, returns 400 for a tool
/// that is not on it, and for a prompt that is stored at the upstream.
pub(super) fn check(gateway: &Gateway, group: &str, job: &ResponseJob) -> Result<(), Error> {
    if gateway.allowed_text_models(group).is_some_and(|models| models.iter().all(|model| model != job.model())) {
        return Err(Error::NotFound(MissingResource::Model(shorten_for_message(job.model()))));
    }
    let Some(allowed) = gateway.allowed_tools(group) else { return Ok(()) };
    if let Some(tool) = job.hosted_tools().into_iter().find(|tool| !allowed.contains(&tool.kind)) {
        let message = format!("The tool '{}' is not available to this key.", shorten_for_message(&tool.kind));
        return Err(Rejection::new(tool.path, RejectionReason::InvalidValue, message).into());
    }
    if job.has_stored_prompt() {
        let message =
            "Prompts that are stored at the upstream are not available to this key, because they may contain tools.";
        return Err(Rejection::new("prompt", RejectionReason::InvalidValue, message).into());
    }
    Ok(())
}

/// Shortens a name that a caller wrote, and removes its control characters, for a message.
fn shorten_for_message(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(100).collect()
}
