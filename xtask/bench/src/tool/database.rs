//! The database of a gateway that does not run, for statements that fill and check it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use rusqlite::Connection;
use rusqlite::types::Value;

use super::targets::find_program;

/// The file of the embedded database in a gateway's folder.
const DATABASE_FILE: &str = "data/imagate.db";
/// The settings of a session that fills. Nothing here has to survive a failure of the machine.
const SQLITE_SESSION: &str = "PRAGMA synchronous = OFF; PRAGMA cache_size = -1000000; PRAGMA temp_store = FILE";
const POSTGRES_SESSION: &str =
    "SET synchronous_commit = off; SET maintenance_work_mem = '512MB'; SET client_min_messages = warning;\n";

/// A database of one of the two kinds.
pub(crate) enum RecordDatabase {
    Sqlite(Connection),
    Postgres(PostgresDatabase),
}

/// A PostgreSQL database, to which the program `psql` connects.
#[derive(Clone, Debug)]
pub(crate) struct PostgresDatabase {
    psql: PathBuf,
    pub(crate) url: String,
}

impl RecordDatabase {
    /// Opens the embedded database below the folder of a gateway.
    pub(crate) fn open_sqlite(home: &Path) -> Result<Self> {
        let path = home.join(DATABASE_FILE);
        let connection = Connection::open(&path).with_context(|| path.display().to_string())?;
        connection.execute_batch(SQLITE_SESSION)?;
        Ok(Self::Sqlite(connection))
    }

    /// Runs statements that return no rows.
    pub(crate) fn execute(&self, sql: &str) -> Result<()> {
        match self {
            Self::Sqlite(connection) => connection.execute_batch(sql).with_context(|| sql.to_owned()),
            Self::Postgres(database) => database.run(sql).map(drop),
        }
    }

    /// Returns the rows of a query; the columns of a row are separated by `|`.
    pub(crate) fn query(&self, sql: &str) -> Result<Vec<String>> {
        match self {
            Self::Sqlite(connection) => query_sqlite(connection, sql).with_context(|| sql.to_owned()),
            Self::Postgres(database) => Ok(database.run(sql)?.lines().map(str::to_owned).collect()),
        }
    }

    /// Drops the indexes of a table that are not part of a constraint, and returns the statements that make them again:
    /// an index that is made at the end is sorted once, and not searched for each row.
    pub(crate) fn drop_indexes(&self, table: &str) -> Result<Vec<String>> {
        let (names, definitions) = match self {
            Self::Sqlite(_) => (
                format!(
                    "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = '{table}' \
                     AND sql IS NOT NULL ORDER BY name"
                ),
                format!(
                    "SELECT replace(sql, char(10), ' ') FROM sqlite_master WHERE type = 'index' \
                     AND tbl_name = '{table}' AND sql IS NOT NULL ORDER BY name"
                ),
            ),
            Self::Postgres(_) => {
                let source = format!(
                    "FROM pg_indexes WHERE schemaname = 'public' AND tablename = '{table}' AND indexname NOT IN \
                     (SELECT conname FROM pg_constraint) ORDER BY indexname"
                );
                (format!("SELECT indexname {source}"), format!("SELECT indexdef {source}"))
            }
        };
        let definitions = self.query(&definitions)?;
        for name in self.query(&names)? {
            self.execute(&format!("DROP INDEX {name}"))?;
        }
        Ok(definitions)
    }

    /// Brings a filled database into the state that it has after some time of service.
    pub(crate) fn settle(&self) -> Result<()> {
        match self {
            Self::Sqlite(_) => self.query("PRAGMA wal_checkpoint(TRUNCATE)").map(drop),
            // The server does the same by itself, some time after many changes.
            Self::Postgres(_) => self.execute("VACUUM ANALYZE").and_then(|()| self.execute("CHECKPOINT")),
        }
    }

    /// The size of the database in bytes.
    pub(crate) fn size(&self) -> Result<u64> {
        let sql = match self {
            Self::Sqlite(connection) => {
                return Ok(fs::metadata(connection.path().context("the path of the database")?)?.len());
            }
            Self::Postgres(_) => "SELECT pg_database_size(current_database())",
        };
        self.query(sql)?.first().context("no size")?.parse().context("the size of the database")
    }
}

impl PostgresDatabase {
    /// The database at an address.
    pub(crate) fn at(url: &str) -> Result<Self> {
        let psql = find_program("psql").context("`psql` is not installed")?;
        Ok(Self { psql, url: url.to_owned() })
    }

    /// Creates an empty database of this name on a server. `server` is the address of any database there.
    pub(crate) fn create(server: &str, name: &str) -> Result<Self> {
        let server = Self::at(server)?;
        server.run(&format!("DROP DATABASE IF EXISTS {name}"))?;
        server.run(&format!("CREATE DATABASE {name}"))?;
        let (address, _) = server.url.rsplit_once('/').context("the address names no database")?;
        Ok(Self { url: format!("{address}/{name}"), ..server })
    }

    fn run(&self, sql: &str) -> Result<String> {
        let mut command = Command::new(&self.psql);
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", &self.url]);
        // Each `-c` is a transaction of its own: some statements cannot run with others in one.
        command.args(["-c", POSTGRES_SESSION, "-c", sql]);
        let output = command.stdin(Stdio::null()).output().context("psql")?;
        ensure!(output.status.success(), "psql: {}\n{sql}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).context("the output of psql")
    }
}

fn query_sqlite(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(sql)?;
    let count = statement.column_count();
    let rows = statement.query_map([], |row| {
        let cells: Vec<String> = (0..count).map(|column| row.get(column).map(as_text)).collect::<Result<_, _>>()?;
        Ok(cells.join("|"))
    })?;
    rows.collect()
}

fn as_text(value: Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Integer(number) => number.to_string(),
        Value::Real(number) => number.to_string(),
        Value::Text(text) => text,
        Value::Blob(bytes) => format!("{} bytes", bytes.len()),
    }
}
