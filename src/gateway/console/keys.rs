//! The operations on API keys, for admins and for members.

use std::time::Duration;

use super::error_conversion::{ErrorSubject, from_identity_error, from_key_error, from_store_error};
use super::limit_usage::stored_limits;
use super::request_fields::{page_size, read_body, read_body_with_limits, read_change_body, to_timestamp};
use super::{Console, list_object, require_admin};
use crate::error::{Error, Rejection, RejectionReason};
use crate::gateway::config::{Dialect, DialectSet};
use crate::gateway::keys::{DEFAULT_GRACE, IssuedKey, KeyRow, NewKey};
use crate::gateway::limits::LimitSubject;
use crate::gateway::people::Actor;
use crate::gateway::store::{KeyChange, KeyFilter, KeyId, ReservationSubjectKind, Timestamp, UsageCounters, UserRow};
use crate::tables::{KEY_ROTATION_FIELDS, KEY_UPDATE_FIELDS, NEW_KEY_FIELDS};
use crate::wire::Secret;
use crate::wire::admin::server::ListKeysQuery;
use crate::wire::admin::types;

/// The group of a key if the request names none.
const DEFAULT_GROUP: &str = "default";

// === impl Console ===

impl Console {
    /// Returns a page of the keys.
    ///
    /// # Errors
    ///
    /// 404 if the named user does not exist.
    pub(crate) async fn list_keys(&self, actor: &Actor, query: &ListKeysQuery) -> Result<types::KeyList, Error> {
        let filter = KeyFilter {
            owner: self.owner_filter(actor, query.user.as_deref()).await?,
            group: query.group.clone(),
            search: query.search.clone(),
            state: query.state,
            sort: query.sort,
            before: query.before.as_deref().map(Into::into),
            limit: page_size(query.limit),
        };
        let page = self.keys.page(&filter).await.map_err(from_store_error)?;
        Ok(types::KeyList {
            object: list_object(),
            data: self.keys_with_usage(page.items).await?,
            has_more: page.has_more,
            total: page.total,
        })
    }

    /// Creates a key. Only this answer contains its secret.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be used, 404 for a user that does not exist, 409 for a member who already
    /// has the maximum number of keys.
    pub(crate) async fn create_key(&self, actor: &Actor, body: &[u8]) -> Result<types::CreatedKey, Error> {
        let (new, limits): (types::NewKey, _) = read_body_with_limits(actor, NEW_KEY_FIELDS, body)?;
        let user = match new.user.as_deref() {
            named if actor.is_command() => self.owner_for_command(actor, named).await?,
            named => self.user_for(actor, named).await?,
        };
        let request = NewKey {
            name: &new.name,
            user: &user,
            group: new.group.as_deref().unwrap_or(DEFAULT_GROUP),
            expires_at: to_timestamp(new.expires_at),
            limits: limits.flatten(),
            dialects: read_dialects(actor, new.dialects)?.unwrap_or_default(),
            max_keys: (!actor.is_admin()).then_some(self.config.max_keys_per_member),
        };
        let created = self.keys.create(&actor.audit_context(), request).await.map_err(from_key_error(""))?;
        self.created_key(actor, created).await
    }

    /// Returns the key with this id or public id.
    ///
    /// # Errors
    ///
    /// 404 if there is no such key, or if it belongs to another user.
    pub(crate) async fn retrieve_key(&self, actor: &Actor, handle: &str) -> Result<types::Key, Error> {
        let key = self.keys.find(handle, actor.restricted_to()).await.map_err(from_key_error(handle))?;
        self.key_with_usage(key).await
    }

    /// Makes one or more changes to a key, either all of them or none.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::retrieve_key`], 400 for a field that cannot be used, and 403 if a member would undo an
    /// admin's decision.
    pub(crate) async fn update_key(&self, actor: &Actor, handle: &str, body: &[u8]) -> Result<types::Key, Error> {
        let (update, limits): (types::KeyUpdate, _) = read_change_body(actor, KEY_UPDATE_FIELDS, body)?;
        let dialects = read_dialects(actor, update.dialects.clone())?;
        let mut changes = parse_changes(update)?;
        changes.extend(dialects.map(KeyChange::SetDialects));
        changes.extend(limits.map(KeyChange::Limit));
        let changed = self.keys.change_all(&actor.audit_context(), handle, actor.restricted_to(), &changes).await;
        self.key_with_usage(changed.map_err(from_key_error(handle))?).await
    }

    /// Deletes a key. Its records are not deleted.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::retrieve_key`].
    pub(crate) async fn delete_key(&self, actor: &Actor, handle: &str) -> Result<types::DeletedKey, Error> {
        let deleted = self.keys.change(&actor.audit_context(), handle, actor.restricted_to(), KeyChange::Delete).await;
        let deleted_key = deleted.map_err(from_key_error(handle))?;
        Ok(types::DeletedKey { id: deleted_key.id.to_string(), name: deleted_key.name, deleted: true })
    }

