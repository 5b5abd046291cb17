//! The operations on users, for admins, and the operation with which a member reads its own user.

use super::error_conversion::{ErrorSubject, from_identity_error};
use super::limit_usage::stored_limits;
use super::request_fields::{page_size, read_body_with_limits, read_change_body};
use super::{Console, list_object, require_admin};
use crate::error::{Error, MissingResource};
use crate::gateway::limits::LimitSubject;
use crate::gateway::people::{Actor, IdentityError, IssuedLink, LastingOperation};
use crate::gateway::store::{
    NewUser, OneTimeLinkPurpose, ReservationSubjectKind, UserChange, UserFilter, UserId, UserRole, UserRow,
};
use crate::tables::{NEW_USER_FIELDS, USER_UPDATE_FIELDS};
use crate::wire::Secret;
use crate::wire::admin::server::ListUsersQuery;
use crate::wire::admin::types;

/// The group of a new user if the request names none.
const DEFAULT_GROUP: &str = "default";
/// The name of an actor who uses the admin token of the settings.
const SETTINGS_ACTOR_NAME: &str = "settings";

// === impl Console ===

impl Console {
    /// Returns a page of the users, newest first. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members.
    pub(crate) async fn list_users(&self, actor: &Actor, query: &ListUsersQuery) -> Result<types::UserList, Error> {
        require_admin(actor)?;
        let filter = UserFilter {
            search: query.search.clone(),
            group: query.group.clone(),
            role: query.role,
            sort: query.sort,
            before: query.before.as_deref().map(Into::into),
            limit: page_size(query.limit),
        };
        let page = self.people.user_page(&filter).await.map_err(from_identity_error(ErrorSubject::User, ""))?;
        Ok(types::UserList {
            object: list_object(),
            data: self.users_with_limit_usage(page.items).await?,
            has_more: page.has_more,
            total: page.total,
        })
    }

    /// Invites a user. Only this answer contains the link. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 400 for the first field that cannot be used, 409 if the name is taken.
    pub(crate) async fn create_user(&self, actor: &Actor, body: &[u8]) -> Result<types::CreatedUser, Error> {
        require_admin(actor)?;
        let (new, limits): (types::NewUser, _) = read_body_with_limits(actor, NEW_USER_FIELDS, body)?;
        if new.role == Some(types::Role::Admin) {
            permit(actor, LastingOperation::NewAdmin, None)?;
        }
        let new_user = NewUser {
            name: new.name.to_string(),
            role: new.role.unwrap_or(UserRole::Member),
            groups: new.groups.unwrap_or_else(|| vec![DEFAULT_GROUP.to_owned()]),
            limits: limits.flatten(),
        };
        let invited = self.people.invite(&actor.audit_context(), new_user).await;
        let (user, link) = invited.map_err(from_identity_error(ErrorSubject::User, &new.name))?;
        Ok(types::CreatedUser { user: to_wire_user(user), link: self.to_wire_link(&link) })
    }

    /// Returns the user with this id or name.
    ///
    /// # Errors
    ///
    /// 404 if there is no such user, or if a member requests another user.
    pub(crate) async fn retrieve_user(&self, actor: &Actor, handle: &str) -> Result<types::User, Error> {
        let user = self
            .people
            .find_visible_user(actor, handle)
            .await
            .map_err(from_identity_error(ErrorSubject::User, handle))?;
        self.user_with_limit_usage(user).await
    }

