//! The report on a request and its images, as JSON.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::cli::failure::CommandFailure;
use crate::client::{self, Image, Images};

/// A file that was written.
pub(super) struct WrittenFile {
    pub(super) path: PathBuf,
    /// The size in which the image was delivered, if it was resized on this machine.
    pub(super) upscaled_from: Option<String>,
}

/// The facts about one request and its answer.
pub(super) struct ImageReport(Value);

// === impl ImageReport ===

impl ImageReport {
    pub(super) fn new(prompt: &str, images: &Images) -> Self {
        Self(json!({
            "request_id": images.request_id(), "created": images.created(), "prompt": prompt, "model": images.model(),
            "size": images.size(), "quality": images.quality(), "output_format": images.output_format(),
            "background": images.background(), "usage": images.usage(), "simulated": images.is_simulated(),
            "replayed": images.is_replayed(), "fallback": images.fallback(), "missing": images.missing(),
            "delivered": images.delivered(), "delivery": images.delivery(),
        }))
    }

    /// Returns the report with all files, for standard output.
    pub(super) fn with_files(&self, files: &[WrittenFile]) -> Value {
        let mut report = self.0.clone();
        report["files"] = files.iter().map(|file| file.path.display().to_string()).collect();
        report["upscaled_from"] = files.iter().find_map(|file| file.upscaled_from.clone()).into();
        report
    }

    /// Writes the report with one image to a file beside that image.
    pub(super) fn write_sidecar(&self, file: &WrittenFile, image: &Image) -> Result<(), CommandFailure> {
        let mut name = file.path.as_os_str().to_owned();
        name.push(".json");
        let mut report = self.0.clone();
        report["revised_prompt"] = image.revised_prompt().into();
        report["upscaled_from"] = file.upscaled_from.clone().into();
        let mut text = serde_json::to_string_pretty(&report)?;
        text.push('\n');
        Ok(client::replace_file(Path::new(&name), text.as_bytes())?)
    }
}
