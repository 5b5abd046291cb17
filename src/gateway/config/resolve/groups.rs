//! Resolves groups: the policies of their requests, and the content that they refuse.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::written::written_settings;
use super::{ConfigResolver, DEADLINES, IMAGE_DEADLINES};
use crate::gateway::config::pattern;
use crate::gateway::config::raw::{BudgetMode, RawFilter, RawGroup, RawModeration};
use crate::gateway::config::{
    DEFAULT_GROUP, DeadlineConfig, DeliveryPolicy, DialectSet, FallbackPolicy, FilterConfig, FilterFilePolicy,
    GroupConfig, ModerationConfig, ResponseBudget,
};
use crate::gateway::money::Usd;

/// The maximum number of tool types that a group can name: one less than `HOSTED_MAX` of the module `rules::response`,
/// the number of types that are remembered for a request. So at least one type that is not allowed is always seen.
const TOOLS_MAX: usize = 64;
/// The moderation model if the settings name none.
const DEFAULT_MODERATION_MODEL: &str = "omni-moderation-latest";
/// The default time limit for one check (our choice): every request of the group waits for the check.
const DEFAULT_MODERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of the file that a group has if it does not set its own.
#[derive(Clone, Copy)]
struct InheritedSettings<'a> {
    deadlines: DeadlineConfig,
    text_models: Option<&'a [String]>,
}

