//! Authenticates API keys: finds the [`Caller`] of a secret.
//!
//! This module decides if a key is valid now. It does not know the purpose of the request, or the source of the header.
//!
//! It implements authentication rules 1, 4 and 5: everything that is not a valid key of this installation gets the same
//! error. Keys are checked against a cache in memory ([`key_cache`]). A known key and a malformed key cost no query;
//! unknown keys and wrong secrets together cost at most twenty small queries per second. A database error is never
//! reported as an invalid key. Secrets are shown once, and stored as a keyed hash.

mod caller;
mod error;
mod key_cache;
mod pepper;
mod refresh;
mod refusals;
mod secret;

#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) use caller::Caller;
pub(crate) use error::{AuthenticationError, KeyError};
pub(crate) use pepper::Pepper;
pub(crate) use secret::{BearerSecret, BearerSecretKind};

use crate::gateway::config::DialectSet;
use crate::gateway::group_policies::GroupPolicies;
use crate::gateway::store::{
    ActorKind, AuditContext, GroupRow, KeyChange, KeyChangeOutcome, KeyFilter, KeyStore, ListPage, PeopleStore,
    SecretRotation, Store, StoreError, Timestamp, UserRole, UserRow,
};
pub(crate) use crate::gateway::store::{KeyId, KeyRow, PublicId, UserId};
use error::{check_expiry, check_name};
use key_cache::{KeyCache, KeyCacheEntry};
use refusals::RefusalCounter;

/// The precision of the stored `last_used_at` (our choice).
const LAST_USED_PRECISION: Duration = Duration::from_secs(60);
/// The time for which uses of keys are collected, so that one commit stores them all (our choice).
const LAST_USED_BATCH_DELAY: Duration = Duration::from_millis(250);

/// The time for which the former secret stays valid after a rotation, if the request does not set it (our choice).
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 3600);
/// The maximum time for which the former secret can stay valid (our choice).
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The properties of a key that is to be created.
#[derive(Debug)]
pub(crate) struct NewKey<'a> {
    /// The name that its owner gives it.
    pub(crate) name: &'a str,
    /// The owner of the key.
    pub(crate) user: &'a UserRow,
    /// The name of the group.
    pub(crate) group: &'a str,
    /// The time at which the key expires; `None` if it does not expire.
    pub(crate) expires_at: Option<Timestamp>,
    /// The limits of the key, as a JSON object that was checked; `None` if it has none.
    pub(crate) limits: Option<String>,
    /// The dialects of the key, in addition to those of its group.
    pub(crate) dialects: DialectSet,
    /// The maximum number of keys of its owner; `None` if there is no limit for the creator of the key.
    pub(crate) max_keys: Option<u32>,
}

/// A key with a new secret. The secret cannot be read again later.
#[derive(Debug)]
pub(crate) struct IssuedKey {
    /// The key.
    pub(crate) row: KeyRow,
    /// The secret.
    pub(crate) secret: BearerSecret,
}

/// The keys of an installation.
pub(crate) struct ApiKeys {
    store: Arc<dyn KeyStore>,
    people: Arc<dyn PeopleStore>,
    pepper: Pepper,
    cache: KeyCache,
    /// The keys whose use has not been written yet. If there are any, a task is going to write them.
    unwritten_uses: Arc<Mutex<Vec<KeyId>>>,
    refusals: RefusalCounter,
    /// The task that keeps the key cache up to date, if it runs.
    refresh_task: Mutex<Option<refresh::KeyRefreshTask>>,
}

impl ApiKeys {
    /// Creates the access to the keys of a store, whose hashes use this pepper. The key cache is filled when it is
    /// first needed.
    pub(crate) fn new(store: &Arc<dyn Store>, pepper: Pepper) -> Self {
        Self::with_stores(Arc::clone(store) as _, Arc::clone(store) as _, pepper)
    }

    fn with_stores(store: Arc<dyn KeyStore>, people: Arc<dyn PeopleStore>, pepper: Pepper) -> Self {
        let cache = KeyCache::new(Arc::clone(&store));
        let (unwritten_uses, refusals, refresh_task) = (Arc::default(), RefusalCounter::default(), Mutex::default());
        Self { store, people, pepper, cache, unwritten_uses, refusals, refresh_task }
    }

