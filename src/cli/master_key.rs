//! The command `imagate master-key rotate`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::json;

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{print, print_json, print_message};
use super::secret;
use crate::gateway::store::MasterKey;

/// Arguments of `master-key`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct MasterKeyCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: MasterKeyAction,
}

#[derive(Debug, Subcommand)]
enum MasterKeyAction {
    /// Encrypt all stored secrets with another master key. API keys stay valid and running gateways are not affected.
    ///
    /// If the settings name the master key, give the new one here, and write it into the settings before the next
    /// start. If the master key is in the data folder, a new one is generated unless one is given.
    Rotate {
        /// The environment variable that holds the new master key: 64 hexadecimal digits, or 32 bytes in base64.
        #[arg(long, value_name = "NAME", conflicts_with = "new_key_file")]
        new_key_env: Option<String>,
        /// The file that holds the new master key; `-` is standard input.
        #[arg(long, value_name = "PATH")]
        new_key_file: Option<PathBuf>,
    },
}

// === impl MasterKeyCommand ===

impl MasterKeyCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action: MasterKeyAction::Rotate { new_key_env, new_key_file } } = self;
        let text = secret::read_secret("the new master key", new_key_env.as_deref(), new_key_file.as_deref())?;
        let new_key = text.map(|text| MasterKey::from_text(&text)).transpose();
        let new_key = new_key.map_err(|error| CommandFailure::Usage(error.to_string()))?;
        installation.with_store(async |config, store| {
            store.rotate_master_key(new_key).await?;
            let is_in_settings = config.master_key.is_some();
            if json {
                print_json(
                    &json!({ "rotated": true, "kept_in": if is_in_settings { "settings" } else { "data_dir" } }),
                )?;
            } else {
                print("the master key has been replaced\n")?;
            }
            if is_in_settings {
                print_message(
                    "the settings still name the old master key: replace it there before the next start or command",
                );
            }
            Ok(())
        })
    }
}
