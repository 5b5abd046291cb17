//! The nodes that share the database. All times are those of the server, so the clocks of the nodes do not matter.

use sqlx::{PgConnection, PgPool};

use super::{record_rows, reservations};
use crate::gateway::store::sql::driver::SqlConnection;
use crate::gateway::store::sql::records;
use crate::gateway::store::{NODE_TIMEOUT, NodeId};

/// The time after which the row of a node without running records and reservations is removed, in seconds (our choice).
const ROW_KEPT_SECONDS: f64 = 7.0 * 86_400.0;

/// Writes the time of this moment into the row of the node.
pub(super) async fn write_heartbeat(pool: &PgPool, node: &NodeId) -> sqlx::Result<()> {
    let query = sqlx::query(
        "INSERT INTO nodes (id, version, started_at, seen_at) VALUES ($1, $2, now(), now()) \
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, seen_at = excluded.seen_at",
    );
    query.bind(node.as_str()).bind(env!("CARGO_PKG_VERSION")).execute(pool).await?;
    Ok(())
}

/// Closes the running records of a node, and removes what its jobs without a record have reserved. Returns the number of
/// records.
pub(super) async fn interrupt_running(pool: &PgPool, node: &NodeId) -> sqlx::Result<u64> {
    let closed = interrupt_records(&mut *pool.acquire().await?, node).await?;
    reservations::remove_without_record(pool, node).await?;
    Ok(closed)
}

/// Closes the running records of a node, and returns their number.
pub(super) async fn interrupt_records(connection: &mut PgConnection, node: &NodeId) -> sqlx::Result<u64> {
    let interrupted = records::interrupted_records(&mut *connection as &mut SqlConnection, node).await?;
    let Some(rows) = record_rows::to_json_list(node, interrupted.iter())? else { return Ok(0) };
    let query = sqlx::query(record_rows::WRITE).bind(node.as_str()).bind(None::<String>).bind(rows);
    Ok(query.fetch_all(connection).await?.len() as u64)
}

/// The condition for a node that has running records, or jobs that have reserved something and have no record.
macro_rules! has_jobs {
    () => {
        "(EXISTS (SELECT 1 FROM records WHERE records.state = 'running' AND records.node = nodes.id) \
         OR EXISTS (SELECT 1 FROM limit_reservations AS reserved WHERE reserved.is_open AND reserved.node = nodes.id))"
    };
}

/// Ends the jobs of nodes without a recent heartbeat: closes their running records, and removes what those without a record
/// have reserved. Returns the number of records. Each statement is a transaction, and a record changes its state only once,
/// so several nodes may do this at the same time.
pub(super) async fn interrupt_dead_nodes(pool: &PgPool) -> sqlx::Result<u64> {
    let query = sqlx::query_scalar(concat!(
        "SELECT id FROM nodes WHERE seen_at < now() - make_interval(secs => $1) AND ",
        has_jobs!()
    ));
    let dead: Vec<String> = query.bind(NODE_TIMEOUT.as_secs_f64()).fetch_all(pool).await?;
    let mut closed = 0;
    for node in dead {
        closed += interrupt_running(pool, &NodeId::from(node)).await?;
    }
    let remove = sqlx::query(concat!(
        "DELETE FROM nodes WHERE seen_at < now() - make_interval(secs => $1) AND NOT ",
        has_jobs!()
    ));
    remove.bind(ROW_KEPT_SECONDS).execute(pool).await?;
    Ok(closed)
}
