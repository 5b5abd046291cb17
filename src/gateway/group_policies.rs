//! The policies of groups, as the request flow asks for them. A group that the configuration does not name has the
//! defaults.

use std::sync::Arc;

use super::Gateway;
use super::config::{DialectSet, FilterFilePolicy, GroupConfig, RequestLimits, StoredContextPolicy};
use super::keys::Caller;
use super::people::IdentityError;

// === impl Gateway ===

impl Gateway {
    /// The settings of a group.
    pub(crate) fn group(&self, name: &str) -> &GroupConfig {
        self.groups.get(name).unwrap_or(&self.implicit_group)
    }

    /// The dialects that a caller may use: those of its key and of the group of the key.
    pub(crate) fn dialects(&self, caller: &Caller) -> DialectSet {
        caller.dialects().union(self.group(caller.group_name()).dialects)
    }

    /// The stored context that a group may name. By default, everything that its accounts have stored, if only its one user
    /// can have stored it. A filter has not seen what the gateway does not know.
    pub(crate) fn stored_context(&self, group: &str) -> StoredContextPolicy {
        if self.filters.is_on(group) && self.group(group).filter_files == FilterFilePolicy::Refuse {
            return StoredContextPolicy::Own;
        }
        self.group(group).stored_context.unwrap_or_else(|| {
            let has_own_context = self.keys.has_one_owner(group) && self.accounts.serve_only(group);
            if has_own_context { StoredContextPolicy::Any } else { StoredContextPolicy::Own }
        })
    }

    /// The limits of a group, if it has any.
    pub(crate) fn request_limits(&self, group: &str) -> Option<&Arc<RequestLimits>> {
        Some(&self.group(group).limits).filter(|limits| ***limits != RequestLimits::default())
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
}
