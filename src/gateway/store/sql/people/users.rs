//! The statements for users.

use async_trait::async_trait;
use serde_json::json;

use super::super::SqlStore;
use super::super::audit_trail::{self, AuditEvent, limits_as_json};
use super::super::decode::{list, optional_timestamp, parsed, text};
use super::super::driver::{SqlConnection, SqlRow};
use super::super::error_conversion::during;
use super::super::keys;
use super::super::paging::{ListOrder, fetch_count, push_contains, split_page};
use super::super::statement::{StatementBuilder, sql};
use super::super::transaction::{perform, rollback, transact};
use super::{groups, links};
use crate::gateway::names;
use crate::gateway::store::{
    AuditContext, ListPage, NewLink, NewUser, OneTimeLinkPurpose, PasswordHash, SessionId, StoreError, UserChange,
    UserChangeOutcome, UserFilter, UserId, UserRole, UserRow, UserSort, UserStore,
};

/// The group of a new user if no group is given.
pub(super) const DEFAULT_GROUP: &str = "default";

macro_rules! select_users {
    ($clauses:literal) => {
        concat!(
            "SELECT users.id, users.name, users.role, users.created_at, users.disabled_at, users.last_sign_in_at, ",
            "users.limits, ",
            "users.password IS NOT NULL AS has_password, ",
            "EXISTS (SELECT 1 FROM second_factors WHERE user_id = users.id) AS has_second_factor, ",
            "EXISTS (SELECT 1 FROM identities WHERE user_id = users.id) AS has_identity, ",
            "(SELECT json_group_array(name) FROM (SELECT groups.name FROM user_groups JOIN groups ON groups.id = user_groups.group_id ",
            "WHERE user_groups.user_id = users.id AND groups.deleted_at IS NULL ORDER BY groups.name) AS names) ",
            "AS group_names ",
            "FROM users WHERE users.id <> 'usr_nobody' ",
            $clauses
        )
    };
}

#[async_trait]
impl UserStore for SqlStore {
    async fn ensure_user(&self, audit: &AuditContext, name: &str) -> Result<UserRow, StoreError> {
        let new_id = UserId::random()?;
        perform("storing a user", async {
            // In nearly all cases the user exists, and a read does not wait for a writer.
            if let Some(user) = find_by_name(&mut *self.readers.acquire().await?, name).await? {
                return Ok(user);
            }
            transact!(self.writer.begin_change(), |transaction| {
                if let Some(user) = find_by_name(transaction, name).await? {
                    return Ok(rollback(user));
                }
                let user = NewUser {
                    name: name.to_owned(),
                    role: UserRole::Member,
                    groups: vec![DEFAULT_GROUP.to_owned()],
                    limits: None,
                };
                insert(transaction, audit, &new_id, &user).await?;
                set_groups(transaction, &new_id, &user.groups).await?;
                let user = get_even_if_deleted(transaction, &new_id).await?;
                audit_trail::write(transaction, audit, AuditEvent::for_user("user.create", &user)).await?;
                user
            })
        })
        .await
    }

    async fn find_user(&self, handle: &str) -> Result<Option<UserRow>, StoreError> {
        let lookup = async { find(&mut *self.readers.acquire().await?, handle).await };
        lookup.await.map_err(during("looking up a user"))
    }

    async fn password_hash(&self, id: &UserId) -> Result<Option<PasswordHash>, StoreError> {
        let query = sql("SELECT password FROM users WHERE id = $1").bind(id.as_str());
        let hash = self.fetch_optional("looking up a password", query, |row| row.try_get("password")).await?;
        Ok(hash.flatten().map(PasswordHash))
    }

    async fn list_users_page(&self, filter: &UserFilter) -> Result<ListPage<UserRow>, StoreError> {
        perform("listing users", async {
            let mut count = StatementBuilder::new("SELECT count(*) FROM users WHERE users.id <> 'usr_nobody'");
            push_conditions(&mut count, filter);
            let mut rows = StatementBuilder::new(select_users!(""));
            push_conditions(&mut rows, filter);
            list_order(filter.sort.unwrap_or(UserSort::Created))
                .push(&mut rows, filter.before.as_ref().map(|id| id.as_str()));
            rows.push(" LIMIT ").push_bind(i64::from(filter.limit) + 1);
            let fetched = rows.build().fetch_all(&self.readers).await?;
            let (items, has_more) = split_page(fetched, filter.limit, user_from_row)?;
            Ok(ListPage { items, total: fetch_count(count, &self.readers).await?, has_more })
        })
        .await
    }

    async fn invite_user(
        &self,
        audit: &AuditContext,
        new_user: &NewUser,
        link: &NewLink,
    ) -> Result<UserChangeOutcome, StoreError> {
        let new_id = &UserId::random()?;
        transact!(self.writer.begin_change(), |transaction| {
            insert(transaction, audit, new_id, new_user).await?;
            if let Some(missing) = set_groups(transaction, new_id, &new_user.groups).await? {
                return Ok(rollback(UserChangeOutcome::UnknownGroup(missing)));
            }
            links::insert(transaction, audit, OneTimeLinkPurpose::Invitation, Some(new_id), link).await?;
            let user = get_even_if_deleted(transaction, new_id).await?;
            let details = json!({"role": user.role.as_str(), "groups": user.groups, "expires_at": link.expires_at,
                "limits": limits_as_json(user.limits.as_deref())});
            audit_trail::write(transaction, audit, AuditEvent::for_user("user.invite", &user).with_details(details))
                .await?;
            UserChangeOutcome::Done(user, Vec::new())
        })
        .map_err(during("inviting a user"))
    }

