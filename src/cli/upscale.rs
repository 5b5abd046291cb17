//! The command `imagate upscale`: enlarges an image file on this machine.

use std::ffi::OsStr;
use std::io::{self, IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::failure::CommandFailure;
use super::image_command::{missing_folder, names_file_in_folder};
use super::installation::block_on;
use super::output::{print, print_bytes, print_message};
use crate::client::{self, Compression, Output, Resize, ResizedImage};
use crate::image::{Format, Size};
use crate::tables::MAX_UPLOAD_IMAGE_BYTES;

/// The name of a new file for an image from standard input.
const STDIN_NAME: &str = "image";

/// Arguments of `upscale`.
#[derive(Debug, Args)]
pub(super) struct UpscaleCommand {
    /// The image: png, jpeg or webp; `-` reads it from standard input.
    file: PathBuf,
    /// Width and height in pixels, such as 3840x2160. The size rules of the API apply.
    #[arg(long, value_name = "SIZE")]
    size: Size,
    /// The file to write, a folder for a new file with the name of the image, or `-` for standard output.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// The file format [default: the format that the file extension of `--output` stands for, or else the format of the
    /// image]
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// The compression of jpeg and webp: 0 gives the smallest file, 100 the best image.
    #[arg(long, value_name = "NUMBER", default_value_t = Compression::MAX)]
    compression: Compression,
    /// The treatment of an image whose proportions differ from those of `--size`.
    #[arg(long, value_enum, default_value_t)]
    fit: FitArg,
    /// Replace the file that `--output` names if it exists.
    #[arg(long)]
    force: bool,
}

/// The treatment of an image whose proportions differ from those of `--size`.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(super) enum FitArg {
    /// Crop equally on both sides.
    #[default]
    Crop,
    /// Stretch the image.
    Stretch,
}

// === impl UpscaleCommand ===

impl UpscaleCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let format = self.output_format()?;
        let is_stdout = self.output == Path::new("-");
        if is_stdout && io::stdout().is_terminal() {
            return Err(CommandFailure::Usage(
                "an image cannot be written to a terminal: name a file, or redirect standard output".to_owned(),
            ));
        }
        let is_folder = self.output.is_dir();
        if !is_stdout && !is_folder && !names_file_in_folder(&self.output) {
            return Err(missing_folder(&self.output));
        }
        let file = self.read()?;
        let resized = self.resize_file(file, format)?;
        self.check_result(&resized, !is_stdout && !is_folder)?;
        let (width, height) = resized.original_dimensions();
        print_message(&format!("resized from {width}x{height} to {}", resized.size()));
        if is_stdout {
            return Ok(print_bytes(resized.bytes())?);
        }
        let path = if is_folder { self.new_file(resized.format()) } else { self.output.clone() };
        // A file with another name than the given one is not replaced: the extension may have been corrected.
        let format = client::format_from_extension(&path).filter(|named| *named != resized.format());
        let replaces = self.force && !is_folder && format.is_none();
        let written = block_on(async {
            Ok(if replaces { resized.overwrite(path).await? } else { resized.write_to(path).await? })
        })?;
        Ok(print(&format!("{}\n", written.display()))?)
    }

    /// Returns the requested format, or `None` if the image keeps its own.
    fn output_format(&self) -> Result<Option<Format>, CommandFailure> {
        let named = client::format_from_extension(&self.output).filter(|_| !self.output.is_dir());
        match (self.format, named) {
            (Some(requested), Some(named)) if requested != named => Err(CommandFailure::Usage(format!(
                "--format {requested} does not match the file extension of --output, which stands for {named}"
            ))),
            (requested, named) => Ok(requested.or(named)),
        }
    }

    /// Returns the new file in the folder that the user has named.
    fn new_file(&self, format: Format) -> PathBuf {
        let name = self.file.file_name().filter(|_| self.file != Path::new("-"));
        self.output.join(name.unwrap_or(OsStr::new(STDIN_NAME))).with_extension(format.extension())
    }

    fn read(&self) -> Result<Vec<u8>, CommandFailure> {
        let mut file = Vec::new();
        if self.file == Path::new("-") {
            io::stdin().lock().take(MAX_UPLOAD_IMAGE_BYTES).read_to_end(&mut file)?;
        } else {
            let read_error = |error: io::Error| anyhow::Error::new(error).context(unreadable(&self.file));
            let source = std::fs::File::open(&self.file).map_err(read_error)?;
            source.take(MAX_UPLOAD_IMAGE_BYTES).read_to_end(&mut file).map_err(read_error)?;
        }
        Ok(file)
    }

    fn resize_file(&self, file: Vec<u8>, format: Option<Format>) -> Result<ResizedImage, CommandFailure> {
        // If no format was requested, the image keeps its own, which the header of the file states.
        let original_format = || crate::image::probe(&file).map(|properties| properties.format);
        let output = match format.or_else(original_format) {
            Some(Format::Jpeg) => Output::Jpeg { compression: self.compression },
            Some(Format::Webp) => Output::Webp { compression: self.compression },
            Some(Format::Png | Format::Gif) | None => Output::Png,
        };
        Ok(Resize::to(self.size).fit(self.fit.into()).format(output).apply(file)?)
    }

    /// Returns an error if the image is both wider and higher than the requested size, or if the file that the user has
    /// named would be replaced without `--force`.
    fn check_result(&self, resized: &ResizedImage, is_named: bool) -> Result<(), CommandFailure> {
        let (width, height) = resized.original_dimensions();
        if width > self.size.width() && height > self.size.height() {
            return Err(CommandFailure::Usage(format!(
                "the image is larger than {}: it has {width}x{height} px",
                self.size
            )));
        }
        let path = client::with_format_extension(&self.output, Some(resized.format()));
        if is_named && !self.force && path.exists() {
            return Err(CommandFailure::Usage(format!(
                "{} already exists: name another file, or replace it with --force",
                path.display()
            )));
        }
        Ok(())
    }
}

impl From<FitArg> for client::Fit {
    fn from(fit: FitArg) -> Self {
        match fit {
            FitArg::Crop => Self::Crop,
            FitArg::Stretch => Self::Stretch,
        }
    }
}

fn unreadable(file: &Path) -> String {
    format!("{} cannot be read", file.display())
}
