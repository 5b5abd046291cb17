//! A gateway whose API documents are served by servers of dropshot as they come, with the routes that dropshot itself
//! registers. A test shows with it that they can; the program serves its own connections.

use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::reload::ConfigReloader;
use super::{ConfigReader, OpenGateway};
use crate::gateway::config::{self, ConfigOverrides, HostEnvironment, Platform, SystemEnvironment};
use crate::gateway::front::{DropshotServer, start_dropshot_server};
use crate::gateway::store::{ServeLock, Store};
use crate::gateway::{CurrentGateway, endpoints};

/// The longest wait for running requests at the end.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// A gateway behind two servers of dropshot, one for each API document.
pub struct DropshotGateway {
    public: DropshotServer<CurrentGateway>,
    admin: DropshotServer<CurrentGateway>,
    /// Brings changed groups into force, as long as somebody can change one.
    group_refresh: JoinHandle<()>,
    store: Arc<dyn Store>,
    lock: ServeLock,
    current: CurrentGateway,
}

/// The machine with these environment variables.
struct VariableEnvironment<'a>(&'a [(String, String)]);

// === impl DropshotGateway ===

impl DropshotGateway {
    /// Opens the gateway of this configuration file, whose environment is `variables`, and serves its API documents.
    ///
    /// # Errors
    ///
    /// Returns the message of the error if the settings or the store cannot be used, or if dropshot refuses an API.
    pub async fn start(config: PathBuf, variables: &[(String, String)]) -> Result<Self, String> {
        let overrides = ConfigOverrides { config: Some(config), ..ConfigOverrides::default() };
        let config = config::load(overrides, &VariableEnvironment(variables));
        let mut config = config.map_err(|problems| format!("{problems:?}"))?;
        let OpenGateway { store, lock, current, mut changes } = OpenGateway::open(&mut config).await.map_err(text)?;
        let reader: ConfigReader = Arc::new(|| Err(Vec::new()));
        let mut reloader = ConfigReloader::new(reader, Arc::clone(&store), current.clone(), config);
        let group_refresh = Handle::current().spawn(async move {
            while let Some(requests) = changes.next().await {
                reloader.refresh_groups_for(requests).await;
            }
        });
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let serve = |api| start_dropshot_server(api, current.clone(), listen).map_err(text);
        let public = serve(endpoints::public_api().map_err(text)?)?;
        let admin = serve(endpoints::admin_api().map_err(text)?)?;
        Ok(Self { public, admin, group_refresh, store, lock, current })
    }

    /// The address of the server of the public API.
    pub fn public_address(&self) -> SocketAddr {
        self.public.address()
    }

    /// The address of the server of the admin API.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address()
    }

    /// Ends the running work, and closes the store.
    pub async fn stop(self) {
        tokio::join!(self.public.stop(STOP_TIMEOUT), self.admin.stop(STOP_TIMEOUT));
        self.group_refresh.abort();
        let gateway = self.current.get();
        gateway.images.ledger.drain().await;
        gateway.lifecycle.stop_tasks(&gateway.images).await;
        self.store.close().await;
        drop(self.lock);
    }
}

fn text(error: impl Display) -> String {
    error.to_string()
}

// === impl VariableEnvironment ===

impl HostEnvironment for VariableEnvironment<'_> {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.into())
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        SystemEnvironment.read(path)
    }

    fn platform(&self) -> Platform {
        SystemEnvironment.platform()
    }
}
