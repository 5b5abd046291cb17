//! The operations on admin tokens, with which programs authenticate to the admin API.

use super::error_conversion::{ErrorSubject, from_identity_error};
use super::request_fields::{read_body, to_timestamp};
use super::{Console, list_object};
use crate::error::Error;
use crate::gateway::people::{Actor, NewToken};
use crate::gateway::store::AdminTokenRow;
use crate::tables::NEW_TOKEN_FIELDS;
use crate::wire::Secret;
use crate::wire::admin::server::ListTokensQuery;
use crate::wire::admin::types;

// === impl Console ===

impl Console {
    /// Returns the admin tokens, newest first.
    ///
    /// # Errors
    ///
    /// 404 if the named user does not exist.
    pub(crate) async fn list_tokens(&self, actor: &Actor, query: &ListTokensQuery) -> Result<types::TokenList, Error> {
        let owner = self.owner_filter(actor, query.user.as_deref()).await?;
        let tokens = self.people.tokens(owner.as_ref()).await.map_err(from_identity_error(ErrorSubject::Token, ""))?;
        Ok(types::TokenList { object: list_object(), data: tokens.into_iter().map(to_wire_token).collect() })
    }

    /// Creates an admin token. Only this answer contains its secret.
    ///
    /// # Errors
    ///
    /// 400 for the first field that cannot be used, 404 if the named user does not exist, 409 if the user has too many
    /// tokens.
    pub(crate) async fn create_token(&self, actor: &Actor, body: &[u8]) -> Result<types::CreatedToken, Error> {
        let new: types::NewToken = read_body(NEW_TOKEN_FIELDS, body)?;
        let user = self.user_for(actor, new.user.as_deref()).await?;
        let terms = NewToken {
            name: &new.name,
            expires_at: to_timestamp(new.expires_at),
            maker: actor.token(),
            max_tokens: self.config.max_tokens_per_user,
        };
        let created = self.people.create_token(&actor.audit_context(), &user, terms).await;
        let (token, secret) = created.map_err(from_identity_error(ErrorSubject::Token, ""))?;
        Ok(types::CreatedToken { token: to_wire_token(token), secret: Secret::from(secret.expose()) })
    }

    /// Deletes an admin token, by its id or public id.
    ///
    /// # Errors
    ///
    /// 404 if there is no such token, or if it belongs to another user.
    pub(crate) async fn delete_token(&self, actor: &Actor, handle: &str) -> Result<types::DeletedToken, Error> {
        let deleted = self.people.revoke_token(&actor.audit_context(), handle, actor.restricted_to()).await;
        let deleted_token = deleted.map_err(from_identity_error(ErrorSubject::Token, handle))?;
        Ok(types::DeletedToken { id: deleted_token.id.to_string(), name: deleted_token.name, deleted: true })
    }
}

fn to_wire_token(row: AdminTokenRow) -> types::Token {
    types::Token {
        id: row.id.to_string(),
        public_id: row.public_id.to_string(),
        name: row.name,
        user: row.user.to_string(),
        user_name: row.user_name,
        created_at: row.created_at.into(),
        expires_at: row.expires_at.map(Into::into),
        last_used_at: row.last_used_at.map(Into::into),
    }
}