    /// Makes one or more changes to a user, either all of them or none. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such user, 400 for a field that cannot be used, 409 if no admin would be
    /// left.
    pub(crate) async fn update_user(&self, actor: &Actor, handle: &str, body: &[u8]) -> Result<types::User, Error> {
        require_admin(actor)?;
        let (update, limits): (types::UserUpdate, _) = read_change_body(actor, USER_UPDATE_FIELDS, body)?;
        if update.role == Some(types::Role::Admin) || update.enabled == Some(true) {
            self.permit_new_admin(actor, handle, &update).await?;
        }
        let mut changes = Vec::new();
        changes.extend(update.role.map(UserChange::Role));
        changes.extend(update.groups.map(UserChange::Groups));
        changes.extend(update.enabled.map(|enabled| if enabled { UserChange::Enable } else { UserChange::Disable }));
        changes.extend(limits.map(UserChange::Limit));
        let changed =
            self.people.apply_user_changes_and_list_stopped_keys(&actor.audit_context(), handle, &changes).await;
        let (user, stopped_rows) = changed.map_err(from_identity_error(ErrorSubject::User, handle))?;
        let stopped_keys = self.keys_with_usage(stopped_rows).await?;
        Ok(types::User { stopped_keys, ..self.user_with_limit_usage(user).await? })
    }

    /// Creates a link with which the user sets a new password. Only this answer contains the link. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such user, 400 if the user is disabled.
    pub(crate) async fn reset_user(&self, actor: &Actor, handle: &str) -> Result<types::OneTimeLink, Error> {
        require_admin(actor)?;
        self.permit_for_user(actor, LastingOperation::PasswordLink, handle).await?;
        let (_, link) = self
            .people
            .create_reset_link(&actor.audit_context(), handle)
            .await
            .map_err(from_identity_error(ErrorSubject::User, handle))?;
        Ok(self.to_wire_link(&link))
    }

    /// Ends every session of a user. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such user.
    pub(crate) async fn sign_out_user(&self, actor: &Actor, handle: &str) -> Result<types::User, Error> {
        require_admin(actor)?;
        let user = self.people.find_user(handle).await.map_err(from_identity_error(ErrorSubject::User, handle))?;
        let ended = self.people.sign_out_everywhere(actor, user.id.as_str()).await;
        ended.map_err(from_identity_error(ErrorSubject::User, handle))?;
        Ok(to_wire_user(user))
    }

    /// Removes the second factor of a user. For admins.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such user, 400 if the user has no second factor.
    pub(crate) async fn reset_user_factor(&self, actor: &Actor, handle: &str) -> Result<types::User, Error> {
        require_admin(actor)?;
        self.permit_for_user(actor, LastingOperation::FactorReset, handle).await?;
        let user = self.people.remove_second_factor(&actor.audit_context(), handle).await;
        Ok(to_wire_user(user.map_err(from_identity_error(ErrorSubject::User, handle))?))
    }

    /// Removes the connection of a user with the provider of OpenID Connect.
    ///
    /// # Errors
    ///
    /// 403 for members, 404 if there is no such user, 400 if the user is not connected.
    pub(crate) async fn disconnect_user(&self, actor: &Actor, handle: &str) -> Result<types::User, Error> {
        require_admin(actor)?;
        let user = self.people.disconnect_provider(&actor.audit_context(), handle).await;
        Ok(to_wire_user(user.map_err(from_identity_error(ErrorSubject::User, handle))?))
    }

