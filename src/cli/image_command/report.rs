//! The report on a request and its images, as JSON.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::target::description_path;
use crate::cli::failure::CommandFailure;
use crate::cli::image_cost::ImageCost;
use crate::cli::output::{has_events, print_event, print_message};
use crate::client::{self, Image, Images};
use crate::image::SizeRequest;

/// A file that was written.
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    pub(super) image: Image,
    /// The size in which the image was delivered, if it was resized on this machine.
    pub(super) upscaled_from: Option<String>,
    /// True if the file and its description may replace existing ones.
    pub(super) replaces: bool,
}

/// The facts about one request and its answer, and the addresses of the images that are only at an address.
pub(super) struct ImageReport(Value, Vec<String>);

// === impl ImageReport ===

impl ImageReport {
    pub(super) fn new(prompt: &str, images: &Images, cost: ImageCost) -> Self {
        let facts = json!({
            "request_id": images.request_id(), "created": images.created(), "prompt": prompt, "model": images.model(),
            "size": images.size(), "quality": images.quality(), "output_format": images.output_format(),
            "background": images.background(), "usage": images.usage(), "simulated": images.is_simulated(),
            "replayed": images.is_replayed(), "fallback": images.fallback(), "missing": images.missing(),
            "delivered": images.delivered(), "delivery": images.delivery(), "attempts": images.meta().attempts(),
            "cost_usd": cost.usd(), "cost_source": cost.source(),
            "budget_remaining_usd": images.meta().budget_remaining_usd(),
        });
        Self(facts, addresses(images))
    }

    /// Returns the report with all files, for standard output.
    pub(super) fn with_files(&self, files: &[WrittenFile]) -> Value {
        let mut report = self.0.clone();
        report["files"] = files.iter().map(|file| file.path.display().to_string()).collect();
        report["urls"] = self.1.clone().into();
        report["upscaled_from"] = files.iter().find_map(|file| file.upscaled_from.clone()).into();
        report
    }

    /// Writes the report with one image to a file beside that image, which gets a number if it exists.
    pub(super) fn write_sidecar(&self, file: &WrittenFile) -> Result<(), CommandFailure> {
        let path = description_path(&file.path);
        let mut report = self.0.clone();
        report["revised_prompt"] = file.image.revised_prompt().into();
        report["upscaled_from"] = file.upscaled_from.clone().into();
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        let bytes = text.as_bytes();
        let written = if file.replaces {
            client::replace_file(&path, bytes)
        } else {
            client::write_new_file(&path, bytes).map(drop)
        };
        Ok(written.with_context(|| format!("{} cannot be written", path.display()))?)
    }
}

/// Prints the number, the size and the wait of the images that arrived, and notes on what differs from the request.
pub(super) fn print_arrival(images: &Images, requested: SizeRequest, elapsed: Duration) {
    let reported_size = images.size().map(str::to_owned);
    let actual_size = images.first().dimensions().map(|(width, height)| format!("{width}x{height}")).or(reported_size);
    let addresses = addresses(images).len();
    print_event(
        "arrived",
        json!({
            "images": images.len() - addresses, "addresses": addresses, "size": actual_size,
            "seconds": elapsed.as_secs_f64(),
        }),
    );
    if addresses == images.len() {
        return;
    }
    if !has_events() {
        let size_text = actual_size.as_deref().unwrap_or("unknown size");
        let count_text = image_count_text(images.len());
        print_message(&format!("done: {count_text} of {size_text} in {:.1} s", elapsed.as_secs_f64()));
    }
    if let Some(size) = requested.exact().filter(|size| actual_size.is_some_and(|actual| actual != size.to_string())) {
        print_message(&format!("note: {size} was requested"));
    } else if let (Some("mismatch" | "mismatch converted"), Some(delivered)) = (images.delivery(), images.delivered()) {
        print_message(&format!("note: {delivered} is not what was requested"));
    }
    if images.is_simulated() {
        print_message("note: the built-in simulator drew this; no model was called");
    }
}

/// Prints one line about the request: its images in bytes, its cost, and the id by which the operator finds its record.
pub(super) fn print_record(images: &Images, files: &[WrittenFile], cost: ImageCost) {
    let bytes: Vec<u64> =
        files.iter().map(|file| std::fs::metadata(&file.path).map_or(0, |metadata| metadata.len())).collect();
    for (file, bytes) in files.iter().zip(&bytes) {
        print_event("saved", json!({ "file": file.path.display().to_string(), "bytes": bytes }));
    }
    let meta = images.meta();
    print_event(
        "summary",
        json!({
            "request_id": images.request_id(), "images": images.len(), "files": files.len(),
            "missing": images.missing(), "usage": images.usage(), "cost_usd": cost.usd(), "cost_source": cost.source(),
            "replayed": images.is_replayed(), "fallback": images.fallback(), "delivered": images.delivered(), "attempts": meta.attempts(),
            "budget_remaining_usd": meta.budget_remaining_usd(),
        }),
    );
    if !has_events() {
        print_message(&record_text(images, bytes.iter().sum(), cost));
    }
}

fn record_text(images: &Images, bytes: u64, cost: ImageCost) -> String {
    let meta = images.meta();
    let mut facts: Vec<String> = (bytes > 0).then(|| byte_text(bytes)).into_iter().collect();
    facts.extend(images.usage().map(|usage| format!("{} tokens", usage.total_tokens)));
    facts.push(cost.usd().map_or_else(|| "cost not known".to_owned(), |usd| format!("{usd} USD")));
    facts.extend(images.fallback().map(|fallback| format!("made as {fallback}")));
    facts.extend(images.is_replayed().then(|| "made before, not paid again".to_owned()));
    facts.extend(Some(meta.attempts()).filter(|attempts| *attempts > 1).map(|attempts| format!("{attempts} attempts")));
    facts.extend(meta.budget_remaining_usd().map(|left| format!("budget left {left} USD")));
    facts.extend(images.request_id().map(|id| format!("request {id}")));
    facts.join(", ")
}

/// Returns the addresses of the images that the answer does not contain.
pub(in crate::cli) fn addresses(images: &Images) -> Vec<String> {
    let remote = images.iter().filter(|image| image.base64().is_empty());
    remote.filter_map(|image| image.url().map(str::to_owned)).collect()
}

/// Returns a number of bytes in the unit that says most.
fn byte_text(bytes: u64) -> String {
    match bytes {
        0..1000 => format!("{bytes} bytes"),
        1000..1_000_000 => format!("{} KB", bytes / 1000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}

/// Returns the number of images with its noun.
pub(super) fn image_count_text(images: usize) -> String {
    if images == 1 { "1 image".to_owned() } else { format!("{images} images") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_bytes_have_the_unit_that_says_most() {
        for (bytes, expected) in [(999, "999 bytes"), (1000, "1 KB"), (999_999, "999 KB"), (12_345_678, "12.3 MB")] {
            assert_eq!(byte_text(bytes), expected);
        }
    }
}
