//! Encodes the images of an answer again if they came in another format than requested, for groups with
//! `delivery = "convert"`.
//!
//! Only plain answers of the image operations are converted: the events of a stream are passed on while they arrive. The
//! answer waits on disk until its images are encoded, and one image at a time is in memory. An answer that cannot be
//! converted is delivered as it came: it was paid for.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::Semaphore;

use super::attempt_types::JobSuccess;
use super::image_services::ImageServices;
use super::job_context::JobContext;
use crate::client::convert_image;
use crate::gateway::config::DeliveryPolicy;
use crate::gateway::relay::{
    AnswerMembers, ProvenAnswer, SpooledAnswer, UnspooledAnswer, cut_off_answer, spool_answer,
};
use crate::gateway::rules::SharedTask;
use crate::gateway::spool::SpooledFile;
use crate::image::{Format, probe};

/// The most images that are converted at the same time (our choice). Each needs one processor.
const CONVERSIONS_MAX: usize = 2;
static CONVERSIONS: Semaphore = Semaphore::const_new(CONVERSIONS_MAX);
/// The memory in bytes for each pixel of an image that is converted (our choice): the pixels, their opaque colors, and the
/// new file.
const PIXEL_BYTES: u64 = 12;

/// The result of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConversionOutcome {
    /// The answer is as it came.
    Untouched,
    /// Its images are in the requested format now.
    Converted,
    /// It broke off before its caller got any of it.
    Broken,
}

/// The format that was requested, with its compression level.
#[derive(Clone, Copy, Debug)]
struct TargetFormat {
    format: Format,
    compression: u8,
}

type ConversionError = Box<dyn std::error::Error + Send + Sync>;

/// Converts the images of an answer if its group wants that and the first one has another format than requested.
pub(super) async fn convert_answer(context: &JobContext, success: JobSuccess) -> (JobSuccess, ConversionOutcome) {
    let Some(target) = target_format(context, &success) else { return (success, ConversionOutcome::Untouched) };
    let (proven, outcome) = convert(context, target, success.proven).await;
    (JobSuccess { proven, ..success }, outcome)
}

/// Returns the format to which the images must be converted; `None` if they are delivered as they come.
fn target_format(context: &JobContext, success: &JobSuccess) -> Option<TargetFormat> {
    let SharedTask::Images(job) = &context.task else { return None };
    if job.is_stream() || context.caller.group().delivery != DeliveryPolicy::Convert {
        return None;
    }
    let job = success.fallback_job.as_ref().unwrap_or(job);
    let target = TargetFormat { format: job.format(), compression: job.compression() };
    success.proven.first_image().filter(|image| image.format != target.format).map(|_| target)
}

async fn convert(context: &JobContext, to: TargetFormat, proven: ProvenAnswer) -> (ProvenAnswer, ConversionOutcome) {
    let writer = match context.services.spool.create_writer().await {
        Ok(writer) => writer,
        Err(error) => {
            tracing::error!(%error, "an answer that is to be converted cannot be stored on disk");
            return (proven, ConversionOutcome::Untouched);
        }
    };
    let spooled = tokio::select! {
        biased;
        spooled = spool_answer(proven, writer) => spooled,
        () = context.services.cutoff.cancelled() => Err(UnspooledAnswer::Broken(cut_off_answer())),
    };
    let answer = match spooled {
        Ok(answer) => answer,
        Err(UnspooledAnswer::Whole(answer)) => return (answer, ConversionOutcome::Untouched),
        Err(UnspooledAnswer::Broken(answer)) => return (answer, ConversionOutcome::Broken),
    };
    match convert_images(&context.services, to, &answer).await {
        Ok((members, files)) => (answer.with_images(members, files, to.format), ConversionOutcome::Converted),
        Err(error) => {
            tracing::warn!(error = &*error, "the images of an answer cannot be converted");
            (answer.into_proven(), ConversionOutcome::Untouched)
        }
    }
}

/// Returns the members of the answer and the files in place of its images.
async fn convert_images(
    services: &ImageServices,
    target: TargetFormat,
    answer: &SpooledAnswer,
) -> Result<(AnswerMembers, Vec<Arc<SpooledFile>>), ConversionError> {
    let members = answer.members().await?;
    if members.images.len() != answer.image_count() {
        return Err("the answer has other elements than images".into());
    }
    let mut files = Vec::new();
    for index in 0..answer.image_count() {
        files.push(convert_one(services, target, answer, index).await?);
    }
    Ok((members, files))
}

async fn convert_one(
    services: &ImageServices,
    target: TargetFormat,
    answer: &SpooledAnswer,
    index: usize,
) -> Result<Arc<SpooledFile>, ConversionError> {
    let permit = CONVERSIONS.acquire().await?;
    let (format, image) = answer.open_image(index).await?.ok_or("the format of an image is not known")?;
    let mut file = image.collect().await?.to_bytes();
    // The share has no limit, because the image was paid for; other requests are refused meanwhile.
    let mut memory = services.request_budgets.answer_memory();
    let pixels = probe(&file).map_or(0, |image| u64::from(image.width) * u64::from(image.height));
    memory.set_bytes(file.len() as u64 + pixels * PIXEL_BYTES)?;
    if format != target.format {
        let encode = move || convert_image(&file, target.format, target.compression);
        file = Bytes::from(services.spool.run_blocking(encode).await??);
    }
    let written = services.spool.create_writer().await?.append(file).await?;
    drop((memory, permit));
    Ok(written.finish())
}
