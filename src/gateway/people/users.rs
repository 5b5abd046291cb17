//! Users: who there is, and what changes them.

use super::links::{INVITATION, RESET};
use super::{Actor, OneTime, People, PeopleError};
use crate::gateway::names;
use crate::gateway::store::{
    Act, KeyRow, NewUser, Page, Purpose, Role, StoreError, UserChange, UserChanged, UserFilter, UserRow,
};

/// What ids of users begin with. A name that did could be taken for one.
const ID: &str = "usr_";

/// The number of admins read to find two who can sign in.
const MOST_ADMINS: u32 = 1000;

// === impl People ===

impl People {
    /// Adds a user, and makes the link that lets them choose a password.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Taken`] for a name that is; [`PeopleError::Field`] for one that cannot be used, or a group that there
    /// is not.
    pub(crate) async fn invite(
        &self,
        act: &Act,
        name: &str,
        role: Role,
        groups: &[String],
    ) -> Result<(UserRow, OneTime), PeopleError> {
        let name = check_name(name)?;
        let (link, one_time) = self.new_link(Purpose::Invitation, INVITATION)?;
        let new = NewUser { name, role, groups: groups.to_vec() };
        let invited = self.store.invite_user(act, &new, &link).await.map_err(|error| match error {
            StoreError::Conflict => PeopleError::Taken,
            error => error.into(),
        })?;
        Ok((changed(invited)?.0, one_time))
    }

    /// Makes the link that lets a user choose another password. The one they have stays good until then.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is no such user; [`PeopleError::Field`] where they are disabled.
    pub(crate) async fn reset(&self, act: &Act, handle: &str) -> Result<(UserRow, OneTime), PeopleError> {
        let user = self.find(handle).await?;
        let (link, one_time) = self.new_link(Purpose::Reset, RESET)?;
        if !self.store.make_reset_link(act, &user.id, &link).await? {
            return Err(PeopleError::field("user", "the user is disabled"));
        }
        Ok((user, one_time))
    }

    /// A part of the users, newest first.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn page(&self, filter: &UserFilter) -> Result<Page<UserRow>, PeopleError> {
        Ok(self.store.page_users(filter).await?)
    }

    /// The user with that id or name.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is none.
    pub(crate) async fn find(&self, handle: &str) -> Result<UserRow, PeopleError> {
        self.store.find_user(handle).await?.ok_or(PeopleError::Unknown)
    }

    /// The same, as far as this actor may know of them: members know of themselves only.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is none, or it is not theirs to know.
    pub(crate) async fn find_for(&self, actor: &Actor, handle: &str) -> Result<UserRow, PeopleError> {
        let user = self.find(handle).await?;
        if actor.owner().is_none_or(|owner| *owner == user.id) { Ok(user) } else { Err(PeopleError::Unknown) }
    }

    /// The user of that name, made as a member without a password if there is none: what commands do for the keys of
    /// programs.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Field`] for a name that cannot be used.
    pub(crate) async fn ensure(&self, act: &Act, name: &str) -> Result<UserRow, PeopleError> {
        // A user whose name was stored before the rules for names can still be found.
        match self.store.find_user(name).await?.filter(|user| user.name == name) {
            Some(user) => Ok(user),
            None => Ok(self.store.ensure_user(act, &check_name(name)?).await?),
        }
    }

    /// Changes a user.
    ///
    /// # Errors
    ///
    /// [`PeopleError::LastAdmin`] where nobody would be left, and nothing has changed then.
    pub(crate) async fn change(&self, act: &Act, handle: &str, change: UserChange) -> Result<UserRow, PeopleError> {
        self.change_all(act, handle, &[change]).await
    }

    /// Makes several changes, all of them or none.
    ///
    /// # Errors
    ///
    /// As for one.
    pub(crate) async fn change_all(
        &self,
        act: &Act,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserRow, PeopleError> {
        Ok(self.change_with_keys(act, handle, changes).await?.0)
    }

    /// The same, with the keys that were disabled because the user left their group.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::change`].
    pub(crate) async fn change_with_keys(
        &self,
        act: &Act,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<(UserRow, Vec<KeyRow>), PeopleError> {
        changed(self.store.change_user(act, handle, changes).await?)
    }

    /// The owner of a key for which a command names none: nobody before there is an admin, and afterwards the only
    /// admin.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Field`] if there are several admins.
    pub(crate) async fn default_owner(&self) -> Result<UserRow, PeopleError> {
        if !self.store.is_set_up().await? {
            return Ok(UserRow::nobody());
        }
        let filter = UserFilter { role: Some(Role::Admin), limit: MOST_ADMINS, ..UserFilter::default() };
        let admins = self.store.page_users(&filter).await?.items;
        let mut admins = admins.into_iter().filter(|user| user.has_password && user.disabled_at.is_none());
        match (admins.next(), admins.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(PeopleError::field("user", "there is more than one admin: say with --user whose key it is")),
        }
    }
}

fn changed(changed: UserChanged) -> Result<(UserRow, Vec<KeyRow>), PeopleError> {
    match changed {
        UserChanged::Done(user, keys) => Ok((user, keys)),
        UserChanged::Unknown => Err(PeopleError::Unknown),
        UserChanged::LastAdmin => Err(PeopleError::LastAdmin),
        UserChanged::NoGroup(name) => Err(PeopleError::field("groups", format!("there is no group {name}"))),
    }
}

/// The name as it is stored.
pub(super) fn check_name(name: &str) -> Result<String, PeopleError> {
    let checked = names::person(name);
    let name = checked.map_err(|why| PeopleError::field("name", names::bad_because("user", why)))?;
    if name.starts_with(ID) {
        return Err(PeopleError::field("name", format!("the name of the user must not begin with {ID}, as ids do")));
    }
    Ok(name)
}
