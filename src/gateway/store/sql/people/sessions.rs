//! The statements for sessions, and for the networks from which a user has signed in before.

use async_trait::async_trait;
use std::time::Duration;

use serde_json::json;

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::decode::{parsed, text};
use super::super::driver::{SqlConnection, SqlRow};
use super::super::error_conversion::during;
use super::super::statement::{SqlText, indexed, sql};
use super::super::transaction::{perform, rollback, transact};
use super::{identities, second_factors, users};
use crate::gateway::store::{
    AuditContext, FactorUse, NewSession, SecretHash, SessionId, SessionRow, SessionStore, SignInProof, StoreError,
    Timestamp, UserId, UserRow,
};

const DAY: Duration = Duration::from_secs(86_400);

/// The most refused sign-ins of 24 hours that leave rows in the audit trail (our choice), because anybody can cause them
/// without a key or a password. Unknown names share one limit, so that they cannot hide attempts on a user.
pub(in super::super::super) const UNKNOWN_USER_REFUSALS_PER_DAY: i64 = 500;
pub(in super::super::super) const USER_REFUSALS_PER_DAY: i64 = 50;

/// A query that returns true if more than `$2` sign-ins of the user `$1` were refused after the time `$3`.
pub(in super::super::super) const REFUSAL_LIMIT_REACHED: SqlText = indexed!(
    "SELECT EXISTS (SELECT 1 FROM (SELECT at FROM audit",
    "audit_refusals",
    " WHERE action = 'session.refuse' AND target_id IS NOT DISTINCT FROM $1 ORDER BY seq DESC LIMIT 1 OFFSET $2) AS refused WHERE at > $3)"
);

/// The most networks of one user that are remembered (our choice).
const KNOWN_NETWORKS_MAX: i64 = 64;

#[async_trait]
impl SessionStore for SqlStore {
    async fn open_session(
        &self,
        audit: &AuditContext,
        user: &UserId,
        proof: &SignInProof,
        session: &NewSession,
    ) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql("SELECT EXISTS (SELECT 1 FROM users WHERE id = $1 AND password IS NOT DISTINCT FROM $2 \
                 AND disabled_at IS NULL)");
            let password = proof.password.as_ref().map(|hash| hash.0.as_str());
            // The password may have been changed while it was checked, which takes some time.
            let is_unchanged: bool = query.bind(user.as_str()).bind(password).fetch_value(&mut *transaction).await?;
            if !is_unchanged {
                return Ok(rollback(false));
            }
            if let Some((issuer, subject)) = &proof.identity
                && !identities::is_of_user(transaction, user, issuer, subject).await?
            {
                return Ok(rollback(false));
            }
            let user = users::get_even_if_deleted(transaction, user).await?;
            let Some(factor) = use_factor(transaction, &user, proof.factor.as_ref()).await? else {
                return Ok(rollback(false));
            };
            let issuer = proof.identity.as_ref().map(|(issuer, _)| issuer.as_str());
            open(transaction, audit, &user, session, (factor, issuer)).await?;
            true
        })
        .map_err(during("opening a session"))
    }

    async fn record_refused_sign_in(&self, audit: &AuditContext, user: Option<&UserRow>) -> Result<(), StoreError> {
        const ACTION: &str = "session.refuse";
        let event =
            user.map_or_else(|| AuditEvent::without_target(ACTION, "user"), |user| AuditEvent::for_user(ACTION, user));
        let (target, max_refusals) =
            user.map_or((None, UNKNOWN_USER_REFUSALS_PER_DAY), |user| (Some(user.id.as_str()), USER_REFUSALS_PER_DAY));
        transact!(self.writer.begin_change(), |transaction| {
            let query =
                sql(REFUSAL_LIMIT_REACHED).bind(target).bind(max_refusals - 1).bind((audit.at - DAY).to_string());
            let is_limit_reached: bool = query.fetch_value(&mut *transaction).await?;
            if !is_limit_reached {
                audit_trail::write(transaction, audit, event).await?;
            }
        })
        .map_err(during("storing a refused sign-in"))
    }

    async fn find_session(&self, hash: &SecretHash) -> Result<Option<(SessionRow, UserRow)>, StoreError> {
        perform("looking up a session", async {
            let mut connection = self.readers.acquire().await?;
            let query = sql("SELECT * FROM sessions WHERE hash = $1").bind(hash.0.as_slice());
            let Some(row) = query.fetch_optional(&mut *connection).await? else { return Ok(None) };
            let session = session_from_row(&row)?;
            let user = users::get_even_if_deleted(&mut *connection, &session.user).await?;
            Ok(Some((session, user)))
        })
        .await
    }

    async fn record_session_use(&self, id: &SessionId, at: Timestamp) -> Result<(), StoreError> {
        let update = sql("UPDATE sessions SET last_seen_at = $2 WHERE id = $1 AND last_seen_at < $2");
        let update = update.bind(id.as_str()).bind(at.to_string());
        self.execute_change("storing the use of a session", update).await.map(drop)
    }

    async fn list_sessions(&self, user: &UserId) -> Result<Vec<SessionRow>, StoreError> {
        let query = sql("SELECT * FROM sessions WHERE user_id = $1 ORDER BY created_at DESC, rowid DESC");
        self.fetch_all("listing sessions", query.bind(user.as_str()), session_from_row).await
    }

    async fn record_session_proof(
        &self,
        audit: &AuditContext,
        id: &SessionId,
        factor: Option<&FactorUse>,
    ) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql("UPDATE sessions SET proved_at = $2 WHERE id = $1 RETURNING user_id");
            let user: Option<String> =
                query.bind(id.as_str()).bind(audit.at.to_string()).fetch_optional_value(&mut *transaction).await?;
            let Some(user) = user else { return Ok(rollback(false)) };
            let user = users::get_even_if_deleted(transaction, &UserId::from(user)).await?;
            let Some(factor) = use_factor(transaction, &user, factor).await? else { return Ok(rollback(false)) };
            let event =
                AuditEvent::for_user("session.confirm", &user).with_details(second_factors::details(id, factor, None));
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("storing the proof of a session"))
    }

    async fn end_session(&self, audit: &AuditContext, user: &UserId, id: &SessionId) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql("DELETE FROM sessions WHERE id = $1 AND user_id = $2");
            let ended = query.bind(id.as_str()).bind(user.as_str()).execute(&mut *transaction).await?;
            if ended == 0 {
                return Ok(rollback(false));
            }
            let user = users::get_even_if_deleted(transaction, user).await?;
            let event = AuditEvent::for_user("session.close", &user).with_details(json!({"session": id}));
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("ending a session"))
    }

    async fn end_sessions(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept: Option<&SessionId>,
    ) -> Result<u64, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql("DELETE FROM sessions WHERE user_id = $1 AND id <> coalesce($2, '')");
            let query = query.bind(user.as_str()).bind(kept.map(|session| session.as_str()));
            let ended = query.execute(&mut *transaction).await?;
            let user = users::get_even_if_deleted(transaction, user).await?;
            let action = if kept.is_none() { "session.close_all" } else { "session.close_others" };
            let event = AuditEvent::for_user(action, &user).with_details(json!({"sessions": ended}));
            audit_trail::write(transaction, audit, event).await?;
            ended
        })
        .map_err(during("ending sessions"))
    }

    async fn has_signed_in_from(&self, user: &UserId, network: &str) -> Result<bool, StoreError> {
        let query = sql("SELECT EXISTS (SELECT 1 FROM known_addresses WHERE user_id = $1 AND address = $2)");
        query
            .bind(user.as_str())
            .bind(network)
            .fetch_value(&self.readers)
            .await
            .map_err(during("looking up an address"))
    }
}

