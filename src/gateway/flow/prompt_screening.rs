//! Checks a prompt against the operator's content rules, and refuses it before an upstream is called.

use std::sync::Arc;

use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::request_failure::unreadable_body_error;
use crate::error::{Error, Rejection, RejectionReason, UpstreamFault};
use crate::gateway::admission::Admission;
use crate::gateway::config::ModerationErrorPolicy;
use crate::gateway::front::spool_error;
use crate::gateway::keys::Caller;
use crate::gateway::rules::{Job, ResponseJob, TextScope, TextWindows};
use crate::gateway::upstream::UpstreamClient;
use crate::image::ByteSource as _;

/// The windows in which words and patterns are applied (our choice).
const RULE_WINDOWS: TextWindows = TextWindows { length: 256 * 1024, overlap: 32 * 1024 };
/// The pieces that are moderated (our choice): the prompt of an image request always fits into one.
const MODERATION_WINDOWS: TextWindows = TextWindows { length: 32_000, overlap: 500 };
/// The most bytes of a request that are moderated (our choice): more than a text model takes.
const MODERATED_MAX: usize = 4 * 1024 * 1024;
/// The number of pieces of a request that are moderated at the same time (our choice).
const MODERATION_CALLS: usize = 4;

/// Checks the texts of a request for images: first against the words and patterns of the group, then with its moderation
/// service, if it has one.
///
/// # Errors
///
/// Returns the same error as a refusal by the upstream. If the moderation service fails, the setting `on_error` decides
/// between no error and 503.
pub(super) async fn check_images(upstream: &UpstreamClient, caller: &Caller, job: &Job) -> Result<(), Error> {
    let added = job.added_texts();
    for text in [Some(job.prompt()), added.as_deref(), job.end_user()].into_iter().flatten() {
        apply_rules(caller, text)?;
    }
    for text in [Some(job.prompt()), added.as_deref()].into_iter().flatten() {
        moderate(upstream, caller, text).await?;
    }
    Ok(())
}

/// Checks a response job, with or without an image tool: the tool may come in a later turn. The words and patterns are
/// applied to every text of the request. Its sentences are sent to the moderation service: the whole conversation, and what
/// else a text model reads.
///
/// # Errors
///
/// Returns the errors of [`check_images`], 400 for a conversation that is too long to be moderated, and an error if the job
/// cannot be read back from disk or there is no memory for its sentences.
pub(super) async fn check_response(
    upstream: &Arc<UpstreamClient>,
    caller: &Caller,
    admission: &Admission,
    job: &Arc<ResponseJob>,
) -> Result<(), Error> {
    if caller.filter().has_rules() {
        let caller = caller.clone();
        read_job(job, move |job| {
            let mut verdict = Ok(());
            job.visit_texts(TextScope::All, RULE_WINDOWS, |text| {
                verdict = apply_rules(&caller, text);
                verdict.is_err()
            })?;
            verdict
        })
        .await?;
    }
    let Some(moderation) = caller.filter().moderation() else { return Ok(()) };
    let mut memory = admission.memory();
    let most = usize::try_from(job.body().len()).unwrap_or(usize::MAX).min(MODERATED_MAX);
    memory.set_bytes(most as u64).map_err(|error| spool_error(&error))?;
    let (pieces, is_whole) = read_job(job, read_sentences).await?;
    for pieces in pieces.chunks(MODERATION_CALLS) {
        moderate_pieces(upstream, caller, pieces).await?;
    }
    if is_whole || moderation.on_error == ModerationErrorPolicy::Open {
        return Ok(());
    }
    let message = format!(
        "Invalid 'input': too long. The texts of a request with this key may have at most {MODERATED_MAX} bytes, because \
         they are moderated."
    );
    Err(Rejection::new("input", RejectionReason::StringAboveMax, message).into())
}

/// Returns the sentences of a job in pieces that a moderation service takes, and true if these are all.
fn read_sentences(job: &ResponseJob) -> Result<(Vec<String>, bool), Error> {
    let (mut pieces, mut length) = (Vec::new(), 0);
    job.visit_texts(TextScope::Sentences, MODERATION_WINDOWS, |text| {
        length += text.len();
        if length <= MODERATED_MAX {
            pieces.push(text.trim_end().to_owned());
        }
        length > MODERATED_MAX
    })?;
    Ok((pieces, length <= MODERATED_MAX))
}

/// Sends pieces to the moderation service of the group at once.
async fn moderate_pieces(upstream: &Arc<UpstreamClient>, caller: &Caller, pieces: &[String]) -> Result<(), Error> {
    let mut calls = JoinSet::new();
    for piece in pieces {
        let (upstream, caller, piece) = (Arc::clone(upstream), caller.clone(), piece.clone());
        calls.spawn(async move { moderate(&upstream, &caller, &piece).await }.in_current_span());
    }
    while let Some(verdict) = calls.join_next().await {
        verdict.map_err(|_| Error::Internal)??;
    }
    Ok(())
}

/// Reads a job from memory or disk.
async fn read_job<T: Send + 'static>(
    job: &Arc<ResponseJob>,
    read: impl FnOnce(&ResponseJob) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let task = Arc::clone(job);
    job.body().read_with(move || read(&task)).await.map_err(|error| unreadable_body_error(&error))?
}

fn apply_rules(caller: &Caller, text: &str) -> Result<(), Error> {
    if let Some(rule) = caller.filter().find(text) {
        tracing::info!(rule, group = caller.group_name(), "the content filter refuses a prompt");
        return Err(Error::Upstream(UpstreamFault::ContentRefused));
    }
    Ok(())
}

/// Calls the moderation service of the group, if it has one.
async fn moderate(upstream: &UpstreamClient, caller: &Caller, prompt: &str) -> Result<(), Error> {
    let Some(moderation) = caller.filter().moderation() else { return Ok(()) };
    match upstream.moderate(moderation, prompt).await {
        Ok(false) => Ok(()),
        Ok(true) => {
            tracing::info!(group = caller.group_name(), "the moderation service refuses a prompt");
            Err(Error::Upstream(UpstreamFault::ContentRefused))
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
