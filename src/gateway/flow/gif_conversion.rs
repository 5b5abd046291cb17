//! Finds the GIF files among the images of an edit, and converts them for callers with the dialect `gif`.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::dialects::Adaptations;
use crate::gateway::front::spool_error;
use crate::gateway::spool::{EditForm, ImageUpload, Spool, SpoolWriter, SpooledFile};
use crate::image::{GifError, ImageFileError, is_gif, write_first_image};

/// The most files that are converted at the same time (our choice). Each needs one processor, and one byte of memory for
/// each pixel.
const CONVERSIONS_MAX: usize = 2;
static CONVERSIONS: Semaphore = Semaphore::const_new(CONVERSIONS_MAX);
/// The number of bytes that are written at once (our choice).
const WRITE_BYTES: usize = 64 * 1024;

/// A file that is being written, as an output of an encoder.
struct SpoolOutput<'a>(&'a mut SpoolWriter);

/// Returns the names of the images and the mask that are GIF files, as the caller spelled them.
///
/// # Errors
///
/// Returns [`Error::Unavailable`] if a file could not be read back from disk.
pub(super) async fn find_gifs(spool: &Spool, form: &EditForm) -> Result<Vec<String>, Error> {
    let unknown = form.images.iter().chain(&form.mask).filter(|upload| is_unknown(upload)).cloned();
    let unknown: Vec<ImageUpload> = unknown.collect();
    if unknown.is_empty() {
        return Ok(Vec::new());
    }
    let find = move || -> io::Result<Vec<String>> {
        let mut params = Vec::new();
        for upload in unknown {
            if is_gif(&*upload.file)? {
                params.push(upload.param);
            }
        }
        Ok(params)
    };
    spool.run_blocking(find).await.flatten().map_err(|error| spool_error(&error))
}

/// Replaces the GIF files with these names by PNG files of their first image, and notes each.
///
/// # Errors
///
/// Returns 400 that names the file if it is damaged or too large, 429 or 503 if a budget does not allow the new file, and
/// [`Error::Unavailable`] if a file cannot be read or written.
pub(super) async fn convert_gifs(
    spool: &Spool,
    form: &mut EditForm,
    params: &[String],
    adaptations: &mut Adaptations,
) -> Result<(), Error> {
    let uploads = form.images.iter_mut().chain(&mut form.mask);
    for upload in uploads.filter(|upload| is_unknown(upload) && params.contains(&upload.param)) {
        let permit = CONVERSIONS.acquire().await.map_err(|_| Error::Unavailable)?;
        let (original, target) = (upload.clone(), spool.clone());
        let converted = spool.run_blocking(move || {
            let converted = convert(&original.file, &target);
            drop(permit);
            converted.map(|file| ImageUpload::new(original.param, file))
        });
        *upload = converted.await.map_err(|error| spool_error(&error))?.map_err(|error| match error {
            GifError::Io(error) => spool_error(&error),
            error => {
                let message = format!("Invalid image: {error}.");
                Rejection::new(upload.param.clone(), RejectionReason::InvalidValue, message).into()
            }
        })?;
        adaptations.note_gif(&upload.param);
    }
    Ok(())
}

/// True if the format of the file is none of those that an edit may have.
fn is_unknown(upload: &ImageUpload) -> bool {
    upload.header == Err(ImageFileError::Unknown)
}

/// Writes the first image of the file to a new one. Blocks the thread.
fn convert(original: &SpooledFile, spool: &Spool) -> Result<Arc<SpooledFile>, GifError> {
    let mut writer = spool.create_writer_blocking().map_err(GifError::Io)?;
    let mut output = BufWriter::with_capacity(WRITE_BYTES, SpoolOutput(&mut writer));
    write_first_image(original, &mut output)?;
    output.flush().map_err(GifError::Io)?;
    drop(output);
    Ok(writer.finish())
}

impl Write for SpoolOutput<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
