//! The owner of a valid key, as the other modules know it.

use std::sync::Arc;

use super::key_cache::KeyCacheEntry;
use super::{KeyId, PublicId, UserId};
use crate::gateway::config::{DialectSet, GroupConfig, RequestLimits};
use crate::gateway::filter::PromptFilter;
use crate::gateway::group_policies::{GroupPolicies, GroupPolicy};
use crate::gateway::store::binding_owner;
use crate::gateway::work::{RequestWork, Work};

/// The owner of a valid key. Only `ApiKeys::authenticate` and `ApiKeys::find_caller` create a `Caller`, so it proves
/// that the key was checked.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    key: KeyId,
    public_id: PublicId,
    user: UserId,
    group_name: String,
    /// The policy of the group that was in force when the key was checked.
    policy: Arc<GroupPolicy>,
    limits: Option<Arc<RequestLimits>>,
    user_limits: Option<Arc<RequestLimits>>,
    dialects: DialectSet,
    work: RequestWork,
}

// === impl Caller ===

impl Caller {
    pub(super) fn new(public_id: PublicId, entry: &KeyCacheEntry, policies: &GroupPolicies) -> Self {
        let KeyCacheEntry { id, user, group_name, limits, user_limits, dialects, .. } = entry;
        Self {
            key: id.clone(),
            public_id,
            user: user.clone(),
            group_name: group_name.to_string(),
            policy: Arc::clone(policies.find(group_name)),
            limits: limits.clone(),
            user_limits: user_limits.clone(),
            dialects: *dialects,
            work: RequestWork::default(),
        }
    }

    /// Names the work of the request that the caller makes.
    pub(crate) fn with_work(self, work: RequestWork) -> Self {
        Self { work, ..self }
    }

    /// Charges work of the request to the user, and to those of its key and its group that have a limit on work.
    pub(crate) fn charge(&self, work: Work) {
        self.work.charge(work);
    }

    /// Returns the work of the request.
    pub(crate) const fn work(&self) -> &RequestWork {
        &self.work
    }

    /// Returns the id of the key, as records have it.
    pub(crate) fn key(&self) -> &KeyId {
        &self.key
    }

    /// Returns the public id of the key, as logs and pages show it.
    pub(crate) fn public_id(&self) -> &PublicId {
        &self.public_id
    }

    /// Returns the owner of the key.
    pub(crate) fn user(&self) -> &UserId {
        &self.user
    }

    /// Returns the owner of what the upstream stores for this caller.
    pub(crate) fn binding_owner(&self) -> &str {
        binding_owner(&self.user, &self.key)
    }

    /// True if this owner is the caller. An object that was made for a key without a user belongs to its user later.
    pub(crate) fn is_binding_owner(&self, owner: &str) -> bool {
        owner == self.key.as_str() || (owner == self.user.as_str() && !self.user.is_nobody())
    }

    /// Returns the limits of the key, if it has any.
    pub(crate) const fn limits(&self) -> Option<&Arc<RequestLimits>> {
        self.limits.as_ref()
    }

    /// Returns the limits of the owner of the key, if there are any. They count all keys of the owner together.
    pub(crate) const fn user_limits(&self) -> Option<&Arc<RequestLimits>> {
        self.user_limits.as_ref()
    }

    /// Returns the limits of all keys of the group together, if there are any.
    pub(crate) fn group_limits(&self) -> Option<&Arc<RequestLimits>> {
        self.policy.limits()
    }

    /// Returns the limits of the key, of its owner and of its group, if there are any.
    pub(crate) fn all_limits(&self) -> impl Iterator<Item = &RequestLimits> {
        [self.limits(), self.user_limits(), self.group_limits()].into_iter().flatten().map(AsRef::as_ref)
    }

    /// Returns the dialects that the caller may use: those of its key and of the group of the key.
    pub(crate) fn dialects(&self) -> DialectSet {
        self.dialects.union(self.policy.settings.dialects)
    }

    /// Returns the name of the key's group, as in the configuration and in records.
    pub(crate) fn group_name(&self) -> &str {
        &self.group_name
    }

    /// Returns the settings of the key's group. They are those of all other groups if the configuration does not name
    /// it; their name is empty then.
    pub(crate) fn group(&self) -> &GroupConfig {
        &self.policy.settings
    }

    /// Returns the content filter of the key's group.
    pub(crate) fn filter(&self) -> &PromptFilter {
        &self.policy.filter
    }
}
