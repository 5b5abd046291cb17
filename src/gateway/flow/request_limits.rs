//! Applies the limits of a request's group, user and key.

use super::cost_estimate::CostEstimate;
use super::image_services::ImageServices;
use super::job_context::JobContext;
use crate::error::{Error, LimitRefusal, Rejection, RejectionReason};
use crate::gateway::config::RequestLimits;
use crate::gateway::keys::Caller;
use crate::gateway::limits::{
    BUDGET, JobDemand, LimitError, LimitReservation, LimitSubject, RequestLimiter, SubjectLimits,
};
use crate::gateway::money::Usd;
use crate::gateway::rules::{SharedTask, TaskRef};
use crate::gateway::store::StoreError;
use crate::image::SizeRequest;

/// The images that a request or one of its image tools asks for.
struct RequestedWork<'a> {
    model: &'a str,
    size: SizeRequest,
    quality: Option<&'a str>,
    /// The path of the image tool; `None` if these are parameters of the request itself.
    tool: Option<&'a str>,
}

/// Checks the size, the quality and the model of a request. Nothing has been reserved or sent yet.
///
/// # Errors
///
/// 400 for the first parameter that is above a limit.
pub(super) fn check(caller: &Caller, task: TaskRef<'_>) -> Result<(), Error> {
    let work = requested_work(task);
    caller.all_limits().try_for_each(|limits| work.iter().try_for_each(|work| work.check(limits)))
}

/// Reserves what a job asks for.
///
/// # Errors
///
/// 429 for a limit that is reached, 503 if there is a budget and a price is unknown or the usage cannot be read.
pub(super) async fn reserve(context: &JobContext, cost: &CostEstimate) -> Result<LimitReservation, Error> {
    let (services, caller) = (&context.services, &context.caller);
    let (subjects, demand) = (subjects(caller), demand(&context.task, cost));
    let request_id = context.options.request_id.as_str().into();
    services.limiter.reserve(&request_id, subjects, demand).await.map_err(|error| to_error(error, cost))
}

/// Returns the error that a job would get now because a limit is reached, or because there is a budget and a price is
/// unknown. Nothing is reserved.
///
/// # Errors
///
/// 400 for a job that asks for more images than a limit ever allows, 503 if the usage cannot be read.
pub(super) async fn current_refusal(
    limiter: &RequestLimiter,
    caller: &Caller,
    task: &SharedTask,
    cost: &CostEstimate,
) -> Result<Option<Error>, Error> {
    let checked = limiter.check(&subjects(caller), &demand(task, cost)).await;
    let Err(error) = checked else { return Ok(None) };
    let is_current = matches!(error, LimitError::Reached(_) | LimitError::PriceUnknown);
    let error = to_error(error, cost);
    if is_current { Ok(Some(error)) } else { Err(error) }
}

/// Returns the limit that would refuse any job of the caller now; `None` if there is none. Nothing is reserved.
///
/// # Errors
///
/// 503 if the usage cannot be read.
pub(super) async fn refusal_of_a_job(services: &ImageServices, caller: &Caller) -> Result<Option<LimitRefusal>, Error> {
    // The smallest amount of money: a budget that is spent has not even that, unless a model costs nothing.
    let cost = if services.prices.table().has_free_model() { Usd::ZERO } else { Usd::from_nanos(1) };
    let demand = JobDemand { images: 1, cost: Some(cost), ..JobDemand::default() };
    match services.limiter.check(&subjects(caller), &demand).await {
        // A job that waits for room in a budget may still begin.
        Err(LimitError::Reached(refusal)) => {
            Ok(Some(refusal).filter(|refusal| refusal.is_quota || refusal.limit != BUDGET))
        }
        Err(LimitError::Store(error)) => Err(unread_usage(&error)),
        Ok(()) | Err(LimitError::FullyReserved(_) | LimitError::ImagesAboveLimit { .. } | LimitError::PriceUnknown) => {
            Ok(None)
        }
    }
}

