//! Turns a secret into a [`Caller`].
//!
//! This module decides if a key is valid now. It does not know what the key is used for, or where the header came from.
//!
//! It carries: authentication rules 1, 4 and 5 (everything that is not a valid key of this installation is refused
//! alike); keys are checked against a cache in memory ([`key_cache`]), so that a known key costs no query, a malformed one
//! neither, and unknown and wrong ones together twenty small queries a second; an error of the database is never
//! reported as an invalid key; secrets are shown once and stored as a keyed hash.

mod error;
mod key_cache;
mod pepper;
mod refresh;
mod refusals;
mod secret;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use error::{AdmissionError, KeyError};
pub(crate) use pepper::Pepper;
pub(crate) use secret::{BearerSecret, BearerSecretKind};

use crate::gateway::store::{
    ActorKind, AuditContext, GroupRow, KeyChange, KeyChangeOutcome, KeyFilter, ListPage, SecretRotation, Store,
    StoreError, Timestamp, UserRole, UserRow,
};
pub(crate) use crate::gateway::store::{KeyId, KeyRow, KeyState, PublicId, UserId};
use error::{check_expiry, check_name};
use key_cache::{KeyCache, KeyCacheEntry};
use refusals::RefusalCounter;

/// The precision of the stored `last_used_at`.
const LAST_USED_PRECISION: Duration = Duration::from_secs(60);
/// The time that the use of a key waits for other uses, so that one commit holds them all.
const LAST_USED_BATCH_DELAY: Duration = Duration::from_millis(250);

/// The number of entries above which old ones are forgotten (our choice).
const NOTED_USES_PRUNE_AT: usize = 1000;

/// The time for which the former secret stays valid if the request names none (our choice).
pub(crate) const DEFAULT_GRACE: Duration = Duration::from_secs(24 * 3600);
/// The longest such time (our choice).
pub(crate) const LONGEST_GRACE: Duration = Duration::from_secs(30 * 24 * 3600);

/// The owner of a valid key. Only [`ApiKeys::admit`] makes one, so holding it proves that the key was checked.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    key: KeyId,
    public_id: PublicId,
    user: UserId,
    group_name: String,
}

impl Caller {
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

    /// Returns the name of the group, as the configuration and records spell it.
    pub(crate) fn group_name(&self) -> &str {
        &self.group_name
    }
}

/// A key to be made.
#[derive(Debug)]
pub(crate) struct NewKey<'a> {
    /// The name that its owner gives it.
    pub(crate) name: &'a str,
    /// The user that it belongs to.
    pub(crate) user: &'a UserRow,
    /// The name of the group.
    pub(crate) group: &'a str,
    /// The time at which it expires.
    pub(crate) expires_at: Option<Timestamp>,
    /// The most keys that its user can have; `None` if the maker of the key is not limited.
    pub(crate) max_keys: Option<u32>,
}

/// A key with a new secret; the secret is known only now.
#[derive(Debug)]
pub(crate) struct IssuedKey {
    /// Its id.
    pub(crate) id: KeyId,
    /// The name that its owner gave it.
    pub(crate) name: String,
    /// The id of the user.
    pub(crate) user: UserId,
    /// The name of the user; `None` if the key belongs to no person yet.
    pub(crate) user_name: Option<String>,
    /// The name of the group.
    pub(crate) group_name: String,
    /// The key itself.
    pub(crate) secret: BearerSecret,
    /// The time at which it was made.
    pub(crate) created_at: Timestamp,
    /// The time at which it expires.
    pub(crate) expires_at: Option<Timestamp>,
    /// The time until which the former secret is valid.
    pub(crate) previous_until: Option<Timestamp>,
}

/// The uses of keys.
#[derive(Default)]
struct KeyUses {
    /// The time at which this process last noted the use of each key. Old entries are forgotten, so there are few more
    /// than keys used recently.
    noted_at: HashMap<KeyId, Instant>,
    /// Keys whose use has not been written yet. If there are any, a task is about to write them.
    unwritten: Vec<KeyId>,
}

/// The keys of an installation.
pub(crate) struct ApiKeys {
    store: Arc<dyn Store>,
    pepper: Pepper,
    cache: KeyCache,
    uses: Arc<Mutex<KeyUses>>,
    refusals: RefusalCounter,
    /// The task that keeps the key cache up to date, if one runs.
    refresh_task: Mutex<Option<refresh::KeyRefreshTask>>,
}

impl ApiKeys {
    /// Creates the keys of this store, hashed under this pepper. The key cache is filled when it is first needed.
    pub(crate) fn new(store: Arc<dyn Store>, pepper: Pepper) -> Self {
        let cache = KeyCache::new(Arc::clone(&store));
        let (uses, refusals, refresh_task) = (Arc::default(), RefusalCounter::default(), Mutex::default());
        Self { store, pepper, cache, uses, refusals, refresh_task }
    }

