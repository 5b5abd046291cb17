//! Groups of keys. The groups of the settings file always exist, and can only be changed in the file.

use std::sync::PoisonError;

use super::{IdentityError, IdentityService};
use crate::gateway::config::DEFAULT_GROUP;
use crate::gateway::names;
use crate::gateway::store::{AuditContext, GroupDeletionOutcome, GroupRow};

/// A group, with its origin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KeyGroup {
    /// The row of the group in the store.
    pub(crate) row: GroupRow,
    /// True if the group is in the settings file.
    pub(crate) is_in_file: bool,
}

// === impl IdentityService ===

impl IdentityService {
    /// Returns all groups, sorted by name.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn groups(&self) -> Result<Vec<KeyGroup>, IdentityError> {
        let rows = self.store.list_groups().await?;
        Ok(rows.into_iter().map(|row| self.with_origin(row)).collect())
    }

    /// Returns true if the store has settings for the group with this name.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn has_policy(&self, name: &str) -> Result<bool, IdentityError> {
        let groups = self.store.group_policies().await?;
        Ok(groups.iter().any(|(group, policy)| group == name && policy != "{}"))
    }

    /// Returns the group with this id or name.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such group.
    pub(crate) async fn find_group(&self, handle: &str) -> Result<KeyGroup, IdentityError> {
        let matches_handle = |group: &KeyGroup| group.row.id.as_str() == handle || group.row.name == handle;
        self.groups().await?.into_iter().find(matches_handle).ok_or(IdentityError::Unknown)
    }

    /// Creates a group with these settings, which must have been checked.
    ///
    /// # Errors
    ///
    /// [`IdentityError::NameTaken`] if a group has that name; [`IdentityError::InvalidField`] for an invalid name.
    pub(crate) async fn create_group(
        &self,
        audit: &AuditContext,
        name: &str,
        policy: Option<&str>,
    ) -> Result<KeyGroup, IdentityError> {
        let name = names::parse_name(name)
            .ok_or_else(|| IdentityError::field("name", names::invalid_name_message("group")))?;
        let created = self.store.create_group(audit, &name, policy).await?;
        created.map(|row| self.with_origin(row)).ok_or(IdentityError::NameTaken)
    }

    /// Replaces the settings of the group with this id or name; the new settings must have been checked.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such group; [`IdentityError::DefinedInFile`] for a group of the
    /// settings file.
    pub(crate) async fn change_group(
        &self,
        audit: &AuditContext,
        handle: &str,
        policy: &str,
    ) -> Result<KeyGroup, IdentityError> {
        let group = self.find_group(handle).await?;
        if group.is_in_file {
            return Err(IdentityError::DefinedInFile);
        }
        let changed = self.store.change_group(audit, group.row.id.as_str(), policy).await?;
        changed.map(|row| self.with_origin(row)).ok_or(IdentityError::Unknown)
    }

    /// Deletes the group with this id or name.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such group; [`IdentityError::DefinedInFile`] for a group of the
    /// settings file; [`IdentityError::InUse`] if the group has keys, and for the default group, which always exists.
    pub(crate) async fn delete_group(&self, audit: &AuditContext, handle: &str) -> Result<GroupRow, IdentityError> {
        let group = self.find_group(handle).await?;
        if group.is_in_file {
            return Err(IdentityError::DefinedInFile);
        }
        if group.row.name == DEFAULT_GROUP {
            return Err(IdentityError::InUse);
        }
        match self.store.delete_group(audit, group.row.id.as_str()).await? {
            GroupDeletionOutcome::Done(group) => Ok(group),
            GroupDeletionOutcome::Unknown => Err(IdentityError::Unknown),
            GroupDeletionOutcome::InUse(_) => Err(IdentityError::InUse),
        }
    }

    fn with_origin(&self, row: GroupRow) -> KeyGroup {
        let of_file = self.file_groups.read().unwrap_or_else(PoisonError::into_inner).contains(&row.name);
        KeyGroup { row, is_in_file: of_file }
    }
}
