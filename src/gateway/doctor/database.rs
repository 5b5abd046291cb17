//! The database and the master key: whether they can be read, belong together, and are undamaged.

use std::cmp::Ordering;
use std::time::Instant;

use super::{CheckResult, Verdict, message_of};
use crate::gateway::config::{Config, ConfigSecret};
use crate::gateway::store::{
    DatabaseFile, DatabaseUrl, MasterKey, MasterKeySource, SqliteStore, StoreError, find_master_key,
    newest_schema_version,
};

const STORE: &str = "store";
const MASTER_KEY: &str = "master key";

/// A database that can be read.
pub(super) struct CheckedDatabase {
    pub(super) file: DatabaseFile,
    /// True if the schema is the newest, and the master key fits.
    is_usable: bool,
}

pub(super) fn check(config: &Config) -> (Vec<CheckResult>, Option<CheckedDatabase>) {
    let file = match DatabaseFile::open(&config.data_dir) {
        Ok(Some(file)) => file,
        Ok(None) => {
            let message =
                format!("there is no database in {} yet: the first start creates it", config.data_dir.display());
            let advice = "if a gateway has run here, check data_dir before a start";
            return (vec![CheckResult::warning(STORE, message, Some(advice))], None);
        }
        Err(error) => return (vec![CheckResult::problem(STORE, message_of(&error), None)], None),
    };
    let store = check_contents(&file).unwrap_or_else(|error| CheckResult::problem(STORE, message_of(&error), None));
    if store.verdict == Verdict::Problem {
        // Whatever else is read from it may be wrong.
        return (vec![store], None);
    }
    let is_newest = store.verdict == Verdict::Ok;
    let key = check_master_key(config, &file);
    let has_key = key.is_ok();
    let key = key.unwrap_or_else(|error| CheckResult::problem(MASTER_KEY, message_of(&error), None));
    (vec![store, key], Some(CheckedDatabase { file, is_usable: is_newest && has_key }))
}

/// Checks that a PostgreSQL server answers, and that its schema is that of this version. Nothing is migrated, so no other
/// check reads the database.
pub(super) async fn check_server(url: &ConfigSecret) -> CheckResult {
    let checked = async {
        let server = DatabaseUrl::parse(url.expose())?.check_server().await?;
        let message =
            format!("PostgreSQL {} answers, and has schema version {}", server.version, server.schema_version);
        Ok::<_, StoreError>(match server.schema_version.cmp(&server.newest_schema_version) {
            Ordering::Equal => CheckResult::ok(STORE, message),
            Ordering::Less => {
                let message = format!("{message}; this version of imagate uses {}", server.newest_schema_version);
                let advice = "the next start migrates it; nodes of the version before go on";
                CheckResult::warning(STORE, message, Some(advice))
            }
            Ordering::Greater => {
                let advice = "use a newer version of imagate";
                CheckResult::problem(STORE, format!("{message}, which this version does not know"), Some(advice))
            }
        })
    };
    checked.await.unwrap_or_else(|error| CheckResult::problem(STORE, message_of(&error), None))
}

fn check_contents(file: &DatabaseFile) -> Result<CheckResult, StoreError> {
    let (found, newest) = (file.schema_version()?, newest_schema_version());
    let start = Instant::now();
    if let Some(damage) = file.find_damage()?.first() {
        let advice = "stop the gateway, keep a copy of the folder, and restore the newest backup";
        return Ok(CheckResult::problem(STORE, format!("imagate.db is damaged: {damage}"), Some(advice)));
    }
    let seconds = start.elapsed().as_secs_f32();
    let message =
        format!("{} has schema version {found} and no damage (read in {seconds:.1} s)", file.path().display());
    if found < newest {
        let message = format!("{message}; this version of imagate uses schema version {newest}");
        let advice = "the next start migrates it, and older versions cannot use it any more: make a backup first";
        return Ok(CheckResult::warning(STORE, message, Some(advice)));
    }
    Ok(CheckResult::ok(STORE, message))
}

fn check_master_key(config: &Config, file: &DatabaseFile) -> Result<CheckResult, StoreError> {
    let configured = configured_key(config)?;
    Ok(match find_master_key(file, &config.data_dir, configured.as_ref())? {
        MasterKeySource::Settings => CheckResult::ok(MASTER_KEY, "the key of the settings fits the database"),
        MasterKeySource::DataDir(_) => CheckResult::ok(MASTER_KEY, "master.key fits the database"),
        MasterKeySource::Absent => CheckResult::ok(MASTER_KEY, "there is none yet: the next start creates it"),
    })
}

fn configured_key(config: &Config) -> Result<Option<MasterKey>, StoreError> {
    config.master_key.as_ref().map(|secret| MasterKey::from_text(secret.expose())).transpose()
}

// === impl CheckedDatabase ===

impl CheckedDatabase {
    /// Opens the store for reading only; `None` if that is not possible without a change.
    pub(super) async fn open_store(&self, config: &Config) -> Option<SqliteStore> {
        if !self.is_usable {
            return None;
        }
        SqliteStore::open_read_only(&config.data_dir, configured_key(config).ok()?, &self.file).await.ok()
    }
}
