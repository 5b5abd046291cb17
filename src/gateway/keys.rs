//! Turns a secret into a [`Caller`].
//!
//! Decides whether a key is good now. Refuses to know what it will be used for, and where the header came from.
//!
//! Carries: authentication rules 1, 4 and 5 (whatever is not a good key of ours is refused alike); a malformed key
//! costs no query; trouble with the database is never an invalid key; secrets are shown once and kept as a keyed hash.

mod pepper;
mod secret;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use pepper::Pepper;
pub(crate) use secret::Secret;

use crate::gateway::store::{KeyChange, KeyHash, Store, StoreError, Timestamp};
pub(crate) use crate::gateway::store::{KeyId, KeyRow, PublicId, UserId};

/// How fresh `last_used_at` is kept.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

/// Names are for people: long enough for them, short enough for a table on a page.
const MAX_NAME_CHARS: usize = 128;

/// Who a valid key stands for. Only [`Keys::admit`] makes one, so holding it proves that the key was checked.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    key: KeyId,
    public_id: PublicId,
    user: UserId,
    group_name: String,
}

impl Caller {
    /// The key, as records name it.
    pub(crate) fn key(&self) -> &KeyId {
        &self.key
    }

    /// The key, as logs and pages show it.
    pub(crate) fn public_id(&self) -> &PublicId {
        &self.public_id
    }

    /// Whose key it is.
    pub(crate) fn user(&self) -> &UserId {
        &self.user
    }

    /// The name of the group, as the configuration and records spell it.
    pub(crate) fn group_name(&self) -> &str {
        &self.group_name
    }
}

/// Why nobody is admitted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Denied {
    /// Whatever it was, it is no good key. There are no finer kinds: they would tell a stranger what exists.
    #[error("the key is not valid")]
    Invalid,
    /// Nobody could look it up; the same key may be good a moment later.
    #[error("the key could not be checked")]
    Unavailable(#[source] StoreError),
}

/// Why a key was not made or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyError {
    /// A name that nobody could read in a table.
    #[error("the name of the {of} must have 1 to {MAX_NAME_CHARS} characters, none of them a control character")]
    Name {
        /// What the name is for.
        of: &'static str,
    },
    /// No such key, or it is deleted.
    #[error("there is no such key")]
    Unknown,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A key just made: the only time that its secret is known.
#[derive(Debug)]
pub(crate) struct Created {
    /// Its id.
    pub(crate) id: KeyId,
    /// What its owner calls it.
    pub(crate) name: String,
    /// The id of the user.
    pub(crate) user: UserId,
    /// The name of the user.
    pub(crate) user_name: String,
    /// The name of the group.
    pub(crate) group_name: String,
    /// The key itself.
    pub(crate) secret: Secret,
    /// When it was made.
    pub(crate) created_at: Timestamp,
}

/// The keys of an installation.
pub(crate) struct Keys {
    store: Arc<dyn Store>,
    pepper: Pepper,
    /// When this process last noted the use of a key. As many entries as keys were used.
    touched: Mutex<HashMap<KeyId, Instant>>,
}

impl Keys {
    /// The keys in this store, hashed under this pepper.
    pub(crate) fn new(store: Arc<dyn Store>, pepper: Pepper) -> Self {
        Self { store, pepper, touched: Mutex::default() }
    }

    /// Checks the value of an `Authorization` header.
    ///
    /// # Errors
    /// [`Denied::Invalid`] for whatever is no good key; [`Denied::Unavailable`] where that could not be found out.
    pub(crate) async fn admit(&self, authorization: Option<&[u8]>) -> Result<Caller, Denied> {
        let secret = authorization.and_then(bearer).and_then(Secret::parse).ok_or(Denied::Invalid)?;
        let key = self.store.find_key(&secret.public_id()).await.map_err(Denied::Unavailable)?;
        // The same work whether the key is unknown, wrong or disabled: the time of an answer tells nothing either.
        let hash = key.as_ref().map_or(&KeyHash([0; 32]), |key| &key.hash);
        let genuine = self.pepper.verify(&secret, hash);
        let key = key.filter(|key| genuine && is_good(key, Timestamp::now())).ok_or(Denied::Invalid)?;
        self.note_use(&key.id);
        Ok(Caller { key: key.id, public_id: key.public_id, user: key.user, group_name: key.group_name })
    }

