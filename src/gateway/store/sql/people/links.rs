//! The statements for one-time links. The transaction that uses a link deletes its row, so a link is used only once.

use async_trait::async_trait;
use serde_json::json;

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent};
use super::super::decode::parsed;
use super::super::driver::{SqlConnection, SqlRow};
use super::super::error_conversion::during;
use super::super::keys;
use super::super::statement::sql;
use super::super::transaction::{rollback, transact};
use super::{sessions, users};
use crate::gateway::store::{
    AuditContext, LinkRedemption, LinkRow, LinkStore, NewLink, NewUser, OneTimeLinkPurpose, SecretHash, StoreError,
    Timestamp, UserId, UserRole, UserRow,
};

/// The milestone that ends the setup: after it, no link can create a first admin.
const SETUP_MILESTONE: &str = "set_up";

#[async_trait]
impl LinkStore for SqlStore {
    async fn is_set_up(&self) -> Result<bool, StoreError> {
        sql("SELECT EXISTS (SELECT 1 FROM milestones WHERE name = $1)")
            .bind(SETUP_MILESTONE)
            .fetch_value(&self.readers)
            .await
            .map_err(during("looking for an admin"))
    }

    async fn make_setup_link(&self, audit: &AuditContext, link: &NewLink) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            if !is_setup_open(&mut *transaction).await? {
                return Ok(rollback(false));
            }
            delete_setup_links(&mut *transaction).await?;
            insert(transaction, audit, OneTimeLinkPurpose::Setup, None, link).await?;
            let event =
                AuditEvent::without_target("setup.link", "setup").with_details(json!({"expires_at": link.expires_at}));
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("storing a link"))
    }

    async fn make_reset_link(&self, audit: &AuditContext, user: &UserId, link: &NewLink) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let user = users::find(transaction, user.as_str()).await?.filter(|user| user.disabled_at.is_none());
            let Some(user) = user else { return Ok(rollback(false)) };
            sql("DELETE FROM links WHERE user_id = $1").bind(user.id.as_str()).execute(&mut *transaction).await?;
            insert(transaction, audit, OneTimeLinkPurpose::Reset, Some(&user.id), link).await?;
            let event = AuditEvent::for_user("user.reset", &user).with_details(json!({"expires_at": link.expires_at}));
            audit_trail::write(transaction, audit, event).await?;
            true
        })
        .map_err(during("storing a link"))
    }

    async fn find_link(&self, hash: &SecretHash, now: Timestamp) -> Result<Option<LinkRow>, StoreError> {
        let lookup = async { find(&mut *self.readers.acquire().await?, hash, now).await };
        lookup.await.map_err(during("looking up a link"))
    }

    async fn redeem_link(
        &self,
        audit: &AuditContext,
        redemption: &LinkRedemption,
    ) -> Result<Option<UserRow>, StoreError> {
        let new_id = &UserId::random()?;
        transact!(self.writer.begin_change(), |transaction| {
            let Some(link) = find(transaction, &redemption.link, audit.at).await? else {
                return Ok(rollback(None));
            };
            let (user, action) = match (link.user, &redemption.name) {
                (Some(user), None) => {
                    let action = if user.has_password { "user.password" } else { "user.join" };
                    (user, action)
                }
                (None, Some(name)) if is_setup_open(&mut *transaction).await? => {
                    (create_first_admin(transaction, audit, new_id, name).await?, "setup.done")
                }
                _ => return Ok(rollback(None)),
            };
            sql("UPDATE users SET password = $2 WHERE id = $1")
                .bind(user.id.as_str())
                .bind(&redemption.password.0)
                .execute(&mut *transaction)
                .await?;
            for statement in ["DELETE FROM links WHERE user_id = $1", "DELETE FROM sessions WHERE user_id = $1"] {
                sql(statement).bind(user.id.as_str()).execute(&mut *transaction).await?;
            }
            let context = AuditContext { user: Some(user.id.clone()), name: user.name.clone(), ..audit.clone() };
            let event = AuditEvent::for_user(action, &user).with_details(json!({"by": link.purpose.as_str()}));
            audit_trail::write(transaction, &context, event).await?;
            if user.role == UserRole::Admin {
                complete_setup(transaction, &context, &user).await?;
            }
            // A link proves no more than a password does.
            if !user.has_second_factor {
                sessions::open(transaction, &context, &user, &redemption.session, (None, None)).await?;
            }
            Some(users::get_even_if_deleted(transaction, &user.id).await?)
        })
        .map_err(during("using a link"))
    }
}

