//! The slots of accounts that each node holds. All times are those of the server.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row as _};

use super::PostgresDatabase;
use super::error_conversion::during;
use crate::gateway::store::shared_slots::{
    HeldSlots, OtherNodeHolding, OtherNodeSlots, SHARED_SLOT_TIMEOUT, SharedSlots,
};
use crate::gateway::store::sql::transaction::{rollback, transact};
use crate::gateway::store::{NodeId, StoreError};

/// Waits until no other node changes its slots, until the end of the transaction. The number is "imgs" (our choice).
const LOCK: &str = "SELECT pg_advisory_xact_lock(1768777587)";

const FIND_OTHERS: &str = "SELECT account, count(*) AS nodes, CAST(sum(held) AS BIGINT) AS held, \
    bool_or(wanted > held) AS needs_more, CAST(sum(large_held) AS BIGINT) AS large_held, \
    bool_or(large_wanted > large_held) AS large_needs_more \
    FROM account_slots WHERE node <> $1 AND expires_at > clock_timestamp() GROUP BY account";

/// Removes the rows of this node for accounts that it has no longer, and rows that nobody confirms.
const REMOVE_OLD: &str =
    "DELETE FROM account_slots WHERE (node = $1 AND account <> ALL ($2)) OR expires_at <= clock_timestamp()";

const WRITE: &str = "INSERT INTO account_slots (account, node, held, wanted, large_held, large_wanted, expires_at) \
    SELECT account, $1, held, wanted, large_held, large_wanted, clock_timestamp() + make_interval(secs => $7) \
    FROM unnest($2::TEXT[], $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[]) \
        AS slots (account, held, wanted, large_held, large_wanted) \
    ON CONFLICT (account, node) DO UPDATE SET held = excluded.held, wanted = excluded.wanted, \
        large_held = excluded.large_held, large_wanted = excluded.large_wanted, expires_at = excluded.expires_at";

#[async_trait]
impl SharedSlots for PostgresDatabase {
    async fn exchange_slots(
        &self,
        decide: &mut (dyn FnMut(Vec<OtherNodeSlots>) -> Option<Vec<HeldSlots>> + Send),
    ) -> Result<(), StoreError> {
        transact!(self.begin(), |transaction| {
            sqlx::query(LOCK).execute(&mut *transaction).await?;
            let rows = sqlx::query(FIND_OTHERS).bind(self.node.as_str()).fetch_all(&mut *transaction).await?;
            let others = rows.iter().map(other_node_slots).collect::<sqlx::Result<_>>()?;
            let Some(slots) = decide(others) else { return Ok(rollback(())) };
            write(transaction, &self.node, &slots).await?;
        })
        .map_err(during("sharing the slots of accounts"))
    }

    /// Takes the lock, too: an exchange that was abandoned must not write after this.
    async fn release_slots(&self) -> Result<(), StoreError> {
        transact!(self.begin(), |transaction| {
            sqlx::query(LOCK).execute(&mut *transaction).await?;
            let delete = sqlx::query("DELETE FROM account_slots WHERE node = $1").bind(self.node.as_str());
            delete.execute(&mut *transaction).await?;
        })
        .map_err(during("giving back the slots of accounts"))
    }
}

async fn write(connection: &mut PgConnection, node: &NodeId, slots: &[HeldSlots]) -> sqlx::Result<()> {
    let accounts: Vec<&str> = slots.iter().map(|slots| slots.account.as_str()).collect();
    let column = |count: fn(&HeldSlots) -> usize| -> Vec<i64> {
        slots.iter().map(|slots| i64::try_from(count(slots)).unwrap_or(i64::MAX)).collect()
    };
    sqlx::query(REMOVE_OLD).bind(node.as_str()).bind(&accounts).execute(&mut *connection).await?;
    sqlx::query(WRITE)
        .bind(node.as_str())
        .bind(&accounts)
        .bind(column(|slots| slots.all.held))
        .bind(column(|slots| slots.all.wanted))
        .bind(column(|slots| slots.large.held))
        .bind(column(|slots| slots.large.wanted))
        .bind(SHARED_SLOT_TIMEOUT.as_secs_f64())
        .execute(connection)
        .await?;
    Ok(())
}

fn other_node_slots(row: &PgRow) -> sqlx::Result<OtherNodeSlots> {
    let count = |name: &str| -> sqlx::Result<usize> {
        row.try_get::<i64, _>(name).map(|count| usize::try_from(count).unwrap_or_default())
    };
    Ok(OtherNodeSlots {
        account: row.try_get("account")?,
        nodes: count("nodes")?,
        all: OtherNodeHolding { held: count("held")?, needs_more: row.try_get("needs_more")? },
        large: OtherNodeHolding { held: count("large_held")?, needs_more: row.try_get("large_needs_more")? },
    })
}
