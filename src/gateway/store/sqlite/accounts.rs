//! Upstream accounts, without their credentials.

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::SqliteStore;
use super::decode::{moment, parsed, text};
use crate::gateway::store::{AccountId, AccountRow, AccountSpec, Timestamp};

pub(super) async fn sync(store: &SqliteStore, fresh: AccountId, spec: AccountSpec<'_>) -> sqlx::Result<AccountRow> {
    if let Some(account) = find(&store.readers, spec.name).await?.filter(|account| matches(account, spec)) {
        return Ok(account);
    }
    // What the gateway itself has found out, such as that the account is disabled, stays as it is.
    sqlx::query(
        "INSERT INTO accounts (id, name, kind, protocol, tier, source, created_at) \
         VALUES ($1, $2, $3, $4, $5, 'file', $6) \
         ON CONFLICT (name) DO UPDATE SET \
         kind = excluded.kind, protocol = excluded.protocol, tier = excluded.tier, source = excluded.source",
    )
    .bind(fresh.as_str())
    .bind(spec.name)
    .bind(spec.kind)
    .bind(spec.protocol)
    .bind(spec.tier)
    .bind(Timestamp::now().to_string())
    .execute(&store.writer)
    .await?;
    find(&store.writer, spec.name).await?.ok_or(sqlx::Error::RowNotFound)
}

pub(super) async fn list(pool: &SqlitePool) -> sqlx::Result<Vec<AccountRow>> {
    let rows = sqlx::query("SELECT * FROM accounts ORDER BY name").fetch_all(pool).await?;
    rows.iter().map(account).collect()
}

async fn find(pool: &SqlitePool, name: &str) -> sqlx::Result<Option<AccountRow>> {
    let row = sqlx::query("SELECT * FROM accounts WHERE name = $1").bind(name).fetch_optional(pool).await?;
    row.map(|row| account(&row)).transpose()
}

fn matches(account: &AccountRow, spec: AccountSpec<'_>) -> bool {
    account.source == "file"
        && account.kind == spec.kind
        && account.protocol == spec.protocol
        && account.tier == spec.tier
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
        created_at: parsed(row, "created_at")?,
    })
}
