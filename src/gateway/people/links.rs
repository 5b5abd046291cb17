//! One-time links: the first admin, invitations, forgotten passwords.

use std::time::Duration;

use super::{Hidden, Opened, Origin, People, PeopleError, passwords, users};
use crate::gateway::store::{Act, NewLink, Purpose, Redeemed, SecretHash, StoreError, Timestamp, random_base62};

/// Shown in a terminal to whoever sits there (ours).
const SETUP: Duration = Duration::from_secs(30 * 60);
/// Sent to somebody who may be away (ours).
pub(super) const INVITATION: Duration = Duration::from_secs(72 * 3600);
pub(super) const RESET: Duration = Duration::from_secs(24 * 3600);

/// 43 letters of base62 are 256 bits.
const LETTERS: usize = 43;

/// A link that works once.
#[derive(Debug)]
pub(crate) struct OneTime {
    /// What stands in it.
    pub(crate) token: Hidden,
    /// What it is for.
    pub(crate) purpose: Purpose,
    /// From when on it is no longer good.
    pub(crate) expires_at: Timestamp,
}

/// What a link does for whoever has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkFor {
    /// What it is for.
    pub(crate) purpose: Purpose,
    /// For whom; nobody yet where it makes the first admin.
    pub(crate) name: Option<String>,
}

// === impl OneTime ===

impl OneTime {
    /// Where the link leads, to be put behind the address of the gateway.
    pub(crate) fn path(&self) -> String {
        let place = match self.purpose {
            Purpose::Setup => "setup",
            Purpose::Invitation | Purpose::Reset => "invitation",
        };
        format!("/{place}/{}", self.token.expose())
    }
}

// === impl People ===

impl People {
    /// The link that makes the first admin, in place of any that was made before. `None` for ever once there is an admin.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn setup_link(&self) -> Result<Option<OneTime>, PeopleError> {
        // Nearly every start of an installation finds it done, and a read waits for nobody.
        if self.store.is_set_up().await? {
            return Ok(None);
        }
        let (link, one_time) = self.new_link(Purpose::Setup, SETUP)?;
        let act = Act { at: self.clock.now(), ..Act::system() };
        Ok(self.store.make_setup_link(&act, &link).await?.then_some(one_time))
    }

    /// What a link is for.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Link`] where it is not good.
    pub(crate) async fn look(&self, token: &str) -> Result<LinkFor, PeopleError> {
        if !is_random_text(token) {
            return Err(PeopleError::Link);
        }
        let link = self.store.find_link(&self.link_hash(token), self.clock.now()).await?.ok_or(PeopleError::Link)?;
        Ok(LinkFor { purpose: link.purpose, name: link.user.map(|user| user.name) })
    }

    /// Makes the first admin, and signs them in.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Link`] where the link is not good, also where another browser was faster; [`PeopleError::Field`] for
    /// a name or password that cannot be used, and the link stays good.
    pub(crate) async fn set_up(
        &self,
        token: &str,
        name: &str,
        password: &str,
        origin: &Origin,
    ) -> Result<Opened, PeopleError> {
        if self.look(token).await?.purpose != Purpose::Setup {
            return Err(PeopleError::Link);
        }
        let name = users::check_name(name)?;
        passwords::check(password, &name)?;
        self.redeem(token, Some(&name), password, origin).await
    }

    /// Sets the password of whoever the link is for, ends their former sessions, and signs them in.
    ///
    /// # Errors
    ///
    /// As for the first admin.
    pub(crate) async fn accept(&self, token: &str, password: &str, origin: &Origin) -> Result<Opened, PeopleError> {
        let link = self.look(token).await?;
        let name = link.name.ok_or(PeopleError::Link)?;
        passwords::check(password, &name)?;
        self.redeem(token, None, password, origin).await
    }

    async fn redeem(
        &self,
        token: &str,
        name: Option<&str>,
        password: &str,
        origin: &Origin,
    ) -> Result<Opened, PeopleError> {
        // The link was looked at before, so that nobody makes us hash without one.
        let password = self.passwords.hash(password).await?;
        let act = self.act_of(None, origin);
        let (session, cookie) = self.new_session(origin, act.at)?;
        let redeemed =
            Redeemed { link: self.link_hash(token), name: name.map(str::to_owned), password, session: session.clone() };
        let user = self.store.redeem(&act, &redeemed).await?.ok_or(PeopleError::Link)?;
        Ok(self.opened(user, &session, cookie))
    }

    pub(super) fn new_link(&self, purpose: Purpose, life: Duration) -> Result<(NewLink, OneTime), StoreError> {
        let token = random_text()?;
        let expires_at = self.clock.now() + life;
        let link = NewLink { hash: self.link_hash(token.expose()), expires_at };
        Ok((link, OneTime { token, purpose, expires_at }))
    }

    fn link_hash(&self, token: &str) -> SecretHash {
        self.pepper.hash_of("link", token.as_bytes())
    }
}

/// Whether this can be what [`random_text`] has made: what cannot costs no query.
pub(super) fn is_random_text(text: &str) -> bool {
    text.len() == LETTERS && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// 256 bits that nobody can guess.
pub(super) fn random_text() -> Result<Hidden, StoreError> {
    let letters = random_base62::<LETTERS>()?;
    Ok(Hidden::new(letters.map(char::from).iter().collect()))
}
