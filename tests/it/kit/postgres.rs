//! Databases of their own in the PostgreSQL server of the test run, which `cargo xtask postgres` and `cargo xtask test`
//! start.

use std::sync::atomic::{AtomicU32, Ordering};

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::env_setting;

/// A new, empty database. It ends with the server of the test run.
pub(crate) struct PostgresDatabase {
    server: String,
    name: String,
    url: String,
}

impl PostgresDatabase {
    /// Creates a database; `None` if the run has no server.
    pub(crate) fn create() -> Option<Self> {
        static CREATED: AtomicU32 = AtomicU32::new(0);
        let server = env_setting("IMAGATE_TEST_POSTGRES")?.into_string().expect("an address");
        let number = CREATED.fetch_add(1, Ordering::Relaxed);
        let name = format!("it_{}_{number}", std::process::id());
        execute(&server, format!("CREATE DATABASE {name}"));
        let (address, _) = server.rsplit_once('/').expect("the address ends with a database");
        let url = format!("{address}/{name}");
        Some(Self { server, name, url })
    }

    /// Creates a database for a gateway whose test did not choose its store, if the run tests the gateway on PostgreSQL.
    pub(super) fn create_for_run() -> Option<Self> {
        (env_setting("IT_STORE")? == "postgres").then(|| Self::create().expect("IT_STORE=postgres needs a server"))
    }

    /// Ends every connection, and refuses new ones: for a gateway, the server is away.
    #[track_caller]
    pub(crate) fn refuse_connections(&self) {
        let name = &self.name;
        execute(&self.server, format!("ALTER DATABASE {name} WITH ALLOW_CONNECTIONS false"));
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname =";
        execute(&self.server, format!("{end} '{name}'"));
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
        block_on(async {
            let mut connection = PgConnection::connect(&self.url).await.expect("the server answers");
            let query = sqlx::query_scalar(AssertSqlSafe(query.to_owned()));
            let count = query.fetch_one(&mut connection).await.expect("a number");
            connection.close().await.expect("the connection closes");
            count
        })
    }

    /// The address, as `database_url` takes it.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

#[track_caller]
fn execute(url: &str, statements: String) {
    block_on(async {
        let mut connection = PgConnection::connect(url).await.expect("the server answers");
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut connection).await.expect("the statements succeed");
        connection.close().await.expect("the connection closes");
    });
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(work)
}
