//! Resolves groups: the policies of their requests, and the content that they refuse.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{ConfigResolver, SHORTEST_DEADLINE};
use crate::gateway::config::pattern;
use crate::gateway::config::raw::{RawFilter, RawGroup, RawModeration};
use crate::gateway::config::stored_config::without_nulls;
use crate::gateway::config::{
    DEFAULT_GROUP, DeadlineConfig, DeliveryPolicy, FallbackPolicy, FilterConfig, FilterFilePolicy, GroupConfig,
    ModerationConfig, RequestLimits, ResponseBudget, address,
};
use crate::gateway::money::Usd;

/// The maximum number of tool types that a group can name: one less than `HOSTED_MAX` of the module `rules::response`,
/// the number of types that are remembered for a request. So at least one type that is not allowed is always seen.
const TOOLS_MAX: usize = 64;
/// The moderation model if the settings name none.
const DEFAULT_MODERATION_MODEL: &str = "omni-moderation-latest";
/// The default time limit for one check (our choice): every request of the group waits for the check.
const DEFAULT_MODERATION_TIMEOUT: Duration = Duration::from_secs(5);

impl ConfigResolver<'_> {
    /// Resolves the groups of the file, and adds the default group if the file does not define it.
    pub(super) fn groups(&mut self, deadlines: DeadlineConfig, text_models: Option<&[String]>) -> Vec<GroupConfig> {
        let raw = self.layers.file.raw.groups.as_deref().unwrap_or_default();
        let mut used_names = BTreeSet::new();
        let mut groups: Vec<GroupConfig> = raw
            .iter()
            .enumerate()
            .map(|(index, group)| self.group(&format!("groups[{index}]"), group, deadlines, &mut used_names))
            .collect();
        for group in &mut groups {
            group.text_models = group.text_models.take().or_else(|| text_models.map(<[String]>::to_vec));
        }
        if !used_names.contains(DEFAULT_GROUP) {
            groups.push(GroupConfig::implicit(DEFAULT_GROUP, deadlines, text_models));
        }
        groups
    }

    fn group(
        &mut self,
        path: &str,
        raw: &RawGroup,
        deadlines: DeadlineConfig,
        used_names: &mut BTreeSet<String>,
    ) -> GroupConfig {
        let name = self.check_name(&format!("{path}.name"), raw.name.as_deref(), used_names);
        let image = self.image_deadline(&format!("{path}.image_deadline"), raw.image_deadline.as_ref());
        GroupConfig {
            name,
            delivery: raw.delivery.unwrap_or(DeliveryPolicy::Report),
            deadlines: DeadlineConfig { image: image.unwrap_or(deadlines.image), ..deadlines },
            fallback: raw.fallback.unwrap_or(FallbackPolicy::Never),
            inject_image_tool: raw.inject_image_tool.unwrap_or_default(),
            stored_context: raw.stored_context,
            // The schema check has already reported an amount that is out of range.
            response_budget: ResponseBudget {
                mode: raw.budget_mode.unwrap_or(ResponseBudget::default().mode),
                max_response: raw.max_response_usd.and_then(Usd::from_dollars),
            },
            dialects: raw.dialects.iter().flatten().copied().collect(),
            text_models: raw
                .text_models
                .as_deref()
                .map(|ids| self.check_model_ids(&format!("{path}.text_models"), ids)),
            tools: raw.tools.as_deref().map(|tools| self.check_tools(&format!("{path}.tools"), tools)),
            filter: raw
                .filter
                .as_ref()
                .map_or_else(FilterConfig::default, |raw| self.filter(&format!("{path}.filter"), raw)),
            filter_files: raw.filter_files.unwrap_or(FilterFilePolicy::Refuse),
            limits: Arc::new(
                raw.limits
                    .as_ref()
                    .map_or_else(RequestLimits::default, |raw| self.limits(&format!("{path}.limits"), raw)),
            ),
            implicit: false,
            policy: written_policy(raw),
            problem: None,
        }
    }

    /// Checks that each tool type has only lower-case letters, digits and `_`.
    fn check_tools(&mut self, path: &str, tools: &[String]) -> Vec<String> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        for (index, tool) in tools.iter().enumerate() {
            if tool.is_empty() || !tool.bytes().all(fits) {
                self.report(&format!("{path}[{index}]"), "must be the type of a tool, such as `web_search`");
            }
        }
        if tools.len() > TOOLS_MAX {
            self.report(path, &format!("may name at most {TOOLS_MAX} types"));
        }
        tools.to_vec()
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
        FilterConfig {
            words: raw.words.iter().flatten().map(|word| word.trim().to_owned()).collect(),
            patterns: raw.patterns.clone().unwrap_or_default(),
            moderation: raw.moderation.as_ref().and_then(|raw| self.moderation(&format!("{path}.moderation"), raw)),
        }
    }

    /// Resolves the moderation service. The reader of the file has already reported required settings that are absent.
    fn moderation(&mut self, path: &str, raw: &RawModeration) -> Option<ModerationConfig> {
        let base_url = raw.base_url.as_ref().and_then(|text| {
            let uri = address::service_url(text, raw.allow_http.unwrap_or_default());
            let uri = uri.map_err(|fault| self.report(&format!("{path}.base_url"), &fault)).ok()?;
            self.check_link_local(&format!("{path}.base_url"), &uri);
            Some(uri)
        });
        let api_key = raw.api_key.as_ref().map(|source| self.bearer_key(&format!("{path}.api_key"), source));
        let timeout = self.duration(&format!("{path}.timeout"), raw.timeout.as_ref(), SHORTEST_DEADLINE);
        let model = raw.model.clone().unwrap_or_else(|| DEFAULT_MODERATION_MODEL.to_owned());
        self.check_model_id(&format!("{path}.model"), &model);
        Some(ModerationConfig {
            base_url: base_url?,
            // A key that cannot be read must not lead to a call without a key.
            api_key: api_key.map_or(Some(None), |key| key.map(Some))?,
            model,
            on_error: raw.on_error?,
            timeout: timeout.unwrap_or(DEFAULT_MODERATION_TIMEOUT),
        })
    }
}

/// The settings of a group as written. They name secrets, but do not contain them.
fn written_policy(raw: &RawGroup) -> Map<String, Value> {
    let Ok(Value::Object(mut policy)) = serde_json::to_value(raw) else { return Map::new() };
    policy.remove("name");
    without_nulls(&mut policy);
    policy
}
