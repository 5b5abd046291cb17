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
    /// The most that one try at all of the job's images can cost, if it is known.
    pub(super) call: Option<Usd>,
    /// The amount that the job reserves in budgets, if it is known.
    pub(super) job: Option<Usd>,
    /// How far the amount is a bound.
    pub(super) bound: BoundKind,
    /// The price that was missing.
    pub(super) unknown: Option<UnknownPrice>,
}

/// The most that a job for images can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CostBound {
    /// The most that one try at all of its images can cost.
    pub(super) call: Usd,
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
        SharedTask::Images(job) => most(services, caller, job, fallback).into(),
        SharedTask::Response(job) => estimate_response(services, caller, job),
    }
}

/// Returns the most that a job for images can cost now, whichever account carries it out.
///
/// # Errors
///
/// Returns the first price that is unknown.
pub(super) fn most(
    services: &ImageServices,
    caller: &Caller,
    job: &Job,
    fallback: FallbackPolicy,
) -> Result<CostBound, UnknownPrice> {
    let table = services.prices.table();
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    let call = most_for_images(&table, job, &hosts)?;
    let mut sum = call;
    if fallback == FallbackPolicy::Always {
        for smaller in successors(fallback_order::next_fallback(job), fallback_order::next_fallback) {
            sum = sum.plus(most_for_images(&table, &smaller, &hosts)?);
        }
    }
    Ok(CostBound { call, job: sum })
}

/// Returns the most that one try at a job for images can cost; `None` if a price is unknown.
pub(super) fn most_for_job(services: &ImageServices, caller: &Caller, job: &Job) -> Option<Usd> {
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    most_for_images(&services.prices.table(), job, &hosts).ok()
}

/// Returns the versions of all prices that the estimate of a job for images uses, separated by spaces.
pub(super) fn price_version(services: &ImageServices, caller: &Caller, job: &Job) -> String {
    let (table, day) = (services.prices.table(), Utc::now().date_naive());
    let hosts = services.accounts.tool_host_models(TaskRef::Images(job), caller);
    let models = std::iter::once(job.model()).chain(hosts.iter().map(String::as_str));
    let versions = models.filter_map(|model| Some(table.price(model, day)?.version.as_str()));
    versions.collect::<Vec<_>>().join(" ")
}

/// Returns the most that a try at all images of a job can cost: at an account with image endpoints, or with the dearest
/// of the text models that run the image tool for other accounts.
fn most_for_images(table: &PriceTable, job: &Job, hosts: &[String]) -> Result<Usd, UnknownPrice> {
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

/// Returns the cost of a response. If a call breaks off, the work that the request itself states counts; budgets reserve
/// what the text model may decide.
fn estimate_response(services: &ImageServices, caller: &Caller, job: &ResponseJob) -> CostEstimate {
    let (table, day) = (services.prices.table(), Utc::now().date_naive());
    if strict_budget::applies(caller) {
        let most = table.max_response_cost(&bounded_work(job), day).map(|most| CostBound { call: most, job: most });
        return CostEstimate { bound: BoundKind::Response, ..most.into() };
    }
    let ceiling = match caller.group().response_budget.max_response {
        Some(most) => Ok(most),
        None => table.max_response_cost(&ceiling_work(caller, job), day),
    };
    // No part of a response is dearer than the whole.
    let stated = most_for_response(&table, job).ok();
    let call = stated.map(|call| ceiling.as_ref().map_or(call, |ceiling| call.min(*ceiling)));
    let job = ceiling.as_ref().ok().copied();
    CostEstimate { call, job, bound: BoundKind::Ceiling, unknown: ceiling.err() }
}

/// Returns the work of a response if its text model uses its largest context and output, and makes images of the largest
/// size and the best quality that the limits allow. A stated number of calls lowers nothing: an upstream that ignores it
/// would pass the budget.
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
fn most_for_response(table: &PriceTable, job: &ResponseJob) -> Result<Usd, UnknownPrice> {
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
        let (known, bound) = (most.as_ref().ok().copied(), BoundKind::Images);
        Self { call: known.map(|of| of.call), job: known.map(|of| of.job), bound, unknown: most.err() }
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
