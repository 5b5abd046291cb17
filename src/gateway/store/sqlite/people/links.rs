//! The statements for one-time links. A link is used by the transaction that deletes its row, and by no other.

use serde_json::json;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{sessions, users};
use crate::gateway::store::sqlite::decode::parsed;
use crate::gateway::store::sqlite::keys;
use crate::gateway::store::sqlite::together::transact;
use crate::gateway::store::sqlite::trail::{self, AuditEvent};
use crate::gateway::store::{
    AuditContext, LinkRedemption, LinkRow, NewLink, NewUser, OneTimeLinkPurpose, SecretHash, Timestamp, UserId,
    UserRole, UserRow,
};

/// The milestone after which no link can make a first admin.
const SET_UP: &str = "set_up";

pub(super) async fn is_set_up(pool: &SqlitePool) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM milestones WHERE name = $1)").bind(SET_UP).fetch_one(pool).await
}

async fn is_open(connection: &mut SqliteConnection) -> sqlx::Result<bool> {
    let query = sqlx::query_scalar("SELECT NOT EXISTS (SELECT 1 FROM milestones WHERE name = $1)");
    query.bind(SET_UP).fetch_one(connection).await
}

/// Notes that there is an admin who can sign in. The first one receives the keys without an owner.
pub(super) async fn note_set_up(
    connection: &mut SqliteConnection,
    act: &AuditContext,
    admin: &UserRow,
) -> sqlx::Result<()> {
    let milestone = sqlx::query("INSERT INTO milestones (name, reached_at) VALUES ($1, $2) ON CONFLICT DO NOTHING");
    let noted = milestone.bind(SET_UP).bind(act.at.to_string()).execute(&mut *connection).await?;
    if noted.rows_affected() > 0 {
        keys::hand_over(connection, act, admin).await?;
    }
    forget_setup(connection).await
}

async fn forget_setup(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM links WHERE purpose = 'setup'").execute(connection).await?;
    Ok(())
}

pub(super) async fn make_setup(pool: &SqlitePool, act: &AuditContext, link: &NewLink) -> sqlx::Result<bool> {
    transact!(pool, |transaction| {
        if !is_open(&mut transaction).await? {
            return Ok(false);
        }
        forget_setup(&mut transaction).await?;
        insert(&mut transaction, act, OneTimeLinkPurpose::Setup, None, link).await?;
        let entry = AuditEvent::nameless("setup.link", "setup").with(json!({"expires_at": link.expires_at}));
        trail::write(&mut transaction, act, entry).await?;
        true
    })
}

pub(super) async fn make_reset(
    pool: &SqlitePool,
    act: &AuditContext,
    user: &UserId,
    link: &NewLink,
) -> sqlx::Result<bool> {
    transact!(pool, |transaction| {
        let user = users::find(&mut transaction, user.as_str()).await?.filter(|user| user.disabled_at.is_none());
        let Some(user) = user else { return Ok(false) };
        sqlx::query("DELETE FROM links WHERE user_id = $1").bind(user.id.as_str()).execute(&mut *transaction).await?;
        insert(&mut transaction, act, OneTimeLinkPurpose::Reset, Some(&user.id), link).await?;
        let entry = AuditEvent::user("user.reset", &user).with(json!({"expires_at": link.expires_at}));
        trail::write(&mut transaction, act, entry).await?;
        true
    })
}

pub(super) async fn insert(
    connection: &mut SqliteConnection,
    act: &AuditContext,
    purpose: OneTimeLinkPurpose,
    user: Option<&UserId>,
    link: &NewLink,
) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM links WHERE expires_at <= $1").bind(act.at.to_string()).execute(&mut *connection).await?;
    sqlx::query("INSERT INTO links (hash, purpose, user_id, created_at, expires_at) VALUES ($1, $2, $3, $4, $5)")
        .bind(link.hash.0.as_slice())
        .bind(purpose.as_str())
        .bind(user.map(|user| user.as_str()))
        .bind(act.at.to_string())
        .bind(link.expires_at.to_string())
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) async fn find(
    connection: &mut SqliteConnection,
    hash: &SecretHash,
    now: Timestamp,
) -> sqlx::Result<Option<LinkRow>> {
    let query = sqlx::query("SELECT purpose, user_id FROM links WHERE hash = $1 AND expires_at > $2");
    let row: Option<SqliteRow> =
        query.bind(hash.0.as_slice()).bind(now.to_string()).fetch_optional(&mut *connection).await?;
    let Some(row) = row else { return Ok(None) };
    let user: Option<String> = row.try_get("user_id")?;
    let user = match user {
        Some(id) => Some(users::again(connection, &UserId::from(id)).await?),
        None => None,
    };
    // A disabled user has no links; this check also covers one that was left by mistake.
    let good = user.as_ref().is_none_or(|user| user.disabled_at.is_none());
    Ok(good.then_some(LinkRow { purpose: parsed(&row, "purpose")?, user }))
}

pub(super) async fn redeem(
    pool: &SqlitePool,
    act: &AuditContext,
    fresh: &UserId,
    redeemed: &LinkRedemption,
) -> sqlx::Result<Option<UserRow>> {
    transact!(pool, |transaction| {
        let Some(link) = find(&mut transaction, &redeemed.link, act.at).await? else { return Ok(None) };
        let (user, action) = match (link.user, &redeemed.name) {
            (Some(user), None) => {
                let action = if user.has_password { "user.password" } else { "user.join" };
                (user, action)
            }
            (None, Some(name)) if is_open(&mut transaction).await? => {
                (first_admin(&mut transaction, act, fresh, name).await?, "setup.done")
            }
            _ => return Ok(None),
        };
        sqlx::query("UPDATE users SET password = $2 WHERE id = $1")
            .bind(user.id.as_str())
            .bind(&redeemed.password.0)
            .execute(&mut *transaction)
            .await?;
        for statement in ["DELETE FROM links WHERE user_id = $1", "DELETE FROM sessions WHERE user_id = $1"] {
            sqlx::query(statement).bind(user.id.as_str()).execute(&mut *transaction).await?;
        }
        let act = AuditContext { user: Some(user.id.clone()), name: user.name.clone(), ..act.clone() };
        let entry = AuditEvent::user(action, &user).with(json!({"by": link.purpose.as_str()}));
        trail::write(&mut transaction, &act, entry).await?;
        if user.role == UserRole::Admin {
            note_set_up(&mut transaction, &act, &user).await?;
        }
        sessions::open(&mut transaction, &act, &user, &redeemed.session).await?;
        Some(users::again(&mut transaction, &user.id).await?)
    })
}

/// Makes the first admin. The holder of the link that `serve` has printed controls the machine, so an existing user of
/// that name, made by a command for its keys, becomes the admin.
async fn first_admin(
    connection: &mut SqliteConnection,
    act: &AuditContext,
    fresh: &UserId,
    name: &str,
) -> sqlx::Result<UserRow> {
    let Some(user) = users::find_by_name(connection, name).await? else {
        let new =
            NewUser { name: name.to_owned(), role: UserRole::Admin, groups: vec![users::DEFAULT_GROUP.to_owned()] };
        users::insert(connection, act, fresh, &new).await?;
        users::put_into_groups(connection, fresh, &new.groups).await?;
        return users::again(connection, fresh).await;
    };
    sqlx::query("UPDATE users SET role = 'admin', disabled_at = NULL WHERE id = $1")
        .bind(user.id.as_str())
        .execute(&mut *connection)
        .await?;
    users::again(connection, &user.id).await
}
