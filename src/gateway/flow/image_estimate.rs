//! Handles an estimate: checks a request for images as if it were to be carried out, and says what it would cost at
//! most. Nothing is reserved, recorded or sent.

use serde_json::Map;

use super::cost_estimate::CostEstimate;
use super::image_services::ImageServices;
use super::request_failure::RequestFailure;
use super::request_options::RequestOptions;
use super::{cost_estimate, request_adaptation, request_limits, url_answer};
use crate::error::Error;
use crate::gateway::admission::CountedJson;
use crate::gateway::keys::Caller;
use crate::gateway::money::Usd;
use crate::gateway::rules::{Job, SharedTask, TaskRef};
use crate::gateway::store::CostBasis;
use crate::gateway::work::Work;
use crate::wire::types;

/// The word for the kind of the answer.
const OBJECT: &str = "image.cost_estimate";
/// The word for a property that a request leaves open.
const AUTO: &str = "auto";

/// The body of an answer, and the changes that its header states.
pub(crate) struct EstimateAnswer {
    /// The body.
    pub(crate) cost: types::CostEstimate,
    /// The changes that were made to the request, separated by commas, if there are any.
    pub(crate) adapted: Option<String>,
}

/// Handles `POST /v1/images/estimate`.
///
/// # Errors
///
/// Returns the errors that the request itself would get before anything is sent, except those of a limit that is reached
/// and of a price that is unknown: the answer states them. The failure states how the request was adapted.
pub(crate) async fn estimate_image(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    body: &CountedJson,
) -> Result<EstimateAnswer, RequestFailure> {
    caller.charge(Work::Estimate);
    let job = request_adaptation::check_generation(services, caller, options, body).await?;
    let adapted = job.adapted_text();
    match estimate_job(services, caller, options, job).await {
        Ok(cost) => Ok(EstimateAnswer { cost, adapted }),
        Err(error) => Err(RequestFailure::new(error, adapted)),
    }
}

async fn estimate_job(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    job: Job,
) -> Result<types::CostEstimate, Error> {
    let wants_urls = job.adaptations().asks_for_urls();
    let (model, images, size) = (job.model().to_owned(), job.count(), job.size().to_string());
    let quality = job.quality().unwrap_or(AUTO).to_owned();
    let price_version = cost_estimate::price_version(services, caller, &job);
    let most = cost_estimate::cost_bound(services, caller, &job, options.fallback_policy(caller));
    let task = SharedTask::from(job);
    if wants_urls {
        url_answer::refuse_stream(&task)?;
    }
    request_limits::check(caller, TaskRef::from(&task))?;
    if caller.group().problem.is_some() {
        return Err(Error::Unavailable);
    }
    let cost = CostEstimate::from(most);
    let refusal = request_limits::current_refusal(&services.limiter, caller, &task, &cost).await?;
    let (most, unknown) = (cost.job, cost.unknown);
    let basis = if most.is_some() { CostBasis::Estimated } else { CostBasis::Unknown };
    Ok(types::CostEstimate {
        object: OBJECT.to_owned(),
        model,
        images: images.into(),
        size,
        quality,
        max_cost_usd: most.map(Usd::dollars),
        cost_basis: basis.as_str().to_owned(),
        reason: unknown.as_ref().map(|unknown| unknown.reason.as_str().to_owned()),
        unpriced_model: unknown.map(|unknown| unknown.model),
        price_version: most.map(|_| price_version),
        refusal: refusal.map(error_detail).transpose()?,
        extra: Map::new(),
    })
}

/// Returns an error in the form in which an answer of the API states it.
fn error_detail(error: Error) -> Result<types::ErrorDetail, Error> {
    serde_json::from_value(error.body()["error"].take()).map_err(|error| {
        tracing::error!(
            error = &error as &dyn std::error::Error,
            "an error does not have the form of the API document"
        );
        Error::Internal
    })
}
