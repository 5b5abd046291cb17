//! Admin tokens, with which programs use the admin API. A token has the current permissions of its user.

use std::sync::PoisonError;
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;

use super::{ActingToken, Actor, IdentityError, IdentityService, SecretText};
use crate::gateway::keys::{BearerSecret, BearerSecretKind};
use crate::gateway::names;
use crate::gateway::store::{AdminTokenRow, AuditContext, SecretHash, Timestamp, TokenId, UserId, UserRow};

/// The precision of the stored time of the last use (our choice).
const LAST_USED_PRECISION: Duration = Duration::from_secs(60);

/// The terms of a new token.
#[derive(Clone, Copy)]
pub(crate) struct NewToken<'a> {
    /// The name.
    pub(crate) name: &'a str,
    /// The time at which it ends.
    pub(crate) expires_at: Option<Timestamp>,
    /// The token with which it is made: the new one ends with this one, and at most at the same time.
    pub(crate) maker: Option<&'a ActingToken>,
    /// The most tokens that its user can have.
    pub(crate) max_tokens: u32,
}

// === impl IdentityService ===

impl IdentityService {
    /// Creates a token for a user. The returned secret cannot be read again later.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InvalidField`] for an invalid name or expiry, or a disabled user, and
    /// [`IdentityError::TooManyTokens`] if the user has as many tokens as a user can have.
    pub(crate) async fn create_token(
        &self,
        audit: &AuditContext,
        user: &UserRow,
        new: NewToken<'_>,
    ) -> Result<(AdminTokenRow, SecretText), IdentityError> {
        let name = names::parse_name(new.name)
            .ok_or_else(|| IdentityError::field("name", names::invalid_name_message("token")))?;
        let expires_at = new.expires_at;
        if expires_at.is_some_and(|end| end <= audit.at || end > Timestamp::LAST) {
            return Err(IdentityError::field("expires_at", "the expiry of the token must be in the future"));
        }
        if let Some(latest) = new.maker.and_then(|maker| maker.expires_at)
            && expires_at.is_none_or(|end| end > latest)
        {
            let why = format!("the token must end at the latest at {latest}, with the token that makes it");
            return Err(IdentityError::field("expires_at", why));
        }
        if user.disabled_at.is_some() {
            return Err(IdentityError::field("user", "the user is disabled"));
        }
        let secret = BearerSecret::generate(BearerSecretKind::AdminToken)?;
        let token = AdminTokenRow {
            id: TokenId::random()?,
            public_id: secret.public_id(),
            name,
            user: user.id.clone(),
            user_name: user.name.clone(),
            created_at: audit.at,
            expires_at,
            last_used_at: None,
            parent: new.maker.map(|maker| maker.id.clone()),
        };
        if !self.store.insert_admin_token(audit, &token, &self.token_hash(&secret), new.max_tokens).await? {
            return Err(IdentityError::TooManyTokens(new.max_tokens));
        }
        Ok((token, SecretText::new(secret.expose().to_owned())))
    }

    /// Returns the tokens of a user, or of all users, newest first.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, IdentityError> {
        Ok(self.store.list_admin_tokens(owner).await?)
    }

    /// Deletes the token with this id or public id, and the tokens that were made with it.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Unknown`] if there is no such token, or if `owner` is given and the token belongs to another
    /// user.
    pub(crate) async fn revoke_token(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<AdminTokenRow, IdentityError> {
        self.store.delete_admin_token(audit, handle, owner).await?.ok_or(IdentityError::Unknown)
    }

    /// Returns the actor of an admin token; `None` if the token is not valid. A malformed token costs no query.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn authenticate_token(&self, presented: &[u8]) -> Result<Option<Actor>, IdentityError> {
        let Some(secret) = BearerSecret::parse(BearerSecretKind::AdminToken, presented) else { return Ok(None) };
        let found = self.store.find_admin_token(&secret.public_id()).await?;
        // Takes the same time whether or not the token exists.
        let presented_hash = self.token_hash(&secret);
        let stored_hash = found.as_ref().map_or(&SecretHash([0; 32]), |(_, hash, _)| hash);
        let is_genuine = verify_slices_are_equal(&presented_hash.0, &stored_hash.0).is_ok();
        let now = self.clock.now();
        let Some((token, _, user)) = found.filter(|(token, _, user)| is_genuine && is_valid(token, user, now)) else {
            return Ok(None);
        };
        self.note_use(&token.id, now).await;
        Ok(Some(Actor::from_token(user, ActingToken { id: token.id, expires_at: token.expires_at })))
    }

    /// Stores the use of a token, at most once per [`LAST_USED_PRECISION`]. If the store cannot be written, the token is
    /// valid all the same.
    async fn note_use(&self, token: &TokenId, now: Timestamp) {
        let last = self.token_uses.lock().unwrap_or_else(PoisonError::into_inner).get(token).copied();
        if last.is_some_and(|last| now < last + LAST_USED_PRECISION) {
            return;
        }
        match self.store.record_admin_token_use(token, now).await {
            Ok(()) => {
                self.token_uses.lock().unwrap_or_else(PoisonError::into_inner).insert(token.clone(), now);
            }
            Err(error) => tracing::debug!(%error, "the last use of an admin token could not be stored"),
        }
    }

    fn token_hash(&self, secret: &BearerSecret) -> SecretHash {
        self.pepper.hash_for_purpose("admin token", secret.expose().as_bytes())
    }
}

fn is_valid(token: &AdminTokenRow, user: &UserRow, now: Timestamp) -> bool {
    user.disabled_at.is_none() && token.expires_at.is_none_or(|end| now < end)
}
