//! Sessions: what a cookie stands for, and how long.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use super::links::{is_random_text, random_text};
use super::sign_in::slow;
use super::{Actor, Hidden, Origin, People, PeopleError, passwords};
use crate::gateway::store::{
    Act, ActorKind, NewSession, SecretHash, SessionId, SessionRow, StoreError, Timestamp, UserId, UserRow,
};

/// A session that nobody uses ends (ours).
const IDLE: Duration = Duration::from_secs(12 * 3600);
/// And every session ends (ours).
const ABSOLUTE: Duration = Duration::from_secs(7 * 24 * 3600);
/// How fresh it is kept when a session was last used.
const TOUCH_EVERY: Duration = Duration::from_secs(60);
/// What is kept of what a browser calls itself.
const AGENT_CHARS: usize = 200;

/// A session just opened: the only time that its cookie is known.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The value of the cookie.
    pub(crate) cookie: Hidden,
    /// The session.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "the pages send a browser on, and it comes back with the cookie")
    )]
    pub(crate) session: Session,
}

/// Somebody who is signed in.
#[derive(Clone)]
pub(crate) struct Session {
    /// Its id, which opens nothing.
    pub(crate) id: SessionId,
    /// Who it is.
    pub(crate) actor: Actor,
    /// What every form of this session must bring back.
    pub(crate) csrf: String,
}

// === impl People ===

impl People {
    /// The session of a cookie; `None` where it is over or never was one.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn session(&self, cookie: &str) -> Result<Option<Session>, PeopleError> {
        if !is_random_text(cookie) {
            return Ok(None);
        }
        let now = self.clock.now();
        let found = self.store.find_session(&self.cookie_hash(cookie)).await?;
        let Some((row, user)) = found.filter(|(row, user)| is_live(row, user, now)) else { return Ok(None) };
        if row.last_seen_at + TOUCH_EVERY <= now {
            self.store.touch_session(&row.id, now).await?;
        }
        Ok(Some(self.session_of(row.id, user, cookie)))
    }

    /// Ends this session.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn sign_out(&self, session: &Session) -> Result<(), PeopleError> {
        Ok(self.store.end_session(&session.actor.act(), &session.id).await?)
    }

    /// Ends every session of a user, and says how many there were. Members end their own only.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Unknown`] where there is no such user, or it is somebody else.
    pub(crate) async fn sign_out_everywhere(&self, actor: &Actor, user: &str) -> Result<u64, PeopleError> {
        let user = self.find_for(actor, user).await?;
        Ok(self.store.end_sessions(&actor.act(), &user.id).await?)
    }

    /// The sessions of a user that are not over, newest first.
    ///
    /// # Errors
    ///
    /// Where the store has trouble.
    pub(crate) async fn sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, PeopleError> {
        let now = self.clock.now();
        let mut sessions = self.store.list_sessions(user).await?;
        sessions.retain(|row| lasts(row, now));
        Ok(sessions)
    }

    /// Sets another password, and ends every other session of the user.
    ///
    /// # Errors
    ///
    /// [`PeopleError::Wrong`] for another old password, [`PeopleError::Slow`] after too many of them,
    /// [`PeopleError::Field`] for a new one that cannot be used.
    pub(crate) async fn change_password(&self, session: &Session, old: &str, new: &str) -> Result<(), PeopleError> {
        let user = session.actor.user().ok_or(PeopleError::Unknown)?;
        passwords::check(new, &user.name)?;
        let address = session.actor.address().ok_or(PeopleError::Wrong)?;
        let tried = self.limits.begin(&user.name, address, self.clock.instant()).map_err(slow)?;
        let act = Act { at: self.clock.now(), ..session.actor.act() };
        if !self.passwords.verify(old, self.store.password_of(&user.id).await?).await? {
            self.store.note_refusal(&act, Some(user)).await?;
            return Err(PeopleError::Wrong);
        }
        self.limits.forgive(tried);
        let hash = self.passwords.hash(new).await?;
        Ok(self.store.set_password(&act, &user.id, &hash, &session.id).await?)
    }

    /// The value of a cookie for forms before anybody has signed in.
    ///
    /// # Errors
    ///
    /// Where the system has no random bytes.
    #[expect(clippy::unused_self, reason = "whoever asks has the people, and no business with how it is made")]
    pub(crate) fn visitor_cookie(&self) -> Result<Hidden, PeopleError> {
        Ok(random_text()?)
    }

    /// What every form must bring back that was given to whoever has this cookie.
    pub(crate) fn form_token(&self, cookie: &str) -> String {
        let hash = self.pepper.hash_of("form", cookie.as_bytes());
        hash.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    pub(super) fn new_session(&self, origin: &Origin, now: Timestamp) -> Result<(NewSession, Hidden), StoreError> {
        let cookie = random_text()?;
        let session = NewSession {
            id: SessionId::random()?,
            hash: self.cookie_hash(cookie.expose()),
            address: origin.address.to_string(),
            agent: origin.agent.chars().filter(|letter| !letter.is_control()).take(AGENT_CHARS).collect(),
            idle_since: now - IDLE,
            oldest: now - ABSOLUTE,
        };
        Ok((session, cookie))
    }

    pub(super) fn opened(&self, user: UserRow, new: &NewSession, cookie: Hidden) -> Opened {
        Opened { session: self.session_of(new.id.clone(), user, cookie.expose()), cookie }
    }

    fn session_of(&self, id: SessionId, user: UserRow, cookie: &str) -> Session {
        let actor = Actor::of_user(ActorKind::User, user);
        Session { id, actor, csrf: self.form_token(cookie) }
    }

    fn cookie_hash(&self, cookie: &str) -> SecretHash {
        self.pepper.hash_of("session", cookie.as_bytes())
    }
}

fn is_live(row: &SessionRow, user: &UserRow, now: Timestamp) -> bool {
    user.disabled_at.is_none() && lasts(row, now)
}

fn lasts(row: &SessionRow, now: Timestamp) -> bool {
    now < row.last_seen_at + IDLE && now < row.created_at + ABSOLUTE
}

// === impl Session ===

impl Session {
    /// The same, with the address that this request comes from.
    pub(crate) fn at(self, address: IpAddr) -> Self {
        Self { actor: self.actor.at(address), ..self }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Session").field("id", &self.id).field("actor", &self.actor).finish_non_exhaustive()
    }
}
