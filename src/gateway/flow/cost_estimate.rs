//! The most that a job can cost, worked out before anything is sent.

use std::iter::successors;

use chrono::Utc;

use super::fallback_order;
use super::image_services::ImageServices;
use super::strict_budget::{self, TOOL_CALLS_MAX, hosted_kinds};
use crate::gateway::config::{FallbackPolicy, QualityLimit};
use crate::gateway::keys::Caller;
use crate::gateway::limits::BoundKind;
use crate::gateway::money::Usd;
use crate::gateway::prices::{
    INPUT_IMAGE_TOKENS, PriceTable, ResponseWork, TOOL_CALL_TOKENS, UnknownPrice, WorkEstimate,
};
use crate::gateway::rules::{ImageTool, Job, ResponseJob, SharedTask, TaskRef};
use crate::image::ByteSource as _;

/// The cost of a job, as far as it is known before anything is sent.
#[derive(Clone, Debug)]
pub(super) struct CostEstimate {
    /// The most that the job can cost without a fallback, if it is known.
    pub(super) without_fallback: Option<Usd>,
    /// The amount that the job reserves in budgets, if it is known.
    pub(super) job: Option<Usd>,
    /// The kind of bound that the amount is.
    pub(super) bound: BoundKind,
    /// The price that was missing.
    pub(super) unknown: Option<UnknownPrice>,
}

/// The most that a job for images can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CostBound {
    /// The most that the job can cost without a fallback.
    pub(super) without_fallback: Usd,
    /// The most that the job can cost: with `fallback = "always"`, each smaller image may be paid for as well.
    pub(super) job: Usd,
}

/// Returns the cost of a job, as far as it is known now, whichever account carries it out.
pub(super) fn estimate(
    services: &ImageServices,
    caller: &Caller,
    task: &SharedTask,
    fallback: FallbackPolicy,
) -> CostEstimate {
    match task {
        SharedTask::Images(job) => cost_bound(services, caller, job, fallback).into(),
        SharedTask::Response(job) => estimate_response(services, caller, job),
    }
}

/// Returns the most that a job for images can cost now, whichever account carries it out.
///
/// # Errors
///
/// Returns the first price that is unknown.
pub(super) fn cost_bound(
    services: &ImageServices,
    caller: &Caller,
    job: &Job,
    fallback: FallbackPolicy,
) -> Result<CostBound, UnknownPrice> {
    let table = services.prices.table();
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    let without_fallback = max_cost_of_images(&table, job, &hosts)?;
    let mut sum = without_fallback;
    if fallback == FallbackPolicy::Always {
        for smaller in successors(fallback_order::next_fallback(job), fallback_order::next_fallback) {
            sum = sum.plus(max_cost_of_images(&table, &smaller, &hosts)?);
        }
    }
    Ok(CostBound { without_fallback, job: sum })
}

/// Returns the most that a job for images can cost without a fallback; `None` if a price is unknown.
pub(super) fn max_cost_without_fallback(services: &ImageServices, caller: &Caller, job: &Job) -> Option<Usd> {
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    max_cost_of_images(&services.prices.table(), job, &hosts).ok()
}

/// Returns the versions of all prices that the estimate of a job for images uses, separated by spaces.
pub(super) fn price_version(services: &ImageServices, caller: &Caller, job: &Job) -> String {
    let (table, day) = (services.prices.table(), Utc::now().date_naive());
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    let models = std::iter::once(job.model()).chain(hosts.iter().map(String::as_str));
    let versions = models.filter_map(|model| Some(table.price(model, day)?.version.as_str()));
    versions.collect::<Vec<_>>().join(" ")
}

/// Returns the most that all images of a job can cost: at an account with image endpoints, or with the dearest of the
/// text models that run the image tool for other accounts.
fn max_cost_of_images(table: &PriceTable, job: &Job, hosts: &[String]) -> Result<Usd, UnknownPrice> {
    let (day, direct) = (Utc::now().date_naive(), image_work(job));
    let mut most = table.max_cost(&direct, day)?;
    for host in hosts {
        // Such an account makes one image for each call.
        let hosted =
            WorkEstimate { text_model: Some(host), is_tool_host: true, calls: job.count().into(), ..direct.clone() };
        most = most.max(table.max_cost(&hosted, day)?);
    }
    Ok(most)
}

fn image_work(job: &Job) -> WorkEstimate<'_> {
    let input_images =
        job.edit_input().map_or(0, |input| input.images.len() + usize::from(input.mask.is_some()) + input.files.len());
    WorkEstimate {
        image_model: Some(job.model()),
        size: Some(job.size()),
        quality: job.quality(),
        images: job.count().into(),
        partial_images: job.partial_images().into(),
        input_images: count(input_images),
        text_bytes: count(job.prompt().len()),
        ..WorkEstimate::default()
    }
}