    async fn change_user(
        &self,
        audit: &AuditContext,
        handle: &str,
        changes: &[UserChange],
    ) -> Result<UserChangeOutcome, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let Some(mut user) = find(transaction, handle).await? else {
                return Ok(rollback(UserChangeOutcome::Unknown));
            };
            let mut locked = Vec::new();
            for change in changes {
                if let Some(refused) = change_one(transaction, audit, &user, change).await? {
                    return Ok(rollback(refused));
                }
                let after = get_even_if_deleted(transaction, &user.id).await?;
                let before = std::mem::replace(&mut user, after);
                for left_group in before.groups.iter().filter(|group| !user.groups.contains(group)) {
                    locked.extend(keys::lock_keys_in_group(transaction, audit, &user.id, left_group).await?);
                }
            }
            UserChangeOutcome::Done(user, locked)
        })
        .map_err(during("changing a user"))
    }

    async fn set_password(
        &self,
        audit: &AuditContext,
        user: &UserId,
        password: &PasswordHash,
        kept_session: &SessionId,
    ) -> Result<(), StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            run_statement(transaction, "UPDATE users SET password = $2 WHERE id = $1", user, Some(&password.0)).await?;
            run_statement(
                transaction,
                "DELETE FROM sessions WHERE user_id = $1 AND id <> $2",
                user,
                Some(kept_session.as_str()),
            )
            .await?;
            run_statement(transaction, "DELETE FROM links WHERE user_id = $1 AND $2 IS NULL", user, None).await?;
            let user = get_even_if_deleted(transaction, user).await?;
            audit_trail::write(transaction, audit, AuditEvent::for_user("user.password", &user)).await?;
        })
        .map_err(during("storing a password"))
    }
}

/// Returns the user with that id or, if no user has that id, with that name.
pub(super) async fn find(connection: &mut SqlConnection, handle: &str) -> sqlx::Result<Option<UserRow>> {
    let query = sql(select_users!(
        "AND (users.id = $1 OR users.folded_name = $2 OR users.name = $1) \
         ORDER BY users.id = $1 DESC, users.name = $1 DESC LIMIT 1"
    ));
    let query = query.bind(handle).bind(names::fold(handle));
    query.fetch_optional(connection).await?.map(|row| user_from_row(&row)).transpose()
}

pub(super) async fn find_by_name(connection: &mut SqlConnection, name: &str) -> sqlx::Result<Option<UserRow>> {
    let query = sql(select_users!("AND (users.folded_name = $2 OR users.name = $1)"));
    let query = query.bind(name).bind(names::fold(name));
    query.fetch_optional(connection).await?.map(|row| user_from_row(&row)).transpose()
}

/// Returns a user that is known to exist.
pub(super) async fn get_even_if_deleted(connection: &mut SqlConnection, id: &UserId) -> sqlx::Result<UserRow> {
    user_from_row(&sql(select_users!("AND users.id = $1")).bind(id.as_str()).fetch_one(connection).await?)
}

const fn list_order(sort: UserSort) -> ListOrder {
    let value = match sort {
        UserSort::Created => None,
        UserSort::Name => Some("lower(users.name)"),
        UserSort::LastSignIn => Some("coalesce(users.last_sign_in_at, '')"),
    };
    ListOrder { table: "users", value, is_ascending: matches!(sort, UserSort::Name) }
}

fn push_conditions(query: &mut StatementBuilder, filter: &UserFilter) {
    if let Some(search) = &filter.search {
        push_contains(query.push(" AND "), "users.name", search);
    }
    if let Some(group) = &filter.group {
        query.push(
            " AND users.id IN (SELECT user_id FROM user_groups WHERE group_id = (SELECT id FROM groups WHERE name = ",
        );
        query.push_bind(group.clone()).push(" AND deleted_at IS NULL))");
    }
    if let Some(role) = filter.role {
        query.push(" AND users.role = ").push_bind(role.as_str());
    }
}

pub(super) async fn insert(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    id: &UserId,
    new_user: &NewUser,
) -> sqlx::Result<()> {
    sql("INSERT INTO users (id, name, folded_name, role, created_at, limits) VALUES ($1, $2, $3, $4, $5, $6)")
        .bind(id.as_str())
        .bind(&new_user.name)
        .bind(names::fold(&new_user.name))
        .bind(new_user.role.as_str())
        .bind(audit.at.to_string())
        .bind(&new_user.limits)
        .execute(connection)
        .await?;
    Ok(())
}

