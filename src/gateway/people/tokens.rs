//! Admin tokens: what programs sign in with. A token is worth what its user is worth at that moment.

use std::sync::PoisonError;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::{Actor, Hidden, People, PeopleError};
use crate::gateway::keys::{Secret, SecretKind};
use crate::gateway::names;
use crate::gateway::store::{Act, ActorKind, AdminTokenRow, SecretHash, Timestamp, TokenId, UserId, UserRow};

/// How fresh it is kept when a token was last used.
const TOUCH_EVERY: Duration = Duration::from_secs(60);

// === impl People ===

impl People {
    /// Makes a token for a user. The secret is shown now and never again.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Field`] for a name or an end that cannot be used.
    pub(crate) async fn make_token(
        &self,
        act: &Act,
        user: &UserRow,
        name: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<(AdminTokenRow, Hidden), PeopleError> {
        let name = names::name(name).ok_or_else(|| PeopleError::field("name", names::bad_name("token")))?;
        if expires_at.is_some_and(|end| end <= act.at || end > Timestamp::LAST) {
            return Err(PeopleError::field("expires_at", "the end of the token must lie in the future"));
        }
        if user.disabled_at.is_some() {
            return Err(PeopleError::field("user", "the user is disabled"));
        }
        let secret = Secret::generate(SecretKind::AdminToken)?;
        let token = AdminTokenRow {
            id: TokenId::random()?,
            public_id: secret.public_id(),
            name,
            user: user.id.clone(),
            user_name: user.name.clone(),
            created_at: act.at,
            expires_at,
            last_used_at: None,
        };
        self.store.insert_admin_token(act, &token, &self.token_hash(&secret)).await?;
        Ok((token, Hidden::new(secret.expose().to_owned())))
    }

    /// The tokens of a user or of everybody, newest first.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, PeopleError> {
        Ok(self.store.list_admin_tokens(owner).await?)
    }

    /// Deletes the token with that id or public id.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is none, or it is somebody else's.
    pub(crate) async fn revoke(
        &self,
        act: &Act,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<AdminTokenRow, PeopleError> {
        self.store.delete_admin_token(act, handle, owner).await?.ok_or(PeopleError::Unknown)
    }

    /// Whom an admin token stands for. What has not its form costs no query.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn admit_token(&self, presented: &[u8]) -> Result<Option<Actor>, PeopleError> {
        let Some(secret) = Secret::parse(SecretKind::AdminToken, presented) else { return Ok(None) };
        let found = self.store.find_admin_token(&secret.public_id()).await?;
        // The same work whether there is one.
        let presented = self.token_hash(&secret);
        let stored = found.as_ref().map_or(&SecretHash([0; 32]), |(_, hash, _)| hash);
        let genuine = verify_slices_are_equal(&presented.0, &stored.0).is_ok();
        let now = self.clock.now();
        let Some((token, _, user)) = found.filter(|(token, _, user)| genuine && is_good(token, user, now)) else {
            return Ok(None);
        };
        self.note_use(&token.id, now).await?;
        Ok(Some(Actor::of_user(ActorKind::Token, user)))
    }

    async fn note_use(&self, token: &TokenId, now: Timestamp) -> Result<(), PeopleError> {
        {
            let mut touched = self.touched.lock().unwrap_or_else(PoisonError::into_inner);
            let last = touched.get(token).copied();
            if last.is_some_and(|last| now < last + TOUCH_EVERY) {
                return Ok(());
            }
            touched.insert(token.clone(), now);
        }
        Ok(self.store.touch_admin_token(token, now).await?)
    }

    fn token_hash(&self, secret: &Secret) -> SecretHash {
        self.pepper.hash_of("admin token", secret.expose().as_bytes())
    }
}

fn is_good(token: &AdminTokenRow, user: &UserRow, now: Timestamp) -> bool {
    user.disabled_at.is_none() && token.expires_at.is_none_or(|end| now < end)
}
