//! Removes rows whose retention period has ended, in batches.

use super::driver::SqlPool;
use super::statement::{SqlText, indexed, sql};
use super::transaction::transact;
use crate::gateway::store::{RetentionClass, Timestamp, UtcDay};

/// Deletes old records. The record of a running job is never removed, and no record before it was counted in detail.
pub(in super::super) const DELETE_RECORDS: SqlText = indexed!(
    "DELETE FROM records WHERE seq IN (SELECT seq FROM records",
    "records_by_time",
    " WHERE created_at < $1 AND state <> 'running' AND seq <= (SELECT folded_seq FROM usage_fold) \
    ORDER BY created_at LIMIT $2)"
);

/// Deletes old rows of the audit trail. They are written in the order of time, so the oldest have the lowest numbers.
pub(in super::super) const DELETE_AUDIT: &str = "DELETE FROM audit WHERE seq IN \
    (SELECT seq FROM (SELECT seq, at FROM audit ORDER BY seq LIMIT $2) AS oldest WHERE at < $1)";

pub(in super::super) const DELETE_USAGE_DAYS: SqlText = indexed!(
    "DELETE FROM usage_days WHERE (key_id, day, user_id, group_name) IN \
    (SELECT key_id, day, user_id, group_name FROM usage_days",
    "usage_days_by_day",
    " WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_END_USER_DAYS: SqlText = indexed!(
    "DELETE FROM end_user_days WHERE (end_user, day, key_id, user_id, group_name) IN \
    (SELECT end_user, day, key_id, user_id, group_name FROM end_user_days",
    "end_user_days_by_day",
    " WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_USAGE_DETAILS: SqlText = indexed!(
    "DELETE FROM usage_details WHERE (scope, dimension, day, value) IN \
    (SELECT scope, dimension, day, value FROM usage_details",
    "usage_details_by_day",
    " WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_BINDINGS: SqlText = indexed!(
    "DELETE FROM account_bindings WHERE (digest, owner) IN \
    (SELECT digest, owner FROM account_bindings",
    "account_bindings_by_day",
    " WHERE used_on < $1 ORDER BY used_on LIMIT $2)"
);

pub(in super::super) async fn remove_expired(
    pool: &SqlPool,
    class: RetentionClass,
    before: Timestamp,
    limit: u32,
) -> sqlx::Result<u64> {
    match class {
        RetentionClass::Records => delete_rows(pool, DELETE_RECORDS, before.to_string(), limit).await,
        RetentionClass::UsageDays => {
            delete_rows(pool, DELETE_USAGE_DAYS, UtcDay::from(before).to_string(), limit).await
        }
        RetentionClass::UsageDetails => {
            let day = UtcDay::from(before).to_string();
            let mut removed = 0;
            for statement in [DELETE_END_USER_DAYS, DELETE_USAGE_DETAILS] {
                removed = removed.max(delete_rows(pool, statement, day.clone(), limit).await?);
            }
            Ok(removed)
        }
        RetentionClass::Audit => remove_audit(pool, before, limit).await,
        RetentionClass::AccountBindings => {
            delete_rows(pool, DELETE_BINDINGS, UtcDay::from(before).to_string(), limit).await
        }
    }
}

async fn delete_rows(pool: &SqlPool, text: impl Into<SqlText>, before: String, limit: u32) -> sqlx::Result<u64> {
    sql(text).bind(before).bind(i64::from(limit)).execute(pool).await
}

/// Removes old rows of the audit trail. A trigger allows this only while a row in `audit_removal` permits it.
async fn remove_audit(pool: &SqlPool, before: Timestamp, limit: u32) -> sqlx::Result<u64> {
    let before = before.to_string();
    transact!(pool.begin_change(), |transaction| {
        let allow = sql("INSERT INTO audit_removal (\"only\", before) VALUES (1, $1)").bind(&before);
        allow.execute(&mut *transaction).await?;
        let removed = sql(DELETE_AUDIT).bind(&before).bind(i64::from(limit)).execute(&mut *transaction).await?;
        sql("DELETE FROM audit_removal").execute(&mut *transaction).await?;
        removed
    })
}
