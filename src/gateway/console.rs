//! The operations of the admin API, for admins and for members who manage their own keys.
//!
//! This module decides what each operation of the document `openapi/admin.json` does, who may call it, what it returns,
//! and which answer each error becomes. It does not know HTTP or pages: the API and the browser pages call the same
//! methods, which have the names of the operations and take the [`Actor`] first. Changes are written to the store,
//! where the running gateway finds them within a second. The commands that manage an installation on this machine use the
//! same operations, without a running gateway ([`Console::for_command`]).
//!
//! It implements these rules: an actor is authenticated before anything else is read; an operation for admins is
//! answered with 403 for a member, and an object of another user with 404; no answer contains the credentials of an
//! account, and a new secret is returned once; API keys are not accepted here, and admin tokens are not accepted by the
//! image API; an error names the refused field, and a refused operation changes nothing.

mod account_test;
mod account_view;
mod accounts;
mod alerts;
mod audit;
mod error_conversion;
mod groups;
mod keys;
mod limit_usage;
mod prices;
mod records;
mod request_fields;
mod tokens;
mod usage;
mod usage_groups;
mod users;

#[cfg(test)]
mod tests;

pub(crate) use accounts::DEFAULT_DISABLED_REASON;

use std::net::IpAddr;
use std::sync::Arc;

use super::accounts::Accounts;
use super::active_settings::ActiveSettings;
use super::config::Config;
use super::group_refresh::GroupRefreshHandle;
use super::keys::{ApiKeys, bearer_token};
use super::limits::RequestLimiter;
use super::people::{Actor, ConfigAdminToken, IdentityService};
use super::prices::CurrentPrices;
use super::store::Store;
use super::upstream::UpstreamClient;
use crate::error::Error;
use crate::wire::admin::types;
use error_conversion::{ErrorSubject, from_identity_error};

/// The operations of the admin API.
#[derive(Clone)]
pub(crate) struct Console {
    config: Arc<Config>,
    store: Arc<dyn Store>,
    keys: Arc<ApiKeys>,
    people: Arc<IdentityService>,
    prices: Arc<CurrentPrices>,
    limiter: Arc<RequestLimiter>,
    /// The running gateway; `None` in a command, which only has the store.
    server: Option<ServerParts>,
    /// The admin token of the settings, if there is one.
    token: Option<ConfigAdminToken>,
}

/// The parts of an installation that the console changes.
pub(crate) struct ConsoleServices {
    /// The store of the installation.
    pub(crate) store: Arc<dyn Store>,
    /// The API keys of callers.
    pub(crate) keys: Arc<ApiKeys>,
    /// The users and the groups.
    pub(crate) people: Arc<IdentityService>,
    /// The prices in force.
    pub(crate) prices: Arc<CurrentPrices>,
    /// The limits of groups, users and keys.
    pub(crate) limiter: Arc<RequestLimiter>,
}

/// The parts of a running gateway that the console uses.
#[derive(Clone)]
pub(crate) struct ServerParts {
    /// The upstream accounts as this process uses them.
    pub(crate) accounts: Arc<Accounts>,
    /// Makes the calls of account tests, and checks if a policy can be used.
    pub(crate) upstream: Arc<UpstreamClient>,
    /// Brings changed groups into force.
    pub(crate) group_refresh: GroupRefreshHandle,
}

// === impl Console ===

impl Console {
    /// Creates the console of a running gateway.
    pub(crate) fn new(settings: &ActiveSettings, services: ConsoleServices, server: ServerParts) -> Self {
        Self { server: Some(server), ..Self::for_command(&settings.config, services) }.with_settings(settings)
    }

    /// Creates the console of a command, which a gateway with the same store may run beside. It accepts no token.
    pub(crate) fn for_command(config: &Arc<Config>, services: ConsoleServices) -> Self {
        let ConsoleServices { store, keys, people, prices, limiter } = services;
        Self { config: Arc::clone(config), store, keys, people, prices, limiter, server: None, token: None }
    }

    /// Returns the same console with other settings.
    pub(crate) fn with_settings(&self, settings: &ActiveSettings) -> Self {
        Self { config: Arc::clone(&settings.config), token: settings.admin_token.clone(), ..self.clone() }
    }

    /// Checks the value of an `Authorization` header: the admin token of the settings, or the admin token of a user.
    ///
    /// # Errors
    ///
    /// Returns the same error for every header that contains neither, and 503 if the store cannot be read.
    pub(crate) async fn authenticate(&self, authorization: Option<&[u8]>, address: IpAddr) -> Result<Actor, Error> {
        let presented = authorization.and_then(bearer_token).ok_or(Error::InvalidKey)?;
        let actor = if self.token.as_ref().is_some_and(|token| token.matches(presented)) {
            Some(Actor::from_settings())
        } else {
            self.people.authenticate_token(presented).await.map_err(from_identity_error(ErrorSubject::Token, ""))?
        };
        Ok(actor.ok_or(Error::InvalidKey)?.with_address(address))
    }
}

/// Refuses an operation that members may not call.
fn require_admin(actor: &Actor) -> Result<(), Error> {
    if actor.is_admin() { Ok(()) } else { Err(Error::Denied) }
}

/// Returns the object type of a list.
const fn list_object() -> types::ListObject {
    types::ListObject::List
}
