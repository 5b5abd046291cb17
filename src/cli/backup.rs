//! The commands `imagate backup` and `imagate backup key`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{print, print_json, print_message};
use crate::gateway::backup::{
    self, BackupError, BackupManifest, BackupOptions, BackupRecipient, BackupReport, MasterKeyInclusion,
};
use crate::gateway::config::Config;
use crate::gateway::store::MasterKey;

/// Arguments of `backup`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(super) struct BackupCommand {
    #[command(subcommand)]
    action: Option<BackupAction>,
    #[command(flatten)]
    installation: InstallationArgs,
    /// The file to write. Only its owner can read it.
    #[arg(short, long, value_name = "FILE", required = true)]
    output: Option<PathBuf>,
    /// Seal the backup for the holder of this key, a public key `age1…`; can be given several times.
    #[arg(long = "recipient", value_name = "KEY")]
    recipients: Vec<BackupRecipient>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Leave out the master key, so that it can be kept apart from the backup. Both are needed for a restore.
    #[arg(long)]
    without_master_key: bool,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BackupAction {
    /// Make a key for sealed backups, and print its public key, which `--recipient` takes.
    Key {
        /// The file to write the secret key to. Only its owner can read it. Keep it away from the gateway.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
    },
}

// === impl BackupCommand ===

impl BackupCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { action, installation, output, recipients, force, without_master_key, json } = self;
        let output = match (action, output) {
            (Some(BackupAction::Key { output }), _) => return make_key(&output),
            (None, Some(output)) => output,
            (None, None) => return Err(CommandFailure::Usage("`--output` names the file to write".to_owned())),
        };
        let is_sealed = !recipients.is_empty();
        let config = installation.load_for_command()?;
        check_embedded(&config)?;
        let options = BackupOptions { overwrite: force, with_master_key: !without_master_key, recipients };
        let report = backup::create(&config.data_dir, configured_key(&config)?.as_ref(), &output, &options);
        let BackupReport { manifest, bytes } = report.map_err(|error| match error {
            BackupError::FileExists(_) => CommandFailure::Advised(error.into(), "`--force` replaces it".to_owned()),
            BackupError::NoInstallation(_) => CommandFailure::Advised(error.into(), DATA_DIR_ADVICE.to_owned()),
            error => error.into(),
        })?;
        if json {
            return Ok(print_json(&json!({
                "file": output, "bytes": bytes, "created_at": manifest.created_at, "version": manifest.version,
                "schema_version": manifest.schema_version, "master_key": manifest.master_key, "sealed": is_sealed,
                "counts": manifest.listed_counts,
            }))?);
        }
        print(&format!("{}: {bytes} bytes, {}\n", output.display(), contents(&manifest)))?;
        print_message(if is_sealed { SEALED_MESSAGE } else { key_message(manifest.master_key) });
        Ok(())
    }
}

fn make_key(output: &Path) -> Result<(), CommandFailure> {
    let recipient = backup::create_identity(output)?;
    Ok(print(&format!("{recipient}\n"))?)
}

const SEALED_MESSAGE: &str = "the file is sealed: only `imagate restore --identity` with the secret key opens it";

const DATA_DIR_ADVICE: &str = "`--data-dir` or `--config` selects the installation";

/// Refuses an installation whose data is not in its data folder.
pub(super) fn check_embedded(config: &Config) -> Result<(), CommandFailure> {
    if config.database_url.is_none() {
        return Ok(());
    }
    let message = "the settings name a PostgreSQL database: save it with `pg_dump`, restore it with `pg_restore`, and keep a copy of the master key";
    Err(CommandFailure::Usage(message.to_owned()))
}

/// Returns the master key of the settings, if they name one.
pub(super) fn configured_key(config: &Config) -> Result<Option<MasterKey>, CommandFailure> {
    Ok(config.master_key.as_ref().map(|secret| MasterKey::from_text(secret.expose())).transpose()?)
}

/// Describes the contents of a backup.
pub(super) fn contents(manifest: &BackupManifest) -> String {
    format!("{}, schema version {}", counts_text(&manifest.listed_counts), manifest.schema_version)
}

/// Returns the numbers of rows as text, those that grow fastest first.
pub(super) fn counts_text<T: AsRef<str> + Ord>(counts: &BTreeMap<T, u64>) -> String {
    let tables = ["records", "keys", "accounts", "users", "groups", "prices", "audit"];
    let count = |table| Some(format!("{table} {}", counts.iter().find(|(name, _)| name.as_ref() == table)?.1));
    tables.into_iter().filter_map(count).collect::<Vec<_>>().join(", ")
}

const fn key_message(master_key: MasterKeyInclusion) -> &'static str {
    match master_key {
        MasterKeyInclusion::Included => {
            "the file holds the master key, which decrypts every secret in it: keep it like a password, or use --without-master-key"
        }
        MasterKeyInclusion::LeftOut => {
            "the master key is not in the file: keep a copy of master.key apart from it, because a restore needs both"
        }
        MasterKeyInclusion::Settings => {
            "the master key is in the settings and not in the file: keep a copy of it, because a restore needs both"
        }
        MasterKeyInclusion::Absent => "the installation has no master key yet",
    }
}