    /// Checks the value of an `Authorization` header. The caller has the policy of its group.
    ///
    /// # Errors
    /// [`AuthenticationError::Invalid`] for everything that is not a valid key; [`AuthenticationError::Unavailable`] if
    /// the key could not be checked.
    pub(crate) async fn authenticate(
        &self,
        authorization: Option<&[u8]>,
        policies: &GroupPolicies,
    ) -> Result<Caller, AuthenticationError> {
        let secret =
            authorization.and_then(bearer_token).and_then(|text| BearerSecret::parse(BearerSecretKind::Key, text));
        let Some(secret) = secret else { return Err(self.refuse_unknown()) };
        let now = Timestamp::now();
        let found = self.cache.find(&secret.public_id(), |entry| self.matches_secret(&secret, entry, now)).await;
        let Some(entry) = found.map_err(AuthenticationError::Unavailable)? else { return Err(self.refuse_unknown()) };
        if !is_valid(&entry, now) {
            self.refusals.count_entry(&entry);
            return Err(AuthenticationError::Invalid);
        }
        self.note_use(&entry);
        Ok(Caller::new(secret.public_id(), &entry, policies))
    }

    /// Returns the caller for a key that its signed-in owner uses without its secret; `None` if there is no such key, the
    /// key belongs to another user, or the key is not valid now.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys cannot be read.
    pub(crate) async fn find_caller(
        &self,
        key: &PublicId,
        owner: &UserId,
        policies: &GroupPolicies,
    ) -> Result<Option<Caller>, Arc<StoreError>> {
        let entry = self.cache.find(key, |entry| entry.user == *owner).await?;
        let entry = entry.filter(|entry| is_valid(entry, Timestamp::now()));
        Ok(entry.map(|entry| Caller::new(key.clone(), &entry, policies)))
    }

    /// True if the key with this public id is valid now.
    ///
    /// # Errors
    ///
    /// Returns an error if the keys cannot be read.
    pub(crate) async fn is_valid_key(&self, key: &PublicId) -> Result<bool, Arc<StoreError>> {
        let entry = self.cache.find(key, |_| true).await?;
        Ok(entry.is_some_and(|entry| is_valid(&entry, Timestamp::now())))
    }

    /// True if all keys of the group belong to one user, or if there is one key.
    pub(crate) fn has_one_owner(&self, group: &str) -> bool {
        self.cache.has_one_owner(group)
    }

    /// Returns the dialects that at least one valid key declares.
    pub(crate) fn dialects(&self) -> DialectSet {
        self.cache.dialects()
    }

    /// Notes that the owner of a key makes a request with it, without its secret.
    pub(crate) fn note_request(&self, caller: &Caller) {
        if let Some(entry) = self.cache.get(caller.public_id()) {
            self.note_use(&entry);
        }
    }

    fn refuse_unknown(&self) -> AuthenticationError {
        self.refusals.count_unknown();
        AuthenticationError::Invalid
    }

    /// Returns true if the secret is the current or the former secret of the key. Takes the same time in each case.
    fn matches_secret(&self, secret: &BearerSecret, entry: &KeyCacheEntry, now: Timestamp) -> bool {
        let hash = self.pepper.hash(secret);
        let current = pepper::are_equal(&hash, &entry.hash);
        let (former_hash, valid_until) =
            entry.previous_hash.as_ref().map_or((&entry.hash, None), |(hash, end)| (hash, Some(*end)));
        let former = pepper::are_equal(&hash, former_hash) && valid_until.is_some_and(|end| now < end);
        current || former
    }

    /// Creates a key. If a command or the gateway itself creates it, a group that does not exist is created too.
    ///
    /// # Errors
    /// [`KeyError::InvalidField`] if a property is invalid, before anything is stored; [`KeyError::TooMany`] if the user
    /// has the maximum number of keys; [`KeyError::Store`] if the key could not be stored.
    pub(crate) async fn create(&self, audit: &AuditContext, new_key: NewKey<'_>) -> Result<IssuedKey, KeyError> {
        let max_keys = new_key.max_keys;
        let (key, secret) = self.prepare_key(audit, new_key).await?;
        if !self.store.insert_key(audit, &key, max_keys).await? {
            return Err(KeyError::TooMany(max_keys.unwrap_or_default()));
        }
        self.refresh_cache().await;
        Ok(IssuedKey { row: key, secret })
    }

