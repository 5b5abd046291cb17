//! What becomes of the images of an answer: files, their descriptions, and the report with the cost.

use super::ImageArgs;
use super::output_image::OutputImage;
use super::preview::ImagePreview;
use super::report::{self, ImageReport, WrittenFile};
use super::target::OutputTarget;
use crate::cli::failure::CommandFailure;
use crate::cli::image_cost::{CostFactors, ImageCost, PriceLookup};
use crate::cli::output::{print, print_bytes, print_json, print_message};
use crate::client::Images;

/// The places for the images of one request, and what the report on them needs.
pub(super) struct ImageDelivery<'a> {
    pub(super) target: &'a OutputTarget,
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
            let resized_to = self.size.exact().filter(|_| self.upscale);
            let (output_image, failure) = OutputImage::resized_to_at_least(images.first(), resized_to).await;
            print_bytes(&output_image.bytes()?)?;
            return failure.map_or(Ok(()), |error| Err(error.into()));
        }
        let (files, mut failure) = self.write_files(images, &delivery).await;
        // The images are on the disk before the prices are waited for.
        let cost = self.cost(images, &mut delivery).await;
        let report = ImageReport::new(&self.prompt, images, cost);
        for file in files.iter().filter(|_| self.sidecar) {
            failure = failure.or(report.write_sidecar(file).err());
        }
        // All files are written before anything is printed, because the reader of standard output may be gone.
        let printed = self.print_result(&report, &files);
        report::print_record(images, &files, cost);
        if cost == ImageCost::Unknown {
            delivery.prices.and_then(|prices| prices.fault()).into_iter().for_each(|note| print_message(&note));
        }
        failure.map_or(printed, Err)
    }

    /// Writes all images that can be written. Returns their files and the first failure.
    async fn write_files(
        &self,
        images: &Images,
        delivery: &ImageDelivery<'_>,
    ) -> (Vec<WrittenFile>, Option<CommandFailure>) {
        let resized_to = self.size.exact().filter(|_| self.upscale);
        let (mut files, mut failure) = (Vec::with_capacity(images.len()), None);
        for (index, image) in images.iter().enumerate() {
            let (output_image, resize_error) = OutputImage::resized_to_at_least(image.clone(), resized_to).await;
            failure = failure.or(resize_error.map(CommandFailure::from));
            // The remaining images have been paid for as well, so they are written even if this write fails.
            match output_image.write(&delivery.target.path(index, output_image.format()), self.force).await {
                Ok(path) => {
                    delivery.preview.show(|| output_image.bytes());
                    files.push(WrittenFile { path, image, upscaled_from: output_image.upscaled_from() });
                }
                Err(error) => failure = failure.or(Some(error.into())),
            }
        }
        (files, failure)
    }

    async fn cost(&self, images: &Images, delivery: &mut ImageDelivery<'_>) -> ImageCost {
        let set_model = self.members.iter().rev().find(|(name, _)| name == "model");
        let model = set_model.and_then(|(_, model)| model.read()).or_else(|| self.model.clone());
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
        let requested = usize::try_from(self.count.get()).unwrap_or(1);
        let missing = images.missing().max(requested.saturating_sub(images.len()));
        if missing == 0 {
            return Ok(());
        }
        Err(CommandFailure::Incomplete(format!("{missing} of {requested} images are missing")))
    }
}
