//! The corridor of the operators, and of members who look after their own keys: who is let in, and what they may see and
//! change.
//!
//! Decides what each operation of their document does, who may ask for it, what is told, and which answer goes with which
//! trouble. Refuses to know HTTP and pages: the API and the pages for people come through the same methods, called as the
//! operations are, with the [`Actor`] first. What is changed here is written to the store, where the running gateway finds
//! it within a second; commands walk through the rooms behind it, `keys`, `people` and `manage`.
//!
//! Carries: whoever asks is known before anything else is read; an operation for admins alone is a 403 for members, and
//! what is somebody else's is a 404; no credential of an account ever leaves, and a new secret is told once; keys of
//! callers let nobody in here, and admin tokens nobody there; a refused field is named, and then nothing has changed.

mod accounts;
mod audit;
mod groups;
mod keys;
mod records;
mod shown;
mod token;
mod tokens;
mod told;
mod trouble;
mod usage;
mod users;

#[cfg(test)]
mod tests;

pub(crate) use token::KeyAsToken;

use std::net::IpAddr;
use std::sync::Arc;

use super::config::Config;
use super::follow::GroupFollower;
use super::keys::{Keys, bearer};
use super::people::{Actor, People};
use super::store::SqliteStore;
use super::upstream::Upstream;
use crate::error::Error;
use crate::wire::admin::types;
use token::Token;
use trouble::{Kind, of_people};

/// What operators can reach.
pub(crate) struct Console {
    config: Arc<Config>,
    store: Arc<SqliteStore>,
    keys: Arc<Keys>,
    people: Arc<People>,
    upstream: Arc<Upstream>,
    follower: GroupFollower,
    /// The token of the settings, where there is one.
    token: Option<Token>,
}

/// The parts of the gateway that operators change.
pub(crate) struct ConsoleRooms {
    /// Where everything is kept.
    pub(crate) store: Arc<SqliteStore>,
    /// The keys of callers.
    pub(crate) keys: Arc<Keys>,
    /// The people and their groups.
    pub(crate) people: Arc<People>,
}

// === impl Console ===

impl Console {
    /// The console of an installation. Policies may need the upstream connections, and the follower brings them into force.
    ///
    /// # Errors
    ///
    /// Where the admin token of the settings is what others have.
    pub(crate) fn new(
        config: &Arc<Config>,
        rooms: ConsoleRooms,
        upstream: Arc<Upstream>,
        follower: GroupFollower,
    ) -> Result<Self, KeyAsToken> {
        let token = config.admin_token.as_ref().map(Token::new).transpose()?;
        let ConsoleRooms { store, keys, people } = rooms;
        Ok(Self { config: Arc::clone(config), store, keys, people, upstream, follower, token })
    }

    /// The same console under other settings.
    ///
    /// # Errors
    ///
    /// Where the admin token of the settings is what others have.
    pub(crate) fn under(&self, config: &Arc<Config>) -> Result<Self, KeyAsToken> {
        let rooms = ConsoleRooms {
            store: Arc::clone(&self.store),
            keys: Arc::clone(&self.keys),
            people: Arc::clone(&self.people),
        };
        Self::new(config, rooms, Arc::clone(&self.upstream), self.follower.clone())
    }

    /// Checks the value of an `Authorization` header: the token of the settings, or the admin token of a user.
    ///
    /// # Errors
    ///
    /// The same for whatever is neither, and 503 where that cannot be found out.
    pub(crate) async fn admit(&self, authorization: Option<&[u8]>, address: IpAddr) -> Result<Actor, Error> {
        let presented = authorization.and_then(bearer).ok_or(Error::InvalidKey)?;
        let actor = if self.token.as_ref().is_some_and(|token| token.is(presented)) {
            Some(Actor::of_settings())
        } else {
            self.people.admit_token(presented).await.map_err(of_people(Kind::Token, ""))?
        };
        Ok(actor.ok_or(Error::InvalidKey)?.at(address))
    }
}

/// What members may not do.
fn admins_only(actor: &Actor) -> Result<(), Error> {
    if actor.is_admin() { Ok(()) } else { Err(Error::Denied) }
}

/// The word for a list.
const fn list() -> types::ListObject {
    types::ListObject::List
}