impl ConfigResolver<'_> {
    /// Resolves the groups of the file, and adds the default group if the file does not define it. A group without
    /// `text_models` has those that are given here.
    pub(crate) fn groups(&mut self, deadlines: DeadlineConfig, text_models: Option<&[String]>) -> Vec<GroupConfig> {
        let inherited = InheritedSettings { deadlines, text_models };
        let written = self.raw.groups.as_deref().unwrap_or_default();
        let name = Some(DEFAULT_GROUP.to_owned());
        let default = RawGroup { name: name.clone(), ..RawGroup::default() };
        let default = Some(&default).filter(|_| written.iter().all(|group| group.name != name));
        let mut used_names = BTreeSet::new();
        let groups = written.iter().chain(default).enumerate();
        let groups = groups.map(|(index, raw)| GroupConfig {
            implicit: index == written.len(),
            ..self.group(&format!("groups[{index}]"), raw, inherited, &mut used_names)
        });
        groups.collect()
    }

    fn group(
        &mut self,
        path: &str,
        raw: &RawGroup,
        InheritedSettings { deadlines, text_models }: InheritedSettings<'_>,
        used_names: &mut BTreeSet<String>,
    ) -> GroupConfig {
        let name = self.check_name(path, raw.name.as_deref(), used_names);
        let delivery = self.value_or(path, "delivery", raw.delivery, DeliveryPolicy::Report);
        let image = raw.image_deadline.as_ref();
        let image = self.duration((path, "image_deadline"), image, IMAGE_DEADLINES, deadlines.image);
        GroupConfig {
            name,
            delivery,
            deadlines: DeadlineConfig { image, ..deadlines },
            fallback: self.value_or(path, "fallback", raw.fallback, FallbackPolicy::Never),
            inject_image_tool: self.value_or_default(path, "inject_image_tool", raw.inject_image_tool),
            stored_context: self.value(path, "stored_context", raw.stored_context),
            // The schema check has already reported an amount that is out of range.
            response_budget: ResponseBudget {
                mode: self.value_or(path, "budget_mode", raw.budget_mode, BudgetMode::Paced),
                max_response: self.number(path, "max_response_usd", raw.max_response_usd.and_then(Usd::from_dollars)),
            },
            dialects: self.dialects(path, raw),
            text_models: match raw.text_models.as_deref() {
                Some(ids) => self.model_ids(path, "text_models", Some(ids)),
                None => self.value(path, "text_models", text_models.map(<[String]>::to_vec)),
            },
            tools: raw.tools.as_deref().map(|tools| self.check_tools(path, tools)),
            filter_files: self.filter_files(path, raw),
            limits: Arc::new(self.limits(&format!("{path}.limits"), raw.limits.clone().unwrap_or_default())),
            filter: self.filter(&format!("{path}.filter"), &raw.filter.clone().unwrap_or_default()),
            implicit: false,
            policy: written_settings(raw).into_iter().filter(|(setting, _)| setting != "name").collect(),
            problem: None,
        }
    }

    fn dialects(&mut self, path: &str, raw: &RawGroup) -> DialectSet {
        let dialects: DialectSet = raw.dialects.iter().flatten().copied().collect();
        self.texts(path, "dialects", dialects.iter().collect());
        dialects
    }

    /// Resolves the policy for content that the filter cannot see, which has a meaning only with a filter.
    fn filter_files(&mut self, path: &str, raw: &RawGroup) -> FilterFilePolicy {
        let policy = raw.filter_files.unwrap_or(FilterFilePolicy::Refuse);
        let is_shown = raw.filter.as_ref().is_some_and(is_any_filter) || policy != FilterFilePolicy::Refuse;
        if is_shown { self.value(path, "filter_files", policy) } else { policy }
    }

    /// Checks that each tool type has only lower-case letters, digits and `_`.
    fn check_tools(&mut self, path: &str, tools: &[String]) -> Vec<String> {
        let setting = &format!("{path}.tools");
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        for (index, tool) in tools.iter().enumerate() {
            if tool.is_empty() || !tool.bytes().all(fits) {
                self.report(&format!("{setting}[{index}]"), "must be the type of a tool, such as `web_search`");
            }
        }
        if tools.len() > TOOLS_MAX {
            self.report(setting, &format!("may name at most {TOOLS_MAX} types"));
        }
        self.value(path, "tools", tools.to_vec())
    }

    fn filter(&mut self, path: &str, raw: &RawFilter) -> FilterConfig {
        for (index, word) in raw.words.iter().flatten().enumerate() {
            if word.trim().is_empty() {
                self.report(&format!("{path}.words[{index}]"), "is blank and therefore matches every prompt");
            }
        }
        for (index, text) in raw.patterns.iter().flatten().enumerate() {
            if let Err(fault) = pattern::compile(text) {
                self.report(&format!("{path}.patterns[{index}]"), &fault);
            }
        }
        if !is_any_filter(raw) {
            return FilterConfig::default();
        }
        let words: Vec<_> = raw.words.iter().flatten().map(|word| word.trim().to_owned()).collect();
        FilterConfig {
            words: self.value(path, "words", words),
            patterns: self.value(path, "patterns", raw.patterns.clone().unwrap_or_default()),
            moderation: raw.moderation.as_ref().and_then(|raw| self.moderation(&format!("{path}.moderation"), raw)),
        }
    }

    /// Resolves the moderation service. The reader of the file has already reported required settings that are absent.
    fn moderation(&mut self, path: &str, raw: &RawModeration) -> Option<ModerationConfig> {
        let base_url = raw.base_url.as_ref().and_then(|text| self.service_url(path, text, raw.allow_http));
        let api_key = raw.api_key.as_ref().map(|source| self.bearer_key(path, "api_key", source));
        let model = raw.model.clone().unwrap_or_else(|| DEFAULT_MODERATION_MODEL.to_owned());
        self.check_model_id(&format!("{path}.model"), &model);
        let model = self.text(path, "model", model);
        let on_error = self.value(path, "on_error", raw.on_error);
        let timeout = self.duration((path, "timeout"), raw.timeout.as_ref(), DEADLINES, DEFAULT_MODERATION_TIMEOUT);
        // A key that cannot be read must not lead to a call without a key.
        let api_key = match api_key {
            Some(key) => Some(key?),
            None => None,
        };
        Some(ModerationConfig { base_url: base_url?, api_key, model, on_error: on_error?, timeout })
    }
}

/// True if anything is filtered.
fn is_any_filter(raw: &RawFilter) -> bool {
    let is_any = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    is_any(&raw.words) || is_any(&raw.patterns) || raw.moderation.is_some()
}