/// Counts a request that gets a stored answer in the limits on requests by the minute.
///
/// # Errors
///
/// 429 for a limit that is reached, 503 if the usage cannot be read.
pub(super) async fn count_repeat(limiter: &RequestLimiter, caller: &Caller, request_id: &str) -> Result<(), Error> {
    let counted = limiter.count_repeat(&request_id.into(), subjects(caller)).await;
    counted.map_err(|error| match error {
        LimitError::Reached(refusal) => Error::LimitReached(Box::new(refusal)),
        LimitError::Store(error) => unread_usage(&error),
        LimitError::FullyReserved(_) | LimitError::ImagesAboveLimit { .. } | LimitError::PriceUnknown => {
            Error::Internal
        }
    })
}

/// Returns the error for a usage that cannot be read.
pub(super) fn unread_usage(error: &StoreError) -> Error {
    tracing::error!(error = error as &dyn std::error::Error, "the usage of a limit could not be read");
    Error::Unavailable
}

fn demand(task: &SharedTask, cost: &CostEstimate) -> JobDemand {
    let images = match task {
        SharedTask::Images(job) => job.count(),
        SharedTask::Response(job) => u32::from(job.image_tool().is_some()),
    };
    JobDemand { images, cost: cost.job, bound: cost.bound }
}

/// Returns the key, its user and its group, with or without limits.
fn subjects(caller: &Caller) -> Vec<SubjectLimits> {
    vec![
        SubjectLimits::new(LimitSubject::Key(caller.key().clone()), caller.limits()),
        SubjectLimits::new(LimitSubject::User(caller.user().clone()), caller.user_limits()),
        SubjectLimits::new(LimitSubject::Group(caller.group_name().to_owned()), caller.group_limits()),
    ]
}

fn requested_work(task: TaskRef<'_>) -> Vec<RequestedWork<'_>> {
    match task {
        TaskRef::Images(job) => {
            vec![RequestedWork { model: job.model(), size: job.size(), quality: job.quality(), tool: None }]
        }
        TaskRef::Response(job) => {
            let work = job.image_tools().iter().map(|tool| RequestedWork {
                model: &tool.model,
                size: tool.size,
                quality: tool.quality.as_deref(),
                tool: Some(&tool.path),
            });
            work.collect()
        }
    }
}

fn to_error(error: LimitError, cost: &CostEstimate) -> Error {
    match error {
        LimitError::Reached(refusal) | LimitError::FullyReserved(refusal) => Error::LimitReached(Box::new(refusal)),
        LimitError::ImagesAboveLimit { name, limit } => {
            let message = format!("Invalid 'n': the limit '{name}' allows at most {limit} images.");
            Rejection::new("n", RejectionReason::IntegerAboveMax, message).into()
        }
        LimitError::PriceUnknown => {
            Error::PriceUnknown(cost.unknown.as_ref().map(|unknown| unknown.model.clone()).unwrap_or_default())
        }
        LimitError::Store(error) => unread_usage(&error),
    }
}

// === impl RequestedWork ===

impl RequestedWork<'_> {
    fn check(&self, limits: &RequestLimits) -> Result<(), Error> {
        let reject = |field: &str, message: String| {
            let param = self.tool.map_or_else(|| field.to_owned(), |tool| format!("{tool}.{field}"));
            let message = format!("Invalid '{param}': {message}");
            Err(Rejection::new(param, RejectionReason::InvalidValue, message).into())
        };
        if let Some(max) = limits.max_size
            && self.size.exact().is_none_or(|size| size.pixels() > max.pixels())
        {
            let size = self.size;
            return reject("size", format!("the limit 'max_size' allows at most {max}, but got '{size}'."));
        }
        if let Some(max) = limits.written.max_quality
            && !max.allows(self.quality)
        {
            let (max, quality) = (max.as_str(), self.quality.unwrap_or("auto"));
            return reject("quality", format!("the limit 'max_quality' allows at most '{max}', but got '{quality}'."));
        }
        if let Some(models) = &limits.written.models
            && !models.iter().any(|allowed| allowed == self.model)
        {
            let models = models.iter().map(|model| format!("'{model}'")).collect::<Vec<_>>().join(", ");
            return reject("model", format!("the limit 'models' allows {models}, but got '{}'.", self.model));
        }
        Ok(())
    }
}
