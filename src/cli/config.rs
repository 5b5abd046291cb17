//! `imagate config check|reload|schema|show`

mod reload;

use clap::{Args, Subcommand};

use super::failure::Failure;
use super::installation::Installation;
use super::output::print;
use crate::gateway::config;

/// Arguments of `config`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct Config {
    #[command(flatten)]
    installation: Installation,
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Action {
    /// Say what is wrong with the settings, without starting anything.
    Check,
    /// Make the running gateway read its settings again, as `SIGHUP` does, and print the changes.
    Reload,
    /// Print the JSON Schema of the file, for editors.
    Schema,
    /// Print the settings as they take effect, with who set them, without secrets.
    Show,
}

// === impl Config ===

impl Config {
    pub(super) fn run(self) -> Result<(), Failure> {
        match self.action {
            Action::Schema => print(&config::schema_json())?,
            Action::Reload => reload::reload(&self.installation.load_for_command()?)?,
            Action::Show => print(&self.installation.load(None)?.show())?,
            Action::Check => {
                let config = self.installation.load(None)?;
                let (accounts, groups) = (config.accounts.len(), config.groups.len());
                print(&format!("the settings are good: accounts {accounts}, groups {groups}\n"))?;
            }
        }
        Ok(())
    }
}
