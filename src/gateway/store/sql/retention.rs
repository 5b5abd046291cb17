//! Removes rows whose retention period has ended, in batches.

use super::dialect::{DbPool, indexed_by};
use super::transaction::transact;
use crate::gateway::store::{RetentionClass, Timestamp, UtcDay};

/// Deletes old records. The record of a running job is never removed, and no record before it was counted in detail.
pub(in super::super) const DELETE_RECORDS: &str = concat!(
    "DELETE FROM records WHERE seq IN (SELECT seq FROM records",
    indexed_by!("records_by_time"),
    " \
    WHERE created_at < $1 AND state <> 'running' AND seq <= (SELECT folded_seq FROM usage_fold) \
    ORDER BY created_at LIMIT $2)"
);

/// Deletes old rows of the audit trail. They are written in the order of time, so the oldest have the lowest numbers.
pub(in super::super) const DELETE_AUDIT: &str = "DELETE FROM audit WHERE seq IN \
    (SELECT seq FROM (SELECT seq, at FROM audit ORDER BY seq LIMIT $2) AS oldest WHERE at < $1)";

pub(in super::super) const DELETE_USAGE_DAYS: &str = concat!(
    "DELETE FROM usage_days WHERE (key_id, day, user_id, group_name) IN \
    (SELECT key_id, day, user_id, group_name FROM usage_days",
    indexed_by!("usage_days_by_day"),
    " \
    WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_END_USER_DAYS: &str = concat!(
    "DELETE FROM end_user_days WHERE (end_user, day, key_id, user_id, group_name) IN \
    (SELECT end_user, day, key_id, user_id, group_name FROM end_user_days",
    indexed_by!("end_user_days_by_day"),
    " \
    WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_USAGE_DETAILS: &str = concat!(
    "DELETE FROM usage_details WHERE (scope, dimension, day, value) IN \
    (SELECT scope, dimension, day, value FROM usage_details",
    indexed_by!("usage_details_by_day"),
    " \
    WHERE day < $1 ORDER BY day LIMIT $2)"
);

pub(in super::super) const DELETE_BINDINGS: &str = concat!(
    "DELETE FROM account_bindings WHERE (digest, owner) IN \
    (SELECT digest, owner FROM account_bindings",
    indexed_by!("account_bindings_by_day"),
    " \
    WHERE used_on < $1 ORDER BY used_on LIMIT $2)"
);

pub(in super::super) async fn remove_expired(
    pool: &DbPool,
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

async fn delete_rows(pool: &DbPool, sql: &'static str, before: String, limit: u32) -> sqlx::Result<u64> {
    Ok(sqlx::query(sql).bind(before).bind(i64::from(limit)).execute(pool).await?.rows_affected())
}

/// Removes old rows of the audit trail. A trigger allows this only while a row in `audit_removal` permits it.
async fn remove_audit(pool: &DbPool, before: Timestamp, limit: u32) -> sqlx::Result<u64> {
    let before = before.to_string();
    transact!(pool, |transaction| {
        let allow = sqlx::query("INSERT INTO audit_removal (\"only\", before) VALUES (1, $1)").bind(&before);
        allow.execute(&mut *transaction).await?;
        let removed = sqlx::query(DELETE_AUDIT)
            .bind(&before)
            .bind(i64::from(limit))
            .execute(&mut *transaction)
            .await?
            .rows_affected();
        sqlx::query("DELETE FROM audit_removal").execute(&mut *transaction).await?;
        removed
    })
}
