//! The settings of an added image model as written.

use schemars::JsonSchema;
use serde::Deserialize;

use super::model_choice::{BackgroundOption, FieldKindOption, FieldOperations, OutputFormatOption};

/// An image model with the values that requests may use. Each setting that is left out is that of `gpt-image-2`.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[schemars(title = "a table with the `id` and the rules of an image model; text models belong in `text_models`")]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawImageModel {
    /// The id of the model in requests and at the upstream.
    #[schemars(required)]
    pub(in crate::gateway::config) id: Option<String>,
    /// The image model that a request for `id` gets instead. Such a name has no rules of its own, and the answer states
    /// the change. Default: none; the table is a model.
    pub(in crate::gateway::config) alias_of: Option<String>,
    /// The groups of this file whose callers may use the name of an `alias_of`. Such a name may occur again for other
    /// groups. Default: all groups.
    pub(in crate::gateway::config) groups: Option<Vec<String>>,
    /// The allowed sizes, such as `auto` and `512x512`. Default: every size that `size_rules` allows.
    pub(in crate::gateway::config) sizes: Option<Vec<String>>,
    /// The rules for sizes that are not listed. `auto` is allowed too. Default: the size rules of `gpt-image-2`.
    pub(in crate::gateway::config) size_rules: Option<RawSizeRules>,
    /// The allowed values of `quality`.
    pub(in crate::gateway::config) qualities: Option<Vec<String>>,
    /// The allowed values of `output_format`.
    pub(in crate::gateway::config) formats: Option<Vec<OutputFormatOption>>,
    /// The allowed values of `background`.
    pub(in crate::gateway::config) backgrounds: Option<Vec<BackgroundOption>>,
    /// The allowed values of `input_fidelity`. Default: none; the field is then refused.
    pub(in crate::gateway::config) input_fidelity: Option<Vec<String>>,
    /// The maximum number of images in one request, at most 10.
    pub(in crate::gateway::config) max_images: Option<u32>,
    /// The maximum number of intermediate images in a stream, at most 3.
    pub(in crate::gateway::config) max_partial_images: Option<u32>,
    /// If `true`, `output_compression` may be below 100.
    pub(in crate::gateway::config) compression: Option<bool>,
    /// If `false`, a request for a stream is refused. Default: `true`.
    pub(in crate::gateway::config) stream: Option<bool>,
    /// Fields of requests that the API document does not have. They are checked, and sent to the upstream unchanged.
    pub(in crate::gateway::config) fields: Option<Vec<RawModelField>>,
    /// Files that the form of an edit may have besides its images and its mask. They are sent to the upstream unchanged.
    pub(in crate::gateway::config) file_parts: Option<Vec<RawFilePart>>,
    /// If `true`, fields that neither the API document nor `fields` has are sent to the upstream unchanged. Default:
    /// `false`; they are refused.
    pub(in crate::gateway::config) passthrough: Option<bool>,
}

// === impl RawImageModel ===

impl RawImageModel {
    /// True if the table has any setting besides `id`, `alias_of` and `groups`.
    pub(in crate::gateway::config) const fn has_rules(&self) -> bool {
        self.sizes.is_some()
            || self.size_rules.is_some()
            || self.qualities.is_some()
            || self.formats.is_some()
            || self.backgrounds.is_some()
            || self.input_fidelity.is_some()
            || self.max_images.is_some()
            || self.max_partial_images.is_some()
            || self.compression.is_some()
            || self.stream.is_some()
            || self.fields.is_some()
            || self.file_parts.is_some()
            || self.passthrough.is_some()
    }
}

/// The rules for the sizes of a model. A rule that is left out does not limit.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawSizeRules {
    /// The number of pixels by which width and height must be divisible.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in crate::gateway::config) multiple_of: Option<u32>,
    /// The shortest edge in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in crate::gateway::config) min_edge: Option<u32>,
    /// The longest edge in pixels.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in crate::gateway::config) max_edge: Option<u32>,
    /// The least number of pixels in total.
    pub(in crate::gateway::config) min_pixels: Option<u32>,
    /// The greatest number of pixels in total.
    pub(in crate::gateway::config) max_pixels: Option<u32>,
    /// The greatest ratio of the long edge to the short edge.
    #[schemars(range(min = 1, max = 65_535))]
    pub(in crate::gateway::config) max_ratio: Option<u32>,
}

/// A field of requests for one model, in addition to those of the API document.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawModelField {
    /// The name of the field in requests and at the upstream.
    #[schemars(required)]
    pub(in crate::gateway::config) name: Option<String>,
    /// The kind of the value.
    #[schemars(required)]
    pub(in crate::gateway::config) kind: Option<FieldKindOption>,
    /// The allowed values of a `choice`.
    pub(in crate::gateway::config) words: Option<Vec<String>>,
    /// The least value of an `integer` or a `number`. Default: no limit.
    pub(in crate::gateway::config) min: Option<f64>,
    /// The greatest value of an `integer` or a `number`. Default: no limit.
    pub(in crate::gateway::config) max: Option<f64>,
    /// The maximum number of characters of a `text`. Default: 32000.
    pub(in crate::gateway::config) max_chars: Option<u32>,
    /// If `true`, a request without the field is refused. Default: `false`.
    pub(in crate::gateway::config) required: Option<bool>,
    /// The requests that may have the field. Default: `both`.
    pub(in crate::gateway::config) operations: Option<FieldOperations>,
}

/// A file in the form of an edit, in addition to its images and its mask.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::gateway::config) struct RawFilePart {
    /// The name of the part, such as `markup` or `references[]`.
    #[schemars(required)]
    pub(in crate::gateway::config) name: Option<String>,
    /// The maximum number of files under this name. Default: 1.
    #[schemars(range(min = 1, max = 16))]
    pub(in crate::gateway::config) max_count: Option<u32>,
}
