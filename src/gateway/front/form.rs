//! The form of an image edit, which comes as multipart form data or as JSON and is read into one type, `EditForm`.
//!
//! The name of a part or member alone decides whether it is an image or a field; this module limits the size of both.
//! Images are written to the spool as they come; the content type and file name that a caller states for them are
//! ignored. The module does not know which values and images are valid: `rules` checks them.
//!
//! Implements section 3 of the contract: names, order, limits, and both encodings of an image.

mod edit_fields;
mod form_buffer;
mod image_url;
mod json;
mod multipart;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use dropshot::{Body, MultipartBody};

use super::body::{IncomingBody, UnreadRequestBody, content_type, is_json, spool_error, too_many_values};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::admission::Admission;
use crate::gateway::config::DialectSet;
use crate::gateway::rules::AddedNames;
use crate::gateway::spool::{EditForm, ImageUpload, Spool, SpoolWriter};
use crate::gateway::upstream::{DownloadError, ImageDownloader};
use crate::gateway::work::Work;
use crate::image::ByteSource as _;
use crate::tables::{MAX_EDIT_FORM_BODY_BYTES, MAX_EDIT_IMAGES, MAX_EDIT_JSON_BODY_BYTES, MAX_JSON_BODY_BYTES};

/// The limit on all bytes that are not images: the same as for the body of a request without images.
const NON_IMAGE_MAX_BYTES: u64 = MAX_JSON_BODY_BYTES;

/// The body of an edit, unread: multipart form data, or JSON.
pub(crate) type EditBody = UnreadRequestBody<MultipartBody>;

/// The names that a form may have in addition to those of the API document.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormNames {
    /// The dialects of the caller, which may have further fields and parts.
    pub(crate) dialects: DialectSet,
    /// The fields and files that added models have.
    pub(crate) added: Arc<AddedNames>,
}

/// The parts of the settings on which the reading of a form depends.
#[derive(Clone, Debug, Default)]
pub(crate) struct FormSettings {
    /// The names besides those of the API document.
    pub(crate) names: FormNames,
    /// Fetches the images that a JSON form names by a web address; `None` if such a form is refused.
    pub(crate) downloader: Option<Arc<ImageDownloader>>,
}

/// The form of a page that makes images: the fields and images of the API, and the page's own fields.
#[derive(Debug)]
pub(crate) struct ImagePageForm {
    /// The fields and images of the API. The list of images may be empty.
    pub(crate) form: EditForm,
    /// The page's own fields, in the order in which they came.
    pub(crate) page_fields: Vec<(String, String)>,
}

/// The images that have come so far.
#[derive(Debug, Default)]
struct EditImages {
    images: Vec<ImageUpload>,
    mask: Option<ImageUpload>,
    /// The files of parts that only added models have.
    files: Vec<ImageUpload>,
    /// The images that are named by a web address, in their order.
    remote: Vec<RemoteImage>,
}

/// An image that is named by a web address, and is fetched when the rest of the form is there.
#[derive(Debug)]
struct RemoteImage {
    /// The place among all images; `None` for the mask.
    index: Option<usize>,
    param: String,
    address: String,
    writer: SpoolWriter,
}

// === impl EditBody ===

impl EditBody {
    /// Reads the form, which may have these names besides those of the API document. Its images are files in the spool if
    /// this succeeds, and are deleted if it fails.
    ///
    /// # Errors
    ///
    /// Returns 415 for another content type or an unsupported content encoding, 413 if the body, an image part, or the
    /// values besides the images are too large, 400 for a form that breaks another rule, cannot be read or does not
    /// arrive completely, or names an image that cannot be fetched, 429 or 503 if a budget does not allow it, and 503 if
    /// an image cannot be written to disk.
    pub(crate) async fn read(
        self,
        admission: &Admission,
        spool: &Spool,
        settings: FormSettings,
    ) -> Result<EditForm, Error> {
        read(self.request, admission, spool, settings).await
    }
}

async fn read(
    request: hyper::Request<Body>,
    admission: &Admission,
    spool: &Spool,
    settings: FormSettings,
) -> Result<EditForm, Error> {
    let spool = &spool.for_request(admission);
    if is_json(content_type(&request)) {
        let incoming = IncomingBody::new(request, admission, MAX_EDIT_JSON_BODY_BYTES, RejectionReason::InvalidJson)?;
        let mut incoming = incoming.charging(Work::ScannedBytes);
        incoming.allow_large_windows();
        return json::read(incoming, spool, settings).await;
    }
    let (incoming, boundary) = begin_multipart(request, admission)?;
    multipart::read(incoming, &boundary, spool, settings.names).await
}

