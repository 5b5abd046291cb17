//! `imagate generate`: a user of the SDK like any other.

use clap::Args;

use super::drawing::{Drawing, Order};
use super::failure::Failure;

/// Arguments of `generate`.
#[derive(Debug, Args)]
pub(super) struct Generate {
    #[command(flatten)]
    drawing: Drawing,
}

// === impl Generate ===

impl Generate {
    pub(super) fn run(self) -> Result<(), Failure> {
        self.drawing.run(Order::Generate)
    }
}
