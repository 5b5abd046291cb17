//! Finds, invites and changes users.

use super::links::{INVITATION_LIFETIME, RESET_LINK_LIFETIME};
use super::{Actor, IdentityError, IdentityService, IssuedLink};
use crate::gateway::names;
use crate::gateway::store::{
    AuditContext, KeyRow, ListPage, NewUser, OneTimeLinkPurpose, StoreError, UserChange, UserChangeOutcome, UserFilter,
    UserRole, UserRow,
};

/// The prefix of the ids of users. A name with this prefix could be mistaken for an id.
const USER_ID_PREFIX: &str = "usr_";

/// The maximum number of admins that are read to find out if exactly one admin can sign in (our choice).
const ADMIN_READ_LIMIT: u32 = 1000;

// === impl IdentityService ===

impl IdentityService {
    /// Creates a user, and a link with which the user chooses a password.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::NameTaken`] for a name that is already used, and [`IdentityError::InvalidField`] for an
    /// invalid name or a group that does not exist.
    pub(crate) async fn invite(
        &self,
        audit: &AuditContext,
        new_user: NewUser,
    ) -> Result<(UserRow, IssuedLink), IdentityError> {
        let new_user = NewUser { name: check_name(&new_user.name)?, ..new_user };
        let (link, issued_link) = self.new_link(OneTimeLinkPurpose::Invitation, INVITATION_LIFETIME)?;
        let outcome = self.store.invite_user(audit, &new_user, &link).await.map_err(|error| match error {
            StoreError::Conflict => IdentityError::NameTaken,
            error => error.into(),
        })?;
        Ok((change_result(outcome)?.0, issued_link))
    }

    /// Creates a link with which a user chooses a new password. The current password stays valid until then.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::Unknown`] if there is no such user, and [`IdentityError::InvalidField`] if the user is
    /// disabled.
    pub(crate) async fn create_reset_link(
        &self,
        audit: &AuditContext,
        handle: &str,
    ) -> Result<(UserRow, IssuedLink), IdentityError> {
        let user = self.find_user(handle).await?;
        let (link, issued_link) = self.new_link(OneTimeLinkPurpose::Reset, RESET_LINK_LIFETIME)?;
        if !self.store.make_reset_link(audit, &user.id, &link).await? {
            return Err(IdentityError::field("user", "the user is disabled"));
        }
        Ok((user, issued_link))
    }

    /// Returns a page of the users, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn user_page(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, IdentityError> {
        Ok(self.store.list_users_page(filter).await?)
    }

    /// Returns the user with this id or name.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::Unknown`] if there is no such user.
    pub(crate) async fn find_user(&self, handle: &str) -> Result<UserRow, IdentityError> {
        self.store.find_user(handle).await?.ok_or(IdentityError::Unknown)
    }

    /// Returns the user with this id or name, if the actor may see the user: a member sees only themselves.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::Unknown`] if there is no such user, or if the actor may not see the user.
    pub(crate) async fn find_visible_user(&self, actor: &Actor, handle: &str) -> Result<UserRow, IdentityError> {
        let user = self.find_user(handle).await?;
        if actor.restricted_to().is_none_or(|owner| *owner == user.id) { Ok(user) } else { Err(IdentityError::Unknown) }
    }

    /// Returns the user with this name, or creates a member without a password. Commands use this for keys of programs.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::InvalidField`] for an invalid name.
    pub(crate) async fn find_or_create_user(&self, audit: &AuditContext, name: &str) -> Result<UserRow, IdentityError> {
        // The rules are those for new names: the name of an existing user is found as it is.
        match self.user_named(name).await? {
            Some(user) => Ok(user),
            None => Ok(self.store.ensure_user(audit, &check_name(name)?).await?),
        }
    }

    /// Makes either all of the changes or none of them. Also returns the keys that were disabled because the user left
    /// their group.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::Unknown`] if there is no such user, [`IdentityError::InvalidField`] for a group that
    /// does not exist, and [`IdentityError::LastAdmin`] if no admin who can sign in would remain. After an error,
    /// nothing is changed.
    pub(crate) async fn apply_user_changes_and_list_stopped_keys(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<(UserRow, Vec<KeyRow>), IdentityError> {
        change_result(self.store.change_user(audit, handle, changes).await?)
    }

    /// Returns the owner of a key that a command creates without naming an owner. Before the gateway is set up, the
    /// owner is [`UserRow::nobody`]; afterwards, the owner is the only admin who can sign in.
    ///
    /// # Errors
    ///
    /// Returns [`IdentityError::InvalidField`] if the gateway is set up and not exactly one admin can sign in.
    pub(crate) async fn default_owner(&self) -> Result<UserRow, IdentityError> {
        if !self.store.is_set_up().await? {
            return Ok(UserRow::nobody());
        }
        let filter = UserFilter { role: Some(UserRole::Admin), limit: ADMIN_READ_LIMIT, ..UserFilter::default() };
        let admins = self.store.list_users_page(&filter).await?.items;
        let mut admins = admins.into_iter().filter(|user| user.has_password && user.disabled_at.is_none());
        match (admins.next(), admins.next()) {
            (Some(only), None) => Ok(only),
            _ => Err(IdentityError::field(
                "user",
                "there is not exactly one admin who can sign in: name the owner of the key with --user",
            )),
        }
    }
}

fn change_result(outcome: UserChangeOutcome) -> Result<(UserRow, Vec<KeyRow>), IdentityError> {
    match outcome {
        UserChangeOutcome::Done(user, keys) => Ok((user, keys)),
        UserChangeOutcome::Unknown => Err(IdentityError::Unknown),
        UserChangeOutcome::LastAdmin => Err(IdentityError::LastAdmin),
        UserChangeOutcome::UnknownGroup(name) => {
            Err(IdentityError::field("groups", format!("the group {name} does not exist")))
        }
    }
}

/// Returns a name in the form in which it is stored, or an error if the name is invalid.
pub(super) fn check_name(name: &str) -> Result<String, IdentityError> {
    let name = names::parse_person_name(name)
        .map_err(|reason| IdentityError::field("name", names::name_error_message("user", reason)))?;
    if name.starts_with(USER_ID_PREFIX) {
        return Err(IdentityError::field(
            "name",
            format!("the name of the user must not begin with {USER_ID_PREFIX}, as ids do"),
        ));
    }
    Ok(name)
}
