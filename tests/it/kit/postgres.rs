//! Databases of their own in the PostgreSQL server of the test run, which `cargo xtask postgres` and `cargo xtask test`
//! start.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::env_setting;

/// A new, empty database. It ends with the server of the test run.
pub(crate) struct PostgresDatabase {
    server: String,
    name: String,
    url: String,
    /// True if its files are in a tablespace of their own, which has the same name.
    has_tablespace: bool,
}

impl PostgresDatabase {
    /// Creates a database; `None` if the run has no server.
    pub(crate) fn create() -> Option<Self> {
        let database = Self::with_new_name()?;
        execute(&database.server, format!("CREATE DATABASE {}", database.name));
        Some(database)
    }

    /// Creates a database whose files are in this folder. The log of the server stays where it is.
    #[track_caller]
    pub(crate) fn create_on_disk(folder: &Path) -> Option<Self> {
        let database = Self { has_tablespace: true, ..Self::with_new_name()? };
        // Only root can mount a disk, and then the server runs as this user.
        assert!(Command::new("chown").arg("postgres").arg(folder).status().expect("chown").success());
        let (server, name) = (&database.server, &database.name);
        execute(server, format!("CREATE TABLESPACE {name} LOCATION '{}'", folder.display()));
        execute(server, format!("CREATE DATABASE {name} TABLESPACE {name}"));
        Some(database)
    }

    fn with_new_name() -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let server = env_setting("IMAGATE_TEST_POSTGRES")?.into_string().expect("an address");
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("it_{}_{number}", std::process::id());
        let (address, _) = server.rsplit_once('/').expect("the address ends with a database");
        let url = format!("{address}/{name}");
        Some(Self { server, name, url, has_tablespace: false })
    }

    /// Ends all connections and removes the database, which otherwise ends with the server.
    #[track_caller]
    pub(crate) fn remove(self) {
        execute(&self.server, format!("DROP DATABASE {} WITH (FORCE)", self.name));
        if self.has_tablespace {
            execute(&self.server, format!("DROP TABLESPACE {}", self.name));
        }
    }

    /// Creates a database for a gateway whose test did not choose its store, if the run tests the gateway on PostgreSQL.
    pub(super) fn create_for_run() -> Option<Self> {
        (env_setting("IT_STORE")? == "postgres").then(|| Self::create().expect("IT_STORE=postgres needs a server"))
    }

    /// Ends every connection, and refuses new ones: for a gateway, the server is away.
    #[track_caller]
    pub(crate) fn refuse_connections(&self) {
        execute(&self.server, format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS false", self.name));
        self.cut_connections();
    }

    /// Ends every connection; clients may connect again at once.
    #[track_caller]
    pub(crate) fn cut_connections(&self) {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        execute(&self.server, format!("{end} '{}'", self.name));
    }

    /// Accepts connections again.
    #[track_caller]
    pub(crate) fn accept_connections(&self) {
        execute(&self.server, format!("ALTER DATABASE {} WITH ALLOW_CONNECTIONS true", self.name));
    }

    /// Runs a statement as the owner of the database.
    #[track_caller]
    pub(crate) fn run(&self, statement: &str) {
        execute(&self.url, statement.to_owned());
    }

    /// Returns the only number that a query gives.
    #[track_caller]
    pub(crate) fn count(&self, query: &str) -> i64 {
        let query = query.to_owned();
        run_with(&self.url, async |connection| {
            sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(connection).await.expect("a number")
        })
    }

    /// The address, as `database_url` takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

#[track_caller]
fn execute(url: &str, statements: String) {
    run_with(url, async |connection| {
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(connection).await.expect("the statements succeed");
    });
}

/// Runs this work with a connection of its own.
#[track_caller]
fn run_with<T>(url: &str, work: impl AsyncFnOnce(&mut PgConnection) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut connection = PgConnection::connect(url).await.expect("the server answers");
        let result = work(&mut connection).await;
        connection.close().await.expect("the connection closes");
        result
    })
}
