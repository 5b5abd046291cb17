//! The delivery of the images of an answer: files, their descriptions, and the report with the cost.

use std::path::{Path, PathBuf};

use super::image_job::ImageJob;
use super::output_image::OutputImage;
use super::preview::ImagePreview;
use super::report::{self, ImageReport, WrittenFile};
use super::target::OutputTarget;
use super::{ImageArgs, name_from_prompt, unread_answer};
use crate::cli::failure::CommandFailure;
use crate::cli::image_cost::{CostFactors, ImageCost, PriceLookup};
use crate::cli::output::{print, print_bytes, print_json, print_message};
use crate::client::{self, ErrorKind, Images, Json};

/// The places for the images of one request, and what the report on them needs.
pub(super) struct ImageDelivery<'a> {
    pub(super) job: &'a ImageJob,
    pub(super) target: &'a OutputTarget,
    /// The files that may be replaced.
    pub(super) replaceable: Vec<PathBuf>,
    pub(super) preview: ImagePreview,
    pub(super) is_edit: bool,
    /// `None` if there is no report.
    pub(super) prices: Option<PriceLookup>,
}

// === impl ImageArgs ===

impl ImageArgs {
    /// Writes the files and prints their paths.
    pub(super) async fn write_images(
        &self,
        images: &Images,
        mut delivery: ImageDelivery<'_>,
    ) -> Result<(), CommandFailure> {
        if delivery.target.is_stdout() {
            self.print_image(images).await?;
            delivery.job.mark_delivered();
            return Ok(());
        }
        let (files, mut failure) = self.write_files(images, &mut delivery).await;
        // The same command gets images again that could not be written.
        if files.len() + report::addresses(images).len() >= images.len() {
            delivery.job.mark_delivered();
        }
        // The images are on the disk before the prices are waited for.
        let cost = self.cost(images, &mut delivery).await;
        let report = ImageReport::new(&self.prompt, images, cost);
        for file in files.iter().filter(|_| self.sidecar) {
            failure = failure.or(report.write_sidecar(file).err());
        }
        // All files are written before anything is printed, because the reader of standard output may be gone.
        let printed = self.print_result(&report, &files);
        report::print_record(images, &files, cost);
        if cost == ImageCost::Unknown
            && let Some(note) = delivery.prices.and_then(|prices| prices.fault())
        {
            print_message(&note);
        }
        failure.map_or(printed, Err)
    }

    /// Prints the first image to standard output. A service may send more images than were requested: they are paid for
    /// as well, so they become files.
    async fn print_image(&self, images: &Images) -> Result<(), CommandFailure> {
        let name = PathBuf::from(name_from_prompt(&self.prompt));
        let mut failure = None;
        for image in images.iter().skip(1) {
            match image.write_to(&name).await {
                Ok(path) => print_message(&format!("note: another image is in {}", path.display())),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let resized_to = self.size.exact().filter(|_| self.upscale);
        let (output_image, resize_error) = OutputImage::resized_to_at_least(images.first(), resized_to).await;
        let bytes = output_image.bytes().inspect_err(|error| {
            if unread_answer::is_undecodable(error, &images.first()) {
                unread_answer::keep_text(images.json().text(), &name);
            }
        })?;
        print_bytes(&bytes)?;
        resize_error.or(failure).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Writes all images that can be written. Returns their files and the first failure.
    async fn write_files(
        &self,
        images: &Images,
        delivery: &mut ImageDelivery<'_>,
    ) -> (Vec<WrittenFile>, Option<CommandFailure>) {
        let resized_to = self.size.exact().filter(|_| self.upscale);
        let target = delivery.target.for_arrived(images.len());
        let (mut files, mut failure, mut undecodable) = (Vec::with_capacity(images.len()), None, None);
        for (index, image) in images.iter().enumerate() {
            let (output_image, resize_error) = OutputImage::resized_to_at_least(image.clone(), resized_to).await;
            failure = failure.or(resize_error.map(CommandFailure::from));
            let format = output_image.format();
            let path = client::with_format_extension(&target.path(index, format), format);
            let mut replaces = take_path(&mut delivery.replaceable, &path);
            let written = match output_image.write(&path, replaces).await {
                Ok(path) => Some(path),
                // The remaining images have been paid for as well, so they are written even if this write fails.
                Err(error) if error.kind() == ErrorKind::File => {
                    failure = failure.or(Some(error.into()));
                    replaces = false;
                    output_image.keep_in_temporary_folder(&name_from_prompt(&self.prompt)).await
                }
                Err(error) => {
                    undecodable = undecodable.or_else(|| unread_answer::is_undecodable(&error, &image).then_some(path));
                    failure = failure.or(Some(error.into()));
                    None
                }
            };
            if let Some(path) = written {
                delivery.preview.show(|| output_image.bytes());
                files.push(WrittenFile { path, image, upscaled_from: output_image.upscaled_from(), replaces });
            }
        }
        if let Some(path) = undecodable {
            unread_answer::keep_text(images.json().text(), &path);
        }
        (files, failure)
    }

    async fn cost(&self, images: &Images, delivery: &mut ImageDelivery<'_>) -> ImageCost {
        let model = self.set_member("model").and_then(Json::read).or_else(|| self.model.clone());
        match &mut delivery.prices {
            Some(prices) => prices.cost(CostFactors { model, is_edit: delivery.is_edit }, images).await,
            None => ImageCost::Unknown,
        }
    }

    fn print_result(&self, report: &ImageReport, files: &[WrittenFile]) -> Result<(), CommandFailure> {
        if self.json {
            return Ok(print_json(&report.with_files(files))?);
        }
        let names: String = files.iter().map(|file| format!("{}\n", file.path.display())).collect();
        Ok(print(&names)?)
    }

    /// Returns an error if images are missing. The images that arrived have been written by then.
    pub(super) fn check_all_arrived(&self, images: &Images) -> Result<(), CommandFailure> {
        let requested = self.requested_count();
        let missing = images.missing().max(requested.saturating_sub(images.len()));
        if missing == 0 {
            return Ok(());
        }
        Err(CommandFailure::Incomplete(format!("{missing} of {requested} images are missing")))
    }
}

/// Removes a path from a list; returns true if it was there. So no image replaces another one of the same answer.
fn take_path(paths: &mut Vec<PathBuf>, path: &Path) -> bool {
    let position = paths.iter().position(|named| named == path);
    position.map(|position| paths.swap_remove(position)).is_some()
}
