//! The statements for tokens and for the claims to fetch them. Each function is one statement, so that no other
//! process can interfere.

use sqlx::{Row, SqlitePool};

use super::decode::parsed;
use crate::gateway::store::{Timestamp, TokenRow};

pub(super) async fn load(pool: &SqlitePool, account: &str) -> sqlx::Result<Option<TokenRow>> {
    let query = sqlx::query("SELECT sealed, updated_at FROM tokens WHERE account = $1 AND sealed IS NOT NULL");
    let row = query.bind(account).fetch_optional(pool).await?;
    row.map(|row| Ok(TokenRow { sealed_token: row.try_get("sealed")?, updated_at: parsed(&row, "updated_at")? }))
        .transpose()
}

pub(super) async fn claim(
    pool: &SqlitePool,
    account: &str,
    holder: &str,
    now: Timestamp,
    until: Timestamp,
) -> sqlx::Result<bool> {
    let query = sqlx::query(
        "INSERT INTO tokens (account, holder, held_until) VALUES ($1, $2, $4) \
         ON CONFLICT (account) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until \
         WHERE tokens.holder IS NULL OR tokens.holder = excluded.holder OR tokens.held_until <= $3",
    );
    let query = query.bind(account).bind(holder).bind(now.to_string()).bind(until.to_string());
    Ok(query.execute(pool).await?.rows_affected() == 1)
}

pub(super) async fn store(pool: &SqlitePool, account: &str, holder: &str, sealed: &[u8]) -> sqlx::Result<bool> {
    let query = sqlx::query(
        "UPDATE tokens SET sealed = $3, updated_at = $4, holder = NULL, held_until = NULL \
         WHERE account = $1 AND holder = $2",
    );
    let query = query.bind(account).bind(holder).bind(sealed).bind(Timestamp::now().to_string());
    Ok(query.execute(pool).await?.rows_affected() == 1)
}

pub(super) async fn release(pool: &SqlitePool, account: &str, holder: &str) -> sqlx::Result<()> {
    let query = sqlx::query("UPDATE tokens SET holder = NULL, held_until = NULL WHERE account = $1 AND holder = $2");
    query.bind(account).bind(holder).execute(pool).await?;
    Ok(())
}

pub(super) async fn delete(pool: &SqlitePool, account: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM tokens WHERE account = $1").bind(account).execute(pool).await?;
    Ok(())
}
