//! `imagate serve`

use clap::Args;

use super::failure::Failure;
use super::installation::Installation;
use crate::gateway::config::{Machine, Surroundings as _};
use crate::gateway::{self, ServeError, telemetry};

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
        telemetry::init(filter.as_deref());
        let config = self.installation.load(self.listen)?;
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let served = runtime.block_on(gateway::serve(config, &mut std::io::stdout()));
        // Whatever still blocks a thread has had its time: the drain is over.
        runtime.shutdown_background();
        match served {
            Err(error @ ServeError::Address(_)) => Err(Failure::Settings(vec![error.to_string()])),
            served => Ok(served?),
        }
    }
}
