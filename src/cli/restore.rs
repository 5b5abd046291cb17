//! The command `imagate restore`.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;

use super::backup::{check_embedded, configured_key, contents};
use super::failure::CommandFailure;
use super::installation::InstallationArgs;
use super::output::{print, print_json, print_message};
use crate::gateway::backup::{self, BackupError, BackupManifest, MasterKeyInclusion, RestoreReport};
use crate::gateway::store::StoreError;

/// Arguments of `restore`.
#[derive(Debug, Args)]
pub(super) struct RestoreCommand {
    #[command(flatten)]
    installation: InstallationArgs,
    /// A file that `imagate backup` has made.
    file: PathBuf,
    /// The file with the secret key for a sealed backup; can be given several times.
    #[arg(long = "identity", value_name = "FILE")]
    identities: Vec<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

// === impl RestoreCommand ===

impl RestoreCommand {
    pub(super) fn run(self) -> Result<(), CommandFailure> {
        let Self { installation, file, identities, json } = self;
        let config = installation.load_for_command()?;
        check_embedded(&config)?;
        let mut keys = Vec::new();
        for identity in &identities {
            keys.extend(backup::read_identities(identity)?);
        }
        let restored = backup::restore(&file, &keys, &config.data_dir, configured_key(&config)?.as_ref());
        let RestoreReport { manifest, valid_keys } = restored.map_err(with_advice)?;
        if json {
            let keys = valid_keys.iter().map(|(id, name)| json!({ "id": id, "name": name }));
            return Ok(print_json(&json!({
                "data_dir": config.data_dir, "created_at": manifest.created_at, "version": manifest.version,
                "schema_version": manifest.schema_version, "master_key": manifest.master_key,
                "counts": manifest.listed_counts, "valid_keys": keys.collect::<Vec<_>>(),
            }))?);
        }
        print(&format!("{}: {}\n", config.data_dir.display(), contents(&manifest)))?;
        print_message(&format!(
            "this is the state of {}, with {} valid API keys, among them those that were disabled, rotated or deleted later: `imagate key list` shows them",
            manifest.created_at,
            valid_keys.len()
        ));
        if let Some(message) = key_message(&manifest, &config.data_dir) {
            print_message(&message);
        }
        Ok(())
    }
}

/// Returns what is left to do about the master key before a start, if anything is.
fn key_message(manifest: &BackupManifest, data_dir: &Path) -> Option<String> {
    match manifest.master_key {
        MasterKeyInclusion::Included | MasterKeyInclusion::Absent => None,
        MasterKeyInclusion::LeftOut => Some(format!(
            "the backup has no master key: copy it to {} before the first start",
            data_dir.join("master.key").display()
        )),
        MasterKeyInclusion::Settings => {
            Some("the backup has no master key: the setting `master_key` must name it".to_owned())
        }
    }
}

fn with_advice(error: BackupError) -> CommandFailure {
    let advice = match &error {
        BackupError::NotABackup { .. } => {
            "`imagate backup` makes backups; a compressed or encrypted one must be unpacked first"
        }
        BackupError::Sealed(_) | BackupError::OtherIdentity(_) => "`--identity` names the file with the secret key",
        BackupError::NotSealed(_) => "if it is the file you expect, restore it without `--identity`",
        BackupError::DamagedBackup { .. } => "nothing was restored; use another copy, or an older backup",
        BackupError::NewerBackup { .. } => "nothing was restored; use that version or a newer one",
        BackupError::Target { .. } => "give a new or empty folder with `--data-dir`, or move these files away first",
        BackupError::Store(StoreError::InUse { .. }) => "stop the gateway first",
        _ => return error.into(),
    };
    CommandFailure::Advised(error.into(), advice.to_owned())
}
