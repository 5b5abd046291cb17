//! Which installation a command works on: the settings, and the store behind them.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;

use super::failure::Failure;
use crate::gateway;
use crate::gateway::config::{self, Config, Machine, Overrides, Problem};
use crate::gateway::store::SqliteStore;

/// Arguments that say which installation is meant.
#[derive(Clone, Debug, Args)]
pub(super) struct Installation {
    /// The file with the settings [env: `IMAGATE_CONFIG`]
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// The folder with the data [env: `IMAGATE_DATA_DIR`] [default: the data folder of the platform]
    #[arg(long, value_name = "DIR", global = true)]
    data_dir: Option<PathBuf>,
}

// === impl Installation ===

impl Installation {
    /// The settings as they take effect.
    pub(super) fn load(self, listen: Option<String>) -> Result<Config, Failure> {
        let overrides = self.overrides(listen);
        config::load(overrides, &Machine).map_err(unusable)
    }

    /// The same for a command that calls no upstream, and so needs none of their secrets.
    pub(super) fn load_for_command(self) -> Result<Config, Failure> {
        config::load_for_command(self.overrides(None), &Machine).map_err(unusable)
    }

    /// The settings given on the command line.
    pub(super) fn overrides(self, listen: Option<String>) -> Overrides {
        Overrides { config: self.config, listen, data_dir: self.data_dir }
    }

    /// Runs a command on the store. It needs no secret but those that open it.
    pub(super) fn with_store<T>(
        self,
        command: impl AsyncFnOnce(&Config, &Arc<SqliteStore>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let config = self.load_for_command()?;
        run(async {
            let store = gateway::open_store(&config).await?;
            let result = command(&config, &store).await;
            // Also after a failure: it leaves the files in order for the next one.
            store.close().await;
            result
        })
    }
}

/// Settings with these problems.
pub(super) fn unusable(problems: Vec<Problem>) -> Failure {
    Failure::Settings(problems.iter().map(ToString::to_string).collect())
}

/// Runs a command that does one thing after the other.
pub(super) fn run<T>(command: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
