//! The command `imagate migrate sqlite-to-postgres`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::backup::{configured_key, counts_text};
use super::failure::CommandFailure;
use super::installation::{InstallationArgs, block_on};
use super::output::{print, print_json, print_message};
use crate::gateway::store::{DatabaseUrl, ImportReport, StoreError, import_from_sqlite};

/// Arguments of `migrate`.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(super) struct MigrateCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    action: MigrateAction,
}

#[derive(Debug, Subcommand)]
enum MigrateAction {
    /// Copy everything from the SQLite database in the data folder to the PostgreSQL database of the settings.
    ///
    /// Stop the gateway first. The SQLite database stays as it is. The command can be repeated: rows that are already
    /// there are kept. It is refused if both databases were used since.
    SqliteToPostgres,
}

// === impl MigrateCommand ===

impl MigrateCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, json, action: MigrateAction::SqliteToPostgres } = self;
        let config = installation.load_for_command()?;
        let Some(url) = &config.database_url else {
            let message = "the settings name no PostgreSQL database: set `database_url`";
            return Err(CommandFailure::Usage(message.to_owned()));
        };
        let key = configured_key(&config)?;
        let url = DatabaseUrl::parse(url.expose())?;
        let import = async { import_from_sqlite(&config.data_dir, key, &url).await.map_err(with_advice) };
        let ImportReport { rows, counts, sums } = block_on(import)?;
        if json {
            return Ok(print_json(&json!({ "rows": rows, "counts": counts, "sums": sums }))?);
        }
        print(&format!("moved and compared: {}\n", counts_text(&counts)))?;
        if config.master_key.is_none() {
            print_message(
                "the master key is in master.key of this data folder: other nodes need it, best as the setting `master_key`",
            );
        }
        Ok(())
    }
}

fn with_advice(error: StoreError) -> CommandFailure {
    let advice = match &error {
        StoreError::InUse { .. } => "stop the gateway first",
        StoreError::Conflict => "the PostgreSQL database has another installation: use an empty one",
        _ => return error.into(),
    };
    CommandFailure::Advised(error.into(), advice.to_owned())
}
