//! A usable group of keys: the policies of its requests, and the content that it refuses.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use serde_json::{Map, Value};

use super::raw::{
    BudgetMode, DeliveryPolicy, FallbackPolicy, FilterFilePolicy, ModerationErrorPolicy, StoredContextPolicy,
};
use super::{Config, ConfigSecret, DeadlineConfig, DialectSet, RequestLimits, SettingSource};
use crate::gateway::money::Usd;

/// One group of keys.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GroupConfig {
    /// The unique name.
    pub(crate) name: String,
    /// The policy for an image that differs from the request in size or format.
    pub(crate) delivery: DeliveryPolicy,
    /// The time limits for one request.
    pub(crate) deadlines: DeadlineConfig,
    /// The policy for a large image that fails: whether a smaller size or a lower quality may follow.
    pub(crate) fallback: FallbackPolicy,
    /// True if an image tool is added to requests of the official coding agents that have none.
    pub(crate) inject_image_tool: bool,
    /// The stored context that callers may name; `None` if it depends on the users and accounts of the group.
    pub(crate) stored_context: Option<StoredContextPolicy>,
    /// The dialects that callers may use, besides those of their keys.
    pub(crate) dialects: DialectSet,
    /// The text models that may be named; `None` if any may be.
    pub(crate) text_models: Option<Vec<String>>,
    /// The types of tools that the upstream may run; `None` if it may run any.
    pub(crate) tools: Option<Vec<String>>,
    /// The rule by which responses keep within budgets.
    pub(crate) response_budget: ResponseBudget,
    /// The content that is refused.
    pub(crate) filter: FilterConfig,
    /// The policy for content that the filter cannot see.
    pub(crate) filter_files: FilterFilePolicy,
    /// The limits of all keys of the group together.
    pub(crate) limits: Arc<RequestLimits>,
    /// True for the default group if the file does not define it.
    pub(crate) implicit: bool,
    /// The settings as written, without the name.
    pub(crate) policy: Map<String, Value>,
    /// The reason why the settings in the store cannot be used; requests of the group are then refused.
    pub(crate) problem: Option<String>,
}

/// The rule by which responses, whose cost their text model decides, keep within budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseBudget {
    /// The treatment of a response whose cost is not bounded.
    pub(crate) mode: BudgetMode,
    /// The most that a response costs, as the operator states it.
    pub(crate) max_response: Option<Usd>,
}

impl Default for ResponseBudget {
    fn default() -> Self {
        Self { mode: BudgetMode::Paced, max_response: None }
    }
}

/// The content that is refused. An empty filter lets every prompt pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FilterConfig {
    /// Words that a prompt must not contain; no word is empty.
    pub(crate) words: Vec<String>,
    /// Regular expressions that must not match a prompt; each of them compiles.
    pub(crate) patterns: Vec<String>,
    /// The service that checks prompts, if there is one.
    pub(crate) moderation: Option<ModerationConfig>,
}

/// A service that checks prompts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModerationConfig {
    /// The address of the service, rebuilt from checked parts as in an account.
    pub(crate) base_url: Uri,
    /// The key for the service; it fits into a header.
    pub(crate) api_key: Option<ConfigSecret>,
    /// The moderation model.
    pub(crate) model: String,
    /// The policy for a prompt that the service could not check.
    pub(crate) on_error: ModerationErrorPolicy,
    /// The time limit for one check.
    pub(crate) timeout: Duration,
}

// === impl GroupConfig ===

impl GroupConfig {
    /// Returns the settings of a group that the configuration does not define.
    pub(crate) fn implicit(name: &str, deadlines: DeadlineConfig, text_models: Option<&[String]>) -> Self {
        Self {
            name: name.to_owned(),
            delivery: DeliveryPolicy::Report,
            deadlines,
            fallback: FallbackPolicy::Never,
            inject_image_tool: false,
            stored_context: None,
            response_budget: ResponseBudget::default(),
            dialects: DialectSet::default(),
            text_models: text_models.map(<[String]>::to_vec),
            tools: None,
            filter: FilterConfig::default(),
            filter_files: FilterFilePolicy::Refuse,
            limits: Arc::default(),
            implicit: true,
            policy: Map::new(),
            problem: None,
        }
    }

    /// A group without settings.
    #[cfg(test)]
    pub(crate) fn for_test(name: &str) -> Self {
        let second = Duration::from_secs(1);
        Self::implicit(name, DeadlineConfig { connect: second, image: second }, None)
    }

    /// True if the group's moderation service is called over an encrypted connection.
    pub(crate) fn needs_tls(&self) -> bool {
        self.filter.moderation.as_ref().is_some_and(|service| service.base_url.scheme_str() == Some("https"))
    }
}

// === impl Config ===

impl Config {
    /// Returns the names of the groups in the file. Only the file can change these groups.
    pub(crate) fn file_groups(&self) -> Vec<String> {
        self.groups.iter().filter(|group| !group.implicit).map(|group| group.name.clone()).collect()
    }

    /// Returns the same settings with these groups of the store after those of the file. If both define a group, the
    /// file takes precedence. A drain timeout that is not set follows the deadlines of all these groups.
    pub(crate) fn with_store_groups(&self, store_groups: Vec<GroupConfig>) -> Self {
        let mut config = self.clone();
        config.groups.retain(|group| !group.implicit || store_groups.iter().all(|stored| stored.name != group.name));
        for group in store_groups {
            if config.groups.iter().all(|existing| existing.name != group.name) {
                config.groups.push(group);
            }
        }
        if self.sources.get("drain_timeout").copied().unwrap_or_default() == SettingSource::Default {
            config.drain_timeout = super::resolve::default_drain_timeout(&config.groups, config.deadlines);
        }
        config
    }
}
