//! Writes records and claims: all waiting writes share one transaction.

use sqlx::{SqliteConnection, SqlitePool};

use super::transaction::transact;
use super::{records, replays};
use crate::gateway::store::{NodeId, RowWrite, RowWriteOutcome};

pub(super) async fn write(
    pool: &SqlitePool,
    node: &NodeId,
    writes: &[RowWrite<'_>],
) -> sqlx::Result<Vec<RowWriteOutcome>> {
    // A single statement is a transaction by itself, which saves two round trips if only one write is waiting.
    if let [write] = writes {
        let mut connection = pool.acquire().await?;
        let outcome = write_one(&mut connection, node, *write).await?;
        return Ok(vec![outcome]);
    }
    transact!(pool, |transaction| {
        let mut outcomes = Vec::with_capacity(writes.len());
        for write in writes {
            outcomes.push(write_one(&mut transaction, node, *write).await?);
        }
        outcomes
    })
}

async fn write_one(
    connection: &mut SqliteConnection,
    node: &NodeId,
    write: RowWrite<'_>,
) -> sqlx::Result<RowWriteOutcome> {
    let query = match write {
        RowWrite::Open(record) => records::open(node, record),
        RowWrite::RecordAttempts(record) => records::update_attempts(record)?,
        RowWrite::Close(record) => records::close(record)?,
        RowWrite::Replay(write) => return replays::write(connection, write).await,
    };
    let changed = query.execute(connection).await?.rows_affected();
    Ok(if changed == 1 { RowWriteOutcome::Done } else { RowWriteOutcome::NoEffect })
}
