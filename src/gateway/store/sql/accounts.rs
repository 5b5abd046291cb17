//! The rows of upstream accounts. Credentials are stored only as the vault has sealed them.

use async_trait::async_trait;
use serde_json::{Map, Value, json};

use super::SqlStore;
use super::audit_trail::{self, AuditEvent};
use super::decode::{optional_timestamp, parsed, text};
use super::driver::{SqlConnection, SqlRow};
use super::error_conversion::during;
use super::paging::push_json_texts;
use super::statement::{SqlStatement, StatementBuilder, sql};
use super::transaction::{rollback, transact};
use crate::gateway::store::{
    AccountBinding, AccountChange, AccountId, AccountRow, AccountSpec, AccountStore, AuditContext, BindingDigest,
    NewAccount, NewCredentials, SharedSlots, StoreError, StoredAccountSettings, Timestamp, TokenChange,
};

const AUDIT_TARGET_KIND: &str = "account";

#[async_trait]
impl AccountStore for SqlStore {
    async fn sync_account(&self, account: AccountSpec<'_>) -> Result<AccountRow, StoreError> {
        let row = sync(self, AccountId::random()?, account).await.map_err(during("storing an account"))?;
        row.ok_or(StoreError::Conflict)
    }

    async fn list_accounts(&self) -> Result<Vec<AccountRow>, StoreError> {
        let query = sql("SELECT * FROM accounts ORDER BY name");
        self.fetch_all("listing accounts", query, account_from_row).await
    }

    async fn insert_account(&self, audit: &AuditContext, account: &NewAccount) -> Result<AccountRow, StoreError> {
        let new_id = AccountId::random()?;
        transact!(self.writer.begin_change(), |transaction| {
            sql("INSERT INTO accounts (id, name, kind, protocol, tier, source, created_at, settings, sealed) \
                 VALUES ($1, $2, $3, $4, $5, 'store', $6, $7, $8)")
            .bind(new_id.as_str())
            .bind(&account.name)
            .bind(&account.kind)
            .bind(&account.protocol)
            .bind(&account.tier)
            .bind(audit.at.to_string())
            .bind(&account.settings)
            .bind(&account.sealed_credentials)
            .execute(&mut *transaction)
            .await?;
            // A token under this name would belong to a deleted account.
            delete_token_statement(&account.name).execute(&mut *transaction).await?;
            let details = json!({"kind": account.kind, "protocol": account.protocol, "tier": account.tier});
            audit_trail::write(
                transaction,
                audit,
                AuditEvent::new("account.add", AUDIT_TARGET_KIND, new_id.as_str(), &account.name).with_details(details),
            )
            .await?;
            find(transaction, &account.name).await?.ok_or(sqlx::Error::RowNotFound)?
        })
        .map_err(during("adding an account"))
    }

    async fn change_account(
        &self,
        audit: &AuditContext,
        name: &str,
        change: AccountChange,
    ) -> Result<Option<AccountRow>, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let Some(before) = find(transaction, name).await? else { return Ok(rollback(None)) };
            let event = audit_event(&before, &change);
            for statement in statements(name, change, audit.at) {
                statement.execute(&mut *transaction).await?;
            }
            if let Some(event) = event {
                audit_trail::write(transaction, audit, event).await?;
            }
            find(transaction, name).await?
        })
        .map_err(during("changing an account"))
    }

    async fn delete_account(&self, audit: &AuditContext, name: &str) -> Result<bool, StoreError> {
        transact!(self.writer.begin_change(), |transaction| {
            let query = sql(
                "DELETE FROM accounts WHERE name = $1 AND (source = 'store' OR absent_since IS NOT NULL) RETURNING id",
            );
            let id: Option<String> = query.bind(name).fetch_optional_value(&mut *transaction).await?;
            let Some(id) = id else { return Ok(rollback(false)) };
            delete_token_statement(name).execute(&mut *transaction).await?;
            audit_trail::write(transaction, audit, AuditEvent::new("account.delete", AUDIT_TARGET_KIND, &id, name))
                .await?;
            true
        })
        .map_err(during("deleting an account"))
    }

    async fn mark_others_absent(&self, in_file: &[&str], at: Timestamp) -> Result<u64, StoreError> {
        let names = serde_json::to_string(in_file).map_err(|error| StoreError::Refused(error.into()))?;
        let mut query = StatementBuilder::new("UPDATE accounts SET absent_since = ");
        query.push_bind(at.to_string());
        query.push(" WHERE source = 'file' AND absent_since IS NULL AND name NOT IN ");
        push_json_texts(&mut query, names);
        self.execute_change("marking accounts that left the file", query.build()).await
    }

    async fn find_bindings(&self, digests: &[&str]) -> Result<Vec<AccountBinding>, StoreError> {
        let list = serde_json::to_string(digests).map_err(|error| StoreError::Refused(error.into()))?;
        let mut query =
            StatementBuilder::new("SELECT digest, owner, account, used_on FROM account_bindings WHERE digest IN ");
        push_json_texts(&mut query, list);
        self.fetch_all("looking up the accounts of ids", query.build(), binding_from_row).await
    }

    fn shared_slots(&self) -> Option<&dyn SharedSlots> {
        self.as_shared().map(|store| store as _)
    }
}

