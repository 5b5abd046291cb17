//! Groups of keys. Those of the settings are there, and only the settings change them.

use std::sync::PoisonError;

use super::{People, PeopleError};
use crate::gateway::config::DEFAULT_GROUP;
use crate::gateway::names;
use crate::gateway::store::{Act, GroupDeleted, GroupRow};

/// A group, with where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// What the store knows of it.
    pub(crate) row: GroupRow,
    /// Whether it stands in the settings.
    pub(crate) of_file: bool,
}

// === impl People ===

impl People {
    /// Every group, by name.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn groups(&self) -> Result<Vec<Group>, PeopleError> {
        let rows = self.store.list_groups().await?;
        Ok(rows.into_iter().map(|row| self.group(row)).collect())
    }

    /// True if the store has settings for the group of that name.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn has_policy(&self, name: &str) -> Result<bool, PeopleError> {
        let groups = self.store.group_policies().await?;
        Ok(groups.iter().any(|(group, policy)| group == name && policy != "{}"))
    }

    /// The group with that id or name.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is none.
    pub(crate) async fn find_group(&self, handle: &str) -> Result<Group, PeopleError> {
        let is_it = |group: &Group| group.row.id.as_str() == handle || group.row.name == handle;
        self.groups().await?.into_iter().find(is_it).ok_or(PeopleError::Unknown)
    }

    /// Makes a group with these settings, which have been checked.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Taken`] where there is one of that name.
    pub(crate) async fn make_group(&self, act: &Act, name: &str, policy: Option<&str>) -> Result<Group, PeopleError> {
        let name = names::name(name).ok_or_else(|| PeopleError::field("name", names::bad_name("group")))?;
        let made = self.store.create_group(act, &name, policy).await?;
        made.map(|row| self.group(row)).ok_or(PeopleError::Taken)
    }

    /// Gives the group with that id or name these settings, which have been checked, in place of its former ones.
    ///
    /// # Errors
    ///
    /// [`PeopleError::OfFile`] for a group of the settings.
    pub(crate) async fn change_group(&self, act: &Act, handle: &str, policy: &str) -> Result<Group, PeopleError> {
        let group = self.find_group(handle).await?;
        if group.of_file {
            return Err(PeopleError::OfFile);
        }
        let changed = self.store.change_group(act, group.row.id.as_str(), policy).await?;
        changed.map(|row| self.group(row)).ok_or(PeopleError::Unknown)
    }

    /// Deletes the group with that id or name.
    ///
    /// # Errors
    ///
    /// [`PeopleError::OfFile`] for a group of the settings, [`PeopleError::InUse`] while keys are in it, and for the one
    /// that is always there.
    pub(crate) async fn delete_group(&self, act: &Act, handle: &str) -> Result<GroupRow, PeopleError> {
        let group = self.find_group(handle).await?;
        if group.of_file {
            return Err(PeopleError::OfFile);
        }
        if group.row.name == DEFAULT_GROUP {
            return Err(PeopleError::InUse);
        }
        match self.store.delete_group(act, group.row.id.as_str()).await? {
            GroupDeleted::Done(group) => Ok(group),
            GroupDeleted::Unknown => Err(PeopleError::Unknown),
            GroupDeleted::InUse(_) => Err(PeopleError::InUse),
        }
    }

    fn group(&self, row: GroupRow) -> Group {
        let of_file = self.of_file.read().unwrap_or_else(PoisonError::into_inner).contains(&row.name);
        Group { row, of_file }
    }
}
