//! The second factors of people, as they are stored: the sealed secret of an authenticator app, and recovery codes.

use async_trait::async_trait;

use super::{AuditContext, SecretHash, SessionId, StoreError, UserId};

/// The database operations on second factors. Every change writes its row of the audit trail with it.
#[async_trait]
pub(crate) trait SecondFactorStore: Send + Sync {
    /// Returns the second factor of a user, if there is one.
    async fn find_second_factor(&self, user: &UserId) -> Result<Option<SecondFactorRow>, StoreError>;

    /// Stores a second factor and its recovery codes, and ends all sessions of the user except `kept_session`. Returns
    /// `false` and changes nothing if the user has one already.
    async fn add_second_factor(
        &self,
        audit: &AuditContext,
        user: &UserId,
        factor: &NewSecondFactor,
        kept_session: &SessionId,
    ) -> Result<bool, StoreError>;

    /// Replaces the recovery codes of a user. Returns `false` if the user has no second factor.
    async fn replace_recovery_codes(
        &self,
        audit: &AuditContext,
        user: &UserId,
        codes: &[SecretHash],
    ) -> Result<bool, StoreError>;

    /// Removes the second factor of a user and its recovery codes. Returns `false` if there was none.
    async fn remove_second_factor(&self, audit: &AuditContext, user: &UserId) -> Result<bool, StoreError>;
}

/// A second factor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SecondFactorRow {
    /// The sealed secret.
    pub(crate) sealed_secret: Vec<u8>,
    /// The time step of the last code that was used.
    pub(crate) last_step: i64,
    /// The number of recovery codes that were not used yet.
    pub(crate) recovery_codes: u64,
}

/// A second factor to be stored.
#[derive(Debug, Clone)]
pub(crate) struct NewSecondFactor {
    /// The sealed secret.
    pub(crate) sealed_secret: Vec<u8>,
    /// The time step of the code that confirmed it.
    pub(crate) last_step: i64,
    /// The hashes of the recovery codes.
    pub(crate) recovery_codes: Vec<SecretHash>,
}

/// The use of a second factor, which the store permits once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FactorUse {
    /// The code of this time step.
    Step(i64),
    /// A recovery code.
    RecoveryCode(SecretHash),
}
