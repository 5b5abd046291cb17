//! Reads the configuration again while the gateway runs.
//!
//! Everything is checked before anything is changed. Accounts are matched by name. Requests that begin after the reload
//! get the new settings, and running requests keep the former settings.
//! **Invariant:** a configuration that cannot be used changes nothing, and every problem with it is logged.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::ServeError;
use crate::gateway::CurrentGateway;
use crate::gateway::config::{Config, ConfigDifference, ConfigProblem};
use crate::gateway::group_refresh::GroupRefreshRequest;
use crate::gateway::manage;
use crate::gateway::store::{AuditContext, Store, StoreError, Timestamp};

/// Reads the configuration from the same sources as the start.
pub(crate) type ConfigReader = Arc<dyn Fn() -> Result<Config, Vec<ConfigProblem>> + Send + Sync>;

/// The longest time that a refresh may take to read the groups from the store (our choice): a stop may have to wait for
/// it.
const GROUP_REFRESH_TIMEOUT: Duration = Duration::from_secs(2);

/// The sources of a reload, and the configuration in force.
pub(super) struct ConfigReloader {
    pub(super) reader: ConfigReader,
    pub(super) store: Arc<dyn Store>,
    pub(super) current: CurrentGateway,
    /// The configuration in force, without the groups of the store.
    pub(super) config: Config,
    /// The names and settings of the groups of the store that are in force; `None` before the first refresh.
    groups: Option<Vec<(String, String)>>,
    /// True if the last refresh succeeded. Only the first of several failures in a row is logged.
    last_refresh_succeeded: bool,
}

/// The reason why a reload or a refresh failed.
enum ReloadError {
    InvalidConfig(Vec<ConfigProblem>),
    /// The store already has accounts with these names.
    NamesTaken(Vec<String>),
    Other(ServeError),
}

// === impl ConfigReloader ===

impl ConfigReloader {
    pub(super) const fn new(
        reader: ConfigReader,
        store: Arc<dyn Store>,
        current: CurrentGateway,
        config: Config,
    ) -> Self {
        Self { reader, store, current, config, groups: None, last_refresh_succeeded: true }
    }

    /// Returns the configuration in force, with the groups of the store.
    pub(super) fn current_config(&self) -> Arc<Config> {
        Arc::clone(&self.current.get().settings().config)
    }

    /// Refreshes the groups of the store, and sends each request true if the groups are in force.
    pub(super) async fn refresh_groups_for(&mut self, requests: Vec<GroupRefreshRequest>) {
        let is_in_force = self.refresh_groups().await;
        for request in requests {
            // The requester may no longer wait.
            let _ = request.send(is_in_force);
        }
    }

    /// Applies the settings of the groups in the store if they have changed. Returns true if they are in force.
    async fn refresh_groups(&mut self) -> bool {
        let result = self.try_refresh_groups().await;
        if let Err(error) = &result
            && self.last_refresh_succeeded
        {
            let problems = error.problems();
            tracing::error!(?problems, "the groups could not be read from the store; the known ones stay as they are");
        }
        self.last_refresh_succeeded = result.is_ok();
        self.last_refresh_succeeded
    }

    async fn try_refresh_groups(&mut self) -> Result<(), ReloadError> {
        let groups = timeout(GROUP_REFRESH_TIMEOUT, self.store.group_policies()).await;
        let groups = groups.map_err(|_| read_error(std::io::ErrorKind::TimedOut.into()))??;
        if self.groups.as_ref() != Some(&groups) {
            let next = self.current.get().with_config(&self.config, &groups).await?;
            self.current.replace(next);
            if self.groups.replace(groups).is_some() {
                tracing::info!("changed settings of groups in the store are now in effect");
            }
        }
        Ok(())
    }

    /// Reads and applies the configuration. Returns a text with the changes, or with the problems that
    /// prevented the reload.
    pub(super) async fn reload(&mut self) -> Result<String, String> {
        match self.try_reload().await {
            Ok(difference) => {
                tracing::info!(%difference, "the settings have been reloaded");
                if !difference.restart_settings().is_empty() {
                    tracing::warn!(settings = ?difference.restart_settings(), "these settings take effect after a restart");
                }
                Ok(difference.to_string())
            }
            Err(error) => {
                let problems = error.problems();
                for problem in &problems {
                    tracing::error!(%problem, "the new settings cannot be used; the former ones stay in effect");
                }
                Err(problems.join("\n"))
            }
        }
    }

    async fn try_reload(&mut self) -> Result<ConfigDifference, ReloadError> {
        let reader = Arc::clone(&self.reader);
        let result = tokio::task::spawn_blocking(move || reader()).await;
        let mut config =
            result.map_err(|error| read_error(std::io::Error::other(error)))?.map_err(ReloadError::InvalidConfig)?;
        // A gateway that runs without the implicit simulator must not fall back to it.
        if !self.config.accounts.iter().any(|account| account.implicit) {
            config.accounts.retain(|account| !account.implicit);
        }
        manage::remove_implicit_simulator(&mut config, &*self.store).await?;
        let difference = config.reconcile_with(&self.config);
        let stored_names = manage::store_account_names(&*self.store).await?;
        let taken =
            config.accounts.iter().map(|account| account.name.clone()).filter(|name| stored_names.contains(name));
        let taken: Vec<String> = taken.collect();
        if !taken.is_empty() {
            return Err(ReloadError::NamesTaken(taken));
        }
        let current = self.current.get();
        let groups = self.store.group_policies().await?;
        let next = current.with_config(&config, &groups).await?;
        if config.accounts.iter().any(manage::is_billable) {
            manage::disable_first_key(&*self.store, &AuditContext::system()).await?;
        }
        for group in &config.groups {
            self.store.ensure_group(&AuditContext::system(), &group.name).await?;
        }
        for account in &config.accounts {
            self.store.sync_account(manage::account_spec(account)).await?;
        }
        let in_file: Vec<&str> = config.accounts.iter().map(|account| account.name.as_str()).collect();
        self.store.mark_others_absent(&in_file, Timestamp::now()).await?;
        // Nothing below can fail: settings that cannot be used have changed nothing.
        current.images.accounts.configure(&self.config.accounts, &config.accounts).await;
        current.people.set_file_groups(config.file_groups());
        self.current.replace(next);
        (self.config, self.groups) = (config, Some(groups));
        Ok(difference)
    }
}

// === impl ReloadError ===

impl ReloadError {
    fn problems(&self) -> Vec<String> {
        match self {
            Self::InvalidConfig(problems) => problems.iter().map(ToString::to_string).collect(),
            Self::NamesTaken(names) => {
                names.iter().map(|name| format!("the account {name} already exists in the store")).collect()
            }
            Self::Other(error) => {
                let mut text = error.to_string();
                let mut source = std::error::Error::source(error);
                while let Some(cause) = source {
                    text.push_str(&format!(": {cause}"));
                    source = cause.source();
                }
                vec![text]
            }
        }
    }
}

impl From<ServeError> for ReloadError {
    fn from(error: ServeError) -> Self {
        Self::Other(error)
    }
}

impl From<StoreError> for ReloadError {
    fn from(error: StoreError) -> Self {
        Self::Other(error.into())
    }
}

fn read_error(source: std::io::Error) -> ReloadError {
    ReloadError::Other(ServeError::Io { doing: "reading the configuration", source })
}
