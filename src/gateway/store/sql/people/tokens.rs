//! The statements for admin tokens.

use async_trait::async_trait;
use serde_json::json;

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::decode::{hash, optional_timestamp, parsed, text};
use super::super::driver::SqlRow;
use super::super::error_conversion::during;
use super::super::statement::sql;
use super::super::transaction::{perform, rollback, transact};
use super::users;
use crate::gateway::store::{
    AdminTokenRow, AdminTokenStore, AuditContext, PublicId, SecretHash, StoreError, Timestamp, TokenId, UserId, UserRow,
};

const AUDIT_TARGET_KIND: &str = "token";

macro_rules! select_tokens {
    ($clauses:literal) => {
        concat!(
            "SELECT admin_tokens.*, users.name AS user_name FROM admin_tokens ",
            "JOIN users ON users.id = admin_tokens.user_id ",
            $clauses
        )
    };
}

#[async_trait]
impl AdminTokenStore for SqlStore {
    async fn insert_admin_token(
        &self,
        audit: &AuditContext,
        token: &AdminTokenRow,
        hash: &SecretHash,
        max_tokens: u32,
    ) -> Result<bool, StoreError> {
        let details = json!({"public_id": token.public_id, "user": token.user_name, "expires_at": token.expires_at});
        let event =
            AuditEvent::new("token.create", AUDIT_TARGET_KIND, token.id.as_str(), &token.name).with_details(details);
        transact!(self.writer.begin_change(), |transaction| {
            // The lock of the user's row lets no other transaction count the tokens at the same time.
            sql("UPDATE users SET name = name WHERE id = $1")
                .bind(token.user.as_str())
                .execute(&mut *transaction)
                .await?;
            sql("DELETE FROM admin_tokens WHERE user_id = $1 AND expires_at <= $2")
                .bind(token.user.as_str())
                .bind(audit.at.to_string())
                .execute(&mut *transaction)
                .await?;
            let count = sql("SELECT count(*) FROM admin_tokens WHERE user_id = $1");
            let count: i64 = count.bind(token.user.as_str()).fetch_value(&mut *transaction).await?;
            if count >= i64::from(max_tokens) {
                return Ok(rollback(false));
            }
            sql("INSERT INTO admin_tokens (id, public_id, name, user_id, hash, created_at, expires_at, parent_id) \
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
            .bind(token.id.as_str())
            .bind(token.public_id.as_str())
            .bind(&token.name)
            .bind(token.user.as_str())
            .bind(hash.0.as_slice())
            .bind(token.created_at.to_string())
            .bind(token.expires_at.map(|time| time.to_string()))
            .bind(token.parent.as_ref().map(|parent| parent.as_str()))
            .execute(&mut *transaction)
            .await?;
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("storing an admin token"))
    }

    async fn find_admin_token(
        &self,
        public_id: &PublicId,
    ) -> Result<Option<(AdminTokenRow, SecretHash, UserRow)>, StoreError> {
        perform("looking up an admin token", async {
            let mut connection = self.readers.acquire().await?;
            let query = sql(select_tokens!(
                "WHERE admin_tokens.public_id = $1 AND NOT EXISTS (\
                 WITH RECURSIVE makers (parent_id, user_id) AS (\
                 SELECT parent_id, user_id FROM admin_tokens AS made WHERE made.public_id = $1 UNION \
                 SELECT maker.parent_id, maker.user_id FROM admin_tokens AS maker JOIN makers ON maker.id = makers.parent_id) \
                 SELECT 1 FROM makers JOIN users AS maker ON maker.id = makers.user_id WHERE maker.disabled_at IS NOT NULL)"
            ));
            let query = query.bind(public_id.as_str());
            let Some(row) = query.fetch_optional(&mut *connection).await? else { return Ok(None) };
            let token = token_from_row(&row)?;
            let user = users::get_even_if_deleted(&mut *connection, &token.user).await?;
            Ok(Some((token, SecretHash(hash(&row, "hash")?), user)))
        })
        .await
    }

    async fn record_admin_token_use(&self, id: &TokenId, at: Timestamp) -> Result<(), StoreError> {
        let update = sql("UPDATE admin_tokens SET last_used_at = $2 WHERE id = $1");
        let update = update.bind(id.as_str()).bind(at.to_string());
        self.execute_change("storing the use of an admin token", update).await.map(drop)
    }

    async fn list_admin_tokens(&self, owner: Option<&UserId>) -> Result<Vec<AdminTokenRow>, StoreError> {
        let query = sql(select_tokens!(
            "WHERE coalesce($1, admin_tokens.user_id) = admin_tokens.user_id ORDER BY admin_tokens.rowid DESC"
        ));
        let query = query.bind(owner.map(|owner| owner.as_str()));
        self.fetch_all("listing admin tokens", query, token_from_row).await
    }

    async fn delete_admin_token(
        &self,
        audit: &AuditContext,
        handle: &str,
        owner: Option<&UserId>,
    ) -> Result<Option<AdminTokenRow>, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql(select_tokens!(
                "WHERE (admin_tokens.id = $1 OR admin_tokens.public_id = $1) \
                 AND coalesce($2, admin_tokens.user_id) = admin_tokens.user_id"
            ));
            let query = query.bind(handle).bind(owner.map(|owner| owner.as_str()));
            let Some(row) = query.fetch_optional(&mut *transaction).await? else { return Ok(rollback(None)) };
            let token = token_from_row(&row)?;
            let delete = sql("DELETE FROM admin_tokens WHERE id = $1").bind(token.id.as_str());
            delete.execute(&mut *transaction).await?;
            let event = AuditEvent::new("token.delete", AUDIT_TARGET_KIND, token.id.as_str(), &token.name);
            audit_trail::write(transaction, audit, event.with_details(json!({"user": token.user_name}))).await?;
            Some(token)
        })
        .map_err(during("deleting an admin token"))
    }
}

fn token_from_row(row: &SqlRow) -> sqlx::Result<AdminTokenRow> {
    Ok(AdminTokenRow {
        id: text(row, "id")?,
        public_id: text(row, "public_id")?,
        name: text(row, "name")?,
        user: text(row, "user_id")?,
        user_name: text(row, "user_name")?,
        created_at: parsed(row, "created_at")?,
        expires_at: optional_timestamp(row, "expires_at")?,
        last_used_at: optional_timestamp(row, "last_used_at")?,
        parent: row.try_get::<Option<String>, _>("parent_id")?.map(TokenId::from),
    })
}
