//! Upstream accounts. Their credentials are stored only as the vault has sealed them.

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::SqliteStore;
use super::decode::{moment, parsed, text};
use super::together::{SqlStatement, transact};
use super::trail::{self, AuditEvent};
use crate::gateway::store::{AccountChange, AccountId, AccountRow, AccountSpec, AuditContext, NewAccount, Timestamp};

const KIND: &str = "account";

/// Returns `None` if the store has an account of its own with that name.
pub(super) async fn sync(
    store: &SqliteStore,
    fresh: AccountId,
    spec: AccountSpec<'_>,
) -> sqlx::Result<Option<AccountRow>> {
    if let Some(account) =
        find(&mut *store.readers.acquire().await?, spec.name).await?.filter(|account| matches(account, spec))
    {
        return Ok(Some(account));
    }
    // The state that the gateway itself has set, such as disabled, stays as it is.
    sqlx::query(
        "INSERT INTO accounts (id, name, kind, protocol, tier, source, created_at) \
         VALUES ($1, $2, $3, $4, $5, 'file', $6) \
         ON CONFLICT (name) DO UPDATE SET \
         kind = excluded.kind, protocol = excluded.protocol, tier = excluded.tier, absent_since = NULL \
         WHERE accounts.source = 'file'",
    )
    .bind(fresh.as_str())
    .bind(spec.name)
    .bind(spec.kind)
    .bind(spec.protocol)
    .bind(spec.tier)
    .bind(Timestamp::now().to_string())
    .execute(&store.writer)
    .await?;
    Ok(find(&mut *store.writer.acquire().await?, spec.name).await?.filter(|account| account.source == "file"))
}

fn matches(account: &AccountRow, spec: AccountSpec<'_>) -> bool {
    account.source == "file"
        && account.kind == spec.kind
        && account.protocol == spec.protocol
        && account.tier == spec.tier
        && account.absent_since.is_none()
}

pub(super) async fn insert(
    pool: &SqlitePool,
    act: &AuditContext,
    fresh: AccountId,
    new: &NewAccount,
) -> sqlx::Result<AccountRow> {
    transact!(pool, |transaction| {
        sqlx::query(
            "INSERT INTO accounts (id, name, kind, protocol, tier, source, created_at, settings, sealed) \
             VALUES ($1, $2, $3, $4, $5, 'store', $6, $7, $8)",
        )
        .bind(fresh.as_str())
        .bind(&new.name)
        .bind(&new.kind)
        .bind(&new.protocol)
        .bind(&new.tier)
        .bind(act.at.to_string())
        .bind(&new.settings)
        .bind(&new.sealed)
        .execute(&mut *transaction)
        .await?;
        // A token under this name would belong to a deleted account.
        forget_token(&new.name).execute(&mut *transaction).await?;
        let details = json!({"kind": new.kind, "protocol": new.protocol, "tier": new.tier});
        trail::write(
            &mut transaction,
            act,
            AuditEvent::new("account.add", KIND, fresh.as_str(), &new.name).with(details),
        )
        .await?;
        find(&mut transaction, &new.name).await?.ok_or(sqlx::Error::RowNotFound)?
    })
}

pub(super) async fn change(
    pool: &SqlitePool,
    act: &AuditContext,
    name: &str,
    change: AccountChange,
) -> sqlx::Result<Option<AccountRow>> {
    transact!(pool, |transaction| {
        let Some(before) = find(&mut transaction, name).await? else { return Ok(None) };
        let entry = entry(&before, &change);
        for statement in statements(name, change, act.at) {
            statement.execute(&mut *transaction).await?;
        }
        if let Some(entry) = entry {
            trail::write(&mut transaction, act, entry).await?;
        }
        find(&mut transaction, name).await?
    })
}

/// Returns the row of the audit trail. A cooldown is not a decision of an actor, and a change without effect changes
/// nothing, so neither gets a row.
fn entry<'a>(account: &'a AccountRow, change: &AccountChange) -> Option<AuditEvent<'a>> {
    let entry = |action| Some(AuditEvent::new(action, KIND, account.id.as_str(), &account.name));
    match change {
        AccountChange::Disable { reason } if account.disabled_at.is_none() => {
            entry("account.disable").map(|entry| entry.with(json!({"reason": reason})))
        }
        AccountChange::Enable if account.disabled_at.is_some() || account.cooling_until.is_some() => {
            entry("account.enable")
        }
        AccountChange::Reseal(_) => entry("account.rotate"),
        AccountChange::Disable { .. }
        | AccountChange::Enable
        | AccountChange::Cool { .. }
        | AccountChange::Thaw
        | AccountChange::Fail(_) => None,
    }
}

