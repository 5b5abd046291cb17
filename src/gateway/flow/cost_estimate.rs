//! The most that a job can cost, worked out before anything is sent.

use chrono::Utc;

use super::job_context::JobContext;
use crate::gateway::config::ImageModelSpec;
use crate::gateway::money::Usd;
use crate::gateway::prices::WorkEstimate;
use crate::gateway::rules::{Job, ResponseJob, SharedTask};
use crate::image::ByteSource as _;

/// Returns the most that one call for the job can cost now; `None` if a price is unknown.
pub(super) fn most(context: &JobContext) -> Option<Usd> {
    let default_model = ImageModelSpec::default_model().name;
    let work = match &context.task {
        SharedTask::Images(job) => image_work(job),
        SharedTask::Response(job) => response_work(job, &default_model),
    };
    context.gateway.prices().table().most(&work, Utc::now().date_naive())
}

fn image_work(job: &Job) -> WorkEstimate<'_> {
    let input_images = job.edit_input().map_or(0, |input| input.images.len() + usize::from(input.mask.is_some()));
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

/// Returns the work of a response. Its text model chooses the number of images; one is assumed.
fn response_work<'a>(job: &'a ResponseJob, default_model: &'a str) -> WorkEstimate<'a> {
    let tool = job.image_tool();
    WorkEstimate {
        image_model: tool.map(|_| default_model),
        size: tool.map(|tool| tool.size),
        quality: tool.and_then(|tool| tool.quality.as_deref()),
        images: u64::from(tool.is_some()),
        partial_images: tool.map_or(0, |tool| tool.partial_images.into()),
        text_bytes: job.body().len(),
        text_model: Some(job.model()),
        ..WorkEstimate::default()
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
