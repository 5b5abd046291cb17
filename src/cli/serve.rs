//! The command `imagate serve`.

use std::pin::{Pin, pin};
use std::sync::Arc;

use clap::Args;

use super::failure::CommandFailure;
use super::installation::{InstallationArgs, settings_failure};
use crate::gateway::config::{self, ConfigOverrides, HostEnvironment as _, SystemEnvironment};
use crate::gateway::{self, ServeError, SignalListeners, telemetry};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(super) struct ServeCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// The address to listen on, as `host:port`; port 0 selects a free port [env: `IMAGATE_LISTEN`] [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

// === impl ServeCommand ===

impl ServeCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let filter = SystemEnvironment.variable("IMAGATE_LOG").map(|filter| filter.to_string_lossy().into_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let signals = runtime.block_on(async { SignalListeners::listen() })?;
        let overrides = ConfigOverrides { listen: self.listen, ..self.installation.overrides() };
        let config = config::load(overrides.clone(), &SystemEnvironment).map_err(settings_failure)?;
        // The guard lives until the end of the function, because all code before the end may write to the log.
        let _log = telemetry::init(filter.as_deref(), config.log_format)?;
        let load_config = Arc::new(move || config::load(overrides.clone(), &SystemEnvironment));
        // A trait object, because the runtime would compile the server three times.
        let server: Pin<&mut dyn Future<Output = _>> =
            pin!(gateway::serve(config, load_config, signals, std::io::stdout()));
        let served = runtime.block_on(server);
        // The drain is over, so threads that are still blocked are not waited for.
        runtime.shutdown_background();
        match served {
            Err(error @ ServeError::Address(_)) => Err(CommandFailure::Settings(vec![error.to_string()])),
            served => Ok(served?),
        }
    }
}