async fn is_setup_open(connection: &mut SqlConnection) -> sqlx::Result<bool> {
    let query = sql("SELECT NOT EXISTS (SELECT 1 FROM milestones WHERE name = $1)");
    query.bind(SETUP_MILESTONE).fetch_value(connection).await
}

/// Ends the setup, because there is an admin who can sign in. The first such admin receives the keys that belong to no
/// person.
pub(super) async fn complete_setup(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    admin: &UserRow,
) -> sqlx::Result<()> {
    let milestone = sql("INSERT INTO milestones (name, reached_at) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    let inserted = milestone.bind(SETUP_MILESTONE).bind(audit.at.to_string()).execute(&mut *connection).await?;
    if inserted > 0 {
        keys::assign_unowned_keys(connection, audit, admin).await?;
    }
    delete_setup_links(connection).await
}

async fn delete_setup_links(connection: &mut SqlConnection) -> sqlx::Result<()> {
    sql("DELETE FROM links WHERE purpose = 'setup'").execute(connection).await?;
    Ok(())
}

pub(super) async fn insert(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    purpose: OneTimeLinkPurpose,
    user: Option<&UserId>,
    link: &NewLink,
) -> sqlx::Result<()> {
    sql("DELETE FROM links WHERE expires_at <= $1").bind(audit.at.to_string()).execute(&mut *connection).await?;
    sql("INSERT INTO links (hash, purpose, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)")
        .bind(link.hash.0.as_slice())
        .bind(purpose.as_str())
        .bind(user.map(|user| user.as_str()))
        .bind(audit.at.to_string())
        .bind(link.expires_at.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn find(
    connection: &mut SqlConnection,
    hash: &SecretHash,
    now: Timestamp,
) -> sqlx::Result<Option<LinkRow>> {
    let query = sql("SELECT purpose, user_id FROM links WHERE hash = $1 AND expires_at > $2");
    let row: Option<SqlRow> =
        query.bind(hash.0.as_slice()).bind(now.to_string()).fetch_optional(&mut *connection).await?;
    let Some(row) = row else { return Ok(None) };
    let user: Option<String> = row.try_get("user_id")?;
    let user = match user {
        Some(id) => Some(users::get_even_if_deleted(connection, &UserId::from(id)).await?),
        None => None,
    };
    // A disabled user has no links; this check also covers a link that was left by mistake.
    let is_valid = user.as_ref().is_none_or(|user| user.disabled_at.is_none());
    Ok(is_valid.then_some(LinkRow { purpose: parsed(&row, "purpose")?, user }))
}

/// Creates the first admin. The holder of the link that `serve` has printed controls the machine, so an existing user
/// of that name, whom a command has created as the owner of keys, becomes the admin.
async fn create_first_admin(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    new_id: &UserId,
    name: &str,
) -> sqlx::Result<UserRow> {
    let Some(user) = users::find_by_name(connection, name).await? else {
        let new_user = NewUser {
            name: name.to_owned(),
            role: UserRole::Admin,
            groups: vec![users::DEFAULT_GROUP.to_owned()],
            limits: None,
        };
        users::insert(connection, audit, new_id, &new_user).await?;
        users::set_groups(connection, new_id, &new_user.groups).await?;
        return users::get_even_if_deleted(connection, new_id).await;
    };
    sql("UPDATE users SET role = 'admin', disabled_at = NULL WHERE id = $1")
        .bind(user.id.as_str())
        .execute(&mut *connection)
        .await?;
    users::get_even_if_deleted(connection, &user.id).await
}