/// Uses the second factor up, and returns the word for its kind, if the user has one. `None` if it is missing, or was
/// used before.
async fn use_factor(
    connection: &mut SqlConnection,
    user: &UserRow,
    factor: Option<&FactorUse>,
) -> sqlx::Result<Option<Option<&'static str>>> {
    match factor {
        Some(factor) => Ok(second_factors::consume(connection, &user.id, factor).await?.map(Some)),
        None => Ok((!user.has_second_factor).then_some(None)),
    }
}

pub(super) async fn open(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    user: &UserRow,
    session: &NewSession,
    (factor, issuer): (Option<&str>, Option<&str>),
) -> sqlx::Result<()> {
    let at = audit.at.to_string();
    sql("DELETE FROM sessions WHERE last_seen_at < $1 OR created_at < $2")
        .bind(session.last_use_cutoff.to_string())
        .bind(session.opening_cutoff.to_string())
        .execute(&mut *connection)
        .await?;
    sql("INSERT INTO sessions (id, hash, user_id, created_at, last_seen_at, proved_at, address, agent) \
         VALUES ($1, $2, $3, $4, $4, $7, $5, $6)")
    .bind(session.id.as_str())
    .bind(session.hash.0.as_slice())
    .bind(user.id.as_str())
    .bind(&at)
    .bind(&session.address)
    .bind(&session.agent)
    .bind(session.proved_at.to_string())
    .execute(&mut *connection)
    .await?;
    sql("UPDATE users SET last_sign_in_at = $2 WHERE id = $1")
        .bind(user.id.as_str())
        .bind(&at)
        .execute(&mut *connection)
        .await?;
    remember_network(connection, &user.id, &session.network, &at).await?;
    let event =
        AuditEvent::for_user("session.open", user).with_details(second_factors::details(&session.id, factor, issuer));
    audit_trail::write(connection, audit, event).await
}

async fn remember_network(connection: &mut SqlConnection, user: &UserId, network: &str, at: &str) -> sqlx::Result<()> {
    sql("INSERT INTO known_addresses (user_id, address, last_at) VALUES ($1, $2, $3) \
         ON CONFLICT (user_id, address) DO UPDATE SET last_at = excluded.last_at")
    .bind(user.as_str())
    .bind(network)
    .bind(at)
    .execute(&mut *connection)
    .await?;
    sql("DELETE FROM known_addresses WHERE user_id = $1 AND address NOT IN \
         (SELECT address FROM known_addresses WHERE user_id = $1 ORDER BY last_at DESC LIMIT $2)")
    .bind(user.as_str())
    .bind(KNOWN_NETWORKS_MAX)
    .execute(connection)
    .await?;
    Ok(())
}

fn session_from_row(row: &SqlRow) -> sqlx::Result<SessionRow> {
    Ok(SessionRow {
        id: text(row, "id")?,
        user: text(row, "user_id")?,
        created_at: parsed(row, "created_at")?,
        proved_at: parsed(row, "proved_at")?,
        last_seen_at: parsed(row, "last_seen_at")?,
        address: text(row, "address")?,
        agent: text(row, "agent")?,
    })
}
