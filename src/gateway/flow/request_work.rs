//! Lets a request begin only if its user, key and group have work left, before anything of its body is read.

use chrono::{TimeDelta, Utc};
use tokio::time::Instant;

use super::image_services::ImageServices;
use super::request_options::RequestOptions;
use super::{image_run, request_limits};
use crate::error::{Error, LimitRefusal};
use crate::gateway::config::RequestLimits;
use crate::gateway::keys::Caller;
use crate::gateway::people::Actor;
use crate::gateway::store::ReservationSubjectKind::{Group, Key, User};
use crate::gateway::store::Timestamp;
use crate::gateway::telemetry::Metrics;
use crate::gateway::work::{RequestWork, WORK_PER_MINUTE, WORK_WINDOW, WorkLimit, WorkRefusal};

/// Begins the work of a caller's request. The user has a limit always; a key without a user takes the place of the user.
///
/// # Errors
///
/// 429 if a limit is reached.
pub(super) fn begin(services: &ImageServices, caller: Caller) -> Result<Caller, Error> {
    let default = services.settings.config.work_per_minute;
    let limit_of = |limits: Option<&RequestLimits>| limits.and_then(|limits| limits.work_per_minute);
    let of_key = limit_of(caller.limits().map(AsRef::as_ref));
    let of_user = limit_of(caller.user_limits().map(AsRef::as_ref)).unwrap_or(default);
    let of_group = limit_of(caller.group_limits().map(AsRef::as_ref));
    let is_nobody = caller.user().is_nobody();
    let limits = [
        of_key.or(is_nobody.then_some(default)).map(|units| (Key, caller.key().as_str(), units)),
        (!is_nobody).then_some((User, caller.user().as_str(), of_user)),
        of_group.map(|units| (Group, caller.group_name(), units)),
    ];
    let limits: Vec<_> = limits.into_iter().flatten().map(|(kind, id, units)| WorkLimit { kind, id, units }).collect();
    let meter = services.limiter.work();
    let begun = meter.begin(&limits, Instant::now()).map_err(|refusal| {
        meter.count_refused(Key, caller.key().as_str());
        meter.count_refused(User, caller.user().as_str());
        refuse(&services.metrics, refusal)
    })?;
    Ok(caller.with_work(begun))
}

/// Begins the work of a request of the admin API or of a page. The admin token of the settings has no limit: with it,
/// an operator can raise the others.
///
/// # Errors
///
/// 429 if the limit of the user is reached.
pub(crate) fn begin_of_actor(services: &ImageServices, actor: &Actor) -> Result<RequestWork, Error> {
    let Some(user) = actor.user() else { return Ok(RequestWork::default()) };
    let own = user.limits.as_deref().and_then(work_limit_in);
    let units = own.unwrap_or(services.settings.config.work_per_minute);
    let meter = services.limiter.work();
    meter.begin(&[WorkLimit { kind: User, id: user.id.as_str(), units }], Instant::now()).map_err(|refusal| {
        meter.count_refused(User, user.id.as_str());
        refuse(&services.metrics, refusal)
    })
}

/// Returns the limit on work among the limits of a user as they are stored.
fn work_limit_in(limits: &str) -> Option<u32> {
    let limits: serde_json::Value = serde_json::from_str(limits).ok()?;
    limits.get(WORK_PER_MINUTE)?.as_u64()?.try_into().ok()
}

/// Refuses an upload whose job a limit would not allow now, before anything of it is read or fetched. A request that may
/// repeat an earlier one passes: its answer may have been paid for.
///
/// # Errors
///
/// 429 if a limit is reached, 503 if the usage cannot be read.
pub(crate) async fn check_upload(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    operation: &'static str,
) -> Result<(), Error> {
    let Some(refusal) = request_limits::refusal_of_a_job(services, caller).await? else { return Ok(()) };
    // A place among the concurrent requests may be free when the upload has arrived.
    if refusal.limit == "concurrent_jobs" || may_repeat(services, caller, options, operation).await? {
        return Ok(());
    }
    services.metrics.count_refused_work(refusal.limit);
    Err(Error::LimitReached(Box::new(refusal)))
}

/// True if the caller has sent a request with the same idempotency key, or, without one, any request whose answer a retry
/// may still get.
async fn may_repeat(
    services: &ImageServices,
    caller: &Caller,
    options: &RequestOptions,
    operation: &'static str,
) -> Result<bool, Error> {
    if let Some(key) = &options.idempotency_key {
        let found = services.replay.find_request(caller, operation, key).await;
        return Ok(found.map_err(|error| image_run::lookup_error(&error))?.is_some());
    }
    let since = Timestamp::now() - services.replay.retry_window();
    services.limiter.has_jobs_since(caller.key(), since).await.map_err(|error| request_limits::unread_usage(&error))
}

/// Counts a request that gets a stored answer.
///
/// # Errors
///
/// 429 if a limit on requests by the minute is reached, 503 if the usage cannot be read.
pub(crate) async fn count_repeat(services: &ImageServices, caller: &Caller, request_id: &str) -> Result<(), Error> {
    let Err(error) = request_limits::count_repeat(&services.limiter, caller, request_id).await else { return Ok(()) };
    if let Error::LimitReached(refusal) = &error {
        services.metrics.count_refused_work(refusal.limit);
    }
    Err(error)
}

/// Returns the error for a request that has no work left, and counts it in the metrics.
fn refuse(metrics: &Metrics, WorkRefusal { kind, units, wait }: WorkRefusal) -> Error {
    metrics.count_refused_work(WORK_PER_MINUTE);
    let resets_at = TimeDelta::from_std(wait).ok().map(|wait| (Utc::now() + wait).timestamp());
    // Another request is worthwhile when the debt is paid; a client shall not wait longer than for any other limit by the
    // minute.
    let wait = wait.min(WORK_WINDOW);
    Error::LimitReached(Box::new(LimitRefusal {
        scope: kind.as_str(),
        limit: WORK_PER_MINUTE,
        value: units.to_string(),
        resets_at,
        wait_seconds: wait.as_secs() + u64::from(wait.subsec_nanos() > 0),
        is_quota: false,
    }))
}
