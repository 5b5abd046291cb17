//! The most that a job can cost, worked out before anything is sent.

use std::iter::successors;

use chrono::Utc;

use super::fallback_order;
use crate::gateway::Gateway;
use crate::gateway::config::FallbackPolicy;
use crate::gateway::keys::Caller;
use crate::gateway::money::Usd;
use crate::gateway::prices::{PriceTable, UnknownPrice, WorkEstimate};
use crate::gateway::rules::{ImageTool, Job, ResponseJob, SharedTask, TaskRef};
use crate::image::ByteSource as _;

/// The most that a job can cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CostBound {
    /// The most that one try at all of its images can cost.
    pub(super) call: Usd,
    /// The most that the job can cost: with `fallback = "always"`, each smaller image may be paid for as well.
    pub(super) job: Usd,
}

/// Returns the most that a job can cost now, whichever account carries it out.
///
/// # Errors
///
/// Returns the first price that is unknown.
pub(super) fn most(
    gateway: &Gateway,
    caller: &Caller,
    task: &SharedTask,
    fallback: FallbackPolicy,
) -> Result<CostBound, UnknownPrice> {
    let table = gateway.prices().table();
    let job = match task {
        SharedTask::Images(job) => job,
        SharedTask::Response(job) => {
            let most = most_for_response(&table, job)?;
            return Ok(CostBound { call: most, job: most });
        }
    };
    let hosts = gateway.accounts().tool_host_models(TaskRef::from(task), caller);
    let call = most_for_images(&table, job, &hosts)?;
    let mut sum = call;
    if fallback == FallbackPolicy::Always {
        for smaller in successors(fallback_order::next_fallback(job), fallback_order::next_fallback) {
            sum = sum.plus(most_for_images(&table, &smaller, &hosts)?);
        }
    }
    Ok(CostBound { call, job: sum })
}

/// Returns the versions of all prices that the estimate of a job for images uses, separated by spaces.
pub(super) fn price_version(gateway: &Gateway, caller: &Caller, job: &Job) -> String {
    let (table, day) = (gateway.prices().table(), Utc::now().date_naive());
    let hosts = gateway.accounts().tool_host_models(TaskRef::Images(job), caller);
    let models = std::iter::once(job.model()).chain(hosts.iter().map(String::as_str));
    let versions = models.filter_map(|model| Some(table.price(model, day)?.version.as_str()));
    versions.collect::<Vec<_>>().join(" ")
}

/// Returns the most that a try at all images of a job can cost: at an account with image endpoints, or with the dearest
/// of the text models that run the image tool for other accounts.
fn most_for_images(table: &PriceTable, job: &Job, hosts: &[String]) -> Result<Usd, UnknownPrice> {
    let (day, direct) = (Utc::now().date_naive(), image_work(job));
    let mut most = table.most(&direct, day)?;
    for host in hosts {
        // Such an account makes one image for each call.
        let hosted =
            WorkEstimate { text_model: Some(host), is_tool_host: true, calls: job.count().into(), ..direct.clone() };
        most = most.max(table.most(&hosted, day)?);
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

/// Returns the most that a response can cost. Its text model chooses the image tool; the dearest one counts.
fn most_for_response(table: &PriceTable, job: &ResponseJob) -> Result<Usd, UnknownPrice> {
    let day = Utc::now().date_naive();
    let mut most = table.most(&response_work(job, None), day)?;
    for tool in job.image_tools() {
        most = most.max(table.most(&response_work(job, Some(tool)), day)?);
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

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
