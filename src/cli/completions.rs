//! The command `imagate completions`.

use clap::Args;
use clap_complete::Shell;

use super::failure::CommandFailure;
use super::output::print;

/// Arguments of `completions`.
#[derive(Debug, Args)]
pub(super) struct CompletionsCommand {
    /// The shell to print the script for.
    shell: Shell,
}

// === impl CompletionsCommand ===

impl CompletionsCommand {
    pub(super) fn run(self, command: &mut clap::Command) -> Result<(), CommandFailure> {
        // The script is written to memory first, because the generator panics if it cannot write.
        let mut script = Vec::new();
        clap_complete::generate(self.shell, command, "imagate", &mut script);
        Ok(print(&String::from_utf8_lossy(&script))?)
    }
}
