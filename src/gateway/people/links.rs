//! One-time links: for the first admin, for invitations, and for forgotten passwords.

use std::time::Duration;

use super::{IdentityError, IdentityService, IssuedSession, SecretText, SignInOrigin, passwords, users};
use crate::gateway::store::{
    AuditContext, LinkRedemption, NewLink, OneTimeLinkPurpose, SecretHash, StoreError, Timestamp, random_base62,
};

/// Short, because the operator sees the link in a terminal at once (our choice).
const SETUP_LINK_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// Long, because the invited person may be away (our choice).
pub(super) const INVITATION_LIFETIME: Duration = Duration::from_secs(72 * 3600);
pub(super) const RESET_LINK_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// 43 letters of base62 are 256 bits.
const LETTERS: usize = 43;

/// A link that works once.
#[derive(Debug)]
pub(crate) struct IssuedLink {
    /// The token in the link.
    pub(crate) token: SecretText,
    /// The purpose of the link.
    pub(crate) purpose: OneTimeLinkPurpose,
    /// The time at which it expires.
    pub(crate) expires_at: Timestamp,
}

/// The effect of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkDetails {
    /// The purpose of the link.
    pub(crate) purpose: OneTimeLinkPurpose,
    /// The name of the user; `None` for the link that makes the first admin.
    pub(crate) name: Option<String>,
}

// === impl IssuedLink ===

impl IssuedLink {
    /// Returns the path of the link, to be appended to the address of the gateway.
    pub(crate) fn path(&self) -> String {
        let place = match self.purpose {
            OneTimeLinkPurpose::Setup => "setup",
            OneTimeLinkPurpose::Invitation | OneTimeLinkPurpose::Reset => "invitation",
        };
        format!("/{place}/{}", self.token.expose())
    }
}

// === impl IdentityService ===

impl IdentityService {
    /// Makes the link for the first admin, which replaces any earlier one; `None` once an admin has been set up.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read or written.
    pub(crate) async fn setup_link(&self) -> Result<Option<IssuedLink>, IdentityError> {
        // At nearly every start there is an admin already, and a read does not wait for a writer.
        if self.store.is_set_up().await? {
            return Ok(None);
        }
        let (link, one_time) = self.new_link(OneTimeLinkPurpose::Setup, SETUP_LINK_LIFETIME)?;
        let act = AuditContext { at: self.clock.now(), ..AuditContext::system() };
        Ok(self.store.make_setup_link(&act, &link).await?.then_some(one_time))
    }

    /// Returns the effect of a link.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InvalidLink`] if the link is not valid.
    pub(crate) async fn link_details(&self, token: &str) -> Result<LinkDetails, IdentityError> {
        if !is_random_text(token) {
            return Err(IdentityError::InvalidLink);
        }
        let link =
            self.store.find_link(&self.link_hash(token), self.clock.now()).await?.ok_or(IdentityError::InvalidLink)?;
        Ok(LinkDetails { purpose: link.purpose, name: link.user.map(|user| user.name) })
    }

    /// Makes the first admin, and signs it in.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InvalidLink`] if the link is not valid, also if another browser was faster; [`IdentityError::InvalidField`]
    /// for a name or password that cannot be used, and then the link stays valid.
    pub(crate) async fn create_first_admin(
        &self,
        token: &str,
        name: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<IssuedSession, IdentityError> {
        if self.link_details(token).await?.purpose != OneTimeLinkPurpose::Setup {
            return Err(IdentityError::InvalidLink);
        }
        let name = users::check_name(name)?;
        passwords::check_password(password, &name)?;
        self.redeem_link(token, Some(&name), password, origin).await
    }

    /// Sets the password of the user that the link is for, ends its former sessions, and signs it in.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::create_first_admin`].
    pub(crate) async fn accept_link(
        &self,
        token: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<IssuedSession, IdentityError> {
        let link = self.link_details(token).await?;
        let name = link.name.ok_or(IdentityError::InvalidLink)?;
        passwords::check_password(password, &name)?;
        self.redeem_link(token, None, password, origin).await
    }

    async fn redeem_link(
        &self,
        token: &str,
        name: Option<&str>,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<IssuedSession, IdentityError> {
        // The link was checked before, so that a client without one cannot cause a hash.
        let password = self.passwords.hash(password).await?;
        let act = self.audit_context(None, origin);
        let (session, cookie) = self.new_session(origin, act.at)?;
        let redeemed = LinkRedemption {
            link: self.link_hash(token),
            name: name.map(str::to_owned),
            password,
            session: session.clone(),
        };
        let user = self.store.redeem_link(&act, &redeemed).await?.ok_or(IdentityError::InvalidLink)?;
        Ok(self.issued_session(user, &session, cookie))
    }

    pub(super) fn new_link(
        &self,
        purpose: OneTimeLinkPurpose,
        life: Duration,
    ) -> Result<(NewLink, IssuedLink), StoreError> {
        let token = random_text()?;
        let expires_at = self.clock.now() + life;
        let link = NewLink { hash: self.link_hash(token.expose()), expires_at };
        Ok((link, IssuedLink { token, purpose, expires_at }))
    }

    fn link_hash(&self, token: &str) -> SecretHash {
        self.pepper.hash_for_purpose("link", token.as_bytes())
    }
}

/// Returns true if the text has the form of [`random_text`]; a text of another form costs no query.
pub(super) fn is_random_text(text: &str) -> bool {
    text.len() == LETTERS && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns a text with 256 random bits.
pub(super) fn random_text() -> Result<SecretText, StoreError> {
    let letters = random_base62::<LETTERS>()?;
    Ok(SecretText::new(letters.map(char::from).iter().collect()))
}
