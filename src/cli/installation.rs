//! The installation that a command works on: its settings and its store.

use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;

use clap::Args;

use super::failure::CommandFailure;
use crate::gateway;
use crate::gateway::config::{self, Config, ConfigOverrides, ConfigProblem, SystemEnvironment};
use crate::gateway::store::Store;

/// Arguments that say which installation is meant.
#[derive(Clone, Debug, Args)]
pub(super) struct InstallationArgs {
    /// The settings file [env: `IMAGATE_CONFIG`]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The data folder [env: `IMAGATE_DATA_DIR`] [default: the data folder of the platform]
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
}

// === impl InstallationArgs ===

impl InstallationArgs {
    /// Loads all settings.
    pub(super) fn load(self) -> Result<Config, CommandFailure> {
        config::load(self.overrides(), &SystemEnvironment).map_err(settings_failure)
    }

    /// Loads the settings for a command that calls no upstream and therefore needs no upstream secrets.
    pub(super) fn load_for_command(self) -> Result<Config, CommandFailure> {
        config::load_for_command(self.overrides(), &SystemEnvironment).map_err(settings_failure)
    }

    /// Returns the settings that these arguments set.
    pub(super) fn overrides(self) -> ConfigOverrides {
        ConfigOverrides { config: self.config, listen: None, data_dir: self.data_dir }
    }

    /// Returns whether the command line names an installation.
    pub(super) fn is_given(&self) -> bool {
        self.config.is_some() || self.data_dir.is_some()
    }

    /// Opens the store and runs a command on it. The secrets of upstream accounts need not be available.
    pub(super) fn with_store<T>(
        self,
        command: impl AsyncFnOnce(&Config, &Arc<dyn Store>) -> Result<T, CommandFailure>,
    ) -> Result<T, CommandFailure> {
        let config = self.load_for_command()?;
        block_on(async {
            let store = gateway::open_store(&config).await?;
            let result = command(&config, &store).await;
            // The store is closed after a failure too, so that its files are in order for the next program.
            store.close().await;
            result
        })
    }
}

/// Returns the base URL of the pages: `public_url`, or the listen address if it is not set.
pub(super) fn pages_base_url(config: &Config) -> String {
    config.public_url.as_ref().map_or_else(|| format!("http://{}", config.listen), |url| url.as_str().to_owned())
}

/// Converts problems of the settings into a failure.
pub(super) fn settings_failure(problems: Vec<ConfigProblem>) -> CommandFailure {
    CommandFailure::Settings(problems.iter().map(ToString::to_string).collect())
}

/// Runs a command on a single thread.
pub(super) fn block_on<T>(command: impl Future<Output = Result<T, CommandFailure>>) -> Result<T, CommandFailure> {
    // A trait object, because the runtime would compile each command three times.
    let command: Pin<&mut dyn Future<Output = _>> = pin!(command);
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
