//! The address of the database, and the settings of every connection.

use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool};

use super::error_conversion::during;
use super::migrations::newest_version;
use crate::gateway::store::StoreError;

/// The number of connections for changes and reads of a node (our choice). Requests rarely need one: keys and accounts
/// are cached, and records have a connection of their own.
const POOL_CONNECTIONS: u32 = 8;

/// The number of those connections that reservations in limits may use at the same time (our choice): half of them.
pub(super) const RESERVATION_CONNECTIONS: usize = 4;

/// The time that a call waits for a connection of the pool, and that a new connection may take (our choice).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of each connection (our choice). The limits are enforced by the server, so that no call waits for ever and
/// no transaction of a stopped process keeps its locks. No statement runs long enough to gain from its compilation (JIT),
/// which takes 0.13 s in each process for the sums of the detailed counts.
const SESSION_SETTINGS: &str = "SET statement_timeout = '10s'; SET lock_timeout = '5s'; \
    SET idle_in_transaction_session_timeout = '15s'; SET jit = off";

/// A description of a server.
#[derive(Debug)]
pub(crate) struct ServerFacts {
    /// The version of the server, as it states it.
    pub(crate) version: String,
    /// The version of the schema; 0 if there are no tables yet.
    pub(crate) schema_version: i64,
    /// The newest version of the schema that this program knows.
    pub(crate) newest_schema_version: i64,
}

/// The address of a PostgreSQL database, with its password. `Debug` shows the address without the password.
#[derive(Clone)]
pub(crate) struct DatabaseUrl(PgConnectOptions);

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}:{}", self.0.get_host(), self.0.get_port())
    }
}

impl DatabaseUrl {
    /// Parses an address such as `postgres://user:password@host:5432/database`.
    ///
    /// # Errors
    /// Returns [`StoreError::DatabaseUrl`] if the text is not such an address.
    pub(crate) fn parse(text: &str) -> Result<Self, StoreError> {
        let invalid = |_| StoreError::DatabaseUrl { detail: "is not a valid address of a PostgreSQL database" };
        let options = PgConnectOptions::from_str(text).map_err(invalid)?;
        Ok(Self(options.application_name("imagate").disable_statement_logging()))
    }

    /// Asks the server for its version and for the version of the schema. Nothing is changed.
    ///
    /// # Errors
    /// Returns [`StoreError::Unavailable`] if the server does not answer.
    pub(crate) async fn check_server(&self) -> Result<ServerFacts, StoreError> {
        let facts = async {
            let mut connection = self.connect_for_migration().await?;
            let version = sqlx::query_scalar("SHOW server_version").fetch_one(&mut connection).await?;
            let exists: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
                .fetch_one(&mut connection)
                .await?;
            let schema_version = match exists {
                true => {
                    let newest = sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations");
                    newest.fetch_one(&mut connection).await?
                }
                false => 0,
            };
            connection.close().await?;
            Ok(ServerFacts { version, schema_version, newest_schema_version: newest_version() })
        };
        facts.await.map_err(during("connecting to the database"))
    }

    /// Connects without limits on the time of a statement, for migrations.
    pub(super) async fn connect_for_migration(&self) -> sqlx::Result<PgConnection> {
        within_connect_timeout(async {
            let mut connection = Box::pin(PgConnection::connect_with(&self.0)).await?;
            // The driver creates its table of migrations at each start, and the server sends a notice each time that it exists.
            connection.execute("SET client_min_messages = warning").await?;
            Ok(connection)
        })
        .await
    }

    /// Connects for the writes of records. Each commit waits for the disk of the server if `syncs_commits` is true.
    pub(super) async fn connect_for_writes(&self, syncs_commits: bool) -> sqlx::Result<PgConnection> {
        within_connect_timeout(async {
            let mut connection = Box::pin(PgConnection::connect_with(&self.0)).await?;
            connection.execute(SESSION_SETTINGS).await?;
            if !syncs_commits {
                connection.execute("SET synchronous_commit = off").await?;
            }
            Ok(connection)
        })
        .await
    }

    /// Returns a pool that connects at the first use.
    pub(super) fn pool(&self) -> PgPool {
        PgPoolOptions::new()
            .max_connections(POOL_CONNECTIONS)
            .acquire_timeout(CONNECT_TIMEOUT)
            .after_connect(|connection, _| {
                Box::pin(async move {
                    connection.execute(SESSION_SETTINGS).await?;
                    Ok(())
                })
            })
            .connect_lazy_with(self.0.clone())
    }
}

async fn within_connect_timeout<T>(connecting: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    let elapsed = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(elapsed)?
}
