//! The settings of an added image model as written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::model::SizeRules;
use super::model_choice::{BackgroundOption, FieldKindOption, FieldOperations, OutputFormatOption};

/// An image model with the values that requests may use. Each setting that is left out is that of `gpt-image-2`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "a table with the `id` and the rules of an image model; text models belong in `text_models`")]
#[serde(deny_unknown_fields)]
pub(crate) struct RawImageModel {
    /// The id of the model in requests and at the upstream.
    #[schemars(required)]
    pub(crate) id: Option<String>,
    /// The image model that a request for `id` gets instead. Such a name has no rules of its own, and the answer states
    /// the change. Default: none; the table is a model.
    pub(crate) alias_of: Option<String>,
    /// The groups of this file whose callers may use the name of an `alias_of`. Such a name may occur again for other
    /// groups. Default: all groups.
    pub(crate) groups: Option<Vec<String>>,
    /// The allowed sizes, such as `auto` and `512x512`. Default: every size that `size_rules` allows.
    pub(crate) sizes: Option<Vec<String>>,
    /// The rules for sizes that are not listed. `auto` is allowed too. Default: the size rules of `gpt-image-2`.
    pub(crate) size_rules: Option<SizeRules>,
    /// The allowed values of `quality`.
    pub(crate) qualities: Option<Vec<String>>,
    /// The allowed values of `output_format`.
    #[schemars(with = "Option<Vec<OutputFormatOption>>")]
    pub(crate) formats: Option<Vec<String>>,
    /// The allowed values of `background`.
    #[schemars(with = "Option<Vec<BackgroundOption>>")]
    pub(crate) backgrounds: Option<Vec<String>>,
    /// The allowed values of `input_fidelity`. Default: none; the field is then refused.
    pub(crate) input_fidelity: Option<Vec<String>>,
    /// The maximum number of images in one request, at most 10.
    pub(crate) max_images: Option<u32>,
    /// The maximum number of intermediate images in a stream, at most 3.
    pub(crate) max_partial_images: Option<u32>,
    /// If `true`, `output_compression` may be below 100.
    pub(crate) compression: Option<bool>,
    /// If `false`, a request for a stream is refused. Default: `true`.
    pub(crate) stream: Option<bool>,
    /// Fields of requests that the API document does not have. They are checked, and sent to the upstream unchanged.
    pub(crate) fields: Option<Vec<RawModelField>>,
    /// Files that the form of an edit may have besides its images and its mask. They are sent to the upstream unchanged.
    pub(crate) file_parts: Option<Vec<RawFilePart>>,
    /// If `true`, fields that neither the API document nor `fields` has are sent to the upstream unchanged. Default:
    /// `false`; they are refused.
    pub(crate) passthrough: Option<bool>,
}

/// A field of requests for one model, in addition to those of the API document.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawModelField {
    /// The name of the field in requests and at the upstream.
    #[schemars(required)]
    pub(crate) name: Option<String>,
    /// The kind of the value.
    #[schemars(required)]
    pub(crate) kind: Option<FieldKindOption>,
    /// The allowed values of a `choice`.
    pub(crate) words: Option<Vec<String>>,
    /// The least value of an `integer` or a `number`. Default: no limit.
    pub(crate) min: Option<f64>,
    /// The greatest value of an `integer` or a `number`. Default: no limit.
    pub(crate) max: Option<f64>,
    /// The maximum number of characters of a `text`. Default: 32000.
    pub(crate) max_chars: Option<u32>,
    /// If `true`, a request without the field is refused. Default: `false`.
    pub(crate) required: Option<bool>,
    /// The requests that may have the field. Default: `both`.
    pub(crate) operations: Option<FieldOperations>,
}

/// A file in the form of an edit, in addition to its images and its mask.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RawFilePart {
    /// The name of the part, such as `markup` or `references[]`.
    #[schemars(required)]
    pub(crate) name: Option<String>,
    /// The maximum number of files under this name. Default: 1.
    #[schemars(range(min = 1, max = 16))]
    pub(crate) max_count: Option<u32>,
}