    /// Checks the value of an `Authorization` header.
    ///
    /// # Errors
    /// [`AdmissionError::Invalid`] for everything that is not a valid key; [`AdmissionError::Unavailable`] if that
    /// could not be decided.
    pub(crate) async fn admit(&self, authorization: Option<&[u8]>) -> Result<Caller, AdmissionError> {
        let secret =
            authorization.and_then(bearer_token).and_then(|text| BearerSecret::parse(BearerSecretKind::Key, text));
        let Some(secret) = secret else { return Err(self.refuse_unknown()) };
        let now = Timestamp::now();
        let found = self.cache.find(&secret.public_id(), |entry| self.matches_secret(&secret, entry, now)).await;
        let Some(entry) = found.map_err(AdmissionError::Unavailable)? else { return Err(self.refuse_unknown()) };
        if !is_valid(&entry, now) {
            self.refusals.count_entry(&entry);
            return Err(AdmissionError::Invalid);
        }
        self.note_use(&entry.id);
        let KeyCacheEntry { id, user, group_name, .. } = &*entry;
        Ok(Caller {
            key: id.clone(),
            public_id: secret.public_id(),
            user: user.clone(),
            group_name: group_name.to_string(),
        })
    }

    fn refuse_unknown(&self) -> AdmissionError {
        self.refusals.count_unknown();
        AdmissionError::Invalid
    }

    /// Returns true if the secret is the current or the former one of the entry. Takes the same time in each case.
    fn matches_secret(&self, secret: &BearerSecret, entry: &KeyCacheEntry, now: Timestamp) -> bool {
        let current = self.pepper.verify(secret, &entry.hash);
        let (former, until) =
            entry.previous_hash.as_ref().map_or((&entry.hash, None), |(hash, end)| (hash, Some(*end)));
        let former = self.pepper.verify(secret, former) && until.is_some_and(|until| now < until);
        current || former
    }

    /// Makes a key. A command, or the gateway itself, also makes the group if it is new.
    ///
    /// # Errors
    /// [`KeyError::InvalidField`] before anything is stored; [`KeyError::TooMany`] if the user has as many as allowed;
    /// [`KeyError::Store`] if the key could not be stored.
    pub(crate) async fn create(&self, audit: &AuditContext, new: NewKey<'_>) -> Result<IssuedKey, KeyError> {
        let name = check_name("name", "key", new.name)?;
        check_name("group", "group", new.group)?;
        check_expiry(new.expires_at, audit.at)?;
        if new.user.disabled_at.is_some() {
            return Err(KeyError::field("user", "the user is disabled"));
        }
        let group = self.find_group(audit, &new).await?;
        let secret = BearerSecret::generate(BearerSecretKind::Key)?;
        let key = KeyRow {
            id: KeyId::random()?,
            public_id: secret.public_id(),
            name,
            user: new.user.id.clone(),
            user_name: new.user.display_name(),
            user_disabled_at: None,
            group: group.id,
            group_name: group.name,
            hash: self.pepper.hash(&secret),
            previous_until: None,
            created_at: audit.at,
            expires_at: new.expires_at,
            last_used_at: None,
            disabled_at: None,
            locked: None,
            latest_end: new.expires_at.filter(|_| audit.user.as_ref() != Some(&new.user.id)),
            deleted_at: None,
        };
        if !self.store.insert_key(audit, &key, new.max_keys).await? {
            return Err(KeyError::TooMany(new.max_keys.unwrap_or_default()));
        }
        self.refresh_cache().await;
        Ok(IssuedKey::from_row(key, secret))
    }

    /// Makes a key, and its user and group if they are new.
    #[cfg(test)]
    pub(crate) async fn create_for_test(&self, name: &str, user: &str, group: &str) -> IssuedKey {
        let act = AuditContext::command();
        let user = self.store.ensure_user(&act, user).await.unwrap();
        self.create(&act, NewKey { name, user: &user, group, expires_at: None, max_keys: None }).await.unwrap()
    }

    async fn find_group(&self, audit: &AuditContext, new: &NewKey<'_>) -> Result<GroupRow, KeyError> {
        if matches!(audit.kind, ActorKind::Command | ActorKind::System) {
            return Ok(self.store.ensure_group(audit, new.group).await?);
        }
        let for_themselves = audit.user.as_ref() == Some(&new.user.id) && new.user.role == UserRole::Member;
        let allowed = !for_themselves || new.user.groups.iter().any(|group| group == new.group);
        let groups = self.store.list_groups().await?;
        let group = groups.into_iter().find(|group| group.name == new.group && allowed);
        group.ok_or_else(|| KeyError::field("group", "the group does not exist"))
    }

