//! The policies of groups, ready for use. A group that the configuration does not name has the defaults.

use std::collections::HashMap;
use std::sync::Arc;

use super::config::{GroupConfig, RequestLimits};
use super::filter::{FilterError, PromptFilter};

/// The settings of one group, with its content filter.
#[derive(Debug)]
pub(crate) struct GroupPolicy {
    /// The settings.
    pub(crate) settings: GroupConfig,
    /// The content that is refused.
    pub(crate) filter: PromptFilter,
}

/// The policies of all groups.
#[derive(Debug)]
pub(crate) struct GroupPolicies {
    groups: HashMap<String, Arc<GroupPolicy>>,
    /// The policy of a group that the configuration does not name.
    others: Arc<GroupPolicy>,
}

// === impl GroupPolicy ===

impl GroupPolicy {
    fn new(settings: GroupConfig) -> Result<Arc<Self>, FilterError> {
        let filter = PromptFilter::new(&settings.name, &settings.filter)?;
        Ok(Arc::new(Self { settings, filter }))
    }

    /// The limits of all keys of the group together, if it has any.
    pub(crate) fn limits(&self) -> Option<&Arc<RequestLimits>> {
        Some(&self.settings.limits).filter(|limits| ***limits != RequestLimits::default())
    }
}

// === impl GroupPolicies ===

impl GroupPolicies {
    /// Prepares the policies of these groups, and of all `others`. Takes time, because it compiles patterns.
    ///
    /// # Errors
    ///
    /// Returns an error if a filter cannot be used.
    pub(crate) fn new(groups: &[GroupConfig], others: GroupConfig) -> Result<Self, FilterError> {
        let policy = |group: &GroupConfig| Ok((group.name.clone(), GroupPolicy::new(group.clone())?));
        Ok(Self { groups: groups.iter().map(policy).collect::<Result<_, _>>()?, others: GroupPolicy::new(others)? })
    }

    /// The policies of an installation without any group.
    #[cfg(test)]
    pub(crate) fn for_test() -> Self {
        Self::new(&[], GroupConfig::for_test("")).unwrap()
    }

    /// True if the configuration names the group.
    pub(crate) fn contains(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// The policy of a group, or the default policy if the configuration does not name the group.
    pub(crate) fn find(&self, group: &str) -> &Arc<GroupPolicy> {
        self.groups.get(group).unwrap_or(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::config::FilterConfig;

    #[test]
    fn each_group_has_its_own_filter() {
        let group = |name: &str, word: &str| GroupConfig {
            filter: FilterConfig { words: vec![word.to_owned()], ..FilterConfig::default() },
            ..GroupConfig::for_test(name)
        };
        let groups = [group("one", "red"), group("two", "blue"), GroupConfig::for_test("three")];
        let policies = GroupPolicies::new(&groups, GroupConfig::for_test("")).unwrap();
        for (name, is_named, rule) in
            [("one", true, Some("words[0]")), ("two", true, None), ("three", true, None), ("four", false, None)]
        {
            assert_eq!(policies.contains(name), is_named, "{name}");
            assert_eq!(policies.find(name).filter.find("a red cube").as_deref(), rule, "{name}");
        }
    }

    #[test]
    fn only_limits_that_are_set_count() {
        let limits = RequestLimits { images_per_day: Some(1), ..RequestLimits::default() };
        let limited = GroupConfig { limits: Arc::new(limits), ..GroupConfig::for_test("limited") };
        let policies = GroupPolicies::new(&[limited], GroupConfig::for_test("")).unwrap();
        assert!(policies.find("limited").limits().is_some());
        assert!(policies.find("other").limits().is_none());
    }
}
