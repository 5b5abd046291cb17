//! The corridor of the operators: who may look after the gateway, and what they may do with its accounts.
//!
//! Decides who is an operator, what of an account is told, and which answer goes with which trouble. Refuses to know HTTP,
//! and how accounts are chosen: what is changed here is written to the store, where the running gateway finds it within a
//! second. Commands walk through the same room, `manage`.
//!
//! The accounts are also a page for people ([`page`]); signing in, and the pages that change something, are still to come.
//!
//! Carries: no credential of an account ever leaves; keys of callers let nobody in here, and the admin token nobody there;
//! a refused field is named.

mod accounts;
mod page;
mod shown;
mod token;

#[cfg(test)]
mod tests;

pub(crate) use token::{KeyAsToken, Operator};

use std::sync::Arc;

use super::config::Config;
use super::keys;
use super::store::SqliteStore;
use crate::error::Error;
use token::Token;

/// What operators can reach.
pub(crate) struct Console {
    config: Config,
    store: Arc<SqliteStore>,
    /// Without one nobody is let in.
    token: Option<Token>,
}

// === impl Console ===

impl Console {
    /// The console of an installation.
    ///
    /// # Errors
    ///
    /// Where the admin token is what callers have.
    pub(crate) fn new(config: &Config, store: &Arc<SqliteStore>) -> Result<Self, KeyAsToken> {
        let token = config.admin_token.as_ref().map(Token::new).transpose()?;
        Ok(Self { config: config.clone(), store: Arc::clone(store), token })
    }

    /// Checks the value of an `Authorization` header.
    ///
    /// # Errors
    ///
    /// The same for whatever is not the admin token, and where there is none.
    pub(crate) fn admit(&self, authorization: Option<&[u8]>) -> Result<Operator, Error> {
        let presented = authorization.and_then(keys::bearer);
        let operator = self.token.as_ref().zip(presented).and_then(|(token, presented)| token.admit(presented));
        operator.ok_or(Error::InvalidKey)
    }
}