    /// Replaces the secret of a key. Only this answer contains the new secret.
    ///
    /// # Errors
    ///
    /// The errors of [`Console::retrieve_key`], and 400 for a field that cannot be used.
    pub(crate) async fn rotate_key(
        &self,
        actor: &Actor,
        handle: &str,
        body: &[u8],
    ) -> Result<types::CreatedKey, Error> {
        let rotation: types::KeyRotation = read_body(KEY_ROTATION_FIELDS, body)?;
        let requested_seconds = rotation.grace_seconds.and_then(|seconds| u64::try_from(seconds.get()).ok());
        let grace = requested_seconds.map_or(DEFAULT_GRACE, Duration::from_secs);
        let rotated = self.keys.rotate(&actor.audit_context(), handle, actor.restricted_to(), grace).await;
        self.created_key(actor, rotated.map_err(from_key_error(handle))?).await
    }

    /// Returns the user that a new object belongs to: the named user, or else the actor.
    pub(super) async fn user_for(&self, actor: &Actor, named: Option<&str>) -> Result<UserRow, Error> {
        match (named, actor.user()) {
            (Some(named), _) => self.named_user(actor, named).await,
            (None, Some(user)) => Ok(user.clone()),
            (None, None) => {
                let message = "Missing required parameter: 'user'. The admin token of the settings belongs to no user.";
                Err(Rejection::new("user", RejectionReason::MissingParameter, message).into())
            }
        }
    }

    /// Returns the owner of a key that a command creates: the named user, who is added if there is none of that name, or
    /// else the only admin who can sign in.
    async fn owner_for_command(&self, actor: &Actor, named: Option<&str>) -> Result<UserRow, Error> {
        let owner = match named {
            Some(named) => self.people.find_or_create_user(&actor.audit_context(), named).await,
            None => self.people.default_owner().await,
        };
        owner.map_err(from_identity_error(ErrorSubject::User, named.unwrap_or_default()))
    }

    async fn created_key(&self, actor: &Actor, created: IssuedKey) -> Result<types::CreatedKey, Error> {
        let key = self.retrieve_key(actor, created.row.id.as_str()).await?;
        Ok(types::CreatedKey { key, secret: Secret::from(created.secret.expose()) })
    }

    async fn key_with_usage(&self, row: KeyRow) -> Result<types::Key, Error> {
        self.keys_with_usage(vec![row]).await?.pop().ok_or(Error::Internal)
    }

    pub(super) async fn keys_with_usage(&self, rows: Vec<KeyRow>) -> Result<Vec<types::Key>, Error> {
        let ids: Vec<KeyId> = rows.iter().map(|row| row.id.clone()).collect();
        let usage = self.usage().totals_by_key(&ids).await.map_err(from_store_error)?;
        let limited = rows.iter().map(|row| (LimitSubject::Key(row.id.clone()), stored_limits(row.limits.as_deref())));
        let limit_usage = self.limit_usage(limited.collect()).await?;
        let now = Timestamp::now();
        let counts = |row: &KeyRow| usage.get(&row.id).copied().unwrap_or_default();
        let keys = rows.into_iter().zip(limit_usage).map(|(row, limit_usage)| {
            let key = to_wire_key(counts(&row), row, now);
            let refused_work = Some(self.limiter.work().refused(ReservationSubjectKind::Key, &key.id));
            types::Key { limit_usage, refused_work, ..key }
        });
        Ok(keys.collect())
    }
}

/// Returns the dialects that a request sets; `None` if it sets none.
///
/// # Errors
///
/// 403 if the actor is a member, who could undo a restriction of an admin.
fn read_dialects(actor: &Actor, dialects: Option<Vec<Dialect>>) -> Result<Option<DialectSet>, Error> {
    let Some(dialects) = dialects else { return Ok(None) };
    require_admin(actor)?;
    Ok(Some(dialects.into_iter().collect()))
}

fn parse_changes(update: types::KeyUpdate) -> Result<Vec<KeyChange>, Rejection> {
    let mut changes = Vec::new();
    changes.extend(update.name.map(|name| KeyChange::Rename(name.into())));
    changes.extend(update.enabled.map(|enabled| if enabled { KeyChange::Enable } else { KeyChange::Disable }));
    let never_expires = update.never_expires == Some(true);
    if never_expires && update.expires_at.is_some() {
        let message = "Invalid 'never_expires': it cannot be combined with 'expires_at'.";
        return Err(Rejection::new("never_expires", RejectionReason::InvalidValue, message));
    }
    if never_expires || update.expires_at.is_some() {
        changes.push(KeyChange::Expire(to_timestamp(update.expires_at)));
    }
    Ok(changes)
}

fn to_wire_key(usage: UsageCounters, row: KeyRow, now: Timestamp) -> types::Key {
    types::Key {
        state: row.state(now),
        id: row.id.to_string(),
        public_id: row.public_id.to_string(),
        name: row.name,
        user: row.user.to_string(),
        user_name: row.user_name,
        group: row.group_name,
        created_at: row.created_at.into(),
        expires_at: row.expires_at.map(Into::into),
        last_used_at: row.last_used_at.map(Into::into),
        disabled_at: row.disabled_at.map(Into::into),
        locked: row.locked,
        latest_end: row.latest_end.map(Into::into),
        previous_until: row.previous_until.filter(|until| *until > now).map(Into::into),
        requests: usage.requests,
        images: usage.images,
        cost_usd: Some(usage.cost_usd.dollars()),
        cost_unknown: Some(usage.cost_unknown),
        limits: row.limits.and_then(|limits| serde_json::from_str(&limits).ok()),
        dialects: row.dialects.iter().collect(),
        limit_usage: Vec::new(),
        refused_work: None,
    }
}
