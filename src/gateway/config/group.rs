//! A group of keys as usable: what its requests get, and what they may not ask for.

use std::time::Duration;

use http::Uri;

use super::raw::{Delivery, Fallback, OnError};
use super::{Deadlines, Secret};

/// One group of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Unique.
    pub(crate) name: String,
    /// What happens when another size or format came than was asked for.
    pub(crate) delivery: Delivery,
    /// How long one call for it may take.
    pub(crate) deadlines: Deadlines,
    /// What happens when no account can make what was asked for.
    pub(crate) fallback: Fallback,
    /// Whether the official coding agents get an image tool where they bring none.
    pub(crate) inject_image_tool: bool,
    /// The text models that may be named; `None` if any may be.
    pub(crate) text_models: Option<Vec<String>>,
    /// The types of tools that the upstream may run; `None` if it may run any.
    pub(crate) tools: Option<Vec<String>>,
    /// What may not be asked for.
    pub(crate) filter: Filter,
}

/// What may not be asked for. Empty, it lets everything through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Words that a prompt must not hold; none is empty.
    pub(crate) words: Vec<String>,
    /// Regular expressions that must not match a prompt; each of them compiles.
    pub(crate) patterns: Vec<String>,
    /// A service that judges prompts.
    pub(crate) moderation: Option<Moderation>,
}

/// A service that judges prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moderation {
    /// As in an account: rebuilt from checked parts.
    pub(crate) base_url: Uri,
    /// Fits into a header.
    pub(crate) api_key: Option<Secret>,
    /// Which model judges.
    pub(crate) model: String,
    /// What happens to a prompt that nobody judged.
    pub(crate) on_error: OnError,
    /// How long a judgement may take.
    pub(crate) timeout: Duration,
}
