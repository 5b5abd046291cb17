//! The statements for the identities of people at a provider.

use async_trait::async_trait;
use serde_json::json;

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::decode::{parsed, text};
use super::super::driver::{SqlConnection, SqlPool, SqlRow};
use super::super::error_conversion::during;
use super::super::statement::sql;
use super::super::transaction::{perform, rollback, transact};
use super::users;
use crate::gateway::store::{
    AuditContext, IdentityRow, IdentityStore, NewIdentity, NewUser, SessionId, StoreError, UserId, UserRole, UserRow,
};

#[async_trait]
impl IdentityStore for SqlStore {
    async fn find_user_of_identity(&self, issuer: &str, subject: &str) -> Result<Option<UserRow>, StoreError> {
        perform("looking up an identity", async {
            let mut connection = self.readers.acquire().await?;
            let query = sql("SELECT user_id FROM identities WHERE issuer = $1 AND subject = $2");
            let user: Option<String> = query.bind(issuer).bind(subject).fetch_optional_value(&mut *connection).await?;
            match user {
                Some(user) => users::get_even_if_deleted(&mut *connection, &UserId::from(user)).await.map(Some),
                None => Ok(None),
            }
        })
        .await
    }

    async fn find_identity(&self, user: &UserId) -> Result<Option<IdentityRow>, StoreError> {
        let query = sql("SELECT issuer, subject, name, created_at FROM identities WHERE user_id = $1");
        let from_row = |row: &SqlRow| {
            Ok(IdentityRow {
                issuer: text(row, "issuer")?,
                subject: text(row, "subject")?,
                name: text(row, "name")?,
                created_at: parsed(row, "created_at")?,
            })
        };
        self.fetch_optional("looking up an identity", query.bind(user.as_str()), from_row).await
    }

    async fn connect_identity(
        &self,
        audit: &AuditContext,
        of: (&UserId, &SessionId),
        identity: &NewIdentity,
    ) -> Result<bool, StoreError> {
        let (user, session) = of;
        transact!(self.writer.begin_change(), |transaction| {
            // The provider takes some time, and an admin may have ended the session meanwhile.
            let is_open = sql("SELECT EXISTS (SELECT 1 FROM sessions JOIN users ON users.id = sessions.user_id \
                 WHERE sessions.id = $1 AND users.id = $2 AND users.disabled_at IS NULL)");
            let is_open: bool =
                is_open.bind(session.as_str()).bind(user.as_str()).fetch_value(&mut *transaction).await?;
            if !is_open {
                return Ok(rollback(false));
            }
            let former = sql("DELETE FROM identities WHERE user_id = $1 AND issuer <> $2");
            let former = former.bind(user.as_str()).bind(&identity.issuer).execute(&mut *transaction).await?;
            if former > 0 {
                let user = users::get_even_if_deleted(transaction, user).await?;
                audit_trail::write(transaction, audit, AuditEvent::for_user("identity.disconnect", &user)).await?;
            }
            if !insert(transaction, audit, user, identity).await? {
                return Ok(rollback(false));
            }
            true
        })
        .map_err(during("storing an identity"))
    }

    async fn create_user_with_identity(
        &self,
        audit: &AuditContext,
        name: &str,
        identity: &NewIdentity,
    ) -> Result<Option<UserRow>, StoreError> {
        let user = (UserId::random()?, name);
        create_user(&self.writer, audit, user, identity).await.map_err(during("storing a user"))
    }

    async fn disconnect_identity(
        &self,
        audit: &AuditContext,
        user: &UserId,
        kept_session: Option<&SessionId>,
    ) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let delete = sql("DELETE FROM identities WHERE user_id = $1").bind(user.as_str());
            if delete.execute(&mut *transaction).await? == 0 {
                return Ok(rollback(false));
            }
            sql("DELETE FROM sessions WHERE user_id = $1 AND id <> $2")
                .bind(user.as_str())
                .bind(kept_session.map_or("", |session| session.as_str()))
                .execute(&mut *transaction)
                .await?;
            let user = users::get_even_if_deleted(transaction, user).await?;
            audit_trail::write(transaction, audit, AuditEvent::for_user("identity.disconnect", &user)).await?;
            true
        })
        .map_err(during("removing an identity"))
    }
}

pub(super) async fn create_user(
    pool: &SqlPool,
    audit: &AuditContext,
    (new_id, name): (UserId, &str),
    identity: &NewIdentity,
) -> sqlx::Result<Option<UserRow>> {
    transact!(pool.begin_change(), |transaction| {
        if users::find_by_name(transaction, name).await?.is_some() {
            return Ok(rollback(None));
        }
        let groups = vec![users::DEFAULT_GROUP.to_owned()];
        let user = NewUser { name: name.to_owned(), role: UserRole::Member, groups, limits: None };
        users::insert(transaction, audit, &new_id, &user).await?;
        users::set_groups(transaction, &new_id, &user.groups).await?;
        let created = users::get_even_if_deleted(transaction, &new_id).await?;
        audit_trail::write(transaction, audit, AuditEvent::for_user("user.create", &created)).await?;
        if !insert(transaction, audit, &new_id, identity).await? {
            return Ok(rollback(None));
        }
        Some(users::get_even_if_deleted(transaction, &new_id).await?)
    })
}

/// True if this identity is that of the user.
pub(super) async fn is_of_user(
    connection: &mut SqlConnection,
    user: &UserId,
    issuer: &str,
    subject: &str,
) -> sqlx::Result<bool> {
    let query = sql("SELECT EXISTS (SELECT 1 FROM identities WHERE user_id = $1 AND issuer = $2 AND subject = $3)");
    query.bind(user.as_str()).bind(issuer).bind(subject).fetch_value(connection).await
}

/// Adds an identity, unless the user has one already, or it is that of another user.
async fn insert(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    user: &UserId,
    identity: &NewIdentity,
) -> sqlx::Result<bool> {
    let insert =
        sql("INSERT INTO identities (user_id, issuer, subject, name, created_at) VALUES ($1, $2, $3, $4, $5) \
         ON CONFLICT DO NOTHING");
    let insert = insert.bind(user.as_str()).bind(&identity.issuer).bind(&identity.subject).bind(&identity.name);
    if insert.bind(audit.at.to_string()).execute(&mut *connection).await? == 0 {
        return Ok(false);
    }
    let user = users::get_even_if_deleted(connection, user).await?;
    let details = json!({ "issuer": identity.issuer, "subject": identity.subject });
    audit_trail::write(connection, audit, AuditEvent::for_user("identity.connect", &user).with_details(details))
        .await?;
    Ok(true)
}
