//! The question before something is deleted for good.
//!
//! Only a person at a terminal is asked: a script has nobody who answers.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use clap::Args;

use super::failure::CommandFailure;
use super::output::escape_controls;

/// The option of every command that deletes something.
#[derive(Clone, Copy, Debug, Args)]
pub(super) struct DeletionConfirmation {
    /// Delete without asking. Only on a terminal there is a question.
    #[arg(short, long)]
    yes: bool,
}

// === impl DeletionConfirmation ===

impl DeletionConfirmation {
    /// Asks whether to delete this object, such as `the key key_1a2b`; returns an error if the answer is not yes.
    pub(super) fn ask(self, object: &str) -> Result<(), CommandFailure> {
        if self.yes || !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            return Ok(());
        }
        let mut stderr = io::stderr().lock();
        write!(stderr, "Delete {}? [y/N] ", escape_controls(object))?;
        stderr.flush()?;
        let mut answer = String::new();
        io::stdin().lock().read_line(&mut answer)?;
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(()),
            _ => Err(CommandFailure::Usage("nothing was deleted".to_owned())),
        }
    }
}
