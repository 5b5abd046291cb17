//! Applies the limits of a request's group and key.

use std::sync::Arc;

use super::job_context::JobContext;
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::Gateway;
use crate::gateway::config::RequestLimits;
use crate::gateway::keys::Caller;
use crate::gateway::ledger::RecordDraft;
use crate::gateway::limits::{JobDemand, LimitError, LimitReservation, LimitSubject, SubjectLimits};
use crate::gateway::rules::SharedTask;
use crate::image::SizeRequest;

/// The images that a request asks for.
struct RequestedWork<'a> {
    /// The image model, if the request names it.
    model: Option<&'a str>,
    size: SizeRequest,
    quality: Option<&'a str>,
    /// The prefix of the parameters in messages.
    prefix: &'static str,
}

/// Checks the size, the quality and the model of a request. Nothing has been reserved or sent yet.
///
/// # Errors
///
/// 400 for the first parameter that is above a limit.
pub(super) fn check(gateway: &Gateway, caller: &Caller, task: &SharedTask) -> Result<(), Error> {
    let Some(work) = requested_work(task) else { return Ok(()) };
    for SubjectLimits { limits, .. } in subjects(gateway, caller) {
        work.check(&limits)?;
    }
    Ok(())
}

/// Reserves what a job asks for.
///
/// # Errors
///
/// 429 for a limit that is reached, 503 if there is a budget and a price is unknown or the usage cannot be read.
pub(super) async fn reserve(context: &JobContext, draft: &RecordDraft) -> Result<LimitReservation, Error> {
    let images = match &context.task {
        SharedTask::Images(job) => job.count(),
        SharedTask::Response(job) => u32::from(job.image_tool().is_some()),
    };
    let demand = JobDemand { images, cost: draft.max_cost_usd };
    let subjects = subjects(&context.gateway, &context.caller);
    context.gateway.limiter().reserve(subjects, demand).await.map_err(|error| to_error(error, context))
}

/// Returns the key and the group of a caller, if they have limits.
fn subjects(gateway: &Gateway, caller: &Caller) -> Vec<SubjectLimits> {
    let group = caller.group_name();
    let key_limits = caller.limits().map(|limits| (LimitSubject::Key(caller.key().clone()), limits));
    let group_limits = gateway.request_limits(group).map(|limits| (LimitSubject::Group(group.to_owned()), limits));
    let limited = key_limits.into_iter().chain(group_limits);
    limited.map(|(subject, limits)| SubjectLimits { subject, limits: Arc::clone(limits) }).collect()
}

fn requested_work(task: &SharedTask) -> Option<RequestedWork<'_>> {
    Some(match task {
        SharedTask::Images(job) => {
            RequestedWork { model: Some(job.model()), size: job.size(), quality: job.quality(), prefix: "" }
        }
        SharedTask::Response(job) => {
            let tool = job.image_tool()?;
            RequestedWork { model: None, size: tool.size, quality: tool.quality.as_deref(), prefix: "tools." }
        }
    })
}

fn to_error(error: LimitError, context: &JobContext) -> Error {
    match error {
        LimitError::Reached(refusal) => Error::LimitReached(Box::new(refusal)),
        LimitError::ImagesAboveLimit { name, limit } => {
            let message = format!("Invalid 'n': the limit '{name}' allows at most {limit} images.");
            Rejection::new("n", RejectionReason::IntegerAboveMax, message).into()
        }
        LimitError::PriceUnknown => Error::PriceUnknown(context.task.model().to_owned()),
        LimitError::Store(error) => {
            tracing::error!(error = &error as &dyn std::error::Error, "the usage of a limit could not be read");
            Error::Unavailable
        }
    }
}

// === impl RequestedWork ===

impl RequestedWork<'_> {
    fn check(&self, limits: &RequestLimits) -> Result<(), Error> {
        let reject = |param: &str, message: String| {
            let param = format!("{}{param}", self.prefix);
            Err(Rejection::new(param, RejectionReason::InvalidValue, message).into())
        };
        if let Some(max) = limits.max_size
            && self.size.exact().is_none_or(|size| size.pixels() > max.pixels())
        {
            let size = self.size;
            let message = format!("Invalid 'size': the limit 'max_size' allows at most {max}, but got '{size}'.");
            return reject("size", message);
        }
        if let Some(max) = limits.max_quality
            && !max.allows(self.quality)
        {
            let (max, quality) = (max.as_str(), self.quality.unwrap_or("auto"));
            let message =
                format!("Invalid 'quality': the limit 'max_quality' allows at most '{max}', but got '{quality}'.");
            return reject("quality", message);
        }
        if let Some(models) = &limits.models
            && let Some(model) = self.model.filter(|model| !models.iter().any(|allowed| allowed == model))
        {
            let models = models.iter().map(|model| format!("'{model}'")).collect::<Vec<_>>().join(", ");
            return reject("model", format!("Invalid 'model': the limit 'models' allows {models}, but got '{model}'."));
        }
        Ok(())
    }
}
