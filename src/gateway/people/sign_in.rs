//! Signs users in with a name and a password.

use std::net::IpAddr;
use std::time::Duration;

use super::limits::RateLimitPermit;
use super::{IdentityError, IdentityService, IssuedSession};
use crate::gateway::names;
use crate::gateway::store::{ActorKind, AuditContext, UserRow};

/// The origin of a sign-in.
#[derive(Debug, Clone)]
pub(crate) struct SignInOrigin {
    /// The address that the connection comes from.
    pub(crate) address: IpAddr,
    /// The user agent of the browser.
    pub(crate) agent: String,
}

// === impl IdentityService ===

impl IdentityService {
    /// Opens a session if the password is right. It never continues an older one.
    ///
    /// # Errors
    ///
    /// [`IdentityError::Wrong`] whatever is wrong; [`IdentityError::Slow`] after too many attempts, before a hash is
    /// computed.
    pub(crate) async fn sign_in(
        &self,
        name: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<IssuedSession, IdentityError> {
        let composed = names::composed(name);
        let account = short(&composed);
        let tried = self.limits.begin(account, origin.address, self.clock.instant()).map_err(slow)?;
        let user = match self.user_named(name).await? {
            None if composed != name => self.user_named(&composed).await?,
            user => user,
        };
        let tried = self.widen(tried, account, user.as_ref(), origin).await?;
        let act = self.act_of(user.as_ref(), origin);
        let hash = match &user {
            Some(user) if user.disabled_at.is_none() => self.store.password_of(&user.id).await?,
            _ => None,
        };
        let right = self.passwords.verify(password, hash.clone()).await?;
        if let (Some(user), Some(hash), true) = (&user, hash, right) {
            let (session, cookie) = self.new_session(origin, act.at)?;
            if self.store.open_session(&act, &user.id, &hash, &session).await? {
                self.limits.forgive(tried);
                return Ok(self.opened(user.clone(), &session, cookie));
            }
        }
        self.store.note_refusal(&act, user.as_ref()).await?;
        Err(IdentityError::Wrong)
    }

    async fn user_named(&self, name: &str) -> Result<Option<UserRow>, IdentityError> {
        Ok(self.store.find_user(name).await?.filter(|user| user.name == name))
    }

    async fn widen(
        &self,
        tried: RateLimitPermit,
        account: &str,
        user: Option<&UserRow>,
        origin: &SignInOrigin,
    ) -> Result<RateLimitPermit, IdentityError> {
        let known = match user {
            Some(user) => self.store.knows_address(&user.id, &origin.address.to_string()).await?,
            None => false,
        };
        if known { Ok(tried) } else { self.limits.widen(tried, account, self.clock.instant()).map_err(slow) }
    }

    pub(super) fn act_of(&self, user: Option<&UserRow>, origin: &SignInOrigin) -> AuditContext {
        AuditContext {
            kind: ActorKind::User,
            user: user.map(|user| user.id.clone()),
            // An unknown name is not recorded, because the text may be a password.
            name: user.map_or_else(|| "somebody".to_owned(), |user| user.name.clone()),
            address: Some(origin.address.to_string()),
            at: self.clock.now(),
        }
    }
}

pub(super) fn slow(wait: Duration) -> IdentityError {
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    IdentityError::Slow { retry_after: Duration::from_secs(whole.max(1)) }
}

/// Returns the beginning of a name, which is what the limits count; valid names are not longer.
fn short(name: &str) -> &str {
    let end = name.char_indices().nth(names::MAX_NAME_CHARS).map_or(name.len(), |(place, _)| place);
    &name[..end]
}