/// Sets the groups of a user. Returns the first name that is not a group; the caller must then undo the other changes.
pub(super) async fn set_groups(
    connection: &mut SqlConnection,
    user: &UserId,
    names: &[String],
) -> sqlx::Result<Option<String>> {
    sql("DELETE FROM user_groups WHERE user_id = $1").bind(user.as_str()).execute(&mut *connection).await?;
    for name in names {
        let Some(group) = groups::find_id(&mut *connection, name).await? else { return Ok(Some(name.clone())) };
        let insert = sql("INSERT INTO user_groups (user_id, group_id) VALUES ($1, $2) ON CONFLICT DO NOTHING");
        insert.bind(user.as_str()).bind(group).execute(&mut *connection).await?;
    }
    Ok(None)
}

/// Makes one change. Returns the reason if the change is refused.
async fn change_one(
    connection: &mut SqlConnection,
    audit: &AuditContext,
    user: &UserRow,
    change: &UserChange,
) -> sqlx::Result<Option<UserChangeOutcome>> {
    let removes_admin = matches!(change, UserChange::Role(UserRole::Member) | UserChange::Disable);
    if removes_admin && is_last_admin(connection, user).await? {
        return Ok(Some(UserChangeOutcome::LastAdmin));
    }
    let event = |action| AuditEvent::for_user(action, user);
    let event = match change {
        // A change without effect is skipped.
        UserChange::Role(role) if *role == user.role => return Ok(None),
        UserChange::Groups(names) if is_same_set(names, &user.groups) => return Ok(None),
        UserChange::Disable if user.disabled_at.is_some() => return Ok(None),
        UserChange::Enable if user.disabled_at.is_none() => return Ok(None),
        UserChange::Limit(limits) if *limits == user.limits => return Ok(None),
        UserChange::Role(role) => {
            run_statement(connection, "UPDATE users SET role = $2 WHERE id = $1", &user.id, Some(role.as_str()))
                .await?;
            if *role == UserRole::Admin && user.has_password {
                links::complete_setup(connection, audit, user).await?;
            }
            event("user.role").with_change(user.role.as_str(), role.as_str())
        }
        UserChange::Groups(names) => {
            if let Some(missing) = set_groups(connection, &user.id, names).await? {
                return Ok(Some(UserChangeOutcome::UnknownGroup(missing)));
            }
            event("user.groups").with_change(user.groups.clone(), names.clone())
        }
        UserChange::Disable => {
            let at = audit.at.to_string();
            run_statement(connection, "UPDATE users SET disabled_at = $2 WHERE id = $1", &user.id, Some(&at)).await?;
            run_statement(connection, "DELETE FROM sessions WHERE user_id = $1 AND $2 IS NULL", &user.id, None).await?;
            run_statement(connection, "DELETE FROM links WHERE user_id = $1 AND $2 IS NULL", &user.id, None).await?;
            event("user.disable")
        }
        UserChange::Enable => {
            run_statement(connection, "UPDATE users SET disabled_at = $2 WHERE id = $1", &user.id, None).await?;
            event("user.enable")
        }
        UserChange::Limit(limits) => {
            let statement = "UPDATE users SET limits = $2 WHERE id = $1";
            run_statement(connection, statement, &user.id, limits.as_deref()).await?;
            let [before, after] = [&user.limits, limits].map(|limits| limits_as_json(limits.as_deref()));
            event("user.limit").with_change(before, after)
        }
    };
    audit_trail::write(connection, audit, event).await?;
    Ok(None)
}

fn is_same_set(first: &[String], second: &[String]) -> bool {
    first.iter().all(|name| second.contains(name)) && second.iter().all(|name| first.contains(name))
}

/// Runs a statement with two parameters. A statement that needs only the user tests `$2` for NULL.
async fn run_statement(
    connection: &mut SqlConnection,
    statement: &'static str,
    user: &UserId,
    value: Option<&str>,
) -> sqlx::Result<()> {
    sql(statement).bind(user.as_str()).bind(value).execute(connection).await?;
    Ok(())
}

/// True if this user is the only admin who can sign in.
async fn is_last_admin(connection: &mut SqlConnection, user: &UserRow) -> sqlx::Result<bool> {
    if user.role != UserRole::Admin || !user.has_password || user.disabled_at.is_some() {
        return Ok(false);
    }
    let query = sql(
        "SELECT NOT EXISTS (SELECT 1 FROM users WHERE role = 'admin' AND password IS NOT NULL AND disabled_at IS NULL \
         AND id <> $1)",
    );
    query.bind(user.id.as_str()).fetch_value(connection).await
}

fn user_from_row(row: &SqlRow) -> sqlx::Result<UserRow> {
    Ok(UserRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        role: parsed(row, "role")?,
        groups: list(row, "group_names")?,
        has_password: row.try_get("has_password")?,
        has_second_factor: row.try_get("has_second_factor")?,
        has_identity: row.try_get("has_identity")?,
        created_at: parsed(row, "created_at")?,
        disabled_at: optional_timestamp(row, "disabled_at")?,
        last_sign_in_at: optional_timestamp(row, "last_sign_in_at")?,
        limits: row.try_get("limits")?,
    })
}
