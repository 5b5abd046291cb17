//! Checks the text models and the hosted tools that the requests of a group may use.

use crate::error::{Error, MissingResource, Rejection, RejectionReason};
use crate::gateway::config::FilterFilePolicy;
use crate::gateway::keys::Caller;
use crate::gateway::rules::{ResponseJob, StoredKind, UnjudgedPart};

/// Checks a response request against the lists and the filter of its group.
///
/// # Errors
///
/// Returns 404 for a model that is not on the list of models. If the group has a list of tools, returns 400 for a tool
/// that is not on it, and for a prompt that is stored at the upstream. If it has a filter, returns 400 for what the filter
/// cannot see. If it has either, returns 400 for what cannot be judged.
pub(super) fn check(caller: &Caller, job: &ResponseJob) -> Result<(), Error> {
    let group = caller.group();
    if group.text_models.as_ref().is_some_and(|models| models.iter().all(|model| model != job.model())) {
        return Err(Error::NotFound(MissingResource::Model(shorten_for_message(job.model()))));
    }
    let (tools, filters) = (group.tools.as_deref(), caller.filter().is_on());
    tools.map_or(Ok(()), |allowed| check_tools(allowed, job))?;
    if filters && group.filter_files == FilterFilePolicy::Refuse {
        check_files(job)?;
    }
    match job.contents().unjudged().filter(|_| filters || tools.is_some()) {
        None => Ok(()),
        Some(UnjudgedPart { path, reason }) => {
            let message = format!("Invalid '{path}': it {reason}, and this key has rules that depend on it.");
            Err(Rejection::new(path.clone(), RejectionReason::InvalidValue, message).into())
        }
    }
}

fn check_tools(allowed: &[String], job: &ResponseJob) -> Result<(), Rejection> {
    if let Some(tool) = job.hosted_tools().iter().find(|tool| !allowed.contains(&tool.kind)) {
        let message = format!("The tool '{}' is not available to this key.", shorten_for_message(&tool.kind));
        return Err(Rejection::new(tool.path.clone(), RejectionReason::InvalidValue, message));
    }
    if job.has_stored_prompt() {
        let message =
            "Prompts that are stored at the upstream are not available to this key, because they may contain tools.";
        return Err(Rejection::new("prompt", RejectionReason::InvalidValue, message));
    }
    Ok(())
}

/// Refuses texts that a filter cannot see, because they are in files or in a prompt that the upstream stores. Responses,
/// conversations and items that the user got were screened when they were made; no others can be named.
fn check_files(job: &ResponseJob) -> Result<(), Rejection> {
    let was_screened = |kind| matches!(kind, StoredKind::Response | StoredKind::Conversation | StoredKind::Item);
    let stored = job.contents().stored().iter().find(|stored| !was_screened(stored.kind));
    let found = job.contents().inputs().first_file.as_ref().or_else(|| stored.map(|stored| &stored.path));
    let Some(path) = found.cloned().or_else(|| job.has_stored_prompt().then(|| "prompt".to_owned())) else {
        return Ok(());
    };
    let message = format!(
        "Invalid '{path}': files and stored prompts are not available to this key, because its filter cannot see their \
         texts. Send the texts themselves instead."
    );
    Err(Rejection::new(path, RejectionReason::InvalidValue, message))
}

/// Shortens a name that a caller wrote to 100 characters (our choice), and removes its control characters, for a message.
fn shorten_for_message(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(100).collect()
}
