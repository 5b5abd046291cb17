//! `imagate serve`

use std::sync::Arc;

use clap::Args;

use super::failure::Failure;
use super::installation::Installation;
use crate::gateway::config::{self, Machine, Surroundings as _};
use crate::gateway::{self, ServeError, Signals, telemetry};

/// Arguments of `serve`.
#[derive(Debug, Args)]
pub(super) struct Serve {
    #[command(flatten)]
    installation: Installation,
    /// Where callers connect, as `host:port`; port 0 takes a free one [env: `IMAGATE_LISTEN`] [default:
    /// 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
}

// === impl Serve ===

impl Serve {
    pub(super) fn run(self) -> Result<(), Failure> {
        let filter = Machine.variable("IMAGATE_LOG").map(|filter| filter.to_string_lossy().into_owned());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let signals = runtime.block_on(async { Signals::listen() })?;
        let overrides = self.installation.clone().overrides(self.listen.clone());
        let config = self.installation.load(self.listen)?;
        // Kept until the end of the function, after everything that may log.
        let _log = telemetry::init(filter.as_deref(), config.log_format)?;
        let read = Arc::new(move || config::load(overrides.clone(), &Machine));
        let served = runtime.block_on(gateway::serve(config, read, signals, std::io::stdout()));
        // Whatever still blocks a thread has had its time: the drain is over.
        runtime.shutdown_background();
        match served {
            Err(error @ ServeError::Address(_)) => Err(Failure::Settings(vec![error.to_string()])),
            served => Ok(served?),
        }
    }
}