    /// Creates the key that the first start prints; `None` if there is a key, or there was a first key, or an account
    /// whose calls can cost something.
    ///
    /// # Errors
    /// Returns an error like [`Self::create`].
    pub(crate) async fn create_first(
        &self,
        audit: &AuditContext,
        new_key: NewKey<'_>,
    ) -> Result<Option<IssuedKey>, KeyError> {
        let (key, secret) = self.prepare_key(audit, new_key).await?;
        let is_inserted = self.store.insert_first_key(audit, &key).await?;
        self.refresh_cache().await;
        Ok(is_inserted.then(|| IssuedKey { row: key, secret }))
    }

    async fn prepare_key(&self, audit: &AuditContext, new_key: NewKey<'_>) -> Result<(KeyRow, BearerSecret), KeyError> {
        let name = check_name("name", "key", new_key.name)?;
        check_name("group", "group", new_key.group)?;
        check_expiry(new_key.expires_at, audit.at)?;
        if new_key.user.disabled_at.is_some() {
            return Err(KeyError::field("user", "the user is disabled"));
        }
        let group = self.find_group(audit, &new_key).await?;
        let secret = BearerSecret::generate(BearerSecretKind::Key)?;
        let key = KeyRow {
            id: KeyId::random()?,
            public_id: secret.public_id(),
            name,
            user: new_key.user.id.clone(),
            user_name: new_key.user.display_name(),
            user_disabled_at: None,
            group: group.id,
            group_name: group.name,
            hash: self.pepper.hash(&secret),
            previous_until: None,
            created_at: audit.at,
            expires_at: new_key.expires_at,
            last_used_at: None,
            disabled_at: None,
            locked: None,
            latest_end: new_key.expires_at.filter(|_| audit.user.as_ref() != Some(&new_key.user.id)),
            deleted_at: None,
            limits: new_key.limits,
            dialects: new_key.dialects,
        };
        Ok((key, secret))
    }

    /// Creates a key, and its user and group if they do not exist.
    #[cfg(test)]
    pub(crate) async fn create_for_test(&self, name: &str, user: &str, group: &str) -> IssuedKey {
        let audit = AuditContext::command();
        let user = self.people.ensure_user(&audit, user).await.unwrap();
        self.create(
            &audit,
            NewKey {
                name,
                user: &user,
                group,
                expires_at: None,
                limits: None,
                dialects: DialectSet::default(),
                max_keys: None,
            },
        )
        .await
        .unwrap()
    }

    async fn find_group(&self, audit: &AuditContext, new_key: &NewKey<'_>) -> Result<GroupRow, KeyError> {
        if matches!(audit.kind, ActorKind::Command | ActorKind::System) {
            return Ok(self.people.ensure_group(audit, new_key.group).await?);
        }
        let is_own_key = audit.user.as_ref() == Some(&new_key.user.id) && new_key.user.role == UserRole::Member;
        let is_allowed = !is_own_key || new_key.user.groups.iter().any(|group| group == new_key.group);
        let groups = self.people.list_groups().await?;
        let group = groups.into_iter().find(|group| group.name == new_key.group && is_allowed);
        group.ok_or_else(|| KeyError::field("group", "the group does not exist"))
    }

