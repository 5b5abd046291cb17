//! The statements for second factors and recovery codes.

use async_trait::async_trait;
use serde_json::{Value, json};

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::driver::{SqlConnection, SqlRow};
use super::super::error_conversion::during;
use super::super::statement::sql;
use super::super::transaction::{rollback, transact};
use super::users;
use crate::gateway::store::{
    AuditContext, FactorUse, NewSecondFactor, SecondFactorRow, SecondFactorStore, SecretHash, SessionId, StoreError,
    UserId,
};

#[async_trait]
impl SecondFactorStore for SqlStore {
    async fn find_second_factor(&self, user: &UserId) -> Result<Option<SecondFactorRow>, StoreError> {
        let query = sql("SELECT sealed, last_step, (SELECT count(*) FROM recovery_codes WHERE user_id = $1) AS codes \
             FROM second_factors WHERE user_id = $1");
        let from_row = |row: &SqlRow| {
            Ok(SecondFactorRow {
                sealed_secret: row.try_get("sealed")?,
                last_step: row.try_get("last_step")?,
                recovery_codes: row.try_get::<i64, _>("codes")?.unsigned_abs(),
            })
        };
        self.fetch_optional("looking up a second factor", query.bind(user.as_str()), from_row).await
    }

    async fn add_second_factor(
        &self,
        audit: &AuditContext,
        user: &UserId,
        factor: &NewSecondFactor,
        kept_session: &SessionId,
    ) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let insert =
                sql("INSERT INTO second_factors (user_id, sealed, last_step, created_at) VALUES ($1, $2, $3, $4) \
                 ON CONFLICT DO NOTHING");
            let insert = insert.bind(user.as_str()).bind(&factor.sealed_secret).bind(factor.last_step);
            let inserted = insert.bind(audit.at.to_string()).execute(&mut *transaction).await?;
            if inserted == 0 {
                return Ok(rollback(false));
            }
            insert_codes(transaction, user, &factor.recovery_codes).await?;
            // The other sessions were opened without the second factor.
            sql("DELETE FROM sessions WHERE user_id = $1 AND id <> $2")
                .bind(user.as_str())
                .bind(kept_session.as_str())
                .execute(&mut *transaction)
                .await?;
            let user = users::get_even_if_deleted(transaction, user).await?;
            audit_trail::write(transaction, audit, AuditEvent::for_user("factor.add", &user)).await?;
            true
        })
        .map_err(during("storing a second factor"))
    }

    async fn replace_recovery_codes(
        &self,
        audit: &AuditContext,
        user: &UserId,
        codes: &[SecretHash],
    ) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let user = users::get_even_if_deleted(transaction, user).await?;
            if !user.has_second_factor {
                return Ok(rollback(false));
            }
            delete_codes(transaction, &user.id).await?;
            insert_codes(transaction, &user.id, codes).await?;
            audit_trail::write(transaction, audit, AuditEvent::for_user("factor.codes", &user)).await?;
            true
        })
        .map_err(during("storing recovery codes"))
    }

    async fn remove_second_factor(&self, audit: &AuditContext, user: &UserId) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            delete_codes(transaction, user).await?;
            let query = sql("DELETE FROM second_factors WHERE user_id = $1").bind(user.as_str());
            if query.execute(&mut *transaction).await? == 0 {
                return Ok(rollback(false));
            }
            let user = users::get_even_if_deleted(transaction, user).await?;
            audit_trail::write(transaction, audit, AuditEvent::for_user("factor.remove", &user)).await?;
            true
        })
        .map_err(during("removing a second factor"))
    }
}

/// Uses a code, and returns the word for its kind; `None` if it was used before, or no longer exists. The transaction
/// makes it impossible to use a code twice, on whatever node.
pub(super) async fn consume(
    connection: &mut SqlConnection,
    user: &UserId,
    factor: &FactorUse,
) -> sqlx::Result<Option<&'static str>> {
    let (result, word) = match factor {
        FactorUse::Step(step) => {
            let update = "UPDATE second_factors SET last_step = $2 WHERE user_id = $1 AND last_step < $2";
            (sql(update).bind(user.as_str()).bind(step).execute(connection).await?, "code")
        }
        FactorUse::RecoveryCode(hash) => {
            let delete = sql("DELETE FROM recovery_codes WHERE user_id = $1 AND hash = $2");
            (delete.bind(user.as_str()).bind(hash.0.as_slice()).execute(connection).await?, "recovery code")
        }
    };
    Ok((result == 1).then_some(word))
}

/// Returns the details of an event of a session: the second factor that was used, and the issuer that has identified the
/// user, if there are any.
pub(super) fn details(session: &SessionId, factor: Option<&str>, issuer: Option<&str>) -> Value {
    let mut details = json!({ "session": session });
    for (name, value) in [("factor", factor), ("issuer", issuer)] {
        if let Some(value) = value {
            details[name] = value.into();
        }
    }
    details
}

async fn insert_codes(connection: &mut SqlConnection, user: &UserId, codes: &[SecretHash]) -> sqlx::Result<()> {
    for code in codes {
        sql("INSERT INTO recovery_codes (user_id, hash) VALUES ($1, $2)")
            .bind(user.as_str())
            .bind(code.0.as_slice())
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}

async fn delete_codes(connection: &mut SqlConnection, user: &UserId) -> sqlx::Result<()> {
    sql("DELETE FROM recovery_codes WHERE user_id = $1").bind(user.as_str()).execute(connection).await?;
    Ok(())
}
