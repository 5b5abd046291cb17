//! Reads the bindings of values to users and accounts. They are written with the records.

use sqlx::{QueryBuilder, Row as _};

use super::decode::{parsed, text};
use super::dialect::{DbPool, DbRow};
use super::paging::push_json_texts;
use crate::gateway::store::{AccountBinding, BindingDigest};

/// Returns the bindings of these digests, whoever their owners are.
pub(super) async fn find(pool: &DbPool, digests: &[&str]) -> sqlx::Result<Vec<AccountBinding>> {
    let list = serde_json::to_string(digests).map_err(|error| sqlx::Error::Encode(error.into()))?;
    let mut query = QueryBuilder::new("SELECT digest, owner, account, used_on FROM account_bindings WHERE digest IN ");
    push_json_texts(&mut query, list);
    query.build().fetch_all(pool).await?.iter().map(binding_from_row).collect()
}

fn binding_from_row(row: &DbRow) -> sqlx::Result<AccountBinding> {
    Ok(AccountBinding {
        digest: text::<BindingDigest>(row, "digest")?,
        owner: row.try_get("owner")?,
        account: row.try_get("account")?,
        used_on: parsed(row, "used_on")?,
    })
}
