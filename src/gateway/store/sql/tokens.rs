//! The statements for tokens and for the claims to fetch them. Each function is one statement, so that no other
//! process can interfere.

use async_trait::async_trait;

use super::SqlStore;
use super::decode::parsed;
use super::driver::SqlRow;
use super::statement::sql;
use crate::gateway::store::{StoreError, Timestamp, TokenRow, TokenStore};

#[async_trait]
impl TokenStore for SqlStore {
    async fn load_token(&self, account: &str) -> Result<Option<TokenRow>, StoreError> {
        let query = sql("SELECT sealed, updated_at FROM tokens WHERE account = $1 AND sealed IS NOT NULL");
        let from_row = |row: &SqlRow| {
            Ok(TokenRow { sealed_token: row.try_get("sealed")?, updated_at: parsed(row, "updated_at")? })
        };
        self.fetch_optional("loading a token", query.bind(account), from_row).await
    }

    async fn claim_refresh(
        &self,
        account: &str,
        holder: &str,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<bool, StoreError> {
        let claim = sql("INSERT INTO tokens (account, holder, held_until) VALUES ($1, $2, $4) \
             ON CONFLICT (account) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until \
             WHERE tokens.holder IS NULL OR tokens.holder = excluded.holder OR tokens.held_until <= $3");
        let claim = claim.bind(account).bind(holder).bind(now.to_string()).bind(until.to_string());
        Ok(self.execute_change("claiming the right to fetch a token", claim).await? == 1)
    }

    async fn store_token(&self, account: &str, holder: &str, sealed: &[u8]) -> Result<bool, StoreError> {
        let update = sql("UPDATE tokens SET sealed = $3, updated_at = $4, holder = NULL, held_until = NULL \
             WHERE account = $1 AND holder = $2");
        let update = update.bind(account).bind(holder).bind(sealed).bind(Timestamp::now().to_string());
        Ok(self.execute_change("storing a token", update).await? == 1)
    }

    async fn release_refresh(&self, account: &str, holder: &str) -> Result<(), StoreError> {
        let update = sql("UPDATE tokens SET holder = NULL, held_until = NULL WHERE account = $1 AND holder = $2");
        let update = update.bind(account).bind(holder);
        self.execute_change("releasing the right to fetch a token", update).await.map(drop)
    }

    async fn delete_token(&self, account: &str) -> Result<(), StoreError> {
        let delete = sql("DELETE FROM tokens WHERE account = $1").bind(account);
        self.execute_change("deleting a token", delete).await.map(drop)
    }
}
