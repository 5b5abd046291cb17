//! `imagate completions`

use clap::Args;
use clap_complete::Shell;

use super::failure::Failure;
use super::output::print;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(super) struct Completions {
    /// The shell.
    shell: Shell,
}

// === impl Completions ===

impl Completions {
    pub(super) fn run(self, command: &mut clap::Command) -> Result<(), Failure> {
        // Into memory first: the generator panics where it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "imagate", &mut script);
        Ok(print(&String::from_utf8_lossy(&script))?)
    }
}
