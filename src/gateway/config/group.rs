//! A group of keys as usable: what its requests get, and what they may not ask for.

use std::time::Duration;

use http::Uri;
use serde_json::{Map, Value};

use super::raw::{Delivery, Fallback, OnError};
use super::{Config, Deadlines, Secret, Source};

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
    /// True for the default group, if nobody has written it.
    pub(crate) implicit: bool,
    /// The settings as they are written, without the name.
    pub(crate) policy: Map<String, Value>,
    /// The reason why its settings in the store cannot be used; its requests are refused then.
    pub(crate) problem: Option<String>,
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

// === impl Group ===

impl Group {
    /// True if a service that judges its prompts is called encrypted.
    pub(crate) fn needs_tls(&self) -> bool {
        self.filter.moderation.as_ref().is_some_and(|service| service.base_url.scheme_str() == Some("https"))
    }
}

// === impl Config ===

impl Config {
    /// The names of the groups that the file has, which alone can change them.
    pub(crate) fn groups_of_file(&self) -> Vec<String> {
        self.groups.iter().filter(|group| !group.implicit).map(|group| group.name.clone()).collect()
    }

    /// The same settings with these groups of the store beside those of the file, which come first.
    pub(crate) fn with_groups_of_store(&self, kept: Vec<Group>) -> Self {
        let mut config = self.clone();
        config.groups.retain(|group| !group.implicit || kept.iter().all(|kept| kept.name != group.name));
        for group in kept {
            if config.groups.iter().all(|known| known.name != group.name) {
                config.groups.push(group);
            }
        }
        if self.sources.get("drain_timeout").copied().unwrap_or_default() == Source::Default {
            config.drain_timeout = super::resolve::drain_timeout(&config.groups, config.deadlines);
        }
        config
    }
}
