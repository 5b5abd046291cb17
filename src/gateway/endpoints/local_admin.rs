//! The admin API for commands on the machine of the gateway: the same routes and methods as those of a running gateway,
//! on a store that the command has opened.
//!
//! Nothing listens: the requests come from the command itself, so its actor needs no token. There are no accounts, no
//! upstream and no tasks here, so a command works beside a running gateway, and also if no gateway could start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;

use super::admin::{AdminEndpoints, AdminServer};
use crate::error::Error;
use crate::gateway::admission::{Admission, RequestBudgets};
use crate::gateway::config::{Config, CorsOrigins};
use crate::gateway::console::{Console, ConsoleServices};
use crate::gateway::front::{AdmittingServer, CorsSettings, LocalDispatcher, ResponseCounter, ServerError};
use crate::gateway::keys::ApiKeys;
use crate::gateway::limits::RequestLimiter;
use crate::gateway::people::{Actor, IdentityService};
use crate::gateway::prices::CurrentPrices;
use crate::gateway::store::Store;
use crate::wire::admin::server;

/// The admin API of a command.
pub(crate) type LocalAdmin = LocalDispatcher<CommandServer>;

/// The server of a command. Clones are the same server.
#[derive(Clone)]
pub(crate) struct CommandServer {
    console: Arc<Console>,
    budgets: Arc<RequestBudgets>,
}

/// Opens the admin API of a store for a command.
///
/// # Errors
///
/// Returns an error if two routes contradict each other.
pub(crate) fn open_local_admin(
    config: &Config,
    store: &Arc<dyn Store>,
    keys: Arc<ApiKeys>,
    people: Arc<IdentityService>,
) -> Result<LocalAdmin, ServerError> {
    let services = ConsoleServices {
        store: Arc::clone(store),
        keys,
        people,
        prices: Arc::new(CurrentPrices::new(&config.prices, Vec::new())),
        limiter: Arc::new(RequestLimiter::new(Arc::clone(store) as _)),
    };
    let console = Arc::new(Console::for_command(&Arc::new(config.clone()), services));
    let server = CommandServer { console, budgets: RequestBudgets::new(&config.uploads) };
    LocalDispatcher::new(Vec::from(server::routes::<AdminEndpoints<CommandServer>>()), server)
}

impl AdminServer for CommandServer {
    async fn admit_actor(&self, _: Option<&[u8]>, _: IpAddr) -> Result<(Arc<Console>, Actor), Error> {
        Ok((Arc::clone(&self.console), Actor::from_command()))
    }
}

impl AdmittingServer for CommandServer {
    fn begin_admission(&self, _: SocketAddr, _: &HeaderMap) -> Admission {
        Admission::begin(&self.budgets, Ipv4Addr::LOCALHOST.into())
    }

    fn request_budgets(&self) -> Arc<RequestBudgets> {
        Arc::clone(&self.budgets)
    }
}

impl ResponseCounter for CommandServer {
    fn count_response(&self, _: &str, _: u16) {}
}

impl CorsSettings for CommandServer {
    fn cors_origins(&self) -> CorsOrigins {
        CorsOrigins::default()
    }
}
