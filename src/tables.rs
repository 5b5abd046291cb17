//! The constant tables which `build.rs` writes from the documents, and the documents themselves.
//!
//! Decides only the form of a row; every number and every word stands in the documents under `openapi/`
//! and nowhere else.
//! Refuses to know what the limits are for: the rooms that enforce them name them.

/// The document of the public API, as it stands in the repository.
pub const OPENAPI: &str = include_str!("../openapi/gateway.json");

/// The document of the operators' API, as it stands in the repository.
pub const ADMIN_OPENAPI: &str = include_str!("../openapi/admin.json");

/// The schema of the skills registry manifest, as it stands in the repository.
pub const MANIFEST_SCHEMA: &str = include_str!("../schemas/skills-registry.schema.json");

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// A limit of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The name, also of the constant, which is in capitals.
    pub name: &'static str,
    /// How many units.
    pub value: u64,
    /// What is counted.
    pub unit: &'static str,
    /// What is limited.
    pub applies_to: &'static str,
    /// Where the number comes from.
    pub source: &'static str,
}

/// An operation of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The `operationId`, which is also the name of the method that serves it.
    pub id: &'static str,
    /// The HTTP method in capitals.
    pub method: &'static str,
    /// The path with its parameters in braces.
    pub path: &'static str,
    /// Whether there are query parameters.
    pub queries: bool,
    /// Whether the answer can be a stream of events.
    pub streams: bool,
}

/// A row of the error table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRow {
    /// `error.code`.
    pub code: &'static str,
    /// `error.type`.
    pub kind: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// The message, where the error has nothing more to tell.
    pub message: &'static str,
    /// Whether sending the same request again can help; nothing where that depends on the reason.
    pub should_retry: Option<bool>,
    /// How it comes about.
    pub cause: &'static str,
    /// What the caller can do.
    pub action: &'static str,
    /// The finer words that may stand beside the code.
    pub reasons: &'static [ReasonRow],
}

/// A finer word beside an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReasonRow {
    /// `error.reason`.
    pub reason: &'static str,
    /// Whether sending the same request again can help; nothing where that depends on the case.
    pub should_retry: Option<bool>,
    /// How it comes about.
    pub cause: &'static str,
}

/// An image model of the document, and what it can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelRow {
    /// As requests spell it.
    pub id: &'static str,
    /// The model that it is: of a snapshot another name than its own.
    pub name: &'static str,
    /// The sizes it makes; nothing where every size will do that obeys the four rules.
    pub sizes: Option<&'static [&'static str]>,
    /// The words for `quality`.
    pub qualities: &'static [&'static str],
    /// The words for `output_format`.
    pub formats: &'static [&'static str],
    /// The words for `background`.
    pub backgrounds: &'static [&'static str],
    /// Images in one request at most.
    pub max_images: u32,
    /// Intermediate images in a stream at most.
    pub max_partial_images: u32,
    /// Whether it compresses with loss where it is asked to.
    pub compression: bool,
}

/// A field of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The name in JSON and in a form.
    pub name: &'static str,
    /// Whether it must be there.
    pub required: bool,
    /// Whether `null` stands for an absent value.
    pub nullable: bool,
    /// What the value must be.
    pub kind: Kind,
}

/// What the value of a field must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A text.
    Text {
        /// The least number of characters.
        min: u64,
        /// The greatest number of characters.
        max: u64,
    },
    /// A whole number.
    Integer {
        /// The least value.
        min: i64,
        /// The greatest value.
        max: i64,
    },
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
    /// A list of texts.
    Texts,
    /// An object whose values are texts.
    TextMap,
    /// A moment as RFC 3339 writes it, with its offset.
    Moment,
    /// A day as `2026-11-21`.
    Day,
}

/// The row of this name, if the table has it.
#[must_use]
pub fn field(table: &'static [Field], name: &str) -> Option<&'static Field> {
    table.iter().find(|field| field.name == name)
}
