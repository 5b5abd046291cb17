//! The policies of groups, as the request flow asks for them. A group that the configuration does not name has the
//! defaults.

use std::sync::Arc;

use super::Gateway;
use super::config::{
    DeadlineConfig, DeliveryPolicy, DialectSet, FallbackPolicy, FilterFilePolicy, RequestLimits, ResponseBudget,
    StoredContextPolicy,
};
use super::keys::Caller;
use super::people::IdentityError;

// === impl Gateway ===

impl Gateway {
    /// The policy of a group for an image that differs from the request in size or format. A group that the
    /// configuration does not name has the default.
    pub(crate) fn delivery_policy(&self, group: &str) -> DeliveryPolicy {
        self.groups.get(group).map_or(DeliveryPolicy::Report, |group| group.delivery)
    }

    /// The policy of a group for an image of smaller size or lower quality after a large image has failed. A group that
    /// the configuration does not name has the default.
    pub(crate) fn fallback_policy(&self, group: &str) -> FallbackPolicy {
        self.groups.get(group).map_or(FallbackPolicy::Never, |group| group.fallback)
    }

    /// The dialects that a caller may use: those of its key and of the group of the key.
    pub(crate) fn dialects(&self, caller: &Caller) -> DialectSet {
        let of_group = self.groups.get(caller.group_name()).map(|group| group.dialects);
        caller.dialects().union(of_group.unwrap_or_default())
    }

    /// True if, for this group, the gateway adds an image tool to the requests of coding agents, unless such a request
    /// has an image tool or forbids tools.
    pub(crate) fn injects_image_tool(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.inject_image_tool)
    }

    /// The stored context that a group may name. By default, everything that its accounts have stored, if only its one user
    /// can have stored it. A filter has not seen what the gateway does not know.
    pub(crate) fn stored_context(&self, group: &str) -> StoredContextPolicy {
        if self.filters.is_on(group) && self.file_policy(group) == FilterFilePolicy::Refuse {
            return StoredContextPolicy::Own;
        }
        let set = self.groups.get(group).and_then(|group| group.stored_context);
        set.unwrap_or_else(|| {
            let has_own_context = self.keys.has_one_owner(group) && self.accounts.serve_only(group);
            if has_own_context { StoredContextPolicy::Any } else { StoredContextPolicy::Own }
        })
    }

    /// The text models that a group may name; `None` if it may name any.
    pub(crate) fn allowed_text_models(&self, group: &str) -> Option<&[String]> {
        self.groups.get(group).map_or(self.config.text_models.as_deref(), |group| group.text_models.as_deref())
    }

    /// The types of tools that the upstream may run for a group; `None` if it may run any.
    pub(crate) fn allowed_tools(&self, group: &str) -> Option<&[String]> {
        self.groups.get(group).and_then(|group| group.tools.as_deref())
    }

    /// The policy of a group with a filter for files and other content that the filter cannot see.
    pub(crate) fn file_policy(&self, group: &str) -> FilterFilePolicy {
        self.groups.get(group).map_or(FilterFilePolicy::Refuse, |group| group.filter_files)
    }

    /// The rule by which the responses of a group keep within budgets.
    pub(crate) fn response_budget(&self, group: &str) -> ResponseBudget {
        self.groups.get(group).map(|group| group.response_budget).unwrap_or_default()
    }

    /// The limits of a group, if it has any.
    pub(crate) fn request_limits(&self, group: &str) -> Option<&Arc<RequestLimits>> {
        let limits = self.groups.get(group).map(|group| &group.limits);
        limits.filter(|limits| ***limits != RequestLimits::default())
    }

    /// True if the settings of a group cannot be used; its requests are refused then.
    pub(crate) fn is_group_unusable(&self, group: &str) -> bool {
        self.groups.get(group).is_some_and(|group| group.problem.is_some())
    }

    /// False if the store has settings for this group that are not in force yet, as for a group that was created a
    /// moment ago. Its requests must not be served then, because they would be served with the default settings.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn may_serve_group(&self, group: &str) -> Result<bool, IdentityError> {
        Ok(self.groups.contains_key(group) || !self.people.has_policy(group).await?)
    }

    /// The time limits for one request of a group.
    pub(crate) fn deadlines(&self, group: &str) -> DeadlineConfig {
        self.groups.get(group).map_or(self.deadlines, |group| group.deadlines)
    }
}
