//! Usable image models, with the properties that can be requested from each.
//!
//! The models of the API document have fixed rules; the operator can add further models.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::raw::FieldOperations;
use crate::tables::{IMAGE_MODELS, ModelRow};

/// The default model. It is used for an image tool that names no model, and it supplies the rules that an added model
/// leaves out.
const DEFAULT_MODEL: &ModelRow = &IMAGE_MODELS[0];

/// An image model and the properties that can be requested from it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ImageModelSpec {
    /// The unique id, as in requests.
    pub(crate) id: String,
    /// The name of the model; for a snapshot it differs from the id.
    pub(crate) name: String,
    /// The words for `size`; `None` if every size that obeys the rules is allowed.
    pub(crate) sizes: Option<Vec<String>>,
    /// The size rules of the model; `None` if those of the API document apply.
    pub(crate) size_rules: Option<SizeRules>,
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
    /// The words for `input_fidelity`; empty if the model does not support it.
    pub(crate) fidelities: Vec<String>,
    /// True if the model can answer with a stream of events.
    pub(crate) can_stream: bool,
    /// The fields that requests may have in addition to those of the API document.
    pub(crate) fields: Vec<ModelField>,
    /// The files that an edit may have besides its images and its mask.
    pub(crate) file_parts: Vec<FilePart>,
    /// True if unknown fields are sent to the upstream.
    pub(crate) passes_unknown: bool,
}

/// Another name for an image model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModelAlias {
    /// The name in requests.
    pub(crate) alias: String,
    /// The id of the model that the upstream gets.
    pub(crate) model: String,
    /// The groups whose callers may use the name; `None` if all may.
    pub(crate) groups: Option<Vec<String>>,
}

/// The rules for the sizes of a model. A rule that is left out does not limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[schemars(rename = "RawSizeRules")]
#[serde(deny_unknown_fields)]
pub(crate) struct SizeRules {
    /// The number of pixels by which width and height must be divisible.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) multiple_of: Option<u32>,
    /// The shortest edge in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) min_edge: Option<u32>,
    /// The longest edge in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) max_edge: Option<u32>,
    /// The least number of pixels in total.
    pub(crate) min_pixels: Option<u32>,
    /// The greatest number of pixels in total.
    pub(crate) max_pixels: Option<u32>,
    /// The greatest ratio of the long edge to the short edge.
    #[schemars(range(min = 1, max = 65_535))]
    pub(crate) max_ratio: Option<u32>,
}

/// A field of requests that only this model has.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ModelField {
    /// The name, as in requests and at the upstream.
    pub(crate) name: String,
    /// The kind of value that the field must have.
    pub(crate) kind: ModelFieldKind,
    /// True if a request without the field is refused.
    pub(crate) required: bool,
    /// The requests that may have the field.
    pub(crate) operations: FieldOperations,
}

/// The kind of value of an added field.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ModelFieldKind {
    /// One of these words: at least one.
    Choice(Vec<String>),
    /// A whole number within these limits.
    Integer {
        /// The least value.
        min: Option<i64>,
        /// The greatest value.
        max: Option<i64>,
    },
    /// A number within these limits.
    Number {
        /// The least value.
        min: Option<f64>,
        /// The greatest value.
        max: Option<f64>,
    },
    /// True or false.
    Boolean,
    /// A text.
    Text {
        /// The maximum number of characters.
        max_chars: u32,
    },
    /// An object, whose members the upstream checks.
    Object,
}

/// A file that the form of an edit may have besides its images and its mask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilePart {
    /// The name of the part.
    pub(crate) name: String,
    /// The maximum number of files under this name.
    pub(crate) max_count: u32,
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
            size_rules: None,
            fidelities: Vec::new(),
            can_stream: true,
            fields: Vec::new(),
            file_parts: Vec::new(),
            passes_unknown: false,
        }
    }
}

// === impl ModelAlias ===

impl ModelAlias {
    /// True if callers of this group may use the name.
    pub(crate) fn serves(&self, group: &str) -> bool {
        self.groups.as_ref().is_none_or(|groups| groups.iter().any(|name| name == group))
    }
}

impl fmt::Display for ModelAlias {
    /// Writes the change, as the answer states it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model {}->{}", self.alias, self.model)
    }
}

// === impl SizeRules ===

impl SizeRules {
    /// True if a size with these edges obeys every rule.
    pub(crate) fn allow(&self, width: u32, height: u32) -> bool {
        let (long, short) = (width.max(height), width.min(height));
        let pixels = u64::from(width) * u64::from(height);
        let is_multiple = |divisor: u32| width.is_multiple_of(divisor) && height.is_multiple_of(divisor);
        short > 0
            && self.multiple_of.is_none_or(is_multiple)
            && self.min_edge.is_none_or(|min| short >= min)
            && self.max_edge.is_none_or(|max| long <= max)
            && self.min_pixels.is_none_or(|min| pixels >= u64::from(min))
            && self.max_pixels.is_none_or(|max| pixels <= u64::from(max))
            && self.max_ratio.is_none_or(|max| u64::from(long) <= u64::from(max) * u64::from(short))
    }

    /// Returns the rules as words for a message, such as `edges that are multiples of 64 px, edges of at most 2048 px`.
    pub(crate) fn description(&self) -> String {
        let rules = [
            self.multiple_of.map(|number| format!("edges that are multiples of {number} px")),
            self.min_edge.map(|number| format!("edges of at least {number} px")),
            self.max_edge.map(|number| format!("edges of at most {number} px")),
            self.min_pixels.map(|number| format!("at least {number} pixels in total")),
            self.max_pixels.map(|number| format!("at most {number} pixels in total")),
            self.max_ratio.map(|number| format!("a long edge of at most {number} times the short edge")),
        ];
        rules.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

// === impl ModelField ===

impl ModelField {
    /// True if requests of this operation may have the field.
    pub(crate) fn applies_to(&self, is_edit: bool) -> bool {
        match self.operations {
            FieldOperations::Generations => !is_edit,
            FieldOperations::Edits => is_edit,
            FieldOperations::Both => true,
        }
    }
}
