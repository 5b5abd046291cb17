//! The documents under `openapi/` and `schemas/`, and the constant tables that `build.rs` generates from the API
//! documents.
//!
//! This module decides only the form of a row; every number and every word in a row comes from the documents under
//! `openapi/`. It must not know the purpose of a limit: the modules that enforce limits refer to them by name.

/// The document of the public API, as stored in the repository.
pub const OPENAPI: &str = include_str!("../openapi/gateway.json");

/// The document of the admin API, as stored in the repository.
pub const ADMIN_OPENAPI: &str = include_str!("../openapi/admin.json");

/// The schema of the skills registry manifest, as stored in the repository.
pub const MANIFEST_SCHEMA: &str = include_str!("../schemas/skills-registry.schema.json");

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A limit of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limit {
    /// The name of the limit. A constant of this module has the same name in capitals, and the value of the limit.
    pub name: &'static str,
    /// The number of units.
    pub value: u64,
    /// The unit that is counted, such as bytes.
    pub unit: &'static str,
    /// The thing that is limited.
    pub applies_to: &'static str,
    /// The source of the number.
    pub source: &'static str,
}

/// An operation of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operation {
    /// The `operationId`, which is also the name of the method that serves it.
    pub id: &'static str,
    /// The HTTP method in capitals.
    pub method: &'static str,
    /// The path with its parameters in braces.
    pub path: &'static str,
    /// True if the operation has query parameters.
    pub queries: bool,
    /// True if the answer can be a stream of events.
    pub streams: bool,
}

/// A row of the error table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorRow {
    /// `error.code`.
    pub code: &'static str,
    /// `error.type`.
    pub kind: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The message for errors without details of their own.
    pub message: &'static str,
    /// True if sending the same request again can help; `None` if that depends on the reason.
    pub should_retry: Option<bool>,
    /// The cause of the error.
    pub cause: &'static str,
    /// The action that the caller can take.
    pub action: &'static str,
    /// The reasons that may refine the code.
    pub reasons: &'static [ReasonRow],
}

/// A reason that refines an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReasonRow {
    /// `error.reason`.
    pub reason: &'static str,
    /// True if sending the same request again can help; `None` if that depends on the case.
    pub should_retry: Option<bool>,
    /// The cause of the error.
    pub cause: &'static str,
}

/// An image model of the document, with the values that requests may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelRow {
    /// The id, as requests spell it.
    pub id: &'static str,
    /// The model behind the id; for a snapshot it differs from the id.
    pub name: &'static str,
    /// The sizes that the model makes; `None` if it makes every size that obeys the four rules of `ImageSize`.
    pub sizes: Option<&'static [&'static str]>,
    /// The words for `quality`.
    pub qualities: &'static [&'static str],
    /// The words for `output_format`.
    pub formats: &'static [&'static str],
    /// The words for `background`.
    pub backgrounds: &'static [&'static str],
    /// The maximum number of images in one request.
    pub max_images: u32,
    /// The maximum number of intermediate images in a stream.
    pub max_partial_images: u32,
    /// True if the model supports lossy compression on request.
    pub compression: bool,
}

/// A field of a request body, or a query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Field {
    /// The name in JSON, in a form or in the query of an address.
    pub name: &'static str,
    /// True if the field is required.
    pub required: bool,
    /// True if `null` stands for an absent value.
    pub nullable: bool,
    /// The kind of value that the field must have.
    pub kind: FieldKind,
}

/// The kind of value that a field must have. It is checked before the rules for the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldKind {
    /// A text.
    Text {
        /// The minimum number of characters.
        min: u64,
        /// The maximum number of characters.
        max: u64,
    },
    /// A whole number.
    Integer {
        /// The minimum value.
        min: i64,
        /// The maximum value.
        max: i64,
    },
    /// A number, with or without decimals.
    Number,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// True or false.
    Boolean,
    /// A pixel size or `auto`.
    Size,
    /// A list of images.
    Images,
    /// One image.
    Image,
    /// An object whose members are checked elsewhere.
    Object,
    /// A list of texts.
    Texts,
    /// A list of these words.
    Choices(&'static [&'static str]),
    /// An object whose values are texts.
    TextMap,
    /// An object whose values are numbers.
    NumberMap,
    /// A time in the form of RFC 3339, with its offset.
    Moment,
    /// A day in the form `2026-11-21`.
    Day,
}

/// Returns the field with this name, if the table has one.
#[must_use]
pub fn field(table: &'static [Field], name: &str) -> Option<&'static Field> {
    table.iter().find(|field| field.name == name)
}