    /// Returns the actor of this request.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn retrieve_me(&self, actor: &Actor) -> Result<types::Me, Error> {
        let user = match actor.user().cloned() {
            Some(user) => Some(self.user_with_limit_usage(user).await?),
            None => None,
        };
        let name = user.as_ref().map_or_else(|| SETTINGS_ACTOR_NAME.to_owned(), |user| user.name.clone());
        Ok(types::Me { name, role: actor.role(), user })
    }

    /// Refuses a change that makes a further admin, if the actor may not do that.
    async fn permit_new_admin(&self, actor: &Actor, handle: &str, update: &types::UserUpdate) -> Result<(), Error> {
        let user = self.people.find_user(handle).await.map_err(from_identity_error(ErrorSubject::User, handle))?;
        let role = update.role.unwrap_or(user.role);
        let is_admin = user.role == UserRole::Admin && user.disabled_at.is_none();
        let becomes_admin = role == UserRole::Admin && update.enabled.unwrap_or(user.disabled_at.is_none());
        if becomes_admin && !is_admin { permit(actor, LastingOperation::NewAdmin, Some(&user.id)) } else { Ok(()) }
    }

    async fn permit_for_user(&self, actor: &Actor, operation: LastingOperation, handle: &str) -> Result<(), Error> {
        let user = self.people.find_user(handle).await.map_err(from_identity_error(ErrorSubject::User, handle))?;
        permit(actor, operation, Some(&user.id))
    }

    async fn user_with_limit_usage(&self, row: UserRow) -> Result<types::User, Error> {
        self.users_with_limit_usage(vec![row]).await?.pop().ok_or(Error::Internal)
    }

    async fn users_with_limit_usage(&self, rows: Vec<UserRow>) -> Result<Vec<types::User>, Error> {
        let limited = rows.iter().map(|row| (LimitSubject::User(row.id.clone()), stored_limits(row.limits.as_deref())));
        let usage = self.limit_usage(limited.collect()).await?;
        let users = rows.into_iter().zip(usage).map(|(row, limit_usage)| {
            let refused_work = Some(self.limiter.work().refused(ReservationSubjectKind::User, row.id.as_str()));
            types::User { limit_usage, refused_work, ..to_wire_user(row) }
        });
        Ok(users.collect())
    }

    fn to_wire_link(&self, link: &IssuedLink) -> types::OneTimeLink {
        let path = link.path();
        let url = self.config.public_url.as_ref().map(|base| Secret::from(format!("{}{path}", base.as_str())));
        types::OneTimeLink {
            purpose: match link.purpose {
                OneTimeLinkPurpose::Reset => types::LinkPurpose::Reset,
                OneTimeLinkPurpose::Invitation | OneTimeLinkPurpose::Setup => types::LinkPurpose::Invitation,
            },
            path: Secret::from(path),
            url,
            expires_at: link.expires_at.into(),
        }
    }

    /// Returns the user that the field or parameter `user` names, if this actor may see that user.
    pub(super) async fn named_user(&self, actor: &Actor, handle: &str) -> Result<UserRow, Error> {
        self.people.find_visible_user(actor, handle).await.map_err(|error| match error {
            IdentityError::Unknown => {
                Error::NotFound(MissingResource::UserParam { param: "user", user: handle.to_owned() })
            }
            error => from_identity_error(ErrorSubject::User, handle)(error),
        })
    }

    /// Returns the owner of the objects to show: the named user, a member itself, or `None` for all owners. For admins,
    /// [`UserId::NOBODY`] stands for the objects without a user.
    pub(super) async fn owner_filter(&self, actor: &Actor, named: Option<&str>) -> Result<Option<UserId>, Error> {
        match named {
            Some(UserId::NOBODY) if actor.is_admin() => Ok(Some(UserId::from(UserId::NOBODY))),
            Some(user) => Ok(Some(self.named_user(actor, user).await?.id)),
            None => Ok(actor.restricted_to().cloned()),
        }
    }
}

/// Refuses an operation whose result outlasts the credential of the actor, if the actor may not do it.
fn permit(actor: &Actor, operation: LastingOperation, user: Option<&UserId>) -> Result<(), Error> {
    if actor.may_do_lasting(user) {
        return Ok(());
    }
    tracing::info!(?operation, "an operation was refused, because its result outlasts the admin token");
    Err(Error::Denied)
}

fn to_wire_user(row: UserRow) -> types::User {
    types::User {
        id: row.id.to_string(),
        name: row.name,
        role: row.role,
        groups: row.groups,
        has_password: row.has_password,
        has_second_factor: Some(row.has_second_factor),
        has_identity: Some(row.has_identity),
        created_at: row.created_at.into(),
        disabled_at: row.disabled_at.map(Into::into),
        last_sign_in_at: row.last_sign_in_at.map(Into::into),
        limits: row.limits.and_then(|limits| serde_json::from_str(&limits).ok()),
        limit_usage: Vec::new(),
        refused_work: None,
        stopped_keys: Vec::new(),
    }
}