/// Returns the cost of a response. Budgets reserve the cost of all that the text model may decide. `without_fallback` is
/// the cost of the work that the request itself states, which counts if the call breaks off.
fn estimate_response(services: &ImageServices, caller: &Caller, job: &ResponseJob) -> CostEstimate {
    let (table, day) = (services.prices.table(), Utc::now().date_naive());
    if strict_budget::applies(caller) {
        let most = table.max_response_cost(&bounded_work(job), day);
        let bound = most.map(|most| CostBound { without_fallback: most, job: most });
        return CostEstimate { bound: BoundKind::Response, ..bound.into() };
    }
    let ceiling = match caller.group().response_budget.max_response {
        Some(most) => Ok(most),
        None => table.max_response_cost(&ceiling_work(caller, job), day),
    };
    // No part of a response is dearer than the whole.
    let stated = max_cost_of_response(&table, job).ok();
    let without_fallback = stated.map(|stated| ceiling.as_ref().map_or(stated, |ceiling| stated.min(*ceiling)));
    let job = ceiling.as_ref().ok().copied();
    CostEstimate { without_fallback, job, bound: BoundKind::Ceiling, unknown: ceiling.err() }
}

/// Returns the work of a response if its text model uses its largest context and output, and makes images of the largest
/// size and the best quality that the limits allow. A stated number of calls lowers nothing: an upstream that ignores it
/// would exceed the budget.
fn ceiling_work<'a>(caller: &Caller, job: &'a ResponseJob) -> ResponseWork<'a> {
    let calls = TOOL_CALLS_MAX.max(job.max_tool_calls().unwrap_or(0));
    let max_pixels = caller.all_limits().filter_map(|limits| limits.max_size).map(|size| size.pixels().into()).min();
    let quality = caller.all_limits().filter_map(|limits| limits.written.max_quality).min().map(QualityLimit::as_str);
    let tools = job.image_tools().iter();
    let images = tools.map(|tool| WorkEstimate { size: None, max_pixels, quality, ..tool_work(tool, calls) }).collect();
    let hosted_tools = hosted_kinds(job).collect();
    ResponseWork { text_model: job.model(), images, hosted_tools, calls, ..ResponseWork::default() }
}

/// Returns the work of a response that keeps the limits in its body.
fn bounded_work(job: &ResponseJob) -> ResponseWork<'_> {
    let (calls, output_tokens) = (job.max_tool_calls().unwrap_or(TOOL_CALLS_MAX), job.max_output_tokens());
    let images: Vec<_> = job.image_tools().iter().map(|tool| tool_work(tool, calls)).collect();
    let hosted_tools: Vec<_> = hosted_kinds(job).collect();
    let inputs = job.contents().inputs();
    let mut input = job.body().len().saturating_add(inputs.inline_images.saturating_mul(INPUT_IMAGE_TOKENS));
    let mut passes = 1;
    if !images.is_empty() || !hosted_tools.is_empty() {
        // After each call the text model reads its input again, with what it has written.
        passes = calls.saturating_add(1);
        input = input.saturating_add(TOOL_CALL_TOKENS).saturating_add(output_tokens.unwrap_or(u64::MAX));
    }
    // The tokens of a file, and of what other tools find, do not follow from the length of the body.
    let input_tokens = (hosted_tools.is_empty() && inputs.first_file.is_none()).then_some(input);
    ResponseWork { text_model: job.model(), input_tokens, output_tokens, passes, images, hosted_tools, calls }
}

/// Returns the work of an image tool that is called this many times.
fn tool_work(tool: &ImageTool, calls: u64) -> WorkEstimate<'_> {
    WorkEstimate {
        image_model: Some(&tool.model),
        size: Some(tool.size),
        quality: tool.quality.as_deref(),
        images: calls,
        partial_images: tool.partial_images.into(),
        // Each call has a prompt that the text model writes, and works on one image (our choice).
        input_images: calls,
        text_bytes: TOOL_CALL_TOKENS.saturating_mul(calls),
        ..WorkEstimate::default()
    }
}

/// Returns the most that a response can cost. Its text model chooses the image tool; the dearest one counts.
fn max_cost_of_response(table: &PriceTable, job: &ResponseJob) -> Result<Usd, UnknownPrice> {
    let day = Utc::now().date_naive();
    let mut most = table.max_cost(&response_work(job, None), day)?;
    for tool in job.image_tools() {
        most = most.max(table.max_cost(&response_work(job, Some(tool)), day)?);
    }
    Ok(most)
}

/// Returns the work of a response that uses this image tool. Its text model chooses the number of images; one is assumed.
fn response_work<'a>(job: &'a ResponseJob, tool: Option<&'a ImageTool>) -> WorkEstimate<'a> {
    WorkEstimate {
        image_model: tool.map(|tool| tool.model.as_str()),
        size: tool.map(|tool| tool.size),
        quality: tool.and_then(|tool| tool.quality.as_deref()),
        images: u64::from(tool.is_some()),
        partial_images: tool.map_or(0, |tool| tool.partial_images.into()),
        text_bytes: job.body().len(),
        text_model: Some(job.model()),
        max_output_tokens: job.max_output_tokens(),
        ..WorkEstimate::default()
    }
}

// === impl CostEstimate ===

impl From<Result<CostBound, UnknownPrice>> for CostEstimate {
    /// Converts the bound of a job for images.
    fn from(most: Result<CostBound, UnknownPrice>) -> Self {
        let (known, bound) = (most.as_ref().ok(), BoundKind::Images);
        let (without_fallback, job) = (known.map(|known| known.without_fallback), known.map(|known| known.job));
        Self { without_fallback, job, bound, unknown: most.err() }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
