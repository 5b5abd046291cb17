//! Usable image models, with the properties that can be requested from each.
//!
//! The models of the API document have fixed rules; the operator can add further models.

use crate::tables::{IMAGE_MODELS, ModelRow};

/// The default model. It is used for an image tool that names no model, and it supplies the rules that an added model
/// leaves out.
const DEFAULT_MODEL: &ModelRow = &IMAGE_MODELS[0];

/// An image model and the properties that can be requested from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageModelSpec {
    /// The unique id, as in requests.
    pub(crate) id: String,
    /// The name of the model; for a snapshot it differs from the id.
    pub(crate) name: String,
    /// The words for `size`, each of which obeys the four size rules; `None` if every size that obeys them is allowed.
    pub(crate) sizes: Option<Vec<String>>,
    /// The words for `quality`: at least one.
    pub(crate) qualities: Vec<String>,
    /// The words for `output_format`, at least one; each is a format that the gateway knows.
    pub(crate) formats: Vec<String>,
    /// The words for `background`: at least one.
    pub(crate) backgrounds: Vec<String>,
    /// The maximum number of images in one request: at least one.
    pub(crate) max_images: u32,
    /// The maximum number of partial images in a stream.
    pub(crate) max_partial_images: u32,
    /// True if the model supports lossy compression on request.
    pub(crate) compression: bool,
}

// === impl ImageModelSpec ===

impl ImageModelSpec {
    /// Returns the models of the API document, in its order.
    pub(crate) fn documented() -> impl Iterator<Item = Self> {
        IMAGE_MODELS.iter().map(Self::from)
    }

    /// Returns the first model of the API document, which is the default model.
    pub(crate) fn default_model() -> Self {
        Self::from(DEFAULT_MODEL)
    }
}

impl From<&ModelRow> for ImageModelSpec {
    fn from(row: &ModelRow) -> Self {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        Self {
            id: row.id.to_owned(),
            name: row.name.to_owned(),
            sizes: row.sizes.map(words),
            qualities: words(row.qualities),
            formats: words(row.formats),
            backgrounds: words(row.backgrounds),
            max_images: row.max_images,
            max_partial_images: row.max_partial_images,
            compression: row.compression,
        }
    }
}
