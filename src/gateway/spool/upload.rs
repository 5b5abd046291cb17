//! The form of an edit: its fields, and its images as spooled files.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::SpooledFile;
use crate::image::{ImageFileError, ImageHeader, inspect};

/// The form of an edit, in either encoding. The rules check it.
#[derive(Debug, Default)]
pub(crate) struct EditForm {
    /// All fields that are not images, as JSON.
    pub(crate) fields: Map<String, Value>,
    /// The images, in the caller's order: at least one, and at most as many as an edit may have.
    pub(crate) images: Vec<ImageUpload>,
    /// The mask, if there is one.
    pub(crate) mask: Option<ImageUpload>,
    /// The files of parts that only added models have, in the caller's order. Nothing of them has been checked.
    pub(crate) files: Vec<ImageUpload>,
    /// True for a multipart form, in which the values of fields that only added models have are texts.
    pub(crate) is_multipart: bool,
}

/// One image as it was uploaded.
#[derive(Clone, Debug)]
pub(crate) struct ImageUpload {
    /// The name of the field as the caller spelled it: `image`, `image[]`, `images[0].image_url`, `mask`.
    pub(crate) param: String,
    /// The bytes of the image.
    pub(crate) file: Arc<SpooledFile>,
    /// The header read from the first bytes, or the problem with them.
    pub(crate) header: Result<ImageHeader, ImageFileError>,
}

// === impl ImageUpload ===

impl ImageUpload {
    /// Reads the header of the uploaded file. Blocks the thread, so async code must not call it.
    pub(crate) fn new(param: impl Into<String>, file: Arc<SpooledFile>) -> Self {
        let header = inspect(&*file);
        Self { param: param.into(), file, header }
    }
}