    /// Makes a key, and the user and the group where they are new.
    ///
    /// # Errors
    /// [`KeyError::Name`] before anything is stored; [`KeyError::Store`] where it could not be.
    pub(crate) async fn create(&self, name: &str, user: &str, group: &str) -> Result<Created, KeyError> {
        for (of, name) in [("key", name), ("user", user), ("group", group)] {
            check_name(of, name)?;
        }
        let user = self.store.ensure_user(user).await?;
        let group = self.store.ensure_group(group).await?;
        let secret = Secret::generate()?;
        let key = KeyRow {
            id: KeyId::random()?,
            public_id: secret.public_id(),
            name: name.to_owned(),
            user: user.id,
            user_name: user.name,
            group: group.id,
            group_name: group.name,
            hash: self.pepper.hash(&secret),
            created_at: Timestamp::now(),
            expires_at: None,
            last_used_at: None,
            disabled_at: None,
            deleted_at: None,
        };
        self.store.insert_key(&key).await?;
        let KeyRow { id, name, user, user_name, group_name, created_at, .. } = key;
        Ok(Created { id, name, user, user_name, group_name, secret, created_at })
    }

    /// Every key that is not deleted, oldest first.
    ///
    /// # Errors
    /// Where the store has trouble.
    pub(crate) async fn list(&self) -> Result<Vec<KeyRow>, StoreError> {
        self.store.list_keys().await
    }

    /// Refuses a key from now on, until it is enabled. Takes its id or its public id, as the others do.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] where there is no such key.
    pub(crate) async fn disable(&self, handle: &str) -> Result<KeyRow, KeyError> {
        self.change(handle, KeyChange::Disable).await
    }

    /// Takes a disabling back.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] where there is no such key.
    pub(crate) async fn enable(&self, handle: &str) -> Result<KeyRow, KeyError> {
        self.change(handle, KeyChange::Enable).await
    }

    /// Refuses a key for ever.
    ///
    /// # Errors
    /// [`KeyError::Unknown`] where there is no such key.
    pub(crate) async fn delete(&self, handle: &str) -> Result<KeyRow, KeyError> {
        self.change(handle, KeyChange::Delete).await
    }

    async fn change(&self, handle: &str, change: KeyChange) -> Result<KeyRow, KeyError> {
        self.store.change_key(handle, change, Timestamp::now()).await?.ok_or(KeyError::Unknown)
    }

    /// Notes that a key is in use, now and then, and never in the way of the request.
    fn note_use(&self, key: &KeyId) {
        let now = Instant::now();
        {
            let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
            match touched.get_mut(key) {
                Some(last) if now.duration_since(*last) < TOUCH_EVERY => return,
                Some(last) => *last = now,
                None => drop(touched.insert(key.clone(), now)),
            }
        }
        let (store, key) = (Arc::clone(&self.store), key.clone());
        // Nobody waits for it: a note lost at shutdown makes `last_used_at` a minute older.
        tokio::runtime::Handle::current().spawn(async move {
            if let Err(error) = store.touch_key(&key, Timestamp::now()).await {
                tracing::debug!(%key, %error, "the use of a key was not noted");
            }
        });
    }
}

/// The token of a bearer header. Schemes are case-insensitive, and clients put spaces where they like.
pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let header = header.trim_ascii();
    let space = header.iter().position(u8::is_ascii_whitespace)?;
    let (scheme, token) = header.split_at(space);
    scheme.eq_ignore_ascii_case(b"bearer").then(|| token.trim_ascii())
}

/// Whether this has the form of a key, which says nothing about whether it is a valid one.
pub(crate) fn is_well_formed(text: &[u8]) -> bool {
    Secret::parse(text).is_some()
}

fn is_good(key: &KeyRow, now: Timestamp) -> bool {
    key.disabled_at.is_none() && key.deleted_at.is_none() && key.expires_at.is_none_or(|end| now < end)
}

fn check_name(of: &'static str, name: &str) -> Result<(), KeyError> {
    let fits = (1..=MAX_NAME_CHARS).contains(&name.chars().count());
    if fits && !name.trim().is_empty() && !name.contains(char::is_control) {
        return Ok(());
    }
    Err(KeyError::Name { of })
}
