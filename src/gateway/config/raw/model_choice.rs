//! The settings of added image models with a fixed set of values, and the words for them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The file format of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OutputFormatOption {
    Png,
    Jpeg,
    Webp,
    Gif,
}

/// The kind of value that an added field of requests has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FieldKindOption {
    /// One of the `words`.
    Choice,
    /// A whole number.
    Integer,
    /// A number, with or without decimals.
    Number,
    /// True or false.
    Boolean,
    /// A text.
    Text,
    /// A JSON object, whose members the upstream checks.
    Object,
}

/// The requests that may have an added field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FieldOperations {
    /// Only generations.
    Generations,
    /// Only edits.
    Edits,
    /// Generations and edits.
    #[default]
    Both,
}

/// The background of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum BackgroundOption {
    Auto,
    Opaque,
    Transparent,
}
