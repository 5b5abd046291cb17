//! The command `imagate config check|reload|schema|show`.

mod reload;

use clap::{Args, Subcommand};

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::print;
use crate::gateway::config;

/// Arguments of `config`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct ConfigCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    #[command(subcommand)]
    action: ConfigAction,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum ConfigAction {
    /// Check the settings without starting the gateway.
    Check,
    /// Make the running gateway reload its settings, as `SIGHUP` does, and print the changes.
    Reload,
    /// Print the JSON Schema of the settings file, for editors.
    Schema,
    /// Print the effective settings and the source of each, without secrets.
    Show,
}

// === impl ConfigCommand ===

impl ConfigCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        match self.action {
            ConfigAction::Schema => print(&config::schema_json())?,
            ConfigAction::Reload => reload::reload(&self.installation.load_for_command()?)?,
            ConfigAction::Show => print(&self.installation.load()?.to_annotated_toml())?,
            ConfigAction::Check => {
                let config = self.installation.load()?;
                let (accounts, groups) = (config.accounts.len(), config.groups.len());
                print(&format!("the settings are valid: accounts {accounts}, groups {groups}\n"))?;
            }
        }
        Ok(())
    }
}
