//! The statements for tokens and for the claims to fetch them. Each function is one statement, so that no other
//! process can interfere.

use async_trait::async_trait;
use sqlx::Row;

use super::decode::parsed;
use super::dialect::{DbPool, SqlStore};
use super::error_conversion::during;
use crate::gateway::store::{StoreError, Timestamp, TokenRow, TokenStore};

#[async_trait]
impl TokenStore for SqlStore {
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        load(&self.readers, account).await.map_err(during("loading a token"))
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        claim(&self.writer, account, holder, now, until).await.map_err(during("claiming the right to fetch a token"))
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        store(&self.writer, account, holder, sealed).await.map_err(during("storing a token"))
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        release(&self.writer, account, holder).await.map_err(during("releasing the right to fetch a token"))
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        delete(&self.writer, account).await.map_err(during("deleting a token"))
    }
}

async fn load(pool: &DbPool, account: &str) -> sqlx::Result<Option<TokenRow>> {
    let query = sqlx::query("SELECT sealed, updated_at FROM tokens WHERE account = $1 AND sealed IS NOT NULL");
    let row = query.bind(account).fetch_optional(pool).await?;
    row.map(|row| Ok(TokenRow { sealed_token: row.try_get("sealed")?, updated_at: parsed(&row, "updated_at")? }))
        .transpose()
}

async fn claim(pool: &DbPool, account: &str, holder: &str, now: Timestamp, until: Timestamp) -> sqlx::Result<bool> {
    let query = sqlx::query(
        "INSERT INTO tokens (account, holder, held_until) VALUES ($1, $2, $4) \
         ON CONFLICT (account) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until \
         WHERE tokens.holder IS NULL OR tokens.holder = excluded.holder OR tokens.held_until <= $3",
    );
    let query = query.bind(account).bind(holder).bind(now.to_string()).bind(until.to_string());
    Ok(query.execute(pool).await?.rows_affected() == 1)
}

async fn store(pool: &DbPool, account: &str, holder: &str, sealed: &[u8]) -> sqlx::Result<bool> {
    let query = sqlx::query(
        "UPDATE tokens SET sealed = $3, updated_at = $4, holder = NULL, held_until = NULL \
         WHERE account = $1 AND holder = $2",
    );
    let query = query.bind(account).bind(holder).bind(sealed).bind(Timestamp::now().to_string());
    Ok(query.execute(pool).await?.rows_affected() == 1)
}

async fn release(pool: &DbPool, account: &str, holder: &str) -> sqlx::Result<()> {
    let query = sqlx::query("UPDATE tokens SET holder = NULL, held_until = NULL WHERE account = $1 AND holder = $2");
    query.bind(account).bind(holder).execute(pool).await?;
    Ok(())
}

async fn delete(pool: &DbPool, account: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM tokens WHERE account = $1").bind(account).execute(pool).await?;
    Ok(())
}