    /// Returns every key that is not deleted, oldest first.
    ///
    /// # Errors
    /// Returns an error if the store cannot be read.
    pub(crate) async fn list(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.store.list_keys().await
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
    /// [`KeyError::Unknown`] if there is none, or if it belongs to another user.
    pub(crate) async fn find(&self, handle: &str, owner: Option<&UserId>) -> Result<KeyRow, KeyError> {
        self.store.find_key(handle, owner).await?.ok_or(KeyError::Unknown)
    }

    /// Changes the key with this id or public id. In this process the change is in effect when this returns.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] if the key does not exist, or if it belongs to another user; [`KeyError::Locked`] and
    /// [`KeyError::PastLatestEnd`] if its owner would undo an admin's decision.
    pub(crate) async fn change(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
        change: KeyChange,
    ) -> Result<KeyRow, KeyError> {
        self.change_all(audit, handle, owner, &[change]).await
    }

    /// Makes several changes, either all of them or none.
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
                KeyChange::Disable | KeyChange::Enable | KeyChange::Delete => change.clone(),
            });
        }
        let key = change_result(self.store.change_key(audit, handle, owner, &checked).await?)?;
        self.refresh_cache().await;
        Ok(key)
    }

    /// Gives a key another secret. The former one stays valid for the grace period.
    ///
    /// # Errors
    /// [`KeyError::InvalidField`] for a grace period that is too long; [`KeyError::Unknown`] if the key does not exist, or if
    /// it belongs to another user.
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
        let next = SecretRotation { hash: self.pepper.hash(&secret), previous_until };
        let key = change_result(self.store.rotate_key(audit, &key.id, owner, next).await?)?;
        self.refresh_cache().await;
        Ok(IssuedKey::from_row(key, secret))
    }

    /// Brings the key cache up to date after a change by this process. An error is logged by the watch, which tries
    /// again.
    async fn refresh_cache(&self) {
        if let Err(error) = self.cache.refresh().await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the key cache could not be refreshed: a change of a key takes effect later"
            );
        }
    }

    /// Notes from time to time that a key is in use, without delaying the request.
    fn note_use(&self, key: &KeyId) {
        let now = Instant::now();
        {
            let mut touched = self.uses.lock().unwrap_or_else(PoisonError::into_inner);
            if touched.noted_at.len() >= NOTED_USES_PRUNE_AT {
                touched.noted_at.retain(|_, last| now.duration_since(*last) < LAST_USED_PRECISION);
            }
            match touched.noted_at.get_mut(key) {
                Some(last) if now.duration_since(*last) < LAST_USED_PRECISION => return,
                Some(last) => *last = now,
                None => drop(touched.noted_at.insert(key.clone(), now)),
            }
            touched.unwritten.push(key.clone());
            if touched.unwritten.len() > 1 {
                return;
            }
        }
        let (store, touched) = (Arc::clone(&self.store), Arc::clone(&self.uses));
        // The task is not awaited: a note lost at shutdown makes `last_used_at` a minute older.
        tokio::runtime::Handle::current().spawn(async move {
            tokio::time::sleep(LAST_USED_BATCH_DELAY).await;
            let keys = std::mem::take(&mut touched.lock().unwrap_or_else(PoisonError::into_inner).unwritten);
            if let Err(error) = store.record_key_use(&keys, Timestamp::now()).await {
                tracing::debug!(keys = keys.len(), %error, "the last use of keys could not be stored");
            }
        });
    }
}

fn change_result(changed: KeyChangeOutcome) -> Result<KeyRow, KeyError> {
    match changed {
        KeyChangeOutcome::Done(key) => Ok(*key),
        KeyChangeOutcome::Unknown => Err(KeyError::Unknown),
        KeyChangeOutcome::Locked(lock) => Err(KeyError::Locked(lock)),
        KeyChangeOutcome::PastLatestEnd(latest) => Err(KeyError::PastLatestEnd(latest)),
    }
}

/// Returns the token of a bearer header. Schemes are case-insensitive, and clients put spaces in various places.
pub(crate) fn bearer_token(header: &[u8]) -> Option<&[u8]> {
    let header = header.trim_ascii();
    let space = header.iter().position(u8::is_ascii_whitespace)?;
    let (scheme, token) = header.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

fn is_valid(entry: &KeyCacheEntry, now: Timestamp) -> bool {
    !entry.refused && entry.expires_at.is_none_or(|end| now < end)
}

impl IssuedKey {
    fn from_row(key: KeyRow, secret: BearerSecret) -> Self {
        let KeyRow { id, name, user, user_name, group_name, created_at, expires_at, previous_until, .. } = key;
        Self { id, name, user, user_name, group_name, secret, created_at, expires_at, previous_until }
    }
}
