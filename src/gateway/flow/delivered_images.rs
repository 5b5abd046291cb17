//! Compares the images of an answer with the request, and describes them in the headers of the answer. Pure.

use std::collections::BTreeMap;

use super::attempt_types::JobSuccess;
use super::format_conversion::ConversionOutcome;
use crate::gateway::relay::ProvenAnswer;
use crate::gateway::rules::SharedTask;
use crate::image::{Format, SizeRequest};

/// The result of a comparison between the delivered image and the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeliveryComparison {
    /// The image is as requested.
    Match,
    /// The image has another size or format.
    Mismatch,
    /// The header of the image file did not state its size and format, or the request did not ask for an image.
    Unknown,
}

/// The requested properties of the images: those of the task, or of its fallback. `None` stands for a property that the
/// request leaves open.
#[derive(Default)]
pub(super) struct RequestedImages<'a> {
    size_and_format: Option<(SizeRequest, Format)>,
    pub(super) quality: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    /// The number of images; 0 if the model chooses it.
    pub(super) count: usize,
}

/// Returns the headers that describe the images of an answer.
pub(super) fn answer_headers(
    success: &JobSuccess,
    delivery: Option<&'static str>,
    fallback: Option<String>,
) -> BTreeMap<String, String> {
    let headers = [
        ("x-imagate-simulated", success.is_simulated.then(|| "true".to_owned())),
        (
            "x-imagate-delivered",
            success
                .proven
                .first_image()
                .map(|properties| format!("{}x{} {}", properties.width, properties.height, properties.format)),
        ),
        ("x-imagate-delivery", delivery.map(str::to_owned)),
        ("x-imagate-fallback", fallback),
        ("x-imagate-missing", (success.missing_images > 0).then(|| success.missing_images.to_string())),
    ];
    headers.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the value of `x-imagate-delivery`.
pub(super) const fn delivery_word(
    comparison: DeliveryComparison,
    conversion: ConversionOutcome,
) -> Option<&'static str> {
    match (comparison, conversion) {
        (DeliveryComparison::Unknown, _) => None,
        (DeliveryComparison::Match, ConversionOutcome::Converted) => Some("converted"),
        (DeliveryComparison::Mismatch, ConversionOutcome::Converted) => Some("mismatch converted"),
        (DeliveryComparison::Match, _) => Some("match"),
        (DeliveryComparison::Mismatch, _) => Some("mismatch"),
    }
}

// === impl RequestedImages ===

impl<'a> RequestedImages<'a> {
    pub(super) fn new(task: &'a SharedTask, success: &'a JobSuccess) -> Self {
        match task {
            SharedTask::Images(job) => {
                let image_job = success.fallback_job.as_ref().unwrap_or(job);
                Self {
                    size_and_format: Some((image_job.size(), image_job.format())),
                    quality: image_job.quality(),
                    model: Some(image_job.model()),
                    count: job.image_count(),
                }
            }
            // The model and the count stay open: the answer names the image model, and the host model chooses the
            // number of images.
            SharedTask::Response(job) => {
                job.image_tool().filter(|_| !success.was_tool_removed).map_or_else(Self::default, |tool| Self {
                    size_and_format: Some((tool.size, tool.format)),
                    quality: tool.quality.as_deref(),
                    ..Self::default()
                })
            }
        }
    }

    /// Compares the first image with the request. The size `auto` matches every size.
    pub(super) fn compare(&self, proven: &ProvenAnswer) -> DeliveryComparison {
        if proven.other_format().is_some() && self.size_and_format.is_some() {
            return DeliveryComparison::Mismatch;
        }
        let first = proven.first_image();
        let Some((image, (size, format))) = first.zip(self.size_and_format) else { return DeliveryComparison::Unknown };
        let has_size = size.exact().is_none_or(|size| (size.width(), size.height()) == (image.width, image.height));
        if has_size && image.format == format { DeliveryComparison::Match } else { DeliveryComparison::Mismatch }
    }
}
