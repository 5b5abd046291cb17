//! Image models as usable: what each can be asked for.
//!
//! Those of the document, whose rules are fixed, and those that the operator adds.

use crate::tables::{IMAGE_MODELS, ModelRow};

/// Stands for what nobody names: the model of a tool, the rule of an added model.
const FIRST: &ModelRow = &IMAGE_MODELS[0];

/// An image model, and what it can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ImageModel {
    /// As requests spell it; unique.
    pub(crate) id: String,
    /// The model that it is: of a snapshot another name than its own.
    pub(crate) name: String,
    /// The words for `size`, each of which obeys the four rules; nothing where every size will do that obeys them.
    pub(crate) sizes: Option<Vec<String>>,
    /// The words for `quality`; at least one.
    pub(crate) qualities: Vec<String>,
    /// The words for `output_format`, each a format that the gateway knows; at least one.
    pub(crate) formats: Vec<String>,
    /// The words for `background`; at least one.
    pub(crate) backgrounds: Vec<String>,
    /// Images in one request at most; at least one.
    pub(crate) max_images: u32,
    /// Intermediate images in a stream at most.
    pub(crate) max_partial_images: u32,
    /// Whether it compresses with loss where it is asked to.
    pub(crate) compression: bool,
}

// === impl ImageModel ===

impl ImageModel {
    /// The models of the document, in its order.
    pub(crate) fn documented() -> impl Iterator<Item = Self> {
        IMAGE_MODELS.iter().map(Self::from)
    }

    /// The first of them, which stands for what nobody names.
    pub(crate) fn first() -> Self {
        Self::from(FIRST)
    }
}

impl From<&ModelRow> for ImageModel {
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