fn statements(name: &str, change: AccountChange, at: Timestamp) -> Vec<SqlStatement<'_>> {
    match change {
        AccountChange::Disable { reason } => vec![
            // A second change keeps the first time and its reason.
            sqlx::query("UPDATE accounts SET disabled_at = $2, disabled_reason = $3 WHERE name = $1 AND disabled_at IS NULL")
                .bind(name)
                .bind(at.to_string())
                .bind(reason),
        ],
        AccountChange::Enable => vec![
            sqlx::query(
                "UPDATE accounts SET disabled_at = NULL, disabled_reason = NULL, \
                 cooling_until = NULL, cooling_cause = NULL, \
                 failing_until = NULL, failing_since = NULL, failing_reason = NULL WHERE name = $1",
            )
            .bind(name),
        ],
        AccountChange::Fail(failing) => {
            let (since, until) = failing.as_ref().map(|failing| (failing.since, failing.until)).unzip();
            vec![
                sqlx::query(
                    "UPDATE accounts SET failing_until = $2, failing_since = $3, failing_reason = $4 WHERE name = $1",
                )
                .bind(name)
                .bind(until.map(|until| until.to_string()))
                .bind(since.map(|since| since.to_string()))
                .bind(failing.map(|failing| failing.reason)),
            ]
        }
        AccountChange::Cool { until, cause } => vec![
            sqlx::query(
                "UPDATE accounts SET cooling_until = $2, cooling_cause = $3 \
                 WHERE name = $1 AND (cooling_until IS NULL OR cooling_until < $2)",
            )
            .bind(name)
            .bind(until.to_string())
            .bind(cause),
        ],
        AccountChange::Thaw => vec![
            sqlx::query(
                "UPDATE accounts SET cooling_until = NULL, cooling_cause = NULL WHERE name = $1 AND cooling_until <= $2",
            )
            .bind(name)
            .bind(at.to_string()),
        ],
        AccountChange::Reseal(sealed) => vec![
            sqlx::query("UPDATE accounts SET sealed = $2 WHERE name = $1").bind(name).bind(sealed),
            forget_token(name),
        ],
    }
}

pub(super) async fn delete(pool: &SqlitePool, act: &AuditContext, name: &str) -> sqlx::Result<bool> {
    transact!(pool, |transaction| {
        let query = sqlx::query_scalar(
            "DELETE FROM accounts WHERE name = $1 AND (source = 'store' OR absent_since IS NOT NULL) RETURNING id",
        );
        let id: Option<String> = query.bind(name).fetch_optional(&mut *transaction).await?;
        let Some(id) = id else { return Ok(false) };
        forget_token(name).execute(&mut *transaction).await?;
        trail::write(&mut transaction, act, AuditEvent::new("account.delete", KIND, &id, name)).await?;
        true
    })
}

pub(super) async fn mark_absent(pool: &SqlitePool, in_file: &[&str], at: Timestamp) -> sqlx::Result<u64> {
    let names = serde_json::to_string(in_file).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let query = sqlx::query(
        "UPDATE accounts SET absent_since = $2 WHERE source = 'file' AND absent_since IS NULL \
         AND name NOT IN (SELECT value FROM json_each($1))",
    );
    Ok(query.bind(names).bind(at.to_string()).execute(pool).await?.rows_affected())
}

pub(super) async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<AccountRow>> {
    let rows = sqlx::query("SELECT * FROM accounts ORDER BY name").fetch_all(pool).await?;
    rows.iter().map(account).collect()
}

async fn find(connection: &mut SqliteConnection, name: &str) -> sqlx::Result<Option<AccountRow>> {
    let row = sqlx::query("SELECT * FROM accounts WHERE name = $1").bind(name).fetch_optional(connection).await?;
    row.map(|row| account(&row)).transpose()
}

fn forget_token(account: &str) -> SqlStatement<'_> {
    sqlx::query("DELETE FROM tokens WHERE account = $1").bind(account)
}

fn account(row: &SqliteRow) -> sqlx::Result<AccountRow> {
    Ok(AccountRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        kind: text(row, "kind")?,
        protocol: text(row, "protocol")?,
        tier: text(row, "tier")?,
        source: text(row, "source")?,
        disabled_at: moment(row, "disabled_at")?,
        disabled_reason: row.try_get("disabled_reason")?,
        settings: row.try_get("settings")?,
        sealed: row.try_get("sealed")?,
        cooling_until: moment(row, "cooling_until")?,
        cooling_cause: row.try_get("cooling_cause")?,
        failing_until: moment(row, "failing_until")?,
        failing_since: moment(row, "failing_since")?,
        failing_reason: row.try_get("failing_reason")?,
        absent_since: moment(row, "absent_since")?,
        created_at: parsed(row, "created_at")?,
    })
}