/// Reads the form of a page as [`EditBody::read`] does. `page_fields` are the names of the page's own fields.
///
/// # Errors
///
/// Returns the errors of [`EditBody::read`], except the one for a form without images.
pub(super) async fn read_page_form(
    request: hyper::Request<Body>,
    admission: &Admission,
    spool: &Spool,
    page_fields: &'static [&'static str],
) -> Result<ImagePageForm, Error> {
    let (incoming, boundary) = begin_multipart(request, admission)?;
    multipart::read_page_form(incoming, &boundary, &spool.for_request(admission), page_fields).await
}

fn begin_multipart(request: hyper::Request<Body>, admission: &Admission) -> Result<(IncomingBody, String), Error> {
    let Some(boundary) = multipart::boundary(content_type(&request)) else {
        return Err(Error::UnsupportedMedia(
            "Expected the header 'Content-Type: multipart/form-data' with a boundary, or 'Content-Type: \
             application/json'."
                .to_owned(),
        ));
    };
    let boundary = boundary?;
    let incoming = IncomingBody::new(request, admission, MAX_EDIT_FORM_BODY_BYTES, RejectionReason::InvalidValue)?;
    let mut incoming = incoming.charging(Work::SpooledBytes);
    incoming.allow_large_windows();
    Ok((incoming, boundary))
}

// === impl EditImages ===

impl EditImages {
    /// The number of images, without the mask.
    fn len(&self) -> usize {
        self.images.len() + self.remote.iter().filter(|image| image.index.is_some()).count()
    }

    /// Fetches the images that are named by a web address. Each is charged before it is fetched, and its bytes afterwards.
    async fn download(
        &mut self,
        downloader: &ImageDownloader,
        spool: &Spool,
        admission: &Admission,
    ) -> Result<(), Error> {
        let until = downloader.deadline();
        for RemoteImage { index, param, address, writer } in std::mem::take(&mut self.remote) {
            admission.charge(Work::FetchedImage);
            let file = downloader.download(&address, writer, until).await;
            let file = file.map_err(|error| download_error(&param, &error))?;
            admission.charge(Work::SpooledBytes(file.len()));
            let upload = spool.run_blocking(move || ImageUpload::new(param, file)).await;
            let upload = upload.map_err(|error| spool_error(&error))?;
            match index {
                Some(index) => self.images.insert(index, upload),
                None => self.mask = Some(upload),
            }
        }
        Ok(())
    }

    /// Returns an error if no further image is allowed.
    fn check_image_count(&self, param: &str) -> Result<(), Error> {
        if (self.len() as u64) < MAX_EDIT_IMAGES {
            return Ok(());
        }
        let message = format!("Invalid '{param}': too many images. Expected at most {MAX_EDIT_IMAGES}.");
        Err(Rejection::new(param, RejectionReason::InvalidValue, message).into())
    }

    /// Returns an error if no further file of an added model is allowed.
    fn check_file_count(&self, param: &str) -> Result<(), Error> {
        if (self.files.len() as u64) < MAX_EDIT_IMAGES {
            return Ok(());
        }
        let message = format!("Invalid '{param}': too many files. Expected at most {MAX_EDIT_IMAGES}.");
        Err(Rejection::new(param, RejectionReason::InvalidValue, message).into())
    }

    /// Completes the form after the last part or member; `param` names the images in the error if there are none.
    fn finish(self, param: &str, fields: edit_fields::EditFields) -> Result<EditForm, Error> {
        if self.images.is_empty() {
            let message = format!("Missing required parameter: '{param}'.");
            return Err(Rejection::new(param, RejectionReason::MissingParameter, message).into());
        }
        Ok(EditForm {
            fields: fields.into_inner(),
            images: self.images,
            mask: self.mask,
            files: self.files,
            is_multipart: false,
        })
    }
}

fn download_error(param: &str, error: &DownloadError) -> Error {
    if let DownloadError::Spool(error) = error {
        return spool_error(error);
    }
    let message = format!("Invalid '{param}': {error}");
    Rejection::new(param, RejectionReason::InvalidValue, message).into()
}