/// Inserts or updates the row of an account of the configuration file, and returns it. Returns `None` if an account
/// with that name was created in the store.
async fn sync(store: &SqlStore, new_id: AccountId, spec: AccountSpec<'_>) -> sqlx::Result<Option<AccountRow>> {
    if let Some(account) =
        find(&mut *store.readers.acquire().await?, spec.name).await?.filter(|account| is_current(account, spec))
    {
        return Ok(Some(account));
    }
    // The state that the gateway has set, such as `disabled_at`, stays as it is.
    sql("INSERT INTO accounts (id, name, kind, protocol, tier, source, created_at) \
         VALUES ($1, $2, $3, $4, $5, 'file', $6) \
         ON CONFLICT (name) DO UPDATE SET \
         kind = excluded.kind, protocol = excluded.protocol, tier = excluded.tier, absent_since = NULL \
         WHERE accounts.source = 'file'")
    .bind(new_id.as_str())
    .bind(spec.name)
    .bind(spec.kind)
    .bind(spec.protocol)
    .bind(spec.tier)
    .bind(Timestamp::now().to_string())
    .execute(&store.writer)
    .await?;
    Ok(find(&mut *store.writer.acquire().await?, spec.name).await?.filter(|account| account.source == "file"))
}

fn is_current(account: &AccountRow, spec: AccountSpec<'_>) -> bool {
    account.source == "file"
        && account.kind == spec.kind
        && account.protocol == spec.protocol
        && account.tier == spec.tier
        && account.absent_since.is_none()
}

/// Returns the row of the audit trail for a change. A cooldown or an ejection is not the decision of an actor, so it
/// has no row. A change without effect has no row either.
fn audit_event<'a>(account: &'a AccountRow, change: &AccountChange) -> Option<AuditEvent<'a>> {
    let event = |action| Some(AuditEvent::new(action, AUDIT_TARGET_KIND, account.id.as_str(), &account.name));
    match change {
        AccountChange::Disable { reason } if account.disabled_at.is_none() => {
            event("account.disable").map(|event| event.with_details(json!({"reason": reason})))
        }
        AccountChange::Enable
            if account.disabled_at.is_some() || account.cooldown_until.is_some() || account.ejected_until.is_some() =>
        {
            event("account.enable")
        }
        AccountChange::ReplaceCredentials(_) => event("account.rotate"),
        AccountChange::ReplaceSettings(change) => {
            let changed = changed_settings(account.settings.as_deref(), &change.settings);
            let has_new_credentials = change.credentials.is_some();
            let details = json!({"settings": changed, "credentials": has_new_credentials});
            let event = event("account.change").filter(|_| has_new_credentials || !changed.is_empty());
            event.map(|event| event.with_details(details))
        }
        AccountChange::Disable { .. }
        | AccountChange::Enable
        | AccountChange::StartCooldown { .. }
        | AccountChange::EndCooldown
        | AccountChange::SetEjection(_) => None,
    }
}

