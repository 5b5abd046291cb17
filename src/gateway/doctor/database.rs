//! The database and the master key: whether they can be read, belong together, and are undamaged.

use std::cmp::Ordering;
use std::time::Instant;

use super::{CheckResult, CheckVerdict, message_of};
use crate::gateway::config::{Config, ConfigSecret};
use crate::gateway::store::{
    DatabaseFile, DatabaseUrl, MasterKey, MasterKeySource, SqlStore, Store, StoreError, find_master_key, has_node_id,
    newest_schema_version,
};

const STORE: &str = "store";
const MASTER_KEY: &str = "master key";

/// A database that can be read.
pub(super) struct CheckedDatabase {
    file: DatabaseFile,
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
    if store.verdict == CheckVerdict::Problem {
        // Whatever else is read from it may be wrong.
        return (vec![store], None);
    }
    let is_newest = store.verdict == CheckVerdict::Ok;
    let key = check_master_key(config, &file);
    let has_key = key.is_ok();
    let key = key.unwrap_or_else(|error| CheckResult::problem(MASTER_KEY, message_of(&error), None));
    (vec![store, key], Some(CheckedDatabase { file, is_usable: is_newest && has_key }))
}

/// Checks that a PostgreSQL server answers, that its schema is that of this version, and that the master key fits. Also
/// returns the store, unless it can only be opened with a change.
pub(super) async fn check_server(config: &Config, url: &ConfigSecret) -> (Vec<CheckResult>, Option<Box<dyn Store>>) {
    let schema = check_schema(url).await.unwrap_or_else(|error| CheckResult::problem(STORE, message_of(&error), None));
    if schema.verdict != CheckVerdict::Ok {
        return (vec![schema], None);
    }
    if !has_node_id(&config.data_dir) {
        let message = "no gateway has run from this folder yet, so the contents of the database are not checked";
        let advice = "run this command with the data folder of a node";
        return (vec![schema, CheckResult::warning(MASTER_KEY, message, Some(advice))], None);
    }
    let opened = async {
        let url = DatabaseUrl::parse(url.expose())?;
        SqlStore::open_postgres(&config.data_dir, &url, configured_key(config)?).await
    };
    match opened.await {
        Ok(store) => {
            let key = CheckResult::ok(MASTER_KEY, "the master key fits the database");
            (vec![schema, key], Some(Box::new(store)))
        }
        Err(error) => (vec![schema, CheckResult::problem(MASTER_KEY, message_of(&error), None)], None),
    }
}

async fn check_schema(url: &ConfigSecret) -> Result<CheckResult, StoreError> {
    let server = DatabaseUrl::parse(url.expose())?.check_server().await?;
    let message = format!("PostgreSQL {} answers, and has schema version {}", server.version, server.schema_version);
    Ok(match server.schema_version.cmp(&server.newest_schema_version) {
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
    pub(super) async fn open_store(&self, config: &Config) -> Option<Box<dyn Store>> {
        if !self.is_usable {
            return None;
        }
        let store = SqlStore::open_read_only(&config.data_dir, configured_key(config).ok()?, &self.file).await;
        Some(Box::new(store.ok()?))
    }
}