    /// Returns a page of the keys that are not deleted, newest first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub(crate) async fn page(&self, filter: &KeyFilter) -> Result<ListPage<KeyRow>, StoreError> {
        self.store.list_keys_page(filter, Timestamp::now()).await
    }

    /// Returns the key with this id or public id.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] if there is no such key, or if `owner` is given and the key belongs to another user.
    pub(crate) async fn find(&self, handle: &str, owner: Option<&UserId>) -> Result<KeyRow, KeyError> {
        self.store.find_key(handle, owner).await?.ok_or(KeyError::Unknown)
    }

    /// Changes the key with this id or public id. In this process, the change is in effect when the function returns.
    ///
    /// # Errors
    /// [`KeyError::InvalidField`] if the name or the expiry is invalid; [`KeyError::Unknown`] if the key does not exist,
    /// or if `owner` is given and the key belongs to another user; [`KeyError::Locked`] and [`KeyError::PastLatestEnd`]
    /// if the owner may not make the change; [`KeyError::Store`] if the store fails.
    pub(crate) async fn change(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        change: KeyChange,
    ) -> Result<KeyRow, KeyError> {
        self.change_all(audit, handle, owner, &[change]).await
    }

    /// Makes either all of the changes or none of them.
    ///
    /// # Errors
    /// The errors of [`Self::change`].
    pub(crate) async fn change_all(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        changes: &[KeyChange],
    ) -> Result<KeyRow, KeyError> {
        let mut checked = Vec::with_capacity(changes.len());
        for change in changes {
            checked.push(match change {
                KeyChange::Rename(name) => KeyChange::Rename(check_name("name", "key", name)?),
                KeyChange::Expire(end) => {
                    check_expiry(*end, audit.at)?;
                    change.clone()
                }
                KeyChange::Disable
                | KeyChange::Enable
                | KeyChange::Delete
                | KeyChange::Limit(_)
                | KeyChange::SetDialects(_) => change.clone(),
            });
        }
        let key = change_result(self.store.change_key(audit, handle, owner, &checked).await?)?;
        self.refresh_cache().await;
        Ok(key)
    }

    /// Gives a key a new secret. The former secret stays valid for the grace period.
    ///
    /// # Errors
    /// [`KeyError::InvalidField`] for a grace period that is too long; [`KeyError::Unknown`] if the key does not exist,
    /// or if `owner` is given and the key belongs to another user; [`KeyError::Locked`] if the owner may not rotate the
    /// key; [`KeyError::Store`] if the store fails.
    pub(crate) async fn rotate(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        grace: Duration,
    ) -> Result<IssuedKey, KeyError> {
        if grace > LONGEST_GRACE {
            return Err(KeyError::field("grace_seconds", "the former secret can stay valid for at most 30 days"));
        }
        let key = self.find(handle, owner).await?;
        let secret = BearerSecret::generate_for_public_id(&key.public_id)?;
        let previous_until = (!grace.is_zero()).then(|| audit.at + grace);
        let rotation = SecretRotation { hash: self.pepper.hash(&secret), previous_until };
        let key = change_result(self.store.rotate_key(audit, &key.id, owner, rotation).await?)?;
        self.refresh_cache().await;
        Ok(IssuedKey { row: key, secret })
    }

    /// Brings the key cache up to date after a change by this process. If this fails, the refresh task tries again and
    /// warns about the error.
    async fn refresh_cache(&self) {
        if let Err(error) = self.cache.refresh().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the key cache could not be refreshed: a change of a key takes effect later"
            );
        }
    }

    /// Notes the use of a key, at most once per [`LAST_USED_PRECISION`], without delaying the request.
    fn note_use(&self, entry: &KeyCacheEntry) {
        if !entry.last_noted_use.replace_if_older(tokio::time::Instant::now(), LAST_USED_PRECISION) {
            return;
        }
        {
            let mut uses = self.unwritten_uses.lock().unwrap_or_else(PoisonError::into_inner);
            uses.push(entry.id.clone());
            if uses.len() > 1 {
                return;
            }
        }
        let (store, uses) = (Arc::clone(&self.store), Arc::clone(&self.unwritten_uses));
        // The task is not awaited: if the process stops before the write, `last_used_at` is only a little too old.
        tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(LAST_USED_BATCH_DELAY).await;
            let keys = std::mem::take(&mut *uses.lock().unwrap_or_else(PoisonError::into_inner));
            if let Err(error) = store.record_key_use(&keys, Timestamp::now()).await {
                tracing::debug!(keys = keys.len(), %error, "the last use of keys could not be stored");
            }
        });
    }
}

fn change_result(outcome: KeyChangeOutcome) -> Result<KeyRow, KeyError> {
    match outcome {
        KeyChangeOutcome::Done(key) => Ok(*key),
        KeyChangeOutcome::Unknown => Err(KeyError::Unknown),
        KeyChangeOutcome::Locked(lock) => Err(KeyError::Locked(lock)),
        KeyChangeOutcome::PastLatestEnd(latest) => Err(KeyError::PastLatestEnd(latest)),
    }
}

/// Returns the token in the value of an `Authorization` header with the scheme `Bearer`. The scheme is
/// case-insensitive, and additional spaces are allowed.
pub(crate) fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let header = header.trim_ascii();
    let space = header.iter().position(u8::is_ascii_whitespace)?;
    let (scheme, token) = header.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

fn is_valid(entry: &KeyCacheEntry, now: Timestamp) -> bool {
    !entry.refused && entry.expires_at.is_none_or(|end| now < end)
}