fn statements(name: &str, change: AccountChange, at: Timestamp) -> Vec<SqlStatement> {
    match change {
        AccountChange::Disable { reason } => vec![
            // If the account is already disabled, its time and reason are kept.
            sql("UPDATE accounts SET disabled_at = $2, disabled_reason = $3 WHERE name = $1 AND disabled_at IS NULL")
                .bind(name)
                .bind(at.to_string())
                .bind(reason),
        ],
        AccountChange::Enable => vec![
            sql(
                "UPDATE accounts SET disabled_at = NULL, disabled_reason = NULL, \
                 cooling_until = NULL, cooling_cause = NULL, \
                 failing_until = NULL, failing_since = NULL, failing_reason = NULL WHERE name = $1",
            )
            .bind(name),
        ],
        AccountChange::SetEjection(ejection) => {
            let (since, until) = ejection.as_ref().map(|ejection| (ejection.since, ejection.until)).unzip();
            vec![
                // The end of an ejection leaves the time of its begin.
                sql(
                    "UPDATE accounts SET failing_until = $2, failing_since = coalesce($3, failing_since), \
                     failing_reason = $4 WHERE name = $1",
                )
                .bind(name)
                .bind(until.map(|until| until.to_string()))
                .bind(since.map(|since| since.to_string()))
                .bind(ejection.map(|ejection| ejection.reason)),
            ]
        }
        AccountChange::StartCooldown { until, cause } => vec![
            sql(
                "UPDATE accounts SET cooling_until = $2, cooling_cause = $3 \
                 WHERE name = $1 AND (cooling_until IS NULL OR cooling_until < $2)",
            )
            .bind(name)
            .bind(until.to_string())
            .bind(cause),
        ],
        AccountChange::EndCooldown => vec![
            sql(
                "UPDATE accounts SET cooling_until = NULL, cooling_cause = NULL WHERE name = $1 AND cooling_until <= $2",
            )
            .bind(name)
            .bind(at.to_string()),
        ],
        AccountChange::ReplaceCredentials(credentials) => credentials_statements(name, credentials),
        AccountChange::ReplaceSettings(change) => {
            let StoredAccountSettings { protocol, tier, settings, credentials } = *change;
            let update = sql(
                "UPDATE accounts SET protocol = $2, tier = $3, settings = $4 WHERE name = $1 AND source = 'store'",
            );
            let mut statements = vec![update.bind(name).bind(protocol).bind(tier).bind(settings)];
            statements.extend(credentials.into_iter().flat_map(|new| credentials_statements(name, new)));
            statements
        }
    }
}

fn credentials_statements(name: &str, credentials: NewCredentials) -> Vec<SqlStatement> {
    let update = sql("UPDATE accounts SET sealed = $2 WHERE name = $1").bind(name).bind(credentials.sealed);
    let token = match credentials.token {
        TokenChange::Delete => Some(delete_token_statement(name)),
        TokenChange::Keep => None,
        TokenChange::Replace { before, after } => Some(
            sql("UPDATE tokens SET sealed = $3 WHERE account = $1 AND sealed = $2").bind(name).bind(before).bind(after),
        ),
    };
    [update].into_iter().chain(token).collect()
}

/// The names of the settings that differ.
fn changed_settings(before: Option<&str>, after: &str) -> Vec<String> {
    let parse = |text: &str| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let (before, after) = (parse(before.unwrap_or_default()), parse(after));
    let mut names: Vec<String> = before.keys().chain(after.keys()).cloned().collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| before.get(name) != after.get(name));
    names
}

async fn find(connection: &mut SqlConnection, name: &str) -> sqlx::Result<Option<AccountRow>> {
    let row = sql("SELECT * FROM accounts WHERE name = $1").bind(name).fetch_optional(connection).await?;
    row.map(|row| account_from_row(&row)).transpose()
}

fn delete_token_statement(account: &str) -> SqlStatement {
    sql("DELETE FROM tokens WHERE account = $1").bind(account)
}

fn account_from_row(row: &SqlRow) -> sqlx::Result<AccountRow> {
    Ok(AccountRow {
        id: text(row, "id")?,
        name: text(row, "name")?,
        kind: text(row, "kind")?,
        protocol: text(row, "protocol")?,
        tier: text(row, "tier")?,
        source: text(row, "source")?,
        disabled_at: optional_timestamp(row, "disabled_at")?,
        disabled_reason: row.try_get("disabled_reason")?,
        settings: row.try_get("settings")?,
        sealed_credentials: row.try_get("sealed")?,
        cooldown_until: optional_timestamp(row, "cooling_until")?,
        cooldown_cause: row.try_get("cooling_cause")?,
        ejected_until: optional_timestamp(row, "failing_until")?,
        ejected_since: optional_timestamp(row, "failing_since")?,
        ejection_reason: row.try_get("failing_reason")?,
        absent_since: optional_timestamp(row, "absent_since")?,
        created_at: parsed(row, "created_at")?,
    })
}

fn binding_from_row(row: &SqlRow) -> sqlx::Result<AccountBinding> {
    Ok(AccountBinding {
        digest: text::<BindingDigest>(row, "digest")?,
        owner: row.try_get("owner")?,
        account: row.try_get("account")?,
        used_on: parsed(row, "used_on")?,
    })
}
