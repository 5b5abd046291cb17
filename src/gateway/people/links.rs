//! One-time links: for the first admin, for invitations, and for forgotten passwords.

use std::time::Duration;

use super::pending_sign_in::FirstFactor;
use super::{IdentityError, IdentityService, SecretText, SignInOrigin, SignInStep, passwords, users};
use crate::gateway::store::{
    AuditContext, LinkRedemption, NewLink, OneTimeLinkPurpose, SecretHash, StoreError, Timestamp, random_base62,
};

/// The lifetime of a set-up link (our choice). It is short, because the operator sees the link in a terminal at once.
const SETUP_LINK_LIFETIME: Duration = Duration::from_secs(30 * 60);
/// The lifetime of an invitation (our choice). It is long, because the invited person may be away.
pub(super) const INVITATION_LIFETIME: Duration = Duration::from_secs(72 * 3600);
/// The lifetime of a link for a password reset (our choice).
pub(super) const RESET_LINK_LIFETIME: Duration = Duration::from_secs(24 * 3600);

/// The length of a random text: 43 base62 characters have 256 bits.
const RANDOM_TEXT_CHARS: usize = 43;

/// A new one-time link. The token in it is known only now.
#[derive(Debug)]
pub(crate) struct IssuedLink {
    /// The token in the link.
    pub(crate) token: SecretText,
    /// The purpose of the link.
    pub(crate) purpose: OneTimeLinkPurpose,
    /// The time at which the link expires.
    pub(crate) expires_at: Timestamp,
}

/// The purpose of a valid link, and the user for whom it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkDetails {
    /// The purpose of the link.
    pub(crate) purpose: OneTimeLinkPurpose,
    /// The name of the user; `None` for the link that creates the first admin.
    pub(crate) name: Option<String>,
}

// === impl IssuedLink ===

impl IssuedLink {
    /// Returns the path of the link, which is appended to the origin of the gateway.
    pub(crate) fn path(&self) -> String {
        let section = match self.purpose {
            OneTimeLinkPurpose::Setup => "setup",
            OneTimeLinkPurpose::Invitation | OneTimeLinkPurpose::Reset => "invitation",
        };
        format!("/{section}/{}", self.token.expose())
    }
}

// === impl IdentityService ===

impl IdentityService {
    /// Creates the link for the first admin, which replaces an earlier link; `None` after an admin has been set up.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read or written.
    pub(crate) async fn create_setup_link(&self) -> Result<Option<IssuedLink>, IdentityError> {
        // At nearly every start an admin exists already, and this read does not have to wait for a writer.
        if self.store.is_set_up().await? {
            return Ok(None);
        }
        let (link, issued_link) = self.new_link(OneTimeLinkPurpose::Setup, SETUP_LINK_LIFETIME)?;
        let audit = AuditContext { at: self.clock.now(), ..AuditContext::system() };
        Ok(self.store.make_setup_link(&audit, &link).await?.then_some(issued_link))
    }

    /// True if the first admin was created.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub(crate) async fn is_set_up(&self) -> Result<bool, IdentityError> {
        Ok(self.store.is_set_up().await?)
    }

    /// Returns the purpose and user of a link.
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

    /// Creates the first admin, and signs the new user in.
    ///
    /// # Errors
    ///
    /// [`IdentityError::InvalidLink`] if the link is not valid, or another request has used it first;
    /// [`IdentityError::InvalidField`] for an invalid name or password, after which the link stays valid.
    pub(crate) async fn create_first_admin(
        &self,
        token: &str,
        name: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<SignInStep, IdentityError> {
        if self.link_details(token).await?.purpose != OneTimeLinkPurpose::Setup {
            return Err(IdentityError::InvalidLink);
        }
        let name = users::check_name(name)?;
        passwords::check_password(password, &name)?;
        // A user whom a command has created becomes the admin; one whom a provider identifies is somebody else.
        if self.user_named(&name).await?.is_some_and(|user| user.has_identity) {
            return Err(IdentityError::NameTaken);
        }
        self.redeem_link(token, Some(&name), password, origin).await
    }

    /// Sets the password of the link's user, ends the former sessions of the user, and signs the user in. A user with a
    /// second factor must then enter a code.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::create_first_admin`].
    pub(crate) async fn accept_link(
        &self,
        token: &str,
        password: &str,
        origin: &SignInOrigin,
    ) -> Result<SignInStep, IdentityError> {
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
    ) -> Result<SignInStep, IdentityError> {
        // The link was checked before, so that a client without a link cannot cause the computation of a hash.
        let password = self.passwords.hash(password).await?;
        let audit = self.audit_context(None, origin);
        let (session, cookie) = self.new_session(origin, audit.at)?;
        let redemption = LinkRedemption {
            link: self.link_hash(token),
            name: name.map(str::to_owned),
            password: password.clone(),
            session: session.clone(),
        };
        let user = self.store.redeem_link(&audit, &redemption).await?.ok_or(IdentityError::InvalidLink)?;
        if user.has_second_factor {
            let first = FirstFactor { password: Some(password), identity: None, proved_at: audit.at };
            return Ok(SignInStep::NeedsCode(self.pending_sign_in(&user, &first, origin)));
        }
        Ok(SignInStep::Complete(Box::new(self.issued_session(user, &session, cookie))))
    }

    pub(super) fn new_link(
        &self,
        purpose: OneTimeLinkPurpose,
        lifetime: Duration,
    ) -> Result<(NewLink, IssuedLink), StoreError> {
        let token = random_text()?;
        let expires_at = self.clock.now() + lifetime;
        let link = NewLink { hash: self.link_hash(token.expose()), expires_at };
        Ok((link, IssuedLink { token, purpose, expires_at }))
    }

    fn link_hash(&self, token: &str) -> SecretHash {
        self.pepper.hash_for_purpose("link", token.as_bytes())
    }
}

/// Returns true if the text has the form of a [`random_text`]. Other texts are refused without a query.
pub(super) fn is_random_text(text: &str) -> bool {
    text.len() == RANDOM_TEXT_CHARS && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns a text with 256 random bits.
pub(super) fn random_text() -> Result<SecretText, StoreError> {
    let characters = random_base62::<RANDOM_TEXT_CHARS>()?;
    Ok(SecretText::new(characters.map(char::from).iter().collect()))
}
